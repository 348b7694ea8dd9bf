"""What it costs to write segments to a lake exactly once, beside a plain append of the same files.

All lanes are Structured Streaming queries in one Spark, warmed up, and take the same files in rounds of
shuffled order; a ratio is the median over the rounds, so what disturbs a round disturbs both sides of it. Two
lanes are the same append: how far their ratio is from 1 is how far any of them may be off.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import environment
from ..environment import ROOT
from ..errors import UserError
from . import Measure, at_least, at_most

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..proof.segment_source import Supply
    from .support.ingest_paths import Lane, Times

SUMMARY = "rows a second of the sink beside a plain append, MERGE and a watermark; flatness; latency"

TRIGGER_S = 1.0
MILLION = 1_000_000
SECTIONS = ("small", "large", "flat", "commits", "latency", "first")


class Size(NamedTuple):
    """How long a section runs, and on how much."""

    warm_up: int  # rounds
    rounds: int
    batches: int  # of each lane in a round
    latencies: int
    commits: int
    real: int  # commits of the sink after these
    grown_rows: int  # of a table that has many, beside one that has `few_rows`
    few_rows: int = MILLION
    files: int = 20  # of a batch
    small: int = 10_000  # rows of a file
    large: int = 50_000
    partitions: int = 0  # of a shuffle; 0: as Spark has it


FULL = Size(2, 10, 4, 40, 20_000, 50, 20 * MILLION)
QUICK = Size(1, 4, 2, 10, 3000, 20, 4 * MILLION)
LEAST = Size(0, 1, 1, 2, 8, 1, 2000, few_rows=1000, files=2, small=100, large=500, partitions=2)


def arguments(parser: argparse.ArgumentParser) -> None:
    load = parser.add_mutually_exclusive_group()
    load.add_argument("--quick", action="store_true", help="a short look: fewer batches, no proof")
    load.add_argument("--least", action="store_true", help="hardly any load: shows that all of it runs")
    parser.add_argument(
        "--section", action="append", choices=SECTIONS, help="only this; may be given again (default: all)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the order of lanes")


def run(args: argparse.Namespace, say: Callable[[str], None]) -> list[Measure]:
    environment.ensure("lake")
    size = LEAST if args.least else QUICK if args.quick else FULL
    chosen = [name for name in SECTIONS if not args.section or name in args.section]
    if size is not FULL:
        short, full = size.rounds * size.batches, FULL.rounds * FULL.batches
        say("a short look: %d batches a lane instead of %d" % (short, full))
    measures: list[Measure] = []
    with tempfile.TemporaryDirectory(prefix="hw-bench-sink-") as folder:
        if "first" in chosen:
            measures += _first(Path(folder) / "first", size.small)
            chosen.remove("first")
        if chosen:
            measures += _Bench(Path(folder), size, random.Random(args.seed), say).run(chosen)
    return measures


class _Bench:
    """The sections that share one Spark."""

    def __init__(self, folder: Path, size: Size, rng: random.Random, say: Callable[[str], None]) -> None:
        self.folder = folder
        self.size = size
        self.rng = rng
        self.say = say

    def run(self, chosen: Sequence[str]) -> list[Measure]:
        from headwater_cloud import session

        from .support.ingest_paths import SPARK, Times, python_workers

        settings = dict(SPARK)
        if self.size.partitions:
            settings["spark.sql.shuffle.partitions"] = str(self.size.partitions)
            # So little data that compiling would take longer than computing.
            settings["spark.sql.codegen.factoryMode"] = "NO_CODEGEN"
            settings["spark.sql.codegen.wholeStage"] = "false"
        self.spark: SparkSession = session.start(
            "local[2]", environment.jars(), settings, "hw bench sink", "OFF"
        )
        self.times: Times = Times()
        self.spark.streams.addListener(self.times)
        sections = {
            "small": lambda: self._beside(self.size.small, 0.85),
            "large": lambda: self._beside(self.size.large, 0.95),
            "flat": self._flat,
            "commits": self._commits,
            "latency": self._latency,
        }
        try:
            measures = [m for name in chosen for m in sections[name]()]
            workers = python_workers()
        finally:
            self.spark.streams.removeListener(self.times)
            self.spark.stop()
        return [*measures, at_most("Python workers that Spark started", workers, "", 0)]

    # Rounds

    def _rounds(self, lanes: dict[Lane, Callable[[], list[Path]]]) -> None:
        """Let each lane take its files, in rounds; the first ones only warm up."""
        from .support.ingest_paths import opened

        with opened(lanes):
            for turn in range(self.size.warm_up + self.size.rounds):
                batches = range(self.size.batches)
                files = {lane: [p for _ in batches for p in make()] for lane, make in lanes.items()}
                order = list(lanes)
                self.rng.shuffle(order)
                for lane in order:
                    lane.drain(self.times, files[lane], turn >= self.size.warm_up)
                for paths in files.values():
                    for path in paths:
                        path.unlink(missing_ok=True)

    def _tell(self, lanes: Sequence[Lane], base: Lane, rows: int) -> dict[Lane, float]:
        """Print a line a lane; how fast each is, as a part of `base`, as the median of the rounds.

        The CPU is that of all cores and all that runs in them; other work on the machine does not disturb it.
        """
        ratios = {}
        titles = ("", "median", "min", "rows/s", "of append", "CPU", "of append")
        self.say("  %-30s %8s %8s %12s %9s %8s %9s" % titles)
        for lane in lanes:
            seconds = [s for turn in lane.rounds for s in turn]
            pairs = zip(base.rounds, lane.rounds)
            ratios[lane] = statistics.median(
                statistics.median(b) / statistics.median(own) for b, own in pairs
            )
            middle = statistics.median(seconds)
            self.say(
                "  %-30s %6.3f s %6.3f s %12s %9.2f %6.3f s %9.2f"
                % (
                    lane.name,
                    middle,
                    min(seconds),
                    f"{rows / middle:,.0f}",
                    ratios[lane],
                    statistics.median(lane.cpu),
                    statistics.median(base.cpu) / statistics.median(lane.cpu),
                )
            )
        return ratios

    def _maker(self, supply: Supply) -> Callable[[], list[Path]]:
        def make() -> list[Path]:
            supply.rows = self.size.small
            return supply.next(self.size.files)

        return make

    def _right(self, lane: Lane, expected: int) -> Measure:
        """Check that a lane neither loses nor doubles rows: its speed would mean nothing."""
        rows, different = lane.rows()
        wrong = abs(rows - different) + abs(expected - different)
        return at_most("rows lost or twice, %s" % lane.name, wrong, "rows", 0)

    # Sections

    def _beside(self, rows: int, bar: float) -> list[Measure]:
        from ..proof.segment_source import Supply
        from .support.ingest_paths import Plain, SinkLane, append, append_without_txn, merge, within_watermark

        folder = self.folder / str(rows)
        files = self.size.files
        title = "%d x %s" % (files, f"{rows:,}")
        self.say("%s rows a batch; seconds of a trigger" % title)

        def plain(name: str, body: Any, before: Any = None) -> Plain:
            return Plain(self.spark, folder, name, files, body, before)

        base, same = plain("append", append), plain("the same append", append)
        sink = SinkLane(self.spark, folder, "sink", files)
        again = SinkLane(self.spark, folder, "sink, half the files again", files)
        over = SinkLane(self.spark, folder, "sink, half of each file again", files)
        merging = plain("insert-only MERGE", merge)
        marked = plain("within a watermark", append, within_watermark)
        bare = plain("append without txn", append_without_txn)
        supply = Supply(folder / "pool", rows)
        shared: list[Path] = []

        def common(first: Lane) -> Callable[[], list[Path]]:
            """The same files for all lanes: made when the first one asks."""
            place = {"at": 0}

            def give() -> list[Path]:
                if place["at"] == len(shared):
                    shared.extend(supply.next(files))
                place["at"] += files
                return shared[place["at"] - files : place["at"]]

            return give

        twice = Supply(folder / "pool again", rows)
        halves = Supply(folder / "pool halves", rows)
        lanes: dict[Lane, Callable[[], list[Path]]] = {
            lane: common(lane) for lane in (base, same, sink, merging, marked, bare)
        }
        lanes[again] = lambda: _half_again(twice, files)
        lanes[over] = lambda: halves.next(files, rows // 2)
        self._rounds(lanes)
        each = files * rows
        ratios = self._tell([base, same, bare, sink, again, over, merging, marked], base, each)
        batches = len(shared) // files
        at = ", " + title
        return [
            Measure("the same append twice" + at, round(ratios[same], 3), "of append"),
            at_least("sink" + at, round(ratios[sink], 3), "of append", bar),
            at_least("sink, half the files again" + at, round(ratios[again], 3), "of append", 0.6),
            at_least("sink, half of each file again" + at, round(ratios[over], 3), "of append", 0.6),
            at_least("sink over MERGE" + at, round(ratios[sink] / ratios[merging], 2), "times", 3),
            at_least("sink over watermark" + at, round(ratios[sink] / ratios[marked], 2), "times", 3),
            Measure("append without txn" + at, round(ratios[bare], 3), "of append"),
            self._right(sink, batches * each),
            self._right(again, sum(twice.last.values())),
            self._right(over, sum(halves.last.values())),
        ]

    def _pair(self, old: Lane, young: Lane, supplies: Sequence[Supply]) -> float:
        """How many times longer a batch takes in `old` than in `young`."""
        files = {old: supplies[0], young: supplies[1]}
        self._rounds({lane: self._maker(supply) for lane, supply in files.items()})
        ratios = self._tell([young, old], young, self.size.files * self.size.small)
        return 1 / ratios[old]

    def _flat(self) -> list[Measure]:
        """Batches into a table that has many rows, beside batches into one that has few."""
        from ..proof.segment_source import Supply
        from .support.ingest_paths import SinkLane, opened

        folder = self.folder / "flat"
        size = self.size
        few, many = _in_words(size.few_rows), _in_words(size.grown_rows)
        lanes = [SinkLane(self.spark, folder, name, self.size.files) for name in ("many rows", "few rows")]
        supplies = [Supply(folder / ("pool %d" % i), size.large) for i in range(2)]
        for lane, supply, rows in zip(lanes, supplies, (size.grown_rows, size.few_rows)):
            with opened([lane]):
                for _ in range(rows // (size.files * size.large)):
                    lane.drain(self.times, supply.next(size.files))
            supply.rows = size.small
        self.say("a table of %s rows beside one of %s" % (many, few))
        longer = self._pair(lanes[0], lanes[1], supplies)
        title = "batch at %s rows, at %s" % (many, few)
        return [
            at_most(title, round(longer, 3), "times", 1.1),
            self._right(lanes[0], sum(supplies[0].last.values())),
        ]

    def _commits(self) -> list[Measure]:
        """Batches into a table after a day of commits, beside a new one.

        The sink serves the old lane as it is shipped, so it keeps the log short. The last commits are real.
        """
        from headwater_cloud.arguments import MAINTAIN_S
        from headwater_cloud.arguments import TRIGGER_S as SERVING_S
        from headwater_cloud.progress import Numbering

        from ..proof.segment_source import INCARNATION, Supply
        from .support.ingest_paths import SinkLane, opened
        from .support.old_log import STREAM, OldLog

        folder = self.folder / "commits"
        files, commits = self.size.files, self.size.commits
        lanes = [SinkLane(self.spark, folder, name, files) for name in ("many commits", "few commits")]
        supplies = [Supply(folder / ("pool %d" % i), self.size.small) for i in range(2)]
        old = lanes[0]
        log = Path(old.table) / "_delta_log"
        with opened([old]):
            old.drain(self.times, supplies[0].next(files))
        newest = OldLog(self.spark, Path(old.table)).write(commits)
        grown = len(list(log.iterdir())), self._listing(log)
        with opened([old]):
            rows = Numbering(["bench"], [(1, commits)], rows_landed=commits, rows_kept=commits)
            old.sink.progress.change({(STREAM, INCARNATION): rows}, time.time_ns() // 1000)
            old.sink.progress.elements = newest
            for _ in range(min(commits, round(MAINTAIN_S / SERVING_S))):
                old.sink.progress.save()
        supplies[0].rows = 100
        with opened([old]):
            old.drain(self.times, [path for _ in range(self.size.real) for path in supplies[0].next(files)])
        kept = len(list(log.iterdir())), self._listing(log)
        self.say("a table of %s commits beside a new one" % f"{commits:,}")
        for what, (number, ms) in (("written", grown), ("kept", kept)):
            self.say("  log as %s: %6d files, %7.1f ms of CPU for one listing" % (what, number, ms))
        longer = self._pair(old, lanes[1], supplies)
        title = "batch after %s commits, after few" % f"{commits:,}"
        return [
            at_most(title, round(longer, 3), "times", 1.1),
            Measure("one listing of the log, all of it kept", round(grown[1], 1), "ms"),
            Measure("one listing of the log as the sink keeps it", round(kept[1], 1), "ms"),
            self._right(old, sum(supplies[0].last.values()) + commits),
        ]

    def _listing(self, folder: Path, times: int = 10) -> float:
        """CPU of one listing of a folder, as Delta's log store does it before a commit; milliseconds."""
        from .support.ingest_paths import cpu_seconds

        jvm: Any = self.spark._jvm
        path = jvm.org.apache.hadoop.fs.Path(str(folder))
        system = path.getFileSystem(self.spark._jsc.hadoopConfiguration())
        for _ in range(3):
            system.listStatus(path)
        before = cpu_seconds()
        for _ in range(times):
            system.listStatus(path)
        return (cpu_seconds() - before) / times * 1000

    def _latency(self) -> list[Measure]:
        """A sink that serves: from a segment's name to its rows in the table, and to the acknowledgement."""
        from headwater_cloud.location import Location
        from headwater_cloud.sink import Settings, Sink

        from ..proof.segment_source import Supply
        from .support.ingest_paths import wait

        folder = self.folder / "latency"
        landing, lake = folder / "landing", folder / "lake"
        supply = Supply(landing, 1000, streams=5, sync=True)
        queryable, acknowledged = [], []
        settings = Settings(trigger_s=TRIGGER_S, maintain_s=0)
        with Sink(self.spark, Location.of(landing), Location.of(lake), settings, lambda text: None) as sink:
            failed: list[BaseException] = []
            thread = threading.Thread(target=_serve, args=(sink, failed))
            thread.start()
            try:
                for i in range(self.size.warm_up * 5 + self.size.latencies):
                    time.sleep(self.rng.uniform(0, 2 * TRIGGER_S))
                    (path,) = supply.next(1)
                    began = time.monotonic()
                    _, stream, _, run, *_ = path.name.split("~")
                    name = stream.replace(".", "/")
                    last = int(run.partition("-")[2])
                    wait(functools.partial(_there, failed, _in_table, lake, name, last), 60, "an append")
                    seen = time.monotonic() - began
                    wait(functools.partial(_there, failed, _acked, lake, name, last), 60, "an answer")
                    if failed:
                        raise failed[0]
                    if i >= self.size.warm_up * 5:
                        queryable.append(seen)
                        acknowledged.append(time.monotonic() - began - seen)
                    path.unlink()
            finally:
                sink.stop()
                thread.join()
        self.times.drop()
        name = "segment visible to rows queryable, trigger %g s, " % TRIGGER_S
        return [
            at_most(name + "median", round(statistics.median(queryable), 3), "s", TRIGGER_S + 1),
            Measure(name + "90 %", round(statistics.quantiles(queryable, n=10)[8], 3), "s"),
            at_most("from there to acknowledged", round(statistics.median(acknowledged), 3), "s", 0.2),
        ]


def _in_words(rows: int) -> str:
    return "%d M" % (rows // MILLION) if rows >= MILLION else f"{rows:,}"


def _half_again(supply: Supply, files: int) -> list[Path]:
    """Half of a batch new, half what the batch before brought, cut again."""
    half = files // 2
    turn = supply.turn
    new = supply.next(half if turn else files)
    if not turn:
        return new
    names = [supply.streams[(turn - 1 - i) % len(supply.streams)] for i in range(half)]
    return new + [
        supply.cut(name, supply.last[name] - supply.rows + 1, supply.last[name], times=1) for name in names
    ]


def _serve(sink: Any, failed: list[BaseException]) -> None:
    try:
        sink.run(once=False)
    except BaseException as error:  # re-raised in the waiting thread
        failed.append(error)


def _there(failed: list[BaseException], look: Callable[[Path, str, int], bool], *what: Any) -> bool:
    return bool(failed) or look(*what)


def _in_table(lake: Path, stream: str, last: int) -> bool:
    """Whether a reader of the table finds this row now."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        table = DeltaTable(lake / "elements")
    except TableNotFoundError:
        return False
    wanted = [("stream", "=", stream), ("xi", "=", last)]
    return bool(table.to_pyarrow_table(columns=["xi"], filters=wanted).num_rows)


def _acked(lake: Path, stream: str, last: int) -> bool:
    try:
        said = json.loads((lake / "acks" / "bench.json").read_text())
    except FileNotFoundError:
        return False
    return any(one["high"] >= last for one in said["streams"].get(stream, {}).values())


def _first(folder: Path, rows: int) -> list[Measure]:
    """`hw sink --once` as a user runs it: from the command to rows in the table."""
    from ..proof.segment_source import Supply
    from .support.ingest_paths import wait

    landing, lake = folder / "landing", folder / "lake"
    supply = Supply(landing, rows, streams=5)
    supply.next(5)
    stream, last = supply.streams[0], supply.last[supply.streams[0]]
    began = time.monotonic()
    command = [sys.executable, str(ROOT / "hw"), "sink", str(landing), str(lake), "--once"]
    with open(folder / "output", "w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            wait(lambda: process.poll() is not None or _in_table(lake, stream, last), 120, "the first append")
            landed = time.monotonic() - began
            code = process.wait(60)
        finally:
            process.kill()
            process.wait()
        ended = time.monotonic() - began
        if code or not _in_table(lake, stream, last):
            output.seek(0)
            raise UserError("`hw sink --once` ended with %d:\n%s" % (code, output.read()))
    shutil.rmtree(folder)
    return [
        at_most("`hw sink --once`: command to rows in the table", round(landed, 2), "s", 20),
        Measure("`hw sink --once`: command to its end", round(ended, 2), "s"),
    ]
