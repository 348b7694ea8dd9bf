"""The edge of the sink's input: no file stops it, whatever wrote the file and whatever became of it.

All segments here are made by a writer that has no line of the project's code (`foreign`).
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import foreign
import pytest
from site_lake import Site, plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def site(spark: SparkSession, tmp_path: Path) -> Iterator[Site]:
    yield Site(spark, tmp_path)


def quarantined(site: Site) -> dict[str, str]:
    """Name and reason of every file in quarantine, and that each is there once."""
    rows = site.table("quarantine")
    assert len({row["file"] for row in rows}) == len(rows)
    return {row["file"]: row["reason"] for row in rows}


def test_what_no_batch_gives_is_found_refused_once_and_told_to_the_gateway(site: Site) -> None:
    foreign.put(site.landing, 1, 20)
    empty = foreign.put(site.landing, 21, 40)
    whole = empty.read_bytes()
    empty.write_bytes(b"")
    odd = ["a{b.parquet", "a[b*?.parquet", "a:b.parquet", "%zz %20+", "line\nbreak", "零.parquet", "no bytes"]
    for called in odd:
        (site.landing / called).write_bytes(b"x" * (called != "no bytes") * 100)
    no_text = os.fsencode(site.landing) + b"/cardio~cardio.ecg~\xff.parquet"
    for folder in ("a=1", "old"):
        (site.landing / folder).mkdir()
        shutil.copy(foreign.put(site.landing, 41, 45, change=3), site.landing / folder)
    with open(no_text, "wb") as file:
        file.write(b"x")
    for _ in range(2):  # the second time nothing is new
        site.run()
        assert site.numbers() == plain(1, 20) + [(xi, xi + 3) for xi in range(41, 46)]
        names = dict.fromkeys([*odd, "a=1", "old", "cardio~cardio.ecg~\\xff.parquet"], "name")
        assert quarantined(site) == {**names, empty.name: "crc"}
    raw = {row["file"]: row["raw"] for row in site.table("quarantine")}
    assert raw["a{b.parquet"] == raw["a:b.parquet"] == b"x" * 100 and raw[empty.name] == b""
    assert site.ack()["unreadable"] == [empty.name]
    assert len([line for line in site.said if line.startswith("not a segment")]) == len(names) + 1
    foreign.place(
        site.landing, foreign.segment(21, 40, said={"cut": 1})[0], foreign.segment(21, 40, said={"cut": 1})[1]
    )
    site.run()
    assert site.high() == (45, []) and len(whole) > 0


def test_a_file_that_had_no_bytes_when_it_was_read_is_cut_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater_cloud.files import Files

    true_size = Files.size

    def size(self: Any, at: Any) -> Any:
        if at.local == late:
            late.write_bytes(data)
        return true_size(self, at)

    late = foreign.put(site.landing, 1, 20)
    data = late.read_bytes()
    late.write_bytes(b"")
    # It is looked at without them; only then its bytes come.
    with monkeypatch.context() as patch:
        patch.setattr(Files, "size", size)
        site.run()
    assert quarantined(site) == {late.name: "crc"}
    assert site.ack()["unreadable"] == [late.name]
    foreign.put(site.landing, 1, 20, said={"cut": 1})
    site.run()
    assert site.numbers() == plain(1, 20)


def test_a_file_whose_bytes_cannot_be_read_is_taken_out(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from headwater_cloud.files import Files

    true_parts = Files.parts

    def parts(self: Any, at: Any, places: Any) -> Any:
        if at.local == closed:
            raise PermissionError(13, "Permission denied")
        return true_parts(self, at, places)

    foreign.put(site.landing, 1, 20)
    closed = foreign.put(site.landing, 21, 40)
    # For Spark: a sum of Hadoop's own that does not fit. For Python: as for a user who may not.
    (site.landing / ("." + closed.name + ".crc")).write_bytes(b"crc\x00\x00\x00\x02\x00" + b"\x01" * 64)
    monkeypatch.setattr(Files, "parts", parts)
    site.run()
    foreign.put(site.landing, 41, 60)
    site.run()
    assert site.numbers() == plain(1, 20) + plain(41, 60)
    assert quarantined(site) == {closed.name: "layout"}


def test_names_that_look_like_segments_and_are_not_stop_nothing(site: Site) -> None:
    foreign.put(site.landing, 1, 20)
    bad = "a~b:c~0000000000000007~1-2~2~00000000~00000000.parquet"
    (site.landing / bad).write_bytes(b"x" * 100)
    site.run()
    foreign.put(site.landing, 21, 30)
    site.run()
    assert site.numbers() == plain(1, 30)
    assert quarantined(site) == {bad: "name"}


def damaged_page(data: bytes) -> bytes:
    """Twenty bytes in the middle of the values wrong, before anybody took a CRC."""
    from headwater_cloud.footer import read

    chunk = read(foreign.footer_of(data), len(data)).groups[0].chunks["ints"]
    at = chunk.start + chunk.size // 2
    return data[:at] + bytes(byte ^ 0x5A for byte in data[at : at + 20]) + data[at + 20 :]


def test_files_that_spark_cannot_read_or_that_lie_are_taken_out_and_the_rest_lands(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater_cloud import footer

    foreign.put(site.landing, 1, 20)
    site.run()
    # As one that passes all checks of its footer would be.
    monkeypatch.setattr(footer, "ENCODINGS", range(20))
    unread = foreign.put(
        site.landing, 41, 60, use_dictionary=False, use_byte_stream_split=["ints.list.element"]
    )
    torn = foreign.put(site.landing, 61, 80, alphabet="n:i32", damage=damaged_page, use_dictionary=False)
    doubled = foreign.put(site.landing, 81, 85, xi=[81, 81, 83, 83, 85])
    same_sum = foreign.put(site.landing, 86, 90, xi=[86, 87, 87, 90, 90])
    ragged = foreign.put(
        site.landing,
        91,
        92,
        columns={"ints": foreign.pa.array([[91], [92, -92, 5]], foreign.pa.list_(foreign.pa.int64()))},
    )
    bad = [unread, torn, doubled, same_sum, ragged]
    for first in (21, 101, 111, 121):
        foreign.put(site.landing, first, first + 9)
    foreign.put(site.landing, 11, 30, said={"cut": 1})  # overlaps what is there, and a file beside it
    report = site.run()
    there = plain(1, 30) + plain(101, 130)
    assert site.numbers() == there
    assert site.high() == (30, [[101, 130]])
    reasons = {
        unread: "layout",
        torn: "layout",
        doubled: "disagrees",
        same_sum: "disagrees",
        ragged: "disagrees",
    }
    assert quarantined(site) == {path.name: why for path, why in reasons.items()}
    assert sorted(site.ack()["unreadable"]) == sorted(path.name for path in bad)
    assert [line for line in site.said if "looking for the file at fault" in line]
    assert (report.rows_kept, report.rows_duplicate, report.unreadable) == (40, 20, 5)
    site.said.clear()
    shutil.rmtree(site.lake / "checkpoint")  # all of it once more
    for first in (31, 61, 91):
        foreign.put(site.landing, first, first + 29, said={"cut": 1})
    site.run()
    assert site.numbers() == plain(1, 130)
    assert site.high() == (130, [])
    assert not [line for line in site.said if "failed" in line or "not a segment" in line]


@pytest.mark.parametrize("point", ("appending", "appended", "progressed"))
def test_a_kill_after_a_file_was_taken_out_loses_and_doubles_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    from headwater_cloud import crash_points

    class Died(Exception):
        pass

    armed = [True]

    def reach(name: str) -> None:
        if armed[0] and name == point and site.said and "at fault" in " ".join(site.said):
            armed[0] = False
            raise Died

    monkeypatch.setattr(crash_points, "reach", reach)
    foreign.put(site.landing, 1, 20)
    torn = foreign.put(site.landing, 21, 40, alphabet="n:i32", damage=damaged_page, use_dictionary=False)
    foreign.put(site.landing, 41, 60)
    with pytest.raises(Died):
        site.run()
    site.run()
    foreign.put(site.landing, 61, 80)
    site.run()
    assert site.numbers() == plain(1, 20) + plain(41, 80)
    assert site.high() == (20, [[41, 80]])
    assert quarantined(site) == {torn.name: "layout"}
    assert site.counts() == {"landed": 60, "kept": 60, "duplicate": 0, "quarantined": 0}


def test_a_commit_with_fewer_rows_than_its_batch_is_no_evidence(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater_cloud import appending

    true_rows = appending.apart.reading
    fewer = iter((True, False))

    def rows(*what: Any) -> Any:
        all_rows = true_rows(*what)
        return all_rows.where("xi <> 7") if next(fewer, False) else all_rows

    monkeypatch.setattr(appending.apart, "reading", rows)
    foreign.put(site.landing, 1, 20)
    site.run()
    assert site.numbers() == plain(1, 20)
    assert site.high() == (20, [])


def test_a_landing_zone_may_have_characters_of_patterns_in_its_path(
    spark: SparkSession, tmp_path: Path
) -> None:
    site = Site(spark, tmp_path)
    site.landing = tmp_path / "a=1" / "x{y [z]*?"
    site.landing.mkdir(parents=True)
    foreign.put(site.landing, 1, 20)
    site.run()
    foreign.put(site.landing, 11, 30, said={"cut": 1})
    site.run()
    assert site.numbers() == plain(1, 30)


def test_values_that_tables_cannot_hold_are_refused_before_they_are_in_one(site: Site) -> None:
    year_10000 = 253_402_300_800_000_000
    foreign.put(site.landing, 1, 20)
    times = foreign.pa.array([year_10000] * 10, foreign.TIME)
    hole = [26, 26, "hole", "restart", 5, 1 << 62]
    bad = [
        foreign.put(site.landing, 21, 30, columns={"ts": times}),
        foreign.put(site.landing, 21, 30, columns={"arrived": times}),
        foreign.put(site.landing, 21, 30, columns={"ts": foreign.pa.array([-(1 << 62)] * 10, foreign.TIME)}),
        foreign.put(site.landing, 21, 30, said={"within_ms": 1 << 31}),
        foreign.put(site.landing, 21, 30, gaps=[hole]),
        foreign.put(site.landing, 21, 30, gaps=[[21, 30, "gap", "\ud800", None, None]]),
        foreign.put(site.landing, 21, 30, gaps=[[21, 30, "gap", "x" * 1001, None, None]]),
        foreign.put(
            site.landing, 21, 30, gaps=[[21, 30, "gap", "full", None, None]], said={"process": "\ud800"}
        ),
    ]
    site.run()
    foreign.put(site.landing, 21, 30, said={"within_ms": (1 << 31) - 1})
    site.run()
    assert site.numbers() == plain(1, 30)
    assert set(quarantined(site)) == {path.name for path in bad}


def test_a_lake_that_holds_impossible_times_is_read_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater_cloud import segment
    from headwater_cloud.audit import as_json, audit

    far = (1 << 63) - 1
    for at in ("TIME_MAX", "TIME_MIN"):
        monkeypatch.setattr(segment, at, far if at == "TIME_MAX" else -far)
    times = foreign.pa.array([253_402_300_800_000_000 + xi for xi in range(20)], foreign.TIME)
    foreign.put(site.landing, 1, 20, columns={"ts": times})
    foreign.put(site.landing, 21, 30, gaps=[[26, 26, "hole", "restart", 5, 1 << 62]])
    site.run()
    monkeypatch.undo()
    foreign.put(site.landing, 31, 40)
    site.run()
    shutil.rmtree(site.lake / "progress")
    foreign.put(site.landing, 41, 50)
    site.run()
    assert site.high() == (50, [])
    (stream,) = as_json(audit(str(site.lake)))["streams"]
    assert (stream["delivered"], stream["holes"], stream["lost"]) == (49, 1, 0)


def test_a_serving_sink_outlives_files_that_come_and_go_and_a_housekeeping_that_fails(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater_cloud import maintenance, sink
    from headwater_cloud.files import Files
    from headwater_cloud.location import Location

    monkeypatch.setattr(sink, "LOOK_S", 0.0)
    monkeypatch.setattr(sink, "WATCH_S", 0.02)
    looks: list[int] = []
    true_look = sink.Sink._look

    def look(self: Any) -> None:
        looks.append(1)
        true_look(self)
        if len(looks) == 5:
            raise OSError("the store did not answer")

    monkeypatch.setattr(sink.Sink, "_look", look)
    over = threading.Event()

    def come_and_go() -> None:
        at = 0
        while not over.is_set():
            at += 1
            path = site.landing / ("stray %d" % (at % 50))
            path.unlink() if path.exists() else path.write_bytes(b"")

    thread = threading.Thread(target=come_and_go)
    failed: list[str] = []
    monkeypatch.setattr(maintenance, "maintain", lambda *_: failed.append("once") or 1 / 0)
    with site.sink(sink.Settings(trigger_s=0.2)) as running:
        files, lake = Files(site.spark), Location.of(site.lake)
        serving = threading.Thread(target=running.run, args=(False,))
        thread.start()
        serving.start()
        asked = maintenance.request(files, lake, 0)
        until = time.monotonic() + 120
        for first in (1, 11, 21):
            foreign.put(site.landing, first, first + 9)
            while time.monotonic() < until and (
                running.progress.numberings.get(("cardio/ecg", 7)) is None
                or running.progress.numberings["cardio/ecg", 7].known[-1][1] < first + 9
            ):
                time.sleep(0.05)
        while time.monotonic() < until and (len(looks) < 100 or not failed):
            time.sleep(0.05)
        with pytest.raises(sink.LakeError, match="could not maintain it: division by zero"):
            maintenance.answer(files, lake, asked, 60)
        over.set()
        running.stop()
        serving.join(120)
        thread.join()
    assert not serving.is_alive() and len(looks) >= 100
    assert [line for line in site.said if "the store did not answer" in line]
    assert site.numbers() == plain(1, 30)
