"""What is flashed beside the runtime: it compiles for MicroPython, and its drivers keep their times."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from headwater.board import settings
from headwater.data.alphabet import Alphabet
from headwater.data.batch import Batch
from headwater_tools import environment
from headwater_tools.image import builder

FIRMWARE = environment.ROOT / "firmware"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("firmware_" + name, FIRMWARE / (name + ".py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


drivers: Any = load("drivers")


class Ticks:
    def __init__(self, now: int = 0) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now & 0x3FFFFFFF


def test_every_file_compiles_for_a_board() -> None:
    for path in sorted(FIRMWARE.glob("*.py")):
        assert builder.build({path.name: path}).exists()


def test_example_configurations_are_complete_and_without_a_typo() -> None:
    paths = sorted(FIRMWARE.glob("profiles/*/config.json"))
    assert paths
    for path in paths:
        assert settings.load(str(path))["sensors"]
        used = {sensor["driver"] for sensor in json.loads(path.read_text())["sensors"].values()}
        assert used <= {"adc", "mpu6050", "button"}


def test_typo_in_a_configuration_is_named_with_what_there_is(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for text, words in (
        (
            '{"name": "a", "brokr": {}}',
            "unknown key 'brokr': there are actuators, awake_s, battery, ",
        ),
        ('{"name": "a"}', "'broker' is missing"),
        ('{"name": "a", "broker": {"port": 1}}', "broker: 'host' is missing"),
        ('{"name": "a", "broker": {"host": 7}}', "'host' is 7: give a str"),
        ('{"name": "g", "broker": {"host": "h"}}', "name 'g': give 1 to 32 letters, not g, s or gateway"),
        ('{"name": "a", "broker": {"host": "h"}, "mtu": 10}', "mtu 10: give 512 to 16384"),
        ('{"name": "a", "broker": {"host": "h"}, "status_s": -1}', "'status_s' is -1: give a int"),
        ('{"name": "a", "broker": {"host": "h"}, "sensors": {"ecg": {}}}', "'ecg' names no driver"),
        ('{"name": "a", "broker": {"host": "h"}, "actuators": {"led": 2}}', "'led' has no settings"),
        ('{"name": "a", "broker": {}}', "broker: 'host' is missing"),
        ('{"name": "a", "bluetooth": {"enabled": true}}', "'broker' is missing"),
        ('{"name": "a", "broker": {"host": "h"}, "bluetooth": {"on": 1}}', "bluetooth: unknown key 'on'"),
        ('{"name": "a", "broker": {}, "bluetooth": {"enabled": 1}}', "'enabled' is 1: give a bool"),
        (
            '{"name": "a", "broker": {}, "bluetooth": {"enabled": true, "encryption": "none"}}',
            "bluetooth: encryption is 'none': it can only be required",
        ),
        ("[]", "give an object with keys"),
        ("{", "cannot be read as JSON"),
    ):
        path.write_text(text)
        with pytest.raises(settings.SettingsError) as error:
            settings.load(str(path))
        assert words in str(error.value)


def test_a_board_without_a_broker_has_bluetooth(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"name": "a", "broker": {}, "bluetooth": {"enabled": true}}')
    found = settings.load(str(path))
    assert found["broker"] == {} and found["bluetooth"] == {
        "enabled": True, "key": "bluetooth.key", "encryption": "required", "pairing": False,
    }  # fmt: skip
    path.write_text('{"name": "a", "broker": {"host": "h"}}')
    assert not settings.load(str(path))["bluetooth"]["enabled"]


def sampled(ticks: Ticks, n: int = 4) -> tuple[Any, Batch]:
    values = iter(range(1000))
    alphabet = Alphabet("mV:i16")
    return drivers.Sampled(lambda: next(values), alphabet, 100_000, n, ticks), Batch(alphabet, 8)


def test_sampled_values_come_in_order_with_the_time_of_the_first() -> None:
    ticks = Ticks((1 << 30) - 25_000)  # wraps on the way
    sensor, batch = sampled(ticks)
    for round_ in range(6):
        for _ in range(4):
            assert sensor.take(batch, ticks.now) is None
            ticks.now += 10_000
            sensor.tick()
        ticks.now += 300
        assert sensor.take(batch, ticks.now) == ticks.now - 300 - 3 * 10_000
        assert (batch.n, batch.dt) == (4, 10_000)
        assert list(batch.cols[0][:4]) == list(range(4 * round_, 4 * round_ + 4))
        ticks.now -= 300
    assert not sensor.lost


def test_sampled_values_that_nobody_took_in_time_are_lost_and_said_so() -> None:
    ticks = Ticks()
    sensor, batch = sampled(ticks)
    for _ in range(17):
        ticks.now += 10_000
        sensor.tick()
    assert sensor.lost
    assert sensor.take(batch, ticks.now) is None
    sensor.lost = False  # the node has heard it
    for _ in range(4):
        ticks.now += 10_000
        sensor.tick()
    assert sensor.take(batch, ticks.now) == ticks.now - 30_000
    assert list(batch.cols[0][:4]) == [16, 17, 18, 19]


class Pin:
    def __init__(self) -> None:
        self.level = 1

    def value(self) -> int:
        return self.level


def test_button_gives_every_edge_with_its_level_and_time() -> None:
    ticks, pin, alphabet = Ticks(500), Pin(), Alphabet("on:u8")
    button = drivers.Button(pin, alphabet, ticks)
    batch = Batch(alphabet, 3)
    assert button.take(batch, 500) is None
    for turn in range(40):
        for at in (0, 7, 9):
            ticks.now = 1000 * turn + at
            pin.level ^= 1
            button.edge()
        ticks.now += 100
        assert button.take(batch, ticks.now) == 1000 * turn
        assert (list(batch.at), batch.dt, batch.n) == ([0, 7, 9], -1, 3)
        assert list(batch.cols[0]) == ([0, 1, 0] if turn % 2 == 0 else [1, 0, 1])
    for _ in range(33):
        button.edge()
    assert button.lost


class Bus:
    """An MPU-6050 as its registers show it."""

    def __init__(self) -> None:
        self.fifo = bytearray()
        self.wrote: list[tuple[int, int]] = []

    def writeto_mem(self, address: int, register: int, data: bytes) -> None:
        assert address == 0x68
        self.wrote.append((register, data[0]))

    def readfrom_mem_into(self, address: int, register: int, buf: bytearray) -> None:
        if register == 0x72:
            buf[:] = len(self.fifo).to_bytes(2, "big")
        else:
            assert register == 0x74
            buf[:] = self.fifo[: len(buf)]
            del self.fifo[: len(buf)]


def test_acceleration_comes_out_of_the_fifo_and_an_overrun_is_said() -> None:
    bus, alphabet = Bus(), Alphabet("x:i16 y:i16 z:i16")
    sensor = drivers.Mpu6050(bus, alphabet, 50_000, 2)
    assert (0x19, 19) in bus.wrote  # 1000 Hz / 20
    batch = Batch(alphabet, 2)
    for value in (1, -2, 3, 400, -500, 600):
        bus.fifo += value.to_bytes(2, "big", signed=True)
    assert sensor.take(batch, 1_000_000) == 980_000
    assert [batch.row(0), batch.row(1)] == [(1, -2, 3), (400, -500, 600)]
    bus.fifo = bytearray(1024)
    assert sensor.take(batch, 2_000_000) is None
    assert sensor.lost
    with pytest.raises(ValueError, match="60000 mHz: this sensor has 1000 Hz divided by 1 to 256"):
        drivers.Mpu6050(bus, alphabet, 60_000, 2)
