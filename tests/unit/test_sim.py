"""`hw sim`: histories under every fault lose nothing, repeat, and tell how to see them again."""

import json
import os
import subprocess
import sys
import time

import pytest
from headwater.planread import LEVELS, STRATEGIES
from headwater_tools import cli
from headwater_tools.processes import example
from headwater_tools.sim import mix
from headwater_tools.sim.mix import COUNTS, PROCESSES, Job, kind_of, play
from headwater_tools.sim.outbox import Outbox
from headwater_tools.sim.scenario import Scenario

CHUNK = 8
SEEDS = 160

PLAY = """
import json, sys
from headwater_tools.sim.mix import Job, play
print(json.dumps([[o.trace, o.counts, o.errors] for o in map(play, map(Job, map(int, sys.argv[1:])))]))
"""


def hw(*words, capsys):
    """Exit code, what was printed for people, and the object of a command."""
    with pytest.raises(SystemExit) as end:
        cli.main([*map(str, words), "--json"])
    text, _, last = capsys.readouterr().out.rstrip("\n").rpartition("\n")
    return end.value.code, text, json.loads(last)


@pytest.fixture
def hasty_outbox(monkeypatch):
    """A gateway that acknowledges what it has in memory only."""
    monkeypatch.setattr(Outbox, "durable", lambda self, edge, inc: self._stream(edge, inc).taken)


@pytest.mark.parametrize("first", range(1, SEEDS, CHUNK))
def test_every_history_of_the_mix_holds(first):
    outcomes = [play(Job(seed)) for seed in range(first, first + CHUNK)]
    assert [line for outcome in outcomes if not outcome.ok for line in outcome.story()] == []


def test_the_mix_has_every_process_strategy_and_level():
    jobs = [Job(seed) for seed in range(1, SEEDS + 1)]
    plans = [job.plan() for job in jobs]
    assert {kind_of(job.seed) for job in jobs} == set(PROCESSES) - {"mix"}
    assert {STRATEGIES[plan.strategy] for plan in plans} == set(STRATEGIES) - {"unsafe"}
    assert {LEVELS[plan.level] for plan in plans} == set(LEVELS)


@pytest.mark.parametrize("kind", sorted(mix.VARIANTS))
def test_every_variant_of_an_example_is_valid(kind):
    for seed in range(400):
        assert Job(seed, kind).plan().name == kind


def test_a_seed_gives_the_same_history_in_any_interpreter():
    seeds = ["3", "5", "6", "7", "8", "10"]
    histories = []
    for hashes in ("0", "1234"):
        env = {**os.environ, "PYTHONHASHSEED": hashes, "PYTHONPATH": os.pathsep.join(("edge", "tools"))}
        command = [sys.executable, "-c", PLAY, *seeds]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        histories.append(json.loads(done.stdout))
    assert histories[0] == histories[1]
    assert all(len(trace) > 5 for trace, _, _ in histories[0])
    here = [play(Job(int(seed))) for seed in seeds]
    assert [[o.trace, o.counts, o.errors] for o in here] == histories[0]


def test_two_seeds_give_two_histories():
    assert play(Job(3, "sp1")).trace != play(Job(4, "sp1")).trace


@pytest.mark.parametrize("name", ["own_operator", "cardio"])
def test_a_users_file_is_simulated_unchanged(name, capsys):
    code, text, answer = hw("sim", example(name), "--seeds", "1:4", "--jobs", "1", capsys=capsys)
    assert "all hold" in text
    assert code == 0
    assert (answer["seeds"], answer["seed"], answer["failed"]) == (3, 1, [])
    assert answer["accepted"] > 3000
    assert answer["delivered"] > 0
    assert (answer["lost"], answer["duplicates"], answer["divergent"], answer["out_of_order"]) == (0, 0, 0, 0)


def test_several_workers_find_what_one_finds(capsys):
    one = hw("sim", example("own_operator"), "--seeds", "1:7", "--jobs", "1", capsys=capsys)[2]
    assert hw("sim", example("own_operator"), "--seeds", "1:7", "--jobs", "2", capsys=capsys)[2] == one


def test_without_faults_nothing_is_taken_again(capsys):
    code, _, answer = hw("sim", "--process", "sp2", "--seed", "2", "--no-faults", capsys=capsys)
    assert code == 0
    assert set(COUNTS) <= set(answer)
    assert answer["delivered"] > 1000
    assert (answer["replayed"], answer["migrations_unplanned"]) == (0, 0)


def test_with_faults_entries_are_taken_again(capsys):
    answer = hw("sim", "--process", "sp1", "--seeds", "1:6", "--jobs", "1", capsys=capsys)[2]
    assert answer["replayed"] > 100
    assert answer["boots"] > 20


def test_a_failing_seed_tells_how_to_see_it_again(hasty_outbox, capsys):
    code, text, answer = hw("sim", "--process", "sp1", "--seeds", "1:4", "--jobs", "1", capsys=capsys)
    assert code == 1
    assert "FAIL" in text
    failed = answer["failed"][0]
    replay = "hw sim --process sp1 --seed %d" % failed["seed"]
    assert failed["replay"] == replay
    assert "  replay: %s\n" % replay in text + "\n"
    assert "the end of its history:" in text
    assert failed["errors"][0] in text
    again = hw(*replay.split()[1:], capsys=capsys)
    assert again[0] == 1
    assert again[2]["failed"] == [failed]


def test_the_replay_line_says_all_that_differs_from_the_default():
    assert Job(7, "mix").replay() == "hw sim --process sp4 --seed 7"
    assert Job(8, "mix", seconds=9).replay() == "hw sim --process random --seed 8 --seconds 9"
    assert Job(8, "", "my file.py", faults=False).replay() == "hw sim 'my file.py' --seed 8 --no-faults"


def test_a_history_that_raises_is_a_failure_with_its_place(monkeypatch):
    def broken(self):
        raise KeyError("no such edge")

    monkeypatch.setattr(Scenario, "arrived", broken)
    outcome = play(Job(2, "sp1"))
    assert not outcome.ok
    assert outcome.errors[0].startswith("raises KeyError: 'no such edge' (test_sim.py:")
    assert outcome.story()[-1] == "  replay: hw sim --process sp1 --seed 2"


@pytest.mark.parametrize(
    ("seconds_of_sleep", "error"),
    [(0, "hangs: no end after 2 s of CPU time"), (60, "hangs: no end after 4 s")],
)
def test_a_history_without_end_is_a_failure(seconds_of_sleep, error, monkeypatch):
    def endless(self):
        while True:
            time.sleep(seconds_of_sleep)

    monkeypatch.setattr(Scenario, "arrived", endless)
    monkeypatch.setattr(mix, "HANG_S", 1)
    monkeypatch.setattr(mix, "WAITS", 2 if seconds_of_sleep else 100)
    assert play(Job(2, "sp2", seconds=1)).errors == [error]


def test_a_history_that_waits_for_a_core_is_not_a_failure(monkeypatch):
    arrived = Scenario.arrived

    def starved(self):
        if self.wanted is None:
            time.sleep(2.5)
        return arrived(self)

    monkeypatch.setattr(Scenario, "arrived", starved)
    monkeypatch.setattr(mix, "HANG_S", 2)
    assert play(Job(2, "sp2", seconds=1)).errors == []


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["FILE", "--process", "sp1"], "give one of them"),
        (["--seeds", "5:5"], "from 1 to"),
        (["--seeds", "5"], "give two numbers"),
        (["--seed", "1", "--seeds", "1:2"], "not allowed with"),
        (["--seed", "-1"], "give 0 or more"),
        (["--seconds", "0"], "give 1 to"),
        (["--jobs", "0"], "give 1 to"),
        (["--process", "sp9"], "invalid choice"),
        (["nothing.py"], "No such file"),
        (["tests"], "is a folder"),
    ],
)
def test_bad_use_is_told(words, what, capsys):
    words = [str(example("sp1")) if word == "FILE" else word for word in words]
    code, _, answer = hw("sim", *words, capsys=capsys)
    assert code == 2
    assert what in answer["error"]


def test_a_file_that_the_check_refuses_is_told(tmp_path, capsys):
    path = tmp_path / "bad.py"
    path.write_text("from headwater.process import Process\np = Process('bad')\n")
    code, _, answer = hw("sim", path, capsys=capsys)
    assert code == 2
    assert "bad.py" in answer["error"]
