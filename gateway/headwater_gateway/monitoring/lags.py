"""How far behind the lake is, in seconds and elements, for every stream.

An element that is durable here has a time of arrival; the oldest one that the lake has not acknowledged gives
the lag. Boards report only how many elements they still hold. Their age is a lower limit: the time for which
the gateway has known of the oldest of them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from ..database.engine import Database
from ..database.outbox import OutboxStream, OutboxStreams

SAMPLES_MAX = 64  # of what a board reported, for one stream


class Reported:
    """What a board reported about one of its streams over time: the age of what is not here yet."""

    def __init__(self) -> None:
        self.samples: deque[tuple[int, int]] = deque()  # when, and the last element by then

    def note(self, at_us: int, last: int) -> None:
        if self.samples and last < self.samples[-1][1]:
            self.samples.clear()  # its flash was lost
        if self.samples and last == self.samples[-1][1]:
            return
        self.samples.append((at_us, last))
        if len(self.samples) > SAMPLES_MAX:
            kept = [s for i, s in enumerate(self.samples) if i % 2 == 0 or i == len(self.samples) - 1]
            self.samples = deque(kept)

    def age_us(self, durable: int, now_us: int) -> int | None:
        """For how long at least the oldest element after `durable` has been known to exist."""
        while self.samples and self.samples[0][1] <= durable:
            self.samples.popleft()
        return max(0, now_us - self.samples[0][0]) if self.samples else None


@dataclass
class Lag:
    """Of one stream, all incarnations together."""

    stream: str
    process: str
    waiting: int = 0
    arrived_us: int | None = None  # of the oldest element that waits
    acked_us: int | None = None  # when an acknowledgement last advanced
    newest: OutboxStream | None = None
    beyond: bool = False


class Lags:
    def __init__(self, db: Database, ends: OutboxStreams) -> None:
        self.db = db
        self.ends = ends
        self._oldest: dict[int, tuple[int, int | None]] = {}  # end -> what was acknowledged, and the arrival
        self._acked: dict[int, int] = {end.id: end.acked for end in ends.all.values()}
        self._acked_us: dict[int, int] = {}
        self._reported: dict[tuple[str, int], Reported] = {}

    def arrived_us(self, end: OutboxStream) -> int | None:
        """Arrival of the oldest element that waits here for the lake."""
        if end.durable <= end.acked:
            self._oldest.pop(end.id, None)
            return None
        known = self._oldest.get(end.id)
        if known is None or known[0] != end.acked or known[1] is None:
            rows = self.db.query(
                'SELECT arrived FROM chunks WHERE "end" = ? AND last > ? ORDER BY last LIMIT 1',
                end.id, end.acked,
            )  # fmt: skip
            known = self._oldest[end.id] = (end.acked, rows[0][0] if rows else None)
        return known[1]

    def look(self, now_us: int, beyond: set[tuple[str, int]]) -> list[Lag]:
        """Every stream that is known here. `beyond`: of which (stream, incarnation) the lake has later
        elements than those that it lacks."""
        found: dict[str, Lag] = {}
        for end in self.ends.all.values():
            if end.acked > self._acked.get(end.id, 0):
                self._acked_us[end.id] = now_us
            self._acked[end.id] = end.acked
            lag = found.setdefault(end.lake, Lag(end.lake, end.process))
            lag.newest = end
            lag.process = end.process
            lag.waiting += max(0, end.durable - end.acked)
            lag.beyond |= (end.lake, end.incarnation) in beyond
            arrived = self.arrived_us(end)
            if arrived is not None and (lag.arrived_us is None or arrived < lag.arrived_us):
                lag.arrived_us = arrived
            acked = self._acked_us.get(end.id)
            if acked is not None and (lag.acked_us is None or acked > lag.acked_us):
                lag.acked_us = acked
        return list(found.values())

    # ---- boards

    def report(self, process: str, backlog: list[list[int]], now_us: int) -> None:
        """A board's status: [vertex × 8 + port, last, safe] of every stream that it produces."""
        for number, last, _ in backlog:
            self._reported.setdefault((process, number), Reported()).note(now_us, last)

    def on_board_us(self, process: str, number: int, durable: int, now_us: int) -> int | None:
        reported = self._reported.get((process, number))
        return reported.age_us(durable, now_us) if reported else None

    def forget(self, process: str) -> None:
        """Another version of the process runs: its numbers mean other streams."""
        self._reported = {key: value for key, value in self._reported.items() if key[0] != process}
