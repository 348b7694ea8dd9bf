"""Entries taken again: what a restart, a move or a jump to another checkpoint costs in work.

An entry counts each time that an operator, or the lake's end, takes it after any instance of the same
operator took it before, on whatever host.
"""

from __future__ import annotations

from typing import Any

from headwater.host import Host


class Taken:
    """What all hosts of a world have taken."""

    def __init__(self) -> None:
        self.furthest: dict[tuple[int, int], int] = {}  # (edge, incarnation) -> the last entry taken
        self.again = 0

    def watch(self, e: Any) -> None:
        taken = e.taken

        def watched(n: int) -> None:
            key = (e.edge.index, e.inc)
            before = self.furthest.get(key, 0)
            self.again += max(0, min(n, before - e.cur.xi))
            self.furthest[key] = max(before, e.cur.xi + n)
            taken(n)

        e.taken = watched


class WatchedHost(Host):
    """A host whose inputs are watched."""

    taken: Taken

    def _start_operator(self, v: Any, epoch: Any) -> Any:
        inst = super()._start_operator(v, epoch)
        for e in inst.inputs:
            self.taken.watch(e)
        return inst

    def _start_end(self, e: Any) -> None:
        super()._start_end(e)
        self.taken.watch(self.inputs[e.index])
