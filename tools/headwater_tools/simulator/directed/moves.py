# mypy: disable-error-code="func-returns-value"
"""Operators that start elsewhere, and the instances that they leave behind."""

from __future__ import annotations

from typing import Any

from headwater.process import Affine, Process
from headwater.runtime.instance import FETCHING

from ..world import SECOND, Node
from .base import GATEWAY, LEFT, SHIFTED, SPARE, Directed, boards, shifted


class Zombie(Directed):
    """An operator moves while its host is cut off. Its old host restarts and reaches the producer, which the
    new one cannot at that moment; and no message about where operators run arrives anywhere. A decision
    has been taken since, so that the old instance computes something else than the new one.

    Only the epoch that the producer remembers stands between the old instance and the log.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.world.checks.append(self.deaf)

    def deaf(self, node: Node) -> None:
        if node.number != GATEWAY and node.host and self.world.now < 17 * SECOND:
            self.unaware(node.host)

    def script(self) -> list[tuple[float, Any]]:
        world = self.world
        return [
            (5, lambda: [self.cut(SPARE, GATEWAY), self.cut(SPARE, LEFT)]),
            (6, lambda: self.move(SHIFTED, GATEWAY)),
            (8, lambda: world.call(self.node(GATEWAY), lambda host: host.configure(SHIFTED, {"offset": 7}))),
            (10, lambda: [self.cut(GATEWAY, LEFT), self.crash(SPARE)]),
            (11, lambda: [self.heal(SPARE, LEFT), self.boot(SPARE)]),
        ]


class ZombieAfterRestart(Zombie):
    """The same, but the source rests while the operator moves, so that the new instance names nothing that
    the old one lacks, and the producer restarts: only what first contact wrote into its flash tells of the
    newer epoch, and the epoch of the checkpoint that it keeps.
    """

    def script(self) -> list[tuple[float, Any]]:
        world = self.world
        return [
            (4.5, lambda: world.asleep.add(LEFT)),
            (5.5, lambda: [self.cut(SPARE, GATEWAY), self.cut(SPARE, LEFT)]),
            (6, lambda: self.move(SHIFTED, GATEWAY)),
            (10, lambda: [self.cut(GATEWAY, LEFT), self.crash(SPARE)]),
            (10.1, lambda: self.configure(SHIFTED, offset=7)),
            (10.2, lambda: self.crash(LEFT)),
            (10.8, lambda: self.boot(LEFT)),
            (11, lambda: [self.heal(SPARE, LEFT), self.boot(SPARE)]),
            (11.5, lambda: world.asleep.discard(LEFT)),
        ]


class CheckpointLeft(Directed):
    """Two operators move from a host that is alive, and cut off from their source, which has restarted. The
    process has level local; as they have backups, another host has their checkpoints all the same.
    """

    def process(self) -> Process:
        p = boards("left", "left", "spare", level="local")
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        first = values >> Affine().named("first").on("spare", backup=["gateway"])
        p.lake("left/out", first >> Affine().named("second").on("spare", backup=["gateway"]))
        return p

    def script(self) -> list[tuple[float, Any]]:
        return [
            (10, lambda: self.cut(SPARE, LEFT)),
            (10.5, lambda: self.crash(LEFT)),
            (11, lambda: self.boot(LEFT)),
            (12, lambda: [self.move(v, GATEWAY) for v in self.place]),
        ]


class MovedBack(CheckpointLeft):
    """They move back to a host with an old checkpoint of theirs, after their source began a new incarnation.
    The name of the source is further than that, although its numbering begins again.
    """

    def script(self) -> list[tuple[float, Any]]:
        return [
            (5, lambda: [self.move(v, GATEWAY) for v in self.place]),
            (7, lambda: self.erase(LEFT)),
            (7.4, lambda: self.boot(LEFT)),
            (14, lambda: [self.move(v, SPARE) for v in self.place]),
        ]


class CourseLeft(Directed):
    """A board is cut off from the gateway, and one other host alone has the last checkpoints of its
    operators: too few to acknowledge them. Then the board is erased. The gateway takes over from earlier,
    and by decision with a new incarnation of the source, until it loses power; then that other host takes
    over. Its own checkpoint was further, on a course that was left.
    """

    def process(self) -> Process:
        p = boards("course", "left", "spare", checkpoints="uncoordinated", every=10, level="peers=2")
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        clean = values >> Affine().named("clean").on("left", backup=["gateway", "spare"])
        beats = clean >> Affine().named("beats").on("left", backup=["gateway", "spare"])
        p.lake("course/beats", beats, cap=600)
        return p

    def script(self) -> list[tuple[float, Any]]:
        return [
            (4.5, lambda: self.world.asleep.add(LEFT)),  # all is taken, and lies behind a stored checkpoint
            (5.9, lambda: self.cut(LEFT, GATEWAY)),
            (6, lambda: self.world.asleep.discard(LEFT)),
            (8, lambda: [self.erase(LEFT), self.cut(GATEWAY, SPARE)]),
            (8.2, lambda: [self.move(v, GATEWAY) for v in self.place]),
            (8.4, lambda: [self.heal(LEFT, GATEWAY), self.boot(LEFT)]),
            (9.5, lambda: self.heal(GATEWAY, SPARE)),
            (14, lambda: self.crash(GATEWAY)),
            (14.5, lambda: [self.move(v, SPARE) for v in self.place]),
            (17, lambda: self.boot(GATEWAY)),
        ]


class TellsAndDies(Directed):
    """An operator starts elsewhere while its host is alive. That one reports a checkpoint that no other has,
    and dies before it sends it: nothing in it was acknowledged, and the operator continues without.
    """

    SECONDS = 40

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.world.checks.append(self.watch)

    def watch(self, node: Node) -> None:
        inst = self.shifted_at(LEFT, node)
        if inst and inst.status == FETCHING and self.node(SPARE).up:
            self.world.after(0, lambda: self.kill(SPARE))

    def script(self) -> list[tuple[float, Any]]:
        left, gateway = self.node(LEFT), self.node(GATEWAY)
        return [
            (5, lambda: [self.withhold(node.host, True) for node in (left, gateway)]),
            (9, lambda: [self.cut(LEFT, GATEWAY), self.move(SHIFTED, LEFT)]),
            (10, lambda: self.heal(LEFT, GATEWAY)),
            (12, lambda: [self.withhold(node.host, False) for node in (left, gateway)]),
        ]


class ChangesWhileAway(Directed):
    """The board with the second operator is out of reach for long, and the first one spills for it. A change
    of the first one cannot be taken meanwhile: it continues without."""

    SECONDS = 40
    FROM, TO = 14, 22

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.stood: list[list[int]] = []  # the first operator, when the change is asked for and later

    def process(self) -> Process:
        p = boards("away", "left", "spare", "right")
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        first = values >> Affine().named("first").on("left", backup=["gateway"])
        p.lake("away/first", first)
        second = Affine().named("second").on("right", backup=["gateway"])
        p.lake("away/second", first.buffered(40, "spill") >> second)
        return p

    def look(self) -> None:
        host = self.node(LEFT).host
        assert host is not None
        self.stood.append(host.instances[self.vertex("first")].position())

    def script(self) -> list[tuple[float, Any]]:
        right = [name == "right" for name in self.plan.hosts].index(True)
        return [
            (5, lambda: [self.cut(right, number) for number in (GATEWAY, LEFT, SPARE)]),
            (self.FROM, lambda: [self.look(), self.configure(self.vertex("first"), offset=7)]),
            (self.TO, lambda: [self.look(), self.world.cut.clear()]),
        ]


class SpillLeft(Directed):
    """An operator whose outputs are in the flash of its board moves while that is cut off; then it
    returns."""

    def process(self) -> Process:
        p = boards("spill", "left", "spare", checkpoints="extended")
        return shifted(p, "spare", "gateway", "left", durable="flash", accept_loss=True)

    def script(self) -> list[tuple[float, Any]]:
        return [
            (5, lambda: self.cut(SPARE, GATEWAY)),
            (8, lambda: [self.cut(SPARE, LEFT), self.move(SHIFTED, GATEWAY)]),
            (14, self.world.cut.clear),
        ]


class StoppedAtStart(Directed):
    """An operator moves. Its old host, where its producer runs too, hears of that from the new one alone; it
    has logged that the producer knows the newer epoch when its power goes, and not yet that the operator is
    over. So the producer stops the operator while the host starts again.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.world.checks.append(self.deaf)

    def deaf(self, node: Node) -> None:
        if node.number == SPARE and node.host and self.world.now < 7 * SECOND:
            self.unaware(node.host)

    def process(self) -> Process:
        p = boards("stopped", "left", "spare", checkpoints="extended")
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        first = values >> Affine().named("first").on("spare", backup=["gateway", "left"])
        second = first >> Affine().named("second").on("spare", backup=["gateway", "left"])
        p.lake("stopped/second", second, cap=600)
        return p

    def script(self) -> list[tuple[float, Any]]:
        second = self.vertex("second")
        spare = self.node(SPARE)
        return [
            (4.5, lambda: self.world.asleep.add(LEFT)),
            (6, lambda: [spare.flash.arm(spare.flash.op + 1), self.move(second, GATEWAY)]),
            (7, lambda: self.boot(SPARE)),
            (9, lambda: self.world.asleep.discard(LEFT)),
        ]


class EndedHalf(Directed):
    """An operator moves. Its old host has logged where it runs now when its power goes, and not yet that it
    is over here: it must not begin again.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.began: list[bool] = []  # whether it did, when its old host was back

    def script(self) -> list[tuple[float, Any]]:
        spare = self.node(SPARE)
        return [
            (4.5, lambda: self.world.asleep.add(LEFT)),
            (6, lambda: [spare.flash.arm(spare.flash.op + 1), self.move(SHIFTED, GATEWAY)]),
            (7, lambda: [self.cut(SPARE, LEFT), self.cut(SPARE, GATEWAY), self.boot(SPARE)]),
            (7.5, lambda: self.began.append(self.shifted_at(SPARE, spare) is not None)),
            (9, lambda: [self.world.cut.clear(), self.world.asleep.discard(LEFT)]),
        ]


class EpochClash(Directed):
    """Two hosts are activated under one number, while no link is up."""

    def script(self) -> list[tuple[float, Any]]:
        return [
            (5, lambda: [self.cut(SPARE, GATEWAY), self.cut(SPARE, LEFT), self.cut(LEFT, GATEWAY)]),
            (7, lambda: self.clash(SHIFTED)),
            (9, lambda: self.heal(LEFT, GATEWAY)),
            (12, lambda: [self.heal(SPARE, GATEWAY), self.heal(SPARE, LEFT)]),
        ]
