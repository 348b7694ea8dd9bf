"""What the tables of a lake and their columns mean: the comments that DESCRIBE and catalogs show.

They are stored in the tables themselves. A lake without them gets them when a sink starts on it or
`hw maintain` runs: by commits of metadata, which touch no rows. An existing comment is never replaced, so
this happens once, and a user's comment stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable

from .dialect import SPARK
from .location import Location, sync_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STREAM = "name of the stream in the lake"
_INCARNATION = "the numbering that xi belongs to, 64 bits: in each one xi begins at 1"
_PROCESS = "name of the process"

TABLES = {
    "elements": "One row for each element of a stream: each (stream, incarnation, xi) once.",
    "erasures": "What was erased on demand, by whom and by which filter.",
    "gaps": "One row for each hole or declared gap of a segment. Some of it may have come later: subtract "
    "what elements holds, or read the view lake_gaps.",
    "moves": "One row for each move of an operator that a stream depends on.",
    "progress": "What is accounted for: one row for each stream and incarnation, kept by the sink.",
    "quarantine": "What was refused: unreadable files, and rows that contradict one that came first.",
    "settled": "As progress, of what had no news for long; where progress has a row of the same stream and "
    "incarnation, that one counts.",
    "streams": "Every alphabet that a stream has had.",
}

_NUMBERING = {
    "stream": _STREAM,
    "incarnation": _INCARNATION,
    "processes": "the processes that send it",
    "high": "1 to high are accounted for without exception",
    "ranges": "runs of xi above high that are accounted for",
    "gaps": "runs of xi among them that are declared gaps and that no row has filled",
    "rows_landed": "rows that came: kept, duplicate and quarantined together",
    "rows_kept": "rows that are in elements",
    "rows_duplicate": "rows that were known, and the same",
    "rows_quarantined": "rows that were known, and differed",
    "last_ts": "latest ts of a row",
    "updated": "when this row was written",
    "sums": "number and checksum of the rows that landed, by runs of xi",
}

COLUMNS = {
    "elements": {
        "stream": _STREAM,
        "incarnation": _INCARNATION,
        "xi": "number of the element in its stream and incarnation: 1, 2, 3, ...",
        "ts": "when the element was generated, in the time of the site",
        "unsync": "true where ts was stamped before the clock of the board was set",
        "arrived": "when the gateway had it on disk",
        "alphabet": "names and types of the fields, as t:u32 mV:i16",
        "ints": "values of the integer fields, in the order of the alphabet; u64 as two's complement",
        "floats": "values of the f32 and f64 fields, in the order of the alphabet",
        "landed": "when it landed in this table",
    },
    "erasures": {
        "id": "name of the erasure",
        "stream": _STREAM,
        "filter": "which elements of the stream are erased, those that come later too",
        "by": "who asked for it",
        "reason": "why, as far as that was given",
        "status": "declared, deleting, deleted or done",
        "declared": "when it was asked for",
        "finished": "when nothing was left of what had landed",
        "ranges": "runs of xi that were erased, by incarnation",
        "taken": "number and checksum of the rows that are being deleted",
    },
    "gaps": {
        "process": _PROCESS,
        "stream": _STREAM,
        "incarnation": _INCARNATION,
        "first": "first xi that is missing",
        "last": "last xi that is missing",
        "kind": "hole: samples that were never taken, under one xi; gap: elements that will never come",
        "reason": "restart, log full or sensor fault for a hole; full, given up, gateway lost, "
        "earlier version or unreadable block for a gap",
        "from_ts": "when it began, where that is known",
        "to_ts": "when it ended, where that is known",
        "landed": "when its declaration landed in this table",
    },
    "moves": {
        "process": _PROCESS,
        "stream": _STREAM,
        "incarnation": _INCARNATION,
        "operator": "the operator that has moved: it produces the stream, or feeds what does",
        "epoch": "number of the epoch that began with the move",
        "from_host": "host where it ran before, as far as the gateway knew",
        "to_host": "host where it runs from then on",
        "reason": "takeover, flee, balance, command, apart or unknown",
        "moved": "when it moved, in the time of the site",
        "landed": "when this landed in this table",
    },
    "progress": _NUMBERING,
    "quarantine": {
        "process": _PROCESS + ", as far as it is known",
        "stream": _STREAM + ", as far as it is known",
        "incarnation": "numbering of the stream, as far as it is known",
        "first": "first xi, as far as it is known",
        "last": "last xi, as far as it is known",
        "rows": "number of rows, as far as it is known",
        "reason": "name, crc, footer, layout, disagrees or sum for a file; divergent for a row",
        "detail": "the reason in a sentence",
        "file": "name of the file",
        "raw": "the bytes of the file up to 16 MiB, or the row as JSON",
        "landed": "when it was refused",
    },
    "settled": _NUMBERING,
    "streams": {
        "process": _PROCESS,
        "stream": _STREAM,
        "version": "number from 1; alphabets of one version fit one table",
        "alphabet": "names and types of the fields, as t:u32 mV:i16",
        "within_ms": "delay that the process file asks for, 0 if none",
        "since": "when the lake first had this alphabet",
    },
}


def schema(name: str, plain: pa.Schema) -> pa.Schema:
    """The columns of a table with their comments."""
    return pa.schema([field.with_metadata({"comment": COLUMNS[name][field.name]}) for field in plain])


def ddl(name: str, plain: str) -> str:
    """The columns of a table, as a list of names and types, with their comments."""
    columns = [column.strip() for column in plain.split(",")]
    return ", ".join(
        "%s COMMENT %s" % (column, SPARK.quoted(COLUMNS[name][column.split()[0]])) for column in columns
    )


def missing(table: DeltaTable, name: str) -> tuple[list[str], bool]:
    """The columns of a table without a comment, and whether the table itself has none."""
    bare = [field.name for field in table.schema().fields if not field.metadata.get("comment")]
    return [column for column in bare if column in COLUMNS[name]], not table.metadata().description


def put(spark: SparkSession, lake: Location) -> None:
    """Write the comments that are missing. Only for the holder of the lake's lock."""
    for name in COLUMNS:
        place = lake / name
        table = DeltaTable(place.rs, storage_options=place.options or None)
        columns, bare = missing(table, name)
        if not columns and not bare:
            continue
        before = table.version()
        if name == "elements":  # clustered, so nothing but Spark may write it
            _by_spark(spark, place, columns, bare)
            table.update_incremental()
        else:
            for column in columns:
                table.alter.set_column_metadata(column, {"comment": COLUMNS[name][column]})
            if bare:
                table.alter.set_table_description(TABLES[name])
        if place.local is not None:
            # The sink syncs its own commits only, and a log must have no holes after a loss of power.
            commits = ("%020d.json" % version for version in range(before + 1, table.version() + 1))
            sync_files([place.local / "_delta_log" / commit for commit in commits])


def _by_spark(spark: SparkSession, place: Location, columns: list[str], bare: bool) -> None:
    table = "delta.%s" % SPARK.named(place.spark)
    if columns:
        texts = ["%s COMMENT %s" % (c, SPARK.quoted(COLUMNS["elements"][c])) for c in columns]
        spark.sql("ALTER TABLE %s ALTER COLUMN %s" % (table, ", ".join(texts)))
    if bare:
        spark.sql("COMMENT ON TABLE %s IS %s" % (table, SPARK.quoted(TABLES["elements"])))
