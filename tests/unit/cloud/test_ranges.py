"""Sets of stream times as ranges agree with sets of numbers."""

from __future__ import annotations

from headwater_cloud.ranges import Ranges, above, high, intersect, normal, size, subtract, union
from hypothesis import given
from hypothesis import strategies as st

numbers = st.sets(st.integers(1, 40))


def as_ranges(xs: set[int]) -> Ranges:
    return normal((x, x) for x in xs)


def as_numbers(ranges: Ranges) -> set[int]:
    return {x for first, last in ranges for x in range(first, last + 1)}


def is_normal(ranges: Ranges) -> bool:
    return all(a <= b for a, b in ranges) and all(x[1] + 1 < y[0] for x, y in zip(ranges, ranges[1:]))


@given(numbers, numbers)
def test_union_intersection_and_difference_are_those_of_sets(a: set[int], b: set[int]) -> None:
    ra, rb = as_ranges(a), as_ranges(b)
    for got, want in ((union(ra, rb), a | b), (intersect(ra, rb), a & b), (subtract(ra, rb), a - b)):
        assert as_numbers(got) == want
        assert is_normal(got)
        assert size(got) == len(want)


@given(numbers)
def test_the_high_water_mark_ends_before_the_first_number_that_is_missing(a: set[int]) -> None:
    mark = high(as_ranges(a))
    assert all(x in a for x in range(1, mark + 1))
    assert mark + 1 not in a
    assert as_numbers(above(as_ranges(a))) == {x for x in a if x > mark}


def test_ranges_that_touch_are_one() -> None:
    assert normal([(5, 9), (1, 4)]) == [(1, 9)]
    assert union([(1, 4)], [(5, 9)]) == [(1, 9)]
    assert union([(1, 4)], [(6, 9)]) == [(1, 4), (6, 9)]
    assert subtract([(1, 9)], [(3, 4), (6, 6)]) == [(1, 2), (5, 5), (7, 9)]
