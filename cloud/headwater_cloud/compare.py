"""Rows that come again: equal ones are duplicates, others are divergent. Runs after the append.

`elements` then holds every ξ that is in question, whether it came today or a year ago or with another file
of the same batch. One job reads both sides and compares a count and a XOR of 64-bit hashes, of each numbering
or of each range; rows are joined only where these differ, and that join alone decides.

Which rows are meant is said to Spark in a filter of literals where it can be: that costs no job of its own,
and files and row groups are skipped by it. A join with the ranges says it of many, and where files of a batch
overlap each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from . import ranges
from .decide import Part
from .location import Location
from .progress import Key
from .ranges import Ranges
from .segment import ARROW_SCHEMA, Segment
from .tables import SEGMENT_DDL
from .views import quoted

TERMS_MAX = 64  # ranges in a filter of literals; Java no longer compiles what becomes of some hundred

# An element is ⟨ts, ξ, payload⟩; when it arrived, and whether a clock was set, is not its own.
_CONTENT = ("ts", "alphabet", "ints", "floats")
_HASH = "xxhash64(xi, ts, alphabet, ints, floats)"


def new_rows(spark: SparkSession, files: Mapping[str, Segment], parts: Sequence[Part]) -> DataFrame:
    """The rows of these parts, out of their segments (by path)."""
    wanted = _by_numbering(parts)
    if _once(files.values(), wanted, parts):
        filtered = _literal(wanted)
        if filtered:
            return _read(spark, files).where(filtered)
    return _rows_of(spark, files, parts).select(*ARROW_SCHEMA.names)


def divergent(
    spark: SparkSession, lake: Location, files: Mapping[str, Segment], overlaps: Sequence[Part]
) -> DataFrame | None:
    """What of these overlaps is no duplicate, as rows of `quarantine` without `landed`; None where all is.

    Its column `rows` is 0 where a hole was said where a row is known, else 1.
    """
    wanted = _by_numbering(overlaps)
    filtered = _literal(wanted) if _once(files.values(), wanted, overlaps) else None
    if filtered:
        by = ["stream", "incarnation"]
        came, have = _read(spark, files).where(filtered), _elements(spark, lake, filtered)
    else:
        by = ["part"]
        came, have = _rows_of(spark, files, overlaps), _known(spark, lake, overlaps)
    sides = came.selectExpr(*by, "1 AS side", _HASH + " AS hash").unionAll(
        have.selectExpr(*by, "0 AS side", _HASH + " AS hash")
    )
    summary: dict[tuple[object, ...], dict[int, tuple[int, int]]] = {}
    for row in (
        sides.groupBy(*by, "side").agg(F.count("*").alias("n"), F.bit_xor("hash").alias("x")).collect()
    ):
        summary.setdefault(tuple(row[name] for name in by), {})[row["side"]] = (row["n"], row["x"])
    suspects = []
    for i, part in enumerate(overlaps):
        seen = summary.get((part.stream, part.incarnation) if filtered else (i,), {})
        if seen.get(0) != seen.get(1):
            suspects.append(part)
    return _differences(spark, lake, files, suspects) if suspects else None


def _by_numbering(parts: Iterable[Part]) -> dict[Key, Ranges]:
    found: dict[Key, list[ranges.Range]] = {}
    for p in parts:
        found.setdefault((p.stream, p.incarnation), []).append((p.first, p.last))
    return {key: ranges.normal(found[key]) for key in sorted(found)}


def _once(segments: Iterable[Segment], wanted: Mapping[Key, Ranges], parts: Iterable[Part]) -> bool:
    """Whether a filter on ξ takes from these segments what the parts name, and nothing else besides."""
    there = sum(ranges.size(ranges.intersect(_entries(s), wanted.get(s.key, []))) for s in segments)
    return there == sum(part.last - part.first + 1 for part in parts)


def _entries(segment: Segment) -> Ranges:
    """Rows and holes, as parts of overlaps have them."""
    holes = [(gap.first, gap.last) for gap in segment.gaps if gap.kind == "hole"]
    return ranges.normal([*segment.row_ranges(), *holes])


def _literal(wanted: Mapping[Key, Ranges]) -> str:
    """A filter on what is wanted; empty where it would be too long."""
    if sum(map(len, wanted.values())) > TERMS_MAX:
        return ""
    return " OR ".join(
        "(stream = %s AND incarnation = %s AND xi BETWEEN %d AND %d)"
        % (quoted(stream), _bigint(incarnation), first, last)
        for (stream, incarnation), pieces in wanted.items()
        for first, last in pieces
    )


def _bigint(value: int) -> str:
    """A literal of type bigint; the lowest one has no other."""
    return "%dL" % value if value > -(1 << 63) else "(-9223372036854775807L - 1L)"


def _read(spark: SparkSession, paths: Iterable[str]) -> DataFrame:
    return spark.read.schema(SEGMENT_DDL).parquet(*sorted(paths))


def _elements(spark: SparkSession, lake: Location, filtered: str) -> DataFrame:
    return spark.read.format("delta").load((lake / "elements").spark).where(filtered)


def _parts_frame(spark: SparkSession, parts: Sequence[Part]) -> DataFrame:
    """Parts as a small table."""
    values = ", ".join(
        "(%d, %s, %s, %s, %s, %dL, %dL)"
        % (
            i,
            quoted(p.file),
            quoted(p.process),
            quoted(p.stream),
            _bigint(p.incarnation),
            p.first,
            p.last,
        )
        for i, p in enumerate(parts)
    )
    names = "part, file_name, part_process, part_stream, part_incarnation, first, last"
    return spark.sql("SELECT * FROM VALUES %s AS t(%s)" % (values, names))


def _rows_of(spark: SparkSession, paths: Iterable[str], parts: Sequence[Part]) -> DataFrame:
    """The rows of segments that lie within these parts, with the number of their part."""
    read = _read(spark, paths).select("*", "_metadata.file_name")
    return read.join(F.broadcast(_parts_frame(spark, parts)), "file_name").where("xi BETWEEN first AND last")


def _known(spark: SparkSession, lake: Location, parts: Sequence[Part]) -> DataFrame:
    """The rows of `elements` within the parts; literals in the filter let Delta skip files."""
    wanted = _by_numbering(parts)
    spans = {key: [(pieces[0][0], pieces[-1][1])] for key, pieces in wanted.items()}
    filtered = (
        _literal(wanted)
        or _literal(spans)
        or "xi BETWEEN %d AND %d"
        % (min(span[0][0] for span in spans.values()), max(span[0][1] for span in spans.values()))
    )
    frame = F.broadcast(_parts_frame(spark, parts))
    on = (
        (F.col("stream") == F.col("part_stream"))
        & (F.col("incarnation") == F.col("part_incarnation"))
        & F.col("xi").between(F.col("first"), F.col("last"))
    )
    return _elements(spark, lake, filtered).join(frame, on)


def _differences(
    spark: SparkSession, lake: Location, paths: Iterable[str], parts: Sequence[Part]
) -> DataFrame:
    came = _rows_of(spark, paths, parts).select(
        F.col("part"),
        F.col("xi"),
        F.struct(*_CONTENT).alias("came"),
        F.to_json(F.struct("stream", "incarnation", "xi", "ts", "unsync", "arrived", *_CONTENT[1:])).alias(
            "json"
        ),
    )
    have = _known(spark, lake, parts).select(F.col("part"), F.col("xi"), F.struct(*_CONTENT).alias("have"))
    names = _parts_frame(spark, parts).drop("first", "last")
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
