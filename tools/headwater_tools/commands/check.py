"""`hw check FILE`: validates a process file; all problems at once, with line numbers and suggested fixes.

`--explain` adds how long the batteries of its hosts last, and where its operators should run.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from headwater.plan.model import Plan
from headwater.plan.reader import DURABLE, LEVELS, STRATEGIES
from headwater.process.check import Report, check
from headwater.process.problems import ERROR, Problem

from .. import environment
from ..errors import UserError
from ..explain import Explanation, board_problems
from ..process_file import ProcessFileError, load

SUMMARY = "validate a process file: reports all problems at once, with line numbers and suggested fixes"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a Python file that leaves one Process in a variable")
    parser.add_argument(
        "--explain",
        action="store_true",
        help="tell how long each battery lasts, where operators should run, and why not elsewhere",
    )
    parser.add_argument(
        "--battery",
        action="append",
        default=[],
        metavar="HOST=LEVEL",
        help="with --explain: what a battery has left, like wrist=60%% or wrist=3.72V (100%%)",
    )


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any] | None]:
    answer: dict[str, Any] = {"file": args.file, "ok": False, "process": None, "hash": None}
    if Path(args.file).is_dir():
        raise IsADirectoryError(21, "is a folder: name a process file", args.file)
    if args.battery and not args.explain:
        raise UserError("--battery belongs to --explain: `hw check FILE --explain --battery wrist=60%`")
    if args.explain and not environment.REPOSITORY:
        raise UserError("--explain needs the repository of Headwater, which has what kinds of boards draw")
    try:
        process = load(args.file)
    except ProcessFileError as error:
        print(error.problem)
        return 1, {**answer, "problems": [_plain(error.problem)]}
    report = check(process)
    boards = board_problems(process.hosts) if environment.REPOSITORY else []
    problems = sorted(report.problems + boards, key=lambda p: (p.file, p.line, p.severity != ERROR))
    for problem in problems:
        print(problem)
    answer["process"] = report.name if isinstance(report.name, str) else repr(report.name)
    answer["problems"] = [_plain(problem) for problem in problems]
    errors = [p for p in problems if p.severity == ERROR]
    if report.decoded is None or errors:
        warnings = len(problems) - len(errors)
        print(_count(len(errors), "error"), end="")
        print(", " + _count(warnings, "warning") if warnings else "")
        return 1, answer
    explanation = Explanation(report, args.battery) if args.explain else None
    _describe(report)
    answer = {**answer, "ok": True, "hash": report.hash, **_counts(report)}
    if explanation is not None:
        print("\n".join(explanation.lines()))
        answer["placement"] = explanation.as_json()
    return 0, answer


def _plain(problem: Problem) -> dict[str, Any]:
    return {
        "severity": problem.severity,
        "file": problem.file,
        "line": problem.line,
        "where": problem.where,
        "what": problem.what,
        "cure": problem.cure,
    }


def _count(n: int, one: str, more: str = "") -> str:
    return "%d %s" % (n, one if n == 1 else more or one + "s")


def _counts(report: Report) -> dict[str, Any]:
    plan = report.decoded
    assert plan is not None and report.plan is not None
    return {
        "vertices": len(plan.vertices),
        "edges": len(plan.edges),
        "hosts": len(plan.hosts),
        "plan_bytes": len(report.plan),
        "checkpoints": STRATEGIES[plan.strategy],
        "level": LEVELS[plan.level],
        "every": plan.every,
    }


def _describe(report: Report) -> None:
    plan = report.decoded
    assert plan is not None and report.plan is not None
    print(
        "process '%s', version %s: %s, %s, %s, plan of %d bytes; checkpoints %s every %d, level %s"
        % (
            plan.name,
            report.hash,
            _count(len(plan.vertices), "vertex", "vertices"),
            _count(len(plan.edges), "edge"),
            _count(len(plan.hosts), "host"),
            len(report.plan),
            STRATEGIES[plan.strategy],
            plan.every,
            LEVELS[plan.level],
        )
    )
    rows = [("vertex", "type", "runs on", "backed up by", "gives", "to")]
    for v in plan.vertices:
        names = [plan.hosts[h] for h in v.hosts]
        gives = "; ".join(a.text for a in v.outs)
        rows.append(
            (
                v.name,
                v.kind or "source",
                names[0],
                ", ".join(names[1:]) or "-",
                gives,
                _readers(plan, v.index),
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def _readers(plan: Plan, vertex: int) -> str:
    out = []
    for e in plan.edges:
        if e.src == vertex and e.lake:
            out.append("lake %s (%s)" % (e.lake, DURABLE[e.durable]))
        elif e.src == vertex:
            out.append(plan.vertices[e.dst].name + (" (feedback)" if e.delay_us else ""))
    return ", ".join(out) or "-"
