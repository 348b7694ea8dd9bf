"""The arguments of the sink and their defaults. Needs no package, so that `--help` needs no environment."""

from __future__ import annotations

import argparse

FILES_PER_TRIGGER = 200
TRIGGER_S = 5.0
MAINTAIN_S = 3600.0  # between two rounds of maintenance, and never if nothing was written
PATIENCE_S = 600.0
# A day: most boards are out of reach for less. Later segments cost one read of `settled`.
SETTLE_S = 86_400.0
LEASE_S = 60.0

DESCRIPTION = "take segments of a landing zone into a Delta lake, exactly once, and acknowledge them"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "landing", metavar="LANDING", help="folder or URL that the gateway puts segments into"
    )
    parser.add_argument("lake", metavar="LAKE", help="folder or URL of the lake; created if missing")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="process what is there, then exit")
    how.add_argument("--forever", action="store_true", help="run until stopped (the default)")
    parser.add_argument(
        "--trigger", type=_positive, default=TRIGGER_S, metavar="S", help="seconds between batches (5)"
    )
    parser.add_argument(
        "--files-per-trigger",
        type=int,
        default=FILES_PER_TRIGGER,
        metavar="N",
        help="maximum number of files in a batch (%d)" % FILES_PER_TRIGGER,
    )
    parser.add_argument(
        "--metrics", type=int, metavar="PORT", help="serve metrics for Prometheus on this port"
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
        "--settle-after",
        type=float,
        default=SETTLE_S / 3600,
        metavar="H",
        help="hours without news after which an incarnation moves from the table `progress`, which every "
        "batch rewrites, to `settled` (24)",
    )
    parser.add_argument(
        "--patience",
        type=_positive,
        default=PATIENCE_S,
        metavar="S",
        help="seconds for which failed steps are retried, as when a store does not answer (600)",
    )
    parser.add_argument(
        "--shared",
        action="store_true",
        help="the lake is a folder that several machines share: use a lease instead of an OS lock",
    )
    parser.add_argument(
        "--lease",
        type=_lease,
        default=LEASE_S,
        metavar="S",
        help="on an object store, and with --shared: seconds without a sign of the sink that has the lake "
        "after which another one takes it over (60)",
    )
    store(parser)
    parser.add_argument(
        "--spark-log",
        default="OFF",
        metavar="LEVEL",
        choices=("OFF", "ERROR", "WARN", "INFO"),
        help="what Spark logs to standard error: OFF (its failures are reported anyway), ERROR, WARN, INFO",
    )


def store(parser: argparse.ArgumentParser) -> None:
    """How a lake on an object store is reached: the same arguments for all commands that open one."""
    parser.add_argument(
        "--storage",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="how an object store is reached, as delta-rs names it: AWS_ENDPOINT_URL=https://..., "
        "AWS_REGION, AWS_ACCESS_KEY_ID, ...; Spark gets the same. Environment variables of these names "
        "work as well",
    )
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting for Spark, as in spark-submit; settings spark.hadoop.fs.s3a.* of a store apply to "
        "delta-rs too",
    )


def _positive(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 86_400:
        raise argparse.ArgumentTypeError("%s is not between 0 and 86400" % text)
    return value


def _lease(text: str) -> float:
    value = float(text)
    if not 1 <= value <= 3600:
        raise argparse.ArgumentTypeError("%s is not between 1 and 3600" % text)
    return value
