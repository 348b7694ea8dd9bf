"""Boards that are declared lost: the schedules hold, and with one rule broken they do not."""

from __future__ import annotations

import pytest
from defects import Change, first_error, seeded
from headwater.runtime import checkpoint_transfer, incoming, losses, startup, taking, watching
from headwater.runtime.exchange import Exchange
from headwater_tools.simulator.directed import SCHEDULES
from headwater_tools.simulator.directed.losses import Declared

pytestmark = pytest.mark.slow

SEEDS = range(3)
DECLARED = [name for name, schedule in SCHEDULES.items() if issubclass(schedule, Declared)]

# Name, what the rule prevents, the changes, and a schedule in which it shows.
DEFECTS: list[tuple[str, str, list[Change], str]] = [
    (
        "a revoked log number is accepted",
        "a board that comes back without what was decided in its absence",
        [(Exchange, "receive", "if host.lost and sender in host.lost and", "if 0 and")],
        "asleep untold",
    ),
    (
        "a lost board is not told that it is lost",
        "a board that goes on for ever, and drains its battery for nothing",
        [(Exchange, "_revoked", "if not self.host.me:", "if 0:")],
        "asleep returns",
    ),
    (
        "a host forgets in its next boot which boards are lost",
        "a level that is lowered for some hosts alone",
        [(startup, "_remember", "host.lost[h] = msgpack.loads(data)", "pass")],
        "asleep, gateway away",
    ),
    (
        "the level is counted by which hosts can be reached",
        "a partition that leaves a checkpoint with too few hosts",
        [
            (
                checkpoint_transfer,
                "needed",
                "return min(level, len(keepers(host, v)) - 1) if host.lost else level",
                "return min(level, len([h for h in keepers(host, v) if h not in host.late]) - 1)",
            ),
            (
                checkpoint_transfer,
                "push_again",
                "_push(host, host.instances[v])",
                "_push(host, host.instances[v]); confirmed(host, host.instances[v])",
            ),
        ],
        "apart",
    ),
    (
        "a board that replaces a lost one counts itself",
        "a checkpoint with too few hosts, where the new board has not heard that the former one is lost",
        [(checkpoint_transfer, "others", "untold(host) or", "")],
        "replaced, untold",
    ),
    (
        "an operator that has begun blind waits for an answer of hosts that are lost",
        "an operator that runs nowhere, though its last candidate lives",
        [(watching, "look_late", "if answers or alone:", "if answers:")],
        "all others lost",
    ),
    (
        "a board that has heard of no loss takes what a person moves",
        "an operator that acknowledges nothing because its host does not hear the gateway",
        [(taking, "_on_offer", "if not refused and why != moves.FLEE:", "if 0:")],
        "erased, untold",
    ),
    (
        "a lost host is waited for",
        "`peers=2` on three hosts that never trims again after one death",
        [(checkpoint_transfer, "needed", "if host.lost else level", "if 0 else level")],
        "two of three",
    ),
    (
        "the last keeper waits for another to confirm",
        "an operator that stands for ever when all that kept its checkpoints are lost",
        [(checkpoint_transfer, "push", "if host.lost:", "if 0:")],
        "last keeper",
    ),
    (
        "a board leaves the keepers before the others have stored what it held",
        "a checkpoint that only a lost board has",
        [(losses, "_settle", "if every:", "if 1:")],
        "holder lost unheard",
    ),
    (
        "what a lost board held is stored nowhere else",
        "an operator whose next loss is its last",
        [
            (losses, "_take", "_replace(host, number)", "pass"),
            (losses, "_covered", "        every = False", "        found.append(v)"),
            (losses, "_covered", "if v not in host.pushes and", "if 0 and"),
        ],
        "holder lost",
    ),
    (
        "a board that came back counts as a holder",
        "a checkpoint that a recall does not find, because hosts disagree on who keeps it",
        [
            (checkpoint_transfer, "_push", " or h in host.lost:", ":"),
            (checkpoint_transfer, "_on_stored", " and sender not in host.lost:", ":"),
        ],
        "replaced",
    ),
    (
        "a board that came back counts as two keepers that know nothing",
        "an operator that waits to be given up although nothing can be lost",
        [(incoming, "_knows_enough", "erased -= int(lifecycle.lost(host, v))", "pass")],
        "replaced",
    ),
    (
        "nobody tells a gateway that lost its database who has left",
        "an operator that waits for ever for what a lost board may have",
        [(losses, "tell", "_LEFT if state == LEFT else _DECLARED", "_DECLARED")],
        "gateway forgets who left",
    ),
    (
        "the boards do not tell a gateway that has lost its database",
        "a lost board that a new gateway takes back",
        [(losses, "_on_without", "if host.again and", "if 0 and")],
        "gateway forgets",
    ),
    (
        "any host may say that a board is lost",
        "a faulty board that shuts out the others",
        [(Exchange, "may_say", "ok = sender == 0", "pass")],
        "said by another",
    ),
]


def history(name: str, seed: int) -> str:
    return first_error(SCHEDULES[name](seed))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", DECLARED)
def test_every_run_goes_on_without_the_lost_board(name: str, seed: int) -> None:
    assert history(name, seed) == ""


@pytest.mark.parametrize(("name", "prevented", "changes", "where"), DEFECTS, ids=[d[0] for d in DEFECTS])
def test_a_checker_sees(name: str, prevented: str, changes: list[Change], where: str) -> None:
    assert where in DECLARED
    with seeded(changes):
        assert any(history(where, seed) for seed in SEEDS), prevented
