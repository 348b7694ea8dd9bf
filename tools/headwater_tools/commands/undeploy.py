"""`hw undeploy`: stops a process when everything that its boards have accepted is safe."""

from __future__ import annotations

import argparse
from typing import Any

from .. import environment
from ..errors import UserError
from .deploy import ask, follow

SUMMARY = "stop a process: it drains, nothing that was accepted is lost, and its boards are free"

STOPPED = "process %s has stopped; its boards are free"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "process", metavar="PROCESS", help="name of the process, as `hw gateway state` has it"
    )
    parser.add_argument("--gateway", metavar="FOLDER", default=".", help="folder of the gateway (here)")
    parser.add_argument("--cancel", action="store_true", help="cancel an undeployment that is still draining")
    parser.add_argument(
        "--wait", type=float, default=0, metavar="S", help="wait up to S seconds until it has stopped"
    )


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    environment.ensure("gateway")
    import headwater_gateway

    try:
        if args.cancel:
            answer = ask(args.gateway, "/cancel", {"process": args.process})
            print("process %s continues" % args.process)
            return 0, answer
        answer = ask(args.gateway, "/undeploy", {"process": args.process})
        print("process %s drains; it stops when everything that its boards accepted is safe" % args.process)
        if not args.wait:
            return 0, answer
        return follow(args.gateway, answer, args.wait, STOPPED % args.process, ends=True)
    except headwater_gateway.UserError as trouble:
        raise UserError(str(trouble))
