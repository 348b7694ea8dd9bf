# mypy: disable-error-code="func-returns-value"
"""Schedules that chance would not find: each is a script of faults over a small process of its own."""

from __future__ import annotations

import random
from typing import Any

from headwater.batch import Batch
from headwater.host import Host
from headwater.log import Log
from headwater.plan import Plan
from headwater.process import Affine, Process, SumJoin, Union

from ..examples import sp4
from .scenario import Scenario
from .world import SECOND, SITE_US, Node


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
SHIFTED = 1  # the operator's vertex


class Directed(Scenario):
    """A history in which only what its script says goes wrong, and when."""

    def __init__(self, seed: int, seconds: int = 20) -> None:
        super().__init__(self.process(), seed, seconds, faults=False)
        for second, action in self.script():
            self.world.at(int(second * SECOND), action)

    def process(self) -> Plan:
        return relay()

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
            self.world.call(self.node(GATEWAY), lambda host: host.configure(v, params))

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
    """The same, but the producer restarts before the new instance has acknowledged anything: no name tells
    of the newer epoch, only what first contact wrote into the producer's flash.
    """

    def script(self) -> list[tuple[float, Any]]:
        world = self.world
        return [
            (5, lambda: [self.cut(SPARE, GATEWAY), self.cut(SPARE, LEFT)]),
            (6, lambda: self.move(SHIFTED, GATEWAY)),
            (
                6.3,
                lambda: world.call(self.node(GATEWAY), lambda host: host.configure(SHIFTED, {"offset": 7})),
            ),
            (6.6, lambda: [self.cut(GATEWAY, LEFT), world.crash(self.node(SPARE))]),
            (6.8, lambda: world.crash(self.node(LEFT))),
            (7.4, lambda: world.boot(self.node(LEFT))),
            (8, lambda: [self.heal(SPARE, LEFT), world.boot(self.node(SPARE))]),
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
        join = [v.index for v in self.plan.vertices if v.kind][0]

        def reopen(host: Host) -> None:
            host.reopen(join, 1, host.instances[join].inputs[1].inc, host.site())

        return [
            (6, lambda: self.crash(2)),
            (8, lambda: world.call(self.node(GATEWAY), lambda host: host.close(join, 1))),
            (12, lambda: self.boot(2)),
            (14, lambda: world.call(self.node(GATEWAY), reopen)),
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
        return [(6, lambda: self.crash(LEFT)), (6.2, self.erase), (6.3, lambda: self.boot(LEFT))]

    def erase(self) -> None:
        world, node = self.world, self.node(LEFT)
        Log.format(node.flash, world.random.getrandbits(64))
        world.provision(node)
        node.blobs = {}

    def arrived(self) -> bool:
        begun = self.world.order[0]
        if len(begun) != 2:
            self.world.error("the source began %d times: %r" % (len(begun), begun))
        return super().arrived()


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


SCHEDULES: dict[str, type[Directed]] = {
    "zombie": Zombie,
    "zombie after restart": ZombieAfterRestart,
    "holder elsewhere": HolderElsewhere,
    "lake away": LakeAway,
    "changes": Changes,
    "both ends": BothEnds,
    "request lost": RequestLost,
    "dead input": DeadInput,
    "asleep": Asleep,
    "dropping": Dropping,
    "erased": Erased,
    "behind": Behind,
    "full": Full,
}
