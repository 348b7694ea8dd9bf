"""What a lake holds, and which promises it keeps: `hw audit`.

Reads the tables with delta-rs: no JVM, no Spark, memory for runs and batches but not for rows. It does not
rely on the sink: it counts rows in `elements`, and compares `progress` with that count. Acknowledgements are
read first, then `progress`, and `elements` last, so a sink that runs meanwhile only adds to what was
promised.

What was erased on demand (`hw lake erase`) is not lost: like a hole, it is not part of the ideal run. If rows
of a completed erasure still exist, the promise is broken.

How each reliability level follows from the tables, per stream and incarnation:

- LOLE (nothing lost, nothing false): every ξ up to the highest one that any table names is a row or a hole,
  and none is divergent. The ideal run has all of these ξ but the holes.
- LILO: otherwise. LF is the share of the ideal's ξ that are there with one payload; EF is the number of
  divergent rows over the ideal's.
- LIDE: Δτ is the longest time from ts, at which an ideal run would have had the element, until it landed.
- IASO: no row could be read before one of a lower ξ, by `landed`. (Whether ts falls over ξ is counted
  apart, as `out_of_order`.)
- IESO: IASO for all streams of a process, and no row of any of them could be read before one of an earlier ts
  of another.

A ξ that is missing below rows that have landed is not necessarily lost. The gateway keeps every entry until
the sink has acknowledged it, so an unacknowledged one is on its way: in a segment of the landing zone, in a
batch that is being written, or in a file that was damaged and is cut again. It is in flight until it is
overdue, `OVERDUE_S` after the first row above it landed, and lost from then on. The content of a segment in
the landing zone is in flight however old it is. What was acknowledged and is missing is lost at once.

Whether a payload is still the one that landed follows from the checksums that `progress` keeps: they are
computed again from the rows. A row that progress does not know belongs to a batch that is being written, or
is unaccounted for: the sink's commits after the version that progress names show how many there can be.

What cannot be known from the tables alone is listed in UNKNOWN.
"""

from __future__ import annotations

import contextlib
import json
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake import __version__ as delta_version
from deltalake.exceptions import DeltaError, TableNotFoundError

from . import settled, store, tables
from .checksum import Span
from .errors import LakeError
from .location import Location
from .progress import ELEMENTS, SETTLED
from .ranges import Ranges, intersect, normal, size, subtract
from .scan import Delay, Key, Scan, Seen, Unreadable, quoted, rows_of, scan, twice
from .segment import Name, SegmentError, hexadecimal, name_part, read_name, signed
from .tables import SCHEMAS

ENGINE = "delta-rs %s, without a JVM" % delta_version
SHARES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999))
COUNTS = ("landed", "kept", "duplicate", "quarantined")
ACKNOWLEDGED = "acknowledged, so the gateway has deleted its copy"
OVERDUE = "not acknowledged, and overdue"
ON_ITS_WAY = "not acknowledged yet"
IN_LANDING = "in the landing zone"
OVERDUE_S = 900.0
LATER = {"erasures", "moves"}  # tables that a lake of an earlier version does not have
ATTEMPTS = 3  # if something is erased meanwhile
LISTED_MAX = 1000  # missing ranges of one stream that the answer lists

UNKNOWN = (
    "whether anything was accepted above the highest ξ that any table names: of a board that was lost, or in "
    "an incarnation that its operator has given up, there may have been more",
    "how many samples a hole stands for: they were never accepted, and have no ξ",
    "whether a payload that came only once is the one that a failure-free run computes",
    "whether `unsync`, `arrived` and `landed` were changed later: no checksum covers them",
    "delays of rows that were stamped before their clock was set, and the error of any clock",
)


@dataclass(frozen=True)
class Missing:
    """A run of ξ without rows, and why."""

    first: int
    last: int
    kind: str  # erased, hole, gap, quarantined, in flight, lost
    reason: str
    from_us: int | None = None
    to_us: int | None = None


@dataclass(frozen=True)
class Moved:
    """An operator that a stream depends on has changed its host."""

    operator: str
    epoch: int
    from_host: str
    to_host: str
    reason: str
    at_us: int


@dataclass
class Stream:
    """One stream and incarnation."""

    stream: str
    incarnation: int
    processes: list[str] = field(default_factory=list)
    within_ms: int = 0
    rows: int = 0
    delivered: int = 0
    last: int = 0
    acknowledged: int = 0
    unacknowledged: int = 0  # rows above those in progress
    duplicates: int = 0
    divergent: int = 0  # here and in quarantine
    disputed: int = 0  # ξ of the rows here that came with two payloads
    refused: int = 0  # rows in quarantine
    out_of_order: int = 0
    unsync: int = 0
    iaso: bool = True
    missing: list[Missing] = field(default_factory=list)
    counts: dict[str, int] | None = None  # the sink's: landed, kept, duplicate, quarantined
    delays: dict[str, Delay] = field(default_factory=dict)
    changed: Ranges = field(default_factory=list)  # ξ among which a payload is not the one that landed
    unproven: int = 0  # rows whose payload no checksum covers, or not alone
    unfit: Ranges = field(default_factory=list)  # ξ of rows that are not as their alphabet says
    strange: Ranges = field(default_factory=list)  # ξ of rows with an alphabet that `streams` does not have
    beyond: int = 0  # ξ that were acknowledged and that progress does not have
    returned: Ranges = field(default_factory=list)  # ξ of rows that exist although they were erased
    moves: list[Moved] = field(default_factory=list)  # in the order of their times
    erasing: bool = False  # whether an erasure was cut off between its deletion and the account of it

    def of_kind(self, kind: str) -> int:
        return sum(m.last - m.first + 1 for m in self.missing if m.kind == kind)

    @property
    def lost_acknowledged(self) -> int:
        return sum(m.last - m.first + 1 for m in self.missing if m.reason == ACKNOWLEDGED)

    @property
    def ideal(self) -> int:
        """How many elements there are in an ideal run by now."""
        return self.last - self.of_kind("hole") - self.of_kind("in flight") - self.of_kind("erased")

    @property
    def lf(self) -> float:
        return max(self.delivered - self.disputed, 0) / self.ideal if self.ideal else 1.0

    @property
    def ef(self) -> float:
        return self.divergent / self.ideal if self.ideal else 0.0

    @property
    def lole(self) -> bool:
        return self.delivered == self.ideal and not self.divergent

    @property
    def conserved(self) -> bool | None:
        """Landed = elements + duplicates + quarantined, elements and quarantined as the tables hold them."""
        if self.counts is None or self.erasing:
            return None
        c = self.counts
        kept = self.rows - self.unacknowledged
        return (
            c["landed"] == c["kept"] + c["duplicate"] + c["quarantined"]
            and c["kept"] == kept
            and c["quarantined"] <= self.refused
        )

    @property
    def ok(self) -> bool:
        wrong = (
            *(self.of_kind("lost"), self.duplicates, self.divergent, self.out_of_order, self.beyond),
            *(self.changed, self.unfit, self.strange, self.returned),
        )
        return not any(wrong) and self.conserved is not False


@dataclass
class Report:
    lake: str
    streams: list[Stream]
    ieso: dict[str, bool]  # process -> whether it holds
    files_refused: dict[str, int]  # reason -> files
    files_awaited: int  # refused, and the rows of their names have not arrived since
    version: int
    took_s: float
    waiting: int | None = None  # elements in segments of the landing zone, if that was examined
    tables_missing: list[str] = field(default_factory=list)  # though there are rows
    unaccounted: int = 0  # rows that no batch of a sink can have brought
    erasures: list[dict[str, Any]] = field(default_factory=list)  # rows of the table, times in µs

    @property
    def ok(self) -> bool:
        return all(s.ok for s in self.streams) and not self.tables_missing and not self.unaccounted


def audit(
    lake: str,
    stream: str | None = None,
    landing: str | None = None,
    overdue_s: float = OVERDUE_S,
    storage: Mapping[str, str] | None = None,
) -> Report:
    """Audit a lake, or one stream of it. `landing`: its landing zone, to see what waits there. `storage`:
    options of delta-rs for an object store."""
    began = time.monotonic()
    options = dict(storage or {})
    place = Location.of(lake, options)
    zone = None if landing is None else Location.of(landing, options)
    try:
        for _ in range(ATTEMPTS):
            before = _version_of(place, "erasures")
            report = _audit(place, stream, zone, overdue_s, began)
            if _version_of(place, "erasures") == before:
                break  # else rows were removed while they were counted
        return report
    except Unreadable as error:
        raise LakeError("%s: %s" % (lake, error)) from error
    except (DeltaError, pa.ArrowException, OSError) as error:
        # DataFusion and the object stores answer with many lines; the first has the reason.
        text = str(error).strip().splitlines()
        raise LakeError(
            "%s cannot be read: %s" % (lake, text[0] if text else type(error).__name__)
        ) from error


def _audit(
    lake: Location, name: str | None, landing: Location | None, overdue_s: float, began: float
) -> Report:
    # Before the tables: a segment that the sink takes meanwhile is counted twice rather than not at all.
    segments = _segments(landing) if landing is not None else []
    acknowledged = _acknowledged(lake)
    there = {table for table in SCHEMAS if _table(lake, table) is not None}
    known_version = _known_version(lake)
    progress = _numberings(lake, name)
    versions = _rows(lake, "streams", name)
    gaps = _rows(lake, "gaps", name)
    erasures = _rows(lake, "erasures", name)
    moves = _rows(lake, "moves", name)
    refused = _rows(lake, "quarantine", name, "stream, incarnation, first, last, rows, reason")
    elements = _table(lake, "elements")
    if elements is None:
        raise LakeError("%s has no table `elements`: name the folder of a lake, as given to `hw sink`" % lake)
    within = {str(row["stream"]): int(row["within_ms"] or 0) for row in sorted(versions, key=_version)}
    alphabets: dict[str, set[str]] = {}
    for row in versions:
        alphabets.setdefault(str(row["stream"]), set()).add(str(row["alphabet"]))
    spans = {_key(row): [Span(**span) for span in row.get("sums") or ()] for row in progress}
    wanted = Scan(
        {s: ms * 1000 for s, ms in within.items()}, alphabets if "streams" in there else None, spans
    )
    rows = scan(elements, wanted, name)
    sums = _Sums(within)
    for key, one in rows.seen().items():
        sums.elements(key, one, twice(elements, key, one.overlaps) if one.overlaps else (0, 0))
    for row in progress:
        sums.progress(row)
    for key, high in acknowledged.items():
        if name in (None, key[0]):
            sums.line(key).told = high
    for row in gaps:
        sums.gap(row)
    for row in erasures:
        sums.erased(row)
    sums.moves(moves)
    files = [row for row in refused if row["reason"] != "divergent"]
    for row in refused:
        if row["reason"] == "divergent":
            sums.divergent(row)
    for segment in segments:
        sums.segment(segment)
    overdue_us = time.time_ns() // 1000 - int(overdue_s * 1_000_000)
    for line in sums.lines.values():
        line.settle(overdue_us)
    if name is not None and not sums.lines:
        raise LakeError("no stream '%s' in %s%s" % (name, lake, _others(elements)))
    streams = [sums.lines[key].stream for key in sorted(sums.lines)]
    missing = sorted(_wanted(lake) - there - LATER) if any(stream.rows for stream in streams) else []
    ahead = sum(stream.unacknowledged for stream in streams)
    on_their_way = _rows_behind(elements, known_version) if ahead else 0
    return Report(
        str(lake),
        streams,
        {} if name is not None else _ieso(streams, rows, versions),
        dict(Counter(str(row["reason"]) for row in files)),
        sum(sums.awaits(row) for row in files),
        elements.version(),
        time.monotonic() - began,
        sum(size(subtract(line.waiting, line.accounted)) for line in sums.lines.values())
        + sum(size(runs) for runs in sums.strange.values())
        if landing is not None
        else None,
        missing,
        max(0, ahead - on_their_way) if on_their_way is not None else 0,
        erasures,
    )


class _Sums:
    """Puts together the tables' information about each stream and incarnation."""

    def __init__(self, within_ms: dict[str, int]) -> None:
        self.within_ms = within_ms
        self.lines: dict[Key, _Line] = {}
        self.strange: dict[Key, Ranges] = {}  # segments of streams that the lake does not have yet

    def line(self, key: Key) -> _Line:
        if key not in self.lines:
            self.lines[key] = _Line(Stream(key[0], key[1], within_ms=self.within_ms.get(key[0], 0)))
        return self.lines[key]

    def elements(self, key: Key, seen: Seen, doubled: tuple[int, int]) -> None:
        line = self.line(key)
        line.rows = seen.ranges
        line.seen = seen
        stream = line.stream
        stream.rows, stream.unsync, stream.out_of_order = seen.rows, seen.unsync, seen.falls
        stream.delivered, stream.iaso, stream.delays = size(seen.ranges), seen.in_order, seen.delays
        stream.duplicates, stream.divergent = doubled
        stream.disputed = doubled[1]
        stream.changed, stream.unfit = seen.changed, seen.unfit

    def progress(self, row: dict[str, Any]) -> None:
        line = self.line(_key(row))
        high = [(1, int(row["high"]))] if row["high"] else []
        line.accounted = normal(high + _pairs(row["ranges"]))
        line.known = subtract(line.accounted, normal(_pairs(row["gaps"])))
        line.stream.processes = sorted(str(process) for process in row["processes"] or ())
        line.stream.counts = {what: int(row["rows_" + what] or 0) for what in COUNTS}

    def gap(self, row: dict[str, Any]) -> None:
        times = (row["from_ts"], row["to_ts"])
        gap = Missing(int(row["first"]), int(row["last"]), str(row["kind"]), str(row["reason"]), *times)
        self.line(_key(row)).declared.append(gap)

    def moves(self, rows: list[dict[str, Any]]) -> None:
        """Moves of operators. They change no row, and no promise depends on them."""
        for row in sorted(rows, key=lambda row: (row["moved"], row["epoch"])):
            texts = (str(row["from_host"]), str(row["to_host"]), str(row["reason"]))
            moved = Moved(str(row["operator"]), int(row["epoch"]), *texts, int(row["moved"]))
            self.line(_key(row)).stream.moves.append(moved)

    def erased(self, row: dict[str, Any]) -> None:
        """What an erasure has removed: it is neither there nor lost."""
        why = erased_because(row)
        for run in row["ranges"] or ():
            line = self.line((str(row["stream"]), int(run["incarnation"])))
            line.erased.append(Missing(int(run["first"]), int(run["last"]), "erased", why))
            line.stream.erasing |= row["status"] == "deleting"
            if row["status"] == "done":
                line.gone = normal([*line.gone, (int(run["first"]), int(run["last"]))])

    def divergent(self, row: dict[str, Any]) -> None:
        line = self.line(_key(row))
        line.refused.append(Missing(int(row["first"]), int(row["last"]), "quarantined", "divergent"))
        line.stream.refused += int(row["rows"] or 0)
        line.stream.divergent += int(row["rows"] or 0)

    def segment(self, name: Name) -> None:
        """A segment that is in the landing zone; its name has the stream's name as part of a file name."""
        run = [(name.first, name.last)]
        for (stream, incarnation), line in self.lines.items():
            if name_part(stream) == name.stream and incarnation == name.incarnation:
                line.waiting = normal(line.waiting + run)
                return
        key = (name.stream, name.incarnation)
        self.strange[key] = normal(self.strange.get(key, []) + run)

    def awaits(self, row: dict[str, Any]) -> bool:
        """Whether the run of a refused file, as far as its name tells it, has not arrived since."""
        if any(row[column] is None for column in ("stream", "incarnation", "first", "last")):
            return False
        run = [(int(row["first"]), int(row["last"]))]
        for (stream, incarnation), line in self.lines.items():
            if name_part(stream) == row["stream"] and incarnation == row["incarnation"]:
                run = subtract(run, line.accounted)
        return bool(run)


@dataclass
class _Line:
    """One stream and incarnation while it is put together."""

    stream: Stream
    rows: Ranges = field(default_factory=list)
    accounted: Ranges = field(default_factory=list)  # by progress
    told: Ranges = field(default_factory=list)  # what was acknowledged
    known: Ranges = field(default_factory=list)  # of that, what is not in an open declared gap
    erased: list[Missing] = field(default_factory=list)
    gone: Ranges = field(default_factory=list)  # erased, and the erasure is done
    declared: list[Missing] = field(default_factory=list)
    refused: list[Missing] = field(default_factory=list)
    waiting: Ranges = field(default_factory=list)  # in segments of the landing zone
    seen: Seen | None = None

    def settle(self, overdue_us: int) -> None:
        """Sort every ξ from 1 to the highest one into rows, holes, gaps, quarantined, in flight and lost."""
        stream = self.stream
        named = [*self.erased, *self.declared, *self.refused]
        ends = [r[1] for r in self.rows + self.accounted] + [m.last for m in named]
        stream.last = max(ends, default=0)
        stream.acknowledged = size(self.accounted)
        stream.unacknowledged = size(subtract(self.rows, self.known))
        stream.beyond = size(subtract(self.told, self.accounted))
        if self.seen is not None:
            # A batch that is being written records its alphabets after its rows, and before progress.
            stream.strange = intersect(self.seen.strange, self.known)
            changed = size(intersect(self.rows, stream.changed))
            stream.unproven = max(0, stream.rows - stream.unacknowledged - self.seen.proven - changed)
        stream.returned = intersect(self.rows, self.gone)
        if stream.erasing:
            stream.changed = []  # its spans are not those that progress has
        disputed = normal((m.first, m.last) for m in self.refused)
        stream.disputed += size(intersect(disputed, self.rows))
        left = subtract([(1, stream.last)] if stream.last else [], self.rows)
        for reasons in (self.erased, self.declared, self.refused):
            left = _explain(left, reasons, stream.missing)
        gone = intersect(left, self.accounted)
        stream.missing += [Missing(first, last, "lost", ACKNOWLEDGED) for first, last in gone]
        left = subtract(left, self.accounted)
        here = intersect(left, self.waiting)
        stream.missing += [Missing(first, last, "in flight", IN_LANDING) for first, last in here]
        for first, last in subtract(left, self.waiting):
            since = self.seen.passed(last) if self.seen is not None else None
            late = since is None or since < overdue_us
            kind, reason = ("lost", OVERDUE) if late else ("in flight", ON_ITS_WAY)
            stream.missing.append(Missing(first, last, kind, reason))
        stream.missing = _joined(sorted(stream.missing, key=lambda m: m.first))


def _joined(missing: list[Missing]) -> list[Missing]:
    """Neighbouring gaps of one reason as one; holes are events of their own, each with its times."""
    out: list[Missing] = []
    for one in missing:
        before = out[-1] if out else one
        if one.kind in ("gap", "erased") and (before.kind, before.reason, before.last) == (
            one.kind,
            one.reason,
            one.first - 1,
        ):
            out[-1] = Missing(before.first, one.last, one.kind, one.reason, before.from_us, one.to_us)
        else:
            out.append(one)
    return out


def _explain(left: Ranges, reasons: list[Missing], out: list[Missing]) -> Ranges:
    """Put what of `left` has one of these reasons into `out`; what has none is left."""
    ends = [last for _, last in left]
    taken: Ranges = []
    reach = 0  # reasons may overlap: the first one counts
    for reason in sorted(reasons, key=lambda m: (m.first, m.last)):
        first = max(reason.first, reach + 1)
        for i in range(bisect_left(ends, first), len(left)):
            if left[i][0] > reason.last:
                break
            part = max(first, left[i][0]), min(reason.last, left[i][1])
            whole = part == (reason.first, reason.last)
            times = (reason.from_us, reason.to_us) if whole else (None, None)
            out.append(Missing(*part, reason.kind, reason.reason, *times))
            taken.append(part)
        reach = max(reach, reason.last)
    return subtract(left, normal(taken))


def _ieso(streams: list[Stream], rows: Scan, versions: list[dict[str, Any]]) -> dict[str, bool]:
    members: dict[str, list[Stream]] = {}
    named: dict[str, set[str]] = {}
    for row in versions:
        named.setdefault(str(row["stream"]), set()).add(str(row["process"]))
    for stream in streams:
        for process in stream.processes or sorted(named.get(stream.stream, ())):
            members.setdefault(process, []).append(stream)
    return {
        process: all(s.iaso for s in group) and rows.orderly([(s.stream, s.incarnation) for s in group])
        for process, group in sorted(members.items())
    }


def _others(elements: DeltaTable) -> str:
    names: list[str] = []
    for batch in rows_of(elements, "select distinct stream from elements order by stream limit 20"):
        names += [str(name) for name in batch.column(0).to_pylist()]
    return ": it has %s" % ", ".join(names) if names else ": it has no rows yet"


def _acknowledged(lake: Location) -> dict[Key, Ranges]:
    """What was acknowledged to the gateways."""
    out: dict[Key, Ranges] = {}
    folder = lake / "acks"
    for name in store.names(folder):
        only_marks = name.startswith(settled.PREFIX)
        if (name[0] in "._" and not only_marks) or not name.endswith(".json"):
            continue
        try:
            streams = json.loads(store.read(folder / name))["streams"]
            for stream, incarnations in streams.items():
                for digits, said in incarnations.items():
                    mark = int(said if only_marks else said["high"])
                    high = [(1, mark)] if mark else []
                    key = stream, signed(int(digits, 16))
                    told = [] if only_marks else [(int(first), int(last)) for first, last in said["ranges"]]
                    out[key] = normal([*out.get(key, []), *high, *told])
        except FileNotFoundError:
            continue  # replaced at this moment
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise LakeError(
                "%s is not a file of acknowledgements (%s): start `hw sink`, which writes it again"
                % (folder / name, error)
            )
    return out


def _numberings(lake: Location, name: str | None) -> list[dict[str, Any]]:
    """The sink's rows of each incarnation. `progress` counts, and is read first: then an incarnation that is
    settled meanwhile is found twice, and not missed."""
    active = _rows(lake, "progress", name)
    have = {_key(row) for row in active}
    return active + [row for row in _rows(lake, settled.NAME, name) if _key(row) not in have]


def _wanted(lake: Location) -> set[str]:
    """The small tables of a lake with rows: `settled` only once something was settled."""
    progress = _table(lake, "progress")
    ever = progress is not None and progress.transaction_version(SETTLED)
    return set(SCHEMAS) - (set() if ever else {settled.NAME})


def _known_version(lake: Location) -> int | None:
    """The version of `elements` up to which progress accounts for all rows."""
    table = _table(lake, "progress")
    return None if table is None else table.transaction_version(ELEMENTS)


def _version_of(lake: Location, name: str) -> int | None:
    table = _table(lake, name)
    return None if table is None else table.version()


def erased_because(row: dict[str, Any]) -> str:
    """Who erased something, when and why."""
    day = time.strftime("%Y-%m-%d %H:%M", time.gmtime(row["declared"] // 1_000_000))
    why = " (%s)" % row["reason"] if row["reason"] else ""
    return "by %s, %s UTC%s: %s" % (row["by"], day, why, row["filter"])


def _rows_behind(elements: DeltaTable, known: int | None) -> int | None:
    """How many rows the sink has appended after that version; None if the log does not tell."""
    if known is None:
        return None
    commits = [c for c in elements.history(max(1, elements.version() - known)) if c["version"] > known]
    if len(commits) != elements.version() - known:
        return None
    rows = 0
    for commit in commits:
        try:
            if json.loads(commit.get("userMetadata") or "null")["headwater"] == 1:
                metrics = commit["operationMetrics"]
                rows += int(metrics["numOutputRows" if "numOutputRows" in metrics else "num_added_rows"])
        except (ValueError, TypeError, KeyError):
            continue  # of another writer
    return rows


def _segments(landing: Location) -> list[Name]:
    """The names of the segments in a landing zone; other files are the sink's concern."""
    if landing.local is not None and not landing.local.is_dir():
        raise LakeError(
            "there is no folder %s: name the landing zone, the folder into which the gateway puts segments"
            % landing
        )
    found = []
    for name in store.names(landing):
        with contextlib.suppress(SegmentError):
            found.append(read_name(name))
    return found


# Tables


def _table(lake: Location, name: str) -> DeltaTable | None:
    place = lake / name
    if place.local is not None and not place.local.is_dir():
        return None
    try:
        return DeltaTable(place.rs, storage_options=place.options or None)
    except TableNotFoundError:
        return None


def _rows(lake: Location, name: str, stream: str | None, columns: str = "*") -> list[dict[str, Any]]:
    """The rows of one of the small tables; none if the sink has not made it yet."""
    table = _table(lake, name)
    if table is None:
        return []
    where = " where stream = %s" % quoted(stream) if stream is not None else ""
    out: list[dict[str, Any]] = []
    for batch in rows_of(table, "select %s from elements%s" % (columns, where)):
        out += tables.plain(batch)
    return out


def _key(row: dict[str, Any]) -> Key:
    return str(row["stream"]), int(row["incarnation"])


def _pairs(ranges: Any) -> Ranges:
    return [(int(r["first"]), int(r["last"])) for r in ranges or ()]


def _version(row: dict[str, Any]) -> tuple[int, int]:
    return int(row["version"]), row["since"] or 0


# For machines


def as_json(report: Report) -> dict[str, Any]:
    streams = report.streams
    counts = [stream.counts for stream in streams if stream.counts is not None]
    return {
        "lake": report.lake,
        "ok": report.ok,
        "engine": ENGINE,
        "version": report.version,
        "seconds": round(report.took_s, 3),
        "accepted": None,  # no table knows it: see unknown
        "delivered": sum(s.delivered for s in streams),
        "lost": sum(s.of_kind("lost") for s in streams),
        "lost_acknowledged": sum(s.lost_acknowledged for s in streams),
        "in_flight": sum(s.of_kind("in flight") for s in streams),
        "in_landing_zone": report.waiting,
        "duplicates": sum(s.duplicates for s in streams),
        "divergent": sum(s.divergent for s in streams),
        "out_of_order": sum(s.out_of_order for s in streams),
        "gaps_declared": sum(1 for s in streams for m in s.missing if m.kind == "gap"),
        "holes": sum(s.of_kind("hole") for s in streams),
        "dropped": sum(s.of_kind("gap") for s in streams),
        "erased": sum(s.of_kind("erased") for s in streams),
        "erased_returned": sum(size(s.returned) for s in streams),
        "erasures": [
            {
                name: row[name]
                for name in ("id", "stream", "filter", "by", "reason", "status", "declared", "finished")
            }
            for row in report.erasures
        ],
        "changed": sum(len(s.changed) for s in streams),
        "unproven": sum(s.unproven for s in streams),
        "unfit": sum(size(s.unfit) for s in streams),
        "unknown_alphabet": sum(size(s.strange) for s in streams),
        "unaccounted": report.unaccounted,
        "moves": len({(*s.processes, m.operator, m.epoch) for s in streams for m in s.moves}),
        "acknowledged_beyond": sum(s.beyond for s in streams),
        "tables_missing": report.tables_missing,
        "files_refused": report.files_refused,
        "files_awaited": report.files_awaited,
        "conservation": {
            "landed": sum(c["landed"] for c in counts),
            "elements": sum(c["kept"] for c in counts),
            "duplicates": sum(c["duplicate"] for c in counts),
            "quarantined": sum(c["quarantined"] for c in counts),
            "holds": all(s.conserved for s in streams) if counts else None,
        },
        "levels": {"IESO": report.ieso},
        "streams": [_stream_json(stream) for stream in streams],
        "unknown": list(UNKNOWN),
    }


def _stream_json(s: Stream) -> dict[str, Any]:
    return {
        "stream": s.stream,
        "incarnation": hexadecimal(s.incarnation),
        "processes": s.processes,
        "ok": s.ok,
        "rows": s.rows,
        "delivered": s.delivered,
        "last": s.last,
        "acknowledged": s.acknowledged,
        "unacknowledged": s.unacknowledged,
        "lost": s.of_kind("lost"),
        "lost_acknowledged": s.lost_acknowledged,
        "in_flight": s.of_kind("in flight"),
        "holes": s.of_kind("hole"),
        "dropped": s.of_kind("gap"),
        "erased": s.of_kind("erased"),
        "erased_returned": s.returned[:LISTED_MAX],
        "quarantined": s.of_kind("quarantined"),
        "duplicates": s.duplicates,
        "divergent": s.divergent,
        "out_of_order": s.out_of_order,
        "unsync": s.unsync,
        "changed": s.changed[:LISTED_MAX],
        "unproven": s.unproven,
        "unfit": s.unfit[:LISTED_MAX],
        "unknown_alphabet": s.strange[:LISTED_MAX],
        "acknowledged_beyond": s.beyond,
        "within_ms": s.within_ms,
        "missing": [vars(m) for m in s.missing[:LISTED_MAX]],
        "missing_ranges": len(s.missing),
        "moves": [vars(m) for m in s.moves[-LISTED_MAX:]],
        "delay_us": {name: _delay_json(delay) for name, delay in s.delays.items()},
        "levels": levels(s),
        "conservation": None if s.counts is None else {**s.counts, "holds": s.conserved},
    }


def levels(s: Stream) -> dict[str, Any]:
    """The reliability levels of one stream that the tables show."""
    landed = s.delays.get("landed")
    reached = landed.most if landed is not None and landed.rows else None
    holds = None if reached is None or not s.within_ms else reached <= s.within_ms * 1000
    return {
        "LOLE": s.lole,
        "LILO": {"LF": s.lf, "EF": s.ef},
        "LIDE": {"delta_us": reached, "asked_us": s.within_ms * 1000 or None, "holds": holds},
        "IASO": s.iaso,
    }


def _delay_json(delay: Delay) -> dict[str, Any]:
    out: dict[str, Any] = {"rows": delay.rows, "late": delay.late}
    if delay.rows:
        out.update({name: delay.percentile(share) for name, share in SHARES})
        out.update({"least": delay.least, "most": delay.most})
    return out
