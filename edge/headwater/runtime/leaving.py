# Which operator leaves this host, and where to: the decisions flee and balance.
#
# The host where an operator runs decides, by itself, with its own numbers and the answers of its candidates
# to bids. A wrong decision costs charge, never data. Nothing here does I/O or knows a host: what it needs
# it asks of a `view` (of a host: bids.View), so benches and simulations decide with the same code.
#
#   flee     the time left is below the reserve: every operator that another host may take leaves, the one
#            that costs most first.
#   balance  a move lengthens the shorter life of giver and taker by at least a quarter, after its cost. Of
#            moves that are as good, one to the first host in the order of the process file. It adds to other
#            hosts, which send to the operator or hear from it, no more than half of what it takes from giver
#            or taker: otherwise two hosts would live longer at the cost of a third that was not asked.
#
# A view has:
#   operators()      vertices that run here and that other hosts may run
#   candidates(v)    other hosts that may run v and are heard
#   rank(v, h)       place of h among the hosts of v; the first host of the process file has 0
#   left_s()         time left of this host
#   without_s(v, h)  ... if v ran on host h, what moving it costs being gone
#   flees()          whether the time left is below the reserve
#   crosses(v, h)    whether a stream between v and host h crosses a link
#   burdens(v, h)    what other hosts would draw more if v ran on host h, and what giver or taker draws less
#   rests(v)         v has moved less than ten minutes ago
#   trusts(v, h)     whether h did not refuse v lately
#
# Invariants.
#   - A host asks only where the answer can lead to a move.
#   - An operator that moved less than ten minutes ago stays, unless its host flees.

from ..offboard.compat import TYPE_CHECKING, const
from ..plan.draws import FOREVER, gains
from ..protocol.moves import BALANCE
from ..protocol.offers import ENERGY, FLEEING, OK, RECENT

if TYPE_CHECKING:
    from typing import Any

    Bids = dict[tuple[int, int], tuple[int, int]]  # (operator, host) -> its time left without it, with it

REST_S = const(600)  # an operator moves no more often, unless its host flees
MARGIN_S = const(600)  # a host takes an operator only if it lasts this much longer than its own reserve,
_WHOLES = const(16)  # ... or one part in so many of what its battery lasts when it is full, if that is less
ROUND_S = const(300)  # bids are asked for no more often,
_QUIET_MAX = const(3)  # ... and after rounds without a move ever less: twice as seldom, so many times at most
_FLEE_S = const(5)  # one that flees tries again after this, twice as long each time,
_FLIGHTS_MAX = const(6)  # ... so many times at most
_SHARE = const(1000)  # bids cost no more than one part in so many of what the host draws


# The operators that may leave this host now, and the hosts to be asked for bids.
def asks(view: "Any") -> "list[tuple[int, list[int]]]":
    out: "list[tuple[int, list[int]]]" = []
    if view.flees():
        for v in _dearest(view):
            to = [h for h in view.candidates(v) if view.trusts(v, h)]
            if to:
                return [(v, to)]
        return out
    now = view.left_s()
    for v in view.operators():
        if view.rests(v):
            continue
        to = []
        for h in view.candidates(v):
            if view.trusts(v, h) and (view.crosses(v, h) or 4 * view.without_s(v, h) >= 5 * now):
                to.append(h)
        if to:
            out.append((v, to))
    return out


# Operators here, the one that costs most first.
def _dearest(view: "Any") -> list[int]:
    ranked = []
    for v in view.operators():
        others = view.candidates(v)
        if others:
            ranked.append((-view.without_s(v, others[0]), v))
    ranked.sort()
    return [v for _, v in ranked]


# The move to make, (operator, host), or None. bids: the answers to what was asked.
def choose(view: "Any", bids: "Bids") -> "tuple[int, int] | None":
    best = None
    most: tuple[int, ...] = ()
    flees = view.flees()
    now = view.left_s()
    order = _dearest(view) if flees else []
    for v, h in sorted(bids):
        taker_now, taker_then = bids[(v, h)]
        rank = -view.rank(v, h)
        if flees:
            if v not in order:
                continue
            worth: tuple[int, ...] = (-order.index(v), taker_then, rank)
        else:
            then = view.without_s(v, h)
            if not gains(now, taker_now, then, taker_then):
                continue
            more, less = view.burdens(v, h)
            if 2 * more > less:
                continue
            shorter = min(now, taker_now)
            worth = (min(then, taker_then) - shorter, rank, -v)
        if best is None or worth > most:
            best = (v, h)
            most = worth
    return best


# Seconds until bids are asked for again, after so many rounds that led to no move. bid_nc: what a round
# costs. Where little time is left, less of it passes between two rounds, also where this host flees: who did
# not answer or refused a moment ago may take the operator now, and there is no later.
def pause_s(quiet: int, flees: bool, bid_nc: int, draw_na: int, left_s: int) -> int:
    if flees:
        return min(_FLEE_S << min(quiet, _FLIGHTS_MAX), max(_FLEE_S, left_s // 16))
    pause = min(ROUND_S << min(quiet, _QUIET_MAX), max(_FLEE_S, left_s // 16))
    return max(pause, _SHARE * bid_nc // max(1, draw_na))


# Why a host does not take an operator, or OK: with it, it must last ten minutes longer than until it would
# have to flee; and where the move is to balance, a quarter longer than the shorter of both is now. energy:
# see battery.py. giver_s: the time left of the host that gives it. with_s: of this one with the operator.
# reserve_s: how long, with it, the charge lasts below which this host flees.
def refusal(energy: "Any", v: int, why: int, giver_s: int, with_s: int, reserve_s: int) -> int:
    if energy.must_flee():
        return FLEEING
    if not energy.takes_back(v):
        return RECENT
    if with_s < reserve_s + min(MARGIN_S, energy.whole_s() // _WHOLES):
        return ENERGY
    if why == BALANCE and not gains(giver_s, energy.left_s(), FOREVER, with_s):
        return ENERGY
    return OK
