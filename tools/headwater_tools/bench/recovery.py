"""How long an operator is away when its host dies or hands it over, and what is processed again.

simulated: the host of the last operator dies, for every strategy, interval and state size: when a host takes
it over (the patience of hosts, 30 s, is most of it), when the first new element arrives, when the lag is what
it was, what was processed again. planned: the same operator is handed over. Both in simulated time, where
links take 15 ms one way and computing takes none. boards: deaths and moves of virtual boards.

The founding thesis measured recovery and catch-up, but its figures are lost: only its claims can be compared.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..environment import CACHE
from ..errors import UserError
from . import Measure, at_most
from .support.figure import Line, draw
from .support.lost_hosts import BATCH_MS, DELAY_US, LONGEST_US, RATE_HZ, Case, Lost, Moved, hand, lose

SUMMARY = "recovery of operators: time, catch-up and replay after a death, pause of a planned move"
SECTIONS = ("simulated", "planned", "boards")
QUOTED = (
    "death to takeover", "elements replayed", "SP2, ecoc, every 1000, ", "planned: link", "planned: elements",
    "planned: SP2, ecoc, ", "boards",
)  # fmt: skip
STRATEGIES = ("uncoordinated", "ecoc", "extended")
INTERVALS = (500, 1000, 2000, 3000)
STATES = (100, 1024, 4096, 16384)
NAMES = {100: "100 B", 1024: "1 KB", 4096: "4 KB", 16384: "16 KB"}
SEEDS = 5
QUICK = 1
PROCESS = "sp2"  # a join: extensions matter only there
SOURCES = {"sp1": 1, "sp2": 2}
MID_EVERY, MID_STATE = 1000, 4096  # of the cases beside the grid
DELAYS_BAR = 3
BATCH = RATE_HZ * BATCH_MS // 1000
SAME = 1.3  # medians of two strategies that differ by less are the same
SECOND = 1_000_000
LONGEST_S = LONGEST_US // SECOND


class Loss(NamedTuple):
    """One case with all its seeds."""

    case: Case
    runs: list[Lost]

    def of(self, name: str) -> list[int]:
        values = [getattr(run, name) for run in self.runs]
        return [LONGEST_US if value < 0 else value for value in values]

    def whole_s(self) -> float:
        """From the takeover until the lag is what it was, median; 0 where a run does not get there."""
        if min(run.catch_up for run in self.runs) < 0:
            return 0.0
        return statistics.median([run.restart + run.catch_up for run in self.runs]) / SECOND

    def beyond(self) -> int:
        """Elements processed again beyond one interval and what was in flight, in the worst run. An interval
        is so many elements of a source; of another one a join may have taken a batch more meanwhile."""
        sources = SOURCES[self.case.process]
        interval = self.case.every * sources + BATCH * (sources - 1)
        interval *= 2 if self.case.both else 1
        return max(0, *(run.replayed - run.in_flight - interval for run in self.runs))


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--section", choices=SECTIONS, action="append", help="all of them")
    parser.add_argument("--seeds", type=int, help="runs of each simulated case (%d)" % SEEDS)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="few cases with one run each, and one death, of an impatient board",
    )
    parser.add_argument(
        "--figure", metavar="FILE", help="where the SVG figure goes (default: .hw/recovery.svg)"
    )


def run(args: argparse.Namespace, say: Callable[[str], None]) -> list[Measure]:
    figure = Path(args.figure) if args.figure else CACHE / "recovery.svg"
    if not figure.parent.is_dir():
        raise UserError("--figure %s: the folder %s does not exist" % (figure, figure.parent))
    seeds = args.seeds if args.seeds is not None else QUICK if args.quick else SEEDS
    if seeds < 1:
        raise UserError("--seeds %d: give at least 1" % seeds)
    sections = args.section or SECTIONS
    measures: list[Measure] = []
    if "simulated" in sections:
        measures += _simulated(args.quick, seeds, figure, say)
    if "planned" in sections:
        measures += _planned(args.quick, seeds, say)
    if "boards" in sections:
        from .support import lost_boards

        measures += lost_boards.measure(args.quick, say)
    return measures


def _all(work: Callable[[Case, int], Any], cases: list[Case], seeds: int) -> dict[Case, list[Any]]:
    """Every case with every seed. Long ones first."""
    jobs = [(case, seed) for case in cases for seed in range(1, seeds + 1)]
    jobs.sort(key=lambda job: -job[0].state)
    with multiprocessing.get_context("spawn").Pool(min(os.cpu_count() or 1, 4)) as pool:
        found = pool.starmap(work, jobs, 1)
    runs: dict[Case, list[Any]] = {case: [] for case in cases}
    for (case, _), result in zip(jobs, found, strict=True):
        runs[case].append(result)
    return runs


# ---- unplanned


def grid(quick: bool) -> list[Case]:
    intervals = (INTERVALS[0], INTERVALS[-1]) if quick else INTERVALS
    states = STATES[-1:] if quick else STATES
    return [Case(PROCESS, s, every, state) for s in STRATEGIES for every in intervals for state in states]


def beside() -> list[Case]:
    """A chain without a join; and two operators in a row that die together."""
    chain = [Case("sp1", strategy, MID_EVERY, MID_STATE) for strategy in STRATEGIES]
    return chain + [Case(PROCESS, strategy, MID_EVERY, MID_STATE, both=True) for strategy in STRATEGIES]


def _simulated(quick: bool, seeds: int, figure: Path, say: Callable[[str], None]) -> list[Measure]:
    cases = grid(quick)
    say(
        "simulated: %d cases, %d runs of each; links take %d ms"
        % (len(cases + beside()), seeds, DELAY_US // 1000)
    )
    found = _all(lose, cases + beside(), seeds)
    losses = {case: Loss(case, runs) for case, runs in found.items()}
    detections = [us for loss in losses.values() if not loss.case.both for us in loss.of("detection")]
    say(
        "seconds from the death until a host takes the operator over: median %s, worst %s" % _span(detections)
    )
    tables(losses, say)
    heading = "Seconds from a takeover until the lag is what it was (no mark: not within %d s)"
    axis = "checkpoint interval, elements of a source"
    intervals = sorted({case.every for case in cases})
    panels = lines(losses, cases)
    figure.write_text(draw(heading % LONGEST_S, axis, intervals, panels, "until the first new element", "s"))
    say("figure: %s" % figure)
    out = [
        Measure("death to takeover, median", _s(statistics.median(detections)), "s"),
        Measure("death to takeover, worst", _s(max(detections)), "s"),
        at_most(
            "elements replayed beyond an interval and what was in flight, most",
            max(loss.beyond() for loss in losses.values()),
            "",
            0,
        ),
    ]
    for loss in losses.values():
        out += _measures_of(loss)
    say("claims of the thesis")
    for name, verdict, numbers in claims(losses):
        say("  %-14s  %s: %s" % (verdict, name, numbers))
        out.append(Measure("claim: " + name, verdict))
    say("  not measurable  SP4 takes longer to catch up with extension: a loop is not part of this bench")
    return out


def _measures_of(loss: Loss) -> list[Measure]:
    name = title(loss.case)
    out = []
    for what, field in (("takeover to first new element", "restart"), ("catch-up", "catch_up")):
        values = loss.of(field)
        out.append(Measure("%s: %s, median" % (name, what), _s(statistics.median(values)), "s"))
        out.append(Measure("%s: %s, worst" % (name, what), _s(max(values)), "s"))
    replayed = loss.of("replayed")
    out.append(Measure("%s: replayed, median" % name, round(statistics.median(replayed)), "elements"))
    out.append(Measure("%s: replayed, worst" % name, max(replayed), "elements"))
    return out


def title(case: Case) -> str:
    name = "%s, %s, every %d, %s" % (case.process.upper(), case.strategy, case.every, NAMES[case.state])
    return name + ", two operators" if case.both else name


def tables(losses: dict[Case, Loss], say: Callable[[str], None]) -> None:
    for what, field, scale in (
        ("seconds from the takeover until the first new element", "restart", SECOND),
        (
            "seconds from then until the lag is what it was (%d: not by then)" % LONGEST_S,
            "catch_up",
            SECOND,
        ),
        ("elements processed again (%d sources)" % SOURCES[PROCESS], "replayed", 1),
    ):
        say("%s: median (worst)" % what)
        states = sorted({case.state for case in losses})
        say("  %-26s" % "strategy, every" + "".join(NAMES[state].rjust(16) for state in states))
        rows = dict.fromkeys((case.process, case.strategy, case.every, case.both) for case in losses)
        for process, strategy, every, both in rows:
            kind = " two" if both else " chain" if process != PROCESS else ""
            row = "  %-26s" % ("%s, %d%s" % (strategy, every, kind))
            for state in states:
                loss = losses.get(Case(process, strategy, every, state, both=both))
                values = loss.of(field) if loss else []
                form = "%.1f (%.1f)" if scale > 1 else "%d (%d)"
                row += (
                    form % (statistics.median(values) / scale, max(values) / scale) if values else ""
                ).rjust(16)
            say(row.rstrip())


def lines(losses: dict[Case, Loss], cases: Sequence[Case]) -> dict[str, list[Line]]:
    """For the figure: by state size, two lines for each strategy."""
    intervals = sorted({case.every for case in cases})
    panels: dict[str, list[Line]] = {}
    for state in sorted({case.state for case in cases}):
        panel = panels["%s of state" % NAMES[state]] = []
        for strategy in STRATEGIES:
            row = [losses[Case(PROCESS, strategy, every, state)] for every in intervals]
            first = [statistics.median(loss.of("restart")) / SECOND for loss in row]
            whole = [loss.whole_s() for loss in row]
            panel += [Line(strategy, False, whole), Line(strategy, True, first)]
    return panels


def claims(losses: dict[Case, Loss]) -> list[tuple[str, str, str]]:
    """The thesis's, as far as they can be compared: its hosts computed and its links were fast; here links
    take time and computing takes none."""

    def medians(field: str, both: bool) -> list[float]:
        cases = [Case(PROCESS, s, MID_EVERY, MID_STATE, both=both) for s in STRATEGIES]
        return [statistics.median(losses[c].of(field)) for c in cases if c in losses]

    out = []
    for what, field in (("recovery", "restart"), ("catch-up", "catch_up")):
        for times, both in (("one operator dies", False), ("two die", True)):
            values = medians(field, both)
            if len(values) < len(STRATEGIES):
                continue
            ratio = max(values) / max(1, min(values))
            numbers = "longest / shortest median %.2f" % ratio
            name = "%s the same in all strategies, where %s" % (what, times)
            out.append((name, "met" if ratio <= SAME else "not met", numbers))
    return out


# ---- planned


def _planned(quick: bool, seeds: int, say: Callable[[str], None]) -> list[Measure]:
    if quick:
        pairs = [("sp1", STATES[0]), ("sp2", STATES[-1])]
    else:
        pairs = [(process, state) for process in ("sp1", "sp2") for state in STATES]
    # In the order of the table: state by state, below each strategy.
    cases = [Case(process, strategy, MID_EVERY, state) for process, state in pairs for strategy in STRATEGIES]
    cases.sort(key=lambda case: (case.process, STRATEGIES.index(case.strategy)))
    say("planned: %d cases, %d runs of each" % (len(cases), seeds))
    found: dict[Case, list[Moved]] = _all(hand, cases, seeds)
    say("  %-26s%28s%26s" % ("", "pause, ms: median (worst)", "without the transfer"))
    out = [
        at_most(
            "planned: link delays in a pause, beside the transfer, most",
            round(max(run.delays for runs in found.values() for run in runs), 2),
            "delays",
            DELAYS_BAR,
        ),
        at_most(
            "planned: elements replayed",
            sum(run.replayed for runs in found.values() for run in runs),
            "",
            0,
        ),
    ]
    for case, runs in found.items():
        pauses = [run.pause / 1000 for run in runs]
        rest = [run.delays for run in runs]
        name = "%s, %s, %s" % (case.process.upper(), case.strategy, NAMES[case.state])
        pause = "%.0f (%.0f)" % (statistics.median(pauses), max(pauses))
        say("  %-26s%28s%26s" % (name, pause, "%.1f (%.1f) delays" % (statistics.median(rest), max(rest))))
        out.append(Measure("planned: %s: pause, median" % name, round(statistics.median(pauses), 1), "ms"))
        out.append(Measure("planned: %s: pause, worst" % name, round(max(pauses), 1), "ms"))
    return out


def _s(us: float) -> float:
    return round(us / SECOND, 2)


def _span(values: Sequence[int]) -> tuple[str, str]:
    return "%.1f" % (statistics.median(values) / SECOND), "%.1f" % (max(values) / SECOND)
