"""Drivers of sensors on Linux, as the head of `board/program.py` describes them.

Reading may take long: a DS18B20 needs 0.75 s. So a thread of its own reads each sensor, and `take` finds
what has been read. What could not be read in time is a hole: `lost` is set with the batch that follows it,
and what precedes it goes out as a batch of its own. `close` ends the thread, since a host that starts again
makes its drivers again in the same process.

A driver of yours is a function of (settings, alphabet, rate_mhz, n) in `drivers.py` in the folder of the
host, named in its dict DRIVERS. `Polled` below is made for it: pass a function that returns the values of
one sample.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import stat
import subprocess
import sys
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.alphabet import TYPES
from ..data.batch import SPAN_US
from .gpio import Pins

if TYPE_CHECKING:
    from ..data.alphabet import Alphabet
    from ..data.batch import Batch

W1 = Path("/sys/bus/w1/devices")
IIO = Path("/sys/bus/iio/devices")
_KEEP = 4  # batches of a rate that wait to be taken
_KEEP_EVENTS = 4096  # lines of a source without a rate
_LINE_MAX = 4096  # bytes
_AGAIN_S = 1  # what cannot be opened is tried again after this time
_QUIET_S = 0.2  # where nothing comes, it is looked at this often whether the driver is to end

Settings = Mapping[str, Any]


def now_us() -> int:
    return time.monotonic_ns() // 1000


class Fields:
    """What was read, as values of the fields of an alphabet."""

    def __init__(self, settings: Settings, alphabet: Alphabet) -> None:
        scale = settings.get("scale", 1)
        if isinstance(scale, bool) or not isinstance(scale, (int, float)) or not scale:
            raise ValueError("scale %r: give a number that is not 0" % (scale,))
        self.scale = scale
        self.limits = [TYPES[kind][2:] for kind in alphabet.types]
        self.count = len(self.limits)

    def of(self, values: Sequence[float | str]) -> tuple[float, ...]:
        """ValueError where they do not fit."""
        if len(values) != self.count:
            raise ValueError("%d values for %d fields" % (len(values), self.count))
        return tuple(self._field(value, *limits) for value, limits in zip(values, self.limits, strict=True))

    def _field(self, value: float | str, low: int | None, high: int | None) -> float:
        if isinstance(value, str):
            value = float(value) if low is None or not re.fullmatch(r"[-+]?\d+", value) else int(value)
        if self.scale != 1:
            value *= self.scale
        if low is None or high is None:
            return float(value)
        if not low <= value <= high:
            raise ValueError("%s is outside %d to %d" % (value, low, high))
        return round(value)


class Reader:
    """A thread that reads a sensor, and a word on standard error when that begins to fail, or works again."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.lost = False
        self.ending = threading.Event()
        self.failing = False
        self.thread = threading.Thread(target=self.run, name=what, daemon=True)

    def run(self) -> None:
        raise NotImplementedError

    def taken(self, batch: Batch, n: int) -> None:
        return

    def close(self) -> None:
        self.ending.set()
        if self.thread.is_alive():
            self.thread.join(2)

    def told(self, problem: object | None) -> None:
        if bool(problem) != self.failing:
            self.failing = bool(problem)
            print("%s: %s" % (self.what, problem or "it can be read again"), file=sys.stderr, flush=True)


class Polled(Reader):
    """`read()` gives the values of one sample, or raises OSError or ValueError. It is called at the rate of
    the source; a sample whose time passes while the one before is still being read is missed."""

    def __init__(
        self,
        what: str,
        read: Callable[[], Sequence[float | str]],
        settings: Settings,
        alphabet: Alphabet,
        rate_mhz: int,
        n: int,
    ) -> None:
        if not rate_mhz:
            raise ValueError("it is read at a rate, and the source has none: give the source rate_hz=")
        super().__init__(what)
        self.read = read
        self.fields = Fields(settings, alphabet)
        self.rate_mhz = rate_mhz
        self.n = n
        # Number of the sample, its values.
        self.waiting: deque[tuple[int, tuple[float, ...]]] = deque()
        self.next = 0  # number of the sample that follows those taken
        self.began_us = now_us()
        self.thread.start()

    def run(self) -> None:
        i = 0
        while not self.ending.wait(max(0, self._at(i) - now_us()) / 1e6):
            try:
                values = self.fields.of(self.read())
            except (OSError, ValueError) as error:
                self.told(error)
            else:
                self.told(None)
                if len(self.waiting) < _KEEP * self.n:
                    self.waiting.append((i, values))
            i = max(i + 1, (now_us() - self.began_us) * self.rate_mhz // 1_000_000_000)

    def _at(self, i: int) -> int:
        return self.began_us + i * 1_000_000_000 // self.rate_mhz

    def take(self, batch: Batch, now: int) -> int | None:
        waiting = list(self.waiting)
        n = 0
        while n < min(self.n, len(waiting)) and waiting[n][0] == waiting[0][0] + n:
            n += 1
        if not n or n == len(waiting) < self.n:
            return None
        first = waiting[0][0]
        if first != self.next:
            self.lost = True
        self.next = first + n
        for i in range(n):
            for column, value in zip(batch.cols, self.waiting.popleft()[1], strict=True):
                column[i] = value
        batch.n = n
        batch.dt = 1_000_000_000 // self.rate_mhz
        return now - (now_us() - self._at(first))


class Waiting(Reader):
    """Samples that wait with their times. Without a rate each has its own. With one, n are n samples of which
    the last came now."""

    def __init__(self, what: str, settings: Settings, alphabet: Alphabet, rate_mhz: int, n: int) -> None:
        super().__init__(what)
        self.fields = Fields(settings, alphabet)
        self.rate_mhz = rate_mhz
        self.n = n
        self.keep = _KEEP * n if rate_mhz else _KEEP_EVENTS
        # When it came, and its values; None where something was missed.
        self.waiting: deque[tuple[int, tuple[float, ...] | None]] = deque()

    def came(self, at: int, values: tuple[float, ...]) -> None:
        if len(self.waiting) < self.keep:
            self.waiting.append((at, values))
        else:
            self.missed()

    def missed(self) -> None:
        if not self.waiting or self.waiting[-1][1] is not None:
            self.waiting.append((0, None))

    def take(self, batch: Batch, now: int) -> int | None:
        while self.waiting and self.waiting[0][1] is None:
            self.waiting.popleft()
            self.lost = True
        found: list[tuple[int, tuple[float, ...]]] = []
        most = self.n if self.rate_mhz else batch.size
        for at, values in list(self.waiting)[:most]:
            if values is None or at - self.waiting[0][0] > SPAN_US:
                break
            found.append((at, values))
        if not found or self.rate_mhz and len(found) == len(self.waiting) < self.n:
            return None
        for i, (_, values) in enumerate(found):
            self.waiting.popleft()
            for column, value in zip(batch.cols, values, strict=True):
                column[i] = value
        batch.n = len(found)
        first = found[0][0]
        if self.rate_mhz:
            batch.dt = 1_000_000_000 // self.rate_mhz
            first = found[-1][0] - (len(found) - 1) * 1_000_000_000 // self.rate_mhz
        else:
            batch.dt = -1
            batch.at[: len(found)] = array("i", [at - first for at, _ in found])
        return now - (now_us() - first)


class Lines(Waiting):
    """Lines of numbers, from a FIFO, a serial line, or a file that grows: each line is a sample. Without a
    rate it is of the time at which it came."""

    def __init__(self, settings: Settings, alphabet: Alphabet, rate_mhz: int, n: int) -> None:
        self.path = Path(_text(settings, "path"))
        super().__init__(str(self.path), settings, alphabet, rate_mhz, n)
        self.file, self.part = -1, b""
        self.first, self.is_file = True, False
        self.thread.start()

    def _open(self) -> None:
        """A file is read from its end at the start, and from its beginning if it comes later."""
        first, self.first = self.first, False
        self.file = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        self.is_file = stat.S_ISREG(os.fstat(self.file).st_mode)
        if self.is_file and first:
            os.lseek(self.file, 0, os.SEEK_END)
        self.part = b""

    def _close(self) -> None:
        if self.file >= 0:
            os.close(self.file)
            self.file = -1

    def run(self) -> None:
        while not self.ending.is_set():
            try:
                if self.file < 0:
                    self._open()
                self._came(self._read())
            except OSError as error:
                self.first = False
                self.told(error)
                self.missed()
                self._close()
                self.ending.wait(_AGAIN_S)
        self._close()

    def _read(self) -> bytes:
        poll = select.poll()
        poll.register(self.file, select.POLLIN)
        if not poll.poll(_QUIET_S * 1000):
            return b""
        came = os.read(self.file, 65536)
        if not came:
            # The end of a file, or a FIFO without a writer.
            self.ending.wait(_QUIET_S)
            if self.is_file and self._replaced():
                self._close()
        return came

    def _replaced(self) -> bool:
        try:
            there = self.path.stat()
        except FileNotFoundError:
            return False
        here = os.fstat(self.file)
        return (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino) or (
            there.st_size < os.lseek(self.file, 0, os.SEEK_CUR)
        )

    def _came(self, data: bytes) -> None:
        if not data:
            return
        *lines, self.part = (self.part + data).split(b"\n")
        if len(self.part) > _LINE_MAX:
            self.part = b""
            self.missed()
        now = now_us()
        for line in lines:
            text = line.decode(errors="replace").strip()
            if not text or text.startswith("#"):
                continue
            try:
                values = self.fields.of([word for word in re.split(r"[\s,;]+", text) if word])
            except ValueError as error:
                self.told("'%s': %s" % (text[:60], error))
                self.missed()
                continue
            self.told(None)
            self.came(now, values)


class Changes(Waiting):
    """A pin whose every change is a sample, its level after it, with the time that the kernel gave it."""

    def __init__(self, settings: Settings, alphabet: Alphabet, n: int) -> None:
        self.pins = Pins(settings, changes=True)
        super().__init__(str(self.pins), settings, alphabet, 0, n)
        if len(self.pins.offsets) != 1 or self.fields.count != 1:
            raise ValueError("without a rate it is one pin and one field; give the source rate_hz= for more")
        self.fields.of([1])
        self.thread.start()

    def run(self) -> None:
        while not self.ending.is_set():
            try:
                changes = self.pins.changes(_QUIET_S)
            except OSError as error:
                self.told(error)
                self.missed()
                self.pins.close()
                self.ending.wait(_AGAIN_S)
            else:
                self.told(None)
                for at, level in changes:
                    if level is None:
                        self.missed()
                    else:
                        self.came(at, self.fields.of([level]))
        self.pins.close()


class Levels(Polled):
    """Pins whose levels are read at the rate of the source, a field for each."""

    def __init__(self, settings: Settings, alphabet: Alphabet, rate_mhz: int, n: int) -> None:
        self.pins = Pins(settings)
        pins, fields = len(self.pins.offsets), len(alphabet.types)
        if pins != fields:
            raise ValueError("%d pins for %d fields" % (pins, fields))
        super().__init__(str(self.pins), self._levels, settings, alphabet, rate_mhz, n)

    def _levels(self) -> list[int]:
        try:
            return self.pins.levels()
        except OSError:
            self.pins.close()
            raise

    def close(self) -> None:
        super().close()
        self.pins.close()


def gpio(settings: Settings, alphabet: Alphabet, rate_mhz: int, n: int) -> Changes | Levels:
    """Pins of a GPIO chip: without a rate the changes of one, with a rate the levels of some."""
    return Levels(settings, alphabet, rate_mhz, n) if rate_mhz else Changes(settings, alphabet, n)


def value(settings: Settings, alphabet: Alphabet, rate_mhz: int, n: int) -> Polled:
    """The first number in a file, like those of sysfs; `paths` has a file for each field."""
    paths = [Path(path) for path in settings.get("paths") or [_text(settings, "path")]]

    def read() -> list[str]:
        return [_first_word(path) for path in paths]

    return Polled(", ".join(map(str, paths)), read, settings, alphabet, rate_mhz, n)


def w1(settings: Settings, alphabet: Alphabet, rate_mhz: int, n: int) -> Polled:
    """A DS18B20 or another thermometer at the 1-Wire bus: thousandths of a degree Celsius, times `scale`.
    `id` is its folder there, like 28-0316a2791234; without it there must be one only."""
    ident = settings.get("id")

    def read() -> list[int]:
        found = [ident] if ident else sorted(path.parent.name for path in W1.glob("*/w1_slave"))
        if len(found) != 1:
            raise ValueError("thermometers at the bus: %s; choose one by id" % (", ".join(found) or "none"))
        text = (W1 / found[0] / "w1_slave").read_text()
        degrees = re.search(r"t=(-?\d+)", text)
        if "YES" not in text or degrees is None:
            raise ValueError("%s: the checksum of its answer is wrong" % found[0])
        return [int(degrees[1])]

    return Polled("thermometer %s" % (ident or "at the 1-Wire bus"), read, settings, alphabet, rate_mhz, n)


def iio(settings: Settings, alphabet: Alphabet, rate_mhz: int, n: int) -> Polled:
    """Channels of a device of the kernel's industrial I/O, like those of an ADC: one for each field.
    `device` is its name or its folder; without it there must be one only."""
    device, channels = settings.get("device"), settings["channels"]
    if not isinstance(channels, list) or not all(isinstance(channel, str) for channel in channels):
        raise ValueError('channels %r: give a list, like ["voltage0"]' % (channels,))

    def read() -> list[str]:
        devices = {path.name: path for path in sorted(IIO.glob("iio:device*"))}
        chosen = [p for p in devices.values() if device in (None, p.name, _first_word(p / "name"))]
        if len(chosen) != 1:
            raise ValueError("devices: %s; choose one by device" % (", ".join(devices) or "none"))
        return [_channel(chosen[0], channel) for channel in channels]

    return Polled("device %s" % (device or "of industrial I/O"), read, settings, alphabet, rate_mhz, n)


def _channel(device: Path, channel: str) -> str:
    """What the converter gives, or where the kernel has converted it already, the physical quantity."""
    raw = device / ("in_%s_raw" % channel)
    return _first_word(raw if raw.exists() else device / ("in_%s_input" % channel))


def _first_word(path: Path) -> str:
    words = path.read_text().split(maxsplit=1)
    if not words:
        raise ValueError("%s is empty" % path)
    return words[0]


def _text(settings: Settings, key: str) -> str:
    found = settings.get(key)
    if not isinstance(found, str) or not found:
        raise ValueError("its settings name no %s" % key)
    return found


DRIVERS: dict[str, Callable[[Settings, Alphabet, int, int], Any]] = {
    "gpio": gpio,
    "iio": iio,
    "lines": Lines,
    "value": value,
    "w1": w1,
}


# ---- actuators


class Written:
    """Writes `on` or `off` into a file, like the brightness of an LED in sysfs: 1 and 0, unless given."""

    def __init__(self, settings: Settings) -> None:
        self.path = Path(_text(settings, "path"))
        self.words = (str(settings.get("off", 0)), str(settings.get("on", 1)))

    def set(self, on: bool) -> None:
        self.path.write_text(self.words[on] + "\n")


class Command:
    """Runs a command with one more argument, "on" or "off". At the next change it is ended."""

    def __init__(self, settings: Settings) -> None:
        command = settings["command"]
        if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
            raise ValueError("command %r: give a list of words" % (command,))
        self.command: list[str] = command
        self.running: subprocess.Popen[bytes] | None = None

    def set(self, on: bool) -> None:
        self.close()
        self.running = subprocess.Popen([*self.command, "on" if on else "off"], stdin=subprocess.DEVNULL)

    def close(self) -> None:
        if self.running and self.running.poll() is None:
            self.running.terminate()
            self.running.wait()


class Pin:
    """A pin that is high while an alarm sounds, or low where `active_low`; never afterwards."""

    def __init__(self, settings: Settings) -> None:
        self.pins = Pins(settings, output=True)

    def set(self, on: bool) -> None:
        try:
            self.pins.set(on)
        except OSError:
            self.pins.close()
            raise

    def close(self) -> None:
        if self.pins.fd >= 0:
            with contextlib.suppress(OSError):
                self.pins.set(False)
        self.pins.close()


def actuator(settings: Settings) -> Written | Command | Pin:
    """A buzzer or an LED: `path` of a file, a `command`, or the pin `line` of a GPIO chip."""
    if "line" in settings:
        return Pin(settings)
    return Command(settings) if "command" in settings else Written(settings)


ACTUATORS: dict[str, Callable[[Settings], Any]] = {"buzzer": actuator, "led": actuator}
