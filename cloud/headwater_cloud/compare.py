"""Rows that arrive again: equal ones are duplicates, others are divergent.

A run that arrives again whole is recognised by its checksum, and so is one that is followed by new rows;
neither is compared here unless its checksum differs. `elements` holds every ξ in question,
whether it landed a minute ago or a year ago; for files that overlap each other in one batch it does after the
append. One job reads both sides and compares a count and the checksum of each range; rows are joined only in
ranges where these differ, and that join alone decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from . import checksum
from .apart import reading
from .decide import Decision, Part
from .location import Location
from .segment import Segment
from .views import quoted

PREDICATES_MAX = 100  # beyond so many incarnations the filter that skips files gets coarse

# An element is ⟨ts, ξ, payload⟩; when it arrived, and whether a clock was set, is not part of it. This is how
# two of them are compared: `<=>` treats -0.0 as 0.0.
_EXACT = "struct(ts, alphabet, ints, %s AS floats)" % checksum.FLOATS


def parts_frame(spark: SparkSession, parts: Sequence[Part]) -> DataFrame:
    """Parts as a small table without a job."""
    values = ", ".join(
        "(%d, %s, %s, %s, %dL, %dL, %dL, %d)"
        % (i, quoted(p.file), quoted(p.process), quoted(p.stream), p.incarnation, p.first, p.last, p.turn)
        for i, p in enumerate(parts)
    ).replace("-9223372036854775808L", "(-9223372036854775807L - 1L)")
    names = "part, file_name, part_process, part_stream, part_incarnation, first, last, turn"
    return spark.sql("SELECT * FROM VALUES %s AS t(%s)" % (values, names))


def rows_of(spark: SparkSession, paths: Iterable[str], parts: Sequence[Part]) -> DataFrame:
    """The rows of segments that lie within these parts, with the number of their part."""
    read = reading(spark, paths).select("*", "_metadata.file_name")
    return read.join(F.broadcast(parts_frame(spark, parts)), "file_name").where("xi BETWEEN first AND last")


def divergent(
    spark: SparkSession, lake: Location, paths: Iterable[str], overlaps: Sequence[Part], hashed: str
) -> tuple[DataFrame | None, dict[str, int]]:
    """The rows of these overlaps that are not duplicates, for `quarantine`, without `landed`; None if all
    are. And the checksum of the rows of each file in them.

    The column `rows` is 0 if a hole was declared where a row is known, else 1. `hashed` is the hash of a
    row of these files, in SQL.
    """
    paths = list(paths)
    came = rows_of(spark, paths, overlaps)
    have = _known(spark, lake, overlaps)
    sides = came.selectExpr("part", "1 AS side", hashed + " AS hash").unionAll(
        have.selectExpr("part", "0 AS side", hashed + " AS hash")
    )
    summary: dict[int, dict[int, tuple[int, int]]] = {}
    for row in (
        sides.groupBy("part", "side").agg(F.count("*").alias("n"), F.bit_xor("hash").alias("x")).collect()
    ):
        summary.setdefault(row["part"], {})[row["side"]] = (row["n"], row["x"])
    suspects = []
    sums: dict[str, int] = {}
    for i, part in enumerate(overlaps):
        known, new = (summary.get(i, {}).get(side, (0, 0)) for side in (0, 1))
        sums[part.file] = sums.get(part.file, 0) ^ new[1]
        if known != new:
            suspects.append(part)
    return _differences(spark, lake, paths, suspects) if suspects else None, sums


def sums(spark: SparkSession, paths: Iterable[str], hashed: str) -> dict[str, int]:
    """The checksum of all rows of each of these files, by file."""
    rows = reading(spark, paths).select("*", "_metadata.file_name")
    return _by_file(rows, hashed)


def dropped(spark: SparkSession, good: Mapping[str, Segment], decision: Decision) -> dict[str, int]:
    """By file, the checksum of the rows that are left out of it because they are erased."""
    parts = [part for part in decision.dropped if part.file in decision.partly]
    if not parts:
        return {}
    files = {part.file for part in parts}
    hashed = checksum.sql({decision.partly[file].alphabet for file in files})
    return _by_file(rows_of(spark, [path for path, s in good.items() if s.file in files], parts), hashed)


def _by_file(rows: DataFrame, hashed: str) -> dict[str, int]:
    summed = rows.groupBy("file_name").agg(F.expr("bit_xor(%s)" % hashed).alias("sum"))
    return {row["file_name"]: row["sum"] for row in summed.collect()}


def _known(spark: SparkSession, lake: Location, parts: Sequence[Part]) -> DataFrame:
    """The rows of `elements` within the parts; literals in the filter let Delta skip files."""
    spans: dict[tuple[str, int], tuple[int, int]] = {}
    for p in parts:
        first, last = spans.get((p.stream, p.incarnation), (p.first, p.last))
        spans[p.stream, p.incarnation] = min(first, p.first), max(last, p.last)
    if len(spans) <= PREDICATES_MAX:
        wanted = " OR ".join(
            "(stream = %s AND xi BETWEEN %d AND %d)" % (quoted(stream), first, last)
            for (stream, _), (first, last) in sorted(spans.items())
        )
    else:
        wanted = "xi BETWEEN %d AND %d" % (
            min(s[0] for s in spans.values()),
            max(s[1] for s in spans.values()),
        )
    elements = spark.read.format("delta").load((lake / "elements").spark).where(wanted)
    frame = F.broadcast(parts_frame(spark, parts))
    on = (
        (F.col("stream") == F.col("part_stream"))
        & (F.col("incarnation") == F.col("part_incarnation"))
        & F.col("xi").between(F.col("first"), F.col("last"))
    )
    return elements.join(frame, on)


def _differences(spark: SparkSession, lake: Location, paths: list[str], parts: Sequence[Part]) -> DataFrame:
    came = rows_of(spark, paths, parts).select(
        F.col("part"),
        F.col("xi"),
        F.expr(_EXACT).alias("came"),
        F.to_json(
            F.struct("stream", "incarnation", "xi", "ts", "unsync", "arrived", "alphabet", "ints", "floats"),
            {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"},
        ).alias("json"),
    )
    have = _known(spark, lake, parts).select(F.col("part"), F.col("xi"), F.expr(_EXACT).alias("have"))
    names = parts_frame(spark, parts).drop("first", "last", "turn")
    both = came.join(have, ["part", "xi"], "full_outer").where("NOT (came <=> have)")
    return both.join(F.broadcast(names), "part").select(
        F.col("part_process").alias("process"),
        F.col("part_stream").alias("stream"),
        F.col("part_incarnation").alias("incarnation"),
        F.col("xi").alias("first"),
        F.col("xi").alias("last"),
        F.when(F.col("came").isNull(), 0).otherwise(1).cast("bigint").alias("rows"),
        F.lit("divergent").alias("reason"),
        F.when(F.col("came").isNull(), "it says that there is a hole where a row is known")
        .when(F.col("have").isNull(), "it has a row where a hole is known")
        .otherwise("a row with this ξ and another ts, alphabet or payload is known")
        .alias("detail"),
        F.col("file_name").alias("file"),
        F.encode("json", "utf-8").alias("raw"),
    )
