"""The example of an operator of one's own."""

from __future__ import annotations

import pytest
from headwater.operators import find, register
from headwater.process import check
from headwater.runtime.operator import OperatorError
from headwater.testing import trial
from headwater_tools import process_file

SWING = [(0, 1000 * i, (v,)) for i, v in enumerate([1000, 1600, 1200, 1000, 900, 1700, 1600, 500, 1600])]


@pytest.fixture(scope="module")
def example():
    return process_file.load(process_file.example("own_operator"))


def test_the_example_passes_the_check(example):
    report = check.check(example)
    assert [str(p) for p in report.problems] == []
    assert [v.kind for v in report.decoded.vertices] == ["", "Magnitude", "Steps"]


def test_it_counts_steps_and_goes_on_from_its_state(example):
    whole = trial.make("Steps", {"high": 1500}, ("magnitude:u16",))
    assert trial.run(whole, SWING, 2) == [[(3000, (1,)), (7000, (2,))]]
    first = trial.make("Steps", {"high": 1500}, ("magnitude:u16",))
    second = trial.make("Steps", {"high": 1500}, ("magnitude:u16",))
    trial.run(first, SWING[:6])
    assert trial.state(first) == b"\x01\x00\x00\x00\x01"
    second.restore(trial.state(first), 1)
    assert trial.run(second, SWING[6:]) == [[(7000, (2,))]]


def test_its_name_is_known_from_then_on_and_cannot_be_taken_again(example):
    assert find("Steps").__name__ == "Steps"
    with pytest.raises(OperatorError, match="'Steps' exists already"):
        register(type("Steps", (find("Steps"),), {}))
    with pytest.raises(OperatorError, match="'Fir' exists already"):
        register(type("Fir", (find("Fir"),), {}))
