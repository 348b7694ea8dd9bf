"""Deployments: read totally, and switched so that a power cut at any place loses no numbering."""

import random
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import pytest
from headwater.board import deployment
from headwater.board.program import Node as Program
from headwater.data import block, msgpack
from headwater.data.alphabet import Alphabet
from headwater.data.batch import Batch
from headwater.process import Fir, Process
from headwater.protocol import frames, site_link
from headwater.protocol.sessions import hmac, pair_key
from headwater.storage import reserve
from headwater.storage.keyspace import (
    B_COMING,
    B_DECIDED,
    B_DEPLOYMENT,
    F_AGAIN,
    F_BOOT,
    F_DRAINED,
    F_FLOOR,
    F_INC,
    F_OP,
    F_SWITCH,
    stream_key,
)
from headwater.storage.log import Log
from headwater.testing.cut_flash import KINDS, CutFlash, PowerCut

KEY = bytes(range(32))
MASTER = b"\x77" * 32
LOG = 0x1234
SECTORS = 48


def plan(*sources: str, operator: bool = False) -> bytes:
    p = Process("p", batch=10, level="local")
    for name in sources:
        stream = p.source(name, "x:i16", rate_hz=10, on="chest")
        p.lake("p/" + name, stream)
        if operator:
            smooth = Fir([1, 2, 1], shift=2).named(name + "_smooth").on("chest")
            p.lake("p/%s_smooth" % name, stream >> smooth)
    return bytes(p.encode())


OLD = msgpack.dumps([1, plan("ecg", "gone", operator=True), []])
NEW = msgpack.dumps([1, plan("fresh", "ecg"), []])


def mounted(flash: CutFlash) -> Log:
    log = Log(flash)
    log.mount()
    return log


def decided() -> CutFlash:
    """The flash of a drained board for which a switch has just been decided."""
    flash = CutFlash(SECTORS, 1024)
    Log.format(flash, LOG)
    log = mounted(flash)
    log.put(F_BOOT, (9).to_bytes(4, "little"))
    log.put(F_FLOOR, (5000).to_bytes(8, "little"))
    log.put(F_OP + 1, b"\x93\x01\x01\x01")
    log.put_blob(B_DEPLOYMENT, OLD)
    log.put_blob(4, b"a permanent checkpoint" * 5)
    batch = Batch(Alphabet("x:i16"), 10)
    body = bytearray(200)
    for first in range(1, 61, 10):
        batch.n, batch.xi, batch.ts, batch.dt = 10, first, 1000 * first, 100
        end = block.encode(batch, 0, 10, body, 0)
        for stream in (stream_key(0), stream_key(2)):
            log.append_run(stream, first, 10, batch.ts_of(9), body[:end])
    log.put_blob(B_COMING, NEW)
    log.put(F_SWITCH, sha256(NEW).digest()[:8] + b"\1")
    return flash


def switched(log: Log) -> None:
    found = deployment.load(log, KEY, "chest", lambda: 77)
    assert found is not None
    assert found[0] == sha256(NEW).digest()[:8]
    assert [v.name for v in found[1].vertices] == ["fresh", "ecg"]
    assert log.tail(8) == (60, 51900)  # ecg numbers on, as vertex 1
    assert log.tail(0) == (0, 0)
    assert log.get(F_INC + 1) == LOG.to_bytes(8, "little")
    assert log.get(F_INC) == (77).to_bytes(8, "little")  # a name that may have been used before
    assert (log.get(F_BOOT), log.get(F_FLOOR)) == ((9).to_bytes(4, "little"), (5000).to_bytes(8, "little"))
    assert (log.get(F_SWITCH), log.get(F_OP + 1)) == (None, None)
    assert log.blob_keys() == [B_DEPLOYMENT]
    assert deployment.waiting(log) == (None, False)


def test_switch_leaves_the_sources_numbers_and_nothing_else_of_the_old_process() -> None:
    switched(mounted(decided()))


def test_power_cut_at_any_operation_of_a_switch_ends_in_the_new_process() -> None:
    start = decided()
    mounted(start)
    shot = start.snapshot()
    start.trace = []
    log = mounted(start)
    before = len(start.trace)
    deployment.load(log, KEY, "chest", lambda: 77)
    sizes = [size for _, size in start.trace]
    assert len(sizes) - before > 10
    first = shot[3][4]
    for k in range(before, len(sizes)):
        for byte in {0, sizes[k] // 2, sizes[k]}:
            for kind in range(len(KINDS)):
                flash = CutFlash(SECTORS, 1024)
                flash.restore(shot)
                flash.arm(first + k, byte, kind)
                with pytest.raises(PowerCut):
                    deployment.load(mounted(flash), KEY, "chest", lambda: 77)
                flash.revive()
                switched(mounted(flash))


class Node(Program):
    """The program of a board, without a host and a link."""

    def __init__(self, store: Log, failed: bytes | None = None) -> None:
        super().__init__({"name": "chest", "sensors": {"ecg": {}, "gone": {}, "fresh": {}}}, None)
        self.opened(KEY, store)
        self.has(None, failed, None)
        self.crash = [3, "crashed", 5]
        self.said: list[tuple[Any, ...]] = []
        self.held = 0

    def unsafe(self) -> int:
        return self.held

    def drain(self, on: bool) -> None:
        self.draining = on

    def forgive(self) -> None:
        self.failed = None

    def say(self, kind: int, *values: Any) -> None:
        self.said.append((kind, *[bytes(v) if isinstance(v, memoryview) else v for v in values]))


def arrives(node: Node, data: bytes, again: int = 0) -> tuple[Any, ...]:
    """A whole deployment comes, piece by piece; the last answer."""
    ident = sha256(data).digest()[:8]
    for at in range(0, len(data), 400):
        deployment.handle(node, (frames.PLAN, ident, len(data) + again, at, data[at : at + 400]))
    return node.said[-1]


def running() -> Log:
    """The flash of a board whose process is OLD and not drained."""
    log = mounted(decided())
    log.drop(4)
    log.drop_blob(B_COMING)
    return log


def test_a_process_that_was_left_out_leaves_its_successor_nothing_but_its_sources() -> None:
    log = running()
    log.put_blob(B_DECIDED + 0x41, b"a decision that it crashed on")
    node = Node(log, sha256(OLD).digest()[:8])
    same = msgpack.dumps([1, plan("ecg", "gone"), []])  # ecg stays vertex 0, its smooth operator goes
    ident = sha256(same).digest()[:8]
    assert arrives(node, same) == (frames.PLANNED, ident, site_link.RUNS, len(same), b"")
    assert node.again and node.failed is None
    found = deployment.load(log, KEY, "chest", lambda: 77)
    assert found is not None and found[0] == ident
    assert log.blob_keys() == [B_DEPLOYMENT] and log.get(F_OP + 1) is None
    assert (log.first(0), log.tail(0)) == (1, (60, 51900))  # accepted and not safe yet: still there
    assert log.get(F_INC) == LOG.to_bytes(8, "little")
    assert log.get(F_SWITCH) is None


def blank() -> Log:
    flash = CutFlash(SECTORS, 1024)
    Log.format(flash, LOG)
    return mounted(flash)


def test_a_board_that_lost_its_flash_knows_that_it_ran_this_process_before() -> None:
    log = blank()
    assert arrives(Node(log), NEW, site_link.AGAIN)[2] == site_link.RUNS
    assert log.get(F_AGAIN)
    fresh = blank()
    assert arrives(Node(fresh), NEW)[2] == site_link.RUNS
    assert fresh.get(F_AGAIN) is None


def test_a_log_too_small_for_a_process_refuses_it_and_takes_it_with_a_sector_more() -> None:
    p = Process("large", batch=10, every=100)
    p.host("chest", flash_kb=512)
    p.lake("large/ecg", p.source("ecg", "x:i16", rate_hz=10, on="chest") >> Fir([1, 2, 1]).on("chest"))
    data = msgpack.dumps([1, bytes(p.encode()), []])
    found, me, _ = deployment.read(data, KEY, "chest")
    least = reserve.sectors(found, me, len(data))
    for sectors in (least - 1, least):
        flash = CutFlash(sectors, 4096)
        Log.format(flash, LOG)
        log = mounted(flash)
        kind, _, state, _, why = arrives(Node(log), data)
        if sectors == least:
            assert state == site_link.RUNS
            log.ensure_reserve(reserve.blobs(found, me, len(data)))
            assert log.takes(400)
        else:
            assert state == site_link.REFUSED and log.blob_keys() == []
            said = why.decode()
            assert "the log of this board has %d KB" % (4 * sectors) in said and "large" in said


def test_a_deployment_that_cannot_be_read_any_more_is_replaced() -> None:
    log = running()
    log.put_blob(B_DEPLOYMENT, msgpack.dumps([1, b"of another version of the program", []]))
    with pytest.raises(ValueError):
        deployment.load(log, KEY, "chest", lambda: 77)
    assert arrives(Node(log), NEW)[2] == site_link.RUNS
    found = deployment.load(log, KEY, "chest", lambda: 77)
    assert found is not None and found[0] == sha256(NEW).digest()[:8]
    assert log.get(F_INC) == (77).to_bytes(8, "little") and log.blob_keys() == [B_DEPLOYMENT]


def test_a_board_hands_out_the_deployments_that_it_has_and_no_other() -> None:
    log = mounted(decided())
    node = Node(log)
    node.deployed, node.next = sha256(OLD).digest()[:8], sha256(NEW).digest()[:8]
    for ident, data in ((node.deployed, OLD), (node.next, NEW)):
        got = b""
        while len(got) < len(data):
            deployment.handle(node, (frames.PLANNED, ident, site_link.WANTED, len(got), b""))
            kind, about, size, offset, piece = node.said[-1]
            assert (kind, about, size, offset) == (frames.PLAN, ident, len(data), len(got)) and len(
                piece
            ) <= 400
            got += piece
        assert got == data
        for offset in (len(data), 1 << 20, (1 << 64) - 1):
            deployment.handle(node, (frames.PLANNED, ident, site_link.WANTED, offset, b""))
            assert node.said[-1] == (frames.PLAN, ident, len(data), offset, b"")
    deployment.handle(node, (frames.PLANNED, bytes(8), site_link.WANTED, 0, b""))
    assert node.said[-1] == (frames.PLANNED, bytes(8), site_link.WANTED, 0, b"")


def test_deployment_gives_plan_place_and_unmasked_keys() -> None:
    p = Process("p", batch=10, level="local")
    ecg = p.source("ecg", "x:i16", rate_hz=10, on="chest")
    p.lake("p/x", ecg >> Fir([1, 2, 1], shift=2).on("wrist"))
    p.lake("p/y", p.source("far", "x:i16", rate_hz=10, on="hip"))
    key = pair_key(MASTER, 0, 5)
    pair = pair_key(MASTER, 5, 9)
    pad = hmac(key, b"headwater mask", (9).to_bytes(8, "big"))
    hosts = p.plan().hosts
    mask = bytes(a ^ b for a, b in zip(pair, pad, strict=True))
    others = [[hosts.index("wrist"), 9, mask], [hosts.index("hip"), 7, bytes(32)]]
    data = msgpack.dumps([1, bytes(p.encode()), others])
    found, me, keys = deployment.read(data, key, "chest")
    assert (found.name, hosts[me]) == ("p", "chest")
    assert keys == {0: key, hosts.index("wrist"): pair}  # of hip nothing is needed here


def test_broken_deployments_give_one_error() -> None:
    good: list[Any] = [1, plan("ecg"), []]
    deployment.read(msgpack.dumps(good), KEY, "chest")
    bad: list[Any] = [
        None, 7, [], [1], [2, good[1], []], [1, b"", []], [1, "text", []], [1, good[1], 5], [1, good[1], [5]],
        [1, good[1], [[1, 2]]], [1, good[1], [[9, 2, bytes(32)]]], [1, good[1], [[1, 2, bytes(31)]]],
        [1, good[1], [[1, -2, bytes(32)]]], [1, good[1], [["a", 2, bytes(32)]]], [1, good[1], [[1, 2, 32]]],
    ]  # fmt: skip
    for content in bad:
        with pytest.raises(ValueError, match="^deployment: "):
            deployment.read(msgpack.dumps(content), KEY, "chest")
    chance = random.Random(5)
    data = msgpack.dumps(good)
    for _ in range(3000):
        broken = bytearray(data[: chance.randrange(len(data) + 1)])
        for _ in range(chance.randrange(4)):
            if broken:
                broken[chance.randrange(len(broken))] = chance.randrange(256)
        try:
            deployment.read(bytes(broken), KEY, "chest")
        except ValueError as error:
            assert str(error).startswith("deployment: ")


def test_what_is_unsafe_is_never_negative() -> None:
    """An operator that went back to its checkpoint has a consumer that acknowledged more than it has made."""
    from headwater.board.program import Node as Program

    def port(last: int, *safe: int) -> Any:
        return SimpleNamespace(
            ring=SimpleNamespace(last=last), readers=[SimpleNamespace(safe=s) for s in safe]
        )

    program = Program.__new__(Program)
    program.host = SimpleNamespace(ports={0: port(0, 131), 1: port(50, 60, 45), 2: port(9)})
    assert program.unsafe() == 5
    program.host.ports.pop(1)
    assert program.unsafe() == 0


def draining() -> tuple[Node, bytes]:
    """A board that drains for NEW."""
    log = mounted(decided())
    ident = sha256(NEW).digest()[:8]
    log.put(F_SWITCH, ident)
    node = Node(log)
    node.deployed, node.next, node.draining = sha256(OLD).digest()[:8], ident, True
    node.host = SimpleNamespace(ports={0: SimpleNamespace(ring=SimpleNamespace(last=60))})  # type: ignore[assignment]
    return node, ident


def test_a_drained_board_answers_each_round_with_what_it_has_made() -> None:
    node, ident = draining()
    for step, state, number, why in ((1, site_link.DRAINED, 60, b""), (3, site_link.DRAINED, 60, b"3")):
        deployment.handle(node, (frames.SWITCH, ident, step))
        assert node.said[-1] == (frames.PLANNED, ident, state, number, why)
    node.held = 7
    deployment.handle(node, (frames.SWITCH, ident, 4))
    assert node.said[-1] == (frames.PLANNED, ident, site_link.DRAINING, 7, b"")


def test_a_board_switches_once_the_gateway_knows_that_it_was_drained() -> None:
    """After a restart a source has forgotten what the lake had acknowledged, and nobody tells it again."""
    node, ident = draining()
    node.held = 7
    deployment.handle(node, (frames.SWITCH, ident, 2))
    assert (node.said[-1][2], node.again) == (site_link.DRAINING, False)
    node.held = 0
    deployment.handle(node, (frames.SWITCH, ident, 3))
    node.held = 7
    deployment.handle(node, (frames.SWITCH, ident, 2))
    assert (node.said[-1][2], node.again) == (site_link.RUNS, True)
    switched(node.store)


def test_a_change_that_is_taken_back_forgets_that_the_board_was_drained() -> None:
    node, ident = draining()
    deployment.handle(node, (frames.SWITCH, ident, 3))
    deployment.handle(node, (frames.SWITCH, ident, 0))
    assert (node.store.get(F_SWITCH), node.store.get(F_DRAINED), node.next) == (None, None, None)
