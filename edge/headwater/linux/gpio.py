"""Pins of a GPIO chip, through the character device of the kernel (/dev/gpiochip0), without a library.

The layout is that of <linux/gpio.h>, version 2, which Linux has since 5.10. A request gives a file descriptor
that holds the pins until it is closed; no other program gets them meanwhile. The kernel stamps each change
with its monotone clock, which is that of `time.monotonic_ns`, and numbers it: a number that is missing is a
change that was lost because nobody read it in time.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CHIP = "gpiochip0"
_PINS_MAX = 64  # of one request
_OFFSET_MAX = 1 << 16
_DEBOUNCE_MS_MAX = 10_000
_EVENTS = 1024  # changes that the kernel keeps until they are read; more are lost

_GET_LINE = 0xC250B407
_GET_VALUES = 0xC010B40E
_SET_VALUES = 0xC010B40F
# gpio_v2_line_request: offsets, consumer, flags, number of attributes, these, number of pins, events, fd.
_REQUEST = struct.Struct("=64I32sQI20x240sII20xi")
_DEBOUNCE = struct.Struct("=III4xQ")  # gpio_v2_line_config_attribute: id, 0, microseconds, mask of the pins
_VALUES = struct.Struct("=QQ")  # gpio_v2_line_values: bits, mask
_EVENT = struct.Struct("=QIIII24x")  # gpio_v2_line_event: ns, edge, offset, number, number of this pin
_ATTRIBUTE_DEBOUNCE = 3
_RISING = 1

_ACTIVE_LOW = 1 << 1
_INPUT = 1 << 2
_OUTPUT = 1 << 3
_BOTH_EDGES = 1 << 4 | 1 << 5
_PULLS = {"up": 1 << 8, "down": 1 << 9, "none": 1 << 10}


class Pins:
    """The pins that settings name: `line`, or `lines` for several; `chip`, `active_low`; for inputs `pull`
    and `debounce_ms`. Levels are logical: 1 is high, or low where `active_low`."""

    def __init__(self, settings: Mapping[str, Any], output: bool = False, changes: bool = False) -> None:
        named = settings["lines"] if "lines" in settings else [settings.get("line")]
        if not isinstance(named, list) or not named or not all(_is_number(n, _OFFSET_MAX) for n in named):
            raise ValueError('line %r: give the number of a pin, like "line": 17' % (settings.get("line"),))
        if len(named) > _PINS_MAX or len(set(named)) < len(named):
            raise ValueError("lines %r: give each pin once, %d at most" % (named, _PINS_MAX))
        self.offsets: list[int] = named
        chip = settings.get("chip", CHIP)
        if not isinstance(chip, str) or not chip:
            raise ValueError('chip %r: give a name, like "%s"' % (chip, CHIP))
        self.path = Path("/dev") / chip
        self.flags = _OUTPUT if output else _INPUT
        if changes:
            self.flags |= _BOTH_EDGES
        if settings.get("active_low", False):
            self.flags |= _ACTIVE_LOW
        pull = settings.get("pull")
        if pull is not None:
            if pull not in _PULLS or output:
                raise ValueError('pull %r: give "up", "down" or "none", for an input' % (pull,))
            self.flags |= _PULLS[pull]
        self.debounce_ms = settings.get("debounce_ms", 0)
        if not _is_number(self.debounce_ms, _DEBOUNCE_MS_MAX):
            raise ValueError("debounce_ms %r: 0 to %d" % (self.debounce_ms, _DEBOUNCE_MS_MAX))
        self.fd = -1
        self.number = 0  # of the last change that was read

    def __str__(self) -> str:
        pins = ", ".join(map(str, self.offsets))
        return "%s %s of %s" % ("pin" if len(self.offsets) == 1 else "pins", pins, self.path)

    def open(self) -> None:
        """OSError where the chip does not exist, or another program holds a pin."""
        if self.fd >= 0:
            return
        count = len(self.offsets)
        attributes = b""
        if self.debounce_ms:
            attributes = _DEBOUNCE.pack(_ATTRIBUTE_DEBOUNCE, 0, 1000 * self.debounce_ms, (1 << count) - 1)
        request = bytearray(
            _REQUEST.pack(
                *self.offsets, *[0] * (_PINS_MAX - count), b"headwater", self.flags,
                int(bool(attributes)), attributes, count, _EVENTS, 0,
            )
        )  # fmt: skip
        chip = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.ioctl(chip, _GET_LINE, request)
        finally:
            os.close(chip)
        self.fd = _REQUEST.unpack(request)[-1]
        self.number = 0

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def levels(self) -> list[int]:
        self.open()
        values = bytearray(_VALUES.pack(0, (1 << len(self.offsets)) - 1))
        fcntl.ioctl(self.fd, _GET_VALUES, values)
        bits = _VALUES.unpack(values)[0]
        return [bits >> i & 1 for i in range(len(self.offsets))]

    def set(self, on: bool) -> None:
        self.open()
        mask = (1 << len(self.offsets)) - 1
        fcntl.ioctl(self.fd, _SET_VALUES, bytearray(_VALUES.pack(mask if on else 0, mask)))

    def changes(self, wait_s: float) -> list[tuple[int, int | None]]:
        """The changes that came, or come within that time: microseconds of the monotone clock, and the level
        since then; None in its place where some were lost before the next one."""
        self.open()
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        if not poll.poll(wait_s * 1000):
            return []
        data = os.read(self.fd, 64 * _EVENT.size)
        found: list[tuple[int, int | None]] = []
        for at in range(0, len(data) - _EVENT.size + 1, _EVENT.size):
            ns, edge, _, number, _ = _EVENT.unpack_from(data, at)
            if number != (self.number + 1) & 0xFFFFFFFF:
                found.append((0, None))
            self.number = number
            found.append((ns // 1000, int(edge == _RISING)))
        return found


def _is_number(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most
