"""The four distributions: built, installed into an empty folder and run without the repository."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from headwater_tools import environment

FOLDERS = {
    "headwater": "edge",
    "headwater_gateway": "gateway",
    "headwater_cloud": "cloud",
    "headwater_tools": "tools",
}
PROCESS = """
from headwater.process import Process
p = Process("one")
p.lake("one/air", p.source("air", "c:i16", rate_hz=1, on="vent"))
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Distribution -> its wheel, built without the network."""
    out = tmp_path_factory.mktemp("wheels")
    folders = [str(environment.ROOT / folder) for folder in FOLDERS.values()]
    pip("wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(out), *folders)
    found = {path.name.partition("-")[0]: path for path in out.glob("*.whl")}
    assert sorted(found) == sorted(FOLDERS)
    return found


@pytest.fixture(scope="module")
def installed(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheels install, and nothing else."""
    target = tmp_path_factory.mktemp("installed")
    pip("install", "--no-deps", "--no-index", "--target", str(target), *map(str, wheels.values()))
    return target


def pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=environment.ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def run(installed: Path, folder: Path, words: Sequence[str | Path], bare: bool = True) -> tuple[int, str]:
    """Run something with what is installed: `bare` without any other package, else with the libraries that
    the distributions need. Its exit code, and what it printed."""
    python = [sys._base_executable, "-S"] if bare else [sys.executable]  # type: ignore[attr-defined]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    env |= {"PYTHONPATH": str(installed), "XDG_CACHE_HOME": str(folder / "cache")}
    done = subprocess.run(
        [*python, *map(str, words)], env=env, cwd=folder, capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stdout + done.stderr


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())


def test_all_have_the_version_of_the_repository_and_name_what_they_need(wheels: dict[str, Path]) -> None:
    needs = {}
    for name, wheel in wheels.items():
        found = metadata(wheel)
        assert found["Name"].replace("-", "_") == name
        assert found["Version"] == environment.version() and found["License-Expression"] == "Apache-2.0"
        assert found["Requires-Python"] == ">=3.11"
        needs[name] = found.get_all("Requires-Dist") or []
    ours = "headwater==" + environment.version()
    assert needs["headwater"] == []
    assert {ours, "aiohttp", "cryptography"} <= set(needs["headwater_gateway"])
    assert {"pyspark==4.2.0", "deltalake"} <= set(needs["headwater_cloud"])
    assert not {"nbclient", ours} & set(needs["headwater_cloud"])
    assert set(needs["headwater_tools"]) == {ours, ours.replace("==", "-gateway==")}


def test_a_wheel_holds_every_file_of_its_package_and_the_licence(wheels: dict[str, Path]) -> None:
    for name, wheel in wheels.items():
        folder = environment.ROOT / FOLDERS[name]
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", name],
            cwd=folder,
            capture_output=True,
            text=True,
        )
        wanted = {line for line in listed.stdout.splitlines() if (folder / line).exists()}
        with zipfile.ZipFile(wheel) as archive:
            held = {n for n in archive.namelist() if ".dist-info/" not in n}
            assert archive.read(name + "/LICENSE") == (environment.ROOT / "LICENSE").read_bytes()
        assert wanted and wanted <= held
        extra = held - wanted
        templates = ["headwater_gateway/systemd/headwater-%s.service" % part for part in ("gateway", "host")]
        assert extra <= {name + "/LICENSE", *templates}


def test_the_runtime_and_the_process_builder_need_no_other_package(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(PROCESS)
    code, out = run(installed, tmp_path, ["-c", "import one; print(len(one.p.encode()) > 20)"])
    assert (code, out) == (0, "True\n")


def test_hw_checks_a_process_without_a_repository(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(PROCESS)
    code, out = run(installed, tmp_path, [installed / "bin" / "hw", "check", "one.py"])
    assert code == 0, out
    code, out = run(installed, tmp_path, [installed / "bin" / "hw", "--help"])
    assert code == 0 and "hw check " in out and "hw demo" not in out, out
    code, out = run(installed, tmp_path, [installed / "bin" / "hw", "demo"])
    assert code == 2 and out.startswith(
        "hw: hw demo needs the repository of Headwater; where its wheel is"
    ), out


def test_hw_simulates_without_a_repository(installed: Path, tmp_path: Path) -> None:
    code, out = run(installed, tmp_path, [installed / "bin" / "hw", "sim", "--process", "sp1", "--seed", "1"])
    assert code == 0, out


def test_the_gateway_is_a_program_of_its_own(installed: Path, tmp_path: Path) -> None:
    environment.ensure("gateway")
    program = installed / "bin" / "headwater-gateway"
    code, out = run(installed, tmp_path, [program, "--help"])
    assert code == 0 and "init" in out
    code, out = run(installed, tmp_path, [program, "init", "site", "--board", "vent", "--json"], bare=False)
    assert code == 0 and json.loads(out.splitlines()[-1])["boards"], out
    assert run(installed, tmp_path, [program, "check", "site"], bare=False)[0] == 0
    code, out = run(installed, tmp_path, [program, "state", "site"], bare=False)
    assert code == 2 and "no gateway" in out, out
    (tmp_path / "system").mkdir()
    code, out = run(installed, tmp_path, [program, "units", "site", "system"], bare=False)
    assert code == 0, out
    (unit,) = (tmp_path / "system").iterdir()
    text = unit.read_text()
    assert unit.name == "headwater-gateway.service" and "/opt/headwater" not in text
    assert "\nExecStart=%s run %s\n" % (program, tmp_path / "site") in text
    assert "\nReadWritePaths=%s\n" % (tmp_path / "site") in text


def test_a_host_needs_the_runtime_alone(installed: Path, tmp_path: Path) -> None:
    """The folder of a host is looked at by each of the three programs; the first has no other package."""
    home = tmp_path / "shed"
    home.mkdir()
    (home / "board.key").write_bytes(bytes(32))
    (home / "config.json").write_text('{"name": "shed", "broker": {"host": "10.0.0.2", "tls": false}}')
    for words in (
        ["-m", "headwater.linux", "shed", "--check"],
        [installed / "bin" / "headwater-gateway", "host", "shed", "--check"],
        [installed / "bin" / "hw", "host", "shed", "--check"],
    ):
        code, out = run(installed, tmp_path, words)
        assert code == 0 and "host shed, broker 10.0.0.2:8883, log of 16384 KB (to be made)" in out, out
    assert not (home / "flash.bin").exists()


def test_a_notebook_imports_the_lake(installed: Path, tmp_path: Path) -> None:
    environment.ensure("lake")
    script = "import headwater_cloud\nfrom headwater_cloud import Lake\n"
    script += "print(Lake.__name__, headwater_cloud.__file__)"
    code, out = run(installed, tmp_path, ["-c", script], bare=False)
    assert (code, out) == (0, "Lake %s\n" % (installed / "headwater_cloud" / "__init__.py"))


@pytest.mark.install
def test_the_distributions_install_with_all_that_they_need(wheels: dict[str, Path], tmp_path: Path) -> None:
    """Into a fresh environment, from the package index that pip is configured with."""
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([sys._base_executable, "-m", "venv", tmp_path / "env"], check=True)  # type: ignore[attr-defined]
    command = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", *wheels.values()]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    (tmp_path / "one.py").write_text(PROCESS)
    for words in (
        ["hw", "check", "one.py"],
        ["hw", "gateway", "init", "site"],
        ["headwater-gateway", "check", "site"],
        ["python", "-c", "from headwater_cloud import Lake"],
        ["python", "-m", "pip", "check"],
    ):
        program = str(python.with_name(words[0]))
        done = subprocess.run([program, *words[1:]], env=env, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, (words, done.stdout + done.stderr)


def test_the_console_script_of_the_gateway_takes_the_words_of_hw_gateway() -> None:
    def choices(words: list[str]) -> str:
        env = environment.variables()
        command = [sys.executable, "-c", *words]
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        found = re.search(r"\{[\w,]+\}", done.stdout)
        assert found, done.stdout + done.stderr
        return found[0]

    own = choices(["from headwater_gateway.command import main; main(['--help'])"])
    assert own == choices(["from headwater_tools.cli import main; main(['gateway', '--help'])"])
