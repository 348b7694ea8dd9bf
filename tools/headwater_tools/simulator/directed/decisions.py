# mypy: disable-error-code="func-returns-value"
"""Decisions: parameters that change, where they take effect, and how many may be open."""

from __future__ import annotations

from functools import partial
from typing import Any

from headwater.process import Affine, Debounce, Process
from headwater.protocol import frames
from headwater.runtime.decisions import answered, granted

from ..world import SECOND, Node
from .base import GATEWAY, LEFT, RIGHT, SHIFTED, SPARE, Directed, boards, shifted


class DecidesUnstored(Directed):
    """The host of an operator is cut off, and continues for a while: no host acknowledges what it stores.
    Another host takes over from earlier, is asked for a change, and is lost before any other host has a
    checkpoint of its epoch. Then the first host takes over again, from further than the change could be.
    """

    TAKES_OVER, STORES = 3, 4

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.world.checks.append(self.watch)

    def process(self) -> Process:
        p = boards("unstored", "left", "right", "spare", "stores", checkpoints="uncoordinated")
        return shifted(p, "right", "stores", "spare", cap=600)

    def script(self) -> list[tuple[float, Any]]:
        return [
            (5, lambda: [self.cut(RIGHT, n) for n in (GATEWAY, self.TAKES_OVER, self.STORES)]),
            (8, lambda: self.cut(RIGHT, LEFT)),
            (9, lambda: self.move(SHIFTED, self.TAKES_OVER)),
            (11, lambda: self.configure(SHIFTED, offset=7)),
            (14, lambda: self.kill(self.TAKES_OVER)),
            (14.5, self.world.cut.clear),
            (15, lambda: self.move(SHIFTED, RIGHT)),
        ]

    def watch(self, node: Node) -> None:
        """The new host has heard from the holder and from the source; then only the gateway reaches it."""
        inst = self.shifted_at(self.TAKES_OVER, node)
        if self.world.now < self.storm_us and inst and not inst.recalling and answered(inst):
            self.cut(self.TAKES_OVER, self.STORES)
            self.cut(self.TAKES_OVER, LEFT)


class FurtherAndOver(DecidesUnstored):
    """The same, but no host is lost: the first host returns, and is the only one that can store a
    checkpoint for the new epoch. Its own checkpoint is further, and outdated.
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


class ManyDecisions(Directed):
    """Parameters change many times while the lake is away and no checkpoint becomes permanent, then power
    goes. The gateway may refuse changes that are too many; those it accepted have their position in every
    boot.
    """

    CHANGES = 80

    SECONDS = 50

    def process(self) -> Process:
        p = boards("relay", "left", "spare")
        return shifted(p, "spare", "gateway", "left", cap=2000, durable="lake")

    def script(self) -> list[tuple[float, Any]]:
        end = 5 + 0.35 * self.CHANGES
        out: list[tuple[float, Any]] = [(4, lambda: self.open_lake(False))]
        out += [(5 + 0.35 * i, partial(self.change, i)) for i in range(self.CHANGES)]
        out += [(end + 3.5, lambda: self.crash(SPARE)), (end + 4, lambda: self.boot(SPARE))]
        return [*out, (end + 9, lambda: self.open_lake(True))]

    def change(self, i: int) -> None:
        for v in [v.index for v in self.plan.vertices if v.kind]:
            self.configure(v, offset=1 + i)


class ManyDecisionsOfTwo(ManyDecisions):
    """The same with two operators on the board, whose changes share the table of its log."""

    CHANGES = 58

    def process(self) -> Process:
        p = boards("relay", "left", "spare")
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        for name in ("one", "two"):
            shifted = values >> Affine().named(name).on("spare", backup=["gateway", "left"])
            p.lake("relay/" + name, shifted, cap=2000, durable="lake")
        return p


class ProposalLost(Directed):
    """An operator proposes where a change takes effect, and loses power before it hears that this was
    granted: its next boot must stop there too.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.proposed = False
        self.world.checks.append(self.watch)

    def script(self) -> list[tuple[float, Any]]:
        return [(6, lambda: self.configure(SHIFTED, offset=7))]

    def watch(self, node: Node) -> None:
        inst = self.shifted_at(SPARE, node)
        if inst and inst.decisions and not self.proposed:
            self.proposed = True
            world = self.world
            world.cut.add((GATEWAY, SPARE))
            world.after(SECOND, lambda: self.crash(SPARE))
            world.after(3 * SECOND // 2, lambda: self.boot(SPARE))
            world.after(4 * SECOND, lambda: self.heal(GATEWAY, SPARE))


class ProposalNotTold(Directed):
    """An operator has stored where a change is to take effect, and no other host hears of it. It starts on
    another board, which has not heard of the change yet, and returns with a checkpoint after that position.
    """

    def script(self) -> list[tuple[float, Any]]:
        left = self.node(LEFT)
        return [
            (5, lambda: self.world.cut.add((SPARE, GATEWAY))),
            (6, lambda: self.configure(SHIFTED, offset=7)),
            (7, lambda: [self.withhold(left.host, True, frames.CONFIG), self.move(SHIFTED, LEFT)]),
            (11, lambda: self.move(SHIFTED, SPARE)),
            (14, lambda: [self.world.cut.clear(), self.withhold(left.host, False)]),
        ]


class GrantHalfStored(Directed):
    """The gateway loses power when it has stored the position of a change, and not yet that it is granted: no
    host knows it. The operator starts elsewhere, and passes that position without the change.
    """

    SECONDS = 30

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.half = False
        self.world.checks.append(self.watch)

    def script(self) -> list[tuple[float, Any]]:
        left = self.node(LEFT)
        return [
            (6, lambda: self.configure(SHIFTED, offset=7)),
            (8, lambda: [self.withhold(left.host, True, frames.CONFIG), self.move(SHIFTED, LEFT)]),
            (9, lambda: self.boot(GATEWAY)),
            (14, lambda: self.withhold(left.host, False)),
        ]

    def watch(self, node: Node) -> None:
        if node.number != GATEWAY or not node.host or self.half:
            return
        host = node.host
        store = host.store
        put_blob = store.put_blob

        def last(key: int, data: Any) -> None:
            put_blob(key, data)
            if granted(host, SHIFTED, 1)[1] is not None and not self.half:
                self.half = True
                node.flash.arm(node.flash.op)
                self.cut(SPARE, GATEWAY)
                self.cut(SPARE, LEFT)
                self.world.after(6 * SECOND, self.world.cut.clear)

        if "put_blob" not in store.__dict__:
            store.put_blob = last  # type: ignore[method-assign]


class TimerEarlier(Directed):
    """After a change an entry sets the timer earlier than it was. Later entries wait for it, also if all of
    them arrive at once."""

    SECONDS = 15

    def process(self) -> Process:
        p = boards("quiet", "left", "spare", every=100, level="local")
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        p.lake("quiet/told", values >> Debounce(us=400_000).named("told").on("spare"))
        return p

    def script(self) -> list[tuple[float, Any]]:
        return [
            (6, lambda: self.cut(LEFT, SPARE)),
            (6.6, lambda: self.configure(SHIFTED, us=20_000)),
            (9, lambda: self.heal(LEFT, SPARE)),
        ]
