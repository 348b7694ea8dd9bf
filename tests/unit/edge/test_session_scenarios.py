"""Sessions under an attacker who records, repeats, delays and invents, while hosts lose their memory.

Two hosts, a link that loses what it likes, and every frame that was ever sent kept for ever. The
promises: no frame is taken twice, by any life of its receiver; none of an earlier session once a
later one is open; and as soon as the link works again both ends have a session, in a few frames.
"""

from __future__ import annotations

import hmac
import itertools
import random
from typing import Any

import pytest
from headwater.protocol import frames, sessions
from hypothesis import given
from hypothesis import strategies as st

PLAN = b"thisplan"
KEY = sessions.pair_key(bytes(range(32)), 1, 2)


class World:
    """Both hosts, all their lives, and what was ever on the air."""

    def __init__(self, seed: int = 1) -> None:
        self.random = random.Random(seed)
        self.logs = [1001, 2001]
        self.boots = [1, 1]
        self.writer = frames.Writer(128)
        self.number = 0
        self.air: list[tuple[int, bytes]] = []  # (sender, frame)
        self.taken: list[set[bytes]] = [set(), set()]
        self.newest = [0, 0]  # life of the sender of the newest frame taken, by receiver
        self.life: dict[bytes, int] = {}
        self.meant: dict[int, int] = {}
        self.lives = [0, 0]
        self.peers = [self.make(0), self.make(1)]

    def make(self, who: int) -> Any:
        return sessions.Peer(
            KEY, who + 1, self.logs[who], self.boots[who], 2 - who, PLAN, lambda: self.random.getrandbits(64)
        )

    def restart(self, who: int, erase: bool = False, remember: bool = True) -> None:
        before = self.peers[who]
        self.lives[who] += 1
        self.boots[who] += 1
        if erase:
            self.logs[who] += 1
            self.boots[who] = 1
        self.peers[who] = self.make(who)
        if remember and not erase and before.log:
            self.peers[who].known(before.log, before.boot)

    def data(self, who: int) -> bytes:
        """A new frame of that host, on the air."""
        peer = self.peers[who]
        self.number += 1
        peer.begin(self.writer)
        # The receiver's log number, as the sender knows it, goes along: it must be read as meant.
        self.meant[self.number] = peer.log
        assert self.writer.put(frames.GAP, 0, peer.log, self.number, 0, 0)
        frame = bytes(peer.seal(self.writer))
        self.air.append((who, frame))
        self.life[frame] = self.lives[who]
        return frame

    def reply(self, who: int) -> bytes | None:
        peer = self.peers[who]
        frame, peer.reply = peer.reply, None
        if frame is None:
            return None
        self.air.append((who, bytes(frame)))
        self.life[frame] = self.lives[who]
        return bytes(frame)

    def deliver(self, frame: bytes, to: int) -> bool:
        """Hand over a frame; check every promise that it could break."""
        peer = self.peers[to]
        peer.reply = None
        span = peer.open(frame)
        assert peer.reply is None or len(peer.reply) < 90
        assert (span is not None) == (peer.why == sessions.TAKEN)
        if span is None:
            return False
        assert frame not in self.taken[to], "a frame was taken twice"
        self.taken[to].add(frame)
        sender = 1 - to
        assert (sender, frame) in self.air, "a frame was taken that nobody sent"
        assert self.life[frame] >= self.newest[to], "a frame of a session before the present one"
        self.newest[to] = self.life[frame]
        [(_, _, inc, number, _, _)] = frames.messages(frame, *span, peer.log, peer.my_log)
        assert inc == self.meant[number], "the receiver's log number was read as another one"
        return True

    def settle(self, lose: Any = None) -> int:
        """Replies go to and fro until there are none. -> frames on the air"""
        frames = 0
        while True:
            found = [(who, self.reply(who)) for who in (0, 1)]
            if not any(frame for _, frame in found):
                return frames
            for who, frame in found:
                if frame is not None:
                    frames += 1
                    assert frames < 20, "the opening frames never end"
                    if lose is None or not lose():
                        self.deliver(frame, 1 - who)

    def talk(self, lose: Any = None) -> bool:
        """One frame each way, replies and all. -> both were taken"""
        both = True
        for who in (0, 1):
            frame = self.data(who)
            self.settle(lose)
            both &= not (lose is not None and lose()) and self.deliver(frame, 1 - who)
            self.settle(lose)
        return both

    def works(self, within: int = 3) -> bool:
        """With a link that loses nothing, are frames taken both ways after a few turns?"""
        for _ in range(within):
            self.talk()
        return self.talk() and self.talk()


SITUATIONS: dict[str, list[tuple[int, dict[str, bool]]]] = {
    "both for the first time": [],
    "one rebooted": [(0, {})],
    "the other rebooted": [(1, {})],
    "both rebooted": [(0, {}), (1, {})],
    "one rebooted and forgot its store": [(0, {"remember": False})],
    "one was erased": [(0, {"erase": True})],
    "the other was erased": [(1, {"erase": True})],
    "both were erased": [(0, {"erase": True}), (1, {"erase": True})],
    "one was erased and the other rebooted": [(0, {"erase": True}), (1, {})],
    "one was erased twice": [(0, {"erase": True}), (0, {"erase": True})],
}


def after(situation: str) -> World:
    world = World()
    if SITUATIONS[situation]:
        assert world.works()
    for who, how in SITUATIONS[situation]:
        world.restart(who, **how)
    return world


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_session_opens_at_once_when_nothing_is_lost(situation: str) -> None:
    world = after(situation)
    world.talk()
    assert world.talk()


@pytest.mark.parametrize("situation", SITUATIONS)
def test_one_frame_and_its_replies_open_both_sessions(situation: str) -> None:
    world = after(situation)
    world.deliver(world.data(0), 1)
    assert world.settle() <= 6  # two that ask at once cross each other
    for who in (0, 1):
        assert world.peers[who].live
        assert world.deliver(world.data(who), 1 - who)


def test_a_host_that_only_listens_gets_its_session_too() -> None:
    world = World()
    assert world.works()
    world.restart(1)
    assert not world.deliver(world.data(0), 1)
    world.settle()
    assert world.deliver(world.data(0), 1)


def test_a_repeated_opening_frame_costs_no_reply() -> None:
    world = World()
    assert world.works()
    for sender, frame in list(world.air):
        world.deliver(frame, 1 - sender)
        assert world.peers[1 - sender].reply is None


def test_an_answer_to_a_nonce_counts_once() -> None:
    world = World()
    assert world.works()
    for _ in range(3):
        world.restart(0, erase=True)
        assert world.works()
        for sender, frame in list(world.air):
            world.deliver(frame, 1 - sender)
            world.peers[1 - sender].reply = None
            assert world.peers[1].log == world.logs[0]


@pytest.mark.parametrize("situation", SITUATIONS)
def test_any_of_the_first_frames_may_be_lost(situation: str) -> None:
    for lost in itertools.product((False, True), repeat=8):
        world = after(situation)
        fate = iter(lost)
        for _ in range(2):
            world.talk(lambda fate=fate: next(fate, False))
        assert world.works(2), lost


@pytest.mark.parametrize("situation", SITUATIONS)
def test_frames_of_former_lives_are_never_taken(situation: str) -> None:
    world = after(situation)
    old = list(world.air)
    for _ in range(3):
        for sender, frame in old:
            assert not world.deliver(frame, 1 - sender)
            assert not world.deliver(frame, sender)
    world.talk()
    assert world.talk()
    for sender, frame in old:
        assert not world.deliver(frame, 1 - sender)
    assert world.talk()


def test_a_rebooted_neighbour_is_understood_from_its_first_frame() -> None:
    world = World()
    assert world.works()
    world.restart(0)
    assert world.deliver(world.data(0), 1)


def test_frames_held_back_over_a_reboot_of_the_receiver_are_refused() -> None:
    world = World()
    assert world.works()
    held = [world.data(0) for _ in range(5)]
    world.restart(1)
    world.talk()
    assert world.talk()
    assert not any(world.deliver(frame, 1) for frame in held)


def test_a_lower_boot_stays_refused_after_a_reboot_of_the_receiver() -> None:
    world = World()
    world.restart(0)
    world.restart(0)
    assert world.works()
    world.restart(1)
    world.boots[0] = 1  # flash put back as it was: the same log, an earlier boot
    world.peers[0] = world.make(0)
    for _ in range(4):
        world.talk()
    assert not world.peers[1].live and world.peers[1].counts[sessions.OLD_BOOT]


def test_another_key_opens_nothing_and_changes_nothing() -> None:
    world = World()
    assert world.works()
    stranger = sessions.Peer(bytes(32), 1, 1001, 50, 2, PLAN, lambda: 77)
    for _ in range(20):
        stranger.begin(world.writer)
        frame = bytes(stranger.seal(world.writer))
        for forged in (frame, stranger.reply):
            assert world.peers[1].open(forged) is None
            assert world.peers[1].why == sessions.FORGED
            assert world.peers[1].reply is None
    assert world.talk()


def test_one_frame_in_costs_at_most_two_seals_and_one_frame_out(monkeypatch: pytest.MonkeyPatch) -> None:
    world = after("one was erased and the other rebooted")
    seals = 0
    real = sessions._mac

    def counted(*args: Any) -> bytes:
        nonlocal seals
        seals += 1
        return real(*args)

    monkeypatch.setattr(sessions, "_mac", counted)
    world.talk()
    frames = [frame for _, frame in world.air] + [bytes(k) for k in range(40)]
    for frame in frames:
        for peer in world.peers:
            seals = 0
            peer.reply = None
            peer.open(frame)
            assert seals <= 2


def test_seals_are_those_of_the_standard_library() -> None:
    world = World()
    frame = world.data(0)
    body, tag = frame[:-8], frame[-8:]
    covered = (1001).to_bytes(8, "little") + PLAN + body
    assert hmac.digest(KEY, covered, "sha256")[:8] == tag
    opening = world.reply(0)
    assert opening is not None
    covered = (1001).to_bytes(8, "little") + bytes(8) + opening[:-8]
    assert hmac.digest(KEY, covered, "sha256")[:8] == opening[-8:]


@given(st.binary(max_size=100), st.lists(st.binary(max_size=80), max_size=4))
def test_hmac_is_that_of_the_standard_library(key: bytes, parts: list[bytes]) -> None:
    assert sessions.hmac(key, *parts) == hmac.digest(key, b"".join(parts), "sha256")


ACTIONS = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 1)),
    st.tuples(st.just("keep"), st.integers(0, 1)),
    st.tuples(st.just("reply"), st.integers(0, 1)),
    st.tuples(st.just("lose"), st.integers(0, 1)),
    st.tuples(st.just("repeat"), st.integers(0, 200)),
    st.tuples(st.just("reflect"), st.integers(0, 200)),
    st.tuples(st.just("change"), st.integers(0, 200)),
    st.tuples(st.just("reboot"), st.integers(0, 1)),
    st.tuples(st.just("forget"), st.integers(0, 1)),
    st.tuples(st.just("erase"), st.integers(0, 1)),
    st.tuples(st.just("talk"), st.just(0)),
)


@given(st.lists(ACTIONS, max_size=60), st.integers(0, 1 << 30))
def test_any_history_keeps_the_promises_and_ends_in_a_session(actions: list[Any], seed: int) -> None:
    world = World(seed)
    for what, who in actions:
        if what == "send":
            world.deliver(world.data(who), 1 - who)
        elif what == "keep":
            world.data(who)
        elif what == "reply":
            frame = world.reply(who)
            if frame:
                world.deliver(frame, 1 - who)
        elif what == "lose":
            world.reply(who)
        elif what in ("repeat", "reflect", "change"):
            if not world.air:
                continue
            sender, frame = world.air[-1 - who % len(world.air)]
            if what == "change":
                broken = bytearray(frame)
                broken[who % len(frame)] ^= 1 + who % 255
                assert not world.deliver(bytes(broken), 1 - sender)
            else:
                world.deliver(frame, sender if what == "reflect" else 1 - sender)
        elif what == "talk":
            world.talk()
        else:
            world.restart(who, erase=what == "erase", remember=what == "reboot")
    assert world.works(), "the link works again, and no session opens"
