"""Schedules of clocks: restarts in a row, a gateway that does not know the time, or a wrong one."""

from __future__ import annotations

from functools import partial
from typing import Any

from headwater.process import Attenuate, Process, Union
from headwater.protocol import frames

from ..world import SECOND
from .base import GATEWAY, LEFT, SPARE, Directed, boards


class AnswersNothing(Directed):
    """A gateway answers a request for the time that was never sent: as if it was on its way for seconds."""

    def script(self) -> list[tuple[float, Any]]:
        def ask() -> None:
            host = self.node(SPARE).host
            assert host is not None
            host.exchange.links[GATEWAY].want(frames.CLOCK, 0, 7)

        return [(t, ask) for t in (10, 12, 14)]


class Restarts(Directed):
    """A board and the gateway restart repeatedly, at once, before the time that was logged ahead has come.
    One sensor has a rate and never rests, another promises what will not come, up to a floor ahead."""

    SECONDS = 40

    def process(self) -> Process:
        p = boards("restarts", "left", every=40, level="local", batch=20, batch_ms=1000)
        for name, rate in (("air", {"rate_hz": 20}), ("door", {"most_hz": 10})):
            p.lake("restarts/" + name, p.source(name, "v:i16", on="left", **rate))
        return p

    def script(self) -> list[tuple[float, Any]]:
        found: list[tuple[float, Any]] = []
        for i in range(9):
            second = 3 + 3.5 * i
            found += [(second, partial(self.crash, LEFT)), (second + 0.1, partial(self.boot, LEFT))]
            found += [(second + 1, partial(self.crash, GATEWAY)), (second + 1.1, partial(self.boot, GATEWAY))]
        return found


class StillInLoop(Directed):
    """A board restarts before the time that was logged ahead has come, and what it samples goes round a
    loop: what it would take while its clock stands still has one ts, and no buffer of the loop holds that
    many entries."""

    SECONDS = 30

    def process(self) -> Process:
        p = boards("still", "left", checkpoints="uncoordinated", every=20, batch_ms=100)
        air = p.source("air", "v:i16", rate_hz=40, on="left")
        door = p.source("door", "v:i16", most_hz=10, on="left")
        calm = Attenuate(threshold=100).named("calm").on("gateway")(air)
        both = Union().named("both").on("gateway")(calm, door)
        p.feedback(both, calm, port=1, delay_ms=1400)
        p.lake("still/both", both)
        return p

    def script(self) -> list[tuple[float, Any]]:
        return [(t, partial(self.crash, LEFT)) for t in (9, 15)] + [
            (t, partial(self.boot, LEFT)) for t in (9.1, 15.1)
        ]


class LateTime(Restarts):
    """The clock of the gateway's machine is a minute late and trusted, until it is set right."""

    def script(self) -> list[tuple[float, Any]]:
        return [(0, partial(self.world.wall.jump, -60 * SECOND)), (12, self.world.wall.right)]


class NoNetwork(Restarts):
    """The gateway's machine starts without the time, and so does a board that knew it. Both continue from
    the stored time, until the machine has the time from the network."""

    def script(self) -> list[tuple[float, Any]]:
        wall = self.world.wall
        found = [(8, partial(self.crash, GATEWAY, LEFT)), (8, partial(wall.jump, -900 * SECOND, None))]
        return [*found, (14, partial(self.boot, GATEWAY, LEFT)), (24, wall.right)]
