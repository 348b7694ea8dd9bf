"""What a lake has of each incarnation: the table `progress`, and its copy in the writer's memory.

The sink's source of truth: Spark's checkpoint may be lost, this must not be wrong. It is computed from its
state before the batch, saved in one commit with the batch's number and a hash of its files, and only after
the rows are in `elements`. If it is behind `elements` (killed in between), the sink recognises that by the
version that it names.

It has the active incarnations; those without news for long are in `settled` (settled.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from . import ranges, tables
from .checksum import Span, Spans
from .errors import Fenced
from .location import Location
from .ranges import Ranges

Key = tuple[str, int]  # stream, incarnation

# Application transactions of the table: its state.
GENERATION = "headwater.generation"
BATCH = "headwater.batch"
FILES = "headwater.files"
ELEMENTS = "headwater.elements"
SETTLED = "headwater.settled"


@dataclass
class Numbering:
    """What is there of one (stream, incarnation)."""

    processes: list[str] = field(default_factory=list)
    known: Ranges = field(default_factory=list)  # rows, holes, quarantined rows
    gaps: Ranges = field(default_factory=list)  # declared, and not known
    rows_landed: int = 0
    rows_kept: int = 0
    rows_duplicate: int = 0
    rows_quarantined: int = 0
    last_ts_us: int | None = None
    sums: Spans = field(default_factory=list)  # of the rows that were kept since there are checksums
    erased: Ranges = field(default_factory=list)  # of known: what `erasures` names, which is not stored here

    def accounted(self) -> Ranges:
        return ranges.union(self.known, self.gaps)

    def copy(self) -> Numbering:
        # Ranges are never changed in place, so they are shared.
        return replace(self, processes=list(self.processes))


@dataclass
class Progress:
    numberings: dict[Key, Numbering] = field(default_factory=dict)
    generation: int = 0
    batch: int = -1  # of this generation: the newest that is done
    files: int = 0  # hash of its list of files
    elements: int = -1  # version of `elements` up to which this accounts for all rows
    settled: int = 0  # number of the table `settled` without which this would not be complete
    updated: dict[Key, int] = field(default_factory=dict)  # µs
    _table: DeltaTable | None = None  # as this knows it: a commit of another writer makes `save` fail

    @classmethod
    def load(cls, lake: Location) -> Progress:
        table = tables.open_table(lake / "progress")
        progress = cls(
            _table=table,
            generation=table.transaction_version(GENERATION) or 0,
            batch=_or(table.transaction_version(BATCH), -1),
            files=table.transaction_version(FILES) or 0,
            elements=_or(table.transaction_version(ELEMENTS), -1),
            settled=table.transaction_version(SETTLED) or 0,
        )
        for row in tables.plain(table.to_pyarrow_table()):
            key = (row["stream"], row["incarnation"])
            progress.numberings[key] = numbering_of(row)
            progress.updated[key] = row["updated"]
        return progress

    def reopen(self, lake: Location) -> None:
        """Take the table as it is now, after maintenance of our own."""
        self._table = tables.open_table(lake / "progress")

    def save(self) -> int:
        """One commit, of the version that this gives; Fenced if another writer has written since."""
        assert self._table is not None
        rows = [row_of(key, one, self.updated[key]) for key, one in sorted(self.numberings.items())]
        stand = {GENERATION: self.generation, BATCH: self.batch, FILES: self.files, ELEMENTS: self.elements}
        stand[SETTLED] = self.settled
        data = pa.Table.from_pylist(rows, schema=tables.SCHEMAS["progress"])
        try:
            tables.write(self._table, data, "overwrite", stand)
        except CommitFailedError:
            raise Fenced("another process has written the table `progress`; this one has stopped")
        return self._table.version()

    def change(self, changed: dict[Key, Numbering], now_us: int) -> None:
        self.numberings.update(changed)
        self.updated.update(dict.fromkeys(changed, now_us))

    def forget(self, keys: Iterable[Key]) -> None:
        """Leave out incarnations that `settled` has."""
        for key in keys:
            del self.numberings[key], self.updated[key]


def row_of(key: Key, numbering: Numbering, updated_us: int) -> dict[str, Any]:
    """As a row of `progress` and `settled`."""
    accounted = numbering.accounted()
    return {
        "stream": key[0],
        "incarnation": key[1],
        "processes": numbering.processes,
        "high": ranges.high(accounted),
        "ranges": _structs(ranges.above(accounted)),
        "gaps": _structs(numbering.gaps),
        "rows_landed": numbering.rows_landed,
        "rows_kept": numbering.rows_kept,
        "rows_duplicate": numbering.rows_duplicate,
        "rows_quarantined": numbering.rows_quarantined,
        "last_ts": numbering.last_ts_us,
        "updated": updated_us,
        "sums": [vars(span) for span in numbering.sums],
    }


def numbering_of(row: dict[str, Any]) -> Numbering:
    """Out of such a row, its times in µs."""
    accounted = _pairs(row["ranges"])
    if row["high"]:
        accounted = [(1, row["high"]), *accounted]
    gaps = _pairs(row["gaps"])
    return Numbering(
        processes=row["processes"],
        known=ranges.subtract(accounted, gaps),
        gaps=gaps,
        rows_landed=row["rows_landed"],
        rows_kept=row["rows_kept"],
        rows_duplicate=row["rows_duplicate"],
        rows_quarantined=row["rows_quarantined"],
        last_ts_us=row["last_ts"],
        sums=[Span(**span) for span in row["sums"] or ()],
    )


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _pairs(structs: Iterable[dict[str, int]]) -> Ranges:
    return [(item["first"], item["last"]) for item in structs]


def _structs(pairs: Ranges) -> list[dict[str, int]]:
    return [{"first": first, "last": last} for first, last in pairs]
