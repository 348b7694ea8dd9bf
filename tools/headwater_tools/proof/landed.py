"""Compares the segments of a landing zone with what boards accepted: without sink and lake."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ..boards.virtual import Accepted

Row = tuple[int, int, int | None]  # incarnation, ξ, first field; None for a hole
Timed = tuple[int, int, int, int]  # incarnation, ξ, ts in µs, first field


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


def gaps(landing: Path) -> int:
    """Entries that producers have declared lost; holes, which a source declares of itself, are none."""
    import pyarrow.parquet as pq

    count = 0
    for path in landing.glob("*.parquet"):
        said = json.loads(pq.ParquetFile(path).schema_arrow.metadata[b"headwater"])
        count += sum(gap[1] - gap[0] + 1 for gap in said["gaps"] if gap[2] == "gap")
    return count


def timed(landing: Path, prefix: str) -> dict[str, list[Timed]]:
    """The rows of streams whose names begin so, with their times."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    out: dict[str, list[Timed]] = {}
    for path in landing.glob("*.parquet"):
        file = pq.ParquetFile(path)
        said = json.loads(file.schema_arrow.metadata[b"headwater"])
        if not said["stream"].startswith(prefix):
            continue
        table = file.read(["xi", "ts", "ints"])
        stamps = table.column("ts").cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
        rows = zip(table.column("xi").to_pylist(), stamps, table.column("ints").to_pylist(), strict=True)
        inc = int(said["incarnation"], 16)
        out.setdefault(said["stream"], []).extend((inc, xi, ts, ints[0]) for xi, ts, ints in rows)
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


@dataclass
class Results:
    """Results of an operator that gives one for each sample, counted by the times that both have."""

    found: int = 0
    lost: int = 0
    twice: int = 0  # under one number, or for one sample
    divergent: int = 0
    unknown: int = 0  # of samples that no ledger has

    def add(
        self, of_stream: Iterable[Timed], accepted: Iterable[Accepted], value: Callable[[int], int]
    ) -> None:
        """Compare one stream with what the board of its source accepted; `value` gives the result for a
        sample."""
        numbers: set[tuple[int, int]] = set()
        by_ts: dict[int, int] = {}
        for inc, xi, ts, field in of_stream:
            self.twice += (inc, xi) in numbers or ts in by_ts
            numbers.add((inc, xi))
            by_ts[ts] = field
        for batch in accepted:
            for i in range(batch.n):
                ts = batch.ts + i * batch.dt
                if ts not in by_ts:
                    self.lost += 1
                    continue
                self.found += 1
                self.divergent += by_ts.pop(ts) != value(batch.first + i)
        self.unknown += len(by_ts)
