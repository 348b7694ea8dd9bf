# mypy: disable-error-code="func-returns-value"
"""Decisions: parameters that change, where they take effect, and how many may be open."""

from __future__ import annotations

from functools import partial
from typing import Any

from headwater.process import Affine, Debounce, Process
from headwater.protocol import frames
from headwater.runtime.decisions import answered
from headwater.storage.keyspace import HELD, checkpoint_key

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


class DecisionUnconfirmed(Directed):
    """An operator has taken a change. It is cut off and loses power before another host has stored that: in
    its next boot, too, it puts nothing out before one has. None does, and it dies; another host goes on
    without.
    """

    SECONDS = 30

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.decides = False
        self.world.checks.append(self.watch)

    def script(self) -> list[tuple[float, Any]]:
        return [(6, lambda: self.configure(SHIFTED, offset=7))]

    def watch(self, node: Node) -> None:
        inst = self.shifted_at(SPARE, node)
        if inst and inst.deciding and not self.decides:
            self.decides = True
            world = self.world
            self.alone(SPARE)
            world.after(SECOND, lambda: self.crash(SPARE))
            world.after(3 * SECOND // 2, lambda: self.boot(SPARE))
            world.after(4 * SECOND, self.heard)
            world.after(8 * SECOND, lambda: self.kill(SPARE))
            world.after(9 * SECOND, self.goes_on)

    def heard(self) -> None:
        """It is back, and no other host stores its checkpoint."""
        self.keep(False)
        self.world.cut.clear()

    def goes_on(self) -> None:
        self.keep(True)
        self.move(SHIFTED, LEFT)

    def keep(self, so: bool) -> None:
        for number in (GATEWAY, LEFT):
            self.withhold(self.node(number).host, not so)

    def alone(self, number: int, *but: int) -> None:
        """Cut off a host from all others but these."""
        for other in range(len(self.plan.hosts)):
            if other not in (number, *but):
                self.cut(number, other)


class DecidedAlone(DecisionUnconfirmed):
    """The same, but it lives: the operator starts on another board, which goes past that place without the
    change. Then it returns to the first host, whose flash has a checkpoint after the change.
    """

    def script(self) -> list[tuple[float, Any]]:
        left = self.node(LEFT)
        return [
            (6, lambda: self.configure(SHIFTED, offset=7)),
            (7, lambda: [self.withhold(left.host, True, frames.CONFIG), self.move(SHIFTED, LEFT)]),
            (11.5, lambda: self.move(SHIFTED, SPARE)),
            (14, lambda: self.withhold(left.host, False)),
        ]

    def watch(self, node: Node) -> None:
        inst = self.shifted_at(SPARE, node)
        if inst and inst.deciding and not self.decides:
            self.decides = True
            self.alone(SPARE)
            self.world.after(4 * SECOND, self.world.cut.clear)


class DecidedByFew(DecisionUnconfirmed):
    """At level peers=2 one of two holders has stored a change when its operator dies, and is cut off. Another
    host goes on without it, and dies before a checkpoint of its epoch is stored at the level. The third finds
    the first holder. Neither of the first two has put anything out that the third does not.
    """

    SECONDS = 30
    HOLDER, SECOND_HOST = 3, 4

    def process(self) -> Process:
        p = boards("few", "left", "spare", "holder", "other", level="peers=2")
        return shifted(p, "spare", "holder", "other", cap=600)

    def script(self) -> list[tuple[float, Any]]:
        return [
            (5.5, lambda: self.keep(False)),
            (6, lambda: self.configure(SHIFTED, offset=7)),
            (9, lambda: self.move(SHIFTED, self.SECOND_HOST)),
            (13, lambda: self.kill(self.SECOND_HOST)),
            (13.5, lambda: self.keep(True)),
            (14, lambda: self.heal_all_but(SPARE)),
            (14.5, lambda: self.move(SHIFTED, self.HOLDER)),
        ]

    def watch(self, node: Node) -> None:
        holder = self.node(self.HOLDER)
        place = holder.blobs.get(checkpoint_key(SHIFTED, HELD))
        if place and place[1][-1] and not self.decides:
            self.decides = True
            self.kill(SPARE)
            self.alone(self.HOLDER)

    def heal_all_but(self, number: int) -> None:
        self.world.cut = {pair for pair in self.world.cut if number in pair}


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
