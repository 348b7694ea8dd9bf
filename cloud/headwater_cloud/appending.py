"""The rows that a batch appends, and their checksum as the append itself sees it.

What is observed is the XOR of the hashes of all rows, in the pass that writes them. Rows of a file that is
new in part may carry a claim about its known part (see `decide`). Such a file has a number, its `turn`, and
the hashes of its rows are rotated by that number of bits: equal errors in two files, as two streams with the
same values have them, then do not cancel each other.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from . import apart, checksum, compare, segment, tables
from .decide import Decision
from .segment import Segment

OBSERVED_S = 10.0  # how long Spark may take to report what an append saw


class Rows:
    """The new rows of a batch, as `frame`; once it is written, `sum` has their checksum."""

    def __init__(
        self, spark: SparkSession, good: Mapping[str, Segment], decision: Decision, landed_us: int
    ) -> None:
        """`good`: segments by path."""
        self._watches: list[Observation] = []
        path_of = {s.file: path for path, s in good.items()}
        columns = [*segment.ARROW_SCHEMA.names, "landed"]
        hashed = checksum.sql({s.alphabet for s in decision.landing()})
        frames = []
        if decision.whole:
            # Observed last: Spark generates no code across this step, and one loop for all before it.
            rows = _landed(apart.reading(spark, [path_of[s.file] for s in decision.whole]), landed_us)
            frames.append(self._observed(rows, hashed))
        if decision.parts:
            paths = sorted({path_of[part.file] for part in decision.parts})
            rows = _landed(compare.rows_of(spark, paths, decision.parts), landed_us)
            rows = rows.select(*columns, "turn", F.expr(hashed).alias("hash"))
            frames.append(self._observed(rows, checksum.TURNED).select(*columns))
        if not frames:
            frames.append(spark.createDataFrame([], tables.ELEMENTS_DDL))
        self.frame = frames[0] if len(frames) == 1 else frames[0].unionAll(frames[1])

    def _observed(self, rows: DataFrame, hashed: str) -> DataFrame:
        self._watches.append(Observation())
        return rows.observe(self._watches[-1], F.expr("bit_xor(%s)" % hashed).alias("sum"))

    def sum(self) -> int | None:
        """The checksum of the rows that were written; None if Spark does not tell."""
        total = 0
        # `get` would wait forever if Spark has dropped the event that reports it.
        until = time.monotonic() + OBSERVED_S
        for watch in self._watches:
            observation: Any = watch._jo
            while not observation.future().isCompleted():
                if time.monotonic() > until:
                    return None
                time.sleep(0.002)
            total ^= int(watch.get["sum"])
        return total


def _landed(rows: DataFrame, landed_us: int) -> DataFrame:
    """Rows with the time of their batch.

    Spark writes a number into the code that it generates, and would compile that code again for each batch.
    An array is passed to the code; the `0 *` keeps the optimizer from taking the number out of it.
    """
    when = "timestamp_micros(element_at(array(%dL), 1 + 0 * spark_partition_id()))" % landed_us
    return rows.withColumn("landed", F.expr(when))
