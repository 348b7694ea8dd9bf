"""Batteries that run down: operators leave while they can, balance with care, and each rule is needed."""

from __future__ import annotations

import pytest
from defects import Change, seeded
from headwater.plan import placement
from headwater.runtime import bids, leaving, moving, outlook
from headwater.runtime.battery import Energy
from headwater.runtime.taking import Offer
from headwater_tools.simulator.directed.flights import SCHEDULES

pytestmark = pytest.mark.slow

SEEDS = range(3)

# Name, what the rule prevents, the changes, and a schedule in which it shows.
DEFECTS: list[tuple[str, str, list[Change], str]] = [
    (
        "a host does not flee",
        "a battery that ends under an operator which another host could have taken",
        [(Energy, "must_flee", "self.left_mc < self.reserve_mc", "False")],
        "battery ends",
    ),
    (
        "the reserve is a hundredth of what a hand-over costs",
        "a flight that begins when it is too late",
        [
            (
                outlook,
                "reserve_mc",
                "mc += 2 * handover_mc(host, energy, v)",
                "mc += handover_mc(host, energy, v) // 100",
            )
        ],
        "battery ends soon",
    ),
    (
        "the reserve is looked at seldom, whatever the draw",
        "a flight that begins when it is too late",
        [(Energy, "_consider", " or self._draws_more()", "")],
        "a host draws more",
    ),
    (
        "a host takes an operator though it lasts no longer itself",
        "two dying boards that hand an operator to and fro",
        [
            (leaving, "refusal", "if energy.must_flee():", "if 0:"),
            (leaving, "refusal", "if with_s <", "if 0 >"),
        ],
        "the other is weaker",
    ),
    (
        "an operator that came lately stays until more hosts have its checkpoint",
        "a battery that ends under an operator because a keeper is dead",
        [(moving, "_refused", " and not host.taking.begun", "")],
        "battery ends, came lately",
    ),
    (
        "a taker is busy until more hosts have the checkpoint",
        "a battery that ends under its second operator because keepers of the first are away",
        [(Offer, "settled", "return self.begun and safe", "return False and safe")],
        "two operators leave",
    ),
    (
        "only the operator that costs most is asked for",
        "a battery that ends under operators because no host takes another one",
        [(leaving, "asks", "if not view.stays():", "if 1:")],
        "battery ends, one stays",
    ),
    (
        "the other operators are asked for later",
        "a battery that ends while its host waits to ask for what another host could take",
        [(bids.Round, "tick", "if self.flees and not (move or energy.quiet[1]):", "if 0:")],
        "battery ends soon, one stays",
    ),
    (
        "after a refusal it waits like after a round in which no host bid",
        "a battery that ends under an operator because another host was quicker",
        [(Energy, "gave", "if why == FLEE and outcome", "if 0 and outcome")],
        "battery ends, refused",
    ),
    (
        "the host that refused is asked first again",
        "a battery that ends under an operator which the next host would have taken",
        [(moving.Move, "refused", "2 * host.period_us if", "0 if")],
        "battery ends, refused",
    ),
    (
        "any gain is enough",
        "moves that cost more than they bring",
        [
            (placement, "gains", "5 * sum(now) >= 6 * sum(then) and sum(then) < sum(now)", "True"),
        ],
        "batteries alike",
    ),
    (
        "an operator does not rest",
        "a second move of an operator within ten minutes, and half a chain that comes back",
        [
            (outlook.View, "rests", "return why > moves.TAKEOVER and", "return False and"),
            (moving, "_refused", "if why in (moves.BALANCE, moves.APART) and v in host.moves:", "if 0:"),
        ],
        "batteries unlike",
    ),
    (
        "what fled may come back at once",
        "an operator that moves between two batteries which are nearly empty",
        [(leaving, "refusal", "if not energy.takes_back(v):", "if 0:")],
        "fled and not charged",
    ),
]


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_schedule_of_batteries_holds(name: str, seed: int) -> None:
    assert SCHEDULES[name](seed).run().errors == []


@pytest.mark.parametrize("what, prevents, changes, schedule", DEFECTS, ids=[defect[0] for defect in DEFECTS])
def test_with_one_rule_broken_a_schedule_does_not_hold(
    what: str, prevents: str, changes: list[Change], schedule: str
) -> None:
    with seeded(changes):
        assert any(SCHEDULES[schedule](seed).run().errors for seed in SEEDS), prevents
