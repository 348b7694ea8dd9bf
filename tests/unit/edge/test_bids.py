"""Whom a host offers an operator to, of those that have bid, and why to none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

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


def chosen(why: int, **bids: tuple[int, int, int]) -> tuple[int, int]:
    """bids: by host, how long it lasts without and with the operator, and what `room` says."""
    made: Any = plan()
    host: Any = SimpleNamespace(plan=made)
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


def test_every_reason_has_a_text() -> None:
    texts = {reasons.refused(n, "door") for n in range(offers.HERE, offers.LAST + 1)}
    assert len(texts) == offers.LAST and "" not in texts
    whys = {reasons.because(n) for n in range(moves.WHY_MAX + 1)}
    assert len(whys) == len(reasons.MOVES) == moves.WHY_MAX + 1
