"""What is read of the files of a batch: all that can be segments, and nothing that makes the sink wait."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest
from headwater_cloud import segment
from headwater_cloud.landing_zone import PIECE, files_of, lies_in
from headwater_cloud.location import Location


def paths(folder: Path, *names: str) -> list[str]:
    return ["file://%s/%s" % (folder, name) for name in names]


def test_a_segment_is_read_as_far_as_it_is_judged_by(tmp_path: Path) -> None:
    path = segment.write_segment(tmp_path, "p", "s", 7, 1, "n:i32", [5, 6], [[1, 2]])
    data = path.read_bytes()
    (row,) = files_of(Location.of(tmp_path), paths(tmp_path, path.name))
    assert row["path"].endswith(path.name)
    assert (row["length"], row["crc"]) == (len(data), zlib.crc32(data))
    judged = segment.read(path.name, row["length"], row["crc"], row["footer"])
    assert (judged.first, judged.last, len(row["footer"]) < len(data)) == (1, 2, True)


@pytest.mark.parametrize("size", (1, 7, 11, 12, 100, 3 * PIECE + 5))
def test_other_bytes_are_read_whole_or_by_their_end(tmp_path: Path, size: int) -> None:
    data = bytes(i * 7 % 251 for i in range(size))
    (tmp_path / "x").write_bytes(data)
    (row,) = files_of(Location.of(tmp_path), paths(tmp_path, "x"))
    assert (row["length"], row["crc"]) == (size, zlib.crc32(data))
    assert row["footer"] and data.endswith(row["footer"])


def test_what_the_stream_would_not_give_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater_cloud.landing_zone.SIZE_MAX", 100)
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "large").write_bytes(b"x" * 101)
    (tmp_path / "right").write_bytes(b"x" * 100)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inner").write_bytes(b"x")
    os.mkfifo(tmp_path / "pipe")
    names = ("empty", "large", "right", "folder", "folder/inner", "pipe", "gone")
    (row,) = files_of(Location.of(tmp_path), paths(tmp_path, *names))
    assert row["path"].endswith("/right")


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError):
        files_of(Location.of(tmp_path), paths(tmp_path, "loop"))


def test_a_path_of_spark_is_that_of_the_landing_zone_however_it_is_written() -> None:
    landing = Location.of("/data/landing")
    same = ("/data/landing/x", "file:/data/landing/x", "file:///data/landing/x")
    assert all(lies_in(landing, path) for path in same)
    assert not any(
        lies_in(landing, path) for path in ("/data/landing/a/x", "/data/x", "s3a://data/landing/x")
    )
