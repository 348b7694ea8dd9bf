"""Whom a host offers an operator to, of those that have bid, and why to none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from headwater.offboard import reasons
from headwater.plan.model import Plan
from headwater.process import Affine, Process
from headwater.protocol import frames, moves, offers
from headwater.runtime import moving

V = 1
HOME, NEAR, FAR = 1, 2, 3


def plan() -> Plan:
    p = Process("bids", checkpoints="ecoc", every=20, level="peer", batch=10, batch_ms=500)
    for name in ("home", "near", "far"):
        p.host(name, heap_kb=256)
    values = p.source("values", "v:i16", rate_hz=20, on="home")
    p.lake("bids/out", values >> Affine().named("scaled").on("home", backup=["near", "far", "gateway"]))
    found: Plan = p.plan()
    return found


class Battery:
    """What a host knows of its own battery."""

    def __init__(self, with_s: int, without_s: int) -> None:
        self.with_s, self.without_s = with_s, without_s

    def left_s(self, without: Any = (), with_: Any = ()) -> int:
        return self.without_s if without else self.with_s


def chosen(why: int, energy: Any = None, **bids: tuple[int, int, int]) -> tuple[int, int]:
    """bids: by host, how long it lasts without and with the operator, and what `room` says."""
    made: Any = plan()
    host: Any = SimpleNamespace(plan=made, energy=energy)
    numbers = {"home": HOME, "near": NEAR, "far": FAR, "gateway": 0}
    found = {numbers[h]: (frames.ROOM, V, 7, bid[0], bid[1], 9999, bid[2]) for h, bid in bids.items()}
    return moving.choose(host, V, why, found)


def test_who_flees_offers_to_the_one_that_lasts_longest() -> None:
    assert chosen(moves.FLEE, near=(900, 500, 1), far=(700, 600, 1)) == (FAR, offers.OK)
    forever = offers.FOREVER
    assert chosen(moves.FLEE, near=(900, 500, 1), gateway=(forever, forever, 1)) == (0, offers.OK)


def test_the_first_host_of_the_process_file_is_preferred_at_a_tie() -> None:
    assert chosen(moves.FLEE, home=(900, 500, 1), near=(900, 500, 1)) == (HOME, offers.OK)
    assert chosen(moves.FLEE, near=(900, 500, 1), far=(900, 500, 1)) == (NEAR, offers.OK)


def test_one_that_refuses_is_not_chosen_and_its_reason_is_told() -> None:
    assert chosen(moves.COMMAND, near=(900, 500, 2 * offers.LOG)) == (-1, offers.LOG)
    assert chosen(moves.COMMAND, near=(900, 500, 2 * offers.LOG), far=(1, 1, 0)) == (FAR, offers.OK)
    assert chosen(moves.COMMAND) == (-1, offers.SILENT)


def test_who_is_out_of_touch_offers_only_to_one_that_hears_all_producers() -> None:
    assert chosen(moves.APART, near=(900, 800, 0), far=(90, 80, 1)) == (FAR, offers.OK)
    assert chosen(moves.APART, near=(900, 800, 0)) == (-1, offers.NO_CANDIDATE)


@pytest.mark.parametrize(
    ("with_s", "without_s", "bid", "found"),
    [
        (100, 200, (300, 125), (NEAR, offers.OK)),  # the first of the two lasts 125 s instead of 100
        (100, 200, (300, 124), (-1, offers.ENERGY)),
        (100, 120, (300, 290), (-1, offers.ENERGY)),
        (300, 900, (100, 90), (-1, offers.ENERGY)),  # the taker would be the first
    ],
)
def test_balance_needs_a_quarter_more(
    with_s: int, without_s: int, bid: tuple[int, int], found: tuple[int, int]
) -> None:
    assert chosen(moves.BALANCE, Battery(with_s, without_s), near=(*bid, 1)) == found


def test_without_a_battery_nothing_is_balanced() -> None:
    assert chosen(moves.BALANCE, None, near=(900, 900, 1)) == (-1, offers.ENERGY)


def test_every_reason_has_a_text() -> None:
    texts = {reasons.refused(n, "door") for n in range(offers.HERE, offers.LAST + 1)}
    assert len(texts) == offers.LAST and "" not in texts
    whys = {reasons.because(n) for n in range(moves.WHY_MAX + 1)}
    assert len(whys) == len(reasons.MOVES) == moves.WHY_MAX + 1
