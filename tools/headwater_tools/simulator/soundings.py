"""The checker of alarms that boards raise themselves.

- What sounded when a board lost power sounds when it starts again.
- An alarm sounds when its stream has not moved anywhere for longer than `silent_ms`, whoever else is dead.
- In the calm it does not sound because of a silence while its stream moves, and it sounds because of a field
  where the newest element says so.
"""

from __future__ import annotations

from typing import Any

from headwater.plan.alarms import Alarm
from headwater.runtime.instance import RUNNING
from headwater.runtime.signals import BY_SILENCE

from .world import SECOND, Node, World

SLACK_US = 8 * SECOND  # a sign of life may be told this late, and be on its way
CALM_US = 4 * SECOND  # in the calm it arrives within this


class Soundings:
    def __init__(self, world: World) -> None:
        self.world = world
        self.signs: dict[tuple[int, int, int], tuple[int, int, int]] = {}  # by host, boot, alarm
        self.moved: dict[int, int] = {}  # alarm -> when its stream last moved anywhere
        self.again: dict[int, int] = {}  # ... and when it moved first after a silence that sounds
        self.turned: dict[int, tuple[bool, int]] = {}  # alarm -> whether its field is not 0, and since when
        self.causes: dict[int, tuple[int, list[int]]] = {}  # host -> boot, why its alarms sound

    def __call__(self, node: Node) -> None:
        host = node.host
        if host is None:
            return
        for a in self.world.plan.alarms:
            port = host.ports.get((a.src, a.sport))
            inst = host.instances.get(a.src)
            if port and (inst is None or inst.status == RUNNING and not inst.blind):
                sign = (port.inc, port.ring.last, port.bound)
                # What a boot begins with is no sign, nor is the first boundary after it: none is told.
                key = (node.number, node.boots, a.index)
                before = self.signs.get(key)
                if before and sign != before and (before[2] or sign[:2] != before[:2]):
                    if self.world.now - self.moved.get(a.index, 0) > 1000 * a.silent_ms:
                        self.again[a.index] = self.world.now
                    self.moved[a.index] = self.world.now
                    level = bool(a.field >= 0 and port.ring.newest(a.field))
                    if self.turned.get(a.index, (not level, 0))[0] != level:
                        self.turned[a.index] = level, self.world.now
                self.signs[key] = sign
        if host.signals:
            self.restarted(node, [s.cause for s in host.signals.mine])
            for s in host.signals.mine:
                self.silence(node, s)

    def restarted(self, node: Node, causes: list[int]) -> None:
        boot, before = self.causes.get(node.number, (node.boots, causes))
        if boot != node.boots and causes != before and not self.excused(node, boot):
            text = "%s starts again: its alarms sounded because of %r, and now of %r"
            self.world.error(text % (self.world.name(node.number), before, causes))
        self.causes[node.number] = (node.boots, causes)

    def excused(self, node: Node, boot: int) -> bool:
        """Its flash was erased, or power went while it was being written."""
        host = node.host
        return host is None or host.boot_number == 1 or (node.number, boot) in self.world.cuts

    def silence(self, node: Node, s: Any) -> None:
        a = s.alarm
        limit = a.silent_ms * 1000 + SLACK_US
        quiet = self.world.now - max(node.booted_us, self.moved.get(a.index, 0))
        if a.silent_ms and quiet > limit and not s.cause & BY_SILENCE:
            text = "%s: nothing of %s for %.1f s, and its alarm %s does not sound"
            name = self.world.plan.vertices[a.src].name
            self.world.error(text % (self.world.name(node.number), name, quiet / SECOND, a.name))

    def in_the_calm(self, place: dict[int, int]) -> None:
        world = self.world
        for a in world.plan.alarms:
            node = world.nodes[a.host]
            # A host that was declared lost is told nothing any more.
            if node.host is None or node.lost or world.now - self.moved.get(a.index, 0) > CALM_US:
                continue
            s = next(s for s in node.host.signals.mine if s.alarm is a)
            if s.cause & BY_SILENCE and world.now - self.again.get(a.index, 0) > CALM_US:
                world.error("%s: the alarm %s sounds, and its stream moves" % (world.name(a.host), a.name))
            level = self.level(a, place)
            lately = world.now - self.turned.get(a.index, (False, 0))[1] <= CALM_US  # it may be on its way
            if level is not None and bool(s.level) != level and not lately:
                text = "%s: the alarm %s sounds because of %d, and the field of the newest element is %s"
                world.error(text % (world.name(a.host), a.name, s.cause, level))

    def level(self, a: Alarm, place: dict[int, int]) -> bool | None:
        """Whether the field of the newest element is not 0, where that is known and has been told."""
        vertex = self.world.plan.vertices[a.src]
        host = self.world.nodes[place.get(a.src, vertex.hosts[0])].host
        port = host.ports.get((a.src, a.sport)) if host else None
        value = port.ring.newest(a.field) if port and a.field >= 0 else None
        if value is None or host is None or port is None:
            return None
        own = [s for s in host.signals.mine if s.alarm is a]
        looked = own[0].sign if own else host.signals.told[a.index].sign
        return bool(value) if looked == (port.inc, port.ring.last, port.bound) else None
