"""Histories in which more is lost than the level covers: every host dies that has the furthest checkpoint of
some operator. What waits for it forever gives up, because a person says so.

What was lost with these hosts is lost. All the same: nothing is in the lake twice, no entry has two payloads
within an incarnation, and everything that follows where an operator gave up is there.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from headwater.plan.model import LOCAL, UNSAFE
from headwater.protocol.position import rank
from headwater.runtime.standing import CHECKPOINT, ENTRIES, KEEPERS

from .scenario import Scenario
from .world import SECOND, Node

LOST = "lost beyond the level"
GIVEN_UP = "operator given up"
PATIENCE_US = 12 * SECOND  # a person says that an operator shall give up when it has waited for so long
LOOK_US = SECOND


def hopeless(host: Any) -> list[list[Any]]:
    """What operators of a host may wait for forever."""
    return [row for row in host.waits() if row[1] in (CHECKPOINT, KEEPERS, ENTRIES)]


class Beyond(Scenario):
    def __init__(self, *args: Any, **others: Any) -> None:
        super().__init__(*args, **others)
        self.chance = random.Random("beyond %d" % self.seed)
        self.waited: dict[tuple[int, int, int], int] = {}  # (operator, host, epoch) -> since when it waits
        if self.plan.level != LOCAL and self.plan.strategy != UNSAFE:
            when = self.chance.uniform(0.3, 0.8) * self.storm_us
            self.world.at(int(when), partial(self.lose_all, int(0.9 * self.storm_us)))
        self.world.at(int(0.3 * self.storm_us), self.look)
        self.absence.excuse()

    def peace(self) -> None:
        self.declares = True  # every dead board
        super().peace()

    def arrived(self) -> bool:
        self.wanted = None  # what has to arrive changes when an operator gives up
        return not self.waited and not self.lacking() and super().arrived()

    def lacking(self) -> list[str]:
        """Operators that still have to go on with another incarnation of an input, in words."""
        found = []
        for v, at in sorted(self.place.items()):
            host = self.world.nodes[at].host
            inst = host.instances.get(v) if host else None
            for p, e in enumerate(inst.inputs if inst else ()):
                if e.other and not e.closed:
                    found.append("%s has not gone on with input %d" % (self.plan.vertices[v].name, p))
        return found

    def nothing_open(self) -> None:
        super().nothing_open()
        for text in self.lacking():
            self.world.error(text)

    def lose_all(self, until: int) -> None:
        """All hosts of which some operator needs one that lives, as soon as that is possible."""
        operators = [v for v in self.plan.vertices if v.kind]
        self.chance.shuffle(operators)
        for v in operators:
            holders = self.holders(v.index)
            if holders and not self.stranding(holders):
                self.world.draw(LOST, "%s: all checkpoints are lost" % v.name)
                for node in holders:
                    self.lose(node)
                    self.world.kill(node)
                return
        if self.world.now < until:
            self.world.after(LOOK_US // 2, partial(self.lose_all, until))

    def holders(self, v: int) -> list[Node]:
        """The hosts that have the furthest checkpoint of this operator."""
        held = [(rank(pos), node) for node in self.world.nodes if (pos := self.world.held(node, v))]
        best = max((place for place, _ in held), default=None)
        return [node for place, node in held if place == best]

    def stranding(self, nodes: list[Node]) -> bool:
        """Whether these are the gateway, all that feeds some operator, or all that may run it."""
        gone = {n.number for n in self.world.nodes if n.lost} | {n.number for n in nodes}
        if 0 in gone:
            return True
        for v in self.plan.vertices:
            feeds = [self.plan.vertices[e.src].hosts[:1] for e in self.plan.ins(v.index) if not e.delay_us]
            if v.kind and (gone.issuperset(v.hosts) or all(gone.issuperset(host) for host in feeds)):
                return True
        return False

    # ---- what a person says

    def look(self) -> None:
        """What has waited for long, and can wait forever, gives up."""
        world = self.world
        waits: set[tuple[int, int, int]] = set()
        for node in world.nodes:
            for row in hopeless(node.host) if node.host and not node.lost else ():
                waits.add((row[0], node.number, row[4]))
        self.waited = {key: self.waited.get(key, world.now) for key in waits}
        gateway = world.nodes[0]
        calm = world.now > self.storm_us
        for (v, at, number), since in sorted(self.waited.items()):
            if calm and world.now - since >= PATIENCE_US and gateway.up:
                world.draw(GIVEN_UP, "%s is to give up at %s" % (self.plan.vertices[v].name, world.name(at)))
                world.call(gateway, partial(self.say, v, at, number), "give up")
        if world.now < self.storm_us + 200 * SECOND:
            world.after(LOOK_US, self.look)

    def say(self, v: int, at: int, number: int, host: Any) -> None:
        host.give_up(v, at, number, self.world.nodes[0].mono())
