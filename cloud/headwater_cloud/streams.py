"""The table `streams`: which alphabets each stream has had, and which of them are one version."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from . import tables, views
from .location import Location
from .segment import Segment


class Streams:
    """The table, in memory; adds what is new."""

    def __init__(self, lake: Location) -> None:
        self._lake = lake
        self._rows = tables.rows(lake / "streams")
        # (process, stream, alphabet) -> within_ms: a segment that differs in these is news.
        self._told = {(r["process"], r["stream"], r["alphabet"]): r["within_ms"] for r in self._rows}

    def add(self, segments: Iterable[Segment], now_us: int) -> int | None:
        """Record new alphabets, and required delays, in the order of the streams' own time.

        The version of the table that has them; None if there was no news.
        """
        new: list[dict[str, Any]] = []
        for segment in sorted(segments, key=lambda s: (s.stream, s.last_ts_us or 0, s.first)):
            name = (segment.process, segment.stream, segment.alphabet)
            if self._told.get(name) == segment.within_ms:
                continue
            self._told[name] = segment.within_ms
            known = views.versions(
                (r["version"], r["alphabet"]) for r in self._rows + new if r["stream"] == segment.stream
            )
            new.append(
                {
                    "process": segment.process,
                    "stream": segment.stream,
                    "version": views.version_of(segment.alphabet, known),
                    "alphabet": segment.alphabet,
                    "within_ms": segment.within_ms,
                    "since": now_us,
                }
            )
        if not new:
            return None
        self._rows += new
        return tables.append(self._lake / "streams", new, {})
