"""CPU of `progress` and acknowledgements of a batch, by the number of incarnations that a lake has seen."""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from .. import environment
from . import Measure, at_most

SUMMARY = "CPU of progress and acknowledgements of a batch, in a lake that has seen many deployments"

ACTIVE = 100
OLD = 10_000
SETTLED_MAX = 1.2  # times the cost of a lake that has settled nothing


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--old", type=int, default=OLD, metavar="N", help="numberings settled (%d)" % OLD)
    parser.add_argument("--rounds", type=int, default=40, metavar="N", help="batches of each lake (40)")
    parser.add_argument("--seed", type=int, default=1, help="of the order of lakes")


def run(args: argparse.Namespace, say: Callable[[str], None]) -> list[Measure]:
    environment.ensure("lake")
    with tempfile.TemporaryDirectory(prefix="hw-bench-numberings-") as folder:
        return _measure(Path(folder), args.old, args.rounds, random.Random(args.seed), say)


def _measure(
    folder: Path, old: int, rounds: int, rng: random.Random, say: Callable[[str], None]
) -> list[Measure]:
    """`old` incarnations of former deployments: none, all settled, all in progress."""
    lakes = {
        "%d active" % ACTIVE: _Lake(folder / "few", 0, settle=False),
        "%d active, %d settled" % (ACTIVE, old): _Lake(folder / "settled", old, settle=True),
        "%d active" % (ACTIVE + old): _Lake(folder / "many", old, settle=False),
    }
    seconds: dict[str, list[float]] = {name: [] for name in lakes}
    for turn in range(rounds + 1):
        order = list(lakes)
        rng.shuffle(order)
        for name in order:
            took = lakes[name].batch()
            if turn:
                seconds[name].append(took)
    say("CPU of `progress` and acknowledgements of one batch")
    for name, all_s in seconds.items():
        say("  %-30s %8.2f ms" % (name, 1000 * statistics.median(all_s)))
    few, settled, many = (statistics.median(all_s) for all_s in seconds.values())
    return [
        at_most("batch with %d settled numberings" % old, round(settled / few, 2), "times", SETTLED_MAX),
        Measure("the same with all of them in progress", round(many / few, 2), "times"),
    ]


class _Lake:
    """The books of a sink, as far as batches write them."""

    def __init__(self, folder: Path, old: int, settle: bool) -> None:
        from deltalake import DeltaTable
        from headwater_cloud import settled, tables
        from headwater_cloud.acks import Acknowledgements
        from headwater_cloud.files import Files
        from headwater_cloud.location import Location
        from headwater_cloud.progress import Numbering, Progress

        self.lake = Location.of(str(folder))
        for name in tables.REWRITTEN:
            properties = tables.PROPERTIES[name]
            DeltaTable.create(str(folder / name), tables.SCHEMAS[name], configuration=properties)
        self.progress = Progress.load(self.lake)
        self.acks = Acknowledgements(Files(None), self.lake, [])
        for i in range(ACTIVE + old):
            numbering = Numbering(["bench"], [(1, 1000 + i)], rows_landed=1000 + i, rows_kept=1000 + i)
            self.progress.change({("bench/%d" % (i % 50), i): numbering}, 1 if i < old else 2)
        if settle:
            keys = settled.quiet(self.progress, 2, 0)
            there = settled.Settled.load(self.lake)
            settled.settle(keys, self.progress, there, self.acks, lambda name, version: None)
            assert len(self.progress.numberings) == ACTIVE

    def batch(self) -> float:
        """News of one incarnation: seconds of CPU."""
        key, numbering = max(self.progress.numberings.items())
        changed = numbering.copy()
        changed.known = [(1, changed.known[0][1] + 1000)]
        self.progress.change({key: changed}, 2)
        self.progress.batch += 1
        began = time.process_time()
        self.progress.save()
        self.acks.write(self.progress, [])
        return time.process_time() - began
