"""What happens by schedule: a join without one of its inputs, a way to the lake that is cut for too long."""

from __future__ import annotations

import pytest
from headwater import decisions, pack, wire
from headwater_tools.sim.directed import SCHEDULES, Asleep


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_join_goes_on_without_a_dead_input_and_takes_it_back(seed: int) -> None:
    scenario = SCHEDULES["dead input"](seed)
    result = scenario.run()
    assert result.errors == []
    contents = [content[0] for granted in scenario.world.decisions().values() for _, content in granted]
    assert contents == ["close", "open"]
    assert result.counts["lost"] == 0


@pytest.mark.parametrize("seed", range(1, 4))
def test_what_a_full_edge_to_the_lake_drops_is_declared(seed: int) -> None:
    scenario = SCHEDULES["dropping"](seed)
    result = scenario.run()
    assert result.errors == []
    assert result.counts["gaps_declared"] >= 1
    assert result.counts["lost"] == 0


@pytest.mark.parametrize("seed", range(1, 9))
def test_an_operator_goes_on_when_the_flash_of_its_source_was_erased(seed: int) -> None:
    scenario = SCHEDULES["erased"](seed)
    result = scenario.run()
    assert result.errors == []
    contents = [content[:2] for granted in scenario.world.decisions().values() for _, content in granted]
    assert contents == [["open", 0]]


@pytest.mark.parametrize("seed", range(1, 4))
def test_what_a_full_log_refuses_is_a_hole_up_to_the_next_sample(seed: int) -> None:
    scenario = SCHEDULES["full"](seed)
    result = scenario.run()
    assert result.errors == []
    (line,) = scenario.world.accepted.values()
    holes = [entry[2:4] == ("hole", 2) for entry in line]
    assert any(holes)
    assert not any(first and second for first, second in zip(holes, holes[1:]))


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_join_does_not_wait_for_a_board_that_said_it_sleeps(seed: int) -> None:
    scenario = Asleep(seed)
    result = scenario.run()
    assert result.errors == []
    assert scenario.heard_us > 13_000_000  # entries of the other board, nine seconds into the sleep


def test_a_gateway_asked_for_no_input_at_all_decides_nothing() -> None:
    scenario = SCHEDULES["erased"](1)
    scenario.world.boot(scenario.node(0))
    host = scenario.node(0).host
    for content in (
        7,
        None,
        "open",
        [],
        ["open", 1, 5, 0],
        ["open", -1, 5, 0],
        ["open", "x", 5, 0],
        ["set", 0, 5, 0],
    ):
        decisions.handle(host, 1, (wire.CONFIG, 1, 0, pack.dumps(content)))
    decisions.handle(host, 1, (wire.CONFIG, 1, 0, b"\xc1"))
    assert decisions.granted(host, 1, 1) == [0, None, None]
