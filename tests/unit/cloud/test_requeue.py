"""`hw lake requeue`: what of the quarantine can come back, by each reason, and what stays and why."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from headwater_cloud import segment
from headwater_cloud.location import Location
from headwater_cloud.requeue import Outcome, entries, requeue
from headwater_cloud.segment import Gap, Segment, write_segment
from headwater_tools import cli
from lakes import LakeOf, healthy

Table = Callable[[pa.Table, dict[str, Any]], tuple[pa.Table, dict[str, Any]]]


def made(folder: Path, change: Table | None = None, **how: Any) -> bytes:
    """The bytes of a file: a segment of 20 rows, or what `change` makes of it."""
    gap = Gap(11, 12, "gap", "full", None, None)
    values = [list(range(20)), [0.5] * 20]
    path = write_segment(
        folder, "cardio", "cardio/ecg", 7, 1, "mV:i16 f:f32", range(20), values, gaps=[gap], cut=3
    )
    data = path.read_bytes()
    path.unlink()
    if change is not None:
        table = pq.read_table(io.BytesIO(data))
        said = json.loads(table.schema.metadata[b"headwater"])
        table, said = change(table, said)
        table = table.replace_schema_metadata({"headwater": json.dumps(said)})
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, **how)
        data = sink.getvalue().to_pybytes()
    return data


def read(landing: Path, name: str) -> tuple[Segment, pa.Table]:
    """As the sink takes it."""
    data = (landing / name).read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    return segment.read(name, len(data), zlib.crc32(data), data[-8 - length :]), pq.read_table(landing / name)


def brought(tmp_path: Path, reason: str, raw: bytes | None, file: str = "planted.parquet") -> Outcome:
    lake = healthy(tmp_path / "lake")
    lake.refuse("cardio.ecg", 1, 22, reason)
    lake.quarantine[-1].update(raw=raw, file=file)
    landing = tmp_path / "landing"
    landing.mkdir(exist_ok=True)
    at = Location.of(lake.write())
    (entry,) = entries(at)
    assert (entry.reason, entry.file) == (reason, file)
    (outcome,) = requeue(at, Location.of(landing), [entry.id])
    again = requeue(at, Location.of(landing), [entry.id])
    assert again == [outcome] and sorted(p.name for p in landing.iterdir()) == sorted(outcome.put)
    return outcome


def as_it_is(table: pa.Table, said: dict[str, Any]) -> tuple[pa.Table, dict[str, Any]]:
    return table, said


def without_sum(table: pa.Table, said: dict[str, Any]) -> tuple[pa.Table, dict[str, Any]]:
    return table, {key: value for key, value in said.items() if key not in ("sum", "cut")}


def large_strings(table: pa.Table, said: dict[str, Any]) -> tuple[pa.Table, dict[str, Any]]:
    column = table["stream"].cast(pa.large_string())
    return table.set_column(0, "stream", column), said


@pytest.mark.parametrize(
    ("reason", "change", "how"),
    [
        ("name", as_it_is, {}),
        ("layout", large_strings, {}),
        ("layout", as_it_is, {"compression": "brotli"}),
        ("layout", as_it_is, {"write_statistics": False}),
        ("layout", as_it_is, {"use_dictionary": False, "use_byte_stream_split": ["floats.list.element"]}),
        ("disagrees", as_it_is, {}),
        ("footer", without_sum, {}),
    ],
)
def test_rows_that_are_right_come_back_as_a_segment(
    tmp_path: Path, reason: str, change: Table, how: dict[str, Any]
) -> None:
    raw = made(tmp_path, change, **how)
    outcome = brought(tmp_path, reason, raw)
    assert outcome.why == "" and outcome.rows == 20
    found, table = read(tmp_path / "landing", *outcome.put)
    want = pq.read_table(io.BytesIO(raw)).cast(segment.ARROW_SCHEMA)
    assert table.equals(want) and found.row_ranges() == [(1, 10), (13, 22)]
    cut = json.loads(table.schema.metadata[b"headwater"])["cut"]
    assert cut == (1 if change is without_sum else 4)


def test_bytes_that_are_those_of_the_name_after_all_come_back(tmp_path: Path) -> None:
    raw = made(tmp_path)
    file = segment.file_name("cardio", "cardio/ecg", 7, 1, 22, 20, "mV:i16 f:f32", zlib.crc32(raw))
    assert brought(tmp_path, "crc", raw, file).rows == 20


def test_a_file_that_is_too_large_for_the_table_comes_back_from_the_landing_zone(tmp_path: Path) -> None:
    lake = healthy(tmp_path / "lake")
    lake.refuse(None, 1, 1, "name")
    lake.quarantine[-1].update(raw=None, file="copy.parquet")
    landing = tmp_path / "landing"
    landing.mkdir()
    at = Location.of(lake.write())
    (entry,) = entries(at)
    (outcome,) = requeue(at, Location.of(landing), [entry.id])
    assert "its bytes were not kept, and it cannot be read: No such file" in outcome.why
    (landing / "copy.parquet").write_bytes(made(tmp_path))
    assert requeue(at, Location.of(landing), [entry.id])[0].rows == 20


def with_xi(xis: list[int]) -> Table:
    def change(table: pa.Table, said: dict[str, Any]) -> tuple[pa.Table, dict[str, Any]]:
        said.pop("sum")
        return table.set_column(2, "xi", pa.array(xis, pa.int64())), said

    return change


def ragged(table: pa.Table, said: dict[str, Any]) -> tuple[pa.Table, dict[str, Any]]:
    said.pop("sum")
    return table.set_column(7, "ints", pa.array([[1, 2], []] * 10, pa.list_(pa.int64()))), said


def changed(table: pa.Table, said: dict[str, Any]) -> tuple[pa.Table, dict[str, Any]]:
    return table.set_column(7, "ints", pa.array([[1]] * 20, pa.list_(pa.int64()))), said


def of_two_streams(table: pa.Table, said: dict[str, Any]) -> tuple[pa.Table, dict[str, Any]]:
    return table.set_column(0, "stream", pa.array(["a", "b"] * 10)), said


def odd_gaps(table: pa.Table, said: dict[str, Any]) -> tuple[pa.Table, dict[str, Any]]:
    return table, {**said, "gaps": [[5, 6, "gap"]]}


def no_words(table: pa.Table, said: dict[str, Any]) -> tuple[pa.Table, dict[str, Any]]:
    return table, {"format": 1}


def other_columns(table: pa.Table, said: dict[str, Any]) -> tuple[pa.Table, dict[str, Any]]:
    return table.drop_columns(["arrived"]), said


@pytest.mark.parametrize(
    ("reason", "change", "why"),
    [
        ("disagrees", with_xi([1, 1, 3, 3, *range(5, 11), *range(13, 23)]), "are not those that its footer"),
        ("disagrees", ragged, "its ints are not 1 a row"),
        ("disagrees", changed, "its writer declared"),
        ("disagrees", of_two_streams, "column stream is not what its footer says"),
        ("footer", odd_gaps, "a gap is [5, 6, 'gap']"),
        ("footer", no_words, "its footer cannot be read: KeyError('alphabet')"),
        ("layout", other_columns, "it cannot be read as a segment"),
        ("name", None, "it cannot be read as a segment"),
        ("crc", None, "they are not those that were cut, which only the gateway has"),
        ("empty", None, "it has no bytes"),
    ],
)
def test_what_cannot_be_right_stays_and_says_why(
    tmp_path: Path, reason: str, change: Table | None, why: str
) -> None:
    raw = made(tmp_path, change)
    file = segment.file_name("cardio", "cardio/ecg", 7, 1, 22, 20, "mV:i16 f:f32", 1)
    if reason == "name":
        raw = raw[:200]
    outcome = brought(tmp_path, reason, b"" if reason == "empty" else raw, file)
    assert outcome.put == [] and why in outcome.why


def divergent(lake: LakeOf, xi: int, **more: Any) -> None:
    row = {
        "stream": "cardio/ecg", "incarnation": 7, "xi": xi, "ts": "2026-03-01T08:00:00.0%05dZ" % xi,
        "unsync": False, "arrived": "2026-03-01T08:00:01.000000Z", "alphabet": "mV:i16", "ints": [xi % 9],
        "floats": [], **more,
    }  # fmt: skip
    lake.refuse("cardio/ecg", xi, xi, "divergent")
    lake.quarantine[-1].update(incarnation=7, raw=json.dumps(row).encode())


def test_divergent_rows_come_back_where_the_lake_has_lost_theirs(tmp_path: Path) -> None:
    lake = LakeOf(tmp_path / "lake")
    lake.stream("cardio/ecg", within_ms=700)
    lake.rows("cardio/ecg", 1, 20, incarnation=7)  # restored to this; it had more
    for xi in (19, 20, 21, 22, 24):
        divergent(lake, xi)
    divergent(lake, 25, alphabet="f:f32", ints=[], floats=["NaN"])
    lake.refuse("cardio/ecg", 30, 30, "divergent", rows=0)  # a hole where a row was known
    landing = tmp_path / "landing"
    landing.mkdir()
    at = Location.of(lake.write())
    (entry,) = entries(at)
    (outcome,) = requeue(at, Location.of(landing), [entry.id])
    assert outcome.rows == 4 and "2 of its rows have a ξ that `elements` has" in outcome.why
    found = sorted((read(landing, name) for name in outcome.put), key=lambda pair: pair[0].first)
    assert [(s.first, s.last, s.alphabet, s.within_ms) for s, _ in found] == [
        (21, 22, "mV:i16", 700), (24, 24, "mV:i16", 700), (25, 25, "f:f32", 0),
    ]  # fmt: skip
    assert found[0][1]["ts"].cast(pa.int64()).to_pylist() == [1772352000000021, 1772352000000022]
    assert found[0][1]["ints"].to_pylist() == [[3], [4]]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, "2 of its rows have a ξ that `elements` has"),
        ({"ts": "2026-03-01T08:00:00.021Z"}, "no microseconds"),
    ],
)
def test_divergent_rows_stay_where_a_row_is_known(tmp_path: Path, more: dict[str, Any], why: str) -> None:
    lake = LakeOf(tmp_path / "lake")
    lake.stream("cardio/ecg")
    lake.rows("cardio/ecg", 1, 20, incarnation=7)
    divergent(lake, 7, **more)
    divergent(lake, 8, **more)
    at = Location.of(lake.write())
    (tmp_path / "landing").mkdir()
    (outcome,) = requeue(at, Location.of(tmp_path / "landing"), [entries(at)[0].id])
    assert outcome.put == [] and why in outcome.why


def test_the_command_lists_and_brings_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = healthy(tmp_path / "lake")
    lake.refuse(None, 1, 1, "name")
    lake.quarantine[-1].update(raw=made(tmp_path), file="copy.parquet")
    lake.refuse(None, 1, 1, "name")
    lake.quarantine[-1].update(raw=b"rubbish", file="rubbish")
    at = str(lake.write())
    landing = tmp_path / "landing"
    landing.mkdir()

    def hw(*words: str) -> tuple[Any, str, str]:
        with pytest.raises(SystemExit) as stop:
            cli.main(["lake", *words])
        return stop.value.code, *capsys.readouterr()

    code, out, _ = hw("quarantine", at, "--json")
    listed = json.loads(out.splitlines()[-1])["quarantine"]
    assert code == 0 and [e["file"] for e in listed] == ["copy.parquet", "rubbish"]
    assert out.startswith("%s  name       copy.parquet: planted\n" % listed[0]["id"])
    code, out, _ = hw("requeue", str(landing), at, listed[0]["id"], "--json")
    assert code == 0 and json.loads(out.splitlines()[-1])["requeued"][0]["rows"] == 20
    assert len(list(landing.iterdir())) == 1
    code, out, _ = hw("requeue", str(landing), at, "all")
    assert code == 1 and "rubbish stays: it cannot be read as a segment" in out
    for words, text in (
        (("requeue", str(landing), at, "0000000000"), "nothing in quarantine has the id 0000000000"),
        (("requeue", str(tmp_path / "nowhere"), at, listed[0]["id"]), "there is no folder"),
        (("quarantine", str(tmp_path)), "there is no lake at"),
        (("forget", at), "use one of show, quarantine, requeue, maintain, erase, register"),
    ):
        code, _, err = hw(*words)
        assert code == 2 and text in err and err.count("\n") == 1, err
