"""The footer of a Parquet file as far as a segment needs it, read by this code alone.

`read` is total: of any bytes it makes a Footer or raises ValueError with one sentence. Parquet libraries are
not: a footer whose parts contradict each other can end the whole process inside C++. So they read a file
only if this module has found its footer sound: the columns of a segment and no others, each with the physical
type that the schema gives it, every chunk of pages within the file.

A footer is one Thrift structure in the compact protocol. It is decoded into dictionaries by field number; the
numbers are in parquet.thrift of the Parquet format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MAGIC = b"PAR1"
DEPTH_MAX = 24  # structures within structures

BOOLEAN, INT64, DOUBLE, BYTE_ARRAY = 0, 2, 5, 6
CODECS = {0: "none", 1: "snappy", 2: "gzip", 6: "zstd", 7: "lz4_raw"}
# All but the one that Spark does not read, BYTE_STREAM_SPLIT, and later ones.
ENCODINGS = (0, 2, 3, 4, 5, 6, 7, 8)
_REPEATED, _LIST, _UTF8, _TIMESTAMP_MICROS, _INT_64 = 2, 3, 0, 10, 18

# The leaves of a segment's schema, in order: name, physical type, meaning.
LEAVES = (
    ("stream", BYTE_ARRAY, "text"),
    ("incarnation", INT64, "number"),
    ("xi", INT64, "number"),
    ("ts", INT64, "time"),
    ("unsync", BOOLEAN, ""),
    ("arrived", INT64, "time"),
    ("alphabet", BYTE_ARRAY, "text"),
    ("ints", INT64, "number"),
    ("floats", DOUBLE, ""),
)
LISTS = ("ints", "floats")


@dataclass(frozen=True)
class Chunk:
    """One column of one group of rows."""

    values: int
    nulls: int | None
    least: int | bytes | None
    most: int | bytes | None
    start: int  # of its pages in the file
    size: int


@dataclass(frozen=True)
class Group:
    rows: int
    chunks: dict[str, Chunk]


@dataclass(frozen=True)
class Footer:
    rows: int
    entries: dict[bytes, bytes]
    groups: tuple[Group, ...]


class Unfit(ValueError):
    """A sound footer of a file that is not laid out as a segment is."""


def read(tail: bytes, length: int) -> Footer:
    """The footer from the last bytes of a file of this length, which begin where the footer does."""
    if tail[-4:] != MAGIC or len(tail) < 12:
        raise ValueError("it does not end as a Parquet file does")
    size = int.from_bytes(tail[-8:-4], "little")
    if size != len(tail) - 8 or size > length - 12:
        raise ValueError("it gives its own length as %d bytes" % size)
    said = _Compact(tail[:-8]).struct(0)
    rows = _number(said, 3)
    entries = {_bytes(e, 1): _bytes(e, 2) for e in _list(said, 5, dict) if 2 in e}
    if 8 in said:
        raise Unfit("it is encrypted")
    paths = _paths(_list(said, 2, dict))
    end = length - len(tail)
    groups = tuple(_group(group, end, paths) for group in _list(said, 4, dict))
    _check_apart(groups)
    if sum(group.rows for group in groups) != rows:
        raise ValueError("its groups of rows have not %d rows together" % rows)
    return Footer(rows, entries, groups)


def _paths(schema: Sequence[dict[int, Any]]) -> list[list[bytes]]:
    """The path of each leaf, once the schema is found to be a segment's."""
    want: list[tuple[str, int | None, str, int]] = [("", None, "", len(LEAVES))]
    for leaf, physical, stands_for in LEAVES:
        if leaf in LISTS:
            want += [(leaf, None, "list", 1), (leaf, None, "repeated", 1)]
        want.append((leaf, physical, stands_for, 0))
    names = [_bytes(element, 4) for element in schema]
    for i, (name, kind, meaning, children) in enumerate(want):
        if i >= len(schema):
            raise Unfit("its columns are not a segment's: %s is missing" % name)
        element = schema[i]
        inner = meaning == "repeated" or want[i - 1][2] == "repeated"
        if (
            (i > 0 and not inner and names[i] != name.encode())
            or element.get(1) != kind
            or (element.get(5) or 0) != children
            or (i > 0 and (element.get(3) == _REPEATED) != (meaning == "repeated"))
            or (meaning == "repeated" and names[i] in (b"array", name.encode() + b"_tuple"))
            or not _means(element, meaning)
        ):
            raise Unfit(
                "its columns are not a segment's: where %s should be there is %s"
                % (name or "the schema", _plain(names[i]))
            )
    if len(schema) > len(want):
        raise Unfit("its columns are not a segment's: %s is one more" % _plain(names[len(want)]))
    at = [i for i, element in enumerate(want) if element[3] == 0]
    return [names[i - 2 : i + 1] if name in LISTS else [names[i]] for i, (name, _, _) in zip(at, LEAVES)]


def _check_apart(groups: Sequence[Group]) -> None:
    """No page belongs to two columns."""
    end = 0
    for chunk in sorted((c for g in groups for c in g.chunks.values()), key=lambda chunk: chunk.start):
        if chunk.start < end:
            raise ValueError("columns overlap in the file")
        end = chunk.start + chunk.size


def _means(element: dict[int, Any], meaning: str) -> bool:
    """Whether an element of the schema is annotated with this meaning."""
    converted, logical = element.get(6), element.get(10)
    logical = logical if isinstance(logical, dict) else {}
    if meaning == "text":
        return converted == _UTF8 or 1 in logical
    if meaning == "list":
        return converted == _LIST or 3 in logical
    if meaning == "time":
        if not logical:
            return bool(converted == _TIMESTAMP_MICROS)
        time = logical.get(8)
        time = time if isinstance(time, dict) else {}
        unit = time.get(2)
        return isinstance(unit, dict) and 2 in unit and time.get(1) is True
    if meaning == "number":
        if not logical:
            return converted in (None, _INT_64)
        number = logical.get(10)
        return isinstance(number, dict) and number.get(1) == 64 and number.get(2) is True
    return converted is None and not logical


def _group(said: dict[int, Any], end: int, paths: Sequence[list[bytes]]) -> Group:
    rows = _number(said, 3)
    columns = _list(said, 1, dict)
    if not rows:
        return Group(0, {})
    if len(columns) != len(LEAVES):
        raise ValueError("a group of rows has %d columns" % len(columns))
    chunks = {}
    for (name, kind, _), path, column in zip(LEAVES, paths, columns):
        if not isinstance(about := column.get(3), dict) or _list(about, 3, bytes) != path:
            raise ValueError("column %s is not where its schema says" % name)
        chunks[name] = _chunk(name, kind, column, about, end)
    # Readers choose groups of rows by the place of their middle: one beyond the end would be left out.
    if 6 in said and _number(said, 6) > end - min(chunk.start for chunk in chunks.values()):
        raise ValueError("a group of rows ends outside the file")
    return Group(rows, chunks)


def _chunk(name: str, kind: int, said: dict[int, Any], about: dict[int, Any], end: int) -> Chunk:
    if {1, 8, 9} & said.keys():
        raise ValueError("column %s is not in the file, or encrypted" % name)
    if about.get(1) != kind:
        raise ValueError("column %s is of another type than its schema says" % name)
    if _number(about, 4) not in CODECS:
        raise Unfit("column %s is compressed by codec %d, which Spark does not read" % (name, about[4]))
    odd = [encoding for encoding in _list(about, 2, int) if encoding not in ENCODINGS]
    if odd:
        raise Unfit("column %s has encoding %d, which Spark does not read" % (name, odd[0]))
    _number(about, 6)
    size, start, dictionary = _number(about, 7), _number(about, 9), about.get(11)
    if isinstance(dictionary, int) and dictionary > 0:
        start = min(start, dictionary)
    if start < len(MAGIC) or start + size > end:
        raise ValueError("column %s lies outside the file" % name)
    statistics = about.get(12)
    statistics = statistics if isinstance(statistics, dict) else {}
    nulls = statistics.get(3)
    least, most = (_bound(kind, statistics, at) for at in ((6, 2), (5, 1)))
    return Chunk(_number(about, 5), nulls if isinstance(nulls, int) else None, least, most, start, size)


def _bound(kind: int, statistics: dict[int, Any], at: tuple[int, int]) -> int | bytes | None:
    """A least or greatest value; the older field counts for numbers alone."""
    value = statistics.get(at[0])
    if value is None and kind == INT64:
        value = statistics.get(at[1])
    if not isinstance(value, bytes) or (kind == INT64 and len(value) != 8):
        return None
    return int.from_bytes(value, "little", signed=True) if kind == INT64 else value


def _number(said: dict[int, Any], at: int) -> int:
    value = said.get(at)
    if type(value) is not int or value < 0:
        raise ValueError("a number of it is missing or negative")
    return value


def _bytes(said: dict[int, Any], at: int) -> bytes:
    value = said.get(at)
    if not isinstance(value, bytes):
        raise ValueError("a text of it is missing")
    return value


def _list(said: dict[int, Any], at: int, kind: type) -> list[Any]:
    value = said.get(at, [])
    if not isinstance(value, list) or any(type(item) is not kind for item in value):
        raise ValueError("a list of it is of another kind")
    return value


def _plain(name: bytes) -> str:
    return repr(name.decode("utf-8", "backslashreplace")[:60])


class _Compact:
    """Thrift's compact protocol. Nothing is allocated that the bytes do not hold."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def struct(self, depth: int) -> dict[int, Any]:
        if depth > DEPTH_MAX:
            raise ValueError("it is nested too deeply")
        out: dict[int, Any] = {}
        field = 0
        while head := self.byte():
            kind = head & 15
            field = field + (head >> 4) if head >> 4 else self.zigzag()
            if field in out:
                raise ValueError("field %d is there twice" % field)
            out[field] = kind == 1 if kind in (1, 2) else self.value(kind, depth)
        return out

    def value(self, kind: int, depth: int) -> Any:
        if 4 <= kind <= 6:
            return self.zigzag()
        if kind == 8:
            return self.take(self.varint())
        if kind == 12:
            return self.struct(depth + 1)
        if kind in (9, 10):
            return self.sequence(depth + 1)
        if kind == 3:
            return int.from_bytes(self.take(1), "little", signed=True)
        if kind == 7:
            return self.take(8)
        if kind in (1, 2):  # within a list: one byte each
            return self.byte() == 1
        raise ValueError("it has a value of kind %d" % kind)

    def sequence(self, depth: int) -> list[Any]:
        if depth > DEPTH_MAX:
            raise ValueError("it is nested too deeply")
        head = self.byte()
        size = head >> 4 if head >> 4 < 15 else self.varint()
        if size > len(self.data) - self.at:
            raise ValueError("a list of it has %d entries" % size)
        return [self.value(head & 15, depth) for _ in range(size)]

    def byte(self) -> int:
        if self.at >= len(self.data):
            raise ValueError("it ends too early")
        self.at += 1
        return self.data[self.at - 1]

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise ValueError("it ends too early")
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self) -> int:
        out = shift = 0
        while True:
            byte = self.byte()
            out |= (byte & 127) << shift
            if byte < 128:
                return out
            shift += 7
            if shift > 63:
                raise ValueError("a number of it is too long")

    def zigzag(self) -> int:
        number = self.varint()
        return (number >> 1) ^ -(number & 1)
