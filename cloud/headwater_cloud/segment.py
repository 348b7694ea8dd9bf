"""Segments: the files of the landing zone. Names, footers, and how to validate one.

`read` is total: from any bytes it makes a Segment or raises SegmentError with one reason and one sentence. It
needs no file, only the result of a scan of the file: its name, length, CRC-32 and footer. What these cannot
show, that the rows have exactly the declared ξ, `prove` checks in the pages of xi itself.
`write_segment` makes segments as the gateway does; tests and benches put them where a gateway would.
"""

from __future__ import annotations

import io
import json
import os
import re
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from . import alphabet as alphabets
from . import checksum
from . import footer as footers
from .footer import Chunk, Group
from .ranges import Ranges, subtract

FORMAT = 1
FOOTER_KEY = b"headwater"
SIZE_MAX = 256 << 20  # bytes of a segment
GAPS_MAX = 1000
MOVES_MAX = 100  # of operators, in one segment
XI_MAX = (1 << 63) - 1
TIME_MIN = -62_135_596_800_000_000  # µs: 0001-01-01, the first timestamp that the tables can hold ...
TIME_MAX = 253_402_300_799_999_999  # ... and the last, just before 10000-01-01
WITHIN_MAX = (1 << 31) - 1
TEXT_MAX = 1000  # bytes of a name or reason in UTF-8
ALPHABET_MAX = 10_000
NAME_PART_MAX = 60  # characters of process and stream in a name: file systems allow 255 in all

ARROW_SCHEMA = pa.schema(
    [
        ("stream", pa.string()),
        ("incarnation", pa.int64()),
        ("xi", pa.int64()),
        ("ts", pa.timestamp("us", "UTC")),
        ("unsync", pa.bool_()),
        ("arrived", pa.timestamp("us", "UTC")),
        ("alphabet", pa.string()),
        ("ints", pa.list_(pa.int64())),
        ("floats", pa.list_(pa.float64())),
    ]
)

_PART = r"[A-Za-z0-9-][A-Za-z0-9_.-]{0,59}"
_NAME = re.compile(
    r"(?P<process>" + _PART + r")~(?P<stream>" + _PART + r")~(?P<incarnation>[0-9a-f]{16})"
    r"~(?P<first>[1-9][0-9]{0,18})-(?P<last>[1-9][0-9]{0,18})~(?P<rows>0|[1-9][0-9]{0,18})"
    r"~(?P<alphabet>[0-9a-f]{8})~(?P<crc>[0-9a-f]{8})\.parquet",
    re.ASCII,
)

# The files of the sink's stream: names in the shape of a segment's.
GLOB = "*~*~*~*-*~*~????????~????????.parquet"


class SegmentError(Exception):
    """A file that is not a valid segment: `reason` is one of the table `quarantine`, `detail` a sentence."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__("%s: %s" % (reason, detail))
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True)
class Name:
    """The parts of a segment's name."""

    file: str
    process: str  # as written in names: not always the process's own
    stream: str
    incarnation: int  # as in the tables: two's complement
    first: int
    last: int
    rows: int
    alphabet_crc: int
    crc: int


@dataclass(frozen=True)
class Gap:
    """A run of ξ without rows: a hole, or a declared gap."""

    first: int
    last: int
    kind: str
    reason: str
    from_us: int | None
    to_us: int | None


@dataclass(frozen=True)
class Move:
    """An operator that the stream depends on has changed its host."""

    operator: str
    epoch: int  # number of the epoch that began with it
    from_host: str
    to_host: str
    reason: str
    at_us: int


Piece = tuple[str, int, int]  # column, where its pages begin, their bytes


@dataclass(frozen=True)
class Segment:
    """One good file of the landing zone."""

    file: str
    process: str
    stream: str
    incarnation: int
    first: int
    last: int
    rows: int
    alphabet: str
    within_ms: int
    gaps: tuple[Gap, ...]
    last_ts_us: int | None  # None if there are no rows
    sum: int | None = None  # checksum of its rows; None if its writer declared none
    first_ts_us: int | None = None
    erased: tuple[tuple[str, Ranges], ...] = ()  # ξ of rows that an erasure selects, with its id
    moves: tuple[Move, ...] = ()  # of operators that the stream depends on
    unproven: tuple[Piece, ...] = field(default=(), compare=False)  # what `prove` must check

    @property
    def key(self) -> tuple[str, int]:
        return self.stream, self.incarnation

    def row_ranges(self) -> Ranges:
        """The ξ that have rows."""
        return subtract([(self.first, self.last)], [(gap.first, gap.last) for gap in self.gaps])


def signed(incarnation: int) -> int:
    """64 bits as the tables have them."""
    return incarnation - (1 << 64) if incarnation >> 63 else incarnation


def hexadecimal(incarnation: int) -> str:
    """64 bits, two's complement or not, as names and acknowledgements have them."""
    return "%016x" % (incarnation & ((1 << 64) - 1))


def name_part(text: str) -> str:
    """A process or stream as file names contain it."""
    text = re.sub(r"[^A-Za-z0-9_.-]", "_", text.replace("/", "."))[:NAME_PART_MAX]
    return text if text[:1].isalnum() else "-" + text[1:]


def file_name(
    process: str, stream: str, incarnation: int, first: int, last: int, rows: int, alphabet: str, crc: int
) -> str:
    return "%s~%s~%s~%d-%d~%d~%08x~%08x.parquet" % (
        name_part(process),
        name_part(stream),
        hexadecimal(incarnation),
        first,
        last,
        rows,
        zlib.crc32(alphabet.encode()),
        crc,
    )


# Reading


def read_name(file: str) -> Name:
    match = _NAME.fullmatch(file)
    if match is None:
        raise SegmentError("name", "'%s' is not a name of a segment" % file)
    first, last, rows = int(match["first"]), int(match["last"]), int(match["rows"])
    if not first <= last <= XI_MAX or rows > last - first + 1:
        raise SegmentError("name", "'%s' names %d rows in %d-%d" % (file, rows, first, last))
    return Name(
        file,
        match["process"],
        match["stream"],
        signed(int(match["incarnation"], 16)),
        first,
        last,
        rows,
        int(match["alphabet"], 16),
        int(match["crc"], 16),
    )


def check_entry(name: str, size: int | None) -> None:
    """SegmentError if the stream gives nothing of this entry of the landing zone; size: None of a folder.

    Spark silently skips files without bytes, folders, and names that are not text.
    """
    if size is None:
        raise SegmentError("name", "it is a folder: segments lie directly in the landing zone")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise SegmentError("name", "its name is not UTF-8")
    if not fnmatchcase(name, GLOB):
        read_name(name)
    elif size == 0:
        read(name, 0, 0, b"")
    elif size > SIZE_MAX:
        detail = "it has %d bytes, a segment has at most %d" % (size, SIZE_MAX)
        raise SegmentError("layout", detail)


def read(file: str, length: int, crc: int, footer: bytes) -> Segment:
    """A segment from its file's name, length, CRC-32, and last bytes from the start of the footer on."""
    name = read_name(file)
    if crc != name.crc:
        shape = "" if footer[-4:] == b"PAR1" else "; it does not end as a Parquet file does: cut short?"
        raise SegmentError(
            "crc", "the CRC-32 of its %d bytes is %08x, its name says %08x%s" % (length, crc, name.crc, shape)
        )
    try:
        found = footers.read(footer, length)
    except footers.Unfit as error:
        raise SegmentError("layout", str(error))
    except ValueError as error:
        raise SegmentError("footer", "its Parquet footer cannot be read: %s" % error)
    segment = _declared(name, found.entries)
    if found.rows != segment.rows:
        detail = "it has %d rows, its footer says %d" % (found.rows, segment.rows)
        raise SegmentError("disagrees", detail)
    first_ts_us, last_ts_us, unproven = _check_statistics(segment, found.groups)
    return replace(segment, first_ts_us=first_ts_us, last_ts_us=last_ts_us, unproven=unproven)


def _declared(name: Name, entries: Mapping[bytes, bytes]) -> Segment:
    """The footer's declaration, once it agrees with the name."""
    text = entries.get(FOOTER_KEY)
    if text is None:
        raise SegmentError("footer", "its Parquet metadata has no entry `headwater`")
    try:
        said = json.loads(text)
        if not isinstance(said, dict) or said.get("format") != FORMAT:
            raise ValueError("it is not of format %d" % FORMAT)
        gaps = tuple(_gap(gap) for gap in _typed(said, "gaps", list))
        digits = _typed(said, "incarnation", str)
        if not re.fullmatch("[0-9a-f]{16}", digits):
            raise ValueError("incarnation '%s' is not 16 hex digits" % digits)
        segment = Segment(
            file=name.file,
            process=_text(said, "process", TEXT_MAX),
            stream=_text(said, "stream", TEXT_MAX),
            incarnation=signed(int(digits, 16)),
            first=_typed(said, "first", int),
            last=_typed(said, "last", int),
            rows=_typed(said, "rows", int),
            alphabet=_text(said, "alphabet", ALPHABET_MAX),
            within_ms=_typed(said, "within_ms", int, WITHIN_MAX),
            gaps=gaps,
            last_ts_us=None,
            sum=_sum(said),
            moves=_moves(said),
        )
        alphabets.fields(segment.alphabet)
        if "cut" in said:
            _typed(said, "cut", int)
    except (ValueError, RecursionError) as error:
        raise SegmentError("footer", "its entry `headwater` cannot be read: %s" % error)
    _check_declared(name, segment)
    return segment


def _typed(said: dict[str, Any], key: str, kind: type, most: int = XI_MAX) -> Any:
    value = said.get(key)
    if type(value) is not kind:
        raise ValueError("`%s` is %s" % (key, "missing" if value is None else repr(value)[:80]))
    if isinstance(value, int) and not 0 <= value <= most:
        raise ValueError("`%s` is %d; it lies between 0 and %d" % (key, value, most))
    return value


def _sum(said: dict[str, Any]) -> int | None:
    """The checksum of the rows, if it is declared."""
    if "sum" not in said:
        return None
    digits = _typed(said, "sum", str)
    if not re.fullmatch("[0-9a-f]{16}", digits):
        raise ValueError("sum '%s' is not 16 hex digits" % digits[:80])
    return signed(int(digits, 16))


def _text(said: dict[str, Any], key: str, most: int) -> str:
    return _bounded(_typed(said, key, str), "`%s`" % key, most)


def _bounded(text: str, what: str, most: int) -> str:
    """A text that a table can hold."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError("%s is not text that UTF-8 can hold: %r" % (what, text[:80]))
    if size > most:
        raise ValueError("%s has %d bytes; it may have %d" % (what, size, most))
    return text


def _gap(said: Any) -> Gap:
    if not isinstance(said, list) or [type(x) for x in said[:4]] != [int, int, str, str] or len(said) != 6:
        raise ValueError("a gap is %s" % repr(said)[:80])
    if said[2] not in ("gap", "hole"):
        raise ValueError("a gap is of kind %s" % repr(said[2])[:80])
    _bounded(said[3], "the reason of a gap", TEXT_MAX)
    for us in said[4:]:
        if us is not None and (type(us) is not int or not 0 <= us <= TIME_MAX):
            raise ValueError("a gap has the time %s; it lies before the year 10000" % repr(us)[:80])
    return Gap(*said)


def _moves(said: dict[str, Any]) -> tuple[Move, ...]:
    """The moves that are declared; segments of earlier versions declare none."""
    listed = _typed(said, "moves", list) if "moves" in said else []
    if len(listed) > MOVES_MAX:
        raise ValueError("it has %d moves, at most %d are allowed" % (len(listed), MOVES_MAX))
    for move in listed:
        if not isinstance(move, list) or [type(x) for x in move] != [str, int, str, str, str, int]:
            raise ValueError("a move is %s" % repr(move)[:80])
        for text in (move[0], *move[2:5]):
            _bounded(text, "a text of a move", TEXT_MAX)
        if not 0 <= move[1] <= XI_MAX or not 0 <= move[5] <= TIME_MAX:
            raise ValueError("a move has epoch %d and time %d" % (move[1], move[5]))
    return tuple(Move(*move) for move in listed)


def _check_declared(name: Name, segment: Segment) -> None:
    named = (name.incarnation, name.first, name.last, name.rows)
    said = (segment.incarnation, segment.first, segment.last, segment.rows)
    parts = (name_part(segment.process), name_part(segment.stream))
    if (name.process, name.stream) != parts or named != said:
        raise SegmentError(
            "disagrees",
            "its footer says %s of %s, incarnation %s, %d-%d with %d rows; its name says otherwise"
            % (
                segment.stream,
                segment.process,
                hexadecimal(segment.incarnation),
                segment.first,
                segment.last,
                segment.rows,
            ),
        )
    if zlib.crc32(segment.alphabet.encode()) != name.alphabet_crc:
        raise SegmentError("disagrees", "its name has not the alphabet '%s' of its footer" % segment.alphabet)
    at = segment.first
    missing = 0
    if len(segment.gaps) > GAPS_MAX:
        raise SegmentError("footer", "it has %d gaps, at most %d are allowed" % (len(segment.gaps), GAPS_MAX))
    for gap in segment.gaps:
        if not at <= gap.first <= gap.last <= segment.last:
            raise SegmentError("footer", "its gap %d-%d is out of order or outside" % (gap.first, gap.last))
        at = gap.last + 1
        missing += gap.last - gap.first + 1
    if segment.rows + missing != segment.last - segment.first + 1:
        raise SegmentError(
            "disagrees",
            "%d rows and %d missing do not make %d-%d" % (segment.rows, missing, segment.first, segment.last),
        )


def _check_statistics(
    segment: Segment, groups: Sequence[Group]
) -> tuple[int | None, int | None, tuple[Piece, ...]]:
    """Whether the rows are those that were declared, as far as statistics tell; the least and the greatest
    of their times, and what only the pages can prove."""
    if not segment.rows:
        return None, None, ()
    widths = dict(zip(footers.LISTS, alphabets.counts(segment.alphabet)))
    constants = {
        "stream": segment.stream.encode(),
        "incarnation": segment.incarnation,
        "alphabet": segment.alphabet.encode(),
    }
    runs = segment.row_ranges()
    at = 0
    first_ts_us, last_ts_us = TIME_MAX, TIME_MIN
    columns = {"xi"}
    for group in groups:
        if not group.rows:
            continue
        for name, chunk in group.chunks.items():
            if name in widths:
                if not _check_lists(name, chunk, group.rows, widths[name]):
                    columns.add(name)
                continue
            if chunk.values != group.rows:
                raise SegmentError("disagrees", "column %s has not a value for each row" % name)
            if chunk.nulls or (name != "unsync" and (chunk.least is None or chunk.most is None)):
                raise SegmentError("layout", "column %s has nulls or no statistics" % name)
            if name in constants and not chunk.least == chunk.most == constants[name]:
                raise SegmentError("disagrees", "column %s is not what its footer says" % name)
            if name in ("ts", "arrived") and not TIME_MIN <= chunk.least <= chunk.most <= TIME_MAX:  # type: ignore[operator]
                raise SegmentError("layout", "column %s has times outside the years 1 to 9999" % name)
        first_ts_us = min(first_ts_us, cast(int, group.chunks["ts"].least))
        last_ts_us = max(last_ts_us, cast(int, group.chunks["ts"].most))
        least, most = group.chunks["xi"].least, group.chunks["xi"].most
        if (least, most) != (_place(runs, at), _place(runs, at + group.rows - 1)):
            raise SegmentError("disagrees", "its ξ are %r-%r, its footer says otherwise" % (least, most))
        at += group.rows
    pieces = [
        (name, group.chunks[name].start, group.chunks[name].size)
        for group in groups
        for name in columns & group.chunks.keys()
    ]
    return first_ts_us, last_ts_us, tuple(sorted(pieces, key=lambda piece: piece[1]))


def _check_lists(name: str, chunk: Chunk, rows: int, width: int) -> bool:
    """Whether the counts alone show that each row has as many values as its alphabet requires."""
    # An empty list counts as one value, and as a null.
    if chunk.values != rows * max(1, width):
        raise SegmentError("disagrees", "its %s are not %d a row, as its alphabet wants" % (name, width))
    if width and chunk.nulls != 0:
        raise SegmentError("layout", "column %s has nulls or no statistics" % name)
    return width == 1 or (width == 0 and chunk.nulls == rows)


def _place(runs: Ranges, index: int) -> int:
    """The ξ of the row with this index."""
    for first, last in runs:
        if index <= last - first:
            return first + index
        index -= last - first + 1
    return -1


def prove(segment: Segment, length: int, footer: bytes, pages: Sequence[bytes]) -> None:
    """SegmentError if the rows have not exactly the declared ξ, in order, or lists of another length.

    `pages` are the bytes of `segment.unproven`: those of xi, and of lists whose length counts cannot show.
    """
    if not segment.rows:
        return
    file = _Pieces(length)
    for (_, start, _), data in zip(segment.unproven, pages, strict=True):
        file.add(start, data)
    file.add(length - len(footer), footer)
    columns = sorted({name for name, _, _ in segment.unproven})
    try:
        table = pq.ParquetFile(pa.PythonFile(file, "r"), pre_buffer=False).read(columns, use_threads=False)
        xi = table.column("xi").to_numpy()
        lists = [(name, column) for name in columns[:-1] for column in table.column(name).chunks]
        lengths = [(name, np.diff(column.offsets.to_numpy()), column.flatten()) for name, column in lists]
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        raise SegmentError("layout", "its column xi cannot be read: %s" % error)
    at = 0
    right = len(xi) == segment.rows
    for first, last in segment.row_ranges():
        right = right and np.array_equal(xi[at : at + last - first + 1], np.arange(first, last + 1))
        at += last - first + 1
    if not right:
        raise SegmentError(
            "disagrees", "the ξ of its rows are not those that its footer declares, each once, ascending"
        )
    widths = dict(zip(footers.LISTS, alphabets.counts(segment.alphabet)))
    for name, counts, values in lengths:
        if np.any(counts != widths[name]) or values.null_count:
            detail = "its %s are not %d in each row, as its alphabet wants" % (name, widths[name])
            raise SegmentError("disagrees", detail)


class _Pieces(io.RawIOBase):
    """A file with only some pieces; everything else reads as zeros."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._at = 0
        self._pieces: list[tuple[int, bytes]] = []

    def add(self, start: int, data: bytes) -> None:
        self._pieces.append((start, data))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, to: int, whence: int = 0) -> int:
        self._at = to + (0, self._at, self._length)[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self._length if size is None or size < 0 else min(self._at + size, self._length)
        at, self._at = self._at, max(end, self._at)
        for start, data in self._pieces:
            if start <= at and end <= start + len(data):
                return data[at - start : end - start]
        out = bytearray(max(end - at, 0))
        for start, data in self._pieces:
            low, high = max(start, at), min(start + len(data), end)
            if low < high:
                out[low - at : high - at] = data[low - start : high - start]
        return bytes(out)


# Writing


def write_segment(
    landing: str | Path,
    process: str,
    stream: str,
    incarnation: int,
    first: int,
    alphabet: str,
    ts_us: Sequence[int] | np.ndarray[Any, Any],
    values: Sequence[Sequence[int | float] | np.ndarray[Any, Any]],
    *,
    gaps: Sequence[Gap] = (),
    moves: Sequence[Move] = (),
    unsync: bool = False,
    arrived_us: int | None = None,
    within_ms: int = 0,
    cut: int = 0,
    sync: bool = True,
) -> Path:
    """Put a segment into the landing zone: rows of these times, one list of values a field, between the gaps.

    Rows and gaps together are the run that begins at `first`; the rows get the ξ that the gaps leave.
    """
    rows = len(ts_us)
    last = first + rows + sum(gap.last - gap.first + 1 for gap in gaps) - 1
    runs = subtract([(first, last)], [(gap.first, gap.last) for gap in gaps])
    xi = np.concatenate([np.arange(a, b + 1, dtype=np.int64) for a, b in runs] or [np.empty(0, np.int64)])
    if len(xi) != rows:
        raise ValueError("gaps outside the run %d-%d" % (first, last))
    arrived = time.time_ns() // 1000 if arrived_us is None else arrived_us
    table = pa.table(
        [
            pa.repeat(stream, rows),
            pa.repeat(pa.scalar(signed(incarnation & ((1 << 64) - 1)), pa.int64()), rows),
            pa.array(xi),
            pa.array(np.asarray(ts_us, np.int64)).cast(pa.timestamp("us", "UTC")),
            pa.repeat(unsync, rows),
            pa.repeat(pa.scalar(arrived, pa.timestamp("us", "UTC")), rows),
            pa.repeat(alphabet, rows),
            _lists(alphabet, values, rows, "ints"),
            _lists(alphabet, values, rows, "floats"),
        ],
        schema=ARROW_SCHEMA,
    )
    said = {
        "format": FORMAT,
        "process": process,
        "stream": stream,
        "incarnation": hexadecimal(incarnation),
        "first": first,
        "last": last,
        "rows": rows,
        "alphabet": alphabet,
        "within_ms": within_ms,
        "cut": cut,
        "gaps": [[g.first, g.last, g.kind, g.reason, g.from_us, g.to_us] for g in gaps],
        "sum": hexadecimal(checksum.xor(checksum.of_table(alphabet, table))),
    }
    if moves:
        said["moves"] = [[m.operator, m.epoch, m.from_host, m.to_host, m.reason, m.at_us] for m in moves]
    data = encode(table, said)
    name = file_name(process, stream, incarnation, first, last, rows, alphabet, zlib.crc32(data))
    return place(Path(landing), name, data, sync)


def encode(table: pa.Table, said: dict[str, Any]) -> bytes:
    """The bytes of a segment with these columns and this entry `headwater`."""
    table = table.replace_schema_metadata({FOOTER_KEY: json.dumps(said).encode()})
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        write_page_checksum=True,
        use_dictionary=["stream", "alphabet"],
        coerce_timestamps="us",
    )
    return cast(bytes, sink.getvalue().to_pybytes())


def place(landing: Path, name: str, data: bytes, sync: bool = True) -> Path:
    """Make a file visible whole or not at all."""
    hidden = landing / ("." + name)
    with open(hidden, "wb") as file:
        file.write(data)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    hidden.rename(landing / name)
    if sync:
        folder = os.open(landing, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
    return landing / name


def _lists(alphabet: str, values: Sequence[Any], rows: int, column: str) -> pa.ListArray:
    places = alphabets.places(alphabet)
    if len(values) != len(places):
        raise ValueError("%d lists of values for the alphabet '%s'" % (len(values), alphabet))
    kinds = alphabets.fields(alphabet)
    kind: Any = np.float64 if column == "floats" else np.int64
    chosen = []
    for (name, (where, _)), list_ in zip(places.items(), values):
        if where == column:
            wide = np.uint64 if kinds[name] == "u64" else kind
            chosen.append(np.asarray(list_, wide).astype(kind))
    flat = np.stack(chosen, axis=1).reshape(-1) if chosen else np.empty(0, kind)
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(len(chosen))
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat))
