"""Operators that another host takes over: not without need, and in the end each runs once."""

from __future__ import annotations

from typing import Any

from headwater.plan.reader import reach
from headwater.runtime import watching

from .world import SECOND, Node, World


class Takeovers:
    """No instance that is in touch loses its operator to a host that decides by itself. After faults stop,
    exactly one instance of each operator that has backups runs, on a candidate that lives.

    Instances are looked at from time to time: since when is the newest one of an operator in touch, with
    links in both directions to every producer of it?
    """

    LOOK_US = SECOND // 2

    def __init__(self, world: World, place: dict[int, int]) -> None:
        self.world = world
        self.place = place
        self.count = 0
        self.needless = 0  # takeovers of an operator that was in touch, if only for a moment
        self.since: dict[int, tuple[tuple[int, int], int]] = {}  # operator -> its epoch, in touch since
        self.movable = [v.index for v in world.plan.vertices if v.kind and len(v.hosts) > 1]
        world.on_takeover.append(self.taken)
        if self.movable:
            world.after(self.LOOK_US, self.look)

    def look(self) -> None:
        for v in self.movable:
            best = self.newest(v)
            if self.world.now < self.world.broker_us + 4 * SECOND and self.world.broker_us:
                # The broker is away: that is no reason to move. A link of its own that is cut as well is one.
                if best is None or self.apart(*best):
                    self.since.pop(v, None)
                continue
            if best is None or not self.in_touch(*best):
                self.since.pop(v, None)
            elif v not in self.since or self.since[v][0] != best[1].epoch:
                self.since[v] = (best[1].epoch, self.world.now)
        self.world.after(self.LOOK_US, self.look)

    def newest(self, v: int) -> tuple[Node, Any] | None:
        """The instance of the newest epoch that others may know of, where it lives."""
        living = [n for n in self.world.nodes if n.host and not n.lost]
        found = [(n.host.instances[v].epoch, n) for n in living if n.host and v in n.host.instances]
        found = [(epoch, n) for epoch, n in found if n.host and not n.host.instances[v].blind]
        if not found:
            return None
        node: Any = max(found, key=lambda each: each[0])[1]
        return node, node.host.instances[v]

    def apart(self, node: Node, inst: Any) -> bool:
        """Whether a link to the host of a producer is cut."""
        hosts = {node.number if e.port else e.producer for e in inst.inputs if not e.closed}
        return any({(node.number, h), (h, node.number)} & self.world.cut for h in hosts)

    def in_touch(self, node: Node, inst: Any) -> bool:
        """Whether it hears all its producers. One beside it counts if that one hears its own: a host that is
        cut off with a chain of operators feeds nothing to others, and no other host can know of it."""
        for e in inst.inputs:
            if e.closed:
                continue
            if not (e.contact or e.other):
                return False
            there = node.number if e.port else e.producer
            if self.place.get(e.edge.src, there) != there:
                return False  # that producer has been replaced
            apart = self.world.parted(node.number, there)
            if there != node.number and (apart or self.world.nodes[there].lost):
                return False
            beside = node.host.instances.get(e.edge.src) if node.host and there == node.number else None
            if beside is not None and not e.edge.delay_us and not self.in_touch(node, beside):
                return False
        return True

    def taken(self, node: Node, v: int, blind: bool) -> None:
        self.count += 1
        best = self.newest(v)
        if blind or best is None or not self.in_touch(*best):
            return
        self.needless += 1
        epoch, since = self.since.get(v, ((0, 0), 0))
        ago = self.world.now - since
        # A candidate that does not know that an input is closed asks its producer, too.
        hosts = {best[0].number if e.port else e.producer for e in best[1].inputs if not e.closed}
        assert node.host
        if set(sum(watching.producers(node.host, v), [])) - hosts:
            return
        if epoch == best[1].epoch and ago > 3 * self.world.hardware.pace[1] // 2:
            text = "%s takes over %s, which has been in touch at %s for %.1f s"
            name, at = self.world.plan.vertices[v].name, self.world.name(best[0].number)
            self.world.error(text % (self.world.name(node.number), name, at, ago / SECOND))

    def calm_us(self) -> int:
        """How long it takes after faults stop until every operator runs once."""
        dead, step = self.world.hardware.pace[1:]
        worst = self.world.settle_us
        for v in self.movable:
            above = [u for u in self.movable if v in reach(self.world.plan.edges, u)]
            sources = [self.world.plan.vertices[e.src] for u in above for e in self.world.plan.ins(u)]
            blind = 24 * dead if any(self.world.nodes[s.hosts[0]].lost for s in sources if not s.kind) else 0
            hosts = len(self.world.plan.vertices[v].hosts)
            if any(n.lost for n in self.world.nodes) or self.count:
                worst = max(worst, 2 * dead * len(above) + blind + hosts * step + 15 * SECOND)
        return worst

    def at_the_end(self) -> None:
        world = self.world
        for v in self.movable:
            vertex = world.plan.vertices[v]
            at = [n.number for n in world.nodes if n.host and not n.lost and v in n.host.instances]
            if len(at) != 1 or at[0] not in vertex.hosts:
                told = ", ".join(world.name(n) for n in at) or "nowhere"
                world.error("%s runs at: %s" % (vertex.name, told))
