"""Erasure on a real Spark: what is erased is nowhere below the lake, and never lands again.

A death here is an exception at a named point, after which nothing of that sink runs; real kills are in
`test_erasure_kills.py`.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import shutil
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from headwater_cloud.audit import as_json, audit
from headwater_cloud.errors import LakeError
from headwater_cloud.segment import ARROW_SCHEMA
from lakes import INCARNATION, LakeOf
from lakes import at as at_s
from site_erasure import WINDOW, answered, ask, between, judged, logged, rows_on_disk
from site_lake import START_US, Site, plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPAN = range(40, 61)


class Died(Exception):
    """What a kill does to a sink, without killing the tests."""


@pytest.fixture
def site(spark: SparkSession, tmp_path: Path) -> Iterator[Site]:
    yield Site(spark, tmp_path)


def die_at(monkeypatch: pytest.MonkeyPatch, site: Site, point: str) -> None:
    from headwater_cloud import crash_points

    def reach(name: str) -> None:
        if name == point:
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(crash_points, "reach", reach)
        # Housekeeping goes on after an error: here it ends the sink, as a kill does.
        patch.setattr("headwater_cloud.sink.Exception", LakeError, raising=False)
        with pytest.raises(Died):
            site.run()


def test_rows_go_for_good_and_what_comes_later_never_lands(site: Site) -> None:
    where = "%s or %s" % (between(40, 60), between(200, 205))
    site.put(1, 100)
    site.put(30, 45, stream="cardio/rate")
    site.run()
    site.put(101, 120)
    site.put(50, 65, change=7)  # divergent, and half of it in the window
    site.run()
    assert len(site.table("quarantine")) == 16
    assert set(SPAN) < rows_on_disk(site)
    ask(site, where)
    site.run()
    assert answered(site) == {"id": "0123456789ab", "rows": 21}
    assert site.numbers() == plain(1, 39) + plain(61, 120)
    assert site.numbers("cardio/rate") == plain(30, 45)
    assert sorted(row["first"] for row in site.table("quarantine")) == [61, 62, 63, 64, 65]
    assert site.high() == (120, [])
    assert not rows_on_disk(site) & set(SPAN)
    for bound in ('"xi":1,', '"xi":100', "40.120Z", "40.060Z"):
        assert (bound in logged(site)) == (bound != "40.060Z"), bound
    assert site.counts() == {"landed": 104, "kept": 99, "duplicate": 0, "quarantined": 5}
    said = of(judged(site))
    assert (said["erased"], said["lost"], said["changed"], said["unproven"]) == (21, 0, [], 0)
    assert said["missing"] == [
        {
            "first": 40, "last": 60, "kind": "erased", "from_us": None, "to_us": None,
            "reason": "by a tester, %s UTC (asked for): %s" % (today(site), where),
        }
    ]  # fmt: skip
    # Again from the outbox, with another payload, and for the first time.
    site.put(35, 70, cut=1)
    site.put(55, 58, change=9)
    site.put(195, 210)
    report = site.run()
    assert (report.rows_kept, report.rows_duplicate, report.rows_quarantined) == (10, 15, 0)
    left = plain(1, 39) + plain(61, 120) + plain(195, 199) + plain(206, 210)
    assert site.numbers() == left
    assert site.high() == (120, [[195, 210]])
    said = of(judged(site))
    assert (said["erased"], said["unproven"], said["changed"]) == (27, 0, [])
    assert "36 left out as erased" not in site.said[-1] and "31 left out as erased" in site.said[-1]
    # The checksums still show a payload that was changed, among the rows that are left.
    with site.sink() as sink:
        spans = [
            (span.rows, span.first, span.last) for span in sink.progress.numberings["cardio/ecg", 7].sums
        ]
    assert sum(rows for rows, _, _ in spans) == len(left)


# Each life dies at one step; those of the second erasure, at one that the first has not come to again.
LIVES = (("declared", "deleting", "erased", "emptied", "swept", "forgotten"), ("settled",))


def test_a_death_at_any_step_is_made_good_by_the_next_start(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.put(1, 100)
    site.run()
    site.put(1, 70, change=1)  # divergent
    left = plain(1, 100)
    for i, steps in enumerate(LIVES):
        first, last = 10 * i + 1, 10 * i + 5
        ask(site, between(first, last), name="%016x" % (i << 32))
        for step in steps:
            die_at(monkeypatch, site, step)
            assert as_json(audit(str(site.lake)))["lost"] == 0, step
            assert set(site.numbers()) <= set(left), step
        site.put(100 + i, 101 + i)
        site.run()
        left = [row for row in left if not first <= row[0] <= last] + plain(101 + i, 101 + i)
        assert site.numbers() == left
        assert not rows_on_disk(site) & set(range(first, last + 1))
        report = judged(site)
        assert report["erased"] == 5 * (i + 1) and report["erasures"][i]["status"] == "done"
        assert site.counts()["quarantined"] == len(site.table("quarantine")) == 70 - 5 * (i + 1)
        assert site.high() == (101 + i, [])


def test_a_batch_that_was_cut_off_and_an_old_copy_of_the_rows_change_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.put(1, 100)
    site.run()
    shutil.copytree(site.lake / "elements", site.lake.parent / "copy")
    site.put(90, 130)
    ask(site, between(95, 105))
    die_at(monkeypatch, site, "appended")
    site.run()
    assert answered(site)["rows"] == 11
    assert site.numbers() == plain(1, 94) + plain(106, 130)
    assert judged(site)["ok"] and site.high() == (130, [])
    with pytest.raises(Exception, match="RESTORE|restore|version"):
        site.spark.sql("RESTORE delta.`%s` TO VERSION AS OF 1" % (site.lake / "elements"))
    shutil.rmtree(site.lake / "elements")
    shutil.move(site.lake.parent / "copy", site.lake / "elements")
    site.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    report = as_json(audit(str(site.lake)))
    assert not report["ok"] and report["erased_returned"] == 6
    site.run()
    # What landed after the copy was made is lost with the newer table, and told as such: it is not erased.
    assert site.numbers() == plain(1, 94)
    assert not rows_on_disk(site) & set(range(95, 106))
    assert judged(site)["erased"] == 11 and site.high() == (105, [])


def test_rows_that_a_deletion_vector_hides_go_too(site: Site) -> None:
    site.put(1, 100)
    site.run()
    elements = "delta.`%s`" % (site.lake / "elements")
    site.spark.sql("ALTER TABLE %s SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')" % elements)
    site.spark.sql("DELETE FROM %s WHERE xi = 50" % elements)
    assert 50 in rows_on_disk(site)
    site.put(101, 110)  # a batch takes up what was done by hand
    ask(site)
    site.run()
    # delta-rs refuses to read a table with deletion vectors into Arrow.
    rows = site.spark.sql("SELECT xi FROM %s ORDER BY xi" % elements).collect()
    assert [row["xi"] for row in rows] == [*range(1, 40), *range(61, 111)]
    assert not rows_on_disk(site) & set(SPAN)


def test_files_in_quarantine_and_in_the_landing_zone_go_where_they_have_such_rows(site: Site) -> None:
    whole = site.put(1, 100)
    other = site.put(101, 120)
    site.run()
    data = bytearray(whole.read_bytes())
    data[200] ^= 4
    flipped = site.landing / whole.name.replace("~1-100~100~", "~1-99~99~")
    flipped.write_bytes(data)
    beyond = site.landing / other.name.replace("~101-120~20~", "~101-119~19~")
    beyond.write_bytes(other.read_bytes())  # its CRC is right, its footer says otherwise
    copies = [site.landing / "copy.parquet", site.landing / "other.parquet", site.landing / "none.parquet"]
    for path, content in zip(copies, (whole.read_bytes(), other.read_bytes(), b"rubbish")):
        path.write_bytes(content)
    site.run()
    ask(site)
    site.run()
    assert answered(site)["rows"] == 21
    kept = {row["file"]: row["raw"] is not None for row in site.table("quarantine")}
    assert kept == {
        flipped.name: False,  # nobody can tell what it has
        beyond.name: True,
        "copy.parquet": False,
        "other.parquet": True,
        "none.parquet": True,
    }
    assert any("look at none.parquet yourself" in line for line in site.said)
    late = site.landing / flipped.name.replace("~1-99~99~", "~1-98~98~")
    late.write_bytes(data)
    site.run()
    (raw,) = [row["raw"] for row in site.table("quarantine") if row["file"] == late.name]
    assert raw is None
    late.unlink()
    there = {path.name for path in site.landing.glob("[!._]*")}
    assert there == {other.name, beyond.name, "other.parquet", "none.parquet"}
    assert judged(site)["files_refused"]


def test_a_running_sink_does_it_between_two_batches(site: Site) -> None:
    from headwater_cloud.sink import Settings

    site.put(1, 100)
    with site.sink(Settings(trigger_s=0.2)) as sink:
        serving = threading.Thread(target=sink.run, args=(False,))
        serving.start()
        try:
            wait(lambda: site.acknowledged() == 100)
            ask(site, "n between 40 and 60 or w = %d" % ((1 << 64) - 99), later=True)
            ask(site, "n = 'x'", name="a-bad-request")
            ask(site, "n > 70", name="a-later-request")
            site.put(101, 140)
            site.put(41, 50, incarnation=8)
            wait(lambda: (site.lake / "requests" / "0123456789abcdef.done").exists())
            site.put(55, 65, incarnation=8)
            wait(lambda: len(site.numbers(incarnation=8)) == 5)
        finally:
            sink.stop()
            serving.join()
    assert "n is a number" in answered(site, "a-bad-request")["error"]
    assert "measured from now on" in answered(site, "a-later-request")["error"]
    assert site.numbers() == plain(1, 39) + plain(61, 98) + plain(100, 140)
    assert site.numbers(incarnation=8) == plain(61, 65)
    assert site.high() == (140, []) and site.high(incarnation=8) == (0, [[41, 50], [55, 65]])
    assert judged(site)["erased"] == 22 + 16


def test_a_notebook_sees_what_was_erased(spark: SparkSession, tmp_path: Path) -> None:
    from headwater_cloud import Lake

    made = LakeOf(tmp_path)
    made.stream("cardio/ecg")
    made.rows("cardio/ecg", 1, 39)
    made.gap("cardio/ecg", 21, 30)
    made.rows("cardio/ecg", 61, 100)
    lake = Lake(spark, made.write())
    assert lake.erasures().count() == 0
    run = {"incarnation": INCARNATION, "first": 40, "last": 60}
    rule = dict(id="1", stream="cardio/ecg", filter=WINDOW, by="A. Name", reason="", status="done")
    made.erasures.append({**rule, "declared": at_s(90), "finished": at_s(91), "ranges": [run], "taken": []})
    made.write()
    assert [row["by"] for row in lake.erasures().collect()] == ["A. Name"]
    gaps = [(g["first"], g["last"], g["kind"], g["reason"]) for g in lake.gaps().collect()]
    assert gaps == [(40, 60, "erased", "by A. Name: " + WINDOW)]
    (line,) = lake.quality().collect()
    counts = ("rows", "last", "holes", "dropped", "erased", "lost")
    assert [line[name] for name in counts] == [79, 100, 0, 0, 21, 0]


def test_spark_and_python_mean_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Every filter over every row, by Spark from SQL and by Python row by row."""
    from headwater_cloud import tables
    from headwater_cloud.where import Where, row_box

    alphabets = {"a:i16 b:u64 f:f32": (2, 1), "b:i8 a:f64": (1, 1), "c:u8": (1, 0)}
    values = (-1, 0, 1, 5, (1 << 63) - 1, -(1 << 63))
    floats = (-0.5, 0.10000000149011612, math.nan, -0.0, math.inf, 5.0)
    made = []
    for xi, (text, i) in enumerate(itertools.product(alphabets, range(len(values))), 1):
        of_it = {"ints": [values[i]] * alphabets[text][0], "floats": [floats[i]] * alphabets[text][1]}
        when = datetime.fromtimestamp((START_US + 1000 * xi) / 1e6, UTC)
        row = {"stream": "s", "incarnation": xi % 2, "xi": xi, "ts": when, "arrived": when}
        made.append({**row, "unsync": xi % 3 == 0, "alphabet": text, **of_it})
    table = pa.Table.from_pylist(made, schema=ARROW_SCHEMA)
    pq.write_table(table, tmp_path / "rows.parquet")
    numbers = ("-1", "0", "0.1", "5", "9223372036854775807", "18446744073709551615", "-9223372036854775808")
    asked = []
    filters = ["%s %s %s" % one for one in itertools.product("abcf", ("<", "<=", "=", "!=", ">"), numbers)]
    filters += [
        "not (a > 0 and b < 5)",
        "not c = 5 or xi in (2, 3)",
        between(2, 4),
        "unsync = true or f >= 0.1",
    ]
    filters += ["incarnation = '%016x' and xi < 5" % 1, between(2, 4), "not " + between(3, 4)]
    for text in filters:
        where = Where(text)
        with contextlib.suppress(LakeError):  # a fraction for whole numbers
            where.check(alphabets)
            asked.append(where)
    assert len(asked) > 100
    frame = spark.read.schema(tables.SEGMENT_DDL).parquet(str(tmp_path))
    columns = ["coalesce(%s, false) AS w%d" % (where.sql(alphabets), i) for i, where in enumerate(asked)]
    answers = {row["xi"]: row[1:] for row in frame.selectExpr("xi", *columns).collect()}
    for one in tables.plain(table):
        for where, said in zip(asked, answers[one["xi"]], strict=True):
            assert (where.judge(row_box(one), one["alphabet"]) is True) == said, (where.text, one)


def of(report: dict[str, Any], stream: str = "cardio/ecg") -> dict[str, Any]:
    (one,) = [s for s in report["streams"] if s["stream"] == stream]
    return dict(one)


def today(site: Site) -> str:
    declared: datetime = site.table("erasures")[0]["declared"]
    return declared.strftime("%Y-%m-%d %H:%M")


def wait(for_it: Any, wait_s: float = 120) -> None:
    until = time.monotonic() + wait_s
    while not for_it():
        assert time.monotonic() < until
        time.sleep(0.1)
