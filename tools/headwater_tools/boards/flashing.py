"""What is written into the flash of a board, and esptool that writes it.

Bootloader, partition table, application and the ROMFS image lie before the partitions in which a board keeps
what only it has (its log, its configuration), so they are one merged image that leaves those alone. A
littlefs image lies after the log: it is a second part of the same command, and replaces the configuration.
Without a firmware only the image is written, onto a board whose partition table is the one of its profile.
A flash run that ends early leaves a board that does not start, or an old image; the same run again repairs
it, because esptool erases what it writes and compares each part by its MD5.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import environment
from ..errors import Failed, UserError
from ..image import builder, partitions
from ..image.profiles import Profile
from . import firmware_file
from .firmware_file import Chip, Firmware

PARTITION_OF = {"romfs": "romfs", "littlefs": "vfs"}
BAUD = 460800
ERASED = b"\xff"
_PROGRESS = re.compile(r"^Writing at 0x[0-9a-f]+\D.*?([\d.]+)%")
_LINES_KEPT = 30
_TOLD_MAX = 160


@dataclass(frozen=True)
class Part:
    """Bytes for one place of the flash."""

    at: int
    data: bytes


def parts(board: Profile, kind: str, firmware: Firmware | None) -> list[Part]:
    """What is written onto a board, in order of addresses."""
    made = builder.romfs_image(board) if kind == "romfs" else builder.littlefs_image(board)
    image = Part(_partition(board, PARTITION_OF[kind]).offset, made.read_bytes())
    if firmware is None:
        return [image]
    chip = firmware_file.chip_of(board)
    app = next(p for p in board.table if p.type == partitions.APP)
    bootloader = firmware_file.with_flash_size(firmware.bootloader, board.flash_kib // 1024)
    for what, size, room in (
        ("bootloader", len(bootloader), partitions.TABLE_AT - chip.bootloader_at),
        ("application", len(firmware.app), app.size),
    ):
        if size > room:
            text = "the %s of this firmware has %d bytes, and the flash of %s has room for %d"
            raise UserError(text % (what, size, board.name, room))
    table = partitions.to_bytes(board.table)
    found = [Part(chip.bootloader_at, bootloader), Part(partitions.TABLE_AT, table)]
    found.append(Part(app.offset, firmware.app))
    if kind == "romfs":
        return [merged([*found, image])]
    return [merged(found), image]


def merged(found: Sequence[Part]) -> Part:
    """Parts in one, erased between them."""
    start = found[0].at
    out = bytearray()
    for part in found:
        assert part.at >= start + len(out), "parts that overlap"
        out += ERASED * (part.at - start - len(out)) + part.data
    return Part(start, bytes(out))


def files(board: Profile, kind: str, found: Sequence[Part], folder: Path) -> list[tuple[int, Path]]:
    """The parts as files: (address, file)."""
    folder.mkdir(parents=True, exist_ok=True)
    out = []
    for part in found:
        path = folder / ("%s.%s.0x%x.bin" % (board.name, kind, part.at))
        path.write_bytes(part.data)
        out.append((part.at, path))
    return out


def write_command(
    chip: Chip, port: str, board: Profile, pieces: Sequence[tuple[int, Path]], erase: bool = False
) -> list[str]:
    """The line that flashes."""
    words = [*_esptool(chip, port), "--baud", str(BAUD), "--after", "hard-reset", "write-flash"]
    words += ["--erase-all"] if erase else []
    words += ["--flash-size", "keep"]
    for at, path in pieces:
        words += ["0x%x" % at, str(path)]
    return words


def shown(command: Sequence[str]) -> str:
    """A command as a person would type it."""
    return shlex.join(["esptool" if command[1:3] == ["-m", "esptool"] else command[0], *command[3:]])


def write(command: Sequence[str], board: Profile, port: str, on_percent: Callable[[int], None]) -> None:
    """Run esptool; `on_percent` is called whenever the percentage of a part has grown."""
    code, lines = _run(command, on_percent)
    if code:
        raise explain(lines, board, port)


def foreign_files(chip: Chip, port: str, board: Profile) -> list[Part]:
    """What erases the beginning of the partition `vfs` where it holds neither nothing nor a file system of
    its size: MicroPython makes a file system where it finds nothing, and stops at anything else."""
    where = _partition(board, "vfs")
    found = _read(chip, port, board, where.offset, 2 * partitions.BLOCK)
    blocks = where.size // partitions.BLOCK
    for at in (0, partitions.BLOCK):
        head = found[at + 8 : at + 32]
        if head[:8] == b"littlefs" and int.from_bytes(head[20:24], "little") == blocks:
            return []
    return [Part(where.offset, ERASED * len(found))] if found.strip(ERASED) else []


def check_table(chip: Chip, port: str, board: Profile) -> None:
    """Refuse a board whose partition table is not that of its profile."""
    data = _read(chip, port, board, partitions.TABLE_AT, partitions.TABLE_SIZE)
    try:
        found = partitions.from_bytes(data, board.flash_kib * 1024)
    except UserError as trouble:
        told = str(trouble)
    else:
        if found == board.table:
            return
        told = "its partition table is another one"
    raise UserError(
        "the board at %s cannot take an image alone (%s): give --firmware FILE, which writes the firmware "
        "and the partition table of firmware/profiles/%s too" % (port, told, board.name)
    )


def _read(chip: Chip, port: str, board: Profile, at: int, size: int) -> bytes:
    """Bytes of the board's flash."""
    with tempfile.TemporaryDirectory(prefix="hw-flash-") as folder:
        path = Path(folder) / "found"
        words = [*_esptool(chip, port), "--after", "no-reset", "read-flash"]
        code, lines = _run([*words, "0x%x" % at, "0x%x" % size, str(path)], lambda percent: None)
        if code:
            raise explain(lines, board, port)
        return path.read_bytes()


def explain(lines: Sequence[str], board: Profile, port: str) -> UserError:
    """What esptool's failure means."""
    text = "\n".join(lines)
    wrong = re.search(r"This chip is (.+?), not ([^\s.]+)", text)
    if wrong:
        near = [name for name, chip in firmware_file.CHIPS.items() if chip.name == wrong[1]]
        known = [name for name in _flashable() if _flashable()[name] in near]
        cure = "use `hw flash %s`" % known[0] if known else "there is no profile for it"
        return UserError(
            "the board at %s has an %s, and %s is for an %s: %s"
            % (port, wrong[1], board.name, board.chip, cure)
        )
    if "Connected to" not in text:
        return _no_contact(text, port)
    told = next(
        (line for line in lines if line.startswith("ERROR: ")), lines[-1] if lines else "it is silent"
    )
    told = told.removeprefix("ERROR: ").partition(" This can have many causes")[0].rstrip(". ")
    return Failed(
        "flashing the board at %s broke off (esptool: %s): leave it plugged in and run this again; it writes "
        "everything from the start" % (port, told[:_TOLD_MAX])
    )


def _no_contact(text: str, port: str) -> UserError:
    if re.search(r"Permission denied|Errno 13", text):
        return UserError("no permission for %s: add yourself to its group, then log in again" % port)
    if re.search(r"Errno 16|exclusively lock", text):
        return UserError("%s is in use by another program: end it first" % port)
    if re.search(r"[Cc]ould not open", text):
        return Failed("%s cannot be opened: the board was unplugged, or another program took it" % port)
    return Failed(
        "the chip at %s does not answer: hold its button BOOT, press RESET, release both, and run this again"
        % port
    )


def _flashable() -> dict[str, str]:
    from ..image import profiles

    return {name: profiles.profile(name).chip for name in profiles.names()}


def _partition(board: Profile, label: str) -> partitions.Partition:
    for partition in board.table:
        if partition.label == label:
            return partition
    raise UserError("firmware/profiles/%s/partitions.csv has no partition %s" % (board.name, label))


def _esptool(chip: Chip, port: str) -> list[str]:
    return [sys.executable, "-m", "esptool", "--chip", chip.esptool, "--port", port]


def _run(command: Sequence[str], on_percent: Callable[[int], None]) -> tuple[int, list[str]]:
    lines: list[str] = []
    percent = -1
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**environment.variables(), "PYTHONUNBUFFERED": "1", "NO_COLOR": "1", "COLUMNS": "200"},
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            match = _PROGRESS.match(line)
            if match:
                now = int(float(match[1]))
                if now != percent:
                    percent = now
                    on_percent(now)
            elif line.strip():
                lines = [*lines, line.rstrip()][-_LINES_KEPT:]
    return process.returncode, lines
