"""A Linux machine as the program of a board needs it (the head of `board/program.py`), and one boot there.

A boot ends by the exception `Ended`, where a board resets its chip: `program.live` never returns on a
board. A boot that ends leaves nothing: link, threads of drivers and file of the flash are closed.
"""

from __future__ import annotations

import faulthandler
import os
import secrets
import socket
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..board import program
from ..board.program import Node
from .drivers import ACTUATORS
from .flash_file import FlashFile

LINE_EVERY_S = 60


class Ended(Exception):
    """The boot has ended: the program starts again."""


class Machine:
    """`drivers`: name -> maker of a driver, which may have `close`."""

    def __init__(
        self, flash: FlashFile, drivers: Mapping[str, Callable[..., Any]], config: Mapping[str, Any]
    ) -> None:
        self.flash = flash
        self.drivers = {name: self._noted(maker) for name, maker in drivers.items()}
        self.actuators = {name: self._noted(maker) for name, maker in ACTUATORS.items()}
        self.made: list[Any] = []
        self.battery = config["battery"].get("path")
        self.watchdog_s = config["watchdog_s"]
        self.node: Node | None = None
        self.stopping = False  # a signal ends this host
        self.shown = ""  # of the last status line, what does not count seconds, entries or frames
        self.shown_s = 0.0

    def boot(self, config: Mapping[str, Any]) -> None:
        """One boot of the program, from its start to its end, whatever ends it."""
        self.node = _Node(dict(config), self)
        try:
            program.live(self.node)
        except Ended:
            pass
        finally:
            self.node = None
            faulthandler.cancel_dump_traceback_later()
            for driver in self.made:
                getattr(driver, "close", _nothing)()
            self.made.clear()

    def stop(self) -> None:
        """End this boot, and begin no other. May be called in a handler of a signal."""
        self.stopping = True

    def _noted(self, maker: Callable[..., Any]) -> Callable[..., Any]:
        def make(*of: Any) -> Any:
            driver = maker(*of)
            self.made.append(driver)
            return driver

        return make

    # What the program of a board needs of its hardware.

    def random(self) -> int:
        return secrets.randbits(64)

    async def online(self) -> None:
        return

    def battery_mv(self) -> int | None:
        """What the kernel gives is in microvolts."""
        if self.battery is None:
            return None
        try:
            return int(Path(self.battery).read_text()) // 1000
        except (OSError, ValueError):
            return None

    def rssi(self) -> int | None:
        return None

    def watch(self) -> None:
        """Called a few times a second. A program that hangs ends with its traceback, and what supervises this
        process starts it again."""
        if self.watchdog_s:
            faulthandler.dump_traceback_later(self.watchdog_s, exit=True)
        if self.stopping and self.node:
            self.node.restart()

    def say(self, line: str) -> None:
        """A board prints how it is every second. Here it does so when something has changed, and each
        minute; without its free heap, which is measured on a board alone."""
        head, found, rest = line.partition(" s, boot ")
        if found and head.startswith(self._name() + " "):
            words = rest.split(", ")
            same = ", ".join(words[:3])
            if same == self.shown and time.monotonic() - self.shown_s < LINE_EVERY_S:
                return
            self.shown, self.shown_s = same, time.monotonic()
            line = line.replace(", 0 free, ", ", ")
        print(line, flush=True)

    def _name(self) -> str:
        return str(self.node.name) if self.node else ""

    def sleep(self, ms: int) -> None:
        faulthandler.cancel_dump_traceback_later()
        end = time.monotonic() + ms / 1000
        while not self.stopping and time.monotonic() < end:
            time.sleep(min(0.2, max(0, end - time.monotonic())))
        raise Ended

    def restart(self) -> None:
        raise Ended


class _Node(Node):
    """On a board the interpreter prints tracebacks, and ends with its tasks. Here the link has to be
    closed."""

    def begin(self) -> None:
        try:
            super().begin()
        except Exception:
            traceback.print_exc()
            raise

    async def run(self) -> None:
        try:
            await super().run()
        except Exception:
            traceback.print_exc()
            link = self.client.task
            await self.client.close()
            if link:
                await link
            raise


def notify(state: str) -> None:
    """Tell systemd, if it started this process."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)


def _nothing() -> None:
    return
