"""One pass over the rows of `elements`, without a JVM: delta-rs reads, numpy counts.

Memory grows with the number of contiguous runs and of batches of the sink, not with the number of rows: a
run of ξ is one line of numbers, whatever its length, and a delay is one count in a logarithmic histogram.
Rows are read one by one (`twice`) only if two runs of one stream overlap.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder

from . import alphabet as alphabets
from . import checksum as checksums
from .checksum import Spans, Words
from .ranges import Ranges, normal

Key = tuple[str, int]  # stream, incarnation
Ints = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

BLOCK_ROWS = 1 << 17  # rows that are counted at once
LINES_MAX = 1 << 19  # lines of numbers that may wait to be merged
WINDOW_ROWS = 1 << 20  # most ξ that `twice` reads at once
FAR = np.iinfo(np.int64).max

# A delay is counted in one of 64 steps for each power of two: the result is at most 1/64 too long.
STEPS = 64


class Unreadable(Exception):
    """The table is not as docs/spec.md says."""


@dataclass
class Delay:
    """Of the rows of one stream with a valid ts: from ts until they landed (or arrived), in µs."""

    rows: int = 0
    least: int = FAR
    most: int = -FAR
    late: int = 0  # beyond the required delay
    buckets: dict[int, int] = field(default_factory=dict)

    def percentile(self, share: float) -> int | None:
        """That share of the rows took no longer; at most 1/64 above the truth, never below it."""
        if not self.rows:
            return None
        left = share * self.rows
        for bucket in sorted(self.buckets):
            left -= self.buckets[bucket]
            if left <= 1e-9 * self.rows:
                return max(self.least, min(self.most, _longest(bucket)))
        return self.most


@dataclass
class Seen:
    """Facts about all rows of one stream and incarnation."""

    rows: int = 0
    unsync: int = 0
    falls: int = 0  # places where ts falls from one ξ to the next one that is there
    ranges: Ranges = field(default_factory=list)  # of ξ, merged
    overlaps: Ranges = field(default_factory=list)  # of ξ, in more than one run
    least_xi: int = 0
    in_order: bool = True  # no row could be read before one of a lower ξ
    delays: dict[str, Delay] = field(default_factory=dict)
    landed: list[int] = field(default_factory=list)  # when rows landed, ascending, and with each ...
    reach: list[int] = field(default_factory=list)  # ... the highest ξ that had landed by then
    unfit: Ranges = field(default_factory=list)  # whose values do not fit their alphabet
    strange: Ranges = field(default_factory=list)  # of an alphabet that the table `streams` does not have
    changed: Ranges = field(default_factory=list)  # spans of which all rows are there, with another checksum
    proven: int = 0  # rows of the other spans of which all are there

    def passed(self, xi: int) -> int | None:
        """When the first row above this ξ landed; None if there is none."""
        at = bisect_right(self.reach, xi)
        return self.landed[at] if at < len(self.landed) else None


class Scan:
    """Takes blocks of rows; afterwards `seen` has each stream, `orderly` several together."""

    def __init__(
        self,
        within_us: dict[str, int],
        alphabets: dict[str, set[str]] | None = None,
        spans: dict[Key, Spans] | None = None,
    ) -> None:
        self.within_us = within_us
        self.alphabets = alphabets  # of each stream; None: not known
        self.spans = spans or {}  # checksums of what landed
        self.found: dict[int, list[tuple[int, int]]] = {}  # of each span: rows that are there, and theirs
        self.unfit: dict[int, Ranges] = {}
        self.strange: dict[int, Ranges] = {}
        self.keys: dict[Key, int] = {}
        self.rows: dict[int, int] = {}
        self.unsync: dict[int, int] = {}
        self.delays: dict[int, dict[str, Delay]] = {}
        self.runs = _Lines(_merge_runs, 6)  # key, first, last, ts of the first, ts of the last, falls
        self.batches = _Lines(_merge_batches, 6)  # key, landed, least ξ, most ξ, least ts, most ts

    def take(self, block: pa.Table) -> None:
        for name in ("stream", "incarnation", "xi", "ts", "unsync", "arrived", "landed"):
            if block.column(name).null_count:
                raise Unreadable("rows of `elements` have no %s" % name)
        block = block.unify_dictionaries().combine_chunks()
        stream = block.column("stream").chunk(0) if block.num_rows else None
        if stream is None:
            return
        names = stream.dictionary.to_pylist()
        which = stream.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        columns = [_ints(block, name) for name in ("incarnation", "xi", "ts", "arrived", "landed")]
        unsync = _ints(block, "unsync")
        hashes, fits = _hashes(block)
        known_alphabet = self._known_alphabets(block, names, which)
        starts = _starts(which, columns[0], columns[1], columns[4])
        if len(starts) * 8 > len(which):  # rows in no useful order: make one
            order = np.lexsort((columns[4], columns[1], columns[0], which))
            which, unsync = which[order], unsync[order]
            hashes, fits, known_alphabet = hashes[order], fits[order], known_alphabet[order]
            columns = [column[order] for column in columns]
            starts = _starts(which, columns[0], columns[1], columns[4])
        incarnation, xi, ts, arrived, landed = columns
        ends = np.append(starts[1:], len(xi)) - 1
        code = np.array(
            [
                self.keys.setdefault((names[s], i), len(self.keys))
                for s, i in zip(which[starts].tolist(), incarnation[starts].tolist())
            ],
            np.int64,
        )
        fall = np.zeros(len(ts), np.int64)
        fall[1:] = ts[1:] < ts[:-1]
        fall[starts] = 0
        self.runs.add(code, xi[starts], xi[ends], ts[starts], ts[ends], np.add.reduceat(fall, starts))
        known = unsync == 0
        self.batches.add(
            code,
            landed[starts],
            xi[starts],
            xi[ends],
            np.minimum.reduceat(np.where(known, ts, FAR), starts),
            np.maximum.reduceat(np.where(known, ts, -FAR), starts),
        )
        lengths = ends - starts + 1
        for c, n, u in zip(code.tolist(), lengths.tolist(), np.add.reduceat(unsync, starts).tolist()):
            self.rows[c] = self.rows.get(c, 0) + n
            self.unsync[c] = self.unsync.get(c, 0) + u
        self._sum(code.tolist(), starts.tolist(), ends.tolist(), xi, hashes)
        whole = np.repeat(code, lengths)
        _flag(self.unfit, whole, xi, ~fits)
        _flag(self.strange, whole, xi, ~known_alphabet)
        for name, reached in (("landed", landed), ("arrived", arrived)):
            self._delays(name, whole[known], (reached - ts)[known])

    def _known_alphabets(self, block: pa.Table, streams: list[str], which: Ints) -> Flags:
        """Of each row, whether the table `streams` has its alphabet."""
        if self.alphabets is None:
            return np.ones(len(which), bool)
        column = block.column("alphabet").chunk(0)
        texts = [*column.dictionary.to_pylist(), None]
        known = np.array([[text in self.alphabets.get(s, ()) for text in texts] for s in streams], bool)
        return np.asarray(known[which, _codes(column)])

    def _sum(self, codes: list[int], starts: list[int], ends: list[int], xi: Ints, hashes: Words) -> None:
        """Add rows to the spans that contain them, run by run."""
        before = np.append(np.uint64(0), np.bitwise_xor.accumulate(hashes))  # of all rows before one
        keys = list(self.keys)
        for code, start, end in zip(codes, starts, ends):
            spans = self.spans.get(keys[code])
            if not spans:
                continue
            found = self.found.setdefault(code, [(0, 0)] * len(spans))
            first, last = int(xi[start]), int(xi[end])
            at = bisect_left(spans, first, key=lambda span: span.last)
            for i in range(at, len(spans)):
                if spans[i].first > last:
                    break
                a = start + max(first, spans[i].first) - first
                b = start + min(last, spans[i].last) - first + 1
                part = int(before[a] ^ before[b])
                found[i] = found[i][0] + b - a, found[i][1] ^ part

    def _delays(self, name: str, code: Ints, delay: Ints) -> None:
        order = np.argsort(code, kind="stable") if np.any(code[1:] < code[:-1]) else slice(None)
        code, delay = code[order], delay[order]
        if not len(code):
            return
        starts = np.append(0, np.flatnonzero(code[1:] != code[:-1]) + 1)
        streams = [key[0] for key in self.keys]
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(code)]):
            c, part = int(code[start]), delay[start:end]
            all_delays = self.delays.setdefault(c, {})
            one = all_delays.setdefault(name, Delay())
            one.rows += len(part)
            one.least = min(one.least, int(part.min()))
            one.most = max(one.most, int(part.max()))
            within = self.within_us.get(streams[c], 0)
            if within:
                one.late += int(np.count_nonzero(part > within))
            counts = np.bincount(_bucket(part))
            for bucket in np.flatnonzero(counts).tolist():
                one.buckets[bucket] = one.buckets.get(bucket, 0) + int(counts[bucket])

    def seen(self) -> dict[Key, Seen]:
        out: dict[Key, Seen] = {}
        runs, batches = self.runs.merged(), self.batches.merged()
        for key, code in self.keys.items():
            own = runs[:, runs[0] == code]
            one = Seen(rows=self.rows[code], unsync=self.unsync[code])
            first, last, ts_first, ts_last = own[1], own[2], own[3], own[4]
            reach = np.maximum.accumulate(last)
            furthest = np.maximum.accumulate(np.where(last == reach, np.arange(len(last)), 0))
            apart = first[1:] > reach[:-1]
            one.falls = int(own[5].sum() + np.count_nonzero(apart & (ts_first[1:] < ts_last[furthest[:-1]])))
            one.overlaps = normal(
                zip(first[1:][~apart].tolist(), np.minimum(last[1:], reach[:-1])[~apart].tolist())
            )
            one.ranges = normal(zip(first.tolist(), last.tolist()))
            one.least_xi = int(first[0])
            of_key = batches[:, batches[0] == code]
            one.in_order = not _inverted(of_key[1], of_key[2], of_key[3])
            one.delays = self.delays.get(code, {})
            one.unfit = normal(self.unfit.get(code, ()))
            one.strange = normal(self.strange.get(code, ()))
            for span, (there, checksum) in zip(self.spans.get(key, ()), self.found.get(code, ())):
                if there == span.rows and checksum != span.sum % (1 << 64):
                    one.changed.append((span.first, span.last))
                elif there == span.rows:
                    one.proven += there
            one.landed = of_key[1].tolist()
            one.reach = np.maximum.accumulate(of_key[3]).tolist()
            out[key] = one
        return out

    def orderly(self, keys: list[Key]) -> bool:
        """No row of these streams could be read before one of an earlier ts, of whichever of them."""
        batches = self.batches.merged()
        own = batches[:, np.isin(batches[0], [self.keys[key] for key in keys if key in self.keys])]
        own = own[:, own[4] <= own[5]]  # batches with a valid ts
        own = own[:, np.argsort(own[1], kind="stable")]
        return not _inverted(own[1], own[4], own[5])


def scan(table: DeltaTable, out: Scan, stream: str | None = None) -> Scan:
    """Read all rows of `elements` (of one stream) once."""
    wanted = "where stream = %s" % quoted(stream) if stream is not None else ""
    query = (
        "select arrow_cast(stream, 'Dictionary(Int32, Utf8)') as stream, incarnation, xi, ts, unsync, "
        "arrived, landed, arrow_cast(alphabet, 'Dictionary(Int32, Utf8)') as alphabet, ints, floats "
        "from elements " + wanted
    )
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in rows_of(table, query):
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= BLOCK_ROWS:
            out.take(pa.Table.from_batches(waiting))
            waiting, rows = [], 0
    if waiting:
        out.take(pa.Table.from_batches(waiting))
    return out


def twice(table: DeltaTable, key: Key, overlaps: Ranges) -> tuple[int, int]:
    """Rows whose (stream, incarnation, ξ) another row has: (equal to it, with another payload)."""
    same = different = 0
    for first, last in overlaps:
        for start in range(first, last + 1, WINDOW_ROWS):
            query = (
                "select sum(n - kinds) as same, sum(kinds - 1) as different from ("
                "select xi, sum(n) as n, count(*) as kinds from ("
                "select xi, ts, unsync, alphabet, ints, floats, count(*) as n from elements "
                "where stream = %s and incarnation = %d and xi between %d and %d "
                "group by xi, ts, unsync, alphabet, ints, floats) group by xi)"
                % (quoted(key[0]), key[1], start, min(last, start + WINDOW_ROWS - 1))
            )
            for batch in rows_of(table, query):
                for row in batch.to_pylist():
                    same += int(row["same"] or 0)
                    different += int(row["different"] or 0)
    return same, different


def rows_of(table: DeltaTable, query: str) -> Iterator[pa.RecordBatch]:
    """The answer to a query over one table, which it names `elements`, batch by batch."""
    answer = QueryBuilder().register("elements", table).execute(query)
    yield from pa.RecordBatchReader.from_stream(answer)


def quoted(text: str) -> str:
    return "'%s'" % text.replace("'", "''")


# Columns of numbers


class _Lines:
    """Lines of numbers, of which some can be merged now and then."""

    def __init__(self, how: Any, width: int) -> None:
        self.how = how
        self.kept: Ints = np.empty((width, 0), np.int64)
        self.fresh: list[Ints] = []
        self.waiting = 0
        self.limit = LINES_MAX

    def add(self, *columns: Ints) -> None:
        self.fresh.append(np.stack(columns))
        self.waiting += len(columns[0])
        if self.waiting > self.limit:
            self.limit = max(LINES_MAX, self.merged().shape[1])

    def merged(self) -> Ints:
        if self.fresh:
            self.kept = self.how(np.concatenate([self.kept, *self.fresh], axis=1))
            self.fresh, self.waiting = [], 0
        return self.kept


def _merge_runs(lines: Ints) -> Ints:
    """Runs that touch become one; a fall of ts between them is counted as one inside."""
    lines = lines[:, np.lexsort((lines[2], lines[1], lines[0]))]
    code, first, last, ts_first, ts_last, falls = lines
    apart = np.ones(len(code), bool)
    apart[1:] = (code[1:] != code[:-1]) | (first[1:] != last[:-1] + 1)
    starts = np.flatnonzero(apart)
    ends = np.append(starts[1:], len(code)) - 1
    falls = falls.copy()
    falls[1:] += ~apart[1:] & (ts_first[1:] < ts_last[:-1])
    return np.stack(
        [
            code[starts],
            first[starts],
            last[ends],
            ts_first[starts],
            ts_last[ends],
            np.add.reduceat(falls, starts),
        ]
    )


def _merge_batches(lines: Ints) -> Ints:
    """One line for what landed of one stream at one moment."""
    lines = lines[:, np.lexsort((lines[1], lines[0]))]
    code, landed = lines[0], lines[1]
    fresh = np.ones(len(code), bool)
    fresh[1:] = (code[1:] != code[:-1]) | (landed[1:] != landed[:-1])
    starts = np.flatnonzero(fresh)
    return np.stack(
        [
            code[starts],
            landed[starts],
            np.minimum.reduceat(lines[2], starts),
            np.maximum.reduceat(lines[3], starts),
            np.minimum.reduceat(lines[4], starts),
            np.maximum.reduceat(lines[5], starts),
        ]
    )


def _inverted(landed: Ints, least: Ints, most: Ints) -> bool:
    """Whether something greater landed strictly before something less; lines ascend by `landed`."""
    if len(landed) < 2:
        return False
    later = np.searchsorted(landed, landed, side="left")  # how many lines landed strictly before this one
    reach = np.maximum.accumulate(most)
    behind = later > 0
    return bool(np.any(least[behind] < reach[later[behind] - 1]))


def _ints(block: pa.Table, name: str) -> Ints:
    column = block.column(name).chunk(0)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz)).view(pa.int64())
    return column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)


def _codes(column: pa.DictionaryArray) -> Ints:
    """Of each row, the place of its value in the dictionary; -1 if it has none."""
    return np.asarray(column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64))


def _hashes(block: pa.Table) -> tuple[Words, Flags]:
    """The hash of each row, and whether its values fit its alphabet; 0 if they do not."""
    column = block.column("alphabet").chunk(0)
    codes = _codes(column)
    ints, floats = (_Lists(block.column(name).chunk(0)) for name in ("ints", "floats"))
    xi, ts = _ints(block, "xi"), _ints(block, "ts")
    hashes: Words = np.zeros(len(codes), np.uint64)
    fits = np.zeros(len(codes), bool)
    for code, text in enumerate(column.dictionary.to_pylist()):
        try:
            widths = alphabets.counts(text)
        except ValueError:
            continue
        of_it = (codes == code) & ints.have(widths[0]) & floats.have(widths[1])
        fits |= of_it
        rows = np.flatnonzero(of_it)
        values = ints.columns(rows, widths[0]), floats.columns(rows, widths[1])
        hashes[rows] = checksums.of_rows(text, xi[rows], ts[rows], *values)
    return hashes, fits


class _Lists:
    """A column of lists of numbers."""

    def __init__(self, column: pa.ListArray) -> None:
        self.starts = column.offsets.to_numpy()[:-1].astype(np.int64)
        self.lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        self.values = column.values.to_numpy(zero_copy_only=False)
        self.nulls: Ints | None = None  # how many precede each value
        if column.values.null_count:
            flags = column.values.is_null().to_numpy(zero_copy_only=False)
            self.nulls = np.append(0, np.cumsum(flags))
            self.values = column.values.fill_null(0).to_numpy(zero_copy_only=False)

    def have(self, width: int) -> Flags:
        """Of each row, whether it has this number of values."""
        have = np.asarray(self.lengths == width)
        if self.nulls is not None:
            have &= self.nulls[self.starts + self.lengths] == self.nulls[self.starts]
        return have

    def columns(self, rows: Ints, width: int) -> list[Any]:
        return [self.values[self.starts[rows] + k] for k in range(width)]


def _flag(into: dict[int, Ranges], code: Ints, xi: Ints, flags: Flags) -> None:
    """Record the ξ of the flagged rows, as ranges, by their key."""
    rows = np.flatnonzero(flags)
    if not len(rows):
        return
    code, xi = code[rows], xi[rows]
    apart = np.flatnonzero((code[1:] != code[:-1]) | (xi[1:] != xi[:-1] + 1))
    for first, last in zip([0, *(apart + 1).tolist()], [*apart.tolist(), len(rows) - 1]):
        ranges = into.setdefault(int(code[first]), [])
        ranges.append((int(xi[first]), int(xi[last])))
        if len(ranges) > LINES_MAX:
            into[int(code[first])] = normal(ranges)


def _starts(which: Ints, incarnation: Ints, xi: Ints, landed: Ints) -> Ints:
    """Where a new run begins: another stream, a ξ that does not follow, another batch of the sink."""
    change = np.ones(len(xi), bool)
    change[1:] = xi[1:] != xi[:-1] + 1
    change[1:] |= (which[1:] != which[:-1]) | (incarnation[1:] != incarnation[:-1])
    change[1:] |= landed[1:] != landed[:-1]
    return np.flatnonzero(change)


def _bucket(delay: Ints) -> Ints:
    delay = np.maximum(delay, 0)
    shift = np.maximum(np.frexp(delay.astype(np.float64))[1].astype(np.int64) - 7, 0)
    return shift * STEPS + (delay >> shift)


def _longest(bucket: int) -> int:
    """The longest delay that falls into a bucket."""
    shift = max(bucket // STEPS - 1, 0)
    return ((bucket - shift * STEPS + 1) << shift) - 1
