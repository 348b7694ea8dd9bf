"""Refused files and divergent rows. Kept with reason and bytes, each once.

Few batches have any, so this may cost a Spark commit. A file or row that is in quarantine already, because
a batch was cut into other files after a crash, is not written again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from . import tables
from .files import Files
from .location import Location
from .segment import SegmentError, read_name

RAW_MAX = 16 << 20  # bytes of a file that are kept
COMMIT_BYTES = 64 << 20  # bytes of files that one commit takes, roughly

_COLUMNS = (
    "process", "stream", "incarnation", "first", "last", "rows", "reason", "detail", "file", "raw", "landed"
)  # fmt: skip


@dataclass(frozen=True)
class Unreadable:
    """A file of the landing zone that is not a valid segment."""

    at: Location
    file: str
    reason: str
    detail: str

    @property
    def process(self) -> str | None:
        """As the name tells it; None if it is not the name of a segment."""
        try:
            return read_name(self.file).process
        except SegmentError:
            return None

    def row(self) -> dict[str, Any]:
        """As a row of `quarantine`, without `raw` and `landed`."""
        row: dict[str, Any] = {"reason": self.reason, "detail": printable(self.detail)}
        row["file"] = printable(self.file)
        try:
            name = read_name(self.file)
        except SegmentError:
            return row
        for key in ("process", "stream", "incarnation", "first", "last", "rows"):
            row[key] = getattr(name, key)
        return row


def printable(text: str) -> str:
    """Text that a table can hold: of a name that is not UTF-8 the bytes in question are written \\xNN."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def refused(lake: Location) -> list[dict[str, Any]]:
    """process, file, reason and landed of all files that are in quarantine."""
    columns = ["process", "file", "reason", "landed"]
    return tables.rows(lake / "quarantine", columns, [("reason", "!=", "divergent")])


def put(
    files: Files,
    lake: Location,
    bad: Sequence[Unreadable],
    landed_us: int,
    spares: Callable[[str, bytes], bool] = lambda file, raw: True,
) -> None:
    """Add unreadable files, except those that are there, with the bytes that an erasure `spares`."""
    key = ("file", "first", "last", "reason")
    there = {
        tuple(row[k] for k in key)
        for row in tables.rows(lake / "quarantine", key, [("reason", "!=", "divergent")])
    }
    rows: list[dict[str, Any]] = []
    size = 0
    for item in bad:
        row = item.row()
        if tuple(row.get(k) for k in key) in there:
            continue
        raw = _raw(files, item)
        if raw is not None and not spares(item.file, raw):
            raw = None
        size += len(raw or b"")
        rows.append({**row, "raw": raw, "landed": landed_us})
        if size > COMMIT_BYTES:
            tables.append(lake / "quarantine", rows, {})
            rows, size = [], 0
    if rows:
        tables.append(lake / "quarantine", rows, {})


def _raw(files: Files, item: Unreadable) -> bytes | None:
    """What is left of a file; None if it cannot be read."""
    try:
        return files.content(item.at, RAW_MAX)
    except (OSError, Py4JError):  # a folder, a file that this user may not read, a name that Hadoop refuses
        return None


def append(spark: SparkSession, lake: Location, frame: DataFrame, landed_us: int) -> None:
    """Append rows without `landed`, except those that are there."""
    table = (lake / "quarantine").spark
    there = spark.read.format("delta").load(table).select("file", "first", "last", "reason")
    same = [F.col("new." + name).eqNullSafe(F.col("old." + name)) for name in there.columns]
    new = frame.alias("new").join(there.alias("old"), same, "left_anti")
    whole = new.withColumn("landed", F.expr("timestamp_micros(%d)" % landed_us)).select(*_COLUMNS)
    whole.write.format("delta").mode("append").save(table)
