# mypy: disable-error-code="func-returns-value"
"""Flash that is erased: of a source's board, of an operator's, and the database of the gateway."""

from __future__ import annotations

from typing import Any

from headwater.data.batch import Batch
from headwater.offboard.interfaces import Readable
from headwater.process import Affine, Debounce, Decimate, Process, Union
from headwater.runtime.host import Host
from headwater.storage.keyspace import F_WHERE

from ..world import SECOND, Node
from .base import GATEWAY, LEFT, RIGHT, SHIFTED, SPARE, Directed, boards, shifted


class Erased(Directed):
    """The flash of a source's host is erased: its numbering begins again, in another incarnation, while
    frames of the old one are still on their way. Its operator continues with the new one.
    """

    def script(self) -> list[tuple[float, Any]]:
        self.world.delay_us = (100_000, 900_000)
        return [
            (6, lambda: self.crash(LEFT)),
            (6.2, lambda: self.erase(LEFT)),
            (6.3, lambda: self.boot(LEFT)),
        ]

    def arrived(self) -> bool:
        begun = self.world.order[0]
        if len(begun) != 2:
            self.world.error("the source began %d times: %r" % (len(begun), begun))
        return super().arrived()


class ErasedAtRest(Erased):
    """The same after the operator has restarted, from a checkpoint after which nothing was left to take: only
    that checkpoint knows the end of the old incarnation.
    """

    def script(self) -> list[tuple[float, Any]]:
        def save(host: Host) -> None:
            ck = host.instances[SHIFTED].ck
            ck.commit(ck._take(b"", 0), True)

        return [
            (6, lambda: self.crash(LEFT)),
            (7, lambda: self.world.call(self.node(SPARE), save)),
            (7.5, lambda: [self.erase(LEFT), self.crash(SPARE)]),
            (8, lambda: self.boot(LEFT, SPARE)),
        ]


class ErasedAndRestarted(Erased):
    """The same, and the operator loses power just after it has decided to go on with the new incarnation.
    What it had of the old one since its last checkpoint exists nowhere else any more.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.decided = False
        self.world.checks.append(self.watch)

    def process(self) -> Process:
        p = boards("relay", "left", "spare", checkpoints="uncoordinated", every=90)
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        few = values >> Decimate(k=150).named("few").on("spare", backup=["gateway", "left"])
        p.lake("relay/few", few)
        return p

    def watch(self, node: Node) -> None:
        inst = self.shifted_at(SPARE, node)
        if inst and inst.decided and not self.decided:
            self.decided = True
            self.world.after(1, lambda: self.crash(SPARE))
            self.world.after(SECOND, lambda: self.boot(SPARE))


class ErasedAmongChanges(Erased):
    """The same while as many changes are open as allowed: no input brings another checkpoint to cover them,
    and the decision for the new incarnation must be possible all the same.
    """

    def script(self) -> list[tuple[float, Any]]:
        changes = [(6.25, lambda i=i: self.configure(SHIFTED, offset=i)) for i in range(1, 9)]
        return [*super().script(), *changes]


class GatewayErased(Directed):
    """The gateway loses its database, and with it what the lake has not acknowledged."""

    SECONDS = 40

    def script(self) -> list[tuple[float, Any]]:
        return [
            (7, lambda: self.open_lake(False)),
            (10, lambda: self.erase(GATEWAY)),
            (12, lambda: self.boot(GATEWAY)),
            (14, lambda: self.open_lake(True)),
        ]


class GatewayErasedAfterChanges(GatewayErased):
    """The same after some changes of parameters: their numbers continue, and new ones are accepted."""

    def script(self) -> list[tuple[float, Any]]:
        changes = [(2 + i, lambda i=i: self.configure(SHIFTED, offset=1 + i)) for i in range(5)]
        later = [(20 + i, lambda i=i: self.configure(SHIFTED, offset=50 + i)) for i in range(3)]
        return [*changes, *super().script(), *later]


class GatewayErasedThenMoved(GatewayErased):
    """The same while no checkpoint covers the changes; then the operator starts on a host that never heard
    of them. The gateway has learned all of them by then.
    """

    def process(self) -> Process:
        p = boards("relay", "left", "spare")
        return shifted(p, "spare", "left", "gateway", cap=900, durable="lake")

    def script(self) -> list[tuple[float, Any]]:
        changes = [(4 + i, lambda i=i: self.configure(SHIFTED, offset=1 + i)) for i in range(5)]
        return [
            (1, lambda: self.open_lake(False)),
            *changes,
            (10, lambda: self.erase(GATEWAY)),
            (12, lambda: self.boot(GATEWAY)),
            (20, lambda: self.crash(SPARE)),
            (21, lambda: self.move(SHIFTED, LEFT)),
            (24, lambda: self.open_lake(True)),
            (25, lambda: self.boot(SPARE)),
        ]


class GatewayErasedDecisionLeft(GatewayErased):
    """An operator takes a change, and no other host stores that; it starts at the gateway, and takes the
    change elsewhere. The gateway loses its database: the first host still has a checkpoint after the change.
    """

    def script(self) -> list[tuple[float, Any]]:
        return [
            (5, lambda: self.world.cut.update([(SPARE, GATEWAY), (SPARE, LEFT)])),
            (6, lambda: self.configure(SHIFTED, offset=7)),
            (8, lambda: self.move(SHIFTED, GATEWAY)),
            (14, lambda: self.world.cut.clear()),
            (20, lambda: self.erase(GATEWAY)),
            (21, lambda: self.boot(GATEWAY)),
            (25, lambda: self.move(SHIFTED, LEFT)),
        ]


class GatewayErasedDecisionPassed(GatewayErasedDecisionLeft):
    """The same, and the operator starts on another board, which stores a checkpoint after the change."""

    def script(self) -> list[tuple[float, Any]]:
        return [
            (5, lambda: self.world.cut.add((SPARE, GATEWAY))),
            (6, lambda: self.configure(SHIFTED, offset=7)),
            (8, lambda: [self.cut(SPARE, LEFT), self.cut(SPARE, GATEWAY), self.move(SHIFTED, LEFT)]),
            (14, lambda: self.world.cut.clear()),
            (20, lambda: self.erase(GATEWAY)),
            (21, lambda: self.boot(GATEWAY)),
        ]


class GatewayErasedWithOperator(Directed):
    """An operator on the gateway takes a change, and the gateway loses its database as soon as another board
    has an output that followed it: only the gateway knew of the change.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.erased = False
        self.world.checks.append(self.watch)

    def process(self) -> Process:
        p = boards("pair", "left", "right", every=100)
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        first = values >> Affine().named("first").on("gateway", backup=["left"])
        p.lake("pair/out", first >> Affine().named("second").on("right", backup=["left"]))
        return p

    def script(self) -> list[tuple[float, Any]]:
        return [(6, lambda: self.configure(1, offset=7))]

    def watch(self, node: Node) -> None:
        decided = self.world.decisions().get(1)
        right = self.node(RIGHT).host
        inst = right.instances.get(2) if right else None
        if decided and inst and inst.inputs[0].cur.xi > decided[0][0][0] and not self.erased:
            self.erased = True
            world = self.world
            world.after(0, lambda: self.erase(GATEWAY))
            world.after(SECOND, lambda: self.move(1, LEFT))
            world.after(2 * SECOND, lambda: self.boot(GATEWAY))


class GatewayErasedAfterRestart(GatewayErasedWithOperator):
    """The same, but no keeper hears of a checkpoint after the change before the gateway restarts."""

    def script(self) -> list[tuple[float, Any]]:
        return [
            (6, lambda: self.configure(1, offset=7)),
            (7, lambda: self.crash(GATEWAY)),
            (7.5, lambda: self.boot(GATEWAY)),
        ]

    def watch(self, node: Node) -> None:
        if node.host:
            self.withhold(node.host, node.number > 0 and 6 * SECOND < self.world.now < 10 * SECOND)
        super().watch(node)


class ErasedHome(Directed):
    """The flash of a board with a source and its operator is erased: what the operator put out before stays
    as it was, and the board does not begin with it from the start.
    """

    def process(self) -> Process:
        p = boards("home", "left", "spare")
        return shifted(p, "left", "spare", "gateway", cap=600)

    def script(self) -> list[tuple[float, Any]]:
        return [(6, lambda: self.erase(LEFT)), (6.4, lambda: self.boot(LEFT))]


class ErasedAndTold(Directed):
    """The flash of an operator's host is erased. The gateway tells that the operator starts there, and power
    fails when the host has stored that, before it has stored that it runs the operator.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.waits = False
        self.world.checks.append(self.watch)

    def script(self) -> list[tuple[float, Any]]:
        def erase() -> None:
            self.erase(SPARE)
            self.waits = True

        return [(6, erase), (6.4, lambda: self.boot(SPARE)), (9, lambda: self.boot(SPARE))]

    def watch(self, node: Node) -> None:
        if node.number != SPARE or not node.host or not self.waits:
            return
        self.waits = False
        store = node.host.store
        put = store.put

        def last(key: int, value: Readable) -> None:
            put(key, value)
            if key == F_WHERE + SHIFTED:
                node.flash.arm(node.flash.op)

        store.put = last  # type: ignore[method-assign]


class ErasedAfterChange(ErasedHome):
    """The same after a change, while the source rests. Checkpoints are rare, and that of the change is the
    last one: what leads there is gone with the board.
    """

    def process(self) -> Process:
        p = boards("home", "left", "spare", every=1000)
        return shifted(p, "left", "spare", "gateway", cap=3000)

    def script(self) -> list[tuple[float, Any]]:
        return [
            (5, lambda: self.world.asleep.add(LEFT)),
            (6, lambda: self.configure(SHIFTED, offset=7)),
            (9, lambda: self.erase(LEFT)),
            (9.4, lambda: self.boot(LEFT)),
            (11, lambda: self.world.asleep.discard(LEFT)),
        ]


class ErasedBehindTimer(Directed):
    """The flash of a board with a source and its operator is erased. In the checkpoint from which the
    operator continues a timer runs that later samples have stopped; they are lost, and another board has
    continued after the boundary that they set.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.erased = False
        self.world.patterns[0] = self.blips
        self.world.checks.append(self.watch)

    def blips(self, v: int, batch: Batch, taken: int) -> None:
        """One of forty samples, the last one before a checkpoint, is not like the others."""
        for i in range(batch.n):
            batch.cols[0][i] = int((taken + i) % 40 == 39)

    def process(self) -> Process:
        p = boards("armed", "left", "right", "spare", batch=4, batch_ms=200)
        a = p.source("a", "v:i16", rate_hz=20, on="left")
        b = p.source("b", "v:i16", rate_hz=20, on="right")
        told = a >> Debounce(us=100_000).named("told").on("left", backup=["spare", "gateway"])
        both = Union().named("both").on("right", backup=["spare", "gateway"])(told, b)
        p.lake("armed/both", both)
        return p

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
            self.world.after(1, lambda: self.erase(LEFT))
            self.world.after(SECOND // 2, lambda: self.boot(LEFT))


class ErasedBeforeCheckpoint(Directed):
    """The flash of a source's board is erased and its operator starts elsewhere, before anything of it was
    permanent: what its consumer has of the old samples cannot be put out again.
    """

    def process(self) -> Process:
        p = boards("early", "left", "spare", every=1000)
        return shifted(p, "spare", "gateway", "left")

    def script(self) -> list[tuple[float, Any]]:
        return [
            (6, lambda: [self.erase(LEFT), self.crash(SPARE)]),
            (6.4, lambda: self.boot(LEFT)),
            (7, lambda: self.boot(SPARE)),
        ]


class GatewayErasedUnderOperator(GatewayErased):
    """The same with an operator on the gateway. The checkpoint that its keeper has knows what the lost outbox
    had acknowledged: more than the operator had given there. What it makes again the new outbox must get.
    """

    def process(self) -> Process:
        p = boards("pair", "left")
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        p.lake("pair/out", values >> Affine().named("first").on("gateway", backup=["left"]))
        return p
