"""What the types compute, against the plainest way to compute it."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import median
from typing import Any

import pytest
from headwater.process.expressions import parse
from headwater.runtime.operator import OperatorError
from headwater.testing import trial
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.slow

T0 = 1_700_000_000_000_000
I16 = st.integers(-32768, 32767) | st.sampled_from([-32768, 32767, 0])
VALUES = st.lists(I16, min_size=1, max_size=60)
TIMED = st.lists(
    st.tuples(st.sampled_from([0, 1, 999, 1000, 2500, 5_000_000_000]), I16), min_size=1, max_size=60
)


def run(kind: str, params: dict[str, Any], values: list[Any], alphabet: str = "v:i16") -> list[Any]:
    op = trial.make(kind, params, (alphabet,))
    rows = [v if isinstance(v, tuple) else (v,) for v in values]
    return [row for _, row in trial.run(op, [(0, T0 + 1000 * i, row) for i, row in enumerate(rows)])[0]]


def sat16(v: int) -> int:
    return max(-32768, min(32767, v))


@given(
    values=VALUES, half=st.lists(st.integers(-4096, 4096), min_size=1, max_size=8), shift=st.integers(0, 14)
)
def test_fir_is_a_sum_of_products(values: list[int], half: list[int], shift: int) -> None:
    for coeffs in (half, half + half[::-1], half + half[-2::-1]):
        line = [values[0]] * len(coeffs) + values
        expected = []
        for i in range(len(values)):
            newest = len(coeffs) + i
            total = sum(c * line[newest - k] for k, c in enumerate(coeffs))
            expected.append((sat16((total + ((1 << shift) >> 1)) >> shift),))
        assert run("Fir", {"coeffs": coeffs, "shift": shift}, values) == expected


@given(values=VALUES, k=st.sampled_from([3, 5, 9]))
def test_median_is_the_middle_of_the_newest(values: list[int], k: int) -> None:
    line = [values[0]] * (k - 1) + values
    assert run("Median", {"k": k}, values) == [(median(line[i : i + k]),) for i in range(len(values))]


@given(values=VALUES, count=st.integers(1, 9), step=st.integers(1, 4))
def test_windows_by_count(values: list[int], count: int, step: int) -> None:
    def told(part: list[int]) -> tuple[int, ...]:
        n, total = len(part), sum(part)
        variance = (n * sum(v * v for v in part) - total * total) // (n * n)
        return (n, total, total // n, min(part), max(part), variance)

    what = "count sum mean min max variance"
    ends = range(count, len(values) + 1, count)
    assert run("Tumbling", {"count": count, "what": what}, values) == [
        told(values[e - count : e]) for e in ends
    ]
    ends = range(step, len(values) + 1, step)
    assert run("Sliding", {"count": count, "step": step, "what": what}, values) == [
        told(values[max(0, e - count) : e]) for e in ends
    ]
    assert run("Average", {"count": count}, values) == [
        (told(values[max(0, e - count) : e])[2],) for e in range(1, len(values) + 1)
    ]


def stamped(timed: list[tuple[int, int]]) -> list[tuple[int, int]]:
    out, ts = [], T0
    for gap, v in timed:
        ts += gap
        out.append((ts, v))
    return out


@given(timed=TIMED, us=st.integers(1, 6000), keep=st.integers(1, 70))
def test_average_and_sum_join_by_time(timed: list[tuple[int, int]], us: int, keep: int) -> None:
    elements = stamped(timed)
    windows = []
    for i, (ts, _) in enumerate(elements):
        part = [v for t, v in elements[: i + 1] if t > ts - us]
        windows.append(part[-keep:])
    entries = [(0, ts, (v,)) for ts, v in elements]
    op = trial.make("Average", {"us": us, "keep": keep}, ("v:i16",))
    assert [row for _, row in trial.run(op, entries)[0]] == [(sum(w) // len(w),) for w in windows]
    op = trial.make("SumJoin", {"us": us, "keep": keep}, ("v:i16", "v:i16"))
    entries = [(i % 2, ts, (v,)) for i, (ts, v) in enumerate(elements)]
    assert [row for _, row in trial.run(op, entries)[0]] == [(sum(w),) for w in windows]


@given(timed=TIMED, panes=st.integers(1, 4))
def test_windows_by_time_are_aligned_and_hold_what_lies_in_them(
    timed: list[tuple[int, int]], panes: int
) -> None:
    step = 2000
    elements = stamped(timed)
    until = elements[-1][0] + (panes + 1) * step
    expected = []
    ends = {(ts // step + 1 + k) * step for ts, _ in elements for k in range(panes)}
    for end in sorted(ends):
        part = [v for ts, v in elements if end - panes * step <= ts < end]
        expected.append((end, (len(part), sum(part), min(part))))
    entries = [(0, ts, (v,)) for ts, v in elements]
    what = {"what": "count sum min"}
    op = trial.make("Sliding", {"us": panes * step, "step_us": step, **what}, ("v:i16",))
    assert trial.run(op, entries, until=until)[0] == expected
    if panes == 1:
        op = trial.make("Tumbling", {"us": step, **what}, ("v:i16",))
        assert trial.run(op, entries, until=until)[0] == expected


@given(values=st.lists(st.tuples(I16, I16, I16), max_size=30))
def test_magnitude_is_the_root_rounded_down(values: list[tuple[int, int, int]]) -> None:
    expected = [(math.isqrt(x * x + y * y + z * z),) for x, y, z in values]
    assert run("Magnitude", {}, values, "x:i16 y:i16 z:i16") == expected


@given(values=VALUES)
def test_difference_adds_up_again(values: list[int]) -> None:
    assert run("Difference", {}, values) == [(0,)] + [(b - a,) for a, b in pairwise(values)]


@given(gaps=st.lists(st.sampled_from([0, 1, 59_999, 60_000, 61_000, 3_599_000, 9_000_000_000]), max_size=60))
def test_counter_counts_the_part_and_the_59_before(gaps: list[int]) -> None:
    parts, expected, ts = [], [], T0
    entries = []
    for gap in gaps:
        ts += gap
        entries.append((0, ts, (1,)))
        parts.append(ts // 60_000)
        expected.append((len(parts), sum(1 for p in parts if p > parts[-1] - 60)))
    op = trial.make("Counter", {"us": 3_600_000}, ("v:u8",))
    assert [row for _, row in trial.run(op, entries)[0]] == expected


ODD = (
    st.none() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=3) | st.lists(st.integers())
)
ODD = ODD | st.lists(st.text(max_size=2), max_size=3) | st.dictionaries(st.text(max_size=2), st.integers())


@given(odd=st.dictionaries(st.sampled_from(["limit", "scale", "values", "names", "test", "nonsense"]), ODD))
def test_an_operator_of_expressions_refuses_odd_values_and_stays_as_it_was(odd: dict[str, Any]) -> None:
    params = {"test": parse("v * scale > limit"), "names": "limit scale", "values": [5, 2]}
    op = trial.make("Where", params, ("v:i16",))
    entries = [(0, T0 + i, (i,)) for i in range(9)]
    try:
        op.configure(odd)
    except OperatorError:
        assert [row for _, row in trial.run(op, entries)[0]] == [(v,) for v in range(3, 9)]
