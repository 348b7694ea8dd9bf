"""`hw board scan`: what is connected to this machine."""

from __future__ import annotations

import argparse
from typing import Any

from ..boards import scan

SUMMARY = "boards at USB: scan lists serial ports, and what answers on a board's I2C bus"


def arguments(parser: argparse.ArgumentParser) -> None:
    which = parser.add_subparsers(dest="do", metavar="scan", required=True)
    found = which.add_parser("scan", help=scan.ABOUT, description=scan.ABOUT, allow_abbrev=False)
    scan.arguments(found)
    found.add_argument(
        "--json",
        action="store_true",
        default=argparse.SUPPRESS,
        help="print one JSON object as the last line",
    )


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    return scan.scan(args)
