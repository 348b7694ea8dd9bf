"""The arguments of the sink and their defaults. Needs no package, so that `--help` needs no environment."""

from __future__ import annotations

import argparse

FILES_PER_TRIGGER = 200
TRIGGER_S = 5.0
MAINTAIN_S = 3600.0  # between two rounds of maintenance, and never where nothing was written
PATIENCE_S = 600.0
# A day: most boards are out of reach for less. What comes later costs one read of `settled`.
SETTLE_S = 86_400.0

DESCRIPTION = "take segments of a landing zone into a Delta lake, exactly once, and acknowledge them"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "landing", metavar="LANDING", help="folder or URL that the gateway puts segments into"
    )
    parser.add_argument("lake", metavar="LAKE", help="folder or URL of the lake; made where there is none")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="take what is there, then end")
    how.add_argument("--forever", action="store_true", help="run until stopped (the default)")
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
        "--settle-after",
        type=float,
        default=SETTLE_S / 3600,
        metavar="H",
        help="hours without news after which a numbering moves from the table `progress`, which every batch "
        "rewrites, to `settled` (24)",
    )
    parser.add_argument(
        "--patience",
        type=_positive,
        default=PATIENCE_S,
        metavar="S",
        help="seconds for which what fails is tried again, a store that does not answer for instance (600)",
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
        help="an option for delta-rs on an object store, where its environment variables do not have it",
    )
    parser.add_argument(
        "--spark-log",
        default="OFF",
        metavar="LEVEL",
        choices=("OFF", "ERROR", "WARN", "INFO"),
        help="what Spark logs to standard error: OFF (its failures are reported anyway), ERROR, WARN, INFO",
    )
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting for Spark, as in spark-submit",
    )


def _positive(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 86_400:
        raise argparse.ArgumentTypeError("%s is not between 0 and 86400" % text)
    return value
