"""What judges `hw crash gateway` and `hw bench attack`: each fault turns it red; a seed gives one story."""

from __future__ import annotations

import dataclasses

import pytest
from headwater_tools import cli
from headwater_tools.boards.virtual import Accepted
from headwater_tools.proof.gateway_kills import DEPLOY, NOTHING, RESTART, ROLL_BACK, Ending, lives
from headwater_tools.proof.landed import Landed, Row

LEDGER = [Accepted("s", 7, 1, 3, 100, 0, 1), Accepted("s", 7, 4, 2, 103, 0, 1)]
ROWS: list[Row] = [(7, xi, 2 * (99 + xi)) for xi in range(1, 6)]


def judged(rows: list[Row]) -> tuple[int, ...]:
    found = Landed()
    found.add(rows, LEDGER, lambda i: 2 * i)
    return dataclasses.astuple(found)


def test_every_fault_of_a_landing_zone_is_seen() -> None:
    assert judged(ROWS) == (5, 0, 0, 0, 0)
    assert judged(ROWS[1:]) == (5, 1, 0, 0, 0)
    assert judged([*ROWS, ROWS[2]]) == (5, 0, 1, 0, 0)
    assert judged([*ROWS[1:], (7, 1, 0)]) == (5, 0, 0, 1, 0)
    assert judged([*ROWS[1:], (7, 1, None)]) == (5, 0, 0, 1, 0)  # a hole where a sample was accepted
    assert judged([*ROWS, (8, 1, 200), (7, 6, 210)]) == (5, 0, 0, 0, 2)


def test_every_fault_of_a_run_of_kills_is_told() -> None:
    good = Ending(1, kills=3, accepted=100, delivered=100, results=100, audit_ok=True, conserved=True)
    assert good.wrong() == []
    for change, words in (
        ({"accepted": 0}, "no board accepted a sample"),
        ({"lost": 1}, "1 lost"),
        ({"twice": 2}, "2 twice"),
        ({"divergent": 3}, "3 divergent"),
        ({"lost_results": 4}, "4 lost results"),
        ({"out_of_order": 5}, "5 out of order"),
        ({"files_refused": 6}, "6 files refused"),
        ({"unknown": 76}, "76 rows that no board accepted"),
        ({"audit_ok": False}, "the audit finds fault"),
        ({"conserved": False}, "the audit finds fault"),
        ({"off_most_s": 10.5}, "site time 10.5 s from the wall clock"),
    ):
        assert dataclasses.replace(good, **change).wrong() == [words]


def test_a_seed_gives_one_story_with_everything_in_it() -> None:
    assert lives(100, 1) == lives(100, 1) != lives(100, 2)
    for kills in (3, 20, 100):
        story = lives(kills, 5)
        assert len(story) == kills
        assert {RESTART, DEPLOY, ROLL_BACK} <= {life.action for life in story}
    assert any(life.early for life in story) and any(life.action == NOTHING for life in story)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["gateway", "--kills", "0"], "--kills 0: give at least 1"),
        (
            ["gateway", "--point", "received"],
            "--point belongs to `hw crash sink` and `hw crash moves`: leave it out",
        ),
        (
            ["gateway", "--report", "F"],
            "--report belongs to `hw crash sink` and `hw crash moves`: leave it out",
        ),
        (["gatewey"], "did you mean 'gateway'?"),
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
