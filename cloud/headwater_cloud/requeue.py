"""Brings back what is in quarantine: as segments of the landing zone, which the sink judges like any other.

A file whose bytes prove to be right is cut again, with a higher `cut`, so that its name is new to the sink.
What only its writer can know is left to the gateway, which cuts unreadable files again by itself:

    name, layout, footer,   the rows must be exactly those that the file's footer declares; they are written
    disagrees, others       in the layout of a segment, under the name that the footer gives them
    crc                     only if the bytes in quarantine have the CRC of the name after all: else they
                            are not those that were cut
    divergent               rows whose ξ `elements` does not have any more, because it was restored to an
                            earlier version. An existing ξ stays: readers may have seen it

Nothing is taken out of the quarantine: it is the record of what was refused, and only an erasure takes from
it. Doing it twice does no harm.
"""

from __future__ import annotations

import datetime
import hashlib
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from . import alphabet as alphabets
from . import checksum, segment, store, tables
from .errors import LakeError
from .location import Location
from .scan import quoted, rows_of
from .segment import SegmentError

DIVERGENT = "divergent"


class _Stays(Exception):
    """Why something stays in quarantine."""


@dataclass(frozen=True)
class Entry:
    """A file in quarantine, or the rows of one that are."""

    reason: str
    file: str
    details: tuple[str, ...]
    rows: int  # of a file, by its name

    @property
    def id(self) -> str:
        return hashlib.sha256(("%s\n%s" % (self.reason, self.file)).encode()).hexdigest()[:10]


@dataclass
class Outcome:
    entry: Entry
    put: list[str] = field(default_factory=list)  # names of segments in the landing zone
    rows: int = 0  # of these
    why: str = ""  # why the rest stays


def entries(lake: Location) -> list[Entry]:
    """What is in quarantine, in the order of reasons and files."""
    tables.must_be_lake(lake)
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in tables.rows(lake / "quarantine", ["reason", "file", "detail", "rows"]):
        found.setdefault((row["reason"], row["file"]), []).append(row)
    return [
        Entry(reason, file, tuple(sorted({row["detail"] for row in rows})), sum(r["rows"] or 0 for r in rows))
        for (reason, file), rows in sorted(found.items())
    ]


def requeue(lake: Location, landing: Location, ids: Sequence[str]) -> list[Outcome]:
    """Put the files and rows of these ids into the landing zone, as far as they can be restored."""
    if landing.local is not None and not landing.local.is_dir():
        raise LakeError("there is no folder %s: name the landing zone of the sink" % landing)
    known = {entry.id: entry for entry in entries(lake)}
    unknown = [name for name in ids if name not in known]
    if unknown:
        raise LakeError(
            "nothing in quarantine has the id %s: `hw lake quarantine %s` lists the ids" % (unknown[0], lake)
        )
    return [_requeue(lake, landing, known[name]) for name in dict.fromkeys(ids)]


def _requeue(lake: Location, landing: Location, entry: Entry) -> Outcome:
    outcome = Outcome(entry)
    wanted = [("file", "=", entry.file), ("reason", "=", entry.reason)]
    rows = tables.rows(lake / "quarantine", ["process", "file", "first", "rows", "raw"], wanted)
    try:
        if entry.reason == DIVERGENT:
            made, outcome.why = _of_rows(lake, rows)
        else:
            made = [_of_file(entry, _bytes(landing, rows[0]))]
    except _Stays as stays:
        outcome.why = str(stays)
        return outcome
    for name, data, count in made:
        store.write(landing / name, data)
        outcome.put.append(name)
        outcome.rows += count
    return outcome


# Files


def _bytes(landing: Location, row: dict[str, Any]) -> bytes:
    if row["raw"] is not None:
        return bytes(row["raw"])
    try:
        return store.read(landing / row["file"])
    except OSError as error:
        raise _Stays("its bytes were not kept, and it cannot be read: %s" % (error.strerror or error))


def _of_file(entry: Entry, data: bytes) -> tuple[str, bytes, int]:
    """The segment that a file should have been: name, bytes, rows."""
    if not data:
        raise _Stays("it has no bytes")
    if entry.reason == "crc":
        _check_crc(entry.file, data)
    try:
        said = _said(data)
        table = pq.read_table(io.BytesIO(data)).select(segment.ARROW_SCHEMA.names).cast(segment.ARROW_SCHEMA)
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise _Stays("it cannot be read as a segment: %s" % (str(error).splitlines() or [repr(error)])[0])
    if type(said.get("cut", 0)) is not int:
        raise _Stays("its footer has no number as `cut`")
    return _segment(table, {**said, "cut": said.get("cut", 0) + 1})


def _check_crc(file: str, data: bytes) -> None:
    name = segment.read_name(file)
    if zlib.crc32(data) != name.crc:
        raise _Stays(
            "its bytes have the CRC-32 %08x, its name says %08x: they are not those that were cut, which "
            "only the gateway has; it cuts them again" % (zlib.crc32(data), name.crc)
        )


def _said(data: bytes) -> dict[str, Any]:
    said = json.loads((pq.read_metadata(io.BytesIO(data)).metadata or {})[segment.FOOTER_KEY])
    if not isinstance(said, dict):
        raise ValueError("its entry `headwater` is not an object")
    return said


def _segment(table: pa.Table, said: dict[str, Any]) -> tuple[str, bytes, int]:
    """A segment of these rows, once they are found to be exactly those that are declared."""
    try:
        for name, width in zip(("ints", "floats"), alphabets.counts(said["alphabet"])):
            lengths = pc.fill_null(pc.list_value_length(table[name]), 0)
            nulls = table[name].combine_chunks().flatten().null_count
            if nulls or pc.any(pc.not_equal(lengths, width)).as_py():
                raise _Stays("its %s are not %d a row, as its alphabet wants" % (name, width))
        true = segment.hexadecimal(checksum.xor(checksum.of_table(said["alphabet"], table)))
        if said.get("sum", true) != true:
            raise _Stays("its rows have the checksum %s, its writer declared %s" % (true, said["sum"]))
        data = segment.encode(table, {**said, "sum": true})
        name = segment.file_name(
            said["process"],
            said["stream"],
            int(said["incarnation"], 16),
            said["first"],
            said["last"],
            said["rows"],
            said["alphabet"],
            zlib.crc32(data),
        )
        footer = data[-8 - int.from_bytes(data[-8:-4], "little") :]
        found = segment.read(name, len(data), zlib.crc32(data), footer)
        pages = [data[start : start + size] for _, start, size in found.unproven]
        segment.prove(found, len(data), footer, pages)
    except SegmentError as error:
        raise _Stays("%s: %s" % (error.reason, error.detail))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise _Stays("its footer cannot be read: %r" % error)
    return name, data, found.rows


# Rows


def _of_rows(lake: Location, rows: list[dict[str, Any]]) -> tuple[list[tuple[str, bytes, int]], str]:
    """Segments of divergent rows that can come back, and why the others cannot."""
    kept = [(row["process"], _row(row["raw"])) for row in rows if row["rows"]]
    if not kept:
        raise _Stays("it is a hole that was declared where a row is known: there is no row to bring back")
    there = _there(lake, [row for _, row in kept])
    back = [(process, row) for process, row in kept if row["xi"] not in there]
    stay = len(kept) - len(back)
    why = "%d of its rows have a ξ that `elements` has: the row that came first stays" % stay if stay else ""
    if not back:
        raise _Stays(why)
    within = {
        (r["process"], r["stream"], r["alphabet"]): r["within_ms"] for r in tables.rows(lake / "streams")
    }
    return [_run(run, within) for run in _runs(back)], why


def _row(raw: bytes) -> dict[str, Any]:
    """A row as `compare` wrote it."""
    try:
        row = json.loads(raw)
        for name in ("ts", "arrived"):
            if len(row[name].partition(".")[2]) < 6:
                raise ValueError(
                    "its times have no microseconds: an earlier version of the sink cut them off"
                )
            row[name] = datetime.datetime.fromisoformat(row[name])
        row["floats"] = [float(value) for value in row.get("floats", ())]  # NaN and infinities are texts
        row.setdefault("ints", [])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _Stays("its row cannot be read: %s" % error)
    return dict(row)


def _there(lake: Location, rows: list[dict[str, Any]]) -> set[int]:
    """The ξ of these rows that `elements` has."""
    table = tables.open_table(lake / "elements")
    query = "select xi from elements where stream = %s and incarnation = %d and xi in (%s)" % (
        quoted(rows[0]["stream"]),
        rows[0]["incarnation"],
        ", ".join(str(row["xi"]) for row in rows),
    )
    return {int(xi) for batch in rows_of(table, query) for xi in batch.column(0).to_pylist()}


def _runs(rows: Iterable[tuple[str, dict[str, Any]]]) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Contiguous rows of one alphabet."""
    run: list[tuple[str, dict[str, Any]]] = []
    for process, row in sorted(rows, key=lambda item: int(item[1]["xi"])):
        if run and (row["xi"], row["alphabet"]) != (run[-1][1]["xi"] + 1, run[-1][1]["alphabet"]):
            yield run
            run = []
        run.append((process, row))
    yield run


def _run(
    run: list[tuple[str, dict[str, Any]]], within: dict[tuple[str, str, str], int]
) -> tuple[str, bytes, int]:
    process, first = run[0]
    last = run[-1][1]
    said = {
        "format": segment.FORMAT,
        "process": process,
        "stream": first["stream"],
        "incarnation": segment.hexadecimal(first["incarnation"]),
        "first": first["xi"],
        "last": last["xi"],
        "rows": len(run),
        "alphabet": first["alphabet"],
        "within_ms": within.get((process, first["stream"], first["alphabet"]), 0),
        "cut": 0,
        "gaps": [],
    }
    rows = [{name: row[name] for name in segment.ARROW_SCHEMA.names} for _, row in run]
    return _segment(pa.Table.from_pylist(rows, schema=segment.ARROW_SCHEMA), said)
