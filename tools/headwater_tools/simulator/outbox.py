"""Where the edges to the lake end in the simulation: an outbox that is durable a little later, and a
lake that acknowledges later still. Both check what they are given.

As in the gateway, a block that cannot be decoded becomes a declared gap in the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.data import block
from headwater.data.batch import Batch

if TYPE_CHECKING:
    from .world import World

COMMIT_US = 40_000  # group commit of the outbox
UNREADABLE = 0  # reason of a gap: its block could not be decoded
LAKE_US = 700_000  # from the outbox to the lake


class Stream:
    def __init__(self) -> None:
        self.rows: dict[int, Any] = {}
        self.gaps: list[tuple[int, int, int]] = []
        self.taken = 0  # in memory
        self.durable = 0
        self.lake = 0
        self.ever = 0  # the most that was ever durable, perhaps before the database was lost


class Outbox:
    def __init__(self, world: World) -> None:
        self.world = world
        self.streams: dict[tuple[int, int], Stream] = {}
        self.last: dict[int, int] = {}
        self.lake_open = True
        self.full = False  # the lake sinks accept nothing
        self.draining = False  # during a change of the plan, what is durable here is safe
        self.life = 0
        self.duplicates = 0  # rows given while they are there
        self.out_of_order = 0  # rows given before an earlier one, or whose ts falls
        self.taken_order: list[tuple[int, int, int]] = []

    def _stream(self, edge: int, inc: int) -> Stream:
        return self.streams.setdefault((edge, inc), Stream())

    def put(self, edge: int, inc: int, xi: int, n: int, data: bytes | memoryview) -> None:
        s = self._stream(edge, inc)
        if self.full:
            self.world.error("edge %d: the lake's end put xi %d into a full outbox" % (edge, xi))
        if xi != s.taken + 1:
            self.out_of_order += xi > s.taken + 1
            self.world.error("edge %d: the lake's end took xi %d after %d" % (edge, xi, s.taken))
        batch = self._decoded(edge, data)
        if batch is None:
            s.gaps.append((xi, xi + n - 1, UNREADABLE))
        elif (batch.xi, batch.n) == (xi, n):
            self._rows(edge, s, batch)
        else:
            text = "edge %d: a block of %d entries from xi %d was put as %d from xi %d"
            self.world.error(text % (edge, batch.n, batch.xi, n, xi))
        s.taken = xi + n - 1
        self._commit_later(edge, inc)

    def _decoded(self, edge: int, data: bytes | memoryview) -> Batch | None:
        plan = self.world.plan
        e = plan.edges[edge]
        batch = Batch(plan.vertices[e.src].outs[e.sport], plan.batch)
        try:
            block.decode(data, 0, len(data), batch)
        except block.BlockError:
            return None
        return batch

    def _rows(self, edge: int, s: Stream, batch: Batch) -> None:
        from .world import entry

        for i in range(batch.n):
            xi = batch.xi + i
            row = entry(batch, i)
            self.duplicates += xi in s.rows
            self.out_of_order += xi - 1 in s.rows and row[0] < s.rows[xi - 1][0]
            if xi in s.rows and s.rows[xi] != row:
                self.world.error("edge %d xi %d: divergent rows %r and %r" % (edge, xi, s.rows[xi], row))
            s.rows[xi] = row

    def gap(self, edge: int, inc: int, first: int, last: int, reason: int) -> None:
        s = self._stream(edge, inc)
        if first != s.taken + 1:
            self.world.error("edge %d: gap from %d after %d" % (edge, first, s.taken))
        s.gaps.append((first, last, reason))
        s.taken = last
        self._commit_later(edge, inc)

    def _commit_later(self, edge: int, inc: int) -> None:
        upto = self._stream(edge, inc).taken
        life = self.life
        self.world.after(COMMIT_US, lambda: self._commit(edge, inc, upto, life))

    def _commit(self, edge: int, inc: int, upto: int, life: int) -> None:
        s = self._stream(edge, inc)
        if life == self.life and upto > s.durable:
            s.durable = upto
            s.ever = max(s.ever, upto)
            self.last[edge] = inc
            self.world.after(LAKE_US, lambda: self._lake(edge, inc))

    def _lake(self, edge: int, inc: int) -> None:
        if not self.lake_open:
            self.world.after(LAKE_US, lambda: self._lake(edge, inc))
            return
        s = self._stream(edge, inc)
        s.lake = max(s.lake, s.durable)

    def latest(self, edge: int) -> int:
        return self.last.get(edge, 0)

    def durable(self, edge: int, inc: int) -> int:
        return self._stream(edge, inc).durable

    def lake(self, edge: int, inc: int) -> int:
        s = self._stream(edge, inc)
        return s.durable if self.draining else min(s.lake, s.durable)

    def lost_power(self) -> None:
        """What was not committed is gone."""
        self.life += 1
        for s in self.streams.values():
            for xi in range(s.durable + 1, s.taken + 1):
                s.rows.pop(xi, None)
            s.gaps = [g for g in s.gaps if g[1] <= s.durable]
            s.taken = s.durable

    def lost_database(self) -> None:
        """A new one, which continues from what the lake has acknowledged; the rest is gone."""
        self.lost_power()
        self.last.clear()
        for s in self.streams.values():
            for xi in [xi for xi in s.rows if xi > s.lake]:
                del s.rows[xi]
            s.gaps = [g for g in s.gaps if g[1] <= s.lake]
            s.taken = s.durable = s.lake
