"""Whether the batteries of a process would last longer if its operators started on other hosts.

The question is that of `hw check --explain` (headwater/process/proposal.py). The answer rests on what boards
report (charge, draw, which part of it is computing, how many elements each stream carries) and on their
energy profiles in `boards/NAME/config.json`. In the case that follows from this, each battery lasts as long
as its board says while the operators run where they run now. Work and traffic that another placement adds or
takes away are estimated from the profiles.

A look is seldom, because little follows from it: a person may change the process file. The gateway gathers
the facts on its loop, and a thread does the rest. After each placement that it has looked at, the thread
rests for several times as long as that took.

A proposal stays until it is not good any more, or another one is better by as much as a proposal needs. So
the page does not change with every report.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.plan.placement import FOREVER, MAINS, OUTSIDE, Case, Edge, Host, Vertex
from headwater.plan.profile import Profile
from headwater.plan.profile_reader import ProfileError, read
from headwater.process.proposal import Proposal, compare, fewest, on, propose
from headwater.process.sizing import MOVES_KB, own_bytes, queue_bytes
from headwater.runtime.battery import UNITS
from headwater.storage.keyspace import stream_key, stream_of

from .. import UserError, provision
from ..deployments import progress
from ..status import ENERGY

if TYPE_CHECKING:
    from headwater.plan.model import Plan

    from ..boards import Board
    from ..deployments.switching import Process
    from ..hosted import HostedProcess
    from ..service import Service

_log = logging.getLogger("headwater")

GAIN = 25  # percent by which a battery has to last longer: a quarter, as in runtime/leaving.py
HOLDS = 12  # ... and a proposal that was made ends with less than this
LOOK_S = 600.0  # between two looks at a process,
RETRY_S = 10.0  # ... or where something is not known yet
KEPT_S = 1200.0  # an answer is kept for this long while something is not known
WINDOW_S = 600.0  # in which streams are measured
LEAST_S = 30.0  # a stream that was measured for less says nothing
MARKS = 10  # of a stream, in the window
REST = 4  # a look takes this part of a processor at most: one in REST + 1
REST_MOST_S = 0.1

NONE, UNKNOWN, GOOD, BETTER = "none", "unknown", "good", "better"


class Unknown(Exception):
    """What a proposal needs is not known; the text says what."""


class Flow:
    """What one stream carries."""

    def __init__(self) -> None:
        self.marks: deque[tuple[float, int]] = deque(maxlen=MARKS + 1)
        self.newest = (0.0, 0)

    def note(self, at: float, last: int) -> None:
        """By then its producer has put out this element."""
        if self.marks and last < self.newest[1]:
            self.marks.clear()  # its host or its numbering is another one
        if not self.marks or at - self.marks[-1][0] >= WINDOW_S / MARKS:
            self.marks.append((at, last))
        self.newest = (at, last)

    def mhz(self) -> int | None:
        """Thousandths of an element a second; None if it was not measured long enough."""
        at, last = self.newest
        if not self.marks or at - self.marks[0][0] < LEAST_S:
            return None
        return round(1000 * (last - self.marks[0][1]) / (at - self.marks[0][0]))


@dataclass(frozen=True)
class Reported:
    """What is known of a host. On mains `energy` is None."""

    name: str
    energy: dict[str, int] | None
    free: int  # bytes of heap; 0: it has what it needs


@dataclass(frozen=True)
class Facts:
    plan: Plan
    folder: Path
    hosts: list[Reported]  # the gateway first
    places: list[int]  # host of each vertex, now
    mhz: dict[int, int]  # key of a stream -> thousandths of an element a second


@dataclass(frozen=True)
class Answer:
    """`now`, `then`: seconds that each host lasts with the declared first hosts, and with those proposed."""

    at_us: int
    why: str = ""  # nothing is known, because of this
    found: Proposal | None = None
    now: Sequence[int] = ()
    then: Sequence[int] = ()


class Proposals:
    """By the hash of its plan, of each deployment that runs."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.flows: dict[tuple[bytes, int], Flow] = {}  # ... and by stream
        self.answers: dict[bytes, Answer] = {}
        self.due: dict[bytes, float] = {}  # the next look
        self.over = threading.Event()
        self.task: asyncio.Task[None] | None = None

    # ---- what streams carry

    def on_status(self, board: Board) -> None:
        process = self.service.by_board.get(board.name)
        hosted = process.hosted if process else None
        if hosted is None:
            return
        plan = hosted.plan
        for stream, last, _ in board.status.get("backlog") or ():
            v = stream_of(stream)[0]
            if v < len(plan.vertices) and plan.hosts[_place(hosted, v)] == board.name:
                self._note(plan, stream, last)

    def _note(self, plan: Plan, stream: int, last: int) -> None:
        self.flows.setdefault((plan.hash, stream), Flow()).note(time.monotonic(), last)

    # ---- looks

    def tick(self) -> None:
        """Begin a look where one is due: one at a time."""
        running = {p.hosted.plan.hash: p for p in self.service.processes.values() if p.hosted}
        for process in running.values():
            assert process.hosted is not None
            for port in process.hosted.host.ports.values():
                self._note(process.hosted.plan, port.stream, port.ring.last)
        self._forget(running.keys())
        now = time.monotonic()
        for found, process in running.items():
            if (self.task is None or self.task.done()) and now >= self.due.get(found, 0.0):
                self.task = asyncio.create_task(self._look(process), name="proposal")
                self.task.add_done_callback(_ended)

    def _forget(self, running: Collection[bytes]) -> None:
        """What is known of deployments that do not run any more."""
        for stream in [key for key in self.flows if key[0] not in running]:
            del self.flows[stream]
        for table in (self.answers, self.due):
            for former in [key for key in table if key not in running]:
                del table[former]

    async def _look(self, process: Process) -> None:
        assert process.hosted is not None
        plan, now_us = process.hosted.plan, self.service.site_us()
        before = self.answers.get(plan.hash)
        self.due[plan.hash] = time.monotonic() + RETRY_S
        try:
            answer = await asyncio.to_thread(look, self.facts(process), before, now_us, Rest(self.over).take)
        except Unknown as why:
            # A board that restarts, or an operator that moves, is no reason to drop what was proposed.
            if before is None or now_us - before.at_us > KEPT_S * 1e6:
                self.answers[plan.hash] = Answer(now_us, str(why))
            return
        except Over:
            return
        self.answers[plan.hash] = answer
        self.due[plan.hash] = time.monotonic() + LOOK_S

    async def close(self) -> None:
        """A look that is under way ends."""
        self.over.set()
        if self.task is not None:
            await asyncio.gather(self.task, return_exceptions=True)

    # ---- facts

    def facts(self, process: Process) -> Facts:
        """Unknown where a board of the process has not told what it takes."""
        hosted = process.hosted
        assert hosted is not None
        plan = hosted.plan
        if process.coming is not None or process.step:
            raise Unknown("the process changes")
        hosts = [Reported(plan.hosts[0], None, 0)]
        for name in plan.hosts[1:]:
            board = self.service.boards.all[name]
            standing = self.service.standing(board)
            if standing.word != progress.RUNNING:
                raise Unknown(standing.text)
            told = board.status.get("energy")
            if told is None and board.status.get("battery") is not None:
                raise Unknown("%s reports the voltage of its battery, and not what it draws" % name)
            energy = dict(zip(ENERGY, told, strict=True)) if told else None
            hosts.append(Reported(name, energy, board.status.get("free") or 0))
        mhz = {}
        for e in plan.edges:
            stream = stream_key(e.src, e.sport)
            flow = self.flows.get((plan.hash, stream))
            rate = flow.mhz() if flow else None
            if rate is None:
                raise Unknown("what %s puts out was not measured yet" % plan.vertices[e.src].name)
            mhz[stream] = rate
        places = [_place(hosted, v) for v in range(len(plan.vertices))]
        return Facts(plan, self.service.config.folder, hosts, places, mhz)

    # ---- for people

    def shown(self, process: Process) -> dict[str, Any]:
        """For state and page. `state`: none (no host has a battery), unknown (`why`), good, or better."""
        assert process.hosted is not None
        plan = process.hosted.plan
        answer = self.answers.get(plan.hash) or Answer(0, "nothing was computed yet")
        found = answer.found
        state = UNKNOWN if answer.why else BETTER if found else GOOD
        if state == GOOD and min(answer.now, default=FOREVER) >= FOREVER:
            state = NONE
        moves = [] if found is None else [
            {
                "operator": plan.vertices[v].name,
                "from": plan.hosts[plan.vertices[v].hosts[0]],
                "to": plan.hosts[found.places[v]],
                "on": on(plan.hosts, plan.vertices[v].hosts, found.places[v]),
            }
            for v in found.moves
        ]  # fmt: skip
        lives = zip(plan.hosts, answer.now, answer.then)
        return {
            "state": state,
            "why": answer.why,
            "at_us": answer.at_us or None,
            "which": found.which if found else None,
            "percent": found.percent if found else None,
            "now": _empty(plan, answer.now, found),
            "then": _empty(plan, answer.then, found),
            "moves": moves,
            "lives_s": {name: [now, then] for name, now, then in lives if now < FOREVER or then < FOREVER},
        }


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        _log.error("a better start could not be computed", exc_info=task.exception())


def _place(hosted: HostedProcess, v: int) -> int:
    """The number of the host where a vertex runs."""
    vertex = hosted.plan.vertices[v]
    return int(hosted.host.where[v][2] if vertex.kind else vertex.hosts[0])


def _empty(plan: Plan, lives: Sequence[int], found: Proposal | None) -> dict[str, Any] | None:
    """The host whose battery the proposal speaks of, and how long it lasts."""
    if found is None:
        return None
    left_s, h = sorted((left_s, h) for h, left_s in enumerate(lives))[found.battery]
    return {"host": plan.hosts[h], "left_s": left_s}


# ---- in the thread


class Over(Exception):
    """The gateway stops."""


class Rest:
    """What a search calls after each placement: others have the processor for a while."""

    def __init__(self, over: threading.Event) -> None:
        self.over = over
        self.rested = time.monotonic()

    def take(self) -> None:
        took = time.monotonic() - self.rested
        if self.over.wait(min(REST_MOST_S, REST * took)):
            raise Over
        self.rested = time.monotonic()


def look(facts: Facts, before: Answer | None, now_us: int, each: Callable[[], object]) -> Answer:
    plan = facts.plan
    first = [v.hosts[0] for v in plan.vertices]
    case = case_of(facts)
    if not case.worth(first):
        return Answer(now_us, now=case.lives(first), then=case.lives(first))
    found = propose(case, first, GAIN, each)
    if found:
        found = fewest(case, first, found)
    if before and before.found and not case.breaks(before.found.places):
        former = compare(case, first, before.found.places, HOLDS)
        if former and not (found and compare(case, former.places, found.places, GAIN)):
            found = former
    return Answer(now_us, "", found, case.lives(first), case.lives(found.places if found else first))


def case_of(facts: Facts) -> Case:
    plan, places = facts.plan, facts.places
    known = [_host(facts, one) for one in facts.hosts]
    units = [_units(facts, v) for v in range(len(plan.vertices))]
    for h, one in enumerate(facts.hosts):
        if one.energy is not None:
            _measured(units, [v for v, at in enumerate(places) if at == h], known[h], one.energy)
    vertices = [
        Vertex(v.hosts, units[v.index], _own_bytes(plan, v.index), state_bytes=v.state_bytes)
        for v in plan.vertices
    ]
    case = Case(known, vertices, [_edge(facts, e) for e in plan.edges])
    draws = case.draws(places)
    if draws is None or case.draws([v.hosts[0] for v in plan.vertices]) is None:
        raise Unknown("two of its hosts have no way to each other")
    for h, one in enumerate(facts.hosts):
        if one.energy is not None:
            known[h].base_na = max(0, one.energy["draw_ua"] * 1000 - draws[h])
        if one.free:
            known[h].heap_bytes = one.free + _held_bytes(case, places, h) - MOVES_KB * 1024
    return case


def _host(facts: Facts, one: Reported) -> Host:
    """A host without its base draw."""
    if one is facts.hosts[0]:
        every = {name for other in facts.hosts[1:] for name in _links(_settings(facts, other))}
        return Host(MAINS, 0, 0, {name: (0, 0, 0) for name in sorted(every)}, 0)
    settings = _settings(facts, one)
    has = _links(settings)
    if one.energy is None:
        return Host(MAINS, 0, 0, {name: (0, 0, 0) for name in has}, 0)
    if not settings.get("energy"):
        raise Unknown("boards/%s/config.json has no energy profile" % one.name)
    try:
        profile = Profile(read(settings["energy"], has))
    except ProfileError as error:
        raise Unknown("boards/%s/config.json: %s" % (one.name, error))
    percent = one.energy["correction"]
    links = {
        name: (a * percent // 100, b * percent // 100, c * percent // 100)
        for name, (a, b, c) in profile.links.items()
    }
    # At its draw, the battery lasts as long as its board says.
    left_mc = one.energy["left_s"] * one.energy["draw_ua"] // 1000
    unit_pc = profile.compute_na // 1000 * profile.copy_ns // 1000 * percent // 100
    return Host(left_mc, 0, unit_pc, links, profile.radio_na * percent // 100)


def _settings(facts: Facts, one: Reported) -> dict[str, Any]:
    try:
        return provision.settings(facts.folder, one.name)
    except (UserError, OSError) as error:
        raise Unknown(str(error))


def _links(settings: dict[str, Any]) -> list[str]:
    """Of a board, by the names of energy profiles."""
    wifi = ["wifi"] if settings.get("broker") or not settings else []
    bluetooth = settings.get("bluetooth")
    return wifi + (["ble"] if isinstance(bluetooth, dict) and bluetooth.get("enabled") else [])


def _units(facts: Facts, v: int) -> int:
    """Units of work a second of a vertex, in thousandths, as long as nothing was measured."""
    if not facts.plan.vertices[v].kind:
        return 0
    return UNITS * sum(facts.mhz[stream_key(e.src, e.sport)] for e in facts.plan.ins(v))


def _measured(units: list[int], here: list[int], host: Host, energy: dict[str, int]) -> None:
    """A board tells which part of its draw is computing, in whole percent: its operators together do that."""
    guessed = sum(units[v] for v in here) * host.unit_pc // 1_000_000
    if not guessed:
        return
    percent_na = energy["draw_ua"] * 10
    least, most = energy["computing"] * percent_na, (energy["computing"] + 1) * percent_na
    measured = min(max(guessed, least), most)
    for v in here:
        units[v] = units[v] * measured // guessed


def _edge(facts: Facts, e: Any) -> Edge:
    """What an edge carries: the estimate is that of boards (runtime/outlook.py), which have no heap for a
    function that the gateway shares."""
    plan, mhz = facts.plan, facts.mhz[stream_key(e.src, e.sport)]
    width = plan.vertices[e.src].outs[e.sport].width
    frames = min(mhz, max(mhz // plan.batch, 1_000_000 // max(1, plan.batch_ms)))
    queue = 0 if e.dst == OUTSIDE else queue_bytes(plan.batch, width, True)
    return Edge(e.src, e.dst, mhz * (width + 1), frames, queue)


def _own_bytes(plan: Plan, v: int) -> int:
    vertex = plan.vertices[v]
    ports = []
    for port, alphabet in enumerate(vertex.outs):
        ports.append((alphabet.width, max([e.cap for e in plan.outs(v, port)], default=plan.batch)))
    return own_bytes(plan.batch, vertex.state_bytes, ports, not vertex.kind, not vertex.rate_mhz)


def _held_bytes(case: Case, places: Sequence[int], h: int) -> int:
    """Heap of what runs on a host."""
    total = 0
    for v, at in enumerate(places):
        if at == h:
            total += case.vertices[v].heap_bytes
            total += sum(e.queue_bytes for e in case.ins[v] if places[e.src] != h)
    return total
