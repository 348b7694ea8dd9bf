"""A batch that fails repeatedly is taken apart: which of its files is at fault?

A file may pass every check and still be one that Spark cannot read: pages that were damaged before their CRC
was taken, an encoding that it does not know. Such a file must not stop the others. The files of the batch are
read together, without writing anything; if that fails, each half of them, down to single files. A file is at
fault if it fails alone while its bytes can be read. If the bytes of a file on an object store cannot be read,
the store is at fault, and that is an error of the batch as before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from . import tables
from .decide import decide
from .errors import sentence
from .files import Files
from .location import Location
from .quarantine import Unreadable
from .segment import SIZE_MAX, Segment, SegmentError, read_name

# What the stream reads of each file. The footer's length is before the last four bytes; of a file that is
# not in Parquet format the last bytes are taken, whatever they are.
SOURCE_SCHEMA = "path string, modificationTime timestamp, length bigint, content binary"
_FOOTER_BYTES = (
    "least(cast(conv(concat(hex(substring(content, -5, 1)), hex(substring(content, -6, 1)), "
    "hex(substring(content, -7, 1)), hex(substring(content, -8, 1))), 16, 10) as bigint), 4194304)"
)
SELECT = (
    "path",
    "length",
    "crc32(content) AS crc",
    "IF(length < 12, content, substring(content, -8 - cast(%s AS int))) AS footer" % _FOOTER_BYTES,
)


def literal(path: str) -> str:
    """A path that Spark takes literally, even if it contains characters of patterns."""
    return re.sub(r"([\\\[\]{}*?])", r"\\\1", path)


def reading(spark: SparkSession, paths: Iterable[str]) -> DataFrame:
    """The rows of segments."""
    return spark.read.schema(tables.SEGMENT_DDL).parquet(*map(literal, paths))


def given(files: Files, checkpoint: Location, batch: int) -> list[str]:
    """The files of a batch, from Spark's checkpoint; none if it does not tell.

    The stream's rows are not enough: a file without bytes gives none, and one that cannot be read fails all.
    """
    log = checkpoint / "sources" / "0"
    found: dict[str, None] = {}
    try:
        first, last = (_offset(files, checkpoint, number) for number in (batch - 1, batch))
        marks = ['"batchId":%d' % number for number in range(first + 1, last + 1)]
        for name in sorted(files.sizes(log)):
            number, dot, kind = name.partition(".")
            compact = kind == "compact"
            if number.isdecimal() and int(number) > first and (compact or not dot and int(number) <= last):
                for line in (files.read(log / name) or "").splitlines()[1:]:
                    if any(mark in line for mark in marks):
                        entry = json.loads(line)
                        if first < entry["batchId"] <= last:
                            found[unquote(entry["path"])] = None
    except (ValueError, LookupError, TypeError):
        return []
    return list(found)


def _offset(files: Files, checkpoint: Location, batch: int) -> int:
    """How far in its log of files the stream had come with a batch."""
    if batch < 0:
        return -1
    text = files.read(checkpoint / "offsets" / str(batch)) or ""
    return int(json.loads(text.splitlines()[2])["logOffset"])


def files_of(spark: SparkSession, files: Files, landing: Location, paths: Iterable[str]) -> list[Any]:
    """What the stream would read of each of these files, file by file; without those that are gone.

    One whose bytes cannot be read has an `error` instead: this user may not, or its disk is damaged.
    """
    rows: list[Any] = []
    for path in paths:
        file = path.rpartition("/")[2]
        try:
            read_name(file)
        except SegmentError:
            rows.append({"path": path, "length": 0, "crc": 0, "footer": b""})
            continue
        read = spark.read.format("binaryFile").schema(SOURCE_SCHEMA).option("recursiveFileLookup", "true")
        try:
            small = read.load(literal(path)).where("length <= %d" % SIZE_MAX)
            rows += small.selectExpr(*SELECT).collect()
        except (Py4JError, PySparkException) as error:
            if files.exists(landing / file):  # so the store answers
                rows.append({"path": path, "length": 0, "crc": 0, "footer": b"", "error": sentence(error)})
    return rows


class Probe:
    """Reads segments as a batch does, and writes nothing."""

    def __init__(self, spark: SparkSession, files: Files, landing: Location) -> None:
        self._spark = spark
        self._files = files
        self._landing = landing

    def at_fault(self, good: dict[str, Segment]) -> tuple[dict[str, Unreadable], list[str]]:
        """Of these segments by path: those that cannot be read, and those that are gone."""
        faults: dict[str, Unreadable] = {}
        gone: list[str] = []
        for path, one in good.items():
            error = _unrecordable(one)
            if error is not None:
                detail = "the tables cannot hold what it declares: %s" % error
                faults[path] = Unreadable(self._landing / one.file, one.file, "footer", detail)
        waiting = [[path for path, one in good.items() if one.rows and path not in faults]]
        while waiting:
            paths = waiting.pop()
            error = self._fails(paths, sum(good[path].rows for path in paths)) if paths else None
            if error is None:
                continue
            if len(paths) > 1:
                waiting += [paths[: len(paths) // 2], paths[len(paths) // 2 :]]
                continue
            (path,) = paths
            at = self._landing / good[path].file
            if not self._files.exists(at):
                gone.append(path)
                continue
            self._files.parts(at, [(0, 1)])  # a store that does not answer is an error of the batch
            detail = "Spark cannot read its rows: %s" % error
            faults[path] = Unreadable(at, good[path].file, "layout", detail)
        return faults, gone

    def _fails(self, paths: Sequence[str], rows: int) -> str | None:
        """Why these files cannot be read; None if they can."""
        counted = Observation()
        read = reading(self._spark, paths)
        try:
            watched = read.observe(counted, F.count(F.lit(1)).alias("rows"))
            watched.write.format("noop").mode("overwrite").save()
        except (Py4JError, PySparkException) as error:
            return sentence(error)
        found = counted.get["rows"]
        return None if found == rows else "it has %d rows where %d are declared" % (found, rows)


def _unrecordable(one: Segment) -> str | None:
    """Why the small tables cannot take what a segment declares; None if they can."""
    told = {
        "process": one.process,
        "stream": one.stream,
        "alphabet": one.alphabet,
        "within_ms": one.within_ms,
    }
    try:
        pa.Table.from_pylist(decide([one], {}).gaps, schema=tables.SCHEMAS["gaps"])
        pa.Table.from_pylist([told], schema=tables.SCHEMAS["streams"])
        pa.array([one.last_ts_us], pa.timestamp("us"))
    except (ValueError, TypeError, ArithmeticError, pa.ArrowException) as error:
        return sentence(error)
    return None
