"""The sink on a real Spark: every row once, whatever comes into the landing zone and whenever it dies.

A death here is an exception at a named point, after which nothing of that sink runs; real kills are
elsewhere.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from site_lake import Site, dies, gap, hole, plain, quarantined

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REACHED = ("received", "appending", "appended", "quarantined", "recorded", "progressed", "acknowledged")


@pytest.fixture
def site(spark: SparkSession, tmp_path: Path) -> Iterator[Site]:
    yield Site(spark, tmp_path)


def test_rows_land_once_and_are_acknowledged_when_they_can_be_queried(site: Site) -> None:
    from headwater_cloud import views

    site.put(1, 50, gaps=[hole(11, 12), gap(21, 30)])
    site.put(51, 60, alphabet="n:i32 w:u64 f:f32")
    site.put(101, 110)
    site.put(1, 5, stream="cardio/rate")
    with site.sink() as sink:
        report = sink.run(once=True)
        assert sink._metrics.registry.get_sample_value("headwater_sink_rows_total", {"fate": "kept"}) == 63
    assert (report.rows_kept, report.rows_duplicate, report.unreadable) == (63, 0, 0)
    assert site.numbers() == plain(1, 10) + plain(13, 20) + plain(31, 60) + plain(101, 110)
    assert site.high() == (60, [[101, 110]])
    assert site.high("cardio/rate") == (5, [])
    assert site.ack()["generation"] == 0
    gaps = [(g["first"], g["last"], g["kind"], g["reason"], g["from_ts"] is None) for g in site.table("gaps")]
    assert sorted(gaps) == [(11, 12, "hole", "restart", False), (21, 30, "gap", "full", True)]
    streams = [(s["stream"], s["version"], s["alphabet"], s["within_ms"]) for s in site.table("streams")]
    assert sorted(streams) == [
        ("cardio/ecg", 1, "n:i32 w:u64", 5000),
        ("cardio/ecg", 1, "n:i32 w:u64 f:f32", 5000),
        ("cardio/rate", 1, "n:i32 w:u64", 5000),
    ]
    version = views.Version(1, ("n:i32 w:u64", "n:i32 w:u64 f:f32"))
    sql = views.view_sql("delta.`%s`" % (site.lake / "elements"), "cardio/ecg", version)
    frame = site.spark.sql(sql + " ORDER BY xi")
    assert [kind for _, kind in frame.dtypes[6:]] == ["int", "decimal(20,0)", "float"]
    rows = [(r["xi"], r["n"], int(r["w"]), r["f"]) for r in frame.where("xi IN (50, 51)").collect()]
    assert rows == [(50, 50, (1 << 64) - 50, None), (51, 51, (1 << 64) - 51, 25.5)]


@pytest.mark.parametrize("absorbed", (False, True))
def test_what_is_acknowledged_lies_on_the_disk_before(
    site: Site, monkeypatch: pytest.MonkeyPatch, absorbed: bool
) -> None:
    from headwater_cloud import location

    order: list[Path] = []
    true_sync = location._sync

    def sync(path: Path) -> None:
        order.append(path)
        true_sync(path)

    monkeypatch.setattr(location, "_sync", sync)
    whole = site.put(1, 50, gaps=[hole(11, 12)])
    shutil.copy(whole, site.landing / whole.name.replace("~1-50~48~", "~1-49~47~"))
    if absorbed:
        dies(site, monkeypatch, "appended")
        shutil.rmtree(site.lake / "checkpoint")
        order.clear()
    made = set(site.lake.rglob("*"))
    with site.sink() as sink:
        made = made if absorbed else set(site.lake.rglob("*"))
        sink.run(once=True)
    before = order[: order.index(site.lake / "acks" / "cardio.json")]
    for name in ("elements", "gaps", "quarantine", "streams", "progress"):
        data = {Path(uri) for uri in DeltaTable(str(site.lake / name)).file_uris()}
        log = set((site.lake / name / "_delta_log").glob("*.json")) - (set() if name == "elements" else made)
        log -= {site.lake / "elements" / "_delta_log" / ("%020d.json" % 0)}
        assert data and log
        assert data | log <= set(before)
        assert {site.lake / name, site.lake / name / "_delta_log"} <= set(before)


def test_whatever_comes_twice_or_damaged_changes_nothing(site: Site) -> None:
    whole = site.put(1, 100)
    site.run()
    site.put(41, 140)  # overlaps what is there
    site.put(141, 160)
    site.put(151, 170)  # overlaps another file of the same batch
    site.put(1, 30, cut=1)  # known, under another name
    site.put(1, 3, incarnation=8)  # begins at 1 again
    shutil.copy(whole, site.landing / "copy.parquet")
    data = bytearray(whole.read_bytes())
    short = site.landing / whole.name.replace("~1-100~100~", "~1-99~99~")
    short.write_bytes(data[:-100])
    data[200] ^= 4
    flipped = site.landing / whole.name.replace("~1-100~100~", "~1-98~98~")
    flipped.write_bytes(data)
    lying = site.landing / whole.name.replace("~1-100~100~", "~1-97~97~")
    shutil.copy(whole, lying)
    report = site.run()
    assert site.numbers() == plain(1, 170)
    assert site.numbers(incarnation=8) == plain(1, 3)
    assert site.high() == (170, [])
    assert (report.rows_kept, report.rows_duplicate, report.rows_quarantined) == (73, 60 + 10 + 30, 0)
    assert site.counts() == {"landed": 270, "kept": 170, "duplicate": 100, "quarantined": 0}
    assert quarantined(site) == sorted(
        [
            ("name", None, None, None, "copy.parquet"),
            ("crc", 1, 99, 99, short.name),
            ("crc", 1, 98, 98, flipped.name),
            ("disagrees", 1, 97, 97, lying.name),
        ]
    )
    raw = {row["file"]: row["raw"] for row in site.table("quarantine")}
    assert raw[flipped.name] == bytes(data)
    assert sorted(site.ack()["unreadable"]) == sorted([short.name, flipped.name, lying.name])


@pytest.mark.parametrize("predicates", (100, 1))
def test_a_known_row_with_another_payload_is_divergent(
    site: Site, monkeypatch: pytest.MonkeyPatch, predicates: int
) -> None:
    from headwater_cloud import compare

    monkeypatch.setattr(compare, "PREDICATES_MAX", predicates)  # fewer than are needed: a coarse filter
    site.put(1, 20, gaps=[hole(5, 5)])
    site.put(1, 9, incarnation=-(1 << 63))
    site.run()
    site.put(1, 9, incarnation=-(1 << 63), cut=1)  # the same once more
    other = site.put(1, 30, change=1)  # rows 1 to 4 and 6 to 20 differ, and 5 was a hole
    site.run()
    site.put(6, 8, gaps=[hole(7, 7)])  # 7 is a row
    report = site.run()
    assert site.numbers() == plain(1, 4) + plain(6, 20) + [(xi, xi + 1) for xi in range(21, 31)]
    assert (report.rows_kept, report.rows_duplicate, report.rows_quarantined) == (0, 2, 0)
    assert site.counts() == {"landed": 51, "kept": 29, "duplicate": 2, "quarantined": 20}
    again = site.counts(incarnation=-(1 << 63))
    assert again == {"landed": 18, "kept": 9, "duplicate": 9, "quarantined": 0}
    rows = [r for r in quarantined(site) if r[4] == other.name]
    assert rows == [("divergent", xi, xi, 1, other.name) for xi in range(1, 21)]
    assert [r[1:4] for r in quarantined(site) if r[4] != other.name] == [(7, 7, 0)]
    raw = next(r["raw"] for r in site.table("quarantine") if r["first"] == 6)
    assert b'"xi":6' in raw and b'"ints":[7,-6]' in raw


def test_what_is_brought_back_from_quarantine_lands(site: Site) -> None:
    from headwater_cloud.location import Location
    from headwater_cloud.requeue import entries, requeue

    site.put(1, 40, gaps=[gap(11, 12)]).rename(site.landing / "renamed by hand.parquet")
    site.put(41, 45)
    site.run()
    assert site.numbers() == plain(41, 45)
    lake, landing = Location.of(site.lake), Location.of(site.landing)
    (outcome,) = requeue(lake, landing, [entry.id for entry in entries(lake)])
    assert (outcome.rows, outcome.why) == (38, "")
    site.run()
    assert site.numbers() == plain(1, 10) + plain(13, 45)
    site.put(1, 20, change=1)  # rows 1 to 10 and 13 to 20 are divergent
    site.run()
    site.spark.sql("RESTORE delta.`%s` TO VERSION AS OF 1" % (site.lake / "elements"))
    for path in site.landing.glob("*.parquet"):
        path.unlink()  # the gateway has removed what was acknowledged
    divergent = [entry.id for entry in entries(lake) if entry.reason == "divergent"]
    (outcome,) = requeue(lake, landing, divergent)
    assert (outcome.rows, outcome.why) == (18, "")
    site.run()
    assert site.numbers() == [(xi, xi + 1) for xi in (*range(1, 11), *range(13, 21))] + plain(41, 45)


@pytest.mark.parametrize("point", ("appended", "recorded", "progressed"))
def test_a_move_lands_once_wherever_the_sink_dies(
    site: Site, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    from headwater_cloud.segment import Move

    fled = Move("fir", 2, "hip", "wrist", "flee", 1_700_000_000_000_000)
    taken = Move("fir", 3, "wrist", "gateway", "takeover", 1_700_000_600_000_000)
    site.put(1, 20, moves=[fled])
    dies(site, monkeypatch, point)
    site.put(21, 40, moves=[fled, taken])
    site.put(21, 40, moves=[fled, taken], cut=1)
    site.put(1, 5, stream="cardio/rate", moves=[taken])
    site.run()
    found = [
        (m["stream"], m["epoch"], m["from_host"], m["to_host"], m["reason"]) for m in site.table("moves")
    ]
    assert sorted(found) == [
        ("cardio/ecg", 2, "hip", "wrist", "flee"),
        ("cardio/ecg", 3, "wrist", "gateway", "takeover"),
        ("cardio/rate", 3, "wrist", "gateway", "takeover"),
    ]
    assert site.numbers() == plain(1, 40)


def test_a_row_enters_where_a_gap_was_declared(site: Site) -> None:
    site.put(1, 20, gaps=[gap(5, 9)])
    site.run()
    assert site.high() == (20, [])
    site.put(3, 8)
    site.run()
    assert site.numbers() == plain(1, 8) + plain(10, 20)
    (row,) = site.table("progress")
    assert row["gaps"] == [{"first": 9, "last": 9}]


def test_a_lake_that_no_local_disk_holds_works_alike(site: Site) -> None:
    from headwater_cloud.location import Location
    from headwater_cloud.sink import Sink

    # As on an object store: Hadoop's file systems, a lease, nothing that Python sees as a path of its own.
    landing, lake = Location(site.landing.as_uri(), None), Location(site.lake.as_uri(), None)
    site.put(1, 20, gaps=[gap(5, 6)])
    (site.landing / "rubbish").write_bytes(b"rubbish")
    with Sink(site.spark, landing, lake, say=site.said.append) as sink:
        sink.run(once=True)
    site.put(11, 30)
    with Sink(site.spark, landing, lake, say=site.said.append) as sink:
        report = sink.run(once=True)
    assert (report.rows_kept, report.rows_duplicate) == (10, 10)
    assert site.numbers() == plain(1, 4) + plain(7, 30)
    assert site.high() == (30, [])
    assert site.ack()["generation"] == 2


@pytest.mark.parametrize("point", REACHED)
def test_a_sink_that_died_anywhere_goes_on_as_if_it_had_not(
    site: Site, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    site.put(1, 20)
    site.run()
    site.put(21, 40, gaps=[gap(31, 32)])
    other = site.put(11, 20, change=1)
    (site.landing / "rubbish").write_bytes(b"rubbish")
    dies(site, monkeypatch, point)
    before = site.high()
    assert before == ((40, []) if point == "acknowledged" else (20, []))
    site.run()
    site.put(41, 50)
    site.run()
    assert site.numbers() == plain(1, 30) + plain(33, 50)
    assert site.high() == (50, [])
    assert site.counts() == {"landed": 58, "kept": 48, "duplicate": 0, "quarantined": 10}
    assert [(g["first"], g["last"]) for g in site.table("gaps")] == [(31, 32)]
    want = [("divergent", xi, xi, 1, other.name) for xi in range(11, 21)]
    assert quarantined(site) == [*want, ("name", None, None, None, "rubbish")]
    assert site.ack()["generation"] == 0


@pytest.mark.parametrize(("point", "lost"), [("progressed", ("1", ".1.crc")), ("appended", ("1",))])
def test_newest_offsets_lost_while_new_files_wait_loses_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch, point: str, lost: tuple[str, ...]
) -> None:
    site.put(1, 20)
    site.run()
    site.put(21, 40)
    dies(site, monkeypatch, point)
    for name in lost:
        (site.lake / "checkpoint" / "offsets" / name).unlink()
    site.put(41, 60)
    site.run()
    assert site.numbers() == plain(1, 60)
    assert site.high() == (60, [])
    assert site.ack()["generation"] == 1


def test_a_lost_checkpoint_loses_nothing_and_doubles_nothing(site: Site) -> None:
    site.put(1, 20)
    site.run()
    site.put(21, 40)
    site.run()
    shutil.rmtree(site.lake / "checkpoint")
    site.put(41, 60)
    report = site.run()
    assert site.numbers() == plain(1, 60)
    assert (report.rows_kept, report.rows_duplicate) == (20, 40)
    site.put(61, 70)
    site.run()
    assert site.numbers() == plain(1, 70)


def test_rows_whose_files_are_gone_when_the_batch_is_replayed_are_known(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.put(1, 20)
    site.run()
    gone = site.put(21, 40)
    dies(site, monkeypatch, "appended")
    gone.unlink()
    site.run()
    site.put(31, 60, cut=1)
    site.run()
    assert site.numbers() == plain(1, 60)
    assert site.high() == (60, [])


@pytest.mark.parametrize("point", ("received", "appending"))
def test_a_file_that_goes_after_it_was_listed_costs_another_try_at_most(
    site: Site, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    from headwater_cloud import crash_points

    site.put(1, 20)
    gone = site.put(21, 40)

    def reach(name: str) -> None:
        if name == point and gone.exists():
            gone.unlink()
            site.put(21, 40, cut=1)

    monkeypatch.setattr(crash_points, "reach", reach)
    site.run()
    assert bool([line for line in site.said if "retrying" in line]) == (point == "appending")
    site.run()
    assert site.numbers() == plain(1, 40)
    assert site.high() == (40, [])


def test_a_store_that_does_not_answer_for_a_while_is_waited_for(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater_cloud import patience, sink
    from headwater_cloud.errors import LakeFailed

    monkeypatch.setattr(patience, "FIRST_S", 0.01)
    left = 9

    def no_answer(*arguments: Any, **more: Any) -> Any:
        nonlocal left
        left -= 1
        if left > 0:
            raise OSError("503 Slow Down")
        monkeypatch.undo()
        return true_write(*arguments, **more)

    site.put(1, 20)
    true_write = sink.Sink._write
    with monkeypatch.context() as patch:
        patch.setattr(sink.Sink, "_write", no_answer)
        with pytest.raises(LakeFailed, match="a batch failed: 503 Slow Down"):
            site.run(patience_s=0)
    left = 5
    monkeypatch.setattr(sink.Sink, "_write", no_answer)
    site.run()
    told = [line for line in site.said if "trying again in 0 s, giving up after" in line]
    assert len(told) == 2 and all("503 Slow Down" in line for line in told)
    assert site.numbers() == plain(1, 20) and site.table("quarantine") == []


def test_a_lake_taken_back_to_an_older_version_takes_again_what_still_waits(site: Site) -> None:
    from delta.tables import DeltaTable as SparkTable

    site.put(1, 20)
    site.run()
    site.put(21, 40)
    site.run()
    SparkTable.forPath(site.spark, str(site.lake / "elements")).restoreToVersion(1)
    assert site.numbers() == plain(1, 20)
    site.put(41, 60)
    site.run()
    assert site.numbers() == plain(1, 60)
    assert site.high() == (60, [])
    assert site.ack()["generation"] == 1


def test_progress_that_was_lost_is_made_again_from_the_rows(site: Site) -> None:
    site.put(1, 20, gaps=[hole(5, 5), gap(8, 9)])
    site.run()
    shutil.rmtree(site.lake / "progress")
    site.put(15, 30)
    site.run()
    assert site.numbers() == plain(1, 4) + plain(6, 7) + plain(10, 30)
    assert site.high() == (30, [])
    (row,) = site.table("progress")
    assert (row["gaps"], row["processes"]) == ([{"first": 8, "last": 9}], ["cardio"])


def test_progress_that_was_taken_back_knows_the_gaps_of_the_batches_that_it_forgot(site: Site) -> None:
    site.put(1, 20)
    site.run()
    site.put(21, 40, gaps=[hole(25, 25), gap(28, 29)])
    with site.sink() as sink:
        before = DeltaTable(str(site.lake / "progress")).version()
        sink.run(once=True)
    log = site.lake / "progress" / "_delta_log"
    for path in [*log.glob("*.json"), *log.glob("*.checkpoint.parquet"), log / "_last_checkpoint"]:
        if not path.name[:20].isdigit() or int(path.name[:20]) > before:
            path.unlink(missing_ok=True)
    (site.lake / "acks" / "cardio.json").unlink()
    site.put(41, 50)
    site.run()
    assert site.numbers() == plain(1, 24) + plain(26, 27) + plain(30, 50)
    assert site.high() == (50, [])
    (row,) = site.table("progress")
    assert row["gaps"] == [{"first": 28, "last": 29}]


def test_late_files_and_moved_clocks_lose_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.put(21, 40)
    site.run()
    late = site.put(1, 20)
    week_ago = time.time() - 8 * 86_400
    os.utime(late, (week_ago, week_ago))
    true_time_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: true_time_ns() - 3600 * 10**9)
    site.run()
    assert site.numbers() == plain(1, 40)
    assert site.high() == (40, [])


def test_an_incompatible_alphabet_is_a_new_version_of_the_stream(site: Site) -> None:
    site.put(1, 5)
    site.put(6, 9, alphabet="n:f64")
    site.run()
    known = [(s["version"], s["alphabet"]) for s in site.table("streams")]
    assert known == [(1, "n:i32 w:u64"), (2, "n:f64")]
    assert len(site.table("elements")) == 9


def test_a_second_sink_says_who_has_the_lake_and_stops(site: Site) -> None:
    from headwater_cloud.errors import LakeLocked

    with site.sink():
        with pytest.raises(LakeLocked, match=r"in use by tests, process %d on" % os.getpid()):
            site.run()
    site.run()


def test_a_sink_that_was_believed_dead_writes_nothing_when_it_wakes(site: Site) -> None:
    from headwater_cloud import lock
    from headwater_cloud.errors import Fenced
    from headwater_cloud.sink import Settings

    shared = Settings(shared=True)
    site.put(1, 20)
    sleeper = site.sink(shared)
    sleeper.open()
    sleeper.run(once=True)
    sleeper._lock._stop.set()  # asleep: it renews nothing
    sleeper._lock._renewer.join()
    held = sleeper._lock._newest()
    sleeper._lock._write(-1.0)  # the lease has run out
    with site.sink(shared) as successor:
        site.put(21, 40)
        # Awake again, and in the middle of a batch, past the look at the lease.
        sleeper._lock.check = lambda: None
        with pytest.raises(Fenced):
            sleeper.progress.save()
        elements = len(site.table("elements"))
        sleeper.progress = type(sleeper.progress).load(sleeper.lake)
        sleeper.progress.generation -= 1
        del sleeper._lock.check
        with pytest.raises(Fenced, match="taken over by tests"):
            sleeper._append(site.spark, {}, 9, 9, 0)
        assert len(site.table("elements")) == elements
        successor.run(once=True)
    assert held is not None and isinstance(successor._lock, lock.Lease)
    assert site.numbers() == plain(1, 40)
    assert site.high() == (40, [])


def test_maintenance_beside_a_sink_is_done_by_it_when_asked(site: Site) -> None:
    from headwater_cloud import maintenance
    from headwater_cloud.files import Files
    from headwater_cloud.location import Location

    for i in range(3):
        site.put(10 * i + 1, 10 * i + 10)
        site.run()
    files, lake = Files(site.spark), Location.of(site.lake)
    name = maintenance.request(files, lake, 0)
    site.put(31, 40)
    report = site.run()
    done = maintenance.answer(files, lake, name, wait_s=0.1)
    assert report.maintained == [done]
    assert done["files_before"] > done["files_after"] == 1
    assert len(list((site.lake / "elements").glob("*.parquet"))) == 1
    site.put(41, 50)
    site.run()
    assert site.numbers() == plain(1, 50)
    assert site.ack()["generation"] == 0


def test_a_sink_that_serves_begins_a_new_checkpoint_when_it_has_grown(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater_cloud import seen_files
    from headwater_cloud.sink import Settings

    monkeypatch.setattr(seen_files, "BYTES_MAX", 1000)  # the names of a few files
    monkeypatch.setattr(seen_files, "EVERY_S", 0.5)
    made: list[Path] = []
    with site.sink(Settings(trigger_s=0.2)) as sink:
        thread = threading.Thread(target=sink.run, args=(False,))
        thread.start()
        until = time.monotonic() + 200
        while time.monotonic() < until and (sink.progress.generation < 2 or len(made) < 10):
            made.append(site.put(20 * len(made) + 1, 20 * len(made) + 20))
            while time.monotonic() < until and site.acknowledged() < 20 * len(made):
                time.sleep(0.1)
            made[-1].unlink()  # as a gateway does
        sink.stop()
        thread.join(100)
    assert not thread.is_alive()
    assert site.numbers() == plain(1, 20 * len(made))
    assert sum(path.stat().st_size for path in (site.lake / "checkpoint" / "sources" / "0").iterdir()) < 4000
    assert [line for line in site.said if "has the names of too many files" in line]


def test_a_sink_gives_signs_of_life_that_a_gateway_understands(site: Site) -> None:
    from headwater_cloud.sink import Settings
    from headwater_gateway.monitoring.sink_watch import Sign

    places = [site.lake / "acks" / "_sink.json", site.landing / "_sink.json"]
    site.put(1, 20)
    seen: list[list[Sign]] = []

    def look() -> list[Sign]:
        signs = [Sign(), Sign()]
        for sign, place in zip(signs, places, strict=True):
            sign.take(place.read_text(), 0)
        seen.append(signs)
        return signs

    with site.sink(Settings(sign_s=0.05)) as sink:
        thread = threading.Thread(target=sink.run, args=(False,))
        thread.start()
        until = time.monotonic() + 120
        while time.monotonic() < until and not all(p.exists() for p in places):
            time.sleep(0.05)
        first = look()
        while time.monotonic() < until and look()[0].content["count"] < first[0].content["count"] + 5:
            time.sleep(0.05)
        sink.stop()
        thread.join(120)
    last = look()
    assert all(sign.id == first[0].id for signs in seen for sign in signs)
    assert not first[0].stopped and last[0].stopped and last[1].stopped
    assert last[0].content["lake"] == str(site.lake)
    assert site.numbers() == plain(1, 20)
    site.run()  # its own sign in the landing zone is no segment
    assert look()[0].id != first[0].id and site.table("quarantine") == []


def test_a_sink_that_may_not_write_into_the_landing_zone_says_so_once_and_goes_on(site: Site) -> None:
    (site.landing / "_sink.json" / "in the way").mkdir(parents=True)
    site.put(1, 20)
    site.run(sign_s=0.05)
    assert site.numbers() == plain(1, 20)
    said = [text for text in site.said if "cannot see from it whether this sink lives" in text]
    assert len(said) == 1 and str(site.landing) in said[0]
