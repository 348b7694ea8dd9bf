"""A controller behind a socket: the air outlives the host that has it, and peers hear nothing of its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from bumble.device import Connection, Device
from bumble.hci import HCI_ErrorCode
from headwater_tools.radio.adapter import adapter
from headwater_tools.radio.served import GATEWAY, device_at
from headwater_tools.radio.station import Station

pytestmark = pytest.mark.bluetooth

PATIENCE_S = 60  # this machine starves processes for seconds
PEER = "F0:00:00:00:00:01"


def bounded(work: Coroutine[Any, Any, None]) -> None:
    async def inside() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await work

    asyncio.run(inside())


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


class Peer:
    """A host in the thread of the station, which advertises."""

    def __init__(self, station: Station) -> None:
        self.links: list[Connection] = []
        self.ended: list[int] = []
        self.device = station.run(self._make(station))

    async def _make(self, station: Station) -> Device:
        device, _ = await adapter(station.radio, PEER, "peer")
        device.on("connection", self._connected)
        await device.start_advertising(auto_restart=True)
        return device

    def _connected(self, connection: Connection) -> None:
        self.links.append(connection)
        connection.on("disconnection", self.ended.append)


@asynccontextmanager
async def host(path: Path) -> AsyncIterator[Device]:
    """A host that ends without a word: its socket closes, as that of a process that is killed."""
    device = await device_at(path)
    try:
        yield device
    finally:
        device.host.hci_sink.transport.abort()
        await asyncio.sleep(0)  # which closes it


def test_a_host_that_dies_is_missed_after_the_supervision_timeout_and_may_come_back() -> None:
    async def dies() -> None:
        async with host(path) as device:
            await device.connect(PEER)

    with Station() as station:
        path, peer = station.serve(), Peer(station)
        for count in (1, 2):
            bounded(dies())
            until(lambda: len(peer.ended) == count)  # noqa: B023
        assert peer.ended == [HCI_ErrorCode.CONNECTION_TIMEOUT_ERROR] * 2
        until(lambda: GATEWAY not in station.antennas)
        assert len(peer.links) == 2


def test_a_new_host_takes_the_place_of_the_one_before() -> None:
    async def both() -> None:
        async with host(path) as first:
            await first.connect(PEER)
            before = station.antennas[GATEWAY]
            async with host(path) as second:
                assert station.antennas[GATEWAY] is not before
                await second.connect(PEER)

    with Station() as station:
        path, peer = station.serve(), Peer(station)
        bounded(both())
        until(lambda: len(peer.links) == 2)


def test_silence_belongs_to_the_place_and_outlives_the_host() -> None:
    async def hears(within_s: float) -> bool:
        async with host(path) as device:
            heard = asyncio.Event()
            device.on("advertisement", lambda _: heard.set())
            await device.start_scanning()
            try:
                async with asyncio.timeout(within_s):
                    return await heard.wait()
            except TimeoutError:
                return False

    async def both() -> None:
        assert not await hears(1)
        station.silence(GATEWAY, False)
        assert await hears(PATIENCE_S)

    with Station() as station:
        path = station.serve()
        Peer(station)
        station.silence(GATEWAY)
        bounded(both())
        assert station.cut("nobody") == 0
