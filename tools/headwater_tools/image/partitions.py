"""Partition tables of ESP-IDF: the CSV that people write, and the bytes in flash that the bootloader reads.

A table is valid if its partitions come in order, do not overlap, are whole sectors (applications: begin at
64 KiB, which the cache maps at once) and end within the flash. Only valid tables are returned or made.
"""

from __future__ import annotations

import csv
import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError

BLOCK = 4096  # bytes that flash erases at once, and a block of littlefs
APP_BLOCK = 0x10000
TABLE_AT = 0x8000
TABLE_SIZE = 0xC00
APP, DATA = 0, 1
_TYPES = {"app": APP, "data": DATA}
_SUBTYPES = {
    (APP, "factory"): 0x00, (APP, "ota_0"): 0x10, (APP, "ota_1"): 0x11,
    (DATA, "ota"): 0x00, (DATA, "phy"): 0x01, (DATA, "nvs"): 0x02, (DATA, "fat"): 0x81,
    (DATA, "spiffs"): 0x82, (DATA, "littlefs"): 0x83,
}  # fmt: skip
_ENTRY = struct.Struct("<2sBBII16sI")
_MAGIC = b"\xaa\x50"
_DIGEST_MAGIC = b"\xeb\xeb" + b"\xff" * 14


@dataclass(frozen=True)
class Partition:
    label: str
    type: int
    subtype: int
    offset: int
    size: int

    @property
    def end(self) -> int:
        return self.offset + self.size


Table = tuple[Partition, ...]


def read_csv(path: Path, flash_bytes: int) -> Table:
    """The table in a file, for a flash of this size."""
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    found = []
    for row in csv.reader(lines):
        try:
            label, kind, sub, offset, size = (cell.strip() for cell in row[:5])
            number = _TYPES[kind]
            subtype = _SUBTYPES[number, sub] if (number, sub) in _SUBTYPES else int(sub, 0)
            found.append(Partition(label, number, subtype, int(offset, 0), int(size, 0)))
        except (KeyError, ValueError):
            text = "%s: '%s': give label, type, subtype, offset and size, as `log, data, 0x40, 0, 0x100000`"
            raise UserError(text % (path, ",".join(row)))
    return _checked(str(path), found, flash_bytes)


def to_bytes(table: Iterable[Partition]) -> bytes:
    """The table as it is in flash at TABLE_AT, with the digest that the bootloader checks."""
    entries = b"".join(
        _ENTRY.pack(_MAGIC, p.type, p.subtype, p.offset, p.size, p.label.encode(), 0) for p in table
    )
    whole = entries + _DIGEST_MAGIC + hashlib.md5(entries).digest()
    return whole + b"\xff" * (TABLE_SIZE - len(whole))


def from_bytes(data: bytes, flash_bytes: int) -> Table:
    """The table in these bytes of a flash."""
    found = []
    for at in range(0, min(len(data), TABLE_SIZE) - _ENTRY.size + 1, _ENTRY.size):
        entry = data[at : at + _ENTRY.size]
        if entry[:16] == _DIGEST_MAGIC:
            if entry[16:] != hashlib.md5(data[:at]).digest():
                raise UserError("the partition table is damaged: its digest is wrong")
            break
        if entry[:2] != _MAGIC:
            break
        _, kind, subtype, offset, size, label, _ = _ENTRY.unpack(entry)
        text = label.rstrip(b"\0").decode("ascii", "replace")
        found.append(Partition(text, kind, subtype, offset, size))
    if not found:
        raise UserError("there is no partition table")
    return _checked("the partition table", found, flash_bytes)


def _checked(where: str, found: list[Partition], flash_bytes: int) -> Table:
    end = 0
    for p in found:
        block = APP_BLOCK if p.type == APP else BLOCK
        if p.offset < end or p.offset % block or p.size % BLOCK or not p.size or p.end > flash_bytes:
            text = "%s: partition %s overlaps another, is not whole blocks of %d, or ends behind the flash"
            raise UserError(text % (where, p.label, block))
        end = p.end
    return tuple(found)
