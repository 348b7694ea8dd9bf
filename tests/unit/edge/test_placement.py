"""Placement: within every limit, as good as brute force, the same in every run; moves; the rules, broken."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable

import placements
import pytest
from defects import Change, seeded
from headwater.plan import draws, placement
from headwater.plan.placement import FOREVER, MAINS, OUTSIDE, Case, Edge, Host, Vertex
from headwater_tools.bench import energy
from hypothesis import given, settings
from hypothesis import strategies as st

SEEDS = st.integers(0, 1 << 32)
WIFI = {"wifi": (50_000, 20_000, 3_000_000)}


def small(seed: int) -> tuple[Case, list[int]]:
    rng = random.Random(seed)
    return placements.case(rng, rng.randint(2, 4), rng.randint(1, 4), mains=rng.random() < 0.8)


def medium(seed: int) -> tuple[Case, list[int]]:
    return placements.case(random.Random(seed), 4, 6)


def prefers(case: Case, first: list[int]) -> Callable[[list[int]], list[int]]:
    return lambda places: [*case.worth(places), sum(a == b for a, b in zip(places, first))]


# ---- promises, each a function so that the mutations can break it


def stays_inside(seed: int) -> None:
    case, first = small(seed)
    for trials in (10_000, 12):
        found = placement.place(case, first, trials)
        if found is not None:
            assert found in placements.possible(case)


def equals_brute_force(seed: int) -> None:
    case, first = small(seed)
    every = placements.possible(case)
    found = placement.place(case, first, 10_000)
    assert (found is None) == (not every)
    if found is not None:
        assert found == max(every, key=prefers(case, first))  # of equals the first


def judges_what_fits(seed: int) -> None:
    case, _ = small(seed)
    every = placements.possible(case)
    hosts = range(len(case.hosts))
    for places in itertools.islice(itertools.product(hosts, repeat=len(case.vertices)), 100):
        assert (list(places) in every) == (not case.breaks(places))


def draws_what_the_formula_says(seed: int) -> None:
    case, first = small(seed)
    for places in [first, *placements.possible(case)[:3]]:
        draws = case.draws(places)
        if draws is None:
            assert not placements._linked(case, tuple(places))
            continue
        expected = placements.drawn(case, places)
        terms = len(case.vertices) + 4 * len(case.edges)  # each is rounded down
        for na, amperes in zip(draws, expected):
            assert -terms <= na - amperes * 1e9 <= 1


def near_brute_force(seed: int) -> None:
    """Searched with far fewer trials than there are placements."""
    case, first = medium(seed)
    best = placement.place(case, first, 1 << 30)
    found = placement.place(case, first, 400)
    if best is not None:
        assert found is not None
        assert 10 * case.worth(found)[0] >= 9 * case.worth(best)[0]


def takes_the_first_of_equals(seed: int) -> None:
    """Two hosts on mains are as good as each other for what empties a battery."""
    hosts = [Host(MAINS, 0, 0, WIFI, 0), Host(1 + seed, 1_000, 1_000, WIFI, 0), Host(MAINS, 0, 0, WIFI, 0)]
    for others in ((0, 2), (2, 0)):
        case = Case(hosts, [Vertex((1, *others), 10_000_000)], [])
        assert placement.place(case, [1]) == [others[0]]


@functools.cache
def longest(seed: int) -> int:
    case, first = energy.random_case(random.Random(seed), ("radio", "computation")[seed % 2], 14, 6)
    found = placement.place(case, first, 10 * placement.TRIALS)
    return case.worth(found)[0] if found else 0


def near_a_longer_search(seed: int) -> None:
    """A case with too many placements for anybody: a tenth of the trials comes within a tenth of the life."""
    case, first = energy.random_case(random.Random(seed), ("radio", "computation")[seed % 2], 14, 6)
    found = placement.place(case, first)
    assert found is not None and 10 * case.worth(found)[0] >= 9 * longest(seed)


@given(SEEDS)
def test_it_never_leaves_the_candidates_or_a_limit(seed: int) -> None:
    stays_inside(seed)


@given(SEEDS)
def test_a_small_case_is_as_good_as_the_best_of_all(seed: int) -> None:
    equals_brute_force(seed)


@given(SEEDS)
def test_a_placement_breaks_a_limit_or_is_possible(seed: int) -> None:
    judges_what_fits(seed)


@given(SEEDS)
def test_hosts_draw_what_the_formula_says(seed: int) -> None:
    draws_what_the_formula_says(seed)


@pytest.mark.slow
@settings(max_examples=25)
@given(SEEDS)
def test_a_searched_case_is_within_a_tenth_of_the_best(seed: int) -> None:
    near_brute_force(seed)


@given(SEEDS)
def test_the_same_case_has_the_same_answer(seed: int) -> None:
    for trials in (10_000, 30):
        answers = [placement.place(*small(seed), trials) for _ in range(2)]
        assert answers[0] == answers[1]


@given(SEEDS, st.integers(1, 40))
def test_it_looks_at_no_more_placements_than_it_may(seed: int, trials: int) -> None:
    case, first = medium(seed)
    looks = 0
    broken = case.breaks

    def counted(places: list[int]) -> list[tuple[int, int, int]]:
        nonlocal looks
        looks += 1
        return broken(places)

    case.breaks = counted  # type: ignore[method-assign, assignment]
    placement.place(case, first, trials)
    assert looks <= trials


def test_golden_vectors_are_what_this_interpreter_answers() -> None:
    assert placements.GOLDEN.read_text() == placements.text(), "write them again: tests/support/placements.py"


# ---- single rules


def pair(left_mc: int = 1_000, other_mc: int = 1_000, **more: int) -> Case:
    """A source on host 1, one operator that 1, 2 and the gateway may run, the lake."""
    hosts = [Host(MAINS, 1_000_000, 0, {"wifi": (0, 0, 0)}, 0)]
    hosts += [Host(mc, 1_000_000, 1_000, WIFI, 70_000_000) for mc in (left_mc, other_mc)]
    vertices = [Vertex((1,), 0), Vertex((1, 2, 0), more.get("units_mhz", 0), moved_bytes=1_000)]
    edges = [Edge(0, 1, more.get("bytes_mhz", 100_000), 1_000), Edge(1, OUTSIDE, 1_000, more.get("out", 10))]
    return Case(hosts, vertices, edges)


def test_an_operator_that_computes_much_goes_to_the_mains() -> None:
    assert placement.place(pair(units_mhz=50_000_000_000, out=1_000), [1, 1]) == [1, 0]


def test_an_operator_that_saves_traffic_stays_at_its_source() -> None:
    assert placement.place(pair(), [1, 1]) == [1, 1]
    assert placement.place(pair(), [1, 0]) == [1, 1]


def test_of_equal_placements_the_declared_one_is_taken() -> None:
    case = pair(bytes_mhz=0)
    case.edges[0].frames_mhz = case.edges[1].frames_mhz = 0
    case.edges[1].bytes_mhz = 0
    assert [placement.place(case, [1, h]) for h in (0, 1, 2)] == [[1, 0], [1, 1], [1, 2]]


def test_the_second_battery_counts_where_the_first_lasts_as_long() -> None:
    # Host 1 has the weaker battery and neither sends nor computes more or less for the operator of host 2.
    hosts = [Host(MAINS, 0, 0, {"wifi": (0, 0, 0)}, 0)]
    hosts += [Host(mc, 1_000_000, 1_000, WIFI, 70_000_000) for mc in (100, 9_000)]
    case = Case(hosts, [Vertex((2, 0), 5_000_000_000)], [Edge(0, OUTSIDE, 0, 0)])
    assert placement.place(case, [2]) == [0]


def test_a_host_on_mains_lasts_for_ever_and_an_empty_one_not_at_all() -> None:
    case = pair(left_mc=0)
    assert case.lives([1, 1])[:2] == [FOREVER, 0]
    assert case.worth([1, 1])[0] == 0


def test_frames_between_two_hosts_are_shared_and_a_radio_is_never_more_than_on() -> None:
    case = pair()
    one = case.draws([1, 0])
    case.edges.append(Edge(0, OUTSIDE, 0, 1_000))
    assert case.draws([1, 0]) == one
    case.hosts[1].radio_na = 1_000
    assert case.draws([1, 0])[1] < one[1]  # type: ignore[index]


def paces(*lives: int) -> list[int]:
    return [draws.pace(life) for life in lives]


def test_a_move_gains_if_batteries_lose_a_sixth_less() -> None:
    # 1/100 + 1/400 is 1/80; five sixths of it are 1/96.
    assert draws.gains(paces(100, 400), paces(193, 193))
    assert not draws.gains(paces(100, 400), paces(191, 192))
    assert not draws.gains(paces(100, 400), paces(500, 100))
    assert draws.gains(paces(100, 400), paces(placement.FOREVER, 97))
    assert not draws.gains(paces(placement.FOREVER), paces(placement.FOREVER))


def test_a_move_is_told_with_what_it_costs_both() -> None:
    case = pair(left_mc=10_000, other_mc=10_000)
    case.vertices[1].moved_bytes = 10_000_000
    sent, taken = case.handover_nc(1, 1, 2)
    assert (sent, taken) == (500_000_000 + 3_000_000, 200_000_000 + 3_000_000)
    now1, now2, then1, then2 = case.moved([1, 1], 1, 2)
    assert [now1, now2] == case.lives([1, 1])[1:]
    draws = case.draws([1, 2])
    assert draws is not None
    assert then1 == (10_000 - 503) * 1_000_000 // draws[1]
    assert then2 == (10_000 - 203) * 1_000_000 // draws[2]


def test_a_host_flees_with_twice_what_its_hand_over_costs_and_its_log() -> None:
    case = pair()
    case.vertices[1].moved_bytes = 10_000_000
    assert case.flee_mc([1, 1], 1) == 2 * 503
    assert case.flee_mc([1, 1], 1, waiting_bytes=20_000_000) == 2 * 503 + 1_000
    assert case.flee_mc([1, 1], 2) == 0
    draws = case.draws([1, 1])
    assert draws is not None and case.flee_s([1, 1], 1) == -(-1_006 * 1_000_000 // draws[1])
    assert case.flee_s([1, 0], 0) == 0


# ---- the rules, broken: each must fail a promise


def fails(promise: Callable[[int], None], seeds: range = range(60)) -> bool:
    for seed in seeds:
        try:
            promise(seed)
        except (AssertionError, TypeError):
            return True
    return False


PLACE = [
    stays_inside,
    equals_brute_force,
    judges_what_fits,
    draws_what_the_formula_says,
    takes_the_first_of_equals,
]
DEFECTS: dict[str, Change] = {
    "candidates are not asked": (Case, "breaks", "places[v] not in vertex.hosts", "False"),
    "float width is not asked": (Case, "breaks", "if vertex.width and", "if False and"),
    "heap is not asked": (Case, "breaks", "heaps[h] > hosts[h].heap_bytes", "False"),
    "no heap for what it may take over": (Case, "heaps", "a + b for", "a for"),
    "queues of remote inputs need no heap": (Case, "heaps", "need += e.queue_bytes", "pass"),
    "the log is not asked": (Case, "breaks", "logs[h] > hosts[h].log_bytes", "False"),
    "hosts without a way to each other speak": (
        Case, "breaks", "self.links(a, pair % len(hosts), 0, 0) is None", "False",
    ),
    "the gateway passes nothing on": (draws, "ways", "if a and b and first", "if False and first"),
    "the dearest link": (draws, "way", "cost < least", "cost > least"),
    "the receiver pays nothing": (draws, "draws", "((a, 0), (b, 1))", "((a, 0),)"),
    "the radio is on more than always": (draws, "draws", "min(frames[h], hosts[h][4])", "frames[h]"),
    "frames are added up": (draws, "traffic", "max(pair[1], frames_mhz)", "pair[1] + frames_mhz"),
    "frames have no heads": (draws, "traffic", "pair[0] += pair[1] * FRAME_BYTES", "pass"),
    "traffic inside a host costs": (draws, "traffic", "if a != b and a", "if True and a"),
    "work costs nothing": (draws, "draws", "* hosts[places[v]][2]", "* 0"),
    "the first one is good enough": (placement._Search, "look", "worth > self.best_worth", "not self.best"),
    "the last of equals": (placement._Search, "look", "worth > self.best_worth", "worth >= self.best_worth"),
    "not every placement": (placement._Search, "all", "range(i, len(at))", "range(i, i + 1)"),
}  # fmt: skip


def test_the_promises_hold_without_a_defect() -> None:
    assert not any(fails(promise) for promise in PLACE)


@pytest.mark.parametrize("name", sorted(DEFECTS))
def test_a_broken_rule_is_detected(name: str) -> None:
    with seeded([DEFECTS[name]]):
        assert any(fails(promise) for promise in PLACE)


SEARCH: dict[str, tuple[Callable[[int], None], Change]] = {
    "it only climbs": (
        near_brute_force, (placement._Search, "descend", "0 if self.space() else -1", "-1"),
    ),
    "it expects nothing of a beginning": (
        near_brute_force, (placement._Search, "promises", "most > self.best_worth", "False"),
    ),
    "it only descends": (near_a_longer_search, (placement._Search, "climb", "not self.space()", "True")),
    "one step at a time": (
        near_a_longer_search, (placement._Search, "ascend", "while better and", "while not better and"),
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SEARCH))
def test_a_search_with_less_in_it_is_detected(name: str) -> None:
    promise, change = SEARCH[name]
    seeds = range(6 if promise is near_a_longer_search else 60)
    for seed in seeds:
        promise(seed)
    with seeded([change]):
        assert fails(promise, seeds)


def test_what_limits_a_move_is_told() -> None:
    case = pair()
    case.hosts[2].heap_bytes = case.hosts[1].log_bytes = 10
    case.vertices[1].heap_bytes, case.vertices[1].log_bytes = 12, 15
    assert case.breaks([1, 1]) == [(placement.LOG, 1, 5), (placement.HEAP, 2, 2)]
    assert case.breaks([1, 2]) == [(placement.HEAP, 2, 2)]
    case.vertices[1].width = 64
    assert case.breaks([1, 0])[0][:2] == (placement.WIDTH, 1)
    assert case.breaks([2, 0])[0][:2] == (placement.NO_CANDIDATE, 0)


MOVES: dict[str, tuple[Callable[[], None], Change]] = {
    "a seventh is enough": (
        test_a_move_gains_if_batteries_lose_a_sixth_less,
        (placement, "gains", "5 * sum", "6 * sum"),
    ),
    "only the emptiest battery counts": (
        test_a_move_gains_if_batteries_lose_a_sixth_less,
        (placement, "gains", "6 * sum(then)", "6 * max(then)"),
    ),
    "a move costs nothing": (
        test_a_move_is_told_with_what_it_costs_both, (Case, "moved", "(then, cost)", "(then, (0, 0))"),
    ),
    "the giver pays for the taker": (
        test_a_move_is_told_with_what_it_costs_both, (Case, "moved", "(to, spent[1])", "(to, spent[0])"),
    ),
    "a host flees at the last moment": (
        test_a_host_flees_with_twice_what_its_hand_over_costs_and_its_log,
        (Case, "flee_mc", "nc += 2 * min", "nc += min"),
    ),
    "its log is left behind": (
        test_a_host_flees_with_twice_what_its_hand_over_costs_and_its_log,
        (Case, "flee_mc", "waiting_bytes * dear", "0 * dear"),
    ),
    "mains run dry": (
        test_a_host_on_mains_lasts_for_ever_and_an_empty_one_not_at_all,
        (placement, "life_s", "left_mc == MAINS or", "False or"),
    ),
    "what is equal moves": (
        test_of_equal_placements_the_declared_one_is_taken,
        (placement._Search, "look", "worth.append(sum(", "worth.append(-sum("),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(MOVES))
def test_a_broken_rule_of_moves_is_detected(name: str) -> None:
    promise, change = MOVES[name]
    with seeded([change]), pytest.raises(AssertionError):
        promise()
