"""`hw sink LANDING LAKE`: the service that writes segments to a Delta lake, each row once, and
acknowledges them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from .. import environment
from ..errors import Failed, UserError

SUMMARY = "take segments of a landing zone into a Delta lake, exactly once, and acknowledge them"

Service = Callable[
    [argparse.Namespace, str, Iterable[Path], Callable[[str], None]], tuple[int, dict[str, Any]]
]


def arguments(parser: argparse.ArgumentParser) -> None:
    from headwater_cloud.arguments import arguments as sink_arguments

    sink_arguments(parser)
    parser.add_argument(
        "--master",
        default="local[*]",
        help="Spark's master: local[*] (this machine), spark://HOST:PORT, yarn, ...",
    )


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any] | None]:
    return serve("sink", args, args.landing, args.lake)


def serve(name: str, args: argparse.Namespace, *places: str) -> tuple[int, dict[str, Any]]:
    """Let a function of `headwater_cloud.cli` do it, with the jars that these places need."""
    environment.ensure("lake")
    from headwater_cloud import cli
    from headwater_cloud.errors import LakeError, LakeFailed

    def say(text: str) -> None:
        print(text, file=sys.stderr if args.json else sys.stdout, flush=True)

    function: Service = getattr(cli, name)
    try:
        return function(args, args.master, environment.jars(*places), say)
    except LakeFailed as error:
        raise Failed(str(error))
    except LakeError as error:
        raise UserError(str(error))
