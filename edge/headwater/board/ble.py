# The Bluetooth radio of a board: what BleCarrier asks of a machine (docs/architecture.md, Carriers), with
# the `bluetooth` of MicroPython.
#
# Its handler runs between any two bytecodes. So it only notes what happened, in a bounded queue, and `poll`
# does the rest. Connections, their ends, and the end of each step that this board began always find room, or
# the board starts again. Everything that another radio can send in any number is left out where the queue is
# full: a value, which ends its link (ble_link.py); an advertisement; an MTU; what a host says that it has,
# whose connection is then given up in time. So no stranger makes a board start again by sending fast.
# The board is peripheral and central at once. It connects to one host at a time, step by step: connection,
# MTU, service, characteristics, descriptor, INFO, subscription. What takes too long is cancelled to its end:
# NimBLE gives a connection that nobody waits for any more to the next attempt.

import time
from collections import deque

import bluetooth  # type: ignore[import-not-found]

from ..offboard.compat import TYPE_CHECKING, const
from ..protocol import ble_info

if TYPE_CHECKING:
    from typing import Any

    from ..protocol.ble_carrier import BleCarrier

# Events of `bluetooth`.
_JOINED = const(1)  # a central connected
_PARTED = const(2)
_WRITTEN = const(3)
_HEARD = const(5)
_SCANNED = const(6)  # the scan is over
_REACHED = const(7)  # this board connected, as central
_ENDED = const(8)  # ... or did not
_SERVICE = const(9)
_SERVICES = const(10)  # all of them
_CHARACTERISTIC = const(11)
_CHARACTERISTICS = const(12)
_DESCRIPTOR = const(13)
_DESCRIPTORS = const(14)
_READ = const(15)
_READ_DONE = const(16)
_WRITE_DONE = const(17)
_NOTIFIED = const(18)
_MTU = const(21)

# Events of which another radio may cause any number.
_SPARED = (_WRITTEN, _NOTIFIED, _HEARD, _MTU, _SERVICE, _CHARACTERISTIC, _DESCRIPTOR, _READ)

_NOTES_MAX = const(80)
_VALUES_MAX = const(48)  # of them: three windows; and what else may be left out
_SEEN_MAX = const(8)  # advertisements are noted up to here
_ANSWER = const(4)  # type of an advertisement: a scan response, which has the service data
_NOBODY = const(65535)  # the handle of a connection that was not made
_MTU_BYTES = const(247)
_HEAD = const(3)  # bytes of a packet before its value
_FIRST = const(20)  # bytes of a value before the MTU was exchanged
_TRIES = const(10)
_CONNECT_US = const(10000000)
_CANCEL_US = const(2000000)
_SCAN_US = const(100000)
_LISTEN_US = const(50000)
_FREE_BYTES = const(30000)  # NimBLE does not survive running out of memory
_CCCD = const(0x2902)
_NO_SCREEN = const(3)  # NoInputNoOutput


# Power the radio. A busy controller answers late.
def power() -> "Any":
    ble = bluetooth.BLE()
    for left in range(_TRIES - 1, -1, -1):
        try:
            ble.active(True)
            break
        except OSError:
            if not left:
                raise
            time.sleep(0.2)
    return ble


# Answer to LE Secure Connections, without keeping keys: stacks keep them badly. Nobody compares numbers, as
# there is no screen. False: this firmware cannot.
def _secure(ble: "Any") -> bool:
    try:
        ble.config(le_secure=True, bond=False, mitm=False, io=_NO_SCREEN)
    except (OSError, ValueError):
        return False
    return True


# Memory outside the heap of MicroPython, for connections; None: this machine does not say.
def _free_bytes() -> int | None:
    try:
        import esp32  # type: ignore[import-not-found]
    except ImportError:
        return None
    return sum([region[1] for region in esp32.idf_heap_info(esp32.HEAP_DATA)])


# The service data in a scan response, or b"".
def _told(data: bytes, service: bytes) -> bytes:
    at = 0
    while at + 1 < len(data):
        n = data[at]
        if data[at + 1] == 0x21 and data[at + 2 : at + 18] == service:
            return data[at + 18 : at + 1 + n]
        at += 1 + n
    return b""


# A connection that this board makes as central, step by step.
class _Call:
    def __init__(self, ble: "Any", address: "tuple[int, bytes]", now: int) -> None:
        self.ble = ble
        self.address = address
        self.due_us = now + _CONNECT_US  # it has to be ready by then, or to be over if it was given up
        self.given_up = False
        self.handle = _NOBODY
        self.start = self.end = self.down = self.up = self.info = self.cccd = 0  # handles
        self.size = _FIRST
        self.data = b""
        self.ready = False

    # Cancel it: its end comes as an event, or it is taken for ended.
    def give_up(self, now: int) -> None:
        self.given_up = True
        self.due_us = now + _CANCEL_US
        try:
            if self.handle == _NOBODY:
                self.ble.gap_connect(None)
            else:
                self.ble.gap_disconnect(self.handle)
        except OSError:
            pass

    # False: this host has not what it needs.
    def step(self, event: int, handle: int, value: "Any", more: "Any") -> bool:
        ble = self.ble
        if event == _REACHED:
            self.handle = handle
            ble.gattc_exchange_mtu(handle)
        elif event == _MTU:
            self.size = value - _HEAD
            ble.gattc_discover_services(handle, bluetooth.UUID(ble_info.SERVICE))
        elif event == _SERVICE:
            self.start = value
            self.end = more
        elif event == _SERVICES:
            if not self.start:
                return False
            ble.gattc_discover_characteristics(handle, self.start, self.end)
        elif event == _CHARACTERISTIC:
            if more == bytes(bluetooth.UUID(ble_info.DOWN)):
                self.down = value
            elif more == bytes(bluetooth.UUID(ble_info.UP)):
                self.up = value
            elif more == bytes(bluetooth.UUID(ble_info.INFO)):
                self.info = value
        elif event == _CHARACTERISTICS:
            if not (self.down and self.up and self.info):
                return False
            ble.gattc_discover_descriptors(handle, self.up, self.end)
        elif event == _DESCRIPTOR:
            if not self.cccd and more == bytes(bluetooth.UUID(_CCCD)):
                self.cccd = value
        elif event == _DESCRIPTORS:
            if not self.cccd:
                return False
            ble.gattc_read(handle, self.info)
        elif event == _READ:
            self.data = value
        elif event == _READ_DONE:
            if value:
                return False
            ble.gattc_write(handle, self.cccd, b"\1\0", 1)
        elif event == _WRITE_DONE:
            self.ready = not value
            return self.ready
        return True


class Radio:
    carrier: "BleCarrier"

    # pairing: a central may ask for LE Secure Connections.
    def __init__(self, pairing: bool = False) -> None:
        self.notes: "Any" = deque((), _NOTES_MAX)
        self.full = False  # something was not noted that has to be
        service = bluetooth.UUID(ble_info.SERVICE)
        self.shown = bytes(service)
        self.ble = ble = power()
        ble.irq(self._note)
        ble.config(mtu=_MTU_BYTES)
        self.pairs = pairing and _secure(ble)
        uuid = bluetooth.UUID
        down = (uuid(ble_info.DOWN), bluetooth.FLAG_WRITE | bluetooth.FLAG_WRITE_NO_RESPONSE)
        up = (uuid(ble_info.UP), bluetooth.FLAG_NOTIFY)
        about = (uuid(ble_info.INFO), bluetooth.FLAG_READ)
        ((self.down, self.up, self.info),) = ble.gatts_register_services(((service, (down, up, about)),))
        ble.gatts_set_buffer(self.down, _MTU_BYTES - _HEAD)
        self.writes: dict[int, int] = {}  # connection -> where its values are written; 0: this end notifies
        self.call: _Call | None = None
        self.data = b""
        self.interval_ms = 0
        self.listens = self.scans = False
        self.stale = False  # the advertisement is not what it should be
        self.now = 0

    # Serve this carrier from now on.
    def serve(self, carrier: "BleCarrier") -> None:
        self.carrier = carrier
        info = carrier.info
        self.ble.gatts_write(self.info, ble_info.with_pairing(info) if self.pairs else info)

    # ---- verbs of the carrier

    def put(self, handle: int, value: memoryview) -> bool:
        at = self.writes.get(handle)
        if at is None:
            return False
        try:
            if at:
                self.ble.gattc_write(handle, at, value, 0)
            else:
                self.ble.gatts_notify(handle, self.up, value)
        except OSError:
            return False  # no buffer (ENOMEM), or the connection is gone
        return True

    def close(self, handle: int) -> None:
        try:
            self.ble.gap_disconnect(handle)
        except OSError:
            pass  # it is over already, and that is noted

    def connect(self, address: "Any") -> None:
        self.call = call = _Call(self.ble, address, self.now)
        free = _free_bytes()
        if free is not None and free < _FREE_BYTES:
            call.give_up(self.now)
            return
        self._scan(False)
        try:
            self.ble.gap_connect(address[0], address[1], _CONNECT_US // 1000)
        except OSError:
            call.give_up(self.now)

    def advertise(self, data: bytes, interval_ms: int) -> None:
        self.data = data
        self.interval_ms = interval_ms
        self._show()

    def listen(self, on: bool) -> None:
        self.listens = on
        if not on:
            self._scan(False)

    # ---- events

    # Whatever is raised here would end all events.
    def _note(self, event: int, data: "Any") -> None:
        notes = self.notes
        n = len(notes)
        try:
            if event == _WRITTEN:
                if n < _VALUES_MAX:
                    notes.append((event, data[0], self.ble.gatts_read(data[1]), 0))
            elif event == _NOTIFIED:
                if n < _VALUES_MAX:
                    notes.append((event, data[0], bytes(data[2]), 0))
            elif event == _HEARD:
                if data[2] == _ANSWER and n < _SEEN_MAX:
                    found = _told(bytes(data[4]), self.shown)
                    if found:
                        notes.append((event, 0, found, (data[0], bytes(data[1]))))
            elif event in _SPARED and n >= _VALUES_MAX:
                pass
            elif n >= _NOTES_MAX:
                self.full = True
            elif event == _JOINED or event == _REACHED:
                notes.append((event, data[0], 0, (data[1], bytes(data[2]))))
            elif event == _SERVICE:
                notes.append((event, data[0], data[1], data[2]))
            elif event == _CHARACTERISTIC:
                notes.append((event, data[0], data[2], bytes(data[4])))
            elif event == _DESCRIPTOR:
                notes.append((event, data[0], data[1], bytes(data[2])))
            elif event == _READ:
                notes.append((event, data[0], bytes(data[2]), 0))
            elif event == _READ_DONE or event == _WRITE_DONE:
                notes.append((event, data[0], data[2], 0))
            elif event == _SCANNED:
                notes.append((event, 0, 0, 0))
            elif event in (_PARTED, _ENDED, _SERVICES, _CHARACTERISTICS, _DESCRIPTORS, _MTU):
                notes.append((event, data[0], data[1], 0))
        except MemoryError:
            if event not in _SPARED:
                self.full = True

    # To be called often. -> microseconds until it has to be called again at the latest.
    def poll(self, now: int) -> int:
        self.now = now
        notes = self.notes
        while notes:
            self._happened(*notes.popleft())
        if self.full:
            raise OSError("Bluetooth: events were lost")
        call = self.call
        if call and now >= call.due_us:
            if call.given_up:
                self._failed()
            else:
                call.give_up(self.now)
        if self.stale:
            self._show()
        if self.listens and not self.scans and not self.call:
            self._scan(True)
        return self.carrier.pump(now)

    def _happened(self, event: int, handle: int, value: "Any", more: "Any") -> None:
        carrier = self.carrier
        if event == _WRITTEN or event == _NOTIFIED:
            carrier.arrived(handle, value)
        elif event == _HEARD:
            if not self.call:
                carrier.seen(more, value)
        elif event == _SCANNED:
            self.scans = False
        elif event == _JOINED:
            self.writes[handle] = 0
            self.stale = True  # NimBLE advertises until somebody connects
            carrier.connected(handle, False, more, _FIRST, None)
        elif event == _PARTED or event == _ENDED:
            call = self.call
            if self.writes.pop(handle, None) is not None:
                carrier.over(handle)
            elif call and (call.handle == handle or call.given_up and call.handle == _NOBODY):
                self._failed()
        elif event == _MTU and handle in self.writes:
            carrier.sized(handle, value - _HEAD)
        else:
            self._proceed(event, handle, value, more)

    # ---- connecting

    def _proceed(self, event: int, handle: int, value: "Any", more: "Any") -> None:
        call = self.call
        if event == _REACHED and (call is None or call.given_up or more != call.address):
            self.close(handle)  # it comes too late
            return
        if call is None or call.given_up or event != _REACHED and handle != call.handle:
            return
        try:
            if not call.step(event, handle, value, more):
                call.give_up(self.now)
        except OSError:
            call.give_up(self.now)
        if call.ready:
            self.call = None
            self.writes[handle] = call.down
            self.carrier.connected(handle, True, call.address, call.size, call.data)

    def _failed(self) -> None:
        call = self.call
        self.call = None
        if call:
            self.carrier.failed(call.address)

    # ---- advertising and scanning

    def _show(self) -> None:
        try:
            if self.interval_ms:
                told = b"\2\1\6\x11\7" + self.shown
                data = bytes((17 + len(self.data), 0x21)) + self.shown + self.data
                self.ble.gap_advertise(self.interval_ms * 1000, adv_data=told, resp_data=data)
            else:
                self.ble.gap_advertise(None)
            self.stale = False
        except OSError:
            self.stale = True  # again with the next poll

    def _scan(self, on: bool) -> None:
        if on == self.scans:
            return
        try:
            if on:
                self.ble.gap_scan(0, _SCAN_US, _LISTEN_US, True)
            else:
                self.ble.gap_scan(None)
            self.scans = on
        except OSError:
            pass
