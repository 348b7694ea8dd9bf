"""Inputs without which an operator goes on, alternatives, alarms of boards: histories in which sources fall
silent hold, and with one rule broken they do not."""

from __future__ import annotations

import pytest
from defects import Change, seeded
from headwater.plan.alarms import Alarm
from headwater.plan.model import Plan
from headwater.process import Affine, Process, Stream, Union
from headwater.process.check import check
from headwater.runtime import decisions
from headwater.runtime.absence import Absence, Silent
from headwater.runtime.instance import Instance
from headwater.runtime.signals import Signals, Sounding, Told
from headwater.testing import trial
from headwater_tools.simulator import jobs
from headwater_tools.simulator.closings import CLOSED, OPENED
from headwater_tools.simulator.scenario import Scenario, hardware

SEEDS = range(1, 9)
SECONDS = 30


def history(seed: int, changes: list[Change] | None = None) -> tuple[list[str], dict[str, int]]:
    made = jobs.made(jobs.process(jobs.ABSENT, seed))
    with seeded(changes or []):
        scenario = Scenario(made.plan, seed, SECONDS, True, hardware(made.plan, seed, made.declared_kb))
        result = scenario.run()
    return result.errors, result.drawn


DEFECTS: list[tuple[str, str, list[Change]]] = [
    (
        "an input is closed while its stream goes on",
        "the alternative is taken while the first stream lives",
        [
            (Silent, "passes", "if sign != self.sign or speaks:", "if False:"),
            (Absence, "stays", "return not s or", "return False and"),
        ],
    ),
    (
        "an input is closed although its stream has spoken since that was asked for",
        "the alternative is taken from a stream that is back",
        [(Absence, "stays", "return not s or", "return False and")],
    ),
    (
        "silence counts while a host hears no other one",
        "all alternatives of a site are taken when its broker restarts",
        [(Absence, "_deaf", "deaf = self.near >", "deaf = False and self.near >")],
    ),
    (
        "an input that is opened again goes back as far as its producer does",
        "a stream whose ts falls, since the alternative was given for that time",
        [
            (decisions, "_opens", "from_ts = max([from_ts, inst.front + inst.past]", "max([0]"),
            (decisions, "_opens", "from_ts = max(from_ts, e.from_ts, host.site())", "pass"),
        ],
    ),
    (
        "an input is never opened again",
        "a stream that is back, and that no operator takes",
        [
            (
                Absence,
                "tick",
                "if (self._speaks(e) or gives) and s.asks(self.now):",
                "if False:",
            )
        ],
    ),
    (
        "what sounds is not kept",
        "an alarm that is lost by a restart",
        [(Signals, "__init__", "kept[a.index] if a.index < len(kept) else 0", "0")],
    ),
    (
        "a board does not count silence",
        "a board that hears nothing of its stream and is quiet",
        [(Sounding, "passes", "self.silent + ms", "self.silent")],
    ),
    (
        "a host does not tell that its stream goes on",
        "an alarm while all is well",
        [(Signals, "_tell", "if told.tells(", "if False and told.tells(")],
    ),
    (
        "an operator is not told that its input was closed",
        "an alternative that is not taken",
        [(Instance, "apply", "self.op.closed(e.edge.dport)", "pass")],
    ),
]


@pytest.mark.slow
def test_sources_fall_silent_and_nothing_is_lost() -> None:
    drawn: dict[str, int] = {}
    for seed in SEEDS:
        errors, found = history(seed)
        assert errors == []
        for kind, n in found.items():
            drawn[kind] = drawn.get(kind, 0) + n
    assert drawn[CLOSED] > 0 and drawn[OPENED] > 0


@pytest.mark.slow
@pytest.mark.parametrize(("name", "prevented", "changes"), DEFECTS, ids=[d[0] for d in DEFECTS])
def test_a_checker_sees(name: str, prevented: str, changes: list[Change]) -> None:
    assert any(history(seed, changes)[0] for seed in range(1, 41)), prevented


def test_what_a_boot_begins_with_and_its_first_boundary_are_no_sign_of_life() -> None:
    told, sounding = Told(), Sounding(Alarm(0, "quiet", 1, 0, 2, "led", 12_000, -1), 0)
    seen = [(0, 195, 0), (0, 195, 1_000), (0, 195, 2_000), (0, 196, 2_000)]
    assert [told.tells(sign, 2, 0, 0) for sign in seen] == [False, False, True, True]
    assert [sounding.here(sign) for sign in seen] == [False, False, True, True]
    entry = Told()
    assert [entry.tells(sign, 2, 0, 0) for sign in ((0, 195, 0), (0, 196, 0))] == [False, True]


# ---- the operator


TEXT = ("v:i16", "v:i16")


def test_the_alternative_is_given_while_the_first_is_closed_and_up_to_when_it_is_back() -> None:
    op = trial.make("Otherwise", {}, TEXT)

    def out(entries: list[tuple[int, int, list[int]]]) -> list[tuple[int, int]]:
        return [(ts, values[0]) for ts, values in trial.run(op, entries)[0]]

    assert out([(0, 100, [1]), (1, 101, [9]), (0, 102, [2])]) == [(100, 1), (102, 2)]
    op.closed(0)
    assert out([(1, 110, [8]), (1, 111, [7])]) == [(110, 8), (111, 7)]
    op.opened(0, 121)
    assert out([(1, 120, [6]), (1, 121, [5]), (0, 121, [3]), (1, 122, [4])]) == [(120, 6), (121, 3)]


def test_a_hole_of_the_stream_that_is_not_given_is_not_passed_on() -> None:
    op = trial.make("Otherwise", {}, TEXT)
    assert op.hole(0) and not op.hole(1)
    op.closed(0)
    assert op.hole(1)
    op.opened(0, 5)
    assert not op.hole(1)
    op.closed(1)  # the alternative may be closed too; that changes nothing here
    assert not op.away


# ---- what costs nothing


def _plan(absent: bool) -> Plan:
    p = Process("quiet", checkpoints="ecoc", every=20, batch=10, batch_ms=500)
    for host in ("left", "right"):
        p.host(host, heap_kb=256)
    a = p.source("a", "v:i16", rate_hz=20, on="left")
    b = p.source("b", "v:i16", rate_hz=20, on="right")
    if absent:
        b = b.absent_after(20_000)
        p.alarm(a, silent_ms=20_000, on="right", driver="led")
    p.lake(
        "quiet/both", Union().named("both").on("left", backup=["gateway"])(a, b >> Affine() if absent else b)
    )
    return p.plan()


def test_a_host_without_alarms_and_alternatives_loads_nothing_for_them() -> None:
    scenario = Scenario(_plan(False), 1, 5, faults=False)
    assert scenario.run().errors == []
    hosts = [node.host for node in scenario.world.nodes if node.host]
    assert [(host.absence, host.signals) for host in hosts] == [(None, None)] * 3


# ---- what a process file says


def _ward() -> tuple[Process, Stream, Stream]:
    p = Process("ward", batch_ms=500, link_ms=100)
    a = p.source("a", "v:i16", rate_hz=20, on="left")
    b = p.source("b", "v:i16", rate_hz=20, on="right")
    p.lake("ward/a", a)
    p.lake("ward/b", b)
    return p, a, b


def _problems(p: Process) -> list[str]:
    return ["%s: %s. %s" % (x.where, x.what, x.cure) for x in check(p).problems]


def test_a_plan_says_what_is_absent_and_what_sounds() -> None:
    p, a, b = _ward()
    best = a.otherwise(b, after_ms=5000, local=True).named("best")
    p.lake("ward/best", best)
    p.alarm(best, silent_ms=12_000, field="v", on="right", driver="led", name="lost")
    plan = p.plan()
    assert [(e.dport, e.absent_ms, e.local) for e in plan.edges if e.absent_ms] == [(0, 5000, True)]
    alarm = plan.alarms[0]
    assert (alarm.name, plan.vertices[alarm.src].name, plan.hosts[alarm.host]) == ("lost", "best", "right")
    assert (alarm.driver, alarm.silent_ms, alarm.field) == ("led", 12_000, 0)
    assert plan.hosts[plan.vertices[alarm.src].hosts[0]] == "right"  # where the alternative is made


def test_an_input_may_be_absent_only_where_another_one_is_left() -> None:
    p, a, b = _ward()
    p.lake("ward/half", a.absent_after(5000) >> Affine().named("half"))
    assert _problems(p) == [
        "vertex 'half', port 0: absent_after on the only input of 'half', which has nothing to go on with. "
        "Give it another stream with stream.otherwise(other, after_ms=...)"
    ]
    p, a, b = _ward()
    p.lake("ward/again", a.absent_after(5000))
    assert "Give within_ms= to p.lake(...)" in _problems(p)[0]


def test_a_silence_is_longer_than_the_pauses_of_good_times() -> None:
    p, a, b = _ward()
    p.lake("ward/both", Union()(a, b.absent_after(2000)))
    assert _problems(p) == [
        "vertex 'union', port 1: absent_after(2000): in good times up to 1100 ms pass between two signs of "
        "'b'. Give 2200 ms or more (twice that), or lower batch_ms or link_ms"
    ]


def test_mistakes_of_an_alarm_are_told_with_what_there_is() -> None:
    p, a, b = _ward()
    p.host("left")
    p.host("right")
    p.alarm(a, silent_ms=1000, on="rigt", driver="bel", field="w", name="heart")
    p.alarm(b, on="gateway", name="heart")
    found = "\n".join(_problems(p))
    for words in (
        "alarm 'heart': on='rigt' is no board: did you mean 'right'?. Use one of left, right",
        "unknown driver 'bel'",
        "the stream has no field 'w'",
        "silent_ms=1000: in good times",
        "the name is already used",
        "on='gateway' is no board",
        "nothing raises it. Give silent_ms=, or field= with one of v",
    ):
        assert words in found


def test_a_delay_that_no_takeover_can_keep_is_a_warning() -> None:
    p, a, b = _ward()
    p.lake("ward/half", a >> Affine().named("half"), within_ms=15_000)
    found = check(p)
    assert found.errors() == [] and len(found.warnings()) == 1
    assert "cannot be kept when the host of 'half' dies" in found.warnings()[0].what
    p, a, b = _ward()
    p.lake("ward/half", a >> Affine().named("half"), within_ms=15_001)
    assert check(p).problems == []
