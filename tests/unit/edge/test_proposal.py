"""A better start: what is worth proposing, and which moves it needs."""

from __future__ import annotations

from headwater.plan.placement import MAINS, OUTSIDE, Case, Edge, Host, Vertex
from headwater.process.proposal import compare, fewest, on, propose

CHEST, HIP, WRIST = 1, 2, 3
LINKS = {"wifi": (0, 0, 0)}


def case(units_mhz: tuple[int, ...] = (10_000,), charges: tuple[int, ...] = (1000, 1000, 1000)) -> Case:
    """A sensor at the chest, and operators in a row that any board may run. Work costs, streams do not."""
    boards = [Host(charge, 100, 1_000_000, LINKS, 0) for charge in charges]
    operators = [Vertex((CHEST, HIP, WRIST), units) for units in units_mhz]
    vertices = [Vertex((CHEST,), 0), *operators]
    edges = [Edge(v, v + 1, 0, 0) for v in range(len(operators))]
    edges.append(Edge(len(operators), OUTSIDE, 0, 0))
    return Case([Host(MAINS, 0, 0, LINKS, 0), *boards], vertices, edges)


def test_a_proposal_needs_a_battery_that_lasts_longer_by_more_than_asked_for() -> None:
    # The chest draws 100 nA and 25 nA for the operator: 25 % more without it.
    one = case((25,), (1000, 4000, 4000))
    now, then = one.worth([CHEST, CHEST]), one.worth([CHEST, HIP])
    assert (now[0], then[0]) == (8_000_000, 10_000_000)
    assert propose(one, [CHEST, CHEST], 25) is None
    found = propose(one, [CHEST, CHEST], 24)
    assert found is not None
    assert (found.places, found.moves) == ([CHEST, HIP], [1])
    assert (found.battery, found.which, found.percent) == (0, "first battery", 25)
    assert (found.now_s, found.then_s) == (8_000_000, 10_000_000)


def test_a_later_battery_counts_where_the_first_one_lasts_as_long() -> None:
    # What the operator needs is a small part of what the wrist has, but much of the hip's.
    one = case((100,), (100, 1000, 4000))
    found = compare(one, [CHEST, HIP], [CHEST, WRIST], 25)
    assert found is not None
    assert (found.battery, found.which) == (1, "battery that is empty as number 2")
    assert (found.now_s, found.then_s) == (5_000_000, 10_000_000)
    assert compare(one, [CHEST, WRIST], [CHEST, HIP], 0) is None


def test_nothing_is_proposed_where_no_host_has_a_battery() -> None:
    assert propose(case((100,), (MAINS, MAINS, MAINS)), [CHEST, CHEST], 0) is None


def test_an_empty_battery_lasts_longer_by_no_number_of_percent() -> None:
    assert compare(case((100,), (0, 1000, 1000)), [CHEST, CHEST], [CHEST, HIP], 0) is None  # either way
    found = compare(case((2_000_000_000,), (1000, MAINS, MAINS)), [CHEST, CHEST], [CHEST, HIP], 25)
    assert found is not None
    assert (found.now_s, found.then_s, found.percent) == (0, 10_000_000, None)


def test_moves_that_the_battery_does_not_need_are_left_out() -> None:
    two = case((100, 0), (1000, 4000, 8000))
    first = [CHEST, CHEST, CHEST]
    whole = compare(two, first, [CHEST, HIP, WRIST], 25)
    assert whole is not None and whole.moves == [1, 2]
    found = fewest(two, first, whole)
    assert (found.places, found.moves) == ([CHEST, HIP, CHEST], [1])
    assert (found.battery, found.now_s, found.then_s) == (0, whole.now_s, whole.then_s)


def test_a_move_stays_without_which_a_limit_is_broken_or_an_earlier_battery_suffers() -> None:
    two = case((100, 0), (1000, 4000, 8000))
    first = [CHEST, CHEST, CHEST]
    two.vertices[2].heap_bytes = 10
    two.hosts[CHEST].heap_bytes = 9
    whole = compare(two, first, [CHEST, HIP, WRIST], 25)
    assert whole is not None and fewest(two, first, whole).moves == [1, 2]
    # The second operator lightens the chest, whose battery is the first; the proposal is about the second.
    two = case((100, 3), (100, 1000, 4000))
    first = [CHEST, HIP, CHEST]
    whole = compare(two, first, [CHEST, WRIST, WRIST], 25)
    assert whole is not None and whole.battery == 1
    assert fewest(two, first, whole).moves == [1, 2]


def test_the_words_for_the_process_file() -> None:
    names = ["gateway", "chest", "hip", "wrist"]
    assert on(names, (2, 3, 0), 3) == '.on("wrist", backup=["hip", "gateway"])'
    assert on(names, (2, 3), 2) == '.on("hip", backup=["wrist"])'


def test_a_search_lets_others_have_the_processor_after_each_placement() -> None:
    looks: list[int] = []
    one = case((25, 25), (1000, 4000, 4000))
    first = [CHEST, CHEST, CHEST]
    found = propose(one, first, 10, lambda: looks.append(1))
    assert len(looks) == 9  # three hosts for each of two operators
    assert found == propose(one, first, 10)
