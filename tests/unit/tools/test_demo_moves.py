"""What `hw demo` makes of consoles: moves of operators, and the timeline that shows them."""

from __future__ import annotations

import time

import pytest
from headwater.plan.profile import left
from headwater_tools.boards.on_board.board_node import voltage
from headwater_tools.demo import operators
from headwater_tools.demo.observer import Seen
from headwater_tools.demo.operators import Operators
from headwater_tools.demo.timeline import DEAD, DOWN, UP, Timeline

CURVE = ((3300, 0), (3600, 5), (3700, 25), (4200, 100))


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "SETTLES_S", 0.0)


def test_an_operator_that_pauses_and_runs_elsewhere_has_moved_as_planned() -> None:
    found = Operators({"rate": "hip", "qrs": "arm"})
    found.hear("hip 3 s, boot 1, cardio, runs rate, linked, 0 not safe, 4095 mV")
    found.hear("hip: operator rate runs, taken 0")
    found.hear("hip: operator rate pauses, taken 73 12")
    found.hear("wrist: operator rate runs, taken 73 12")
    found.hear("hip: operator rate ends, taken 73 12")
    (move,) = found.news()
    assert (move.operator, move.giver, move.taker, move.planned, move.replayed) == (
        "rate", "hip", "wrist", True, 0,
    )  # fmt: skip
    assert found.places == {"rate": "wrist", "qrs": "arm"}
    assert found.news() == []


def test_elements_that_the_taker_takes_again_are_counted_of_each_input() -> None:
    found = Operators({"alarm": "hip"})
    found.hear("hip: operator alarm pauses, taken 90 2475")
    found.hear("chest: operator alarm runs, taken 88 2400")
    assert [move.replayed for move in found.news()] == [77]


def test_an_operator_that_runs_elsewhere_without_a_pause_was_taken_over() -> None:
    found = Operators({"qrs": "arm"})
    found.hear("wrist: operator qrs runs, taken 21600")
    (move,) = found.news()
    assert (move.giver, move.taker, move.planned, move.replayed) == ("arm", "wrist", False, 0)


def test_the_consoles_of_two_boards_may_be_read_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "SETTLES_S", 0.2)
    found = Operators({"rate": "hip"})
    found.hear("wrist: operator rate runs, taken 73")
    assert found.news() == []  # the pause may not have been read yet
    found.hear("hip: operator rate pauses, taken 73")
    time.sleep(0.3)
    assert [move.planned for move in found.news()] == [True]


def test_an_operator_that_goes_on_where_it_paused_has_not_moved() -> None:
    found = Operators({"rate": "hip"})
    found.hear("hip: operator rate pauses, taken 73")
    found.hear("hip: operator rate runs, taken 73")
    assert found.news() == []
    found.hear("wrist: operator rate runs, taken 60")  # much later, when the hip is dead
    assert [move.planned for move in found.news()] == [False]


def test_the_timeline_shows_where_operators_run_and_what_dies() -> None:
    timeline = Timeline(["wrist", "hip", "gateway"], ["rate"])
    parts = {"wrist": UP, "hip": UP, "gateway": UP}
    consoles = Operators({"rate": "hip"})
    timeline.look(Seen(1.0, 100, 90, 50), parts, consoles.places, {"hip": 30})
    timeline.look(Seen(2.0, 200, 90, 50), parts, consoles.places, {"hip": 20})
    consoles.hear("hip: operator rate pauses, taken 7")
    consoles.hear("wrist: operator rate runs, taken 7")
    (move,) = consoles.news()
    timeline.moved(move, 1.5)
    parts = {"wrist": UP, "hip": DEAD, "gateway": DOWN}
    timeline.look(Seen(3.0, 300, 90, 50), parts, consoles.places, {})
    timeline.happened("the hip is dead", 2.9)
    lanes = timeline.lanes
    seconds = 1_000_000
    there = lanes.lanes["hip"].operators["rate"]
    here = lanes.lanes["wrist"].operators["rate"]
    assert [(s.start_us, s.end_us) for s in there] == [(1 * seconds, 1.5 * seconds)]
    assert [(s.start_us, s.end_us) for s in here] == [(1.5 * seconds, 3 * seconds)]
    assert lanes.lanes["hip"].battery == [(1 * seconds, 30), (2 * seconds, 20)]
    assert [s.what for s in lanes.lanes["hip"].states] == ["up", "dead"]
    assert [(w.on_boards, w.everywhere) for w in lanes.waiting] == [(10, 50), (110, 150), (210, 250)]


@pytest.mark.parametrize("charge", [0, 3, 499, 500, 1234, 2500, 9999, 10000])
def test_the_voltage_of_a_virtual_battery_is_read_as_the_charge_that_it_has(charge: int) -> None:
    assert abs(left(CURVE, voltage(CURVE, charge)) - charge) <= 20  # a millivolt is 0.2 % where it is steep
