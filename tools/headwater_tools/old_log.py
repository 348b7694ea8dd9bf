"""A table `elements` with the log that thousands of commits leave, made in a minute instead of a day.

Each commit brings one row, as a sink makes one every few seconds; every hour a commit compacts what was
added since the previous one, as maintenance does. Data files, commits, both kinds of checksums and their
times are written here; every checkpoint of the log is Delta's own. So any version can be read.
"""

from __future__ import annotations

import json
import os
import struct
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from headwater_cloud.commits import Stamp
from headwater_cloud.tables import ELEMENTS_ARROW, ELEMENTS_PROPERTIES
from pyspark.sql import SparkSession

from .supply import ALPHABET, BEGIN_US, INCARNATION

STREAM = "filler"
EVERY_S = 5.0  # between two commits
COMPACTED = 720  # commits: an hour
CHECKPOINT = int(ELEMENTS_PROPERTIES["delta.checkpointInterval"])


class OldLog:
    """Writes commits after the newest one of a table, as if they had been made until now."""

    def __init__(self, spark: SparkSession, table: Path) -> None:
        self._spark = spark
        self._table = table
        self._log = table / "_delta_log"
        self._first = max(int(path.stem) for path in self._log.glob("*.json")) + 1
        self._live: dict[str, int] = {}  # files of rows that are not compacted yet, and their bytes

    def write(self, rows: int) -> int:
        """This many rows, a commit each, and the compactions between; the newest version then."""
        number = rows + rows // COMPACTED
        began = time.time() - number * EVERY_S
        version = self._first
        for xi in range(1, rows + 1):
            self._commit(version, self._added(xi, xi, version), began + (version - self._first) * EVERY_S)
            version += 1
            if xi % COMPACTED == 0:
                actions = self._compacted(xi - COMPACTED + 1, xi)
                self._commit(version, actions, began + (version - self._first) * EVERY_S, "OPTIMIZE")
                version += 1
        return version - 1

    def _commit(
        self, version: int, actions: list[Mapping[str, Any]], at: float, operation: str = "WRITE"
    ) -> None:
        info: dict[str, Any] = {"timestamp": int(at * 1000), "operation": operation}
        info["operationParameters"] = {"mode": "Append"} if operation == "WRITE" else {}
        if operation == "WRITE":
            info["userMetadata"] = Stamp(0, version, 0).text()
        lines = [json.dumps(action) for action in ({"commitInfo": info}, *actions)]
        name = "%020d.json" % version
        self._put(name, ("\n".join(lines) + "\n").encode(), at)
        self._put("%020d.crc" % version, b"of no use any more\n", at)  # Delta reads only the newest
        if version % CHECKPOINT == 0:
            jvm: Any = self._spark._jvm
            session = self._spark._jsparkSession
            none = jvm.scala.Option.empty()
            log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session, str(self._table))
            log.checkpoint(log.update(False, none, none), none)
            os.utime(self._log / ("%020d.checkpoint.parquet" % version), (at, at))

    def _put(self, name: str, data: bytes, at: float) -> None:
        """A file of the log with Hadoop's checksum beside it."""
        sums = [zlib.crc32(data[i : i + 512]) for i in range(0, len(data), 512)]
        side = b"crc\x00" + struct.pack(">i%dI" % len(sums), 512, *sums)
        for path, content in ((self._log / ("." + name + ".crc"), side), (self._log / name, data)):
            path.write_bytes(content)
            os.utime(path, (at, at))

    def _added(self, first: int, last: int, version: int = 0) -> list[Mapping[str, Any]]:
        name = "filler-%06d-%06d.parquet" % (first, last)
        number = last - first + 1
        when = pa.array(np.arange(first, last + 1) + BEGIN_US).cast(pa.timestamp("us", "UTC"))
        columns: dict[str, Any] = {
            "stream": [STREAM] * number,
            "incarnation": [INCARNATION] * number,
            "xi": range(first, last + 1),
            "unsync": [False] * number,
            "alphabet": [ALPHABET] * number,
            "ints": [[0]] * number,
            "floats": [[]] * number,
        } | dict.fromkeys(("ts", "arrived", "landed"), when)
        rows = pa.table([columns[field] for field in ELEMENTS_ARROW.names], schema=ELEMENTS_ARROW)
        pq.write_table(rows, self._table / name, compression="zstd")
        size = (self._table / name).stat().st_size
        least, most = ({"stream": STREAM, "incarnation": INCARNATION, "xi": xi} for xi in (first, last))
        zeros = dict.fromkeys(least, 0)
        stats = {"numRecords": number, "minValues": least, "maxValues": most, "nullCount": zeros}
        self._live[name] = size
        add = {
            "path": name, "partitionValues": {}, "size": size, "modificationTime": int(time.time() * 1000),
            "dataChange": first == last, "stats": json.dumps(stats),
        }  # fmt: skip
        if first != last:
            return [{"add": add}]
        return [{"txn": {"appId": "headwater", "version": version}}, {"add": add}]

    def _compacted(self, first: int, last: int) -> list[Mapping[str, Any]]:
        old, self._live = self._live, {}
        removed: list[Mapping[str, Any]] = [
            {
                "remove": {
                    "path": name, "deletionTimestamp": int(time.time() * 1000), "dataChange": False,
                    "extendedFileMetadata": True, "partitionValues": {}, "size": size,
                }
            }
            for name, size in old.items()
        ]  # fmt: skip
        added = self._added(first, last)
        self._live = {}
        return [*removed, *added]
