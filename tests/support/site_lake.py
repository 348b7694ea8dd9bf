"""A landing zone and a lake in a folder, with the sink run in this process: what tests of the sink share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from headwater_cloud.segment import Gap, Move, write_segment

if TYPE_CHECKING:
    from headwater_cloud.metrics import Report
    from pyspark.sql import SparkSession

ALPHABET = "n:i32 w:u64"
START_US = 1_780_000_000_000_000


class Site:
    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.landing = folder / "landing"
        self.lake = folder / "lake"
        self.landing.mkdir()
        self.said: list[str] = []

    def put(
        self,
        first: int,
        last: int,
        *,
        stream: str = "cardio/ecg",
        incarnation: int = 7,
        gaps: Sequence[Gap] = (),
        change: int = 0,
        alphabet: str = ALPHABET,
        cut: int = 0,
        process: str = "cardio",
        moves: Sequence[Move] = (),
    ) -> Path:
        """A segment of first … last; each row's values follow from its ξ, and from `change`."""
        missing = {xi for gap in gaps for xi in range(gap.first, gap.last + 1)}
        xis = [xi for xi in range(first, last + 1) if xi not in missing]
        values: list[list[int | float]] = []
        for field in alphabet.split():
            if field.endswith(("f32", "f64")):
                values.append([xi / 2 for xi in xis])
            else:
                values.append([(1 << 64) - xi if field.endswith("u64") else xi + change for xi in xis])
        return write_segment(
            self.landing, process, stream, incarnation, first, alphabet,
            [START_US + 1000 * xi for xi in xis], values, gaps=gaps, moves=moves, cut=cut,
            within_ms=5000,
        )  # fmt: skip

    def run(self, **settings: Any) -> Report:
        from headwater_cloud.sink import Settings

        with self.sink(Settings(**settings)) as sink:
            return sink.run(once=True)

    def sink(self, settings: Any = None) -> Any:
        from headwater_cloud.location import Location
        from headwater_cloud.sink import Sink

        return Sink(self.spark, Location.of(self.landing), Location.of(self.lake), settings, self.said.append)

    # What anybody reads, without Spark

    def table(self, name: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = DeltaTable(str(self.lake / name)).to_pyarrow_table().to_pylist()
        return rows

    def numbers(self, stream: str = "cardio/ecg", incarnation: int = 7) -> list[tuple[int, int]]:
        """(ξ, n) of every row there is, in order of ξ: one that is there twice is here twice."""
        rows = self.table("elements")
        return sorted(
            (r["xi"], r["ints"][0]) for r in rows if (r["stream"], r["incarnation"]) == (stream, incarnation)
        )

    def ack(self, process: str = "cardio") -> dict[str, Any]:
        said: dict[str, Any] = json.loads((self.lake / "acks" / (process + ".json")).read_text())
        return said

    def acknowledged(self) -> int:
        """The high-water mark of the one stream; 0 before there is any."""
        return self.high()[0] if (self.lake / "acks" / "cardio.json").exists() else 0

    def high(self, stream: str = "cardio/ecg", incarnation: int = 7) -> tuple[int, list[list[int]]]:
        said = self.ack()["streams"][stream]["%016x" % incarnation]
        return said["high"], said["ranges"]

    def counts(self, stream: str = "cardio/ecg", incarnation: int = 7) -> dict[str, int]:
        for row in self.table("progress"):
            if (row["stream"], row["incarnation"]) == (stream, incarnation):
                return {k.removeprefix("rows_"): v for k, v in row.items() if k.startswith("rows_")}
        raise KeyError(stream)


def plain(first: int, last: int) -> list[tuple[int, int]]:
    return [(xi, xi) for xi in range(first, last + 1)]


def gap(first: int, last: int) -> Gap:
    return Gap(first, last, "gap", "full", None, None)


def hole(first: int, last: int) -> Gap:
    return Gap(first, last, "hole", "restart", START_US, START_US + 5)


def quarantined(site: Site) -> list[tuple[Any, ...]]:
    rows = site.table("quarantine")
    return sorted((r["reason"], r["first"], r["last"], r["rows"], r["file"]) for r in rows)


class Died(Exception):
    """What a kill does to a sink, without killing the tests."""


def die_at(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    from headwater_cloud import crash_points

    def reach(name: str) -> None:
        if name == point:
            raise Died

    monkeypatch.setattr(crash_points, "reach", reach)


def dies(site: Site, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    with monkeypatch.context() as patch:
        die_at(patch, point)
        with pytest.raises(Died):
            site.run()
