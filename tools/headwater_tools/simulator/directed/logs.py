# mypy: disable-error-code="func-returns-value"
"""Logs and buffers that are full, small or behind."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from headwater.data import block
from headwater.data.batch import Batch
from headwater.plan.model import Plan
from headwater.process import Affine, Attenuate, Average, Median, Process, Sliding, Stream, Threshold, Union
from headwater.process.builder import Spec
from headwater.process.check import check
from headwater.protocol import frames
from headwater.storage import reserve

from ..world import Hardware
from .base import GATEWAY, LEFT, RIGHT, SHIFTED, SPARE, Directed, boards, shifted

WIDE = " ".join("f%d:i64" % k for k in range(8))


class LoggedLoop(Directed):
    """An operator takes its own outputs, which are in the flash of its board. No checkpoint can be stored for
    longer than its buffer lasts: it puts out no more than a checkpoint can carry, so that there can be one
    after a change.
    """

    SECONDS = 40

    def process(self) -> Process:
        p = boards("loop", "left", "spare", checkpoints="extended", level="peers=2")
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        calm = values >> Attenuate(threshold=0, shift=1).named("calm").on("left")
        p.feedback(calm, calm, port=1, delay_ms=2000)
        p.lake("loop/calm", calm, durable="flash", accept_loss=True)
        return p

    def script(self) -> list[tuple[float, Any]]:
        return [
            (5, lambda: [self.cut(LEFT, GATEWAY), self.cut(LEFT, SPARE)]),
            (28, lambda: self.crash(LEFT)),
            (29, lambda: self.boot(LEFT)),
            (35, lambda: [self.heal(LEFT, GATEWAY), self.heal(LEFT, SPARE)]),
            (36, lambda: self.configure(SHIFTED, threshold=1)),
        ]


class SpilledBefore(Directed):
    """A board restarts while its gateway is away, before its operator has a permanent checkpoint. What the
    lake lacks of the spilled stream is in the log, from where the lake has it: a checkpoint need not carry
    it."""

    SECONDS = 40

    def process(self) -> Process:
        p = boards("spilled", "left", checkpoints="uncoordinated", every=200, level="local")
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        first = values >> Affine().named("first").on("left")
        second = first >> Affine().named("second").on("left")
        p.lake("spilled/second", second, cap=20, on_full="spill")
        return p

    def script(self) -> list[tuple[float, Any]]:
        return [
            (2.5, lambda: self.crash(GATEWAY)),
            (6, lambda: self.crash(LEFT)),
            (6.4, lambda: self.boot(LEFT)),
            (30, lambda: self.boot(GATEWAY)),
        ]


class Dropping(Directed):
    """The link to the lake is down for longer than the buffer lasts, and its author prefers the newest."""

    SECONDS = 50

    def process(self) -> Process:
        p = boards("relay", "left", "spare")
        return shifted(p, "spare", "left", "gateway", cap=200, on_full="drop_oldest")

    def script(self) -> list[tuple[float, Any]]:
        return [
            (5, lambda: self.cut(SPARE, GATEWAY)),
            (30, lambda: self.crash(SPARE)),
            (31, lambda: self.boot(SPARE)),
            (45, lambda: self.heal(SPARE, GATEWAY)),
        ]


class Spoiled(Directed):
    """A board whose memory fails packs blocks that cannot be decoded, and seals them. Some come while the
    outbox is full, and some again after the gateway was away. The lake gets a gap for them, and the rest."""

    SPOILED = (range(100, 131), range(200, 206), range(265, 271))  # whichever block holds one of these

    def process(self) -> Process:
        p = boards("spoiled", "left")
        p.lake("spoiled/values", p.source("values", "v:i16", rate_hz=20, on="left"))
        return p

    def script(self) -> list[tuple[float, Any]]:
        return [
            (0.5, self.fail),
            (9, lambda: self.crash(GATEWAY)),
            (10.5, lambda: self.boot(GATEWAY)),
            (12.2, lambda: self.fill(True)),
            (14.7, lambda: self.fill(False)),
            (16, lambda: self.fill(True)),
            (17.1, lambda: self.fill(False)),
        ]

    def fill(self, full: bool) -> None:
        self.world.outbox.full = full

    def fail(self) -> None:
        host = self.node(LEFT).host
        assert host is not None
        exchange: Any = host.exchange
        seal = exchange._seal

        def sealed(link: Any) -> None:
            writer = exchange.writer
            start = frames.header(writer.mem[: writer.pos + frames.TAG])[4]
            for m in frames.messages(writer.mem, start, writer.pos, writer.my_log, writer.peer_log):
                if m[0] == frames.DATA:
                    self.spoil(m[1], m[2], m[4])
            seal(link)

        exchange._seal = sealed

    def spoil(self, edge: int, inc: int, body: memoryview) -> None:
        first, n = block.peek(body)
        held = range(first, first + n)
        if any(xi in held for run in self.SPOILED for xi in run):
            body[0] |= 8  # a flag that no block has
            self.world.spoiled.update((edge, inc, xi) for xi in held)


class CutElsewhere(Directed):
    """A block arrives, and the answer to it is lost; so is what follows. When the link is back, all of it
    comes as one block: it holds entries that were taken, and new ones after them.
    """

    SECONDS = 40

    def process(self) -> Process:
        p = boards("again", "left", batch=12)
        p.lake("again/values", p.source("values", "v:i16", most_hz=10, on="left"))
        return p

    def script(self) -> list[tuple[float, Any]]:
        out: list[tuple[float, Any]] = []
        for second in range(3, 36, 8):
            out.append((second, lambda: self.world.cut.add((GATEWAY, LEFT))))
            out.append((second + 2, lambda: self.cut(LEFT, GATEWAY)))
            out.append((second + 4, lambda: self.heal(LEFT, GATEWAY)))
        return out


class CutWhileSealing(Directed):
    """Power goes while a source writes samples into its log, again and again: what becomes of them, no
    operator and no other host has seen.
    """

    def script(self) -> list[tuple[float, Any]]:
        return [(3 + 2.5 * i, self.cut_next) for i in range(6)]

    def cut_next(self) -> None:
        left = self.node(LEFT)
        if left.host is None:
            return
        store: Any = left.host.store
        append_run = store.append_run

        def cut(*args: Any) -> Any:
            left.flash.arm(left.flash.op)
            return append_run(*args)

        store.append_run = cut


class Behind(Directed):
    """A quiet board promised more than it sealed, and returns without a source of time."""

    def process(self) -> Process:
        p = boards("quiet", "left", "right", batch=8)
        a = p.source("a", "v:i16", most_hz=10, on="left")
        b = p.source("b", "v:i16", most_hz=10, on="right")
        p.lake("quiet/both", Union().named("both").on("right", backup=["left", "gateway"])(a, b))
        return p

    def script(self) -> list[tuple[float, Any]]:
        return [
            (3, lambda: self.world.asleep.add(1)),
            (8, lambda: self.crash(1)),
            (8.1, lambda: [self.cut(1, 0), self.cut(1, 2)]),
            (8.2, lambda: self.boot(1)),
            (8.3, lambda: self.world.asleep.clear()),
            (14, lambda: [self.heal(1, 0), self.heal(1, 2)]),
        ]


def flood() -> tuple[Process, Stream]:
    """A process on two boards, and a source that fills its flash soon."""
    p = boards("flood", "left", "spare", every=60, batch=30, heap_kb=512)
    return p, p.source("values", WIDE, rate_hz=100, on="left")


class Full(Directed):
    """The way out of a source's host is cut for longer than its flash lasts."""

    SECONDS = 34

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        noise = random.Random(seed)
        values = [noise.getrandbits(63) for _ in range(997)]

        def fill(v: int, batch: Batch, taken: int) -> None:
            for k, column in enumerate(batch.cols):
                for i in range(batch.n):
                    column[i] = values[(taken + i) * 7 % 997] ^ k

        self.world.patterns[0] = fill

    def process(self) -> Process:
        p, values = flood()
        p.lake("flood/out", values >> Affine().named("out").on("spare", backup=["gateway", "left"]), cap=600)
        return p

    def script(self) -> list[tuple[float, Any]]:
        return [
            (3, lambda: [self.cut(1, 0), self.cut(1, 2)]),
            (28, lambda: [self.heal(1, 0), self.heal(1, 2)]),
        ]


class FullAndDropping(Full):
    """The same, but what the lake lacks may be dropped. Its consumer takes some now and then, so a little may
    go: less than a batch needs.
    """

    def hardware(self, plan: Plan) -> Hardware:
        return Hardware({LEFT: reserve.sectors(plan, LEFT)})

    def process(self) -> Process:
        p, values = flood()
        p.lake("flood/all", values, on_full="drop_oldest")
        p.lake("flood/out", values >> Affine().named("out").on("spare", backup=["gateway"]), cap=600)
        return p

    def script(self) -> list[tuple[float, Any]]:
        script: list[tuple[float, Any]] = [(3, lambda: self.cut(LEFT, GATEWAY))]
        for second in range(4, 28, 2):
            script.append((second, lambda: self.cut(LEFT, SPARE)))
            script.append((second + 1.5, lambda: self.heal(LEFT, SPARE)))
        return [*script, (28, lambda: self.heal(LEFT, GATEWAY))]


class ShortFrames(Directed):
    """Short frames that overtake each other, and small buffers: an operator still keeps up with its
    source."""

    def hardware(self, plan: Plan) -> Hardware:
        return Hardware({LEFT: reserve.sectors(plan, LEFT)}, mtu=256, noise=True)

    def process(self) -> Process:
        p = boards("short", "left", "right", "spare", every=38, level="peers=2", batch=14, batch_ms=200)
        values = p.source("values", "v:i16 w:i32 x:i32", rate_hz=100, on="left")
        median = values >> Median(k=5).named("median").on("right", backup=["spare", "gateway"])
        p.lake("short/out", median >> Affine().named("out").on("spare", backup=["right", "gateway"]), cap=66)
        return p


class DropMove(Dropping):
    """The same, but the host that dropped dies, and the operator starts elsewhere: the gap goes with it."""

    def script(self) -> list[tuple[float, Any]]:
        return [
            (5, lambda: self.cut(SPARE, GATEWAY)),
            (30, lambda: self.kill(SPARE)),
            (31, lambda: self.move(SHIFTED, LEFT)),
        ]


class ManyOperators(Directed):
    """As many operators on one board as the check accepts."""

    OPERATORS = 45

    def process(self) -> Process:
        chains = map(self.chain, range(self.OPERATORS, 0, -1))
        return next(p for p in chains if not check(p).errors())

    def chain(self, n: int) -> Process:
        p = boards("chain", "left", level="local", heap_kb=4096, flash_kb=2048)
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

    SECONDS = 60

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.world.patterns[0] = partial(_noise, seed)

    def hardware(self, plan: Plan) -> Hardware:
        return Hardware({n: reserve.sectors(plan, n) for n in range(1, len(plan.hosts))})

    def process(self) -> Process:
        p = boards("big", "left", every=60, level="local", batch=30, heap_kb=2048, flash_kb=4096)
        values = p.source("values", "v:i16 " + WIDE, rate_hz=100, on="left")
        p.lake("big/out", values >> self.operator().named("out").on("left"))
        return p

    def operator(self) -> Spec:
        return Average(us=20_000_000, field="v")

    def script(self) -> list[tuple[float, Any]]:
        start, end = self.OUT_S
        return [(start, lambda: self.cut(LEFT, GATEWAY)), (end, lambda: self.heal(LEFT, GATEWAY))]


class SpilledFull(Sized):
    """What fills the log is what an operator has spilled, and all that came from the source is safe: it
    accepts again only when the consumers of the operator make that safe."""

    def process(self) -> Process:
        p = boards("spilled", "left", every=29, level="local", batch=4, batch_ms=200, flash_kb=1024)
        values = p.source("values", "v:i16 w:i32 x:i32", rate_hz=100, on="left")
        first = (values >> Affine().named("first").on("left")).buffered(60, "spill")
        second = first >> Affine().named("second").on("gateway")
        p.lake(
            "spilled/out",
            second.buffered(60, "spill") >> Average(us=2_000_000, field="v").named("third").on("left"),
        )
        return p


class Unused(Directed):
    """Only an alarm looks at the results of an operator, and at a source whose log is small: both go on, and
    so does all that shares a stream with them."""

    SECONDS = 60

    def process(self) -> Process:
        p = boards("unused", "left", "right")
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        p.lake("unused/values", values)
        high = values >> Threshold(high=10, low=-10).named("high").on("right", backup=["left"]).unused(0)
        p.alarm(high, field="on", on="right", driver="led")
        door = p.source("door", "v:i16", rate_hz=100, on="right").unused(0)
        p.alarm(door, field="v", on="right", driver="buzzer")
        return p

    def hardware(self, plan: Plan) -> Hardware:
        return Hardware(sectors={RIGHT: reserve.sectors(plan, RIGHT)}, noise=True)

    def script(self) -> list[tuple[float, Any]]:
        return [(30, lambda: self.crash(RIGHT)), (31, lambda: self.boot(RIGHT))]


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

    def process(self) -> Process:
        p = boards("wide", "left", every=60, level="local", batch=30, heap_kb=4096, flash_kb=4096)
        values = p.source("values", WIDE, rate_hz=20, on="left")
        for name in ("one", "two"):
            p.lake("wide/" + name, values >> Affine().named(name).on("left"), cap=700)
        return p


class SizedGreenhouse(Sized):
    """The process of the README, its link away until the log is full."""

    OUT_S = (10, 220)

    SECONDS = 260

    def process(self) -> Process:
        p = Process("greenhouse", checkpoints="ecoc", every=60)
        p.host("vent", heap_kb=256)
        air = p.source("air", "centi_c:i16", rate_hz=100, on="vent")
        mean = air >> Average(seconds=20)
        p.lake("greenhouse/air", air)
        p.lake("greenhouse/frost", mean >> Threshold(high=400, low=200), durable="lake", within_ms=5000)
        return p


def _noise(seed: int, v: int, batch: Batch, taken: int) -> None:
    """Values that no code makes shorter."""
    values = _NOISE.setdefault(seed, [random.Random(seed * 997 + i).getrandbits(63) for i in range(997)])
    for k, column in enumerate(batch.cols):
        for i in range(batch.n):
            x = values[(taken + i) * 7 % 997] ^ k
            column[i] = x if column.typecode == "q" else x & 0x7FFF


_NOISE: dict[int, list[int]] = {}
