"""The Delta log of a table is kept short, and whatever is kept of it can be read."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from headwater_cloud import log_retention
from headwater_cloud.location import Location
from headwater_cloud.log_retention import DAY_S, HOUR_S, shorten

EVERY_S = 1200.0  # between two commits
EVERY = 5  # commits between two checkpoints
NEWEST = 200


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with a row a commit, and the checksums that Delta and Hadoop add."""
    folder = tmp_path_factory.mktemp("whole")
    # delta-rs would add checkpoints of its own, one in a hundred commits.
    own = {"delta.checkpointInterval": str(10 * NEWEST)}
    table = DeltaTable.create(folder, pa.schema([("a", pa.int64())]), configuration=own)
    for i in range(NEWEST + 1):
        if i:
            write_deltalake(table, pa.table({"a": [i]}), mode="append")
        if i % EVERY == 0:
            table.create_checkpoint()
            checkpoint = folder / "_delta_log" / ("%020d.checkpoint.parquet" % i)
            # As Spark writes it.
            pq.write_table(pq.read_table(checkpoint), checkpoint, write_page_checksum=True)
        for name in ("%020d.crc", ".%020d.json.crc", ".%020d.crc.crc"):
            (folder / "_delta_log" / (name % i)).write_text("a checksum")
    return folder


@pytest.fixture
def table(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Location:
    """That table, its commits made over almost three days."""
    monkeypatch.setattr(log_retention, "COMMITS_MIN", 20)
    monkeypatch.setattr(log_retention, "CHECKSUMS", 10)
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    log = tmp_path / "_delta_log"
    for i in range(NEWEST + 1):
        when = time.time() - (NEWEST - i) * EVERY_S
        os.utime(log / ("%020d.json" % i), (when, when))
    return Location.of(tmp_path)


def kept(table: Location) -> list[int]:
    assert table.local
    return sorted(int(path.stem) for path in (table.local / "_delta_log").glob("*.json"))


def rows(table: Location, version: int | None = None) -> int:
    return int(DeltaTable(table.rs, version=version).to_pyarrow_table().num_rows)


def test_the_newest_commits_and_restore_points_stay_and_can_be_read(table: Location) -> None:
    assert shorten(table) > 3 * NEWEST
    left = kept(table)
    cut = NEWEST - 20
    assert left[left.index(cut) :] == list(range(cut, NEWEST + 1))
    points = left[: left.index(cut)]
    ages = [(NEWEST - v) * EVERY_S for v in points]
    assert all(v % EVERY == 0 for v in points)
    assert len([age for age in ages if age < DAY_S]) <= DAY_S / HOUR_S
    assert 2 <= len([age for age in ages if age >= DAY_S]) <= 3
    assert [rows(table, v) for v in left] == left
    assert rows(table) == NEWEST
    assert table.local
    checksums = [path.name for path in (table.local / "_delta_log").iterdir() if path.suffix == ".crc"]
    assert len(checksums) == 3 * (10 + len([v for v in left if v % EVERY == 0 and v <= NEWEST - 10]))
    assert shorten(table) == 0


def test_what_was_kept_for_a_day_is_kept_for_a_week_and_then_removed(
    table: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look removes more, and never brings a later restore point in place of one that is gone."""
    now = time.time()
    before: set[int] = set(range(NEWEST + 1))
    counts = []
    for hours in range(0, 24 * 9, 5):
        monkeypatch.setattr(time, "time", lambda: now + hours * 3600)  # noqa: B023
        shorten(table)
        left = set(kept(table))
        assert left <= before
        before = left
        counts.append(len([v for v in left if v < NEWEST - 20]))
    assert 5 <= counts[0] <= 30 and 3 <= counts[12] <= 5 and counts[-1] == 0
    assert rows(table) == NEWEST


def test_commits_that_progress_does_not_name_yet_stay(table: Location) -> None:
    shorten(table, accounted=52)
    assert set(kept(table)) >= set(range(50, NEWEST + 1))


def test_commits_of_the_last_hour_stay(table: Location) -> None:
    assert table.local
    for path in (table.local / "_delta_log").glob("*.json"):
        os.utime(path)
    shorten(table)
    assert kept(table) == list(range(NEWEST + 1))


@pytest.mark.parametrize("damage", ("flipped", "short", "empty", "gone"))
def test_nothing_is_removed_where_the_checkpoint_that_replaces_it_cannot_be_read(
    table: Location, damage: str
) -> None:
    assert table.local
    checkpoint = table.local / "_delta_log" / ("%020d.checkpoint.parquet" % (NEWEST - 20))
    data = bytearray(checkpoint.read_bytes())
    if damage == "flipped":
        data[200] ^= 1
    size = {"flipped": len(data), "short": len(data) // 2}.get(damage, 0)
    checkpoint.write_bytes(data[:size])
    if damage == "gone":
        checkpoint.unlink()
    shorten(table)
    # With the checkpoint gone, the one before it takes its place.
    cut = NEWEST - 20 - EVERY if damage == "gone" else 0
    assert set(kept(table)) >= set(range(cut, NEWEST + 1))


def test_a_removal_that_is_cut_off_anywhere_leaves_the_table_as_it_was(
    table: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(Exception):
        pass

    unlink = os.unlink
    steps = iter(sorted(random.Random(7).sample(range(1, 700), 8)))

    for left in steps:
        count = iter(range(left))

        def cut_off(path: Path, *args: object, count: object = count) -> None:
            if next(count, None) is None:  # type: ignore[call-overload]
                raise Died
            unlink(path)

        with monkeypatch.context() as patch:
            patch.setattr(os, "unlink", cut_off)
            try:
                shorten(table)
            except Died:
                pass
        assert rows(table) == rows(table, NEWEST) == NEWEST
    shorten(table)
    assert len(kept(table)) < 80


SLOW = """
import os, sys, time
from headwater_cloud import log_retention
from headwater_cloud.location import Location
log_retention.COMMITS_MIN = 20
log_retention.CHECKSUMS = 10
true_unlink = os.unlink
os.unlink = lambda path: (time.sleep(0.001), true_unlink(path))
log_retention.shorten(Location.of(sys.argv[1]))
"""


def test_a_process_that_is_killed_while_it_removes_leaves_the_table_as_it_was(table: Location) -> None:
    assert table.local
    for most in (150, 100, 60):  # commits that are left when it is killed
        process = subprocess.Popen([sys.executable, "-c", SLOW, table.rs])
        while process.poll() is None and len(kept(table)) > most:
            time.sleep(0.001)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        assert rows(table) == NEWEST
        some = list(range(NEWEST - 20, NEWEST + 1, 5))
        assert [rows(table, v) for v in some] == some
    shorten(table)
    assert len(kept(table)) < 60 and rows(table) == NEWEST


def test_other_files_of_a_log_and_other_places_are_left_alone(table: Location, tmp_path: Path) -> None:
    assert table.local
    log = table.local / "_delta_log"
    others = [log / "_last_checkpoint", log / "00000000000000000003.checkpoint.0000000001.0000000002.parquet"]
    others[1].write_bytes(b"")
    shorten(table)
    assert all(path.exists() for path in others)
    assert shorten(Location.of("s3a://bucket/lake/elements")) == 0
    assert shorten(Location.of(tmp_path / "nothing")) == 0
