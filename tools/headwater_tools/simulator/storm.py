"""The faults of a history: which kinds occur in it, when, and how bad they are. All from the seed.

Every history has the ordinary ones: power, links, weather, a lake that does not answer. Of the special
kinds each history draws a few, so that the effects of one are not always mixed with those of all others.
Every fault is counted by its kind and noted in the trace.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from headwater.plan.model import DROP_OLDEST, LOCAL, OUTSIDE, UNSAFE, Edge, Plan, Vertex
from headwater.protocol.moves import COMMAND
from headwater.runtime import decisions
from headwater.runtime.gateway_host import GatewayHost
from headwater.testing.cut_flash import KINDS

from . import parameters
from .disasters import Disasters
from .hostile import Hostile
from .world import SECOND, Node

if TYPE_CHECKING:
    from .scenario import Scenario

SHARE = 0.3  # of the histories to which a special kind applies have it,
GAP_OPEN = "operator moved with a gap open"
SOURCE_LOST = "source board lost"
SILENT = "source silent"
DECLARED_LOST = "board declared lost"
MOVED = "operator to be moved"
HALF_MOVED = "fault in the middle of a move"
SHARES = {
    MOVED: 0.7,
    GAP_OPEN: 0.9,
    SILENT: 1.0,
}  # ... or more, if it applies to few, and seldom occurs in one that has it


def above(plan: Plan, vertex: int) -> set[int]:
    """The sources from which a vertex gets entries, feedback aside; or itself."""
    if not plan.vertices[vertex].kind:
        return {vertex}
    return set().union(*(above(plan, e.src) for e in plan.ins(vertex) if not e.delay_us))


class Storm:
    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.world = scenario.world
        self.plan = scenario.plan
        self.random = scenario.random
        self.hostile = Hostile(self.world, scenario.ran, scenario.epochs, scenario.place)
        self.disasters = Disasters(self)
        chosen = random.Random("kinds %d" % scenario.seed)
        fits = self.special()
        shares = {**SHARES, **scenario.likely}
        self.kinds = {k: fault for k, fault in fits.items() if chosen.random() < shares.get(k, SHARE)}

    # Every special kind, if it applies to the process at all.
    def special(self) -> dict[str, Callable[[], None]]:
        plan = self.plan
        boards = len(plan.hosts) > 1
        found: dict[str, Callable[[], None]] = {
            "gateway away for long": self.gateway_away,
            "outbox full": self.fill_outbox,
            "burst of changes": self.burst,
        }
        if boards:
            found["outage"] = self.outage
            found["board asleep"] = self.sleep
            found["hostile frame"] = self.be_hostile
            found[SOURCE_LOST] = self.lose_source
            found[DECLARED_LOST] = self.declare
            found["flash of a source board erased"] = self.erase_source
            found["flash of an operator's host erased"] = self.erase_operator
            found["gateway database lost"] = self.lose_database
        if boards and plan.level != LOCAL:
            found["healthy operator moved"] = self.move
            found["two activations with one number"] = self.clash
            if any(e.policy == DROP_OLDEST and plan.vertices[e.src].kind for e in plan.edges):
                found[GAP_OPEN] = self.move_dropping
        if boards and any(e.absent_ms for e in plan.edges):
            found[SILENT] = self.silence
        if any(len(plan.ins(v.index)) > 1 for v in plan.vertices):
            found["input closed"] = self.close
        if boards:
            found["broker restarted"] = self.restart_broker
            found["peers cut off from each other"] = self.part_peers
        found.update(self.disasters.special())
        return found

    def start(self) -> None:
        first = self.random.randrange(SECOND, 3 * SECOND)
        self.world.after(first, self.next)
        if self.world.hardware.sectors and self.special().get("outage"):
            self.world.after(self.random.randrange(2 * SECOND, 6 * SECOND), self.outage)
        if GAP_OPEN in self.kinds:
            self.world.after(self.random.randrange(2 * SECOND, 6 * SECOND), self.move_dropping)
        self.disasters.start(self.kinds)
        self.clocks()
        self.moves()

    def clocks(self) -> None:
        """The clock of the gateway's machine goes wrong, in a share of the histories. Drawn apart from the
        other faults, which are the same without."""
        r = random.Random("clocks %d" % self.scenario.seed)
        if r.random() >= SHARE or self.scenario.storm_us <= 4 * SECOND:
            return
        for _ in range(r.randint(1, 3)):
            fault = r.choice((self.no_network, self.clock_ahead, self.clock_back))
            us = r.randrange(3 * SECOND, 15 * SECOND)
            self.world.after(r.randrange(SECOND, self.scenario.storm_us), partial(fault, r.random(), us))

    def no_network(self, share: float, us: int) -> None:
        """The gateway's machine starts again, shows an earlier time, and has none from the network yet."""
        world = self.world
        if self.over():
            return
        world.draw("gateway without the time", "the gateway's machine starts, without the time")
        world.wall.jump(-int(3600 * SECOND * share), None)
        gateway = world.nodes[0]
        world.crash(gateway)
        world.after(SECOND + int(4 * SECOND * share), lambda: world.boot(gateway))
        world.after(us, world.wall.right)

    def clock_ahead(self, share: float, us: int) -> None:
        self.clock_jumps(SECOND + int(20 * SECOND * share), us)

    def clock_back(self, share: float, us: int) -> None:
        self.clock_jumps(-SECOND - int(60 * SECOND * share), us)

    def clock_jumps(self, off_us: int, us: int) -> None:
        world = self.world
        if not self.over():
            what = "the clock of the gateway's machine jumps by %.1f s" % (off_us / SECOND)
            world.draw("wrong clock at the gateway", what)
            world.wall.jump(off_us)
            world.after(us, world.wall.right)

    def next(self) -> None:
        if self.over():
            return
        r = self.random
        choices: list[Any] = (
            [self.crash] * 3 + [self.cut_power] * 4 + [self.partition] * 3 + [self.weather] * 3
        )
        choices += [self.close_lake, self.decide, self.decide]
        if self.scenario.kills_max:
            choices += [self.kill, self.isolate]
        for fault in self.kinds.values():
            choices += [fault] * 2
        r.choice(choices)()
        self.world.after(int(r.expovariate(1.0) * 2 * SECOND), self.next)

    def over(self) -> bool:
        return self.world.now >= self.scenario.storm_us

    def left_us(self) -> int:
        return max(SECOND, self.scenario.storm_us - self.world.now)

    def any_node(self) -> Node:
        return self.random.choice(self.world.nodes)

    def name(self, node: Node) -> str:
        return self.world.name(node.number)

    def boot_after(self, node: Node, low: int, high: int) -> None:
        self.world.after(self.random.randrange(low, high), lambda: self.world.boot(node))

    # ---- power, links, lake

    def crash(self) -> None:
        node = self.any_node()
        if node.up:
            self.world.draw("power lost", "%s loses power" % self.name(node))
            self.world.crash(node)
            self.boot_after(node, SECOND // 10, 5 * SECOND)

    def cut_power(self) -> None:
        node = self.any_node()
        if node.up:
            op = node.flash.op + self.random.randrange(12)
            kind = self.random.randrange(len(KINDS))
            byte = self.random.choice((0, 1, 5, 20, 40, 100, 300, self.random.randrange(4096)))
            what = (self.name(node), op, byte, KINDS[kind])
            self.world.draw(
                "power lost in a flash write",
                "%s: power will go in flash operation %d, byte %d (%s)" % what,
            )
            node.flash.arm(op, byte, kind)

    def partition(self) -> None:
        world = self.world
        a, b = self.any_node().number, self.any_node().number
        if a == b:
            return
        ways = self.random.choice(([(a, b), (b, a)], [(a, b)], [(b, a)]))
        told = " nor ".join("%s to %s" % (world.name(x), world.name(y)) for x, y in ways)
        world.draw("link cut", "no link from %s" % told)
        self.cut(ways, self.random.randrange(SECOND // 2, 12 * SECOND))

    def cut(self, ways: list[tuple[int, int]], us: int) -> None:
        self.world.cut.update(ways)
        self.world.after(us, lambda: self.world.cut.difference_update(ways))

    def restart_broker(self) -> None:
        """No host reaches any other one, for less than ten times the patience with a silent host: no operator
        may move because of it (takeovers.Takeovers)."""
        us = self.random.randrange(2 * SECOND, 40 * SECOND)
        self.world.draw("broker restarted", "the broker is away for %.1f s" % (us / SECOND))
        self.world.broker_us = max(self.world.broker_us, self.world.now + us)

    def part_peers(self) -> None:
        """The boards fall into two groups that do not reach each other; the gateway is in one, or in both."""
        world = self.world
        one = [n.number for n in world.nodes if self.random.random() < 0.5]
        both = {0} if self.random.random() < 0.5 else set()
        side = {n.number: n.number in one for n in world.nodes}
        ways = [(a, b) for a in side for b in side if side[a] != side[b] and not {a, b} & both]
        if ways:
            told = ", ".join(world.name(n) for n in one)
            world.draw("peers cut off from each other", "apart: %s" % told)
            self.cut(ways, self.random.randrange(2 * SECOND, 14 * SECOND))

    def ways(self, node: Node) -> list[tuple[int, int]]:
        """All links of a host, in both directions."""
        others = [n.number for n in self.world.nodes if n is not node]
        return [w for n in others for w in ((n, node.number), (node.number, n))]

    def weather(self) -> None:
        world = self.world
        world.loss = self.random.choice((0.0, 0.02, 0.1, 0.3))
        world.duplication = self.random.choice((0.0, 0.05, 0.3))
        top = self.random.choice((5_000, 30_000, 400_000))
        world.delay_us = (1_000, top)
        world.draw(
            "bad links",
            "links: loss %.2f, duplication %.2f, delay up to %d ms"
            % (world.loss, world.duplication, top // 1000),
        )

    def close_lake(self) -> None:
        box = self.world.outbox
        box.lake_open = False
        self.world.draw("lake away", "the lake does not answer")

        def again() -> None:
            box.lake_open = True

        self.world.after(self.random.randrange(SECOND, 15 * SECOND), again)

    def fill_outbox(self) -> None:
        box = self.world.outbox
        box.full = True
        self.world.draw("outbox full", "the outbox is full")

        def again() -> None:
            box.full = False
            self.world.note("the outbox has room")

        self.world.after(self.random.randrange(SECOND, 15 * SECOND), again)

    def outage(self) -> None:
        """A board with a sensor is out of reach for most of the storm."""
        world = self.world
        boards = sorted({v.hosts[0] for v in self.plan.vertices if not v.kind} - {0})
        boards = [b for b in boards if not world.nodes[b].lost]
        if not boards:
            return
        node = world.nodes[self.random.choice(boards)]
        us = int(self.left_us() * self.random.uniform(0.4, 0.9))
        world.draw("outage", "%s is out of reach for %d s" % (self.name(node), us // SECOND))
        self.cut(self.ways(node), us)

    # ---- hosts that are lost, or taken for it

    def kill(self) -> None:
        """A host that carries no sensor dies; others take over its operators."""
        sensors = {v.hosts[0] for v in self.plan.vertices if not v.kind}
        nodes = [n for n in self.world.nodes[1:] if not n.lost and n.number not in sensors]
        nodes = [n for n in nodes if not self.scenario.stranded(n)]
        if nodes and self.scenario.spare():
            node = self.random.choice(nodes)
            self.world.draw("host lost")
            self.scenario.lose(node)
            self.world.kill(node)

    def lose_source(self) -> None:
        """A board with a sensor dies; its stream ends with what it has sent."""
        sensors = sorted({v.hosts[0] for v in self.plan.vertices if not v.kind} - {0})
        living = [self.world.nodes[b] for b in sensors if not self.world.nodes[b].lost]
        nodes = [n for n in living if self.scenario.may_lose(n) and self.scenario.spare(n)]
        nodes = [n for n in nodes if not self.scenario.stranded(n)]
        if nodes and len(living) > 1:
            node = self.random.choice(nodes)
            self.world.draw(SOURCE_LOST)
            self.scenario.lose(node)
            self.world.kill(node)

    def declare(self) -> None:
        """A person declares a board lost: one that is dead, or one that is only out of reach."""
        world, scenario = self.world, self.scenario
        nodes = [n for n in world.nodes[1:] if n.dead and n.number not in scenario.declared]
        told = "which is dead"
        if not nodes:
            nodes = [n for n in world.nodes[1:] if not n.lost and scenario.may_lose(n) and scenario.spare(n)]
            nodes = [n for n in nodes if not scenario.stranded(n) and n.number not in scenario.declared]
            nodes = [n for n in nodes if self.sources_without(n)]
            told = "which is asleep"
        if not nodes or not world.nodes[0].up:
            return
        node = self.random.choice(nodes)
        world.draw(DECLARED_LOST, "%s is declared lost, %s" % (self.name(node), told))
        if not node.dead:
            self.cut(self.ways(node), self.random.randrange(SECOND, 14 * SECOND))
        scenario.declare(node)
        if self.random.random() < 0.5:
            world.after(self.random.randrange(SECOND, 14 * SECOND), partial(self.replace, node))

    def sources_without(self, node: Node) -> bool:
        """Whether a source is left without this board."""
        homes = {v.hosts[0] for v in self.plan.vertices if not v.kind} - {node.number}
        return any(not self.world.nodes[h].lost for h in homes)

    def replace(self, node: Node) -> None:
        """The board is provisioned afresh, or another one is in its place."""
        if not self.over():
            self.world.draw("lost board replaced")
            self.world.replace(node)
            self.boot_after(node, SECOND // 10, 3 * SECOND)

    def isolate(self) -> None:
        """A host is cut off, perhaps until others take it for dead; then it returns."""
        world = self.world
        nodes = [n for n in world.nodes[1:] if not n.lost]
        if not nodes:
            return
        node = self.random.choice(nodes)
        world.draw("host taken for dead", "%s is cut off" % self.name(node))
        self.cut(self.ways(node), self.random.randrange(4 * SECOND, 14 * SECOND))

    def erase_source(self) -> None:
        sensors = sorted({v.hosts[0] for v in self.plan.vertices if not v.kind} - {0})
        self.erase("flash of a source board erased", sensors)

    def erase_operator(self) -> None:
        sensors = {v.hosts[0] for v in self.plan.vertices if not v.kind}
        hosts = sorted(set(self.scenario.place.values()) - sensors - {0})
        self.erase(
            "flash of an operator's host erased", hosts or sorted(set(self.scenario.place.values()) - {0})
        )

    def erase(self, kind: str, hosts: list[int]) -> None:
        nodes = [self.world.nodes[h] for h in hosts]
        nodes = [n for n in nodes if not n.lost and self.scenario.may_lose(n)]
        if nodes:
            self.world.draw(kind)
            self.forget(self.random.choice(nodes))

    def forget(self, node: Node) -> None:
        """The flash of a host is erased. What ran there starts again where the hosts decide."""
        self.scenario.lose(node)
        self.world.erase(node)
        self.boot_after(node, SECOND // 10, 3 * SECOND)

    def gateway_away(self) -> None:
        node = self.world.nodes[0]
        if node.up:
            us = self.random.randrange(5 * SECOND, 40 * SECOND)
            self.world.draw("gateway away for long", "gateway is away for %d s" % (us // SECOND))
            self.world.crash(node)
            self.world.after(us, lambda: self.world.boot(node))

    def lose_database(self) -> None:
        node = self.world.nodes[0]
        if self.scenario.may_lose(node):
            self.world.draw("gateway database lost")
            self.forget(node)

    # ---- operators that move

    def movable(self) -> list[int]:
        place = self.scenario.place
        nodes = self.world.nodes
        return [v for v in sorted(place) if nodes[place[v]].up and not nodes[place[v]].lost]

    def move(self) -> None:
        """A candidate that is wrong begins a healthy operator without asking; often another one does, seconds
        later."""
        found = self.movable()
        if not found:
            return
        v = self.random.choice(found)
        home = self.scenario.place[v]
        self.world.draw("healthy operator moved")
        self.scenario.activate(v, home)
        if self.random.random() < 0.6:
            self.world.after(self.random.randrange(SECOND // 10, 6 * SECOND), lambda: self.move_back(v, home))

    def moves(self) -> None:
        """People ask for operators to be moved, in most of the histories that can have this: at any moment,
        often for several at about the same time, and often something fails in the middle. Drawn apart from
        the other faults, which are the same without."""
        r = random.Random("moves %d" % self.scenario.seed)
        several = [v for v in self.plan.vertices if v.kind and len(v.hosts) > 1]
        if not several or self.plan.strategy == UNSAFE or r.random() >= SHARES[MOVED]:
            return
        for _ in range(r.randint(1, 8)):
            at = r.randrange(SECOND, max(2 * SECOND, self.scenario.storm_us))
            for _ in range(r.choice((1, 1, 1, 2, 3))):
                self.world.after(at + r.randrange(SECOND), partial(self.hand_over, r.random(), r.random()))

    def hand_over(self, which: float, fault: float) -> None:
        nodes = [n for n in self.world.nodes if n.host]
        found = [(n, v, h) for n in nodes if n.host for v in sorted(n.host.instances)
                 for h in self.plan.vertices[v].hosts if h != n.number]  # fmt: skip
        if not found or self.over():
            return
        node, v, to = found[int(which * len(found))]
        name = self.plan.vertices[v].name
        self.world.draw(MOVED, "%s is to move from %s to %s" % (name, self.name(node), self.world.name(to)))
        self.world.call(node, lambda host: host.move(v, to, COMMAND, node.mono()), "move")
        if fault < 0.6:
            us = int(fault * 1000) % 100 * 20_000 + 1000  # the steps of a move take some tens of milliseconds
            us = us if fault < 0.3 else us // 8
            both = (node, self.world.nodes[to])
            what = (self.stop_one, self.stop_one, self.cut_one, self.part_both)[int(fault * 10000) % 4]
            self.world.after(us, partial(what, both, int(fault * 100000)))

    def stop_one(self, both: tuple[Node, Node], k: int) -> None:
        """One of the two hosts of a move loses power."""
        node = both[k % 2]
        if node.up and not self.over():
            self.world.draw(HALF_MOVED, "%s loses power" % self.name(node))
            self.world.crash(node)
            self.world.after(SECOND // 10 + k % 40 * SECOND // 10, lambda: self.world.boot(node))

    def cut_one(self, both: tuple[Node, Node], k: int) -> None:
        """... in one of its next flash operations."""
        node = both[k % 2]
        if node.up and not self.over():
            self.world.draw(HALF_MOVED, "%s will lose power in a flash operation" % self.name(node))
            node.flash.arm(node.flash.op + k // 2 % 6, k % 300, k % len(KINDS))

    def part_both(self, both: tuple[Node, Node], k: int) -> None:
        """The two do not reach each other, in one direction or in both."""
        a, b = both[0].number, both[1].number
        if not self.over():
            self.world.draw(
                HALF_MOVED, "no link between %s and %s" % (self.name(both[0]), self.name(both[1]))
            )
            self.cut([[(a, b)], [(b, a)], [(a, b), (b, a)]][k % 3], SECOND // 2 + k % 70 * SECOND // 10)

    def move_back(self, v: int, home: int) -> None:
        away = self.scenario.place[v]
        if not self.over() and away != home and self.world.nodes[home].up:
            self.world.draw("operator moved back")
            self.scenario.activate(v, away, home)

    def clash(self) -> None:
        """Two hosts are activated with one number: the higher one counts."""
        found = self.movable()
        if found:
            self.scenario.clash(self.random.choice(found))

    def move_dropping(self) -> None:
        """The way to the lake is cut until a full edge has dropped something, then its operator moves."""
        scenario = self.scenario
        edges = [e for e in self.plan.edges if e.dst == OUTSIDE and e.policy == DROP_OLDEST]
        found = [e for e in edges if scenario.place.get(e.src) and self.world.nodes[scenario.place[e.src]].up]
        if not found:
            return
        e = self.random.choice(found)
        home = scenario.place[e.src]
        us = min(self.left_us(), 40 * SECOND)
        self.world.note("%s cannot reach the gateway" % self.world.name(home))
        self.cut([(home, 0), (0, home)], us + self.random.randrange(5 * SECOND))
        self.world.after(SECOND, partial(self.dropped, e, home, self.world.now + us))

    def dropped(self, e: Edge, home: int, until: int) -> None:
        node = self.world.nodes[home]
        if self.over() or self.scenario.place[e.src] != home:
            return
        inst = node.host.instances.get(e.src) if node.host else None
        gaps = [g for r in inst.ports[e.sport].readers if r.edge is e for g in r.gaps] if inst else []
        if gaps:
            self.world.draw(GAP_OPEN, "%s has dropped %r" % (e.lake, gaps))
            self.scenario.activate(e.src, home)
        elif self.world.now < until:
            self.world.after(SECOND // 2, partial(self.dropped, e, home, until))

    # ---- decisions

    def decide(self) -> None:
        found = [v for v in self.plan.vertices if parameters.changeable(v)]
        if found:
            v = self.random.choice(found)
            odd = self.random.random() < 0.15
            draw = parameters.odd if odd else parameters.sensible
            self.configure(v.index, draw(self.random, v), odd)

    def configure(self, v: int, params: dict[str, Any], odd: bool = False) -> None:
        """Change parameters at the gateway; values that no type accepts bypass the gateway's own check, as
        from a gateway that knows another version of the type."""
        node = self.world.nodes[0]
        if not node.up:
            return

        def ask(host: GatewayHost) -> Any:
            if odd:
                return decisions.config(host, v, ["set", params])
            return host.configure(v, params)

        kind = "value that a type refuses" if odd else "parameters changed"
        self.world.draw(kind, "%s: parameters %r" % (self.plan.vertices[v].name, params))
        self.world.call(node, lambda host: self.asked(lambda: ask(host)), "configure")

    def asked(self, ask: Callable[[], Any]) -> bool:
        """Ask the gateway for a change; it may refuse with a sentence."""
        try:
            ask()
        except ValueError as error:
            self.world.draw("change refused by the gateway", str(error))
            return False
        return True

    def burst(self) -> None:
        """A person moves a slider."""
        found = [v for v in self.plan.vertices if parameters.changeable(v)]
        if not found:
            return
        v = self.random.choice(found)
        n = self.random.randint(10, 80)
        us = self.random.randrange(SECOND, 8 * SECOND)
        self.world.draw("burst of changes", "%s: %d changes in %d ms" % (v.name, n, us // 1000))
        if self.random.random() < 0.5:
            self.close_lake()
        for k in range(n):
            self.world.after(k * us // n, partial(self.slide, v))

    def slide(self, v: Vertex) -> None:
        if not self.over():
            self.configure(v.index, parameters.sensible(self.random, v))

    def close(self) -> None:
        """A join continues without one of its inputs for a while."""
        world = self.world
        joins = []
        for v in self.plan.vertices:
            ins = self.plan.ins(v.index)
            if any(e.absent_ms for e in ins):
                continue  # the hosts close and open inputs themselves there
            direct = [p for p, e in enumerate(ins) if not e.delay_us]
            joins += [(v.index, p) for p in direct if len(direct) > 1]
        joins = [j for j in joins if not any(j[0] == other[0] for other in self.scenario.closed)]
        if not joins or not world.nodes[0].up:
            return
        vertex, port = self.random.choice(joins)
        world.draw("input closed", "%s closes its input %d" % (self.plan.vertices[vertex].name, port))
        closed = world.call(
            world.nodes[0], lambda host: self.asked(lambda: host.close(vertex, port)), "close"
        )
        if closed or not world.nodes[0].up:  # who saw the power go cannot know, and takes it back in any case
            self.scenario.closed.add((vertex, port))
            pause = self.random.randrange(SECOND, 12 * SECOND)
            world.after(pause, lambda: self.scenario.reopen(vertex, port))

    def silence(self) -> None:
        """The board of a sensor without which others can go on is off, or reaches no other host, or its
        sensor gives nothing: for a time that is too short, or long enough."""
        world = self.world
        edges = [e for e in self.plan.edges if e.absent_ms]
        boards = sorted(
            {self.plan.vertices[v].hosts[0] for e in edges for v in above(self.plan, e.src)} - {0}
        )
        nodes = [world.nodes[b] for b in boards if not world.nodes[b].dead]
        if not nodes:
            return
        node = self.random.choice(nodes)
        most_ms = max(e.absent_ms for e in edges)
        us = int(most_ms * 1000 * self.random.uniform(0.5, 4))
        how = self.random.choice(("off", "off", "out of reach", "without samples"))
        world.draw(SILENT, "%s is %s for %.1f s" % (self.name(node), how, us / SECOND))
        if how == "out of reach":
            self.cut(self.ways(node), us)
        elif how == "without samples":
            world.mute_until[node.number] = world.now + us
        elif node.up:
            world.crash(node)
            world.after(us, lambda: world.boot(node))

    # ---- sensors and neighbours

    def sleep(self) -> None:
        world = self.world
        sensors = sorted({v.hosts[0] for v in self.plan.vertices if not v.kind} - world.asleep)
        nodes = [world.nodes[b] for b in sensors if world.nodes[b].up]
        if not nodes:
            return
        node = self.random.choice(nodes)
        us = self.random.randrange(2 * SECOND, 15 * SECOND)
        world.draw("board asleep", "the sensors of %s rest for %d s" % (self.name(node), us // SECOND))
        world.asleep.add(node.number)
        wake = node.mono() + us
        assert node.host
        world.promised[self.name(node)] = node.host.clock.at(wake)
        world.call(node, lambda host: host.sleep(node.mono(), wake), "sleep")
        world.after(us, lambda: world.asleep.discard(node.number))

    def be_hostile(self) -> None:
        """A neighbour sends frames that no honest host sends, some seconds long."""
        boards = [n for n in self.world.nodes if n.up]
        if len(boards) < 2:
            return
        sender = self.random.choice(boards[1:] if self.random.random() < 0.8 else boards)
        for _ in range(self.random.randint(3, 30)):
            to = self.random.choice([n for n in self.world.nodes if n is not sender])
            self.world.after(self.random.randrange(4 * SECOND), partial(self.say, sender, to))

    def say(self, sender: Node, to: Node) -> None:
        if not sender.up or self.over():
            return
        made = self.hostile.frame(self.random, sender, to)
        if made:
            frame, told = made
            what = "%s to %s, hostile: %s" % (self.name(sender), self.name(to), "; ".join(told))
            self.world.draw("hostile frame", what)
            self.world.send(sender.number, to.number, frame)
