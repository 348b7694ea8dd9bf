"""`hw sim`: whole histories of a process, with every fault that a seed draws, compared with the ideal run."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .. import Trouble
from ..sim.mix import PROCESSES, SECONDS, Job, Outcome, plan_of_file, play, total

SUMMARY = "deterministic simulation from a seed: hosts, links, flash, faults; `--seed N` replays"

DEFAULT_SEEDS = range(1, 101)
SECONDS_MAX = 3600
SEEDS_MAX = 1_000_000
STORIES_MAX = 5  # failures told at length; of the rest one line each
SAY_EVERY_S = 5  # between two progress lines where there is no terminal


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
        help="an example in variants, a random process a seed, or `mix` of all (default)",
    )
    parser.add_argument(
        "--seconds",
        type=int,
        metavar="S",
        help="simulated time with faults (default: 25 to 300, by the seed)",
    )
    parser.add_argument("--no-faults", action="store_true", help="nothing fails")
    parser.add_argument("--trace", action="store_true", help="print all that happens")
    parser.add_argument("--jobs", type=int, metavar="J", help="processes to run on (default: the cores)")


def _seeds(text: str) -> range:
    first, colon, last = text.partition(":")
    if not (colon and first.isdecimal() and last.isdecimal()):
        raise argparse.ArgumentTypeError("'%s': give two numbers, like 1:1001" % text)
    seeds = range(int(first), int(last))
    if not 0 < len(seeds) <= SEEDS_MAX:
        raise argparse.ArgumentTypeError("'%s': from 1 to %d seeds" % (text, SEEDS_MAX))
    return seeds


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    jobs = _jobs(args)
    workers = min(args.jobs or os.cpu_count() or 1, len(jobs))
    start = time.monotonic()
    outcomes: list[Outcome] = []
    with _played(jobs, workers) as played:
        progress = _Progress(len(jobs))
        for outcome in played:
            outcomes.append(outcome)
            progress(outcome)
        progress.clear()
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
    _summarise(outcomes, failed, counts, time.monotonic() - start)
    return 1 if failed else 0, {
        **counts,
        "seed": jobs[0].seed,
        "seeds": len(jobs),
        "process": args.file or args.process or "mix",
        "failed": [
            {"seed": o.job.seed, "process": o.title, "errors": o.errors, "replay": o.job.replay()}
            for o in failed
        ],
    }


def _jobs(args: argparse.Namespace) -> list[Job]:
    if args.file and args.process:
        raise Trouble("a file and --process %s: give one of them" % args.process)
    if args.seconds is not None and not 1 <= args.seconds <= SECONDS_MAX:
        raise Trouble("--seconds %d: give 1 to %d" % (args.seconds, SECONDS_MAX))
    if args.jobs is not None and not 1 <= args.jobs <= 256:
        raise Trouble("--jobs %d: give 1 to 256" % args.jobs)
    if args.seed is not None and args.seed < 0:
        raise Trouble("--seed %d: give 0 or more" % args.seed)
    if args.file:
        if Path(args.file).is_dir():
            raise IsADirectoryError(21, "is a folder: name a process file", args.file)
        plan_of_file(args.file)
    seeds = args.seeds or DEFAULT_SEEDS
    if args.seed is not None:
        seeds = range(args.seed, args.seed + 1)
    kind = "" if args.file else args.process or "mix"
    seconds = args.seconds or SECONDS
    return [Job(seed, kind, args.file or "", seconds, not args.no_faults) for seed in seeds]


@contextmanager
def _played(jobs: list[Job], workers: int) -> Iterator[Iterator[Outcome]]:
    if workers == 1:
        yield map(play, jobs)
        return
    # spawn: a worker is the same wherever the command is called from.
    with multiprocessing.get_context("spawn").Pool(workers, _quiet) as pool:
        yield pool.imap_unordered(play, jobs)


def _quiet() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command answers an interrupt, its workers do not


class _Progress:
    """How far a sweep is: one line that is overwritten, or a line now and then."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.done = self.failed = 0
        self.terminal = sys.stderr.isatty()
        self.said = time.monotonic()

    def __call__(self, outcome: Outcome) -> None:
        self.done += 1
        self.failed += not outcome.ok
        now = time.monotonic()
        if self.count == 1 or now - self.said < (0.1 if self.terminal else SAY_EVERY_S):
            return
        self.said = now
        text = "%d of %d histories, %d fail" % (self.done, self.count, self.failed)
        if self.terminal:
            print("\r" + text, end="", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self.terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def _summarise(outcomes: list[Outcome], failed: list[Outcome], counts: dict[str, int], took_s: float) -> None:
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
        "  %(boots)d starts, %(migrations_unplanned)d unplanned migrations, %(checkpoints)d checkpoints, "
        "%(frames)d frames; %(replayed)d entries taken again" % counts
    )
    print("%s; %.1f s" % (text, took_s))
