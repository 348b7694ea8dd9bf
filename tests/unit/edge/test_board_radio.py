"""The queue of a board's radio: events as `bluetooth` gives them, denser than the virtual radio makes them.

With the real module: tests/system/test_bluetooth_boards.py.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
from headwater.protocol import ble_info
from headwater.protocol.ble_carrier import BleCarrier

JOINED, PARTED, WRITTEN, SERVICE, CHARACTERISTIC = 1, 2, 3, 9, 11
DESCRIPTOR, READ, MTU = 13, 15, 21
ADDRESS = b"\xf0\0\0\0\0\1"


class Ble:
    def __getattr__(self, name: str) -> Any:
        return lambda *args, **more: b"value"

    def gatts_register_services(self, _: Any) -> Any:
        return ((1, 2, 3),)


@pytest.fixture
def radio(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = ModuleType("bluetooth")
    for name in ("FLAG_WRITE", "FLAG_WRITE_NO_RESPONSE", "FLAG_NOTIFY", "FLAG_READ"):
        setattr(module, name, 1)
    vars(module).update(BLE=Ble, UUID=lambda text: bytes.fromhex(text.replace("-", "")))
    monkeypatch.setitem(sys.modules, "bluetooth", module)
    monkeypatch.delitem(sys.modules, "headwater.board.ble", raising=False)
    from headwater.board.ble import Radio

    radio = Radio()
    key = ble_info.tag_key(b"master")
    radio.serve(BleCarrier("chest", key, radio, lambda *_: True))
    yield radio
    del sys.modules["headwater.board.ble"]


@pytest.mark.parametrize(
    "event, data",
    [
        (MTU, (1, 247)),
        (WRITTEN, (1, 2)),
        (SERVICE, (1, 1, 65535, b"")),
        (CHARACTERISTIC, (1, 2, 3, 4, b"uuid")),
        (DESCRIPTOR, (1, 2, b"uuid")),
        (READ, (1, 2, b"value")),
    ],
)
def test_a_stranger_that_sends_fast_does_not_have_a_board_start_again(
    radio: Any, event: int, data: Any
) -> None:
    for _ in range(200):
        radio._note(event, data)
    radio._note(JOINED, (1, 0, ADDRESS))
    radio.poll(0)
    assert radio.writes == {1: 0}
    for _ in range(200):
        radio._note(event, data)
    radio._note(PARTED, (1, 0, ADDRESS))
    radio.poll(1)
    assert radio.writes == {}


def test_a_connection_that_could_not_be_noted_is_an_error(radio: Any) -> None:
    for handle in range(100):
        radio._note(JOINED, (handle, 0, ADDRESS))
    with pytest.raises(OSError, match="events were lost"):
        radio.poll(0)
