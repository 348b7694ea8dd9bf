# mypy: disable-error-code="func-returns-value"
"""Schedules that chance would not find: each is a script of faults over a small process of its own."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from headwater import reserve, wire
from headwater.batch import Batch
from headwater.check import check
from headwater.host import Host
from headwater.operator import Operator
from headwater.plan import Plan
from headwater.process import (
    Affine,
    Average,
    Debounce,
    Decimate,
    Process,
    Sliding,
    Spec,
    SumJoin,
    Threshold,
    Tumbling,
    Union,
    operator,
)

from ..examples import sp4
from .scenario import Scenario
from .world import SECOND, SITE_US, Hardware, Node


def relay(checkpoints: str = "uncoordinated") -> Plan:
    """One source, one operator on a host of its own, the lake."""
    p = Process("relay", checkpoints=checkpoints, every=20, level="peer", batch=10, batch_ms=500)
    for host in ("left", "spare"):
        p.host(host, heap_kb=256)
    values = p.source("values", "v:i16", rate_hz=20, on="left")
    shifted = values >> Affine().named("shifted").on("spare", backup=["gateway", "left"])
    p.lake("relay/shifted", shifted, cap=600)
    plan: Plan = p.plan()
    return plan


GATEWAY, LEFT, SPARE = 0, 1, 2
RIGHT = 2
SHIFTED = 1  # the operator's vertex


class Directed(Scenario):
    """A history in which only what its script says goes wrong, and when."""

    def __init__(self, seed: int, seconds: int = 20) -> None:
        self.refused = 0  # changes that the gateway refused
        plan = self.process()
        super().__init__(plan, seed, seconds, faults=False, made_of=self.hardware(plan))
        for second, action in self.script():
            self.world.at(int(second * SECOND), action)

    def process(self) -> Plan:
        return relay()

    def hardware(self, plan: Plan) -> Hardware:
        return Hardware()

    def script(self) -> list[tuple[float, Any]]:
        return []

    def node(self, number: int) -> Node:
        return self.world.nodes[number]

    def cut(self, a: int, b: int) -> None:
        self.world.cut |= {(a, b), (b, a)}

    def heal(self, a: int, b: int) -> None:
        self.world.cut -= {(a, b), (b, a)}

    def crash(self, *numbers: int) -> None:
        for number in numbers:
            self.world.crash(self.node(number))

    def boot(self, *numbers: int) -> None:
        for number in numbers:
            self.world.boot(self.node(number))

    def configure(self, v: int, **params: int) -> None:
        if self.node(GATEWAY).up:
            self.world.call(self.node(GATEWAY), lambda host: self.ask(host, v, params), "configure")

    def ask(self, host: Host, v: int, params: dict[str, int]) -> None:
        """The gateway may refuse what is too much for now."""
        try:
            host.configure(v, params)
        except ValueError:
            self.refused += 1

    def move(self, v: int, to: int) -> None:
        """Start operator v elsewhere, as if its host were dead."""
        away, self.place[v] = self.place[v], to
        self.epochs[v] += 1
        self.sameness.untaken(v, away)
        node = self.node(to)
        self.world.call(node, lambda host: host.activate(v, self.epochs[v], node.mono()))


class Zombie(Directed):
    """An operator moves while its host is cut off. Its old host starts again and reaches the producer,
    which the new one just then cannot; and no word of where operators are arrives anywhere. A decision
    has been taken since, so that what the old instance computes is not what the new one does.

    Only the epoch that the producer remembers stands between the old instance and the log.
    """

    def __init__(self, seed: int, seconds: int = 20) -> None:
        super().__init__(seed, seconds)
        self.world.checks.append(self.deaf)

    def deaf(self, node: Node) -> None:
        if node.number != GATEWAY and node.host and self.world.now < 17 * SECOND:
            node.host._on_where = lambda *_: None

    def script(self) -> list[tuple[float, Any]]:
        world = self.world
        return [
            (5, lambda: [self.cut(SPARE, GATEWAY), self.cut(SPARE, LEFT)]),
            (6, lambda: self.move(SHIFTED, GATEWAY)),
            (8, lambda: world.call(self.node(GATEWAY), lambda host: host.configure(SHIFTED, {"offset": 7}))),
            (10, lambda: [self.cut(GATEWAY, LEFT), world.crash(self.node(SPARE))]),
            (11, lambda: [self.heal(SPARE, LEFT), world.boot(self.node(SPARE))]),
        ]


class ZombieAfterRestart(Zombie):
    """The same, but the source rests while the operator moves, so that the new instance names nothing that
    the old one lacks, and the producer restarts: only what first contact wrote into its flash tells of the
    newer epoch, and the epoch of the checkpoint that it keeps.
    """

    def script(self) -> list[tuple[float, Any]]:
        world = self.world
        return [
            (4.5, lambda: world.asleep.add(LEFT)),
            (5.5, lambda: [self.cut(SPARE, GATEWAY), self.cut(SPARE, LEFT)]),
            (6, lambda: self.move(SHIFTED, GATEWAY)),
            (10, lambda: [self.cut(GATEWAY, LEFT), world.crash(self.node(SPARE))]),
            (10.1, lambda: world.call(self.node(GATEWAY), lambda host: host.configure(SHIFTED, {"offset": 7}))),
            (10.2, lambda: world.crash(self.node(LEFT))),
            (10.8, lambda: world.boot(self.node(LEFT))),
            (11, lambda: [self.heal(SPARE, LEFT), world.boot(self.node(SPARE))]),
            (11.5, lambda: world.asleep.discard(LEFT)),
        ]


class HolderElsewhere(Directed):
    """The host of an operator dies for good; its newest checkpoint is not where it starts again, and the
    producer, which alone knows who holds it, has restarted.
    """

    def script(self) -> list[tuple[float, Any]]:
        return [
            (5, lambda: self.cut(SPARE, GATEWAY)),
            (10, lambda: self.world.kill(self.node(SPARE))),
            (10.5, lambda: self.crash(LEFT)),
            (11, lambda: self.boot(LEFT)),
            (12, lambda: self.move(SHIFTED, GATEWAY)),
        ]


class CheckpointLeft(Directed):
    """Two operators move from a host that lives. At level local their checkpoints are there alone, and nobody
    is asked: what their producers name tells who has them, after a restart as well.
    """

    def process(self) -> Plan:
        p = Process("left", checkpoints="ecoc", every=20, level="local", batch=10, batch_ms=500)
        for host in ("left", "spare"):
            p.host(host, heap_kb=256)
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        first = values >> Affine().named("first").on("spare", backup=["gateway"])
        p.lake("left/out", first >> Affine().named("second").on("spare", backup=["gateway"]))
        plan: Plan = p.plan()
        return plan

    def script(self) -> list[tuple[float, Any]]:
        return [
            (10, lambda: self.cut(SPARE, LEFT)),
            (10.5, lambda: self.crash(LEFT)),
            (11, lambda: self.boot(LEFT)),
            (12, lambda: [self.move(v, GATEWAY) for v in self.place]),
        ]


class MovedBack(CheckpointLeft):
    """They move back to where an old checkpoint of theirs lies, after their source began a new incarnation.
    What it names is further than that, though it numbers anew.
    """

    def script(self) -> list[tuple[float, Any]]:
        return [
            (5, lambda: [self.move(v, GATEWAY) for v in self.place]),
            (7, lambda: self.world.erase(self.node(LEFT))),
            (7.4, lambda: self.boot(LEFT)),
            (14, lambda: [self.move(v, SPARE) for v in self.place]),
        ]


class ErasedHolder(Directed):
    """The only holder of an operator's newest checkpoint is the board of its source, and is erased; the host
    of the operator is cut off. A third host takes over: nobody can tell it of that checkpoint, and no
    producer names one, until the host comes back.
    """

    def process(self) -> Plan:
        p = Process("holder", checkpoints="uncoordinated", every=10, level="peer", batch=10, batch_ms=500)
        for host in ("left", "right", "spare"):
            p.host(host, heap_kb=256)
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        shifted = values >> Affine().named("shifted").on("right", backup=["left", "spare"])
        p.lake("holder/shifted", shifted, cap=600)
        plan: Plan = p.plan()
        return plan

    def script(self) -> list[tuple[float, Any]]:
        world = self.world
        return [
            (7, lambda: world.asleep.add(LEFT)),  # all is taken, and lies behind a stored checkpoint
            (8, lambda: [self.cut(RIGHT, n.number) for n in world.nodes if n.number != RIGHT]),
            (8, lambda: world.erase(self.node(LEFT))),
            (8.4, lambda: self.boot(LEFT)),
            (9, lambda: self.move(SHIFTED, 3)),
            (10, lambda: world.asleep.discard(LEFT)),
        ]


class DecidesUnstored(Directed):
    """The host of an operator is cut off, and goes on for a while: what it stores is acknowledged by nobody.
    Another host takes over from earlier, is asked for a change, and is lost before any other host has a
    checkpoint of its epoch. Then the first host takes over again, from further than the change could be.
    """

    TAKES_OVER, STORES = 3, 4

    def __init__(self, seed: int, seconds: int = 20) -> None:
        super().__init__(seed, seconds)
        self.world.checks.append(self.watch)

    def process(self) -> Plan:
        p = Process("unstored", checkpoints="uncoordinated", every=20, level="peer", batch=10, batch_ms=500)
        for host in ("left", "right", "spare", "stores"):
            p.host(host, heap_kb=256)
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        shifted = values >> Affine().named("shifted").on("right", backup=["stores", "spare"])
        p.lake("unstored/shifted", shifted, cap=600)
        plan: Plan = p.plan()
        return plan

    def script(self) -> list[tuple[float, Any]]:
        return [
            (5, lambda: [self.cut(RIGHT, n) for n in (GATEWAY, self.TAKES_OVER, self.STORES)]),
            (8, lambda: self.cut(RIGHT, LEFT)),
            (9, lambda: self.move(SHIFTED, self.TAKES_OVER)),
            (11, lambda: self.configure(SHIFTED, offset=7)),
            (14, lambda: self.world.kill(self.node(self.TAKES_OVER))),
            (14.5, self.world.cut.clear),
            (15, lambda: self.move(SHIFTED, RIGHT)),
        ]

    def watch(self, node: Node) -> None:
        """Who takes over has heard what there is, from the holder and from the source; then only the gateway
        reaches it."""
        inst = node.host.instances.get(SHIFTED) if node.host and node.number == self.TAKES_OVER else None
        if self.world.now < self.storm_us and inst and not inst.recalling and inst.answered():
            self.cut(self.TAKES_OVER, self.STORES)
            self.cut(self.TAKES_OVER, LEFT)


class FurtherAndOver(DecidesUnstored):
    """The same, but nobody is lost: the first host comes back, and is the only one that can store a
    checkpoint for the new epoch. What it has itself stands further, and is over.
    """

    def script(self) -> list[tuple[float, Any]]:
        return [
            *super().script()[:3],
            (11, lambda: self.heal(RIGHT, self.TAKES_OVER)),
            (16, self.settled),
        ]

    def settled(self) -> None:
        host = self.node(self.TAKES_OVER).host
        if host is None or host.instances[SHIFTED].unsettled:
            self.world.error("a host that is back keeps no checkpoint of the new epoch")


class CourseLeft(Directed):
    """A board is cut off from the gateway, and one other host alone has the last checkpoints of its
    operators: too few to acknowledge them. Then the board is erased. The gateway takes over from earlier,
    and by decision with a new incarnation of the source, until it loses power; then that other host takes
    over. What it had itself stood further, on a course that was left.
    """

    def process(self) -> Plan:
        p = Process("course", checkpoints="uncoordinated", every=10, level="peers=2", batch=10, batch_ms=500)
        for host in ("left", "spare"):
            p.host(host, heap_kb=256)
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        clean = values >> Affine().named("clean").on("left", backup=["gateway", "spare"])
        beats = clean >> Affine().named("beats").on("left", backup=["gateway", "spare"])
        p.lake("course/beats", beats, cap=600)
        plan: Plan = p.plan()
        return plan

    def script(self) -> list[tuple[float, Any]]:
        return [
            (4.5, lambda: self.world.asleep.add(LEFT)),  # all is taken, and lies behind a stored checkpoint
            (5.9, lambda: self.cut(LEFT, GATEWAY)),
            (6, lambda: self.world.asleep.discard(LEFT)),
            (8, lambda: [self.world.erase(self.node(LEFT)), self.cut(GATEWAY, SPARE)]),
            (8.2, lambda: [self.move(v, GATEWAY) for v in self.place]),
            (8.4, lambda: [self.heal(LEFT, GATEWAY), self.boot(LEFT)]),
            (9.5, lambda: self.heal(GATEWAY, SPARE)),
            (14, lambda: self.crash(GATEWAY)),
            (14.5, lambda: [self.move(v, SPARE) for v in self.place]),
            (17, lambda: self.boot(GATEWAY)),
        ]


class LakeAway(Directed):
    """The last operator restarts while the lake's end has not got what it put out."""

    def process(self) -> Plan:
        return relay("ecoc")

    def script(self) -> list[tuple[float, Any]]:
        return [
            (5, lambda: self.cut(SPARE, GATEWAY)),
            (10, lambda: self.crash(SPARE)),
            (11, lambda: self.boot(SPARE)),
            (13, lambda: self.heal(SPARE, GATEWAY)),
        ]


class Changes(Directed):
    """Parameters change several times between two checkpoints, and the operator restarts in between."""

    def script(self) -> list[tuple[float, Any]]:
        out: list[tuple[float, Any]] = []
        for i in range(30):
            out.append((4 + 0.37 * i, lambda i=i: self.configure(SHIFTED, offset=1 + i)))
        for i in range(6):
            out.append((4.9 + 1.83 * i, lambda: self.crash(SPARE)))
            out.append((5.3 + 1.83 * i, lambda: self.boot(SPARE)))
        return out


class BothEnds(Directed):
    """All hosts but the gateway lose power at once, again and again: both ends of every feedback edge."""

    def process(self) -> Plan:
        hosts = ("left", "right", "spare", "spare")
        plan: Plan = sp4.build(every=36, batch=12, threshold=100, hosts=hosts).plan()
        return plan

    def script(self) -> list[tuple[float, Any]]:
        out: list[tuple[float, Any]] = []
        for i in range(6):
            out.append((5 + 2.3 * i, lambda: self.crash(1, 2, 3)))
            out.append((5.4 + 2.3 * i, lambda: self.boot(1, 2, 3)))
        return out


class RequestLost(Directed):
    """The link is down just when the only Check-Request of the history crosses it: unless it is sent again
    with what it stands in, the first operator's checkpoint stays pending, and the source lets nothing go.
    """

    def process(self) -> Plan:
        p = Process("two", checkpoints="ecoc", every=300, level="peer", batch=10, batch_ms=500)
        for host in ("left", "spare"):
            p.host(host, heap_kb=256)
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        first = values >> Affine().named("first").on("left", backup=["gateway"])
        p.lake("two/out", first >> Affine().named("second").on("spare", backup=["gateway"]))
        plan: Plan = p.plan()
        return plan

    def script(self) -> list[tuple[float, Any]]:
        return [
            (14.5, lambda: self.cut(LEFT, SPARE)),
            (17, lambda: self.heal(LEFT, SPARE)),
            (34, self.let_go),
        ]

    def let_go(self) -> None:
        host = self.node(LEFT).host
        if host is None or host.ports[0, 0].trim_to < 300:
            self.world.error("the source holds all it ever had: its consumer's checkpoint is still pending")

    def arrived(self) -> bool:
        return self.world.now > 35 * SECOND and super().arrived()


class DeadInput(Directed):
    """One of two boards dies; the join goes on without it by decision, and takes it back when it returns."""

    def process(self) -> Plan:
        p = Process("pair", checkpoints="ecoc", every=20, level="peer", batch=10, batch_ms=500)
        for host in ("left", "right"):
            p.host(host, heap_kb=256)
        a = p.source("a", "v:i16", rate_hz=20, on="left")
        b = p.source("b", "v:i16", rate_hz=20, on="right")
        total = SumJoin(us=1_000_000).named("sum").on("gateway", backup=["left", "right"])(a, b)
        p.lake("pair/sum", total, cap=600)
        plan: Plan = p.plan()
        return plan

    def script(self) -> list[tuple[float, Any]]:
        world = self.world
        join = self.join()

        def reopen(host: Host) -> None:
            host.reopen(join, 1, host.instances[join].inputs[1].inc, host.site())

        return [
            (6, lambda: self.crash(2)),
            (8, lambda: world.call(self.node(GATEWAY), lambda host: host.close(join, 1))),
            (12, lambda: self.boot(2)),
            (14, lambda: world.call(self.node(GATEWAY), reopen)),
        ]

    def join(self) -> int:
        return [v.index for v in self.plan.vertices if v.kind][0]


class InTurn(DeadInput):
    """One of two boards never hears the time, so what their join puts out is stamped synchronised and not, in
    turn; and the lake is away, so its checkpoint carries as much of that as its buffer holds.
    """

    def __init__(self, seed: int, seconds: int = 60) -> None:
        super().__init__(seed, seconds)
        self.cut(GATEWAY, 2)

    def process(self) -> Plan:
        p = Process("pair", checkpoints="uncoordinated", every=60, level="peer", batch=60, batch_ms=500)
        for host in ("left", "right"):
            p.host(host, heap_kb=256)
        a = p.source("a", "v:i16", rate_hz=20, on="left")
        b = p.source("b", "v:i16", rate_hz=20, on="right")
        total = SumJoin(us=1_000_000, keep=32).named("sum").on("left", backup=["right", "gateway"])(a, b)
        p.lake("pair/sum", total, cap=600, durable="lake")
        plan: Plan = p.plan()
        return plan

    def script(self) -> list[tuple[float, Any]]:
        box = self.world.outbox
        return [(28, lambda: setattr(box, "lake_open", False)), (55, lambda: setattr(box, "lake_open", True))]


class TakenBack(DeadInput):
    """Nobody dies: what the closed input holds waits at the join, which takes it back and then loses power.
    The second life meets all of that in one piece, and passes over what the first one did.
    """

    def process(self) -> Plan:
        p = Process("pair", checkpoints="ecoc", every=20, level="peer", batch=10, batch_ms=500)
        for host in ("left", "right"):
            p.host(host, heap_kb=256)
        a = p.source("a", "v:i16", rate_hz=20, on="left")
        b = p.source("b", "v:i16", rate_hz=20, on="right")
        total = SumJoin(us=1_000_000).named("sum").on("gateway", backup=["left", "right"])(a, b)
        p.lake("pair/sum", total, cap=900, durable="lake")
        plan: Plan = p.plan()
        return plan

    def script(self) -> list[tuple[float, Any]]:
        _, (_, close), _, (_, reopen) = super().script()
        box = self.world.outbox
        return [
            (5, lambda: setattr(box, "lake_open", False)),
            (6, close),
            (9, reopen),
            (13, lambda: self.crash(GATEWAY)),
            (13.5, lambda: self.boot(GATEWAY)),
            (16, lambda: setattr(box, "lake_open", True)),
        ]


class TakenBackUnnamed(TakenBack):
    """The same, and who asks for the input has not heard of any incarnation of it."""

    def script(self) -> list[tuple[float, Any]]:
        join = self.join()

        def reopen() -> None:
            self.world.call(self.node(GATEWAY), lambda host: host.reopen(join, 1, 0, host.site()))

        return [(when, reopen if when == 9 else action) for when, action in super().script()]


class PassedOver(DeadInput):
    """An input is closed for a while, and taken back while its board is cut off. Then entries older and newer
    than it may go back to come together, with a Check-Request among the older ones.
    """

    def script(self) -> list[tuple[float, Any]]:
        _, (_, close), _, (_, reopen) = super().script()
        return [
            (6, close),
            (6.2, lambda: self.cut(GATEWAY, RIGHT)),
            (8, reopen),
            (9, lambda: self.heal(GATEWAY, RIGHT)),
        ]


class TakenBackLate(DeadInput):
    """A join hears late that it should take an input back, and later still that its proposal was granted. Its
    other input is a button that nobody presses for long: meanwhile the join gives boundaries, and a union
    behind it goes on by them. What is taken back lies above all of them.
    """

    def __init__(self, seed: int, seconds: int = 20) -> None:
        super().__init__(seed, seconds)
        self.proposed = False
        self.world.checks.append(self.watch)

    def process(self) -> Plan:
        p = Process("pair", checkpoints="ecoc", every=20, level="peer", batch=10, batch_ms=500)
        for host in ("left", "right"):
            p.host(host, heap_kb=256)
        a = p.source("a", "v:i16", rate_hz=20, on="left")
        button = p.source("button", "v:i16", most_hz=2, on="right")
        c = p.source("c", "v:i16", rate_hz=20, on="right")
        join = Union().named("join").on("right", backup=["gateway", "left"])(button, a)
        p.lake("pair/both", Union().named("both").on("right", backup=["gateway", "left"])(c, join), cap=600)
        plan: Plan = p.plan()
        return plan

    def script(self) -> list[tuple[float, Any]]:
        join = [v.index for v in self.plan.vertices if v.name == "join"][0]

        def at_gateway(action: Any) -> None:
            self.world.call(self.node(GATEWAY), action)

        def reopen(host: Host) -> None:
            host.reopen(join, 1, self.world.current(-1, 0), host.site())

        return [
            (5, lambda: at_gateway(lambda host: host.close(join, 1))),
            (7, lambda: self.cut(GATEWAY, RIGHT)),
            (7.1, lambda: at_gateway(reopen)),
            (9.5, lambda: self.heal(GATEWAY, RIGHT)),
        ]

    def watch(self, node: Node) -> None:
        for inst in node.host.instances.values() if node.host else ():
            if 2 in inst.decisions and not inst.decisions[2][2] and not self.proposed:
                self.proposed = True
                self.world.cut.add((GATEWAY, RIGHT))
                self.world.after(3 * SECOND, lambda: self.heal(GATEWAY, RIGHT))


class Ticks(Operator):
    """How many times `us` have passed since the first element: a timer that never ends."""

    IN = ("v:i16", "v:i16")
    OUT = ("n:u32",)
    PARAMS = "us:u32=100000"
    STATE = "timer:i64 n:u32"
    TIMED = True

    def run(self: Any, x: Any, n: int) -> int:
        self.timer = self.timer or x.ts_of(0) + self.us
        return 0

    def fire(self: Any) -> int:
        self.timer += self.us
        self.n += 1
        self.y.cols[0][0] = self.n
        return 1


class NoInputOpen(DeadInput):
    """Every input of an operator is closed, and stays so. Its time stands still, and so does time behind it:
    timers that never end must not run on towards the end of all time."""

    def process(self) -> Plan:
        p = Process("pair", checkpoints="ecoc", every=20, level="peer", batch=10, batch_ms=500)
        for host in ("left", "right"):
            p.host(host, heap_kb=256)
        a = p.source("a", "v:i16", rate_hz=20, on="left")
        b = p.source("b", "v:i16", rate_hz=20, on="right")
        ticks = operator(Ticks)().named("ticks").on("gateway", backup=["left", "right"])(a, b)
        windows = Tumbling(us=300_000, what="count", empty=1).named("windows")
        p.lake("pair/windows", ticks >> windows.on("gateway", backup=["left", "right"]), cap=600)
        plan: Plan = p.plan()
        return plan

    def script(self) -> list[tuple[float, Any]]:
        join = self.join()
        at_gateway = partial(self.world.call, self.node(GATEWAY))
        return [
            (6, lambda: at_gateway(lambda host: host.close(join, 0))),
            (7, lambda: at_gateway(lambda host: host.close(join, 1))),
        ]


class Asleep(DeadInput):
    """One of two boards sleeps, and says so: the join goes on by its promise, without any decision."""

    def script(self) -> list[tuple[float, Any]]:
        world = self.world
        self.heard_us = 0

        def sleep() -> None:
            world.asleep.add(2)
            node = self.node(2)
            world.call(node, lambda host: host.sleep(node.mono(), node.mono() + 10 * SECOND))

        def hear() -> None:
            rows = [row for s in world.outbox.streams.values() for row in s.rows.values()]
            self.heard_us = max(row[0] for row in rows) - SITE_US

        return [(6, sleep), (15, hear), (16.5, lambda: world.asleep.clear())]


class Dropping(Directed):
    """The way to the lake is cut for longer than the buffer lasts, and its author prefers the newest."""

    def __init__(self, seed: int, seconds: int = 50) -> None:
        super().__init__(seed, seconds)

    def process(self) -> Plan:
        p = Process("relay", checkpoints="ecoc", every=20, level="peer", batch=10, batch_ms=500)
        for host in ("left", "spare"):
            p.host(host, heap_kb=256)
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        shifted = values >> Affine().named("shifted").on("spare", backup=["left", "gateway"])
        p.lake("relay/shifted", shifted, cap=200, on_full="drop_oldest")
        plan: Plan = p.plan()
        return plan

    def script(self) -> list[tuple[float, Any]]:
        return [
            (5, lambda: self.cut(SPARE, GATEWAY)),
            (30, lambda: self.crash(SPARE)),
            (31, lambda: self.boot(SPARE)),
            (45, lambda: self.heal(SPARE, GATEWAY)),
        ]


class Erased(Directed):
    """The flash of a source's host is erased: its numbering begins anew, in another incarnation, while
    frames of the old one are still on their way. The operator behind it goes on with the new one.
    """

    def script(self) -> list[tuple[float, Any]]:
        self.world.delay_us = (100_000, 900_000)
        return [
            (6, lambda: self.crash(LEFT)),
            (6.2, lambda: self.world.erase(self.node(LEFT))),
            (6.3, lambda: self.boot(LEFT)),
        ]

    def arrived(self) -> bool:
        begun = self.world.order[0]
        if len(begun) != 2:
            self.world.error("the source began %d times: %r" % (len(begun), begun))
        return super().arrived()


class ErasedAtRest(Erased):
    """The same after the operator has restarted, from a checkpoint behind which nothing was left to take: how
    far the old incarnation went only that checkpoint knows.
    """

    def script(self) -> list[tuple[float, Any]]:
        def save(host: Host) -> None:
            ck = host.instances[SHIFTED].ck
            ck.commit(ck._take(b"", 0), True)

        return [
            (6, lambda: self.crash(LEFT)),
            (7, lambda: self.world.call(self.node(SPARE), save)),
            (7.5, lambda: [self.world.erase(self.node(LEFT)), self.crash(SPARE)]),
            (8, lambda: self.boot(LEFT, SPARE)),
        ]


class ErasedAndRestarted(Erased):
    """The same, and the operator loses power just after it was granted where it goes on with the new
    incarnation. What it had of the old one since its last checkpoint is nowhere else any more.
    """

    def __init__(self, seed: int, seconds: int = 20) -> None:
        super().__init__(seed, seconds)
        self.granted = False
        self.world.checks.append(self.watch)

    def process(self) -> Plan:
        p = Process("relay", checkpoints="uncoordinated", every=90, level="peer", batch=10, batch_ms=500)
        for host in ("left", "spare"):
            p.host(host, heap_kb=256)
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        few = values >> Decimate(k=150).named("few").on("spare", backup=["gateway", "left"])
        p.lake("relay/few", few)
        plan: Plan = p.plan()
        return plan

    def watch(self, node: Node) -> None:
        inst = node.host.instances.get(SHIFTED) if node.host and node.number == SPARE else None
        if inst and inst.decided and not self.granted:
            self.granted = True
            self.world.after(1, lambda: self.crash(SPARE))
            self.world.after(SECOND, lambda: self.boot(SPARE))


class ErasedAmongChanges(Erased):
    """The same while so many changes are open as can be: no input brings another checkpoint to cover them,
    and the decision to go on with the new incarnation must find room all the same.
    """

    def script(self) -> list[tuple[float, Any]]:
        changes = [(6.25, lambda i=i: self.configure(SHIFTED, offset=i)) for i in range(1, 9)]
        return [*super().script(), *changes]


class BeginsUnknown(Directed):
    """What an operator puts out reaches the lake, but no holder hears of the checkpoint with which it began
    before its host dies. Another host goes on.
    """

    def __init__(self, seed: int, seconds: int = 20) -> None:
        super().__init__(seed, seconds)
        self.world.checks.append(self.deaf)

    def script(self) -> list[tuple[float, Any]]:
        return [(5, lambda: [self.world.kill(self.node(SPARE)), self.move(SHIFTED, GATEWAY)])]

    def deaf(self, node: Node) -> None:
        host = node.host
        if host and self.world.now < 5 * SECOND:
            host._may_say = lambda sender, m: m[0] != wire.CKPT and Host._may_say(host, sender, m)
        elif host:
            host.__dict__.pop("_may_say", None)


class Behind(Directed):
    """A quiet board promised more than it sealed, and comes back where nobody tells it the time."""

    def process(self) -> Plan:
        p = Process("quiet", checkpoints="ecoc", every=20, level="peer", batch=8, batch_ms=500)
        for host in ("left", "right"):
            p.host(host, heap_kb=256)
        a = p.source("a", "v:i16", most_hz=10, on="left")
        b = p.source("b", "v:i16", most_hz=10, on="right")
        p.lake("quiet/both", Union().named("both").on("right", backup=["left", "gateway"])(a, b))
        plan: Plan = p.plan()
        return plan

    def script(self) -> list[tuple[float, Any]]:
        return [
            (3, lambda: self.world.asleep.add(1)),
            (8, lambda: self.crash(1)),
            (8.1, lambda: [self.cut(1, 0), self.cut(1, 2)]),
            (8.2, lambda: self.boot(1)),
            (8.3, lambda: self.world.asleep.clear()),
            (14, lambda: [self.heal(1, 0), self.heal(1, 2)]),
        ]


class Full(Directed):
    """The way out of a source's host is cut for longer than its flash lasts."""

    def __init__(self, seed: int, seconds: int = 34) -> None:
        super().__init__(seed, seconds)
        noise = random.Random(seed)
        values = [noise.getrandbits(63) for _ in range(997)]

        def fill(v: int, batch: Batch, taken: int) -> None:
            for k, column in enumerate(batch.cols):
                for i in range(batch.n):
                    column[i] = values[(taken + i) * 7 % 997] ^ k

        self.world.patterns[0] = fill

    def process(self) -> Plan:
        p = Process("flood", checkpoints="ecoc", every=60, level="peer", batch=30, batch_ms=500)
        for host in ("left", "spare"):
            p.host(host, heap_kb=512)
        fields = " ".join("f%d:i64" % k for k in range(8))
        values = p.source("values", fields, rate_hz=100, on="left")
        p.lake("flood/out", values >> Affine().named("out").on("spare", backup=["gateway", "left"]), cap=600)
        plan: Plan = p.plan()
        return plan

    def script(self) -> list[tuple[float, Any]]:
        return [
            (3, lambda: [self.cut(1, 0), self.cut(1, 2)]),
            (28, lambda: [self.heal(1, 0), self.heal(1, 2)]),
        ]


class StalePending(Directed):
    """A checkpoint stays pending in the flash of a life whose outputs nobody got. The next life waits for
    it in vain, takes a decision before it, goes past it, and loses power: the third must not restore it.
    """

    def __init__(self, seed: int, seconds: int = 45) -> None:
        super().__init__(seed, seconds)
        self.world.delay_us = (100_000, 100_000)
        self.phase = 0
        self.world.checks.append(self.watch)

    def process(self) -> Plan:
        p = Process("relay", checkpoints="ecoc", every=100, level="local", batch=10, batch_ms=500)
        for host in ("left", "spare"):
            p.host(host, heap_kb=256)
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        p.lake("relay/some", values >> Decimate(k=4).named("some").on("spare"), cap=600)
        plan: Plan = p.plan()
        return plan

    def script(self) -> list[tuple[float, Any]]:
        return [(2, lambda: self.cut(SPARE, GATEWAY))]

    def watch(self, node: Node) -> None:
        world, spare = self.world, self.node(SPARE)
        inst = spare.host.instances.get(SHIFTED) if spare.host else None
        if inst is None:
            return
        xi = inst.inputs[0].cur.xi
        if self.phase == 0 and xi >= 100 and inst.ck.pending and inst.ck.pending[0].pos[0] == 100:
            self.phase = 1
            world.after(1, lambda: self.crash(SPARE))
            world.after(2, lambda: self.heal(SPARE, GATEWAY))
            world.after(SECOND, lambda: self.boot(SPARE))
        elif self.phase == 1 and 0 < xi < 100 and spare.boots == 2:
            self.phase = 2
            self.cut(LEFT, SPARE)
            world.after(3 * SECOND, lambda: self.configure(SHIFTED, k=1))
        elif self.phase == 2 and inst.decided:
            self.phase = 3
            world.after(SECOND, lambda: self.heal(LEFT, SPARE))
        elif self.phase == 3 and xi >= 50:
            self.phase = 4
            self.cut(LEFT, SPARE)
            world.after(2 * SECOND, self.third)

    def third(self) -> None:
        self.crash(SPARE)
        self.world.after(SECOND // 2, lambda: self.boot(SPARE))
        self.world.after(4 * SECOND, lambda: self.heal(LEFT, SPARE))


class DropMove(Dropping):
    """The same, but the host that dropped dies, and the operator starts elsewhere: the gap goes with it."""

    def script(self) -> list[tuple[float, Any]]:
        return [
            (5, lambda: self.cut(SPARE, GATEWAY)),
            (30, lambda: self.world.kill(self.node(SPARE))),
            (31, lambda: self.move(SHIFTED, LEFT)),
        ]


class ManyDecisions(Directed):
    """Parameters change many times while the lake is away and no checkpoint becomes permanent, then power
    goes. The gateway may refuse what is too much; what it took has its place in every life.
    """

    CHANGES = 80

    def __init__(self, seed: int, seconds: int = 50) -> None:
        super().__init__(seed, seconds)

    def process(self) -> Plan:
        p = Process("relay", checkpoints="ecoc", every=20, level="peer", batch=10, batch_ms=500)
        for host in ("left", "spare"):
            p.host(host, heap_kb=256)
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        shifted = values >> Affine().named("shifted").on("spare", backup=["gateway", "left"])
        p.lake("relay/shifted", shifted, cap=2000, durable="lake")
        plan: Plan = p.plan()
        return plan

    def script(self) -> list[tuple[float, Any]]:
        end = 5 + 0.35 * self.CHANGES
        out: list[tuple[float, Any]] = [(4, lambda: self.open_lake(False))]
        out += [(5 + 0.35 * i, partial(self.change, i)) for i in range(self.CHANGES)]
        out += [(end + 3.5, lambda: self.crash(SPARE)), (end + 4, lambda: self.boot(SPARE))]
        return [*out, (end + 9, lambda: self.open_lake(True))]

    def open_lake(self, open_: bool) -> None:
        self.world.outbox.lake_open = open_

    def change(self, i: int) -> None:
        for v in [v.index for v in self.plan.vertices if v.kind]:
            self.configure(v, offset=1 + i)


class ManyDecisionsOfTwo(ManyDecisions):
    """The same with two operators on the board, whose changes share the table of its log."""

    CHANGES = 58

    def process(self) -> Plan:
        p = Process("relay", checkpoints="ecoc", every=20, level="peer", batch=10, batch_ms=500)
        for host in ("left", "spare"):
            p.host(host, heap_kb=256)
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        for name in ("one", "two"):
            shifted = values >> Affine().named(name).on("spare", backup=["gateway", "left"])
            p.lake("relay/" + name, shifted, cap=2000, durable="lake")
        plan: Plan = p.plan()
        return plan


class ProposalLost(Directed):
    """An operator proposes where a change takes effect, and loses power before it hears that this was
    granted: its next life must stop there too.
    """

    def __init__(self, seed: int, seconds: int = 20) -> None:
        super().__init__(seed, seconds)
        self.proposed = False
        self.world.checks.append(self.watch)

    def script(self) -> list[tuple[float, Any]]:
        return [(6, lambda: self.configure(SHIFTED, offset=7))]

    def watch(self, node: Node) -> None:
        inst = node.host.instances.get(SHIFTED) if node.host and node.number == SPARE else None
        if inst and inst.decisions and not self.proposed:
            self.proposed = True
            world = self.world
            world.cut.add((GATEWAY, SPARE))
            world.after(SECOND, lambda: self.crash(SPARE))
            world.after(3 * SECOND // 2, lambda: self.boot(SPARE))
            world.after(4 * SECOND, lambda: self.heal(GATEWAY, SPARE))


class GotLost(Directed):
    """An operator starts again while its source rests, and the only Got that its consumer has a reason for is
    lost: it says that nothing behind the operator is ahead of it.
    """

    def script(self) -> list[tuple[float, Any]]:
        def save(host: Host) -> None:
            host.instances[SHIFTED].ck.now()

        return [
            (6, lambda: self.world.asleep.add(LEFT)),
            (7.5, lambda: self.world.call(self.node(SPARE), save)),
            (8, lambda: self.crash(SPARE)),
            (9, lambda: [self.boot(SPARE), self.cut_got()]),
            (12, lambda: self.configure(SHIFTED, offset=5)),
            (16, lambda: self.world.asleep.clear()),
        ]

    def cut_got(self) -> None:
        host = self.node(SPARE).host
        if host and any(r.live for port in host.ports.values() for r in port.readers):
            self.world.cut.add((GATEWAY, SPARE))
            self.world.after(SECOND // 3, lambda: self.world.cut.discard((GATEWAY, SPARE)))
        else:
            self.world.after(SECOND // 1000, self.cut_got)


class EpochClash(Directed):
    """Two hosts are told to take over under one number, while no link is up."""

    def script(self) -> list[tuple[float, Any]]:
        return [
            (5, lambda: [self.cut(SPARE, GATEWAY), self.cut(SPARE, LEFT), self.cut(LEFT, GATEWAY)]),
            (7, lambda: self.clash(SHIFTED)),
            (9, lambda: self.heal(LEFT, GATEWAY)),
            (12, lambda: [self.heal(SPARE, GATEWAY), self.heal(SPARE, LEFT)]),
        ]


class GatewayErased(Directed):
    """The gateway loses its database, and with it what the lake has not acknowledged."""

    def __init__(self, seed: int, seconds: int = 40) -> None:
        super().__init__(seed, seconds)

    def script(self) -> list[tuple[float, Any]]:
        def lake(is_open: bool) -> None:
            self.world.outbox.lake_open = is_open

        return [
            (7, lambda: lake(False)),
            (10, lambda: self.world.erase(self.node(GATEWAY))),
            (12, lambda: self.boot(GATEWAY)),
            (14, lambda: lake(True)),
        ]


class GatewayErasedAfterChanges(GatewayErased):
    """The same after some changes of parameters: their numbers go on, and new ones are taken."""

    def script(self) -> list[tuple[float, Any]]:
        changes = [(2 + i, lambda i=i: self.configure(SHIFTED, offset=1 + i)) for i in range(5)]
        later = [(20 + i, lambda i=i: self.configure(SHIFTED, offset=50 + i)) for i in range(3)]
        return [*changes, *super().script(), *later]


class GatewayErasedThenMoved(GatewayErased):
    """The same while no checkpoint covers the changes; then the operator starts on a host that never heard
    of them. The gateway has learned all of them by then.
    """

    def process(self) -> Plan:
        p = Process("relay", checkpoints="ecoc", every=20, level="peer", batch=10, batch_ms=500)
        for host in ("left", "spare"):
            p.host(host, heap_kb=256)
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        shifted = values >> Affine().named("shifted").on("spare", backup=["left", "gateway"])
        p.lake("relay/shifted", shifted, cap=900, durable="lake")
        plan: Plan = p.plan()
        return plan

    def script(self) -> list[tuple[float, Any]]:
        box = self.world.outbox
        changes = [(4 + i, lambda i=i: self.configure(SHIFTED, offset=1 + i)) for i in range(5)]
        return [
            (1, lambda: setattr(box, "lake_open", False)),
            *changes,
            (10, lambda: self.world.erase(self.node(GATEWAY))),
            (12, lambda: self.boot(GATEWAY)),
            (20, lambda: self.crash(SPARE)),
            (21, lambda: self.move(SHIFTED, LEFT)),
            (24, lambda: setattr(box, "lake_open", True)),
            (25, lambda: self.boot(SPARE)),
        ]


class GatewayErasedWithOperator(Directed):
    """An operator on the gateway takes a change, and the gateway loses its database as soon as another board
    has something that was put out behind it: nobody but the gateway knew of the change.
    """

    def __init__(self, seed: int, seconds: int = 20) -> None:
        super().__init__(seed, seconds)
        self.erased = False
        self.world.checks.append(self.watch)

    def process(self) -> Plan:
        p = Process("pair", checkpoints="ecoc", every=100, level="peer", batch=10, batch_ms=500)
        for host in ("left", "right"):
            p.host(host, heap_kb=256)
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        first = values >> Affine().named("first").on("gateway", backup=["left"])
        p.lake("pair/out", first >> Affine().named("second").on("right", backup=["left"]))
        plan: Plan = p.plan()
        return plan

    def script(self) -> list[tuple[float, Any]]:
        return [(6, lambda: self.configure(1, offset=7))]

    def watch(self, node: Node) -> None:
        granted = self.world.decisions().get(1)
        inst = self.node(RIGHT).host.instances.get(2) if self.node(RIGHT).host else None
        if granted and inst and inst.inputs[0].cur.xi > granted[0][0][0] and not self.erased:
            self.erased = True
            world = self.world
            world.after(0, lambda: world.erase(self.node(GATEWAY)))
            world.after(SECOND, lambda: self.move(1, LEFT))
            world.after(2 * SECOND, lambda: self.boot(GATEWAY))


class TimerEarlier(Directed):
    """After a change an entry sets the timer earlier than it stood. Those behind it wait for it, also where
    all of them come in one go."""

    def __init__(self, seed: int, seconds: int = 15) -> None:
        super().__init__(seed, seconds)

    def process(self) -> Plan:
        p = Process("quiet", checkpoints="ecoc", every=100, level="local", batch=10, batch_ms=500)
        for host in ("left", "spare"):
            p.host(host, heap_kb=256)
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        p.lake("quiet/told", values >> Debounce(us=400_000).named("told").on("spare"))
        plan: Plan = p.plan()
        return plan

    def script(self) -> list[tuple[float, Any]]:
        return [
            (6, lambda: self.cut(LEFT, SPARE)),
            (6.6, lambda: self.configure(SHIFTED, us=20_000)),
            (9, lambda: self.heal(LEFT, SPARE)),
        ]


class ManyOperators(Directed):
    """So many operators on one board as the check lets be."""

    OPERATORS = 45

    def process(self) -> Plan:
        plan: Plan | None = None
        for n in range(self.OPERATORS, 0, -1):
            p = self.chain(n)
            if not check(p).errors():
                plan = p.plan()
                break
        assert plan is not None
        return plan

    def chain(self, n: int) -> Process:
        p = Process("chain", checkpoints="ecoc", every=20, level="local", batch=10, batch_ms=500)
        p.host("left", heap_kb=4096, flash_kb=2048)
        stream = p.source("values", "v:i16", rate_hz=20, on="left")
        for i in range(n):
            stream = stream >> Affine().named("a%d" % i).on("left")
        p.lake("chain/out", stream)
        return p


class Sized(Directed):
    """The log of the board has the least size that the check accepts, and the way out is cut until it is
    full: nothing raises, and the source accepts again afterwards.
    """

    OUT_S = (3, 42)

    def __init__(self, seed: int, seconds: int = 60) -> None:
        super().__init__(seed, seconds)
        self.world.patterns[0] = partial(_noise, seed)

    def hardware(self, plan: Plan) -> Hardware:
        return Hardware({n: reserve.sectors(plan, n) for n in range(1, len(plan.hosts))})

    def process(self) -> Plan:
        p = Process("big", checkpoints="ecoc", every=60, level="local", batch=30, batch_ms=500)
        p.host("left", heap_kb=2048, flash_kb=4096)
        fields = "v:i16 " + " ".join("f%d:i64" % k for k in range(8))
        values = p.source("values", fields, rate_hz=100, on="left")
        p.lake("big/out", values >> self.operator().named("out").on("left"))
        plan: Plan = p.plan()
        return plan

    def operator(self) -> Spec:
        return Average(us=20_000_000, field="v")

    def script(self) -> list[tuple[float, Any]]:
        start, end = self.OUT_S
        return [(start, lambda: self.cut(LEFT, GATEWAY)), (end, lambda: self.heal(LEFT, GATEWAY))]


class SizedLarge(Sized):
    """With a state of some kilobytes."""

    def operator(self) -> Spec:
        return Average(us=20_000_000, keep=1024, field="v")


class SizedSliding(Sized):
    """With a state of some hundred bytes that changes with every entry."""

    def operator(self) -> Spec:
        return Sliding(count=300, step=10, field="v")


class SizedWide(Sized):
    """Two operators of wide elements with long buffers: the reserve is most of the log."""

    def process(self) -> Plan:
        p = Process("wide", checkpoints="ecoc", every=60, level="local", batch=30, batch_ms=500)
        p.host("left", heap_kb=4096, flash_kb=4096)
        values = p.source("values", " ".join("f%d:i64" % k for k in range(8)), rate_hz=20, on="left")
        for name in ("one", "two"):
            p.lake("wide/" + name, values >> Affine().named(name).on("left"), cap=700)
        plan: Plan = p.plan()
        return plan


class SizedGreenhouse(Sized):
    """The process of the README, its link away until the log is full."""

    OUT_S = (10, 220)

    def __init__(self, seed: int, seconds: int = 260) -> None:
        super().__init__(seed, seconds)

    def process(self) -> Plan:
        p = Process("greenhouse", checkpoints="ecoc", every=60)
        p.host("vent", heap_kb=256)
        air = p.source("air", "centi_c:i16", rate_hz=100, on="vent")
        mean = air >> Average(seconds=20)
        p.lake("greenhouse/air", air)
        p.lake("greenhouse/frost", mean >> Threshold(high=400, low=200), durable="lake", within_ms=5000)
        plan: Plan = p.plan()
        return plan


class DeadHolder(Directed):
    """A board that only holds checkpoints dies; enough others live. What its operators put out goes on at
    the rate of its source: a checkpoint does not wait for the dead one each time.
    """

    LEVEL = "peers=2"
    BACKUP: tuple[str, ...] = ()
    STRATEGY = "ecoc"

    def __init__(self, seed: int, seconds: int = 60) -> None:
        super().__init__(seed, seconds)

    def process(self) -> Plan:
        p = Process("ecgs", checkpoints=self.STRATEGY, every=500, level=self.LEVEL, batch=60)
        for host in ("chest", "wrist", "belt"):
            p.host(host, heap_kb=256)
        stream = p.source("ecg", "mV:i16", rate_hz=360, on="chest")
        for name in ("a", "b"):
            spec = Affine().named(name)
            stream = stream >> (
                spec.on("chest", backup=list(self.BACKUP)) if self.BACKUP else spec.on("chest")
            )
        p.lake("ecgs/b", stream)
        plan: Plan = p.plan()
        return plan

    def script(self) -> list[tuple[float, Any]]:
        wrist = [name == "wrist" for name in self.plan.hosts].index(True)
        return [(10, lambda: self.world.kill(self.node(wrist))), (58, self.lag)]

    def lag(self) -> None:
        """Eight checkpoint intervals are more than any operator may be behind its source."""
        for node in self.world.nodes:
            for inst in node.host.instances.values() if node.host else ():
                line = next(iter(self.world.accepted.values()))
                if len(line) - inst.inputs[0].cur.xi > 8 * 500:
                    text = "%s stands at xi %d, its source at %d"
                    self.world.error(text % (inst.vertex.name, inst.inputs[0].cur.xi, len(line)))


class DeadBackup(DeadHolder):
    """The first backup of every operator dies, the second lives."""

    LEVEL = "peer"
    BACKUP = ("wrist", "gateway")


class OnlyKeeps(DeadHolder):
    """The holder that is left keeps checkpoints of operators that it may not run, and they are longer than a
    frame: it has to ask for each piece.
    """

    BACKUP = ("wrist", "gateway")
    STRATEGY = "uncoordinated"

    def hardware(self, plan: Plan) -> Hardware:
        return Hardware(mtu=256)


class DeadSource(DeadInput):
    """A board dies with its source; the join goes on without it by decision, after a restart of the join."""

    def script(self) -> list[tuple[float, Any]]:
        world = self.world
        join = [v.index for v in self.plan.vertices if v.kind][0]
        return [
            (6, lambda: world.kill(self.node(2))),
            (8, lambda: self.crash(GATEWAY)),
            (9, lambda: self.boot(GATEWAY)),
            (11, lambda: world.call(self.node(GATEWAY), lambda host: host.close(join, 1))),
        ]


class DeadSourceMoved(DeadInput):
    """The board dies, and the join starts elsewhere: its producer will never hear of the new epoch. First its
    parameters change, as often as may be, and only then is it said that it goes on without the input.
    """

    def script(self) -> list[tuple[float, Any]]:
        world = self.world
        gateway = self.node(GATEWAY)
        join = [v.index for v in self.plan.vertices if v.kind][0]
        return [
            (6, lambda: world.kill(self.node(2))),
            (7, lambda: world.call(gateway, lambda host: host.instances[join].ck.now())),
            (8, lambda: self.move(join, 1)),
            *[(9 + i / 10, lambda: self.configure(join, us=500_000)) for i in range(10)],
            (11, lambda: world.call(gateway, lambda host: host.close(join, 1))),
        ]


class DeadSourceClosed(DeadInput):
    """The board dies, the join goes on without it by decision, and loses power as soon as that is granted:
    what it had of the board is nowhere else.
    """

    def script(self) -> list[tuple[float, Any]]:
        world = self.world
        join = [v.index for v in self.plan.vertices if v.kind][0]
        return [
            (6, lambda: world.kill(self.node(2))),
            (8, lambda: world.call(self.node(GATEWAY), lambda host: host.close(join, 1))),
            (8.05, lambda: self.crash(GATEWAY)),
            (9, lambda: self.boot(GATEWAY)),
        ]


class DeadAsleep(DeadInput):
    """The board dies asleep. The join goes on by its promise, and then by decision; it loses power as soon as
    that is granted, and in its next life nobody promises anything up to the place of the decision.
    """

    def script(self) -> list[tuple[float, Any]]:
        world = self.world
        join = [v.index for v in self.plan.vertices if v.kind][0]

        def sleep() -> None:
            world.asleep.add(2)
            node = self.node(2)
            world.call(node, lambda host: host.sleep(node.mono(), node.mono() + 10 * SECOND))

        return [
            (6, sleep),
            (9, lambda: world.kill(self.node(2))),
            (11, lambda: world.call(self.node(GATEWAY), lambda host: host.close(join, 1))),
            (11.05, lambda: self.crash(GATEWAY)),
            (12, lambda: self.boot(GATEWAY)),
        ]


class DeadInLoop(Directed):
    """A board dies with the source of an operator in a loop. The join of the loop goes on without it, and so
    does that operator, which takes its feedback still: else it would fill up all buffers of the loop.
    """

    def process(self) -> Plan:
        process = sp4.build("extended", every=36, batch=12, hosts=("left", "right", "gateway", "gateway"))
        plan: Plan = process.plan()
        return plan

    def script(self) -> list[tuple[float, Any]]:
        calm = [v.index for v in self.plan.vertices if v.name == "calm_right"][0]
        return [
            (5, lambda: self.world.asleep.add(2)),
            (6, lambda: self.world.call(self.node(2), lambda host: host.instances[calm].ck.now())),
            (7, lambda: self.world.kill(self.node(2))),
            (8, lambda: self.move(calm, GATEWAY)),
            (9, self.close_ended),
        ]


class ErasedHome(Directed):
    """The flash of a board with a source and its operator is erased: what the operator put out before stays
    as it was, and the board does not begin with it from the start.
    """

    def process(self) -> Plan:
        p = Process("home", checkpoints="ecoc", every=20, level="peer", batch=10, batch_ms=500)
        for host in ("left", "spare"):
            p.host(host, heap_kb=256)
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        shifted = values >> Affine().named("shifted").on("left", backup=["spare", "gateway"])
        p.lake("home/shifted", shifted, cap=600)
        plan: Plan = p.plan()
        return plan

    def script(self) -> list[tuple[float, Any]]:
        return [(6, lambda: self.world.erase(self.node(LEFT))), (6.4, lambda: self.boot(LEFT))]


class ErasedBehindTimer(Directed):
    """The flash of a board with a source and its operator is erased. In the checkpoint from which the
    operator goes on a timer runs that samples behind it have stopped; they are lost, and another board has
    gone on behind the boundary that they gave.
    """

    def __init__(self, seed: int, seconds: int = 20) -> None:
        super().__init__(seed, seconds)
        self.erased = False
        self.world.patterns[0] = self.blips
        self.world.checks.append(self.watch)

    def blips(self, v: int, batch: Batch, taken: int) -> None:
        """One of forty samples, the last one before a checkpoint, is not like the others."""
        for i in range(batch.n):
            batch.cols[0][i] = int((taken + i) % 40 == 39)

    def process(self) -> Plan:
        p = Process("armed", checkpoints="ecoc", every=20, level="peer", batch=4, batch_ms=200)
        for host in ("left", "right", "spare"):
            p.host(host, heap_kb=256)
        a = p.source("a", "v:i16", rate_hz=20, on="left")
        b = p.source("b", "v:i16", rate_hz=20, on="right")
        told = a >> Debounce(us=100_000).named("told").on("left", backup=["spare", "gateway"])
        both = Union().named("both").on("right", backup=["spare", "gateway"])(told, b)
        p.lake("armed/both", both)
        plan: Plan = p.plan()
        return plan

    def watch(self, node: Node) -> None:
        told, both = [v.index for v in self.plan.vertices if v.kind]
        left, right = self.node(LEFT).host, self.node(RIGHT).host
        if self.erased or not left or not right or self.world.now < 4 * SECOND:
            return
        covers = (left.instances[told].ck.safe_pos or [0])[0]
        armed = covers and covers % 40 == 0
        line = self.world.accepted[0, self.world.current(-1, 0)]
        after = right.instances[both]
        if armed and after.front + after.past > line[covers - 1][0] + 100_000:
            self.erased = True
            self.world.after(1, lambda: self.world.erase(self.node(LEFT)))
            self.world.after(SECOND // 2, lambda: self.boot(LEFT))


class ErasedBeforeCheckpoint(Directed):
    """The flash of a source's board is erased and its operator starts elsewhere, before anything of it was
    permanent: what its consumer has of the old samples cannot be put out again.
    """

    def process(self) -> Plan:
        p = Process("early", checkpoints="ecoc", every=1000, level="peer", batch=10, batch_ms=500)
        for host in ("left", "spare"):
            p.host(host, heap_kb=256)
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        shifted = values >> Affine().named("shifted").on("spare", backup=["gateway", "left"])
        p.lake("early/shifted", shifted)
        plan: Plan = p.plan()
        return plan

    def script(self) -> list[tuple[float, Any]]:
        return [
            (6, lambda: [self.world.erase(self.node(LEFT)), self.crash(SPARE)]),
            (6.4, lambda: self.boot(LEFT)),
            (7, lambda: self.boot(SPARE)),
        ]


def _noise(seed: int, v: int, batch: Batch, taken: int) -> None:
    """Values that no code makes shorter."""
    values = _NOISE.setdefault(seed, [random.Random(seed * 997 + i).getrandbits(63) for i in range(997)])
    for k, column in enumerate(batch.cols):
        for i in range(batch.n):
            x = values[(taken + i) * 7 % 997] ^ k
            column[i] = x if column.typecode == "q" else x & 0x7FFF


_NOISE: dict[int, list[int]] = {}

SCHEDULES: dict[str, type[Directed]] = {
    "zombie": Zombie,
    "zombie after restart": ZombieAfterRestart,
    "holder elsewhere": HolderElsewhere,
    "checkpoint left": CheckpointLeft,
    "moved back": MovedBack,
    "erased holder": ErasedHolder,
    "decides unstored": DecidesUnstored,
    "further and over": FurtherAndOver,
    "course left": CourseLeft,
    "lake away": LakeAway,
    "changes": Changes,
    "both ends": BothEnds,
    "request lost": RequestLost,
    "dead input": DeadInput,
    "in turn": InTurn,
    "taken back": TakenBack,
    "taken back unnamed": TakenBackUnnamed,
    "taken back late": TakenBackLate,
    "passed over": PassedOver,
    "no input open": NoInputOpen,
    "asleep": Asleep,
    "dropping": Dropping,
    "erased": Erased,
    "erased at rest": ErasedAtRest,
    "erased and restarted": ErasedAndRestarted,
    "erased among changes": ErasedAmongChanges,
    "begins unknown": BeginsUnknown,
    "behind": Behind,
    "full": Full,
    "stale pending": StalePending,
    "drop and move": DropMove,
    "many decisions": ManyDecisions,
    "many decisions of two": ManyDecisionsOfTwo,
    "proposal lost": ProposalLost,
    "got lost": GotLost,
    "epoch clash": EpochClash,
    "gateway erased": GatewayErased,
    "gateway erased after changes": GatewayErasedAfterChanges,
    "gateway erased, then moved": GatewayErasedThenMoved,
    "gateway erased with an operator": GatewayErasedWithOperator,
    "timer set earlier": TimerEarlier,
    "many operators": ManyOperators,
    "least log": Sized,
    "least log, large state": SizedLarge,
    "least log, sliding": SizedSliding,
    "least log, wide": SizedWide,
    "least log, greenhouse": SizedGreenhouse,
    "dead holder": DeadHolder,
    "dead backup": DeadBackup,
    "only keeps": OnlyKeeps,
    "dead source": DeadSource,
    "dead source moved": DeadSourceMoved,
    "dead source closed": DeadSourceClosed,
    "dead asleep": DeadAsleep,
    "dead in a loop": DeadInLoop,
    "erased home": ErasedHome,
    "erased behind a timer": ErasedBehindTimer,
    "erased before a checkpoint": ErasedBeforeCheckpoint,
}
