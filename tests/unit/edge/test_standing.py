"""What a host says of its operators that do not run: for what they wait, and for whom."""

from __future__ import annotations

from typing import Any

from headwater.process import Process
from headwater.runtime import standing
from headwater_tools.simulator.directed.base import GATEWAY, SHIFTED, boards, shifted
from headwater_tools.simulator.directed.handovers import HOME, OTHER, Moved
from headwater_tools.simulator.world import SECOND


class Watched(Moved):
    """Notes every answer of every host, each once, in order."""

    def __init__(self, seed: int) -> None:
        self.seen: list[tuple[int, list[Any]]] = []
        super().__init__(seed)
        self.world.at(0, self.look)

    def look(self) -> None:
        for node in self.world.nodes:
            rows = node.host.waits() if node.host else []
            for row in rows:
                if (node.number, row[:4]) not in self.seen:
                    self.seen.append((node.number, row[:4]))
        if self.world.now < self.SECONDS * SECOND:
            self.world.after(5000, self.look)

    def of(self, host: int, what: int) -> list[list[Any]]:
        return [row for number, row in self.seen if number == host and row[1] == what]


class Alone(Watched):
    """The host of the operator dies; the gateway, another keeper, is silent to its successor."""

    PLANNED = (0,)
    SECONDS = 30

    def process(self) -> Process:
        return shifted(boards("handed", "left", "home", "other"), "home", "other", "gateway", cap=600)

    def script(self) -> list[tuple[float, Any]]:
        return [
            (8, lambda: self.cut(GATEWAY, OTHER)),
            (8, lambda: self.crash(HOME)),
            (9, lambda: self.move(SHIFTED, OTHER)),
            (15, lambda: self.heal(GATEWAY, OTHER)),
            (15, lambda: self.boot(HOME)),
        ]


class Unfound(Alone):
    """... and its successor was given none of its checkpoints, but hears which one there is."""

    def script(self) -> list[tuple[float, Any]]:
        return [
            (1, lambda: self.withhold(self.node(OTHER).host, True)),
            *super().script(),
            (15, lambda: self.withhold(self.node(OTHER).host, False)),
        ]


def test_an_operator_that_is_handed_over_names_the_host_that_takes_it() -> None:
    watched = Watched(1)
    assert watched.run().errors == []
    assert [SHIFTED, standing.MOVE, [], [OTHER]] in watched.of(HOME, standing.MOVE)
    assert all(node.host.waits() == [] for node in watched.world.nodes if node.host)


def test_an_operator_that_may_not_begin_yet_names_the_keepers_that_are_silent() -> None:
    alone = Alone(1)
    assert alone.run().errors == []
    assert [SHIFTED, standing.KEEPERS, [], [GATEWAY, HOME]] in alone.of(OTHER, standing.KEEPERS)
    assert all(node.host.waits() == [] for node in alone.world.nodes if node.host)


def test_an_operator_that_looks_for_a_checkpoint_names_it_and_the_hosts_that_have_it() -> None:
    unfound = Unfound(1)
    assert unfound.run().errors == []
    fetched = unfound.of(OTHER, standing.CHECKPOINT)
    assert fetched and all(row[2] and row[3] and set(row[3]) <= {GATEWAY, HOME} for row in fetched)


def test_an_operator_whose_checkpoint_is_on_its_way_names_who_has_not_stored_it() -> None:
    alone = Alone(1)
    alone.run()
    exposed = alone.of(OTHER, standing.HOLDERS)
    assert [row for row in exposed if row[2] and set(row[3]) <= {GATEWAY, HOME}]
