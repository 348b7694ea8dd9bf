"""What judges `hw crash bluetooth` and `hw crash moves`: each fault turns it red; a seed gives one story."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import pytest
from headwater_tools import cli
from headwater_tools.boards.on_board import board_sensors
from headwater_tools.boards.virtual import Accepted
from headwater_tools.errors import UserError
from headwater_tools.proof import move_cuts
from headwater_tools.proof.bluetooth_kills import BOARDS, GATEWAY, KINDS, OPERATORS, Ending, story
from headwater_tools.proof.landed import Results, Timed
from headwater_tools.proof.move_cuts import CUT, CUT_AFTER, DIRECT, RELAYED, SEED, STEP, VALUES, Case, Sweep

LEDGER = [Accepted("s", 7, 1, 3, 100, 1000, 10), Accepted("s", 7, 4, 2, 103, 1030, 10)]
ROWS: list[Timed] = [(9, xi, 990 + 10 * xi, 2 * (99 + xi)) for xi in range(1, 6)]


def judged(rows: list[Timed]) -> tuple[int, ...]:
    found = Results()
    found.add(rows, LEDGER, lambda i: 2 * i)
    return dataclasses.astuple(found)


def test_every_fault_of_results_is_seen() -> None:
    assert judged(ROWS) == (5, 0, 0, 0, 0)
    assert judged(ROWS[1:]) == (4, 1, 0, 0, 0)
    assert judged([*ROWS, ROWS[2]]) == (5, 0, 1, 0, 0)
    assert judged([*ROWS, (9, 6, 1000, 200)]) == (5, 0, 1, 0, 0)  # another number, and the same sample
    assert judged([*ROWS[1:], (9, 1, 1000, 201)]) == (5, 0, 0, 1, 0)
    assert judged([*ROWS, (9, 6, 1050, 210)]) == (5, 0, 0, 0, 1)


def test_every_fault_of_a_run_is_told() -> None:
    good = Ending(1, board_kills=1, accepted=100, results=100)
    assert good.wrong() == []
    for change, words in (
        ({"accepted": 0}, "no board accepted a sample"),
        ({"refused": 1}, "1 refused"),
        ({"lost": 1}, "1 lost"),
        ({"twice": 2}, "2 twice"),
        ({"divergent": 3}, "3 divergent"),
        ({"lost_results": 4}, "4 lost results"),
        ({"results_twice": 5}, "5 results twice"),
        ({"results_divergent": 6}, "6 results divergent"),
        ({"gaps": 7}, "7 gaps"),
        ({"crashes": 8}, "8 crashes"),
        ({"ended": 9}, "9 ended"),
        ({"unknown": 101}, "101 unknown"),
        ({"results_unknown": 101}, "101 results unknown"),
    ):
        assert dataclasses.replace(good, **change).wrong() == [words]
    assert dataclasses.replace(good, unknown=100).wrong() == []  # a batch of each loss of power


def test_a_seed_gives_one_story_with_every_fault_in_it() -> None:
    assert story(10, 1) == story(10, 1) != story(10, 2)
    for seed in range(20):
        told = story(1, seed)
        assert {fault.kind for fault in told} == set(KINDS)
        assert [fault.at_s for fault in told] == sorted(fault.at_s for fault in told)
        assert told[-1].at_s < 60
    who = {fault.who for fault in story(10, 1)}
    assert who == {*BOARDS, GATEWAY, *OPERATORS, ""}


GOOD = Sweep(DIRECT, [Case(1, CUT, cut=True, finished=True), Case(2, CUT, finished=True)], results=9)


def changed(**change: object) -> Sweep:
    return dataclasses.replace(GOOD, cases=[dataclasses.replace(GOOD.cases[0], **change), GOOD.cases[1]])  # type: ignore[arg-type]


def test_every_fault_of_a_sweep_of_moves_is_told() -> None:
    assert GOOD.wrong() == []
    for sweep, words in (
        (changed(finished=False), "fragment 1, cut: not finished"),
        (changed(replayed=3), "fragment 1, cut: 3 elements again, 0 left out"),
        (changed(skipped=2), "fragment 1, cut: 0 elements again, 2 left out"),
        (changed(stood=True), "1 moves of an operator that stood still"),
        (changed(cut=False), "no connection was cut"),
        (dataclasses.replace(GOOD, results=0), "no results"),
        (dataclasses.replace(GOOD, results_wrong=1), "1 results wrong"),
        (dataclasses.replace(GOOD, results_lost=2), "2 results lost"),
        (dataclasses.replace(GOOD, twice=3), "3 twice"),
    ):
        assert sweep.wrong() == [words]


def test_results_of_a_sweep_are_the_sums_of_the_samples_before_them() -> None:
    n = VALUES + 2 * STEP
    due = move_cuts.sums(
        [Accepted("x", 1, 1, n // 2, 5, 0, 10), Accepted("x", 1, 1, n // 2, 5 + n // 2, 10 * (n // 2), 10)]
    )
    assert sorted(due) == [10 * (STEP * k - 1) for k in range(1, n // STEP + 1)]
    last = max(due)
    samples = [board_sensors.wave(5 + i, 0, SEED) for i in range(last // 10 + 1)]
    assert due[last] == sum(samples[-VALUES:])

    def found(landed: list[Timed]) -> tuple[int, int, int, int]:
        sweep = Sweep(DIRECT)
        move_cuts.compare(sweep, due, landed)
        return sweep.results, sweep.results_wrong, sweep.results_lost, sweep.twice

    right: list[Timed] = [(4, xi, ts, due[ts]) for xi, ts in enumerate(sorted(due), 1)]
    count = len(due)
    assert found(right) == (count, 0, 0, 0)
    assert found(right[1:]) == (count - 1, 0, 1, 0)
    assert found([*right, right[0]]) == (count + 1, 0, 0, 1)
    assert found([*right[1:], (4, 1, right[0][2], due[right[0][2]] + 1)]) == (count, 1, 0, 0)
    assert found([*right, (4, count + 1, last + 10, 0)]) == (count + 1, 1, 0, 0)


def test_a_sweep_goes_on_where_it_stood_and_ends_after_the_last_fragment(tmp_path: Path) -> None:
    done = [Case(1, CUT), Case(2, CUT_AFTER)]
    assert list(itertools.islice(move_cuts.cases(done), 3)) == [(1, CUT_AFTER), (2, CUT), (3, CUT)]
    assert list(move_cuts.cases(done, [2, 7])) == [(2, CUT), (7, CUT), (7, CUT_AFTER)]
    both = [Case(k, verdict, cut=k < 5) for k in range(1, 8) for verdict in (CUT, CUT_AFTER)]
    assert move_cuts.over(both) and not move_cuts.over(both[:-1])
    report = tmp_path / "report"
    assert move_cuts.load(report, DIRECT).cases == []
    report.write_text(move_cuts.json.dumps(GOOD.json()))
    assert move_cuts.load(report, DIRECT) == GOOD
    with pytest.raises(UserError, match="has moves by way 'direct', not 'relayed'"):
        move_cuts.load(report, RELAYED)
    report.write_text("{}")
    with pytest.raises(UserError, match="is no report of `hw crash moves`"):
        move_cuts.load(report, DIRECT)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["bluetooth", "--kills", "3"], "--kills belongs to `hw crash sink` and `hw crash gateway`"),
        (["bluetooth", "--minutes", "0"], "--minutes 0: give more than 0"),
        (["bluetooth", "--random"], "--random belongs to `hw crash sink`: leave it out"),
        (["moves", "--point", "x"], "--point x: give the number of a fragment, 1 or more"),
        (["gateway", "--way", "relayed"], "--way belongs to `hw crash moves`: leave it out"),
        (["sink", "--minutes", "3"], "--minutes belongs to `hw crash sink --random`, `hw crash bluetooth`"),
    ],
)
def test_bad_use_ends_with_one_sentence(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["crash", *words])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert why in said and said.count("\n") == 1
