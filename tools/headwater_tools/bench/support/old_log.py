"""A table `elements` with the log that thousands of commits leave, made in a minute instead of a day.

Each commit brings one row, as a sink makes one every few seconds; every hour a commit compacts what came
since the one before, as maintenance does. Data files, commits, both kinds of checksums, checkpoints of the
log and their times are written here, with the schema and metadata of a checkpoint that Delta wrote. So any
version can be read.
"""

from __future__ import annotations

import io
import json
import os
import struct
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from headwater_cloud.commits import Stamp
from headwater_cloud.tables import ELEMENTS_ARROW, ELEMENTS_PROPERTIES
from pyspark.sql import SparkSession

from ...proof.segment_source import ALPHABET, BEGIN_US, INCARNATION

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
        self._newest = max(int(path.stem) for path in self._log.glob("*.json"))
        self._live: dict[str, Mapping[str, Any]] = {}  # files that are not compacted yet, as they were added
        model = pq.read_table(self._delta_checkpoint())
        self._schema = model.schema
        self._fixed = model.filter(pc.is_null(model["txn"]))  # protocol, metadata, and the first files
        self._whole: list[pa.Table] = []  # the actions of compactions, as a checkpoint has them

    def write(self, rows: int) -> int:
        """This many rows, a commit each, and the compactions between; the newest version then."""
        number = rows + rows // COMPACTED
        began = time.time() - number * EVERY_S
        first = version = self._newest + 1
        for xi in range(1, rows + 1):
            self._commit(version, self._added(xi, xi, version), began + (version - first) * EVERY_S)
            version += 1
            if xi % COMPACTED == 0:
                actions = self._compacted(xi - COMPACTED + 1, xi)
                self._whole.append(self._actions(actions))
                self._commit(version, actions, began + (version - first) * EVERY_S, "OPTIMIZE")
                version += 1
        jvm: Any = self._spark._jvm
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        return version - 1

    def _delta_checkpoint(self) -> Path:
        """A checkpoint of the log as it is, written by Delta."""
        jvm: Any = self._spark._jvm
        none = jvm.scala.Option.empty()
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self._spark._jsparkSession, str(self._table))
        log.checkpoint(log.update(False, none, none), none)
        return self._log / ("%020d.checkpoint.parquet" % self._newest)

    def _commit(
        self, version: int, actions: list[Mapping[str, Any]], at: float, operation: str = "WRITE"
    ) -> None:
        info: dict[str, Any] = {"timestamp": int(at * 1000), "operation": operation}
        info["operationParameters"] = {"mode": "Append"} if operation == "WRITE" else {}
        if operation == "WRITE":
            info["userMetadata"] = Stamp(0, version, 0).text()
        lines = [json.dumps(action) for action in ({"commitInfo": info}, *actions)]
        self._put("%020d.json" % version, ("\n".join(lines) + "\n").encode(), at)
        self._put("%020d.crc" % version, b"of no use any more\n", at)  # Delta reads only the newest
        if version % CHECKPOINT == 0:
            self._checkpoint(version, at)

    def _checkpoint(self, version: int, at: float) -> None:
        """As Delta writes it: the state of the table, with the files that were removed within a week."""
        last: list[Mapping[str, Any]] = [{"txn": {"appId": "headwater", "version": version}}]
        live = [{"add": add} for add in self._live.values()]
        state = pa.concat_tables([self._fixed, *self._whole, self._actions([*last, *live])])
        out = io.BytesIO()
        pq.write_table(state, out, write_page_checksum=True)
        self._put("%020d.checkpoint.parquet" % version, out.getvalue(), at)
        said = json.dumps({"version": version, "size": state.num_rows})
        self._put("_last_checkpoint", said.encode(), at)

    def _actions(self, actions: Sequence[Mapping[str, Any]]) -> pa.Table:
        return pa.Table.from_pylist([dict(action) for action in actions], schema=self._schema)

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
        add = {
            "path": name, "partitionValues": {}, "size": size, "modificationTime": int(time.time() * 1000),
            "dataChange": first == last, "stats": json.dumps(stats),
        }  # fmt: skip
        if first != last:
            return [{"add": add}]
        self._live[name] = add
        return [{"txn": {"appId": "headwater", "version": version}}, {"add": add}]

    def _compacted(self, first: int, last: int) -> list[Mapping[str, Any]]:
        old, self._live = self._live, {}
        removed: list[Mapping[str, Any]] = [
            {
                "remove": {
                    "path": name, "deletionTimestamp": int(time.time() * 1000), "dataChange": False,
                    "extendedFileMetadata": True, "partitionValues": {}, "size": add["size"],
                }
            }
            for name, add in old.items()
        ]  # fmt: skip
        return [*removed, *self._added(first, last)]
