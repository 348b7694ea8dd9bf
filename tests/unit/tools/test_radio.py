"""The virtual radio behaves as air and controllers do where bumble's own do not; bleak speaks through it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from bleak import BleakClient, BleakScanner
from bleak.backends.device import BLEDevice
from bleak.backends.scanner import AdvertisementData
from bleak.exc import BleakError
from bumble import core, hci
from bumble.core import AdvertisingData
from bumble.device import ConnectionParametersPreferences, Device
from bumble.gatt import Characteristic, CharacteristicValue, Service
from headwater_tools.radio.adapter import adapter
from headwater_tools.radio.air import Radio, Verdict
from headwater_tools.radio.antenna import Antenna
from headwater_tools.radio.bleak_backend import Client, Scanner

Result = TypeVar("Result")

pytestmark = pytest.mark.bluetooth

PATIENCE_S = 60  # this machine starves processes for seconds
CENTRAL, PERIPHERAL = "02:00:00:00:00:01", "02:00:00:00:00:02"
INTERVAL, TIMEOUT = 12, 100  # 15 ms and 1 s, in their units
SERVICE = "7d1e0001-0000-4000-8000-000000000000"
DOWN, UP = "7d1e0002-0000-4000-8000-000000000000", "7d1e0003-0000-4000-8000-000000000000"


def run(test: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    async def bounded() -> Result:
        async with asyncio.timeout(PATIENCE_S):
            return await test()

    return asyncio.run(bounded())


async def until(holds: Callable[[], object]) -> None:
    while not holds():
        await asyncio.sleep(0.005)


class Host:
    """What a host sees at HCI, and says there."""

    def __init__(self, radio: Radio, name: str, address: str) -> None:
        self.packets: list[hci.HCI_Packet] = []
        self.antenna = Antenna(name, radio, address, sink=self)

    def on_packet(self, packet: bytes) -> None:
        self.packets.append(hci.HCI_Packet.from_bytes(packet))

    def say(self, packet: hci.HCI_Packet) -> None:
        self.antenna.on_packet(bytes(packet))

    def seen(self, kind: type[hci.HCI_Packet]) -> list[Any]:
        return [packet for packet in self.packets if isinstance(packet, kind)]

    async def sees(self, kind: type[hci.HCI_Packet], count: int = 1) -> Any:
        await until(lambda: len(self.seen(kind)) >= count)
        return self.seen(kind)[-1]

    def advertise(self, data: bytes = b"\x02\x01\x06", response: bytes = b"", interval: int = 32) -> None:
        self.say(
            hci.HCI_LE_Set_Advertising_Parameters_Command(
                advertising_interval_min=interval,
                advertising_interval_max=interval,
                advertising_type=hci.HCI_LE_Set_Advertising_Parameters_Command.AdvertisingType.ADV_IND,
                own_address_type=hci.OwnAddressType.PUBLIC,
                peer_address_type=hci.OwnAddressType.PUBLIC,
                peer_address=hci.Address.ANY,
                advertising_channel_map=7,
                advertising_filter_policy=0,
            )
        )
        self.say(hci.HCI_LE_Set_Advertising_Data_Command(advertising_data=data))
        self.say(hci.HCI_LE_Set_Scan_Response_Data_Command(scan_response_data=response))
        self.say(hci.HCI_LE_Set_Advertising_Enable_Command(advertising_enable=1))

    def scan(self, active: bool = True) -> None:
        self.say(
            hci.HCI_LE_Set_Scan_Parameters_Command(
                le_scan_type=int(active),
                le_scan_interval=16,
                le_scan_window=16,
                own_address_type=hci.OwnAddressType.PUBLIC,
                scanning_filter_policy=0,
            )
        )
        self.say(hci.HCI_LE_Set_Scan_Enable_Command(le_scan_enable=1, filter_duplicates=0))

    def connect(self, address: str = PERIPHERAL) -> None:
        peer = hci.Address(address, hci.Address.PUBLIC_DEVICE_ADDRESS)
        self.say(
            hci.HCI_LE_Create_Connection_Command(
                le_scan_interval=16,
                le_scan_window=16,
                initiator_filter_policy=0,
                peer_address_type=hci.Address.PUBLIC_DEVICE_ADDRESS,
                peer_address=peer,
                own_address_type=hci.OwnAddressType.PUBLIC,
                connection_interval_min=INTERVAL,
                connection_interval_max=INTERVAL,
                max_latency=0,
                supervision_timeout=TIMEOUT,
                min_ce_length=0,
                max_ce_length=0,
            )
        )

    async def connected(self, count: int = 1) -> hci.HCI_LE_Connection_Complete_Event:
        found = await self.sees(hci.HCI_LE_Connection_Complete_Event, count)
        assert isinstance(found, hci.HCI_LE_Connection_Complete_Event)
        return found

    def send(self, handle: int, *fragments: bytes) -> None:
        for i, fragment in enumerate(fragments):
            self.say(hci.HCI_AclDataPacket(handle, int(i > 0), 0, len(fragment), fragment))

    def received(self) -> list[tuple[int, bytes]]:
        return [(packet.pb_flag, packet.data) for packet in self.seen(hci.HCI_AclDataPacket)]

    def completed(self) -> int:
        return len(self.seen(hci.HCI_Number_Of_Completed_Packets_Event))


class Pair:
    """Two hosts on a radio, and the handles of their connection."""

    def __init__(self, **settings: Any) -> None:
        self.radio = Radio(**settings)
        self.central = Host(self.radio, "central", CENTRAL)
        self.peripheral = Host(self.radio, "peripheral", PERIPHERAL)

    async def join(self) -> tuple[int, int]:
        self.peripheral.advertise()
        self.central.connect()
        here, there = await self.central.connected(), await self.peripheral.connected()
        assert here.status == there.status == hci.HCI_ErrorCode.SUCCESS
        return here.connection_handle, there.connection_handle


def test_hosts_with_public_addresses_hear_each_other_in_the_fragments_that_were_sent() -> None:
    async def test() -> None:
        pair = Pair()
        here, there = await pair.join()
        pair.central.send(here, b"a" * 251, b"b" * 251, b"c" * 98)
        await until(lambda: len(pair.peripheral.received()) == 3)
        assert pair.peripheral.received() == [(2, b"a" * 251), (1, b"b" * 251), (1, b"c" * 98)]
        pair.peripheral.send(there, b"back")
        await until(pair.central.received)
        assert pair.central.received() == [(2, b"back")]

    run(test)


def test_of_two_that_ask_each_other_at_once_one_is_answered() -> None:
    async def test() -> None:
        pair = Pair()
        hosts = (pair.central, pair.peripheral)
        for host, address in zip(hosts, (PERIPHERAL, CENTRAL)):
            host.advertise()
            host.connect(address)
        radio = pair.radio
        await until(lambda: radio.between(pair.central.antenna, pair.peripheral.antenna))
        # One is told that its own connection came to nothing, and has that of the other.
        await until(lambda: sum(len(h.seen(hci.HCI_Disconnection_Complete_Event)) for h in hosts) == 1)
        handles = []
        for host in hosts:
            over = {e.connection_handle for e in host.seen(hci.HCI_Disconnection_Complete_Event)}
            told = host.seen(hci.HCI_LE_Connection_Complete_Event)
            assert len(told) == 1 + len(over)
            handles.append(told[-1].connection_handle)
        pair.central.send(handles[0], b"one")
        pair.peripheral.send(handles[1], b"two")
        await until(lambda: pair.central.received() and pair.peripheral.received())

    run(test)


def test_both_ends_are_told_the_parameters_that_the_central_asked_for() -> None:
    async def test() -> None:
        pair = Pair()
        await pair.join()
        for host in (pair.central, pair.peripheral):
            told = await host.connected()
            assert (told.connection_interval, told.supervision_timeout) == (INTERVAL, TIMEOUT)

    run(test)


def test_a_fragment_is_completed_only_when_a_connection_event_has_carried_it() -> None:
    async def test() -> None:
        pair = Pair(per_event=2)
        here, _ = await pair.join()
        pair.central.send(here, *[b"x"] * 5)
        rounds = []
        while pair.central.completed() < 5:
            rounds.append(pair.central.completed())
            await asyncio.sleep(0)
        # In steps of what an event carries, and never before the peer has it.
        assert set(rounds) <= {0, 1, 2, 3, 4} and rounds[0] == 0
        assert pair.radio.carried == 5 == len(pair.peripheral.received())

    run(test)


def test_a_lost_event_is_repeated_and_nothing_is_lost_inside_a_connection() -> None:
    async def test() -> None:
        pair = Pair(per_event=1)
        here, there = await pair.join()
        pair.radio.loss = 0.4
        sent = [b"%d" % i for i in range(40)]
        pair.central.send(here, *sent)
        pair.peripheral.send(there, *sent)
        await until(lambda: len(pair.peripheral.received()) == len(pair.central.received()) == 40)
        for host in (pair.central, pair.peripheral):
            assert [data for _, data in host.received()] == sent and host.completed() == 40
        air = pair.radio.between(pair.central.antenna, pair.peripheral.antenna)
        assert air and pair.radio.lost == air.lost > 0

    run(test)


def test_events_that_a_busy_machine_misses_are_counted() -> None:
    async def test() -> None:
        pair = Pair()
        here, _ = await pair.join()
        air = pair.radio.between(pair.central.antenna, pair.peripheral.antenna)
        assert air
        before = air.late
        pair.central.send(here, b"waits")
        await asyncio.sleep(0)  # the event is planned,
        time.sleep(5 * air.interval)  # and nothing runs when it is due
        await until(pair.peripheral.received)
        assert air.late - before >= 3

    run(test)


def test_silence_ends_a_connection_by_its_supervision_timeout_and_hides_advertising() -> None:
    async def test() -> None:
        pair = Pair()
        await pair.join()
        pair.radio.silence(pair.peripheral.antenna)
        for host in (pair.central, pair.peripheral):
            gone = await host.sees(hci.HCI_Disconnection_Complete_Event)
            assert gone.reason == hci.HCI_ErrorCode.CONNECTION_TIMEOUT_ERROR
        pair.peripheral.advertise()
        pair.central.scan()
        await asyncio.sleep(0.2)
        assert not pair.central.seen(hci.HCI_LE_Advertising_Report_Event)
        pair.radio.silence(pair.peripheral.antenna, False)
        await pair.central.sees(hci.HCI_LE_Advertising_Report_Event)

    run(test)


def test_who_is_back_in_time_keeps_its_connection_and_all_that_waited() -> None:
    async def test() -> None:
        pair = Pair()
        here, _ = await pair.join()
        pair.radio.silence(pair.peripheral.antenna)
        pair.central.send(here, b"waits")
        await asyncio.sleep(0.1)
        assert not pair.peripheral.received() and not pair.central.completed()
        pair.radio.silence(pair.peripheral.antenna, False)
        await until(pair.peripheral.received)
        await asyncio.sleep(1.2)
        assert not pair.central.seen(hci.HCI_Disconnection_Complete_Event)

    run(test)


def test_words_of_farewell_do_not_reach_who_is_out_of_range() -> None:
    async def test() -> None:
        pair = Pair()
        here, _ = await pair.join()
        pair.radio.silence(pair.peripheral.antenna)
        pair.central.say(hci.HCI_Disconnect_Command(connection_handle=here, reason=0x13))
        told = await pair.central.sees(hci.HCI_Disconnection_Complete_Event)
        gone = await pair.peripheral.sees(hci.HCI_Disconnection_Complete_Event)
        assert (told.reason, gone.reason) == (0x13, hci.HCI_ErrorCode.CONNECTION_TIMEOUT_ERROR)

    run(test)


@pytest.mark.parametrize("verdict, arrived", [(Verdict.CUT, 2), (Verdict.CUT_AFTER, 3)])
def test_a_connection_can_be_cut_at_a_chosen_fragment(verdict: Verdict, arrived: int) -> None:
    async def test() -> None:
        pair = Pair()
        here, _ = await pair.join()
        pair.radio.judge = lambda sender, receiver, data: verdict if data == b"2" else Verdict.PASS
        pair.central.send(here, *[b"%d" % i for i in range(5)])
        for host in (pair.central, pair.peripheral):
            await host.sees(hci.HCI_Disconnection_Complete_Event)
        assert len(pair.peripheral.received()) == arrived
        assert pair.central.completed() == 2  # the sender does not learn of the third in either case
        assert not pair.radio.connections

    run(test)


def test_a_reset_and_a_loss_of_power_end_advertising_and_are_found_out_by_timeout() -> None:
    async def test() -> None:
        pair = Pair()
        await pair.join()
        pair.peripheral.say(hci.HCI_Reset_Command())
        assert not pair.central.seen(hci.HCI_Disconnection_Complete_Event)
        await pair.central.sees(hci.HCI_Disconnection_Complete_Event)
        assert not pair.peripheral.antenna.le_connections
        pair.peripheral.advertise()
        pair.central.scan()
        await pair.central.sees(hci.HCI_LE_Advertising_Report_Event)
        pair.peripheral.antenna.power_off()
        await asyncio.sleep(0.1)
        before = len(pair.central.packets)
        await asyncio.sleep(0.2)
        assert len(pair.central.packets) == before

    run(test)


def test_a_connect_can_be_cancelled() -> None:
    async def test() -> None:
        pair = Pair()
        pair.central.connect()
        pair.central.say(hci.HCI_LE_Create_Connection_Cancel_Command())
        told = await pair.central.connected()
        assert told.status == hci.HCI_ErrorCode.UNKNOWN_CONNECTION_IDENTIFIER_ERROR
        # The host hears of its command first, and of the connection then.
        kinds = [type(packet) for packet in pair.central.packets]
        assert kinds.index(hci.HCI_Command_Complete_Event) < kinds.index(hci.HCI_LE_Connection_Complete_Event)
        pair.peripheral.advertise()
        await asyncio.sleep(0.2)
        assert len(pair.central.seen(hci.HCI_LE_Connection_Complete_Event)) == 1
        assert not pair.central.antenna.le_connections

    run(test)


def test_a_peer_that_does_not_hear_the_request_fails_to_be_established() -> None:
    async def test() -> None:
        pair = Pair()

        class GoesAway(Antenna):
            """A peer that leaves between its advertisement and the request to connect."""

            def create_le_connection(self, peer_address: hci.Address) -> None:
                pair.radio.silence(pair.peripheral.antenna)
                super().create_le_connection(peer_address)

        pair.central.antenna.__class__ = GoesAway
        pair.peripheral.advertise()
        pair.central.connect()
        gone = await pair.central.sees(hci.HCI_Disconnection_Complete_Event)
        assert gone.reason == hci.HCI_ErrorCode.CONNECTION_FAILED_TO_BE_ESTABLISHED_ERROR
        assert not pair.peripheral.seen(hci.HCI_LE_Connection_Complete_Event)

    run(test)


def test_two_have_one_connection_also_when_both_ask_for_it() -> None:
    async def test() -> None:
        pair = Pair()
        here, _ = await pair.join()
        pair.central.connect()
        refused = await pair.central.sees(hci.HCI_Command_Status_Event, 2)
        assert refused.status == hci.HCI_ErrorCode.CONNECTION_ALREADY_EXISTS_ERROR
        pair.central.advertise()
        pair.peripheral.connect(CENTRAL)
        await asyncio.sleep(0.2)
        assert len(pair.radio.connections) == 1
        pair.central.send(here, b"still")
        await until(pair.peripheral.received)

    run(test)


def test_a_scan_response_is_the_peers_own_and_only_for_who_asks() -> None:
    async def test() -> None:
        pair = Pair()
        passive = Host(pair.radio, "passive", "02:00:00:00:00:03")
        pair.central.scan()
        passive.scan(active=False)
        pair.peripheral.advertise(b"\x02\x01\x06", b"\x05\x09name")
        await pair.central.sees(hci.HCI_LE_Advertising_Report_Event, 2)
        await passive.sees(hci.HCI_LE_Advertising_Report_Event, 2)

        def told(host: Host) -> set[tuple[int, bytes]]:
            found = [packet.reports[0] for packet in host.seen(hci.HCI_LE_Advertising_Report_Event)]
            return {(int(report.event_type), bytes(report.data)) for report in found}

        assert told(pair.central) == {(0, b"\x02\x01\x06"), (4, b"\x05\x09name")}
        assert told(passive) == {(0, b"\x02\x01\x06")}

    run(test)


def test_advertising_keeps_its_interval_in_units_of_625_us() -> None:
    async def test() -> None:
        radio = Radio()
        pauses: list[float] = []
        loop = asyncio.get_running_loop()
        peripheral = Host(radio, "peripheral", PERIPHERAL)
        later = loop.call_later
        loop.call_later = lambda delay, *rest, **more: (pauses.append(delay), later(delay, *rest, **more))[1]  # type: ignore
        peripheral.advertise(interval=160)
        await until(lambda: sum(pause > 0.05 for pause in pauses) >= 3)
        assert all(0.1 <= pause <= 0.11 for pause in pauses if pause > 0.05)

    run(test)


# bleak through the radio


class Board:
    """A peripheral with a bumble host: what is written to DOWN comes back from UP."""

    def __init__(self, device: Device, antenna: Antenna) -> None:
        self.device, self.antenna = device, antenna
        self.written: list[bytes] = []
        down = Characteristic(
            DOWN,
            Characteristic.Properties.WRITE | Characteristic.Properties.WRITE_WITHOUT_RESPONSE,
            Characteristic.WRITEABLE,
            CharacteristicValue(write=self._write),
        )
        self.up: Characteristic[bytes] = Characteristic(
            UP,
            Characteristic.Properties.NOTIFY | Characteristic.Properties.READ,
            Characteristic.READABLE,
            b"up",
        )
        device.add_service(Service(SERVICE, [down, self.up]))

    async def _write(self, _connection: object, value: bytes) -> None:
        self.written.append(value)
        if value == b"hang":
            await asyncio.sleep(PATIENCE_S)
        await self.device.notify_subscribers(self.up, value)


async def site(loss: float = 0.0) -> tuple[Radio, Device, Board]:
    radio = Radio(loss=loss)
    gateway, _ = await adapter(radio, "F0:00:00:00:00:FE")
    device, antenna = await adapter(radio, "F0:00:00:00:00:01", "board")
    board = Board(device, antenna)
    device.advertising_data = bytes(
        AdvertisingData(
            [(AdvertisingData.COMPLETE_LIST_OF_128_BIT_SERVICE_CLASS_UUIDS, core.UUID(SERVICE).to_bytes())]
        )
    )
    told = core.UUID(SERVICE).to_bytes() + b"\1\2\3\4"
    device.scan_response_data = bytes(AdvertisingData([(AdvertisingData.SERVICE_DATA_128_BIT_UUID, told)]))
    await device.start_advertising(
        auto_restart=True, advertising_interval_min=30, advertising_interval_max=30
    )
    return radio, gateway, board


async def found(gateway: Device) -> tuple[BLEDevice, AdvertisementData]:
    heard: asyncio.Future[tuple[BLEDevice, AdvertisementData]] = asyncio.get_running_loop().create_future()

    def hear(device: BLEDevice, data: AdvertisementData) -> None:
        if data.service_data and not heard.done():
            heard.set_result((device, data))

    async with BleakScanner(hear, [SERVICE], backend=Scanner.of(gateway)):
        return await heard


def test_bleak_finds_a_board_and_exchanges_values_with_it() -> None:
    async def test() -> None:
        _, gateway, board = await site()
        device, data = await found(gateway)
        assert data.service_uuids == [SERVICE] and data.service_data == {SERVICE: b"\1\2\3\4"}
        values: list[bytes] = []
        async with BleakClient(device, backend=Client.of(gateway), timeout=PATIENCE_S) as client:
            assert client.mtu_size > 23
            up, down = client.services.get_characteristic(UP), client.services.get_characteristic(DOWN)
            assert up and down and up.properties == ["read", "notify"]
            assert bytes(await client.read_gatt_char(up)) == b"up"
            await client.start_notify(up, lambda _, value: values.append(bytes(value)))
            sent = [b"%d" % i * 100 for i in range(10)]
            for i, value in enumerate(sent):
                await client.write_gatt_char(down, value, response=bool(i % 2))
            await until(lambda: len(values) == 10)
            assert sorted(values) == sorted(board.written) == sorted(sent)
        assert not client.is_connected

    run(test)


def test_bleak_connects_to_an_address_that_it_has_to_look_for() -> None:
    async def test() -> None:
        _, gateway, board = await site()
        async with BleakClient("F0:00:00:00:00:01", backend=Client.of(gateway), timeout=PATIENCE_S) as client:
            assert client.is_connected

    run(test)


def test_nobody_at_an_address_is_told_after_the_time_given() -> None:
    async def test() -> None:
        radio = Radio()
        gateway, _ = await adapter(radio, "F0:00:00:00:00:FE")
        with pytest.raises(BleakError, match="not heard in 0.2 s"):
            await BleakClient("F0:00:00:00:00:01", backend=Client.of(gateway), timeout=0.2).connect()

    run(test)


def test_writes_without_response_wait_for_room_and_no_longer_than_the_connection() -> None:
    async def test() -> None:
        radio, gateway, board = await site()
        device, _ = await found(gateway)
        gone: list[object] = []
        client = BleakClient(device, gone.append, backend=Client.of(gateway), timeout=PATIENCE_S)
        await client.connect()
        down = client.services.get_characteristic(DOWN)
        assert down
        radio.silence(board.antenna)
        with pytest.raises(BleakError):
            for _ in range(100):
                await client.write_gatt_char(down, b"x" * 100, response=False)
        assert len(board.written) < 100
        await until(lambda: gone)
        assert not client.is_connected

    run(test)


def test_a_request_without_an_answer_ends_with_the_connection_and_cancels_nobody() -> None:
    async def test() -> None:
        radio, gateway, board = await site()
        device, _ = await found(gateway)
        parameters = ConnectionParametersPreferences(
            connection_interval_min=15, connection_interval_max=15, supervision_timeout=500
        )
        client = BleakClient(device, backend=Client.of(gateway, parameters), timeout=PATIENCE_S)
        await client.connect()
        down = client.services.get_characteristic(DOWN)
        assert down

        async def ask() -> str:
            try:
                await client.write_gatt_char(down, b"hang", response=True)
            except BleakError as error:
                return str(error)
            return "answered"

        asked = asyncio.create_task(ask())
        await until(lambda: board.written)
        radio.cut(board.antenna)
        assert await asked == "disconnected"
        await until(lambda: not client.is_connected)
        with pytest.raises(BleakError):
            await client.read_gatt_char(UP)

    run(test)


def test_a_new_client_connects_again_after_a_cut_also_with_loss() -> None:
    async def test() -> None:
        radio, gateway, board = await site(loss=0.2)
        for round in range(3):
            device, _ = await found(gateway)
            while True:
                client = BleakClient(device, backend=Client.of(gateway), timeout=PATIENCE_S)
                try:
                    await client.connect()
                    break
                except BleakError:
                    pass  # the request itself may be lost: 0x3E, as on hardware
            await client.write_gatt_char(DOWN, b"%d" % round, response=True)
            assert radio.cut(board.antenna) == 1
            await client.disconnect()
        assert board.written == [b"0", b"1", b"2"]

    run(test)
