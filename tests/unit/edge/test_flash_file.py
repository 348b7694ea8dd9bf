"""Flash in a file: what is programmed is on the disk, and a power cut harms one operation alone."""

from __future__ import annotations

import fcntl
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from headwater.linux import flash_file
from headwater.linux.flash_file import SECTOR_BYTES, FlashError, FlashFile
from headwater.testing.cut_flash import PowerCut
from headwater_tools.proof.flash_sweep import Step, Sweep, life

SECTORS = 8
DISK_BLOCK = 512
PARTS = 30  # of the sweep, of which the tests take one


class CutFile(FlashFile):
    """The real file, in memory, with power that is cut in a chosen operation: of the disk's blocks that the
    operation touches, some are new then, and the others old."""

    def __init__(self, seed: int = 1) -> None:
        memory = os.memfd_create("flash")
        os.pwrite(memory, b"\xff" * (SECTORS * SECTOR_BYTES), 0)
        super().__init__(Path("/proc/self/fd/%d" % memory))
        os.close(memory)
        self.chance = random.Random(seed)
        self.op = 0
        self.trace: list[tuple[int, int]] | None = None
        self.armed = (-1, 0, 0)
        self.dead = False
        self.last = (b"", 0)  # what the operation before replaced, where `Late` loses it
        self.doubt: dict[int, int] = {}  # none: a block of a disk that was read once does not change

    def __del__(self) -> None:
        self.close()

    def arm(self, op: int, byte: int, kind: int) -> None:
        self.armed = (op, byte, kind)

    def revive(self) -> None:
        self.dead = False
        self.armed = (-1, 0, 0)

    def snapshot(self) -> tuple[bytes, int, tuple[bytes, int]]:
        return os.pread(self.file, SECTORS * SECTOR_BYTES, 0), self.op, self.last

    def restore(self, shot: tuple[bytes, int, tuple[bytes, int]]) -> None:
        os.pwrite(self.file, shot[0], 0)
        self.op, self.last = shot[1:]
        self.revive()

    def _write(self, buf: Any, at: int) -> None:
        if self.dead:
            raise PowerCut("the device is without power")
        self.op += 1
        if self.trace is not None:
            self.trace.append((int(len(buf) == SECTOR_BYTES), len(buf)))
        op, byte, kind = self.armed
        if self.op - 1 != op:
            super()._write(buf, at)
            return
        self.dead = True
        for start in range(at - at % DISK_BLOCK, at + len(buf), DISK_BLOCK):
            low, high = max(start, at), min(start + DISK_BLOCK, at + len(buf))
            # The first kind writes from the front; the others in any order.
            if high - at <= byte if kind == 0 else self.chance.random() * len(buf) < byte:
                os.pwrite(self.file, buf[low - at : high - at], low)
        raise PowerCut("power was cut")


class Late(CutFile):
    """One that returns before the disk has the bytes: with the operation that is cut goes the one before."""

    def _write(self, buf: Any, at: int) -> None:
        if self.op == self.armed[0]:
            os.pwrite(self.file, *self.last)
        self.last = (os.pread(self.file, len(buf), at), at)
        super()._write(buf, at)


def large(steps: list[Step]) -> list[Step]:
    """The same history with more bytes in each record: the sectors of a file are larger than the sweep's."""
    grown = {"append": 3, "blob": 2}
    return [
        tuple(value * 6 if k == grown.get(step[0]) else value for k, value in enumerate(step))
        for step in steps
    ]


def sweep(kind: type[CutFile], steps: list[Step], part: tuple[int, int], stop_at_wrong: int = 0) -> Sweep:
    made = Sweep(
        steps=steps, all_kinds=True, byte_stride=DISK_BLOCK, nested_every=23, part=part,
        stop_at_wrong=stop_at_wrong,
    )  # fmt: skip
    made.flash, made.work = kind(7), kind(7)  # type: ignore[assignment]
    return made


def test_every_cut_of_a_log_in_a_file_is_recovered_from() -> None:
    report = sweep(CutFile, large(life()), (1, PARTS)).run()
    assert report.first_wrong == []
    assert report.erases > SECTORS  # the ring has turned
    assert report.cuts > 250 and report.nested > 250


def test_a_file_that_is_written_late_is_found_out() -> None:
    assert sweep(Late, large(life())[:12], (0, 1), stop_at_wrong=1).run().wrong


@pytest.fixture
def flash(tmp_path: Path) -> Iterator[FlashFile]:
    flash_file.make(tmp_path / "flash.bin", 5)
    made = FlashFile(tmp_path / "flash.bin")
    yield made
    made.close()


def test_a_program_returns_when_its_bytes_are_on_the_disk(flash: FlashFile) -> None:
    assert fcntl.fcntl(flash.file, fcntl.F_GETFL) & os.O_DSYNC == os.O_DSYNC


def test_bits_fall_and_only_an_erase_lets_them_rise(flash: FlashFile, tmp_path: Path) -> None:
    buf = bytearray(4)
    flash.writeblocks(2, b"\xf0\x0f", 100)
    flash.writeblocks(2, b"\x00\x0f", 100)
    with pytest.raises(FlashError, match="sector 2, offset 100 would raise a bit"):
        flash.writeblocks(2, b"\x01\x0f", 100)
    flash.readblocks(2, buf, 99)
    assert buf == b"\xff\x00\x0f\xff"
    assert flash.ioctl(4, 0) == 5 and flash.ioctl(5, 0) == SECTOR_BYTES
    flash.ioctl(6, 2)
    assert (tmp_path / "flash.bin").read_bytes() == b"\xff" * 5 * SECTOR_BYTES


def test_what_lies_outside_is_refused(flash: FlashFile) -> None:
    for block, size, offset in ((5, 1, 0), (-1, 1, 0), (0, 1, -1), (4, 2, SECTOR_BYTES - 1)):
        with pytest.raises(FlashError):
            flash.writeblocks(block, bytes(size), offset)
        with pytest.raises(FlashError):
            flash.readblocks(block, bytearray(size), offset)


def test_a_file_of_another_size_is_no_flash(tmp_path: Path) -> None:
    for size in (0, 4 * SECTOR_BYTES, 5 * SECTOR_BYTES + 1):
        (tmp_path / "flash.bin").write_bytes(bytes(size))
        with pytest.raises(FlashError, match="has %d bytes" % size):
            FlashFile(tmp_path / "flash.bin")
