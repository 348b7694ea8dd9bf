"""What a timeline shows of a history: hosts, batteries, operators, moves, faults. Watching changes nothing.

A recorder looks at the hosts ten times a second, and is told what happens at one moment: faults, moves,
changes of the plan. It knows hosts and operators by name, so it follows a history over several plans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.runtime.instance import EXPOSED, RUNNING, STOPPED

from .lanes import ALONE, ASLEEP, BEGINS, CUT, DEAD, DOWN, RUNS, UP, Lanes, Move
from .world import MISTAKEN, SECOND, TAKEN_BLIND, TAKEN_OVER

if TYPE_CHECKING:
    from .world import Node, World

LOOK_US = SECOND // 10

UNPLANNED = (TAKEN_OVER, TAKEN_BLIND, MISTAKEN)


class Recorder(Lanes):
    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.follow(world)
        world.at(world.now, self.look)

    def follow(self, world: World) -> None:
        """This world counts from now on: at first, or after a change of the plan."""
        self.world = world
        world.recorder = self
        for name in world.plan.hosts:
            self.lane(str(name))
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
        planned = why not in UNPLANNED
        self.moves.append(Move(operator, world.name(giver), world.name(taker), why, at, planned))

    def mark(self, kind: str, text: str) -> None:
        self.fault(kind, text, self.world.now)

    def calm(self) -> None:
        """Faults stop."""
        self.calm_us = self.world.now

    def switched(self, text: str) -> None:
        self.switches.append((self.world.now, text))

    # ---- what lasts

    def look(self) -> None:
        world = self.world
        self.begin_look(world.now)
        for node in world.nodes:
            lane = self.lanes[world.name(node.number)]
            self.last(lane.states, self.state(node))
            battery = node.battery
            if battery is not None:
                self.charged(lane, battery.percent)
            for v, inst in node.host.instances.items() if node.host else ():
                if inst.status != STOPPED:
                    spans = lane.operators.setdefault(str(world.plan.vertices[v].name), [])
                    self.last(spans, self.running(node, inst))
        world.after(LOOK_US, self.look)

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
