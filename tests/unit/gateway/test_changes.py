"""Processes that change, and change back: nothing accepted is lost, and every change comes to an end.

Each rule of a change is broken once, and a history must see it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from defects import Change, seeded
from headwater.board import deployment
from headwater.board.program import Node
from headwater.runtime import routing
from headwater.runtime.lake_sink import LakeSink
from headwater_gateway.boards import Boards
from headwater_gateway.deployments.numbers import Numbers
from headwater_gateway.deployments.switching import Switching
from headwater_gateway.monitoring.operators import permanent
from headwater_tools.simulator import jobs
from headwater_tools.simulator.changes import Changes

pytestmark = pytest.mark.slow

SECONDS = 60  # of a history, until its faults stop
QUIET = range(12)  # seeds of histories in which nothing fails
STORMS = range(4, 18)


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    """What the gateway logs of histories that are meant to fail is no matter."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def changing(seed: int, storm: bool) -> Changes:
    versions = [version.encode() for version in jobs.versions(seed)]
    return Changes(versions, seed, SECONDS, storm)


def errors(seed: int, storm: bool) -> list[str]:
    try:
        return changing(seed, storm).run().errors
    except Exception as error:  # what a defect does to the simulator itself is seen too
        return [repr(error)]


@pytest.mark.parametrize("seed", QUIET)
def test_a_process_changes_and_changes_back(seed: int) -> None:
    changes = changing(seed, False)
    result = changes.run()
    assert result.errors == []
    assert result.counts["lost"] == 0
    drawn = result.drawn
    kinds = ("process changed", "process undeployed", "change of the process cancelled")
    assert any(drawn.get(kind) for kind in kinds)
    assert len(changes.were) <= len(changes.versions)


def test_the_gateway_reports_where_checkpoints_stand() -> None:
    found = []
    for seed in range(6):
        changes = changing(seed, False)
        changes.run()
        node = changes.gateway.node
        assert changes.act is not None and node is not None and node.host is not None
        world = changes.act.version
        for v in world.plan.vertices:
            found.append(permanent(node.host, v.index) if v.kind else None)
            assert not v.kind or found[-1] == world.held(node, v.index)
    assert any(found)


def test_most_histories_change_back_and_many_undeploy_as_well() -> None:
    drawn = [changing(seed, False).run().drawn for seed in QUIET]
    assert sum(1 for kinds in drawn if kinds.get("process changed back")) >= len(drawn) // 2
    for kind in ("process undeployed", "process deployed after it was undeployed", "process rolled back"):
        assert sum(1 for kinds in drawn if kinds.get(kind)) >= len(drawn) // 3, kind


@pytest.mark.parametrize("seed", STORMS)
def test_a_change_comes_to_an_end_whatever_fails_meanwhile(seed: int) -> None:
    changes = changing(seed, True)
    result = changes.run()
    assert result.errors == []
    moves = [version.act.handovers.count for version in changes.known.values()]
    assert result.stats["migrations_planned"] == sum(moves)  # of every version


# Name, what is broken, seeds of histories in which it shows: (seed, whether anything else fails).
DEFECTS: list[tuple[str, list[Change], list[tuple[int, bool]]]] = [
    (
        "boards are believed one after the other",
        [
            (Switching, "_all_drained", "if made == process.made:", "if True:"),
            (Switching, "_all_drained", "if all(b.told == process.round for b in asked):", "if True:"),
        ],
        [(7, False), (4, True), (6, True), (15, True), (17, True)],
    ),
    (
        "sources promise nothing while they rest",
        [(Node, "_press", "host.promise(host.site())", "pass")],
        [(0, False), (1, False)],
    ),
    (
        "operators at the gateway are not asked for checkpoints",
        [(Switching, "_all_drained", "hosted.press()", "pass")],
        [(2, False), (6, False), (7, False)],
    ),
    (
        "a board without a process takes the next version at once",
        [(Switching, "_without", "found.append(name)", "pass")],
        [(9, False), (4, True), (12, True), (13, True)],
    ),
    (
        "a cancelled change is not taken back from boards that did not hear of it",
        [(Boards, "_forget_other", "self._send(board, frames.SWITCH, waiting, FORGET)", "pass")],
        [(10, True), (12, True), (8, True), (17, True), (47, True)],
    ),
    (
        "an operator that has begun does not take a source that numbers on",
        [(routing, "contact", "elif _began(e, name):", "elif e.cur.xi or name or sink.ck.pos:")],
        [(0, False), (1, False)],
    ),
    (
        "what an earlier version did not send counts as lost with the gateway",
        [(LakeSink, "lost", "GAP_GATEWAY_LOST if met else GAP_EARLIER", "GAP_GATEWAY_LOST")],
        [(2, False), (17, True), (27, True)],
    ),
    (
        "a number is given again",
        [(Numbers, "stamp", "number = self.highest + 1", "number = 1 + self.highest % 2")],
        [(0, False), (5, False)],
    ),
    (
        "sources go on under their incarnation after the process was undeployed",
        [
            (
                deployment,
                "_replace",
                'other = bool(old) and read(old or b"", node.key, node.name)[0].hash != new.hash',
                'other = bool(old) and read(old or b"", node.key, node.name)[0].vertices',
            )
        ],
        [(1, False), (2, False), (12, False)],
    ),
    (
        "a board that was away when its process ended is not told to stop it",
        [(Boards, "_leave", "self._want(board, board.leaving, RUN)", "board.leaving = None")],
        [(0, False)],
    ),
    (
        "a process is undeployed before it is drained",
        [
            (
                Switching,
                "_advance",
                "if self._all_drained(process, boards):",
                "if is_nothing(process.coming) or self._all_drained(process, boards):",
            )
        ],
        [(0, False)],
    ),
    (
        "sources begin at 1 in every version",
        [(deployment, "_finish", "store.start_stream(stream_key(v), last, ts)", "pass")],
        [(0, False), (1, False)],
    ),
]


@pytest.mark.parametrize(("name", "broken", "where"), DEFECTS, ids=[defect[0] for defect in DEFECTS])
def test_a_broken_rule_is_seen(name: str, broken: list[Change], where: list[tuple[int, bool]]) -> None:
    others = [(seed, True) for seed in range(60)]  # what shows where depends on much else
    with seeded(broken):
        assert any(errors(seed, storm) for seed, storm in [*where, *others]), name
