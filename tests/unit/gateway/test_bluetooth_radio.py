"""The gateway's radio, bleak on the virtual radio, with the carrier of Bluetooth at both ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from ble_board import PATIENCE_S, BleBoard, run, until
from bleak.backends.device import BLEDevice
from bleak.backends.scanner import AdvertisementData
from bleak.exc import BleakDBusError, BleakDeviceNotFoundError, BleakError
from bumble.device import Connection
from headwater.offboard.interfaces import Readable
from headwater.protocol import ble_carrier, ble_info
from headwater.protocol.ble_carrier import BleCarrier
from headwater_gateway.bluetooth import radio as bluetooth
from headwater_gateway.bluetooth.errors import Hung, Kind, kind
from headwater_gateway.bluetooth.radio import BleakRadio
from headwater_gateway.site_clock import mono_us
from headwater_tools.radio.adapter import adapter
from headwater_tools.radio.air import Radio, Verdict
from headwater_tools.radio.bleak_backend import Client, Scanner

pytestmark = pytest.mark.bluetooth

KEY = ble_info.tag_key(b"m" * 32)


class Carrier(BleCarrier):
    failures = 0  # connects that failed

    def failed(self, address: Any) -> None:
        self.failures += 1
        super().failed(address)


class Gateway:
    """The carrier of the gateway; each frame that arrives is answered, and is genuine."""

    def __init__(self, radio: BleakRadio, slots: int) -> None:
        self.radio = radio
        self.got: list[tuple[str, bytes]] = []
        self.most = 0
        self.carrier = Carrier(ble_info.GATEWAY, KEY, radio, self._take, slots=slots)

    def _take(self, _carrier: BleCarrier, sender: str, frame: Readable) -> bool:
        self.got.append((sender, bytes(frame)))
        self.carrier.send(sender, b"to " + bytes(frame))
        return True

    async def tick(self) -> None:
        while True:
            self.carrier.tick(mono_us())
            self.radio.wake()
            self.most = max(self.most, self.radio.connections)
            await asyncio.sleep(0.1)

    def frames(self, name: str) -> list[bytes]:
        return [frame for sender, frame in self.got if sender == name]


@asynccontextmanager
async def site(
    *names: str,
    slots: int = 4,
    loss: float = 0.0,
    scanner: type[Scanner] = Scanner,
    client: type[Client] = Client,
    pairing: bool = False,
) -> AsyncIterator[tuple[Radio, Gateway, list[BleBoard]]]:
    air = Radio(loss=loss)
    device, _ = await adapter(air, "F0:00:00:00:00:FE")
    radio = BleakRadio("", scanner.of(device), client.of(device))
    gateway = Gateway(radio, slots)
    gateway.carrier.knows(names)
    boards = [await BleBoard.make(air, name, KEY, pairing) for name in names]
    tasks = [asyncio.create_task(gateway.tick()), asyncio.create_task(radio.run(gateway.carrier))]
    try:
        yield air, gateway, boards
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for board in boards:
            board.off()


FRAMES = [bytes([i]) * (100 + 40 * i) for i in range(10)]


def test_a_board_that_waits_is_connected_to_served_and_left() -> None:
    async def test() -> None:
        async with site("chest") as (air, gateway, (chest,)):
            for frame in FRAMES:
                chest.say(frame)
            await until(lambda: len(chest.got) == len(FRAMES))
            assert gateway.frames("chest") == FRAMES
            assert chest.got == [b"to " + frame for frame in FRAMES]
            await until(lambda: not gateway.radio.connections)
            assert gateway.carrier.ended[ble_carrier.LEFT] == 1 == gateway.carrier.connects
            assert not air.connections and not chest.carrier.up

    run(test)


def test_a_cut_at_any_moment_is_followed_by_a_connection_with_a_new_client() -> None:
    async def test() -> None:
        async with site("chest", loss=0.1) as (air, gateway, (chest,)):
            chances = iter([True, False, False, True] * 3)
            seen = 0

            def judge(*_: object) -> Verdict:
                nonlocal seen
                seen += 1
                return Verdict.CUT if seen % 23 == 0 and next(chances, False) else Verdict.PASS

            air.judge = judge
            for frame in FRAMES:
                done = len(chest.got)
                while len(chest.got) == done:  # as the layers above do: what has no answer is said again
                    if not chest.waits:
                        chest.say(frame)
                    async with asyncio.timeout(PATIENCE_S):
                        for _ in range(200):
                            await asyncio.sleep(0.01)
                            if len(chest.got) > done:
                                break
            assert set(gateway.frames("chest")) == set(FRAMES)
            assert gateway.carrier.connects > 1
            ended = gateway.carrier.ended
            assert not any(ended[error] for error in range(1, ble_carrier.CLOSED))  # only the radio lost

    run(test)


def test_more_boards_than_slots_take_turns() -> None:
    async def test() -> None:
        names = ["b%d" % i for i in range(5)]
        async with site(*names, slots=2) as (_, gateway, boards):
            for board in boards:
                for frame in FRAMES[:3]:
                    board.say(frame)
            await until(lambda: all(len(board.got) == 3 for board in boards))
            assert gateway.most <= 2
            for name in names:
                assert gateway.frames(name) == FRAMES[:3]

    run(test)


def test_a_board_that_vanishes_holds_up_nobody_else() -> None:
    async def test() -> None:
        async with site("chest", "wrist") as (air, gateway, (chest, wrist)):
            chest.say(b"here")
            await until(lambda: gateway.frames("chest"))
            air.silence(chest.antenna)
            wrist.say(b"and here")
            await until(lambda: wrist.got)
            await until(lambda: not gateway.carrier.reaches("chest"))
            air.silence(chest.antenna, False)
            chest.say(b"back")
            await until(lambda: b"back" in gateway.frames("chest"))

    run(test)


def test_at_its_end_the_gateway_leaves_its_boards() -> None:
    async def test() -> None:
        async with site("chest") as (air, gateway, (chest,)):
            chest.say(b"x")
            await until(lambda: chest.got)
            assert gateway.radio.connections == 1
        assert not air.connections and not gateway.radio.connections

    run(test)


class Trouble(Scanner):
    """Its first start has trouble: the adapter is off."""

    starts = 0
    runs = False

    async def start(self) -> None:
        type(self).starts += 1
        if self.starts == 1:
            await self.fails()
        else:
            self.runs = True
            await super().start()

    async def fails(self) -> None:
        raise BleakError("No powered Bluetooth adapters found.")

    async def stop(self) -> None:
        if self.runs:
            await super().stop()


class Odd(Trouble):
    """... an error that bleak does not promise."""

    async def fails(self) -> None:
        raise ValueError("authentication failed")


class Hangs(Trouble):
    """... BlueZ does not answer."""

    async def fails(self) -> None:
        await asyncio.Event().wait()


class Deaf(Trouble):
    """... BlueZ was restarted, and scans no more."""

    async def fails(self) -> None:
        pass


@pytest.mark.parametrize(
    "scanner, found, problem",
    [
        (Trouble, Kind.ADAPTER, "the adapter is missing, off or not permitted (No powered"),
        (Odd, Kind.OTHER, "another error (authentication failed"),
        (Hangs, Kind.HUNG, "BlueZ does not answer: restart it (it did not start"),
        (Deaf, None, ""),
    ],
)
def test_a_scanner_with_trouble_is_reported_in_words_and_started_again(
    scanner: type[Trouble], found: Kind | None, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bluetooth, "SCAN_S", 0.5 if scanner is Hangs else 20.0)
    monkeypatch.setattr(bluetooth, "RENEW_S", 0.5 if scanner is Deaf else 60.0)

    async def test() -> None:
        air = Radio()
        device, _ = await adapter(air, "F0:00:00:00:00:FE")
        radio = BleakRadio("", scanner.of(device), Client.of(device))
        gateway = Gateway(radio, 4)
        gateway.carrier.knows(["chest"])
        chest = await BleBoard.make(air, "chest", KEY)
        chest.say(b"x")
        tasks = [asyncio.create_task(gateway.tick()), asyncio.create_task(radio.run(gateway.carrier))]
        if found:
            await until(lambda: radio.problem)
            assert radio.problem.startswith(problem)
            assert radio.failures[found] == 1
        await until(lambda: chest.got)
        assert radio.problem == ""
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        chest.off()

    run(test)


def test_a_board_that_many_strangers_shout_down_is_connected_to() -> None:
    class Flood(Scanner):
        async def stop(self) -> None:
            for i in range(100):
                told = AdvertisementData(
                    None, {}, {ble_info.SERVICE: b"....."}, [ble_info.SERVICE], 0, -60, ()
                )
                self.call_detection_callbacks(BLEDevice("02:00:00:00:00:%02X" % i, None, None), told)
            await super().stop()

    async def test() -> None:
        async with site("chest", scanner=Flood) as (_, gateway, (chest,)):
            chest.say(b"x")
            await until(lambda: chest.got)
            assert gateway.carrier.connects == 1 and not gateway.carrier.failures

    run(test)


@pytest.mark.parametrize(
    "error, expected",
    [
        (BleakDBusError("org.bluez.Error.Failed", ["le-connection-abort-by-local"]), Kind.ABORTED),
        (BleakDBusError("org.bluez.Error.InProgress", ["In Progress"]), Kind.ABORTED),
        (BleakDBusError("org.bluez.Error.NotReady", ["Resource Not Ready"]), Kind.ADAPTER),
        (FileNotFoundError(2, "No such file or directory"), Kind.ADAPTER),
        (BleakError("failed to discover services, device disconnected"), Kind.DROPPED),
        (BleakError("Connection Limit Exceeded"), Kind.SLOTS),
        (BleakDeviceNotFoundError("02:00", "Device with address 02:00 was not found."), Kind.AWAY),
        (TimeoutError(), Kind.SLOW),
        (Hung("it did not stop the scan within 20 s"), Kind.HUNG),
        (BleakError("Characteristic 7d1e0002 was not found!"), Kind.SERVICE),
        (BleakError("?"), Kind.OTHER),
    ],
)
def test_the_kind_of_an_error_decides_how_it_goes_on(error: BaseException, expected: Kind) -> None:
    assert kind(error) is expected


def test_no_scanner_runs_while_it_connects_and_one_connect_at_a_time() -> None:
    scans, connects = [0], [0]
    seen: list[tuple[int, int]] = []

    class Counted(Scanner):
        async def start(self) -> None:
            scans[0] += 1
            await super().start()

        async def stop(self) -> None:
            await super().stop()
            scans[0] -= 1

    class Slow(Client):
        async def connect(self, pair: bool, **more: Any) -> None:
            connects[0] += 1
            try:
                seen.append((scans[0], connects[0]))
                await super().connect(pair, **more)
                await asyncio.sleep(0.2)
                seen.append((scans[0], connects[0]))
            finally:
                connects[0] -= 1

    async def test() -> None:
        names = ["b%d" % i for i in range(3)]
        async with site(*names, scanner=Counted, client=Slow) as (_, _, boards):
            for board in boards:
                board.say(b"x")
            await until(lambda: all(board.got for board in boards))
            assert len(seen) >= 6 and set(seen) == {(0, 1)}

    run(test)


def test_a_board_that_allows_it_is_asked_for_le_secure_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bluetooth, "PAIR_S", 60.0)

    async def test() -> None:
        async with site("chest", pairing=True) as (_, gateway, (chest,)):
            encrypted: list[bool] = []

            def connected(link: Connection) -> None:
                link.on("connection_encryption_change", lambda: encrypted.append(bool(link.is_encrypted)))

            chest.device.on("connection", connected)
            chest.say(b"x")
            await until(lambda: chest.got)
            assert (gateway.radio.paired, gateway.radio.unpaired) == (1, 0) and encrypted == [True]
            gateway.radio.pairs(False)
            await until(lambda: not gateway.radio.connections)
            chest.say(b"y")
            await until(lambda: len(chest.got) == 2)
            assert (gateway.radio.paired, encrypted) == (1, [True])

    run(test)


def test_where_that_fails_it_goes_on_without_and_does_not_ask_again_soon() -> None:
    async def test() -> None:
        async with site("chest", pairing=True) as (_, gateway, (chest,)):
            chest.device.pairing_config_factory = lambda _connection: None  # type: ignore[assignment,return-value]
            for count in (1, 2):
                chest.say(b"%d" % count)
                await until(lambda: len(chest.got) == count)  # noqa: B023
                await until(lambda: not gateway.radio.connections)
            assert (gateway.radio.paired, gateway.radio.unpaired) == (0, 1)

    run(test)
