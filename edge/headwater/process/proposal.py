"""Where operators should start so that batteries last longer than with the first hosts that a process file
declares. `hw check --explain` asks it of a process file, the gateway of what its boards report.

A proposal names only operators without whose move the battery would not last as long: `place` also improves
on batteries that are empty much later, and nobody wants to read that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..plan.placement import FOREVER, Case, place

NOTICED = 1  # percent: what changes a life by no more is no reason to run an operator elsewhere


@dataclass(frozen=True)
class Proposal:
    """The battery number `battery`, in the order in which they are empty, lasts longer; 0 is the first."""

    places: list[int]  # host of each vertex
    moves: list[int]  # vertices that start elsewhere
    battery: int
    now_s: int
    then_s: int

    @property
    def percent(self) -> int | None:
        """By how much it lasts longer; None where it does not last at all now."""
        return 100 * (self.then_s - self.now_s) // self.now_s if self.now_s else None

    @property
    def which(self) -> str:
        return "battery that is empty as number %d" % (self.battery + 1) if self.battery else "first battery"


def propose(
    case: Case, first: Sequence[int], percent: int, each: Callable[[], object] | None = None
) -> Proposal | None:
    """The best placement, if a battery lasts longer by more than so many percent; None if not. `each` is
    called after each placement that the search looks at."""
    best = place(case, first, each=each)
    return None if best is None else compare(case, first, best, percent)


def compare(case: Case, first: Sequence[int], best: Sequence[int], percent: int) -> Proposal | None:
    """This placement as a proposal, if a battery lasts longer by more than so many percent, and none that is
    empty before it lasts noticeably less long."""
    for k, (now, then) in enumerate(zip(case.worth(first), case.worth(best))):
        if 100 * (then - now) > percent * now:
            return _of(case, first, best, k)
        if 100 * (now - then) > NOTICED * now:
            return None
    return None


def _of(case: Case, first: Sequence[int], best: Sequence[int], battery: int) -> Proposal:
    moves = [v for v in range(len(first)) if best[v] != first[v]]
    return Proposal(list(best), moves, battery, case.worth(first)[battery], case.worth(best)[battery])


def fewest(case: Case, first: Sequence[int], found: Proposal) -> Proposal:
    """The proposal without the moves that its battery, and those that are empty before it, do not need."""
    upto = found.battery + 1
    least = [s - s * NOTICED // 100 for s in case.worth(found.places)[:upto]]
    places = list(found.places)
    for v in found.moves:
        places[v] = first[v]
        if case.breaks(places) or any(s < enough for s, enough in zip(case.worth(places)[:upto], least)):
            places[v] = found.places[v]
    return _of(case, first, places, found.battery)


def on(names: Sequence[str], candidates: Sequence[int], host: int) -> str:
    """What to write into the process file, so that an operator starts on this one of its candidates."""
    others = [names[h] for h in candidates if h != host]
    return '.on("%s", backup=%s)' % (names[host], json.dumps(others))


def life(seconds: int) -> str:
    """A duration for people."""
    if seconds >= FOREVER:
        return "-"
    minutes, days = seconds // 60, seconds // 86400
    if days >= 2:
        return "%d d %d h" % (days, seconds // 3600 % 24)
    if minutes >= 60:
        return "%d h %02d min" % (minutes // 60, minutes % 60)
    return "%d min" % minutes if minutes else "%d s" % seconds
