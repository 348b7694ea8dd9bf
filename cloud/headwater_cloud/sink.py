"""The sink: writes every segment of the landing zone to the lake exactly once, even across crashes,
duplicates and damaged files, and acknowledges it. Invalid files, and rows that contradict known ones, go to
`quarantine`.

The stream carries files, not rows. A batch is a list of names with the length, CRC-32 and footer of each.
Its steps, in this order; each can be repeated without harm if a kill follows it:

    validate      name against footer against CRC: files that disagree are never read
    decide        on ranges, by progress as it was before the batch
    append        new rows to `elements`, one Spark commit that names batch and files
    evidence      look for that commit; a skipped append is not evidence
    compare       rows whose ξ was known: equal ones are duplicates, others divergent
    quarantine    unreadable files, divergent rows; then gaps, streams and moves
    progress      one small commit
    acknowledge   once all of this is on disk

Rows that were known before the batch are compared while the append runs, since the two are independent. Files
of a batch that overlap each other are compared after it, because their rows are in the table only then.

The truth is in `progress`; Spark's checkpoint only lists the files of a batch. So a batch depends on nothing
that the checkpoint remembers except that list, which is compared by its hash:

- the newest batch again, with the same files: it is done, and only acknowledged again;
- any other batch that does not follow the newest one: the checkpoint was lost, wholly or its end. The
  generation rises, and with it the transaction of the appends;
- `elements` has commits unknown to progress: if they are of this very batch, its transaction skips the append
  and the commit is found; if they are of another one, their rows are absorbed into progress first.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyarrow import ArrowException
from pyspark import inheritable_thread_target
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from . import (
    apart,
    commits,
    compare,
    crash_points,
    erasure,
    landing_zone,
    lock,
    log_retention,
    maintenance,
    proof,
    quarantine,
    recovery,
    segment,
    session,
    settled,
    sign,
    tables,
)
from .acks import Acknowledgements
from .appending import Rows
from .arguments import FILES_PER_TRIGGER, LEASE_S, MAINTAIN_S, PATIENCE_S, SETTLE_S, TRIGGER_S
from .commits import Commit, Stamp
from .decide import Decision, Part, decide
from .declared import Declared
from .errors import AppendedElse, Fenced, LakeError, LakeRestored, TakenBack, sentence
from .files import Files
from .jvm import is_gone
from .landing_zone import lies_in
from .location import Location
from .metrics import Listener, Metrics, Report
from .patience import Patience
from .progress import Progress
from .proof import Appended, hash_of, sums_of
from .quarantine import Unreadable
from .seen_files import SeenFiles
from .segment import Segment, SegmentError
from .settled import Settled

TRANSACTION = "headwater"  # appId of the appends
LOOK_S = 30.0  # between two searches for files that no batch gives
# Errors of a batch that come from its files, or that may be temporary.
STORE = (Py4JError, PySparkException, OSError, ArrowException, DeltaError)  # of one that does not answer
PASSING = (*STORE, AppendedElse, TakenBack, ValueError, TypeError, LookupError, ArithmeticError)
APART = 2  # after this many failures a batch is taken apart
STORE_THREADS = 16  # that look into segments on an object store
WATCH_S = 1  # between two checks for requests


@dataclass(frozen=True)
class Settings:
    files_per_trigger: int = FILES_PER_TRIGGER
    trigger_s: float = TRIGGER_S
    maintain_s: float = MAINTAIN_S  # 0: never by itself
    shared: bool = False  # a lease, as on object stores, on a local path too
    patience_s: float = PATIENCE_S  # how long failed steps are retried
    sign_s: float = sign.EVERY_S  # between two signs of life
    lease_s: float = LEASE_S  # without a sign of its holder, until another sink takes the lake over
    settle_s: float = SETTLE_S  # without news, and an incarnation is settled


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
        self._patience = Patience(self.settings.patience_s, say, self._stop)
        self._failure: BaseException | None = None
        self._maintained_at = time.monotonic()
        self._written_since = False
        self._renewed = False  # whether a checkpoint was given up, and no batch done since
        self._failures = 0  # batches that failed, since one was done
        self._looked_at = -LOOK_S
        self._shortened_at = -LOOK_S
        self._refused: dict[str, str] = {}  # files here that are in quarantine, by their names in the table
        self._seen = SeenFiles(self._files, lake / "checkpoint")
        self._ending = False  # whether the query is being ended: no batch begins
        self._elements = lake / "elements"
        jvm: Any = spark._jvm
        crash_points.arm(int(jvm.java.lang.ProcessHandle.current().pid()))

    def open(self) -> None:
        """Open the lake: lock, tables, progress. LakeLocked if another sink has it."""
        if not self._files.exists(self.landing):
            raise LakeError(
                "there is no landing zone %s: it is the folder that the gateway puts its segments into"
                % self.landing
            )
        self._lock = lock.take(self.spark, self.lake, self.settings.shared, self._say, self.settings.lease_s)
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
        """End `run` after the present batch."""
        self._stop.set()

    def run(self, once: bool) -> Report:
        """Process the landing zone; with `once` it ends then, otherwise it continues until `stop`."""
        listener = Listener(self._metrics)
        self.spark.streams.addListener(listener)
        try:
            with sign.Sign(self._files, self.landing, self.lake, self._say, self.settings.sign_s):
                while not self._round(once) and self._again():
                    pass
        finally:
            self.spark.streams.removeListener(listener)
        return self.report

    def _again(self) -> bool:
        """Recover from a round that has failed, however long the store takes to answer; False: stop."""
        while not self._stop.is_set():
            try:
                self._recover()
                return True
            except STORE as error:
                self._patience.wait("the lake cannot be read", error)
        return False

    # Recovery

    def _recover(self) -> None:
        """Read the state of the lake, and make it consistent, if it is still ours."""
        self._lock.check()
        self.progress = progress = Progress.load(self.lake)
        self._settled = Settled.load(self.lake)
        self._erasures = erasure.Erasures(self._files, self.lake, self.landing, self._say)
        self._settled.activate(progress, self._erasures.keys())
        self._erasures.apply(progress)
        new = progress.elements < 0
        if new:
            progress.elements = 0  # the table made, and empty
        behind = commits.since(self._files, self._elements, progress.elements)
        if (
            progress.elements + len(behind) != commits.version(self._elements)
            or any(commit.operation in recovery.TAKEN_BACK for commit in behind)
            or (new and not self._cut_off_at_first(behind))
            or not self._settled.agrees(progress)
            or not self._erasures.knows(behind)
        ):
            self._rebuild()
        self._erasures.settle(self.progress, self._save)
        if self._seen.too_many():
            self._say("Spark's checkpoint has the names of too many files: a new one begins")
            self._files.remove(self.lake / "checkpoint")
        if self._lock.fenced:
            self._fence()
        self._declared = Declared(self.lake)
        refused = quarantine.refused(self.lake)
        self._refused = {row["file"]: row["reason"] for row in refused}
        self._acks = Acknowledgements(self._files, self.lake, refused)
        self._acks.settle(self._settled.told())
        self._acks.write(self.progress, [])
        self._settle()

    def _cut_off_at_first(self, behind: list[Commit]) -> bool:
        """Whether there are rows only because the very first batch was cut off before its progress."""
        rows = [commit for commit in behind if commit.added]
        if any(c.stamp is None or (c.stamp.generation, c.stamp.batch) != (0, 0) for c in rows):
            return False
        return not rows or not self._files.exists(self.lake / "checkpoint" / "commits" / "0")

    def _rebuild(self) -> None:
        """The tables do not follow from progress: rebuild it from them; everything else arrives again."""
        self._say("progress does not agree with the lake: rebuilding it from the rows")
        newest = commits.version(self._elements)
        self._settled.activate(self.progress, self._settled.keys)
        self.progress = recovery.rebuild(self.spark, self.lake, self.progress)
        # Before progress is saved: after a kill in between it is all repeated.
        self._erasures.reopen()
        self._files.remove(self.lake / "checkpoint")
        # And `settled` after it: until it has this number, the next start repeats it all.
        self.progress.settled = max(self.progress.settled, self._settled.number) + 1
        # If `progress` was lost, only the transactions of `elements` tell the last generation.
        known = tables.open_table(self._elements).transaction_version(TRANSACTION) or 0
        self.progress.generation = max(self.progress.generation, known >> 32)
        self._begin_generation(newest)
        self._sync(settled.NAME, self._settled.clear(self.progress))

    def _begin_generation(self, elements: int) -> None:
        """From now on appends are new to Delta, whatever numbers their batches have."""
        progress = self.progress
        progress.generation += 1
        progress.batch = -1
        progress.files = 0
        progress.elements = elements
        self._erasures.apply(progress)
        self._save()

    def _absorb(self, behind: list[Commit]) -> None:
        """Absorb the rows of commits that progress lacks, and begin a generation."""
        commits.sync(self._elements, behind)  # their writer may have died before this
        recovery.absorb(self.spark, self.lake, self.progress, self._settled, behind)
        self._begin_generation(behind[-1].version if behind else self.progress.elements)

    def _fence(self) -> None:
        """Shut out a former holder that may wake up: its transactions are older than this one."""
        stamp = Stamp(self.progress.generation + 1, -1, 0)
        self._write(self.spark.createDataFrame([], tables.ELEMENTS_DDL), stamp)
        behind = commits.since(self._files, self._elements, self.progress.elements)
        if not any(commit.stamp == stamp for commit in behind):
            raise Fenced("%s was taken over by another sink at the same moment" % self.lake)
        self._absorb(behind)

    def _overgrown(self) -> bool:
        """Whether the checkpoint has grown so large that a new one must begin, as at a start."""
        try:
            return self._seen.too_many_now()
        except PASSING:
            return False  # it will be checked again

    # One round: a query, and the work beside it

    def _round(self, once: bool) -> bool:
        """Run a query to its end; False if the lake was taken back under it."""
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
        self._ending = False
        try:
            query = writer.start()
        except STORE as error:
            self._patience.wait("the landing zone or Spark's checkpoint cannot be read", error)
            return False
        try:
            while not query.awaitTermination(WATCH_S):
                with self._busy:
                    self._housekeeping()
                    stop = self._stop.is_set()
                    # Between two batches: one that begins now waits for us, and then ends at once.
                    self._ending = stop or self._overgrown()
                if self._ending:
                    query.stop()
                    return stop
        except StreamingQueryException as error:
            return self._after(error)
        except BaseException:
            query.stop()
            raise
        with self._busy:
            self._looked_at = self._shortened_at = -LOOK_S
            self._housekeeping()
        return True

    def _after(self, error: StreamingQueryException) -> bool:
        """Handle a failed query: False if a new one may succeed."""
        failure = self._failure
        if isinstance(failure, LakeRestored):
            self._say("the lake was taken back to an older version: continuing from what it holds")
            return False
        if failure is None and not self._renewed:
            # Not in a batch, so in Spark's own files, or before them: they can be done without, once.
            self._say("Spark cannot go on from its checkpoint (%s): a new one begins" % sentence(error))
            try:
                self._files.remove(self.lake / "checkpoint")
                self._renewed = True
            except STORE as another:
                self._patience.wait("Spark's checkpoint cannot be removed", another)
            return False
        if failure is None:
            self._patience.wait("Spark cannot read the landing zone or its checkpoint", error)
            return False
        if not isinstance(failure, PASSING):
            raise failure
        self._failures += 1
        if self._failures < APART:
            # A file that the gateway deleted after it was listed, or a store that did not answer.
            self._say("a batch failed (%s): retrying" % sentence(failure))
            return False
        if self._failures == APART:
            self._say("a batch failed again (%s): looking for the file at fault" % sentence(failure))
            return False
        self._patience.wait("a batch failed", failure)
        return False

    def _stream(self) -> DataFrame:
        """Files of the landing zone that are named as segments are, however old; `_look` handles the others.

        Without `recursiveFileLookup` a folder that is called `a=1` would make a partitioned table of it all.
        """
        return (
            self.spark.readStream.format("binaryFile")
            .schema(apart.SOURCE_SCHEMA)
            .option("maxFilesPerTrigger", self.settings.files_per_trigger)
            .option("maxFileAge", "36500d")
            .option("pathGlobFilter", segment.GLOB)
            .option("recursiveFileLookup", "true")
            .load(apart.literal(self.landing.spark))
            .where("length <= %d" % segment.SIZE_MAX)
            .selectExpr(*apart.SELECT)
            .coalesce(self._readers())  # after the bytes of the files, of which it would make another copy
        )

    def _readers(self) -> int:
        """How many tasks read whole files at once: as many as fit the heap, if it is ours."""
        if not (self.spark.sparkContext.master or "").startswith("local"):
            return self.settings.files_per_trigger
        jvm: Any = self.spark._jvm
        return session.readers(int(jvm.java.lang.Runtime.getRuntime().maxMemory()))

    def _housekeeping(self) -> None:
        """What is done between batches. A failure here is logged and left for the next time, unless the lake
        is not ours any more."""
        if self._failure is not None:
            return  # a batch failed half-way: its changes in memory must not be used
        try:
            self._look()
            self._erasures.settle(self.progress, self._save)
            if recovery.unaccounted(self._files, self.lake, self.progress):
                return  # a batch was interrupted, and runs again at once: its files must stay as they are
            if self._erasures.wanted():
                self._lock.check()
                self._settled.activate(self.progress, self._settled.keys)
                self._erasures.work(self.spark, self.progress, self._refused, self._save)
            self._shorten_logs()
            maintenance.serve_requests(self._files, self.lake, self._maintain, self._say)
            every = self.settings.maintain_s
            if every and self._written_since and time.monotonic() - self._maintained_at > every:
                self._maintain(maintenance.KEEP_HOURS)
        except Exception as error:
            if isinstance(error, LakeError) or is_gone():
                raise  # the end of the JVM is told in one sentence: housekeeping was not at fault
            self._say("housekeeping failed (%s): it will be retried later" % sentence(error))

    def _shorten_logs(self) -> None:
        """Remove what the logs of the tables do not need; that of `progress` is always short."""
        if time.monotonic() - self._shortened_at < LOOK_S:
            return
        self._shortened_at = time.monotonic()
        self._lock.check()
        log_retention.shorten(self._elements, self.progress.elements)
        for name in tables.SCHEMAS.keys() - {"progress"}:
            log_retention.shorten(self.lake / name)

    def _maintain(self, keep_hours: float) -> dict[str, Any]:
        self._lock.check()
        self._maintained_at = time.monotonic()  # also after a failure: the next round comes in its time
        try:
            done = maintenance.maintain(self.spark, self.lake, keep_hours)
        finally:
            self.progress.reopen(self.lake)  # its commits are our own
            self._settled.reopen()
        if recovery.advance(self._files, self.lake, self.progress):
            self._save()
        self._settle()
        self._written_since = False
        self._say("maintained: %(files_before)d files, now %(files_after)d, in %(seconds).1f s" % done)
        self.report.maintained.append(done)
        self._metrics.maintained.set(time.time())
        return done

    def _settle(self) -> None:
        """Move incarnations without news for long out of progress, which each batch rewrites."""
        named = self._erasures.keys()  # each start tells progress what they erased
        quiet = settled.quiet(self.progress, time.time_ns() // 1000, self.settings.settle_s)
        keys = [key for key in quiet if key not in named]
        if keys:
            self._lock.check()
            settled.settle(keys, self.progress, self._settled, self._acks, self._sync)

    def _look(self) -> None:
        """Refuse entries of the landing zone that no batch gives."""
        if time.monotonic() - self._looked_at < LOOK_S:
            return
        self._looked_at = time.monotonic()
        found = []
        there = self._files.entries(self.landing)
        present = {quarantine.printable(name) for name in there}
        self._refused = {file: why for file, why in self._refused.items() if file in present}
        for name, size in sorted(there.items()):
            if name[0] in "._" or quarantine.printable(name) in self._refused:
                continue
            try:
                segment.check_entry(name, size)
            except SegmentError as error:
                found.append(Unreadable(self.landing / name, name, error.reason, error.detail))
        if found:
            self._refuse(found, time.time_ns() // 1000)
            self._acks.write(self.progress, found)
            self.report.unreadable += len(found)
            self._metrics.files.labels("unreadable").inc(len(found))

    # A batch

    def _batch(self, frame: DataFrame, batch: int) -> None:
        with self._busy:
            if self._ending:
                raise RuntimeError("the query is being ended")
            try:
                self._do(frame, batch)
                self._renewed = False
                self._failures = 0
                self._patience.over()
            except BaseException as error:
                self._failure = error  # Spark would give its text only
                if isinstance(error, Exception):
                    raise
                raise RuntimeError(repr(error)) from error  # Py4J answers only for this, and Spark waits

    def _do(self, frame: DataFrame, batch: int) -> None:
        began = time.monotonic()
        crash_points.reach("received")
        self._lock.check()
        spark = frame.sparkSession
        landed_us = time.time_ns() // 1000
        good, bad, files = self._validate(frame, batch)
        if self._failures >= APART:
            bad += self._take_apart(spark, good, landed_us)
        if (batch, files) == (self.progress.batch, self.progress.files):
            self._acks.write(self.progress, bad)
            return
        self._settled.activate(self.progress, {one.key for one in good.values()})
        self._erasures.settle(self.progress, self._save)
        good = self._erasures.mark(spark, good)
        behind = self._behind()
        stamp = Stamp(self.progress.generation, batch, files)
        if batch <= self.progress.batch or any(c.added and c.stamp != stamp for c in behind):
            self._lock.check()
            self._absorb(behind)
        added = self._append(spark, good, batch, files, landed_us)
        decision, behind, stamp = added.decision, added.behind, added.stamp
        crash_points.reach("appended")
        commits.sync(self._elements, behind)
        if decision.within:
            added.divergent, added.came = self._compare(spark, good, decision, decision.overlaps)
        for file, sum_of in compare.dropped(spark, good, decision).items():
            added.came[file] = added.came.get(file, 0) ^ sum_of
        self._check_claims(spark, good, added)
        if false := proof.prove(spark, self._elements, good, added):
            self._take_back(spark, good, added, false, landed_us)
        self._refuse(bad, landed_us)
        if added.divergent is not None:
            with self._synced("quarantine"):
                quarantine.append(spark, self.lake, added.divergent, landed_us)
        crash_points.reach("quarantined")
        self._record(decision, good.values(), stamp, landed_us)
        crash_points.reach("recorded")
        self.progress.change(decision.changed, landed_us)
        self.progress.batch = batch
        self.progress.files = files
        if behind:
            self.progress.elements = behind[-1].version
        self._save()
        crash_points.reach("progressed")
        self._acks.write(self.progress, bad)
        crash_points.reach("acknowledged")
        self._tell(batch, decision, len(good), len(bad), time.monotonic() - began)

    def _validate(self, frame: DataFrame, batch: int) -> tuple[dict[str, Segment], list[Unreadable], int]:
        """Good segments by path, the others, and a hash of the list of files."""
        good: dict[str, Segment] = {}
        bad: list[Unreadable] = []
        digest = hashlib.sha256()
        paths = apart.given(self._files, self.lake / "checkpoint", batch)
        if self._failures >= APART and paths:
            rows = apart.files_of(frame.sparkSession, self._files, self.landing, paths)
        elif self.landing.local is not None and paths:
            rows = landing_zone.files_of(self.landing, paths)
        else:
            rows = frame.collect()
        # One batch may hold two entries of the source's log, and then a file twice. Files in a folder of
        # the landing zone are left to `_look`.
        found = sorted({row["path"]: row for row in rows if lies_in(self.landing, row["path"])}.items())
        told = {path.rpartition("/")[2] for path, _ in found}
        for file in sorted({path.rpartition("/")[2] for path in paths if lies_in(self.landing, path)} - told):
            if (size := self._files.size(self.landing / file)) is not None:
                bad.append(self._not_given(file, size))
        local = self.landing.local is not None
        with ThreadPoolExecutor(1 if local else STORE_THREADS) as pool:
            judged = (map if local else pool.map)(self._judge, found)
            for (path, row), (file, answer) in zip(found, judged):
                if isinstance(answer, SegmentError):
                    bad.append(Unreadable(self.landing / file, file, answer.reason, answer.detail))
                elif answer is not None:
                    good[path] = answer
                if not isinstance(answer, SegmentError) or answer.reason != "name":
                    digest.update(b"%s %d %d\n" % (file.encode(), row["length"], row["crc"]))
        return good, bad, int.from_bytes(digest.digest()[:8], "big") >> 1

    def _not_given(self, file: str, size: int) -> Unreadable:
        """A file that the batch should have, and of which the stream gave nothing."""
        try:
            segment.check_entry(file, size)
            raise SegmentError("crc", "it had no bytes when it was read, and has %d now" % size)
        except SegmentError as error:
            return Unreadable(self.landing / file, file, error.reason, error.detail)

    def _judge(self, found: tuple[str, Any]) -> tuple[str, Segment | SegmentError | None]:
        """Name of a file, and its segment, or why it is not valid; None if it is in quarantine."""
        path, row = found
        file = path.rpartition("/")[2]
        length, crc, footer = row["length"], row["crc"], bytes(row["footer"])
        try:
            name = segment.read_name(file)
            if "error" in row:
                raise SegmentError("layout", "its bytes cannot be read: %s" % row["error"])
            if crc == name.crc and self._refused.get(file, "crc") != "crc":
                return file, None  # these very bytes were refused
            judged = segment.read(file, length, crc, footer)
            places = [(start, size) for _, start, size in judged.unproven]
            pages = self._files.parts(self.landing / file, places) if places else []
            segment.prove(judged, length, footer, pages)
        except SegmentError as error:
            return file, error
        return file, judged

    def _take_apart(self, spark: SparkSession, good: dict[str, Segment], landed_us: int) -> list[Unreadable]:
        """Remove the files at fault from a batch that failed twice, and put them into quarantine: before
        anything is appended, so that after a kill the same batch is without them too."""
        probe = apart.Probe(spark, self._files, self.landing)
        at_fault, gone = probe.at_fault(good)
        for path in [*at_fault, *gone]:
            del good[path]
        bad = list(at_fault.values())
        self._refuse(bad, landed_us)
        return bad

    def _behind(self) -> list[Commit]:
        """The commits of `elements` that progress lacks."""
        behind = commits.since(self._files, self._elements, self.progress.elements)
        if any(commit.operation in recovery.TAKEN_BACK for commit in behind):
            raise LakeRestored
        return behind

    def _append(
        self, spark: SparkSession, good: dict[str, Segment], batch: int, files: int, landed_us: int
    ) -> Appended:
        """Append new rows, until a commit proves it."""
        while True:
            stamp = Stamp(self.progress.generation, batch, files)
            there = any(commit.stamp == stamp for commit in self._behind())  # then Delta skips the append
            decision = decide(good.values(), self.progress.numberings)
            crash_points.reach("appending")
            rows = None
            with ThreadPoolExecutor(2) as beside:
                comparing = summing = None
                if decision.overlaps and not decision.within:
                    look = inheritable_thread_target(spark)(self._compare)
                    comparing = beside.submit(look, spark, good, decision, decision.overlaps)
                if any(s.sum is None for s in decision.landing()):
                    look = inheritable_thread_target(spark)(sums_of)
                    summing = beside.submit(
                        look, spark, good, [s for s in decision.landing() if s.sum is None]
                    )
                # With a lease, even an empty append shows that no other sink has raised the fence.
                append = bool(decision.rows_kept) or self._lock.fenced
                if append:
                    rows = Rows(spark, good, decision, landed_us)
                    with crash_points.during("writing", self._elements):
                        self._write(rows.frame, stamp)
                divergent, came = comparing.result() if comparing else (None, {})
                added = Appended(decision, divergent, came, summing.result() if summing else {}, stamp)
            added.behind = self._behind()
            added.rows = rows if decision.rows_kept and not there else None
            if not append:
                return added
            ours = [commit for commit in added.behind if commit.stamp == stamp]
            if ours:
                self._written_since = True
                if proof.all_there(spark, self._elements, ours, decision):
                    return added
                self._lock.check()
                self._absorb(added.behind)
                raise AppendedElse("not all new rows of batch %d were written" % batch)
            self._lock.check()
            self._say("batch %d was numbered before with other files: a new generation begins" % batch)
            self._absorb(added.behind)

    def _write(self, rows: DataFrame, stamp: Stamp) -> None:
        (
            rows.write.format("delta")
            .mode("append")
            .option("txnAppId", TRANSACTION)
            .option("txnVersion", stamp.transaction)
            .option("userMetadata", stamp.text())
            .save(self._elements.spark)
        )

    def _compare(
        self, spark: SparkSession, good: dict[str, Segment], decision: Decision, parts: Sequence[Part]
    ) -> tuple[DataFrame | None, dict[str, int]]:
        """Divergent rows, which are then not counted as duplicates; and by file the checksum of the compared
        rows."""
        files = {part.file for part in parts}
        compared = {path: s for path, s in good.items() if s.file in files}
        divergent, came = compare.divergent(
            spark, self.lake, sorted(compared), parts, hash_of(compared.values())
        )
        if divergent is not None:
            for row in divergent.groupBy("stream", "incarnation").agg(F.sum("rows").alias("n")).collect():
                decision.set_divergent((row["stream"], row["incarnation"]), row["n"])
        return divergent, came

    def _check_claims(self, spark: SparkSession, good: dict[str, Segment], added: Appended) -> None:
        """Check the claims of a batch by the append's checksum; if they fail, compare their rows."""
        decision = added.decision
        if not decision.claims:
            return
        declared = {s.file: s.sum for s in decision.landing() if s.sum is not None} | added.summed
        came = added.came | decision.claims
        told = None if added.rows is None else added.rows.sum()
        if told == decision.total(decision.sums(declared, came)):
            added.came = came
            return
        more, came = self._compare(spark, good, decision, decision.distrust())
        added.came = added.came | came
        if added.divergent is None or more is None:
            added.divergent = more if added.divergent is None else added.divergent
        else:
            added.divergent = added.divergent.unionAll(more)

    def _take_back(
        self,
        spark: SparkSession,
        good: dict[str, Segment],
        added: Appended,
        false: dict[str, int],
        landed_us: int,
    ) -> None:
        """Undo the append of a batch of which some files declare false checksums, and refuse these files."""
        bad = proof.refuse(self._files, self.landing, good.values(), false)
        alone = [commit.stamp for commit in added.behind] == [added.stamp]
        if not bad or not alone or self._lock.fenced:
            # Two readers disagree about the rows; or the append is not the only commit that progress lacks;
            # or a lease may expire at this moment: RESTORE would undo what the next holder has appended.
            for file in sorted(false):
                self._say("%s declares a checksum that its rows do not have; they are kept" % file)
            return
        self._lock.check()
        proof.take_back(spark, self._elements, added.behind[0])
        commits.sync(self._elements, commits.since(self._files, self._elements, added.behind[0].version))
        self._begin_generation(commits.version(self._elements))
        self._refuse(bad, landed_us)
        raise TakenBack("the checksums of %d of its files are false: its append was taken back" % len(bad))

    def _refuse(self, bad: list[Unreadable], landed_us: int) -> None:
        """Put files into quarantine."""
        new = []
        for item in bad:
            file = quarantine.printable(item.file)
            if self._refused.get(file) != item.reason:
                new.append(item)
                detail = quarantine.printable(item.detail)
                self._say("not a segment: %s (%s: %s)" % (file, item.reason, detail))
        if new:
            with self._synced("quarantine"):
                quarantine.put(self._files, self.lake, new, landed_us, self._erasures.spares)
            self._refused.update((quarantine.printable(item.file), item.reason) for item in new)

    @contextlib.contextmanager
    def _synced(self, name: str) -> Iterator[None]:
        """Flush commits of a small table to the disk itself."""
        table = self.lake / name
        before = commits.version(table)
        yield
        commits.sync(table, commits.since(self._files, table, before))

    def _record(self, decision: Decision, good: Iterable[Segment], stamp: Stamp, landed_us: int) -> None:
        """Gaps, streams and moves: what the footers declare beside rows."""
        if decision.gaps:
            rows = [{**gap, "landed": landed_us} for gap in decision.gaps]
            self._sync("gaps", tables.append(self.lake / "gaps", rows, {TRANSACTION: stamp.transaction}))
        self._erasures.note(decision.erased)
        for name, version in self._declared.add(list(good), landed_us):
            self._sync(name, version)

    def _save(self) -> None:
        self._sync("progress", self.progress.save())

    def _sync(self, name: str, version: int) -> None:
        """Flush a commit of a small table to the disk itself."""
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
        metrics.rows.labels("erased").inc(decision.rows_erased)
        metrics.files.labels("taken").inc(files)
        metrics.files.labels("unreadable").inc(bad)
        metrics.batch_seconds.observe(seconds)
        metrics.acknowledged.set(time.time())
        metrics.generation.set(progress.generation)
        metrics.batch.set(progress.batch)
        metrics.numberings.set(len(progress.numberings))
        metrics.settled.set(len(self._settled.keys))
        extra = "".join(
            ", %s %s" % (f"{number:,}", what)
            for number, what in (
                (decision.rows_duplicate, "duplicates"),
                (decision.rows_divergent, "divergent"),
                (decision.rows_erased, "left out as erased"),
                (len(decision.gaps), "gaps and holes"),
                (bad, "files refused"),
            )
            if number
        )
        self._say(
            "batch %d: %d files, %s rows%s; acknowledged after %.2f s"
            % (batch, files + bad, f"{decision.rows_kept:,}", extra, seconds)
        )
