"""A lake whose log the sink keeps short: it is served, killed, restored, maintained and read as any other."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from site_lake import Site, plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCHES = 9
CUT = 4  # the newest checkpoint that is COMMITS_MIN commits old
POINT = 2  # the first commit of the hour that has a checkpoint


class Died(Exception):
    """What a kill does to a sink, without killing the tests."""


@pytest.fixture
def site(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A lake after nine batches of ten rows each, with all of its log."""
    from headwater_cloud import log_retention, tables

    monkeypatch.setattr(log_retention, "COMMITS_MIN", 4)
    monkeypatch.setattr(log_retention, "CHECKSUMS", 2)
    properties = tables.ELEMENTS_PROPERTIES | {"delta.checkpointInterval": "2"}
    monkeypatch.setattr(tables, "ELEMENTS_PROPERTIES", properties)
    site = Site(spark, tmp_path)
    for first in range(1, 10 * BATCHES, 10):
        site.put(first, first + 9)
    site.run(files_per_trigger=1)
    assert kept(site) == list(range(BATCHES + 1))
    monkeypatch.setattr(log_retention, "AGE_MIN_S", 0)
    site.run()
    assert kept(site) == [POINT, *range(CUT, BATCHES + 1)]
    yield site


def kept(site: Site) -> list[int]:
    return sorted(int(path.stem) for path in (site.lake / "elements" / "_delta_log").glob("*.json"))


def test_a_lake_with_a_short_log_is_read_as_it_was_and_progress_is_made_again_from_it(site: Site) -> None:
    from headwater_cloud import Lake
    from headwater_cloud.errors import LakeError

    lake = Lake(site.spark, site.lake)
    assert [lake.as_of(v).stream("cardio/ecg").count() for v in (POINT, CUT, BATCHES)] == [20, 40, 90]
    with pytest.raises(LakeError, match="has versions 4 to 9, and of older ones 2, not 3"):
        lake.as_of(3)
    landed = sorted({row["landed"] for row in site.table("elements")})
    for batches, moment in enumerate(landed, 1):
        if batches < CUT:  # a version that is not kept, and not the newest one
            then = lake.as_of(moment.replace(tzinfo=UTC))
            assert then.stream("cardio/ecg").count() == 10 * batches
            assert then.streams().count() == 1
            assert "as of %s" % datetime.fromtimestamp(moment.timestamp(), UTC) in repr(then)
    assert lake.as_of(datetime(2001, 1, 1, tzinfo=UTC)).table("elements").count() == 0
    assert site.numbers() == plain(1, 90)
    names = os.listdir(site.lake / "elements" / "_delta_log")
    assert len([name for name in names if name.endswith(".crc")]) < 25

    # Progress that names a commit which the log lacks is made again.
    progress = DeltaTable(str(site.lake / "progress"))
    names = ["headwater." + name for name in ("generation", "batch", "files")]
    taken_back = [Transaction(name, progress.transaction_version(name)) for name in names]
    write_deltalake(
        progress,
        progress.to_pyarrow_table().slice(0, 0),
        mode="overwrite",
        commit_properties=CommitProperties(
            app_transactions=[*taken_back, Transaction("headwater.elements", 1)]
        ),
    )
    site.put(81, 100)
    site.run()
    assert [line for line in site.said if "progress does not agree with the lake" in line]
    assert site.numbers() == plain(1, 100)
    assert site.high() == (100, [])


def test_a_sink_goes_on_over_a_short_log_after_a_kill_a_restore_and_maintenance(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater_cloud import crash_points, maintenance
    from headwater_cloud.files import Files
    from headwater_cloud.location import Location

    def die(name: str) -> None:
        if name == "appended":
            raise Died

    site.put(91, 100)
    with monkeypatch.context() as patch:
        patch.setattr(crash_points, "reach", die)
        with pytest.raises(Died):
            site.run()
    site.run()
    assert site.numbers() == plain(1, 100) and site.ack()["generation"] == 0
    site.spark.sql("RESTORE TABLE delta.`%s` TO VERSION AS OF %d" % (site.lake / "elements", POINT))
    assert site.numbers() == plain(1, 20)
    site.put(101, 110)
    site.run()  # what still waits comes again
    assert site.numbers() == plain(1, 110) and site.ack()["generation"] > 0
    files = Files(site.spark)
    maintenance.request(files, Location.of(site.lake), maintenance.KEEP_HOURS)
    report = site.run()
    assert len(report.maintained) == 1 and report.rows_kept == 0
    # Delta's own cleanup comes upon what is left of the old log.
    for path in (site.lake / "elements" / "_delta_log").glob("%020d.*" % POINT):
        os.utime(path, (time.time() - 10 * 86400,) * 2)
    for first in range(111, 141, 10):
        site.put(first, first + 9)
    site.run(files_per_trigger=1)
    assert site.numbers() == plain(1, 140)
    assert POINT not in kept(site)


def test_the_log_is_listed_as_delta_itself_lists_it(spark: SparkSession, tmp_path: Path) -> None:
    """By our log store, which looks only at the files that are asked for."""
    from headwater_cloud import logstore
    from headwater_cloud.location import Location
    from py4j.protocol import Py4JJavaError

    jvm: Any = spark._jvm
    context: Any = spark._jsc
    gateway: Any = spark.sparkContext._gateway
    logstore.use(spark, Location.of(tmp_path))
    assert context.sc().conf().get(logstore.setting("file")) == "headwater.LocalListingLogStore"
    log = tmp_path / "odd ü%20" / "_delta_log"
    (log / "_staged_commits").mkdir(parents=True)
    for i in range(12):
        for name in ("%020d.json", ".%020d.json.crc", "%020d.crc", ".%020d.crc.crc"):
            (log / (name % i)).write_text(str(i) * i)
    (log / ("%020d.checkpoint.parquet" % 5)).write_text("a checkpoint")
    (log / "_last_checkpoint").write_text("5")
    (log / ("%020d.json" % 20)).symlink_to(tmp_path / "gone")

    conf = context.hadoopConfiguration()
    types = gateway.new_array(jvm.java.lang.Class, 1)
    types[0] = conf.getClass()
    arguments = gateway.new_array(jvm.java.lang.Object, 1)
    arguments[0] = conf
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    ours, deltas = (
        loader.loadClass(name).getConstructor(types).newInstance(arguments)
        for name in (logstore.PACKAGE + logstore.LISTING, "io.delta.storage.HDFSLogStore")
    )

    def listed(store: Any, name: str) -> list[tuple[str, int, int, bool]]:
        found = []
        entries = store.listFrom(jvm.org.apache.hadoop.fs.Path(str(log), name), conf)
        while entries.hasNext():
            one = entries.next()
            found.append((str(one.getPath()), one.getLen(), one.getModificationTime(), one.isDirectory()))
        return found

    for first in (0, 5, 11, 12, 30):
        for name in ("%020d." % first, "%020d.json" % first, "%020d.checkpoint" % first):
            assert listed(ours, name) == listed(deltas, name)
    assert len(listed(ours, "%020d." % 0)) == 12 * 2 + 3
    assert listed(ours, ".") == listed(deltas, ".")
    for store in (ours, deltas):
        with pytest.raises(Py4JJavaError) as failed:
            store.listFrom(jvm.org.apache.hadoop.fs.Path(str(tmp_path / "none"), "%020d." % 0), conf)
        assert "FileNotFoundException" in str(failed.value.java_exception)
