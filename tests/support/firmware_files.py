"""Firmware files in the form of ESP-IDF, small, for tests: every header, checksum and digest is right."""

from __future__ import annotations

import hashlib
import random
import struct

from headwater_tools.boards.firmware_file import Chip
from headwater_tools.image import partitions

STOCK_TABLE = (
    partitions.Partition("nvs", partitions.DATA, 2, 0x9000, 0x6000),
    partitions.Partition("phy_init", partitions.DATA, 1, 0xF000, 0x1000),
    partitions.Partition("factory", partitions.APP, 0, 0x10000, 0x1F0000),
    partitions.Partition("vfs", partitions.DATA, 0x81, 0x200000, 0x200000),
)
BANNER = b"MicroPython v%s on 2025-04-15; Generic ESP32 module with ESP32\0"


def image(chip: Chip, *segments: bytes, digest: bool = True, megabytes: int = 4) -> bytes:
    """One image: a bootloader or an application."""
    sizes = {4: 2, 8: 3}
    out = bytearray((0xE9, len(segments), 2, sizes[megabytes] << 4 | 15))
    out += struct.pack("<IB3sHBHH4sB", 0x40080000, 0, b"", chip.number, 0, 0, 0xFFFF, b"", digest)
    checksum = 0xEF
    for k, segment in enumerate(segments):
        segment += bytes(-len(segment) % 4)
        out += struct.pack("<II", 0x3F400000 + 0x10000 * k, len(segment)) + segment
        for byte in segment:
            checksum ^= byte
    out += bytes(15 - len(out) % 16) + bytes((checksum,))
    return bytes(out) + (hashlib.sha256(out).digest() if digest else b"")


def firmware(
    chip: Chip,
    *,
    version: bytes = b"1.25.0",
    romfs: bool = True,
    banner: bytes = BANNER,
    size: int = 20_000,
    table: tuple[partitions.Partition, ...] = STOCK_TABLE,
) -> bytes:
    """The flash from the bootloader on, as MicroPython's build writes it."""
    chance = random.Random(chip.number)
    words = banner % version + b"VfsLfs2\0" + (b"VfsRom\0" if romfs else b"")
    out = bytearray(b"\xff" * (0x10000 - chip.bootloader_at))
    boot = image(chip, chance.randbytes(1000), chance.randbytes(333))
    out[: len(boot)] = boot
    at = partitions.TABLE_AT - chip.bootloader_at
    out[at : at + partitions.TABLE_SIZE] = partitions.to_bytes(table)
    return bytes(out) + image(chip, words, chance.randbytes(size))
