"""Segments: the files of the landing zone. Names, footers, and what makes one trustworthy.

`read` is total: of any bytes it makes a Segment or raises SegmentError with one reason and one sentence. It
wants no file, only what a scan of the file gave: its name, length, CRC-32 and footer. `write_segment` makes
segments as the gateway does; tests and benches put them where a gateway would.
"""

from __future__ import annotations

import io
import json
import os
import re
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from . import alphabet as alphabets
from . import checksum
from .ranges import Ranges, subtract

FORMAT = 1
FOOTER_KEY = b"headwater"
SIZE_MAX = 256 << 20  # bytes of a segment
GAPS_MAX = 1000
XI_MAX = (1 << 63) - 1
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

_NAME = re.compile(
    r"(?P<process>[^~]+)~(?P<stream>[^~]+)~(?P<incarnation>[0-9a-f]{16})~(?P<first>[1-9][0-9]{0,18})"
    r"-(?P<last>[1-9][0-9]{0,18})~(?P<rows>0|[1-9][0-9]{0,18})~(?P<alphabet>[0-9a-f]{8})~(?P<crc>[0-9a-f]{8})"
    r"\.parquet",
    re.ASCII,
)


class SegmentError(Exception):
    """A file that is no segment: `reason` is a word of the table `quarantine`, `detail` a sentence."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__("%s: %s" % (reason, detail))
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True)
class Name:
    """What the name of a segment says."""

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
    last_ts_us: int | None  # None where there are no rows
    sum: int | None = None  # checksum of its rows; None where its writer declared none

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
    """A process or stream as it stands in the names of files."""
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


def read(file: str, length: int, crc: int, footer: bytes) -> Segment:
    """A segment from its file's name, length, CRC-32, and last bytes from the start of the footer on."""
    name = read_name(file)
    if crc != name.crc:
        shape = "" if footer[-4:] == b"PAR1" else "; it does not end as a Parquet file does: cut short?"
        raise SegmentError(
            "crc", "the CRC-32 of its %d bytes is %08x, its name says %08x%s" % (length, crc, name.crc, shape)
        )
    try:
        metadata = pq.read_metadata(io.BytesIO(b"PAR1" + footer))
        schema = metadata.schema.to_arrow_schema()
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise SegmentError("footer", "its Parquet footer cannot be read: %s" % error)
    segment = _declared(name, metadata)
    _check_layout(segment, metadata, schema)
    last_ts_us = _check_statistics(segment, metadata)
    return Segment(**{**segment.__dict__, "last_ts_us": last_ts_us})


def _declared(name: Name, metadata: pq.FileMetaData) -> Segment:
    """What the footer declares, once it agrees with the name."""
    text = (metadata.metadata or {}).get(FOOTER_KEY)
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
            process=_typed(said, "process", str),
            stream=_typed(said, "stream", str),
            incarnation=signed(int(digits, 16)),
            first=_typed(said, "first", int),
            last=_typed(said, "last", int),
            rows=_typed(said, "rows", int),
            alphabet=_typed(said, "alphabet", str),
            within_ms=_typed(said, "within_ms", int),
            gaps=gaps,
            last_ts_us=None,
            sum=_sum(said),
        )
        alphabets.fields(segment.alphabet)
    except (ValueError, RecursionError) as error:
        raise SegmentError("footer", "its entry `headwater` cannot be read: %s" % error)
    _check_declared(name, segment)
    return segment


def _typed(said: dict[str, Any], key: str, kind: type) -> Any:
    value = said.get(key)
    if type(value) is not kind:
        raise ValueError("`%s` is %s" % (key, "missing" if value is None else repr(value)[:80]))
    if isinstance(value, int) and not 0 <= value <= XI_MAX:
        raise ValueError("`%s` is %d" % (key, value))
    return value


def _sum(said: dict[str, Any]) -> int | None:
    """The checksum of the rows, if it is declared."""
    if "sum" not in said:
        return None
    digits = _typed(said, "sum", str)
    if not re.fullmatch("[0-9a-f]{16}", digits):
        raise ValueError("sum '%s' is not 16 hex digits" % digits[:80])
    return signed(int(digits, 16))


def _gap(said: Any) -> Gap:
    if not isinstance(said, list) or [type(x) for x in said[:4]] != [int, int, str, str] or len(said) != 6:
        raise ValueError("a gap is %s" % repr(said)[:80])
    if said[2] not in ("gap", "hole"):
        raise ValueError("a gap is of kind %s" % repr(said[2])[:80])
    for us in said[4:]:
        if us is not None and (type(us) is not int or not 0 <= us <= XI_MAX):
            raise ValueError("a gap has the time %s" % repr(us)[:80])
    return Gap(*said)


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


def _check_layout(segment: Segment, metadata: pq.FileMetaData, schema: pa.Schema) -> None:
    have = [(field.name, field.type) for field in schema]
    want = [(field.name, field.type) for field in ARROW_SCHEMA]
    if have != want:
        odd = [name for name, kind in have if (name, kind) not in want]
        odd += [name for name, kind in want if (name, kind) not in have and name not in odd]
        odd = odd or ["their order"]
        raise SegmentError("layout", "its columns are not a segment's: %s" % ", ".join(odd)[:200])
    if metadata.num_rows != segment.rows:
        detail = "it has %d rows, its footer says %d" % (metadata.num_rows, segment.rows)
        raise SegmentError("disagrees", detail)


def _check_statistics(segment: Segment, metadata: pq.FileMetaData) -> int | None:
    """Whether the rows are those that were declared, as far as statistics tell; the time of the last."""
    if not segment.rows:
        return None
    ints, floats = alphabets.counts(segment.alphabet)
    constants = {"stream": segment.stream, "incarnation": segment.incarnation, "alphabet": segment.alphabet}
    runs = segment.row_ranges()
    at = 0
    last_ts_us = 0
    for g in range(metadata.num_row_groups):
        group = metadata.row_group(g)
        if not group.num_rows:
            continue
        for i, field in enumerate(ARROW_SCHEMA):
            column = group.column(i)
            if field.name in ("ints", "floats"):
                _check_lists(field.name, column, group.num_rows, ints if field.name == "ints" else floats)
                continue
            statistics = column.statistics
            if statistics is None or not statistics.has_min_max or statistics.null_count:
                raise SegmentError("layout", "column %s has nulls or no statistics" % field.name)
            if field.name in constants and not statistics.min == statistics.max == constants[field.name]:
                raise SegmentError("disagrees", "column %s is not what its footer says" % field.name)
            if field.name == "ts":
                last_ts_us = max(last_ts_us, cast(int, statistics.max_raw))
        xi = group.column(2).statistics
        if xi.min != _place(runs, at) or xi.max != _place(runs, at + group.num_rows - 1):
            raise SegmentError("disagrees", "its ξ are %d-%d, its footer says otherwise" % (xi.min, xi.max))
        at += group.num_rows
    return last_ts_us


def _check_lists(name: str, column: pq.ColumnChunkMetaData, rows: int, width: int) -> None:
    # An empty list counts as one value, and as a null.
    if column.num_values != rows * max(1, width):
        raise SegmentError("disagrees", "its %s are not %d a row, as its alphabet wants" % (name, width))
    if width and (column.statistics is None or column.statistics.null_count):
        raise SegmentError("layout", "column %s has nulls or no statistics" % name)


def _place(runs: Ranges, index: int) -> int:
    """The ξ of the row with this index."""
    for first, last in runs:
        if index <= last - first:
            return first + index
        index -= last - first + 1
    return -1


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
    unsync: bool = False,
    arrived_us: int | None = None,
    within_ms: int = 0,
    cut: int = 0,
    sync: bool = True,
) -> Path:
    """Put a segment into the landing zone: rows of these times, one list of values a field, between the gaps.

    Rows and gaps together are the run that begins at `first`; the rows take the ξ that the gaps leave.
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
