"""Incarnations without news for long: the table `settled`, which no batch rewrites.

Each deployment begins incarnations, and the lake must remember all of them forever: a segment of any may
arrive late, from a board that was in a drawer or a gateway that was restored. But `progress` is rewritten
with each batch, and each gateway reads its acknowledgements every few seconds; so both hold only what is
active. Invariants, at every moment:

- An incarnation is in `progress` or in `settled`. If it is in both, `progress` counts.
- Of an incarnation that only `settled` has, nothing has landed since it was settled, except by commits of
  `elements` after the version that `progress` names.
- `settled` is at least as new as the number of it that `progress` names, and accounts for no later version of
  `elements`. Otherwise one of the two was lost or taken back by hand, and progress is rebuilt from the rows.
- What an acknowledgement covered stays covered: a gateway finds it in the file of its process, or in the file
  of settled incarnations that this one names by its CRC.

Settling therefore writes in this order, each step on the disk before the next: the table `settled`, the files
of settled incarnations, `progress` without them, the acknowledgements. A kill in between leaves incarnations
in both, which is harmless. A segment of a settled incarnation makes it active again before anything is
decided. Its row in `settled` stays, outdated and without effect, until the incarnation is settled again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from . import crash_points, ranges, tables
from .errors import Fenced
from .location import Location
from .progress import ELEMENTS, SETTLED, Key, Numbering, Progress, numbering_of, row_of
from .segment import hexadecimal, name_part

if TYPE_CHECKING:
    from .acks import Acknowledgements

NAME = "settled"
PREFIX = "_settled."  # of a file of acknowledgements; no process has a file with this prefix

# Process, as a part of file names -> stream -> incarnation -> high-water mark.
Told = dict[str, dict[str, dict[str, int]]]


@dataclass
class Settled:
    """The table `settled`, its keys in memory and its rows on the disk."""

    lake: Location
    number: int = 0  # how often it was written
    elements: int = -1  # the version of `elements` that progress named at the last time
    keys: set[Key] = field(default_factory=set)
    _table: DeltaTable | None = None  # as this knows it: a commit of another process makes `put` fail

    @classmethod
    def load(cls, lake: Location) -> Settled:
        settled = cls(lake)
        settled.reopen()
        table = settled._table
        assert table is not None
        settled.number = table.transaction_version(SETTLED) or 0
        elements = table.transaction_version(ELEMENTS)
        settled.elements = -1 if elements is None else elements
        names = table.to_pyarrow_table(columns=["stream", "incarnation"])
        settled.keys = set(_keys(names))
        return settled

    def reopen(self) -> None:
        """Take the table as it is now, after maintenance of our own."""
        self._table = tables.open_table(self.lake / NAME)

    def agrees(self, progress: Progress) -> bool:
        """Whether both tables are as one sink left them, wherever it was killed."""
        return progress.settled <= self.number and self.elements <= progress.elements

    def activate(self, progress: Progress, keys: Iterable[Key]) -> None:
        """Move these incarnations back to progress, if they are settled and not there."""
        wanted = {key for key in keys if key in self.keys and key not in progress.numberings}
        if not wanted:
            return
        assert self._table is not None
        filters = [("incarnation", "in", sorted({incarnation for _, incarnation in wanted}))]
        for row in tables.plain(self._table.to_pyarrow_table(filters=filters)):
            key = (row["stream"], row["incarnation"])
            if key in wanted:
                progress.numberings[key] = numbering_of(row)
                progress.updated[key] = row["updated"]

    def others(self, progress: Progress) -> dict[Key, Numbering]:
        """All incarnations that progress does not have."""
        assert self._table is not None
        if self.keys <= progress.numberings.keys():
            return {}
        rows = tables.plain(self._table.to_pyarrow_table())
        found = {(row["stream"], row["incarnation"]): numbering_of(row) for row in rows}
        return {key: one for key, one in found.items() if key not in progress.numberings}

    def told(self) -> Told:
        """What the gateways must know about these incarnations."""
        assert self._table is not None
        columns = ["stream", "incarnation", "processes", "high"]
        out: Told = {}
        for row in self._table.to_pyarrow_table(columns=columns).to_pylist() if self.keys else ():
            for part in sorted(map(name_part, row["processes"])):
                streams = out.setdefault(part, {}).setdefault(row["stream"], {})
                streams[hexadecimal(row["incarnation"])] = row["high"]
        return out

    def put(self, progress: Progress, keys: Iterable[Key]) -> int:
        """Add these incarnations of progress, or their newer state; the version of the table."""
        assert self._table is not None
        chosen = set(keys)
        schema = tables.SCHEMAS[NAME]
        there = self._table.to_pyarrow_table().cast(schema)
        stay = there.filter(pa.array([key not in chosen for key in _keys(there)], pa.bool_()))
        rows = [row_of(key, progress.numberings[key], progress.updated[key]) for key in sorted(chosen)]
        data = pa.concat_tables([stay, pa.Table.from_pylist(rows, schema=schema)])
        self._write(data, progress, self.number + 1)
        self.keys |= chosen
        return self._table.version()

    def clear(self, progress: Progress) -> int:
        """Delete all: progress was rebuilt from the rows, and has every incarnation."""
        assert self._table is not None
        self._write(tables.SCHEMAS[NAME].empty_table(), progress, progress.settled)
        self.keys = set()
        return self._table.version()

    def _write(self, data: pa.Table, progress: Progress, number: int) -> None:
        assert self._table is not None
        try:
            tables.write(self._table, data, "overwrite", {SETTLED: number, ELEMENTS: progress.elements})
        except CommitFailedError:
            raise Fenced("another process has written the table `settled`; this one has stopped")
        self.number, self.elements = number, progress.elements


def _keys(data: pa.Table) -> list[Key]:
    columns = (data.column(name).to_pylist() for name in ("stream", "incarnation"))
    return list(zip(*columns, strict=True))


def complete(numbering: Numbering) -> bool:
    """Whether everything from 1 to the highest ξ is accounted for."""
    accounted = numbering.accounted()
    return len(accounted) == 1 and ranges.high(accounted) > 0


def quiet(progress: Progress, now_us: int, quiet_s: float) -> list[Key]:
    """The incarnations that may be settled."""
    before = now_us - int(quiet_s * 1_000_000)
    updated: Mapping[Key, int] = progress.updated
    return [k for k, numbering in progress.numberings.items() if updated[k] < before and complete(numbering)]


def settle(
    keys: list[Key],
    progress: Progress,
    settled: Settled,
    acks: Acknowledgements,
    sync: Callable[[str, int], None],
) -> None:
    """Move incarnations out of progress, in the order above. `sync` flushes a commit of a table to disk."""
    sync(NAME, settled.put(progress, keys))
    crash_points.reach("settled")
    acks.settle(settled.told())
    progress.forget(keys)
    progress.settled = settled.number
    sync("progress", progress.save())
    crash_points.reach("forgotten")
    acks.write(progress, [])


def rows(lake: Location) -> list[dict[str, Any]]:
    """What a lake has of each incarnation: rows of `progress`, and those of `settled` that `progress` lacks.

    `progress` is read first: an incarnation that a sink settles in between is read twice rather than never.
    """
    active = tables.rows(lake / "progress")
    have = {(row["stream"], row["incarnation"]) for row in active}
    others = tables.rows(lake / NAME)
    return active + [row for row in others if (row["stream"], row["incarnation"]) not in have]
