"""What checkpoints cost beside the data: the founding thesis's experiment, in simulated time.

SP1 to SP4, one operator a host, every strategy and interval, nothing fails. Counted are the bytes of the
checkpoints made permanent and of the DATA messages on the links between operators, over whole intervals
after a first one. SP1 takes the real electrocardiogram at its 360 samples a second; the others take 200 a
second from each sensor, as the thesis did on servers. Sources have no checkpoints here: they log.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import random
import statistics
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headwater.data.batch import Batch
from headwater.plan.model import OUTSIDE, UNCOORDINATED, Plan
from headwater.process.check import check
from headwater.protocol import frames

from ..environment import CACHE, ROOT
from ..errors import UserError
from ..examples import sp1, sp2, sp3, sp4
from ..simulator.world import SECOND, World
from . import Measure, at_most
from .support.figure import Line, draw

SUMMARY = "checkpoint bytes beside data bytes, by process, strategy and interval; the thesis's tables"

ECG = ROOT / "tests" / "data" / "ecg208-360hz.i16"
FLASH_KB = 4096  # checkpoints of the longest intervals fit, with what a host must keep free for them
INTERVALS = (500, 1000, 1500, 2000, 2500, 3000)
BAR_EVERY = 500
BYTES_BAR = 0.5  # of checkpoint per source element: SP1, ecoc, every 500
ROUNDS_MIN = 6  # intervals measured
ELEMENTS_MIN = 6_000  # ... and elements of each source
SAMPLE_US = SECOND // 4  # between two readings of the transfer states
SEED = 1
SENSOR_HZ = 200
ECG_HZ = 360
# The thesis's feedback has no delay; this is about the least that the check admits.
BATCH_MS = 150
LINK_MS = 30
FEEDBACK_MS = 1100
COMPARABLE = 1.3

ACYCLIC = ("uncoordinated", "ecoc", "extended")
CYCLIC = ("uncoordinated", "extended")
PROCESSES = {"sp1": ACYCLIC, "sp2": ACYCLIC, "sp3": CYCLIC, "sp4": CYCLIC}

# The thesis, on servers (tables 7.5 to 7.8): KB/s of data; KB/s of checkpoints by strategy and interval.
THESIS_DATA = {"sp1": 29.02, "sp2": 47.80, "sp3": 59.25, "sp4": 75.21}
THESIS: dict[tuple[str, str], tuple[float, ...]] = {
    ("sp1", "uncoordinated"): (45.40, 29.46, 25.90, 24.39, 22.41, 20.31),
    ("sp1", "ecoc"): (0.72, 0.35, 0.25, 0.18, 0.14, 0.11),
    ("sp1", "extended"): (0.73, 0.37, 0.24, 0.17, 0.13, 0.11),
    ("sp2", "uncoordinated"): (73.15, 47.57, 41.82, 38.40, 34.25, 34.20),
    ("sp2", "ecoc"): (11.88, 5.82, 3.99, 2.82, 2.31, 1.90),
    ("sp2", "extended"): (8.95, 5.13, 3.55, 2.80, 2.15, 1.86),
    ("sp3", "uncoordinated"): (83.10, 56.16, 49.36, 42.33, 39.98, 39.77),
    ("sp3", "extended"): (33.50, 26.89, 30.70, 28.25, 25.26, 22.62),
    ("sp4", "uncoordinated"): (69.95, 49.69, 44.61, 43.28, 40.37, 37.89),
    ("sp4", "extended"): (48.44, 58.34, 43.64, 37.88, 34.07, 33.10),
}
# ... and on mobile devices (tables 7.2 and 7.3), 30 elements a second from each sensor.
MOBILE_HZ = 30
MOBILE_SP1_ECOC_500 = 0.18
MOBILE_SP1_UNCOORDINATED_500 = 5.60


class Case(NamedTuple):
    process: str
    strategy: str
    every: int


class Cost(NamedTuple):
    """The result of one case, over whole intervals."""

    elements: int  # that the sources accepted
    data: int  # bytes of DATA messages between operators
    checkpoint: int  # bytes made permanent
    sent: int  # bytes of checkpoint messages on links
    taken: int
    committed: int
    extended: int  # Check-Requests answered by an extension
    urgent: int  # taken at once because a buffer was full
    pending_ms: float  # from taken to permanent, median
    held: float  # mean bytes of unacknowledged elements, unpacked

    @property
    def overhead(self) -> float:
        return self.checkpoint / self.data

    @property
    def each(self) -> float:
        """Bytes of checkpoint per source element."""
        return self.checkpoint / self.elements


Costs = dict[Case, Cost]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rounds",
        type=int,
        help="intervals measured in each run (default: %d, or more up to %d elements)"
        % (ROUNDS_MIN, ELEMENTS_MIN),
    )
    parser.add_argument(
        "--figure", metavar="FILE", help="where the SVG figure goes (default: .hw/overhead.svg)"
    )


def run(args: argparse.Namespace, say: Callable[[str], None]) -> list[Measure]:
    figure = Path(args.figure) if args.figure else CACHE / "overhead.svg"
    if not figure.parent.is_dir():
        raise UserError("--figure %s: the folder %s does not exist" % (figure, figure.parent))
    if args.rounds is not None and args.rounds < 1:
        raise UserError("--rounds %d: give at least 1" % args.rounds)
    cases = [Case(p, s, every) for p, kinds in PROCESSES.items() for s in kinds for every in INTERVALS]
    cases.sort(key=lambda case: -case.every)
    say("%d runs without a fault, in simulated time" % len(cases))
    with multiprocessing.get_context("spawn").Pool(min(os.cpu_count() or 1, 4)) as pool:
        found = pool.map(functools.partial(measure, rounds=args.rounds), cases, 1)
    costs = dict(zip(cases, found, strict=True))
    tables(costs, say)
    title = "Checkpoint bytes beside data bytes between operators"
    axis = "checkpoint interval, elements"
    figure.write_text(draw(title, axis, INTERVALS, lines(costs), "the thesis, on servers"))
    say("figure: %s" % figure)
    return measures(costs, say)


# One run


def build(case: Case) -> Plan:
    """The process with every operator on a host of its own, and room for any interval."""
    process, strategy, every = case
    sensors = {"rate_hz": SENSOR_HZ, "hosts": ("left", "right", "third", "fourth")}
    if process == "sp1":
        hosts = ("chest", "wrist", "belt")
        made = sp1.build(strategy, every, hosts=hosts, heap_kb=4096, raw=False)
    elif process == "sp2":
        made = sp2.build(strategy, every, heap_kb=4096, **sensors)  # type: ignore[arg-type]
    else:
        module = sp3 if process == "sp3" else sp4
        made = module.build(strategy, every, heap_kb=4096, delay_ms=FEEDBACK_MS, **sensors)
    made.batch_ms = BATCH_MS
    made.link_ms = LINK_MS
    for host in made.hosts:
        host.flash_kb = FLASH_KB
    report = check(made)
    if report.decoded is None:
        raise UserError("%s, %s, every %d: %s" % (*case, "; ".join(map(str, report.errors()))))
    plan: Plan = report.decoded
    return plan


class CountingWriter(frames.Writer):
    """A writer that counts the bytes of the messages it puts into frames."""

    def __init__(self, mtu: int, plan: Plan) -> None:
        super().__init__(mtu)
        self.plan = plan
        self.edge = 0
        self.data = 0
        self.checkpoint = 0

    def put(self, kind: int, *values: Any) -> Any:
        before = self.pos
        done = super().put(kind, *values)
        if done and kind == frames.CKPT:
            self.checkpoint += self.pos - before
        elif done and kind == frames.DATA and self.plan.edges[values[0]].dst != OUTSIDE:
            self.data += self.pos - before
        return done

    def open_data(self, edge: int, inc: int, epoch: Any) -> Any:
        self.edge = edge
        return super().open_data(edge, inc, epoch)

    def close_data(self, pos: int) -> Any:
        before = self.pos
        done = super().close_data(pos)
        if done and self.plan.edges[self.edge].dst != OUTSIDE:
            self.data += self.pos - before
        return done


class Meter:
    """Looks into the hosts of a world while it runs."""

    def __init__(self, world: World, plan: Plan) -> None:
        self.world = world
        self.hosts = [node.host for node in world.nodes if node.host]
        self.instances = [inst for host in self.hosts for inst in host.instances.values()]
        self.writers = []
        for host in self.hosts:
            host.exchange.writer = CountingWriter(host.exchange.writer.mtu, plan)
            self.writers.append(host.exchange.writer)
        self.random = random.Random(SEED)
        self.every = plan.every
        self.urgent = 0
        self.pending_ms: list[float] = []
        self.held: list[int] = []
        for inst in self.instances:
            self._clock(inst.ck)
        self._look()

    def _clock(self, ck: Any) -> None:
        """Times each checkpoint of an operator from taken to permanent."""
        since: dict[tuple[int, ...], int] = {}
        take, commit = ck._take, ck.commit

        def timed_take(cid: Any, slot: int) -> Any:
            c = take(cid, slot)
            since.setdefault(tuple(c.pos), self.world.now)
            return c

        def timed_commit(c: Any, whole: Any) -> None:
            before = ck.committed
            commit(c, whole)
            if ck.committed > before and tuple(c.pos) in since:
                if not whole:
                    self.pending_ms.append((self.world.now - since[tuple(c.pos)]) / 1000)
                self.urgent += bool(whole) and ck.strategy != UNCOORDINATED
                since.clear()
            ck.left = self._interval()

        ck._take, ck.commit = timed_take, timed_commit
        ck.left = self._interval()

    def _interval(self) -> int:
        """Of uncoordinated checkpoints, drawn like the thesis's: equal ones may coordinate by accident."""
        return self.random.randint(self.every // 2, self.every * 3 // 2)

    def _look(self) -> None:
        ports = [
            port
            for host in self.hosts
            for port in host.ports.values()
            if any(r.edge.dst != OUTSIDE for r in port.readers)
        ]
        self.held.append(sum((p.ring.last - p.trim_to) * p.alphabet.width for p in ports))
        self.world.after(SAMPLE_US, self._look)

    def counts(self) -> list[int]:
        """Of what only grows: in the order of Cost's first fields."""
        checkpoints = [inst.ck for inst in self.instances]
        return [
            sum(len(entries) for entries in self.world.accepted.values()),
            sum(writer.data for writer in self.writers),
            sum(ck.bytes for ck in checkpoints),
            sum(writer.checkpoint for writer in self.writers),
            sum(ck.taken for ck in checkpoints),
            sum(ck.committed for ck in checkpoints),
            sum(ck.extended for ck in checkpoints),
            self.urgent,
        ]


def measure(case: Case, rounds: int | None = None) -> Cost:
    """Runs one case for one interval, and then counts over whole ones: this many, or as many as needed."""
    plan = build(case)
    world = World(plan, SEED)
    if case.process == "sp1":
        world.patterns[0] = electrocardiogram()
    for node in world.nodes:
        world.boot(node)
    meter = Meter(world, plan)
    world.start_sensors()
    rate_hz = ECG_HZ if case.process == "sp1" else SENSOR_HZ
    rounds = rounds or max(ROUNDS_MIN, -(-ELEMENTS_MIN // case.every))
    round_us = case.every * SECOND // rate_hz
    world.run(2 * SECOND + round_us * 3 // 2)
    before = meter.counts()
    del meter.pending_ms[:], meter.held[:]
    world.run(world.now + rounds * round_us)
    if world.errors or any(node.boots != 1 for node in world.nodes):
        raise UserError("%s, %s, every %d: %s" % (*case, (world.errors or ["a host restarted"])[0]))
    counts = [after - was for after, was in zip(meter.counts(), before, strict=True)]
    pending = statistics.median(meter.pending_ms or [0.0])
    elements, data, checkpoint, sent, taken, committed, extended, urgent = counts
    held = statistics.mean(meter.held)
    return Cost(elements, data, checkpoint, sent, taken, committed, extended, urgent, pending, held)


def electrocardiogram() -> Callable[[int, Any, int], None]:
    samples = array("h", ECG.read_bytes())

    def fill(v: int, batch: Batch, taken: int) -> None:
        column = batch.cols[0]
        for i in range(batch.n):
            column[i] = samples[(taken + i) % len(samples)]

    return fill


# Reporting


def tables(costs: Costs, say: Callable[[str], None]) -> None:
    say("checkpoint bytes / data bytes in %, and (in brackets) the thesis's on servers")
    say(
        "  every  "
        + "".join(("%s %s" % (p, s[:7])).rjust(19) for p, kinds in PROCESSES.items() for s in kinds)
    )
    for k, every in enumerate(INTERVALS):
        row = "  %5d  " % every
        for process, kinds in PROCESSES.items():
            for strategy in kinds:
                ours = 100 * costs[Case(process, strategy, every)].overhead
                theirs = 100 * THESIS[(process, strategy)][k] / THESIS_DATA[process]
                row += ("%.1f (%.1f)" % (ours, theirs)).rjust(19)
        say(row)
    say("bytes of checkpoint per source element (thesis: KB/s over 200 elements/s a sensor)")
    for k, every in enumerate(INTERVALS):
        row = "  %5d  " % every
        for process, kinds in PROCESSES.items():
            sensors = 1 if process == "sp1" else 2
            for strategy in kinds:
                theirs = THESIS[(process, strategy)][k] * 1000 / (200 * sensors)
                row += ("%.2f (%.1f)" % (costs[Case(process, strategy, every)].each, theirs)).rjust(19)
        say(row)


def lines(costs: Costs) -> dict[str, list[Line]]:
    """For the figure: by process, a line for each strategy, ours and the thesis's, in percent."""
    panels = {}
    for process, kinds in PROCESSES.items():
        panel = []
        for strategy in kinds:
            ours = [100 * costs[Case(process, strategy, every)].overhead for every in INTERVALS]
            theirs = [100 * kbs / THESIS_DATA[process] for kbs in THESIS[(process, strategy)]]
            panel += [Line(strategy, False, ours), Line(strategy, True, theirs)]
        panels[process.upper()] = panel
    return panels


def measures(costs: Costs, say: Callable[[str], None]) -> list[Measure]:
    out = []
    bar_case = costs[Case("sp1", "ecoc", BAR_EVERY)]
    name = "checkpoint bytes per source element, SP1, ecoc, every %d" % BAR_EVERY
    out.append(at_most(name, round(bar_case.each, 4), "B", BYTES_BAR))
    out.append(Measure("... the thesis, mobile, ecoc", MOBILE_SP1_ECOC_500 * 1000 / MOBILE_HZ, "B"))
    theirs = MOBILE_SP1_UNCOORDINATED_500 * 1000 / MOBILE_HZ
    out.append(Measure("... the thesis, mobile, uncoordinated", round(theirs, 1), "B"))
    for process in ("sp3", "sp4"):
        cost = costs[Case(process, "extended", BAR_EVERY)]
        name = "%s, extended, every %d: checkpoints at once, a buffer being full" % (
            process.upper(),
            BAR_EVERY,
        )
        out.append(Measure(name, round(100 * cost.urgent / cost.committed, 1), "%"))
    out.append(
        Measure("bytes of a round of checkpoints, SP1, ecoc", round(bar_case.each * BAR_EVERY, 1), "B")
    )
    for process, kinds in PROCESSES.items():
        for strategy in kinds:
            cost = costs[Case(process, strategy, BAR_EVERY)]
            head = "%s, %s, every %d: " % (process.upper(), strategy, BAR_EVERY)
            out.append(Measure(head + "data per source element", round(cost.data / cost.elements, 3), "B"))
            out.append(Measure(head + "checkpoint per source element", round(cost.each, 3), "B"))
            out.append(Measure(head + "checkpoint / data", round(100 * cost.overhead, 1), "%"))
    say("claims of the thesis")
    for claim in claims(costs):
        say("  %-14s  %s: %s" % (claim.verdict, claim.text, claim.numbers))
        out.append(
            Measure("claim: " + claim.text, claim.verdict, "", "met" if claim.ours else None, claim.ok)
        )
    return out


class Claim(NamedTuple):
    """`ours`: a claim that the design relies on, so it must be met here too."""

    text: str
    met: bool | None
    numbers: str
    ours: bool = False

    @property
    def verdict(self) -> str:
        return "not measurable" if self.met is None else "met" if self.met else "not met"

    @property
    def ok(self) -> bool:
        return bool(self.met) or not self.ours


def claims(costs: Costs) -> list[Claim]:
    def row(process: str, strategy: str, what: Callable[[Cost], float]) -> list[float]:
        return [what(costs[Case(process, strategy, every)]) for every in INTERVALS]

    def each(process: str, strategy: str) -> list[float]:
        return row(process, strategy, lambda cost: cost.each)

    def ratio(process: str, strategy: str, to: str) -> list[float]:
        return [a / b for a, b in zip(each(process, strategy), each(process, to), strict=True)]

    plain = {p: ratio(p, "ecoc", "uncoordinated") for p in ("sp1", "sp2")}
    bigger = [b / a for a, b in zip(each("sp1", "ecoc"), each("sp2", "ecoc"), strict=True)]
    none1 = ratio("sp1", "extended", "ecoc")
    gain2 = ratio("sp2", "extended", "ecoc")
    low3 = ratio("sp3", "extended", "uncoordinated")
    low4 = ratio("sp4", "extended", "uncoordinated")
    falls = {
        p: [
            a / b
            for a, b in zip(
                row(p, "uncoordinated", lambda c: c.overhead),
                row("sp2", "uncoordinated", lambda c: c.overhead),
                strict=True,
            )
        ]
        for p in ("sp3", "sp4")
    }
    wait = {
        (p, s): row(p, s, lambda c: c.pending_ms)
        for p in PROCESSES
        for s in PROCESSES[p]
        if s != "uncoordinated"
    }
    steady = [max(wait[(p, "ecoc")]) / max(1e-9, min(wait[(p, "ecoc")])) for p in ("sp1", "sp2")]
    longest = {p: statistics.mean(wait[(p, "extended")]) for p in PROCESSES}
    share = {
        p: statistics.mean(row(p, "extended", lambda c: c.extended / max(1, c.extended + c.taken)))
        for p in PROCESSES
    }
    knee = {
        p: (
            row(p, "uncoordinated", lambda c: c.overhead)[0]
            / row(p, "uncoordinated", lambda c: c.overhead)[1]
        )
        for p in PROCESSES
    }
    held = {(p, s): row(p, s, lambda c: c.held / 1000) for p in PROCESSES for s in PROCESSES[p]}
    top = [
        max(held[(p, "uncoordinated")][k] / held[(p, "ecoc")][k] for p in ("sp1", "sp2")) for k in range(6)
    ]
    cyclic = [
        statistics.mean(held[(p, "extended")]) / statistics.mean(held[(p, "uncoordinated")])
        for p in ("sp3", "sp4")
    ]
    grows = [held[(p, "uncoordinated")][-1] / held[(p, "uncoordinated")][0] for p in ("sp1", "sp2")]
    return [
        Claim(
            "ecoc below uncoordinated on SP1 and SP2, every interval",
            max(plain["sp1"] + plain["sp2"]) < 1,
            "ratio SP1 %s, SP2 %s" % (_span(plain["sp1"]), _span(plain["sp2"])),
            True,
        ),
        Claim(
            "... far below: a half or less",
            max(plain["sp1"] + plain["sp2"]) <= 0.5,
            "the transfer state that uncoordinated stores is packed here, the states are not smaller",
        ),
        Claim("SP2 above SP1 in ecoc: bigger states", min(bigger) > 1, "ratio %s" % _span(bigger)),
        # Safes come at other moments, so that a position takes a byte more here and there.
        Claim("extension does nothing on SP1", max(none1) <= 1.01, "ratio %s" % _span(none1), True),
        Claim(
            "extension helps SP2's join at the shortest interval",
            gain2[0] < 1,
            "extended / ecoc %.2f at 500 (thesis 0.75)" % gain2[0],
            True,
        ),
        Claim(
            "... and less as the interval grows",
            gain2[0] < gain2[-1],
            "%.2f at 3000; the requests of both sensors stand at the same places here, so they always come "
            "close together" % gain2[-1],
        ),
        Claim(
            "extended below uncoordinated on SP3, every interval",
            max(low3) < 1,
            "ratio %s" % _span(low3),
            True,
        ),
        Claim(
            "extended below uncoordinated on SP4 at 500, else comparable or below",
            low4[0] < 1 and max(low4) <= COMPARABLE,
            "ratio %.2f at 500, %s (thesis 0.69, to 1.17)" % (low4[0], _span(low4)),
            True,
        ),
        Claim(
            "uncoordinated: relative overhead falls from SP2 to SP3 and SP4, where feedback adds data",
            max(falls["sp3"] + falls["sp4"]) < 1,
            "ratio to SP2: SP3 %s, SP4 %s" % (_span(falls["sp3"]), _span(falls["sp4"])),
        ),
        Claim(
            "pending delay independent of the interval in ecoc",
            max(steady) <= COMPARABLE,
            "longest / shortest: SP1 %.2f, SP2 %.2f" % tuple(steady),
        ),
        Claim(
            "pending delay higher with extension, longest on SP3",
            longest["sp2"] > statistics.mean(wait[("sp2", "ecoc")])
            and longest["sp3"] == max(longest.values()),
            "ms, extended: %s; SP2 ecoc %.0f"
            % (
                ", ".join("%s %.0f" % (p.upper(), v) for p, v in longest.items()),
                statistics.mean(wait[("sp2", "ecoc")]),
            ),
        ),
        Claim(
            "extension share far higher on SP3 and SP4 than on SP2",
            min(share["sp3"], share["sp4"]) > 2 * share["sp2"],
            ", ".join("%s %.0f %%" % (p.upper(), 100 * v) for p, v in share.items()),
        ),
        Claim(
            "uncoordinated has a knee at 500: elements in flight",
            min(knee.values()) > 1,
            "500 / 1000: " + ", ".join("%s %.2f" % (p.upper(), v) for p, v in knee.items()),
        ),
        Claim(
            "memory: uncoordinated clearly highest on SP1 and SP2",
            min(top) > COMPARABLE,
            "unacknowledged elements, uncoordinated / ecoc %s" % _span(top),
        ),
        Claim(
            "... and grows with the interval", min(grows) > 1, "3000 / 500: SP1 %.1f, SP2 %.1f" % tuple(grows)
        ),
        Claim(
            "memory: extended like uncoordinated on SP3 and SP4",
            all(1 / COMPARABLE <= x <= COMPARABLE for x in cyclic),
            "ratio SP3 %.2f, SP4 %.2f" % tuple(cyclic),
        ),
        Claim("processor: none measurable on servers", None, "simulated time knows no load"),
        Claim("recovery and catch-up the same in all strategies", None, "nothing fails in this bench"),
    ]


def _span(values: Sequence[float]) -> str:
    return "%.2f to %.2f" % (min(values), max(values))
