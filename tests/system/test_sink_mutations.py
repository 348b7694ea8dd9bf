"""The judge of the crash harness can fail: each rule of the sink broken once, and each break seen.

Here a kill is an exception at a crash point, and the next life a new sink in the same Spark; `hw crash` does
it to real processes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from headwater_tools import environment

environment.ensure("lake")

from headwater_cloud import crash_points, proof, ranges, segment  # noqa: E402
from headwater_cloud.commits import Stamp  # noqa: E402
from headwater_cloud.decide import decide  # noqa: E402
from headwater_cloud.location import Location  # noqa: E402
from headwater_cloud.segment import Gap, Segment  # noqa: E402
from headwater_cloud.sink import Settings, Sink  # noqa: E402
from headwater_tools.proof.ledger import Ledger, Verdict  # noqa: E402
from headwater_tools.proof.sink_kills import LOSSES  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Patch = pytest.MonkeyPatch
A, B, C, D = ("crash/ecg%02d" % i for i in range(4))


class Killed(Exception):
    """What a kill does to a sink, without killing the tests."""


class World:
    """A ledger, a lake, and sinks that live one after the other."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.landing, self.lake = folder / "landing", folder / "lake"
        self.ledger = Ledger(self.landing, self.lake, seed=1)
        self.verdict = Verdict()

    def live(self, crash_at: str = "") -> None:
        """Take all that waits, or die at this point; then the lake is judged."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(crash_points, "reach", lambda point: _die(point == crash_at))
            settings = Settings(maintain_s=0)
            places = Location.of(self.landing), Location.of(self.lake)
            try:
                with Sink(self.spark, *places, settings, lambda text: None) as sink:
                    sink.run(once=True)
                assert not crash_at
            except Killed:
                assert crash_at
        self.verdict.add(self.ledger.judge(at_end=not crash_at))


def _die(now: bool) -> None:
    if now:
        raise Killed


# Three histories


def killed_before_the_append(world: World) -> None:
    send = world.ledger.send
    send(A, 1, 100)
    send(A, 201, 300)  # what lies between is not sent yet
    send(B, 1, 50, (Gap(21, 30, "gap", "full", None, None),))
    send(B, 21, 30)
    send(C, 1, 40)
    world.ledger.incarnations[C] += 1
    send(C, 1, 60)
    world.live("appending")
    world.live()


def killed_after_the_append(world: World) -> None:
    world.ledger.send(A, 1, 100)
    world.live("appended")
    world.live()


def killed_and_the_newest_offsets_lost(world: World) -> None:
    world.ledger.send(A, 1, 100)
    world.live("appended")
    LOSSES["newest offsets lost"](Location.of(world.lake), Location.of(world.landing))
    world.ledger.send(D, 1, 100)
    world.live()


HISTORIES = (killed_before_the_append, killed_after_the_append, killed_and_the_newest_offsets_lost)


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.__name__)
def test_the_sink_as_it_is_keeps_all_promises(
    spark: SparkSession, tmp_path: Path, history: Callable[[World], None]
) -> None:
    world = World(spark, tmp_path)
    history(world)
    assert world.verdict.wrong() == {}


# Rules, each broken


def no_transaction(patch: Patch) -> None:
    """An append that is made again is made twice."""
    from pyspark.sql import DataFrameWriter

    option = DataFrameWriter.option

    def without(self: Any, key: str, value: Any) -> Any:
        return self if key.startswith("txn") else option(self, key, value)

    patch.setattr(DataFrameWriter, "option", without)


def progress_before_data(patch: Patch) -> None:
    append = Sink._append

    def first(self: Any, spark: Any, good: Any, batch: int, files: int, landed_us: int) -> Any:
        progress = self.progress
        before = dict(progress.numberings)
        progress.change(decide(good.values(), before).changed, landed_us)
        progress.batch, progress.files = batch, files
        self._save()
        progress.numberings = before
        return append(self, spark, good, batch, files, landed_us)

    patch.setattr(Sink, "_append", first)


def acknowledgement_before_data(patch: Patch) -> None:
    append = Sink._append

    def first(self: Any, spark: Any, good: Any, batch: int, files: int, landed_us: int) -> Any:
        progress = self.progress
        before = dict(progress.numberings)
        progress.numberings = {**before, **decide(good.values(), before).changed}
        self._acks.write(progress, [])
        progress.numberings = before
        return append(self, spark, good, batch, files, landed_us)

    patch.setattr(Sink, "_append", first)


def highest_xi_for_the_contiguous_one(patch: Patch) -> None:
    patch.setattr(ranges, "high", lambda a: a[-1][1] if a else 0)
    patch.setattr(ranges, "above", lambda a: [])


def no_incarnation(patch: Patch) -> None:
    read = segment.read
    patch.setattr(segment, "read", lambda *file: dataclasses.replace(read(*file), incarnation=0))


def first_and_last_for_a_range(patch: Patch) -> None:
    patch.setattr(Segment, "row_ranges", lambda self: [(self.first, self.last)])


def a_skipped_append_for_evidence(patch: Patch) -> None:
    """Its transaction was known, so it must have been this one."""
    patch.setattr(Stamp, "__eq__", lambda a, b: b is not None and a.transaction == b.transaction)
    patch.setattr(proof, "all_there", lambda spark, elements, ours, decision: True)


MUTATIONS = (
    (no_transaction, killed_after_the_append, "duplicates"),
    (progress_before_data, killed_before_the_append, "acked_missing"),
    (acknowledgement_before_data, killed_before_the_append, "acked_missing"),
    (highest_xi_for_the_contiguous_one, killed_before_the_append, "acked_unsent"),
    (no_incarnation, killed_before_the_append, "never_landed"),
    (first_and_last_for_a_range, killed_before_the_append, "never_landed"),
    (a_skipped_append_for_evidence, killed_and_the_newest_offsets_lost, "acked_missing"),
)


@pytest.mark.parametrize(
    ("mutation", "history", "seen"), MUTATIONS, ids=[mutation.__name__ for mutation, _, _ in MUTATIONS]
)
def test_the_judge_sees(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: Patch,
    mutation: Callable[[Patch], None],
    history: Callable[[World], None],
    seen: str,
) -> None:
    mutation(monkeypatch)
    world = World(spark, tmp_path)
    history(world)
    assert world.verdict.wrong().get(seen, 0) > 0, world.verdict
