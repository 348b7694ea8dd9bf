"""`hw give-up`: an operator goes on without a checkpoint that only lost hosts have."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from .. import environment
from ..errors import UserError
from .deploy import ask

SUMMARY = (
    "have an operator continue without a checkpoint that only lost boards had; its outputs start again at "
    "entry 1"
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "operator", metavar="OPERATOR", help="name of the operator, as the process file has it"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument("--gateway", metavar="FOLDER", default=".", help="folder of the gateway (here)")
    parser.add_argument("--process", metavar="NAME", help="name of the process; needed where several run")


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    environment.ensure("gateway")
    import headwater_gateway

    body = {"process": args.process, "operator": args.operator}
    try:
        if not args.yes:
            _ask(ask(args.gateway, "/give-up", {**body, "sure": False}), bool(args.json))
        answer = ask(args.gateway, "/give-up", {**body, "sure": True})
    except headwater_gateway.UserError as trouble:
        raise UserError(str(trouble))
    print(_told(answer))
    return int(answer["outcome"] != "given up"), answer


def _told(answer: dict[str, Any]) -> str:
    if answer["outcome"] == "given up":
        return "operator %(operator)s goes on at %(host)s, without what it waited for" % answer
    text = "host %(host)s has not answered: operator %(operator)s may give up yet; look at `hw gateway state`"
    return text % answer


def _ask(answer: dict[str, Any], quiet: bool) -> None:
    """Say what is lost, and ask."""
    out = sys.stderr if quiet else sys.stdout
    print("operator %(operator)s on %(host)s would go on without what it waits for:" % answer, file=out)
    for line in consequences(answer):
        print("  " + line, file=out)
    if not sys.stdin.isatty():
        raise UserError("there is no terminal to ask for confirmation: add --yes; nothing was changed")
    print("type the name of the operator to let it give up: ", end="", file=out, flush=True)
    if sys.stdin.readline().strip() != answer["operator"]:
        raise UserError("operator %s goes on waiting; nothing was changed" % answer["operator"])


def consequences(answer: dict[str, Any]) -> list[str]:
    """What follows, a sentence a line."""
    lines = ["it %s" % answer["waits"]] if answer["waits"] else []
    lines.append(
        "its state is lost, unless a remaining host has a checkpoint after which the producers still have "
        "every entry"
    )
    for row in answer["streams"]:
        if row["xi"] is not None:
            at = (
                ""
                if row["ts_us"] is None
                else time.strftime(", ts %Y-%m-%d %H:%M:%S", time.localtime(row["ts_us"] / 1e6))
            )
            lines.append(
                "%s ends after xi %d%s, and begins another incarnation at xi 1"
                % (row["stream"], row["xi"], at)
            )
        else:
            lines.append("%s begins at xi 1" % row["stream"])
    for name in answer["consumers"]:
        lines.append("operator %s continues with the new incarnation, after a hole" % name)
    if answer["missing"]:
        lines.append(
            "if one of these boards may come back with its flash, wait instead: %s"
            % ", ".join(answer["missing"])
        )
    return lines
