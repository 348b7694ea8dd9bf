"""What the boards accepted, sample by sample, against what the lake holds. Read with delta-rs: independent of
what wrote the lake."""

from __future__ import annotations

from array import array
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..boards.on_board import board_sensors
from ..boards.virtual import ECG, VirtualBoard


@dataclass
class Compared:
    accepted: int = 0
    refused: int = 0  # by boards whose logs were full
    delivered: int = 0
    lost: int = 0
    divergent: int = 0
    twice: int = 0


def rows(lake: Path, stream: str) -> dict[tuple[int, int], list[tuple[int, list[int]]]]:
    """(incarnation, ξ) -> every row that the lake has of it: (ts in µs, integers)."""
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

    table = DeltaTable(str(lake / "elements"))
    query = "select incarnation, xi, ts, ints from elements where stream = '%s'" % stream
    found: dict[tuple[int, int], list[tuple[int, list[int]]]] = {}
    for batch in pa.RecordBatchReader.from_stream(QueryBuilder().register("elements", table).execute(query)):
        stamps = batch.column("ts").cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
        columns = [batch.column(name).to_pylist() for name in ("incarnation", "xi", "ints")]
        for inc, xi, ints, ts in zip(*columns, stamps, strict=True):
            found.setdefault((inc % (1 << 64), xi), []).append((ts, ints))
    return found


def expected(source: str, settings: dict[str, Any], i: int) -> list[int]:
    """Sample i of a source."""
    if settings["driver"] == "file":
        return [_ECG[i % len(_ECG)]]
    wave: Any = board_sensors.wave
    return [wave(i, k, settings.get("seed", 0)) for k in range(3)]


_ECG = array("h", ECG.read_bytes())


def compare(lake: Path, sources: Collection[tuple[str, VirtualBoard, str, dict[str, Any]]]) -> Compared:
    """`sources`: stream, board, source, settings of its sensor."""
    total = Compared()
    for stream, board, source, settings in sources:
        held = rows(lake, stream)
        total.delivered += len(held)
        total.twice += sum(len(same) - 1 for same in held.values())
        for batch in board.accepted():
            if batch.source != source:
                continue
            total.accepted += batch.n
            for i in range(batch.n):
                there = held.get((batch.incarnation, batch.xi + i))
                if there is None:
                    total.lost += 1
                elif there[0] != (batch.ts + i * batch.dt, expected(source, settings, batch.first + i)):
                    total.divergent += 1
    total.refused = sum(board.refused() for board in {board for _, board, _, _ in sources})
    return total
