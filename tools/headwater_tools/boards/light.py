"""Boards by the dozen: the program of a board on CPython, with flash in memory, many in one process.

For loads and long runs, where the number of boards counts and not their heap. `kill` cuts the power, at any
await; the flash stays, and `start` brings the board back. `VirtualBoard` is closer to a real board.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any

from headwater.board import settings
from headwater.board.program import Node
from headwater.data.alphabet import Alphabet
from headwater.testing.cut_flash import CutFlash, PowerCut

from .on_board import board_sensors
from .virtual import Accepted, read_ledger


class Shown:
    """A buzzer or an LED: whether it is on."""

    def __init__(self, sounding: dict[str, bool], name: str, settings: dict[str, Any]) -> None:
        self.sounding = sounding
        self.name = name

    def set(self, on: bool) -> None:
        self.sounding[self.name] = on


class LightBoard:
    """`config` is the path of a board's configuration; on CPython certificates are PEM files. Paths in it
    are relative to the working directory."""

    def __init__(self, config: Path, sectors: int = 32) -> None:
        self.path = config
        self.config: dict[str, Any] = settings.load(str(config))
        self.failed: Exception | None = None  # the exception that ended the program of the board
        self.flash = CutFlash(sectors)
        self.drivers = {name: self._maker(kind) for name, kind in board_sensors.DRIVERS.items()}
        self.sounding: dict[str, bool] = {}  # its buzzer and its LED
        self.actuators = {name: partial(Shown, self.sounding, name) for name in ("buzzer", "led")}
        self.mv: int | None = None
        self.starts = 0
        self.node: Any = None
        self.task: asyncio.Task[None] | None = None
        self.lines: deque[str] = deque(maxlen=100)

    @property
    def powered(self) -> bool:
        return self.task is not None and not self.task.done()

    def start(self) -> None:
        """Power returns."""
        self.flash.revive()
        self.task = asyncio.create_task(self._lives(), name="board")

    async def kill(self) -> None:
        """Power fails. What was programmed stays."""
        if self.task:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
            self.task = None

    async def cut(self, operation: int, byte: int, kind: int) -> None:
        """Power fails in the flash operation after this number of others, as for `CutFlash.arm`."""
        self.flash.arm(self.flash.op + operation, byte, kind)
        while self.powered:
            await asyncio.sleep(0.02)

    def accepted(self) -> list[Accepted]:
        """What the sources accepted, if their settings name a ledger."""
        paths = {s["ledger"] for s in self.config["sensors"].values() if "ledger" in s}
        return [row for path in sorted(paths) for row in read_ledger(Path(path))]

    async def _lives(self) -> None:
        while True:
            self.starts += 1
            self.node = Node(settings.load(str(self.path)), self)
            try:
                self.node.begin()
                await self.node.run()
            except PowerCut:
                return
            except Exception as error:
                self.failed = error
                raise
            finally:
                client = self.node.client
                if client and client.task:
                    link = client.task
                    client.bad = ""
                    link.cancel()
                    await asyncio.gather(link, return_exceptions=True)

    def _maker(self, kind: Any) -> Any:
        def make(config: dict[str, Any], alphabet: Alphabet, rate_mhz: int, n: int) -> Any:
            driver = kind(config, alphabet, rate_mhz, n)
            driver.node = self.node
            names = [v.name for v in self.node.host.plan.vertices]
            driver.vertex = names.index(config["source"])
            return driver

        return make

    # What the program of a board needs of its hardware.

    def random(self) -> int:
        return secrets.randbits(64)

    async def online(self) -> None:
        return

    def battery_mv(self) -> int | None:
        return self.mv

    def rssi(self) -> int | None:
        return None

    def say(self, line: str) -> None:
        self.lines.append(line)

    def watch(self) -> None:
        return
