"""Following a stream of a lake while the sink writes it; comments of tables; what users set on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from headwater_cloud import Lake, comments, maintenance, segment, tables
from headwater_cloud.audit import as_json, audit
from headwater_cloud.errors import LakeError
from headwater_cloud.location import Location
from headwater_cloud.sink import Sink
from lakes import INCARNATION, LakeOf, healthy
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession


class Site:
    """A landing zone, a lake, and a sink that takes what is put there."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.landing, self.lake = folder / "landing", folder / "lake"
        self.landing.mkdir(parents=True)
        self.told: list[str] = []
        self.elements = "delta.`%s`" % (self.lake / "elements")

    def put(self, first: int, last: int, alphabet: str = "mV:i16", stream: str = "cardio/ecg") -> None:
        times = [1_772_352_000_000_000 + xi * 10_000 for xi in range(first, last + 1)]
        columns = [list(range(first, last + 1)) for _ in alphabet.split()]
        segment.write_segment(
            self.landing, "cardio", stream, INCARNATION, first, alphabet, times, columns, gaps=[], cut=0
        )

    def drain(self) -> None:
        landing, lake = Location.of(self.landing), Location.of(self.lake)
        with Sink(self.spark, landing, lake, say=self.told.append) as sink:
            sink.run(once=True)


class Follower:
    """Collects what a streaming query gives, in queries one after the other with one checkpoint."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.rows: list[tuple[Any, ...]] = []

    def take(self, name: str = "cardio/ecg", version: int | None = None) -> None:
        """Read what is there, then end."""
        rows = Lake(self.site.spark, self.site.lake).read_stream(name, version)
        self.end(self.begin(rows))

    def begin(self, rows: DataFrame) -> Any:
        checkpoint = str(self.site.lake.parent / "followed")
        return rows.writeStream.option("checkpointLocation", checkpoint).foreachBatch(self._batch).start()

    def end(self, query: Any) -> None:
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    def _batch(self, rows: DataFrame, number: int) -> None:
        self.rows += [tuple(row) for row in rows.drop("ts", "unsync", "arrived", "landed").collect()]

    def xis(self) -> list[int]:
        return sorted(row[1] for row in self.rows)


@pytest.fixture
def site(spark: SparkSession, tmp_path: Path) -> Site:
    return Site(spark, tmp_path)


def test_a_stream_is_followed_and_each_row_comes_once(site: Site, spark: SparkSession) -> None:
    site.put(1, 20)
    site.put(1, 5, stream="cardio/other")
    site.drain()
    follower = Follower(site)
    rows = Lake(spark, site.lake).read_stream("cardio/ecg")
    assert rows.isStreaming and dict(rows.dtypes)["mV"] == "smallint"
    query = follower.begin(rows)
    query.processAllAvailable()
    assert follower.xis() == list(range(1, 21))
    site.put(21, 30)  # while the query runs
    site.drain()
    follower.end(query)
    assert follower.xis() == list(range(1, 31))
    site.put(31, 40)  # between two queries; and what maintenance and erasure do
    site.drain()
    maintenance.maintain(spark, Location.of(site.lake))
    spark.sql("DELETE FROM %s WHERE stream = 'cardio/ecg' AND xi = 3" % site.elements)
    follower.take()
    assert follower.xis() == list(range(1, 41))
    assert all(row == (INCARNATION, row[1], row[1]) for row in follower.rows)


def test_a_row_of_a_new_alphabet_fails_a_query_and_the_next_one_has_it(site: Site) -> None:
    site.put(1, 3)
    site.drain()
    follower = Follower(site)
    query = follower.begin(Lake(site.spark, site.lake).read_stream("cardio/ecg"))
    query.processAllAvailable()
    site.put(4, 6, "mV:i16 q:u8")
    site.drain()
    with pytest.raises(StreamingQueryException, match="cardio/ecg has rows of a new alphabet, mV:i16 q:u8"):
        follower.end(query)
    assert follower.xis() == [1, 2, 3]
    follower.take()
    assert follower.xis() == [1, 2, 3, 4, 5, 6] and follower.rows[-1][3] == follower.rows[-1][1]
    site.put(7, 9, "mV:f32")
    site.drain()
    with pytest.raises(LakeError, match="has versions 1, 2: name the one to follow, as read_stream"):
        follower.take()
    follower.take(version=1)
    assert follower.xis() == [1, 2, 3, 4, 5, 6]
    with pytest.raises(LakeError, match="is the lake of an earlier moment"):
        Lake(site.spark, site.lake).as_of(0).read_stream("cardio/ecg")


def test_a_sink_works_with_the_change_data_feed_that_a_user_enabled(site: Site, spark: SparkSession) -> None:
    site.put(1, 10)
    site.drain()
    spark.sql("ALTER TABLE %s SET TBLPROPERTIES (delta.enableChangeDataFeed = true)" % site.elements)
    version = tables.open_table(Location.of(site.lake) / "elements").version()
    site.put(6, 20)  # five of them known
    site.drain()
    spark.sql("DELETE FROM %s WHERE xi = 7" % site.elements)
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", version)
    changes = feed.load(str(site.lake / "elements")).select("_change_type", "xi").collect()
    assert sorted(map(tuple, changes)) == [("delete", 7), *(("insert", xi) for xi in range(11, 21))]
    assert not [text for text in site.told if "generation" in text or "anew" in text]
    answer = as_json(audit(str(site.lake)))
    assert (answer["delivered"], answer["duplicates"]) == (19, 0)


# Comments


def described(spark: SparkSession, table: Path) -> tuple[dict[str, str | None], str | None]:
    """What DESCRIBE says of each column, and of the table."""
    rows = spark.sql("DESCRIBE TABLE EXTENDED delta.`%s`" % table).collect()
    ends = [row["col_name"] for row in rows].index("")
    about = [row["data_type"] for row in rows[ends:] if row["col_name"] == "Comment"]
    return {row["col_name"]: row["comment"] for row in rows[:ends]}, about[0] if about else None


def test_a_new_lake_says_what_its_tables_and_columns_mean(site: Site, spark: SparkSession) -> None:
    site.put(1, 10)
    site.drain()
    for name in comments.COLUMNS:
        assert described(spark, site.lake / name) == (comments.COLUMNS[name], comments.TABLES[name])
    history = spark.sql("DESCRIBE HISTORY %s" % site.elements).collect()
    assert [row["operation"] for row in history] == ["WRITE", "CREATE TABLE"]


def test_a_lake_that_is_there_gets_its_comments_once_and_its_rows_stay(
    spark: SparkSession, tmp_path: Path
) -> None:
    site = Site(spark, tmp_path)
    made: LakeOf = healthy(site.lake)
    made.write()  # by delta-rs, without any
    streams = tables.open_table(Location.of(site.lake) / "streams")
    streams.alter.set_column_metadata("since", {"comment": "my own words"})
    files = {path.name for path in (site.lake / "elements").glob("*.parquet")}
    site.drain()
    versions = {}
    for name in comments.COLUMNS:
        columns = comments.COLUMNS[name] | ({"since": "my own words"} if name == "streams" else {})
        assert described(spark, site.lake / name) == (columns, comments.TABLES[name])
        versions[name] = tables.open_table(Location.of(site.lake) / name).version()
    assert {path.name for path in (site.lake / "elements").glob("*.parquet")} == files
    comments.put(spark, Location.of(site.lake))
    site.drain()
    for name, version in versions.items():
        assert tables.open_table(Location.of(site.lake) / name).version() == version
    site.put(1001, 1010)
    site.drain()
    assert described(spark, site.lake / "progress")[0] == comments.COLUMNS["progress"]
    assert not [text for text in site.told if "generation" in text or "anew" in text]
    answer = as_json(audit(str(site.lake)))
    assert (answer["ok"], answer["delivered"]) == (True, 1209)
