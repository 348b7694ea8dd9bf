"""`hw broker run FOLDER`: the broker of a site, a Mosquitto with the configuration of `hw gateway init`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from .. import environment
from ..errors import UserError

SUMMARY = "the broker of a site: `run FOLDER` runs Mosquitto with the configuration of `hw gateway init`"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("do", choices=("run",), help="what to do")
    parser.add_argument("folder", metavar="FOLDER", nargs="?", default=".", help="folder of the gateway")


def run(args: argparse.Namespace) -> tuple[int, None]:
    environment.ensure("gateway")
    import headwater_gateway
    from headwater_gateway import broker

    command = environment.mosquitto()
    try:
        conf = broker.prepare(Path(args.folder))
    except headwater_gateway.UserError as trouble:
        raise UserError(str(trouble))
    print("Mosquitto with %s, until Ctrl-C" % conf, file=sys.stderr, flush=True)
    os.execve(command[0], [*command, "-c", str(conf)], environment.variables())
