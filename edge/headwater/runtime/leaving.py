# Which operator leaves this host, and where to: the decisions flee and balance.
#
# The host where an operator runs decides, by itself, with its own numbers and the answers of its candidates
# to bids. A wrong decision costs charge, never data. Nothing here does I/O or knows a host: what it needs
# it asks of a `view` (of a host: bids.View), so benches and simulations decide with the same code.
#
#   flee     the time left is below the reserve: every operator that another host may take leaves, the one
#            that costs most first. Where no host takes that one, all are asked for, at once: it keeps no
#            other here.
#            Where a host refuses what it has bid for, the next round begins at once, and asks the others.
#   balance  what giver, taker and the hosts beside them draw falls by a sixth in sum, each counted as a part
#            of what its battery has left (draws.gains). Of moves that are as good, one to the first host
#            in the order of the process file.
#   together where no operator may leave alone with a gain: up to three that leave for one host, where that
#            pays only in combination (a chain whose halves would have to speak by radio), and lengthens the
#            shortest life by a quarter. One moves now; when this host looks again the others follow, because
#            without them nothing is gained.
#
# A host beside giver and taker sends to the operator or hears from it. What it has left is known if it has
# answered a bid. All others together may be burdened with half of what giver or taker is relieved of.
#
# A view has:
#   operators()      vertices that run here and that other hosts may run
#   candidates(v)    other hosts that may run v and are heard
#   rank(v, h)       place of h among the hosts of v; the first host of the process file has 0
#   me               this host
#   left_s()         time left of this host
#   whole_s()        ... if its battery were full
#   after(vs, h)     time left of this host if the operators vs ran on host h, what moving them costs being
#                    gone; and what each host would draw more then, by this host's own numbers
#   flees()          whether the time left is below the reserve
#   stays()          whether it fled when it asked last, and no host took what it asked for
#   crosses(v, h)    whether a stream between v and host h crosses a link
#   rests(v)         v has moved less than ten minutes ago
#   trusts(v, h)     whether h did not refuse v lately
#
# Invariants.
#   - A host asks only where the answer can lead to a move.
#   - An operator that moved less than ten minutes ago stays, unless its host flees.

from ..offboard.compat import TYPE_CHECKING, const
from ..plan.draws import FOREVER, gains, pace
from ..protocol.moves import BALANCE
from ..protocol.offers import ENERGY, FLEEING, OK, RECENT

if TYPE_CHECKING:
    from typing import Any

    Bids = dict[tuple[int, int], int]  # (operator, host) -> its time left with it
    Rooms = dict[int, tuple[int, int]]  # host -> its time left, and its charge left in mC
    Paces = tuple[list[int], list[int]]  # of the hosts that a move touches: now, and then

REST_S = const(600)  # an operator moves no more often, unless its host flees
MARGIN_S = const(600)  # a host takes an operator only if it lasts this much longer than its own reserve,
_WHOLES = const(16)  # ... or one part in so many of what its battery lasts when it is full, if that is less
ROUND_S = const(300)  # bids are asked for no more often,
_QUIET_MAX = const(3)  # ... and after rounds without a move ever less: twice as seldom, so many times at most
_FLEE_S = const(5)  # one that flees tries again after this, twice as long each time,
_FLIGHTS_MAX = const(6)  # ... so many times at most
_LAST = const(32)  # with less than one part in so many of a full battery, balance gains less than moves risk
_TOGETHER = const(3)  # operators that leave for one host in combination, at most
_SHARE = const(1000)  # bids cost no more than one part in so many of what the host draws,
_ROUNDS = const(16)  # ... but there are so many rounds in the time that is left


# The operators that may leave this host now, and the hosts to be asked for bids.
def asks(view: "Any") -> "list[tuple[int, list[int]]]":
    out: "list[tuple[int, list[int]]]" = []
    if view.flees():
        for v in _dearest(view):
            to = [h for h in view.candidates(v) if view.trusts(v, h)]
            if to:
                out.append((v, to))
                if not view.stays():
                    break
        return out
    now = view.left_s()
    if _LAST * now < view.whole_s() < FOREVER:
        return out
    here = [v for v in view.operators() if not view.rests(v)]
    for v in here:
        to = [h for h in view.candidates(v) if view.trusts(v, h) and _pays(view, here, v, h, now)]
        if to:
            out.append((v, to))
    return out


# Whether operator v may leave for host h with a gain, alone or with all that may: what giver and taker send
# each other is saved, or the giver is relieved.
def _pays(view: "Any", here: "list[int]", v: int, h: int, now: int) -> bool:
    if view.crosses(v, h):
        return True
    for vs in ((v,), tuple([u for u in here if h in view.candidates(u)])):
        if gains((pace(now),), (pace(view.after(vs, h)[0]),)):
            return True
    return False


# Operators here, the one that costs most first.
def _dearest(view: "Any") -> list[int]:
    ranked = []
    for v in view.operators():
        others = view.candidates(v)
        if others:
            ranked.append((-view.after((v,), others[0])[0], v))
    ranked.sort()
    return [v for _, v in ranked]


# The move to make, (operator, host), or None. bids, rooms: the answers to what was asked.
def choose(view: "Any", bids: "Bids", rooms: "Rooms") -> "tuple[int, int] | None":
    best = None
    most: tuple[int, ...] = ()
    flees = view.flees()
    order = _dearest(view) if flees else []
    alone: "dict[tuple[int, int], tuple[int, int]]" = {}  # what a move is worth, and what its host draws more
    for v, h in sorted(bids):
        rank = -view.rank(v, h)
        if flees:
            if v not in order:
                continue
            worth: tuple[int, ...] = (-order.index(v), bids[(v, h)], rank)
        else:
            found = _paces(view, (v,), h, bids, rooms, alone)
            if not found or not gains(found[0], found[1]):
                continue
            worth = (alone[(v, h)][0], rank, -v)
        if best is None or worth > most:
            best = (v, h)
            most = worth
    if best is None and not flees:
        best = _together(view, bids, rooms, alone)
    return best


# The first step of the best move of several operators to one host, or None.
def _together(view: "Any", bids: "Bids", rooms: "Rooms", alone: "Any") -> "tuple[int, int] | None":
    best = None
    most = 0
    for h in sorted(rooms):
        able = [v for v, k in sorted(bids) if k == h and (v, h) in alone]
        sets: "list[tuple[int, ...]]" = [(v,) for v in able]
        for _ in range(1, _TOGETHER):
            sets = [vs + (v,) for vs in sets for v in able if v > vs[-1]]
            for vs in sets:
                found = _paces(view, vs, h, bids, rooms, alone)
                if not found or not gains(found[0], found[1]) or 4 * max(found[0]) < 5 * max(found[1]):
                    continue
                worth = sum(found[0]) - sum(found[1])
                if worth > most and 2 * worth >= 3 * sum([max(0, alone[(v, h)][0]) for v in vs]):
                    most = worth
                    best = (max([(bids[(v, h)], v) for v in vs])[1], h)  # it burdens its taker least
    return best


# Paces of the batteries that it touches if operators vs move to host h; None where hosts of which nothing is
# known would bear too much of it. alone: see choose; a single operator is entered.
def _paces(
    view: "Any", vs: "tuple[int, ...]", h: int, bids: "Bids", rooms: "Rooms", alone: "Any"
) -> "Paces | None":
    then_s, more = view.after(vs, h)
    left_s, left_mc = rooms[h]
    now = [pace(view.left_s()), pace(left_s)]
    # Each operator as the taker told; what they save or cost it in combination, by this host's numbers.
    joint = 0
    taker = now[1]
    for v in vs:
        taker += pace(bids[(v, h)]) - now[1]
        joint -= alone[(v, h)][1] if len(vs) > 1 else more[h]
    then = [pace(then_s), max(0, taker + _part(more[h] + joint, left_mc))]
    unknown = 0
    for k in range(len(more)):
        if k in (view.me, h) or not more[k]:
            continue
        if k in rooms:
            now.append(pace(rooms[k][0]))
            then.append(max(0, now[-1] + _part(more[k], rooms[k][1])))
        else:
            unknown += max(0, more[k])
    if len(vs) == 1:
        alone[(vs[0], h)] = sum(now) - sum(then), more[h]
    return None if 2 * unknown > max(-more[view.me], -more[h]) and unknown else (now, then)


# A draw as a pace of a battery that has so much left.
def _part(na: int, left_mc: int) -> int:
    return 0 if left_mc >= FOREVER else (na << 40) // (max(1, left_mc) * 1000000)


# Seconds until bids are asked for again, after so many rounds that led to no move. bid_nc: what a round
# costs. Where little time is left, less of it passes between two rounds, also where this host flees: who did
# not answer or refused a moment ago may take the operator now, and there is no later.
def pause_s(quiet: int, flees: bool, bid_nc: int, draw_na: int, left_s: int) -> int:
    if flees:
        return min(_FLEE_S << min(quiet, _FLIGHTS_MAX), max(_FLEE_S, left_s // _ROUNDS))
    pause = min(ROUND_S << min(quiet, _QUIET_MAX), max(_FLEE_S, left_s // _ROUNDS))
    return max(pause, min(_SHARE * bid_nc // max(1, draw_na), left_s // _ROUNDS))


# Why a host does not take an operator, or OK: with it, it must last ten minutes longer than until it would
# have to flee; and where the move is to balance, there must be a gain even if the giver drew nothing then.
# energy: see battery.py. giver_s: the time left of the host that gives it. with_s: of this one with the
# operator. reserve_s: how long, with it, the charge lasts below which this host flees.
def refusal(energy: "Any", v: int, why: int, giver_s: int, with_s: int, reserve_s: int) -> int:
    if energy.must_flee():
        return FLEEING
    if not energy.takes_back(v):
        return RECENT
    if with_s < reserve_s + min(MARGIN_S, energy.whole_s() // _WHOLES):
        return ENERGY
    if why == BALANCE and not gains((pace(giver_s), pace(energy.left_s())), (pace(with_s),)):
        return ENERGY
    return OK
