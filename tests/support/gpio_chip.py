"""A GPIO chip of the kernel, for drivers: it answers the requests of a process on its character device.

The numbers and offsets are those of <linux/gpio.h> on a 64-bit machine, written down apart from the driver's.
Pins have a voltage; what a request says of pull, of active low and of edges is obeyed, and a pin that one
request holds is refused to others. Debouncing is only remembered.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path

import pytest

GET_LINE, GET_VALUES, SET_VALUES = 0xC250B407, 0xC010B40E, 0xC010B40F
REQUEST_BYTES, FLAGS_AT, ATTRIBUTES_AT, PINS_AT, FD_AT = 592, 288, 296, 560, 588
ACTIVE_LOW, INPUT, OUTPUT, RISING, FALLING, PULL_UP, PULL_DOWN = 2, 4, 8, 16, 32, 256, 512


class Held:
    """Pins that one file descriptor holds."""

    def __init__(self, offsets: list[int], flags: int) -> None:
        self.offsets = offsets
        self.flags = flags
        self.reads, self.writes = os.pipe()
        self.inode = os.fstat(self.reads).st_ino
        self.number = 0

    def open(self) -> bool:
        try:
            return os.fstat(self.reads).st_ino == self.inode
        except OSError:
            return False


class GpioChip:
    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        path.touch()
        self.high: dict[int, bool] = {}  # pin -> its voltage; a pin that is not here floats
        self.held: list[Held] = []
        self.debounce_us = 0
        self.taken: set[int] = set()  # by another program
        self.real = fcntl.ioctl
        monkeypatch.setattr(fcntl, "ioctl", self.ioctl)

    def ioctl(self, fd: int, request: int, argument: bytearray) -> int:
        if request == GET_LINE and os.fstat(fd).st_ino == self.path.stat().st_ino:
            self.request(argument)
        elif request in (GET_VALUES, SET_VALUES):
            held = next(held for held in self.held if held.open() and held.reads == fd)
            bits, mask = (int.from_bytes(argument[at : at + 8], "little") for at in (0, 8))
            for i, offset in enumerate(held.offsets):
                if request == SET_VALUES and mask >> i & 1:
                    assert held.flags & OUTPUT
                    self.high[offset] = bool(bits >> i & 1) != bool(held.flags & ACTIVE_LOW)
            found = sum(self.level(held, n) << i for i, n in enumerate(held.offsets)) & mask
            argument[:8] = found.to_bytes(8, "little")
        else:
            raise OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))
        return 0

    def request(self, argument: bytearray) -> None:
        assert len(argument) == REQUEST_BYTES

        def word(at: int, size: int = 4) -> int:
            return int.from_bytes(argument[at : at + size], "little")

        offsets = [word(4 * i) for i in range(word(PINS_AT))]
        busy = self.taken | {n for held in self.held if held.open() for n in held.offsets}
        if busy & set(offsets):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        self.debounce_us = 0
        if word(ATTRIBUTES_AT):
            attribute = ATTRIBUTES_AT + 24
            assert word(attribute) == 3 and word(attribute + 16, 8) == (1 << len(offsets)) - 1
            self.debounce_us = word(attribute + 8)
        self.held.append(Held(offsets, word(FLAGS_AT, 8)))
        argument[FD_AT:] = self.held[-1].reads.to_bytes(4, "little")

    def level(self, held: Held, offset: int) -> int:
        high = self.high.get(offset, bool(held.flags & PULL_UP))
        return int(high != bool(held.flags & ACTIVE_LOW))

    def put(self, offset: int, high: bool, lost: int = 0) -> int:
        """The voltage of a pin changes. lost: so many changes before it nobody read. Returns its time."""
        self.high[offset] = high
        now_ns = time.monotonic_ns()
        for held in self.held:
            if held.open() and offset in held.offsets and held.flags & (RISING | FALLING):
                held.number += 1 + lost
                edge = 1 if self.level(held, offset) else 2
                event = b"".join(n.to_bytes(4, "little") for n in (edge, offset, held.number, held.number))
                os.write(held.writes, now_ns.to_bytes(8, "little") + event + bytes(24))
        return now_ns // 1000

    def release(self) -> None:
        for held in self.held:
            os.close(held.writes)
            if held.open():
                os.close(held.reads)
