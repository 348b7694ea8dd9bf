"""Batteries: how close `place` comes to the best placement, and what operators cost.

placement: random cases with batteries 40 to 100 % full, searched with few trials, against every placement.
Two kinds of boards: one whose battery the radio empties, one where computation does.
work: the time of each operator type beside a bare loop that copies, on MicroPython; these ratios are the
numbers of firmware/profiles/work.toml.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from headwater.plan import placement
from headwater.plan.placement import MAINS, OUTSIDE, Case, Edge, Host, Vertex

from ..boards import micropython
from ..environment import ROOT
from ..errors import UserError
from . import Measure, at_least

SUMMARY = "how close placement comes to the longest battery life; what operator types cost"
SECTIONS = ("placement", "work")
SEEDS = 200
TRIALS = 400  # fewer than a case has placements, so that it is searched
NEAR, NEAR_BAR = 0.9, 99  # of the longest life; percent of the cases that must come so near
VECTORS = ROOT / "tests" / "data" / "operator_vectors.jsonl"
WORK_ROUNDS = 40

# Of a battery host: (base_na, unit_pc, send_byte_pc, receive_byte_pc, frame_nc)
PROFILES = {
    "radio": (1_000_000, 2_000, 100_000, 40_000, 3_000_000),
    "computation": (1_000_000, 2_000_000, 5_000, 2_000, 20_000),
}
LEFT_MC = 400 * 3600
RADIO_NA = 70_000_000


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--section", choices=SECTIONS, action="append", help="all of them")
    parser.add_argument("--cases", type=int, default=SEEDS, help="random cases of each kind (%d)" % SEEDS)


def run(args: argparse.Namespace, say: Callable[[str], None]) -> list[Measure]:
    if args.cases < 1:
        raise UserError("--cases %d: give at least 1" % args.cases)
    sections = args.section or SECTIONS
    measures = []
    if "placement" in sections:
        for kind in PROFILES:
            measures += _placement(kind, args.cases, say)
    if "work" in sections:
        measures += _work(say)
    return measures


def random_case(rng: random.Random, kind: str, operators: int = 7, hosts: int = 4) -> tuple[Case, list[int]]:
    """A case of a gateway and battery hosts, and where its operators run at first: a source on each board, a
    tree of operators above them, the lake at its end."""
    base, unit, send, receive, frame = PROFILES[kind]
    boards = [Host(MAINS, 0, 0, {"wifi": (0, 0, 0)}, 0)]
    for _ in range(hosts - 1):
        boards.append(
            Host(
                LEFT_MC * rng.randint(40, 100) // 100,
                base,
                unit,
                {"wifi": (send, receive, frame)},
                RADIO_NA,
                heap_bytes=rng.choice((20_000, 40_000, 80_000)),
            )
        )
    vertices = [Vertex((h,), 0, 4_000) for h in range(1, hosts)]
    first = list(range(1, hosts))
    rates = [rng.choice((1_000, 10_000, 50_000, 360_000)) for _ in vertices]
    edges = []
    for v in range(hosts - 1, hosts - 1 + operators):
        feeders = rng.sample(range(v), 1 if rng.random() < 0.7 else 2)
        rate = sum(rates[u] for u in feeders)
        for u in feeders:
            edges.append(
                Edge(u, v, rates[u] * rng.randint(1, 6), min(rates[u], 2_000), rng.randint(500, 3_000))
            )
        here = first[feeders[0]]
        others = [h for h in range(hosts) if h != here]
        rng.shuffle(others)
        # The gateway computes for nothing: where it may always run everything, there is nothing to decide.
        if rng.random() < 0.7:
            others = [h for h in others if h]
        vertices.append(Vertex((here, *others), rate * rng.randint(1, 30), rng.randint(1_000, 5_000)))
        first.append(here)
        rates.append(max(100, rate // rng.choice((1, 1, 10, 60))))
    last = len(vertices) - 1
    edges.append(Edge(last, OUTSIDE, rates[last] * 2, min(rates[last], 2_000)))
    return Case(boards, vertices, edges), first


def every(case: Case, first: list[int]) -> list[int] | None:
    """The best of all placements."""
    return placement.place(case, first, 1 << 40)


def _placement(kind: str, cases: int, say: Callable[[str], None]) -> list[Measure]:
    ratios, gains, times, all_times = [], [], [], []
    for seed in range(cases):
        case, first = random_case(random.Random(seed), kind, operators=6)
        began = time.perf_counter()
        found = placement.place(case, first, TRIALS)
        between = time.perf_counter()
        best = every(case, first)
        times.append((between - began) * 1000)
        all_times.append((time.perf_counter() - between) * 1000)
        if best is None:
            continue  # the heap of no host suffices
        assert found is not None, "seed %d: nothing found where %r is possible" % (seed, best)
        ratios.append(case.worth(found)[0] / case.worth(best)[0])
        if not case.broken(first):
            gains.append(case.worth(best)[0] / case.worth(first)[0])
    say("%s: %d cases, %d of them possible" % (kind, cases, len(ratios)))
    near = 100 * sum(ratio >= NEAR for ratio in ratios) / len(ratios)
    return [
        at_least("%s: cases within a tenth of the longest life" % kind, round(near, 2), "%", NEAR_BAR),
        Measure("%s: life found of the longest, worst" % kind, round(min(ratios), 4)),
        Measure("%s: ... median" % kind, round(statistics.median(ratios), 4)),
        Measure(
            "%s: longest life of that where it was, median" % kind,
            round(statistics.median(gains), 3),
            "times",
        ),
        Measure("%s: time of the search, median" % kind, round(statistics.median(times), 1), "ms"),
        Measure("%s: ... worst" % kind, round(max(times), 1), "ms"),
        Measure("%s: time of looking at all, median" % kind, round(statistics.median(all_times), 1), "ms"),
    ]


def _work(say: Callable[[str], None]) -> list[Measure]:
    script = Path(__file__).parent / "on_board" / "board_bench_work.py"
    done = micropython.run(script, [os.path.relpath(VECTORS, ROOT), str(WORK_ROUNDS)], heap="512k")
    if done.returncode:
        raise UserError("the bench failed on MicroPython:\n" + (done.stdout + done.stderr).strip())
    measures = []
    for line in done.stdout.splitlines():
        kind, ratio = line.split()
        measures.append(Measure("an element of %s" % kind, round(float(ratio), 1), "copies"))
    return measures
