"""Planned moves: what must hold of them at every step.

A move replays nothing if neither of its hosts fails and its offer does not end: the new instance goes on
exactly where the old one paused, or further on. An operator that has paused goes on or ends, whatever is
lost. A producer that has accepted an acknowledgement of one epoch of its consumer accepts none of an older
one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from headwater.protocol.offers import lasts_us
from headwater.runtime.instance import PAUSED, RUNNING
from headwater.runtime.moving import DRAINING

from .world import SECOND, Node, World

DRAIN_US = 60 * SECOND  # as long as an operator may pause because its log is not empty
SLACK_US = 2 * SECOND  # between two ticks of a host, and of clocks that drift


@dataclass
class Handover:
    """One operator on its way from one host to another."""

    v: int
    giver: Node
    taker: Node
    boots: tuple[int, int]  # of both
    paused_us: int
    stood: list[int]  # xi of every input where it paused
    epoch: tuple[int, int] = (0, 0)
    start: list[int] | None = None  # ... where the new instance began to run
    sends_us: int = 0  # when the checkpoint was on the other host
    met: bool = False  # every producer has answered the new instance

    def failed(self) -> bool:
        return (self.giver.boots, self.taker.boots) != self.boots or not (self.giver.up and self.taker.up)


class Handovers:
    def __init__(self, world: World) -> None:
        self.world = world
        self.count = 0
        self.replayed = 0  # entries that new instances took again, where a host had failed or not
        self.pauses_us: list[int] = []  # from each pause until the new instance could take an entry
        self.firsts_us: list[int] = []  # ... until it had taken one
        self.offers: dict[int, tuple[Any, int]] = {}  # taker -> what it was offered, boot of the giver then
        self.paused: dict[
            tuple[int, int], tuple[int, int, list[int]]
        ] = {}  # host, operator -> boot, since, xi
        self.drained: dict[
            tuple[int, int], int
        ] = {}  # ... -> when it was seen last that its log is not empty
        self.open: list[Handover] = []
        self.accepted: dict[tuple[int, int, int, int], tuple[int, int]] = {}
        world.on_taken_over.append(self.begins)

    def __call__(self, node: Node) -> None:
        host = node.host
        if host is None:
            return
        if not host.taking:
            self.offers.pop(node.number, None)
        elif node.number not in self.offers or self.offers[node.number][0] is not host.taking:
            self.offers[node.number] = (host.taking, self.world.nodes[host.taking.giver].boots)
        for v, inst in host.instances.items():
            key = (node.number, v)
            if inst.status != PAUSED:
                self.paused.pop(key, None)
            elif key not in self.paused or self.paused[key][0] != node.boots:
                self.paused[key] = (node.boots, self.world.now, [e.cur.xi for e in inst.inputs])
            else:
                self.lasts(node, inst, self.paused[key][1])
        for port in host.ports.values():
            if "on_safe" not in port.__dict__:
                watched = partial(self.acknowledged, node, port, port.on_safe)
                port.on_safe = watched  # type: ignore[method-assign]
        for each in self.open[:]:
            if each.taker is node:
                self.look(each)

    def lasts(self, node: Node, inst: Any, since_us: int) -> None:
        now, key, step = self.world.now, (node.number, inst.vertex.index), self.world.hardware.pace[2]
        move = node.host.giving if node.host else None
        size = move.size if move and move.inst is inst else 0
        if move and move.inst is inst and move.step == DRAINING and now - since_us < DRAIN_US + SLACK_US:
            self.drained[key] = now
        us = now - max(since_us, self.drained.get(key, 0))
        if us > 2 * lasts_us(step, size) + 4 * step + SLACK_US:
            text = "%s has paused at %s for %.1f s"
            self.world.error(text % (inst.vertex.name, self.world.name(node.number), us / SECOND))

    def begins(self, node: Node, v: int) -> None:
        """A host begins an operator that was handed over."""
        self.count += 1
        offer, boots = self.offers.get(node.number, (None, 0))
        giver = self.world.nodes[offer.giver] if offer else node
        old = giver.host.instances.get(v) if offer and giver.host and giver.boots == boots else None
        if offer and old and old.epoch == offer.epoch and old.status == RUNNING:
            text = "%s begins %s after its offer has ended"
            self.world.error(text % (self.world.name(node.number), self.world.plan.vertices[v].name))
        at = self.paused.get((giver.number, v))
        if at and at[0] == giver.boots and node.host and v in node.host.instances and giver is not node:
            epoch = node.host.instances[v].epoch
            self.open.append(Handover(v, giver, node, (giver.boots, node.boots), at[1], at[2], epoch))

    def look(self, each: Handover) -> None:
        host = each.taker.host
        inst = host.instances.get(each.v) if host else None
        if inst is None or inst.epoch != each.epoch:
            self.open.remove(each)
            return
        if inst.status != RUNNING or inst.recalling:
            return
        stands = [e.cur.xi for e in inst.inputs]
        if each.start is None:
            each.start = stands
            again = sum(max(0, old - new) for old, new in zip(each.stood, stands, strict=True))
            self.replayed += again
            if again and not each.failed():
                name = self.world.plan.vertices[each.v].name
                text = "%s was handed over at %r, and goes on from %r"
                self.world.error(text % (name, each.stood, stands))
        if not each.met and all(e.contact or e.closed for e in inst.inputs):
            self.pauses_us.append(self.world.now - each.paused_us)
            each.met = True
        if each.met and sum(stands) > sum(each.start):
            self.firsts_us.append(self.world.now - each.paused_us)
            self.open.remove(each)

    def acknowledged(self, node: Node, port: Any, on_safe: Any, r: Any, epoch: Any, *rest: Any) -> bool:
        key = (node.number, node.erasures, r.edge.index, port.inc)
        ok = bool(on_safe(r, epoch, *rest))
        if ok and tuple(epoch) < self.accepted.get(key, (0, 0)):
            text = "%s accepts an acknowledgement of epoch %r after one of %r"
            self.world.error(text % (port.vertex.name, epoch, self.accepted[key]))
        elif ok:
            self.accepted[key] = tuple(epoch)
        return ok

    def at_the_end(self) -> None:
        for node in self.world.nodes:
            for inst in node.host.instances.values() if node.host else ():
                if inst.status == PAUSED and node.host and not node.host.giving:
                    text = "%s has paused at %s, and nothing will end that"
                    self.world.error(text % (inst.vertex.name, self.world.name(node.number)))
