"""`hw deploy`: sends a process, or new values of parameters, through the gateway to the boards."""

from __future__ import annotations

import argparse
import base64
import time
from typing import Any

from headwater.check import check

from .. import Trouble, house
from ..processes import ProcessFileError, load

SUMMARY = "deploy a process file to its boards, or --set OPERATOR.PARAMETER=VALUE while it runs"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", nargs="?", help="a process file")
    parser.add_argument("--gateway", metavar="FOLDER", default=".", help="folder of the gateway (here)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="OPERATOR.PARAMETER=VALUE",
        help="change a parameter",
        dest="values",
    )
    parser.add_argument("--process", metavar="NAME", help="--set: of this process, where there are several")
    parser.add_argument(
        "--cancel", metavar="PROCESS", help="cancel a change of this process that is still draining"
    )
    parser.add_argument(
        "--wait", type=float, default=0, metavar="S", help="wait up to S seconds until every board runs it"
    )


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    house.ensure("gateway")
    import headwater_gateway

    if sum((args.file is not None, bool(args.values), args.cancel is not None)) != 1:
        raise Trouble("give one of: a process file, --set, --cancel")
    try:
        if args.values:
            return _set(args)
        if args.cancel:
            answer = _ask(args, "/cancel", {"process": args.cancel})
            print("the change of %s is cancelled" % args.cancel)
            return 0, answer
        return _deploy(args)
    except headwater_gateway.Trouble as trouble:
        raise Trouble(str(trouble))


def _ask(args: argparse.Namespace, what: str, body: dict[str, Any] | None) -> dict[str, Any]:
    from headwater_gateway.config import read
    from headwater_gateway.control import ask

    from .gateway import config_path

    return ask(read(config_path(args.gateway)), what, body)


def _deploy(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    try:
        report = check(load(args.file))
    except ProcessFileError as error:
        print(error.problem)
        return 1, {"file": args.file, "problems": [str(error.problem)]}
    for problem in report.problems:
        print(problem)
    if report.decoded is None:
        return 1, {"file": args.file, "problems": [str(problem) for problem in report.problems]}
    answer = _ask(args, "/deploy", {"plan": base64.b64encode(report.plan).decode()})
    print("process %(process)s, version %(version)s, deployment %(deployment)d: %(state)s" % answer)
    if args.wait:
        return _wait(args, answer)
    return 0, answer


def _wait(args: argparse.Namespace, answer: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    end = time.monotonic() + args.wait
    told: dict[str, str] = {}
    while True:
        state = _ask(args, "/state", None)
        process = state["processes"][answer["process"]]
        boards = {n: state["boards"][n] for n in process["hosts"][1:]}
        for name, board in boards.items():
            how = "%s, plan %s" % (board["link"], board["plan"] or "not sent yet")
            how += ": " + board["why"] if board["why"] else ""
            if told.get(name) != how:
                told[name] = how
                print("board %s: %s" % (name, how), flush=True)
        if process["hash"] == answer["hash"] and all(b["plan"] == "runs" for b in boards.values()):
            return 0, {**answer, "state": "runs"}
        refused = any(b["plan"] == "refused" for b in boards.values())
        if refused or time.monotonic() > end:
            if not refused:
                late = ["%s (%s)" % (n, told[n]) for n, b in boards.items() if b["plan"] != "runs"]
                text = "after %g s it does not run everywhere; waiting for %s"
                print(text % (args.wait, ", ".join(late) or "the gateway"))
            return 1, {**answer, "state": process["step"], "boards": told}
        time.sleep(0.2)


def _set(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    changes: dict[str, dict[str, Any]] = {}
    for text in args.values:
        name, equals, value = text.partition("=")
        operator, dot, parameter = name.partition(".")
        if not (equals and dot and operator and parameter):
            raise Trouble("--set %s: write OPERATOR.PARAMETER=VALUE, like alarm.high=180" % text)
        changes.setdefault(operator, {})[parameter] = _value(value)
    answers = []
    for operator, values in changes.items():
        body = {"process": args.process, "operator": operator, "values": values}
        answers.append(_ask(args, "/set", body))
        shown = ", ".join("%s = %s" % item for item in values.items())
        print("%s: %s, change number %d" % (operator, shown, answers[-1]["number"]))
    return 0, {"changes": answers}


def _value(text: str) -> Any:
    """A whole number, a list of them, or else a text."""
    try:
        if text.startswith("[") and text.endswith("]"):
            return [int(part) for part in text[1:-1].split(",") if part.strip()]
        return int(text)
    except ValueError:
        return text
