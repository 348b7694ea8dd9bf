"""`hw move`: has an operator of a site run on another host."""

from __future__ import annotations

import argparse
import time
from typing import Any

from .. import environment
from ..errors import UserError
from .deploy import ask

SUMMARY = (
    "move an operator of a running process to another host: nothing is lost, and nothing processed twice"
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "operator", metavar="OPERATOR", help="name of the operator, as the process file has it"
    )
    parser.add_argument(
        "host", metavar="HOST", help="a board, or gateway: one of those that `on` and `backup` name"
    )
    parser.add_argument("--gateway", metavar="FOLDER", default=".", help="folder of the gateway (here)")
    parser.add_argument("--process", metavar="NAME", help="name of the process; needed where several run")
    parser.add_argument(
        "--wait", type=float, default=90, metavar="S", help="wait at most S seconds for the outcome (90)"
    )


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    environment.ensure("gateway")
    import headwater_gateway

    if args.wait < 0:
        raise UserError("--wait %g: give a number of seconds, 0 or more" % args.wait)
    end = time.monotonic() + args.wait
    body = {"process": args.process, "operator": args.operator, "host": args.host}
    try:
        answer = ask(args.gateway, "/move", body)
        while answer["outcome"] == "under way" and time.monotonic() < end:
            answer = ask(args.gateway, "/move", body)
    except headwater_gateway.UserError as trouble:
        raise UserError(str(trouble))
    print(_told(answer, args.wait))
    return int(answer["outcome"] not in ("moved", "already there")), answer


def _told(answer: dict[str, Any], wait_s: float) -> str:
    what = "operator %(operator)s" % answer
    if answer["outcome"] == "moved":
        return "%s moved from %s to %s" % (what, answer["from"], answer["host"])
    if answer["outcome"] == "already there":
        return "%s runs on %s already" % (what, answer["host"])
    if answer["outcome"] == "under way" and answer["reason"]:
        text = "after %g s %s has not begun to move to %s: %s; ask again when it does"
        return text % (wait_s, what, answer["host"], answer["reason"])
    if answer["outcome"] == "under way":
        text = "after %g s %s is still on its way to %s; ask again, or look at `hw gateway state`"
        return text % (wait_s, what, answer["host"])
    return "%s stays on %s: %s" % (what, answer["from"], answer["reason"])
