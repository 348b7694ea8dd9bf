# mypy: disable-error-code="func-returns-value"
"""Checkpoints: which hosts hold them, which request them, and which one counts."""

from __future__ import annotations

from typing import Any

from headwater.plan.model import Plan
from headwater.process import Affine, Decimate, Process
from headwater.runtime.host import Host
from headwater.storage.keyspace import PERMANENT, checkpoint_key
from headwater.storage.log import Log

from ...examples import sp4
from ..world import SECOND, Hardware, Node
from .base import GATEWAY, LEFT, RIGHT, SHIFTED, SPARE, Directed, boards, relay, shifted


class HolderElsewhere(Directed):
    """The host of an operator dies permanently; its newest checkpoint is not where it starts again, and the
    producer, which alone knows who holds it, has restarted.
    """

    def script(self) -> list[tuple[float, Any]]:
        return [
            (5, lambda: self.cut(SPARE, GATEWAY)),
            (10, lambda: self.kill(SPARE)),
            (10.5, lambda: self.crash(LEFT)),
            (11, lambda: self.boot(LEFT)),
            (12, lambda: self.move(SHIFTED, GATEWAY)),
        ]


class ErasedHolder(Directed):
    """The only holder of an operator's newest checkpoint is the board of its source, and is erased; the host
    of the operator is cut off. A third host takes over: no host can tell it of that checkpoint, and no
    producer names one, until the host returns.
    """

    def process(self) -> Process:
        p = boards("holder", "left", "right", "spare", checkpoints="uncoordinated", every=10)
        return shifted(p, "right", "left", "spare", cap=600)

    def script(self) -> list[tuple[float, Any]]:
        world = self.world
        return [
            (7, lambda: world.asleep.add(LEFT)),  # everything is taken, and covered by a stored checkpoint
            (8, lambda: [self.cut(RIGHT, n.number) for n in world.nodes if n.number != RIGHT]),
            (8, lambda: self.erase(LEFT)),
            (8.4, lambda: self.boot(LEFT)),
            (9, lambda: self.move(SHIFTED, 3)),
            (10, lambda: world.asleep.discard(LEFT)),
        ]


class LakeAway(Directed):
    """The last operator restarts while the lake sink lacks what it put out."""

    def process(self) -> Process:
        return relay("ecoc")

    def script(self) -> list[tuple[float, Any]]:
        return [
            (5, lambda: self.cut(SPARE, GATEWAY)),
            (10, lambda: self.crash(SPARE)),
            (11, lambda: self.boot(SPARE)),
            (13, lambda: self.heal(SPARE, GATEWAY)),
        ]


class Overtaken(Directed):
    """Frames overtake each other, and checkpoints follow each other closely: one may reach its holder after a
    later one.
    """

    SECONDS = 80

    def process(self) -> Process:
        p = boards("overtaken", "left", "spare", checkpoints="uncoordinated", every=5, batch=5, batch_ms=250)
        return shifted(p, "spare", "gateway", "left", cap=600)

    def script(self) -> list[tuple[float, Any]]:
        self.world.delay_us = (10_000, 1_200_000)
        return []


class ChangedUnmet(Directed):
    """A change is asked for before an operator has met its source, and is not taken until then. Soon after
    that its host dies: the one that continues must know the incarnation of the source, for what was made of
    it has reached the lake.
    """

    def process(self) -> Process:
        p = boards("unmet", "left", "spare", every=400)
        return shifted(p, "spare", "gateway", "left", cap=600)

    def script(self) -> list[tuple[float, Any]]:
        return [
            (0, lambda: self.cut(LEFT, SPARE)),
            (1.5, lambda: self.configure(SHIFTED, offset=7)),
            (3, lambda: self.heal(LEFT, SPARE)),
            (6, lambda: [self.kill(SPARE), self.move(SHIFTED, GATEWAY)]),
        ]


class BothEnds(Directed):
    """All hosts but the gateway lose power at once, repeatedly: both ends of every feedback edge."""

    def process(self) -> Process:
        hosts = ("left", "right", "spare", "spare")
        return sp4.build(every=36, batch=12, threshold=100, hosts=hosts)

    def script(self) -> list[tuple[float, Any]]:
        out: list[tuple[float, Any]] = []
        for i in range(6):
            out.append((5 + 2.3 * i, lambda: self.crash(1, 2, 3)))
            out.append((5.4 + 2.3 * i, lambda: self.boot(1, 2, 3)))
        return out


class RequestLost(Directed):
    """The link is down just when the only Check-Request of the history crosses it: unless it is sent again
    with its place, the first operator's checkpoint stays pending, and the source trims nothing.
    """

    def process(self) -> Process:
        p = boards("two", "left", "spare", every=300)
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        first = values >> Affine().named("first").on("left", backup=["gateway"])
        p.lake("two/out", first >> Affine().named("second").on("spare", backup=["gateway"]))
        return p

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


class BeginsUnknown(Directed):
    """What an operator puts out reaches the lake, but no holder hears of the checkpoint with which it began
    before its host dies. Another host continues.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.world.checks.append(self.deaf)

    def script(self) -> list[tuple[float, Any]]:
        return [(5, lambda: [self.kill(SPARE), self.move(SHIFTED, GATEWAY)])]

    def deaf(self, node: Node) -> None:
        if node.host:
            self.withhold(node.host, self.world.now < 5 * SECOND)


class StalePending(Directed):
    """A checkpoint stays pending in the flash of a boot whose outputs no consumer got. The next boot waits
    for it in vain, takes a decision before it, passes it, and loses power: the third must not restore it.
    """

    SECONDS = 45

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.world.delay_us = (100_000, 100_000)
        self.phase = 0
        self.world.checks.append(self.watch)

    def process(self) -> Process:
        p = boards("relay", "left", "spare", every=100, level="local")
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        p.lake("relay/some", values >> Decimate(k=4).named("some").on("spare"), cap=600)
        return p

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


class GotLost(Directed):
    """An operator starts again while its source rests, and the only Got that its consumer has a reason for is
    lost: it tells that nothing after the operator is ahead of it.
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


class Unreadable(Directed):
    """An operator has taken a decision; then the flash of its board fails where its checkpoint is. Both its
    board and that of its producer restart. No epoch is new, so no keeper is recalled, and the producer still
    has every entry: only the name that it remembers tells that there is a checkpoint with a decision in it.
    """

    def process(self) -> Process:
        p = boards("named", "left", "spare", checkpoints="uncoordinated")
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        first = values >> Affine().named("first").on("left", backup=["gateway"])
        p.lake("named/first", first, durable="lake", cap=600)
        second = Affine().named("second").on("spare", backup=["gateway"])
        p.lake("named/second", first.buffered(600) >> second)
        return p

    def script(self) -> list[tuple[float, Any]]:
        second = self.vertex("second")
        return [
            (0.1, lambda: self.open_lake(False)),
            (4, lambda: self.configure(second, offset=7)),
            (9, lambda: self.crash(LEFT, SPARE)),
            (9.2, lambda: self.spoil(second)),
            (9.4, lambda: self.boot(LEFT)),
            (9.8, lambda: self.boot(SPARE)),
            (14, lambda: self.open_lake(True)),
        ]

    def spoil(self, v: int) -> None:
        spare = self.node(SPARE)
        spare.flash.revive()
        log = Log(spare.flash)
        log.mount()
        log.drop_blob(checkpoint_key(v, PERMANENT))
        self.world.gone[SPARE] = self.world.now


class DeadHolder(Directed):
    """A board that only holds checkpoints dies; enough others are alive. Its operators' outputs continue at
    the rate of its source: a checkpoint does not wait for the dead one each time.
    """

    LEVEL = "peers=2"
    BACKUP: tuple[str, ...] = ()
    STRATEGY = "ecoc"

    SECONDS = 60

    def process(self) -> Process:
        p = boards(
            "ecgs",
            "chest",
            "wrist",
            "belt",
            checkpoints=self.STRATEGY,
            every=500,
            level=self.LEVEL,
            batch=60,
            batch_ms=1000,
        )
        stream = p.source("ecg", "mV:i16", rate_hz=360, on="chest")
        for name in ("a", "b"):
            spec = Affine().named(name)
            stream = stream >> (
                spec.on("chest", backup=list(self.BACKUP)) if self.BACKUP else spec.on("chest")
            )
        p.lake("ecgs/b", stream)
        return p

    def script(self) -> list[tuple[float, Any]]:
        wrist = [name == "wrist" for name in self.plan.hosts].index(True)
        return [(10, lambda: self.kill(wrist)), (58, self.lag)]

    def lag(self) -> None:
        """Eight checkpoint intervals are more than any operator may be behind its source."""
        for node in self.world.nodes:
            for inst in node.host.instances.values() if node.host else ():
                line = next(iter(self.world.accepted.values()))
                if len(line) - inst.inputs[0].cur.xi > 8 * 500:
                    text = "%s stands at xi %d, its source at %d"
                    self.world.error(text % (inst.vertex.name, inst.inputs[0].cur.xi, len(line)))


class DeadBackup(DeadHolder):
    """The first backup of every operator dies, the second is alive."""

    LEVEL = "peer"
    BACKUP = ("wrist", "gateway")


class FullHolder(DeadHolder):
    """The board lives, and keeps no checkpoints any more: no silence tells that it does not."""

    def script(self) -> list[tuple[float, Any]]:
        wrist = [name == "wrist" for name in self.plan.hosts].index(True)
        return [(10, lambda: self.withhold(self.node(wrist).host, True)), (58, self.lag)]


class OnlyKeeps(DeadHolder):
    """The holder that is left keeps checkpoints of operators that it may not run, and they are longer than a
    frame: it has to ask for each piece.
    """

    BACKUP = ("wrist", "gateway")
    STRATEGY = "uncoordinated"

    def hardware(self, plan: Plan) -> Hardware:
        return Hardware(mtu=256)
