"""`hw monitor`: the console of a board at this machine's USB."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from .. import environment
from ..errors import UserError

SUMMARY = "the console of a board at USB, across resets and replugging; Ctrl-] or Ctrl-C leaves"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", help="serial port of the board (default: the only one there is)")
    parser.add_argument("--seconds", type=float, metavar="N", help="leave after N seconds")


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    if args.seconds is not None and args.seconds <= 0:
        raise UserError("--seconds %g: give a positive number" % args.seconds)
    environment.ensure("board")
    from ..boards import console, ports

    port = ports.choose(args.port)
    environment.say("console of %s; Ctrl-] or Ctrl-C leaves" % port)
    end = None if args.seconds is None else time.monotonic() + args.seconds
    opened = 0
    try:
        opened = console.watch(port, lambda: end is not None and time.monotonic() >= end)
    except KeyboardInterrupt:
        pass  # the way to leave where standard input is no terminal
    sys.stdout.flush()
    print()
    return 0, {"port": port, "opened": opened}
