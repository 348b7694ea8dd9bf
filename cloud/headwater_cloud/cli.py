"""The sink and maintenance as programs: arguments, signals, output. For `hw` and for `spark-submit`."""

from __future__ import annotations

import argparse
import contextlib
import signal
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from . import access, catalog, erasure, jvm, lock, maintenance, recovery, session, tables
from .errors import LakeError, LakeLocked, sentence
from .files import Files
from .lake import Lake
from .location import Location
from .metrics import Metrics
from .progress import Progress
from .sink import Settings, Sink


def sink(
    args: argparse.Namespace, master: str, jars: Iterable[Path], say: Callable[[str], None]
) -> tuple[int, dict[str, Any]]:
    """Run the sink that these arguments describe to its end: exit code and report."""
    if args.files_per_trigger < 1:
        raise LakeError("--files-per-trigger %d: a batch needs at least one file" % args.files_per_trigger)
    conf, storage = store(args)
    landing, lake = Location.of(args.landing), Location.of(args.lake)
    if landing.local is not None and not landing.local.is_dir():
        raise LakeError(
            "there is no landing zone %s: name the folder that the gateway puts its segments into "
            "(lake.landing in gateway.toml)" % landing
        )
    if lake.local is not None and not args.shared:
        lock.must_be_free(lake)
    metrics = Metrics()
    if args.metrics is not None:
        try:
            metrics.serve(args.metrics, args.metrics_host)
        except OSError as error:
            raise LakeError("cannot serve metrics on port %d: %s" % (args.metrics, error.strerror))
    spark = session.start(master, jars, conf, "hw sink", args.spark_log, args.once)
    landing, lake = (access.locate(spark, path, storage) for path in (args.landing, args.lake))
    _reach(spark, landing, lake)
    settings = Settings(
        files_per_trigger=args.files_per_trigger,
        trigger_s=args.trigger,
        maintain_s=args.maintain_every * 3600,
        shared=args.shared,
        patience_s=args.patience,
        settle_s=args.settle_after * 3600,
        lease_s=args.lease,
    )
    with (
        jvm.told_when_it_dies(),
        _stopping(spark),
        Sink(spark, landing, lake, settings, say, metrics) as running,
    ):
        # Spark's own handler would end Python at once; a batch that has begun is completed first.
        before = {s: signal.signal(s, lambda *_: running.stop()) for s in (signal.SIGINT, signal.SIGTERM)}
        say("%s -> %s, from version %d on" % (landing, lake, running.progress.elements))
        try:
            report = running.run(args.once)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    say(
        "%d batches: %s rows kept, %s duplicates, %d divergent, %d files refused"
        % (report.batches, f"{report.rows_kept:,}", f"{report.rows_duplicate:,}",
           report.rows_quarantined, report.unreadable)
    )  # fmt: skip
    return 0, report.plain()


def maintain(
    args: argparse.Namespace, master: str, jars: Iterable[Path], say: Callable[[str], None]
) -> tuple[int, dict[str, Any]]:
    """One round of maintenance, by the sink that runs on the lake or here."""
    if args.keep_hours < 0:
        raise LakeError("--keep-hours %g: it cannot be below 0" % args.keep_hours)
    conf, storage = store(args)
    lake = Location.of(args.lake, access.for_delta_rs(conf, storage))
    tables.must_be_lake(lake)
    spark = session.start(master, jars, conf, "hw maintain", "OFF", brief=True)
    lake = access.locate(spark, args.lake, storage)
    with jvm.told_when_it_dies(), _stopping(spark):
        files = Files(spark)
        try:
            held = lock.take(spark, lake, args.shared, say)
        except LakeLocked:
            say("a sink runs on the lake: asking it to do this")
            done = maintenance.answer(
                files, lake, maintenance.request(files, lake, args.keep_hours), args.wait
            )
        else:
            try:
                progress = Progress.load(lake)
                if recovery.unaccounted(files, lake, progress):
                    raise LakeError(
                        "a sink was cut off in the middle of a batch on %s, or the lake was taken back: "
                        "start `hw sink` first, which repairs it" % lake
                    )
                done = maintenance.maintain(spark, lake, args.keep_hours)
                progress.reopen(lake)
                if recovery.advance(files, lake, progress):
                    progress.save()
            finally:
                held.release()
    say("maintained: %(files_before)d files, now %(files_after)d, in %(seconds).1f s" % done)
    return 0, done


def register(
    args: argparse.Namespace, master: str, jars: Iterable[Path], say: Callable[[str], None]
) -> tuple[int, dict[str, Any]]:
    """Register the tables and views of a lake in a catalog."""
    conf, storage = store(args)
    tables.must_be_lake(location(args, args.lake))
    settings = catalog.metastore(args.metastore) if args.metastore else {}
    spark = session.start(master, jars, settings | conf, "hw lake register", "OFF", brief=True)
    with jvm.told_when_it_dies(), _stopping(spark):
        lake = Lake(spark, args.lake, storage=storage)
        done = lake.register(args.catalog, args.schema or "default", args.drop_gone)
    for name, about in done.items():
        say("%s: %s" % (name, about))
    return 0, {"registered": done}


def erase(
    args: argparse.Namespace, master: str, jars: Iterable[Path], say: Callable[[str], None]
) -> tuple[int, dict[str, Any]]:
    """One erasure, by the sink that runs on the lake or by one that is started for it."""
    conf, storage = store(args)
    landing, lake = location(args, args.landing), location(args, args.lake)
    tables.must_be_lake(lake)
    asked = erasure.Asked(args.stream, args.where, args.by, args.reason, args.also_later)
    erasure.check(lake, asked, erasure.lasts(lake, asked.stream))
    if landing.local is not None and not landing.local.is_dir():
        raise LakeError(
            "there is no landing zone %s: name the folder that the sink takes segments from" % landing
        )
    spark = session.start(master, jars, conf, "hw lake erase", "OFF", brief=True)
    landing, lake = (access.locate(spark, path, storage) for path in (args.landing, args.lake))
    with jvm.told_when_it_dies(), _stopping(spark):
        files = Files(spark)
        if args.dry_run:
            would = erasure.would(spark, files, lake, landing, asked)
            say(
                "would erase %(rows)d rows, and %(quarantined_rows)d rows and the bytes of "
                "%(quarantined_files)d files in quarantine; %(segments)d segments of the landing zone may "
                "have more" % would
            )
            return 0, would
        name = uuid.uuid4().hex
        erasure.request(files, lake, asked, name)
        try:
            with Sink(spark, landing, lake, Settings(shared=args.shared), say) as running:
                running.run(once=True)
            args.wait = 0
        except LakeLocked:
            say("a sink runs on the lake: asking it to do this")
        done = _answered(files, lake, name, args.wait)
    say("erased: %(rows)d elements, under the id %(id)s" % done)
    return 0, done


def _answered(files: Files, lake: Location, name: str, wait_s: float) -> dict[str, Any]:
    """What a sink did for a request; LakeError if it has not finished."""
    until = time.monotonic() + wait_s
    while (done := erasure.answer(files, lake, name)) is None:
        if time.monotonic() >= until:
            if erasure.withdraw(files, lake, name):
                raise LakeError(
                    "no sink on %s has taken it up within %.0f s: nothing is erased" % (lake, wait_s)
                )
            raise LakeError(
                "the erasure is declared, and not finished: segments of the landing zone wait for the sink, "
                "or its last attempt failed; a sink that runs on %s finishes it, and `hw audit` tells when"
                % lake
            )
        time.sleep(0.2)
    return done


def _reach(spark: SparkSession, *places: Location) -> None:
    """LakeError if an object store does not answer Spark or delta-rs, or does not let them in."""
    for at in places:
        if at.local is not None:
            continue
        try:
            Files(spark).exists(at)
            tables.exists(at / "elements")
        except (Py4JError, DeltaError, OSError) as error:
            spark.stop()
            raise LakeError(
                "%s cannot be reached: %s. Check its endpoint, its region and the keys (--storage, --conf)"
                % (at, sentence(error))
            ) from error


@contextlib.contextmanager
def _stopping(spark: SparkSession) -> Iterator[None]:
    try:
        yield
    finally:
        spark.stop()


def store(args: argparse.Namespace) -> tuple[dict[str, str], dict[str, str]]:
    """How these arguments reach a store: settings for Spark, and options for delta-rs as given."""
    conf, storage = pairs(args.conf, "--conf"), pairs(args.storage, "--storage")
    return {**access.for_spark(conf, storage), **conf}, storage


def location(args: argparse.Namespace, path: str) -> Location:
    """A place that a command without Spark opens."""
    return Location.of(path, access.for_delta_rs(*store(args)))


def pairs(texts: list[str], option: str) -> dict[str, str]:
    out = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise LakeError("%s %s: write KEY=VALUE" % (option, text))
        out[key] = value
    return out
