"""An ESP32, ESP32-S3 or ESP32-C3 in its serial bootloader, for the real esptool: a pseudo-terminal, and a
file that is its flash.

It speaks the protocol that Espressif documents ("Serial Protocol"), as the ROM does and as the loader that
esptool puts into RAM does (the loader is taken and answered for, not run). The flash behaves as NOR: erasing
a sector gives 0xFF, programming only clears bits. `cut_after` takes the power away in the middle of a
program; what was programmed until then is in the file. The port goes away with the power, or, behind a USB
adapter with power of its own, stays and says nothing more (`adapter`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import struct
import threading
import tty
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SECTOR = 4096

# Commands of the protocol.
FLASH_BEGIN, FLASH_DATA, FLASH_END, MEM_BEGIN, MEM_END, MEM_DATA, SYNC = range(2, 9)
WRITE_REG, READ_REG, SPI_SET_PARAMS = 0x09, 0x0A, 0x0B
SPI_ATTACH, CHANGE_BAUDRATE = 0x0D, 0x0F
DEFLATED_BEGIN, DEFLATED_DATA, DEFLATED_END = 0x10, 0x11, 0x12
SPI_FLASH_MD5, GET_SECURITY_INFO = 0x13, 0x14
ERASE_FLASH, ERASE_REGION, READ_FLASH = 0xD0, 0xD1, 0xD2
WITHOUT_EFFECT = (MEM_BEGIN, MEM_DATA, SPI_SET_PARAMS, SPI_ATTACH, CHANGE_BAUDRATE, FLASH_END, DEFLATED_END)

# Errors of the ROM.
UNKNOWN, FAILED, BAD_CHECKSUM = 5, 6, 7

ROM_SYNC = 0x20120707  # what the ROM says to SYNC; the loader says 0
CHECKSUM_SEED = 0xEF
MAGIC_REGISTER = 0x40001000
UART_DIVIDER = (0x3FF40014, 347)  # what a crystal of 40 MHz gives at 115200 baud
MAC = (0x246F, 0x28010203)
RUN_COMMAND = 1 << 18  # of the SPI controller
READ_ID = 0x9F
FLASH_IDS = {4: 0x164020, 8: 0x174020}


@dataclass(frozen=True)
class Kind:
    """Where esptool looks to tell chips apart, and where the SPI controller is."""

    magic: int
    number: int | None  # in the security information, which an ESP32 does not have
    mac_at: int
    spi: int
    user: int
    answer: int


KINDS = {
    "ESP32": Kind(0x00F01D83, None, 0x3FF5A004, 0x3FF42000, 0x1C, 0x80),
    "ESP32-S3": Kind(0x9, 9, 0x60007044, 0x60002000, 0x18, 0x58),
    "ESP32-C3": Kind(0x1B31506F, 5, 0x60008844, 0x60002000, 0x18, 0x58),
}


class PowerCut(Exception):
    pass


class Refused(Exception):
    """A command that the chip answers with an error."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Flash:
    """NOR flash in a file."""

    def __init__(self, path: Path, size: int) -> None:
        if not path.exists():
            path.write_bytes(b"\xff" * size)
        self.path = path
        self.size = size
        self.programmed = 0
        self.cut_after: int | None = None

    def read(self, at: int, n: int) -> bytes:
        with open(self.path, "rb") as file:
            file.seek(at)
            return file.read(n)

    def erase(self, at: int, n: int) -> None:
        if at + n > self.size:
            raise Refused(FAILED)
        start, end = at // SECTOR * SECTOR, -(-(at + n) // SECTOR) * SECTOR
        self._write(start, b"\xff" * (end - start))

    def program(self, at: int, data: bytes) -> None:
        room = None if self.cut_after is None else self.cut_after - self.programmed
        cut = room is not None and room <= len(data)
        if cut:
            data = data[:room]
        old = int.from_bytes(self.read(at, len(data)), "little")
        new = old & int.from_bytes(data, "little")
        self._write(at, new.to_bytes(len(data), "little"))
        self.programmed += len(data)
        if cut:
            raise PowerCut

    def _write(self, at: int, data: bytes) -> None:
        with open(self.path, "r+b") as file:
            file.seek(at)
            file.write(data)


class Chip:
    """What answers commands, from one reset to the next."""

    def __init__(self, kind: Kind, flash: Flash) -> None:
        self.kind = kind
        self.flash = flash
        high, low = MAC
        self.registers = {MAGIC_REGISTER: kind.magic, kind.mac_at: low, kind.mac_at + 4: high}
        self.registers[UART_DIVIDER[0]] = UART_DIVIDER[1]
        self.loader = False
        self.at = self.left = 0
        self.inflate = zlib.decompressobj()

    def command(self, op: int, data: bytes, checksum: int) -> tuple[int, bytes]:
        """-> value and body of the answer."""
        words = struct.unpack_from("<%dI" % (len(data) // 4), data)
        if op in WITHOUT_EFFECT:
            return 0, b""
        if op == SYNC:
            return 0 if self.loader else ROM_SYNC, b""
        if op == READ_REG:
            return self.registers.get(words[0], 0), b""
        if op == MEM_END:
            self.loader = words[0] == 0
            return 0, b""
        if op == WRITE_REG:
            for k in range(0, len(words) - 3, 4):
                self._write_register(words[k], words[k + 1])
            return 0, b""
        if op == GET_SECURITY_INFO and self.kind.number is not None:
            return 0, struct.pack("<IB7sII", 0, 0, bytes(7), self.kind.number, 0)
        return 0, self._flash_command(op, data, words, checksum)

    def _flash_command(self, op: int, data: bytes, words: tuple[int, ...], checksum: int) -> bytes:
        if op in (FLASH_BEGIN, DEFLATED_BEGIN):
            self.left, self.at = words[0], words[3]
            self.flash.erase(self.at, self.left)
            self.inflate = zlib.decompressobj()
        elif op in (FLASH_DATA, DEFLATED_DATA):
            self._block(data[16:], words[0], checksum, op == DEFLATED_DATA)
        elif op == SPI_FLASH_MD5:
            digest = hashlib.md5(self.flash.read(words[0], words[1]))
            return digest.digest() if self.loader else digest.hexdigest().encode()
        elif op == ERASE_FLASH and self.loader:
            self.flash.erase(0, self.flash.size)
        elif op == ERASE_REGION and self.loader:
            self.flash.erase(words[0], words[1])
        elif op != READ_FLASH or not self.loader:
            raise Refused(UNKNOWN)
        return b""

    def _block(self, block: bytes, size: int, checksum: int, deflated: bool) -> None:
        found = CHECKSUM_SEED
        for byte in block:
            found ^= byte
        if len(block) != size or found != checksum:
            raise Refused(BAD_CHECKSUM)
        if deflated:
            block = self.inflate.decompress(block)
        block = block[: self.left]  # the last block is filled up
        self.flash.program(self.at, block)
        self.at += len(block)
        self.left -= len(block)

    def _write_register(self, at: int, value: int) -> None:
        self.registers[at] = value
        spi = self.kind.spi
        if at == spi and value & RUN_COMMAND:
            wanted = self.registers.get(spi + self.kind.user + 8, 0) & 0xFF
            size = FLASH_IDS[self.flash.size >> 20] if wanted == READ_ID else 0
            self.registers[spi + self.kind.answer] = size
            self.registers[spi] = 0


class Slip:
    """Packets over one end of a pseudo-terminal."""

    def __init__(self, fd: int, stop: int) -> None:
        self.fd = fd
        self.stop = stop  # readable when the power goes
        self.buffer = b""

    def packet(self) -> bytes:
        while True:
            start = self.buffer.find(b"\xc0")
            end = self.buffer.find(b"\xc0", start + 1)
            if start >= 0 and end == start + 1:  # the end of one packet, the beginning of the next
                self.buffer = self.buffer[end:]
            elif start >= 0 and end >= 0:
                data = self.buffer[start + 1 : end]
                self.buffer = self.buffer[end + 1 :]
                return data.replace(b"\xdb\xdc", b"\xc0").replace(b"\xdb\xdd", b"\xdb")
            else:
                self.buffer += self._more()

    def send(self, data: bytes) -> None:
        data = b"\xc0" + data.replace(b"\xdb", b"\xdb\xdd").replace(b"\xc0", b"\xdb\xdc") + b"\xc0"
        while data:
            data = data[os.write(self.fd, data) :]

    def swallow(self) -> None:
        """Take what comes, as a wire with nothing at its end."""
        self._more()

    def _more(self) -> bytes:
        ready, _, _ = select.select([self.fd, self.stop], [], [])
        if self.stop in ready:
            raise PowerCut
        return os.read(self.fd, 65536)


def serve(chip: Chip, line: Slip) -> None:
    """Answer commands until the power goes."""
    while True:
        packet = line.packet()
        if len(packet) < 8 or packet[0] != 0:
            continue
        _, op, size, checksum = struct.unpack_from("<BBHI", packet)
        data = packet[8 : 8 + size]
        try:
            value, body = chip.command(op, data, checksum)
            error = 0
        except Refused as refused:
            value, body, error = 0, b"", refused.code
        status = bytes((1 if error else 0, error)) + (b"" if chip.loader and op != MEM_END else b"\0\0")
        answer = struct.pack("<BBHI", 1, op, len(body) + len(status), value) + body + status
        for _ in range(8 if op == SYNC else 1):
            line.send(answer)
        if op == MEM_END and chip.loader:
            line.send(b"OHAI")
        elif op == READ_FLASH and not error:
            _send_flash(chip, line, *struct.unpack_from("<4I", data))


def _send_flash(chip: Chip, line: Slip, at: int, size: int, block: int, in_flight: int) -> None:
    sent = 0
    digest = hashlib.md5()
    while sent < size:
        part = chip.flash.read(at + sent, min(block, size - sent))
        line.send(part)
        digest.update(part)
        sent += len(part)
        while struct.unpack_from("<I", line.packet())[0] < sent:
            pass
    line.send(digest.digest())


@contextlib.contextmanager
def plugged(kind: str, flash: Flash, adapter: bool = False) -> Iterator[str]:
    """A chip with power, in its bootloader; gives the name of its port."""
    master, slave = os.openpty()
    tty.setraw(slave)
    stopped, stop = os.pipe()
    gone = threading.Event()

    def run() -> None:
        line = Slip(master, stopped)
        with contextlib.suppress(PowerCut, OSError):
            serve(Chip(KINDS[kind], flash), line)
        if adapter:
            with contextlib.suppress(PowerCut, OSError):
                while True:
                    line.swallow()
        else:
            gone.set()
            os.close(master)

    thread = threading.Thread(target=run, name="chip", daemon=True)
    thread.start()
    try:
        yield os.ttyname(slave)
    finally:
        os.write(stop, b"x")
        thread.join(10)
        assert not thread.is_alive(), "the chip did not stop"
        for fd in (slave, stopped, stop, *(() if gone.is_set() else (master,))):
            os.close(fd)


@contextlib.contextmanager
def silent() -> Iterator[str]:
    """A port behind which nothing answers."""
    master, slave = os.openpty()
    tty.setraw(slave)
    try:
        yield os.ttyname(slave)
    finally:
        os.close(slave)
        os.close(master)
