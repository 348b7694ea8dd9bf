"""`hw sim`: whole histories of a process, with every fault that a seed draws, compared with the ideal run."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import Any

from ..errors import UserError
from ..simulator.jobs import (
    CAME_OF_IT,
    CHANGES,
    PROCESSES,
    SECONDS,
    Job,
    Outcome,
    drawn,
    plan_of_file,
    play,
    total,
)
from ..simulator.record import Record, Sweep, recorded
from ..simulator.scenario_file import Script, found, read

SUMMARY = "deterministic simulation from a seed: hosts, links, flash, faults; `--seed N` replays"

DEFAULT_SEEDS = range(1, 101)
SECONDS_MAX = 3600
SEEDS_MAX = 1_000_000
STORIES_MAX = 5  # failures reported in full; one line for each of the others
SAY_EVERY_S = 5  # at least, between two progress lines without a terminal
SAY_SHARE = 50  # and this part of the time so far: a log of a night has hundreds of them, not thousands
WIDTH = 100


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="a process file of your own; without one, the examples"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seed", type=int, metavar="N", help="one history")
    which.add_argument(
        "--seeds", type=_seeds, metavar="A:B", help="the histories of seeds A to B-1 (default: 1:101)"
    )
    parser.add_argument(
        "--process",
        choices=PROCESSES,
        help="an example in variants, a random process a seed, a process that changes from version to "
        "version, one that loses more than its level covers (`beyond`), or `mix` of the others (default)",
    )
    parser.add_argument(
        "--seconds",
        type=int,
        metavar="S",
        help="simulated time with faults (default: 25 to 300, by the seed)",
    )
    parser.add_argument("--no-faults", action="store_true", help="nothing fails")
    parser.add_argument(
        "--resume",
        metavar="RESULTS",
        help="write the result of each history to this file as it ends; if the file exists, continue the "
        "sweep that it records: play only what is missing, and summarise all of it. FILE, --seeds and the "
        "like may then be left out; if given, they must be those of the recorded sweep",
    )
    parser.add_argument(
        "--scenario",
        metavar="FILE",
        help="what happens, and what must come of it, from a file instead of from chance; or the name of one "
        "of tools/headwater_tools/examples/scenarios",
    )
    parser.add_argument(
        "--timeline",
        metavar="FILE.svg",
        help="draw one history: hosts, batteries, operators and their moves, faults",
    )
    parser.add_argument("--trace", action="store_true", help="print every event")
    parser.add_argument("--jobs", type=int, metavar="J", help="processes to run on (default: the cores)")


def _seeds(text: str) -> range:
    first, colon, last = text.partition(":")
    problem = ""
    if text.isdecimal():
        problem = "is one number: --seed %s plays that history, --seeds 1:%d the first %s" % (
            text,
            int(text) + 1,
            text,
        )
    elif not (colon and first.isdecimal() and last.isdecimal()):
        problem = "is not a pair of numbers: write it like 1:1001"
    elif int(last) <= int(first):
        problem = "has no seed in it: A:B are the seeds from A to B-1, so B must be greater than A"
    elif int(last) - int(first) > SEEDS_MAX:
        problem = "has %d seeds: give at most %d, and the others to a second sweep" % (
            int(last) - int(first),
            SEEDS_MAX,
        )
    if problem:
        raise argparse.ArgumentTypeError("'%s' %s" % (text, problem))
    return range(int(first), int(last))


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    sweep = _sweep(args)
    start = time.monotonic()
    with Record(args.resume, sweep) if args.resume else nullcontext() as record:
        outcomes = _play_all(sweep, record, args)
    outcomes.sort(key=lambda outcome: outcome.job.seed)
    failed = [outcome for outcome in outcomes if not outcome.ok]
    if args.trace:
        for outcome in outcomes:
            print("seed %d, %s" % (outcome.job.seed, outcome.title))
            print("\n".join(outcome.trace))
    for number, outcome in enumerate(failed):
        if number < STORIES_MAX:
            print("\n".join(outcome.story()) + "\n")
        else:
            print("seed %d: %s; replay: %s" % (outcome.job.seed, outcome.errors[0], outcome.job.replay()))
    counts = total(outcomes)
    took = "%.1f s" % (time.monotonic() - start)
    if record and record.outcomes:
        took += " without the {:,} histories recorded before".format(len(record.outcomes))
    _summarise(outcomes, failed, counts, took)
    if args.timeline:
        print("  timeline: %s" % args.timeline)
    return 1 if failed else 0, {
        **counts,
        "seed": sweep.seeds[0],
        "seeds": len(sweep.seeds),
        "process": sweep.file or sweep.process,
        **({"scenario": sweep.scenario} if sweep.scenario else {}),
        "drawn": drawn(outcomes),
        "failed": [
            {"seed": o.job.seed, "process": o.title, "errors": o.errors, "replay": o.job.replay()}
            for o in failed
        ],
    }


def _play_all(sweep: Sweep, record: Record | None, args: argparse.Namespace) -> list[Outcome]:
    """The outcomes of a sweep: those on record, and those of the histories that were still to be played."""
    outcomes = list(record.outcomes) if record else []
    known = {outcome.job.seed for outcome in outcomes}
    jobs = [job for job in sweep.jobs() if job.seed not in known]
    workers = min(args.jobs or os.cpu_count() or 1, len(jobs))
    progress = _Progress(len(sweep.seeds), outcomes)
    try:
        with _played(jobs, workers, args.timeline or "") as played:
            for outcome in played:
                if not args.trace:
                    outcome.shorten()
                if record:
                    record.append(outcome)
                outcomes.append(outcome)
                progress(outcome)
    except BaseException:
        progress.clear()
        if record:
            print(_how_to_continue(record.path, len(outcomes), len(sweep.seeds)), file=sys.stderr)
        raise
    progress.clear()
    return outcomes


def _how_to_continue(path: str, done: int, count: int) -> str:
    text = "{:,} of {:,} histories are recorded; continue with: hw sim --resume {}"
    return text.format(done, count, shlex.quote(path))


def _sweep(args: argparse.Namespace) -> Sweep:
    """The sweep of the command line; what it leaves out comes from the record, if there is one."""
    if args.file and args.process:
        raise UserError("a file and --process %s: give one of them" % args.process)
    if args.seconds is not None and not 1 <= args.seconds <= SECONDS_MAX:
        raise UserError("--seconds %d: give 1 to %d" % (args.seconds, SECONDS_MAX))
    if args.jobs is not None and not 1 <= args.jobs <= 256:
        raise UserError("--jobs %d: give 1 to 256" % args.jobs)
    if args.seed is not None and args.seed < 0:
        raise UserError("--seed %d: give 0 or more" % args.seed)
    _one_history(args)
    if args.resume and args.trace:
        raise UserError("--resume with --trace: the results hold no traces; trace one history with --seed N")
    seeds = args.seeds if args.seed is None else range(args.seed, args.seed + 1)
    before = recorded(args.resume) if args.resume else None
    script = read(args.scenario) if args.scenario else None
    if before:
        _must_agree(args, seeds, before)
        sweep = before
    elif script:
        sweep = _scripted(args, script, seeds)
    else:
        sweep = Sweep(
            "" if args.file else args.process or "mix",
            args.file or "",
            seeds or DEFAULT_SEEDS,
            args.seconds or SECONDS,
            not args.no_faults,
        )
    if sweep.file:
        if Path(sweep.file).is_dir():
            raise IsADirectoryError(21, "is a folder: name a process file", sweep.file)
        plan_of_file(sweep.file)
    return sweep


def _one_history(args: argparse.Namespace) -> None:
    """What a scenario and a timeline exclude."""
    if args.scenario:
        for name, given in (("--seconds", args.seconds), ("--no-faults", args.no_faults)):
            if given:
                raise UserError("%s with --scenario: the scenario says what happens, and for how long" % name)
    if args.timeline:
        if args.seed is None and not (args.scenario and args.seeds is None):
            raise UserError("--timeline draws one history: give --seed N, or a scenario")
        if args.resume:
            raise UserError("--timeline with --resume: a recorded history is not played again")
        if not Path(args.timeline).resolve().parent.is_dir():
            folder = Path(args.timeline).parent
            raise UserError("--timeline %s: the folder %s does not exist" % (args.timeline, folder))


def _scripted(args: argparse.Namespace, script: Script, seeds: range | None) -> Sweep:
    """The histories of a scenario: of the process that it names, unless the command line names another."""
    process, file = args.process or "", args.file or ""
    if not process and not file:
        if script.process in PROCESSES:
            process = script.process
        elif script.process:
            file = str(Path(script.path).parent / script.process)
        else:
            raise UserError("%s names no process: give one, like --process sp2" % args.scenario)
    if process in ("mix", CHANGES):
        raise UserError("--scenario with --process %s: name one process, such as sp2" % process)
    seeds = seeds or range(script.seed, script.seed + 1)
    return Sweep(process, file, seeds, script.seconds, False, script.path)


def _must_agree(args: argparse.Namespace, seeds: range | None, before: Sweep) -> None:
    """Refuse arguments that are not those of the recorded sweep."""
    span = "--seeds {0.start}:{0.stop}".format
    played = before.file or "--process %s" % before.process
    wrong = []
    if args.file and not (before.file and Path(args.file).resolve() == Path(before.file).resolve()):
        wrong.append((played, args.file))
    if args.process and args.process != before.process:
        wrong.append((played, "--process %s" % args.process))
    if seeds and seeds != before.seeds:
        wrong.append((span(before.seeds), span(seeds)))
    if args.seconds is not None and args.seconds != before.seconds:
        wrong.append(("--seconds %d" % before.seconds, "--seconds %d" % args.seconds))
    if args.scenario and str(found(args.scenario)) != before.scenario:
        wrong.append((before.scenario or "no scenario", "--scenario %s" % args.scenario))
    if args.no_faults and before.faults:
        wrong.append(("a sweep with faults", "--no-faults"))
    if wrong:
        raise UserError(
            "%s: it records %s, not %s: leave that out to continue the recorded sweep, or name another file"
            % (args.resume, " and ".join(w[0] for w in wrong), " and ".join(w[1] for w in wrong))
        )


@contextmanager
def _played(jobs: list[Job], workers: int, drawing: str) -> Iterator[Iterator[Outcome]]:
    if workers <= 1:
        yield map(partial(play, drawing=drawing) if drawing else play, jobs)
        return
    # spawn: a worker is the same wherever the command is called from.
    with multiprocessing.get_context("spawn").Pool(workers, _quiet) as pool:
        yield pool.imap_unordered(play, jobs)


def _quiet() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command answers an interrupt, its workers do not


class _Progress:
    """How far a sweep is: one line that is overwritten, or a line now and then."""

    def __init__(self, count: int, recorded: list[Outcome]) -> None:
        self.count = count
        self.before = self.done = len(recorded)
        self.failed = sum(not outcome.ok for outcome in recorded)
        self.terminal = sys.stderr.isatty()
        self.start = self.said = time.monotonic()

    def __call__(self, outcome: Outcome) -> None:
        self.done += 1
        self.failed += not outcome.ok
        now = time.monotonic()
        pause_s = 0.1 if self.terminal else max(SAY_EVERY_S, (now - self.start) / SAY_SHARE)
        if self.count == 1 or now - self.said < pause_s:
            return
        self.said = now
        text = "{:,} of {:,} histories, {:,} fail".format(self.done, self.count, self.failed)
        if self.done < self.count:
            # Recorded histories took this run no time.
            left_s = (now - self.start) * (self.count - self.done) / (self.done - self.before)
            text += ", about %s left" % duration(left_s)
        if self.terminal:
            print("\r%s\033[K" % text, end="", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self.terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """As exact as an estimate deserves."""
    if seconds < 90:
        return "%d s" % max(1, round(seconds))
    if seconds < 90 * 60:
        return "%d min" % round(seconds / 60)
    if seconds < 48 * 3600:
        return "%.1f h" % (seconds / 3600)
    return "%d days" % round(seconds / 86400)


def _summarise(outcomes: list[Outcome], failed: list[Outcome], counts: dict[str, int], took: str) -> None:
    first, last = outcomes[0].job, outcomes[-1].job
    if first is last:
        print("seed %d, %s: %s" % (first.seed, outcomes[0].title, "FAILS" if failed else "holds"))
    else:
        verdict = "%d FAIL" % len(failed) if failed else "all hold"
        what = first.file or first.kind
        text = "%d histories of %s, seeds %d to %d: %s"
        print(text % (len(outcomes), what, first.seed, last.seed, verdict))
    print(
        "  %(accepted)d samples accepted, %(delivered)d rows delivered: %(lost)d lost, %(duplicates)d twice, "
        "%(divergent)d divergent, %(out_of_order)d out of order; %(gaps_declared)d gaps declared" % counts
    )
    text = (
        "  %(boots)d starts, %(migrations_planned)d planned moves, %(migrations_unplanned)d unplanned ones, "
        "%(takeovers)d by takeover "
        "(%(takeovers_needless)d needless), %(checkpoints)d checkpoints, "
        "%(frames)d frames; %(replayed)d entries taken again" % counts
    )
    print("%s; %s" % (text, took))
    if counts["nowhere_ms"]:
        text = (
            "  after faults stopped an operator ran nowhere for %.1f s at most, %d %% of what the rules allow"
        )
        print(text % (counts["nowhere_ms"] / 1000, counts["nowhere_percent"]))
    if lines := drawn_lines(outcomes):
        print("\n".join(lines))


def drawn_lines(outcomes: list[Outcome]) -> list[str]:
    """Which faults were drawn, and their consequences: how often in a single history, in how many histories
    of a sweep."""
    kinds = drawn(outcomes)
    faults = {kind: count for kind, count in kinds.items() if kind not in CAME_OF_IT}
    came = {kind: count for kind, count in kinds.items() if kind in CAME_OF_IT}
    return _kinds("drawn: ", faults, len(outcomes)) + _kinds("came of it: ", came, len(outcomes))


def _kinds(what: str, kinds: dict[str, dict[str, int]], histories: int) -> list[str]:
    if histories == 1:
        by_times = sorted(kinds.items(), key=lambda item: -item[1]["times"])
        parts = ["%s %d" % (kind, count["times"]) for kind, count in by_times]
    else:
        parts = [
            "{} {} ({:,})".format(kind, _share(count["histories"], histories), count["histories"])
            for kind, count in kinds.items()
        ]
    if not parts:
        return []
    # A part is not broken: textwrap leaves no-break spaces alone.
    text = ", ".join(part.replace(" ", "\xa0") for part in parts)
    indent = " " * (2 + len(what))
    lines = wrap(what + text, WIDTH, initial_indent="  ", subsequent_indent=indent, break_on_hyphens=False)
    return [line.replace("\xa0", " ") for line in lines]


def _share(part: int, whole: int) -> str:
    """Rounded down, so that 100 % means all."""
    percent = 100 * part // whole
    return "%d %%" % percent if percent else "<1 %"
