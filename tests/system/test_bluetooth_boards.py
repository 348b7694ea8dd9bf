"""Boards with Bluetooth: the board's own program on the real NimBLE host, and the gateway's real service at
the other end of the virtual radio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from headwater.process import Process
from headwater_gateway import config
from headwater_gateway.bluetooth import ways
from headwater_gateway.bluetooth.radio import BleakRadio
from headwater_gateway.keys import make
from headwater_gateway.service import Service
from headwater_gateway.web.http import make_token
from headwater_tools.boards.virtual import VirtualBoard
from headwater_tools.radio.adapter import adapter
from headwater_tools.radio.bleak_backend import Client, Scanner
from headwater_tools.radio.station import Station

pytestmark = pytest.mark.bluetooth

PATIENCE_S = 180  # this machine starves processes for seconds
GATEWAY = "F0:00:00:00:00:FE"
TOML = """
[mqtt]
tls = false
user = ""
password_file = ""
port = 1
[http]
port = 0
[bluetooth]
enabled = true
"""


class Site:
    """The gateway runs in the thread of the radio."""

    def __init__(self, folder: Path, station: Station, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.station = folder, station
        self.boards: dict[str, VirtualBoard] = {}
        self.t0_us = time.time_ns() // 1000 - 1_000_000
        self.monkeypatch = monkeypatch

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.station.run(work)

    async def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "gateway.toml"
        file.write_text(TOML)
        make(self.folder / "secrets" / "master.key")
        make_token(self.folder / "secrets" / "token")
        device, _ = await adapter(self.station.radio, GATEWAY)
        radio = BleakRadio("", Scanner.of(device), Client.of(device))
        self.monkeypatch.setattr(ways, "radio", lambda _adapter: radio)
        self.service = Service(config.read(file))
        await self.service.start()

    def board(self, name: str, **more: Any) -> VirtualBoard:
        number = self.station.do(lambda: self.service.boards.add(name).number)
        keys = self.service.keys
        place = self.folder / "boards" / name
        settings = {
            "broker": {},
            "bluetooth": {"enabled": True},
            "sensors": {"accel": {"driver": "wave", "t0_us": self.t0_us, "seed": 3}},
            "status_s": 1,
            **more,
        }
        board = VirtualBoard(
            name, place, settings, keys.board(number), heap="192k", sectors=64, radio=self.station
        )
        (place / "bluetooth.key").write_bytes(keys.bluetooth())
        self.boards[name] = board
        return board

    def until(self, holds: Callable[[], Any], what: str) -> Any:
        end = time.monotonic() + PATIENCE_S
        while True:
            found = self.station.do(holds)
            if found:
                return found
            assert time.monotonic() < end, "%s\n%s" % (what, self.consoles())
            time.sleep(0.05)

    def consoles(self) -> str:
        parts = ["%s:\n  %s" % (b.name, "\n  ".join(list(b.lines)[-25:])) for b in self.boards.values()]
        return "\n".join([*parts, repr(self.station.do(lambda: self.service.ways and self.service.ways.view()))])

    def taken(self, lake: str) -> int:
        return sum(end.taken for end in self.service.ends.all.values() if end.lake == lake)

    def close(self) -> None:
        for board in self.boards.values():
            board.kill()
        self.run(self.service.stop())


@contextmanager
def made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with Station() as station:
        site = Site(folder, station, monkeypatch)
        site.run(site.start())
        try:
            yield site
        finally:
            site.close()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with made(tmp_path, monkeypatch) as found:
        yield found


def plan() -> bytes:
    p = Process("motion", checkpoints="ecoc", every=200, batch=50, batch_ms=250, level="local")
    p.host("chest", heap_kb=256)
    p.lake("motion/accel", p.source("accel", "x:i16 y:i16 z:i16", rate_hz=50, on="chest"))
    return bytes(p.encode())


def test_a_board_without_a_network_loses_nothing_when_power_fails(site: Site) -> None:
    board = site.board("chest")
    board.start()
    site.run(site.service.deploy(plan()))
    site.until(lambda: site.taken("motion/accel") > 100, "nothing arrives")
    for _ in range(2):
        before = site.station.do(lambda: site.taken("motion/accel"))
        board.kill()
        board.start()
        site.until(lambda: site.taken("motion/accel") > before + 100, "nothing more arrives")  # noqa: B023
    board.stop_sensors()
    accepted = lambda: sum(row.n for row in board.accepted())  # noqa: E731
    site.until(lambda: site.taken("motion/accel") >= accepted(), "not everything arrives")
    assert site.taken("motion/accel") == accepted()
