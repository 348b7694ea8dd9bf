"""Schedules that chance would not find: each is a script of faults over a small process of its own."""

from __future__ import annotations

from typing import Any

from headwater.plan import Plan
from headwater.process import Affine, Process

from .scenario import Scenario
from .world import SECOND, Node


def relay() -> Plan:
    """One source, one operator on a host of its own, the lake."""
    p = Process("relay", checkpoints="uncoordinated", every=20, level="peer", batch=10, batch_ms=500)
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
    """A history in which only `faults_at` goes wrong, at its seconds."""

    def __init__(self, seed: int, seconds: int = 20) -> None:
        super().__init__(relay(), seed, seconds, faults=False)
        for second, action in self.script():
            self.world.at(int(second * SECOND), action)

    def script(self) -> list[tuple[float, Any]]:
        raise NotImplementedError

    def node(self, number: int) -> Node:
        return self.world.nodes[number]

    def cut(self, a: int, b: int) -> None:
        self.world.cut |= {(a, b), (b, a)}

    def heal(self, a: int, b: int) -> None:
        self.world.cut -= {(a, b), (b, a)}

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


SCHEDULES: dict[str, type[Directed]] = {"zombie": Zombie, "zombie after restart": ZombieAfterRestart}
