"""Operators that wait for a checkpoint which only lost hosts have, and give up (headwater.runtime.giving_up):
a person says so (`hw give-up`), or the process file does (`give_up_after`)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.plan.model import OUTSIDE
from headwater.protocol.moves import GIVEN_UP
from headwater.runtime import standing

from . import UserError
from .deployments.operator_moves import vertex_of
from .deployments.switching import Process

if TYPE_CHECKING:
    from .database.outbox import OutboxStream
    from .service import Service

WAIT_S = 20.0  # a request is answered within this
_LOOK_S = 0.1
# What an operator may wait for forever.
HOPELESS = (standing.CHECKPOINT, standing.KEEPERS, standing.ENTRIES)
_REPEAT_S = 1.0  # a board that has not answered is told again


class Wait(NamedTuple):
    """An operator that waits for hosts."""

    vertex: int
    host: int  # where it waits
    what: int  # see headwater.runtime.standing, as for the next two
    position: list[int]
    hosts: list[int]
    number: int  # of its epoch


def waiting(service: Service, process: Process) -> Iterator[Wait]:
    """The operators of a process that wait for hosts, as the hosts that run them say."""
    assert process.hosted is not None
    plan = process.hosted.plan
    rows = [(0, row) for row in process.hosted.host.waits()]
    for h, name in enumerate(plan.hosts[1:], 1):
        board = service.boards.all[name]
        if service.link_of(board) == "up":
            rows += [(h, row) for row in board.status.get("waits") or []]
    for h, (v, what, position, hosts, number) in rows:
        if what in HOPELESS and v < len(plan.vertices) and all(other < len(plan.hosts) for other in hosts):
            yield Wait(v, h, what, position, hosts, number)


class GivenUp:
    def __init__(self, service: Service) -> None:
        self.service = service
        # (process, deployment, operator) -> number of the newest epoch that began because it gave up, and of
        # which an event has told.
        self.told: dict[tuple[str, int, int], int] = {}
        self.seen: set[tuple[str, int]] = set()

    async def give(self, name: str | None, operator: str, sure: bool) -> dict[str, Any]:
        """An operator gives up what it waits for, if `sure`; what follows from that."""
        from .monitoring.operators import words

        service = self.service
        process, hosted = service.open_to_change(name)
        vertex = vertex_of(hosted, operator)
        wait = max(
            (w for w in waiting(service, process) if w.vertex == vertex.index),
            key=lambda found: found.number,
            default=None,
        )
        if wait is None:
            raise UserError(self._nothing(process, vertex))
        answer = {
            "process": process.name,
            "operator": vertex.name,
            "host": hosted.plan.hosts[wait.host],
            "waits": words(service, process, wait.what, wait.position, wait.hosts),
            "missing": [hosted.plan.hosts[h] for h in wait.hosts],
            "streams": [row for row in self._streams(process, vertex.index)],
            "consumers": self._consumers(process, vertex.index),
        }
        if not sure:
            return {**answer, "outcome": "asked"}
        end = asyncio.get_running_loop().time() + WAIT_S
        looks = 0
        while not self._began(process, wait) and asyncio.get_running_loop().time() < end:
            if looks % int(_REPEAT_S / _LOOK_S) == 0:
                hosted.give_up(wait.vertex, wait.host, wait.number)
            looks += 1
            await asyncio.sleep(_LOOK_S)
        return {**answer, "outcome": "given up" if self._began(process, wait) else "under way"}

    def _began(self, process: Process, wait: Wait) -> bool:
        assert process.hosted is not None
        return bool(process.hosted.host.where[wait.vertex][0] > wait.number)

    def _nothing(self, process: Process, vertex: Any) -> str:
        """Why an operator that does not wait cannot give up."""
        assert process.hosted is not None
        plan = process.hosted.plan
        at = plan.hosts[process.hosted.host.where[vertex.index][2]]
        board = self.service.boards.all.get(at)
        if board is None or self.service.link_of(board) == "up":
            return "operator %s waits for no checkpoint: there is nothing to give up on %s" % (
                vertex.name,
                at,
            )
        others = ", ".join(plan.hosts[h] for h in vertex.hosts if plan.hosts[h] != at) or "no other host"
        return (
            "operator %s is known to run on %s, which is silent, and it waits nowhere else: %s may run it, "
            "and does once it is there" % (vertex.name, at, others)
        )

    def _streams(self, process: Process, v: int) -> Iterator[dict[str, Any]]:
        """Where its streams in the lake end."""
        from .service import last_of

        assert process.hosted is not None
        for e in process.hosted.plan.edges:
            if e.src == v and e.dst == OUTSIDE:
                ends = [
                    o
                    for o in self.service.ends.all.values()
                    if o.lake == e.lake and o.process == process.name
                ]
                ts_us = last_of(ends[-1])[0] if ends else None
                yield {"stream": e.lake, "xi": ends[-1].taken if ends else None, "ts_us": ts_us}

    def _consumers(self, process: Process, v: int) -> list[str]:
        assert process.hosted is not None
        plan = process.hosted.plan
        return [plan.vertices[e.dst].name for e in plan.edges if e.src == v and e.dst != OUTSIDE]

    # ---- what is told of it

    def look(self, process: Process) -> None:
        """Tell by an event which operators have given up since this gateway runs."""
        hosted = process.hosted
        if hosted is None:
            return
        plan, host = hosted.plan, hosted.host
        first = (process.name, plan.deployment) not in self.seen
        self.seen.add((process.name, plan.deployment))
        for v in plan.vertices:
            key = (process.name, plan.deployment, v.index)
            number = host.where[v.index][0]
            if host.moves.get(v.index, (0, 0))[0] != GIVEN_UP or self.told.get(key, 0) >= number:
                continue
            self.told[key] = number
            if not first:
                self.service.event("lost", self._told(process, v))

    def _told(self, process: Process, vertex: Any) -> str:
        assert process.hosted is not None
        at = process.hosted.plan.hosts[process.hosted.host.where[vertex.index][2]]
        text = "%s.%s has given up what its lost hosts had, and goes on at %s" % (
            process.name,
            vertex.name,
            at,
        )
        for row in self._streams(process, vertex.index):
            if row["xi"] is not None:
                text += "; %s ends after xi %d%s, and begins another incarnation" % (
                    row["stream"], row["xi"], "" if row["ts_us"] is None else ", ts %d" % row["ts_us"]
                )  # fmt: skip
        return text

    def ended(self, end: OutboxStream) -> str | None:
        """Why nothing more follows in this incarnation of a stream, or None while something may."""
        service = self.service
        if end.version:
            same = [e for e in service.ends.all.values() if (e.lake, e.version) == (end.lake, end.version)]
            return "given up after xi %d" % end.taken if same and same[-1] is not end else None
        for board in service.boards.all.values():
            if end.inc in board.lost:
                return "board %s lost: from xi %d on" % (board.name, end.taken + 1)
        return None
