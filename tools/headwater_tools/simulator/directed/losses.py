# mypy: disable-error-code="func-returns-value"
"""Boards that a person declares lost: dead ones, and one that was only asleep."""

from __future__ import annotations

from typing import Any

from headwater.process import Affine, Process
from headwater.protocol import frames
from headwater.protocol.moves import FLEE
from headwater.protocol.refusals import REVOKED

from ..scenario import Result
from ..world import Hardware
from .base import GATEWAY, LEFT, SHIFTED, Directed, boards, shifted

HOME, OTHER, RIGHT = 2, 3, 4


class Declared(Directed):
    """An operator on a board of its own, with backups. Some board is declared lost."""

    PACE = Hardware().pace
    SECONDS = 40
    LEVEL = "peer"
    BACKUP: tuple[str, ...] = ("other", "gateway")
    STRATEGY = "ecoc"

    def process(self) -> Process:
        p = boards("declared", "left", "home", "other", level=self.LEVEL)
        return shifted(p, "home", *self.BACKUP, cap=600)

    def say(self, number: int) -> None:
        """A person declares this board lost."""
        self.declare(self.node(number))

    def must_leave(self, number: int) -> None:
        if number not in self.world.left:
            self.world.error("%s still counts as a keeper" % self.world.name(number))

    def must_have_begun(self) -> None:
        """The gateway has taken the operator, and waits for nobody."""
        inst = self.shifted_at(GATEWAY, self.node(GATEWAY))
        if not inst or inst.blind or inst.recalling:
            self.world.error("the operator waits for boards that are lost")

    def must_trim(self, xi: int) -> None:
        """The source needs no entry up to this one any more."""
        host = self.node(LEFT).host
        if host is None or host.ports[0, 0].trim_to < xi:
            at = host.ports[0, 0].trim_to if host else 0
            self.world.error("the source has trimmed up to %d, and not to %d" % (at, xi))


class TwoOfThree(Declared):
    """Level `peers=2` on three hosts, and one of them dies: before it is declared lost nothing is trimmed,
    and afterwards two hosts are enough.
    """

    LEVEL = "peers=2"
    BACKUP = ("left", "gateway")

    def process(self) -> Process:
        p = boards("declared", "left", "home", level=self.LEVEL, checkpoints=self.STRATEGY)
        return shifted(p, "home", *self.BACKUP, cap=600)

    def script(self) -> list[tuple[float, Any]]:
        return [
            (8, lambda: self.kill(HOME)),
            (20, lambda: self.say(HOME)),
            (30, lambda: [self.must_leave(HOME), self.must_trim(400)]),
        ]


class LastKeeper(Declared):
    """Both boards that may keep the checkpoints of the gateway's operator are lost, one after the other: it
    goes on alone. The board of the source keeps none.
    """

    def process(self) -> Process:
        p = boards("declared", "left", "home", "other", level=self.LEVEL)
        return shifted(p, "gateway", "home", "other", cap=600)

    def script(self) -> list[tuple[float, Any]]:
        return [
            (8, lambda: self.kill(HOME)),
            (9, lambda: self.say(HOME)),
            (18, lambda: self.kill(OTHER)),
            (19, lambda: self.say(OTHER)),
            (39, lambda: [self.must_leave(HOME), self.must_leave(OTHER), self.must_trim(600)]),
        ]


class Apart(TwoOfThree):
    """The same hosts: one cannot be reached for long, and is not lost. As many holders are needed as ever."""

    STRATEGY = "uncoordinated"

    def script(self) -> list[tuple[float, Any]]:
        return [
            (8, lambda: [self.cut(GATEWAY, n) for n in (LEFT, HOME)]),
            (24, lambda: [self.heal(GATEWAY, n) for n in (LEFT, HOME)]),
        ]


class HolderLost(Declared):
    """The board that holds the checkpoints dies, and is declared lost; then the operator's own host dies.
    What the first one held was stored elsewhere in between, and the last candidate finds it.
    """

    def script(self) -> list[tuple[float, Any]]:
        return [
            (8, lambda: self.kill(OTHER)),
            (9, lambda: self.say(OTHER)),
            (14, lambda: self.must_leave(OTHER)),
            (16, lambda: self.kill(HOME)),
            (26, lambda: self.say(HOME)),  # the last host has no other one to store a checkpoint at
        ]


class HolderLostUnheard(HolderLost):
    """The same, but the operator's host hears nothing of the gateway in between, and its newest checkpoint
    may be with the lost board alone: the lost one counts as a keeper until it has heard.
    """

    def script(self) -> list[tuple[float, Any]]:
        return [
            (7, lambda: self.cut(GATEWAY, HOME)),
            (8, lambda: self.kill(OTHER)),
            (9, lambda: self.say(OTHER)),
            (14, self.must_stay),
            (15, lambda: self.heal(GATEWAY, HOME)),
            (25, lambda: self.must_leave(OTHER)),
        ]

    def must_stay(self) -> None:
        if OTHER in self.world.left:
            self.world.error("a board has left before the operator's host has heard that it is lost")


class AsleepReturns(Declared):
    """A board that was only asleep is declared lost. Its operator runs elsewhere, and when it wakes up it is
    refused, by hosts that have restarted meanwhile too, and learns that it is lost.
    """

    def script(self) -> list[tuple[float, Any]]:
        others = (GATEWAY, LEFT, OTHER)
        return [
            (8, lambda: [self.cut(HOME, n) for n in others]),
            (9, lambda: self.say(HOME)),
            (15, lambda: self.must_leave(HOME)),
            (16, lambda: self.crash(LEFT, OTHER)),
            (17, lambda: self.boot(LEFT, OTHER)),
            (24, self.wakes),
            (30, self.must_be_refused),
        ]

    def wakes(self) -> None:
        for n in (GATEWAY, LEFT, OTHER):
            self.heal(HOME, n)

    def must_be_refused(self) -> None:
        for number in (GATEWAY, LEFT, OTHER):
            host = self.node(number).host
            if host and HOME not in host.lost:
                self.world.error("%s does not know of the loss" % self.world.name(number))
            if host and number == GATEWAY and not host.dropped.get(REVOKED):
                self.world.error("the gateway has refused no frame of the lost board")
        host = self.node(HOME).host
        if host and not host.revoked:
            self.world.error("the lost board does not know what it is")


class AsleepNoGateway(AsleepReturns):
    """The same while the gateway is away: hosts that have restarted know from their flash whom to refuse."""

    def script(self) -> list[tuple[float, Any]]:
        return [
            *super().script()[:3],
            (15.5, lambda: self.crash(GATEWAY)),
            (16, lambda: self.crash(LEFT, OTHER)),
            (17, lambda: self.boot(LEFT, OTHER)),
            (24, self.wakes),
            (28, self.must_refuse),
            (30, lambda: self.boot(GATEWAY)),
        ]

    def must_refuse(self) -> None:
        for number in (LEFT, OTHER):
            host = self.node(number).host
            if host and not host.dropped.get(REVOKED):
                self.world.error("%s has refused no frame of the lost board" % self.world.name(number))


class AsleepUntold(AsleepReturns):
    """The same, and it is never told: it goes on as if nothing had happened; no host takes what it says."""

    def script(self) -> list[tuple[float, Any]]:
        return [*super().script()[:-1], (7, self.deafen)]

    def deafen(self) -> None:
        host = self.node(HOME).host
        if host:
            self.withhold(host, True, frames.LOST)

    def finish(self) -> Result:
        host = self.node(HOME).host
        result = super().finish()
        if host and not self.world.errors and (host.revoked or SHIFTED not in host.instances):
            result.errors.append("the lost board was told after all")
        return result


class Replaced(Declared):
    """A board is declared lost and replaced at once by one with an erased flash. It runs its operator and its
    source again, and is a keeper of nothing.
    """

    def process(self) -> Process:
        p = boards("declared", "left", "home", "other", level=self.LEVEL)
        mine = p.source("mine", "v:i16", rate_hz=10, on="other")
        p.lake("declared/mine", mine >> Affine().named("own").on("other", backup=["home"]), cap=600)
        return shifted(p, "home", *self.BACKUP, cap=600)

    def script(self) -> list[tuple[float, Any]]:
        return [
            (8, lambda: self.kill(OTHER)),
            (9, lambda: self.say(OTHER)),
            (10, lambda: [self.world.replace(self.node(OTHER)), self.boot(OTHER)]),
            (20, lambda: self.must_leave(OTHER)),
            (24, lambda: self.crash(HOME)),
            (26, lambda: self.boot(HOME)),
        ]


class ReplacedUntold(Declared):
    """The new board does not hear the gateway, and gets the operator from its first host. What it has counts
    for nothing, though it does not know that.
    """

    WHY = FLEE  # for any other reason the new board would refuse it

    def script(self) -> list[tuple[float, Any]]:
        return [
            (8, lambda: self.kill(OTHER)),
            (9, lambda: self.say(OTHER)),
            (20, lambda: [self.must_leave(OTHER), self.cut(GATEWAY, OTHER)]),
            (21, lambda: [self.world.replace(self.node(OTHER)), self.boot(OTHER)]),
            (24, lambda: self.hand(SHIFTED, HOME, OTHER)),
            (27, self.must_run),
            (34, lambda: self.heal(GATEWAY, OTHER)),
        ]

    def must_run(self) -> None:
        if not self.shifted_at(OTHER, self.node(OTHER)):
            self.world.error("the operator does not run on the new board")


class ErasedUntold(Declared):
    """A board whose flash is new does not hear the gateway, and needs it for nothing. A person moves an
    operator there: it refuses, because it could not acknowledge what it takes once another keeper is dead.
    """

    SECONDS = 60

    def process(self) -> Process:
        p = boards("declared", "left", "home", "other", "right", level=self.LEVEL)
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        first = values >> Affine().named("shifted").on("home", backup=["other", "right"])
        p.lake("declared/last", first >> Affine().named("last").on("right", backup=["gateway"]), cap=600)
        return p

    def script(self) -> list[tuple[float, Any]]:
        return [
            (8, lambda: [self.cut(GATEWAY, OTHER), self.erase(OTHER)]),
            (9.5, lambda: self.boot(OTHER)),
            (12, lambda: self.hand(SHIFTED, HOME, OTHER)),
            (20, lambda: self.kill(RIGHT)),
            (50, lambda: self.must_trim(500)),
        ]


class AllOthersLost(Declared):
    """The hosts that may run an operator are lost one after the other, the last one with its source: nobody
    is left whom the gateway could ask.
    """

    BACKUP = ("left", "gateway")
    SECONDS = 110

    def script(self) -> list[tuple[float, Any]]:
        return [
            (8, lambda: self.kill(HOME)),
            (9, lambda: self.say(HOME)),
            (24, lambda: [self.must_leave(HOME), self.kill(LEFT)]),
            (25, lambda: self.say(LEFT)),
            (105, lambda: [self.must_leave(LEFT), self.must_have_begun()]),
        ]


class GatewayForgets(Declared):
    """After a board was declared lost the gateway loses its database. The boards tell it."""

    def script(self) -> list[tuple[float, Any]]:
        return [
            (8, lambda: self.kill(HOME)),
            (9, lambda: self.say(HOME)),
            (15, self.forget),
            (16, lambda: self.boot(GATEWAY)),
            (30, self.must_know),
        ]

    def forget(self) -> None:
        self.declared.clear()  # nobody says it again
        self.erase(GATEWAY)

    def must_know(self) -> None:
        host = self.node(GATEWAY).host
        if host and HOME not in host.lost:
            self.world.error("the gateway does not know any more which board is lost")


class GatewayForgetsWhoLeft(Declared):
    """... and with it the operator that it had taken. What was on the lost board no recall waits for: the
    boards tell that it had left the keepers."""

    def script(self) -> list[tuple[float, Any]]:
        return [
            (8, lambda: self.kill(HOME)),
            (9, lambda: self.say(HOME)),
            (18, lambda: [self.must_leave(HOME), self.move(SHIFTED, GATEWAY)]),
            (22, lambda: [self.declared.clear(), self.erase(GATEWAY)]),
            (22.5, lambda: self.boot(GATEWAY)),
            (35, self.must_have_begun),
        ]


class SaidByAnother(Declared):
    """A board says of another one that it is lost, which only the gateway may say."""

    def script(self) -> list[tuple[float, Any]]:
        return [(8, self.lie), (20, self.must_not_believe)]

    def lie(self) -> None:
        liar, log = self.node(OTHER), self.node(HOME).log
        if liar.host:
            for to in (GATEWAY, LEFT, HOME):
                liar.host.exchange.say(to, frames.LOST, HOME, HOME, log, 1)
                liar.host.exchange.say(to, frames.WITHOUT, HOME, HOME, log, 0, [])
            self.world.call(liar, lambda host: host.pump())

    def must_not_believe(self) -> None:
        for node in self.world.nodes:
            if node.host and node.host.lost:
                self.world.error("%s believes a board" % self.world.name(node.number))
