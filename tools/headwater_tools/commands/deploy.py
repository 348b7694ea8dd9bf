"""`hw deploy`: sends a process, or new values of parameters, through the gateway to the boards."""

from __future__ import annotations

import argparse
import base64
import time
from typing import Any

from headwater.process.check import check

from .. import environment
from ..errors import UserError
from ..process_file import ProcessFileError, load

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
    parser.add_argument(
        "--close",
        metavar="OPERATOR.INPUT",
        help="let an operator go on without an input whose source is dead; INPUT: the name of what it comes "
        "from, or its number",
    )
    parser.add_argument("--reopen", metavar="OPERATOR.INPUT", help="take an input again that was closed")
    parser.add_argument(
        "--process",
        metavar="NAME",
        help="--set, --close, --reopen: name of the process; needed where several run",
    )
    parser.add_argument(
        "--cancel", metavar="PROCESS", help="cancel a change of this process that is still draining"
    )
    parser.add_argument(
        "--rollback",
        metavar="PROCESS",
        nargs="?",
        const="",
        help="deploy the version before this one again; `hw gateway state` lists them",
    )
    parser.add_argument("--to", type=int, metavar="N", help="--rollback: the version of deployment N")
    parser.add_argument(
        "--wait", type=float, default=0, metavar="S", help="wait up to S seconds for all boards to run it"
    )


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    environment.ensure("gateway")
    import headwater_gateway

    named = (args.file, args.values or None, args.cancel, args.rollback, args.close, args.reopen)
    if sum(each is not None for each in named) != 1:
        raise UserError("give one of: a process file, --set, --rollback, --cancel, --close, --reopen")
    if args.to is not None and args.rollback is None:
        raise UserError("--to N belongs to --rollback: `hw deploy --rollback PROCESS --to N`")
    try:
        if args.values:
            return _set(args)
        if args.close or args.reopen:
            return _close(args)
        if args.cancel:
            answer = ask(args.gateway, "/cancel", {"process": args.cancel})
            print("the change of %s is cancelled" % args.cancel)
            return 0, answer
        return _deploy(args) if args.rollback is None else _roll_back(args)
    except headwater_gateway.UserError as trouble:
        raise UserError(str(trouble))


def ask(folder: str, what: str, body: dict[str, Any] | None) -> dict[str, Any]:
    """The answer of the gateway of this folder."""
    from headwater_gateway import control
    from headwater_gateway.command import config_path
    from headwater_gateway.config import read

    return control.ask(read(config_path(folder)), what, body)


def _deploy(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    try:
        report = check(load(args.file))
    except ProcessFileError as error:
        print(error.problem)
        return 1, {"file": args.file, "problems": [str(error.problem)]}
    for problem in report.problems:
        print(problem)
    if report.plan is None:
        return 1, {"file": args.file, "problems": [str(problem) for problem in report.problems]}
    answer = ask(args.gateway, "/deploy", {"plan": base64.b64encode(report.plan).decode()})
    return _deployed(args, answer)


def _roll_back(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    name = args.rollback or _only_process(args.gateway)
    answer = ask(args.gateway, "/rollback", {"process": name, "deployment": args.to})
    print("process %(process)s goes back to what deployment %(former)d was" % answer)
    return _deployed(args, answer)


def _only_process(folder: str) -> str:
    state = ask(folder, "/state", None)
    names = sorted({*state["processes"], *state["undeployed"]})
    if len(names) != 1:
        raise UserError("name the process, --rollback PROCESS: there are %s" % (", ".join(names) or "none"))
    return names[0]


def _deployed(args: argparse.Namespace, answer: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    print("process %(process)s, version %(version)s, deployment %(deployment)d: %(state)s" % answer)
    if not args.wait:
        return 0, answer
    text = "process %(process)s runs on every board" % answer
    return follow(args.gateway, answer, args.wait, text)


def follow(
    folder: str, answer: dict[str, Any], wait_s: float, done: str, ends: bool = False
) -> tuple[int, dict[str, Any]]:
    """Report what is waited for until a deployment runs, or with `ends` until the process has stopped."""
    name = answer["process"]
    end = time.monotonic() + wait_s
    told: set[str] = set()
    while True:
        process = ask(folder, "/state", None)["processes"].get(name)
        if process is None or process["hash"] == answer["hash"] and process["step"] == "runs":
            print(done if ends == (process is None) else "process %s was undeployed meanwhile" % name)
            return int(ends != (process is None)), {**answer, "state": "stopped" if ends else "runs"}
        for text in process["waits"]:
            if text.partition(":")[0] not in told:
                told.add(text.partition(":")[0])
                print(text, flush=True)
        problem = _hopeless(name, process, answer["hash"])
        if not problem and time.monotonic() > end:
            what = "has not stopped" if ends else "does not run everywhere"
            problem = "after %g s process %s %s: %s" % (wait_s, name, what, _waits(process))
        if problem:
            print(problem)
            return 1, {**answer, "state": process["step"], "waits": process["waits"], "problem": problem}
        time.sleep(0.2)


def _hopeless(name: str, process: dict[str, Any], wanted: str) -> str:
    """Why waiting longer is pointless."""
    if wanted not in (process["hash"], process["coming"]):
        return "process %s: this change was cancelled" % name
    refusing = [b for b, word in process["boards"].items() if word == "refuses"]
    if refusing:
        return "process %s cannot run: %s" % (name, _waits(process))
    return ""


def _waits(process: dict[str, Any]) -> str:
    return "; ".join(process["waits"]) or "the gateway is switching"


def _close(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    text = args.close or args.reopen
    operator, dot, which = text.rpartition(".")
    if not dot or not operator or not which:
        raise UserError("%s: give OPERATOR.INPUT, as in both.ecg" % text)
    body = {
        "process": args.process,
        "operator": operator,
        "input": which,
        "reopen": args.reopen is not None,
    }
    answer = ask(args.gateway, "/close", body)
    told = "takes its input from %s again" if args.reopen else "goes on without its input from %s"
    print("%s %s (change %d)" % (operator, told % answer["input"], answer["number"]))
    return 0, answer


def _set(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    changes: dict[str, dict[str, Any]] = {}
    for text in args.values:
        name, equals, value = text.partition("=")
        operator, dot, parameter = name.partition(".")
        if not (equals and dot and operator and parameter):
            raise UserError("--set %s: write OPERATOR.PARAMETER=VALUE, like alarm.high=180" % text)
        changes.setdefault(operator, {})[parameter] = _value(value)
    answers = []
    for operator, values in changes.items():
        body = {"process": args.process, "operator": operator, "values": values}
        answers.append(ask(args.gateway, "/set", body))
        shown = ", ".join("%s = %s" % item for item in values.items())
        waits = "; it waits: " + answers[-1]["waits"] if answers[-1]["waits"] else ""
        print("%s: %s, change number %d%s" % (operator, shown, answers[-1]["number"], waits))
    return 0, {"changes": answers}


def _value(text: str) -> Any:
    """A number, a list of whole numbers, or else a text."""
    try:
        if text[:1] + text[-1:] in ("[]", "()"):
            return [int(part) for part in text[1:-1].split(",") if part.strip()]
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text
