"""What a batch of segments adds to a lake: decided on ranges alone, before any row is touched.

Pure: the same segments and the same progress give the same decision, so a batch that is repeated does the
same. Rows are read only if a segment has a known ξ: those may be duplicates or divergent.

A partly known segment, which a gateway cuts when it was not acknowledged in time, mostly repeats whole runs
of which progress has a checksum. Then it makes a claim: its known rows are duplicates. If that is true, its
new rows must have the declared checksum without that of the known ones, and the append computes what they
have. So a claim reads no row; if it fails, rows are compared as usual.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import checksum, ranges
from .checksum import Span
from .progress import Key, Numbering
from .segment import Gap, Segment


@dataclass(frozen=True)
class Part:
    """A range of ξ of one file."""

    file: str
    process: str
    stream: str
    incarnation: int
    first: int
    last: int
    turn: int = 0  # of the file's claim; 0: none


CLAIMS_MAX = 63  # of a batch: this many rotations of 64 bits differ from none, and from each other


@dataclass
class Decision:
    whole: list[Segment] = field(default_factory=list)  # all rows of the file are new
    parts: list[Part] = field(default_factory=list)  # these rows of the file are new
    partly: dict[str, Segment] = field(default_factory=dict)  # the files that these are of
    overlaps: list[Part] = field(default_factory=list)  # these are known: to be compared
    within: bool = False  # some of them with rows of this very batch
    claimed: list[Part] = field(default_factory=list)  # these are known, and duplicates if a claim is true
    claims: dict[str, int] = field(default_factory=dict)  # by file: the checksum of the known rows
    turns: dict[str, int] = field(default_factory=dict)  # by file that has or had a claim
    gaps: list[dict[str, Any]] = field(default_factory=list)  # for the table, without `landed`
    dropped: list[Part] = field(default_factory=list)  # these are erased: no table may have them
    erased: list[tuple[str, int, int, int]] = field(default_factory=list)  # erasure, incarnation, first, last
    changed: dict[Key, Numbering] = field(default_factory=dict)
    rows_landed: int = 0
    rows_divergent: int = 0  # found by comparing, afterwards

    @property
    def rows_kept(self) -> int:
        return sum(s.rows for s in self.whole) + sum(p.last - p.first + 1 for p in self.parts)

    @property
    def rows_erased(self) -> int:
        return sum(p.last - p.first + 1 for p in self.dropped)

    @property
    def rows_duplicate(self) -> int:
        return self.rows_landed - self.rows_kept - self.rows_divergent

    def set_divergent(self, key: Key, rows: int) -> None:
        """Record how many known rows of this incarnation were not duplicates."""
        self.rows_divergent += rows
        self.changed[key].rows_duplicate -= rows
        self.changed[key].rows_quarantined += rows

    def landing(self) -> list[Segment]:
        """The segments of which rows are new, each once."""
        return [*self.whole, *self.partly.values()]

    def total(self, sums: Mapping[str, Span]) -> int:
        """The checksum that an append of these rows must show."""
        total = 0
        for file, span in sums.items():
            total ^= checksum.turned(span.sum, self.turns.get(file, 0))
        return total

    def distrust(self) -> list[Part]:
        """Withdraw all claims: their parts must be compared."""
        parts, self.claimed, self.claims = self.claimed, [], {}
        self.overlaps += parts
        return parts

    def sums(self, declared: Mapping[str, int], came: Mapping[str, int]) -> dict[str, Span]:
        """By file, the rows that the batch appends and their checksum.

        `declared`: by file, of all its rows; `came`: by file, of those in `overlaps` and `dropped`, which are
        not appended.
        """
        out = {s.file: Span(s.first, s.last, s.rows, declared[s.file]) for s in self.whole}
        for file, segment in self.partly.items():
            new = [(part.first, part.last) for part in self.parts if part.file == file]
            rest = declared[segment.file] ^ came.get(file, 0)
            out[file] = Span(new[0][0], new[-1][1], ranges.size(new), rest)
        return out

    def prove(self, sums: Mapping[str, Span]) -> None:
        """Keep these checksums with what the batch changes."""
        for segment in self.landing():
            numbering = self.changed[segment.key]
            numbering.sums = checksum.put(numbering.sums, sums[segment.file])


def decide(segments: Iterable[Segment], numberings: Mapping[Key, Numbering]) -> Decision:
    decision = Decision()
    for segment in sorted(segments, key=lambda s: (s.stream, s.incarnation, s.first, s.last, s.file)):
        before = numberings.get(segment.key) or Numbering()
        numbering = decision.changed.get(segment.key)
        if numbering is None:
            numbering = decision.changed[segment.key] = before.copy()
        _take(decision, segment, numbering, before)
    return decision


def _take(decision: Decision, segment: Segment, numbering: Numbering, before: Numbering) -> None:
    erased = _drop(decision, segment, numbering)
    rows = ranges.subtract(segment.row_ranges(), erased)
    holes = [(gap.first, gap.last) for gap in segment.gaps if gap.kind == "hole"]
    gaps = ranges.normal((gap.first, gap.last) for gap in segment.gaps if gap.kind == "gap")
    entries = ranges.normal([*rows, *holes])
    new = ranges.subtract(rows, numbering.known)
    if new and new == segment.row_ranges():
        decision.whole.append(segment)
    elif new:
        decision.partly[segment.file] = segment
    known = ranges.intersect(entries, numbering.known)
    turn = 0
    if new and new != rows and not erased and len(decision.claims) < CLAIMS_MAX:
        claim = _claim(segment, rows, known, before)
        if claim is not None:
            turn = decision.turns[segment.file] = len(decision.claims) + 1
            decision.claims[segment.file] = claim
            decision.claimed += _parts(segment, known)
    if new != segment.row_ranges():
        decision.parts += _parts(segment, new, turn)
    if not turn and not _same(segment, entries, before):
        decision.overlaps += _parts(segment, known)
        decision.within = decision.within or bool(ranges.subtract(known, before.known))
    for gap in segment.gaps:
        _declare(decision, segment, gap, numbering)
    numbering.known = ranges.union(numbering.known, entries)
    numbering.gaps = ranges.subtract(ranges.union(numbering.gaps, gaps), numbering.known)
    landed, kept = ranges.size(rows), ranges.size(new)
    decision.rows_landed += landed
    numbering.rows_landed += landed
    numbering.rows_kept += kept
    numbering.rows_duplicate += landed - kept
    if segment.last_ts_us is not None and not erased:
        numbering.last_ts_us = max(segment.last_ts_us, numbering.last_ts_us or 0)
    if segment.process not in numbering.processes:
        numbering.processes.append(segment.process)


def _drop(decision: Decision, segment: Segment, numbering: Numbering) -> ranges.Ranges:
    """The ξ of rows that are erased: those of an erasure's filter, and those that were erased before."""
    for erasure, meant in segment.erased:
        fresh = ranges.subtract(meant, numbering.known)
        decision.erased += [(erasure, segment.incarnation, first, last) for first, last in fresh]
        numbering.known = ranges.union(numbering.known, fresh)
        numbering.erased = ranges.union(numbering.erased, fresh)
    runs = [pair for _, meant in segment.erased for pair in meant]
    erased = ranges.normal([*runs, *ranges.intersect(segment.row_ranges(), numbering.erased)])
    decision.dropped += _parts(segment, erased)
    return erased


def _same(segment: Segment, entries: ranges.Ranges, before: Numbering) -> bool:
    """Whether its rows are known, one by one, by the checksum of those that landed there."""
    if segment.sum is None or ranges.subtract(entries, before.known) or not _all_summed(before):
        return False
    return checksum.within(before.sums, segment.first, segment.last) == (segment.rows, segment.sum)


def _claim(segment: Segment, rows: ranges.Ranges, known: ranges.Ranges, before: Numbering) -> int | None:
    """The checksum of the known rows of a segment, if progress has it; None if it does not."""
    if segment.sum is None or ranges.subtract(known, before.known) or not _all_summed(before):
        return None
    # From the first known row to the last: rows between them are new, and no span includes them.
    there = checksum.within(before.sums, known[0][0], known[-1][1])
    mine = ranges.size(ranges.intersect(rows, known))
    return there[1] if there is not None and there[0] == mine else None


def _all_summed(numbering: Numbering) -> bool:
    """Whether no row landed before there were checksums."""
    return checksum.total(numbering.sums)[0] == numbering.rows_kept


def _parts(segment: Segment, pieces: ranges.Ranges, turn: int = 0) -> list[Part]:
    return [
        Part(segment.file, segment.process, segment.stream, segment.incarnation, first, last, turn)
        for first, last in pieces
    ]


def _declare(decision: Decision, segment: Segment, gap: Gap, numbering: Numbering) -> None:
    """Record what was not declared before; of a hole also what was a gap until now."""
    told = numbering.known if gap.kind == "hole" else numbering.accounted()
    for first, last in ranges.subtract([(gap.first, gap.last)], told):
        decision.gaps.append(
            {
                "process": segment.process,
                "stream": segment.stream,
                "incarnation": segment.incarnation,
                "first": first,
                "last": last,
                "kind": gap.kind,
                "reason": gap.reason,
                "from_ts": gap.from_us,
                "to_ts": gap.to_us,
            }
        )
