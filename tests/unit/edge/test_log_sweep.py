"""Power is cut at every byte of every program and in every erase of a log's life: nothing is wrong after."""

from __future__ import annotations

import pytest
from headwater_tools.proof.flash_sweep import SECTORS, Sweep

pytestmark = pytest.mark.slow

PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_every_cut_of_a_log_s_life_is_recovered_from(part: int) -> None:
    report = Sweep(nested_every=211, part=(part, PARTS)).run()
    assert report.first_wrong == []
    assert report.erases > 2 * SECTORS  # the ring has turned
    assert report.cuts > 3000
    assert report.nested > 150


def test_a_sweep_counts_cuts_as_wrong_when_its_model_asks_for_more() -> None:
    class Forgetful(Sweep):
        def _one(self, number, step, shot, kept, before, after, op, byte, how):  # type: ignore[no-untyped-def]
            before = before.copy()
            before.facts[77] = b"never written"
            super()._one(number, step, shot, kept, before, before, op, byte, how)

    assert Forgetful(steps=[("put", 1, 9)], stop_at_wrong=3).run().wrong == 3
