"""A simulated history: a process, faults drawn from a seed, then peace, then the comparison.

The same seed gives the same history, always; `Result.trace` tells it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from headwater.cutflash import KINDS
from headwater.plan import OUTSIDE, PEER, PEERS2, UNSAFE, Plan
from headwater.planread import LEVELS, STRATEGIES

from .checkers import Bounds, Held, Holes, Sameness, at_the_end, wanted
from .world import SECOND, SITE_US, Node, World

# Sensors go on for this long: every board has heard the site's time again before its last samples, or
# a join would wait for ever for a board whose ts lag behind.
AFTERWARDS_US = 8 * SECOND
# When faults have stopped, everything accepted arrives within this: small buffers drain slowly.
CALM_US = 240 * SECOND


@dataclass
class Result:
    seed: int
    process: str
    errors: list[str]
    trace: list[str]
    counts: dict[str, int]
    stats: dict[str, int] = field(default_factory=dict)
    drawn: dict[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.errors

    def json(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "process": self.process,
            "ok": self.ok,
            **self.counts,
            **self.stats,
            "errors": self.errors,
        }


class Scenario:
    def __init__(self, plan: Plan, seed: int, seconds: int = 25, faults: bool = True) -> None:
        self.plan = plan
        self.world = World(plan, seed)
        self.seed = seed
        self.random = self.world.random
        self.storm_us = seconds * SECOND
        self.faults = faults
        self.kills = 0
        self.wanted: tuple[int, dict[int, int]] | None = None
        self.unplanned = 0
        self.epochs = {v.index: 1 for v in plan.vertices if v.kind}
        self.place = {v.index: v.hosts[0] for v in plan.vertices if v.kind}
        self.kills_max = 2 if plan.level == PEERS2 else 1 if plan.level == PEER else 0
        world = self.world
        self.sameness = Sameness(world, self.epochs)
        world.checks = [self.sameness, Bounds(world), Held(world), Holes(world)]

    def run(self) -> Result:
        world = self.world
        for node in world.nodes:
            world.after(self.random.randrange(SECOND // 2), partial(world.boot, node))
        world.start_sensors()
        if self.faults:
            world.after(self.random.randrange(SECOND, 3 * SECOND), self.next_fault)
        world.run(self.storm_us)
        self.peace()
        world.run(self.storm_us + AFTERWARDS_US)
        world.sampling = False
        end = self.storm_us + CALM_US
        while world.now < end and not world.errors and not self.arrived():
            world.run(world.now + SECOND)
        counts = {}
        if not world.errors:
            counts = at_the_end(world, True)
        return Result(self.seed, str(self.plan.name), world.errors, world.trace, counts, self.stats())

    def stats(self) -> dict[str, int]:
        hosts = [n.host for n in self.world.nodes if n.host]
        instances = [i for h in hosts for i in h.instances.values()]
        return {
            "migrations_planned": 0,
            "migrations_unplanned": self.unplanned,
            "replayed": self.world.taken.again,
            "duplicates": self.world.outbox.duplicates,
            "out_of_order": self.world.outbox.out_of_order,
            "boots": sum(n.boots for n in self.world.nodes),
            "frames": self.world.frames,
            "checkpoints": sum(i.ck.committed for i in instances),
        }

    # ---- faults

    def next_fault(self) -> None:
        if self.world.now >= self.storm_us:
            return
        r = self.random
        choices: list[Any] = (
            [self.crash] * 3 + [self.cut_power] * 4 + [self.partition] * 3 + [self.weather] * 3
        )
        choices += [self.close_lake, self.decide, self.decide]
        if self.kills_max:
            choices += [self.kill, self.isolate]
        r.choice(choices)()
        self.world.after(int(r.expovariate(1.0) * 2 * SECOND), self.next_fault)

    def any_node(self) -> Node:
        return self.random.choice(self.world.nodes)

    def crash(self) -> None:
        node = self.any_node()
        if node.up:
            self.world.note("%s loses power" % self.world.name(node.number))
            self.world.crash(node)
            self.world.after(self.random.randrange(SECOND // 10, 5 * SECOND), lambda: self.world.boot(node))

    def cut_power(self) -> None:
        node = self.any_node()
        if node.up:
            op = node.flash.op + self.random.randrange(12)
            kind = self.random.randrange(len(KINDS))
            byte = self.random.choice((0, 1, 5, 20, 40, 100, 300, self.random.randrange(4096)))
            self.world.note(
                "%s: power will go in flash operation %d, byte %d (%s)"
                % (self.world.name(node.number), op, byte, KINDS[kind])
            )
            node.flash.arm(op, byte, kind)

    def partition(self) -> None:
        world = self.world
        a, b = self.any_node().number, self.any_node().number
        if a == b:
            return
        ways = self.random.choice(([(a, b), (b, a)], [(a, b)], [(b, a)]))
        world.note(
            "no link from %s" % " nor ".join("%s to %s" % (world.name(x), world.name(y)) for x, y in ways)
        )
        for way in ways:
            world.cut.add(way)
        world.after(
            self.random.randrange(SECOND // 2, 12 * SECOND), lambda: world.cut.difference_update(ways)
        )

    def weather(self) -> None:
        world = self.world
        world.loss = self.random.choice((0.0, 0.02, 0.1, 0.3))
        world.duplication = self.random.choice((0.0, 0.05, 0.3))
        top = self.random.choice((5_000, 30_000, 400_000))
        world.delay_us = (1_000, top)
        world.note(
            "links: loss %.2f, duplication %.2f, delay up to %d ms"
            % (world.loss, world.duplication, top // 1000)
        )

    def close_lake(self) -> None:
        box = self.world.outbox
        box.lake_open = False
        self.world.note("the lake does not answer")

        def again() -> None:
            box.lake_open = True

        self.world.after(self.random.randrange(SECOND, 15 * SECOND), again)

    def decide(self) -> None:
        world = self.world
        gateway = world.nodes[0]
        targets = [v for v in self.plan.vertices if v.kind and PARAMETERS.get(v.kind)]
        if gateway.up and targets:
            v = self.random.choice(targets)
            params = PARAMETERS[v.kind](self.random)
            world.note("%s: parameters %r" % (v.name, params))
            world.call(gateway, lambda host: host.configure(v.index, params))

    # A host that carries no sensor dies for good; its operators start elsewhere.
    def kill(self) -> None:
        world = self.world
        sensors = {v.hosts[0] for v in self.plan.vertices if not v.kind}
        nodes = [n for n in world.nodes[1:] if not n.dead and n.number not in sensors]
        if self.kills >= self.kills_max or not nodes:
            return
        living = len([n for n in world.nodes if not n.dead])
        if living - 1 < 1 + self.kills_max:
            return
        self.kills += 1
        node = self.random.choice(nodes)
        world.kill(node)
        self.evacuate(node, self.random.randrange(SECOND, 4 * SECOND))

    # A host is cut off for so long that it is taken for dead; then it comes back.
    def isolate(self) -> None:
        world = self.world
        nodes = [n for n in world.nodes[1:] if not n.dead]
        if not nodes:
            return
        node = self.random.choice(nodes)
        ways = [
            w
            for n in world.nodes
            if n is not node
            for w in ((n.number, node.number), (node.number, n.number))
        ]
        world.note("%s is cut off" % world.name(node.number))
        for way in ways:
            world.cut.add(way)
        world.after(self.random.randrange(4 * SECOND, 14 * SECOND), lambda: world.cut.difference_update(ways))
        self.evacuate(node, self.random.randrange(2 * SECOND, 4 * SECOND))

    def evacuate(self, node: Node, delay: int) -> None:
        for v in sorted(self.place):
            if self.place[v] == node.number:
                self.world.after(delay, partial(self.activate, v, node.number))

    def activate(self, v: int, away: int) -> None:
        world = self.world
        if self.place[v] != away:
            return
        ready = [h for h in self.plan.vertices[v].hosts if h != away and world.nodes[h].up]
        ready += [0] if not ready and world.nodes[0].up and away else []
        if not ready:
            world.after(SECOND // 2, lambda: self.activate(v, away))
            return
        target = world.nodes[ready[0]]
        self.epochs[v] += 1
        number = self.epochs[v]
        world.note(
            "%s starts at %s, epoch %d" % (self.plan.vertices[v].name, world.name(target.number), number)
        )
        self.place[v] = target.number
        self.unplanned += 1
        self.sameness.untaken(v, away)
        boots = target.boots
        world.call(target, lambda host: host.activate(v, number, target.mono()))
        if not target.up or target.boots != boots:
            # Power went in the middle: whether it took the operator over, its flash knows.
            world.after(4 * SECOND, lambda: self.sure(v, target))

    def sure(self, v: int, target: Node) -> None:
        if self.place[v] != target.number or target.dead:
            return
        if not target.up:
            self.world.after(SECOND, lambda: self.sure(v, target))
        elif target.host and v not in target.host.instances:
            self.epochs[v] += 1
            number = self.epochs[v]
            self.world.call(target, lambda host: host.activate(v, number, target.mono()))
            if not target.up:
                self.world.after(SECOND, lambda: self.sure(v, target))

    # ---- peace

    def peace(self) -> None:
        world = self.world
        world.note("faults stop")
        world.loss = world.duplication = 0.0
        world.delay_us = (1_000, 10_000)
        world.cut.clear()
        world.outbox.lake_open = True
        for node in world.nodes:
            node.flash.disarm()
            if not node.up and not node.dead:
                world.boot(node)

    def arrived(self) -> bool:
        """True once nothing is missing: a quick look before the thorough one."""
        world = self.world
        if any(not n.up and not n.dead for n in world.nodes):
            return False
        if world.now < self.storm_us + AFTERWARDS_US + 2 * SECOND:
            return False
        decided = sum(len(d) for d in world.decisions().values())
        if self.wanted is None or self.wanted[0] != decided:
            self.wanted = (decided, wanted(world))
        for e, n in self.wanted[1].items():
            s = world.outbox.streams.get((e, world.current(e)))
            if n and (s is None or s.durable < n):
                return False
        return True


PARAMETERS: dict[str, Any] = {
    "Affine": lambda r: {"offset": r.randrange(-20, 20)},
    "Attenuate": lambda r: {"threshold": r.randrange(0, 2000)},
    "DeadBand": lambda r: {"width": r.randrange(1, 50)},
    "Decimate": lambda r: {"k": r.randrange(1, 5)},
}

__all__ = ["LEVELS", "OUTSIDE", "SITE_US", "STRATEGIES", "UNSAFE", "Result", "Scenario"]
