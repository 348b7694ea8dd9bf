"""Ways to write the same files to a Delta table, each a Structured Streaming query: the sink, and those that
it is compared with. Each lane has a landing zone and a table of its own, made with the same properties."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from delta.tables import DeltaTable
from headwater_cloud import tables
from headwater_cloud.location import Location
from headwater_cloud.sink import Settings, Sink
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from ...errors import UserError

KEY = ["stream", "incarnation", "xi"]
WATERMARK = "1 hour"
TOLD_S = 60.0  # Spark reports its triggers a little later

# State in RocksDB with a changelog is the quickest that Spark has for many keys.
SPARK = {
    "spark.driver.memory": "4g",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


class Times(StreamingQueryListener):
    """Seconds of each trigger that had files, as Spark measures them."""

    def __init__(self) -> None:
        self._told = threading.Condition()
        self._seconds: list[float] = []

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        # Not by rows: the sink reads no rows of its stream.
        if any(source.startOffset != source.endOffset for source in event.progress.sources):
            with self._told:
                self._seconds.append(event.progress.durationMs["triggerExecution"] / 1000)
                self._told.notify_all()

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass

    def drop(self) -> None:
        """Drop what was reported so far."""
        with self._told:
            self._seconds = []

    def take(self, number: int) -> list[float]:
        """The next `number`; called after the query has ended."""
        with self._told:
            self._told.wait_for(lambda: len(self._seconds) >= number, TOLD_S)
            if len(self._seconds) != number:
                raise UserError("Spark told of %d batches, not %d" % (len(self._seconds), number))
            taken, self._seconds = self._seconds, []
        return taken


class Lane:
    """One way, with what it has taken so far."""

    def __init__(self, spark: SparkSession, folder: Path, name: str, files: int) -> None:
        self.spark = spark
        self.name = name
        self.files = files  # a batch
        place = folder / re.sub("[^a-zA-Z]+", "-", name)
        self.landing = place / "landing"
        self.lake = Location.of(place / "lake")
        self.landing.mkdir(parents=True)
        self.rounds: list[list[float]] = []  # seconds of each batch, by the clock
        self.cpu: list[float] = []  # seconds a batch, of all cores, of each round

    @property
    def table(self) -> str:
        return (self.lake / "elements").spark

    def open(self) -> None:
        tables.create(self.spark, self.lake)

    def close(self) -> None:
        pass

    def drain(self, times: Times, paths: Iterable[Path], count: bool = False) -> None:
        """Take these files; keep the times of it, if they count."""
        links = [self.landing / path.name for path in paths]
        for path, link in zip(paths, links):
            os.link(path, link)
        before = cpu_seconds()
        self.run()
        cpu = cpu_seconds() - before
        batches = len(links) // self.files
        taken = times.take(batches)
        if count:
            self.rounds.append(taken)
            self.cpu.append(cpu / batches)
        for link in links:
            link.unlink()

    def run(self) -> None:
        raise NotImplementedError

    def rows(self) -> tuple[int, int]:
        """Rows of the table, and different ones among them."""
        rows = self.spark.read.format("delta").load(self.table)
        count = rows.agg(F.count("*"), F.count_distinct(*KEY)).collect()[0]
        return int(count[0]), int(count[1])


class SinkLane(Lane):
    def open(self) -> None:
        settings = Settings(files_per_trigger=self.files, maintain_s=0)
        self.sink = Sink(self.spark, Location.of(self.landing), self.lake, settings, lambda text: None)
        self.sink.open()

    def close(self) -> None:
        self.sink.close()

    def run(self) -> None:
        self.sink.run(once=True)


class Plain(Lane):
    """A stream of rows whose batches a function writes."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        name: str,
        files: int,
        body: Callable[[Plain, DataFrame, int], None],
        before: Callable[[DataFrame], DataFrame] | None = None,
    ) -> None:
        super().__init__(spark, folder, name, files)
        self.body = body
        self.before = before

    def run(self) -> None:
        frame = (
            self.spark.readStream.schema(tables.SEGMENT_DDL)
            .option("maxFilesPerTrigger", self.files)
            .option("maxFileAge", "36500d")
            .parquet(str(self.landing))
        )
        writer = (
            (frame if self.before is None else self.before(frame))
            .writeStream.queryName(self.name)
            .option("checkpointLocation", (self.lake / "checkpoint").spark)
            .foreachBatch(lambda rows, batch: self.body(self, rows, batch))
            .trigger(availableNow=True)
        )
        writer.start().awaitTermination()


def append(lane: Plain, rows: DataFrame, batch: int) -> None:
    writer = rows.withColumn("landed", F.current_timestamp()).write.format("delta").mode("append")
    writer.option("txnAppId", lane.name).option("txnVersion", batch).save(lane.table)


def append_without_txn(lane: Plain, rows: DataFrame, batch: int) -> None:
    rows.withColumn("landed", F.current_timestamp()).write.format("delta").mode("append").save(lane.table)


def merge(lane: Plain, rows: DataFrame, batch: int) -> None:
    """Insert-only, as Delta's documentation has it; of rows that come twice in a batch one is left first."""
    new = rows.dropDuplicates(KEY).withColumn("landed", F.current_timestamp())
    on = " AND ".join("t.%s = s.%s" % (name, name) for name in KEY)
    table = DeltaTable.forPath(rows.sparkSession, lane.table)
    table.alias("t").merge(new.alias("s"), on).whenNotMatchedInsertAll().execute()


def within_watermark(frame: DataFrame) -> DataFrame:
    return frame.withWatermark("ts", WATERMARK).dropDuplicatesWithinWatermark(KEY)


@contextlib.contextmanager
def opened(lanes: Iterable[Lane]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for lane in lanes:
            lane.open()
            stack.callback(lane.close)
        yield


def _below() -> dict[int, list[bytes]]:
    """This process and all below it, with the fields of their `stat` from the state on."""
    stats: dict[int, list[bytes]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            stats[int(folder.name)] = (folder / "stat").read_bytes().rpartition(b")")[2].split()
    found = {}
    for pid in stats:
        above = pid
        while above in stats and above != os.getpid():
            above = int(stats[above][1])
        if above == os.getpid():
            found[pid] = stats[pid]
    return found


def cpu_seconds() -> float:
    """What this process and the JVM have used of all cores so far."""
    ticks = sum(int(fields[11]) + int(fields[12]) for fields in _below().values())
    return ticks / os.sysconf("SC_CLK_TCK")


def python_workers() -> int:
    """Processes below this one in which Spark runs Python."""
    found = 0
    for pid in _below():
        with contextlib.suppress(OSError):
            command = Path("/proc/%d/cmdline" % pid).read_bytes()
            found += b"pyspark.daemon" in command or b"pyspark.worker" in command
    return found


def wait(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """The first true answer, asked for every two milliseconds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        answer = condition()
        if answer:
            return answer
        time.sleep(0.002)
    raise UserError("%s did not happen within %.0f s" % (what, seconds))
