"""Reading a lake with Spark: what `Lake` gives, and that the tables open without it."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from headwater_cloud import ArrowLake, Lake, plots, segment, tables
from headwater_cloud.audit import as_json, audit
from headwater_cloud.errors import LakeError
from headwater_cloud.lake import POINTS
from headwater_cloud.location import Location
from headwater_cloud.sink import Sink
from lakes import BEGIN, INCARNATION, LakeOf, at, healthy
from pyspark.sql import DataFrame, SparkSession

KINDS = "ts:u64 a:i8 b:u8 c:i16 d:u16 e:i32 f:u32 g:i64 h:f32 i:f64"


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A healthy lake to which later came: rows in a gap, a gap told twice, a refused row, a new version."""
    made = healthy(tmp_path_factory.mktemp("lake"))
    made.write()
    made.rows("cardio/ecg", 750, 760, landed_s=60)
    made.gap("cardio/ecg", 650, 790)
    made.gap("cardio/ecg", 1001, 1010, reason="given up", times=False)
    made.rows("cardio/ecg", 1011, 1020, landed_s=61)
    made.refuse("cardio/rate", 7, 7, "divergent")
    made.refuse("cardio.rate", 1, 9, "crc")
    made.stream("cardio/rate", "bpm:u8 beats:u64", version=1)
    made.stream("cardio/rate", "beats:i16", version=2)
    made.rows("cardio/rate", 301, 310, alphabet="bpm:u8 beats:u64", ints=lambda xi: [60, -xi], unsync=True)
    made.rows("cardio/rate", 311, 315, alphabet="beats:i16", ints=lambda xi: [-xi])
    return Lake(spark, made.write())


def micros(rows: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Rows, with their times in seconds since BEGIN."""
    from pyspark.sql import functions as F

    begin = int(BEGIN.timestamp()) * 1_000_000
    chosen = [
        ((F.unix_micros(c) - begin) / 1_000_000).alias(c) if dict(rows.dtypes)[c] == "timestamp" else F.col(c)
        for c in columns
    ]
    return [tuple(row) for row in rows.select(*chosen).collect()]


# Streams


def test_a_stream_has_the_names_types_and_values_that_its_author_declared(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = LakeOf(tmp_path)
    made.stream("all/kinds", KINDS)
    made.rows(
        "all/kinds",
        1,
        1,
        alphabet=KINDS,
        ints=lambda xi: [-1, -128, 255, -32768, 65535, -(2**31), 2**32 - 1, -(2**63)],
        floats=lambda xi: [0.1, 0.1],
    )
    rows = Lake(spark, made.write()).stream("all/kinds")
    assert rows.dtypes == [
        ("incarnation", "bigint"), ("xi", "bigint"), ("ts", "timestamp"), ("unsync", "boolean"),
        ("arrived", "timestamp"), ("landed", "timestamp"), ("ts_", "decimal(20,0)"), ("a", "tinyint"),
        ("b", "smallint"), ("c", "smallint"), ("d", "int"), ("e", "int"), ("f", "bigint"), ("g", "bigint"),
        ("h", "float"), ("i", "double"),
    ]  # fmt: skip
    assert micros(rows, *rows.columns) == [
        (
            INCARNATION, 1, 0.01, False, 1.01, 2.01, Decimal(2**64 - 1), -128, 255, -32768, 65535, -(2**31),
            2**32 - 1, -(2**63), pytest.approx(0.1, abs=1e-8), 0.1,
        )
    ]  # fmt: skip


def test_fields_that_a_stream_gained_are_null_in_older_rows(lake: Lake) -> None:
    rows = micros(
        lake.stream("cardio/rate", version=1).where("xi IN (300, 301)").orderBy("xi"), "bpm", "beats"
    )
    assert rows == [(300, None), (60, Decimal(2**64 - 301))]


def test_rows_that_fit_no_common_table_are_a_version_of_their_own(lake: Lake) -> None:
    newest = lake.stream("cardio/rate")
    assert newest.columns[6:] == ["beats"] and newest.count() == 5
    assert lake.stream("cardio/rate", version=1).count() == 310


def test_what_is_not_there_is_named_beside_what_is(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="no stream 'cardio/egg' in .*: it has cardio/ecg, cardio/rate"):
        lake.stream("cardio/egg")
    with pytest.raises(LakeError, match="stream 'cardio/rate' has versions 1, 2, not 3"):
        lake.stream("cardio/rate", version=3)
    with pytest.raises(LakeError, match="is not a lake, or has no table `streams` yet"):
        Lake(spark, tmp_path).stream("cardio/ecg")


def test_streams_are_listed_with_every_alphabet(lake: Lake) -> None:
    assert micros(lake.streams(), "process", "stream", "version", "alphabet", "within_ms", "since") == [
        ("cardio", "cardio/ecg", 1, "mV:i16", 20_000, 0.0),
        ("cardio", "cardio/rate", 1, "bpm:u8", 0, 1.0),
        ("cardio", "cardio/rate", 1, "bpm:u8 beats:u64", 0, 2.0),
        ("cardio", "cardio/rate", 2, "beats:i16", 0, 3.0),
    ]


# What is to be known


def test_gaps_are_what_is_still_missing_with_times_from_the_neighbours_where_nobody_told(lake: Lake) -> None:
    gaps = micros(lake.gaps(), "first", "last", "missing", "kind", "reason", "from_ts", "to_ts")
    assert gaps == [
        (401, 401, 1, "hole", "restart", 4.01, 4.01),
        (701, 749, 49, "gap", "full", 7.0, 7.5),
        (701, 749, 49, "gap", "full", 7.01, 7.5),
        (761, 790, 30, "gap", "full", 7.6, 7.9),
        (761, 800, 40, "gap", "full", 7.6, 8.0),
        (1001, 1010, 10, "gap", "given up", 10.0, 10.11),
    ]


def test_quality_agrees_with_the_audit(lake: Lake) -> None:
    told = {s["stream"]: s for s in as_json(audit(str(lake.location)))["streams"]}
    rows = lake.quality().collect()
    assert [row["stream"] for row in rows] == ["cardio/ecg", "cardio/rate"]
    for row in rows:
        one = told[row["stream"]]
        for name in ("rows", "last", "holes", "dropped", "lost", "unsync"):
            assert row[name] == one[name], name
        assert row["refused"] == one["divergent"]
    assert [(r["rows"], r["last"], r["holes"], r["dropped"], r["lost"], r["refused"]) for r in rows] == [
        (920, 1020, 1, 99, 0, 0),
        (315, 315, 0, 0, 0, 1),
    ]
    assert rows[0]["completeness"] == pytest.approx(920 / 1019) and rows[1]["completeness"] == 1.0


def test_quality_counts_what_nobody_declared_as_lost(spark: SparkSession, tmp_path: Path) -> None:
    made = LakeOf(tmp_path)
    made.rows("cardio/ecg", 1, 10)
    made.rows("cardio/ecg", 14, 20)
    made.gap("only/holes", 1, 1, "hole", "sensor fault")
    rows = Lake(spark, made.write()).quality().select("stream", "rows", "last", "holes", "lost").collect()
    assert [tuple(row) for row in rows] == [("cardio/ecg", 17, 20, 0, 3), ("only/holes", 0, 1, 1, 0)]


def test_latency_leaves_out_rows_stamped_before_a_clock_was_set(lake: Lake) -> None:
    rows = lake.latency().select("stream", "rows", "within_ms", "late", "landed_max_ms", "arrived_p50_ms")
    assert [tuple(row) for row in rows.collect()] == [
        ("cardio/ecg", 920, 20_000, 21, 52_500.0, 1000.0),
        ("cardio/rate", 305, 0, 0, 4990.0, 1000.0),
    ]


def test_quarantine_shows_the_newest_first(lake: Lake) -> None:
    rows = lake.quarantine().select("reason", "first", "rows").collect()
    assert [tuple(row) for row in rows] == [("crc", 1, 1), ("divergent", 7, 1)]


def test_views_for_plain_sql_are_named_after_the_streams(lake: Lake, spark: SparkSession) -> None:
    views = lake.register()
    assert views["cardio_ecg"] == "cardio/ecg" and views["lake_gaps"] == "gaps"
    query = (
        "SELECT count(*) AS n FROM cardio_ecg e JOIN lake_quality q "
        "ON q.stream = 'cardio/ecg' AND q.incarnation = e.incarnation WHERE mV > 990 AND q.lost = 0"
    )
    assert spark.sql(query).collect()[0]["n"] == 9


# Earlier moments


def test_a_lake_is_read_as_it_was_at_a_version_or_a_moment(lake: Lake, spark: SparkSession) -> None:
    first = lake.as_of(0)
    assert first.stream("cardio/ecg").count() == 899
    assert [(row["first"], row["last"]) for row in first.gaps().collect()] == [(401, 401), (701, 800)]
    assert first.quarantine().count() == 0
    assert first.stream("cardio/rate").columns[6:] == ["bpm"]
    now = lake.as_of(datetime.now(UTC) + timedelta(days=1))
    assert now.stream("cardio/ecg").count() == lake.stream("cardio/ecg").count() == 920
    assert repr(now) == "Lake(%s, as of version 1 of elements)" % lake.location
    with pytest.raises(LakeError, match="`elements` has versions 0 to 1, not 2"):
        lake.as_of(2)
    with pytest.raises(LakeError, match="did not exist at 2001-01-01"):
        lake.as_of("2001-01-01")
    with pytest.raises(LakeError, match="'yesterday' is not a time"):
        lake.as_of("yesterday")


# Pictures


def test_a_picture_breaks_where_something_is_missing_and_says_why(lake: Lake, tmp_path: Path) -> None:
    figure = lake.plot("cardio/ecg")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "hole: restart",
        "gap: full",
        "gap: given up",
    ]
    (axes,) = figure.axes
    assert axes.get_ylabel() == "mV"
    drawn = axes.lines[0].get_ydata()
    assert len(drawn) == 920 + 4 and np.count_nonzero(np.isnan(drawn)) == 4
    figure.savefig(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes()[1:4] == b"PNG"


def test_a_peak_among_many_rows_stays_visible(spark: SparkSession, tmp_path: Path) -> None:
    made = LakeOf(tmp_path)
    made.stream("cardio/ecg")
    made.rows("cardio/ecg", 1, 5 * POINTS, ints=lambda xi: [30_000 if xi == 7777 else 0])
    curve = plots.curve(Lake(spark, made.write()).stream("cardio/ecg"), ["mV"], (None, None), POINTS)
    assert curve.spans and len(curve.times) == POINTS and curve.joins.all()
    assert curve.most["mV"].max() == 30_000 and curve.least["mV"].max() == 0


def test_a_picture_of_a_span_shows_only_that(lake: Lake) -> None:
    figure = lake.plot("cardio/ecg", at(8), "2026-03-01 08:00:09")
    assert len(figure.axes[0].lines[0].get_ydata()) == 100
    with pytest.raises(LakeError, match="has neither rows nor gaps in that time"):
        lake.plot("cardio/ecg", "2001-01-01", "2001-01-02")
    with pytest.raises(LakeError, match="has no field bpm: it has mV"):
        lake.plot("cardio/ecg", fields=["bpm"])


# Without a JVM


def same(mine: pa.Table, other: DataFrame) -> None:
    """The names, types and rows of what Spark answers, in the same order."""
    theirs = other.toArrow()
    assert [(f.name, f.type) for f in mine.schema] == [(f.name, f.type) for f in theirs.schema]
    assert repr(mine.to_pylist()) == repr(theirs.to_pylist())  # as text: NaN is not equal to itself


def test_without_a_jvm_a_lake_says_the_same(lake: Lake) -> None:
    other = ArrowLake(lake.location.spark)
    same(other.streams(), lake.streams())
    same(other.gaps(), lake.gaps().orderBy("stream", "incarnation", "first", "last", "reason"))
    same(other.quality(), lake.quality())
    same(other.latency(), lake.latency())
    same(other.quarantine(), lake.quarantine())
    for name, version in (("cardio/ecg", None), ("cardio/rate", None), ("cardio/rate", 1)):
        same(other.stream(name, version=version), lake.stream(name, version).orderBy("incarnation", "xi"))
    first, before = other.as_of(0), lake.as_of(0)
    same(first.gaps(), before.gaps())
    same(first.quality(), before.quality())
    same(first.stream("cardio/rate"), before.stream("cardio/rate").orderBy("xi"))


def test_without_a_jvm_every_type_and_value_is_the_same(spark: SparkSession, tmp_path: Path) -> None:
    name = 'o\'clock/\\"x"'
    made = LakeOf(tmp_path)
    made.stream(name, KINDS)
    floats = [[0.5, 0.1], [float("nan"), float("-inf")], [-0.0, 1e308]]
    ints = [
        [-1, -128, 255, -32768, 65535, -(2**31), 2**32 - 1, -(2**63)],
        [2**63 - 1, 127, 0, 32767, 0, 2**31 - 1, 0, 2**63 - 1],
        [2**53 + 1, 0, 0, 0, 0, 0, 0, 2**53 + 1],
    ]
    made.rows(name, 1, 3, alphabet=KINDS, ints=lambda xi: ints[xi - 1], floats=lambda xi: floats[xi - 1])
    made.rows(name, 4, 4, alphabet=KINDS, incarnation=-5, ints=lambda xi: ints[0], floats=lambda xi: [1, 2])
    made.elements[1].update(ts=datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), unsync=True)
    made.write()
    mine = ArrowLake(tmp_path).stream(name)
    same(mine, Lake(spark, tmp_path).stream(name).orderBy("incarnation", "xi"))
    assert mine.column("ts_").to_pylist()[1] == Decimal(2**64 - 1)
    assert mine.column("g").to_pylist()[3] == 2**53 + 1


# Without our package


def test_plain_sql_opens_the_tables(lake: Lake, spark: SparkSession) -> None:
    where = str(lake.location)
    query = "SELECT max(ints[0]) AS top, count(*) AS n FROM delta.`%s/elements` WHERE stream = 'cardio/ecg'"
    assert tuple(spark.sql(query % where).collect()[0]) == (999, 920)
    for name in ("gaps", "progress", "quarantine", "streams"):
        assert spark.sql("SELECT count(*) AS n FROM delta.`%s/%s`" % (where, name)).collect()[0]["n"] > 0


def test_what_a_sink_did_adds_up_for_the_audit(spark: SparkSession, tmp_path: Path) -> None:
    landing, lake = tmp_path / "landing", tmp_path / "lake"
    landing.mkdir()
    gap = segment.Gap(41, 50, "gap", "full", None, None)

    def put(first: int, last: int, cut: int = 0, odd: int = 0) -> None:
        gaps = [gap] if first < gap.first < last else []
        xis = [xi for xi in range(first, last + 1) if not gaps or not gap.first <= xi <= gap.last]
        values = [[-1 if xi == odd else xi for xi in xis]]
        times = [1_772_352_000_000_000 + xi * 2778 for xi in xis]
        segment.write_segment(
            landing, "cardio", "cardio/ecg", INCARNATION, first, "mV:i16", times, values, gaps=gaps, cut=cut
        )

    def drain() -> dict[str, Any]:
        with Sink(spark, Location.of(landing), Location.of(lake), say=lambda text: None) as sink:
            sink.run(once=True)
        return as_json(audit(str(lake)))

    put(1, 100)
    answer = drain()
    assert (answer["ok"], answer["delivered"], answer["dropped"], answer["gaps_declared"]) == (
        True,
        90,
        10,
        1,
    )
    put(1, 100, cut=1)  # all of it known
    put(91, 120, odd=95)  # nine known, one that differs, twenty new
    put(41, 50)  # what was given up comes after all
    (landing / "nonsense.parquet").write_bytes(b"PAR1")
    answer = drain()
    assert answer["conservation"] == {
        "landed": 220, "elements": 120, "duplicates": 99, "quarantined": 1, "holds": True,
    }  # fmt: skip
    assert (answer["delivered"], answer["lost"], answer["dropped"]) == (120, 0, 0)
    assert (answer["duplicates"], answer["divergent"], answer["ok"]) == (0, 1, False)
    assert answer["files_refused"] == {"name": 1} and answer["streams"][0]["unacknowledged"] == 0
    reader = Lake(spark, lake)
    assert reader.stream("cardio/ecg").where("mV = xi").count() == 120 and reader.gaps().count() == 0


# It ends without the destructors of native libraries: those of deltalake abort a process now and then.
SCRIPT = """
import os, sys
from deltalake import DeltaTable
rows = DeltaTable(sys.argv[1] + "/elements").to_pyarrow_dataset().to_table(columns=["stream", "xi", "ints"])
gaps = DeltaTable(sys.argv[1] + "/gaps").to_pyarrow_dataset().to_table()
high = DeltaTable(sys.argv[1] + "/progress").to_pyarrow_dataset().to_table().column("high").to_pylist()
assert not [name for name in sys.modules if "headwater" in name or "pyspark" in name]
print(rows.num_rows, gaps.num_rows, high, flush=True)
os._exit(0)
"""


@pytest.fixture(scope="module")
def by_spark(lake: Lake, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Location:
    """The same lake with an `elements` that Spark made, wrote, and clustered."""
    copy = Location.of(tmp_path_factory.mktemp("spark") / "lake")
    tables.create(spark, copy)
    lake.table("elements").write.format("delta").mode("append").save((copy / "elements").spark)
    spark.sql("OPTIMIZE delta.`%s`" % (copy / "elements").spark).collect()
    for name in ("gaps", "progress", "quarantine", "streams"):
        rows = tables.open_table(lake.location / name).to_pyarrow_table()
        tables.write(tables.open_table(copy / name), rows, "append", {})
    return copy


def test_delta_rs_opens_the_tables_that_spark_wrote(by_spark: Location) -> None:
    command = [sys.executable, "-c", SCRIPT, by_spark.spark]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={})
    assert (done.stdout, done.stderr) == ("1235 4 [1020, 315]\n", "")


def test_the_audit_says_the_same_of_a_lake_that_spark_wrote(lake: Lake, by_spark: Location) -> None:
    mine, other = as_json(audit(str(lake.location))), as_json(audit(by_spark.spark))
    for answer in (mine, other):
        for name in ("lake", "seconds", "version"):
            del answer[name]
    assert mine == other


def test_rows_that_spark_erased_are_missing_for_the_audit_too(
    lake: Lake, spark: SparkSession, tmp_path: Path
) -> None:
    """Erased by a deletion vector: the file still has them."""
    where = Location.of(tmp_path)
    tables.create(spark, where)
    elements = "delta.`%s`" % (where / "elements").spark
    spark.sql("ALTER TABLE %s SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')" % elements)
    lake.table("elements").write.format("delta").mode("append").save((where / "elements").spark)
    spark.sql("DELETE FROM %s WHERE stream = 'cardio/ecg' AND xi = 5" % elements)
    assert list((tmp_path / "elements").glob("**/deletion_vector_*.bin"))
    answer = as_json(audit(str(tmp_path), "cardio/ecg"))
    assert answer["delivered"] == 919
    assert (5, 5) in [(m["first"], m["last"]) for m in answer["streams"][0]["missing"]]
