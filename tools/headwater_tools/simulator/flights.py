"""What must hold of hosts whose batteries run down (moves that flee or balance; docs/protocol.md).

A host whose battery ends has handed over every operator that a candidate could take, unless it could reach
none for as long as a hand-over needs, or its battery fell at once. No operator is moved to balance batteries
within ten minutes of its last move.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.protocol.moves import BALANCE, FLEE
from headwater.protocol.offers import OK, lasts_us
from headwater.runtime import leaving, moving
from headwater.runtime.battery import Energy

from .world import SECOND, Node, World

if TYPE_CHECKING:
    from headwater.runtime.host import Host

LOOK_US = SECOND // 2
STEPS = 8  # times in which a message reaches everybody, that bids and a hand-over may take


def _would_take(taker: Host, v: int, giver: Host) -> bool:
    """Whether a host takes an operator that flees from another. It is a copy of what the host knows that is
    asked: a host learns nothing by this."""
    assert taker.energy and giver.energy
    asked = Energy(taker.energy, taker.energy.open().as_bytes())
    return asked.refuses(v, giver.energy.open().rates(v), FLEE) == OK


class Flights:
    def __init__(self, world: World) -> None:
        self.world = world
        self.count = 0  # moves that fled
        self.balanced = 0
        self.stayed = (
            0  # operators that were at a host when its battery ended, and that another could not take
        )
        self.able: dict[
            tuple[int, int, int], int
        ] = {}  # host, operator, candidate -> since when it could take it
        self.charges: dict[int, int] = {}  # host -> how often its battery was changed
        self.moved_us: dict[int, int] = {}  # operator -> when
        world.on_empty.append(self.empty)
        world.on_taken_over.append(self.begins)
        world.on_takeover.append(self.taken)
        world.after(LOOK_US, self.look)

    def look(self) -> None:
        able: dict[tuple[int, int, int], int] = {}
        for node in self.world.nodes:
            battery = node.battery
            if battery is None or node.host is None:
                continue
            if self.charges.get(node.number) != battery.charges:
                self.charges[node.number] = battery.charges
                continue
            for v, c in self.pairs(node):
                key = (node.number, v, c)
                able[key] = self.able.get(key, self.world.now)
        self.able = able
        self.world.after(LOOK_US, self.look)

    def pairs(self, node: Node) -> Sequence[tuple[int, int]]:
        """Operators of a host, and the hosts that could take each now."""
        world, host = self.world, node.host
        assert host is not None
        if node.number in world.dozing or world.now < world.broker_us or world.loss > 0.2 or host.quiet:
            return []
        found = []
        for v, inst in host.instances.items():
            if not moving._ready(inst) or moving._unsent(inst):
                continue
            for c in world.plan.vertices[v].hosts:
                other = world.nodes[c]
                cut = {(c, node.number), (node.number, c)} & world.cut
                if c == node.number or cut or other.host is None or c in world.dozing or other.host.taking:
                    continue
                if host.refused_by.get(v * 256 + c, 0) > host.now or not host.words or host.words.dead(c):
                    continue
                if v not in other.host.instances and _would_take(other.host, v, host):
                    found.append((v, c))
        return found

    def empty(self, node: Node) -> None:
        """The battery of a host is empty: it ends in this moment."""
        host = node.host
        if host is None:
            return
        for v, inst in sorted(host.instances.items()):
            if len(self.world.plan.vertices[v].hosts) < 2:
                continue
            needs_us = STEPS * host.pace[2] + lasts_us(host.pace[2], moving._size(inst))
            since = [at for (h, w, _), at in self.able.items() if (h, w) == (node.number, v)]
            if since and self.world.now - min(since) > needs_us * len(host.instances):
                text = "the battery of %s ends under %s, which another host could have taken for %.1f s"
                name = self.world.plan.vertices[v].name
                gone_s = (self.world.now - min(since)) / SECOND
                self.world.error(text % (self.world.name(node.number), name, gone_s))
            self.stayed += 1

    def taken(self, node: Node, v: int, blind: bool) -> None:
        """A host takes over: nobody chose that place, and it may be left at once."""
        self.moved_us.pop(v, None)

    def begins(self, node: Node, v: int) -> None:
        """A host begins an operator that was handed over."""
        offer = node.host.taking if node.host else None
        if offer is None:
            return
        self.count += offer.why == FLEE
        self.balanced += offer.why == BALANCE
        last = self.moved_us.get(v)
        self.moved_us[v] = self.world.now
        if offer.why == BALANCE and last is not None and self.world.now - last < leaving.REST_S * SECOND:
            text = "%s is moved to balance %.1f s after it moved"
            name = self.world.plan.vertices[v].name
            self.world.error(text % (name, (self.world.now - last) / SECOND))
