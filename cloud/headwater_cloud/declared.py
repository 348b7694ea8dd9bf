"""What segments declare beside rows and gaps: alphabets, in the table `streams`, and moves of operators.

The table `moves` says which operators that a stream depends on have changed their host, when and why. A
segment names moves until the lake has them, so several segments may name the same one. A row is written once:
what the table has, from this sink or an earlier one, is not written again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from . import tables
from .location import Location
from .segment import Segment
from .streams import Streams

_Key = tuple[str, str, int, str, int]  # process, stream, incarnation, operator, epoch


class Declared:
    def __init__(self, lake: Location) -> None:
        self._tables: dict[str, Streams | Moves] = {"streams": Streams(lake), "moves": Moves(lake)}

    def add(self, segments: Sequence[Segment], now_us: int) -> Iterator[tuple[str, int]]:
        """Record what is new: the tables that have it, and the versions in which."""
        for name, table in self._tables.items():
            version = table.add(segments, now_us)
            if version is not None:
                yield name, version


class Moves:
    """The keys of the table, in memory; adds what is new."""

    def __init__(self, lake: Location) -> None:
        self._lake = lake
        columns = ("process", "stream", "incarnation", "operator", "epoch")
        self._known: set[_Key] = {
            (r["process"], r["stream"], r["incarnation"], r["operator"], r["epoch"])
            for r in tables.rows(lake / "moves", columns)
        }

    def add(self, segments: Sequence[Segment], now_us: int) -> int | None:
        """Record new moves; the version of the table that has them, None if there was no news."""
        new: dict[_Key, dict[str, Any]] = {}
        for segment in segments:
            for move in segment.moves:
                key = (segment.process, segment.stream, segment.incarnation, move.operator, move.epoch)
                if key in self._known:
                    continue
                new[key] = {
                    "process": segment.process,
                    "stream": segment.stream,
                    "incarnation": segment.incarnation,
                    "operator": move.operator,
                    "epoch": move.epoch,
                    "from_host": move.from_host,
                    "to_host": move.to_host,
                    "reason": move.reason,
                    "moved": move.at_us,
                    "landed": now_us,
                }
        if not new:
            return None
        version = tables.append(self._lake / "moves", list(new.values()), {})
        self._known |= new.keys()
        return version
