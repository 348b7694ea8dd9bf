"""What is refused: unreadable files, divergent rows. Kept with reason and bytes, each once.

Few batches have any, so this may cost a Spark commit. A file or row that is in quarantine already, because
a batch was cut into other files after a crash, is not written again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from .location import Location
from .segment import SegmentError, read_name

RAW_MAX = 16 << 20  # bytes of a file that are kept

_COLUMNS = (
    "process", "stream", "incarnation", "first", "last", "rows", "reason", "detail", "file", "raw", "landed"
)  # fmt: skip


@dataclass(frozen=True)
class Unreadable:
    """A file of the landing zone that is no segment."""

    path: str
    file: str
    reason: str
    detail: str

    @property
    def process(self) -> str | None:
        """As the name tells it; None where the name is none of a segment."""
        try:
            return read_name(self.file).process
        except SegmentError:
            return None


def unreadable_frame(spark: SparkSession, files: Sequence[Unreadable]) -> DataFrame:
    """Unreadable files as rows of `quarantine` without `landed`."""
    rows: list[tuple[object, ...]] = []
    for bad in files:
        try:
            name = read_name(bad.file)
            told = (name.process, name.stream, name.incarnation, name.first, name.last, name.rows)
            rows.append((*told, bad.reason, bad.detail, bad.file))
        except SegmentError:
            rows.append((None, None, None, None, None, None, bad.reason, bad.detail, bad.file))
    frame = spark.createDataFrame(
        rows,
        "process string, stream string, incarnation bigint, first bigint, last bigint, rows bigint, "
        "reason string, detail string, file string",
    )
    return frame.join(F.broadcast(_raw(spark, [bad.path for bad in files])), "file", "left")


def _raw(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """file, raw: what is left of the files."""
    empty = spark.sql("SELECT '' AS file, CAST(NULL AS binary) AS raw LIMIT 0")
    frames = []
    for path in paths:
        try:
            read = spark.read.format("binaryFile").load(path).where("length <= %d" % RAW_MAX)
        except AnalysisException:  # somebody took it away
            continue
        frames.append(read.selectExpr("element_at(split(path, '/'), -1) AS file", "content AS raw"))
    for frame in frames:
        empty = empty.unionAll(frame)
    return empty


def append(spark: SparkSession, lake: Location, frame: DataFrame, landed_us: int) -> None:
    """Append rows without `landed`, but for those that are there."""
    table = (lake / "quarantine").spark
    there = spark.read.format("delta").load(table).select("file", "first", "last", "reason")
    same = [F.col("new." + name).eqNullSafe(F.col("old." + name)) for name in there.columns]
    new = frame.alias("new").join(there.alias("old"), same, "left_anti")
    whole = new.withColumn("landed", F.expr("timestamp_micros(%d)" % landed_us)).select(*_COLUMNS)
    whole.write.format("delta").mode("append").save(table)
