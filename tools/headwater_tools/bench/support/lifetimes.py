"""Batteries that run down while hosts decide by themselves what moves, over a case of placement.

Time jumps from one decision to the next: hosts draw what the case says for where operators run, and decide
with the code of a board (`headwater.runtime.leaving`). So months take milliseconds. Left out: messages that
are lost, hosts that are away, checkpoints and their copies, and every error of measuring: all hosts know what
they draw and have left. `longest` is the time that somebody with all knowledge would reach, moving operators
as often as needed and for nothing.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence

from headwater.plan.placement import FOREVER, MAINS, OUTSIDE, Case, life_s
from headwater.protocol.moves import BALANCE, FLEE
from headwater.protocol.offers import OK
from headwater.runtime import leaving

BID_FRAMES = 2  # to each host that is asked, and its answer
HANDOVER_S = 10  # of being awake


class Lives:
    """A history, until the first battery is empty."""

    def __init__(self, case: Case, first: Sequence[int], full_mc: int) -> None:
        self.case = case
        self.full_mc = full_mc  # what a full battery has
        self.places = list(first)
        self.now_s = 0
        self.left = [float(host.left_mc) for host in case.hosts]
        self.moved_s: dict[int, int] = {}
        self.fled: set[tuple[int, int]] = set()  # operator, host
        self.refused: dict[tuple[int, int], int] = {}  # operator, host -> until when
        self.quiet = [0] * len(case.hosts)
        self.stays = [False] * len(case.hosts)  # it flees, and no host took anything
        self.moves = 0
        self.flights = 0
        self.bid_nc = [0] * len(case.hosts)  # spent on bids and their answers
        self.draws = self._draws(self.places)

    def _draws(self, places: Sequence[int]) -> list[int]:
        draws = self.case.draws(places)
        assert draws is not None, "two hosts have no way to each other"
        return draws

    def run(self) -> int:
        """Seconds until the first battery is empty."""
        due = [(0, h) for h in range(len(self.case.hosts))]
        heapq.heapify(due)
        while True:
            end = min(self._end(h) for h in range(len(self.left)))
            if end >= FOREVER:
                return FOREVER
            # Who flees notices when it is time, not at the next round.
            flights = [(self._flight(h), h) for h in range(len(self.left))]
            at, h = min(min(due), min(flights))
            if end <= at:
                self._pass(end)
                return end
            self._pass(at)
            due = [(t, k) for t, k in due if k != h]
            heapq.heapify(due)
            heapq.heappush(due, (at + self._round(h), h))

    def _end(self, h: int) -> int:
        if self.case.hosts[h].left_mc == MAINS:
            return FOREVER
        return self.now_s + max(0, int(self.left[h] * 1_000_000 / max(1, self.draws[h])))

    def _flight(self, h: int) -> int:
        """When host h begins to flee; FOREVER if it does already, or has nothing that may leave."""
        view = View(self, h)
        if self.case.hosts[h].left_mc == MAINS or not view.operators() or view.flees():
            return FOREVER
        over_mc = self.left[h] - self.reserve_mc(h)
        return self.now_s + 1 + int(over_mc * 1_000_000 / max(1, self.draws[h]))

    def _pass(self, to_s: int) -> None:
        for h, draw in enumerate(self.draws):
            if self.case.hosts[h].left_mc != MAINS:
                self.left[h] = max(0.0, self.left[h] - draw * (to_s - self.now_s) / 1_000_000)
        self.now_s = to_s

    def _spend(self, h: int, nc: int) -> None:
        if self.case.hosts[h].left_mc != MAINS:
            self.left[h] = max(0.0, self.left[h] - nc / 1_000_000)

    def reserve_mc(self, h: int) -> int:
        awake = 2 * HANDOVER_S * self.draws[h] // 1_000_000
        return self.case.flee_mc(self.places, h) + awake

    def _round(self, h: int) -> int:
        """Host h decides once; seconds until it does so again."""
        view = View(self, h)
        flees = view.flees()
        asked = leaving.asks(view)
        bids = {}
        rooms = {}
        nc = 0
        for to in {k for _, hosts in asked for k in hosts}:
            nc += self._bid(h)
            self._bid(to)
        for v, hosts in asked:
            for to in hosts:
                left = self.left[to]
                rooms[to] = (View(self, to).left_s(), FOREVER if left < 0 else int(left))
                bids[(v, to)] = View(self, to).with_s(v)
        chosen = leaving.choose(view, bids, rooms)
        moved = chosen is not None and self._taken(view, *chosen, flees)
        self.quiet[h] = 0 if moved else min(12, self.quiet[h] + 1)
        self.stays[h] = flees and not moved
        return leaving.pause_s(self.quiet[h], flees, nc, self.draws[h], view.left_s())

    def _bid(self, h: int) -> int:
        """Host h sends a bid and hears its answer, or the other way round; what that costs."""
        nc = BID_FRAMES * max(link[2] for link in self.case.hosts[h].links.values())
        self._spend(h, nc)
        self.bid_nc[h] += nc
        return nc

    def bid_share(self) -> float:
        """What bids cost, as a part of what was spent: of the host where that is most."""
        spent = [host.left_mc - left for host, left in zip(self.case.hosts, self.left)]
        return max([nc / 1e6 / mc for nc, mc in zip(self.bid_nc, spent) if mc > 0], default=0.0)

    def _taken(self, view: View, v: int, to: int, flees: bool) -> bool:
        taker = View(self, to)
        why = FLEE if flees else BALANCE
        if not self._fits(v, to) or self._refuses(taker, v, why, view) != OK:
            self.refused[(v, to)] = self.now_s + 3600
            return False
        giver_nc, taker_nc = self.case.handover_nc(v, view.me, to)
        self._spend(view.me, giver_nc)
        self._spend(to, taker_nc)
        if flees:
            self.fled.add((v, view.me))
            self.flights += 1
        self.places[v] = to
        self.moved_s[v] = self.now_s
        self.draws = self._draws(self.places)
        self.moves += 1
        # Who takes part looks again soon.
        self.quiet[to] = self.quiet[view.me] = 0
        return True

    def _refuses(self, taker: View, v: int, why: int, giver: View) -> int:
        with_s = taker.with_s(v)
        mc = self.left[taker.me]
        reserve_s = int(self.reserve_mc(taker.me) * with_s / mc) if mc > 0 else 0
        return leaving.refusal(taker, v, why, giver.left_s(), with_s, reserve_s)

    def _fits(self, v: int, to: int) -> bool:
        after = list(self.places)
        after[v] = to
        return not self.case.breaks(after)


class View:
    """What a host knows when it decides: see `leaving`."""

    def __init__(self, lives: Lives, me: int) -> None:
        self.lives = lives
        self.me = me
        self.case = lives.case

    def operators(self) -> list[int]:
        places, vertices = self.lives.places, self.case.vertices
        return [v for v in range(len(places)) if places[v] == self.me and len(vertices[v].hosts) > 1]

    def candidates(self, v: int) -> list[int]:
        return [h for h in self.case.vertices[v].hosts if h != self.me]

    def rank(self, v: int, h: int) -> int:
        return list(self.case.vertices[v].hosts).index(h)

    def _life(self, places: Sequence[int], nc: int) -> int:
        left = self.lives.left[self.me]
        if left < 0:
            return FOREVER
        draws = self.lives._draws(places)
        return life_s(max(0, int(left - nc / 1_000_000)), draws[self.me])

    def left_s(self) -> int:
        return self._life(self.lives.places, 0)

    def after(self, vs: Sequence[int], to: int) -> tuple[int, list[int]]:
        """By the host's own numbers, which are those of all boards here."""
        places = list(self.lives.places)
        for v in vs:
            places[v] = to
        nc = sum(self.case.handover_nc(v, self.me, to)[0] for v in vs)
        more = [then - now for now, then in zip(self.lives.draws, self.lives._draws(places))]
        return self._life(places, nc), [0 if left < 0 else na for left, na in zip(self.lives.left, more)]

    def with_s(self, v: int) -> int:
        after = list(self.lives.places)
        giver = after[v]
        after[v] = self.me
        return self._life(after, self.case.handover_nc(v, giver, self.me)[1])

    def whole_s(self) -> int:
        if self.lives.left[self.me] < 0:
            return FOREVER
        return life_s(self.lives.full_mc, self.lives.draws[self.me])

    def must_flee(self) -> bool:
        return self.flees()

    def takes_back(self, v: int) -> bool:
        return (v, self.me) not in self.lives.fled

    def flees(self) -> bool:
        left = self.lives.left[self.me]
        return 0 <= left < self.lives.reserve_mc(self.me)

    def stays(self) -> bool:
        return self.lives.stays[self.me]

    def crosses(self, v: int, h: int) -> bool:
        places = self.lives.places
        for e in self.case.edges:
            dst = 0 if e.dst == OUTSIDE else places[e.dst]
            if e.src == v and dst == h or e.dst == v and places[e.src] == h:
                return True
        return False

    def rests(self, v: int) -> bool:
        moved_s = self.lives.moved_s.get(v)
        return moved_s is not None and self.lives.now_s - moved_s < leaving.REST_S

    def trusts(self, v: int, h: int) -> bool:
        return self.lives.refused.get((v, h), 0) <= self.lives.now_s


def longest(case: Case) -> float:
    """Seconds until the first battery is empty if every battery is used up in the best way: a mix of
    placements, each for a part of the time, found by linear programming (maximise the sum of the times,
    within what each battery has; the simplex method on as many rows as there are batteries)."""
    batteries = [h for h, host in enumerate(case.hosts) if host.left_mc != MAINS]
    columns = []
    for places in itertools.product(*[v.hosts for v in case.vertices]):
        if not case.breaks(places):
            draws = case.draws(places)
            assert draws is not None
            columns.append([draws[h] / 1_000_000 for h in batteries])
    return _simplex(columns, [float(case.hosts[h].left_mc) for h in batteries])


def _simplex(columns: list[list[float]], limits: list[float]) -> float:
    """The largest sum of x >= 0 with the sum of x[i] * columns[i] within the limits."""
    m = len(limits)
    rows = [
        [column[r] for column in columns] + [float(r == k) for k in range(m)] + [limits[r]] for r in range(m)
    ]
    goal = [-1.0] * len(columns) + [0.0] * m + [0.0]
    while True:
        pivot = min(range(len(goal) - 1), key=lambda i: goal[i])
        if goal[pivot] > -1e-12:
            return goal[-1]
        ratios = [(row[-1] / row[pivot], r) for r, row in enumerate(rows) if row[pivot] > 1e-15]
        _, r = min(ratios)
        by = rows[r][pivot]
        rows[r] = [value / by for value in rows[r]]
        for k, row in enumerate(rows):
            if k != r and row[pivot]:
                rows[k] = [a - row[pivot] * b for a, b in zip(row, rows[r])]
        goal = [a - goal[pivot] * b for a, b in zip(goal, rows[r])]
