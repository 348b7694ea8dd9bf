"""Measurements. A bench is a module in this package:

SUMMARY                       one line
arguments(parser)             its own arguments
run(args, say) -> [Measure]   measure; `say` prints a line on the way
QUOTED                        where there are many measures: how the names begin of those that --record keeps
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple


class Measure(NamedTuple):
    """One measured value beside its bar; `ok` is True if there is no bar to reach."""

    name: str
    value: float | int | str
    unit: str = ""
    bar: float | int | str | None = None
    ok: bool = True

    def as_json(self) -> dict[str, Any]:
        return self._asdict()


def at_least(name: str, value: float, unit: str, bar: float) -> Measure:
    return Measure(name, value, unit, bar, value >= bar)


def at_most(name: str, value: float, unit: str, bar: float) -> Measure:
    return Measure(name, value, unit, bar, value <= bar)


def rss_mib(pid: int) -> float:
    """Resident memory of a process."""
    with open("/proc/%d/statm" % pid) as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def table(bench: str, measures: Sequence[Measure]) -> list[str]:
    """The measures as aligned lines for people."""
    rows = [("", bench, "value", "unit", "bar")]
    for m in measures:
        mark = "" if m.bar is None and m.ok else "ok" if m.ok else "NO"
        rows.append((mark, m.name, _number(m.value), m.unit, "" if m.bar is None else _number(m.bar)))
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines = []
    for mark, name, value, unit, bar in rows:
        cells = (mark.ljust(widths[0]), name.ljust(widths[1]), value.rjust(widths[2]), unit.ljust(widths[3]))
        lines.append("  ".join((*cells, bar.rjust(widths[4]))).rstrip())
    return lines


def _number(value: float | int | str) -> str:
    if isinstance(value, float):
        return "%.0f" % value if abs(value) >= 10_000 else "%.4g" % value
    return str(value)
