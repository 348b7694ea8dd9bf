"""Compares the segments of a landing zone with what boards accepted: without sink and lake."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ..boards.virtual import Accepted

Row = tuple[int, int, int | None]  # incarnation, ξ, first field; None for a hole


def rows(landing: Path) -> dict[str, list[Row]]:
    """All rows of all segments, by stream."""
    import pyarrow.parquet as pq

    out: dict[str, list[Row]] = {}
    for path in landing.glob("*.parquet"):
        file = pq.ParquetFile(path)
        said = json.loads(file.schema_arrow.metadata[b"headwater"])
        inc = int(said["incarnation"], 16)
        of_stream = out.setdefault(said["stream"], [])
        columns = file.read(["xi", "ints"]).to_pydict()
        of_stream += [(inc, xi, ints[0]) for xi, ints in zip(columns["xi"], columns["ints"], strict=True)]
        of_stream += [(inc, xi, None) for gap in said["gaps"] for xi in range(gap[0], gap[1] + 1)]
    return out


@dataclass
class Landed:
    """Entries of sources, counted."""

    accepted: int = 0
    lost: int = 0
    twice: int = 0
    divergent: int = 0
    unknown: int = 0  # no ledger has them

    def add(
        self, of_stream: Iterable[Row], accepted: Iterable[Accepted], value: Callable[[int], int]
    ) -> None:
        """Compare one stream with what its board accepted; `value` gives the first field of a sample."""
        found: dict[tuple[int, int], int | None] = {}
        for inc, xi, field in of_stream:
            self.twice += (inc, xi) in found
            found[(inc, xi)] = field
        for batch in accepted:
            for i in range(batch.n):
                self.accepted += 1
                at = batch.incarnation, batch.xi + i
                if at not in found:
                    self.lost += 1
                elif found.pop(at) != value(batch.first + i):
                    self.divergent += 1
        self.unknown += len(found)
