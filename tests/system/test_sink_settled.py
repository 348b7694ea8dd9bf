"""Numberings that a real sink settled: a late segment of one is judged exactly, whatever was lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from site_lake import Site, gap, hole, plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLD = 7  # the incarnation that is settled
NEW = 8


class Died(Exception):
    """What a kill does to a sink, without killing the tests."""


@pytest.fixture
def site(spark: SparkSession, tmp_path: Path) -> Iterator[Site]:
    made = Site(spark, tmp_path)
    made.put(1, 40, gaps=[hole(5, 5), gap(8, 9)])
    made.run()
    made.put(1, 20, incarnation=NEW)
    yield made


def dies(site: Site, monkeypatch: pytest.MonkeyPatch, point: str, settle_s: float) -> None:
    from headwater_cloud import crash_points

    def reach(name: str) -> None:
        if name == point:
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(crash_points, "reach", reach)
        with pytest.raises(Died):
            site.run(settle_s=settle_s)


def told(site: Site) -> dict[str, int]:
    """What the second file of the process says."""
    said = json.loads((site.lake / "acks" / "_settled.cardio.json").read_text())
    marks: dict[str, int] = said["streams"]["cardio/ecg"]
    return marks


def where(site: Site) -> tuple[set[int], set[int]]:
    """The incarnations of `progress` and of `settled`."""
    active, settled = ({row["incarnation"] for row in site.table(name)} for name in ("progress", "settled"))
    return active, settled


def audited(site: Site) -> dict[str, Any]:
    from headwater_cloud.audit import as_json, audit

    return as_json(audit(str(site.lake)))


def late(site: Site) -> None:
    """A late segment of the old incarnation: 30 is known, 31 to 60 are partly new; another row for 11."""
    other = site.put(11, 11, change=1)
    site.put(30, 60, cut=1)
    site.run()
    assert site.numbers() == plain(1, 4) + plain(6, 7) + plain(10, 60)
    assert site.high() == (60, [])
    assert [(row["file"], row["first"]) for row in site.table("quarantine")] == [(other.name, 11)]
    (there,) = [row for row in site.table("progress") if row["incarnation"] == OLD]
    assert (there["gaps"], there["rows_kept"]) == ([{"first": 8, "last": 9}], 57)
    answer = audited(site)
    conserved = answer["conservation"]["holds"]
    assert conserved and answer["unproven"] == 0 and answer["acknowledged_beyond"] == 0
    assert answer["lost"] == 0 and answer["tables_missing"] == []


def test_a_late_segment_of_a_settled_stream_is_judged_exactly(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies(site, monkeypatch, "settled", 0)
    assert where(site) == ({OLD}, {OLD})
    site.run(settle_s=0)
    assert where(site) == ({NEW}, {OLD})
    assert told(site) == {"%016x" % OLD: 40}
    assert list(site.ack()["streams"]["cardio/ecg"]) == ["%016x" % NEW]
    assert audited(site)["ok"]
    late(site)
    site.run(settle_s=0)
    assert where(site) == (set(), {OLD, NEW})
    assert told(site) == {"%016x" % OLD: 60, "%016x" % NEW: 20}


def lose_progress_and_acknowledgements(site: Site, before: int) -> None:
    shutil.rmtree(site.lake / "progress")
    shutil.rmtree(site.lake / "acks")


def lose_settled(site: Site, before: int) -> None:
    shutil.rmtree(site.lake / "settled")


def take_progress_back(site: Site, before: int) -> None:
    """As it was when the old incarnation was not settled yet; without what has landed since."""
    log = site.lake / "progress" / "_delta_log"
    for path in [*log.glob("*.json"), *log.glob("*.checkpoint.parquet"), log / "_last_checkpoint"]:
        if not path.name[:20].isdigit() or int(path.name[:20]) > before:
            path.unlink(missing_ok=True)


LOSSES = (lose_progress_and_acknowledgements, lose_settled, take_progress_back)


@pytest.mark.parametrize("lose", LOSSES, ids=[loss.__name__ for loss in LOSSES])
def test_whatever_is_lost_of_both_tables_is_found_again(
    site: Site, lose: Callable[[Site, int], None]
) -> None:
    before = DeltaTable(str(site.lake / "progress")).version()
    site.run(settle_s=0)
    assert where(site) == ({NEW}, {OLD})
    lose(site, before)
    late(site)
    assert site.high(incarnation=NEW) == (20, [])


def test_a_lake_that_was_taken_back_forgets_what_was_settled_since(site: Site) -> None:
    from delta.tables import DeltaTable as SparkTable

    site.run(settle_s=0)
    SparkTable.forPath(site.spark, str(site.lake / "elements")).restoreToVersion(0)
    site.put(1, 60, cut=1)
    site.run()
    assert site.numbers() == plain(1, 4) + plain(6, 60)
    assert where(site)[1] == set()
    assert not (site.lake / "acks" / "_settled.cardio.json").exists()


def test_rows_that_landed_of_a_settled_stream_before_a_kill_are_counted(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.run(settle_s=0)
    for path in site.landing.glob("*.parquet"):
        path.unlink()
    gone = site.put(35, 50, cut=1)
    dies(site, monkeypatch, "recorded", 86_400)
    gone.unlink()
    shutil.rmtree(site.lake / "checkpoint")
    site.put(1, 5, stream="cardio/other")
    site.run()
    assert site.high() == (50, [])
    assert site.counts() == {"landed": 47, "kept": 47, "duplicate": 0, "quarantined": 0}
    assert audited(site)["conservation"]["holds"] and audited(site)["unproven"] == 0
