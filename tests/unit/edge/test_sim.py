"""`hw sim`: histories under every fault lose nothing, repeat, and tell how to see them again."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest
from headwater.plan.reader import LEVELS, STRATEGIES
from headwater.process import Affine, Process, SumJoin
from headwater_tools import cli
from headwater_tools.commands import sim
from headwater_tools.process_file import example
from headwater_tools.simulator import jobs, record
from headwater_tools.simulator.ideal import Ideal
from headwater_tools.simulator.jobs import BEYOND, BLUETOOTH, COUNTS, PROCESSES, Job, Outcome, kind_of, play
from headwater_tools.simulator.outbox import Outbox
from headwater_tools.simulator.scenario import Scenario, hardware
from headwater_tools.simulator.storm import Storm

pytestmark = pytest.mark.slow

CHUNK = 4
SEEDS = 64
SHARE_MIN = 0.05  # of the histories to which it applies have each kind of fault

PLAY = """
import json, sys
from headwater_tools.simulator.jobs import Job, play
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


@pytest.mark.parametrize("first", range(1, 17, CHUNK))
def test_sites_with_bluetooth_hold(first):
    outcomes = [play(Job(seed, jobs.BLUETOOTH, seconds=15)) for seed in range(first, first + CHUNK)]
    assert [line for outcome in outcomes if not outcome.ok for line in outcome.story()] == []
    assert all(outcome.counts["fragments"] for outcome in outcomes)


@pytest.mark.parametrize(("buffers", "expected"), [(False, 500), (True, 120)])
def test_the_ideal_run_puts_out_no_more_than_a_join_leaves_room_for(buffers, expected):
    p = Process("pair", checkpoints="ecoc", every=20, batch=10, batch_ms=500)
    p.host("board", heap_kb=256)
    a = p.source("a", "v:i16", rate_hz=20, on="board")
    b = p.source("b", "v:i16", rate_hz=20, on="board")
    p.lake("pair/sum", SumJoin(us=1_000_000)((a >> Affine()).buffered(cap=120), b))
    plan = p.plan()
    taken = [(1_000_000 + 50_000 * i, 0, i) for i in range(500)]
    run = Ideal(
        plan, {0: {1: taken}, 1: {2: []}}, {0: taken[-1][0] + 1, 1: 0}, {}, {}, set(), buffers=buffers
    )
    assert [v.name for v in plan.vertices[2:3]] == ["affine"]
    assert len(run.lines[2, 0].entries) == expected


@pytest.mark.parametrize(("other_until", "expected"), [(500, 500), (120, 240)])
def test_entries_that_an_opened_input_skips_make_room_for_their_producer_in_turn(other_until, expected):
    """The join closes its first input at once, and opens it at the end without what it missed. Where the
    other input ends early, what is older than the opening but not than that end never has its turn."""
    p = Process("pair", checkpoints="ecoc", every=20, batch=10, batch_ms=500)
    p.host("board", heap_kb=256)
    a = p.source("a", "v:i16", rate_hz=20, on="board")
    b = p.source("b", "v:i16", rate_hz=20, on="board")
    p.lake("pair/sum", SumJoin(us=1_000_000)((a >> Affine()).buffered(cap=120), b))
    taken = [(1_000_000 + 50_000 * i, 0, i) for i in range(500)]
    decisions = {3: [([0, 0, 0, 0], ["close", 0]), ([0, other_until, 0, 1], ["open", 0, 0, taken[-1][0]])]}
    run = Ideal(
        p.plan(), {0: {1: taken}, 1: {2: taken[:other_until]}},
        {0: taken[-1][0] + 1, 1: taken[other_until - 1][0] + 1}, decisions, {}, {(1, 2)}, buffers=True,
    )  # fmt: skip
    assert [machine.decided for machine in run.machines.values()] == [0, 2]
    assert len(run.lines[2, 0].entries) == expected
    assert run.full_loops() == set()


@pytest.mark.parametrize(("before", "expected"), [(1, 5 * 3), (0, 3)])
def test_the_ideal_run_empties_a_window_where_the_real_one_had_not_met_the_source(before, expected):
    p = Process("pair", checkpoints="ecoc", every=20, batch=10, batch_ms=500)
    p.host("board", heap_kb=256)
    a, b = (p.source(name, "v:i16", rate_hz=20, on="board") for name in "ab")
    p.lake("pair/sum", SumJoin(us=1_000_000)(a, b))
    taken = [(1_000_000 + 50_000 * i, 0, 3) for i in range(5)]
    decisions = {2: [([0, 0, 0, 0], ["close", 0]), ([0, 4, 0, 1], ["open", 0, 1, taken[4][0]])]}
    run = Ideal(
        p.plan(), {0: {1: []}, 1: {2: taken}}, {0: taken[4][0] + 1, 1: taken[4][0] + 1}, decisions, {},
        {(1, 2)}, reopened={(2, 2): before},
    )  # fmt: skip
    assert [row[2] for row in run.lines[2, 0].entries[3:]] == [4 * 3, expected]


def test_the_mix_has_every_process_strategy_and_level():
    jobs = [Job(seed) for seed in range(1, SEEDS + 1)]
    plans = [job.plan() for job in jobs]
    assert {kind_of(job.seed) for job in jobs} == set(PROCESSES) - {"mix", BEYOND, BLUETOOTH}
    assert {STRATEGIES[plan.strategy] for plan in plans} == set(STRATEGIES) - {"unsafe"}
    assert {LEVELS[plan.level] for plan in plans} == set(LEVELS)


def test_every_special_kind_of_fault_belongs_to_a_share_of_the_histories():
    applies, chosen, made_of = Counter(), Counter(), Counter()
    seeds = range(1, 201)
    for job in map(Job, seeds):
        made = job.made()
        boards = hardware(made.plan, job.seed, made.declared_kb)
        scenario = Scenario(made.plan, job.seed, made_of=boards)
        scenario.likely = jobs.LIKELY.get(job.concrete(), {})
        storm = Storm(scenario)
        applies.update(storm.special().keys())
        chosen.update(storm.kinds.keys())
        made_of["small log"] += bool(boards.sectors)
        made_of["short frames"] += boards.mtu < 1400
        made_of["bad clocks"] += boards.drift_ppm > 60
    assert len(applies) == 26
    assert min(chosen[kind] / applies[kind] for kind in applies) > 3 * SHARE_MIN
    assert min(chosen[kind] for kind in applies) > SHARE_MIN * len(seeds)
    assert min(made_of.values()) > SHARE_MIN * len(seeds)


def test_storms_are_mostly_short_and_a_minute_on_average():
    lengths = [Job(seed).length() for seed in range(1000)]
    assert (min(lengths), 295 < max(lengths) <= 300) == (25, True)
    assert 50 < sum(lengths) / len(lengths) < 70
    assert sorted(lengths)[500] < 40
    assert Job(1, seconds=9).length() == 9


def test_what_is_drawn_is_counted_and_told(capsys):
    outcomes = [play(Job(seed, "sp2", seconds=30)) for seed in range(1, 9)]
    # These take the power of hosts as well, and count it under their own names.
    others = (
        "battery empty",
        "hosts down together",
        "death at a takeover",
        "death while a checkpoint is sent",
    )
    alone = [outcome for outcome in outcomes if not any(outcome.drawn.get(kind) for kind in others)]
    assert len(alone) >= 2
    for outcome in alone:
        told = sum(line.endswith(" loses power") for line in outcome.trace)
        assert outcome.drawn.get("power lost", 0) == told
    assert jobs.drawn(outcomes)["power lost"]["histories"] >= 2


@pytest.mark.parametrize("kind", sorted(jobs.VARIANTS))
def test_every_variant_of_an_example_is_valid(kind):
    for seed in range(400):
        assert Job(seed, kind).plan().name == kind


def test_a_seed_gives_the_same_history_in_any_interpreter():
    seeds = ["3", "5", "6", "7", "8", "10"]
    histories = []
    for hashes in ("0", "1234"):
        paths = os.pathsep.join(("edge", "tools", "gateway"))
        env = {**os.environ, "PYTHONHASHSEED": hashes, "PYTHONPATH": paths}
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
    assert Job(10, "mix", seconds=9).replay() == "hw sim --process random --seed 10 --seconds 9"
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
            if seconds_of_sleep:
                time.sleep(seconds_of_sleep)

    monkeypatch.setattr(Scenario, "arrived", endless)
    monkeypatch.setattr(jobs, "HANG_S", 1)
    monkeypatch.setattr(jobs, "WAITS", 2 if seconds_of_sleep else 100)
    assert play(Job(2, "sp2", seconds=1)).errors == [error]


def test_a_history_that_waits_for_a_core_is_not_a_failure(monkeypatch):
    peace = Scenario.peace

    def starved(self):
        time.sleep(2.5)
        peace(self)

    monkeypatch.setattr(Scenario, "peace", starved)
    monkeypatch.setattr(jobs, "HANG_S", 2)
    assert play(Job(2, "sp2", seconds=1)).errors == []


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["FILE", "--process", "sp1"], "give one of them"),
        (["--seeds", "5:5"], "has no seed in it"),
        (["--seeds", "5"], "--seeds 1:6 the first 5"),
        (["--seed", "1", "--seeds", "1:2"], "not allowed with"),
        (["--seed", "-1"], "give 0 or more"),
        (["--seconds", "0"], "give 1 to"),
        (["--jobs", "0"], "give 1 to"),
        (["--resume", "results.jsonl", "--trace"], "hold no traces"),
        (["--resume", "README.md"], "name a file that does not exist yet"),
        (["--resume", "tests"], "Is a directory"),
        (["--process", "sp9"], "did you mean 'sp4'?"),
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


# ---- a sweep that is continued

SWEEP = ("--process", "sp2", "--seeds", "1:7", "--seconds", "2", "--jobs", "1")


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results.jsonl"


@pytest.fixture
def seeds_played(monkeypatch):
    """The seeds that this process plays, as it plays them."""
    seeds = []
    monkeypatch.setattr(sim, "play", lambda job: seeds.append(job.seed) or play(job))
    return seeds


def cut(path, lines, torn=b""):
    """Leave the first lines of a file, as a kill does."""
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:lines]) + torn)


def test_a_file_of_results_has_a_header_and_one_line_a_history(results, capsys):
    hw("sim", *SWEEP, "--resume", results, capsys=capsys)
    header, *lines = map(json.loads, results.read_text().splitlines())
    assert len(header.pop("code")) == 16
    assert header == {
        "headwater sim": 1, "process": "sp2", "file": "", "seeds": [1, 7], "seconds": 2, "faults": True,
        "scenario": "",
    }  # fmt: skip
    assert [line["seed"] for line in lines] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("torn", [b"", b'{"seed": 4, "title": "sp'])
def test_a_sweep_continued_after_a_kill_is_as_one_uninterrupted_sweep(torn, results, seeds_played, capsys):
    whole = hw("sim", *SWEEP, capsys=capsys)
    hw("sim", *SWEEP, "--resume", results, capsys=capsys)
    cut(results, 4, torn)
    seeds_played.clear()
    code, text, answer = hw("sim", "--resume", results, "--jobs", "1", capsys=capsys)
    assert seeds_played == [4, 5, 6]
    assert (code, answer) == (whole[0], whole[2])
    assert text.startswith("6 histories of sp2, seeds 1 to 6: all hold\n")
    assert "without the 3 histories recorded before" in text
    assert [json.loads(line)["seed"] for line in results.read_text().splitlines()[1:]] == [1, 2, 3, 4, 5, 6]


def test_a_finished_sweep_is_only_summarised(results, seeds_played, capsys):
    whole = hw("sim", *SWEEP, "--resume", results, capsys=capsys)
    seeds_played.clear()
    again = hw("sim", *SWEEP, "--resume", results, capsys=capsys)
    assert seeds_played == []
    assert (again[0], again[2]) == (whole[0], whole[2])


def test_a_recorded_failure_is_told_as_if_just_played(hasty_outbox, results, capsys):
    words = ("--process", "sp1", "--seeds", "1:4", "--jobs", "1", "--resume", results)
    first = hw("sim", *words, capsys=capsys)
    again = hw("sim", *words, capsys=capsys)
    assert first[0] == again[0] == 1
    assert again[2] == first[2]
    stories = [text[: text.index("3 histories of sp1")] for _, text, _ in (first, again)]
    assert "the end of its history:" in stories[0]
    assert stories[1] == stories[0]


OWN = """
from headwater.process import Average, Process
from headwater_beside import COUNT

p = Process("own", every=60)
air = p.source("air", "centi_c:i16", rate_hz=10, on="vent")
p.lake("own/mean", air >> Average(count=COUNT))
"""


@pytest.mark.parametrize("changed", ["own", "headwater_beside"])
def test_a_users_file_is_continued_until_it_changes(changed, results, tmp_path, monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "headwater_beside", raising=False)
    (tmp_path / "headwater_beside.py").write_text("COUNT = 10\n")
    own = tmp_path / "own.py"
    own.write_text(OWN)
    words = ("sim", own, "--seeds", "1:3", "--seconds", "1", "--jobs", "1", "--resume", results)
    whole = hw(*words, capsys=capsys)
    cut(results, 2)
    assert hw("sim", "--resume", results, "--jobs", "1", capsys=capsys)[2] == whole[2]
    with open(tmp_path / (changed + ".py"), "a") as module:
        module.write("# changed\n")
    code, _, answer = hw("sim", "--resume", results, capsys=capsys)
    assert code == 2
    assert "has changed since this sweep began" in answer["error"]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--process", "sp1"], "it records --process sp2, not --process sp1"),
        (["FILE"], "it records --process sp2, not "),
        (["--seeds", "1:8"], "it records --seeds 1:7, not --seeds 1:8"),
        (["--seed", "1"], "it records --seeds 1:7, not --seeds 1:2"),
        (["--seconds", "3"], "it records --seconds 2, not --seconds 3"),
        (["--no-faults"], "it records a sweep with faults, not --no-faults"),
    ],
)
def test_other_arguments_than_the_recorded_ones_are_refused(words, what, results, capsys):
    hw("sim", *SWEEP, "--resume", results, capsys=capsys)
    before = results.read_bytes()
    words = [str(example("sp1")) if word == "FILE" else word for word in words]
    code, _, answer = hw("sim", *words, "--resume", results, capsys=capsys)
    assert code == 2
    assert what in answer["error"]
    assert results.read_bytes() == before


def test_changed_code_is_refused(results, monkeypatch, capsys):
    hw("sim", *SWEEP, "--resume", results, capsys=capsys)
    monkeypatch.setattr(record, "PLAYED", (*record.PLAYED, "cli.py"))
    code, _, answer = hw("sim", *SWEEP, "--resume", results, capsys=capsys)
    assert code == 2
    assert "has changed since this sweep began, so it cannot be continued: start again" in answer["error"]


def test_a_damaged_line_before_the_last_is_refused(results, capsys):
    hw("sim", *SWEEP, "--resume", results, capsys=capsys)
    cut(results, 3, b"{}\n")
    code, _, answer = hw("sim", *SWEEP, "--resume", results, capsys=capsys)
    assert code == 2
    assert "line 4 is damaged: delete that line" in answer["error"]


def test_a_file_of_a_running_sweep_is_refused(results, capsys):
    with record.Record(str(results), record.Sweep("sp2", "", range(1, 7), 2, True)):
        code, _, answer = hw("sim", *SWEEP, "--resume", results, capsys=capsys)
    assert code == 2
    assert "another sweep is writing to it" in answer["error"]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_an_interrupt_keeps_what_is_done_and_says_how_to_continue(jobs, results):
    command = [sys.executable, "-m", "headwater_tools", "sim", "--process", "sp2", "--seconds", "2"]
    command += ["--seeds", "1:100001", "--jobs", jobs, "--resume", str(results)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(("edge", "tools", "gateway"))}
    with subprocess.Popen(
        command,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        until = time.monotonic() + 60
        while time.monotonic() < until and not (results.exists() and results.read_bytes().count(b"\n") > 3):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    done = results.read_bytes().count(b"\n") - 1
    assert done >= 3
    assert err.splitlines()[-2:] == [
        "%d of 100,000 histories are recorded; continue with: hw sim --resume %s" % (done, results),
        "hw: interrupted",
    ]


# ---- what a sweep prints


def outcome(seed, errors=(), **drawn):
    return Outcome(
        Job(seed), "sp1", list(errors), {}, {kind.replace("_", " "): n for kind, n in drawn.items()}
    )


@pytest.fixture
def clock(monkeypatch):
    """The time that progress lines are written by, in a list of one number."""
    now = [1000.0]
    monkeypatch.setattr(sim.time, "monotonic", lambda: now[0])
    return now


def test_progress_without_a_terminal_is_a_line_now_and_then(clock, capsys):
    progress = sim._Progress(2000, [outcome(seed) for seed in range(400)])
    for seed in range(400, 412):
        clock[0] += 1
        progress(outcome(seed, ["lost"] if seed == 401 else []))
    assert capsys.readouterr().err.splitlines() == [
        "405 of 2,000 histories, 1 fail, about 27 min left",
        "410 of 2,000 histories, 1 fail, about 26 min left",
    ]


def test_progress_on_a_terminal_overwrites_its_line(clock, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    progress = sim._Progress(3, [])
    for seed in range(3):
        clock[0] += 20
        progress(outcome(seed))
    progress.clear()
    assert capsys.readouterr().err == (
        "\r1 of 3 histories, 0 fail, about 40 s left\033[K"
        "\r2 of 3 histories, 0 fail, about 20 s left\033[K"
        "\r3 of 3 histories, 0 fail\033[K"
        "\r\033[K"
    )


def test_an_estimate_is_as_exact_as_it_deserves():
    times = [sim.duration(s) for s in (0.2, 89, 90, 360, 5399, 5400, 36_000, 172_800)]
    assert times == ["1 s", "89 s", "2 min", "6 min", "90 min", "1.5 h", "10.0 h", "2 days"]


def test_a_sweep_tells_in_how_many_histories_each_fault_was_drawn():
    outcomes = [outcome(seed, power_cut=3, partition=seed % 2, kill=seed < 1) for seed in range(200)]
    assert sim.drawn_lines(outcomes) == [
        "  drawn: power cut 100 % (200), partition 50 % (100), kill <1 % (1)"
    ]


def test_the_drawn_faults_are_wrapped_between_two_of_them():
    kinds = {"fault number %d" % n: 1 for n in range(10, 17)}
    lines = sim.drawn_lines([Outcome(Job(seed), "sp1", [], {}, kinds) for seed in (1, 2)])
    assert lines == [
        "  drawn: fault number 10 100 % (2), fault number 11 100 % (2), fault number 12 100 % (2),",
        "         fault number 13 100 % (2), fault number 14 100 % (2), fault number 15 100 % (2),",
        "         fault number 16 100 % (2)",
    ]


def test_a_single_history_tells_how_often_each_fault_was_drawn():
    assert sim.drawn_lines([outcome(1, partition=2, power_cut=5)]) == ["  drawn: power cut 5, partition 2"]
    assert sim.drawn_lines([outcome(1)]) == []


def test_what_came_of_the_faults_is_told_by_itself():
    assert sim.drawn_lines([outcome(1, **{"power cut": 2, "input reopened": 1})]) == [
        "  drawn: power cut 2",
        "  came of it: input reopened 1",
    ]


def test_json_tells_histories_and_times_of_each_fault(results, monkeypatch, capsys):
    run = Scenario.run

    def drawing(self):
        result = run(self)
        result.drawn = {"power cut": self.seed, "partition": self.seed % 2}
        return result

    monkeypatch.setattr(Scenario, "run", drawing)
    expected = {"power cut": {"histories": 6, "times": 21}, "partition": {"histories": 3, "times": 3}}
    for _ in range(2):
        _, text, answer = hw("sim", *SWEEP, "--resume", results, capsys=capsys)
        assert answer["drawn"] == expected
        assert "\n  drawn: power cut 100 % (6), partition 50 % (3)" in text
