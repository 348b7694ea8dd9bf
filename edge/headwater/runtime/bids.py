# A round of bids: this host asks the candidates of its operators, hears them, and begins at most one move.
#
#   begin    leaving.asks names operators and hosts; BID goes to each, at once
#   answer   ROOM comes: how long that host lasts without the operator and with it, or why it refuses
#   tick     all have answered, or the time for it is over: leaving.choose names the move, moving.py makes it
#
# The rates in a bid are those that were measured here; a bid obliges nobody. A round that leads to no move
# makes the next one come later (leaving.pause_s), so bids cost a board nearly nothing.

from ..offboard.compat import TYPE_CHECKING, const
from ..protocol import frames, moves, offers
from .instance import RUNNING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..offboard.interfaces import Message
    from .battery import Energy
    from .host import Host

_FRAMES = const(2)  # of a bid: it, and its answer


# What leaving.py wants to know of this host.
class View:
    def __init__(self, energy: "Energy") -> None:
        from . import outlook

        self.energy = energy
        self.host = energy.host
        self.me = energy.host.me
        self.known = outlook.View(energy)

    def operators(self) -> list[int]:
        host = self.host
        found = []
        for v in sorted(host.instances):
            if len(host.plan.vertices[v].hosts) > 1 and host.instances[v].status == RUNNING:
                found.append(v)
        return found

    def candidates(self, v: int) -> list[int]:
        host = self.host
        hosts = host.plan.vertices[v].hosts
        return [h for h in hosts if h != host.me and h in host.exchange.links and not host.words.dead(h)]

    def rank(self, v: int, h: int) -> int:
        return list(self.host.plan.vertices[v].hosts).index(h)

    def left_s(self) -> int:
        return self.energy.left_s()

    def whole_s(self) -> int:
        return self.energy.whole_s()

    def after(self, vs: "Sequence[int]", h: int) -> "tuple[int, list[int]]":
        from . import outlook

        energy = self.energy
        more = self.known.differences(vs, h)
        if not energy.powered:
            return offers.FOREVER, more
        left = energy.left_mc - sum([outlook.handover_mc(self.host, energy, v) for v in vs])
        draw = energy.draw_na + more[self.host.me]
        return min(offers.FOREVER - 1, max(0, left) * 1000000 // max(1, draw)), more

    def flees(self) -> bool:
        return self.energy.must_flee()

    def stays(self) -> bool:
        return self.energy.quiet[1] > 0

    def crosses(self, v: int, h: int) -> bool:
        where = self.host.where
        for e in self.host.plan.edges:
            if (
                e.src == v
                and (where[e.dst][2] if e.dst >= 0 else 0) == h
                or e.dst == v
                and where[e.src][2] == h
            ):
                return True
        return False

    def rests(self, v: int) -> bool:
        from . import leaving

        why, since = self.host.moves.get(v, (0, 0))
        return why > moves.TAKEOVER and self.host.site() // 1000000 - since < leaving.REST_S

    def trusts(self, v: int, h: int) -> bool:
        return self.host.refused_by.get(v * 256 + h, 0) <= self.host.now


class Round:
    def __init__(self, energy: "Energy", asked: "list[tuple[int, list[int]]]", flees: bool) -> None:
        self.meter = energy.meter
        self.flees = flees
        host = energy.host
        self.number = host.now // 1000 & 0x3FFFFFFF
        self.until_us = host.now + 2 * host.pace[2]
        self.waiting = [(v, h) for v, hosts in asked for h in hosts]
        self.bids: "dict[tuple[int, int], int]" = {}
        self.rooms: "dict[int, tuple[int, int]]" = {}
        hosts = {h for _, h in self.waiting}
        self._say(energy)
        self.bid_nc = 0
        if energy.profile:
            self.bid_nc = _FRAMES * len(hosts) * energy.profile.costs[2]

    # Ask those that have not answered.
    def _say(self, energy: "Energy") -> None:
        for v, h in self.waiting:
            energy.host.exchange.say(h, frames.BID, v, v, self.number, energy.rates(v))

    # ROOM: that host lasts so long without operator v, and with it, and has so much charge; or it refuses.
    def heard(self, sender: int, m: "Message") -> None:
        _, v, number, without, with_, left_mc, room = m
        if number == self.number and (v, sender) in self.waiting:
            self.waiting.remove((v, sender))
            self.rooms[sender] = (without, left_mc)
            if room < 2:
                self.bids[(v, sender)] = with_
            if self.flees and not self.waiting:
                self.tick(self.meter.open())  # a beat is long for a battery that ends

    def tick(self, energy: "Energy") -> None:
        from . import leaving

        host = energy.host
        if self.waiting and host.now < self.until_us:
            if self.flees:
                self._say(energy)  # there is no later round for a battery that ends
            return
        if host.giving:
            energy.asks(None, self.flees, True, 1)  # a person has asked for a move: as soon as that is over
            return
        view = View(energy)
        move = None
        if self.flees == view.flees():
            here = view.operators()
            bids = {key: self.bids[key] for key in self.bids if key[0] in here}
            move = leaving.choose(view, bids, self.rooms)
        begun = False
        if move:
            from . import moving

            begun = (
                moving.begin(host, move[0], move[1], moves.FLEE if self.flees else moves.BALANCE) == offers.OK
            )
        quiet = 0 if begun else energy.quiet[int(self.flees)] + 1
        pause_s = leaving.pause_s(quiet, self.flees, self.bid_nc, energy.draw_na, energy.left_s())
        # One that flees has not left before another host has taken it: see Energy.gave.
        energy.asks(None, self.flees, begun and not self.flees, pause_s)


# Begin a round, where there is something to ask.
def begin(energy: "Energy") -> None:
    from . import leaving

    view = View(energy)
    asked = leaving.asks(view)
    flees = view.flees()
    if asked:
        energy.asks(Round(energy, asked, flees))
    else:
        pause_s = leaving.pause_s(energy.quiet[int(flees)], flees, 0, energy.draw_na, energy.left_s())
        energy.asks(None, flees, False, pause_s)


def _on_room(host: "Host", sender: int, m: "Message") -> None:
    if host.energy and host.energy.round:
        host.energy.round.heard(sender, m)


HANDLERS = {frames.ROOM: _on_room}
