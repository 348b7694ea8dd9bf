"""Operators that lose their host, and operators that are handed over, in simulated time.

The hosts are the real ones, in the simulated world: links take a fixed time, computing takes none, so what is
measured is what the protocol waits for. The operator that moves has a state of a declared size, on a host of
its own at the end of the thesis's processes:

    sp1   source -> clean -> carry -> lake
    sp2   two sources -> both (join) -> carry -> lake
"""

from __future__ import annotations

import functools
import random
from typing import Any, NamedTuple

from headwater.plan.model import Plan
from headwater.process import Affine, Process, Union, operator
from headwater.process.check import check
from headwater.protocol.moves import COMMAND
from headwater.runtime.host import Host
from headwater.runtime.instance import PAUSED
from headwater.runtime.operator import Operator

from ...errors import UserError
from ...simulator.outbox import Outbox
from ...simulator.world import SECOND, Hardware, Node, World

DELAY_US = 15_000  # of every link, one way
BEFORE_US = 10 * SECOND  # the lag of this long before a death is what an operator has to come back to
SLICE_US = SECOND // 20
LONGEST_US = 120 * SECOND  # an operator whose lag is not what it was by then does not catch up
RATE_HZ = 200  # of each source
BATCH_MS = 150
PLANNED_BATCH_MS = 10  # so short that an element always waits for the taker
FLASH_KB = 8192
HEAP_KB = 4096


class Carry(Operator):
    """Each element less the one `count` elements before it: a state of 2 x count bytes and 4 more."""

    IN = ("v:i16",)
    OUT = ("v:i16",)
    PARAMS = "count:u32"
    STATE = "line:i16*count at:u32"
    ONE_TO_ONE = True

    def run(self: Any, x: Any, n: int) -> int:
        c, out, line, at, count = x.cols[0], self.y.cols[0], self.line, self.at, self.count
        for i in range(n):
            value = c[i]
            out[i] = (value - line[at] + 32768 & 65535) - 32768  # wraps explicitly
            line[at] = value
            at += 1
            if at == count:
                at = 0
        self.at = at
        return n


class Case(NamedTuple):
    process: str  # sp1 or sp2
    strategy: str
    every: int
    state: int  # bytes
    both: bool = False  # the host of the operator before it dies too


class Lost(NamedTuple):
    """What the death of a host cost. Times in microseconds."""

    detection: int  # from the death until a host takes the operator over
    restart: int  # ... from then until the lake's end has the first new element
    catch_up: int  # ... from then until the lag is what it was; -1: it never is
    replayed: int  # elements that were processed again
    in_flight: int  # that the operator took while its last checkpoint was not permanent yet


class Moved(NamedTuple):
    """What a planned move cost. Times in microseconds."""

    pause: int  # until the taker takes its first element
    transfer: int  # of that, from the first piece of the checkpoint until all of it was there
    replayed: int

    @property
    def delays(self) -> float:
        """One-way delays of a link in the pause, beside the transfer."""
        return (self.pause - self.transfer) / DELAY_US


@functools.cache
def build(case: Case, batch_ms: int = BATCH_MS) -> Plan:
    """Every operator on a host of its own, and another board that may take over the last one."""
    p = Process(case.process, case.strategy, case.every, "peer", batch=60, batch_ms=batch_ms, link_ms=30)
    for host in ("left", "right", "mid", "home", "spare"):
        p.host(host, heap_kb=HEAP_KB, flash_kb=FLASH_KB)
    left = p.source("left", "v:i16", rate_hz=RATE_HZ, on="left")
    if case.process == "sp1":
        before = left >> Affine().named("clean").on("mid", backup=["right"])
        p.lake("sp1/right", p.source("right", "v:i16", rate_hz=1, on="right"))
    else:
        right = p.source("right", "v:i16", rate_hz=RATE_HZ, on="right")
        before = Union().named("both").on("mid", backup=["right"])(left, right)
    carried = before >> operator(Carry)(count=case.state // 2).named("carry").on("home", backup=["spare"])
    p.lake(case.process + "/carried", carried)
    report = check(p)
    if report.decoded is None:
        raise UserError("%s: %s" % (case, "; ".join(map(str, report.errors()))))
    plan: Plan = report.decoded
    return plan


class Arrivals(Outbox):
    """An outbox that knows what is the furthest element that the lake's end has taken, and when it came."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.edge = -1
        self.furthest = 0
        self.after = 0  # the first element that is new
        self.first_us = 0  # when it came

    def put(self, edge: int, inc: int, xi: int, n: int, data: bytes | memoryview) -> None:
        super().put(edge, inc, xi, n, data)
        if edge == self.edge:
            self.furthest = max(self.furthest, xi + n - 1)
            if self.after and not self.first_us and self.furthest >= self.after:
                self.first_us = self.world.now


class Site:
    """A world in which nothing fails but what a measurement makes fail."""

    def __init__(self, plan: Plan, seed: int) -> None:
        self.plan = plan
        self.random = random.Random("recovery %d" % seed)
        self.world = World(plan, seed, hardware=Hardware(mtu=512, pace=Host.PACE))
        self.world.delay_us = (DELAY_US, DELAY_US)
        self.arrivals = self.world.outbox = Arrivals(self.world)
        self.v = next(v.index for v in plan.vertices if v.name == "carry")
        self.arrivals.edge = plan.outs(self.v, 0)[0].index
        self.sources = {v.index for v in plan.vertices if not v.kind and v.rate_mhz > 1000}
        self.home, self.spare = (self.node(h) for h in ("home", "spare"))
        for node in self.world.nodes:
            self.world.boot(node)
        self.world.start_sensors()

    def node(self, name: str) -> Node:
        return self.world.nodes[self.plan.hosts.index(name)]

    def lag(self) -> int:
        """Elements that were accepted and have not reached the lake's end."""
        accepted = [len(entries) for (v, _), entries in self.world.accepted.items() if v in self.sources]
        return sum(accepted) - self.arrivals.furthest

    def run(self, us: int) -> None:
        self.world.run(self.world.now + us)
        if self.world.errors:
            raise UserError("the simulation of %s fails: %s" % (self.plan.name, self.world.errors[0]))

    def instance(self, node: Node) -> Any:
        assert node.host
        return node.host.instances[self.v]

    def settle(self, case: Case) -> None:
        """Until some checkpoints are there; then to any moment of an interval."""
        interval_us = case.every * SECOND // RATE_HZ
        self.run(5 * SECOND + 3 * interval_us // 2 + self.random.randrange(interval_us))


def lose(case: Case, seed: int) -> Lost:
    """Kill the operator's host."""
    site = Site(build(case), seed)
    world, arrivals = site.world, site.arrivals
    site.settle(case)
    usual = 0
    for _ in range(BEFORE_US // SLICE_US):
        site.run(SLICE_US)
        usual = max(usual, site.lag())
    site.run(site.random.randrange(SECOND))
    inst = site.instance(site.home)
    stood = inst.inputs[0].cur.xi
    pending = [c.pos[0] for c in inst.ck.pending if c.pos[0] > inst.ck.safe_pos[0]]
    if site.home.host and site.v in site.home.host.pushes:
        pending.append(inst.ck.pos[0])
    arrivals.after = inst.ports[0].ring.last + 1
    died, again = world.now, world.taken.again
    began: list[int] = []
    world.on_takeover.append(lambda node, v, blind: began.append(world.now) if v == site.v else None)
    world.kill(site.home)
    if case.both:
        world.kill(site.node("mid"))
    while not arrivals.first_us:
        site.run(SLICE_US)
        if world.now - died > LONGEST_US:
            raise UserError("%s, seed %d: no host goes on with the operator" % (case, seed))
    while site.lag() > usual and world.now - arrivals.first_us < LONGEST_US:
        site.run(SLICE_US)
    return Lost(
        began[0] - died,
        arrivals.first_us - began[0],
        world.now - arrivals.first_us if site.lag() <= usual else -1,
        world.taken.again - again,
        stood - max(pending) if pending else 0,
    )


def hand(case: Case, seed: int) -> Moved:
    """Move the operator to the other host."""
    site = Site(build(case, PLANNED_BATCH_MS), seed)
    world = site.world
    site.settle(case)
    again = world.taken.again
    marks: dict[str, int] = {}
    stood = 0

    def look(node: Node) -> None:
        nonlocal stood
        inst = node.host.instances.get(site.v) if node.host else None
        if inst and node is site.home and inst.status == PAUSED and "paused" not in marks:
            marks["paused"] = world.now
            stood = inst.inputs[0].cur.xi
        elif inst and node is site.spare and inst.inputs[0].cur.xi > stood:
            marks.setdefault("first", world.now)

    def begun(node: Node, v: int) -> None:
        marks["begun"] = world.now

    world.checks.append(look)
    world.on_taken_over.append(begun)
    number, now = site.spare.number, site.home.mono()
    asked = world.now
    world.call(site.home, lambda host: host.move(site.v, number, COMMAND, now), "move")
    while "first" not in marks:
        site.run(SLICE_US)
        if world.now - asked > LONGEST_US:
            raise UserError("%s, seed %d: the operator does not move" % (case, seed))
    site.run(5 * SECOND)
    # The first piece arrives together with the word that the operator is handed over.
    return Moved(
        marks["first"] - marks["paused"],
        marks["begun"] - marks["paused"] - DELAY_US,
        world.taken.again - again,
    )
