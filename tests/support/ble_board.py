"""A board with Bluetooth in this process: the carrier of boards as a peripheral, over a bumble host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from bumble.core import UUID, AdvertisingData
from bumble.device import Connection, Device
from bumble.gatt import Characteristic, CharacteristicValue, Service
from headwater.offboard.interfaces import Readable
from headwater.protocol import ble_info
from headwater.protocol.ble_carrier import BleCarrier
from headwater_gateway.site_clock import mono_us
from headwater_tools.radio.adapter import adapter
from headwater_tools.radio.air import Radio
from headwater_tools.radio.antenna import Antenna
from headwater_tools.radio.station import address_of

TICK_S = 0.1
PATIENCE_S = 120  # this machine starves processes for seconds
LIST = AdvertisingData.COMPLETE_LIST_OF_128_BIT_SERVICE_CLASS_UUIDS
DATA = AdvertisingData.SERVICE_DATA_128_BIT_UUID


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await test()

    asyncio.run(bounded())


async def until(holds: Callable[[], object]) -> None:
    while not holds():
        await asyncio.sleep(0.01)


class BleBoard:
    """Frames that arrive are kept, and are genuine. `say` sends one to the gateway as soon as it can."""

    def __init__(
        self,
        name: str,
        key: bytes,
        device: Device,
        antenna: Antenna,
        longest: int = 512,
        pairing: bool = False,
    ) -> None:
        self.name, self.device, self.antenna = name, device, antenna
        self.got: list[bytes] = []
        self.waits: list[bytes] = []
        self.carrier = BleCarrier(name, key, self, self._take, longest=longest)
        self._links: dict[int, Connection] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        properties = Characteristic.Properties
        value: CharacteristicValue[bytes] = CharacteristicValue(write=self._written)
        down: Characteristic[bytes] = Characteristic(
            ble_info.DOWN, properties.WRITE_WITHOUT_RESPONSE, Characteristic.WRITEABLE, value
        )
        self.up: Characteristic[bytes] = Characteristic(
            ble_info.UP, properties.NOTIFY, Characteristic.READABLE, b""
        )
        info = ble_info.with_pairing(self.carrier.info) if pairing else self.carrier.info
        shown: Characteristic[bytes] = Characteristic(
            ble_info.INFO, properties.READ, Characteristic.READABLE, info
        )
        device.add_service(Service(ble_info.SERVICE, [down, self.up, shown]))
        device.on("connection", self._connected)
        self._ticks = asyncio.get_running_loop().create_task(self._run())

    @classmethod
    async def make(cls, radio: Radio, name: str, key: bytes, pairing: bool = False) -> BleBoard:
        address = "F" + address_of(name)[1:]
        return cls(name, key, *await adapter(radio, address, name), pairing=pairing)

    def say(self, frame: bytes) -> None:
        self.waits.append(frame)

    def off(self) -> None:
        self._ticks.cancel()
        self.antenna.power_off()

    async def _run(self) -> None:
        while True:
            now = mono_us()
            if self.waits and not self.carrier.reaches("g"):
                self.carrier.wanted("g", now)
            while self.waits and self.carrier.room("g") and self.carrier.send("g", self.waits[0]):
                del self.waits[0]
            self.carrier.tick(now)
            await asyncio.sleep(TICK_S)

    def _take(self, _carrier: BleCarrier, sender: str, frame: Readable) -> bool:
        self.got.append(bytes(frame))
        return True

    # What the radio reports

    def _connected(self, connection: Connection) -> None:
        self._links[connection.handle] = connection
        connection.on("disconnection", lambda _reason: self._over(connection.handle))
        connection.on("connection_att_mtu_update", lambda: self._sized(connection))
        self.carrier.connected(connection.handle, False, str(connection.peer_address), 20, None)

    def _sized(self, connection: Connection) -> None:
        self.carrier.sized(connection.handle, connection.att_mtu - 3)

    def _over(self, handle: int) -> None:
        del self._links[handle]
        self.carrier.over(handle)

    async def _written(self, connection: Connection, value: bytes) -> None:
        self.carrier.arrived(connection.handle, value)
        self.carrier.pump(mono_us())

    # Verbs of the carrier

    def put(self, handle: int, value: memoryview) -> bool:
        connection = self._links.get(handle)
        if connection is None:
            return False
        self._start(self.device.notify_subscriber(connection, self.up, bytes(value)))
        return True

    def close(self, handle: int) -> None:
        connection = self._links.get(handle)
        if connection:
            self._start(connection.disconnect())

    def connect(self, address: Any) -> None:
        raise AssertionError("this board is peripheral alone")

    def listen(self, on: bool) -> None:
        pass

    def advertise(self, data: bytes, interval_ms: int) -> None:
        uuid = UUID(ble_info.SERVICE).to_bytes()
        self.device.advertising_data = bytes(AdvertisingData([(AdvertisingData.FLAGS, b"\6"), (LIST, uuid)]))
        self.device.scan_response_data = bytes(AdvertisingData([(DATA, uuid + data)]))
        self._start(self._advertise(interval_ms))

    async def _advertise(self, interval_ms: int) -> None:
        await self.device.stop_advertising()
        if interval_ms:
            await self.device.start_advertising(
                auto_restart=True, advertising_interval_min=interval_ms, advertising_interval_max=interval_ms
            )

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the connection ended meanwhile: `over` tells
