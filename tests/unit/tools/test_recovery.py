"""`hw bench recovery`: it measures the same each time, and what is worse than its bars is told."""

from __future__ import annotations

from xml.etree import ElementTree

from headwater_tools.bench import recovery
from headwater_tools.bench.recovery import Loss, claims, lines, tables
from headwater_tools.bench.support.figure import draw
from headwater_tools.bench.support.lost_hosts import LONGEST_US, Case, Lost, hand, lose

CASE = Case("sp2", "ecoc", 500, 100)
SECOND = 1_000_000


def made_up(restart: int = SECOND, catch_up: int = SECOND, replayed: int = 500) -> dict[Case, Loss]:
    run = Lost(31 * SECOND, restart, catch_up, replayed, 0)
    return {case: Loss(case, [run]) for case in recovery.grid(False) + recovery.beside()}


def test_a_death_costs_the_same_each_time_and_at_most_an_interval() -> None:
    first = lose(CASE, 3)
    assert first == lose(CASE, 3)
    assert first.detection > 30 * SECOND
    assert 0 < first.replayed
    assert Loss(CASE, [first]).beyond() == 0
    assert first.catch_up > 0


def test_a_move_pauses_for_three_delays_and_replays_nothing() -> None:
    for case in (CASE, Case("sp1", "uncoordinated", 1000, 4096)):
        moved = hand(case, 3)
        assert moved.delays <= recovery.DELAYS_BAR
        assert moved.replayed == 0
    assert moved.transfer > hand(CASE, 3).transfer


def test_what_lies_beyond_an_interval_and_what_was_in_flight_is_counted() -> None:
    def beyond(replayed: int, in_flight: int) -> int:
        return Loss(CASE, [Lost(0, 0, 0, replayed, in_flight), Lost(0, 0, 0, 1, 0)]).beyond()

    assert beyond(1030, 0) == 0  # an interval of each source, and a batch
    assert beyond(1130, 100) == 0
    assert beyond(1137, 100) == 7


def test_a_run_that_never_catches_up_has_no_mark_and_counts_as_the_longest() -> None:
    losses = made_up(catch_up=-1)
    assert losses[CASE].of("catch_up") == [LONGEST_US]
    panels = lines(losses, recovery.grid(False))
    assert list(panels) == ["100 B of state", "1 KB of state", "4 KB of state", "16 KB of state"]
    assert all(set(line.values) == ({1.0} if line.dashed else {0.0}) for line in panels["4 KB of state"])
    ElementTree.fromstring(draw("a", "b", recovery.INTERVALS, panels, "c", "s"))


def test_a_claim_is_met_or_not_by_its_numbers() -> None:
    losses = made_up()
    assert {verdict for _, verdict, _ in claims(losses)} == {"met"}
    case = Case("sp2", "extended", 1000, 4096)
    losses[case] = Loss(case, [Lost(0, 3 * SECOND, SECOND, 0, 0)])
    verdicts = {name: verdict for name, verdict, _ in claims(losses)}
    assert verdicts["recovery the same in all strategies, where one operator dies"] == "not met"
    assert verdicts["catch-up the same in all strategies, where one operator dies"] == "met"


def test_the_tables_have_every_case() -> None:
    told: list[str] = []
    tables(made_up(), told.append)
    assert sum("1.0 (1.0)" in line for line in told) == 2 * (12 + 6)
