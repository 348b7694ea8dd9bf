"""The sink and maintenance as programs: arguments, signals, words. For `hw` and for `spark-submit`."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from . import lock, maintenance, recovery, session, tables
from .errors import LakeError, LakeLocked
from .files import Files
from .location import Location
from .metrics import Metrics
from .progress import Progress
from .sink import FILES_PER_TRIGGER, MAINTAIN_S, TRIGGER_S, Settings, Sink

DESCRIPTION = "take segments of a landing zone into a Delta lake, exactly once, and acknowledge them"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "landing", metavar="LANDING", help="folder or URL that the gateway puts segments into"
    )
    parser.add_argument("lake", metavar="LAKE", help="folder or URL of the lake; made where there is none")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="take what is there, then end")
    how.add_argument("--forever", action="store_true", help="go on until stopped (the default)")
    parser.add_argument(
        "--trigger", type=_positive, default=TRIGGER_S, metavar="S", help="seconds between batches (5)"
    )
    parser.add_argument(
        "--files-per-trigger",
        type=int,
        default=FILES_PER_TRIGGER,
        metavar="N",
        help="most files of a batch (%d)" % FILES_PER_TRIGGER,
    )
    parser.add_argument(
        "--metrics", type=int, metavar="PORT", help="serve numbers for Prometheus on this port"
    )
    parser.add_argument(
        "--metrics-host", default="127.0.0.1", metavar="HOST", help="address to serve them on (127.0.0.1)"
    )
    parser.add_argument(
        "--maintain-every",
        type=float,
        default=MAINTAIN_S / 3600,
        metavar="H",
        help="hours between rounds of maintenance (1; 0: only when `hw maintain` asks)",
    )
    parser.add_argument(
        "--shared",
        action="store_true",
        help="the lake is a folder that several machines share: a lease instead of an OS lock",
    )
    parser.add_argument(
        "--storage",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option for delta-rs on an object store, where its environment variables do not say it",
    )
    parser.add_argument(
        "--spark-log",
        default="OFF",
        metavar="LEVEL",
        choices=("OFF", "ERROR", "WARN", "INFO"),
        help="what Spark logs to standard error: OFF (its failures are told anyway), ERROR, WARN, INFO",
    )
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting for Spark, as in spark-submit",
    )


def sink(
    args: argparse.Namespace, master: str, jars: Iterable[Path], say: Callable[[str], None]
) -> tuple[int, dict[str, Any]]:
    """Run the sink that these arguments describe to its end: exit code and report."""
    if args.files_per_trigger < 1:
        raise LakeError("--files-per-trigger %d: a batch needs at least one file" % args.files_per_trigger)
    options = _pairs(args.storage, "--storage")
    landing, lake = Location.of(args.landing, options), Location.of(args.lake, options)
    if landing.local is not None and not landing.local.is_dir():
        raise LakeError(
            "there is no landing zone %s: it is the folder that the gateway puts its segments into" % landing
        )
    metrics = Metrics()
    if args.metrics is not None:
        try:
            metrics.serve(args.metrics, args.metrics_host)
        except OSError as error:
            raise LakeError("cannot serve metrics on port %d: %s" % (args.metrics, error.strerror))
    spark = session.start(master, jars, _pairs(args.conf, "--conf"), "hw sink", args.spark_log, args.once)
    settings = Settings(
        files_per_trigger=args.files_per_trigger,
        trigger_s=args.trigger,
        maintain_s=args.maintain_every * 3600,
        shared=args.shared,
    )
    try:
        with Sink(spark, landing, lake, settings, say, metrics) as running:
            # Spark's own handler would end Python at once; a batch that has begun is ended first.
            before = {s: signal.signal(s, lambda *_: running.stop()) for s in (signal.SIGINT, signal.SIGTERM)}
            say("%s -> %s, from version %d on" % (landing, lake, running.progress.elements))
            try:
                report = running.run(args.once)
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)
    finally:
        spark.stop()
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
    lake = Location.of(args.lake, _pairs(args.storage, "--storage"))
    if not tables.exists(lake / "elements"):
        raise LakeError("there is no lake at %s: it has no table `elements`" % lake)
    spark = session.start(master, jars, None, "hw maintain", brief=True)
    try:
        files = Files(spark)
        try:
            held = lock.take(spark, lake, args.shared)
        except LakeLocked:
            say("a sink runs on the lake: it is asked to do it")
            done = maintenance.answer(
                files, lake, maintenance.request(files, lake, args.keep_hours), args.wait
            )
        else:
            try:
                progress = Progress.load(lake)
                if recovery.unaccounted(files, lake, progress):
                    raise LakeError(
                        "a sink was cut off in the middle of a batch on %s, or the lake was taken back: "
                        "start `hw sink` first, which puts it right" % lake
                    )
                done = maintenance.maintain(spark, lake, args.keep_hours)
                progress.reopen(lake)
                if recovery.advance(files, lake, progress):
                    progress.save()
            finally:
                held.release()
    finally:
        spark.stop()
    say("maintained: %(files_before)d files, now %(files_after)d, in %(seconds).1f s" % done)
    return 0, done


def _positive(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 86_400:
        raise argparse.ArgumentTypeError("%s is not between 0 and 86400" % text)
    return value


def _pairs(texts: list[str], option: str) -> dict[str, str]:
    out = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise LakeError("%s %s: write KEY=VALUE" % (option, text))
        out[key] = value
    return out
