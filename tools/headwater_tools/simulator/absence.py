"""How long operators run nowhere after faults have stopped, compared with what the rules of moves promise.

An operator without a host is found within the patience with a silent host, then each candidate has a step to
act, then its checkpoint is sent. It takes ten times the patience more where no producer lives, and the same
again for each operator before it that runs nowhere either. One that its host drains before it hands it over
runs there: how long that may last handovers.py checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.plan.model import OUTSIDE
from headwater.plan.reader import reach
from headwater.runtime import watching
from headwater.runtime.instance import EXPOSED, RUNNING
from headwater.runtime.moving import DRAINING
from headwater.storage import reserve

from .world import SECOND, World

if TYPE_CHECKING:
    from headwater.runtime.host import Host
    from headwater.runtime.instance import Instance

    from .world import Node

LOOK_US = SECOND // 4
SLACK_US = 10 * SECOND
BLIND_TIMES = 10
PIECE_US = SECOND // 10  # to send a frame of a checkpoint, and to hear that it came


class Absence:
    """From `begin` on, every operator is looked for. `longest_us` is how long one ran nowhere at most,
    `share` the most of its bound that one needed, in percent."""

    def __init__(self, world: World, place: dict[int, int]) -> None:
        self.world = world
        self.place = place
        self.begun_us = 0
        self.excused = False
        self.missing: dict[int, tuple[int, int]] = {}  # operator -> since when; time it may take
        self.longest_us = 0
        self.share = 0

    def excuse(self) -> None:
        """Operators wait for what is lost, until a person says that they give up: no bound holds for that."""
        self.excused = True

    def begin(self) -> None:
        """Faults have stopped."""
        self.begun_us = self.world.now
        for v in self.place:
            if not self.at(v):
                self.missing[v] = (self.world.now, self.bound_us(v))
        self.world.after(LOOK_US, self.look)

    def look(self) -> None:
        now = self.world.now
        for v in sorted(self.place):
            if self.at(v):
                since, bound_us = self.missing.pop(v, (now, 1))
                self.measure(now - since, bound_us)
            elif v not in self.missing:
                self.missing[v] = (now, self.bound_us(v))
            else:
                self.late(v)
        self.world.after(LOOK_US, self.look)

    def measure(self, us: int, bound_us: int) -> None:
        self.longest_us = max(self.longest_us, us)
        self.share = max(self.share, 100 * us // bound_us)

    def late(self, v: int) -> None:
        since, bound_us = self.missing[v]
        gone_us = self.world.now - since
        self.measure(gone_us, bound_us)
        if gone_us > bound_us and not self.excused:
            name, host = self.world.plan.vertices[v].name, self.world.name(self.place[v])
            text = "%s, last at %s, has run nowhere for %.1f s, and faults have stopped: %.1f s were enough"
            self.world.error(text % (name, host, gone_us / SECOND, bound_us / SECOND))

    def at(self, v: int) -> list[Node]:
        """The hosts that run it. One that began without any producer to ask may wait, on purpose, for its
        host to come back (watching.look_late)."""
        found = []
        for node in self.world.nodes:
            inst = node.host.instances.get(v) if node.host else None
            if inst is not None and (inst.blind or inst.status in (RUNNING, EXPOSED)):
                found.append(node)
            elif inst is not None and node.host and drains(node.host, inst):
                found.append(node)
        return found

    def above(self, v: int) -> list[int]:
        """The operator itself, and those before it."""
        return [u for u in self.place if v in reach(self.world.plan.edges, u)]

    def slept_us(self) -> list[int]:
        """The patience of each host with any other one: a host that sleeps reports seldom."""
        words = [node.host.words for node in self.world.nodes if node.host and node.host.words]
        return [1000 * w.patience(k) for w in words for k in range(len(w.silent))]

    def bound_us(self, v: int) -> int:
        """It is found and begun again within this time, and so is each one before it that runs nowhere."""
        return sum(self.one_us(u) for u in self.above(v) if u == v or not self.at(u))

    def closed(self, v: int) -> set[tuple[int, int]]:
        """Inputs without which it goes on, as a checkpoint of a candidate has it: their producers are not
        asked."""
        found = set()
        for node in self.world.nodes:
            if node.host and node.number in self.world.plan.vertices[v].hosts:
                asked = sum(watching.producers(node.host, v), [])
                for e in self.world.plan.ins(v):
                    here = (e.src, e.sport) in node.host.ports
                    if (node.number if here else node.host.where[e.src][2]) not in asked:
                        found.add((v, e.dport))
        return found

    def one_us(self, v: int) -> int:
        """Within this time it is found and begun again, if all before it run."""
        plan = self.world.plan
        beat, dead, step = self.world.hardware.pace
        period = max(beat, -(-plan.batch_ms // 1000) * SECOND)
        lake = [e.within_ms * 1000 for e in plan.edges if e.dst == OUTSIDE]
        if lake and all(lake):
            dead = min(lake)  # the process asks for a delay: a host is not taken for dead sooner
        patience = max(dead, 3 * period, 2 * step, *self.slept_us())
        # Feedback does not count.
        ins = [e for e in plan.ins(v) if not e.delay_us and (v, e.dport) not in self.closed(v)]
        sources = [plan.vertices[e.src] for e in ins]
        lives = [s for s in sources if s.kind or not self.world.nodes[s.hosts[0]].lost]
        pieces = reserve.checkpoint_bytes(plan, plan.vertices[v]) // (self.world.hardware.mtu // 2) + 1
        hosts = len(plan.vertices[v].hosts)
        # Without a producer to ask, a candidate is known to others only after a patience, not a step.
        turns = hosts * step if lives else (BLIND_TIMES + hosts) * patience
        return patience + turns + pieces * PIECE_US + SLACK_US


def drains(host: Host, inst: Instance) -> bool:
    """Whether an operator has paused until what only the log of its host holds is safe."""
    return host.giving is not None and host.giving.inst is inst and host.giving.step == DRAINING


__all__ = ["Absence"]
