"""Encrypted frames under an attacker who records, repeats, changes and invents, while hosts lose their
memory, are put back to an earlier state, and change their links.

The promises: a host whose link does not encrypt itself sends nothing that can be read, whatever comes in; no
part of a stream is ever used twice; what is taken is what was sent, once; and as soon as the link works both
ends read each other. Whole histories run in the simulator. Then each rule is broken, and one of these must
notice.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from defects import Change, first_error, seeded
from headwater.offboard import encryption
from headwater.protocol import cipher, frames, refusals, sessions
from headwater.protocol.cipher import Cipher
from headwater.protocol.sessions import Peer
from headwater.runtime.exchange import Exchange
from headwater_tools.boards import micropython
from headwater_tools.examples import diamond, sp2, sp3
from headwater_tools.simulator.air import Air
from headwater_tools.simulator.scenario import Scenario
from headwater_tools.simulator.world import Hardware, World
from hypothesis import given
from hypothesis import strategies as st

PLAN = b"thisplan"
KEY = sessions.pair_key(bytes(range(32)), 1, 2)


class Pair:
    """Two hosts, what was ever on the air between them, and the listener."""

    def __init__(self, seed: int = 1) -> None:
        self.errors: list[str] = []
        self.air = Air(frozenset((0, 1)), self.errors.append)
        self.nonce = seed << 20
        self.logs = [1001, 2001]
        self.boots = [1, 1]
        self.bare = [True, False]
        self.writer = frames.Writer(128)
        self.number = 0
        self.meant: dict[bytes, int] = {}  # frame -> what it says
        self.taken: list[set[int]] = [set(), set()]
        self.recorded: list[tuple[int, bytes]] = []  # (sender, frame)
        self.peers = [self.made(0), self.made(1)]

    def draw(self) -> int:
        self.nonce += 1
        return (self.nonce * 0x9E3779B97F4A7C15) % (1 << 64) or 1

    def made(self, who: int) -> Peer:
        peer = Peer(KEY, who + 1, self.logs[who], self.boots[who], 2 - who, PLAN, self.draw)
        if self.bare[who]:
            assert peer.hide(True)
        return peer

    def restart(self, who: int, erase: bool = False, put_back: bool = False) -> None:
        """put_back: its flash is as it was at the last start, so the boot has the same number again."""
        self.boots[who] += not put_back
        if erase:
            self.logs[who] += 1
            self.boots[who] = 1
        self.peers[who] = self.made(who)

    def change_link(self, who: int) -> None:
        self.bare[who] = not self.bare[who]
        assert self.peers[who].hide(self.bare[who])

    def data(self, who: int) -> bytes:
        peer = self.peers[who]
        self.number += 1
        peer.begin(self.writer)
        assert self.writer.put(frames.STANDS, self.number)
        frame = bytes(peer.seal(self.writer))
        self.meant[frame] = self.number
        return self.sent(who, frame)

    def sent(self, who: int, frame: bytes) -> bytes:
        self.recorded.append((who, frame))
        if self.bare[who] and not cipher.covered(frame):
            self.errors.append("a frame that can be read was sent on the air")
        return frame

    def deliver(self, frame: bytes, to: int) -> bool:
        """Hand over a frame, as the link and the relay do, and check what is taken."""
        if (self.bare[0] or self.bare[1]) and not cipher.covered(frame):
            return False
        peer = self.peers[to]
        span = peer.open(frame)
        if span is None:
            if peer.plain is not None and peer.why != sessions.OLD_PLAN:
                self.errors.append("a refused frame was decrypted")
            return False
        try:
            [(_, number)] = frames.messages(peer.plain or frame, *span, peer.log, peer.my_log)
        except (frames.FrameError, ValueError):
            number = -1
        if number != self.meant.get(frame) or number in self.taken[to]:
            self.errors.append("%d was taken where %r was sent" % (number, self.meant.get(frame)))
        self.taken[to].add(number)
        return True

    def settle(self) -> None:
        for _ in range(10):
            for who in (0, 1):
                frame = self.peers[who].take_reply()
                if frame:
                    self.deliver(self.sent(who, frame), 1 - who)

    def talk(self) -> bool:
        both = True
        for who in (0, 1):
            self.settle()
            both &= self.deliver(self.data(who), 1 - who)
            self.settle()
        return both

    def works(self) -> bool:
        for _ in range(4):
            self.talk()
        return self.talk() and self.talk()


ACTIONS = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 1)),
    st.tuples(st.just("keep"), st.integers(0, 1)),
    st.tuples(st.just("lose"), st.integers(0, 1)),
    st.tuples(st.just("reply"), st.integers(0, 1)),
    st.tuples(st.just("repeat"), st.integers(0, 200)),
    st.tuples(st.just("reflect"), st.integers(0, 200)),
    st.tuples(st.just("change"), st.integers(0, 200)),
    st.tuples(st.just("cut"), st.integers(0, 200)),
    st.tuples(st.just("reboot"), st.integers(0, 1)),
    st.tuples(st.just("erase"), st.integers(0, 1)),
    st.tuples(st.just("put back"), st.integers(0, 1)),
    st.tuples(st.just("link"), st.integers(0, 1)),
    st.tuples(st.just("talk"), st.just(0)),
)


def lived(actions: list[Any], seed: int = 1) -> Pair:
    world = Pair(seed)
    whole = True
    for what, k in actions:
        if what in ("repeat", "reflect", "change", "cut"):
            if not world.recorded:
                continue
            sender, frame = world.recorded[-1 - k % len(world.recorded)]
            to = sender if what == "reflect" else 1 - sender
            if what == "change":
                broken = bytearray(frame)
                broken[k % len(frame)] ^= 1 + k % 255
                frame = bytes(broken)
            elif what == "cut":
                frame = frame[: k % len(frame)]
            world.deliver(frame, to)
        elif what == "send":
            world.deliver(world.data(k), 1 - k)
        elif what == "keep":
            world.data(k)
        elif what in ("lose", "reply"):
            reply = world.peers[k].take_reply()
            if reply and world.sent(k, reply) and what == "reply":
                world.deliver(reply, 1 - k)
        elif what == "link":
            world.change_link(k)
        elif what == "talk":
            world.talk()
        elif what == "read":
            if not world.deliver(world.data(k), 1 - k):
                world.errors.append("frames that came again changed what is read")
        elif what == "both in clear":
            if any(cipher.covered(world.data(who)) for who in (0, 1)):
                world.errors.append("neither link needs it, and frames are encrypted")
        else:
            whole = whole and what != "put back"
            world.restart(k, erase=what == "erase", put_back=what == "put back")
    # A host that counts the same boot again is refused until its counters are beyond those that were seen.
    if not world.works() and whole:
        world.errors.append("the link works again, and frames are not read")
    return world


@given(st.lists(ACTIONS, max_size=60), st.integers(0, 1 << 30))
def test_any_history_keeps_the_promises_and_ends_with_both_reading_each_other(
    actions: list[Any], seed: int
) -> None:
    assert lived(actions, seed).errors == []


# Short histories for one rule each.
ORDINARY = [("talk", 0)] * 3
HISTORIES: dict[str, list[tuple[str, int]]] = {
    "ordinary": ORDINARY,
    "reboot": [*ORDINARY, ("reboot", 0), *ORDINARY, ("reboot", 1), *ORDINARY],
    "put back": [*ORDINARY, ("put back", 0), *([("talk", 0)] * 12)],
    "put back later": [("talk", 0), ("send", 0), ("put back", 0), *([("talk", 0)] * 12)],
    "erased": [*ORDINARY, ("erase", 0), *ORDINARY, ("erase", 1), *ORDINARY],
    "old frames again": [
        *ORDINARY, ("erase", 0), *ORDINARY, *[("repeat", k) for k in range(40)], ("read", 0), ("read", 1),
    ],
    "links change": [*ORDINARY, ("link", 0), *ORDINARY, ("link", 1), *ORDINARY, ("link", 0), *ORDINARY],
    "before the answer": [("keep", 0), ("keep", 1), ("lose", 0), ("lose", 1), *ORDINARY],
    "lost salt": [
        ("link", 0), ("reboot", 0), *ORDINARY, ("link", 0), ("lose", 0), ("send", 0), *ORDINARY,
    ],
    "followers": [*ORDINARY, ("link", 0), *ORDINARY, ("both in clear", 0)],
}  # fmt: skip


def shown() -> list[str]:
    """What goes wrong in the short histories."""
    found = []
    for name, actions in HISTORIES.items():
        try:
            found += [name + ": " + error for error in lived(list(actions)).errors]
        except (AssertionError, ValueError, IndexError) as error:
            found.append("%s: %r" % (name, error))
    return found


def test_the_short_histories_are_green() -> None:
    assert shown() == []


# Whole histories: boards that are reached by radio only, and others by a link that encrypts itself.

PLACES = {
    "one board on the air": (lambda: sp2.build().plan(), frozenset({1})),
    "two boards on the air": (lambda: sp3.build().plan(), frozenset({1, 2})),
    "one of the two": (lambda: sp3.build().plan(), frozenset({2})),
    "a diamond": (lambda: diamond.build().plan(), frozenset({1})),
}


def history(name: str, seed: int) -> Scenario:
    plan, bare = PLACES[name]
    return Scenario(plan(), seed, 12, made_of=Hardware(bare=bare))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("name", PLACES)
def test_a_history_with_boards_on_the_air_loses_nothing_and_shows_nothing(name: str, seed: int) -> None:
    scenario = history(name, seed)
    assert first_error(scenario) == ""
    air = scenario.world.air
    assert air is not None and air.frames > 50 and len(air.used) >= air.frames


def started(bare: frozenset[int]) -> World:
    world = World(sp2.build().plan(), 1, hardware=Hardware(bare=bare))
    for node in world.nodes:
        world.boot(node)
    world.run(3_000_000)
    assert world.errors == []
    return world


def test_a_genuine_frame_in_clear_is_refused_where_the_link_does_not_encrypt_itself() -> None:
    world = started(frozenset())
    gateway, board = (node.host for node in world.nodes[:2])
    assert gateway is not None and board is not None
    peer = gateway.exchange.links[1].peer
    for bare in (True, False):
        peer.begin(gateway.exchange.writer)
        assert gateway.exchange.writer.put(frames.BEAT, 0, 0)
        frame = bytes(peer.seal(gateway.exchange.writer))
        before = list(board.exchange.links[0].peer.counts), board.dropped.get(refusals.BARE, 0)
        assert board.exchange.receive(frame, bare) == (not bare)
        after = list(board.exchange.links[0].peer.counts), board.dropped.get(refusals.BARE, 0)
        assert (after[0] == before[0]) == bare and after[1] - before[1] == bare


def test_a_host_without_aes_does_not_use_such_a_link_and_reads_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Pair()
    assert world.works()
    frame = world.data(0)
    monkeypatch.setattr(cipher, "_aes", [])
    one = Peer(KEY, 1, 1001, 9, 2, PLAN, world.draw)
    assert not one.hide(True) and one.cipher is None and one.hide(False)
    deaf = Peer(KEY, 2, 2001, 9, 1, PLAN, world.draw)
    deaf.open(frame)
    while deaf.reply or world.peers[0].reply:
        for a, b in ((deaf, world.peers[0]), (world.peers[0], deaf)):
            reply = a.take_reply()
            if reply:
                b.open(reply)
    assert deaf.live and deaf.open(world.data(0)) is None
    assert deaf.why == sessions.UNREAD and deaf.cipher is None


def test_links_that_encrypt_themselves_have_the_frames_that_they_always_had() -> None:
    """Byte for byte: the golden life of seals is lived without a cipher (tests/board/test_sessions.py)."""
    scenario = Scenario(sp2.build().plan(), 1, 5)
    assert first_error(scenario) == ""
    for node in scenario.world.nodes:
        if node.host:
            assert all(link.peer.cipher is None for link in node.host.exchange.links.values())


def golden() -> list[str]:
    """What differs from the golden vectors."""
    path = Path("tests/data/wire_vectors.json")
    wanted = json.loads(path.read_text())["encryption"]
    from headwater_tools.proof import wire_vectors

    try:
        return [name for name, part in wire_vectors._encrypted().items() if part != wanted[name]]
    except (AssertionError, ValueError, IndexError) as error:
        return [repr(error)]


def test_the_code_writes_the_golden_vectors() -> None:
    assert golden() == []
    encryption.use()


# As a real board has it: linked, with short names.
ON_BOARD = """
from headwater.protocol import frames
from headwater.protocol.sessions import Peer

a = Peer(bytes(32), 1, 11, 1, 2, b"thisplan", lambda: 5)
b = Peer(bytes(32), 2, 22, 1, 1, b"thisplan", lambda: 6)
assert a.hide(True)
for _ in range(4):
    for x, y in ((a, b), (b, a)):
        opening = x.take_reply()
        if opening:
            y.open(opening)
w = frames.Writer(100)
for x, y in ((a, b), (b, a)):
    x.begin(w)
    w.put(frames.STANDS, 77)
    frame = x.seal(w)
    span = y.open(frame)
    print(frame[0], frames.messages(frame, span[0], span[1], 1, 2))
"""


def test_the_image_of_a_board_encrypts() -> None:
    done = micropython.run(ON_BOARD, tests=False)
    assert done.stdout.split("\n")[:2] == ["97 [(26, 77)]", "33 [(26, 77)]"], done.stderr


# Each rule, broken, and a short history that must notice; "air": one on a whole board, as below.

_NO_SALT: Change = (cipher, "key_of", "(text, salt)", "(text)")


def _key_of(*fields: str) -> list[Change]:
    """The key of a cipher depends on these numbers alone."""
    return [
        _NO_SALT,
        (cipher, "key_of", "(sender, log, boot)", "(%s)" % "".join(f + ", " for f in fields)),
    ]


DEFECTS: dict[str, tuple[list[Change], str]] = {
    "the key is the same in every boot, and counters begin again": (_key_of("sender", "log"), "reboot"),
    "the key is the same for every log, and boots begin again": (_key_of("sender", "boot"), "erased"),
    "the key has no salt, and a boot comes again": ([_NO_SALT], "put back"),
    "both directions have one key": (_key_of("boot"), "ordinary"),
    "every frame has one counter": (
        [(Cipher, "begin", "self._counter = counter", "self._counter = 1")],
        "ordinary",
    ),
    "the seal covers the messages in clear": (
        [
            (
                Peer,
                "seal",
                "        plan += self.cipher.close(writer)\n",
                "        plan += self.cipher._salt\n",
            ),
            (
                Peer,
                "seal",
                "    writer.pos = pos + TAG\n",
                "    if self.cipher:\n        self.cipher.close(writer)\n    writer.pos = pos + TAG\n",
            ),
        ],
        "ordinary",
    ),
    "a frame is decrypted before its seal is looked at": (
        [
            (
                Peer,
                "open",
                "    why, span = self._judge(frame, head)\n",
                "    if len(frame) > 14 and frame[0] & 0x30 == 0x20 and self.cipher and self.cipher.salt:\n"
                "        self.plain = self.cipher._read(frame, (6, len(frame) - 8))\n"
                "    why, span = self._judge(frame, head)\n",
            )
        ],
        "old frames again",
    ),
    "the seal does not cover the salt": (
        [
            (Peer, "seal", "plan += self.cipher.close(writer)", "self.cipher.close(writer)"),
            (Peer, "_judge", "salt = self.cipher.salt", 'salt = b""'),
        ],
        "put back later",
    ),
    "a host hides only from a neighbour that hides": (
        [(Cipher, "hides", "if self._needed:", "if self._needed and self._follows:")],
        "ordinary",
    ),
    "a host does not follow a neighbour on the air": (
        [(Cipher, "hides", "return ENCRYPTED if self._follows else 0", "return 0")],
        "ordinary",
    ),
    "a host follows one that follows": (
        [(Cipher, "take", "self.follow(frame[0] & BARE != 0)", "self.follow(frame[0] & ENCRYPTED != 0)")],
        "followers",
    ),
    "a salt counts whatever session it is of": (
        [(Cipher, "take", "peer.live and log == peer.log", "peer.live")],
        "old frames again",
    ),
    "a frame under an unknown salt is not asked about": (
        [
            (
                Peer,
                "_judge",
                "            self._open_with(0, True)\n            return UNREAD, None",
                "            return UNREAD, None",
            )
        ],
        "lost salt",
    ),
    "a frame in clear is taken over a link that does not encrypt itself": (
        [(Exchange, "receive", "not cipher.covered(frame)", "False")],
        "entrance",
    ),
}


def noticed() -> dict[str, str]:
    """History -> what goes wrong in it."""
    found = {}
    for error in shown():
        found.setdefault(error.split(":")[0], error)
    try:
        test_a_genuine_frame_in_clear_is_refused_where_the_link_does_not_encrypt_itself()
    except AssertionError as error:
        found["entrance"] = str(error)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", DEFECTS)
def test_each_rule_of_encryption_is_held_to(name: str) -> None:
    changes, where = DEFECTS[name]
    with seeded(changes):
        found = noticed()
    assert where in found, found


@pytest.mark.slow
def test_a_frame_in_clear_on_the_air_is_an_error_of_a_whole_history() -> None:
    """The simulator's own listener has eyes."""
    with seeded([(Cipher, "hides", "if self._needed:", "if self._needed and self._follows:")]):
        assert "could be read on the air" in first_error(history("two boards on the air", 1))
    with seeded(_key_of("sender", "log")):
        errors = [first_error(history("two boards on the air", seed)) for seed in (1, 2, 3)]
    assert any("used twice" in error for error in errors)
