"""Boards with the real NimBLE host on the virtual radio, and bleak at its other end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from bleak import BleakClient, BleakScanner
from bleak.backends.device import BLEDevice
from bumble.device import Device
from headwater_tools.boards.virtual import VirtualBoard
from headwater_tools.radio.adapter import adapter
from headwater_tools.radio.bleak_backend import Client, Scanner
from headwater_tools.radio.station import Station, address_of

pytestmark = pytest.mark.bluetooth

ECHO = Path(__file__).parents[1] / "support" / "board_echo.py"
SERVICE = "7d1e0001-0000-4000-8000-000000000000"
DOWN, UP = "7d1e0002-0000-4000-8000-000000000000", "7d1e0003-0000-4000-8000-000000000000"
GATEWAY = "F0:00:00:00:00:FE"
PATIENCE_S = 60  # this machine starves processes for seconds


@pytest.fixture
def station() -> Iterator[Station]:
    with Station() as station:
        yield station


@pytest.fixture
def echo(station: Station, tmp_path: Path) -> Iterator[VirtualBoard]:
    board = VirtualBoard("echo", tmp_path / "echo", {}, b"k" * 32, program=(ECHO,), radio=station)
    board.start()
    yield board
    board.kill()


class Gateway:
    """What a test does with bleak, in the thread of the radio."""

    def __init__(self, station: Station, device: Device) -> None:
        self.station, self.device = station, device

    async def find(self, name: str = "echo") -> BLEDevice:
        async with asyncio.timeout(PATIENCE_S):
            return await self._find(name)

    async def _find(self, name: str) -> BLEDevice:
        found: asyncio.Future[BLEDevice] = asyncio.get_running_loop().create_future()

        def hear(device: BLEDevice, data: Any) -> None:
            if data.local_name == name and not found.done():
                found.set_result(device)

        async with BleakScanner(hear, [SERVICE], backend=Scanner.of(self.device)):
            return await found

    async def connect(self, lost: Callable[[BleakClient], None] | None = None) -> BleakClient:
        device = await self.find()
        client = BleakClient(device, lost, backend=Client.of(self.device), timeout=PATIENCE_S)
        await client.connect()
        return client


def with_gateway(station: Station, test: Callable[[Gateway], Coroutine[Any, Any, None]]) -> None:
    async def inside() -> None:
        device, antenna = await adapter(station.radio, GATEWAY)
        try:
            async with asyncio.timeout(2 * PATIENCE_S):
                await test(Gateway(station, device))
        finally:
            antenna.power_off()
            station.radio.remove_controller(antenna)

    station.run(inside())


async def until(holds: Callable[[], object]) -> None:
    while not holds():
        await asyncio.sleep(0.01)


async def exchange(client: BleakClient, count: int = 40) -> None:
    """Values of all sizes come back, in order."""
    back: list[bytes] = []
    await client.start_notify(UP, lambda _, value: back.append(bytes(value)))
    sent = [bytes([i]) * (1 + i * 6) for i in range(count)]
    for i, value in enumerate(sent):
        await client.write_gatt_char(DOWN, value, response=i % 4 == 0)
        await until(lambda: len(back) >= i - 4)  # noqa: B023  as many as the board notes
    await until(lambda: len(back) == count)
    assert back == sent


def test_bleak_finds_a_real_nimble_host_and_exchanges_values_with_it(
    station: Station, echo: VirtualBoard
) -> None:
    async def test(gateway: Gateway) -> None:
        client = await gateway.connect()
        assert client.address == address_of("echo")
        assert client.mtu_size == 256  # what NimBLE prefers, of the 517 that bleak's side offers
        await exchange(client)
        await client.disconnect()

    with_gateway(station, test)
    echo.wait_for("mtu 256", PATIENCE_S)
    echo.wait_for("left", PATIENCE_S)


def test_nothing_that_the_host_accepted_is_lost_while_it_refuses_more(
    station: Station, echo: VirtualBoard
) -> None:
    async def test(gateway: Gateway) -> None:
        station.radio.loss = 0.2
        client = await gateway.connect()
        values: list[bytes] = []
        await client.start_notify(UP, lambda _, value: values.append(bytes(value)))
        await client.write_gatt_char(DOWN, b"flood", response=True)
        await until(lambda: len(values) == 100)
        assert [int(value[:3]) for value in values] == list(range(100))
        await client.disconnect()

    with_gateway(station, test)
    refused = int(echo.wait_for("refused", PATIENCE_S).split()[1])
    assert refused > 0  # its buffers were full: the back pressure of a real host


def test_a_board_without_power_is_missed_after_the_supervision_timeout_and_comes_back(
    station: Station, echo: VirtualBoard
) -> None:
    async def test(gateway: Gateway) -> None:
        lost: list[BleakClient] = []
        client = await gateway.connect(lost.append)
        timeout = next(iter(station.radio.connections.values())).timeout
        killed = asyncio.get_running_loop().time()
        await asyncio.to_thread(echo.kill)
        await until(lambda: lost)
        assert asyncio.get_running_loop().time() - killed >= timeout
        assert not client.is_connected
        await asyncio.to_thread(echo.start)
        client = await gateway.connect()
        await exchange(client, 5)
        await client.disconnect()

    with_gateway(station, test)
    assert echo.starts == 2


def test_a_board_that_was_out_of_range_advertises_again(station: Station, echo: VirtualBoard) -> None:
    async def test(gateway: Gateway) -> None:
        client = await gateway.connect()
        station.radio.silence(station.antennas["echo"])
        await until(lambda: not client.is_connected)
        await until(lambda: "left" in echo.lines)
        station.radio.silence(station.antennas["echo"], False)
        client = await gateway.connect()
        await exchange(client, 5)
        assert station.radio.cut(station.antennas["echo"]) == 1
        await until(lambda: not client.is_connected)

    with_gateway(station, test)


ORPHAN = """
import sys, time
from pathlib import Path
from headwater_tools.boards.virtual import VirtualBoard
from headwater_tools.radio.station import Station
board = VirtualBoard("echo", Path(sys.argv[1]), {}, b"k" * 32, program=(Path(sys.argv[2]),), radio=Station())
board.start()
board.wait_for("advertises", 60)
print(board.pid(), flush=True)
time.sleep(600)
"""


def test_no_board_outlives_its_radio(tmp_path: Path) -> None:
    """Left alone, it would poll a line without a far end as fast as it can."""
    command = [sys.executable, "-c", ORPHAN, str(tmp_path), str(ECHO)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    end = time.monotonic() + PATIENCE_S
    while _lives(pid):
        assert time.monotonic() < end
        time.sleep(0.05)


def _lives(pid: int) -> bool:
    try:
        return Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_board_has_bluetooth_only_with_a_radio(tmp_path: Path) -> None:
    board = VirtualBoard("plain", tmp_path / "plain", {}, b"k" * 32, program=(ECHO,))
    board.start()
    try:
        board.wait_for("no module named 'bluetooth'", PATIENCE_S)
    finally:
        board.kill()
    assert os.listdir(tmp_path / "plain")
