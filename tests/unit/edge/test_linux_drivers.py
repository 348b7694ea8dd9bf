"""Drivers of a host on Linux: real files and FIFOs, the times of samples, and holes where one was missed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gpio_chip import ACTIVE_LOW, OUTPUT, PULL_UP, GpioChip
from headwater.data.alphabet import Alphabet
from headwater.data.batch import Batch
from headwater.linux import drivers, serving

RATE_MHZ = 100_000  # 100 Hz
N = 4
Make = Callable[..., Any]


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes a driver by its name; its thread ends with the test."""
    made: list[Any] = []

    def start(name: str, alphabet: str, rate_mhz: int = RATE_MHZ, **settings: Any) -> Any:
        made.append(drivers.DRIVERS[name](settings, Alphabet(alphabet), rate_mhz, N))
        return made[-1]

    yield start
    for driver in made:
        driver.close()
        assert not driver.thread.is_alive()


def taken(driver: Any, alphabet: str, n: int, wait_s: float = 10) -> list[tuple[Any, ...]]:
    """The next n samples at least; None stands for what was missed."""
    rows: list[Any] = []
    end = time.monotonic() + wait_s
    while sum(row is not None for row in rows) < n and time.monotonic() < end:
        batch = Batch(Alphabet(alphabet), 8)
        at = driver.take(batch, drivers.now_us())
        if driver.lost:
            driver.lost = False
            rows.append(None)
        if at is None:
            time.sleep(0.005)
        else:
            assert abs(drivers.now_us() - at) < 30_000_000
            rows += zip(*(list(column[: batch.n]) for column in batch.cols), strict=True)
    return rows


def test_a_value_is_read_at_the_rate_of_the_source(make: Make, tmp_path: Path) -> None:
    for name, text in (("a", "21500\n"), ("b", "-3 degrees\n")):
        (tmp_path / name).write_text(text)
    paths = [str(tmp_path / name) for name in "ab"]
    driver = make("value", "a:i16 b:f64", paths=paths, scale=0.1)
    began = time.monotonic()
    rows = [row for row in taken(driver, "a:i16 b:f64", 12) if row is not None]
    assert rows[0][0] == 2150 and rows[0][1] == pytest.approx(-0.3) and len(set(rows)) == 1
    assert time.monotonic() - began > 0.08


def test_what_cannot_be_read_is_a_hole_and_is_said_once(
    make: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a"
    path.write_text("1")
    driver = make("value", "a:i8", path=str(path))
    taken(driver, "a:i8", N)
    path.write_text("1000")  # no i8
    time.sleep(0.1)
    os.replace(_written(tmp_path / "new", "2"), path)
    rows = taken(driver, "a:i8", 3 * N)
    assert None in rows and rows[-1] == (2,)
    assert {row for row in rows if row} == {(1,), (2,)} or {row for row in rows if row} == {(2,)}
    told = capfd.readouterr().err.splitlines()
    assert [line.partition(": ")[2] for line in told][:2] == [
        "1000 is outside -128 to 127",
        "it can be read again",
    ]


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_thermometer_whose_checksum_is_wrong_gives_nothing(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drivers, "W1", tmp_path)
    (tmp_path / "28-01").mkdir()
    slave = tmp_path / "28-01" / "w1_slave"
    slave.write_text("ff : crc=00 NO\nff t=85000\n")
    driver = make("w1", "c:i32")
    time.sleep(0.05)
    assert not driver.waiting
    os.replace(_written(tmp_path / "new", "f2 01 : crc=9f YES\nf2 01 t=-1062\n"), slave)
    rows = taken(driver, "c:i32", N)
    assert rows[0] is None and rows[1] == (-1062,)


def test_an_adc_of_the_kernel_is_found_by_its_name(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drivers, "IIO", tmp_path)
    for number, name in enumerate(("ads1015", "bme280")):
        device = tmp_path / ("iio:device%d" % number)
        device.mkdir()
        (device / "name").write_text(name + "\n")
    (tmp_path / "iio:device0" / "in_voltage1_raw").write_text("812\n")
    (tmp_path / "iio:device1" / "in_pressure_input").write_text("101.5\n")
    driver = make("iio", "v:u16", device="ads1015", channels=["voltage1"])
    assert (812,) in taken(driver, "v:u16", N)
    driver = make("iio", "p:f32", device="iio:device1", channels=["pressure"])
    assert (101.5,) in taken(driver, "p:f32", N)
    assert not make("iio", "v:u16", channels=["voltage1"]).waiting  # which of the two is not said


def test_lines_of_a_fifo_are_events_with_the_time_at_which_they_came(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    driver = make("lines", "a:u8 b:f32", 0, path=str(path))
    with open(path, "w") as out:
        out.write("1, 0.5\n# a remark\n2;1.5\n")
    with open(path, "w") as out:  # another writer
        out.write("nonsense\n3 2.5\n4 ")
        out.flush()
        out.write("3.5\n")
    assert taken(driver, "a:u8 b:f32", 4) == [(1, 0.5), (2, 1.5), None, (3, 2.5), (4, 3.5)]


def test_lines_at_a_rate_are_given_in_whole_batches(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("7\n")  # from before the start
    driver = make("lines", "a:u8", path=str(path))
    time.sleep(0.3)
    with open(path, "a") as out:
        out.write("1\n2\n3\n")
        out.flush()
        assert taken(driver, "a:u8", 1, 0.5) == []
        out.write("4\n5\n")
    assert taken(driver, "a:u8", N) == [(1,), (2,), (3,), (4,)]
    os.replace(_written(tmp_path / "new", "6\n7\n8\n"), path)  # as logrotate does it
    assert taken(driver, "a:u8", N) == [(5,), (6,), (7,), (8,)]


@pytest.fixture
def chip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GpioChip]:
    made = GpioChip(tmp_path / "gpiochip0", monkeypatch)
    yield made
    made.release()


def until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_each_change_of_a_pin_is_a_sample_with_the_time_of_the_kernel(chip: GpioChip, make: Make) -> None:
    settings = {"chip": str(chip.path), "line": 17, "pull": "up", "active_low": True, "debounce_ms": 5}
    driver = make("gpio", "pressed:u8", 0, **settings)
    until(lambda: bool(chip.held))
    assert chip.held[0].flags & PULL_UP and chip.held[0].flags & ACTIVE_LOW and chip.debounce_us == 5000
    times = [chip.put(17, high) for high in (False, True, False)]  # pressed pulls it down
    until(lambda: len(driver.waiting) == 3)
    batch = Batch(Alphabet("pressed:u8"), 8)
    now = drivers.now_us()
    first = driver.take(batch, now)
    assert list(batch.cols[0][:3]) == [1, 0, 1] and not driver.lost
    assert list(batch.at[:3]) == [at - times[0] for at in times]
    assert first is not None and abs(first - times[0]) < 1_000_000


def test_changes_that_the_kernel_lost_are_a_hole(chip: GpioChip, make: Make) -> None:
    driver = make("gpio", "level:u8", 0, chip=str(chip.path), line=4)
    until(lambda: bool(chip.held))
    chip.put(4, True)
    chip.put(4, True, lost=2)
    assert taken(driver, "level:u8", 2) == [(1,), None, (1,)]


def test_levels_of_pins_are_read_at_the_rate_of_the_source(chip: GpioChip, make: Make) -> None:
    chip.high = {22: True}
    driver = make("gpio", "door:u8 window:u8", chip=str(chip.path), lines=[22, 23])
    rows = taken(driver, "door:u8 window:u8", N)
    assert {row for row in rows if row} == {(1, 0)}
    chip.high = {23: True}
    until(lambda: (0, 1) in taken(driver, "door:u8 window:u8", N))


def test_a_pin_that_another_program_holds_is_tried_again_and_told_once(
    chip: GpioChip, make: Make, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(drivers, "_AGAIN_S", 0.02)
    chip.taken = {5}
    driver = make("gpio", "level:u8", 0, chip=str(chip.path), line=5)
    time.sleep(0.2)
    chip.taken = set()
    until(lambda: bool(chip.held))
    chip.put(5, True)
    assert taken(driver, "level:u8", 1) == [None, (1,)]
    told = capfd.readouterr().err.splitlines()
    assert [line.partition(": ")[2] for line in told] == [
        "[Errno 16] Device or resource busy",
        "it can be read again",
    ]
    assert told[0].startswith("pin 5 of %s: " % chip.path)


def test_an_alarm_switches_a_pin_and_leaves_it_off(chip: GpioChip) -> None:
    buzzer = drivers.ACTUATORS["buzzer"]({"chip": str(chip.path), "line": 6, "active_low": True})
    buzzer.set(False)
    assert chip.held[0].flags & OUTPUT and chip.high[6]
    buzzer.set(True)
    assert not chip.high[6]
    buzzer.close()
    assert chip.high[6] and not chip.held[0].open()
    with pytest.raises(OSError):
        drivers.ACTUATORS["led"]({"chip": str(chip.path.parent / "none"), "line": 6}).set(True)


def test_settings_that_are_wrong_are_named(make: Make) -> None:
    for name, settings, rate_mhz, says in (
        ("value", {}, RATE_MHZ, "its settings name no path"),
        ("value", {"path": "x"}, 0, "the source has none: give the source rate_hz="),
        ("value", {"path": "x", "scale": 0}, RATE_MHZ, "scale 0: give a number that is not 0"),
        ("iio", {"channels": "voltage0"}, RATE_MHZ, "give a list"),
        ("lines", {}, 0, "its settings name no path"),
        ("gpio", {}, 0, "line None: give the number of a pin"),
        ("gpio", {"lines": [1, 1]}, RATE_MHZ, "give each pin once"),
        ("gpio", {"lines": [1, 2]}, RATE_MHZ, "2 pins for 1 fields"),
        ("gpio", {"lines": [1, 2]}, 0, "without a rate it is one pin and one field"),
        ("gpio", {"line": 1, "pull": "left"}, 0, 'give "up", "down" or "none"'),
        ("gpio", {"line": 1, "debounce_ms": -1}, 0, "debounce_ms -1: 0 to 10000"),
        ("gpio", {"line": 1, "chip": 0}, 0, "chip 0: give a name"),
    ):
        with pytest.raises(ValueError, match=says):
            make(name, "a:u8", rate_mhz, **settings)


def test_sizes_of_a_log() -> None:
    assert [serving.size_kb(text) for text in ("20K", "512k", "16M", "63M")] == [20, 512, 16384, 64512]
    for text in ("16", "0M", "16K", "64M", "21K", "-1M", "1.5M", "", "9999999999M"):
        with pytest.raises(serving.HostError, match="give a multiple of 4K from 20K to 63M"):
            serving.size_kb(text)
