"""A script of faults over a small process: what all schedules have in common."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headwater.plan.model import Plan
from headwater.process import Affine, Process
from headwater.process.builder import FLASH_KB
from headwater.protocol import frames
from headwater.protocol.moves import COMMAND
from headwater.runtime.exchange import Exchange
from headwater.runtime.gateway_host import GatewayHost
from headwater.runtime.host import Host

from ..scenario import Scenario
from ..world import SECOND, Hardware, Node


def boards(
    name: str,
    *hosts: str,
    checkpoints: str = "ecoc",
    every: int = 20,
    level: str = "peer",
    batch: int = 10,
    batch_ms: int = 500,
    heap_kb: int = 256,
    flash_kb: int = FLASH_KB,
) -> Process:
    """A process on these hosts, without any stream yet. A history of seconds has many of its checkpoints."""
    p = Process(name, checkpoints=checkpoints, every=every, level=level, batch=batch, batch_ms=batch_ms)
    for host in hosts:
        p.host(host, heap_kb=heap_kb, flash_kb=flash_kb)
    return p


def shifted(p: Process, on: str, *backup: str, **lake: Any) -> Process:
    """The process with one source on its left board, one operator, and the lake after it."""
    values = p.source("values", "v:i16", rate_hz=20, on="left")
    p.lake(p.name + "/shifted", values >> Affine().named("shifted").on(on, backup=list(backup)), **lake)
    return p


def relay(checkpoints: str = "uncoordinated") -> Process:
    """One source, one operator on a host of its own, the lake."""
    p = boards("relay", "left", "spare", checkpoints=checkpoints)
    return shifted(p, "spare", "gateway", "left", cap=600)


GATEWAY, LEFT, SPARE = 0, 1, 2
RIGHT = 2
SHIFTED = 1  # the operator's vertex


class Directed(Scenario):
    """A history in which only what its script says goes wrong, and when."""

    SECONDS = 20
    WHY = COMMAND
    PACE = Host.PACE  # hosts decide as slowly as real ones: what moves, the script moves

    def __init__(self, seed: int) -> None:
        self.refused = 0  # changes that the gateway refused
        plan: Plan = self.process().plan()
        made_of = replace(self.hardware(plan), pace=self.PACE)
        super().__init__(plan, seed, self.SECONDS, faults=False, made_of=made_of)
        for second, action in self.script():
            self.world.at(int(second * SECOND), action)

    def process(self) -> Process:
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

    def kill(self, number: int) -> None:
        self.world.kill(self.node(number))

    def erase(self, number: int) -> None:
        self.world.erase(self.node(number))

    def boot(self, *numbers: int) -> None:
        for number in numbers:
            self.world.boot(self.node(number))

    def open_lake(self, is_open: bool) -> None:
        self.world.outbox.lake_open = is_open

    def vertex(self, name: str) -> int:
        return next(v.index for v in self.plan.vertices if v.name == name)

    def shifted_at(self, number: int, node: Node) -> Any:
        """The operator's instance, where `node` is that host and runs it."""
        return node.host.instances.get(SHIFTED) if node.host and node.number == number else None

    def withhold(self, host: Any, so: bool, kind: int = frames.CKPT) -> None:
        """While `so`, a host gets no message of that kind, and so no checkpoint of another."""
        if so:
            exchange = host.exchange
            exchange.may_say = lambda sender, m: m[0] != kind and Exchange.may_say(exchange, sender, m)
        else:
            host.exchange.__dict__.pop("may_say", None)

    def unaware(self, host: Any) -> None:
        """In this boot a host does not hear any more where operators run, whichever message tells it."""
        host.heard_where = lambda *_: None
        self.withhold(host, True, frames.WHERE)

    def configure(self, v: int, **params: int) -> None:
        if self.node(GATEWAY).up:
            self.world.call(self.node(GATEWAY), lambda host: self.ask(host, v, params), "configure")

    def ask(self, host: GatewayHost, v: int, params: dict[str, int]) -> None:
        """Request a change; the gateway may refuse it while too many are open."""
        try:
            host.configure(v, params)
        except ValueError:
            self.refused += 1

    def hand(self, v: int, giver: int, taker: int) -> None:
        """Have a host hand operator v over, for the reason WHY."""
        node = self.node(giver)
        if node.host:
            self.world.call(node, lambda host: host.move(v, taker, self.WHY, node.mono()), "move")

    def move(self, v: int, to: int) -> None:
        """Start operator v elsewhere, as if its host were dead."""
        away, self.place[v] = self.place[v], to
        self.epochs[v] = self.sameness.tops[v] = self.sameness.tops[v] + 1
        self.sameness.untaken(v, away)
        node = self.node(to)
        self.world.call(node, lambda host: host.activate(v, self.epochs[v], node.mono()))
