"""`hw test`: all tests, under CPython and under 32-bit MicroPython."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from .. import house
from ..house import ROOT

SUMMARY = "run all tests, under CPython and under 32-bit MicroPython (arguments go to pytest)"
REST = True

WORKERS_MAX = 2

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
    parser.usage = "hw test [--json] [pytest arguments: -q, -x, -k WORDS, FILE, FILE::TEST ...]"


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    import pytest

    words = [_absolute(word) for word in args.rest]
    os.chdir(ROOT)
    for group in ("judge", "gateway", "lake"):
        house.ensure(group)
    selected = any(os.path.isabs(word) for word in words) or "-n" in words
    workers = min(WORKERS_MAX, os.cpu_count() or 1)
    if workers > 1 and not selected and not {"--pdb", "--collect-only", "--co"} & set(words):
        words = ["-n", str(workers), "--dist", "worksteal", *words]
    counter = Counter()
    code = int(pytest.main(["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), *words], [counter]))
    if counter.interrupted:
        raise KeyboardInterrupt
    return EXIT_CODES.get(code, 1), {**counter.counts, "failures": counter.failed}


def _absolute(word: str) -> str:
    """Paths are meant from where the user stands; pytest runs from the root."""
    path, colons, test = word.partition("::")
    return str(Path(path).resolve()) + colons + test if path and os.path.exists(path) else word
