"""The sink: segments of the landing zone become rows of a lake, each once, and are acknowledged.

The stream carries files, not rows. A batch is a list of names with the length, CRC-32 and footer of each;
and then, in this order, each step done again without harm when a kill came behind it:

    validate      name against footer against CRC: what does not agree never enters a read
    decide        on ranges, by progress as it was before the batch
    append        new rows to `elements`, one Spark commit that names batch and files
    evidence      that commit is looked for; a skipped append is none
    compare       rows whose ξ was known: equal ones are duplicates, others divergent
    quarantine    unreadable files, divergent rows; then gaps and streams
    progress      one small commit
    acknowledge   after all that lies on the disk

What was known before the batch is compared while the append runs, for neither needs what the other does.
Files of a batch that overlap each other are compared behind it: what is in question is there only then.

The truth is in `progress`; Spark's checkpoint only says which files a batch has. What a batch does therefore
depends on nothing that the checkpoint remembers, but for the list of files, which is compared by its hash:

- the newest batch again, with the same files: it is done, and only acknowledged again;
- any other batch that is not behind the newest one: the checkpoint was lost, wholly or its end. The
  generation goes up, and with it the transaction of the appends;
- `elements` has commits that progress does not know: of this very batch, and then the append is skipped by
  its transaction and found; or of another one, and then their rows are absorbed into progress first.
"""

from __future__ import annotations

import datetime
import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError
from pyspark import inheritable_thread_target
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from . import (
    checksum,
    commits,
    compare,
    lock,
    maintenance,
    points,
    quarantine,
    recovery,
    segment,
    sign,
    tables,
)
from .acks import Acknowledgements
from .arguments import FILES_PER_TRIGGER, MAINTAIN_S, TRIGGER_S
from .commits import Commit, Stamp
from .decide import Decision, decide
from .errors import Fenced, LakeError, LakeRestored
from .files import Files
from .location import Location
from .metrics import Listener, Metrics
from .progress import Progress
from .quarantine import Unreadable
from .segment import Segment, SegmentError
from .streams import Streams

TRANSACTION = "headwater"  # appId of the appends
LOOK_S = 30.0  # between two looks for files that are too large
OBSERVED_S = 10.0  # how long what an append saw may take to be told, before its rows are read again
WATCH_S = 1  # between two looks for requests
CHECKPOINT_BYTES_MAX = 64 << 20  # Spark keeps the name of every file it has seen, for ever: then begin anew

# What the stream gives of each file. The footer's length stands in front of the last four bytes; of a file
# that is none of Parquet's the last bytes are taken, whatever they are.
_SOURCE_SCHEMA = "path string, modificationTime timestamp, length bigint, content binary"
_FOOTER_BYTES = (
    "least(cast(conv(concat(hex(substring(content, -5, 1)), hex(substring(content, -6, 1)), "
    "hex(substring(content, -7, 1)), hex(substring(content, -8, 1))), 16, 10) as bigint), 4194304)"
)
_SELECT = (
    "path",
    "length",
    "crc32(content) AS crc",
    "IF(length < 12, content, substring(content, -8 - cast(%s AS int))) AS footer" % _FOOTER_BYTES,
)


@dataclass
class Report:
    """What a sink did since it was started."""

    batches: int = 0
    files: int = 0
    unreadable: int = 0
    rows_kept: int = 0
    rows_duplicate: int = 0
    rows_quarantined: int = 0
    seconds: float = 0.0
    maintained: list[dict[str, Any]] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class Settings:
    files_per_trigger: int = FILES_PER_TRIGGER
    trigger_s: float = TRIGGER_S
    maintain_s: float = MAINTAIN_S  # 0: never by itself
    shared: bool = False  # a lease, as on object stores, on a local path too
    sign_s: float = sign.EVERY_S  # between two signs of life


@dataclass
class Appended:
    """What an append did, and what is known of it."""

    decision: Decision
    divergent: DataFrame | None  # of what was known before the batch
    came: dict[str, int]  # by file: the checksum of what was compared
    summed: dict[str, int]  # by file: the checksum of rows for which none was declared
    stamp: Stamp
    behind: list[Commit] = field(default_factory=list)  # commits that progress lacks
    observed: Observation | None = None  # None: the append was there already, or of nothing


class Sink:
    """The one writer of a lake, from `open` to `close`."""

    def __init__(
        self,
        spark: SparkSession,
        landing: Location,
        lake: Location,
        settings: Settings | None = None,
        say: Callable[[str], None] = print,
        metrics: Metrics | None = None,
    ) -> None:
        self.spark = spark
        self.landing = landing
        self.lake = lake
        self.settings = settings or Settings()
        self.report = Report()
        self._say = say
        self._metrics = metrics or Metrics()
        self._files = Files(spark)
        self._busy = threading.RLock()  # a batch, or maintenance
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._maintained_at = time.monotonic()
        self._written_since = False
        self._renewed = False  # whether a checkpoint was given up, and no batch done since
        self._tried = False  # whether a batch failed, and none was done since
        self._looked_at = -LOOK_S
        self._large: set[str] = set()  # files that are too large, and told so
        self._elements = lake / "elements"
        jvm: Any = spark._jvm
        points.arm(int(jvm.java.lang.ProcessHandle.current().pid()))

    def open(self) -> None:
        """Take the lake: lock, tables, progress. LakeLocked where another one has it."""
        if not self._files.exists(self.landing):
            raise LakeError(
                "there is no landing zone %s: it is the folder that the gateway puts its segments into"
                % self.landing
            )
        self._lock = lock.take(self.spark, self.lake, self.settings.shared)
        try:
            tables.create(self.spark, self.lake)
            self._recover()
        except BaseException:
            self._lock.release()
            raise

    def close(self) -> None:
        self._lock.release()

    def __enter__(self) -> Sink:
        self.open()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def stop(self) -> None:
        """End `run` after the batch that is under way."""
        self._stop.set()

    def run(self, once: bool) -> Report:
        """Take what is in the landing zone; `once` ends then, else it goes on until `stop`."""
        listener = Listener(self._metrics)
        self.spark.streams.addListener(listener)
        try:
            with sign.Sign(self._files, self.landing, self.lake, self._say, self.settings.sign_s):
                while not self._round(once):
                    self._recover()
        finally:
            self.spark.streams.removeListener(listener)
        return self.report

    # Recovery

    def _recover(self) -> None:
        """Read where the lake stands, and make it agree with itself, if it is ours still."""
        self._lock.check()
        self.progress = progress = Progress.load(self.lake)
        new = progress.elements < 0
        if new:
            progress.elements = 0  # the table made, and empty
        behind = commits.since(self._files, self._elements, progress.elements)
        if (
            progress.elements + len(behind) != commits.version(self._elements)
            or any(commit.operation in recovery.TAKEN_BACK for commit in behind)
            or (new and not self._cut_off_at_first(behind))
        ):
            self._rebuild()
        if self._seen_bytes() > CHECKPOINT_BYTES_MAX:
            self._files.remove(self.lake / "checkpoint")
        if self._lock.fenced:
            self._fence()
        self._streams = Streams(self.lake)
        self._acks = Acknowledgements(self._files, self.lake)
        self._acks.write(self.progress, [])

    def _cut_off_at_first(self, behind: list[Commit]) -> bool:
        """Whether there are rows only because the very first batch was cut off before its progress."""
        rows = [commit for commit in behind if commit.added]
        if any(c.stamp is None or (c.stamp.generation, c.stamp.batch) != (0, 0) for c in rows):
            return False
        return not rows or not self._files.exists(self.lake / "checkpoint" / "commits" / "0")

    def _rebuild(self) -> None:
        """The tables do not follow from what progress names: take what is there; all else comes again."""
        self._say("progress does not agree with the lake: making it anew from its rows")
        newest = commits.version(self._elements)
        self.progress = recovery.rebuild(self.spark, self.lake, self.progress)
        # Before progress is saved: a kill in between does it all again.
        self._files.remove(self.lake / "checkpoint")
        self._begin_generation(newest)

    def _begin_generation(self, elements: int) -> None:
        """What comes now is new to Delta, whatever numbers its batches have."""
        progress = self.progress
        progress.generation += 1
        progress.batch = -1
        progress.files = 0
        progress.elements = elements
        self._save()

    def _absorb(self, behind: list[Commit]) -> None:
        """Take up what commits behind progress brought, and begin a generation."""
        commits.sync(self._elements, behind)  # who wrote them may have died before this
        recovery.absorb(self.spark, self.lake, self.progress, behind)
        self._begin_generation(behind[-1].version if behind else self.progress.elements)

    def _fence(self) -> None:
        """Shut out a former holder that may wake up: its transactions are older than this one."""
        stamp = Stamp(self.progress.generation + 1, -1, 0)
        self._write(self.spark.createDataFrame([], tables.SEGMENT_DDL), stamp)
        behind = commits.since(self._files, self._elements, self.progress.elements)
        if not any(commit.stamp == stamp for commit in behind):
            raise Fenced("%s was taken over by another sink at the same moment" % self.lake)
        self._absorb(behind)

    def _seen_bytes(self) -> int:
        return sum(self._files.sizes(self.lake / "checkpoint" / "sources" / "0").values())

    # One round: a query, and what goes on beside it

    def _round(self, once: bool) -> bool:
        """Run a query to its end; False where the lake was taken back under it."""
        self._failure = None
        writer = (
            self._stream()
            .writeStream.queryName("headwater %s" % self.lake)
            .option("checkpointLocation", (self.lake / "checkpoint").spark)
            .foreachBatch(self._batch)
        )
        if once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime="%d milliseconds" % round(self.settings.trigger_s * 1000))
        query = writer.start()
        try:
            while not query.awaitTermination(WATCH_S):
                with self._busy:
                    self._housekeeping()
                    if self._stop.is_set():
                        query.stop()
                        return True
        except StreamingQueryException as error:
            return self._after(error)
        except BaseException:
            query.stop()
            raise
        with self._busy:
            self._housekeeping()
        return True

    def _after(self, error: StreamingQueryException) -> bool:
        """What a query that failed leaves to do: False where a new one may do better."""
        failure = self._failure
        if isinstance(failure, LakeRestored):
            self._say("the lake was taken back to an older version: going on from what it holds")
            return False
        if failure is None and not self._renewed:
            # Not in a batch, so in Spark's own files, or before them: they can be done without, once.
            self._say("Spark cannot go on from its checkpoint (%s): a new one begins" % _sentence(error))
            self._files.remove(self.lake / "checkpoint")
            self._renewed = True
            return False
        passing = isinstance(failure, (Py4JError, PySparkException, OSError))
        if passing and not self._tried:
            # A file that the gateway took away after it was listed, a store that did not answer.
            self._say("a batch failed (%s): trying it once more" % _sentence(failure or error))
            self._tried = True
            return False
        if failure is None or passing:
            raise LakeError("a batch failed: %s" % _sentence(failure or error))
        raise failure

    def _stream(self) -> DataFrame:
        """Files of the landing zone, however old; the largest are left to `_refuse_large`."""
        return (
            self.spark.readStream.format("binaryFile")
            .schema(_SOURCE_SCHEMA)
            .option("maxFilesPerTrigger", self.settings.files_per_trigger)
            .option("maxFileAge", "36500d")
            .load(self.landing.spark)
            .where("length <= %d" % segment.SIZE_MAX)
            .selectExpr(*_SELECT)
        )

    def _housekeeping(self) -> None:
        if time.monotonic() - self._looked_at > LOOK_S:
            self._looked_at = time.monotonic()
            self._refuse_large()
        if recovery.unaccounted(self._files, self.lake, self.progress):
            return  # a batch was cut off, and comes again at once: its files must stay as they are
        maintenance.serve_requests(self._files, self.lake, self._maintain, self._say)
        every = self.settings.maintain_s
        if every and self._written_since and time.monotonic() - self._maintained_at > every:
            self._maintain(maintenance.KEEP_HOURS)

    def _maintain(self, keep_hours: float) -> dict[str, Any]:
        self._lock.check()
        done = maintenance.maintain(self.spark, self.lake, keep_hours)
        self.progress.reopen(self.lake)
        if recovery.advance(self._files, self.lake, self.progress):
            self._save()
        self._maintained_at = time.monotonic()
        self._written_since = False
        self._say("maintained: %(files_before)d files, now %(files_after)d, in %(seconds).1f s" % done)
        self.report.maintained.append(done)
        self._metrics.maintained.set(time.time())
        return done

    def _refuse_large(self) -> None:
        """Files that no segment is as large as: never read, or they would stop Spark for ever."""
        large = []
        for name, size in sorted(self._files.sizes(self.landing).items()):
            if size > segment.SIZE_MAX and name not in self._large and name[0] not in "._":
                self._large.add(name)
                detail = "it has %d bytes, a segment has at most %d" % (size, segment.SIZE_MAX)
                large.append(Unreadable((self.landing / name).spark, name, "layout", detail))
        if large:
            self._quarantine(self.spark, large, None, time.time_ns() // 1000)
            self._acks.write(self.progress, large)

    # A batch

    def _batch(self, frame: DataFrame, batch: int) -> None:
        with self._busy:
            try:
                self._do(frame, batch)
                self._renewed = self._tried = False
            except BaseException as error:
                self._failure = error  # Spark would give its text only
                if isinstance(error, Exception):
                    raise
                raise RuntimeError(repr(error)) from error  # Py4J answers for nothing else, and Spark waits

    def _do(self, frame: DataFrame, batch: int) -> None:
        began = time.monotonic()
        points.reach("received")
        self._lock.check()
        spark = frame.sparkSession
        good, bad, files = self._validate(frame)
        if (batch, files) == (self.progress.batch, self.progress.files):
            self._acks.write(self.progress, bad)
            return
        behind = self._behind()
        stamp = Stamp(self.progress.generation, batch, files)
        if batch <= self.progress.batch or any(c.added and c.stamp != stamp for c in behind):
            self._lock.check()
            self._absorb(behind)
        landed_us = time.time_ns() // 1000
        added = self._append(spark, good, batch, files, landed_us)
        decision, divergent, behind, stamp = added.decision, added.divergent, added.behind, added.stamp
        points.reach("appended")
        commits.sync(self._elements, behind)
        if decision.within:
            divergent, added.came = self._compare(spark, good, decision)
        self._prove(spark, good, added)
        self._quarantine(spark, bad, divergent, landed_us)
        points.reach("quarantined")
        now = datetime.datetime.fromtimestamp(landed_us / 1e6, datetime.UTC)
        self._record(decision, good.values(), stamp, now)
        points.reach("recorded")
        self.progress.change(decision.changed, now)
        self.progress.batch = batch
        self.progress.files = files
        if behind:
            self.progress.elements = behind[-1].version
        self._save()
        points.reach("progressed")
        self._acks.write(self.progress, bad)
        points.reach("acknowledged")
        self._tell(batch, decision, len(good), len(bad), time.monotonic() - began)

    def _validate(self, frame: DataFrame) -> tuple[dict[str, Segment], list[Unreadable], int]:
        """Good segments by path, the others, and a hash of the list of files."""
        good: dict[str, Segment] = {}
        bad: list[Unreadable] = []
        digest = hashlib.sha256()
        # One batch may hold two entries of the source's log, and then a file twice.
        for path, row in sorted({row["path"]: row for row in frame.collect()}.items()):
            file = path.rsplit("/", 1)[1]
            digest.update(b"%s %d %d\n" % (file.encode(), row["length"], row["crc"]))
            try:
                good[path] = segment.read(file, row["length"], row["crc"], bytes(row["footer"]))
            except SegmentError as error:
                bad.append(Unreadable(path, file, error.reason, error.detail))
        return good, bad, int.from_bytes(digest.digest()[:8], "big") >> 1

    def _behind(self) -> list[Commit]:
        """The commits of `elements` that progress does not know."""
        behind = commits.since(self._files, self._elements, self.progress.elements)
        if any(commit.operation in recovery.TAKEN_BACK for commit in behind):
            raise LakeRestored
        return behind

    def _append(
        self, spark: SparkSession, good: dict[str, Segment], batch: int, files: int, landed_us: int
    ) -> Appended:
        """Append what is new, until a commit says so."""
        while True:
            stamp = Stamp(self.progress.generation, batch, files)
            there = any(commit.stamp == stamp for commit in self._behind())  # then Delta skips the append
            decision = decide(good.values(), self.progress.numberings)
            points.reach("appending")
            watch = Observation()
            with ThreadPoolExecutor(2) as beside:
                comparing = summing = None
                if decision.overlaps and not decision.within:
                    look = inheritable_thread_target(spark)(self._compare)
                    comparing = beside.submit(look, spark, good, decision)
                if any(s.sum is None for s in decision.landing()):
                    look = inheritable_thread_target(spark)(self._sums)
                    summing = beside.submit(
                        look, spark, good, [s for s in decision.landing() if s.sum is None]
                    )
                # With a lease, an append even of nothing shows that nobody has raised the fence.
                append = bool(decision.rows_kept) or self._lock.fenced
                if append:
                    rows = self._new_rows(spark, good, decision)
                    if decision.rows_kept:
                        rows = rows.observe(
                            watch, F.expr("bit_xor(%s)" % _hash(decision.landing())).alias("sum")
                        )
                    with points.during("writing", self._elements.local):
                        self._write(rows, stamp, landed_us)
                divergent, came = comparing.result() if comparing else (None, {})
                added = Appended(decision, divergent, came, summing.result() if summing else {}, stamp)
            added.behind = self._behind()
            if decision.rows_kept and not there:
                added.observed = watch
            if not append:
                return added
            if any(commit.stamp == stamp for commit in added.behind):
                self._written_since = True
                return added
            self._lock.check()
            self._say("batch %d was numbered before with other files: a new generation begins" % batch)
            self._absorb(added.behind)

    def _new_rows(self, spark: SparkSession, good: dict[str, Segment], decision: Decision) -> DataFrame:
        path_of = {s.file: path for path, s in good.items()}
        frames = []
        if decision.whole:
            frames.append(
                spark.read.schema(tables.SEGMENT_DDL).parquet(*(path_of[s.file] for s in decision.whole))
            )
        if decision.parts:
            paths = sorted({path_of[part.file] for part in decision.parts})
            columns = [name for name in segment.ARROW_SCHEMA.names]
            frames.append(compare.rows_of(spark, paths, decision.parts).select(*columns))
        if not frames:
            frames.append(spark.createDataFrame([], tables.SEGMENT_DDL))
        return frames[0] if len(frames) == 1 else frames[0].unionAll(frames[1])

    def _write(self, rows: DataFrame, stamp: Stamp, landed_us: int = 0) -> None:
        (
            rows.withColumn("landed", F.expr("timestamp_micros(%d)" % landed_us))
            .write.format("delta")
            .mode("append")
            .option("txnAppId", TRANSACTION)
            .option("txnVersion", stamp.transaction)
            .option("userMetadata", stamp.text())
            .save(self._elements.spark)
        )

    def _sums(self, spark: SparkSession, good: dict[str, Segment], of: Sequence[Segment]) -> dict[str, int]:
        """The checksums of segments, by file, from their rows."""
        files = {s.file for s in of}
        return compare.sums(spark, sorted(path for path, s in good.items() if s.file in files), _hash(of))

    def _compare(
        self, spark: SparkSession, good: dict[str, Segment], decision: Decision
    ) -> tuple[DataFrame | None, dict[str, int]]:
        """Divergent rows, and their number moved from the duplicates in what the batch changes; and by file
        the checksum of what was compared."""
        if not decision.overlaps:
            return None, {}
        files = {part.file for part in decision.overlaps}
        compared = {path: s for path, s in good.items() if s.file in files}
        divergent, came = compare.divergent(
            spark, self.lake, sorted(compared), decision.overlaps, _hash(compared.values())
        )
        if divergent is not None:
            for row in divergent.groupBy("stream", "incarnation").agg(F.sum("rows").alias("n")).collect():
                decision.set_divergent((row["stream"], row["incarnation"]), row["n"])
        return divergent, came

    def _prove(self, spark: SparkSession, good: dict[str, Segment], added: Appended) -> None:
        """Note checksums of what landed, once those that the segments declare are found to be true."""
        landing = added.decision.landing()
        if not landing:
            return
        declared = {s.file: s.sum for s in landing if s.sum is not None} | added.summed
        sums = added.decision.sums(declared, added.came)
        if self._landed_sum(spark, added) != checksum.total(sums.values())[1]:
            true = self._sums(spark, good, landing)
            for file in sorted(file for file, said in declared.items() if said != true[file]):
                self._say("%s declares a checksum that its rows do not have: its writer is wrong" % file)
            sums = added.decision.sums(true, added.came)
        added.decision.prove(sums)

    def _landed_sum(self, spark: SparkSession, added: Appended) -> int:
        """The checksum of the rows that the batch appended: as the append saw it, or as they lie there."""
        # `get` would wait for ever where Spark has dropped the event that tells it.
        until = time.monotonic() + OBSERVED_S
        while added.observed is not None and time.monotonic() < until:
            observation: Any = added.observed._jo
            if observation.future().isCompleted():
                return int(added.observed.get["sum"])
            time.sleep(0.002)
        paths = [p for c in added.behind if c.stamp == added.stamp for p in commits.paths(self._elements, c)]
        rows = spark.read.schema(tables.ELEMENTS_DDL).parquet(*paths)
        return int(rows.selectExpr("bit_xor(%s)" % checksum.SQL).first()[0])  # type: ignore[index]

    def _quarantine(
        self,
        spark: SparkSession,
        bad: list[Unreadable],
        divergent: DataFrame | None,
        landed_us: int,
    ) -> None:
        for item in bad:
            self._say("not a segment: %s (%s: %s)" % (item.file, item.reason, item.detail))
        frames = [quarantine.unreadable_frame(spark, bad)] if bad else []
        if divergent is not None:
            frames.append(divergent)
        if not frames:
            return
        table = self.lake / "quarantine"
        before = commits.version(table)
        for frame in frames:
            quarantine.append(spark, self.lake, frame, landed_us)
        commits.sync(table, commits.since(self._files, table, before))

    def _record(
        self, decision: Decision, good: Iterable[Segment], stamp: Stamp, now: datetime.datetime
    ) -> None:
        """Gaps and streams: what the footers said beside rows."""
        if decision.gaps:
            rows = [{**gap, "landed": now} for gap in decision.gaps]
            self._sync("gaps", tables.append(self.lake / "gaps", rows, {TRANSACTION: stamp.transaction}))
        version = self._streams.add(good, now)
        if version is not None:
            self._sync("streams", version)

    def _save(self) -> None:
        self._sync("progress", self.progress.save())

    def _sync(self, name: str, version: int) -> None:
        """Put a commit of a small table onto the disk itself."""
        table = self.lake / name
        if table.local is not None:
            commits.sync(table, commits.since(self._files, table, version - 1))

    # Telling

    def _tell(self, batch: int, decision: Decision, files: int, bad: int, seconds: float) -> None:
        report, metrics, progress = self.report, self._metrics, self.progress
        report.batches += 1
        report.files += files
        report.unreadable += bad
        report.rows_kept += decision.rows_kept
        report.rows_duplicate += decision.rows_duplicate
        report.rows_quarantined += decision.rows_divergent
        report.seconds += seconds
        metrics.rows.labels("kept").inc(decision.rows_kept)
        metrics.rows.labels("duplicate").inc(decision.rows_duplicate)
        metrics.rows.labels("divergent").inc(decision.rows_divergent)
        metrics.files.labels("taken").inc(files)
        metrics.files.labels("unreadable").inc(bad)
        metrics.batch_seconds.observe(seconds)
        metrics.acknowledged.set(time.time())
        metrics.generation.set(progress.generation)
        metrics.batch.set(progress.batch)
        metrics.numberings.set(len(progress.numberings))
        extra = "".join(
            ", %s %s" % (f"{number:,}", what)
            for number, what in (
                (decision.rows_duplicate, "duplicates"),
                (decision.rows_divergent, "divergent"),
                (len(decision.gaps), "gaps and holes"),
                (bad, "files refused"),
            )
            if number
        )
        self._say(
            "batch %d: %d files, %s rows%s; acknowledged after %.2f s"
            % (batch, files + bad, f"{decision.rows_kept:,}", extra, seconds)
        )


def _hash(segments: Iterable[Segment]) -> str:
    """The hash of a row of these segments, in SQL."""
    return checksum.sql({segment.alphabet for segment in segments})


def _sentence(error: BaseException) -> str:
    """What matters of what Java or Spark says: the innermost cause, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    told = [line for line in lines if not line.startswith(("at ", ":", "An error occurred while calling"))]
    return (causes or told or [type(error).__name__])[-1 if causes else 0].removeprefix("Caused by: ")[:400]
