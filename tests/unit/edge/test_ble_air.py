"""Carriers over the model of a radio, in simulated time: what they make of the air, what they survive. And
each rule of the carriers broken once: a test notices."""

from __future__ import annotations

import heapq
import importlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from defects import seeded
from headwater.protocol import ble_info, ble_link
from headwater.protocol.ble_carrier import BleCarrier
from headwater.protocol.carriers import Carriers, _Way
from headwater_tools.simulator.radio import MS, Connection, Radio, Weather

KEY = ble_info.tag_key(b"master")
SECOND = 1_000_000
FRAME_BYTES = 512
HEAD_BYTES = 4  # length, and two empty names


class Clock:
    """The events that a radio needs of a world."""

    def __init__(self) -> None:
        self.now = 0
        self.cut: set[tuple[int, int]] = set()
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.serial = itertools.count()
        self.errors: list[str] = []

    def at(self, when: int, action: Callable[[], None]) -> None:
        heapq.heappush(self.events, (when, next(self.serial), action))

    def after(self, delay: int, action: Callable[[], None]) -> None:
        self.at(self.now + delay, action)

    def error(self, text: str) -> None:
        self.errors.append(text)

    def run(self, until: int) -> None:
        while self.events and self.events[0][0] <= until:
            self.now, _, action = heapq.heappop(self.events)
            action()
        self.now = until


class Pair:
    """A gateway and a board."""

    def __init__(self, weather: Weather, window: int = ble_link.WINDOW) -> None:
        self.clock: Any = Clock()
        self.air = Radio(self.clock, 1, weather, self.busy)
        self.arrived: list[list[bytes]] = [[], []]
        self.due = [-1, -1]
        self.ends = [self.end(0, "g", window), self.end(1, "chest", window)]

    def end(self, number: int, name: str, window: int) -> BleCarrier:
        antenna = self.air.antenna(number, 1)

        def take(carrier: BleCarrier, sender: str, frame: Any) -> bool:
            self.arrived[number].append(bytes(frame))
            return True

        carrier = antenna.carrier = BleCarrier(
            name, KEY, antenna, take, None, FRAME_BYTES, 3, window, ble_link.HANDS
        )
        carrier.knows(["chest"])
        self.clock.after(MS, lambda: self.tick(number))
        return carrier

    def tick(self, number: int) -> None:
        """Each end has a little to say, so that each knows the other."""
        carrier, other = self.ends[number], ("chest", "g")[number]
        carrier.tick(self.clock.now)
        if not carrier.send(other, b"beat"):
            carrier.wanted(other, self.clock.now)
        self.clock.after(SECOND // 4, lambda: self.tick(number))

    def busy(self, number: int) -> None:
        self.plan(number, self.clock.now + MS)

    def plan(self, number: int, when: int) -> None:
        if self.due[number] <= self.clock.now or when < self.due[number]:
            self.due[number] = when
            self.clock.at(when, lambda: self.pump(number, when))

    def pump(self, number: int, when: int) -> None:
        if self.due[number] == when:
            self.due[number] = -1
            due = self.ends[number].pump(self.clock.now)
            self.plan(number, self.clock.now + min(due, SECOND) + 1)


def goodput(weather: Weather, sender: int) -> float:
    """Bytes of frames that arrive, as a share of what the air allows."""
    pair = Pair(weather)
    frame = bytes(FRAME_BYTES)
    carrier, to = pair.ends[sender], ("chest", "g")[sender]

    def fill() -> None:
        while carrier.send(to, frame):
            pass

    carrier.on_room = fill
    while not all(end.slots and end.slots[0].genuine for end in pair.ends):
        pair.clock.run(pair.clock.now + SECOND)
    began = pair.clock.now
    before = len(pair.arrived[1 - sender])
    pair.air.events = pair.air.failed = 0
    pair.clock.run(began + 20 * SECOND)
    found = [f for f in pair.arrived[1 - sender][before:] if len(f) == FRAME_BYTES]
    assert not pair.clock.errors
    share = 1 - pair.air.failed / pair.air.events
    allows = weather.per_event * (weather.size - 2) * share * SECOND / weather.interval_us
    return len(found) * (FRAME_BYTES + HEAD_BYTES) / 20 / allows


@pytest.mark.parametrize("loss", [0.0, 0.2])
@pytest.mark.parametrize(("interval_ms", "per_event"), [(15, 2), (15, 4), (30, 4), (30, 6), (50, 4)])
def test_frames_use_nine_tenths_of_what_the_air_allows(interval_ms, per_event, loss):
    for sender in (0, 1):
        assert goodput(Weather(interval_ms * MS, per_event, loss), sender) > 0.9


@pytest.mark.parametrize("size", [20, 47, 182])
@pytest.mark.parametrize("buffers", [1, 3, 14])
def test_small_values_and_few_buffers_slow_frames_and_lose_none(size, buffers):
    assert goodput(Weather(30 * MS, 4, 0.05, size=size, buffers=buffers), 1) > 0.2 * min(1, buffers / 4)


class Transfer:
    """A blob in pieces to the other end and back, repeated from what the other has: over as many connections
    as it takes."""

    PIECE = 400

    def __init__(self, pair: Pair, size: int) -> None:
        self.pair = pair
        self.blob = bytes([(i * 7 + (i >> 8)) & 255 for i in range(size)])
        self.have = [0, 0]
        for number in (0, 1):
            pair.ends[number].on_room = lambda number=number: self.fill(number)
        self.sent = [0, 0]

    def fill(self, number: int) -> None:
        """The next pieces; a new connection goes on from what the other end is known to have."""
        carrier, to = self.pair.ends[number], ("chest", "g")[number]
        while self.sent[number] < len(self.blob):
            at = self.sent[number]
            if not carrier.send(to, bytes((1, at & 255, at >> 8)) + self.blob[at : at + self.PIECE]):
                return
            self.sent[number] = min(len(self.blob), at + self.PIECE)

    def look(self, number: int) -> None:
        """What has arrived at this end, in order and unchanged."""
        for frame in self.pair.arrived[number]:
            if frame[0] == 1 and frame != b"beat":
                at, piece = frame[1] | frame[2] << 8, frame[3:]
                assert self.blob[at : at + len(piece)] == piece
                if at == self.have[number]:
                    self.have[number] += len(piece)
        self.pair.arrived[number].clear()

    def run(self, seconds: int) -> bool:
        connects = -1
        for _ in range(20 * seconds):
            self.pair.clock.run(self.pair.clock.now + SECOND // 20)
            for number in (0, 1):
                self.look(number)
                self.fill(number)
            ended = sum(self.pair.ends[0].ended)
            if ended != connects:
                connects = ended
                self.sent = [self.have[1], self.have[0]]
            if self.have == [len(self.blob)] * 2:
                return True
        return False


@pytest.mark.parametrize("word", ["cut", "cut after"])
def test_a_blob_arrives_both_ways_wherever_the_connection_is_cut(word):
    for k in itertools.count():
        pair = Pair(Weather())
        transfer = Transfer(pair, 16384)
        left = k

        def judge(connection: Connection, pair: Pair = pair) -> str:
            nonlocal left
            left -= 1
            if left >= 0:
                return ""
            pair.air.judge = None
            return word

        pair.air.judge = judge
        assert transfer.run(30), "cut at value %d" % k
        assert not pair.clock.errors
        if left >= 0:
            break
    assert k > 150


# Rule; class, method, what is in it, and what breaks the rule.
DEFECTS: list[tuple[str, Any, str, str, str]] = [
    ("a host connects where something waits", BleCarrier, "_wants", "if not want or", "if True or"),
    ("... and nowhere else", BleCarrier, "_wants", "if not want", "return True\n    if not want"),
    ("the gateway hears a call", BleCarrier, "seen", "found[1] & WANTS", "False"),
    ("a board calls for the gateway", BleCarrier, "_show", "(WANTS if calls else 0)", "0"),
    ("a low battery shows", BleCarrier, "_show", "(LOW if self.low else 0)", "0"),
    ("a call is fast", BleCarrier, "_show", "_FAST_MS if fast else _SLOW_MS", "_SLOW_MS"),
    ("who has no slot does not advertise", BleCarrier, "_show", "if left else 0", "if True else 0"),
    (
        "a stranger is not spoken to",
        BleCarrier,
        "_meets",
        "not found or name is None",
        "False",
    ),
    ("one of two connections stays", BleCarrier, "_meets", "if other:", "if 0:"),
    ("both ends choose the same", BleCarrier, "_worse", "self.tag < a.tag", "True"),
    (
        "the newer of one central stays",
        BleCarrier,
        "_worse",
        "        return a\n",
        "        return b\n",
    ),
    ("a mute connection is closed", BleCarrier, "_look", "not s.genuine and", "False and"),
    ("only genuine frames prove", BleCarrier, "_frame", "if genuine:", "if 1:"),
    ("its host is left alone", BleCarrier, "_leave_alone", "self.now + _SHY_US", "0"),
    ("an idle connection is left", BleCarrier, "_look", ">= _IDLE_US", ">= 1 << 40"),
    ("what moves is not left", BleCarrier, "send", "s.moves(self.now)", "pass"),
    ("slots have an end", BleCarrier, "seen", "self._left() <= (1 if self._calls() else 0)", "False"),
    ("the last slot is for the gateway", BleCarrier, "seen", "1 if self._calls() else 0", "0"),
    ("... at the others too", BleCarrier, "seen", "found[1] & LAST and not self.gateway", "False"),
    ("a low battery comes first", BleCarrier, "seen", "if found[1] & LOW:", "if 0:"),
    ("others get their turn", BleCarrier, "_look", "elif turn and", "elif 0 and"),
    (
        "a frame for another host needs the gateway",
        BleCarrier,
        "_slot",
        "s.name == GATEWAY and s.genuine",
        "1",
    ),
    ("the gateway passes on", BleCarrier, "_frame", "if self.relay and", "if 0 and"),
    (
        "another sender is believed of the gateway alone",
        BleCarrier,
        "_frame",
        "elif sender and (s.name",
        "elif 0 and (s.name",
    ),
    ("a board speaks for itself alone", BleCarrier, "_frame", "elif to and to != self.name:", "elif 0:"),
    ("a head is read within the frame", BleCarrier, "_frame", "body >= len(frame) or", ""),
    ("what waited is sent when there is room", BleCarrier, "_more", "self.on_room()", "pass"),
    ("the end of a connection is told", BleCarrier, "over", "name and self.on_gone", "0"),
    ("an unproven way takes what a proven one takes", Carriers, "send", "if way.proven:", "if 1:"),
    ("a proven way carries alone", Carriers, "send", "if way.proven:", "if 0:"),
    ("a forged frame proves nothing", Carriers, "came", "if genuine:", "if 1:"),
    ("the way that was used is proven, no other", Carriers, "came", "way.carrier is carrier", "True"),
    ("a way without an answer is doubted", _Way, "doubted", "<= patience_us", "<= 1 << 50"),
    ("a doubted way is tried again", _Way, "doubted", "> _PROBE_US", "> 1 << 50"),
    ("an answer ends the doubt", _Way, "answered", "self.asked_us = None", "pass"),
    ("a host that nothing reaches is wanted", Carriers, "_want", "carrier.wanted(to, self.now)", "pass"),
    (
        "a full proven way is no room",
        Carriers,
        "room",
        "n = way.carrier.room(to)\n                break",
        "break",
    ),
    ("an end proves nothing", Carriers, "gone", "way.over()", "pass"),
    ("the cheapest comes first", Carriers, "add", "_cost(self.all[at]) <= _cost(carrier)", "True"),
    ("of equals the first one", Carriers, "add", "<= _cost(carrier)", "< _cost(carrier)"),
    ("the gateway has two names", Carriers, "_of", 'if name == "s":', "if 0:"),
]


def tried() -> None:
    module = importlib.import_module("test_ble_carrier")
    for name, test in vars(module).items():
        if name.startswith("test_"):
            test()


@pytest.mark.parametrize("defect", DEFECTS, ids=[defect[0] for defect in DEFECTS])
def test_a_broken_rule_is_noticed(defect, monkeypatch):
    monkeypatch.syspath_prepend("tests/board")
    with seeded([defect[1:]]), pytest.raises((AssertionError, LookupError, TypeError, ValueError)):
        tried()
