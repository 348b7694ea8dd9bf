# mypy: disable-error-code="func-returns-value"
"""Operators that give up: more hosts are lost than the level covers."""

from __future__ import annotations

from typing import Any

from headwater.process import Affine, Process, Smooth
from headwater.protocol import frames

from ..scenario import Result
from ..world import Hardware
from .base import GATEWAY, LEFT, SHIFTED, Directed, boards, shifted

HOME, OTHER = 2, 3


class GivenUp(Directed):
    """The board of an operator and the one that keeps its checkpoints die together. The gateway takes over,
    and waits for the checkpoint that the source names, until a person says that it shall go on without.
    """

    PACE = Hardware().pace
    SECONDS = 50
    AFTER: int | None = None

    def process(self) -> Process:
        p = boards("given_up", "left", "home", "other")
        values = p.source("values", "v:i16", rate_hz=20, on="left")
        place = {"backup": ["other", "gateway"], "give_up_after": self.AFTER}
        p.lake("given_up/shifted", values >> Affine().named("shifted").on("home", **place), cap=600)
        return p

    def script(self) -> list[tuple[float, Any]]:
        return [
            (0, lambda: self.deafen(GATEWAY)),
            (8, lambda: self.lose(HOME, OTHER)),
            (24, lambda: self.must_wait(GATEWAY)),
            (25, lambda: self.give_up(SHIFTED)),
            (36, lambda: self.must_run(SHIFTED)),
        ]

    def deafen(self, number: int) -> None:
        """This host stores no checkpoint of others."""
        self.withhold(self.host(number), True)

    def host(self, number: int) -> Any:
        host = self.node(number).host
        assert host is not None
        return host

    def lose(self, *numbers: int) -> None:  # type: ignore[override]
        for number in numbers:
            self.kill(number)
        for number in numbers:
            self.declare(self.node(number))

    def give_up(self, v: int) -> None:
        """A person says so, and says it twice."""
        node = self.node(GATEWAY)
        epoch = self.host(GATEWAY).where[v][:2]
        for _ in range(2):
            self.world.call(node, lambda host: host.give_up(v, epoch, node.mono()), "give up")

    def must_wait(self, number: int, v: int = SHIFTED) -> None:
        inst = self.host(number).instances.get(v)
        if inst is None or not self.host(number).waits():
            self.world.error("%s waits for no checkpoint" % self.world.name(number))

    def must_run(self, v: int) -> None:
        """It has given up once, and has put out something since."""
        if len(self.world.incarnations(v)) != 2:
            self.world.error("it gave up %d times" % (len(self.world.incarnations(v)) - 1))
        for e in self.world.lake_edges():
            stream = self.world.outbox.streams.get((e.index, self.world.current(e.index)))
            if e.src == v and not (stream and len(stream.rows) > 20):
                self.world.error("%s: nothing follows since it gave up" % e.lake)


SCHEDULES: dict[str, type[Directed]] = {
    "given up": GivenUp,
}
