# mypy: disable-error-code="func-returns-value"
"""Operators that give up: more hosts are lost than the level covers."""

from __future__ import annotations

from functools import partial
from typing import Any

from headwater.operators.pointwise import Decimate
from headwater.process import Affine, Attenuate, Average, Process, Union, operator
from headwater.protocol import frames
from headwater.runtime.checkpoints import Checkpoints
from headwater.runtime.standing import ENTRIES
from headwater.storage.log import LogFull

from ..beyond import hopeless
from ..scenario import Result
from ..world import SECOND, Hardware
from .base import GATEWAY, LEFT, SHIFTED, Directed, boards

HOME, OTHER, ANOTHER = 2, 3, 4


class GivenUp(Directed):
    """The board of an operator and the one that keeps its checkpoints die together. The gateway takes over,
    and waits for the checkpoint that the source names, until a person says that it shall go on without.
    """

    PACE = Hardware().pace
    SECONDS = 50
    AFTER: int | None = None
    PLACE: tuple[str, ...] = ("other", "gateway")

    def process(self) -> Process:
        p = boards("given_up", "left", "home", "other")
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        first = values >> Affine().named("shifted").on("home", list(self.PLACE), self.AFTER)
        p.lake("given_up/shifted", first, cap=600)
        return p

    def script(self) -> list[tuple[float, Any]]:
        return [
            (1, lambda: self.deafen(GATEWAY)),
            (8, lambda: self.lose(HOME, OTHER)),
            (24, lambda: self.must_wait(GATEWAY)),
            (25, lambda: self.give_up(SHIFTED)),
            (36, lambda: self.must_run(SHIFTED)),
        ]

    def deafen(self, number: int) -> None:
        """This host stores no checkpoint of others."""
        self.withhold(self.host(number), True)

    def host(self, number: int) -> Any:
        host = self.node(number).host
        assert host is not None
        return host

    def lose(self, *numbers: int) -> None:  # type: ignore[override]
        for number in numbers:
            self.kill(number)
        for number in numbers:
            self.declare(self.node(number))

    def give_up(self, v: int) -> None:
        """A person says so, and says it twice."""
        node = self.node(GATEWAY)
        for at in self.world.nodes:
            for row in hopeless(at.host) if at.host and not at.lost else ():
                if row[0] == v:
                    for _ in range(2):
                        ask = partial(self.ask_to, v, at.number, row[4])
                        self.world.call(node, ask, "give up")

    def ask_to(self, v: int, at: int, number: int, host: Any) -> None:
        host.give_up(v, at, number, self.node(GATEWAY).mono())

    def must_wait(self, number: int, v: int = SHIFTED) -> None:
        inst = self.host(number).instances.get(v)
        if inst is None or not hopeless(self.host(number)):
            self.world.error("%s waits for no checkpoint" % self.world.name(number))

    def must_run(self, v: int) -> None:
        """It has given up once, and has put out something since."""
        if len(self.world.incarnations(v)) != 2:
            self.world.error("it gave up %d times" % (len(self.world.incarnations(v)) - 1))
        for e in self.world.lake_edges():
            stream = self.world.outbox.streams.get((e.index, self.world.current(e.index)))
            if e.src == v and not (stream and len(stream.rows) > 20):
                self.world.error("%s: nothing follows since it gave up" % e.lake)


class GivesUpItself(GivenUp):
    """The same, and the process file says how long it waits. Half of that time the operator's host does not
    hear the gateway: that does not count.
    """

    AFTER = 15
    PLACE = ("other", "left")

    def script(self) -> list[tuple[float, Any]]:
        return [
            (1, lambda: self.deafen(LEFT)),
            (8, lambda: self.lose(HOME, OTHER)),
            (16, lambda: [self.must_wait(LEFT), self.cut(LEFT, GATEWAY)]),
            (40, lambda: [self.must_wait(LEFT), self.heal(LEFT, GATEWAY)]),
            (65, lambda: self.must_run(SHIFTED)),
        ]

    SECONDS = 70


class GivenUpKeepers(GivenUp):
    """No producer names anything further than what the operator has, but two of its keepers, erased or dead,
    may have had that: it goes on from its own checkpoint, in its state.
    """

    SECONDS = 60

    def process(self) -> Process:
        p = boards("given_up", "left", "home", "other", every=50)
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        sums = values >> Average(count=7).named("shifted").on("home", backup=["other", "gateway"])
        p.lake("given_up/shifted", sums, cap=600)
        return p

    def script(self) -> list[tuple[float, Any]]:
        return [
            (1, lambda: self.cut(HOME, OTHER)),
            (8.2, lambda: [self.kill(HOME), self.kill(OTHER)]),
            (30, lambda: self.must_wait(GATEWAY)),
            (31, lambda: self.give_up(SHIFTED)),
            (40, lambda: [self.declare(self.node(n)) for n in (HOME, OTHER)]),
            (55, lambda: self.must_run(SHIFTED)),
        ]

    def must_run(self, v: int) -> None:
        super().must_run(v)
        if any(content[2] for _, content in self.world.decisions()[v]):
            self.world.error("it began in its first state, and had a checkpoint")


class GivenUpInside(GivenUp):
    """The operator that gives up has a consumer on another board, with a join: that one goes on with the new
    incarnation by a decision of its own, and restarts afterwards.
    """

    SECONDS = 60

    def process(self) -> Process:
        p = boards("given_up", "left", "home", "other", "right")
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        more = p.source("more", "v:i16", rate_hz=10, on="right")
        first = values >> Affine().named("shifted").on("home", backup=["other", "gateway"])
        p.lake("given_up/first", first, cap=600)
        both = Union()(first, more).named("both").on("right", backup=["left"])
        p.lake("given_up/both", both, cap=900)
        return p

    def script(self) -> list[tuple[float, Any]]:
        v = 2
        return [
            (1, lambda: self.deafen(GATEWAY)),
            (8, lambda: self.lose(HOME, OTHER)),
            (24, lambda: self.must_wait(GATEWAY, v)),
            (25, lambda: self.give_up(v)),
            (40, lambda: self.must_run(v)),
            (42, lambda: self.crash(ANOTHER, GATEWAY)),
            (44, lambda: self.boot(ANOTHER, GATEWAY)),
        ]


class GivenUpBehind(GivenUpKeepers):
    """The gateway has a checkpoint from before the one that the source names: its state is of no use."""

    SECONDS = 50

    def script(self) -> list[tuple[float, Any]]:
        return [
            (1, lambda: self.cut(HOME, OTHER)),
            (5, lambda: [self.heal(HOME, OTHER), self.deafen(GATEWAY)]),
            (12, lambda: self.lose(HOME, OTHER)),
            (24, lambda: self.must_wait(GATEWAY)),
            (25, lambda: self.give_up(SHIFTED)),
            (45, lambda: self.must_run(SHIFTED)),
        ]

    def must_run(self, v: int) -> None:
        GivenUp.must_run(self, v)
        if not all(content[2] for _, content in self.world.decisions()[v]):
            self.world.error("it went on in a state from before the entries that are missing")


class GivenUpClosed(GivenUp):
    """The same of an operator without one of its inputs: a person has closed it, and the gateway knows that.
    In its first state it goes on without that input, too."""

    SECONDS = 60

    def process(self) -> Process:
        p = boards("given_up", "left", "home", "other", "right", every=50)
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        more = p.source("more", "v:i16", rate_hz=20, on="right")
        best = operator("Otherwise")().named("best").on("home", backup=["other", "gateway"])(more, values)
        p.lake("given_up/best", best, cap=600)
        p.lake("given_up/more", more)
        return p

    def script(self) -> list[tuple[float, Any]]:
        v = 2
        return [
            (1, lambda: self.cut(HOME, OTHER)),
            (3, lambda: self.lose(ANOTHER)),
            (5, lambda: self.world.call(self.node(GATEWAY), lambda host: host.close(v, 0), "close")),
            (14, lambda: [self.heal(HOME, OTHER), self.deafen(GATEWAY)]),
            (20, lambda: self.lose(HOME, OTHER)),
            (34, lambda: self.must_wait(GATEWAY, v)),
            (35, lambda: self.give_up(v)),
            (55, lambda: self.must_run(v)),
        ]


class GivenUpForgotten(GivenUpInside):
    """What the gateway gave up no other host has stored when it loses power. The two boards were only away,
    and the operator runs on there as if nothing had been said; so does its consumer.
    """

    def script(self) -> list[tuple[float, Any]]:
        away = [(a, b) for a in (HOME, OTHER) for b in (GATEWAY, LEFT, ANOTHER)]
        v = 2
        return [
            (1, lambda: self.deafen(GATEWAY)),
            (8, lambda: [self.cut(a, b) for a, b in away]),
            (26, lambda: self.must_wait(GATEWAY, v)),
            (27, lambda: self.give_up(v)),
            (36, lambda: self.crash(GATEWAY)),
            (37, lambda: [self.heal(a, b) for a, b in away]),
            (50, lambda: self.boot(GATEWAY)),
        ]

    def finish(self) -> Result:
        result = super().finish()
        if not result.errors and self.world.incarnations(2) != [0]:
            result.errors.append("what it gave up was not forgotten")
        return result


class GivenUpAfterChanges(GivenUp):
    """Its parameters were changed, and only the lost boards had that stored: the gateway gives the changes
    again, one by one.
    """

    def script(self) -> list[tuple[float, Any]]:
        changes = [(4 + i, lambda i=i: self.configure(SHIFTED, offset=5 + i)) for i in range(3)]
        return [*changes, *super().script()]

    def must_run(self, v: int) -> None:
        super().must_run(v)
        contents = [content[0] for _, content in self.world.decisions()[v]]
        if contents != ["set"] * 3 + ["anew"] + ["set"] * 3:
            self.world.error("it has decided: %s" % ", ".join(contents))


class GivenUpUnnamed(GivenUp):
    """The gateway has a checkpoint from before a change, the two boards that die have one from after it, and
    the source never heard of that one. The lake has what followed from it, and nobody names it.
    """

    def script(self) -> list[tuple[float, Any]]:
        return [
            (1, lambda: self.cut(HOME, OTHER)),
            (5, lambda: [self.heal(HOME, OTHER), self.deafen(GATEWAY)]),
            (6, lambda: self.withhold(self.host(LEFT), True, frames.SAFE)),
            (7, lambda: self.configure(SHIFTED, offset=7)),
            (12, lambda: self.lose(HOME, OTHER)),
            (14, lambda: self.withhold(self.host(LEFT), False)),
            (24, lambda: self.must_wait(GATEWAY)),
            (25, lambda: self.give_up(SHIFTED)),
            (45, lambda: self.must_run(SHIFTED)),
        ]

    def must_run(self, v: int) -> None:
        super().must_run(v)
        left = [content[0] for _, content in self.world.decided.left[v, 1]]
        contents = [content for _, content in self.world.decisions()[v]]
        if left != ["set"] or [content[0] for content in contents] != ["anew", "set"]:
            self.world.error("it has decided: %s" % ", ".join(content[0] for content in contents))
        elif contents[0][2]:
            self.world.error("it began in its first state, and had a checkpoint")


class GivenUpLeftWithNothing(GivenUp):
    """The source's flash is erased at the same time, so no producer names anything, and no keeper has
    anything: all that an operator has that begins is that these may have had something.
    """

    def script(self) -> list[tuple[float, Any]]:
        return [
            (1, lambda: self.deafen(GATEWAY)),
            (8, lambda: [self.lose(HOME, OTHER), self.erase(LEFT)]),
            (9, lambda: self.boot(LEFT)),
            (24, lambda: self.must_wait(GATEWAY)),
            (25, lambda: self.give_up(SHIFTED)),
            (45, lambda: self.must_run(SHIFTED)),
        ]


class GivenUpStuck(GivenUp):
    """The operator's host dies, and the flash of the source is erased. Its furthest checkpoint is there, but
    what it has put out since, the lake has, and it can never put that out again.
    """

    def script(self) -> list[tuple[float, Any]]:
        return [
            (8.2, lambda: [self.lose(HOME), self.erase(LEFT)]),
            (9, lambda: self.boot(LEFT)),
            (24, self.must_lack),
            (25, lambda: self.give_up(SHIFTED)),
            (45, lambda: self.must_run(SHIFTED)),
        ]

    def must_lack(self) -> None:
        rows = [row for n in (GATEWAY, OTHER) for row in hopeless(self.host(n))]
        if [row[1] for row in rows] != [ENTRIES]:
            self.world.error("no operator waits for entries: %r" % rows)


class GivenUpInALoop(GivenUp):
    """The operator feeds back to the one before it, on another board, which has restarted meanwhile: that
    one goes on with the new incarnation, though the depth for that counts operators that wait for it.
    """

    SECONDS = 60

    def process(self) -> Process:
        p = boards("given_up", "left", "home", "other", "right", checkpoints="uncoordinated")
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        calm = Attenuate(threshold=100).named("calm").on("right")(values)
        mean = calm >> Average(count=2).named("mean").on("home", backup=["other", "gateway"])
        p.feedback(mean, calm, port=1, delay_ms=4000)
        p.lake("given_up/mean", mean, cap=600)
        return p

    def script(self) -> list[tuple[float, Any]]:
        v = 2
        return [
            (1, lambda: self.deafen(GATEWAY)),
            (8, lambda: self.lose(HOME, OTHER)),
            (15, lambda: self.crash(ANOTHER)),
            (16, lambda: self.boot(ANOTHER)),
            (24, lambda: self.must_wait(GATEWAY, v)),
            (25, lambda: self.give_up(v)),
            (45, lambda: [self.must_run(v), self.must_go_on(1)]),
        ]

    def must_go_on(self, v: int) -> None:
        if [content[0] for _, content in self.world.decisions().get(v, ())] != ["open"]:
            self.world.error("its consumer has not gone on with the new incarnation")


class GivenUpAndCut(GivenUp):
    """Level `peers=2`, and all three hosts die that have the checkpoints. Power fails on the host that has
    given up before that is stored where the level asks for it, twice.
    """

    SECONDS = 70

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.cuts = 0
        self.world.checks.append(self.watch)

    def process(self) -> Process:
        p = boards("given_up", "left", "home", "other", "third", level="peers=2")
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        first = values >> Affine().named("shifted").on("home", ["other", "third", "gateway"])
        p.lake("given_up/shifted", first, cap=600)
        return p

    def script(self) -> list[tuple[float, Any]]:
        return [
            (1, lambda: [self.deafen(GATEWAY), self.deafen(LEFT)]),
            (8, lambda: self.lose(HOME, OTHER, ANOTHER)),
            (10, lambda: self.withhold(self.host(LEFT), False)),
            (30, lambda: self.must_wait(GATEWAY)),
            (31, lambda: self.give_up(SHIFTED)),
            (60, lambda: self.must_run(SHIFTED)),
        ]

    def watch(self, node: Any) -> None:
        inst = node.host.instances.get(SHIFTED) if node.host and node.number == GATEWAY else None
        if inst and inst.ports[0].inc and inst.unsettled and self.cuts < 2:
            self.cuts += 1
            self.world.after(1, lambda: self.crash(GATEWAY))
            self.world.after(SECOND, lambda: self.boot(GATEWAY))

    def must_run(self, v: int) -> None:
        super().must_run(v)
        if self.cuts < 2:
            self.world.error("power was cut %d times" % self.cuts)


class GivenUpForNothing(GivenUp):
    """A person says so of an operator that runs: nothing happens."""

    def script(self) -> list[tuple[float, Any]]:
        return [
            (8, lambda: [self.tell_all(n) for n in (1, 2, 3)]),
            (20, self.must_go_on),
        ]

    def tell_all(self, number: int) -> None:
        node = self.node(GATEWAY)
        for at in (HOME, OTHER, GATEWAY):
            self.world.call(node, partial(self.ask_to, SHIFTED, at, number), "give up")

    def must_go_on(self) -> None:
        if self.world.incarnations(SHIFTED) != [0] or self.place[SHIFTED] != HOME:
            self.world.error("an operator that runs has given up")


class GivenUpTooEarly(GivenUp):
    """The two boards were only away, and come back with all that they have: they are refused what they
    acknowledge, and what the operator put out there stays another incarnation.
    """

    def script(self) -> list[tuple[float, Any]]:
        away = [(a, b) for a in (HOME, OTHER) for b in (GATEWAY, LEFT)]
        return [
            (1, lambda: self.deafen(GATEWAY)),
            (8, lambda: [self.cut(a, b) for a, b in away]),
            (26, lambda: self.must_wait(GATEWAY)),
            (27, lambda: self.give_up(SHIFTED)),
            (28, lambda: self.withhold(self.host(GATEWAY), False)),
            (40, lambda: [self.heal(a, b) for a, b in away]),
            (49, lambda: self.must_run(SHIFTED)),
        ]


class GivenUpChain(GivenUp):
    """Two operators give up, one after the other. The first one's checkpoint needs no lost board any more
    once the second one's is stored; and the second one goes on without an answer of the first one.
    """

    SECONDS = 90
    NEXT: tuple[str, ...] = ("other", "gateway")

    def process(self) -> Process:
        p = boards("given_up", "left", "home", "other")
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        first = values >> Affine().named("shifted").on("home", backup=["other", "gateway"])
        p.lake("given_up/shifted", first, cap=600)
        p.lake("given_up/next", first >> Affine().named("next").on("home", backup=list(self.NEXT)), cap=600)
        return p

    def script(self) -> list[tuple[float, Any]]:
        return [
            (1, lambda: [self.deafen(GATEWAY), self.deafen(LEFT)]),
            (8, lambda: self.lose(HOME, OTHER)),
            (30, lambda: self.give_up(SHIFTED)),
            (40, lambda: self.give_up(SHIFTED + 1)),
            (85, lambda: [self.must_run(SHIFTED), self.must_run(SHIFTED + 1)]),
        ]


class GivenUpChainApart(GivenUpChain):
    """The same on two hosts."""

    NEXT = ("other", "left")


class GivenUpPromised(GivenUp):
    """The operator that gives up puts out again what it had put out before. A join after it has promised a
    further operator that nothing so old follows, and is handed over before it takes any of that.
    """

    SECONDS = 80
    SEEN = False  # whether the lake has what goes into the joins, too

    def process(self) -> Process:
        p = boards("given_up", "left", "home", "other", "right")
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        more = p.source("more", "v:i16", rate_hz=10, on="right")
        first = values >> Average(count=3).named("first").on("home", backup=["other", "gateway"])
        second = first >> Affine().named("second").on("other", backup=["right", "home"])
        both = Union()(first, more).named("both").on("gateway", backup=["home", "right"])
        last = Union()(both, second).named("last").on("right", backup=["gateway", "other"])
        p.lake("given_up/last", last, cap=900)
        if self.SEEN:
            p.lake("given_up/first", first, cap=300)
            p.lake("given_up/second", second, cap=600)
        return p

    def script(self) -> list[tuple[float, Any]]:
        return [
            (8, lambda: self.lose(HOME, OTHER)),
            (43, lambda: [self.give_up(self.vertex(name)) for name in ("first", "second")]),
            (61, lambda: self.give_up(self.vertex("second"))),
        ]


class GivenUpPromisedSince(GivenUpPromised):
    """The same, and where the join stands it had made a checkpoint before it promised that. The host that
    takes it has that one already.
    """

    SEEN = True

    def script(self) -> list[tuple[float, Any]]:
        return [
            (7.5, lambda: [self.kill(HOME), self.kill(OTHER)]),
            (31, lambda: [self.declare(self.node(HOME)), self.declare(self.node(OTHER))]),
            *super().script()[1:],
        ]


class Gate(Decimate):
    """Lets everything pass, or nothing: the first element that it sees tells which."""

    PARAMS = "k:u16"
    STATE = "way:u8"
    way: int

    def run(self, x: Any, n: int) -> int:
        if not self.way and n:
            self.way = 1 if x.cols[0][0] >= 0 else 2
        passes = n if self.way == 1 else 0
        for i in range(passes):
            self.y.at[i] = i
            for column, given in zip(self.y.cols, x.cols, strict=True):
                column[i] = given[i]
        return passes


class GivenUpPromisedFirst(GivenUp):
    """A join has taken nothing of the operator that gives up, and has promised its own consumer that nothing
    so old follows as what comes now.
    """

    SECONDS = 80

    def process(self) -> Process:
        p = boards("given_up", "left", "home", "other", "right")
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        more = p.source("more", "v:i16", rate_hz=10, on="right")
        first = operator(Gate)(k=1).named("first").on("home", backup=["other", "gateway"])(values)
        both = first >> Affine().named("both").on("gateway", backup=["right"])
        last = Union()(both, more).named("last").on("right", backup=["gateway"])
        p.lake("given_up/last", last, cap=900)
        return p

    def script(self) -> list[tuple[float, Any]]:
        return [(8, lambda: self.lose(HOME, OTHER)), (43, lambda: self.give_up(self.vertex("first")))]


class GivenUpPromisedFirstHanded(GivenUpPromisedFirst):
    """The same, and it is handed over before that comes."""

    def script(self) -> list[tuple[float, Any]]:
        return [*super().script(), (30, lambda: self.hand(self.vertex("both"), GATEWAY, ANOTHER))]


class GivenUpLogFull(GivenUpPromisedSince):
    """The log is full when the giver would store what the join has promised since: it keeps the join."""

    def script(self) -> list[tuple[float, Any]]:
        return [(1, self.fill), *super().script()]

    def fill(self) -> None:
        """... of every last checkpoint."""
        last = Checkpoints.last

        def full(ck: Any) -> bool:
            store = ck.host.store
            store.put_blob = self.no_room
            try:
                return last(ck)
            finally:
                del store.put_blob

        for node in self.world.nodes:
            for inst in node.host.instances.values() if node.host else ():
                inst.ck.__dict__["last"] = partial(full, inst.ck)

    @staticmethod
    def no_room(*_: object) -> None:
        raise LogFull


SCHEDULES: dict[str, type[Directed]] = {
    "given up": GivenUp,
    "gives up by itself": GivesUpItself,
    "given up, keepers silent": GivenUpKeepers,
    "given up, state behind": GivenUpBehind,
    "given up without an input": GivenUpClosed,
    "given up after changes": GivenUpAfterChanges,
    "given up, unnamed": GivenUpUnnamed,
    "given up, nothing left": GivenUpLeftWithNothing,
    "given up, stuck": GivenUpStuck,
    "given up in a loop": GivenUpInALoop,
    "given up inside": GivenUpInside,
    "given up, promised before": GivenUpPromised,
    "given up, promised since": GivenUpPromisedSince,
    "given up, promised since, log full": GivenUpLogFull,
    "given up, promised first": GivenUpPromisedFirst,
    "given up, promised first, handed over": GivenUpPromisedFirstHanded,
    "given up in a chain": GivenUpChain,
    "given up in a chain, apart": GivenUpChainApart,
    "given up and forgotten": GivenUpForgotten,
    "given up and cut": GivenUpAndCut,
    "given up for nothing": GivenUpForNothing,
    "given up too early": GivenUpTooEarly,
}
