"""A segment says what it is, in name, footer and rows; whatever disagrees has one clear reason."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from headwater_cloud import segment
from headwater_cloud.segment import Gap, Segment, SegmentError, write_segment
from hypothesis import given
from hypothesis import strategies as st

WIDE = "t:u32 mV:i16 w:u64 f:f32"
HOLE = Gap(4, 6, "hole", "restart", 1_000, 2_000)
GAP = Gap(8, 9, "gap", "full", None, None)


def wide(landing: Path, gaps: Sequence[Gap] = (HOLE, GAP)) -> Path:
    times = [1000, 2000, 3000, 4000]
    values = [[0, 1, 2, 3], [-5, 0, 5, -32768], [0, 1, 1 << 63, (1 << 64) - 1], [0.5] * 4]
    return write_segment(
        landing, "cardio", "cardio/ecg", 0xF3 << 56, 2, WIDE, times, values, gaps=gaps, within_ms=5000
    )


def read(name: str, data: bytes) -> Segment:
    """As the sink reads: by what its scan gives of a file."""
    length = int.from_bytes(data[-8:-4], "little")
    footer = data if len(data) < 12 else data[-8 - min(length, 4 << 20) :]
    return segment.read(name, len(data), zlib.crc32(data), footer)


def renamed(name: str, data: bytes) -> str:
    """The name as it would be, had these bytes been meant."""
    return name.rsplit("~", 1)[0] + "~%08x.parquet" % zlib.crc32(data)


def reason(name: str, data: bytes) -> str:
    with pytest.raises(SegmentError) as caught:
        read(name, data)
    assert caught.value.detail
    return caught.value.reason


def remade(
    path: Path, change: dict[str, Any], columns: dict[str, pa.Array] | None = None
) -> tuple[str, bytes]:
    """The same segment with other words in its footer or other columns, its CRC right."""
    table = pq.read_table(path)
    said = {**json.loads(table.schema.metadata[b"headwater"]), **change}
    for name, column in (columns or {}).items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    data = segment.encode(table, said)
    return renamed(path.name, data), data


def test_a_segment_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = wide(tmp_path)
    assert path.name.startswith("cardio~cardio.ecg~f300000000000000~2-10~4~20ffce5f~")
    got = read(path.name, path.read_bytes())
    run = ((0xF3 << 56) - (1 << 64), 2, 10, 4)
    checksum = -0x168FD0FA459B11
    assert got == Segment(
        path.name, "cardio", "cardio/ecg", *run, WIDE, 5000, (HOLE, GAP), 4000, checksum, 1000
    )
    assert got.row_ranges() == [(2, 3), (7, 7), (10, 10)]
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_rows_are_in_the_layout_of_elements_and_wide_numbers_are_exact(tmp_path: Path) -> None:
    rows = pq.read_table(wide(tmp_path)).to_pylist()
    assert [row["xi"] for row in rows] == [2, 3, 7, 10]
    assert [row["ints"] for row in rows] == [[0, -5, 0], [1, 0, 1], [2, 5, -(1 << 63)], [3, -32768, -1]]
    assert rows[0]["floats"] == [0.5]


def test_a_segment_may_be_gaps_alone(tmp_path: Path) -> None:
    path = write_segment(
        tmp_path, "p", "s", 1, 5, "a:i8", [], [[]], gaps=[Gap(5, 9, "gap", "full", None, None)]
    )
    got = read(path.name, path.read_bytes())
    assert (got.first, got.last, got.rows, got.row_ranges(), got.last_ts_us) == (5, 9, 0, [], None)


def test_a_run_that_is_cut_again_has_another_name(tmp_path: Path) -> None:
    one = write_segment(tmp_path, "p", "s", 1, 1, "a:i8", [7], [[1]], arrived_us=9)
    two = write_segment(tmp_path, "p", "s", 1, 1, "a:i8", [7], [[1]], arrived_us=9, cut=1)
    assert one.name != two.name
    assert read(two.name, two.read_bytes()).rows == 1


def test_a_file_cut_short_anywhere_is_refused(tmp_path: Path) -> None:
    path = wide(tmp_path)
    data = path.read_bytes()
    for end in [*range(0, 64), *range(64, len(data), 37), len(data) - 1]:
        assert reason(path.name, data[:end]) == "crc"


def test_a_flipped_bit_anywhere_is_refused(tmp_path: Path) -> None:
    path = wide(tmp_path)
    data = bytearray(path.read_bytes())
    for at in range(0, len(data) * 8, 101):
        data[at // 8] ^= 1 << at % 8
        assert reason(path.name, bytes(data)) == "crc"
        data[at // 8] ^= 1 << at % 8


@pytest.mark.parametrize(
    "name",
    [
        "x.parquet",
        "notes.txt",
        "p~s~00000000000000~1-2~2~00000000~00000000.parquet",
        "p~s~0000000000000001~0-2~3~00000000~00000000.parquet",
        "p~s~0000000000000001~3-2~0~00000000~00000000.parquet",
        "p~s~0000000000000001~1-2~3~00000000~00000000.parquet",
        "p~s~0000000000000001~1-9223372036854775808~3~00000000~00000000.parquet",
        "p~s~0000000000000001~1-2~2~00000000~0000000G.parquet",
    ],
)
def test_a_name_that_is_none_of_a_segment_is_refused(name: str) -> None:
    assert reason(name, b"") == "name"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"format": 2}, "footer"),
        ({"process": "other"}, "disagrees"),
        ({"stream": "cardio/eeg"}, "disagrees"),
        ({"incarnation": "f300000000000001"}, "disagrees"),
        ({"incarnation": 7}, "footer"),
        ({"first": 3}, "disagrees"),
        ({"last": 11}, "disagrees"),
        ({"rows": 5}, "disagrees"),
        ({"rows": -1}, "footer"),
        ({"alphabet": "t:u32 mV:i16 w:u64 g:f32"}, "disagrees"),
        ({"alphabet": "t:u33"}, "footer"),
        ({"within_ms": None}, "footer"),
        ({"gaps": [[4, 6, "hole", "restart", 1, 2]]}, "disagrees"),
        ({"gaps": [[8, 9, "gap", "full", None, None], [4, 6, "hole", "restart", 1, 2]]}, "footer"),
        ({"gaps": [[4, 6, "lake", "restart", 1, 2]]}, "footer"),
        ({"gaps": [[4, 6, "hole", "restart", 1.5, 2]]}, "footer"),
        ({"gaps": "none"}, "footer"),
        ({"gaps": [[i, i, "gap", "full", None, None] for i in range(2, 1100)]}, "footer"),
    ],
)
def test_a_footer_that_lies_is_refused(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    assert reason(*remade(wide(tmp_path), change)) == why


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"stream": pa.array(["cardio/ecg"] * 3 + ["cardio/eeg"])}, "disagrees"),
        ({"incarnation": pa.array([0, 0, 0, 0], pa.int64())}, "disagrees"),
        ({"xi": pa.array([2, 3, 7, 11])}, "disagrees"),
        ({"xi": pa.array([1, 3, 7, 10])}, "disagrees"),
        ({"alphabet": pa.array(["t:u32 mV:i16 w:u64"] * 4)}, "disagrees"),
        ({"ints": pa.array([[1, 2, 3], [1, 2, 3], [1, 2, 3], [1, 2]])}, "disagrees"),
        ({"ints": pa.array([[1, 2, 3], [1, None, 3], [1, 2, 3], [1, 2, 3]])}, "layout"),
        ({"unsync": pa.array([True, None, True, True])}, "layout"),
        ({"ts": pa.array([1, 2, 3, 4], pa.timestamp("us"))}, "layout"),
        ({"floats": pa.array([[0.5]] * 4, pa.list_(pa.float32()))}, "layout"),
    ],
)
def test_columns_that_lie_are_refused(tmp_path: Path, columns: dict[str, pa.Array], why: str) -> None:
    assert reason(*remade(wide(tmp_path), {}, columns)) == why


def test_parquet_that_is_no_segment_is_refused(tmp_path: Path) -> None:
    path = wide(tmp_path)
    pq.write_table(pq.read_table(path).replace_schema_metadata({}), tmp_path / "plain", store_schema=False)
    data = (tmp_path / "plain").read_bytes()
    assert reason(renamed(path.name, data), data) == "footer"
    assert reason(renamed(path.name, b"PAR1PAR1"), b"PAR1PAR1") == "footer"
    assert reason(renamed(path.name, b""), b"") == "footer"


@given(st.binary(max_size=60), st.binary(max_size=200))
def test_any_bytes_behind_a_good_name_give_one_error(noise: bytes, tail: bytes) -> None:
    data = noise + b"PAR1" + tail + len(tail).to_bytes(4, "little") + b"PAR1"
    name = segment.file_name("p", "s", 1, 1, 2, 2, "a:i8", zlib.crc32(data))
    assert reason(name, data) in ("footer", "layout", "disagrees")


@given(st.text(min_size=1, max_size=100))
def test_any_stream_gives_a_name_that_a_landing_zone_takes(stream: str) -> None:
    name = segment.file_name(stream, stream, 1, 1, 2, 2, "a:i8", 3)
    assert segment.read_name(name).rows == 2
    assert name[0] not in "._" and "/" not in name and len(name.encode()) < 256
