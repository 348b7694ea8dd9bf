# mypy: disable-error-code="func-returns-value"
"""Hosts that decide by themselves to take over an operator, or not to."""

from __future__ import annotations

from typing import Any

from headwater.process import Affine, Process, Union
from headwater.protocol import frames

from ..scenario import Result
from ..world import SECOND, Hardware, Node
from .base import GATEWAY, LEFT, SHIFTED, Directed, boards, shifted

HOME, OTHER = 2, 3  # the hosts of the operator: its first one, and a backup


class Decided(Directed):
    """An operator with two backups, beside its source and on a host of its own. Exactly as many takeovers as
    the schedule calls for, and none of an operator that is in touch."""

    PACE = Hardware().pace
    TAKEOVERS = 0
    PLANNED = 0
    SECONDS = 30

    def process(self) -> Process:
        return shifted(boards("decided", "left", "home", "other"), "home", "other", "gateway", cap=600)

    def finish(self) -> Result:
        result = super().finish()
        found = (self.takeovers.count, self.takeovers.needless)
        if found != (self.TAKEOVERS, 0):
            text = "%d takeovers, of which %d were needless, and not %d"
            self.world.error(text % (*found, self.TAKEOVERS))
        if self.handovers.count != self.PLANNED:
            self.world.error("%d planned moves, and not %d" % (self.handovers.count, self.PLANNED))
        return result

    def apart(self, one: tuple[int, ...], other: tuple[int, ...]) -> None:
        for a in one:
            for b in other:
                self.cut(a, b)


class HostDies(Decided):
    """The host of the operator dies. One of two candidates takes over."""

    TAKEOVERS = 1

    def script(self) -> list[tuple[float, Any]]:
        return [(6, lambda: self.kill(HOME))]


class HostDiesHolding(Decided):
    """... and it would be the first holder of the new instance's checkpoints, which does not wait for it."""

    TAKEOVERS = 1
    WAITS_US = 800_000  # less than the pause after which what was not stored is sent again

    def script(self) -> list[tuple[float, Any]]:
        self.began_us = 0
        self.world.on_takeover.append(self.begins)
        self.world.checks.append(self.settles)
        return [(6, lambda: self.kill(HOME))]

    def begins(self, node: Node, v: int, blind: bool) -> None:
        self.began_us = self.world.now

    def settles(self, node: Node) -> None:
        if not self.began_us or node.number not in (OTHER, GATEWAY):
            return
        inst = self.shifted_at(node.number, node)
        if inst and not inst.unsettled:
            if self.world.now - self.began_us > self.WAITS_US:
                us = self.world.now - self.began_us
                self.world.error("its checkpoint was stored after %d us" % us)
            self.began_us = 0


class HostDiesGatewayAway(Decided):
    """The same while the gateway is away: a board takes over. What was granted it learns when the gateway is
    back."""

    TAKEOVERS = 1

    def script(self) -> list[tuple[float, Any]]:
        return [
            (5.5, lambda: self.crash(GATEWAY)),
            (6, lambda: self.kill(HOME)),
            (24, lambda: self.boot(GATEWAY)),
        ]


class BrokerRestarts(Decided):
    """No host reaches any other one for a minute: no operator moves."""

    SECONDS = 90

    def script(self) -> list[tuple[float, Any]]:
        def away() -> None:
            self.world.broker_us = 70 * SECOND

        return [(10, away)]


class ProducerRestarts(Decided):
    """The board of the source restarts while neither it nor a candidate hears the operator's host. It cannot
    know yet whether the operator lives."""

    def script(self) -> list[tuple[float, Any]]:
        return [
            (8, lambda: self.apart((HOME,), (GATEWAY, LEFT, OTHER))),
            (12, lambda: self.crash(LEFT)),
            (12.2, lambda: self.boot(LEFT)),
            (16, lambda: self.world.cut.clear()),
        ]


class BeganOutOfReach(Decided):
    """The operator begins on another host, which dies before it reaches the board of the source. That board
    remembers that the former host spoke, and takes it for alive, until it hears it ask."""

    TAKEOVERS = 1

    def script(self) -> list[tuple[float, Any]]:
        return [
            (5, lambda: self.apart((OTHER,), (LEFT,))),
            (5.2, lambda: self.move(SHIFTED, OTHER)),
            (7, lambda: self.kill(OTHER)),
            (7.2, lambda: self.world.cut.clear()),
        ]


class NoHeap(Decided):
    """The only candidate has too little heap when it is to take over: it goes on with what it does, and
    tries again."""

    TAKEOVERS = 1
    SECONDS = 100

    def script(self) -> list[tuple[float, Any]]:
        def full(*_: Any) -> None:
            raise MemoryError

        def fill() -> None:
            host: Any = self.node(OTHER).host
            takeover, host.takeover = host.takeover, full
            self.world.after(15 * SECOND, lambda: setattr(host, "takeover", takeover))

        return [
            (5, fill),
            (5.5, lambda: self.kill(HOME)),
            (5.5, lambda: self.crash(GATEWAY)),
            (90, lambda: self.boot(GATEWAY)),
        ]


class CandidateApart(Decided):
    """The gateway alone reaches the operator's host, and only the gateway's words tell of it: first they are
    lost for long, then a candidate asks."""

    SECONDS = 40

    def script(self) -> list[tuple[float, Any]]:
        def quiet(so: bool) -> None:
            host = self.node(OTHER).host
            assert host
            self.withhold(host, so, frames.WORD)

        return [
            (5, lambda: self.cut(OTHER, HOME)),
            (6, lambda: quiet(True)),
            (30, lambda: [self.heal(OTHER, HOME), quiet(False)]),
        ]


class SourceDies(Decided):
    """The board of the only source dies. The operator runs on where it is: no other host could feed it."""

    SECONDS = 100

    def script(self) -> list[tuple[float, Any]]:
        return [(8, lambda: self.kill(LEFT))]


class PeersApart(Decided):
    """The operator's host is cut off from its producer, together with one candidate. The other candidate
    reaches the producer, and takes over."""

    TAKEOVERS = 1

    def script(self) -> list[tuple[float, Any]]:
        return [
            (6, lambda: self.apart((HOME, OTHER), (GATEWAY, LEFT))),
            (24, lambda: self.world.cut.clear()),
        ]


class LinkLost(Decided):
    """The host of a join loses its link to one of two producers permanently, and no other. Another candidate
    reaches both, and is offered the operator before it would take it over."""

    SECONDS = 60
    PLANNED = 1

    def process(self) -> Process:
        p = boards("lost", "left", "home", "right")
        a = p.source("a", "v:i16", rate_hz=20, on="left")
        b = p.source("b", "v:i16", rate_hz=20, on="right")
        p.lake("lost/both", Union().named("both").on("home", backup=["gateway"])(a, b), cap=600)
        return p

    def script(self) -> list[tuple[float, Any]]:
        return [(6, lambda: self.cut(LEFT, HOME))]


class LinkLostUnoffered(LinkLost):
    """The same where the host of the operator offers nothing: the candidate asks the producers, and takes
    over."""

    TAKEOVERS = 1
    PLANNED = 0

    def script(self) -> list[tuple[float, Any]]:
        def mute() -> None:
            host: Any = self.node(HOME).host
            host.words._apart = lambda v, inst: False

        return [(6, lambda: [mute(), self.cut(LEFT, HOME)])]


class Sleeper(Decided):
    """The only candidate sleeps most of the time, and loses its memory each time. It does not take a healthy
    operator, and takes over when the host of the operator has died."""

    TAKEOVERS = 1
    SECONDS = 90
    PERIOD, AWAKE = 10, 3  # s

    def process(self) -> Process:
        return shifted(boards("sleeper", "left", "home", "other"), "home", "other", cap=600)

    def doze(self) -> None:
        node, us = self.node(OTHER), (self.PERIOD - self.AWAKE) * SECOND
        if node.host and OTHER not in self.place.values():
            self.world.call(node, lambda host: host.sleep(node.mono(), node.mono() + us), "sleep")
            self.crash(OTHER)

    def script(self) -> list[tuple[float, Any]]:
        found: list[tuple[float, Any]] = [(45, lambda: self.kill(HOME))]
        for at in range(5, 90, self.PERIOD):
            found += [(at, self.doze), (at + self.PERIOD - self.AWAKE, lambda: self.boot(OTHER))]
        return found

    def peace(self) -> None:
        if not self.takeovers.count:
            self.world.error("a candidate that sleeps has not taken over for %d s" % (self.SECONDS - 45))
        super().peace()


class ErasedGatewayAway(Decided):
    """The flash of the operator's host is erased while the gateway is away. Every host believes that the
    operator runs there, and it does not."""

    TAKEOVERS = 1
    SECONDS = 40

    def script(self) -> list[tuple[float, Any]]:
        return [
            (5.5, lambda: self.crash(GATEWAY)),
            (6, lambda: self.erase(HOME)),
            (6.5, lambda: self.boot(HOME)),
            (35, lambda: self.boot(GATEWAY)),
        ]


class DiesWithProducer(Decided):
    """An operator, the one before it and their host die. The producer of the second one has to begin
    elsewhere before the second can be asked for."""

    TAKEOVERS = 2
    SECONDS = 60

    def process(self) -> Process:
        p = boards("chain", "left", "home", "other")
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        first = values >> Affine().named("first").on("home", backup=["other", "gateway"])
        p.lake(
            "chain/out", first >> Affine().named("second").on("home", backup=["other", "gateway"]), cap=600
        )
        return p

    def script(self) -> list[tuple[float, Any]]:
        return [(6, lambda: self.kill(HOME))]


class DiesWithSource(Decided):
    """A board with source and operator dies. What a candidate keeps is the only copy of results: it begins
    without any producer."""

    TAKEOVERS = 1
    SECONDS = 90

    def process(self) -> Process:
        return shifted(boards("alone", "left", "other"), "left", "other", "gateway", cap=600)

    def script(self) -> list[tuple[float, Any]]:
        return [(5, lambda: self.open_lake(False)), (8, lambda: self.kill(LEFT))]


class BlindLetsGo(Decided):
    """A candidate reaches only a board that restarts again and again. It begins without any producer. When it
    reaches the others again, the operator has never been away: it lets go, and no other host ever knew."""

    TAKEOVERS = 1
    SECONDS = 90

    def script(self) -> list[tuple[float, Any]]:
        found: list[tuple[float, Any]] = [
            (6, lambda: self.apart((LEFT, HOME), (GATEWAY, OTHER))),
            (80, lambda: self.world.cut.clear()),
        ]
        for at in range(9, 80, 3):
            found += [(at, lambda: self.crash(GATEWAY)), (at + 0.3, lambda: self.boot(GATEWAY))]
        return found

    def finish(self) -> Result:
        result = super().finish()
        home = self.node(HOME).host
        inst = home.instances.get(SHIFTED) if home else None
        if inst is None or inst.epoch != (1, HOME):
            self.world.error("the operator has moved although it was in touch")
        return result


class OverUnheard(Decided):
    """A candidate begins the operator, and dies, while the board that runs it is out of reach and the gateway
    is away. The other candidate alone knows of that epoch: it tells the old instance, which no keeper would
    store a checkpoint of. Then the operator begins above that epoch, before the gateway is back."""

    TAKEOVERS = 1
    SECONDS = 80
    LEVEL = "peer"

    def process(self) -> Process:
        p = boards("unheard", "left", "home", "other", level=self.LEVEL, checkpoints="uncoordinated")
        return shifted(p, "left", "home", "other", cap=600)

    def script(self) -> list[tuple[float, Any]]:
        return [
            (5, lambda: [self.crash(GATEWAY), self.apart((LEFT,), (HOME, OTHER))]),
            (6, lambda: self.move(SHIFTED, HOME)),
            (10, lambda: [self.kill(HOME), self.world.cut.clear()]),
            (75, self.begun),
        ]

    def begun(self) -> None:
        epochs = [n.host.instances[SHIFTED].epoch for n in self.world.nodes if n.host and self.runs_at(n)]
        if len(epochs) != 1 or epochs[0][0] != 3:
            self.world.error("the operator runs under %s while the gateway is away" % epochs)
        self.boot(GATEWAY)

    def runs_at(self, node: Node) -> bool:
        return bool(self.shifted_at(node.number, node))


class OverUnheardLocal(OverUnheard):
    """The same where no checkpoint is sent: the other candidate hears of the old instance when it asks."""

    LEVEL = "local"


class OverErased(Decided):
    """The gateway begins an operator while the board that runs it is out of reach, and then loses its
    database. Only the board of its consumer, which keeps no checkpoint of it, knows of that epoch, and would
    wait for the gateway for ever: it tells the gateway."""

    def process(self) -> Process:
        p = boards("erased", "left", "home", "other")
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        first = values >> Affine().named("first").on("left", backup=["gateway"])
        p.lake("erased/out", first >> Affine().named("second").on("other", backup=["gateway"]), cap=600)
        assert OTHER not in p.plan().keepers(SHIFTED)
        return p

    def script(self) -> list[tuple[float, Any]]:
        return [
            (5, lambda: [self.apart((LEFT,), (GATEWAY, HOME, OTHER)), self.apart((HOME,), (GATEWAY, OTHER))]),
            (6, lambda: self.move(SHIFTED, GATEWAY)),
            (8, lambda: self.erase(GATEWAY)),
            (8.5, lambda: self.boot(GATEWAY)),
            (9, lambda: self.world.cut.clear()),
        ]
