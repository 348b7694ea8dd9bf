"""A command of `hw` for tests, with everything that it starts: known by a variable in its environment, which
all of its children inherit, those without a parent too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from headwater_tools import environment

MARK = "HEADWATER_TEST_MARK"
PATIENCE_S = 180


class Command:
    """A command of `hw` in a process group of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.mark = ("%s=%s" % (MARK, uuid.uuid4())).encode()
        self.output = folder / "output.txt"
        name, _, value = self.mark.decode().partition("=")
        self.began = time.monotonic()
        with open(self.output, "w") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(environment.ROOT / "hw"), *words],
                cwd=folder,
                env={**environment.variables(), name: value},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def left(self) -> dict[int, str]:
        """Its processes that live, by their number: what they run."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark in (entry / "environ").read_bytes().split(b"\0"):
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
        return found

    def nothing_left(self) -> None:
        """The kernel ends those that asked to die with their parent, a moment after it."""
        end = time.monotonic() + PATIENCE_S
        while (left := self.left()) and time.monotonic() < end:
            time.sleep(0.05)
        assert not left, "left behind: %s\n%s" % (left, self.said())

    def runs(self, part: str) -> bool:
        return any(part in command for command in self.left().values())

    def until(self, what: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not what():
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < end, self.said()
            time.sleep(0.02)

    def interrupt(self) -> int:
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(PATIENCE_S)

    def said(self) -> str:
        return self.output.read_text(errors="replace")
