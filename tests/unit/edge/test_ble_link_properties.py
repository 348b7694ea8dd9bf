"""The Bluetooth link under any schedule: what hypothesis chooses, the judge of `testing/ble_walk.py`
checks. And each rule of the link broken once: the walks notice."""

from __future__ import annotations

import pytest
from defects import seeded
from headwater.protocol import ble_link
from headwater.protocol.ble_link import BleLink
from headwater.testing.ble_walk import Broken, Walk
from hypothesis import given
from hypothesis import strategies as st

# What happens, at which end, and how much of it.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["send", "pump", "carry", "wait", "free", "cut", "size"]),
        st.integers(0, 1),
        st.integers(0, 600),
    ),
    max_size=120,
)


def play(walk: Walk, steps: list[tuple[str, int, int]]) -> None:
    for what, number, n in steps:
        end = walk.ends[number]
        if what == "send":
            end.send(1 + n % walk.longest)
        elif what == "pump":
            end.pump()
        elif what == "carry":
            for _ in range(min(1 + n % 8, len(end.held))):
                end.carry()
        elif what == "wait":
            walk.now += 100 * n
        elif what == "free":
            end.free = n % 8 if n < 300 else 1 << 20
        elif what == "cut":
            walk.begin()
        elif walk.size <= 20 + n:
            walk.size = min(20 + n, ble_link.VALUE_MAX)  # an MTU only grows
            for one in walk.ends:
                one.link.sized(20 + n)
    walk.settle()


@given(
    steps=STEPS,
    mtu=st.integers(23, 517),
    longest=st.integers(1, 580),
    window=st.sampled_from([1, 2, 4, 16, 24]),
    hands=st.tuples(st.integers(1, 24), st.integers(1, 24)),
)
def test_what_is_accepted_arrives_once_in_order_under_any_schedule(steps, mtu, longest, window, hands):
    play(Walk(min(mtu - 3, ble_link.VALUE_MAX), longest, 1, window, hands), steps)


@given(seed=st.integers(0, 1 << 20), mtu=st.integers(23, 517))
def test_walks_hold_at_any_mtu(seed, mtu):
    walk = Walk(min(mtu - 3, ble_link.VALUE_MAX), 64, seed)
    walk.run(400, cuts=True)
    walk.settle()


@given(values=st.lists(st.binary(max_size=40), max_size=30))
def test_any_values_give_frames_of_legal_length_or_an_error(values):
    frames: list[bytes] = []
    room = memoryview(bytearray(ble_link.VALUE_MAX))
    link = BleLink(lambda handle, value: True, lambda link, frame: frames.append(bytes(frame)), room, 20)
    link.begin(1, False, 20, 0)
    for k, value in enumerate(values):
        link.arrived(value, k)
        link.pump(k)
    assert all(0 < len(frame) <= 20 for frame in frames)
    assert 0 <= link.error <= ble_link.STALLED


# Rule; the method of BleLink, what is in it, and what breaks the rule.
DEFECTS: list[tuple[str, str, str, str]] = [
    (
        "fragments are numbered",
        "_offer",
        "self.sent = (self.sent + 1) & 255",
        "pass",
    ),
    (
        "numbers wrap at 256",
        "_offer",
        "(self.sent + 1) & 255",
        "self.sent + 1",
    ),
    (
        "counts wrap at 256",
        "arrived",
        "self.got = (self.got + 1) & 255",
        "self.got += 1",
    ),
    (
        "a gap ends the link",
        "arrived",
        "value[0] != self.got",
        "False",
    ),
    (
        "an impossible count ends the link",
        "arrived",
        "n > (self.sent - self.acked) & 255",
        "False",
    ),
    (
        "a value has two bytes",
        "arrived",
        "len(value) < _HEAD",
        "not value",
    ),
    (
        "the window of this end is kept by the other",
        "arrived",
        "if n >= self.takes:",
        "if 0:",
    ),
    (
        "a frame is not too long",
        "_read",
        "not 0 < self.length <= self.longest",
        "not self.length",
    ),
    (
        "a frame is not empty",
        "_read",
        "not 0 < self.length <=",
        "not self.length <=",
    ),
    (
        "the window is kept",
        "_offer",
        "min(self.window, self.hands)",
        "self.hands",
    ),
    (
        "the hands of the host are not overfilled",
        "_offer",
        "min(self.window, self.hands)",
        "self.window",
    ),
    (
        "the window is full, not one more",
        "_offer",
        "& 255 >= most",
        "& 255 > most",
    ),
    (
        "acknowledgements count modulo 256",
        "_offer",
        "(self.sent - self.acked) & 255",
        "self.sent - self.acked",
    ),
    (
        "a quarter of the window is acknowledged",
        "_owed",
        "self.window // 4",
        "self.window",
    ),
    (
        "a rest is acknowledged after 20 ms",
        "_owed",
        "or now - self.due_us >= _ACK_US",
        "",
    ),
    (
        "the time of an acknowledgement counts from the first fragment",
        "arrived",
        "if not n:",
        "if 1:",
    ),
    (
        "the next call is due with the acknowledgement",
        "pump",
        "self.due_us + _ACK_US - now",
        "NEVER",
    ),
    (
        "a refused value waits 5 ms",
        "_offer",
        "now + _REFUSED_US",
        "now",
    ),
    (
        "a refused fragment is not lost",
        "_offer",
        "            return\n        self.told",
        "            pass\n        self.told",
    ),
    (
        "the peripheral waits for the central",
        "begin",
        "self.heard = central",
        "self.heard = True",
    ),
    (
        "the central speaks by itself",
        "begin",
        "self.first = central",
        "self.first = False",
    ),
    (
        "the first value is empty",
        "_offer",
        "if self.first or not n or",
        "if not n or",
    ),
    (
        "what waits is kept when room is made",
        "send",
        "queue[self.at : self.end]",
        "queue[:end]",
    ),
    (
        "a frame has room, or is refused",
        "send",
        "n + _HEAD > len(queue) - end + self.at:",
        "0:",
    ),
    (
        "a frame that the other end does not take is refused",
        "send",
        "n <= self.most",
        "n <= 1 << 20",
    ),
    (
        "a value is as long as the MTU allows",
        "sized",
        "- _HEAD)",
        ")",
    ),
    (
        "a connection begins with an empty queue",
        "begin",
        "self.at = self.end = 0",
        "self.at, self.end = getattr(self, 'at', 0), getattr(self, 'end', 0)",
    ),
    (
        "a connection begins with an empty inbox",
        "begin",
        "self.fill = 0",
        "self.fill = getattr(self, 'fill', 0)",
    ),
    (
        "a connection begins at number 0",
        "begin",
        "self.sent = 0",
        "self.sent = getattr(self, 'sent', 0)",
    ),
    (
        "a connection begins at count 0",
        "begin",
        "self.got = 0",
        "self.got = getattr(self, 'got', 0)",
    ),
    (
        "an end that acknowledges nothing ends the link",
        "pump",
        "self.error = STALLED",
        "pass",
    ),
    (
        "what was acknowledged is no stall",
        "arrived",
        "self.moved_us = now",
        "pass",
    ),
    (
        "time without fragments is no stall",
        "_offer",
        "self.moved_us = now",
        "pass",
    ),
    (
        "a link that has ended stays so",
        "arrived",
        "if self.error:",
        "if 0:",
    ),
]


def tried() -> None:
    """Walks and the tests of single rules."""
    import importlib

    for size, longest, seed, window in ((20, 60, 1, 16), (20, 300, 5, 16), (244, 500, 2, 24), (47, 9, 3, 4)):
        walk = Walk(size, longest, seed, window)
        walk.run(1500, cuts=seed > 1 and seed < 5)
        walk.settle()
    walk = Walk(20, 60, 4)
    for _ in range(20):
        walk.ends[0].send(9)
        walk.settle()
        walk.now += 11_000_000
    rules = importlib.import_module("test_ble_link")
    for name in RULES:
        getattr(rules, name)()


RULES = (
    "test_numbers_wrap_at_256",
    "test_the_central_speaks_first_and_with_an_empty_acknowledgement",
    "test_a_refused_value_is_offered_again_after_five_milliseconds",
    "test_a_frame_is_taken_whole_or_not_at_all",
    "test_an_acknowledgement_waits_twenty_milliseconds_or_a_quarter_of_the_window",
    "test_an_acknowledgement_is_due_from_the_first_fragment_on",
    "test_an_end_that_acknowledges_something_goes_on",
    "test_an_end_that_acknowledges_nothing_ends_the_link",
    "test_an_idle_link_stays",
    "test_what_cannot_be_ends_the_link",
    "test_a_link_that_has_ended_says_and_takes_nothing",
)


def test_the_link_as_it_is_passes(monkeypatch):
    monkeypatch.syspath_prepend("tests/board")
    tried()


@pytest.mark.parametrize("defect", DEFECTS, ids=[defect[0] for defect in DEFECTS])
def test_a_broken_rule_is_noticed(defect, monkeypatch):
    monkeypatch.syspath_prepend("tests/board")
    with seeded([(BleLink, *defect[1:])]), pytest.raises((Broken, AssertionError, ValueError, IndexError)):
        tried()
