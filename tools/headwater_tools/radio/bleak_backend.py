"""A backend for bleak that speaks through a bumble host, so that code on bleak meets virtual boards.

    BleakScanner(..., backend=Scanner.of(device))
    BleakClient(..., backend=Client.of(device))

It keeps to what bleak promises and to what BlueZ does: services are discovered while it connects, a value has
at most 512 bytes, a write without response waits only for room in the controller, and every wait for the peer
ends with the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Self, TypeVar

from bleak.args import SizedBuffer
from bleak.assigned_numbers import CharacteristicPropertyName
from bleak.backends.characteristic import BleakGATTCharacteristic
from bleak.backends.client import BaseBleakClient, NotifyCallback
from bleak.backends.descriptor import BleakGATTDescriptor
from bleak.backends.device import BLEDevice
from bleak.backends.scanner import AdvertisementData, AdvertisementDataCallback, BaseBleakScanner
from bleak.backends.service import BleakGATTService, BleakGATTServiceCollection
from bleak.exc import BleakDeviceNotFoundError, BleakError, BleakGATTProtocolError
from bumble import att, core, hci
from bumble.core import AdvertisingData
from bumble.device import Advertisement, Connection, ConnectionParametersPreferences, Device, Peer
from bumble.gatt import Characteristic
from bumble.gatt_client import CharacteristicProxy

Answer = TypeVar("Answer")

PROPERTIES: tuple[tuple[int, CharacteristicPropertyName], ...] = (
    (0x01, "broadcast"),
    (0x02, "read"),
    (0x04, "write-without-response"),
    (0x08, "write"),
    (0x10, "notify"),
    (0x20, "indicate"),
    (0x40, "authenticated-signed-writes"),
    (0x80, "extended-properties"),
)
MTU = 517
MTU_BEFORE = 23  # what both ends may use before they have exchanged it
HEAD = 3  # bytes of a write or a notification before its value
VALUE_MAX = 512
SERVICES = {
    AdvertisingData.INCOMPLETE_LIST_OF_16_BIT_SERVICE_CLASS_UUIDS: 2,
    AdvertisingData.COMPLETE_LIST_OF_16_BIT_SERVICE_CLASS_UUIDS: 2,
    AdvertisingData.INCOMPLETE_LIST_OF_128_BIT_SERVICE_CLASS_UUIDS: 16,
    AdvertisingData.COMPLETE_LIST_OF_128_BIT_SERVICE_CLASS_UUIDS: 16,
}
SERVICE_DATA = {AdvertisingData.SERVICE_DATA_16_BIT_UUID: 2, AdvertisingData.SERVICE_DATA_128_BIT_UUID: 16}
NAMES = (AdvertisingData.SHORTENED_LOCAL_NAME, AdvertisingData.COMPLETE_LOCAL_NAME)


def _uuid(value: bytes | core.UUID) -> str:
    found = value if isinstance(value, core.UUID) else core.UUID.from_bytes(value)
    text = found.to_bytes(force_128=True)[::-1].hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def advertised(told: AdvertisingData, rssi: int, whole: object = None) -> AdvertisementData:
    """What an advertisement and its scan response tell, as bleak says it."""
    name: str | None = None
    services: list[str] = []
    makers: dict[int, bytes] = {}
    data: dict[str, bytes] = {}
    power: int | None = None
    for kind, value in told.ad_structures:
        if kind in NAMES:
            name = value.decode(errors="replace")
        elif kind in SERVICES:
            size = SERVICES[kind]
            services += [_uuid(value[i : i + size]) for i in range(0, len(value), size)]
        elif kind in SERVICE_DATA:
            size = SERVICE_DATA[kind]
            data[_uuid(value[:size])] = value[size:]
        elif kind == AdvertisingData.MANUFACTURER_SPECIFIC_DATA and len(value) >= 2:
            makers[int.from_bytes(value[:2], "little")] = value[2:]
        elif kind == AdvertisingData.TX_POWER_LEVEL:
            power = int.from_bytes(value, "little", signed=True)
    return AdvertisementData(name, makers, data, list(dict.fromkeys(services)), power, rssi, (whole,))


class Scanner(BaseBleakScanner):
    device: Device

    @classmethod
    def of(cls, device: Device) -> type[Self]:
        return type(cls.__name__, (cls,), {"device": device})

    def __init__(
        self,
        detection_callback: AdvertisementDataCallback | None,
        service_uuids: list[str] | None,
        scanning_mode: str,
        **_more: Any,
    ) -> None:
        super().__init__(detection_callback, service_uuids)
        self._active = scanning_mode == "active"

    async def start(self) -> None:
        self.seen_devices = {}
        self.device.on("advertisement", self._heard)
        await self.device.start_scanning(active=self._active)

    async def stop(self) -> None:
        self.device.remove_listener("advertisement", self._heard)
        await self.device.stop_scanning()

    def _heard(self, told: Advertisement) -> None:
        data = advertised(told.data, told.rssi, told)
        if self.is_allowed_uuid(data.service_uuids):
            address = told.address.to_string(False)
            found = self.create_or_update_device(address, address, data.local_name, told.address, data)
            self.call_detection_callbacks(found, data)


class Client(BaseBleakClient):
    device: Device
    parameters: ConnectionParametersPreferences | None = None

    @classmethod
    def of(cls, device: Device, parameters: ConnectionParametersPreferences | None = None) -> type[Self]:
        """`parameters`: the interval and the supervision timeout that a central asks for."""
        return type(cls.__name__, (cls,), {"device": device, "parameters": parameters})

    def __init__(self, address_or_ble_device: BLEDevice | str, **more: Any) -> None:
        super().__init__(address_or_ble_device, **more)
        known = address_or_ble_device if isinstance(address_or_ble_device, BLEDevice) else None
        # An address alone does not tell whether it is public or random.
        self._address: hci.Address | None = known.details if known else None
        self._name = known.name if known and known.name else self.address
        self._connection: Connection | None = None
        self._peer: Peer | None = None
        self._gone: asyncio.Future[int] | None = None
        self._subscribed: dict[int, Any] = {}

    @property
    def name(self) -> str:
        return self._name

    @property
    def mtu_size(self) -> int:
        return self._connection.att_mtu if self._connection else MTU_BEFORE

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    async def connect(self, pair: bool, **_more: Any) -> None:
        if self._connection:
            raise BleakError("already connected")
        address = self._address or await self._find()
        try:
            connection = await self.device.connect(
                address,
                connection_parameters_preferences=(
                    {hci.Phy.LE_1M: self.parameters} if self.parameters else None
                ),
                timeout=self._timeout,
            )
        except (core.TimeoutError, TimeoutError) as error:
            raise BleakDeviceNotFoundError(self.address, "no answer in %g s" % self._timeout) from error
        except core.ConnectionError as error:
            raise BleakError(str(error)) from error
        self._gone = asyncio.get_running_loop().create_future()
        self._connection = connection
        self._peer = Peer(connection)
        connection.on("disconnection", self._ended)
        try:
            async with asyncio.timeout(self._timeout):
                await self._ask(self._peer.request_mtu(MTU))
                if pair:
                    await self._ask(connection.pair())
                self.services = await self._ask(self._discover(self._peer))
        except BaseException:
            await self.disconnect()
            raise

    async def _find(self) -> hci.Address:
        heard: asyncio.Future[hci.Address] = asyncio.get_running_loop().create_future()

        def hear(found: BLEDevice, _data: AdvertisementData) -> None:
            if found.address == self.address and not heard.done():
                heard.set_result(found.details)

        scanner = Scanner.of(self.device)(hear, None, "active")
        await scanner.start()
        try:
            async with asyncio.timeout(self._timeout):
                return await heard
        except TimeoutError as error:
            raise BleakDeviceNotFoundError(self.address, "not heard in %g s" % self._timeout) from error
        finally:
            await scanner.stop()

    async def _discover(self, peer: Peer) -> BleakGATTServiceCollection:
        found = BleakGATTServiceCollection()
        for service in await peer.discover_services():
            ours = BleakGATTService(service, service.handle, _uuid(service.uuid))
            found.add_service(ours)
            for each in await service.discover_characteristics():
                names = [name for bit, name in PROPERTIES if int(each.properties) & bit]
                one = BleakGATTCharacteristic(
                    each, each.handle, _uuid(each.uuid), names, self._value_max, ours
                )
                found.add_characteristic(one)
                for descriptor in await each.discover_descriptors():
                    found.add_descriptor(
                        BleakGATTDescriptor(descriptor, descriptor.handle, _uuid(descriptor.type), one)
                    )
        return found

    def _value_max(self) -> int:
        return min(self.mtu_size - HEAD, VALUE_MAX)

    def _ended(self, reason: int) -> None:
        self._connection = self._peer = None
        self._subscribed.clear()
        if self._gone and not self._gone.done():
            self._gone.set_result(reason)
        if self._disconnected_callback:
            self._disconnected_callback()

    async def disconnect(self) -> None:
        connection, gone = self._connection, self._gone
        if connection and gone:
            try:
                await connection.disconnect()
            except core.BaseBumbleError:
                await asyncio.wait([gone], timeout=self._timeout)

    async def pair(self, *_args: Any, **_more: Any) -> None:
        connection = self._need()
        await self._ask(connection.pair())

    async def unpair(self) -> None:
        if self.device.keystore:
            await self.device.keystore.delete(str(self.address))

    def _need(self) -> Connection:
        if not self._connection:
            raise BleakError("Not connected")
        return self._connection

    async def _ask(self, request: Awaitable[Answer]) -> Answer:
        """A request to the peer, which ends when the connection does. bumble alone would wait for 30 s, and
        cancels some of its waits, which must not cancel the task that asked."""
        assert self._gone
        task = asyncio.ensure_future(request)
        try:
            waits: set[asyncio.Future[Any]] = {task, self._gone}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not task.done() or task.cancelled():
                raise BleakError("disconnected")
            return task.result()
        except att.ATT_Error as error:
            raise BleakGATTProtocolError(error.error_code) from error
        except core.BaseBumbleError as error:
            raise BleakError(str(error)) from error
        finally:
            if not task.done():
                task.cancel()

    async def read_gatt_char(
        self, characteristic: BleakGATTCharacteristic, *, use_cached: bool = False, **_more: Any
    ) -> bytearray:
        self._need()
        proxy: CharacteristicProxy[bytes] = characteristic.obj
        return bytearray(await self._ask(proxy.read_value()))

    async def read_gatt_descriptor(
        self, descriptor: BleakGATTDescriptor, *, use_cached: bool = False, **_more: Any
    ) -> bytearray:
        self._need()
        return bytearray(await self._ask(descriptor.obj.read_value()))

    async def write_gatt_char(
        self, characteristic: BleakGATTCharacteristic, data: SizedBuffer, response: bool
    ) -> None:
        connection = self._need()
        proxy: CharacteristicProxy[bytes] = characteristic.obj
        if not response:
            await self._room(connection)
        await self._ask(proxy.write_value(bytes(data), with_response=response))

    async def _room(self, connection: Connection) -> None:
        """Wait for room in the controller, as BlueZ's queue does."""
        queue = self.device.host.get_data_packet_queue(connection.handle)
        while queue and queue.pending >= queue.max_in_flight:
            flowed = asyncio.Event()
            queue.once("flow", flowed.set)
            await self._ask(flowed.wait())
        self._need()

    async def write_gatt_descriptor(self, descriptor: BleakGATTDescriptor, data: SizedBuffer) -> None:
        self._need()
        await self._ask(descriptor.obj.write_value(bytes(data), with_response=True))

    async def start_notify(
        self, characteristic: BleakGATTCharacteristic, callback: NotifyCallback, **_more: Any
    ) -> None:
        self._need()
        proxy: CharacteristicProxy[bytes] = characteristic.obj

        def take(value: bytes) -> None:
            callback(bytearray(value))

        self._subscribed[characteristic.handle] = take
        # As bleak asks of a backend: notifications where the characteristic has both.
        notify = bool(proxy.properties & Characteristic.Properties.NOTIFY)
        await self._ask(proxy.subscribe(take, prefer_notify=notify))

    async def stop_notify(self, characteristic: BleakGATTCharacteristic) -> None:
        self._need()
        take = self._subscribed.pop(characteristic.handle, None)
        await self._ask(characteristic.obj.unsubscribe(take))
