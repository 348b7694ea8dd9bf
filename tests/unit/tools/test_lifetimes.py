"""Histories of batteries: what hosts decide by themselves, against what hindsight finds."""

from __future__ import annotations

import random

import pytest
from defects import Change, seeded
from headwater.runtime import leaving
from headwater_tools.bench import energy
from headwater_tools.bench.support.lifetimes import Lives, longest


def of_hindsight(kind: str, seed: int) -> float:
    case, first = energy.moving_case(random.Random(seed), kind, (2, 2), (1, 2))
    best = energy.every(case, first)
    assert best is not None
    return Lives(case, best, energy.LEFT_MC).run() / longest(case)


# Small cases that a rule decides, and the rule.
CASES: list[tuple[str, str, int, list[Change]]] = [
    (
        "a chain that leaves only together",
        "radio",
        44,
        [(leaving, "choose", "if best is None and not flees:", "if 0:")],
    ),
    (
        "operators that share a host in turn",
        "computation",
        47,
        [
            (leaving, "choose", "not gains(found[0], found[1])", "4 * max(found[0]) < 5 * max(found[1])"),
            (leaving, "refusal", "if why == BALANCE and", "if 0 and"),
        ],
    ),
]


@pytest.mark.parametrize("what, kind, seed, changes", CASES, ids=[case[0] for case in CASES])
def test_a_small_case_comes_within_a_tenth_of_hindsight_by_this_rule(
    what: str, kind: str, seed: int, changes: list[Change]
) -> None:
    assert of_hindsight(kind, seed) >= energy.NEAR
    with seeded(changes):
        assert of_hindsight(kind, seed) < energy.NEAR, what
