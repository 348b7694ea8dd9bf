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

if TYPE_CHECKING:
    from ..offboard.interfaces import Message
    from .battery import Energy
    from .host import Host

_FRAMES = const(2)  # of a bid: it, and its answer


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
        self.bid_nc = 0
        if energy.profile:
            self.bid_nc = _FRAMES * len(hosts) * energy.profile.costs[2]

    # Ask those that have not answered.
    def say(self, energy: "Energy") -> None:
        from . import outlook

        for v, h in self.waiting:
            energy.host.exchange.say(h, frames.BID, v, v, self.number, outlook.rates(energy, v))
        outlook = None  # type: ignore[assignment]
        energy.rests()

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
        host = energy.host
        if self.waiting and host.now < self.until_us:
            if self.flees:
                self.say(energy)  # there is no later round for a battery that ends
            return
        if host.giving:
            energy.asks(None, self.flees, True, 1)  # a person has asked for a move: as soon as that is over
            return
        move = self._choice(energy)
        energy.rests()  # before moving.py is loaded
        begun = False
        if move:
            from . import moving

            begun = (
                moving.begin(host, move[0], move[1], moves.FLEE if self.flees else moves.BALANCE) == offers.OK
            )
        from . import leaving

        quiet = 0 if begun else energy.quiet[int(self.flees)] + 1
        pause_s = leaving.pause_s(quiet, self.flees, self.bid_nc, energy.draw_na, energy.left_s())
        if self.flees and not (move or energy.quiet[1]):
            pause_s = 0  # no host takes the operator that costs most: from now on all are asked for
        # One that flees has not left before another host has taken it: see Energy.gave.
        energy.asks(None, self.flees, begun and not self.flees, pause_s)

    # The move to make, (operator, host), or None.
    def _choice(self, energy: "Energy") -> "tuple[int, int] | None":
        from . import leaving, outlook

        view = outlook.View(energy)
        if self.flees != view.flees():
            return None
        here = view.operators()
        bids = {key: self.bids[key] for key in self.bids if key[0] in here}
        return leaving.choose(view, bids, self.rooms)


# Begin a round, where there is something to ask.
def begin(energy: "Energy") -> None:
    asked, flees, pause_s = question(energy)
    if not asked:
        energy.asks(None, flees, False, pause_s)
        return
    found = Round(energy, asked, flees)
    energy.asks(found)  # before it speaks: what else a question needs is unloaded then, but not this module
    found.say(energy)


# Which operators to ask for, and which hosts; whether this host flees; if there is nothing to ask, seconds
# until it looks again.
def question(energy: "Energy") -> "tuple[list[tuple[int, list[int]]], bool, int]":
    from . import leaving, outlook

    view = outlook.View(energy)
    asked = leaving.asks(view)
    flees = view.flees()
    pause_s = 0
    if not asked:
        pause_s = leaving.pause_s(energy.quiet[int(flees)], flees, 0, energy.draw_na, energy.left_s())
    return asked, flees, pause_s


def _on_room(host: "Host", sender: int, m: "Message") -> None:
    if host.energy and host.energy.round:
        host.energy.round.heard(sender, m)


HANDLERS = {frames.ROOM: _on_room}
