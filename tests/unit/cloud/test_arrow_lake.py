"""A lake read without a JVM: windows, fields, versions, and what it costs. That it says what Spark says is in
tests/system/test_lake_reading.py."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from headwater_tools import environment
from headwater_tools.environment import ROOT
from lakes import BEGIN, LakeOf, at, healthy

environment.ensure("lake")

from headwater_cloud import ArrowLake  # noqa: E402
from headwater_cloud.errors import LakeError  # noqa: E402


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> ArrowLake:
    """Two versions of a lake, each with files of its own."""
    made = healthy(tmp_path_factory.mktemp("lake"))
    made.write()
    made.rows("cardio/ecg", 1001, 1100)
    made.stream("cardio/rate", "bpm:u8 beats:u64")
    made.rows("cardio/rate", 301, 310, alphabet="bpm:u8 beats:u64", ints=lambda xi: [60, -xi])
    return ArrowLake(made.write())


def test_neither_reading_nor_importing_needs_spark(lake: ArrowLake) -> None:
    script = (
        "import sys; from headwater_cloud import ArrowLake, Lake; lake = ArrowLake(sys.argv[1]); "
        "print(lake.stream('cardio/ecg').num_rows, lake.quality().num_rows, lake.as_of(0)); "
        "assert not [name for name in sys.modules if name.startswith(('pyspark', 'py4j'))]"
    )
    env = {"PYTHONPATH": str(ROOT / "cloud")}
    command = [sys.executable, "-c", script, str(lake.location)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    said = "999 2 ArrowLake(%s, as of version 0 of elements)\n" % lake.location
    assert (done.stdout, done.stderr) == (said, "")


def test_a_window_and_fields_of_a_stream_in_order(lake: ArrowLake) -> None:
    rows = lake.stream("cardio/ecg", at(9.95), "2026-03-01 08:00:10.050")
    assert rows.column("xi").to_pylist() == list(range(995, 1005))
    assert rows.column("mV").to_pylist() == [995, 996, 997, 998, 999, 0, 1, 2, 3, 4]
    beats = lake.stream("cardio/rate", at(2.99), fields=["beats"])
    assert beats.column_names == ["incarnation", "xi", "ts", "unsync", "arrived", "landed", "beats"]
    assert beats.column("beats").to_pylist()[:3] == [None, None, Decimal(2**64 - 301)]
    assert beats.schema.field("beats").type == pa.decimal128(20, 0)
    assert str(beats.to_pandas()["ts"].dtype) == "datetime64[us, UTC]"


def test_a_window_reads_no_file_that_cannot_have_rows_of_it(tmp_path: Path) -> None:
    made = LakeOf(tmp_path)
    made.stream("cardio/ecg")
    for hour in range(5):
        for row in made.rows("cardio/ecg", 100 * hour + 1, 100 * hour + 100):
            row["ts"] += timedelta(hours=hour)
        made.write()
    lake = ArrowLake(tmp_path)
    begin = BEGIN + timedelta(hours=2)
    whole = lake.stream("cardio/ecg", begin, begin + timedelta(hours=1))
    files = sorted((tmp_path / "elements").glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    for path in [*files[:2], *files[3:]]:
        path.write_bytes(b"")  # whatever reads one of these fails
    assert lake.stream("cardio/ecg", begin, begin + timedelta(hours=1)) == whole and whole.num_rows == 100
    with pytest.raises(LakeError, match="cannot be read"):
        lake.stream("cardio/ecg")


def test_a_lake_is_read_as_it_was(lake: ArrowLake) -> None:
    first = lake.as_of(0)
    assert first.stream("cardio/ecg").num_rows == 899 and lake.stream("cardio/ecg").num_rows == 999
    assert first.stream("cardio/rate").column_names[6:] == ["bpm"]
    assert first.table("elements").num_rows == 1199
    with pytest.raises(LakeError, match="`elements` has versions 0 to 1, not 7"):
        lake.as_of(7)


def test_what_came_later_than_a_moment_is_not_there(tmp_path: Path) -> None:
    made = LakeOf(tmp_path)
    made.stream("cardio/ecg")
    made.rows("cardio/ecg", 1, 10)
    lake = ArrowLake(made.write())
    (tmp_path / "gaps").rename(tmp_path / "kept")
    made = LakeOf(tmp_path)
    made.rows("cardio/ecg", 14, 20)
    made.gap("cardio/ecg", 11, 13)
    made.write()
    assert lake.gaps().num_rows == 1
    assert lake.as_of(0).gaps().num_rows == 0 and lake.as_of(0).quality().to_pylist()[0]["rows"] == 10


def test_what_is_not_there_is_named(lake: ArrowLake, tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="no stream 'cardio/egg' in .*: it has cardio/ecg, cardio/rate"):
        lake.stream("cardio/egg")
    with pytest.raises(LakeError, match="stream 'cardio/ecg' has no field uV: it has mV"):
        lake.stream("cardio/ecg", fields=["uV"])
    with pytest.raises(LakeError, match="'yesterday' is not a time"):
        lake.stream("cardio/ecg", "yesterday")
    with pytest.raises(LakeError, match="is not a lake, or has no table `streams` yet"):
        ArrowLake(tmp_path).streams()
