"""NOR flash in a file, for a log on Linux.

It has the interface of `esp32.Partition`: readblocks, and writeblocks with an offset, ioctl 4, 5, 6. It
promises the log what flash promises: when a program or an erase returns, its bytes are on the disk and
survive a power cut (the file is opened with O_DSYNC). The next operation begins after that, so at most one
operation is in doubt after a cut, and only the bytes that it wrote: a disk writes blocks of 512 bytes
whole, so of the blocks that an operation touches any may be new and the others old, and every other byte of
the file is what it was.

The file has all its bytes from the beginning. Otherwise a disk that is full would stop the log in the
middle of a record, and each program would wait for the file system's own tables too.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..offboard.interfaces import Readable, Writable

SECTOR_BYTES = 4096
SECTORS_MIN = 5
SECTORS_MAX = 16383
_BLANK = b"\xff" * SECTOR_BYTES


class FlashError(OSError):
    """The file is not one of a log, or an operation is not one that flash can do."""


def sectors_of(path: Path) -> int:
    """The sectors of the file that is there; FlashError if it was not made by `make`."""
    size = path.stat().st_size
    sectors, rest = divmod(size, SECTOR_BYTES)
    if rest or not SECTORS_MIN <= sectors <= SECTORS_MAX:
        raise FlashError("%s has %d bytes, so it is not the flash of a host" % (path, size))
    return sectors


def make(path: Path, sectors: int) -> None:
    """An erased flash. After a power cut there is the whole file or none."""
    fresh = path.with_name(path.name + ".new")
    try:
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
            for _ in range(sectors):
                file.write(_BLANK)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
    os.rename(fresh, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class FlashFile:
    def __init__(self, path: Path) -> None:
        self.sectors = sectors_of(path)
        self.file = os.open(path, os.O_RDWR | os.O_DSYNC | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self.file)

    def readblocks(self, block: int, buf: Writable, offset: int = 0) -> None:
        if os.preadv(self.file, [buf], self._place(block, offset, len(buf))) != len(buf):
            raise FlashError("sector %d cannot be read: the file has become shorter" % block)

    def writeblocks(self, block: int, buf: Readable, offset: int) -> None:
        """A program: bits fall, and none rises."""
        size = len(buf)
        if offset + size > SECTOR_BYTES:
            raise FlashError("a program crosses the end of sector %d" % block)
        at = self._place(block, offset, size)
        old = os.pread(self.file, size, at)
        if old.count(255) != size:
            new = int.from_bytes(buf, "little")
            if int.from_bytes(old, "little") & new != new:
                raise FlashError("a program at sector %d, offset %d would raise a bit" % (block, offset))
        self._write(buf, at)

    def ioctl(self, request: int, block: int) -> int:
        if request == 4:
            return self.sectors
        if request == 5:
            return SECTOR_BYTES
        if request == 6:
            self._write(_BLANK, self._place(block, 0, SECTOR_BYTES))
        return 0

    def _place(self, block: int, offset: int, size: int) -> int:
        at = block * SECTOR_BYTES + offset
        if not (0 <= block < self.sectors and 0 <= offset and at + size <= self.sectors * SECTOR_BYTES):
            raise FlashError("no %d bytes at sector %d, offset %d" % (size, block, offset))
        return at

    def _write(self, buf: Readable, at: int) -> None:
        if os.pwrite(self.file, buf, at) != len(buf):
            raise FlashError("the disk took a part of %d bytes" % len(buf))
