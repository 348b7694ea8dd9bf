"""How the tests run.

`tests/board/test_*.py` hold plain functions that run twice: once here, and once each on 32-bit
MicroPython with a 64 KiB heap (a first line `# heap: 256k` asks for more; `-k board` chooses these).
All tests run in the root of the repository, so `open("tests/data/...")` works under both.
"""

from __future__ import annotations

import ast
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from headwater_tools.boards import micropython
from headwater_tools.environment import ROOT, class_archive
from headwater_tools.errors import UserError
from headwater_tools.image import builder
from hypothesis import settings

BOARD = Path(__file__).parent / "board"
SYSTEM = Path(__file__).parent / "system"

settings.register_profile("headwater", derandomize=True, deadline=None, max_examples=60, database=None)
settings.load_profile("headwater")


def pytest_configure(config: pytest.Config) -> None:
    os.chdir(ROOT)
    # Who runs in the background of a shell is told to ignore it, and would pass that on to what it starts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # `hw test` sets more.
    os.environ.setdefault(class_archive.VARIABLE, class_archive.QUICK)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items[:] = distributed(items)


def distributed(items: list[pytest.Item]) -> list[pytest.Item]:
    """The order in which three workers that begin with a third each, and then take from the end of what the
    others have left, end at the same time: long tests at the beginning of each third, short ones at the end.

    One begins with Spark, so the others start none; one with sites, which wait more than they compute; one
    with histories of the simulator. Files stay whole, for their fixtures.
    """
    marks: dict[Path, set[str]] = {}
    for item in items:
        marks.setdefault(item.path, set()).update(mark.name for mark in item.iter_markers())
    system = [item for item in items if SYSTEM in item.path.parents]
    system.sort(key=lambda item: "slow" not in marks[item.path])
    spark = [item for item in system if "spark" in marks[item.path]]
    sites = [item for item in system if "spark" not in marks[item.path]]
    others = [item for item in items if SYSTEM not in item.path.parents]
    slow = [item for item in others if "slow" in marks[item.path]]
    short = [item for item in others if "slow" not in marks[item.path]]
    order: list[pytest.Item] = []
    for part, long in enumerate((spark, sites, slow), 1):
        filling = max(0, part * len(items) // 3 - len(order) - len(long))
        order += long + short[:filling]
        short = short[filling:]
    return order + short


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.parent == BOARD and file_path.name.startswith("test_") and file_path.suffix == ".py":
        return BoardFile.from_parent(parent, path=file_path, name=file_path.name + "@micropython")
    return None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What a board carries, beside the result of every run."""
    try:
        sizes = builder.module_sizes()
    except UserError as trouble:
        terminalreporter.write_line(str(trouble))
        return
    operators = sum(size for inside, size in sizes.items() if "/operators/" in inside)
    core = sum(sizes.values()) - operators
    terminalreporter.write_line("board: %d bytes of .mpy, and %d of operators" % (core, operators))


class BoardFile(pytest.File):
    """The same file, as MicroPython runs it: one process for each test."""

    def collect(self) -> Iterator[pytest.Item]:
        source = self.path.read_text()
        first = source.split("\n", 1)[0]
        heap = first.partition(":")[2].strip() if first.startswith("# heap:") else micropython.HEAP
        for node in ast.parse(source, str(self.path)).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield BoardTest.from_parent(
                    self, name=node.name + "[board]", entry=node.name, heap=heap, line=node.lineno
                )


class BoardFailure(Exception):
    """What MicroPython printed where a test did not return."""


class BoardTest(pytest.Item):
    def __init__(self, *, entry: str, heap: str, line: int, **more: object) -> None:
        super().__init__(**more)  # type: ignore[arg-type]
        self.entry = entry  # not `function`: that name is pytest's
        self.heap = heap
        self.line = line

    def runtest(self) -> None:
        inside = self.path.name
        images = (micropython.image(), builder.build({inside: self.path}))
        done = micropython.start(images, self.path.stem + ":" + self.entry, heap=self.heap)
        if done.returncode:
            raise BoardFailure((done.stdout + done.stderr).strip() or "exit code %d" % done.returncode)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        if isinstance(excinfo.value, BoardFailure):
            return "on MicroPython, heap %s:\n%s" % (self.heap, excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.line - 1, "%s on MicroPython" % self.entry
