"""Faults that take several hosts, or one at the worst moment: batteries that end, hosts that die together or
just when an operator moves, parts of a site that do not reach each other, boards that sleep deeply.

The level says how many hosts may be lost for good. Where it covers no more, a host only loses power, and
comes back with its flash.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from headwater.plan.model import LOCAL

from .batteries import COMPUTE, RADIO, Power
from .world import SECOND, Node

if TYPE_CHECKING:
    from .storm import Storm

BATTERIES = "batteries that run down"
TOGETHER_US = SECOND  # hosts that die together do so within this


class Disasters:
    def __init__(self, storm: Storm) -> None:
        self.storm = storm
        self.scenario = storm.scenario
        self.world = storm.world
        self.plan = storm.plan
        self.random = random.Random("disasters %d" % storm.scenario.seed)
        self.power: Power | None = None
        self.traps: list[str] = []  # what happens next at a takeover, or while a checkpoint is on its way
        self.world.on_takeover.append(self.at_takeover)

    # Every kind that applies to the process.
    def special(self) -> dict[str, Callable[[], None]]:
        plan = self.plan
        boards = len(plan.hosts) - 1
        if not boards:
            return {}
        found: dict[str, Callable[[], None]] = {
            BATTERIES: self.run_down,
            "gateway cut off from all": self.part_gateway,
            "link lost one way": self.lose_way,
        }
        if boards > 1:
            found["hosts down together"] = self.die_together
            found["death while a checkpoint is sent"] = partial(self.trap, "a checkpoint is sent")
            found["board asleep deeply"] = self.doze
        if any(v.kind and len(v.hosts) > 1 for v in plan.vertices):
            found["death at a takeover"] = partial(self.trap, "an operator is taken over")
        if plan.level != LOCAL:
            found["flash of any board erased"] = self.erase
        return found

    def start(self, kinds: dict[str, Callable[[], None]]) -> None:
        if BATTERIES in kinds:
            self.charge()
        if "death while a checkpoint is sent" in kinds:
            self.world.checks.append(self.at_push)

    # ---- batteries

    def charge(self) -> None:
        """Most boards run on batteries that are between 40 and 100 % full. Some end within a history."""
        r = self.random
        self.power = Power(self.world, self.empty)
        self.world.on_peace.append(self.power.stop)
        board = r.choice((RADIO, COMPUTE))
        lasts_s = r.choice((20, 40, 80))
        for node in self.world.nodes[1:]:
            if r.random() < 0.8:
                self.power.put(node, board, lasts_s * r.uniform(0.7, 1.5), r.randint(40, 100))

    def run_down(self) -> None:
        """A battery is older than it looked: most of its charge is gone at once."""
        nodes = [n for n in self.world.nodes if n.up and n.battery and n.battery.percent > 15]
        if nodes and self.power:
            node = self.random.choice(nodes)
            assert node.battery
            node.battery.charge(self.random.randint(2, 15))
            text = "the battery of %s falls to %d %%" % (self.storm.name(node), node.battery.percent)
            self.world.draw(BATTERIES, text)

    def empty(self, node: Node) -> None:
        name = self.storm.name(node)
        self.world.draw("battery empty", "the battery of %s is empty" % name)
        if self.storm.over() or self.random.random() < 0.3 or not self.lost(node):
            self.world.crash(node)
            self.world.after(self.random.randrange(SECOND, 10 * SECOND), partial(self.recharge, node))

    def recharge(self, node: Node) -> None:
        if node.battery and not node.dead:
            node.battery.charge(self.random.randint(20, 100))
            text = "%s comes back with a battery at %d %%"
            self.world.draw("battery recharged", text % (self.storm.name(node), node.battery.percent))
            self.world.boot(node)

    # ---- hosts that are lost

    def lost(self, node: Node) -> bool:
        """The host is lost for good, if the level covers that."""
        if not self.scenario.can_lose(node):
            return False
        self.scenario.lose(node)
        self.world.kill(node)
        return True

    def strike(self, nodes: list[Node], kind: str, text: str) -> None:
        """These hosts are lost, as many as the level covers, or lose power."""
        nodes = [n for n in nodes if n.up]
        if not nodes or self.storm.over():
            return
        self.world.draw(kind, "%s: %s" % (text, ", ".join(self.storm.name(n) for n in nodes)))
        for node in nodes:
            together = self.random.choice((0, 0, self.random.randrange(TOGETHER_US)))
            self.world.after(together, partial(self.fall, node))

    def fall(self, node: Node) -> None:
        # When faults have stopped, a person has declared those lost that died.
        if node.up and (self.storm.over() or not (node.number and self.lost(node))):
            self.world.crash(node)
            self.storm.boot_after(node, SECOND // 10, 6 * SECOND)

    def die_together(self) -> None:
        boards = [n for n in self.world.nodes[1:] if n.up]
        gateway = [self.world.nodes[0]] if self.random.random() < 0.3 else []
        if len(boards) > 1:
            some = self.random.sample(boards, self.random.randint(2, min(3, len(boards))))
            self.strike(some + gateway, "hosts down together", "down within a second")

    # ---- the worst moment

    def trap(self, moment: str) -> None:
        if moment not in self.traps:
            self.traps.append(moment)

    def sprung(self, moment: str) -> bool:
        if moment not in self.traps or self.storm.over():
            return False
        self.traps.remove(moment)
        return True

    def at_takeover(self, node: Node, v: int, blind: bool) -> None:
        if self.sprung("an operator is taken over"):
            sources = [e.src for e in self.plan.ins(v)]
            above = [self.scenario.place.get(u, self.plan.vertices[u].hosts[0]) for u in sources]
            others = [*self.plan.keepers(v), *self.plan.vertices[v].hosts, *above]
            self.choose(node, others, "death at a takeover")

    def at_push(self, node: Node) -> None:
        host = node.host
        if host is not None and host.pushes and self.sprung("a checkpoint is sent"):
            v = self.random.choice(sorted(host.pushes))
            self.choose(node, self.plan.keepers(v), "death while a checkpoint is sent")

    def choose(self, node: Node, others: list[int], kind: str) -> None:
        """The host itself falls, or another that has to do with it, or both."""
        pool = sorted({*others} - {node.number})
        nodes: list[Node] = [node] if self.random.random() < 0.6 else []
        if pool and (not nodes or self.random.random() < 0.4):
            nodes.append(self.world.nodes[self.random.choice(pool)])
        after = self.random.choice((0, self.random.randrange(SECOND // 5)))
        self.world.after(after, partial(self.strike, nodes, kind, kind))

    def erase(self) -> None:
        self.storm.erase("flash of any board erased", list(range(1, len(self.world.nodes))))

    # ---- links

    def part_gateway(self) -> None:
        """The gateway reaches no board, while the boards reach each other."""
        us = self.random.randrange(2 * SECOND, 25 * SECOND)
        self.world.draw("gateway cut off from all", "no board reaches the gateway for %.1f s" % (us / SECOND))
        self.storm.cut(self.storm.ways(self.world.nodes[0]), us)

    def lose_way(self) -> None:
        """One direction of a link is gone for long."""
        a, b = self.random.sample(range(len(self.world.nodes)), 2)
        us = self.random.randrange(8 * SECOND, 40 * SECOND)
        text = "no link from %s to %s for %d s" % (self.world.name(a), self.world.name(b), us // SECOND)
        self.world.draw("link lost one way", text)
        self.storm.cut([(a, b)], us)

    # ---- sleepers

    def doze(self) -> None:
        """A board that runs nothing sleeps most of the time, and forgets all that is not in its flash."""
        sensors = {v.hosts[0] for v in self.plan.vertices if not v.kind}
        free = [n for n in self.world.nodes[1:] if n.up and n.number not in sensors and not self.works(n)]
        free = [n for n in free if n.number not in self.world.dozing]
        if free:
            node = self.random.choice(free)
            us = self.random.randrange(2 * SECOND, 8 * SECOND)
            awake = self.random.randrange(SECOND, 3 * SECOND)
            turns = self.random.randint(2, 8)
            text = "%s sleeps for %.1f s, %d times" % (self.storm.name(node), us / SECOND, turns)
            self.world.draw("board asleep deeply", text)
            self.nap(node, us, awake, turns)

    def works(self, node: Node) -> bool:
        return node.number in self.scenario.place.values() or bool(node.host and node.host.instances)

    def nap(self, node: Node, us: int, awake: int, turns: int) -> None:
        world = self.world
        if not turns or self.storm.over() or not node.up or self.works(node):
            return
        world.call(node, lambda host: host.sleep(node.mono(), node.mono() + us), "sleep")
        if not node.up:
            return  # power went while it noted that
        world.crash(node)
        world.dozing.add(node.number)
        world.after(us, partial(self.wake, node))
        world.after(us + awake, partial(self.nap, node, us, awake, turns - 1))

    def wake(self, node: Node) -> None:
        self.world.dozing.discard(node.number)
        self.world.boot(node)


__all__ = ["BATTERIES", "Disasters"]
