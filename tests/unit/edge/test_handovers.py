"""Planned moves: the schedules hold, and with one rule broken they do not."""

from __future__ import annotations

import pytest
from defects import Change, first_error, seeded
from headwater.runtime import incoming, moving, routing
from headwater.runtime.checkpoints import Checkpoints
from headwater.runtime.moving import Move
from headwater.runtime.taking import Offer
from headwater_tools.simulator.directed.handovers import SCHEDULES

pytestmark = pytest.mark.slow

SEEDS = range(6)

# Name, what the rule prevents, the changes, and a schedule in which it shows.
DEFECTS: list[tuple[str, str, list[Change], str]] = [
    (
        "the new instance does not raise the epoch",
        "two instances that acknowledge",
        [(Offer, "_begin", "if known else 0) + 1", "if known else 0)")],
        "moved to the gateway",
    ),
    (
        "the new instance goes on from an earlier place",
        "entries that are taken twice",
        [(Move, "accepted", "if not inst.ck.last():", "if 0:")],
        "moved",
    ),
    (
        "the transfer state is left behind",
        "results that neither host has",
        [(Checkpoints, "last", "self.commit(c, True,", "self.commit(c, False,")],
        "moved, lake away",
    ),
    (
        "the taker keeps what it had beside what comes in its place",
        "an offer that never begins, while the operator stands",
        [(incoming, "_put", "if v not in host.instances and", "if 0 and")],
        "moved back, nothing taken",
    ),
    (
        "the transfer state is dropped on its way",
        "results that neither host has",
        [(Checkpoints, "commit", "starts = self._transfer(c, whole)", "starts = self._transfer(c, False)")],
        "moved, lake away",
    ),
    (
        "the giver counts as a holder for long",
        "a checkpoint that ends with the battery of the giver",
        [(Offer, "stored", "if len(self.others) >= checkpoint_transfer.others(self.host, v):", "if 0:")],
        "giver is no holder",
    ),
    (
        "an offer does not end at the taker",
        "a taker that wakes up into a run that went on",
        [
            (Offer, "_begin", "if host.now > self.until_us:", "if 0:"),
            (Offer, "tick", "elif host.now > self.until_us:", "elif 0:"),
        ],
        "hand comes late",
    ),
    (
        "an offer does not end at the giver",
        "an operator that pauses forever",
        [(Move, "tick", "elif self.step == _HANDING and host.now > self.until_us:", "elif 0:")],
        "hand comes late",
    ),
    (
        "repeats extend an offer",
        "a taker that wakes up into a run that went on",
        [
            (Offer, "accept", "if not self.until_us:", "if 1:"),
            (Offer, "tick", "elif host.now > self.until_us:", "elif 0:"),
            (Offer, "_begin", "if host.now > self.until_us:", "if 0:"),
        ],
        "hand comes late",
    ),
    (
        "the taker goes on from what it was offered, whatever producers name",
        "an operator that needs what was trimmed for a further checkpoint",
        [
            (incoming, "recalled", "if epoch[0] and newer(", "if 0 and newer("),
            (routing, "contact", "if name and not sink.is_lake and further(name", "if 0 and further(name"),
        ],
        "giver goes on",
    ),
    (
        "the taker does not ask the producers",
        "a stale giver that robs a healthy operator",
        [(Offer, "heard", "if self.newest > self.epoch:", "if 0:")],
        "newer unheard",
    ),
    (
        "the giver takes entries while the other host begins",
        "entries that are taken twice",
        [(Move, "accepted", "lifecycle.pause(inst)", "pass")],
        "moved",
    ),
    (
        "what the log holds is left behind",
        "entries that no host serves",
        [(Move, "_ready_to_offer", "if self.unsent or any([p.logged for p in self.inst.ports]):", "if 0:")],
        "spilled before a move, local",
    ),
    (
        "keepers that lost their flash count after a move",
        "an operator that runs on before a move, and never after it",
        [(Offer, "assured", "return not self.asked and self.continues(inst)", "return False")],
        "keepers gone",
    ),
    (
        "the first HELLO says nothing of room",
        "an operator that stands for five messages, one after the other",
        [(Offer, "greet", "if not self.begun", "if 1")],
        "moved at once",
    ),
    (
        "a checkpoint begins again while it is on its way",
        "one that never arrives",
        [
            (Checkpoints, "due", "if not self._under_way():", "if 1:"),
            (Checkpoints, "after", "and not self._under_way()", ""),
        ],
        "moved with a large state",
    ),
    (
        "a piece that came twice asks for the next one twice",
        "checkpoints that are sent several times over",
        [(incoming, "_on_piece", "< RETRY_US // 2", "< 0")],
        "moved with a large state",
    ),
    (
        "a taker refuses what it has begun",
        "an operator of which half runs, under an epoch that every producer takes for the present one",
        [(Offer, "_begin", "if v in host.instances:", "if 0:")],
        "taker has no heap",
    ),
    (
        "an answer goes on with a move whatever came before it",
        "an instance that is over, and pauses to be handed over",
        [(Move, "_ready_to_offer", "if not _ready(self.inst):", "if 0:")],
        "over, and a bid",
    ),
    (
        "a move that is under way is refused to whoever asks for it again",
        "a person who hears that an operator stays, and it moves",
        [(moving, "_asked", "if move and (move.v, move.to) == (v, to):", "if 0:")],
        "asked twice",
    ),
    (
        "a move that is under way passes for another one that is asked for",
        "a person who hears that an operator is where it is not",
        [(moving, "_asked", "(move.v, move.to) == (v, to)", "move.v == v")],
        "asked twice of the gateway",
    ),
    (
        "an operator that logs what it puts out runs while it is offered",
        "results that are in the flash of the giver alone, and lost with the move",
        [(Move, "_ready_to_offer", "or any([p.logged for p in self.inst.ports])", "")],
        "logged while it is offered",
    ),
    (
        "a refusal is not heard",
        "an operator that pauses longer than it must",
        [(Move, "end", "if self.inst.status == PAUSED:", "if 0:")],
        "hand comes late",
    ),
]


def history(name: str, seed: int) -> str:
    return first_error(SCHEDULES[name](seed))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_move_ends_on_one_of_two_hosts(name: str, seed: int) -> None:
    assert history(name, seed) == ""


@pytest.mark.parametrize(("name", "prevented", "changes", "where"), DEFECTS, ids=[d[0] for d in DEFECTS])
def test_a_checker_sees(name: str, prevented: str, changes: list[Change], where: str) -> None:
    with seeded(changes):
        assert any(history(where, seed) for seed in SEEDS), prevented
