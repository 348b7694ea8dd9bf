"""What an erasure selects: its rule, and the rows, segments and entries of the quarantine."""

from __future__ import annotations

import io
import json
import time
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from . import checksum, ranges, segment, tables, views
from . import footer as footers
from .checksum import Span
from .location import Location
from .progress import Key, Numbering, Progress
from .ranges import Ranges
from .segment import Segment, SegmentError
from .where import COMMON, Where, row_box


@dataclass
class Rule:
    """One row of the table."""

    id: str
    stream: str
    filter: str
    by: str
    reason: str
    status: str
    declared: int  # µs
    finished: int | None = None
    ranges: dict[int, Ranges] = field(default_factory=dict)  # by incarnation: what is erased
    taken: list[tuple[int, Span]] = field(default_factory=list)  # incarnation, rows that progress will lose
    where: Where = field(init=False)

    def __post_init__(self) -> None:
        self.where = Where(self.filter)

    @property
    def rows(self) -> int:
        return sum(map(ranges.size, self.ranges.values()))

    @classmethod
    def of(cls, row: dict[str, Any]) -> Rule:
        found: dict[int, Ranges] = {}
        for one in row["ranges"]:
            found.setdefault(one["incarnation"], []).append((one["first"], one["last"]))
        taken = [(one.pop("incarnation"), Span(**one)) for one in row["taken"]]
        return cls(**{**row, "ranges": found, "taken": taken})

    def row(self) -> dict[str, Any]:
        names = ("id", "stream", "filter", "by", "reason", "status", "declared", "finished")
        return {
            **{name: getattr(self, name) for name in names},
            "ranges": [
                {"incarnation": inc, "first": first, "last": last}
                for inc, runs in sorted(self.ranges.items())
                for first, last in runs
            ],
            "taken": [{"incarnation": inc, **vars(span)} for inc, span in self.taken],
        }

    def add(self, incarnation: int, runs: Ranges) -> None:
        self.ranges[incarnation] = ranges.normal([*self.ranges.get(incarnation, []), *runs])

    def may_mean(self, name: segment.Name) -> bool:
        """Whether a file of this name may have selected rows."""
        box = {"incarnation": (name.incarnation,) * 2, "xi": (name.first, name.last)}
        return name.stream == segment.name_part(self.stream) and self.where.judge(box) is not False

    def in_file(self, file: str, data: bytes | None) -> bool | None:
        """Whether a refused file has selected rows, by its bytes, or if they cannot be read (None: there are
        none), whether its name allows it; None if neither tells."""
        has = _has_meant(self, data) if data is not None else None
        if has is not None:
            return has
        try:
            return self.may_mean(segment.read_name(file))
        except SegmentError:
            return None


# Rows


def box_of(one: Segment) -> dict[str, tuple[Any, Any]]:
    box: dict[str, tuple[Any, Any]] = {"incarnation": (one.incarnation,) * 2, "xi": (one.first, one.last)}
    if one.first_ts_us is not None:
        box["ts"] = one.first_ts_us, one.last_ts_us
    return box


def by_file(rows: DataFrame) -> dict[str, Ranges]:
    """The ξ of these rows, by `file_name`."""
    of_file = Window.partitionBy("file_name").orderBy("xi")
    runs = (
        rows.select("file_name", "xi", (F.col("xi") - F.row_number().over(of_file)).alias("place"))
        .groupBy("file_name", "place")
        .agg(F.min("xi").alias("first"), F.max("xi").alias("last"))
    )
    found: dict[str, Ranges] = {}
    for row in runs.collect():
        found.setdefault(row["file_name"], []).append((row["first"], row["last"]))
    return {file: ranges.normal(pairs) for file, pairs in found.items()}


def condition(spark: SparkSession, lake: Location, stream: str, where: Where) -> str:
    """The selected rows of `elements`, in SQL."""
    ours = "stream = %s" % views.quoted(stream)
    known = {str(r["alphabet"]) for r in tables.rows(lake / "streams") if r["stream"] == stream}
    if not where.names <= COMMON.keys():  # also alphabets that the table `streams` lacks
        rows = spark.read.format("delta").load((lake / "elements").spark).where(ours)
        known |= {str(row["alphabet"]) for row in rows.select("alphabet").distinct().collect()}
    return "%s AND %s" % (ours, where.sql(known))


def rows_meant(spark: SparkSession, lake: Location, stream: str, where: Where) -> DataFrame:
    elements = spark.read.format("delta").load((lake / "elements").spark)
    return elements.where(condition(spark, lake, stream, where))


def runs_of(rows: DataFrame, sums: dict[int, list[Span]]) -> list[tuple[int, Ranges, list[Span]]]:
    """Of each incarnation the ξ of these rows, and their number and checksum in each of these spans."""
    cases = [
        "WHEN incarnation = %dL AND xi BETWEEN %d AND %d THEN %d" % (incarnation, span.first, span.last, i)
        for incarnation, spans in sums.items()
        for i, span in enumerate(spans)
    ]
    which = "CASE %s ELSE -1 END" % " ".join(cases) if cases else "-1"
    along = Window.partitionBy("incarnation", "span").orderBy("xi")
    found = (
        rows.selectExpr("incarnation", "xi", "%s AS hash" % checksum.SQL, "%s AS span" % which)
        .withColumn("place", F.col("xi") - F.row_number().over(along))
        .groupBy("incarnation", "span", "place")
        .agg(
            F.min("xi").alias("first"),
            F.max("xi").alias("last"),
            F.count("*").alias("rows"),
            F.bit_xor("hash").alias("sum"),
        )
    )
    pairs: dict[int, Ranges] = {}
    taken: dict[tuple[int, int], Span] = {}
    for row in found.collect():
        incarnation, i = row["incarnation"], row["span"]
        pairs.setdefault(incarnation, []).append((row["first"], row["last"]))
        of = sums[incarnation][i] if i >= 0 else Span(0, 0, 0, 0)
        before = taken.get((incarnation, i), replace(of, rows=0, sum=0))
        taken[incarnation, i] = replace(before, rows=before.rows + row["rows"], sum=before.sum ^ row["sum"])
    return [
        (incarnation, ranges.normal(runs), [span for (inc, _), span in taken.items() if inc == incarnation])
        for incarnation, runs in sorted(pairs.items())
    ]


# Quarantine


def in_quarantine(lake: Location, rule: Rule) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[str]]:
    """Divergent rows that are erased; files whose bytes must be removed; and names of files of which neither
    name nor bytes tell the content."""
    columns = ["stream", "incarnation", "first", "file", "raw"]
    wanted = [("reason", "=", "divergent"), ("stream", "=", rule.stream)]
    rows = [row for row in tables.rows(lake / "quarantine", columns, wanted) if _is_erased(rule, row)]
    rows.sort(key=lambda row: (row["file"], row["first"]))
    files = []
    unclear = []
    for row in tables.rows(lake / "quarantine", ["file", "reason"], [("reason", "!=", "divergent")]):
        of_it = [("file", "=", row["file"]), ("reason", "=", row["reason"])]
        found = tables.rows(lake / "quarantine", ["raw"], of_it)
        has = [rule.in_file(row["file"], one["raw"]) for one in found if one["raw"]]
        if True in has:
            files.append(row)
        elif None in has:
            unclear.append(row["file"])
    return rows, files, unclear


def _is_erased(rule: Rule, row: dict[str, Any]) -> bool:
    """Whether a divergent row is selected, or has an erased ξ; also if it cannot be read."""
    if ranges.intersect([(row["first"], row["first"])], rule.ranges.get(row["incarnation"], [])):
        return True
    if row["raw"] is None:
        return False  # a hole, declared where a row was known
    try:
        said = json.loads(row["raw"])
        for name in ("ts", "arrived"):
            when = pa.scalar(datetime.fromisoformat(said[name]), pa.timestamp("us", "UTC"))
            said[name] = when.value
        said["floats"] = [float(value) for value in said.get("floats", ())]  # NaN and infinities are texts
        said.setdefault("ints", [])
        return rule.where.judge(row_box(said), said["alphabet"]) is True
    except (ValueError, TypeError, KeyError):
        return True


def _has_meant(rule: Rule, data: bytes) -> bool | None:
    """Whether the bytes of a file have selected rows; None if they are not a segment's."""
    if not data:
        return False
    try:
        footers.read(data[-8 - int.from_bytes(data[-8:-4], "little") :], len(data))
        for batch in pq.ParquetFile(io.BytesIO(data)).iter_batches(4096):
            table = pa.Table.from_batches([batch]).select(segment.ARROW_SCHEMA.names)
            rows = tables.plain(table.cast(segment.ARROW_SCHEMA)) if _may_have(rule, table) else []
            for row in rows:
                if row["stream"] == rule.stream and rule.where.judge(row_box(row), row["alphabet"]):
                    return True
    except (footers.Unfit, pa.ArrowException, OSError, ValueError, TypeError, KeyError, OverflowError):
        return None
    return False


def _may_have(rule: Rule, table: pa.Table) -> bool:
    """Whether the limits of these rows allow a selected one: checking each would take long."""
    bounds = {}
    for name in ("xi", "ts", "incarnation"):
        ends = pc.min_max(table.column(name))
        bounds[name] = (ends["min"].cast(pa.int64()).as_py(), ends["max"].cast(pa.int64()).as_py())
    return rule.where.judge(bounds) is not False


def follow(spark: SparkSession, lake: Location, stream: str, progress: Progress) -> bool:
    """Update a stream's progress from quarantine and `elements`: rows refused, and the last time."""
    refused: dict[int, int] = {}
    wanted = [("reason", "=", "divergent"), ("stream", "=", stream)]
    for row in tables.rows(lake / "quarantine", ["incarnation", "rows"], wanted):
        refused[row["incarnation"]] = refused.get(row["incarnation"], 0) + row["rows"]
    elements = spark.read.format("delta").load((lake / "elements").spark)
    times = elements.where("stream = %s" % views.quoted(stream)).groupBy("incarnation")
    last = {r["incarnation"]: r["us"] for r in times.agg(F.unix_micros(F.max("ts")).alias("us")).collect()}
    changed: dict[Key, Numbering] = {}
    for key, before in progress.numberings.items():
        if key[0] != stream:
            continue
        now = before.copy()
        gone = max(0, now.rows_quarantined - refused.get(key[1], 0))
        now.rows_quarantined -= gone
        now.rows_landed -= gone
        if now.last_ts_us is not None:
            least = last.get(key[1])
            now.last_ts_us = None if least is None else min(now.last_ts_us, least)
        if now != before:
            changed[key] = now
    progress.change(changed, time.time_ns() // 1000)
    return bool(changed)
