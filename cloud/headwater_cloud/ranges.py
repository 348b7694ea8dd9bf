"""Sets of stream times as ascending, disjoint, non-adjacent closed ranges: [(1, 500), (502, 900)].

All functions are pure, take such lists and give such lists; they cost the number of ranges, never the
number of stream times.
"""

from __future__ import annotations

from collections.abc import Iterable

Range = tuple[int, int]
Ranges = list[Range]


def normal(pairs: Iterable[Range]) -> Ranges:
    """Any ranges, in any order and overlapping, as a set."""
    out: Ranges = []
    for first, last in sorted(pairs):
        if out and first <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], last))
        else:
            out.append((first, last))
    return out


def union(a: Ranges, b: Ranges) -> Ranges:
    if not a or not b:
        return list(a or b)
    if b[0][0] > a[-1][1] + 1:  # the usual case: something after everything that is there
        return a + b
    return normal([*a, *b])


def subtract(a: Ranges, b: Ranges) -> Ranges:
    """What is in a and not in b."""
    out: Ranges = []
    j = 0
    for first, last in a:
        while j < len(b) and b[j][1] < first:
            j += 1
        k = j
        while k < len(b) and b[k][0] <= last:
            if b[k][0] > first:
                out.append((first, b[k][0] - 1))
            first = b[k][1] + 1
            k += 1
        if first <= last:
            out.append((first, last))
    return out


def intersect(a: Ranges, b: Ranges) -> Ranges:
    out: Ranges = []
    i = j = 0
    while i < len(a) and j < len(b):
        first = max(a[i][0], b[j][0])
        last = min(a[i][1], b[j][1])
        if first <= last:
            out.append((first, last))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return out


def size(a: Ranges) -> int:
    return sum(last - first + 1 for first, last in a)


def high(a: Ranges) -> int:
    """The contiguous high-water mark from 1; 0 if 1 is not in the set."""
    return a[0][1] if a and a[0][0] <= 1 else 0


def above(a: Ranges) -> Ranges:
    """The ranges above the contiguous high-water mark."""
    return a[1:] if high(a) else list(a)
