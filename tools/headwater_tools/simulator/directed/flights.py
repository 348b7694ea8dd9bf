"""Hosts whose batteries run down: operators that flee, or move so that batteries last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from headwater.data import msgpack
from headwater.process import Affine, Process
from headwater.protocol import frames
from headwater.protocol.offers import BUSY
from headwater.runtime import outlook
from headwater.storage.keyspace import B_ENERGY

from ..batteries import COMPUTE, RADIO, Power
from ..scenario import Result
from ..world import SECOND, Hardware, Node
from .base import GATEWAY, SHIFTED, Directed, boards, shifted

LEFT, HOME, OTHER = 1, 2, 3  # the board of the source; the first host of the operator, and a backup
WEAK = replace(COMPUTE, compute_ua=200_000)  # to compute is nearly all that it draws


class Powered(Directed):
    """An operator on a board of its own, whose battery ends. What it draws it knows from its profile."""

    PACE = Hardware().pace
    SECONDS = 40
    # Host -> (seconds that a full battery lasts about, percent that it has at first)
    BATTERIES: dict[int, tuple[float, int]] = {HOME: (60, 40)}
    BACKUP: Sequence[str] = ("other", "gateway")
    BOARD = COMPUTE
    FLIGHTS: Sequence[int] = (1,)
    BALANCED: Sequence[int] = (0,)
    ENDS: Sequence[int] = (OTHER,)
    TAKEOVERS: int | None = 0  # None: any number
    EMPTY: int | None = 0  # batteries that end under the operator

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.power = Power(self.world, self.ends)
        self.world.on_peace.append(self.power.stop)
        for number, (lasts_s, percent) in self.BATTERIES.items():
            self.power.put(self.node(number), self.BOARD, lasts_s, percent)

    def process(self) -> Process:
        p = boards("powered", "left", "home", "other")
        return shifted(p, "home", *self.BACKUP, cap=600)

    def ends(self, node: Node) -> None:
        self.world.note("the battery of %s is empty" % self.world.name(node.number))
        self.world.crash(node)

    def charge(self, number: int, percent: int) -> None:
        battery = self.node(number).battery
        assert battery is not None
        battery.charge(percent)

    def finish(self) -> Result:
        self.boot(*[n.number for n in self.world.nodes if not n.up])
        result = super().finish()
        world, flights = self.world, self.flights
        if flights.count not in self.FLIGHTS or flights.balanced not in self.BALANCED:
            world.error("%d moves fled, and %d balanced" % (flights.count, flights.balanced))
        if self.place[SHIFTED] not in self.ENDS:
            world.error("the operator runs at %s" % world.name(self.place[SHIFTED]))
        found = (self.takeovers.count, flights.stayed)
        if any(what not in (n, None) for n, what in zip(found, (self.TAKEOVERS, self.EMPTY))):
            text = "%d takeovers, and %d times a battery ended under the operator"
            world.error(text % found)
        if self.handovers.replayed:
            world.error("%d entries replayed by planned moves" % self.handovers.replayed)
        return result


class Ends(Powered):
    """The operator flees before the end, and stays where it is when its first host is back."""


class BothEnd(Powered):
    """The backup has little left, too, and refuses: the gateway takes it."""

    BATTERIES = {HOME: (60, 40), OTHER: (60, 42)}
    ENDS = (GATEWAY,)


class EndsSoon(Powered):
    """The same with a radio that empties the battery in seconds."""

    BOARD = RADIO
    BATTERIES = {HOME: (12, 70)}


class Weaker(Powered):
    """The only backup has less than the board that flees, and refuses: the operator stays to the end."""

    BATTERIES = {HOME: (60, 30), OTHER: (60, 10)}
    BACKUP = ("other",)
    FLIGHTS = (0,)
    TAKEOVERS = None
    EMPTY = None
    ENDS = (HOME, OTHER)

    def finish(self) -> Result:
        self.charge(HOME, 100)
        self.charge(OTHER, 100)
        return super().finish()


class NotCharged(Powered):
    """It flees to a board whose battery ends later. The first host has little more by then than when the
    operator fled, and refuses it: so the battery of the other ends under the operator."""

    BOARD = replace(COMPUTE, compute_ua=2_000)
    BATTERIES = {HOME: (2400, 2), OTHER: (400, 100)}
    BACKUP = ("other",)
    TAKEOVERS = 1
    EMPTY = 1
    ENDS = (HOME,)
    SECONDS = 140

    def script(self) -> list[tuple[float, Any]]:
        # A monitor's reading moves what the host takes for true by an eighth: it knows after a minute.
        backs: list[tuple[float, Any]] = [(at, self.back) for at in range(40, 105, 5)]
        return [
            *backs,
            (105, lambda: self.charge(OTHER, 3)),
            (121, lambda: self.charge(HOME, 100)),  # otherwise its battery ends before it has taken over
        ]

    def back(self) -> None:
        """With nearly a tenth of the battery more."""
        self.charge(HOME, self.left_then + 9)

    @property
    def left_then(self) -> int:
        """Percent that the battery had when the operator fled, as its host noted it."""
        home = self.node(HOME)
        assert home.battery is not None and home.host is not None
        kept = msgpack.loads(home.host.store.get_blob(B_ENERGY) or b"")
        return int(100 * kept[-1][2] // home.battery.capacity_mc)


class CutOff(Powered):
    """Nobody can be reached: the battery ends under the operator, and another host takes over."""

    FLIGHTS = (0,)
    TAKEOVERS = 1
    EMPTY = 1
    ENDS = (OTHER, GATEWAY)

    def script(self) -> list[tuple[float, Any]]:
        return [(4, partial(self.cut, HOME, n)) for n in (GATEWAY, LEFT, OTHER)]


class Balanced(Powered):
    """Computing empties the battery of the operator's host, and the backup has three times as much: one move,
    and no second one within ten minutes, although the first battery is charged and the other loses much."""

    BOARD = WEAK
    BATTERIES = {HOME: (1500, 30), OTHER: (1500, 90)}
    FLIGHTS = (0,)
    BALANCED = (1,)
    BACKUP = ("other",)
    SECONDS = 160

    def script(self) -> list[tuple[float, Any]]:
        return [(90, partial(self.charge, OTHER, 30)), (90, partial(self.charge, HOME, 100))]


class Even(Powered):
    """The same with batteries that are alike: nothing moves."""

    BOARD = WEAK
    BATTERIES = {HOME: (3000, 85), OTHER: (3000, 90)}
    FLIGHTS = (0,)
    BACKUP = ("other",)
    ENDS = (HOME,)


class OneStays(Powered):
    """Two operators are to leave, and the one host that may take the first does not answer: the other leaves
    all the same."""

    BATTERIES = {HOME: (60, 60)}
    BACKUP = ("other",)
    TAKEOVERS = None
    EMPTY = None
    ENDS = (HOME, OTHER)

    def process(self) -> Process:
        p = super().process()
        slow = p.source("slow", "v:i16", rate_hz=10, on="left")
        p.lake("powered/light", slow >> Affine().named("light").on("home", backup=["gateway"]), cap=600)
        return p

    def script(self) -> list[tuple[float, Any]]:
        return [(1, self.ignore)]

    def ignore(self) -> None:
        """That host could take it as little as one that sleeps."""
        self.world.dozing.add(OTHER)
        self.withhold(self.node(OTHER).host, True, frames.BID)


class OneStaysSoon(OneStays):
    """The same with a battery that lasts for seconds: the other is asked for as soon as no host takes the
    first."""

    BOARD = RADIO
    BATTERIES = {HOME: (22, 60)}


class CameLately(Powered):
    """The operator came a moment ago, no entry has come since, and another keeper is dead: its checkpoint is
    at no host beside the one that gave it. It leaves all the same before the battery ends."""

    BATTERIES = {HOME: (60, 45)}
    ENDS = (GATEWAY,)

    def script(self) -> list[tuple[float, Any]]:
        return [
            (3, partial(self.hand, SHIFTED, HOME, GATEWAY)),
            (8, partial(self.world.mute_until.update, {LEFT: self.SECONDS * SECOND})),
            (8.5, partial(self.crash, OTHER)),
            (9, partial(self.hand, SHIFTED, GATEWAY, HOME)),
        ]


class DrawsMore(Powered):
    """The source starts late: until then the operator costs nothing. Four beats later its host knows that
    handing over costs more by then."""

    BOARD = WEAK
    BATTERIES = {HOME: (600, 80), OTHER: (600, 75)}
    FLIGHTS = (0,)
    BACKUP = ("other",)
    ENDS = (HOME,)

    def script(self) -> list[tuple[float, Any]]:
        return [(0.6, partial(self.crash, LEFT)), (3.5, partial(self.boot, LEFT)), (9, self.look)]

    def look(self) -> None:
        home = self.node(HOME)
        assert home.host is not None and home.host.energy is not None
        energy = home.host.energy.open()
        costs = outlook.handover_mc(home.host, energy, SHIFTED)
        if energy.drawn_na() < 2_000 * self.BOARD.awake_ua:
            self.world.error("the operator costs nothing")
        if energy.reserve_mc < costs:
            self.world.error("a reserve of %d mC, and handing over costs %d" % (energy.reserve_mc, costs))


class Refused(Powered):
    """The host that bids most refuses what it is offered, as one does to which another host was quicker. The
    other one is asked at once: the battery lasts no longer than that takes."""

    BOARD = RADIO
    BATTERIES = {HOME: (14, 70)}
    ENDS = (GATEWAY,)

    def script(self) -> list[tuple[float, Any]]:
        return [(1, self.refuse)]

    def refuse(self) -> None:
        """The backup has an offer of another host's, whenever one comes from this one."""
        host = self.node(OTHER).host
        assert host is not None
        may_say = host.exchange.may_say

        def busy(sender: int, m: Any) -> bool:
            if m[0] == frames.OFFER:
                host.exchange.say(sender, frames.REFUSE, m[1], m[1], m[2], BUSY)
                return False
            return bool(may_say(sender, m))

        host.exchange.may_say = busy  # type: ignore[method-assign]


class TwoLeave(Powered):
    """Two operators leave a battery for the only host in reach, one after the other: the second one does not
    wait until the checkpoint of the first has reached hosts that are away."""

    BATTERIES = {HOME: (60, 50)}
    FLIGHTS = (2,)

    def process(self) -> Process:
        p = boards("powered", "left", "home", "other")
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        backup = ["other", "gateway"]
        first = values >> Affine().named("shifted").on("home", backup=backup)
        p.lake("powered/shifted", first, cap=2000)
        p.lake("powered/second", values >> Affine().named("second").on("home", backup=backup), cap=2000)
        return p

    def script(self) -> list[tuple[float, Any]]:
        return [(4, partial(self.cut, GATEWAY, n)) for n in (LEFT, HOME, OTHER)]


SCHEDULES: dict[str, type[Powered]] = {
    "two operators leave": TwoLeave,
    "battery ends, refused": Refused,
    "battery ends": Ends,
    "battery ends soon": EndsSoon,
    "two batteries end": BothEnd,
    "the other is weaker": Weaker,
    "fled and not charged": NotCharged,
    "battery ends, cut off": CutOff,
    "battery ends, came lately": CameLately,
    "a host draws more": DrawsMore,
    "battery ends, one stays": OneStays,
    "battery ends soon, one stays": OneStaysSoon,
    "batteries unlike": Balanced,
    "batteries alike": Even,
}
