"""Firmware files of MicroPython for an ESP32, as its build makes them and its site offers them.

Such a file is the flash from the bootloader on: bootloader, partition table, application. `read` takes it
apart and refuses, in a sentence, what would not start: another kind of file, one that is cut or damaged (each
image in it has a checksum and mostly a digest), one for another chip, one of another MicroPython.
"""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import dataclass
from pathlib import Path

from .. import environment
from ..errors import UserError
from ..image import partitions
from ..image.profiles import Profile

ROMFS_WORD = b"VfsRom"  # the name of a class, in ROM wherever MicroPython has it
_MAGIC = 0xE9
_HEADER = struct.Struct("<BBBBI4sHBHH4sB")  # image header and extended header of ESP-IDF
_SEGMENT = struct.Struct("<II")
_SEGMENTS_MAX = 16
_CHECKSUM_SEED = 0xEF
_DIGEST_SIZE = 32
_FLASH_SIZES = {1: 0, 2: 1, 4: 2, 8: 3, 16: 4, 32: 5}  # megabytes -> upper half of byte 3
_VERSION = re.compile(rb"MicroPython v(\d+)\.(\d+)(?:\.(\d+))?")
_FLASH_BYTES_MAX = 32 << 20


@dataclass(frozen=True)
class Chip:
    """A chip, as esptool and the headers of images name it."""

    name: str
    esptool: str
    number: int
    bootloader_at: int


CHIPS = {
    chip.name: chip
    for chip in (
        Chip("ESP32", "esp32", 0, 0x1000),
        Chip("ESP32-S3", "esp32s3", 9, 0),
        Chip("ESP32-C3", "esp32c3", 5, 0),
    )
}


@dataclass(frozen=True)
class Firmware:
    bootloader: bytes
    app: bytes
    version: tuple[int, int, int]

    @property
    def romfs(self) -> bool:
        return ROMFS_WORD in self.app


def chip_of(board: Profile) -> Chip:
    chip = CHIPS.get(board.chip)
    if chip is None:
        raise UserError("board '%s' (%s) is no chip that can be flashed" % (board.name, board.chip))
    return chip


def read(path: Path, chip: Chip, any_version: bool = False) -> Firmware:
    """The firmware in this file, for this chip."""
    data = path.read_bytes()
    if not data or data[0] != _MAGIC:
        text = "%s is no firmware of an ESP32: give the .bin of MicroPython for %s"
        raise UserError(text % (path, chip.name))
    found = _chip_number(path, data)
    if found != chip.number:
        known = {each.number: each.name for each in CHIPS.values()}
        other = known.get(found, "a chip of number %d" % found)
        raise UserError(
            "%s is for %s, and the board has an %s: give the firmware for it" % (path, other, chip.name)
        )
    at = partitions.TABLE_AT - chip.bootloader_at
    try:
        table = partitions.from_bytes(data[at : at + partitions.TABLE_SIZE], _FLASH_BYTES_MAX)
    except UserError as trouble:
        text = "%s has no partition table at 0x%x (%s): give the whole firmware, not the application alone"
        raise UserError(text % (path, at, trouble))
    apps = [p for p in table if p.type == partitions.APP]
    if not apps:
        raise UserError("%s has no application in its partition table: give the .bin of MicroPython" % path)
    bootloader = data[: _length(path, data[:at], "bootloader")]
    rest = data[apps[0].offset - chip.bootloader_at :]
    app = rest[: _length(path, rest, "application")]
    version = _version(path, app)
    wanted = environment.MICROPYTHON_VERSION
    if version[:2] != wanted[:2] and not any_version:
        text = (
            "%s is MicroPython %d.%d.%d, and Headwater is tested with %d.%d: give that one, or flash this "
            "one with --any-version"
        )
        raise UserError(text % (path, *version, *wanted[:2]))
    return Firmware(bootloader, app, version)


def with_flash_size(bootloader: bytes, megabytes: int) -> bytes:
    """The bootloader for a flash of this size: it refuses partitions beyond what its header names."""
    out = bytearray(bootloader)
    out[3] = _FLASH_SIZES[megabytes] << 4 | out[3] & 15
    if out[_HEADER.size - 1]:
        out[-_DIGEST_SIZE:] = hashlib.sha256(out[:-_DIGEST_SIZE]).digest()
    return bytes(out)


def _chip_number(path: Path, data: bytes) -> int:
    if len(data) < _HEADER.size:
        raise UserError("%s ends within its first header: fetch or build it again" % path)
    return int(_HEADER.unpack_from(data)[6])


def _length(path: Path, data: bytes, what: str) -> int:
    """Bytes of the image at the beginning of `data`, which is whole: its checksum and digest are right."""
    damaged = UserError("the %s in %s is cut or damaged: fetch or build the file again" % (what, path))
    if len(data) < _HEADER.size or data[0] != _MAGIC or not 1 <= data[1] <= _SEGMENTS_MAX:
        raise damaged
    at = _HEADER.size
    checksum = _CHECKSUM_SEED
    for _ in range(data[1]):
        if len(data) < at + _SEGMENT.size:
            raise damaged
        size = int(_SEGMENT.unpack_from(data, at)[1])
        at += _SEGMENT.size
        checksum ^= _xor(data[at : at + size])
        at += size
    at = at // 16 * 16 + 15  # the checksum is the last byte of a row of 16
    if len(data) <= at or data[at] != checksum:
        raise damaged
    at += 1
    if data[_HEADER.size - 1]:
        if hashlib.sha256(data[:at]).digest() != data[at : at + _DIGEST_SIZE]:
            raise damaged
        at += _DIGEST_SIZE
    return at


def _xor(data: bytes) -> int:
    """All bytes of `data`, by exclusive or: halves folded onto each other."""
    size = 1
    while size < len(data):
        size *= 2
    value = int.from_bytes(data, "little")
    while size > 1:
        size //= 2
        value = value >> 8 * size ^ value & (1 << 8 * size) - 1
    return value


def _version(path: Path, app: bytes) -> tuple[int, int, int]:
    match = _VERSION.search(app)
    if match:
        return int(match[1]), int(match[2]), int(match[3] or 0)
    raise UserError("%s is firmware for this chip, but no MicroPython: give the .bin of MicroPython" % path)
