"""`hw maintain LAKE`: compaction, clustering, clean-up; by the sink, if one runs on the lake."""

from __future__ import annotations

import argparse
from typing import Any

from .sink import serve

SUMMARY = "keep a lake quick to read: compact, cluster, remove what no version needs"


def arguments(parser: argparse.ArgumentParser) -> None:
    from headwater_cloud.arguments import store

    parser.add_argument("lake", metavar="LAKE", help="folder or URL of the lake")
    parser.add_argument(
        "--keep-hours",
        type=float,
        default=168.0,
        metavar="H",
        help="versions younger than this stay readable (168: a week)",
    )
    parser.add_argument(
        "--wait", type=float, default=600.0, metavar="S", help="how long a running sink may take"
    )
    parser.add_argument("--shared", action="store_true", help="as in `hw sink`")
    parser.add_argument("--master", default="local[*]", help="Spark's master, as in `hw sink`")
    store(parser)


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any] | None]:
    return serve("maintain", args, args.lake)
