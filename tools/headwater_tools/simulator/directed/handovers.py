"""Operators that are handed over, and what fails in the middle of it. Where a schedule needs a moment, its
seed draws it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from headwater.plan.model import Plan
from headwater.process import Affine, Average, Decimate, Process, Union
from headwater.protocol import frames
from headwater.protocol.moves import COMMAND, FLEE
from headwater.protocol.offers import BUSY, OK
from headwater.runtime import incoming, lifecycle, restore
from headwater.runtime.exchange import Exchange
from headwater.runtime.moving import OFFERING
from headwater.testing.cut_flash import KINDS

from ..scenario import Result
from ..world import SECOND, Hardware, Node
from .base import GATEWAY, SHIFTED, Directed, boards, shifted

HOME, OTHER = 2, 3  # the hosts of the operator: its first one, and a backup
AT = 8.3  # s: when it is moved


def said(sender: int, m: Any, host: Any) -> None:
    """A message that was kept back arrives."""
    host.exchange.hear(sender, m)
    host.pump()


class Handed(Directed):
    """The operator is moved from its first host to another one."""

    PACE = Hardware().pace
    LEVEL = "peer"
    STRATEGY = "ecoc"
    PLANNED: Sequence[int] = (1,)  # how many moves are completed
    ENDS: Sequence[int] = (OTHER,)  # where the operator is at the end
    BACKUP = ("other", "gateway")
    TO = OTHER

    def __init__(self, seed: int) -> None:
        self.moment = seed * 7919 % 251  # 0 .. 250
        super().__init__(seed)

    def process(self) -> Process:
        p = boards("handed", "left", "home", "other", level=self.LEVEL, checkpoints=self.STRATEGY)
        return shifted(p, "home", *self.BACKUP, cap=600)

    def script(self) -> list[tuple[float, Any]]:
        return [(AT, lambda: self.hand(SHIFTED, HOME, self.TO)), *self.faults_at()]

    def faults_at(self) -> list[tuple[float, Any]]:
        return []

    def finish(self) -> Result:
        result = super().finish()
        if self.handovers.count not in self.PLANNED:
            self.world.error("%d planned moves, and not %r" % (self.handovers.count, tuple(self.PLANNED)))
        place = self.place[self.vertex("shifted")]
        if place not in self.ENDS:
            self.world.error("the operator runs at %s" % self.world.name(place))
        if self.takeovers.count:
            self.world.error("%d takeovers" % self.takeovers.count)
        return result

    def until(self, what: Any, action: Any, end: float = 20) -> None:
        """Do it at the first millisecond at which that holds."""
        if what():
            action()
        elif self.world.now < end * SECOND:
            self.world.after(1000, lambda: self.until(what, action, end))

    def keep_back(self, number: int, kind: int) -> list[tuple[int, Any]]:
        """A host gets no message of that kind from now on; they are kept, with their senders."""
        kept: list[tuple[int, Any]] = []
        host: Any = self.node(number).host
        exchange = host.exchange

        def may_say(sender: int, m: Any) -> bool:
            if m[0] == kind:
                kept.append((sender, m))
                return False
            return Exchange.may_say(exchange, sender, m)

        exchange.may_say = may_say
        return kept

    def let(self, number: int) -> None:
        host: Any = self.node(number).host
        if host:
            host.exchange.__dict__.pop("may_say", None)


class HandedBack(Handed):
    """It is moved, and back again before it takes anything more: its first host has a checkpoint where it
    stands, which does not know what was promised since.
    """

    PLANNED = (2,)
    ENDS = (HOME,)
    SECONDS = 60

    def process(self) -> Process:
        p = boards("handed", "left", "home", "other", "right", level=self.LEVEL, checkpoints=self.STRATEGY)
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        more = p.source("more", "v:i16", rate_hz=10, on="right")
        seldom = values >> Decimate(k=200).named("seldom").on("left")
        moved = seldom >> Affine().named("shifted").on("home", backup=list(self.BACKUP))
        p.lake("handed/last", Union()(moved, more).named("last").on("right"), cap=900)
        return p

    def script(self) -> list[tuple[float, Any]]:
        v = self.vertex("shifted")
        return [(13, lambda: self.hand(v, HOME, OTHER)), (16, lambda: self.hand(v, OTHER, HOME))]


class Moved(Handed):
    """Nothing fails: nothing is replayed, and from the pause until the new instance can take an entry there
    are three messages at most, one after the other."""

    def finish(self) -> Result:
        result = super().finish()
        most = 3 * self.world.delay_us[1] if self.world.delay_us[1] > 10_000 else 3 * 30_000
        if [us for us in self.handovers.pauses_us if us > most]:
            self.world.error("paused for %r us" % self.handovers.pauses_us)
        why = {n.host.moves.get(SHIFTED, (0, 0))[0] for n in self.world.nodes if n.host}
        if why != {COMMAND} and self.handovers.count:
            self.world.error("hosts believe in these reasons: %r" % why)
        return result


class MovedAtOnce(Moved):
    """... and its first entry comes with the answer of its producer. All links take the same time."""

    DELAY_US = 30_000

    def process(self) -> Process:
        p = boards("handed", "left", "home", "other", level=self.LEVEL, every=500, batch_ms=10)
        values = p.source("values", "v:i16", rate_hz=200, on="left")
        shifted = values >> Affine().named("shifted").on("home", backup=list(self.BACKUP))
        p.lake("handed/shifted", shifted, cap=600)
        return p

    def faults_at(self) -> list[tuple[float, Any]]:
        self.world.delay_us = (self.DELAY_US, self.DELAY_US)
        return []

    def finish(self) -> Result:
        result = super().finish()
        if [us for us in self.handovers.firsts_us if us > 3 * self.DELAY_US]:
            self.world.error("nothing was taken for %r us" % self.handovers.firsts_us)
        return result


class MovedLarge(Handed):
    """The state goes to other hosts in many pieces, which takes longer than its producer waits before it asks
    for another checkpoint: no piece goes often, and checkpoints arrive, before the move and after it."""

    STRATEGY = "uncoordinated"
    SECONDS = 30
    DELAY_US = 50_000
    KEEP = 256

    def process(self) -> Process:
        p = boards("handed", "left", "home", "other", checkpoints=self.STRATEGY, every=60, batch=60)
        values = p.source("values", "v:i16", rate_hz=100, on="left")
        window = Average(us=20_000_000, keep=self.KEEP, field="v").named("shifted")
        p.lake("handed/shifted", values >> window.on("home", backup=list(self.BACKUP)), cap=600)
        return p

    def hardware(self, plan: Plan) -> Hardware:
        return Hardware(mtu=256)

    def faults_at(self) -> list[tuple[float, Any]]:
        self.world.delay_us = (self.DELAY_US, self.DELAY_US)
        self.before = self.bytes = self.again = 0
        return [
            (1, self.watch),
            (AT - 0.1, self.arrives),
            (self.SECONDS - 0.1, self.arrives),
        ]

    def watch(self) -> None:
        """Count the bytes of pieces that reach hosts, and of those that were there."""
        for node in self.world.nodes:
            host: Any = node.host
            host.exchange.may_say = partial(self.counted, host)

    def counted(self, host: Any, sender: int, m: Any) -> bool:
        if m[0] == frames.CKPT:
            here = host.incoming.get(m[1])
            known = here[3] if here and here[0] == (tuple(m[2]), m[3]) else 0
            self.bytes += len(m[6])
            self.again += len(m[6]) if m[5] < known else 0
        return Exchange.may_say(host.exchange, sender, m)

    def arrives(self) -> None:
        """Every ten seconds or so the producer has heard of checkpoints that cover more."""
        host = self.node(1).host
        safe = host.ports[0, 0].readers[0].safe if host else 0
        if safe < self.before + 200:
            self.world.error("%d entries are safe, after %d" % (safe, self.before))
        self.before = safe

    def finish(self) -> Result:
        result = super().finish()
        if 25 * self.again > self.bytes:
            self.world.error("%d of %d bytes of checkpoints arrived again" % (self.again, self.bytes))
        return result


class LargeLosesWrite(MovedLarge):
    """... and power fails at the taker in flash operation `cut` of the move: parts of the checkpoint are in
    its flash. They are gone after its next start."""

    PLANNED: Sequence[int] = (0, 1)
    ENDS: Sequence[int] = (HOME, OTHER)
    WHO = OTHER
    KEEP = 1024

    def hardware(self, plan: Plan) -> Hardware:
        return Hardware(mtu=700)

    def __init__(self, seed: int, cut: int = -1) -> None:
        self.cut_at = seed * 7919 % 97 if cut < 0 else cut
        super().__init__(seed)

    def faults_at(self) -> list[tuple[float, Any]]:
        def arm() -> None:
            flash = self.node(self.WHO).flash
            flash.arm(flash.op + self.cut_at, self.moment * 3 % 400, self.cut_at % len(KINDS))

        super().faults_at()
        return [(AT - 0.001, arm), (self.SECONDS - 0.1, self.arrives)]

    @property
    def was_cut(self) -> bool:
        """Whether the move had so many flash operations."""
        return any(host == self.WHO for host, _ in self.world.cuts)


class TwoLarge(LargeLosesWrite):
    """Two hosts have large checkpoints, and the same first keeper. It takes them one after the other, and
    both operators have theirs stored."""

    PLANNED = (0,)
    ENDS = (HOME,)

    def process(self) -> Process:
        p = boards("handed", "left", "home", "other", checkpoints=self.STRATEGY, every=200, batch=60)
        values = p.source("values", "v:i16", rate_hz=100, on="left")
        for name, host in (("shifted", "home"), ("second", "left")):
            window = Average(us=20_000_000, keep=self.KEEP, field="v").named(name)
            p.lake("handed/" + name, values >> window.on(host, backup=list(self.BACKUP)), cap=600)
        return p

    def script(self) -> list[tuple[float, Any]]:
        super().faults_at()
        return [(t, self.arrives) for t in (AT, AT + 10, AT + 20)]


class MovedToGateway(Moved):
    TO = GATEWAY
    ENDS = (GATEWAY,)


class MovedLocal(Moved):
    LEVEL = "local"


class MovedUncoordinated(Moved):
    STRATEGY = "uncoordinated"


class MovedExtended(Moved):
    STRATEGY = "extended"
    LEVEL = "peers=2"


class MovedLakeAway(Moved):
    """... and nothing that it puts out can be made safe: the checkpoint carries it."""

    def process(self) -> Process:
        p = boards("handed", "left", "home", "other", level="peers=2", checkpoints=self.STRATEGY)
        return shifted(p, "home", *self.BACKUP, cap=600, durable="lake")

    def faults_at(self) -> list[tuple[float, Any]]:
        return [(5, lambda: self.open_lake(False)), (15, lambda: self.open_lake(True))]


class MovedOften(Handed):
    """To and fro, faster than a person would."""

    PLANNED = range(3, 12)
    ENDS = (GATEWAY, HOME, OTHER)

    def faults_at(self) -> list[tuple[float, Any]]:
        def on() -> None:
            at = self.place[SHIFTED]
            self.hand(SHIFTED, at, {HOME: OTHER, OTHER: GATEWAY, GATEWAY: HOME}[at])

        return [(9 + k, on) for k in range(10)]


class GiverDies(Handed):
    """The giver dies as soon as the taker has begun: what both have is on a third host by then, or the
    taker's copy is enough."""

    def faults_at(self) -> list[tuple[float, Any]]:
        return [
            (
                AT,
                lambda: self.until(
                    lambda: self.handovers.count,
                    lambda: self.world.after(self.moment * 4000, lambda: self.kill(HOME)),
                ),
            )
        ]


class GiverNoHolder(Handed):
    """The battery of the giver ends soon after. By then another host has the checkpoint, and the producer
    names that one."""

    WHY = FLEE

    def faults_at(self) -> list[tuple[float, Any]]:
        return [(AT + 0.7 + self.moment / 100, self.named), (AT + 4, lambda: self.kill(HOME))]

    def named(self) -> None:
        host = self.node(1).host
        r = host.ports[0, 0].readers[0] if host else None
        if r and HOME in r.holders:
            self.world.error("the producer names %r for the checkpoint" % (r.holders,))


class AcceptLost(Handed):
    """The giver does not hear ACCEPT for a while: the offer is repeated, and not extended."""

    def faults_at(self) -> list[tuple[float, Any]]:
        return [(AT - 0.1, lambda: self.keep_back(HOME, frames.ACCEPT)), (AT + 1.4, lambda: self.let(HOME))]


class HandLate(Handed):
    """The checkpoint is on the other host, and HAND comes when the offer has ended: the operator has gone
    on."""

    PLANNED = (0,)
    ENDS = (HOME,)
    SECONDS = 40

    def script(self) -> list[tuple[float, Any]]:
        kept: list[tuple[int, Any]] = []

        def late() -> None:
            self.let(OTHER)
            for sender, m in kept[-1:]:
                self.world.call(self.node(OTHER), partial(said, sender, m), "late")

        def back() -> None:
            nonlocal kept
            kept = self.keep_back(OTHER, frames.HAND)

        return [(AT - 0.1, back), (AT, lambda: self.hand(SHIFTED, HOME, OTHER)), (AT + 20, late)]


class GiverGoesOn(Handed):
    """The giver restarts in the middle of the offer, goes on, and has a further checkpoint acknowledged
    before the other host begins: that one goes on from there."""

    LEVEL = "local"
    PLANNED = (1,)

    def process(self) -> Process:
        p = boards("handed", "left", "home", "other", level=self.LEVEL, every=10)
        return shifted(p, "home", *self.BACKUP, cap=600)

    def script(self) -> list[tuple[float, Any]]:
        kept: list[tuple[int, Any]] = []

        def back() -> None:
            nonlocal kept
            kept = self.keep_back(OTHER, frames.HAND)

        def on() -> None:
            self.let(OTHER)
            for sender, m in kept[-1:]:
                self.world.call(self.node(OTHER), partial(said, sender, m), "late")

        return [
            (AT - 0.1, back),
            (AT, lambda: self.hand(SHIFTED, HOME, OTHER)),
            (AT + 0.3, lambda: self.crash(HOME)),
            (AT + 0.31, lambda: self.boot(HOME)),
            (AT + 1.9, on),
        ]


class OfferStalls(Handed):
    """The links between the two fail at any moment of the move, and come back when its offer has ended."""

    PLANNED = (0, 1)
    ENDS = (HOME, OTHER)
    SECONDS = 40

    def faults_at(self) -> list[tuple[float, Any]]:
        return [
            (AT + self.moment / 1000, lambda: self.cut(HOME, OTHER)),
            (AT + 20, lambda: self.heal(HOME, OTHER)),
        ]


class TakerRestarts(Handed):
    """... loses power at any moment of it."""

    PLANNED = (0, 1)
    ENDS = (HOME, OTHER)
    WHO = OTHER

    def faults_at(self) -> list[tuple[float, Any]]:
        return [
            (AT + self.moment / 1000, lambda: self.crash(self.WHO)),
            (AT + self.moment / 1000 + self.away_s(), lambda: self.boot(self.WHO)),
        ]

    def away_s(self) -> float:
        return 0.2 + self.moment % 3


class GiverRestarts(TakerRestarts):
    WHO = HOME


class TakerRestartsLocal(TakerRestarts):
    LEVEL = "local"


class GiverRestartsLocal(GiverRestarts):
    LEVEL = "local"


class TakerNoHeap(Handed):
    """... has too little heap for what it still has to do when it has noted that it runs the operator: it
    restarts, as any board whose heap is full, and the operator begins in the next boot."""

    PLANNED = (0, 1)
    SECONDS = 40
    STEPS = (
        (lifecycle, "forget_epoch"),
        (restore, "mount"),
        (restore, "restore"),
        (incoming, "begin_recall"),
    )

    def faults_at(self) -> list[tuple[float, Any]]:
        return [(AT - 0.01, self.fill)]

    def fill(self) -> None:
        module, name = self.STEPS[self.seed % len(self.STEPS)]
        world = self.world
        done, raised = getattr(module, name), world.raised

        def full(*args: Any) -> Any:
            setattr(module, name, done)
            taker = self.node(OTHER).host
            if taker and taker.taking:
                raise MemoryError
            return done(*args)

        def restarts(node: Node, what: str, error: Exception) -> None:
            if not isinstance(error, MemoryError):
                raised(node, what, error)
                return
            world.crash(node)
            world.after(2 * SECOND, lambda: world.boot(node))

        setattr(module, name, full)
        world.raised = restarts  # type: ignore[method-assign]


class TakerSleeps(TakerRestarts):
    """It sleeps although it should not, and wakes into a new boot."""

    PLANNED = (0, 1)
    SECONDS = 40

    def faults_at(self) -> list[tuple[float, Any]]:
        return [
            (AT + self.moment / 1000, self.doze),
            (AT + self.moment / 1000 + 3.5, lambda: self.boot(OTHER)),
        ]

    def doze(self) -> None:
        node = self.node(OTHER)
        if node.host:
            self.world.call(node, lambda host: host.sleep(node.mono(), node.mono() + 4 * SECOND), "sleep")
            self.crash(OTHER)


class TakerLosesWrite(Handed):
    """Power fails in any flash operation of the move, at any byte, at the taker."""

    PLANNED = (0, 1)
    ENDS = (HOME, OTHER)
    WHO = OTHER

    def faults_at(self) -> list[tuple[float, Any]]:
        def arm() -> None:
            flash = self.node(self.WHO).flash
            flash.arm(flash.op + self.moment % 12, self.moment * 3 % 400, self.moment % len(KINDS))

        return [(AT - 0.001, arm)]


class GiverLosesWrite(TakerLosesWrite):
    WHO = HOME


class TakerLosesWriteLocal(TakerLosesWrite):
    LEVEL = "local"


class GiverLosesWriteLocal(GiverLosesWrite):
    LEVEL = "local"


class NewerElsewhere(Handed):
    """In the middle of it a third host begins the operator."""

    PLANNED = (0, 1)
    ENDS = (GATEWAY, OTHER)

    def faults_at(self) -> list[tuple[float, Any]]:
        return [(AT + self.moment / 1000, lambda: self.move(SHIFTED, GATEWAY))]


class NewerUnheard(Handed):
    """A third host began the operator while its old host was out of reach. That one offers it to a host that
    has not heard of it either: a producer has."""

    PLANNED = (0,)
    ENDS = (GATEWAY,)
    SECONDS = 40

    def script(self) -> list[tuple[float, Any]]:
        def apart() -> None:
            for a in (HOME, OTHER):
                self.cut(a, GATEWAY)
            self.cut(HOME, 1)

        return [
            (6, apart),
            (6.5, lambda: self.move(SHIFTED, GATEWAY)),
            (AT, lambda: self.hand(SHIFTED, HOME, OTHER)),
            (24, lambda: self.world.cut.clear()),
        ]


class KeepersGone(Handed):
    """One keeper has died, another has lost its flash. The operator ran on, and must not stand after a move:
    what the erased one kept was older than what its giver has, as every producer tells."""

    LEVEL = "local"

    def process(self) -> Process:
        p = boards("handed", "left", "home", "other", "fourth", "fifth", level=self.LEVEL)
        return shifted(p, "home", "other", "fourth", "fifth", "gateway", cap=600)

    def faults_at(self) -> list[tuple[float, Any]]:
        return [(6, lambda: self.kill(4)), (6.5, lambda: self.erase(5)), (7, lambda: self.boot(5))]


class TwoGivers(Handed):
    """Two hosts offer their operators to one at the same time: it takes one, and the other one goes on."""

    PLANNED = (1, 2)

    def process(self) -> Process:
        p = boards("handed", "left", "home", "other")
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        first = values >> Affine().named("shifted").on("home", backup=["other", "gateway"])
        p.lake("handed/out", first >> Affine().named("second").on("left", backup=["other"]), cap=600)
        return p

    ENDS = (HOME, OTHER)

    def faults_at(self) -> list[tuple[float, Any]]:
        return [(AT, lambda: self.hand(2, 1, OTHER))]


class Spilled(Handed):
    """What the operator put out is in its log, and can be sent nowhere: it pauses, and moves when the gateway
    is back."""

    SECONDS = 60
    FLASH = False

    def process(self) -> Process:
        p = boards("handed", "left", "home", "other", level=self.LEVEL, flash_kb=512)
        if self.FLASH:
            return shifted(p, "home", "other", cap=40, durable="flash")
        return shifted(p, "home", "other", cap=40, on_full="spill")

    def faults_at(self) -> list[tuple[float, Any]]:
        return [(3, lambda: self.cut(HOME, GATEWAY)), (AT + 3, lambda: self.heal(HOME, GATEWAY))]


class SpilledLocal(Spilled):
    LEVEL = "local"


class FlashLocal(Spilled):
    """The same for an edge to the lake whose entries are safe in the flash of the operator's host."""

    LEVEL = "local"
    FLASH = True


class NeverSent(Spilled):
    """... and never: it goes on where it is."""

    PLANNED = (0,)
    ENDS = (HOME,)
    SECONDS = 90

    def faults_at(self) -> list[tuple[float, Any]]:
        return [(3, lambda: self.cut(HOME, GATEWAY)), (80, lambda: self.heal(HOME, GATEWAY))]


class LoggedWhileOffered(Handed):
    """All that the operator put out was safe when it was offered. Then its host loses the lake, and the
    answer comes late: what it would put out meanwhile would be in the flash of its host alone."""

    def process(self) -> Process:
        p = boards("handed", "left", "home", "other", batch=2, batch_ms=100)
        values = p.source("values", "v:i16", rate_hz=2, on="left")
        shifted = values >> Affine().named("shifted").on("home", backup=list(self.BACKUP))
        p.lake("handed/shifted", shifted, cap=400, durable="flash", accept_loss=True)
        return p

    def faults_at(self) -> list[tuple[float, Any]]:
        return [
            (AT - 0.1, lambda: self.keep_back(HOME, frames.ACCEPT)),
            (AT, lambda: self.until(self.offers, lambda: self.cut(HOME, GATEWAY))),
            (AT + 1.5, lambda: self.let(HOME)),
            (15, lambda: self.heal(HOME, GATEWAY)),
        ]

    def offers(self) -> bool:
        """Whether its host waits for ACCEPT."""
        host = self.node(HOME).host
        return bool(host and host.giving and host.giving.step == OFFERING)

    def finish(self) -> Result:
        result = super().finish()
        gaps = [gap for stream in self.world.outbox.streams.values() for gap in stream.gaps]
        if gaps:
            self.world.error("the lake is told of gaps %r, and no host was lost" % gaps)
        return result


class OverAndBid(Spilled):
    """The operator holds results in its flash. Its host hears, one after the other, that it has begun
    elsewhere and that a candidate could take it."""

    PLANNED = (0,)
    ENDS = (GATEWAY,)
    SECONDS = 40
    FLASH = True

    def process(self) -> Process:
        p = boards("handed", "left", "home", "other", flash_kb=512)
        return shifted(p, "home", *self.BACKUP, cap=400, durable="flash", accept_loss=True)

    def script(self) -> list[tuple[float, Any]]:
        bids: list[tuple[int, Any]] = []

        def back() -> None:
            nonlocal bids
            bids = self.keep_back(HOME, frames.ROOM)

        def both() -> None:
            self.let(HOME)
            self.move(SHIFTED, GATEWAY)
            self.world.call(self.node(HOME), hear)

        def hear(host: Any) -> None:
            host.heard_where(SHIFTED, (2, GATEWAY), GATEWAY)
            for sender, m in bids:
                host.exchange.hear(sender, m)
            host.pump()

        return [
            (7.5, lambda: self.cut(HOME, GATEWAY)),
            (AT - 0.1, back),
            (AT, lambda: self.hand(SHIFTED, HOME, OTHER)),
            (AT + 0.3, both),
            (15, lambda: self.heal(HOME, GATEWAY)),
        ]


class AskedTwice(Handed):
    """People ask for two moves of one operator, and for the first one again. Each answer is about the move
    that was asked for."""

    GIVER = HOME
    ASKS: Sequence[tuple[float, int]] = ((0, OTHER), (0.05, GATEWAY), (0.1, OTHER))
    ANSWER = (OTHER, OK)

    def script(self) -> list[tuple[float, Any]]:
        return [(AT + s, partial(self.ask_move, to)) for s, to in self.ASKS]

    def ask_move(self, to: int) -> None:
        node = self.node(GATEWAY)
        self.world.call(node, lambda host: host.ask_move(SHIFTED, to, node.mono()), "move")

    def finish(self) -> Result:
        result = super().finish()
        host = self.node(GATEWAY).host
        if host and tuple(host.asked[SHIFTED][1:]) != self.ANSWER:
            self.world.error("the answer is %r" % host.asked[SHIFTED][1:])
        return result


class AskedTwiceHere(AskedTwice):
    """... of one that runs at the gateway, and only the first one begins."""

    ASKS = ((0, OTHER), (0.05, HOME))
    ANSWER = (HOME, BUSY)

    def process(self) -> Process:
        p = boards("handed", "left", "home", "other")
        return shifted(p, "gateway", "home", "other", cap=600)


SCHEDULES: dict[str, type[Handed]] = {
    "moved": Moved,
    "moved at once": MovedAtOnce,
    "moved with a large state": MovedLarge,
    "moved with a large state, write lost": LargeLosesWrite,
    "two large checkpoints": TwoLarge,
    "moved to the gateway": MovedToGateway,
    "moved, local": MovedLocal,
    "moved, uncoordinated": MovedUncoordinated,
    "moved, extended": MovedExtended,
    "moved, lake away": MovedLakeAway,
    "moved often": MovedOften,
    "moved back, nothing taken": HandedBack,
    "giver dies": GiverDies,
    "giver is no holder": GiverNoHolder,
    "accept lost": AcceptLost,
    "hand comes late": HandLate,
    "giver goes on": GiverGoesOn,
    "offer stalls": OfferStalls,
    "taker restarts": TakerRestarts,
    "giver restarts": GiverRestarts,
    "taker restarts, local": TakerRestartsLocal,
    "giver restarts, local": GiverRestartsLocal,
    "taker sleeps": TakerSleeps,
    "taker has no heap": TakerNoHeap,
    "taker loses a write": TakerLosesWrite,
    "giver loses a write": GiverLosesWrite,
    "taker loses a write, local": TakerLosesWriteLocal,
    "giver loses a write, local": GiverLosesWriteLocal,
    "newer elsewhere": NewerElsewhere,
    "newer unheard": NewerUnheard,
    "keepers gone": KeepersGone,
    "two givers": TwoGivers,
    "spilled before a move": Spilled,
    "spilled before a move, local": SpilledLocal,
    "in the flash before a move": FlashLocal,
    "never sent": NeverSent,
    "logged while it is offered": LoggedWhileOffered,
    "over, and a bid": OverAndBid,
    "asked twice": AskedTwice,
    "asked twice of the gateway": AskedTwiceHere,
}
