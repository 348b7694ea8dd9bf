"""The checker of inputs without which an operator goes on: none is closed while its stream speaks.

It looks at each input after every event, and knows exactly when something of its stream last arrived. The
silence counts up to the moment at which the operator takes the decision.
Where the host has heard no other one for long, the count begins again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headwater.runtime.instance import EXPOSED, RUNNING

from .checkers import instance, undecided
from .world import SECOND, TICK_US, Node, World

CLOSED = "input closed because its source is silent"
OPENED = "input opened because its source speaks"
CALM_US = 6 * SECOND  # a decision takes no longer when all faults have stopped
CLOCKS = 0.99  # a host counts by its own clock


@dataclass
class Seen:
    """One input of an instance."""

    inst: Any
    sign: tuple[int, int, int]
    since: int  # when that came
    closed: bool
    decided: int
    running: bool
    spoke_us: int = 0  # when its stream spoke first since it was closed; 0: it has not, or is open
    waited_us: int = 0  # when something of it waited last to be taken


class Closings:
    def __init__(self, world: World) -> None:
        self.world = world
        self.seen: dict[tuple[int, int, int], Seen] = {}

    def __call__(self, node: Node) -> None:
        host = node.host
        for v, inst in host.instances.items() if host else ():
            for p, e in enumerate(inst.inputs):
                if e.edge.absent_ms:
                    self.look(node, v, inst, p, e)

    def look(self, node: Node, v: int, inst: Any, p: int, e: Any) -> None:
        world = self.world
        key = (node.number, v, p)
        ring = e.port.ring if e.port else e.ring
        sign = (e.inc, ring.last if ring else 0, max(e.limit, e.port.bound if e.port else 0))
        running = inst.status in (RUNNING, EXPOSED)
        seen = self.seen.get(key)
        if seen is None or seen.inst is not inst or not (running and seen.running):
            self.seen[key] = Seen(inst, sign, world.now, e.closed, inst.decided, running)
            return
        if e.closed != seen.closed and inst.decided > seen.decided:
            self.changed(v, p, e, world.now - seen.since)
        if e.waiting():
            seen.waited_us = world.now
        if not e.closed:
            seen.spoke_us = 0
        elif sign[:2] > seen.sign[:2] and e.contact and not seen.spoke_us:
            seen.spoke_us = world.now
        # A producer that goes back tells an older boundary for a while: nothing has arrived.
        if sign[0] != seen.sign[0] or sign > seen.sign:
            seen.sign, seen.since = sign, world.now
        elif not e.edge.local and self.deaf(node):
            seen.since = world.now
        seen.closed, seen.decided = e.closed, inst.decided

    def in_the_calm(self, place: dict[int, int]) -> None:
        """No input stays closed whose stream has been back for a while, or open where it is silent."""
        for (number, v, p), seen in sorted(self.seen.items()):
            inst = instance(self.world, place, v)
            if inst is not seen.inst or place[v] != number:
                continue
            e = inst.inputs[p]
            quiet = self.world.now - max(seen.since, seen.waited_us)
            if not e.closed and quiet > 1000 * e.edge.absent_ms + CALM_US:
                # One that has not put out again what others have of it may not decide, and waits for samples.
                may = inst.status == RUNNING and inst.depth >= len(self.world.plan.vertices)
                if may and not undecided(self.world, place, v):
                    text = "%s: input %d is open, and was silent for %.1f s"
                    self.world.error(text % (self.world.plan.vertices[v].name, p, quiet / SECOND))
            if not seen.spoke_us:
                continue
            ago = self.world.now - seen.spoke_us
            if ago > CALM_US and not undecided(self.world, place, v):
                text = "%s: input %d is closed, and its stream has been back for %.1f s"
                self.world.error(text % (self.world.plan.vertices[v].name, p, ago / SECOND))

    def deaf(self, node: Node) -> bool:
        """Whether the host has heard no other one for so long that silence does not count."""
        beat, _, step = self.world.hardware.pace
        quiet = self.world.now - max(node.booted_us, self.world.heard_us.get(node.number, 0))
        return quiet > beat + step + 5 * TICK_US

    def changed(self, v: int, p: int, e: Any, quiet: int) -> None:
        world = self.world
        name = world.plan.vertices[v].name
        world.draw(CLOSED if e.closed else OPENED, "%s: input %d, %s" % (
            name, p, "closed" if e.closed else "opened"
        ))  # fmt: skip
        if e.closed and quiet < CLOCKS * 1000 * e.edge.absent_ms:
            text = "%s closes its input %d, which was silent for %.1f s only"
            world.error(text % (name, p, quiet / 1e6))
