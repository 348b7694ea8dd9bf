"""Moves of operators, as the gateway hears of them: each is an event, a count, and a row of the database.

A move is a newer epoch of an operator. A host that tells where an operator runs tells why and for how long as
well, so a move that happened while the gateway was away is recorded with its own time, and once: what was
recorded of a deployment is in the database. Of several moves that the gateway did not hear of, the last one
is known.

The lake hears of a move by the segments of the streams that the operator feeds (`of_stream`).

The newest `MOVES_MAX` are kept, and the last one of every operator of the deployments that run.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from headwater.offboard import reasons
from headwater.protocol import moves, offers

from ..database.engine import Database
from .alarms import span

MOVES_MAX = 500
WHY_S = 10.0  # where an operator runs may be known for this long before it is known why
LATE_S = 60.0  # a move that is older when the gateway hears of it is told with its age
SEGMENT_MAX = 16  # moves that one segment names
UNKNOWN = "unknown"
NAMES = (*reasons.MOVES[1:], UNKNOWN)  # of every reason that a move has
REFUSED = tuple(name for number, name in enumerate(reasons.REFUSED) if number not in (offers.OK, offers.HERE))

Key = tuple[str, int, str]  # process, deployment, operator


class Move(NamedTuple):
    id: int
    process: str
    deployment: int
    operator: str
    epoch: int
    source: str  # where it ran before, as far as it was known
    host: str
    why: int | None  # protocol/moves.py
    at_us: int
    heard_us: int
    version: str  # of the process: hash of its plan
    streams: str  # JSON: names in the lake of what the operator feeds

    @property
    def key(self) -> Key:
        return self.process, self.deployment, self.operator

    @property
    def name(self) -> str:
        return UNKNOWN if self.why is None else reasons.MOVES[self.why]

    @property
    def because(self) -> str:
        return "why is not known" if self.why is None else reasons.because(self.why, self.source)

    def view(self) -> dict[str, Any]:
        """For state and page."""
        return {
            "process": self.process, "operator": self.operator, "from": self.source, "host": self.host,
            "reason": self.name, "why": self.because, "epoch": self.epoch, "at_us": self.at_us,
        }  # fmt: skip


def told(move: Move) -> str:
    """The sentence of the event."""
    what = "operator %s of %s " % (move.operator, move.process)
    if move.why == moves.GIVEN_UP:
        text = what + "goes on at %s: %s" % (move.host, move.because)
    elif move.source == move.host:
        text = what + "began again on %s, under a newer epoch" % move.host
    elif move.why == moves.TAKEOVER:
        text = what + "was taken over by %s: %s" % (move.host, move.because)
    else:
        text = what + "moved from %s to %s: %s" % (move.source, move.host, move.because)
    age_s = (move.heard_us - move.at_us) / 1e6
    return text if age_s < LATE_S else "%s (%s before the gateway heard of it)" % (text, span(age_s))


def feeds(plan: Any, v: int) -> list[str]:
    """Names in the lake of the streams that a vertex produces, or feeds by other operators."""
    reached = {v}
    for u in plan.order:
        if any(e.src in reached for e in plan.ins(u)):
            reached.add(u)
    return sorted({e.lake for e in plan.edges if e.lake and e.src in reached})


class Moves:
    def __init__(
        self,
        db: Database,
        event: Callable[[str, str], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.db = db
        self.event = event
        self.monotonic = monotonic
        rows = db.query(
            "SELECT id, process, deployment, operator, epoch, source, host, why, at, heard, version, streams "
            "FROM moves ORDER BY id"
        )
        self.all = [Move(*row) for row in rows]
        self.last: dict[Key, Move] = {move.key: move for move in self.all}
        self.counts: Counter[tuple[str, str]] = Counter()  # (process, reason) -> moves since this start
        self.refused: Counter[str] = Counter()  # why moves that a person asked for did not happen
        self._since: dict[tuple[Key, int], float] = {}  # a move of which it is not known why, first seen
        self._asked: dict[Key, tuple[int, int]] = {}  # number and outcome of the last one that was counted

    def look(self, hosts: Iterable[Any], now_us: int) -> None:
        """Record what is new. `hosts`: of the processes that run here, as headwater.runtime.host has them."""
        here = list(hosts)
        for host in here:
            for v in host.plan.vertices:
                if v.kind:
                    self._look(host, v, now_us)
                    self._look_at_asked(host, v)
        self._prune({(host.plan.name, host.plan.deployment) for host in here})

    def of(self, plan: Any, operator: str) -> Move | None:
        """The last move of an operator; None if it has not moved, as far as is known."""
        return self.last.get((plan.name, plan.deployment, operator))

    def of_stream(self, process: str, version: str, stream: str) -> list[Move]:
        """The newest moves that touched a stream of the lake, oldest first."""
        found = []
        for move in reversed(self.all):
            if (move.process, move.version) == (process, version) and stream in json.loads(move.streams):
                found.append(move)
                if len(found) == SEGMENT_MAX:
                    break
        return found[::-1]

    def _look(self, host: Any, v: Any, now_us: int) -> None:
        plan = host.plan
        key = (plan.name, plan.deployment, v.name)
        known = self.last.get(key)
        number, _, place = host.where[v.index]
        last = (known.epoch, known.host) if known else (1, plan.hosts[v.hosts[0]])
        if number < last[0] or (number, plan.hosts[place]) == last:
            return  # under equal numbers the epoch of the higher host is newer: `where` has the newest
        why, since_s = host.moves.get(v.index, (None, 0))
        first = self._since.setdefault((key, number), self.monotonic())
        if why is None and self.monotonic() - first < WHY_S:
            return
        del self._since[(key, number)]
        source = known.host if known else plan.hosts[v.hosts[0]]
        at_us = now_us if why is None else min(now_us, since_s * 1_000_000)
        ident = self.all[-1].id + 1 if self.all else 1
        fed = json.dumps(feeds(plan, v.index))
        move = Move(ident, *key, number, source, plan.hosts[place], why, at_us, now_us, plan.hash.hex(), fed)
        self.all.append(move)
        self.last[key] = move
        self.db.execute("INSERT INTO moves VALUES(%s)" % ", ".join("?" * len(move)), *move)
        self.counts[move.process, move.name] += 1
        self.event("move", told(move))

    def _look_at_asked(self, host: Any, v: Any) -> None:
        """Count what came of moves that a person asked for, and tell of those that were refused."""
        number, to, outcome = host.asked.get(v.index, (0, 0, offers.PENDING))
        key = (host.plan.name, host.plan.deployment, v.name)
        if outcome in (offers.PENDING, offers.OK, offers.HERE) or self._asked.get(key) == (number, outcome):
            return
        self._asked[key] = (number, outcome)
        self.refused[reasons.REFUSED[outcome]] += 1
        why = reasons.refused(outcome, host.plan.hosts[to])
        self.event(
            "move", "operator %s of %s did not move to %s: %s" % (v.name, key[0], host.plan.hosts[to], why)
        )

    def _prune(self, running: set[tuple[str, int]]) -> None:
        """Forget what is old, but the last move of an operator that runs."""
        for key in [key for key in self.last if key[:2] not in running]:
            del self.last[key]
        for waiting in [one for one in self._since if one[0][:2] not in running]:
            del self._since[waiting]
        for key in [key for key in self._asked if key[:2] not in running]:
            del self._asked[key]
        for move in [move for move in self.all[:-MOVES_MAX] if self.last.get(move.key) is not move]:
            self.all.remove(move)
            self.db.execute("DELETE FROM moves WHERE id = ?", move.id)

    def view(self, most: int) -> list[dict[str, Any]]:
        """The newest moves, newest first."""
        return [move.view() for move in self.all[: -most - 1 : -1]]
