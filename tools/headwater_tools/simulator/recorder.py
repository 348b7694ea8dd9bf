"""What a timeline shows of a history: hosts, batteries, operators, moves, faults. Watching changes nothing.

A recorder looks at the hosts ten times a second, and is told what happens at one moment: faults, moves,
changes of the plan. It knows hosts and operators by name, so it follows a history over several plans.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater.runtime.instance import EXPOSED, RUNNING, STOPPED

from .world import MISTAKEN, SECOND, TAKEN_BLIND, TAKEN_OVER

if TYPE_CHECKING:
    from .world import Node, World

LOOK_US = SECOND // 10

# What a host is.
UP, DOWN, ASLEEP, CUT, DEAD = "up", "down", "asleep", "cut off", "dead"
# What an operator is on a host: it runs, it runs without one of its producers, it does not run yet.
RUNS, ALONE, BEGINS = "in touch", "not in touch", "begins"

UNPLANNED = (TAKEN_OVER, TAKEN_BLIND, MISTAKEN)


@dataclass
class Span:
    """Something that lasts: a state of a host, or of an operator on it."""

    what: str
    start_us: int
    end_us: int


@dataclass(frozen=True)
class Move:
    """An operator goes from a host to another one."""

    operator: str
    giver: str
    taker: str
    why: str
    at_us: int

    @property
    def planned(self) -> bool:
        return self.why not in UNPLANNED


@dataclass
class Mark:
    """A fault, or several of one kind that follow each other closely."""

    kind: str
    text: str
    at_us: int
    times: int = 1


@dataclass
class Lane:
    """One host."""

    name: str
    states: list[Span] = field(default_factory=list)
    battery: list[tuple[int, int]] = field(default_factory=list)  # time, percent
    operators: dict[str, list[Span]] = field(default_factory=dict)


class Recorder:
    TOGETHER_US = 3 * SECOND  # marks of one kind become one mark within this time

    def __init__(self, world: World) -> None:
        self.world = world
        self.lanes: dict[str, Lane] = {}
        self.operators: list[str] = []  # in the order of the plan
        self.moves: list[Move] = []
        self.marks: list[Mark] = []
        self.switches: list[tuple[int, str]] = []  # when another plan came into force, and which
        self.calm_us = 0  # when faults stopped
        self.end_us = 0
        self.follow(world)
        world.at(world.now, self.look)

    def follow(self, world: World) -> None:
        """This world counts from now on: at first, or after a change of the plan."""
        self.world = world
        world.recorder = self
        for name in world.plan.hosts:
            self.lanes.setdefault(str(name), Lane(str(name)))
        for v in world.plan.vertices:
            if v.kind and v.name not in self.operators:
                self.operators.append(str(v.name))

    # ---- what happens

    def moved(self, v: int, giver: int, taker: int, why: str, at_us: int | None = None) -> None:
        """Operator v goes from host `giver` to host `taker`: at its taker's first moment, with the reason of
        the move. Any reason that is not in UNPLANNED is one of a planned move."""
        world = self.world
        at = world.now if at_us is None else at_us
        operator = str(world.plan.vertices[v].name)
        self.moves.append(Move(operator, world.name(giver), world.name(taker), why, at))

    def mark(self, kind: str, text: str) -> None:
        now = self.world.now
        last = next((m for m in reversed(self.marks) if m.kind == kind), None)
        if last is not None and now - last.at_us < self.TOGETHER_US:
            last.times += 1
        else:
            self.marks.append(Mark(kind, text or kind, now))

    def calm(self) -> None:
        """Faults stop."""
        self.calm_us = self.world.now

    def switched(self, text: str) -> None:
        self.switches.append((self.world.now, text))

    # ---- what lasts

    def look(self) -> None:
        world = self.world
        now = self.end_us = world.now
        for node in world.nodes:
            lane = self.lanes[world.name(node.number)]
            self.last(lane.states, self.state(node), now)
            battery = node.battery
            if battery is not None:
                percent = battery.percent
                if not lane.battery or lane.battery[-1][1] != percent:
                    lane.battery.append((now, percent))
            for v, inst in node.host.instances.items() if node.host else ():
                if inst.status != STOPPED:
                    spans = lane.operators.setdefault(str(world.plan.vertices[v].name), [])
                    self.last(spans, self.running(node, inst), now)
        world.after(LOOK_US, self.look)

    def last(self, spans: list[Span], what: str, now: int) -> None:
        """Something was so since the last look."""
        if spans and spans[-1].what == what and now - spans[-1].end_us <= LOOK_US:
            spans[-1].end_us = now
        else:
            start = spans[-1].end_us if spans and now - spans[-1].end_us <= LOOK_US else now
            spans.append(Span(what, start, now))

    def state(self, node: Node) -> str:
        if node.dead:
            return DEAD
        if node.number in self.world.dozing:
            return ASLEEP
        if not self.world.is_up(node):
            return DOWN
        if self.alone(node):
            return CUT
        return ASLEEP if node.number in self.world.asleep else UP

    def alone(self, node: Node) -> bool:
        """Whether it reaches no other host that is up, in both directions."""
        world = self.world
        if world.now < world.broker_us:
            return True
        others = [n.number for n in world.nodes if n is not node and n.up]
        ways = [((node.number, n), (n, node.number)) for n in others]
        return bool(ways) and all(there in world.cut or back in world.cut for there, back in ways)

    def running(self, node: Node, inst: Any) -> str:
        if inst.status not in (RUNNING, EXPOSED):
            return BEGINS
        cut = self.world.cut
        for e in inst.inputs:
            if e.closed:
                continue
            away = e.producer if e.port is None else node.number
            ways = {(node.number, away), (away, node.number)}
            if not (e.contact or e.other) or ways & cut:
                return ALONE
            if away != node.number and not (away >= 0 and self.world.nodes[away].up):
                return ALONE
        return ALONE if inst.blind else RUNS


__all__ = [
    "ALONE",
    "ASLEEP",
    "BEGINS",
    "CUT",
    "DEAD",
    "DOWN",
    "RUNS",
    "UP",
    "Lane",
    "Move",
    "Recorder",
    "Span",
]
