"""Recovers progress from the tables: after a kill, a lost table, a lake that was taken back.

`absorb` adds rows that are in `elements` and unknown to progress, because the sink died between the two;
`rebuild` computes progress from the rows. Both raise the generation, so that no transaction of former batches
can make Delta skip a new one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from . import checksum, commits, ranges, tables
from .checksum import Span, Spans
from .commits import Commit
from .files import Files
from .location import Location
from .progress import Key, Numbering, Progress
from .settled import Settled

# Other commits of `elements`: only these remove rows that progress must drop.
TAKEN_BACK = ("RESTORE",)


def absorb(
    spark: SparkSession, lake: Location, progress: Progress, settled: Settled, behind: Iterable[Commit]
) -> None:
    """Count the rows of these commits as landed and kept; add gaps that were recorded with them."""
    paths = [path for commit in behind for path in commits.paths(lake / "elements", commit)]
    if not paths:
        return
    rows = spark.read.schema(tables.ELEMENTS_DDL).parquet(*paths)
    changed: dict[Key, Numbering] = {}
    before = settled.others(progress) | progress.numberings

    def of(key: Key) -> Numbering:
        if key not in changed:
            changed[key] = before[key].copy() if key in before else Numbering()
        return changed[key]

    for key, runs, count, last_ts_us, sums in _runs(rows):
        numbering = of(key)
        fresh = ranges.size(ranges.subtract(runs, numbering.known))
        numbering.known = ranges.union(numbering.known, runs)
        numbering.gaps = ranges.subtract(numbering.gaps, runs)
        numbering.rows_landed += count
        numbering.rows_kept += fresh
        numbering.rows_duplicate += count - fresh
        numbering.last_ts_us = max(last_ts_us, numbering.last_ts_us or 0)
        for span in sums:
            numbering.sums = checksum.put(numbering.sums, span)
    _take_gaps(lake, of)
    changed = {key: one for key, one in changed.items() if one != before.get(key)}
    _take_names(lake, changed)
    progress.change(changed, time.time_ns() // 1000)


def rebuild(spark: SparkSession, lake: Location, before: Progress) -> Progress:
    """Progress from `elements` and `gaps` alone; of the one before, generation, counts and names remain.

    `before` has all incarnations, and afterwards nothing may be in `settled`.
    """
    progress = replace(before, numberings={}, updated={})
    found: dict[Key, Numbering] = {}
    rows = spark.read.format("delta").load((lake / "elements").spark)
    for key, runs, count, last_ts_us, sums in _runs(rows):
        found[key] = Numbering(known=runs, rows_kept=count, last_ts_us=last_ts_us, sums=sums)
    _take_gaps(lake, lambda key: found.setdefault(key, Numbering()))
    for key, numbering in found.items():
        was = before.numberings.get(key, Numbering())
        numbering.processes += [p for p in was.processes if p not in numbering.processes]
        numbering.rows_duplicate = was.rows_duplicate
        numbering.rows_quarantined = was.rows_quarantined
        numbering.rows_landed = numbering.rows_kept + was.rows_duplicate + was.rows_quarantined
    _take_names(lake, found)
    progress.change(found, time.time_ns() // 1000)
    for key, numbering in before.numberings.items():
        if key in found and found[key].accounted() == numbering.accounted():
            progress.updated[key] = before.updated[key]  # nothing new: it is as quiet as it was
    return progress


def _take_gaps(lake: Location, of: Callable[[Key], Numbering]) -> None:
    """Account for what the table `gaps` names."""
    for gap in tables.rows(lake / "gaps"):
        numbering = of((gap["stream"], gap["incarnation"]))
        run = [(gap["first"], gap["last"])]
        if gap["kind"] == "hole":
            numbering.known = ranges.union(numbering.known, run)
        numbering.gaps = ranges.subtract(ranges.union(numbering.gaps, run), numbering.known)
        if gap["process"] not in numbering.processes:
            numbering.processes.append(gap["process"])


def _take_names(lake: Location, numberings: Mapping[Key, Numbering]) -> None:
    """Add the processes of the table `streams`: they need acknowledgements of what has landed."""
    names: dict[str, list[str]] = {}
    for row in tables.rows(lake / "streams"):
        names.setdefault(row["stream"], []).append(row["process"])
    for key, numbering in numberings.items():
        for process in names.get(key[0], []):
            if process not in numbering.processes:
                numbering.processes.append(process)


def unaccounted(files: Files, lake: Location, progress: Progress) -> bool:
    """Whether rows landed or were erased, or the table was taken back, since the version of progress."""
    behind = commits.since(files, lake / "elements", progress.elements)
    return any(c.added or c.erasure or c.operation in TAKEN_BACK for c in behind)


def advance(files: Files, lake: Location, progress: Progress) -> bool:
    """Let progress name the newest version of `elements`, if no rows landed or left since the one it names.

    After maintenance: the log drops old commits, and progress must not name a dropped one.
    """
    behind = commits.since(files, lake / "elements", progress.elements)
    if not behind or unaccounted(files, lake, progress):
        return False
    progress.elements = behind[-1].version
    return True


def _runs(rows: DataFrame) -> list[tuple[Key, ranges.Ranges, int, int, Spans]]:
    """Of each incarnation: its runs of ξ, its rows, the time of the last, and the checksums of the runs."""
    numbering = Window.partitionBy("stream", "incarnation").orderBy("xi")
    found: dict[Key, list[tuple[Span, int]]] = {}
    runs = (
        rows.selectExpr("stream", "incarnation", "xi", "ts", "%s AS hash" % checksum.SQL)
        .withColumn("place", F.col("xi") - F.row_number().over(numbering))
        .groupBy("stream", "incarnation", "place")
        .agg(
            F.min("xi").alias("first"),
            F.max("xi").alias("last"),
            F.count("*").alias("n"),
            F.unix_micros(F.max("ts")).alias("last_ts"),
            F.bit_xor("hash").alias("sum"),
        )
    )
    for row in runs.collect():
        span = Span(row["first"], row["last"], row["n"], row["sum"])
        found.setdefault((row["stream"], row["incarnation"]), []).append((span, row["last_ts"]))
    out = []
    for key, lines in sorted(found.items()):
        spans: Spans = []
        for span, _ in sorted(lines, key=lambda line: line[0].first):
            spans = checksum.put(spans, span)
        pairs = ranges.normal((span.first, span.last) for span, _ in lines)
        rows_there = checksum.total(spans)[0]
        out.append((key, pairs, rows_there, max(ts for _, ts in lines), spans))
    return out
