"""Inputs that are closed and taken back, or that end or rest; most at a join of two boards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.process import Affine, Debounce, Process, Stream, SumJoin, Threshold, Tumbling, Union, operator
from headwater.runtime.gateway_host import GatewayHost
from headwater.runtime.operator import Operator

from ...examples import sp4
from ..scenario import Result
from ..world import SECOND, SITE_US, Node
from .base import GATEWAY, LEFT, RIGHT, Directed, boards


def pair(**how: Any) -> tuple[Process, Stream, Stream]:
    """A process on two boards, and the source of each."""
    p = boards("pair", "left", "right", **how)
    a = p.source("a", "v:i16", rate_hz=20, on="left")
    b = p.source("b", "v:i16", rate_hz=20, on="right")
    return p, a, b


class DeadInput(Directed):
    """One of two boards dies; the join continues without it by decision, and reopens the input when it
    returns."""

    LAKE: dict[str, Any] = {"cap": 600}

    def process(self) -> Process:
        p, a, b = pair()
        total = SumJoin(us=1_000_000).named("sum").on("gateway", backup=["left", "right"])(a, b)
        p.lake("pair/sum", total, **self.LAKE)
        return p

    def script(self) -> list[tuple[float, Any]]:
        join = self.join()

        def reopen(host: GatewayHost) -> None:
            host.reopen(join, 1, host.instances[join].inputs[1].inc, host.site())

        return [
            (6, lambda: self.crash(2)),
            (8, self.close),
            (12, lambda: self.boot(2)),
            (14, lambda: self.at_gateway(reopen)),
        ]

    def join(self) -> int:
        return [v.index for v in self.plan.vertices if v.kind][0]

    def at_gateway(self, action: Callable[[GatewayHost], object]) -> None:
        self.world.call(self.node(GATEWAY), action)

    def close(self, port: int = 1) -> None:
        self.at_gateway(lambda host: host.close(self.join(), port))

    def sleep(self) -> None:
        """The second board sleeps for ten seconds, and announces it."""
        self.world.asleep.add(2)
        node = self.node(2)
        self.world.call(node, lambda host: host.sleep(node.mono(), node.mono() + 10 * SECOND))


class BoundFirst(Directed):
    """Frames overtake each other on their way to a join of quiet sources: a boundary may arrive before the
    entry that it follows.
    """

    def process(self) -> Process:
        p = boards("first", "left", "right", batch=8)
        a = p.source("a", "v:i16", most_hz=10, on="left")
        b = p.source("b", "v:i16", most_hz=10, on="right")
        p.lake("first/both", Union().named("both").on("gateway", backup=["right", "left"])(a, b))
        return p

    def script(self) -> list[tuple[float, Any]]:
        self.world.delay_us = (10_000, 900_000)
        return []


class InTurn(DeadInput):
    """One of two boards never hears the time, so what their join puts out is stamped synchronised and not, in
    turn; and the lake is away, so its checkpoint carries as much of that as its buffer holds.
    """

    SECONDS = 60

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.cut(GATEWAY, 2)

    def process(self) -> Process:
        p, a, b = pair(checkpoints="uncoordinated", every=60, batch=60)
        total = SumJoin(us=1_000_000, keep=32).named("sum").on("left", backup=["right", "gateway"])(a, b)
        p.lake("pair/sum", total, cap=600, durable="lake")
        return p

    def script(self) -> list[tuple[float, Any]]:
        return [(28, lambda: self.open_lake(False)), (55, lambda: self.open_lake(True))]


class TakenBack(DeadInput):
    """No host dies: the entries of the closed input wait at their board, which is cut off, and come when the
    join has opened it. Then that loses power. The second boot gets all of them at once, and skips what the
    first one did.
    """

    LAKE = {"cap": 900, "durable": "lake"}

    def script(self) -> list[tuple[float, Any]]:
        _, (_, close), _, (_, reopen) = super().script()
        return [
            (5, lambda: self.open_lake(False)),
            (6, close),
            (6.2, lambda: self.cut(GATEWAY, RIGHT)),
            (9, reopen),
            (9.5, lambda: self.heal(GATEWAY, RIGHT)),
            (13, lambda: self.crash(GATEWAY)),
            (13.5, lambda: self.boot(GATEWAY)),
            (16, lambda: self.open_lake(True)),
        ]


class TakenBackUnnamed(TakenBack):
    """The same without a cut, and the request for the input knows no incarnation of it."""

    def script(self) -> list[tuple[float, Any]]:
        join = self.join()

        def reopen() -> None:
            self.at_gateway(lambda host: host.reopen(join, 1, 0, host.site()))

        whole = [(when, action) for when, action in super().script() if when not in (6.2, 9.5)]
        return [(when, reopen if when == 9 else action) for when, action in whole]


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
    """A join hears late that it should take an input back, and later still that this is stored elsewhere. Its
    other input is a button that is not pressed for long: meanwhile the join sends boundaries, and a union
    after it continues by them. The reopened entries are above all of them.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.decides = False
        self.world.checks.append(self.watch)

    def process(self) -> Process:
        p = boards("pair", "left", "right")
        a = p.source("a", "v:i16", rate_hz=20, on="left")
        button = p.source("button", "v:i16", most_hz=2, on="right")
        c = p.source("c", "v:i16", rate_hz=20, on="right")
        join = Union().named("join").on("right", backup=["gateway", "left"])(button, a)
        p.lake("pair/both", Union().named("both").on("right", backup=["gateway", "left"])(c, join), cap=600)
        return p

    def script(self) -> list[tuple[float, Any]]:
        join = self.vertex("join")

        def reopen(host: GatewayHost) -> None:
            host.reopen(join, 1, self.world.current(-1, 0), host.site())

        return [
            (5, self.close),
            (7, lambda: self.cut(GATEWAY, RIGHT)),
            (7.1, lambda: self.at_gateway(reopen)),
            (9.5, lambda: self.heal(GATEWAY, RIGHT)),
        ]

    def watch(self, node: Node) -> None:
        for inst in node.host.instances.values() if node.host else ():
            if inst.deciding and inst.decided == 2 and not self.decides:
                self.decides = True
                self.world.cut |= {(GATEWAY, RIGHT), (LEFT, RIGHT)}
                self.world.after(3 * SECOND, self.world.cut.clear)


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


class Ports(Operator):
    """The port by which each element came, and the element."""

    IN = ("v:i16", "v:i16", "v:i16")
    OUT = ("port:u8 v:i16",)

    def run(self: Any, x: Any, n: int) -> int:
        taken = [0] * len(x.cols)
        for i in range(n):
            p = x.port[i]
            self.y.at[i] = i
            self.y.cols[0][i] = p
            self.y.cols[1][i] = x.cols[p][0][taken[p]]
            taken[p] += 1
        return n

    def closed(self, port: int) -> None:
        assert port == 2, "it hears of another port"


class DisabledPorts(DeadInput):
    """Operators with ports that are disabled, one of them with a single input that is left: each element
    comes by the port to which its stream is connected."""

    def process(self) -> Process:
        p, a, b = pair()
        both = operator(Ports)().named("both").on("gateway", backup=["left", "right"])(a, None, b)
        one = operator(Ports)().named("one").on("left", backup=["gateway"])(None, b, None)
        p.lake("pair/both", both, cap=600)
        p.lake("pair/one", one, cap=600)
        return p

    def join(self) -> int:
        return self.vertex("both")

    def finish(self) -> Result:
        result = super().finish()
        streams = [stream for _, stream in sorted(self.world.outbox.streams.items())]
        found = [{row[2] for row in stream.rows.values()} - {"hole"} for stream in streams]
        if found != [{0, 2}, {1}]:
            self.world.error("elements came by the ports %r" % found)
        return result


class NoInputOpen(DeadInput):
    """Every input of an operator is closed, and stays so. Its time stands still, and so does time after it:
    timers that never end must not run towards the end of all time."""

    def process(self) -> Process:
        p, a, b = pair()
        ticks = operator(Ticks)().named("ticks").on("gateway", backup=["left", "right"])(a, b)
        windows = Tumbling(us=300_000, what="count", empty=1).named("windows")
        p.lake("pair/windows", ticks >> windows.on("gateway", backup=["left", "right"]), cap=600)
        return p

    def script(self) -> list[tuple[float, Any]]:
        return [(6, lambda: self.close(0)), (7, self.close)]


class Asleep(DeadInput):
    """One of two boards sleeps, and announces it: the join continues by its promise, without any decision."""

    def script(self) -> list[tuple[float, Any]]:
        world = self.world
        self.heard_us = 0

        def hear() -> None:
            rows = [row for s in world.outbox.streams.values() for row in s.rows.values()]
            self.heard_us = max(row[0] for row in rows) - SITE_US

        return [(6, self.sleep), (15, hear), (16.5, lambda: world.asleep.clear())]


class DeadSource(DeadInput):
    """A board dies with its source; the join continues without it by decision, after a restart of the
    join."""

    def script(self) -> list[tuple[float, Any]]:
        return [
            (6, lambda: self.kill(2)),
            (8, lambda: self.crash(GATEWAY)),
            (9, lambda: self.boot(GATEWAY)),
            (11, self.close),
        ]


class DeadSourceMoved(DeadInput):
    """The board dies, and the join starts elsewhere: its producer will never hear of the new epoch. First its
    parameters change, as often as allowed, and only then is it decided that it continues without the input.
    """

    def script(self) -> list[tuple[float, Any]]:
        join = self.join()
        return [
            (6, lambda: self.kill(2)),
            (7, lambda: self.at_gateway(lambda host: host.instances[join].ck.now())),
            (8, lambda: self.move(join, 1)),
            *[(9 + i / 10, lambda: self.configure(join, us=500_000)) for i in range(10)],
            (11, self.close),
        ]


class DeadSourceClosed(DeadInput):
    """The board dies, the join continues without it by decision, and loses power as soon as it has:
    what it had of the board exists nowhere else.
    """

    def script(self) -> list[tuple[float, Any]]:
        return [
            (6, lambda: self.kill(2)),
            (8, self.close),
            (8.05, lambda: self.crash(GATEWAY)),
            (9, lambda: self.boot(GATEWAY)),
        ]


class DeadAsleep(DeadInput):
    """The board dies asleep. The join continues by its promise, and then by decision; it loses power as soon
    as it has, and in its next boot no producer promises anything up to where it stood.
    """

    def script(self) -> list[tuple[float, Any]]:
        return [
            (6, self.sleep),
            (9, lambda: self.kill(2)),
            (11, self.close),
            (11.05, lambda: self.crash(GATEWAY)),
            (12, lambda: self.boot(GATEWAY)),
        ]


class DeadInLoop(Directed):
    """A board dies with the source of an operator in a loop. The join of the loop continues without it, and
    so does that operator, which still takes its feedback: otherwise all buffers of the loop would fill up.
    """

    def process(self) -> Process:
        return sp4.build("extended", every=36, batch=12, hosts=("left", "right", "gateway", "gateway"))

    def script(self) -> list[tuple[float, Any]]:
        calm = self.vertex("calm_right")
        return [
            (5, lambda: self.world.asleep.add(2)),
            (6, lambda: self.world.call(self.node(2), lambda host: host.instances[calm].ck.now())),
            (7, lambda: self.kill(2)),
            (8, lambda: self.move(calm, GATEWAY)),
            (9, self.close_ended),
        ]


class ClosedAlive(DeadInput):
    """An input is closed although its producer lives. That one has another consumer, the lake, and goes on:
    it does not wait for the join. The input is opened late, or never."""

    OPENS: list[float] = []

    def process(self) -> Process:
        p, a, b = pair()
        doubled = b >> Affine().named("doubled").on("right", backup=["left", "gateway"])
        p.lake("pair/doubled", doubled, cap=200)
        total = SumJoin(us=1_000_000).named("sum").on("gateway", backup=["left", "right"])(a, doubled)
        p.lake("pair/sum", total, cap=600)
        return p

    def join(self) -> int:
        return self.vertex("sum")

    def script(self) -> list[tuple[float, Any]]:
        join = self.join()
        opens = [(at, lambda: self.at_gateway(lambda host: host.reopen(join, 1, 0, 0))) for at in self.OPENS]
        crash = [(11, lambda: self.crash(GATEWAY)), (11.5, lambda: self.boot(GATEWAY))]
        return [(3, self.close), *crash, *opens]


class ClosedAliveOpened(ClosedAlive):
    OPENS = [17]


class AbsentTimeless(DeadInput):
    """The gateway is away, and no board knows the time. A sensor gives nothing for a while; its consumer goes
    on without it, and with it again as soon as it gives something."""

    SECONDS = 50

    def process(self) -> Process:
        p, a, b = pair()
        best = a.otherwise(b, after_ms=6000, local=True).named("best").on("right", backup=["left"])
        high = best >> Threshold(high=10, low=-10).named("high").on("right", backup=["left"]).unused(0)
        p.alarm(high, field="on", on="right", driver="led")
        p.lake("pair/a", a, cap=600)
        return p

    def script(self) -> list[tuple[float, Any]]:
        return [
            (0, lambda: self.world.cut.update((m, n) for m in range(3) for n in range(3) if not m * n)),
            (10, lambda: self.world.mute_until.update({LEFT: 20 * SECOND})),
            (19, lambda: self.look(True)),
            (23, lambda: self.look(False)),
            (40, lambda: self.look(False)),
        ]

    def look(self, closed: bool) -> None:
        host = self.node(RIGHT).host
        assert host is not None and not host.clock.synced
        if host.instances[self.vertex("best")].inputs[0].closed != closed:
            self.world.error("the input is %s" % ("open" if closed else "closed"))


class OpenedUnmet(DeadInput):
    """An input is closed and opened again before the join has ever met its source. Which incarnation it takes
    from then on must outlast a restart that comes before the next checkpoint.
    """

    def process(self) -> Process:
        p, a, b = pair(every=1000)
        total = SumJoin(us=1_000_000).named("sum").on("gateway", backup=["left", "right"])(a, b)
        p.lake("pair/sum", total, cap=600)
        return p

    def script(self) -> list[tuple[float, Any]]:
        join = self.join()
        return [
            (0, lambda: self.cut(RIGHT, GATEWAY)),
            (3, self.close),
            (5, lambda: self.at_gateway(lambda host: host.reopen(join, 1, 0, host.site()))),
            (7, lambda: self.heal(RIGHT, GATEWAY)),
            (10, lambda: self.crash(GATEWAY)),
            (10.5, lambda: self.boot(GATEWAY)),
        ]


class ClosedUnmet(DeadInput):
    """The only input of an operator is closed before it has taken anything of it. It drops what comes, and
    takes the input again when a person asks for that."""

    def process(self) -> Process:
        p = boards("pair", "left", "right")
        b = p.source("b", "v:i16", rate_hz=20, on="right")
        p.lake("pair/one", b >> Affine().named("one").on("gateway", backup=["left", "right"]), cap=600)
        return p

    def script(self) -> list[tuple[float, Any]]:
        return [
            (0, lambda: self.cut(RIGHT, GATEWAY)),
            (3, lambda: self.close(0)),
            (5, lambda: self.heal(RIGHT, GATEWAY)),
            (12, lambda: self.at_gateway(lambda host: host.reopen(self.join(), 0, 0, 0))),
        ]


class BeginsHalf(DeadInput):
    """A join is asked for a checkpoint before it has met one of its sources. It begins when it has, and
    starts again before it has taken a checkpoint of its own.
    """

    def process(self) -> Process:
        p, a, b = pair(every=1000, level="local")
        p.lake("pair/sum", SumJoin(us=1_000_000).named("sum").on("gateway")(a, b), cap=600)
        return p

    def script(self) -> list[tuple[float, Any]]:
        join = self.join()

        def save(host: GatewayHost) -> None:
            host.instances[join].ck.now()

        return [
            (0, lambda: self.cut(RIGHT, GATEWAY)),
            (3, lambda: self.at_gateway(save)),
            (4, lambda: self.heal(RIGHT, GATEWAY)),
            (8, lambda: self.crash(GATEWAY)),
            (9, lambda: self.boot(GATEWAY)),
        ]


class PromisedBefore(Directed):
    """An operator with a timer restarts far behind, and its source is lost with what came since. Its timer
    never fires any more: but a join after it has gone on by a boundary beyond that."""

    def process(self) -> Process:
        p = boards(
            "promised", "left", "right", "spare", checkpoints="uncoordinated", every=200, level="local"
        )
        a = p.source("a", "v:i16", rate_hz=20, on="left")
        b = p.source("b", "v:i16", rate_hz=20, on="right")
        last = a >> Debounce(ms=300).named("last").on("spare")
        p.lake("promised/both", Union().named("both").on("right")(last, b))
        return p

    def script(self) -> list[tuple[float, Any]]:
        return [
            (9, lambda: self.crash(3)),
            (9.1, lambda: self.kill(LEFT)),
            (10, lambda: self.boot(3)),
            (14, lambda: self.close("last")),
            (14, lambda: self.close("both")),
        ]

    def close(self, name: str) -> None:
        """A person lets an operator go on without its first input."""
        v = self.vertex(name)
        self.world.call(self.node(GATEWAY), lambda host: host.close(v, 0), "close")
