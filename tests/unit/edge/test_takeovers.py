"""Hosts that take over operators by their own decision: the schedules hold, and with one rule broken they do
not."""

from __future__ import annotations

import pytest
from defects import Change, first_error, seeded
from headwater.process import Affine, Process
from headwater.runtime import checkpoint_transfer, judging, relocation, sleeping, watching
from headwater.runtime.words import Words
from headwater_tools.simulator.directed import SCHEDULES
from headwater_tools.simulator.directed.takeovers import Decided
from headwater_tools.simulator.scenario import Scenario

pytestmark = pytest.mark.slow

SEEDS = range(4)
DECIDED = [name for name, schedule in SCHEDULES.items() if issubclass(schedule, Decided)]

# Name, what the rule prevents, the changes, and a schedule in which it shows.
DEFECTS: list[tuple[str, str, list[Change], str]] = [
    (
        "an activation does not raise the epoch",
        "an instance that every producer refuses, or two that acknowledge",
        [(watching, "take", "if known else 0) + 1", "if known else 0)")],
        "link lost, nothing offered",
    ),
    (
        "hosts are taken for dead too early",
        "takeovers of healthy operators between two words",
        [
            (
                Words,
                "patience",
                "max(self.least, 3 * max(self.beat, 1000 * self.period[k]), 2 * self.step)",
                "self.step // 4",
            )
        ],
        "host dies",
    ),
    (
        "two candidates have one rank",
        "two takeovers where one is needed",
        [(watching, "rank", "hosts.index(words.host.me)", "0")],
        "host dies",
    ),
    (
        "a new instance waits for its dead host to keep a checkpoint",
        "a takeover that takes a second longer than it must",
        [(checkpoint_transfer, "_push", "if host.words and host.words.dead(h):", "if 0:")],
        "host dies, a holder",
    ),
    (
        "a producer that has not listened says SILENT",
        "an operator that moves because its producer restarted",
        [(watching, "lives", "return UNKNOWN, epoch", "return SILENT, epoch")],
        "producer restarts",
    ),
    (
        "a host that asks for an operator is taken for the one that runs it",
        "an operator that nobody takes over, since every candidate is told that it lives",
        [(watching, "_on_take", "r.lose()", "pass")],
        "began out of reach",
    ),
    (
        "too little heap for a takeover is an error of the host",
        "a board that restarts, with all that runs there, again and again",
        [(watching, "take", "if v in host.instances:", "if 1:")],
        "no heap to take over",
    ),
    (
        "a candidate takes over without asking",
        "a candidate that robs the operator when only its own links have failed",
        [(watching, "look", "if ALIVE in answers or ALIVE in s.fresh(s.back, words.step):", "if 0:")],
        "candidate apart",
    ),
    (
        "an instance tells where it is before its producers have answered",
        "a board out of range that robs a healthy one",
        [(relocation, "activate", "if not quiet:", "if 1:")],
        "blind lets go",
    ),
    (
        "an instance that began without any producer does not ask",
        "a board out of range that robs a healthy one",
        [(relocation, "activate", "    if blind:\n", "    if 0:\n")],
        "blind lets go",
    ),
    (
        "a host that was deaf for long knows who is dead",
        "operators that move because the broker was away",
        [(Words, "_deaf", "if self.near <=", "if 1 or self.near <=")],
        "broker restarts",
    ),
    (
        "a candidate that hears the operator's host begins without any producer",
        "an operator that moves again and again after its only source has died",
        [
            (watching, "look", "named_by(words, v, host.where[v][2])", "False"),
            (watching, "look", "if s.waits == _BLIND:", "if 0:"),  # it would hear that host in this way, too
        ],
        "source dies",
    ),
    (
        "what sleeps forgets what it has counted",
        "an operator whose only candidate sleeps, and that nobody takes over",
        [(sleeping, "woken", "words.woke(sleeps, listened, silent)", "return")],
        "sleeper takes over",
    ),
    (
        "only the gateway and an operator's own host are believed about where it runs",
        "an instance whose checkpoints every keeper refuses, and that never hears why",
        [(judging, "may_say", "sender in (m[3], 0) or sender in plan.keepers(m[1])", "sender in (m[3], 0)")],
        "over unheard",
    ),
    (
        "a gateway that lost its database is not told where operators ran",
        "a consumer that waits for ever for a producer at the gateway",
        [(relocation, "tell", "0 in (host.me, sender)", "not host.me")],
        "over erased",
    ),
]


def history(name: str, seed: int) -> str:
    return first_error(SCHEDULES[name](seed))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", DECIDED)
def test_exactly_what_has_to_move_moves(name: str, seed: int) -> None:
    assert history(name, seed) == ""


@pytest.mark.parametrize(("name", "prevented", "changes", "where"), DEFECTS, ids=[d[0] for d in DEFECTS])
def test_a_checker_sees(name: str, prevented: str, changes: list[Change], where: str) -> None:
    assert where in DECIDED
    with seeded(changes):
        assert any(history(where, seed) for seed in SEEDS), prevented


def test_without_backups_nothing_is_said_and_nothing_is_loaded() -> None:
    p = Process("fixed", checkpoints="ecoc", every=20, level="local", batch=10, batch_ms=500)
    p.host("left", heap_kb=256)
    values = p.source("values", "v:i16", rate_hz=20, on="left")
    p.lake("fixed/shifted", values >> Affine().named("shifted").on("left"))
    plan = p.plan()
    assert [v.hosts for v in plan.vertices] == [(1,), (1,)]
    scenario = Scenario(plan, 1, 10, faults=False)
    assert scenario.run().errors == []
    assert [node.host.words for node in scenario.world.nodes if node.host] == [None, None]
