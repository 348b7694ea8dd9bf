"""`hw sink LANDING LAKE`: the service that writes segments to a Delta lake, each row once, and
acknowledges them."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from .. import Failed, Trouble, house

SUMMARY = "take segments of a landing zone into a Delta lake, exactly once, and acknowledge them"


def arguments(parser: argparse.ArgumentParser) -> None:
    from headwater_cloud.arguments import arguments as sink_arguments

    sink_arguments(parser)
    parser.add_argument(
        "--master",
        default="local[*]",
        help="Spark's master: local[*] (this machine), spark://HOST:PORT, yarn, ...",
    )


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any] | None]:
    house.ensure("lake")
    from headwater_cloud import service
    from headwater_cloud.errors import LakeError, LakeFailed

    def say(text: str) -> None:
        print(text, file=sys.stderr if args.json else sys.stdout, flush=True)

    try:
        return service.sink(args, args.master, house.jars(args.landing, args.lake), say)
    except LakeFailed as error:
        raise Failed(str(error))
    except LakeError as error:
        raise Trouble(str(error))
