"""Moves of operators in the lake: segments declare them, the table has each once, the audit tells of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from headwater_cloud import tables
from headwater_cloud.audit import as_json, audit
from headwater_cloud.declared import Moves
from headwater_cloud.location import Location
from headwater_cloud.segment import Move, Segment, SegmentError, _declared, read_name, write_segment
from headwater_tools import cli
from lakes import INCARNATION, LakeOf, healthy

FLED = Move("rate", 2, "hip", "wrist", "flee", 1_700_000_000_000_000)
TAKEN = Move("rate", 3, "wrist", "gateway", "takeover", 1_700_000_600_000_000)


def told(lake: LakeOf) -> dict[str, Any]:
    return as_json(audit(str(lake.write())))


def of(answer: dict[str, Any], stream: str = "cardio/ecg") -> dict[str, Any]:
    (one,) = [s for s in answer["streams"] if s["stream"] == stream]
    return dict(one)


def segment(landing: Path, first: int, *moves: Move) -> Segment:
    """A segment as the sink reads it, but for its rows."""
    path = write_segment(
        landing, "cardio", "cardio/rate", INCARNATION, first, "bpm:i16", [1, 2], [[60, 61]], moves=moves
    )
    return _declared(read_name(path.name), {b"headwater": footer(path)})


def footer(path: Path) -> bytes:
    import pyarrow.parquet as pq

    return bytes(pq.read_metadata(path).metadata[b"headwater"])


@pytest.fixture
def lake(tmp_path: Path) -> Location:
    DeltaTable.create(str(tmp_path / "lake" / "moves"), tables.SCHEMAS["moves"])
    return Location.of(str(tmp_path / "lake"), {})


def rows(lake: Location) -> list[tuple[Any, ...]]:
    keys = ("operator", "epoch", "from_host", "to_host", "reason", "moved")
    return sorted(tuple(row[key] for key in keys) for row in tables.rows(lake / "moves"))


def test_a_segment_without_moves_is_as_it_was(tmp_path: Path) -> None:
    made = segment(tmp_path, 1)
    assert made.moves == ()
    (path,) = tmp_path.glob("*.parquet")
    assert "moves" not in json.loads(footer(path))


def test_a_move_is_in_the_table_once_however_many_segments_name_it(tmp_path: Path, lake: Location) -> None:
    sink = Moves(lake)
    assert sink.add([segment(tmp_path, 1)], 5) is None
    assert sink.add([segment(tmp_path, 3, FLED), segment(tmp_path, 5, FLED, TAKEN)], 5) == 1
    assert sink.add([segment(tmp_path, 5, FLED, TAKEN)], 6) is None
    # The sink was killed before progress had the batch: the next one takes it again.
    assert Moves(lake).add([segment(tmp_path, 3, FLED), segment(tmp_path, 5, FLED, TAKEN)], 7) is None
    assert rows(lake) == [
        ("rate", 2, "hip", "wrist", "flee", 1_700_000_000_000_000),
        ("rate", 3, "wrist", "gateway", "takeover", 1_700_000_600_000_000),
    ]


def test_moves_of_a_batch_that_could_not_be_written_are_written_with_the_next_attempt(
    tmp_path: Path, lake: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = Moves(lake)
    with monkeypatch.context() as patch:
        patch.setattr(tables, "append", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            sink.add([segment(tmp_path, 1, FLED)], 5)
    assert sink.add([segment(tmp_path, 1, FLED)], 5) == 1


@pytest.mark.parametrize(
    "moves",
    [
        7,
        [["rate", 2, "hip", "wrist", "flee"]],
        [["rate", "2", "hip", "wrist", "flee", 1]],
        [["rate", 2, "hip", "wrist", "flee", -1]],
        [["rate", 2, "hip", "w" * 1001, "flee", 1]],
        [["rate", 1 << 63, "hip", "wrist", "flee", 1]],
        [["rate", 2, "hip", "wrist", "flee", 1]] * 101,
    ],
)
def test_moves_that_no_table_could_hold_are_refused(tmp_path: Path, moves: Any) -> None:
    segment(tmp_path, 1)
    (path,) = tmp_path.glob("*.parquet")
    said = {**json.loads(footer(path)), "moves": moves}
    with pytest.raises(SegmentError, match="footer: its entry `headwater` cannot be read"):
        _declared(read_name(path.name), {b"headwater": json.dumps(said).encode()})


def test_the_audit_tells_which_moves_touched_a_stream(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = healthy(tmp_path)
    lake.move("cardio/ecg", "fir", 3, ("wrist", "gateway"), "takeover", 4)
    lake.move("cardio/ecg", "fir", 2, ("hip", "wrist"), "flee", 1)
    lake.move("cardio/ecg", "fir", 4, ("gateway", "gateway"), "given_up", 6)
    answer = told(lake)
    assert answer["ok"] and answer["moves"] == 3
    moves = of(answer)["moves"]
    assert [(m["operator"], m["epoch"], m["reason"]) for m in moves] == [
        ("fir", 2, "flee"),
        ("fir", 3, "takeover"),
        ("fir", 4, "given_up"),
    ]
    assert of(answer, "cardio/rate")["moves"] == []
    with pytest.raises(SystemExit, match="0"):
        cli.main(["audit", str(lake.path)])
    shown = capsys.readouterr().out
    assert "moves       2026-03-01 08:00:01: fir from hip to wrist, the battery of hip ran low" in shown
    assert "2026-03-01 08:00:04: fir from wrist to gateway, taken over: wrist was silent" in shown
    assert "fir from gateway to gateway, it gave up what only lost hosts had, and its streams begin" in shown


def test_a_lake_of_an_earlier_version_is_audited(tmp_path: Path) -> None:
    answer = told(healthy(tmp_path))
    assert answer["ok"] and answer["moves"] == 0 and answer["tables_missing"] == []
