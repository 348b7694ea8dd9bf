"""The gateway's radio: what `BleCarrier` asks of a machine (docs/architecture.md, Carriers), done with bleak.

Promises.
  - One scanner. It pauses while a connection is made: cheap adapters abort one of the two. When it has heard
    nothing for a while it starts again: BlueZ does not say that it was restarted, or its adapter replaced,
    and such a scanner hears nothing ever after.
  - Every call of bleak has a time limit, because BlueZ may never answer. No error of Bluetooth ends the
    gateway: boards that it reaches by network go on.
  - One connect at a time, each with a client of its own; a failure is tried again by its kind (errors.py),
    and ends in `failed`. `over` follows `connected`, always and once.
  - A value goes out in the order in which it was put. BlueZ takes writes without back pressure, so a
    connection holds as many values as the window has; more are refused, and offered again.
  - The event loop is that of the gateway, for its life. Nothing here blocks it.
  - A board that allows it is asked for LE Secure Connections before its connection carries anything. Where
    that fails it goes on without: frames are encrypted in any case.
Bonds are not made, and values of no bytes are never sent: BlueZ has trouble with both.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

from bleak import BleakClient, BleakScanner
from bleak.args.bluez import BlueZClientArgs, BlueZScannerArgs
from bleak.backends.client import BaseBleakClient
from bleak.backends.device import BLEDevice
from bleak.backends.scanner import AdvertisementData, BaseBleakScanner
from bleak.exc import BleakError
from headwater.offboard.interfaces import Readable
from headwater.protocol.ble_info import DOWN, INFO, INFO_BYTES, SERVICE, UP
from headwater.protocol.ble_info import pairs as may_pair
from headwater.protocol.ble_link import VALUE_MAX, WINDOW_MAX

from ..site_clock import mono_us
from .errors import PAUSES_S, REST_S, Hung, Kind, kind, words

_log = logging.getLogger("headwater.bluetooth")

CONNECT_S = 20.0  # to connect, with the discovery of services
PAIR_S = 4.0  # to agree on keys: a board leaves a connection that carries nothing for 5 s
PAIR_AGAIN_S = 600.0  # a board with which that failed is not asked for so long
LEAVE_S = 5.0  # to disconnect, before the client is given up
SCAN_S = 20.0  # for a scanner to start, or to stop
RENEW_S = 60.0  # a scanner that has heard nothing for as long starts again
SCAN_AGAIN_S = (1.0, 5.0, 15.0, 30.0)  # pauses after a scanner that does not start
DEVICES_MAX = 64  # boards heard that are remembered
ERRORS = (BleakError, OSError, EOFError, AssertionError)  # bleak on D-Bus raises each of them


class Carrier(Protocol):
    """What the radio tells: `protocol/ble_carrier.py`."""

    def connected(
        self, handle: int, central: bool, address: Any, size: int, data: Readable | None
    ) -> None: ...

    def sized(self, handle: int, size: int) -> None: ...

    def arrived(self, handle: int, value: Readable) -> None: ...

    def over(self, handle: int) -> None: ...

    def failed(self, address: Any) -> None: ...

    def seen(self, address: Any, data: Readable) -> None: ...

    def pump(self, now: int) -> int: ...


class _Connection:
    """One client, and the values that wait for it."""

    def __init__(self, handle: int, client: BleakClient) -> None:
        self.handle = handle
        self.client = client
        self.values: asyncio.Queue[bytes] = asyncio.Queue(WINDOW_MAX)
        self.size = 0
        self.info = b""
        self.task: asyncio.Task[None] | None = None
        self.gone = False

    def lost(self, _client: BleakClient) -> None:
        """bleak says so, perhaps before `connect` has returned."""
        self.gone = True
        self.end()

    def serve(self) -> None:
        """The task of the caller is what `end` ends."""
        self.task = asyncio.current_task()

    def end(self) -> None:
        task, self.task = self.task, None
        if task:
            task.cancel()

    def leaves(self) -> None:
        self.gone = True
        self.task = None

    def ready(self, info: bytes) -> None:
        self.info = info
        self.grows()

    def grows(self) -> bool:
        """Whether values may be longer from now on: BlueZ may know only after the first ones."""
        down = self.client.services.get_characteristic(DOWN)
        size = min(down.max_write_without_response_size if down else 0, VALUE_MAX)
        grown = size > self.size
        self.size = max(size, self.size)
        return grown


class BleakRadio:
    """`adapter`: like "hci1", or "" for the first one. The backends are bleak's own, but where tests have no
    adapter."""

    def __init__(
        self,
        adapter: str = "",
        scanner: type[BaseBleakScanner] | None = None,
        client: type[BaseBleakClient] | None = None,
    ) -> None:
        self._pairs = True
        self.paired = self.unpaired = 0  # connections for which LE Secure Connections were asked, and failed
        self._alone: dict[str, float] = {}  # address -> until when it is not asked
        self.problem = ""  # why there is no scanner, for people
        self.failures = dict.fromkeys(Kind, 0)
        self.heard = 0  # advertisements
        self._scanner, self._client = scanner, client
        self._scanner_args: BlueZScannerArgs = {"adapter": adapter} if adapter else {}
        self._client_args: BlueZClientArgs = {"adapter": adapter} if adapter else {}
        self._carrier: Carrier | None = None
        self._devices: dict[str, BLEDevice] = {}
        self._connections: dict[int, _Connection] = {}
        self._handles = 0
        self._listens = False
        self._connecting = False
        self._changed = asyncio.Event()
        self._quiet = asyncio.Event()  # no scanner runs
        self._quiet.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._due: asyncio.TimerHandle | None = None

    async def run(self, carrier: Carrier) -> None:
        """Serve this carrier until cancelled; then all connections end."""
        self._carrier = carrier
        try:
            await self._scan()
        finally:
            self._carrier = None
            if self._due:
                self._due.cancel()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def pairs(self, on: bool) -> None:
        """Whether boards that allow it are asked for LE Secure Connections."""
        self._pairs = on

    @property
    def connections(self) -> int:
        return len(self._connections)

    # ---- verbs of the carrier

    def put(self, handle: int, value: memoryview) -> bool:
        connection = self._connections.get(handle)
        if connection is None or connection.gone or connection.values.full():
            return False
        connection.values.put_nowait(bytes(value))
        return True

    def close(self, handle: int) -> None:
        connection = self._connections.get(handle)
        if connection:
            connection.end()

    def connect(self, address: Any) -> None:
        self._connecting = True
        self._changed.set()
        self._start(self._connect(address, self._devices[address]))

    def advertise(self, data: bytes, interval_ms: int) -> None:
        """The gateway is central alone."""

    def listen(self, on: bool) -> None:
        self._listens = on
        self._changed.set()

    def wake(self) -> None:
        """Something may be sent: after this turn of the loop."""
        self._plan(0)

    # ---- scanning

    async def _scan(self) -> None:
        failed = 0
        while True:
            self._changed.clear()
            if not self._listens or self._connecting:
                await self._changed.wait()
                continue
            try:
                await self._listen()
                failed = 0
            except Exception as error:  # such as AuthError of D-Bus, which bleak passes on
                self._report(error)
                pause = SCAN_AGAIN_S[min(failed, len(SCAN_AGAIN_S) - 1)]
                failed += 1
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._changed.wait()

    async def _listen(self) -> None:
        """Scan until it is to stop."""
        self._quiet.clear()
        try:
            # Others of this machine may scan too; bleak filters again.
            scanner = BleakScanner(self._hear, [SERVICE], bluez=self._scanner_args, backend=self._scanner)
            await _soon(scanner.start(), "start")
            try:
                if self.problem:
                    _log.info("the adapter works again")
                    self.problem = ""
                await self._hears()
            finally:
                await _soon(scanner.stop(), "stop")
        finally:
            self._quiet.set()

    async def _hears(self) -> None:
        """Until the scanner is to stop, or has heard nothing for long."""
        while self._listens and not self._connecting:
            heard = self.heard
            try:
                async with asyncio.timeout(RENEW_S):
                    await self._changed.wait()
            except TimeoutError:
                if heard == self.heard:
                    return
            self._changed.clear()

    def _report(self, error: BaseException) -> None:
        """Log each problem once, not once for each attempt."""
        found = kind(error)
        self.failures[found] += 1
        problem = "%s (%s)" % (found.value, words(error))
        if problem != self.problem:
            _log.warning("no scanner: %s; trying again", problem)
        self.problem = problem

    def _hear(self, device: BLEDevice, data: AdvertisementData) -> None:
        told = data.service_data.get(SERVICE)
        if told is None or self._carrier is None:
            return
        self.heard += 1
        if device.address not in self._devices and len(self._devices) >= DEVICES_MAX:
            del self._devices[next(iter(self._devices))]
        self._devices[device.address] = device
        self._carrier.seen(device.address, told)

    # ---- connecting

    async def _connect(self, address: str, device: BLEDevice) -> None:
        """Attempts until one succeeds, or the carrier is told that none did."""
        connection: _Connection | None = None
        try:
            await self._quiet.wait()
            connection = await self._attempts(device)
        finally:
            self._connecting = False
            self._changed.set()
            if connection is None and self._carrier:
                self._carrier.failed(address)
                self._plan(0)
        if connection:
            await self._serve(connection, address)

    async def _attempts(self, device: BLEDevice) -> _Connection | None:
        tried = 0
        while True:
            try:
                return await self._attempt(device)
            except ERRORS as error:
                found = kind(error)
                _log.debug("%s: %s (%s)", device.address, found.value, error)
            self.failures[found] += 1
            await asyncio.sleep(REST_S.get(found, 0))
            pauses = PAUSES_S.get(found, ())
            if tried >= len(pauses):
                return None
            await asyncio.sleep(pauses[tried])
            tried += 1

    async def _attempt(self, device: BLEDevice) -> _Connection:
        """A connection that is ready to carry values, or an error."""
        self._handles += 1
        handle = self._handles
        client = BleakClient(
            device, lambda client: connection.lost(client), [SERVICE], timeout=CONNECT_S,
            bluez=self._client_args, backend=self._client,
        )  # fmt: skip
        connection = _Connection(handle, client)
        try:
            async with asyncio.timeout(CONNECT_S):
                await client.connect()
                await client.start_notify(UP, lambda _, value: self._arrived(handle, value))
                info = await client.read_gatt_char(INFO)
            if may_pair(info):
                await self._pair(client, device.address)
            connection.ready(bytes(info[:INFO_BYTES]))
            if connection.gone or not client.is_connected:
                raise BleakError("disconnected")
            return connection
        except BaseException:
            await self._leave(client)
            raise

    async def _pair(self, client: BleakClient, address: str) -> None:
        now = asyncio.get_running_loop().time()
        if not self._pairs or self._alone.get(address, now) > now:
            return
        try:
            async with asyncio.timeout(PAIR_S):
                await client.pair()
            self.paired += 1
        except ERRORS as error:
            self.unpaired += 1
            if len(self._alone) >= DEVICES_MAX:
                self._alone.clear()
            self._alone[address] = now + PAIR_AGAIN_S
            _log.info(
                "%s: no LE Secure Connections (%s); its frames are encrypted all the same", address, error
            )

    async def _serve(self, connection: _Connection, address: str) -> None:
        """Write what is put, from `connected` to `over`."""
        connection.serve()
        self._connections[connection.handle] = connection
        try:
            if self._carrier and not connection.gone:
                self._carrier.connected(connection.handle, True, address, connection.size, connection.info)
                self._plan(0)
                await self._write(connection)
        except ERRORS as error:
            _log.debug("%s: %s", address, error)
        finally:
            connection.leaves()
            try:
                await self._leave(connection.client)
            finally:
                del self._connections[connection.handle]
                if self._carrier:
                    self._carrier.over(connection.handle)
                    self._plan(0)

    async def _write(self, connection: _Connection) -> None:
        while True:
            value = await connection.values.get()
            await connection.client.write_gatt_char(DOWN, value, response=False)
            if connection.grows() and self._carrier:
                self._carrier.sized(connection.handle, connection.size)

    async def _leave(self, client: BleakClient) -> None:
        with contextlib.suppress(*ERRORS):
            async with asyncio.timeout(LEAVE_S):
                await client.disconnect()

    def _arrived(self, handle: int, value: bytearray) -> None:
        if self._carrier and handle in self._connections:
            self._carrier.arrived(handle, value)
            self._plan(0)

    # ---- time

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _plan(self, us: int) -> None:
        """Let the carrier send, when so much time has passed at the latest."""
        loop = asyncio.get_running_loop()
        when = loop.time() + us / 1e6
        if self._due and not self._due.cancelled():
            if self._due.when() <= when:
                return
            self._due.cancel()
        self._due = loop.call_at(when, self._pump)

    def _pump(self) -> None:
        self._due = None
        if self._carrier:
            self._plan(self._carrier.pump(mono_us()))


async def _soon(call: Coroutine[Any, Any, None], what: str) -> None:
    """A call of the scanner, or Hung."""
    try:
        async with asyncio.timeout(SCAN_S) as limit:
            await call
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise Hung("it did not %s the scan within %.3g s" % (what, SCAN_S)) from error
