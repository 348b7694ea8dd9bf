"""An operator of 16 KB moves over the model of a radio, and a connection ends at one fragment of the move:
all moves are completed, nothing is taken twice, and the results are those of the ideal."""

from __future__ import annotations

import itertools

import pytest
from defects import Change, seeded
from headwater.runtime.checkpoints import Checkpoints
from headwater_tools.simulator.directed.over_bluetooth import (
    CUT,
    CUT_AFTER,
    DIRECT,
    RELAYED,
    WAYS,
    Cut,
)

pytestmark = pytest.mark.slow

BEYOND = 3  # fragments in a row that no move reaches: then each one has been cut
OFTEN = 300  # elements to a checkpoint: sooner than one travels through the gateway


def ends(way: str, fragment: int, word: str) -> bool:
    """Whether there was such a fragment; the move is completed in any case."""
    history = Cut(way, fragment, word)
    assert history.run().errors == []
    return history.was_cut


def test_a_move_is_completed_over_a_second_connection() -> None:
    assert ends(DIRECT, 60, CUT_AFTER)


# A newer checkpoint does not begin the way again that goes ahead of a move, and the move fails.
NEWER: list[Change] = [(Checkpoints, "_under_way", "or giving is not None and giving.ahead(self.inst)", "")]


def test_checkpoints_that_come_often_do_not_hinder_a_move() -> None:
    assert Cut(RELAYED, 1, every=OFTEN).run().errors == []
    with seeded(NEWER):
        assert "0 moves" in Cut(RELAYED, 1, every=OFTEN).run().errors[0]


@pytest.mark.sweep
@pytest.mark.parametrize("word", [CUT, CUT_AFTER])
@pytest.mark.parametrize("way", WAYS)
def test_a_move_is_completed_wherever_its_connection_ends(way: str, word: str) -> None:
    beyond = 0
    for fragment in itertools.count(1):
        beyond = 0 if ends(way, fragment, word) else beyond + 1
        if beyond == BEYOND:
            break
    assert fragment > 100
