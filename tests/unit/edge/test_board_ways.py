"""The links of a board, without its radio: which one carries, and what it tells of its battery.

With the real module `bluetooth`: tests/system/test_bluetooth_boards.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from headwater.protocol import ble_info

KEY = ble_info.tag_key(b"m" * 32)
WIFI, BLE = [60_000, 30_000, 3_000_000], [2_300_000, 1_600_000, 21_000]
TOLD = (100, 0, 0, 0, 0, 0, 100)


class Ble:
    """Takes whatever it is told."""

    pairs = True

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **more: b""

    def config(self, **given: Any) -> None:
        if "le_secure" in given and not self.pairs:
            raise ValueError("unknown config param")

    def gatts_register_services(self, _: Any) -> Any:
        return ((1, 2, 3),)


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    module = ModuleType("bluetooth")
    for name in ("FLAG_WRITE", "FLAG_WRITE_NO_RESPONSE", "FLAG_NOTIFY", "FLAG_READ"):
        setattr(module, name, 1)
    vars(module).update(BLE=Ble, UUID=lambda text: bytes.fromhex(text.replace("-", "")))
    monkeypatch.setitem(sys.modules, "bluetooth", module)
    names = ("headwater.board.ble", "headwater.board.ways")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    from headwater.board import ways

    yield ways
    for name in names:
        sys.modules.pop(name, None)


def made(ways: Any, energy: dict[str, Any] | None = None, pairing: bool = False) -> Any:
    config = {"mtu": 512, "energy": energy or {}, "bluetooth": {"pairing": pairing}}
    node = SimpleNamespace(
        name="chest", config=config, take=lambda *_: True, host=None, status_us=0,
        peer=SimpleNamespace(hide=lambda on: None),
    )  # fmt: skip
    found = ways.Ways(node, KEY)
    found.begin(SimpleNamespace(up=True, out=[], tick=lambda now: None, why=""))
    return found


@pytest.mark.parametrize(
    "links, first",
    [
        (None, "broker"),  # nothing is known of what they cost
        ({"wifi": WIFI}, "broker"),  # ... of Bluetooth
        ({"wifi": WIFI, "ble": BLE}, "ble"),
        ({"wifi": [1_000, 1_000, 0], "ble": BLE}, "broker"),
    ],
)
def test_the_cheaper_link_by_the_profile_comes_first(ways: Any, links: Any, first: str) -> None:
    found = made(ways, {"links": links} if links else None)
    assert found.carriers.all[0] is getattr(found, first)
    assert {found.broker.private, found.ble.private} == {True, False}


def test_a_battery_below_a_fifth_is_advertised(ways: Any) -> None:
    found = made(ways)
    for percent, low in ((None, False), (20, False), (19, True), (60, False)):
        told = None if percent is None else [percent, *TOLD[1:]]
        found.node.host = SimpleNamespace(energy=SimpleNamespace(told=told))
        found.tick(1)
        assert found.ble.low is low
    found.node.host = None
    found.tick(2)
    assert not found.ble.low


@pytest.mark.parametrize(
    "asked, can, shown", [(False, True, False), (True, True, True), (True, False, False)]
)
def test_a_board_offers_pairing_where_it_is_to_and_can(
    ways: Any, monkeypatch: pytest.MonkeyPatch, asked: bool, can: bool, shown: bool
) -> None:
    monkeypatch.setattr(Ble, "pairs", can)
    assert made(ways, pairing=asked).radio.pairs is shown


def test_info_with_pairing_is_read_as_before() -> None:
    info = ble_info.info(KEY, "chest", 16, 512)
    flagged = ble_info.with_pairing(info)
    assert len(flagged) == ble_info.INFO_BYTES and ble_info.pairs(flagged) and not ble_info.pairs(info)
    site = ble_info.site_tag(KEY)
    assert ble_info.read_info(flagged, site) == ble_info.read_info(info, site)
    assert not ble_info.pairs(b"") and not ble_info.pairs(flagged[:-1])
