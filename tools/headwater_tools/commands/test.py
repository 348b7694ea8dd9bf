"""`hw test`: all tests, under CPython and under 32-bit MicroPython.

`--quick` chooses short tests that need neither Spark, broker, browser nor radio; `--ble` all of Bluetooth,
with the sweeps that a plain run leaves out; `--install` those that use the package index.
"""

from __future__ import annotations

import argparse
import ast
import os
import sys
from pathlib import Path
from typing import Any

from .. import environment
from ..environment import ROOT, class_archive
from ..errors import UserError

SUMMARY = "run all tests, under CPython and under 32-bit MicroPython (arguments go to pytest)"
REST = True

WORKERS_MAX = 3

ROOTS = ("tests/support", "tests", "tools", "gateway", "cloud")

# By the markers that pyproject.toml registers. Without a choice, all but the installation and sweeps run.
CHOICES = {
    "--quick": "not (spark or broker or browser or bluetooth or slow or sweep or install)",
    "--ble": "bluetooth",
    "--install": "install",
}
OTHERWISE = "not (install or sweep)"
QUICK_FOLDERS = ("tests/unit", "tests/board")
# Tests with an S3 server: heavy, so they run only on request.
S3 = "--s3"
S3_TESTS = ROOT / "tests" / "s3"

# What tests import of each group of packages.
PACKAGES = {
    "bluetooth": {"bumble"},
    "board": {"esptool", "littlefs", "serial"},
    "judge": {"neurokit2"},
    "gateway": {
        "aiohttp",
        "bleak",
        "cryptography",
        "headwater_gateway",
        "paho",
        "prometheus_client",
        "pyarrow",
    },
    "lake": {
        "delta",
        "deltalake",
        "headwater_cloud",
        "matplotlib",
        "nbclient",
        "nbformat",
        "pandas",
        "pyspark",
    },
}

# pytest's exit codes: no failure; failures; stopped; its own error; bad usage; nothing collected.
EXIT_CODES = {0: 0, 1: 1, 2: 1, 3: 1, 4: 2, 5: 2}
OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")


class Counter:
    """A pytest plugin that keeps the numbers of the closing line."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(OUTCOMES, 0)
        self.failed: list[str] = []
        self.interrupted = False

    def pytest_keyboard_interrupt(self, excinfo: Any) -> None:
        # pytest raises its own kind to stop a run for other reasons.
        self.interrupted = excinfo.type is KeyboardInterrupt

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for outcome in OUTCOMES:
            self.counts[outcome] = len(terminalreporter.stats.get(outcome, []))
        for outcome in ("failed", "error"):
            self.failed += [report.nodeid for report in terminalreporter.stats.get(outcome, [])]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "hw test [--json] [--quick | --ble | --install | --s3] "
        "[pytest arguments: -q, -x, -k WORDS, -m MARKERS, FILE, FILE::TEST ...]"
    )
    parser.description = (
        "%s. --quick: unit and board tests without Spark, broker, browser, radio and long histories. --ble: "
        "all tests with Bluetooth, of which a plain run leaves out the sweeps. --install: the distributions "
        "with all that they need, from the package index. --s3: tests with an S3 server, which fetch 690 MB "
        "at first use." % SUMMARY
    )


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    import pytest

    words = [_absolute(word) for word in args.rest]
    os.chdir(ROOT)
    selected = any(os.path.isabs(word) for word in words) or S3 in words or "-n" in words
    words = chosen(words)
    if S3 in words:
        words.remove(S3)
        if not any(os.path.isabs(word) for word in words):
            words.append(str(S3_TESTS))
    if not any(word.startswith(str(S3_TESTS)) for word in words):
        words += ["--ignore", str(S3_TESTS)]
    needed = groups(words)
    for group in needed:
        environment.ensure(group)
    _start_quickly("lake" in needed and "--quick" not in args.rest)
    # One more than cores: many tests wait for what other processes do.
    workers = min(WORKERS_MAX, (os.cpu_count() or 1) + 1)
    if not selected and not {"--pdb", "--collect-only", "--co"} & set(words):
        words = ["-n", str(workers), "--dist", "worksteal", *words]
    counter = Counter()
    code = int(pytest.main(["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), *words], [counter]))
    if counter.interrupted:
        raise KeyboardInterrupt
    return EXIT_CODES.get(code, 1), {**counter.counts, "failures": counter.failed}


def _start_quickly(spark: bool) -> None:
    """Tests start Python and Java hundreds of times. What a process can find ready is kept for it, bytecode
    of Python too where the user wants none: its folders are not part of the repository."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    if spark:
        os.environ[class_archive.VARIABLE] = class_archive.java_options()


def chosen(words: list[str]) -> list[str]:
    """pytest's arguments, with our choices of tests as expressions of markers."""
    choices = [word for word in words if word in CHOICES]
    rest = [word for word in words if word not in CHOICES]
    if len(choices) > 1 or choices and "-m" in rest:
        raise UserError("choose tests by one of --quick, --ble, --install and -m")
    if choices == ["--quick"] and not any(os.path.isabs(word) for word in rest):
        rest += list(QUICK_FOLDERS)
    if "-m" in rest:
        return rest
    return ["-m", CHOICES[choices[0]] if choices else OTHERWISE, *rest]


def groups(words: list[str]) -> list[str]:
    """The groups of packages that the named tests need; all of them if no file is named."""
    paths = [Path(w.partition("::")[0]) for w in words if os.path.isabs(w) and w != str(S3_TESTS)]
    if not paths or not all(path.is_file() for path in paths):
        return list(PACKAGES)
    seen: set[Path] = set()
    names: set[str] = set()
    while paths:
        path = paths.pop()
        if path not in seen:
            seen.add(path)
            found = _imported(path)
            names |= {name.partition(".")[0] for name in found}
            paths += [each for name in found for each in _files(name)]
    return [group for group, packages in PACKAGES.items() if names & packages]


def _imported(path: Path) -> set[str]:
    """Modules that a file imports anywhere, by their full names."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = _package(path)
            base = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names |= {module, *("%s.%s" % (module, alias.name) for alias in node.names)}
    return names


def _package(path: Path) -> list[str]:
    for root in ROOTS:
        if path.is_relative_to(ROOT / root):
            return list(path.relative_to(ROOT / root).parts[:-1])
    return []


def _files(name: str) -> list[Path]:
    """The files of a module of ours."""
    parts = name.split(".")
    found = []
    for root in ROOTS:
        path = ROOT.joinpath(root, *parts)
        found += [each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()]
    return found


def _absolute(word: str) -> str:
    """Paths are relative to the user's folder; pytest runs from the root."""
    path, colons, test = word.partition("::")
    return str(Path(path).resolve()) + colons + test if path and os.path.exists(path) else word
