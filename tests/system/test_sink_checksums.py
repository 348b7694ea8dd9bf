"""Checksums of rows on a real Spark: what the audit sees by them, runs that come again, false
declarations."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from site_lake import Died, Site, dies, gap, hole, plain, quarantined

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY = "a:i8 b:u8 c:i16 d:u16 e:i32 f:u32 g:i64 h:u64 i:f32 j:f64"


@pytest.fixture
def site(spark: SparkSession, tmp_path: Path) -> Iterator[Site]:
    yield Site(spark, tmp_path)


def put_every(site: Site, first: int, rows: int, **more: Any) -> Path:
    """Rows with every type of field, at its bounds, with zeros of both signs and what is no number."""
    from headwater_cloud.segment import write_segment

    bounds: list[list[int | float]] = []
    for bits in (8, 16, 32, 64):
        bounds.append([-(1 << bits - 1), (1 << bits - 1) - 1, 0, -1])
        bounds.append([0, (1 << bits) - 1, 1, 1 << bits - 1])
    bounds.append([0.0, -0.0, math.inf, 1.5])
    bounds.append([-0.0, math.nan, 5e-324, -1e308])
    run = range(first, first + rows)
    values = [[column[(xi * 7 + k) % 4] for xi in run] for k, column in enumerate(bounds)]
    times = [(xi << 40) - (1 << 45) for xi in run]
    return write_segment(site.landing, "cardio", "cardio/all", 7, first, EVERY, times, values, **more)


def declaring(site: Site, path: Path, checksum: str | None) -> Path:
    """The same segment with another checksum in its footer, or without one."""
    import zlib

    import pyarrow.parquet as pq
    from headwater_cloud import segment

    table = pq.read_table(path)
    said = json.loads(table.schema.metadata[b"headwater"])
    said.pop("sum")
    data = segment.encode(table, said if checksum is None else {**said, "sum": checksum})
    path.unlink()
    return segment.place(site.landing, path.name.rsplit("~", 1)[0] + "~%08x.parquet" % zlib.crc32(data), data)


def audited(site: Site) -> dict[str, Any]:
    from headwater_cloud.audit import as_json, audit

    return as_json(audit(str(site.lake)))


def test_a_payload_that_was_changed_in_the_lake_is_seen(site: Site) -> None:
    """The checksums of writer, Spark and audit agree on every type of field, however rows came."""
    put_every(site, 1, 50)
    put_every(site, 31, 50, cut=1)  # 51 to 80 are new
    site.run()
    put_every(site, 101, 50)
    put_every(site, 71, 40)  # 81 to 100 are new
    declaring(site, put_every(site, 141, 60), None)  # 151 to 200 are new
    declaring(site, put_every(site, 301, 40), None)
    site.run()
    answer = audited(site)
    assert answer["ok"] and answer["streams"][0]["rows"] == 240
    assert (answer["changed"], answer["unproven"], answer["unaccounted"], answer["unfit"]) == (0, 0, 0, 0)
    site.spark.sql(
        "UPDATE delta.`%s` SET floats = transform(floats, x -> -x) WHERE xi = 34" % (site.lake / "elements")
    )
    assert audited(site)["changed"] == 1


def test_a_run_that_comes_again_whole_is_known_by_its_checksum(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater_cloud import compare

    site.put(1, 50, gaps=[gap(11, 12), hole(20, 20)])
    site.put(51, 100)
    site.run()
    with monkeypatch.context() as patch:
        patch.setattr(compare, "divergent", lambda *arguments: pytest.fail("rows were compared"))
        site.put(1, 50, gaps=[gap(11, 12), hole(20, 20)], cut=1)
        site.put(1, 100, gaps=[gap(11, 12), hole(20, 20)], cut=1)  # cut elsewhere
        report = site.run()
    assert (report.rows_kept, report.rows_duplicate, report.rows_quarantined) == (0, 47 + 97, 0)
    site.put(1, 50, gaps=[gap(11, 12), hole(21, 21)], cut=2)  # a row for a hole, and a hole for a row
    report = site.run()
    assert report.rows_quarantined == 1 and {r[1] for r in quarantined(site)} == {20, 21}


def test_a_run_that_comes_again_with_new_rows_is_known_by_its_checksum(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater_cloud import compare

    site.put(1, 50, gaps=[gap(11, 12), hole(20, 20)])
    site.put(51, 100)
    site.put(1, 40, stream="cardio/rate")
    site.run()
    with monkeypatch.context() as patch:
        patch.setattr(compare, "divergent", lambda *arguments: pytest.fail("rows were compared"))
        site.put(1, 120, gaps=[gap(11, 12), hole(20, 20)])
        site.put(1, 60, stream="cardio/rate")
        site.put(121, 140)
        report = site.run()
    assert (report.rows_kept, report.rows_duplicate, report.rows_quarantined) == (60, 47 + 50 + 40, 0)
    assert site.numbers() == [(xi, xi) for xi in range(1, 141) if xi not in (11, 12, 20)]
    answer = audited(site)
    assert answer["ok"] and answer["unproven"] == 0


@pytest.mark.parametrize("point", ("", "appended"))
def test_a_false_claim_is_found_whatever_comes_beside_it(
    site: Site, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Two streams with the same values and the same errors; the other files of the batch are right."""
    streams = ("cardio/ecg", "cardio/rate")
    for stream in (*streams, "cardio/third"):
        site.put(1, 50, stream=stream)
    site.run()
    for stream in streams:
        site.put(1, 80, stream=stream, change=1)
    site.put(1, 80, stream="cardio/third")
    site.put(41, 90, incarnation=8)
    if point:
        dies(site, monkeypatch, point)
    site.run()
    for stream in streams:
        assert site.numbers(stream) == plain(1, 50) + [(xi, xi + 1) for xi in range(51, 81)]
        assert site.counts(stream) == {"landed": 130, "kept": 80, "duplicate": 0, "quarantined": 50}
    assert site.counts("cardio/third") == {"landed": 130, "kept": 80, "duplicate": 50, "quarantined": 0}
    assert {(r[0], r[3]) for r in quarantined(site)} == {("divergent", 1)}
    assert len(quarantined(site)) == 100
    assert audited(site)["unproven"] == 0


def test_a_claim_beside_a_false_checksum_holds_once_the_file_at_fault_is_refused(site: Site) -> None:
    site.put(1, 50)
    site.run()
    site.put(1, 80)
    bad = declaring(site, site.put(1, 50, stream="cardio/rate"), "0123456789abcdef")
    report = site.run()
    assert (report.rows_kept, report.rows_duplicate, report.rows_quarantined) == (30, 50, 0)
    assert [(r[0], r[4]) for r in quarantined(site)] == [("sum", bad.name)]
    assert audited(site)["unproven"] == 0


def test_zeros_of_two_signs_are_two_payloads(site: Site) -> None:
    from headwater_cloud.segment import write_segment

    for value in (0.0, -0.0):
        name = write_segment(site.landing, "cardio", "cardio/t", 7, 1, "c:f64", [5], [[value]]).name
        site.run()
    assert [(r[0], r[4]) for r in quarantined(site)] == [("divergent", name)]


@pytest.mark.parametrize("killed", (None, "appended", "taken back", "refused"))
def test_a_file_whose_rows_have_not_the_checksum_declared_leaves_no_row(
    site: Site, monkeypatch: pytest.MonkeyPatch, killed: str | None
) -> None:
    from headwater_cloud.sink import Sink

    site.put(61, 80)
    site.run()
    bad = declaring(site, site.put(1, 50), "0123456789abcdef")
    site.put(51, 65, cut=1)
    if killed == "appended":
        dies(site, monkeypatch, "appended")
    elif killed is not None:
        with monkeypatch.context() as patch:
            step = "_begin_generation" if killed == "taken back" else "_refuse"

            def die(*arguments: object) -> None:
                if arguments[1]:  # `_refuse` is also called with nothing
                    raise Died

            patch.setattr(Sink, step, die)
            with pytest.raises(Died):
                site.run()
        assert {xi for xi, _ in site.numbers()} == set(range(61, 81))
    site.run()
    assert site.numbers() == plain(51, 80)
    assert quarantined(site) == [("sum", 1, 50, 50, bad.name)]
    assert site.ack()["unreadable"] == [bad.name] and site.high() == (0, [[51, 80]])
    site.put(1, 50, cut=2)  # the gateway cuts it again
    site.run()
    assert site.numbers() == plain(1, 80) and site.high() == (80, [])
    answer = audited(site)
    assert answer["ok"] and answer["unproven"] == 0 and answer["conservation"]["holds"]


def test_with_a_lease_a_sink_that_lost_its_progress_goes_on_in_a_later_generation(site: Site) -> None:
    for first in (1, 11, 21):  # each start raises the fence, and with it the generation
        site.put(first, first + 9)
        site.run(shared=True)
    before = site.ack()["generation"]
    shutil.rmtree(site.lake / "progress")
    site.put(31, 40)
    site.run(shared=True)
    assert site.numbers() == plain(1, 40)
    assert site.ack()["generation"] > before


def test_with_a_lease_rows_that_have_not_the_checksum_declared_are_kept_and_told(site: Site) -> None:
    bad = declaring(site, site.put(1, 50), "0123456789abcdef")
    site.run(shared=True)
    assert [line for line in site.said if bad.name in line and "they are kept" in line]
    answer = audited(site)
    assert site.numbers() == plain(1, 50) and answer["ok"] and answer["unproven"] == 0


@pytest.mark.parametrize("point", ("appended", "progressed"))
def test_checksums_survive_a_death_behind_the_append(
    site: Site, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    site.put(1, 50)
    dies(site, monkeypatch, point)
    if point == "appended":
        (site.lake / "checkpoint" / "offsets" / "0").unlink()  # another batch comes: its rows are absorbed
        site.put(51, 60)
    site.run()
    answer = audited(site)
    assert answer["ok"] and answer["unproven"] == 0 and answer["streams"][0]["rows"] in (50, 60)


def test_a_lake_of_an_earlier_version_goes_on_and_its_rows_count_as_unproven(site: Site) -> None:
    from deltalake import write_deltalake

    site.put(1, 50)
    site.run()
    progress = DeltaTable(str(site.lake / "progress"))
    stand = [
        Transaction("headwater." + name, progress.transaction_version("headwater." + name))
        for name in ("generation", "batch", "files", "elements")
    ]
    write_deltalake(
        progress,
        progress.to_pyarrow_table().drop_columns(["sums"]),
        mode="overwrite",
        schema_mode="overwrite",
        commit_properties=CommitProperties(app_transactions=stand),
    )
    site.put(41, 80)
    site.run()
    answer = audited(site)
    assert answer["ok"] and (answer["unproven"], answer["streams"][0]["rows"]) == (50, 80)
    report = site.run()
    assert report.rows_kept == 0
