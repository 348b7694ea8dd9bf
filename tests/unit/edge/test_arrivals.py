"""Checkpoints that arrive in parts, and are made and read a block at a time: the bytes are those of one that
is made at once, what is accepted is what could be read at once, and power may fail anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from defects import Change, first_error, seeded
from headwater.data import msgpack
from headwater.plan.model import Plan
from headwater.runtime import checkpoint_transfer, checkpoints, incoming, restore, startup, transfer_state
from headwater.storage import arrival, checkpoint_bytes, checkpoint_file, reading, reserve
from headwater.storage.keyspace import B_PARTS, HELD, PARTS_MAX, PERMANENT, checkpoint_key
from headwater.storage.log import Log, LogFull
from headwater.testing.cut_flash import KINDS, CutFlash, PowerCut
from headwater_tools.simulator.directed.handovers import SCHEDULES, LargeLosesWrite, MovedLakeAway
from hypothesis import given
from hypothesis import strategies as st

KEY = checkpoint_key(1, HELD)
CUTS = 150  # flash operations of a move, at most

# ---- what is read


def plan() -> Plan:
    return MovedLakeAway(1).plan


VERTEX = plan().vertices[1]
NUMBERS = st.one_of(st.integers(0, 300), st.integers(0, (1 << 64) - 1))
LISTS = st.lists(NUMBERS, max_size=3)
PARTS = st.one_of(
    st.just(0),
    st.tuples(NUMBERS, st.lists(st.binary(max_size=400), max_size=20), st.lists(NUMBERS, max_size=20)),
)
NAMES = st.lists(
    st.tuples(
        NUMBERS,
        NUMBERS,
        NUMBERS,
        NUMBERS,
        NUMBERS,
        LISTS,
        LISTS,
        st.lists(st.lists(NUMBERS, min_size=3, max_size=3), max_size=2),
    ),
    max_size=3,
)
VALUES = st.one_of(
    st.integers(-9, 9), st.floats(allow_nan=False), st.text(max_size=3), st.lists(NUMBERS, max_size=2)
)
GIVEN = st.one_of(st.just((0, 0)), st.tuples(NUMBERS, st.integers(1, 300)))


@st.composite
def wholes(draw: Any) -> bytes:
    body = checkpoint_bytes.body(
        draw(st.integers(0, 300)),
        draw(st.lists(NUMBERS, min_size=3, max_size=3)),
        [draw(NUMBERS)],
        [[draw(st.integers(0, 1)), draw(NUMBERS), draw(NUMBERS)]],
        draw(st.dictionaries(st.text(max_size=3), VALUES, max_size=2)),
        draw(NUMBERS),
        draw(st.binary(max_size=300)),
        draw(GIVEN),
    )
    transfer = msgpack.dumps([[draw(PARTS)], [draw(NAMES)]])
    return checkpoint_bytes.head((draw(st.integers(0, 9)), 2), len(body)) + body + transfer


def at_once(data: bytes) -> Any:
    """The checkpoint in these bytes as `loads` reads it, or None."""
    number, numbers = checkpoint_file.number, checkpoint_file.numbers
    n = 8 + int.from_bytes(data[:3], "little")
    try:
        if len(data) < n:
            return None
        items = msgpack.loads(data[8:n])
        form, version, pos, outs, inputs, changed, front, state = items[:8]
        right = form == 2 and number(version) and numbers(pos, 3) and numbers(outs, 1) and len(inputs) == 1
        right = right and (number(inputs[0]) or numbers(inputs[0], 3)) and type(changed) is dict
        right = right and number(front) and type(state) is bytes and (not items[8:] or numbers(items[8:], 2))
        (part,), (names,) = msgpack.loads(data[n:])
        if part != 0:
            start, blocks, turns = part
            right = right and number(start) and numbers(turns) and all([type(b) is bytes for b in blocks])
            right = right and type(blocks) is list
        for record in names:
            right = right and len(record) == 8 and numbers(record[:5]) and numbers(record[5])
            right = right and numbers(record[6]) and all([numbers(gap, 3) for gap in record[7]])
    except (msgpack.PackError, ValueError, TypeError):
        return None
    if not right:
        return None
    where = part if part != 0 else [outs[0], [], []]
    return (version, pos, outs, changed, front, state, tuple(items[8:] or (0, 0)), names, where)


def in_pieces(data: bytes, size: int) -> reading.Reading:
    def pieces() -> Iterator[bytes]:
        return iter([data[i : i + size] for i in range(0, len(data), size)])

    return reading.Reading(len(data), pieces)


def piecewise(data: bytes, size: int, whole: bool = True) -> Any:
    src = in_pieces(data, size)
    found = checkpoint_file.read_permanent(VERTEX, src, whole)
    if found is None:
        return None
    start, n, turns = found.parts[0]
    blocks = [bytes(b) for _, b in checkpoint_file.blocks(found, src)]
    assert n == len(blocks)
    head = (found.version, found.pos, found.outs, found.changed, found.front, found.state, found.given)
    return (*head, *found.names, [start, blocks, turns])


@given(wholes(), st.integers(1, 600))
def test_what_is_read_piece_by_piece_is_what_is_read_at_once(data: bytes, size: int) -> None:
    found = at_once(data)
    assert found is not None
    assert piecewise(data, size) == found
    passed = piecewise(data, size, False)
    assert passed[5] == b"" and passed[:5] == found[:5] and passed[6:] == found[6:]


@given(wholes(), st.integers(1, 600), st.data())
def test_what_could_not_be_read_at_once_is_refused(data: bytes, size: int, more: Any) -> None:
    damaged = bytearray(data)
    for _ in range(more.draw(st.integers(1, 3))):
        at = more.draw(st.integers(0, len(data) - 1))
        damaged[at] = more.draw(st.integers(0, 255))
    damaged = damaged[: more.draw(st.integers(1, len(data)))] if more.draw(st.booleans()) else damaged
    assert piecewise(bytes(damaged), size) == at_once(bytes(damaged))


# ---- what is made


def test_a_checkpoint_made_block_by_block_has_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[list[bytes]] = []
    most = 0

    def commit(self: checkpoints.Checkpoints, c: Any, whole: bool, anew: bool = False) -> None:
        nonlocal most
        was(self, c, whole, anew)
        store, key = self.host.store, checkpoint_key(self.inst.vertex.index, PERMANENT)
        found = checkpoint_file.read_permanent(self.inst.vertex, reading.stored(store, (key,)))
        most = max([most] + ([part[1] for part in found.parts] if found else []))
        made[-1].append(store.get_blob(key) or b"")

    was = checkpoints.Checkpoints.commit
    monkeypatch.setattr(checkpoints.Checkpoints, "commit", commit)
    for room in (1 << 20, -1):
        made.append([])
        monkeypatch.setattr(transfer_state, "_IN_RAM", room)
        assert MovedLakeAway(1).run().errors == []
    assert made[0] == made[1]
    assert most > 4


# ---- the log


def data(k: int, size: int) -> bytes:
    return bytes([(k * 37 + i * 11 + (i >> 8)) & 255 for i in range(size)])


def mounted(flash: CutFlash) -> Log:
    log = Log(flash)
    log.mount()
    return log


def arrive(log: Log, whole: bytes, piece: int, between: Any = None) -> None:
    arrival.clear(log)
    known = arrival.begin(((1, 1), [1]), len(whole), arrival.part_bytes(len(whole)), 0)
    for at in range(0, len(whole), piece):
        arrival.add(log, known, whole[at : at + piece])
        if between:
            between()
    arrival.store(log, KEY, known)
    arrival.clear(log)


def parts_of(log: Log) -> list[int]:
    return [i for i in range(PARTS_MAX) if log.blob_size(B_PARTS + i)]


@pytest.mark.parametrize("size", [1, 2047, 2048, 2049, 5000, 16384, 16385, 40000])
@pytest.mark.parametrize("piece", [190, 1300])
def test_what_arrived_is_what_was_sent(size: int, piece: int) -> None:
    flash = CutFlash(64)
    Log.format(flash, 1)
    log = mounted(flash)
    arrive(log, data(1, size), piece)
    assert log.get_blob(KEY) == data(1, size)
    assert parts_of(log) == []
    assert len(arrival.parts(size)) <= PARTS_MAX and sum(arrival.parts(size)) == (size if size > 2048 else 0)


def test_power_may_fail_in_every_flash_operation() -> None:
    """Samples go to the log meanwhile. Afterwards there is the old checkpoint or the new one, all of it, and
    what was accepted."""
    old, new = data(1, 600), data(2, 2500)
    op = 0
    while True:
        flash = CutFlash(24, 1024, op + 1)
        Log.format(flash, 1)
        log = mounted(flash)
        log.put_blob(KEY, old)
        begin, taken = flash.op, 0

        def sample(log: Log = log) -> None:
            nonlocal taken
            taken += log.append_run(8, taken + 1, 1, taken + 1, data(taken, 100))

        flash.arm(begin + op, op * 53 % 600, op % len(KINDS))
        try:
            arrive(log, new, 400, sample)
            assert flash.op <= begin + op
            break
        except PowerCut:
            flash.revive()
        log = mounted(flash)
        arrival.clear(log)
        assert log.get_blob(KEY) in (old, new)
        assert parts_of(log) == []
        assert log.tail(8)[0] in (taken, taken + 1)
        arrive(log, new, 400)
        assert log.get_blob(KEY) == new
        op += 1
    assert op > 30


def test_a_blob_is_read_while_it_is_carried_forward() -> None:
    flash = CutFlash(16, 1024)
    Log.format(flash, 1)
    log = mounted(flash)
    log.put_blob(5, data(5, 300))
    log.put_blob(6, data(6, 350))
    src = reading.stored(log, (5, 6))
    got = bytes(src.take(100))
    place = log._blobs[5]
    for k in range(6):
        log.put_blob(7, data(k, 300))
    assert log._reclaim(place[0], 1) and log._blobs[5] != place
    for k in range(40):
        log.put_blob(7, data(k, 300))  # what held it is erased, and written again
    assert flash.erases[place[0]] > 1
    assert got + b"".join([bytes(piece) for piece in src.rest()]) == data(5, 300) + data(6, 350)


# ---- the reserve


def test_a_log_full_of_samples_has_room_for_an_arrival() -> None:
    whole = LargeLosesWrite(1).plan
    sizes = reserve.blobs(whole, 3)
    most = reserve.arriving_bytes(whole, 3)
    assert most > 4 * arrival.WHOLE

    def admits(sizes: list[int]) -> bool:
        flash = CutFlash(reserve.sectors(whole, 3))
        Log.format(flash, 1)
        log = mounted(flash)
        log.ensure_reserve(sizes)
        xi = 0
        while log.append_run(8, xi + 1, 1, xi + 1, data(xi, 900)):
            xi += 1
        own = sizes[: len(reserve.blobs(whole, 3)) - len(arrival.parts(most)) - 1]
        try:
            for _ in range(3):
                for k, size in enumerate(own):
                    log.put_blob(4 * k, data(k, size))
                arrive(log, data(9, most), 190)
                for k, size in enumerate(own):
                    log.put_blob(4 * k, data(k, size))
                log.rename_blob(KEY, 0)
        except LogFull:
            return False
        return True

    assert admits(sizes)
    parts = len(arrival.parts(most))
    assert not admits(sizes[: -parts - 1])


# ---- whole hosts


@pytest.mark.slow
@pytest.mark.parametrize(
    "cut", [*range(0, CUTS, 6), *[pytest.param(n, marks=pytest.mark.sweep) for n in range(CUTS)]]
)
def test_power_fails_as_a_large_checkpoint_arrives(cut: int) -> None:
    assert LargeLosesWrite(1, cut).run().errors == []


@pytest.mark.parametrize("sends", [False, True])
def test_a_checkpoint_that_is_damaged_behind_its_beginning_counts_as_absent(sends: bool) -> None:
    scenario = LargeLosesWrite(1)
    for node in scenario.world.nodes:
        scenario.world.boot(node)
    scenario.world.start_sensors()
    scenario.world.run(6_000_000)
    home = scenario.node(2)
    host: Any = home.host
    key = checkpoint_key(1, PERMANENT)
    size = host.store.blob_size(key)
    third = [bytes(piece) for piece in host.store._pieces(host.store._blobs[key], bytearray(512))][2]
    while third in home.flash.data:
        at = home.flash.data.find(third)
        home.flash.data[at : at + len(third)] = bytes(len(third))
    assert incoming.place(host, 1, PERMANENT) is not None
    if sends:
        for at in range(0, size, 400):
            checkpoint_transfer.piece(host, 1, key, [0, 0, 0], (1, 2), 3, at)
    else:
        assert not restore.restore(host, host.instances[1], key)
    assert incoming.place(host, 1, PERMANENT) is None


# Name, what the rule prevents, the changes, and a schedule in which it shows.
DEFECTS: list[tuple[str, str, list[Change], str]] = [
    (
        "parts outlive a restart",
        "a log that fills with what nobody will ever read",
        [(startup, "start", "arrival.clear(host.store)", "pass")],
        "moved with a large state, write lost",
    ),
    (
        "parts outlive their checkpoint",
        "a log that fills with what nobody will ever read",
        [(incoming, "_end", "if inc and arrival.lies(inc):", "if 0:")],
        "moved with a large state, write lost",
    ),
    (
        "two checkpoints arrive in flash at once",
        "parts of one in the place of those of the other",
        [(incoming, "_arriving", "if u != v and arrival.lies(other):", "if 0:")],
        "two large checkpoints",
    ),
    (
        "what arrived is stored and confirmed, whatever it is",
        "a checkpoint that cannot be read when its operator needs it",
        [
            (arrival, "add", "part[at : at + n] = piece[i : i + n]", "part[at] = 0"),
            (incoming, "_put", "if found is None or (found.epoch, found.pos) != inc[0]:", "if 0:"),
        ],
        "two large checkpoints",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "prevented", "changes", "where"), DEFECTS, ids=[d[0] for d in DEFECTS])
def test_a_checker_sees(name: str, prevented: str, changes: list[Change], where: str) -> None:
    with seeded(changes):
        assert any(first_error(SCHEDULES[where](seed)) for seed in range(6)), prevented
