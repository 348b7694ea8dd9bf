"""The eight tables of a lake: their columns, their properties, how they are made and opened.

`elements` is Spark's: it grows by whole segments. The small ones are delta-rs's: a commit of fifty
rows costs it ten milliseconds, and Spark half a second. Only the holder of the lake's lock writes any of
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import (
    CommitProperties,
    DeltaTable,
    Field,
    PostCommitHookProperties,
    Transaction,
    write_deltalake,
)
from deltalake.exceptions import TableNotFoundError

from . import comments
from .errors import LakeError
from .location import Location
from .segment import ARROW_SCHEMA
from .views import quoted

if TYPE_CHECKING:  # the audit reads these tables without Spark
    from pyspark.sql import SparkSession

# The columns of a segment, as Spark reads them; `elements` has `landed` after them.
SEGMENT_DDL = (
    "stream string, incarnation bigint, xi bigint, ts timestamp, unsync boolean, arrived timestamp, "
    "alphabet string, ints array<bigint>, floats array<double>"
)
ELEMENTS_DDL = SEGMENT_DDL + ", landed timestamp"
ELEMENTS_ARROW = ARROW_SCHEMA.append(pa.field("landed", pa.timestamp("us", "UTC")))

# A week of versions to return to. A checkpoint of the log every 100 commits costs less than one every 10,
# and the log is read from its newest checkpoint on. Statistics of the lists would cost more than they skip.
ELEMENTS_PROPERTIES = {
    "delta.checkpointInterval": "100",
    "delta.logRetentionDuration": "interval 7 days",
    "delta.deletedFileRetentionDuration": "interval 7 days",
    "delta.dataSkippingStatsColumns": "stream,incarnation,xi,ts,arrived,landed",
}

_TIME = pa.timestamp("us", "UTC")


def _struct(*names: str) -> pa.DataType:
    return pa.struct([(name, pa.int64()) for name in names])


SUMS = pa.list_(_struct("first", "last", "rows", "sum"))
RANGES = pa.list_(_struct("first", "last"))

_NUMBERINGS = pa.schema(
    [
        ("stream", pa.string()),
        ("incarnation", pa.int64()),
        ("processes", pa.list_(pa.string())),
        ("high", pa.int64()),
        ("ranges", RANGES),
        ("gaps", RANGES),
        ("rows_landed", pa.int64()),
        ("rows_kept", pa.int64()),
        ("rows_duplicate", pa.int64()),
        ("rows_quarantined", pa.int64()),
        ("last_ts", _TIME),
        ("updated", _TIME),
        ("sums", SUMS),
    ]
)

SCHEMAS = {
    "gaps": pa.schema(
        [
            ("process", pa.string()),
            ("stream", pa.string()),
            ("incarnation", pa.int64()),
            ("first", pa.int64()),
            ("last", pa.int64()),
            ("kind", pa.string()),
            ("reason", pa.string()),
            ("from_ts", _TIME),
            ("to_ts", _TIME),
            ("landed", _TIME),
        ]
    ),
    "moves": pa.schema(
        [
            ("process", pa.string()),
            ("stream", pa.string()),
            ("incarnation", pa.int64()),
            ("operator", pa.string()),
            ("epoch", pa.int64()),
            ("from_host", pa.string()),
            ("to_host", pa.string()),
            ("reason", pa.string()),
            ("moved", _TIME),
            ("landed", _TIME),
        ]
    ),
    "progress": _NUMBERINGS,
    "settled": _NUMBERINGS,
    "erasures": pa.schema(
        [
            ("id", pa.string()),
            ("stream", pa.string()),
            ("filter", pa.string()),
            ("by", pa.string()),
            ("reason", pa.string()),
            ("status", pa.string()),
            ("declared", _TIME),
            ("finished", _TIME),
            ("ranges", pa.list_(_struct("incarnation", "first", "last"))),
            ("taken", pa.list_(_struct("incarnation", "first", "last", "rows", "sum"))),
        ]
    ),
    "quarantine": pa.schema(
        [
            ("process", pa.string()),
            ("stream", pa.string()),
            ("incarnation", pa.int64()),
            ("first", pa.int64()),
            ("last", pa.int64()),
            ("rows", pa.int64()),
            ("reason", pa.string()),
            ("detail", pa.string()),
            ("file", pa.string()),
            ("raw", pa.binary()),
            ("landed", _TIME),
        ]
    ),
    "streams": pa.schema(
        [
            ("process", pa.string()),
            ("stream", pa.string()),
            ("version", pa.int32()),
            ("alphabet", pa.string()),
            ("within_ms", pa.int32()),
            ("since", _TIME),
        ]
    ),
}

# Rewritten whole. The log of `progress` grows with every batch: kept short, or reading it would take
# ever longer.
REWRITTEN = ("progress", "settled")

PROPERTIES: dict[str, dict[str, str | None]] = {
    "erasures": {"delta.checkpointInterval": "100"},
    "gaps": {"delta.checkpointInterval": "100"},
    "moves": {"delta.checkpointInterval": "100"},
    "progress": {
        "delta.checkpointInterval": "50",
        "delta.logRetentionDuration": "interval 1 hours",
        "delta.deletedFileRetentionDuration": "interval 1 hours",
    },
    "settled": {
        "delta.checkpointInterval": "50",
        "delta.logRetentionDuration": "interval 1 hours",
        "delta.deletedFileRetentionDuration": "interval 1 hours",
    },
    "quarantine": {"delta.checkpointInterval": "100"},
    "streams": {"delta.checkpointInterval": "100"},
}


def create(spark: SparkSession, lake: Location) -> None:
    """Make the tables that are not there yet, and the columns and comments that an earlier version lacked."""
    for name, schema in SCHEMAS.items():
        if exists(lake / name):
            _widen(open_table(lake / name), schema)
        if not exists(lake / name):
            DeltaTable.create(
                (lake / name).rs,
                comments.schema(name, schema),
                mode="ignore",
                name=name,
                description=comments.TABLES[name],
                configuration=PROPERTIES[name],
                storage_options=lake.options or None,
            )
    if not exists(lake / "elements"):
        properties = ", ".join("'%s' = '%s'" % item for item in ELEMENTS_PROPERTIES.items())
        spark.sql(
            "CREATE TABLE IF NOT EXISTS delta.`%s` (%s) USING delta CLUSTER BY (stream, ts) "
            "COMMENT %s TBLPROPERTIES (%s)"
            % (
                (lake / "elements").spark,
                comments.ddl("elements", ELEMENTS_DDL),
                quoted(comments.TABLES["elements"]),
                properties,
            )
        )
    comments.put(spark, lake)


def _widen(table: DeltaTable, schema: pa.Schema) -> None:
    """Add new columns; existing rows have null in them."""
    have = {field.name for field in table.schema().fields}
    new = [Field.from_arrow(field) for field in schema if field.name not in have]
    if new:
        table.alter.add_columns(new)


def exists(table: Location) -> bool:
    return DeltaTable.is_deltatable(table.rs, table.options or None)


def must_be_lake(lake: Location) -> None:
    if not exists(lake / "elements"):
        raise LakeError(
            "there is no lake at %s: it has no table `elements`; name the folder of a lake, as given to "
            "`hw sink`" % lake
        )


def open_table(table: Location) -> DeltaTable:
    return DeltaTable(table.rs, storage_options=table.options or None)


def rows(table: Location, columns: Sequence[str] | None = None, filters: Any = None) -> list[dict[str, Any]]:
    """The rows of a small table, times in µs; none if there is no such table."""
    try:
        opened = open_table(table)
    except TableNotFoundError:
        return []
    read = opened.to_pyarrow_table(columns=list(columns) if columns else None, filters=filters)
    return plain(read)


def plain(data: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows with times in µs: a table may hold times that no `datetime` can."""
    for i, field in enumerate(data.schema):
        if pa.types.is_timestamp(field.type):
            us = data.column(i).cast(pa.timestamp("us", field.type.tz)).cast(pa.int64())
            data = data.set_column(i, field.name, us)
    return list(data.to_pylist())


def append(table: Location, data: list[dict[str, Any]], transactions: Mapping[str, int]) -> int:
    """Append rows to a small table, once for these transactions; the version that has them.

    delta-rs records transactions and does not enforce them.
    """
    opened = open_table(table)
    done = transactions and all(
        opened.transaction_version(app) == version for app, version in transactions.items()
    )
    if not done:
        schema = SCHEMAS[table.rs.rsplit("/", 1)[1]]
        write(opened, pa.Table.from_pylist(data, schema=schema), "append", transactions)
    return opened.version()


def write(table: DeltaTable, data: pa.Table, mode: Any, transactions: Mapping[str, int]) -> None:
    write_deltalake(
        table,
        data,
        mode=mode,
        commit_properties=CommitProperties(
            app_transactions=[Transaction(app, version) for app, version in transactions.items()],
            max_commit_retries=0,
        ),
        post_commithook_properties=PostCommitHookProperties(
            create_checkpoint=True, cleanup_expired_logs=True
        ),
    )
