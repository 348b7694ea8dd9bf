"""Which process a seed simulates, and the report of the history for people and machines.

A history is named by its process and its seed, nothing else: `Job.replay` is the command that plays it
again. One that raises, or that does not end, is a failure like any other.
"""

from __future__ import annotations

import functools
import random
import shlex
import signal
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.plan.model import LOCAL, UNSAFE, Plan
from headwater.plan.reader import LEVELS, STRATEGIES
from headwater.process import Affine, Average, Debounce, Process, Rate, Stream, SumJoin, Threshold, Union
from headwater.process.builder import Spec
from headwater.process.check import Needs, check

from ..errors import UserError
from ..examples import diamond, sp1, sp2, sp3, sp4, ten
from ..process_file import ProcessFileError, load
from . import scenario_file, timeline
from .beyond import GIVEN_UP, Beyond
from .changes import Changes
from .closings import CLOSED, OPENED
from .in_the_air import InTheAir
from .random_process import random_process
from .scenario import MOST, Scenario, hardware
from .scenario_file import Scripted
from .storm import GAP_OPEN, SOURCE_LOST
from .world import STANDS_STILL

SECONDS = 0  # of a history, until its faults stop: 0 lets its seed decide
# A history may take this much CPU time, or two seconds a simulated second if that is more: dozens of times
# what it needs. Time in which other processes have the cores does not count.
HANG_S = 60
WAITS = 10  # times that limit in real time: only a history that waits instead of computing gets there
TRACE_LINES = 15

# The main counts first, then the others of a history.
COUNTS = (
    "accepted",
    "delivered",
    "lost",
    "duplicates",
    "divergent",
    "out_of_order",
    "gaps_declared",
    "migrations_planned",
    "replayed_planned",
    "migrations_unplanned",
    "takeovers",
    "takeovers_needless",
    "replayed",
    "boots",
    "frames",
    "checkpoints",
)
# These are not drawn: they are consequences, and counted with the drawn faults.
CAME_OF_IT = (
    "change refused by the gateway",
    GIVEN_UP,
    "input of a dead source closed",
    CLOSED,
    OPENED,
    "input reopened",
    "logs that filled up",
    "operator that waits for samples that are lost",
    STANDS_STILL,
    "source that waits for samples that are lost",
)

_ACYCLIC = ("uncoordinated", "ecoc", "extended")
_CYCLIC = ("uncoordinated", "extended")
_SP1_HOSTS = (("chest", "chest", "chest"), ("chest", "wrist", "gateway"), ("chest", "wrist", "chest"))
_SP2_HOSTS = (
    ("left", "right", "left", "right"),
    ("left", "right", "gateway", "gateway"),
    ("left", "right", "spare", "spare"),
    ("left", "left", "left", "right"),
)


def _sp1(r: random.Random) -> Process:
    return sp1.build(*_draw(r, _ACYCLIC), hosts=r.choice(_SP1_HOSTS), batch=_batch(r))


def _sp2(r: random.Random) -> Process:
    return sp2.build(*_draw(r, _ACYCLIC), hosts=r.choice(_SP2_HOSTS), batch=_batch(r))


def _sp3(r: random.Random) -> Process:
    return sp3.build(*_draw(r, _CYCLIC), hosts=r.choice(_SP2_HOSTS), batch=_batch(r))


def _sp4(r: random.Random) -> Process:
    return sp4.build(*_draw(r, _CYCLIC), hosts=r.choice(_SP2_HOSTS), batch=_batch(r))


def _diamond(r: random.Random) -> Process:
    return diamond.build(*_draw(r, _ACYCLIC), batch=_batch(r))


# Each operator has three or four candidates of the eight hosts; those of different operators overlap.
def _ten(r: random.Random) -> Process:
    hosts = [*ten.BOARDS, "gateway"]
    places = dict(ten.PLACES)
    if r.random() < 0.7:
        places = {name: r.sample(hosts, r.randint(3, 4)) for name in places}
    return ten.build(*_draw(r, _CYCLIC), places=places, batch=_batch(r), threshold=r.choice((0, 100)))


# Intervals and batches so short that seconds hold many checkpoints.
def _draw(r: random.Random, strategies: tuple[str, ...]) -> tuple[str, int, str]:
    return r.choice(strategies), r.choice((36, 60, 120)), r.choice(LEVELS)


def _batch(r: random.Random) -> int:
    return r.choice((12, 36))


# Common to all versions of one process: its name, its boards and some of its sources and streams.
def _version(r: random.Random) -> Process:
    p = Process("version", *_draw(r, _ACYCLIC), batch=_batch(r))
    hosts = ("left", "right", "gateway")
    a = p.source("a", "v:i16", rate_hz=20, on="left")
    b = p.source("b", "v:i16", most_hz=10, on="right")
    inputs = [a >> r.choice(_STEPS)(r).named("smooth").on(r.choice(hosts)), b]
    if r.random() < 0.5:
        inputs.append(p.source("c", "v:i16", rate_hz=5, on="right"))
    union = Union().named("all").on(r.choice(hosts))(*inputs)
    p.lake("version/all", union, durable=r.choice(("gateway", "lake")))
    if r.random() < 0.5:
        p.lake("version/rate", union >> Rate(ms=r.choice((300, 1000))).named("rate").on(r.choice(hosts)))
    for stream, share in ((a, 0.6), (b, 0.4)):
        if r.random() < share:
            p.lake("version/%s" % stream.vertex.name, stream, durable=r.choice(("gateway", "lake")))
    return p


# A rare combination: operators on boards, free to move, whose streams to the lake drop the oldest entries
# when they are not taken; and more than one board with a source, one of which may be lost.
def _seldom(r: random.Random) -> Process:
    boards = ["left", "right", "spare"]
    every = r.choice((20, 36, 60))
    level = r.choice(("peer", "peer", "peers=2", "local"))
    p = Process("seldom", r.choice(_ACYCLIC), every, level, batch=r.choice((4, 12)), batch_ms=500)
    for board in boards:
        p.host(board, heap_kb=1024)
    a = p.source("a", "v:i16", rate_hz=r.choice((20, 50)), on="left")
    b = p.source("b", "v:i16", rate_hz=20, on="right")
    c = p.source("c", "v:i16", most_hz=10, on=r.choice(("left", "right", "spare")))

    def placed(spec: Spec, name: str) -> Spec:
        host, *others = r.sample(boards, len(boards))
        return spec.named(name).on(host, backup=[*others, "gateway"])

    def to_lake(stream: Stream, policy: str) -> None:
        durable = r.choice(("gateway", "lake"))
        p.lake("seldom/%s" % stream.vertex.name, stream, durable=durable, on_full=policy, accept_loss=True)

    step = placed(r.choice(_STEPS)(r), "step")(a)
    to_lake(step, r.choice(("drop_oldest", "block")))
    to_lake(placed(Affine(num=r.randint(1, 4)), "scaled")(r.choice((a, b))), "drop_oldest")
    join = Union() if r.random() < 0.6 else SumJoin(us=r.choice((300_000, 900_000)), keep=16)
    to_lake(placed(join, "both")(r.choice((step, a)), b), r.choice(("drop_oldest", "spill")))
    to_lake(c, r.choice(("drop_newest", "block")))
    for wire, least in Needs(p).cap.items():
        wire.cap = least + r.choice((0, 0, 1, p.batch))
    return p


# Operators that go on without a silent input, and alternatives for it: of a source, of an operator, of an
# irregular source.
def _absent(r: random.Random) -> Process:
    every = r.choice((20, 36, 60))
    p = Process(
        "absent",
        r.choice(_ACYCLIC),
        every,
        r.choice(LEVELS),
        batch=r.choice((4, 12)),
        batch_ms=500,
        link_ms=100,
    )
    for board in ("left", "right", "spare"):
        p.host(board, heap_kb=1024)
    a = p.source("a", "v:i16", rate_hz=r.choice((5, 20)), on="left")
    b = p.source("b", "v:i16", rate_hz=20, on="right")
    c = p.source("c", "v:i16", most_hz=10, on="spare")
    ms = r.choice((5_000, 6_000, 8_000))
    hosts = r.sample(("left", "right", "spare", "gateway"), 3)
    local = r.random() < 0.4
    step = r.choice((a, c)) >> r.choice(_STEPS)(r).named("step").on(hosts[0])
    step = step.absent_after(ms, local and r.random() < 0.5)
    both = Union() if r.random() < 0.5 else SumJoin(us=r.choice((300_000, 900_000)), keep=16)
    p.lake("absent/both", both.named("both").on(hosts[1])(b, step))
    other = r.choice((b, c)) >> Affine(num=2).named("other").on(r.choice(hosts))
    first = a if r.random() < 0.5 else a >> Affine(offset=1).named("first").on("left")
    best = first.otherwise(other, after_ms=ms, local=local)
    best = best.named("best").on(hosts[2])
    p.lake("absent/best", best, durable=r.choice(("gateway", "lake")))
    p.lake("absent/c", c)
    p.alarm(best, silent_ms=r.choice((12_000, 15_000)), on="spare")
    p.alarm(c, silent_ms=12_000, on="spare", driver="led")
    high = best >> Threshold(high=10, low=-10).named("high")
    p.alarm(high, field="on", on="right", driver="led")
    p.lake("absent/high", high)
    p.lake("absent/rate", best >> Rate(ms=1000).named("rate"))
    return p


_STEPS: tuple[Callable[[random.Random], Spec], ...] = (
    lambda r: Affine(num=r.randint(1, 4)),
    lambda r: Average(count=r.randint(2, 5)),
    lambda r: Debounce(ms=r.choice((50, 300))),
)

VARIANTS: dict[str, Callable[[random.Random], Process]] = {
    "sp1": _sp1,
    "sp2": _sp2,
    "sp3": _sp3,
    "sp4": _sp4,
    "diamond": _diamond,
    "ten": _ten,
}
SELDOM = "seldom"
# Shares of the faults that a kind of process is made for.
LIKELY = {SELDOM: {GAP_OPEN: 1.0, SOURCE_LOST: 0.6}}
ABSENT = "absent"
CHANGES = "changes"
BEYOND = "beyond"
BLUETOOTH = "bluetooth"
PROCESSES = (*VARIANTS, "random", SELDOM, ABSENT, BEYOND, CHANGES, BLUETOOTH, "mix")
VERSIONS = 3


def kind_of(seed: int) -> str:
    """What the mix simulates under a seed: in every sixth history the process changes, every sixth has one
    made for the faults that apply to few, every twelfth one whose sources fall silent;
    the rest are random processes and named ones."""
    if seed % 6 == 5:
        return CHANGES
    if seed % 12 in (3, 8):
        return SELDOM
    if seed % 12 == 4:
        return ABSENT
    return ("random", list(VARIANTS)[(seed // 2 + seed // 12) % len(VARIANTS)])[seed % 2]


def process(kind: str, seed: int) -> Process:
    """The process of a kind under a seed: always the same. If it changes, the first version."""
    if kind == "random":
        return random_process(seed)
    if kind == CHANGES:
        return versions(seed)[0]
    if kind == SELDOM:
        return _seldom(random.Random("headwater seldom %d" % seed))
    if kind == BLUETOOTH:
        return VARIANTS[list(VARIANTS)[seed % len(VARIANTS)]](random.Random("headwater bluetooth %d" % seed))
    if kind == BEYOND:
        return _beyond(seed)
    if kind == ABSENT:
        return _absent(random.Random("headwater absent %d" % seed))
    return VARIANTS[kind](random.Random("headwater %s %d" % (kind, seed)))


def _beyond(seed: int) -> Process:
    """One of the mix that has a level."""
    r = random.Random("headwater beyond %d" % seed)
    while True:
        found = process(r.choice(("random", "random", "sp1", "sp2", "diamond")), r.randrange(1 << 30))
        plan = found.plan()
        if plan.level != LOCAL and plan.strategy != UNSAFE:
            return found


def versions(seed: int) -> list[Process]:
    """The versions of the process that changes under a seed; all have the same boards."""
    r = random.Random("headwater versions %d" % seed)
    draw = r.choice((_version, _version, *VARIANTS.values()))
    found = [draw(r)]
    while len(found) < VERSIONS:
        another = draw(r)
        if set(another.plan().hosts) == set(found[0].plan().hosts):
            found.append(another)
    return found


def storm_s(seed: int) -> int:
    """How long faults last under a seed: a minute on average, mostly less, or a sweep costs too much."""
    r = random.Random("storm %d" % seed)
    low, high = r.choices(((25, 40), (40, 90), (90, 300)), (60, 25, 15))[0]
    return r.randint(low, high)


@dataclass(frozen=True)
class Made:
    """A plan, and the flash that is declared for its hosts, by name."""

    plan: Plan
    declared_kb: dict[str, int]


def made(declared: Process) -> Made:
    plan: Plan = declared.plan()
    return Made(plan, {host.name: host.flash_kb for host in declared.hosts})


@functools.lru_cache(maxsize=4)
def made_of_file(path: str) -> Made:
    """A user's process file, as `hw check` accepts it."""
    try:
        declared = load(path)
        report = check(declared)
    except ProcessFileError as error:
        raise UserError(str(error.problem)) from None
    if report.decoded is None:
        raise UserError("\n".join(str(problem) for problem in report.problems))
    return made(declared)


def plan_of_file(path: str) -> Plan:
    return made_of_file(path).plan


@dataclass(frozen=True)
class Job:
    """One history to play. `kind` is a name of PROCESSES, or "" if `file` names a process file. `scenario`
    names the file that tells what happens, if chance does not."""

    seed: int
    kind: str = "mix"
    file: str = ""
    seconds: int = SECONDS
    faults: bool = True
    scenario: str = ""

    def concrete(self) -> str:
        return kind_of(self.seed) if self.kind == "mix" else self.kind

    def length(self) -> int:
        return self.seconds or storm_s(self.seed)

    def made(self) -> Made:
        return made_of_file(self.file) if self.file else made(process(self.concrete(), self.seed))

    def plan(self) -> Plan:
        return self.made().plan

    def replay(self) -> str:
        words = ["hw sim", shlex.quote(self.file) if self.file else "--process %s" % self.concrete()]
        if self.scenario:
            words.append("--scenario %s" % shlex.quote(self.scenario))
        words.append("--seed %d" % self.seed)
        if self.seconds != SECONDS and not self.scenario:
            words.append("--seconds %d" % self.seconds)
        if not self.faults and not self.scenario:
            words.append("--no-faults")
        return " ".join(words)


@dataclass
class Outcome:
    """The result of a job."""

    job: Job
    title: str
    errors: list[str]
    counts: dict[str, int] = field(default_factory=dict)
    drawn: dict[str, int] = field(default_factory=dict)  # kind of fault -> how often
    trace: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.errors

    def shorten(self) -> None:
        """Keep of the trace what the story prints."""
        self.trace = [] if self.ok else self.trace[-TRACE_LINES:]

    def story(self) -> list[str]:
        """A failure for people: what, its last events, and how to see it again."""
        lines = ["seed %d, %s: fails" % (self.job.seed, self.title)]
        lines += ["  " + error for error in self.errors]
        if self.trace:
            lines += ["  the end of its history:"]
            lines += ["    " + line for line in self.trace[-TRACE_LINES:]]
        return [*lines, "  replay: " + self.job.replay()]


class _Hangs(BaseException):
    """Not an Exception: no code on the way may mistake it for an error of its own."""


@contextmanager
def _within(cpu_s: int) -> Iterator[None]:
    """Raise _Hangs after this CPU time of the process, or after WAITS times as much real time."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def computes(number: int, frame: Any) -> None:
        raise _Hangs("hangs: no end after %d s of CPU time" % cpu_s)

    def waits(number: int, frame: Any) -> None:
        raise _Hangs("hangs: no end after %d s" % (WAITS * cpu_s))

    before = signal.signal(signal.SIGPROF, computes), signal.signal(signal.SIGALRM, waits)
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    signal.setitimer(signal.ITIMER_REAL, WAITS * cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGPROF, before[0])
        signal.signal(signal.SIGALRM, before[1])


def play(job: Job, drawing: str = "") -> Outcome:
    """Play one history to its end, whatever happens in it. drawing: the file for its timeline, if any."""
    title = job.file or job.concrete()
    history: Scenario | Changes | None = None
    seconds = job.length()
    limit = max(HANG_S, 2 * seconds)
    try:
        with _within(limit):
            made = job.made()
            plan = made.plan
            title = "%s (%s, level %s, every %d)" % (
                plan.name,
                STRATEGIES[plan.strategy],
                LEVELS[plan.level],
                plan.every,
            )
            history = _history(job, made, seconds)
            if drawing:
                history.record()
            result = history.run()
            counts = {**result.stats, **result.counts}
            return Outcome(job, title, result.errors, counts, result.drawn, result.trace)
    except _Hangs as hang:
        errors = [str(hang)]
    except UserError:
        raise
    except Exception as error:
        errors = [_last_line(error)]
    finally:
        if history is not None and history.recorder is not None:
            Path(drawing).write_text(timeline.draw(history.recorder, _heading(job, title)))
    drawn = dict(history.drawn) if history else {}
    return Outcome(job, title, errors, {}, drawn, history.trace if history else [])


def _history(job: Job, made: Made, seconds: int) -> Scenario | Changes:
    if job.scenario:
        return Scripted(scenario_file.read(job.scenario), made.plan, job.seed)
    if job.concrete() == CHANGES:
        return Changes([version.encode() for version in versions(job.seed)], job.seed, seconds, job.faults)
    made_of = hardware(made.plan, job.seed, made.declared_kb) if job.faults else None
    kind = {BEYOND: Beyond, BLUETOOTH: InTheAir}.get(job.concrete(), Scenario)
    history: Scenario = kind(made.plan, job.seed, seconds, job.faults, made_of)
    history.likely = LIKELY.get(job.concrete(), {})
    return history


def _heading(job: Job, title: str) -> str:
    return "%s%s, seed %d" % (Path(job.scenario).stem + ": " if job.scenario else "", title, job.seed)


def _last_line(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = "%s:%s in %s" % (frame.filename.rpartition("/")[2], frame.lineno, frame.name)
    return "raises %s (%s)" % (traceback.format_exception_only(error)[-1].strip(), where)


def total(outcomes: list[Outcome]) -> dict[str, int]:
    """The counts of all histories together."""
    found = {key: sum(outcome.counts.get(key, 0) for outcome in outcomes) for key in COUNTS}
    return found | {key: max(outcome.counts.get(key, 0) for outcome in outcomes) for key in MOST}


def drawn(outcomes: list[Outcome]) -> dict[str, dict[str, int]]:
    """Kind of fault -> in how many histories it was drawn, and how often in all. The most frequent first."""
    histories: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for outcome in outcomes:
        times.update(outcome.drawn)
        histories.update(kind for kind, count in outcome.drawn.items() if count)
    kinds = sorted(histories, key=lambda kind: (-histories[kind], -times[kind], kind))
    return {kind: {"histories": histories[kind], "times": times[kind]} for kind in kinds}
