"""`hw new NAME`: makes a site that runs as it is, on this machine and with virtual boards."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .. import environment
from ..errors import UserError

SUMMARY = "make a site that runs as it is: gateway, broker, keys, two boards and an example process"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the folder to make")
    parser.add_argument(
        "--host",
        default="localhost",
        help="name or address by which boards of other machines reach the broker (localhost: none do)",
    )
    parser.add_argument("--port", type=int, help="port of the broker (a free one)")


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    environment.ensure("gateway")
    from ..site import make

    if args.port is not None and not 1 <= args.port <= 65535:
        raise UserError("--port %d: give 1 to 65535" % args.port)
    folder = Path(args.name)
    boards = make.make(folder, args.host, args.port)
    print(
        "made %s: a site with boards %s, and the process %s/process.py" % (folder, ", ".join(boards), folder)
    )
    print("next: hw up %s" % folder)
    return 0, {"site": str(folder), "boards": boards, "process": str(folder / "process.py")}
