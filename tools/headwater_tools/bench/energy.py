"""Batteries: how close `place` comes to the best placement, and what operators cost.

placement: random cases with batteries 40 to 100 % full, searched with few trials, against every placement.
Two kinds of boards: one whose battery the radio empties, one where computation does.
moves: the time until the first battery is empty when hosts move operators by themselves, against the best
placement that stays, found by looking at all of them. Two kinds of processes on the same boards: one whose
radio empties the batteries, one where computing does. What this leaves out: bench/support/lifetimes.py.
words: what the words of hosts cost a board that sends once a minute, from the frames of a simulated run.
heap: what a board holds for all this, on 32-bit MicroPython.
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
from headwater.process import Fir, Process, Qrs
from headwater.process.check import check

from ..boards import energy as profiles
from ..boards import micropython
from ..environment import ROOT
from ..errors import UserError
from . import Measure, at_least, at_most
from .support import words
from .support.lifetimes import Lives, longest

SUMMARY = "how close placement comes to the longest battery life; what operator types cost"
SECTIONS = ("placement", "moves", "words", "heap", "work")
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
# An ESP32-C3 in automatic light sleep between batches (the program of a board does not switch that on yet).
# 0.62 mA with its link, DTIM 3 (ESP-IDF programming guide, "Low Power Mode in Wi-Fi Scenarios"); 23 mA while
# it computes at 160 MHz, 84 mA receiving and 276 mA sending (ESP32-C3 data sheet 2.4, tables 5-8 and 5-7);
# 0.4 us a byte, 50 ms of receiving after a frame, and the time of a unit of work as in
# firmware/profiles/esp32c3.
SLEEPY = Host(
    MAINS,
    620_000,
    (23_000 - 620) * 3430 // 1000,
    {"wifi": ((276_000 - 620) * 2 // 5, (84_000 - 620) * 2 // 5, (84_000 - 620) * 50)},
    (84_000 - 620) * 1000,
)
PROCESSOR_MHZ = 1_000_000_000 // 3430 * 1000  # units of work that keep its processor busy
BOARDS = {"radio": (3, 3), "computation": (5, 5)}  # fewest and most boards of a case
OPERATORS = {"radio": (4, 6), "computation": (2, 3)}
LONGER_BAR = 1.5  # median, where computing empties batteries
BIDS_BAR = 1.0  # percent of what a board draws, its answers to the bids of others included
REST_BYTES, ROUND_BYTES = 3584, 8192  # of the 6 and 12 KiB that all that moves operators may hold
SMALL = 60  # small cases of each kind: two boards, one or two operators
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
    if "moves" in sections:
        for kind in BOARDS:
            measures += _moves(kind, args.cases, say)
    if "words" in sections:
        measures += words.measures({"awake": _as_shipped(), "light sleep": SLEEPY}, say)
    if "heap" in sections:
        measures += _heap()
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
        if not case.breaks(first):
            gains.append(case.worth(best)[0] / case.worth(first)[0])
    say("%s: %d cases, %d of them possible" % (kind, cases, len(ratios)))
    near = 100 * sum(ratio >= NEAR for ratio in ratios) / len(ratios)
    return [
        at_least("%s: cases within a tenth of the longest life" % kind, round(near, 2), "%", NEAR_BAR),
        Measure("%s: life found of the longest, worst" % kind, round(min(ratios), 4)),
        Measure("%s: life found of the longest, median" % kind, round(statistics.median(ratios), 4)),
        Measure(
            "%s: longest life of that where it was, median" % kind,
            round(statistics.median(gains), 3),
            "times",
        ),
        Measure("%s: time of the search, median" % kind, round(statistics.median(times), 1), "ms"),
        Measure("%s: time of the search, worst" % kind, round(max(times), 1), "ms"),
        Measure("%s: time of looking at all, median" % kind, round(statistics.median(all_times), 1), "ms"),
    ]


def _as_shipped() -> Host:
    """An ESP32 as the program of a board runs it: its processor waits, and does not sleep."""
    board = profiles.board("esp32")
    assert board is not None
    unit_pc = board.compute_ua * board.copy_ns // 1000
    return Host(LEFT_MC, board.awake_ua * 1000, unit_pc, board.links, board.radio_ua * 1000)


def moving_case(
    rng: random.Random, kind: str, boards: tuple[int, int], operators: tuple[int, int]
) -> tuple[Case, list[int]]:
    """A gateway, boards whose batteries are 40 to 100 % full, a source on each, and operators above them.
    Where the radio decides, streams are sent every second and operators do little; where computing does, they
    are sent every ten seconds, and an operator takes 10 to 30 % of a processor. Heap is ample."""
    hosts = 1 + rng.randint(*boards)
    found = [Host(MAINS, 0, 0, {"wifi": (0, 0, 0)}, 0)]
    for _ in range(hosts - 1):
        left = LEFT_MC * rng.randint(40, 100) // 100
        found.append(Host(left, SLEEPY.base_na, SLEEPY.unit_pc, SLEEPY.links, SLEEPY.radio_na))
    sent_mhz = 1000 if kind == "radio" else 100
    vertices = [Vertex((h,), 0) for h in range(1, hosts)]
    first = list(range(1, hosts))
    rates = [rng.choice((1_000, 10_000, 50_000, 360_000)) for _ in vertices]
    edges = []
    for v in range(hosts - 1, hosts - 1 + rng.randint(*operators)):
        feeders = rng.sample(range(v), 1 if rng.random() < 0.7 else 2)
        rate = sum(rates[u] for u in feeders)
        edges += [Edge(u, v, rates[u] * rng.randint(1, 6), min(rates[u], sent_mhz)) for u in feeders]
        here = first[feeders[0]]
        others = [h for h in range(1, hosts) if h != here]
        rng.shuffle(others)
        if kind == "radio" and rng.random() < 0.3:
            others.append(0)
        units = rate * rng.randint(1, 30) if kind == "radio" else PROCESSOR_MHZ * rng.randint(10, 30) // 100
        vertices.append(Vertex((here, *others), units, moved_bytes=rng.randint(200, 2_000)))
        first.append(here)
        rates.append(max(100, rate // rng.choice((1, 1, 10, 60))))
    last = len(vertices) - 1
    edges.append(Edge(last, OUTSIDE, rates[last] * 2, min(rates[last], sent_mhz)))
    return Case(found, vertices, edges), first


def _moves(kind: str, cases: int, say: Callable[[str], None]) -> list[Measure]:
    from_best, from_first, moves, bid_shares = [], [], [], []
    for seed in range(cases):
        case, first = moving_case(random.Random(seed), kind, BOARDS[kind], OPERATORS[kind])
        best = every(case, first)
        assert best is not None, "every placement keeps the limits"
        still = case.worth(best)[0]
        lives = Lives(case, best, LEFT_MC)
        from_best.append(lives.run() / still)
        moves.append(lives.moves)
        bid_shares.append(lives.bid_share())
        from_first.append(Lives(case, first, LEFT_MC).run() / still)
    say("%s: %d cases, %d moves" % (kind, cases, sum(moves)))
    near = []
    for seed in range(min(cases, SMALL)):
        case, first = moving_case(random.Random(seed), kind, (2, 2), (1, 2))
        best = every(case, first)
        assert best is not None
        near.append(Lives(case, best, LEFT_MC).run() / longest(case))
    median = round(statistics.median(from_best), 3)
    what = "%s: life with moves of the best that stays" % kind
    bar = at_least(what + ", median", median, "times", LONGER_BAR)
    within = 100 * sum(share >= NEAR for share in near) / len(near)
    return [
        bar if kind == "computation" else Measure(what + ", median", median, "times"),
        Measure(what + ", worst", round(min(from_best), 3), "times"),
        Measure(
            what + ", begun as declared at random, median",
            round(statistics.median(from_first), 3),
            "times",
        ),
        Measure(what + ", begun as declared at random, worst", round(min(from_first), 3), "times"),
        at_least(
            "%s: small cases, life of what hindsight finds, median" % kind,
            round(statistics.median(near), 3),
            "",
            NEAR,
        ),
        Measure("%s: small cases, life of what hindsight finds, worst" % kind, round(min(near), 3)),
        at_least("%s: small cases within a tenth of that" % kind, round(within, 1), "%", 100),
        Measure("%s: moves in a life, median" % kind, statistics.median(moves)),
        at_most("%s: charge that bids cost, worst" % kind, round(100 * max(bid_shares), 3), "%", BIDS_BAR),
    ]


def _heap() -> list[Measure]:
    """On 32-bit MicroPython: what a board holds for its energy, with SP1 and three boards."""
    script = Path(__file__).parent / "on_board" / "board_bench_energy.py"
    text = script.read_text().replace("PLAN", _sp1().hex())
    done = micropython.run(text, heap="256k", tests=False)
    if done.returncode:
        raise UserError("the bench failed on MicroPython:\n" + (done.stdout + done.stderr).strip())
    rest, first, _, _, again, waiting, left = [int(n) for n in done.stdout.split()]
    return [
        at_most("heap at rest", rest, "bytes", REST_BYTES),
        at_most("heap for a round of bids, beside that", max(first, again), "bytes", ROUND_BYTES),
        Measure("heap while it waits for answers, beside that", waiting, "bytes"),
        Measure("heap that stays after a round", left, "bytes"),
    ]


def _sp1() -> bytes:
    """A plan of SP1 whose operators three boards may run."""
    p = Process("sp1", checkpoints="ecoc", level="peer", every=500)
    ecg = p.source("ecg", "mV:i16", rate_hz=360, on="chest")
    fir = (ecg >> Fir([1, 2, 1])).named("fir").on("chest", backup=["wrist", "hip"])
    p.lake("sp1/qrs", (fir >> Qrs()).named("qrs").on("chest", backup=["wrist", "hip"]))
    return bytes(check(p).plan or b"")


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
