"""Scenario files hold, and mistakes in them are told; timelines show what happened."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from headwater.plan.model import Plan
from headwater.process import Affine, Process
from headwater_tools import cli
from headwater_tools.simulator import timeline
from headwater_tools.simulator.absence import Absence
from headwater_tools.simulator.batteries import COMPUTE, RADIO, Battery
from headwater_tools.simulator.directed import SCHEDULES
from headwater_tools.simulator.lanes import Lane, Span
from headwater_tools.simulator.recorder import Recorder
from headwater_tools.simulator.scenario import Result, Scenario
from headwater_tools.simulator.scenario_file import FOLDER, SUFFIX, Scripted, read
from headwater_tools.simulator.timeline import rows, slots
from headwater_tools.simulator.world import SECOND, World

EXAMPLES = sorted(path.stem for path in FOLDER.glob("*" + SUFFIX))


def hw(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, dict[str, object]]:
    with pytest.raises(SystemExit) as stop:
        cli.main([*map(str, words), "--json"])
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert isinstance(answer, dict)
    return int(stop.value.code or 0), answer


def relay() -> Plan:
    p = Process("relay", checkpoints="ecoc", every=20, batch=10, batch_ms=500)
    for board in ("left", "home", "other"):
        p.host(board, heap_kb=256)
    values = p.source("values", "v:i16", rate_hz=20, on="left")
    p.lake(
        "relay/shifted", values >> Affine().named("shifted").on("home", backup=["other", "gateway"]), cap=600
    )
    plan: Plan = p.plan()
    return plan


def played(tmp_path: Path, text: str, seed: int = 1) -> tuple[Scripted, Result]:
    path = tmp_path / "own.scenario"
    path.write_text(text)
    history = Scripted(read(str(path)), relay(), seed)
    return history, history.run()


# ---- scenarios


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_scenario_that_comes_with_the_simulator_holds(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, answer = hw(capsys, "sim", "--scenario", name, "--seeds", "1:3", "--jobs", "1")
    assert (code, answer["failed"], answer["seeds"]) == (0, [], 2)


def test_there_is_a_scenario_of_the_demo() -> None:
    assert "hip_runs_down" in EXAMPLES


@pytest.mark.slow
def test_what_a_scenario_expects_and_does_not_happen_is_told_with_its_line(tmp_path: Path) -> None:
    text = "seconds 30\nat 6 kill home\nat 25 expect shifted at other\nexpect takeovers 2\n"
    assert played(tmp_path, text)[1].errors[0].endswith(":4: expect takeovers 2, but it is 1")
    text = "seconds 30\nat 6 kill home\nat 25 expect shifted at gateway\n"
    assert played(tmp_path, text)[1].errors[0].endswith(":3: expect shifted at gateway")


@pytest.mark.slow
def test_an_empty_battery_ends_its_host(tmp_path: Path) -> None:
    text = "seconds 30\nat 0 battery home 60 % lasts 10\nat 1 expect home up\nat 14 expect home dead\n"
    history, result = played(tmp_path, text + "at 2 expect home battery <= 60\nexpect migrations_planned 1\n")
    assert result.errors == []
    assert result.drawn["battery empty"] == 1
    assert history.world.nodes[2].battery is not None and history.world.nodes[2].battery.empty


@pytest.mark.slow
def test_a_scenario_cuts_heals_and_restarts(tmp_path: Path) -> None:
    text = """
    seconds 30
    at 5    cut home other for 3
    at 5    cut left to gateway
    at 6    heal left gateway
    at 7    cut left other from gateway
    at 8    heal
    at 9    crash other for 2
    at 10   expect other down
    at 12   expect other up
    at 13   links loss 0.2 delay 100
    at 14   set shifted offset=7
    at 15   lake away
    at 16   outbox full
    at 18   outbox free
    at 18   lake back
    at 19   sleep other for 4
    at 24   start shifted other
    at 28   expect shifted at other
    expect  lost 0
    expect  migrations_unplanned 1
    """
    assert played(tmp_path, text)[1].errors == []


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("at 5 kil home", "'kil' is not what can happen; did you mean 'kill'?"),
        ("at 5 kill hme", "'hme' is not a host of this process; did you mean 'home'?"),
        ("at 5 kill", "which host? This process has gateway, left, home, other"),
        ("at 5 start shift home", "did you mean 'shifted'?"),
        ("at 5 start shifted left", "left is no candidate of shifted"),
        ("at soon kill home", "'soon' is not a number"),
        ("at 50 kill home", "at 50 s the history is over: 'seconds' is 30"),
        ("at 5", "write 'at SECONDS WHAT'"),
        ("kill home", "when does that happen? Write 'at SECONDS kill home'"),
        ("expct takeovers 1", "did you mean 'expect'?"),
        ("expect takeover 1", "did you mean 'takeovers'?"),
        ("expect takeovers", "write 'expect COUNT NUMBER'"),
        ("at 5 battery home 30", "write 'battery HOST 40 %'"),
        ("at 5 battery home 300 %", "300 is out of range: give 0 to 100"),
        ("at 5 broker away", "write 'broker away for SECONDS'"),
        ("at 5 cut left home other", "write 'HOST HOST' for one link"),
        ("at 5 set shifted offset", "write 'set OPERATOR NAME=VALUE'"),
        ("at 5 close shifted 3", "3 is out of range: give 0 to 0"),
        ("pace fast", "'fast' is not a pace; there is: quick, real"),
    ],
)
def test_a_mistake_in_a_scenario_is_one_sentence_with_its_line(tmp_path: Path, line: str, told: str) -> None:
    with pytest.raises(Exception) as mistake:
        played(tmp_path, "seconds 30\n\n%s  # a mistake\n" % line)
    text = str(mistake.value)
    assert re.match(r"\S+own\.scenario:3: ", text) and told in text
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--scenario", "two_die", "--seconds", "9"], "the scenario says what happens, and for how long"),
        (["--scenario", "two_die", "--process", "mix"], "name one process"),
        (["--scenario", "nothing"], "No such file"),
        (["--scenario", "tests"], "is a folder"),
        (["--timeline", "x.svg"], "--timeline draws one history: give --seed N, or a scenario"),
        (["--seed", "1", "--timeline", "nowhere/x.svg"], "the folder nowhere does not exist"),
        (["--seed", "1", "--timeline", "x.svg", "--resume", "r.jsonl"], "is not played again"),
    ],
)
def test_bad_use_is_told(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, answer = hw(capsys, "sim", *words)
    assert code == 2
    assert told in str(answer["error"])


@pytest.mark.slow
def test_a_sweep_of_a_scenario_is_continued_until_its_file_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.scenario"
    own.write_text("process sp2\nseconds 5\nat 2 crash left for 1\n")
    results = tmp_path / "results.jsonl"
    words = ("sim", "--scenario", own, "--seeds", "1:4", "--jobs", "1", "--resume", results)
    code, answer = hw(capsys, *words)
    assert (code, answer["seeds"], answer["scenario"]) == (0, 3, str(own))
    assert hw(capsys, "sim", "--resume", results) == (0, answer)
    code, other = hw(capsys, "sim", "--resume", results, "--scenario", "two_die")
    assert (code, "it records" in str(other["error"])) == (2, True)
    own.write_text("process sp2\nseconds 5\nat 2 crash right for 1\n")
    code, other = hw(capsys, *words)
    assert (code, "has changed since this sweep began" in str(other["error"])) == (2, True)


# ---- batteries


def test_a_battery_pays_for_time_frames_work_and_flash() -> None:
    for board in (RADIO, COMPUTE):
        world = World(relay(), 1)
        node = world.nodes[1]
        battery = Battery(board, 1000, 50)
        assert (battery.percent, battery.left_mc, battery.empty) == (50, 500, False)
        world.boot(node)
        battery.look(node, SECOND, False)
        least = board.awake_ua * SECOND
        assert 500_000_000_000 - battery.left_pc >= least
        before = battery.left_pc
        battery.frame(100, True)
        sent = before - battery.left_pc
        battery.frame(100, False)
        assert sent > before - sent - battery.left_pc > 0
        battery.spend(battery.left_pc + 1)
        assert (battery.empty, battery.percent, battery.mv()) == (True, 0, 3300)
        battery.charge(100)
        assert battery.mv() == 4200


def test_a_radio_draws_no_more_than_one_that_is_always_on() -> None:
    world = World(relay(), 1)
    battery = Battery(RADIO, 100_000)
    battery.look(world.nodes[1], SECOND, True)
    before = battery.left_pc
    for _ in range(1000):
        battery.frame(0, True)
    heads = 1000 * 91 * 59_552
    assert before - battery.left_pc == heads + RADIO.radio_ua * SECOND


# ---- checkers


@pytest.mark.slow
def test_an_operator_that_runs_nowhere_for_too_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Absence, "one_us", lambda self, v: SECOND)
    monkeypatch.setattr(SCHEDULES["host dies"], "SECONDS", 8)
    result = SCHEDULES["host dies"](1).run()
    assert "shifted, last at home, has run nowhere for 1." in result.errors[0]
    assert result.errors[0].endswith("and faults have stopped: 1.0 s were enough")


@pytest.mark.slow
def test_a_history_counts_for_how_long_an_operator_ran_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SCHEDULES["host dies"], "SECONDS", 8)
    result = SCHEDULES["host dies"](1).run()
    assert result.errors == []
    assert 3000 < result.stats["nowhere_ms"] < 13_000
    assert 20 < result.stats["nowhere_percent"] < 100


# ---- timelines


@pytest.mark.slow
def test_recording_a_history_changes_nothing() -> None:
    from headwater_tools.simulator.jobs import Job, hardware

    made = Job(5, "ten", seconds=25).made()
    histories = []
    for recording in (False, True):
        history = Scenario(made.plan, 5, 25, True, hardware(made.plan, 5, made.declared_kb))
        if recording:
            history.record()
        histories.append((history.run(), history.trace))
    assert histories[0] == histories[1]


@pytest.mark.slow
def test_a_timeline_shows_hosts_batteries_operators_and_takeovers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "hip.svg"
    code, _ = hw(capsys, "sim", "--scenario", "hip_runs_down", "--timeline", path)
    assert code == 0
    root = ElementTree.parse(path).getroot()
    words = {"".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {
        "gateway",
        "chest",
        "wrist",
        "hip",
        "dead",
        "both",
        "alarm",
        "smooth",
        "battery",
        "unplanned",
    } <= words
    assert any(re.fullmatch(r"100 . 0 %", word) for word in words)
    told = ["".join(title.itertext()) for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert any(line.startswith("both: hip to gateway, the battery of its host runs low, ") for line in told)
    assert any(re.match(r"both: gateway to wrist, taken over, [45]\d\.\d s", line) for line in told)
    assert any(re.match(r"hip: dead, 2\d\.", line) for line in told)


@pytest.mark.slow
def test_a_timeline_shows_changes_of_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "changes.svg"
    for seed in range(1, 9):
        hw(capsys, "sim", "--process", "changes", "--seed", seed, "--seconds", "30", "--timeline", path)
        if "deployment 2" in path.read_text():
            return
    raise AssertionError("no history has a second deployment")


def test_a_planned_move_is_an_arrow_with_its_reason() -> None:
    recorder = Recorder(World(relay(), 1))
    recorder.world.run(2 * SECOND)
    recorder.moved(1, 2, 3, "flee")
    (move,) = recorder.moves
    assert (move.operator, move.giver, move.taker, move.planned) == ("shifted", "home", "other", True)
    drawn = timeline.draw(recorder, "a move")
    assert "shifted: home to other, flee, 2.0 s" in drawn
    assert "planned move" in drawn and ">unplanned<" not in drawn


def test_operators_of_a_lane_share_a_row_only_if_they_were_never_there_together() -> None:
    lane = Lane("hip")
    for name, start, end in (("a", 0, 10), ("b", 5, 9), ("c", 20, 30)):
        lane.operators[name] = [Span("in touch", start * SECOND, end * SECOND)]
    assert slots(lane, ["a", "b", "c"]) == {"a": 0, "b": 1, "c": 0}


def test_no_number_of_a_fault_hides_another_while_there_are_rows() -> None:
    chance = random.Random(1)
    xs = sorted(chance.uniform(0, 400) for _ in range(60))
    found = list(zip(xs, rows(xs, 17.0)))
    assert max(row for _, row in found) <= 5
    hidden = [1 for (a, p), (b, q) in zip(found, found[1:]) if p == q and b - a < 17]
    assert hidden == []
