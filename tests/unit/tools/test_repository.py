"""The repository keeps its promises: commands, exit codes, JSON, images, style and types."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from headwater_tools import bench, cli, environment
from headwater_tools.boards import micropython
from headwater_tools.commands import test as commands_test
from headwater_tools.environment import debian, running
from headwater_tools.errors import UserError


def hw(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        cli.main(words)
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


def answer(out: str) -> dict[str, object]:
    found = json.loads(out.splitlines()[-1])
    assert isinstance(found, dict)
    return found


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = hw(capsys, "--help")
    assert code == 0
    for name in ("test", "bench"):
        assert "hw %s " % name in out


def test_no_command_is_bad_use(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = hw(capsys)
    assert code == 2
    assert out.startswith("usage: hw COMMAND")


def test_unknown_command_is_one_message_and_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = hw(capsys, "teest")
    assert (code, out) == (2, "")
    assert err.startswith("hw: no command 'teest', did you mean 'test'? hw has audit, bench, ")
    assert len(err.splitlines()) == 1


def test_bad_use_with_json_ends_with_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = hw(capsys, "bench", "nonsense", "--json")
    assert code == 2
    assert str(answer(out)["error"]).startswith("no bench 'nonsense'")


def test_interrupt_ends_with_one_line_and_130(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(words: list[str]) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise TypeError("a library that breaks while it cleans up")

    monkeypatch.setattr(cli, "_command", interrupted)
    code, out, err = hw(capsys, "test")
    assert (code, out, err) == (130, "", "hw: interrupted\n")


def test_bench_without_a_name_lists_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = hw(capsys, "bench", "--json")
    assert code == 0
    assert list(answer(out)) == ["benches"]


def test_table_marks_what_misses_its_bar() -> None:
    measures = [
        bench.at_most("bytes a sample", 0.7, "B", 0.75),
        bench.at_least("speed", 0.4, "of loop", 0.5),
        bench.Measure("image", 30_123, "B"),
    ]
    assert bench.table("wire", measures) == [
        "    wire            value  unit      bar",
        "ok  bytes a sample    0.7  B        0.75",
        "NO  speed             0.4  of loop   0.5",
        "    image           30123  B",
    ]


def test_measure_speaks_json_with_null_where_there_is_no_bar() -> None:
    assert json.dumps(bench.Measure("image", 30_123, "B").as_json()) == (
        '{"name": "image", "value": 30123, "unit": "B", "bar": null, "ok": true}'
    )


def test_failing_step_says_what_failed_and_what_to_do() -> None:
    with pytest.raises(UserError) as trouble:
        running.run([sys.executable, "-c", "raise SystemExit('no index')"], "installing x", "check the index")
    assert str(trouble.value) == "installing x failed:\n  no index\nWhat to do: check the index"


def test_debian_mirror_is_found_in_both_kinds_of_source_list() -> None:
    stanza = "# note\nTypes: deb deb-src\nURIs: http://mirror.example/debian\nSuites: bookworm x\n"
    assert debian.stanzas(stanza) == [
        {"types": "deb deb-src", "uris": "http://mirror.example/debian", "suites": "bookworm x"}
    ]
    lines = "deb-src z z z\n"
    lines += "deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian bookworm main contrib # us"
    assert debian.one_line_entries(lines) == [
        {
            "types": "deb", "uris": "http://mirror.example/debian", "suites": "bookworm",
            "components": "main contrib ", "arch": "amd64", "signed-by": "/k.gpg",
        }
    ]  # fmt: skip


def test_every_group_has_a_lock_with_hashes() -> None:
    for path in (*environment.LOCKS.values(), environment.S3_LOCK, environment.ZIG_LOCK):
        entries = [line for line in path.read_text().splitlines() if line[:1].isalnum()]
        assert entries
        assert all("==" in entry and entry.endswith("\\") for entry in entries)


def test_jars_of_s3_are_fetched_where_a_place_is_on_s3_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fetched: list[Path] = []
    monkeypatch.setattr(environment, "JARS", tmp_path)
    monkeypatch.setattr(environment, "_fetch_jars", lambda lock, what: fetched.append(lock))
    delta = environment.jars("/data/lake", "abfss://a@b/lake")
    assert not fetched
    s3 = environment.jars("/data/landing", "s3a://bucket/lake")
    assert fetched == [environment.S3_JARS_LOCK]
    assert s3[: len(delta)] == delta
    assert {path.name.rpartition("-")[0] for path in s3[len(delta) :]} >= {"hadoop-aws", "bundle"}
    for lock in (environment.JARS_LOCK, environment.S3_JARS_LOCK):
        assert all(len(digest) == 64 for _, _, digest in environment._jars_wanted(lock))


@pytest.mark.parametrize(
    "folder",
    ["edge/headwater", "gateway/headwater_gateway", "cloud/headwater_cloud", "tools/headwater_tools"],
)
def test_the_table_of_modules_names_each_and_none_that_is_gone(folder: str) -> None:
    root = environment.ROOT / folder
    section = (
        (environment.ROOT / "docs/architecture.md").read_text().split("\n### " + folder)[1].split("\n#")[0]
    )
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    named = re.findall(r"`([\w/*]+(?:\.py|/))`", "\n".join(rows))
    meant = {name: {*root.rglob(name), *environment.ROOT.glob(name)} for name in named}
    assert [name for name, paths in meant.items() if not paths] == []
    known = set().union(*meant.values())
    modules = [path for path in root.rglob("*.py") if path.name != "__init__.py"]
    assert [path for path in modules if not known & {path, *path.parents}] == []


def test_micropython_returns_what_a_script_prints() -> None:
    done = micropython.run("import sys\nprint(sys.argv[1], sys.maxsize)", ["x"])
    assert (done.returncode, done.stdout) == (0, "x 2147483647\n")


def test_micropython_has_no_more_heap_than_it_is_given() -> None:
    done = micropython.run("bytearray(70_000)", heap="64k")
    assert done.returncode == 1
    assert "MemoryError" in done.stderr
    assert micropython.run("bytearray(70_000)", heap="128k").returncode == 0


def test_source_that_does_not_compile_is_one_clear_error() -> None:
    with pytest.raises(UserError, match="script.py does not compile for MicroPython"):
        micropython.run("def")


def test_style_holds_everywhere() -> None:
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--quiet", "--output-format", "concise"]
    done = subprocess.run([*command, ".", "hw"], cwd=environment.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


# What `ruff format` has formatted. The whole tree is (".", "hw").
FORMATTED = (".", "hw")


def test_the_form_of_the_code_is_that_of_the_formatter() -> None:
    command = [sys.executable, "-m", "ruff", "format", "--check", "--no-cache", "--quiet", *FORMATTED]
    done = subprocess.run(command, cwd=environment.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_named_test_makes_the_packages_that_it_needs_and_no_others() -> None:
    def groups(*files: str) -> list[str]:
        return commands_test.groups([str(environment.ROOT / "tests" / file) for file in files])

    assert groups("board/test_log.py") == groups("unit/edge/test_check.py") == []
    assert groups("unit/edge/test_qrs.py") == ["judge"]
    assert groups("unit/gateway/test_changes.py") == ["gateway"]
    assert groups("unit/cloud/test_ranges.py") == ["lake"]
    assert groups("unit/edge/test_qrs.py", "unit/cloud/test_audit.py") == ["judge", "gateway", "lake"]
    assert groups("system/test_flash.py") == ["board"]
    assert groups() == groups("unit") == ["bluetooth", "board", "judge", "gateway", "lake"]
    assert groups("unit/tools/test_radio.py") == ["bluetooth", "gateway"]


def test_a_choice_of_tests_is_an_expression_of_markers() -> None:
    chosen = commands_test.chosen
    assert chosen(["-q"]) == ["-m", "not (install or sweep)", "-q"]
    quick = chosen(["--quick", "-x"])
    assert quick[0] == "-m" and quick[2:] == ["-x", "tests/unit", "tests/board"]
    for marker in ("spark", "broker", "browser", "bluetooth", "slow", "sweep", "install"):
        assert re.search(r"^not \(.*\b%s\b.*\)$" % marker, quick[1])
    assert chosen(["--install"]) == ["-m", "install"]
    assert chosen(["--ble", "-x"]) == ["-m", "bluetooth", "-x"]
    assert chosen(["-m", "spark"]) == ["-m", "spark"]
    file = str(environment.ROOT / "tests" / "unit" / "gateway" / "test_units.py")
    assert chosen(["--quick", file])[2:] == [file]
    for words in (["--quick", "--install"], ["--quick", "-m", "spark"]):
        with pytest.raises(UserError, match="by one of --quick, --ble, --install and -m"):
            chosen(words)


@pytest.mark.slow
def test_types_hold_everywhere() -> None:
    for group in environment.LOCKS:
        environment.ensure(group)
    done = subprocess.run(
        [sys.executable, "-m", "mypy"], cwd=environment.ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_hw_runs_from_any_folder(tmp_path: Path) -> None:
    done = subprocess.run([environment.ROOT / "hw", "--help"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: hw COMMAND")
