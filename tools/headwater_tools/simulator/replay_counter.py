"""Entries taken, and taken again: the repeated work of a restart, a move or a jump to another checkpoint. And
with which incarnation inputs were opened again.

An entry counts as taken again each time that an operator, or the lake sink, takes it after any instance of
the same operator took it before, on any host.
"""

from __future__ import annotations

from typing import Any


class Taken:
    """What all hosts of a world have taken."""

    # begun: see World.
    def __init__(self, begun: dict[tuple[int, int], int]) -> None:
        self.begun = begun
        self.furthest: dict[tuple[int, int], int] = {}  # (edge, incarnation) -> the last entry taken
        self.again = 0
        # (operator, number of a decision that opens an input again) -> the newest epoch that applied it, and
        # the incarnation of which that one took until then; 0: it had met none.
        self.reopened: dict[tuple[int, int], tuple[tuple[int, int], int]] = {}

    def watch(self, e: Any) -> None:
        taken, reopen = e.taken, e.reopen

        def watched(n: int) -> None:
            key = (e.edge.index, e.inc)
            before = self.furthest.get(key, 0)
            self.again += max(0, min(n, before - e.cur.xi))
            self.furthest[key] = max(before, e.cur.xi + n)
            taken(n)

        def reopened(inc: int, from_ts: int, since: int) -> bool:
            key = (e.edge.dst, since)
            if e.sink.epoch >= self.reopened.get(key, ((0, 0), 0))[0]:
                self.reopened[key] = (e.sink.epoch, e.inc)
            return bool(reopen(inc, from_ts, since))

        e.taken = watched
        e.reopen = reopened

    def look(self, host: Any) -> None:
        """Record how far the inputs of a host are: some entries bypass `taken`, on the fast path. To be
        called before another host can know of it."""
        for e in host.inputs.values():
            key = (e.edge.index, e.inc)
            if e.cur.xi > self.furthest.get(key, self.begun.get((e.edge.src, e.inc), 0)):
                self.furthest[key] = e.cur.xi


class WatchedInputs(dict[int, Any]):
    """The inputs of a host, each watched from its first moment."""

    def __init__(self, taken: Taken) -> None:
        super().__init__()
        self.taken = taken

    def __setitem__(self, edge: int, e: Any) -> None:
        self.taken.watch(e)
        super().__setitem__(edge, e)
