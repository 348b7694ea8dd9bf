"""Golden vectors of Bluetooth: what is shown, what both ends of a link say, and what ends a link."""

from __future__ import annotations

from typing import Any

from headwater.protocol import ble_info, ble_link
from headwater.protocol.ble_carrier import BleCarrier
from headwater.protocol.ble_link import BleLink

MASTER = bytes(range(32))
SIZE = 23  # bytes of a value, for the link
LONGEST = 40
NAMES = ("g", "chest", "wrist")


class _Loose:
    """A radio that keeps what it is given."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.closed = 0

    def put(self, handle: int, value: memoryview) -> bool:
        self.values.append(bytes(value))
        return True

    def close(self, handle: int) -> None:
        self.closed += 1

    def connect(self, address: Any) -> None:
        raise AssertionError("nobody advertises")

    def advertise(self, data: bytes, interval_ms: int) -> None:
        self.data = data

    def listen(self, on: bool) -> None:
        pass


def _end(radio: _Loose, frames: list[bytes], central: bool) -> BleLink:
    value = memoryview(bytearray(ble_link.VALUE_MAX))
    link = BleLink(radio.put, lambda link, frame: frames.append(bytes(frame)), value, LONGEST)
    link.begin(1, central, SIZE, 0)
    return link


def link() -> dict[str, Any]:
    """A connection from its begin: [who, value in hex], in order; and the frames, in hex."""
    radios = {"central": _Loose(), "peripheral": _Loose()}
    taken: dict[str, list[bytes]] = {"central": [], "peripheral": []}
    ends = {name: _end(radios[name], taken[name], name == "central") for name in radios}
    sent: dict[str, list[bytes]] = {
        "central": [bytes(range(30)), b"\x01", bytes(range(100, 140))] + [bytes([k] * 9) for k in range(7)],
        "peripheral": [b"hello", bytes(19)],
    }
    waits = {name: list(found) for name, found in sent.items()}
    steps: list[list[str]] = []
    for turn in range(40):
        for name, other in (("central", "peripheral"), ("peripheral", "central")):
            while waits[name] and ends[name].send(b"", waits[name][0]):
                waits[name].pop(0)
            ends[name].pump(30_000 * turn)
            for value in radios[name].values:
                steps.append([name, value.hex()])
                ends[other].arrived(value, 30_000 * turn)
            radios[name].values.clear()
    assert taken == {"central": sent["peripheral"], "peripheral": sent["central"]}
    return {
        "value bytes": SIZE,
        "longest": LONGEST,
        "frames": {name: [frame.hex() for frame in found] for name, found in sent.items()},
        "steps": steps,
    }


NAMES_OF = {
    number: name
    for name, number in vars(ble_link).items()
    if name in ("SHORT", "GAP", "COUNT", "OVERRUN", "LENGTH")
}


def refused() -> list[list[Any]]:
    """Values that reach the peripheral of a new link, the last of which ends it, and why."""
    one = "0000010007"
    lines = [
        [""],
        ["00"],
        ["0100010007"],
        [one, one],
        [one, "0200"],
        [one, "00"],
        ["0001"],
        ["00ff010007"],
        [one, "0104010007"],
        ["00000000"],
        ["00002900"],
        ["000028", "01000107"],
        [*["%02x00010007" % k for k in range(17)]],
    ]
    found: list[list[Any]] = []
    for values in lines:
        end = _end(_Loose(), [], False)
        for at, value in enumerate(values):
            assert not end.error, values
            end.arrived(bytes.fromhex(value), at)
        found.append([values, NAMES_OF[end.error]])
    return found


def shown() -> dict[str, Any]:
    key = ble_info.tag_key(MASTER)
    return {
        "master": MASTER.hex(),
        "key of the tags": key.hex(),
        "site": ble_info.site_tag(key).hex(),
        "tags": {name: ble_info.tag(key, name).hex() for name in NAMES},
        "info": {
            "%s, window %d, frames of %d" % (name, window, longest): ble_info.info(
                key, name, window, longest
            ).hex()
            for name, window, longest in (("g", 24, 578), ("chest", 16, 578))
        },
        "service data": {
            "chest": (ble_info.tag(key, "chest") + bytes((0,))).hex(),
            "chest, wants a central, battery low": (
                ble_info.tag(key, "chest") + bytes((ble_info.WANTS | ble_info.LOW,))
            ).hex(),
        },
        "uuids": {name: getattr(ble_info, name) for name in ("SERVICE", "DOWN", "UP", "INFO")},
    }


def heads() -> list[list[str]]:
    """Who sends a frame on which connection, for whom: what precedes the frame."""
    key = ble_info.tag_key(MASTER)
    found = []
    for name, other, to, sender in (
        ("chest", "g", "g", ""),
        ("chest", "g", "s", ""),
        ("chest", "g", "wrist", ""),
        ("chest", "wrist", "wrist", ""),
        ("g", "chest", "chest", "g"),
        ("g", "chest", "chest", "s"),
        ("g", "chest", "chest", "wrist"),
    ):
        radio = _Loose()
        carrier = BleCarrier(name, key, radio, lambda carrier, sender, frame: True)
        carrier.knows(NAMES)
        carrier.connected(1, True, None, 244, ble_info.info(key, other, 16, 578))
        carrier.slots[0].proves()
        carrier.pump(0)
        radio.values.clear()
        assert carrier.send(to, b"frame", sender)
        carrier.pump(0)
        value = radio.values[0]
        assert value.endswith(b"frame")
        found.append([name, other, to, sender, value[4:-5].hex()])
    return found


def vectors() -> dict[str, Any]:
    return {"shown": shown(), "heads": heads(), "link": link(), "ends": refused()}
