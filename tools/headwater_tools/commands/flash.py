"""`hw flash BOARD`: writes firmware, partition table and image onto a board at this machine's USB."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from .. import environment
from ..errors import UserError

SUMMARY = "flash a board: firmware, partition table and Headwater's image, or the image alone"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("board", metavar="BOARD", help="a folder of firmware/profiles, like esp32")
    parser.add_argument("--port", help="serial port of the board (default: the only one there is)")
    parser.add_argument(
        "--firmware",
        metavar="FILE",
        help="the .bin of MicroPython, written with the partition table; without it only the image is "
        "written, onto a board that has both",
    )
    parser.add_argument(
        "--kind",
        choices=("romfs", "littlefs"),
        default="romfs",
        help="romfs: for a firmware with MICROPY_VFS_ROM; littlefs: for stock firmware on a board with "
        "PSRAM; it replaces the files on the board, its configuration included",
    )
    parser.add_argument(
        "--erase",
        action="store_true",
        help="erase the whole flash before: log and configuration of the board are lost; needs --firmware",
    )
    parser.add_argument(
        "--any-version", action="store_true", help="take a firmware of another version of MicroPython too"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="make the files, and print the command instead of running it"
    )


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    environment.ensure("board")
    from ..boards import firmware_file, flashing, ports
    from ..image import profiles

    board = profiles.profile(args.board)
    chip = firmware_file.chip_of(board)
    if args.erase and not args.firmware:
        raise UserError("--erase removes the firmware too: give --firmware FILE with it")
    firmware = None
    if args.firmware:
        firmware = firmware_file.read(Path(args.firmware), chip, args.any_version)
        if args.kind == "romfs" and not firmware.romfs:
            raise UserError(
                "%s cannot mount a ROMFS image (it has no VfsRom, like all stock firmware of MicroPython): "
                "use one built with firmware/boards, or --kind littlefs on a board with PSRAM" % args.firmware
            )
    port = args.port or "PORT" if args.dry_run else ports.choose(args.port)
    found = flashing.parts(board, args.kind, firmware)
    if firmware is None and not args.dry_run:
        flashing.check_table(chip, port, board)
    elif args.kind == "romfs" and not args.erase and not args.dry_run:
        found += flashing.foreign_files(chip, port, board)
    pieces = flashing.files(board, args.kind, found, environment.CACHE / "flash")
    command = flashing.write_command(chip, port, board, pieces, args.erase)
    answer: dict[str, Any] = {
        "board": board.name,
        "port": port,
        "kind": args.kind,
        "command": command,
        "parts": [{"at": part.at, "bytes": len(part.data)} for part in found],
        "flashed": not args.dry_run,
    }
    if args.dry_run:
        print(flashing.shown(command))
        return 0, answer
    print("flashing %s at %s: %d bytes" % (board.chip, port, sum(len(part.data) for part in found)))
    progress = _Progress()
    try:
        flashing.write(command, board, port, progress)
    finally:
        progress.end()
    print("flashed, and compared by esptool; the board starts again")
    kept = args.kind == "romfs" and not args.erase
    print(
        "its log and configuration are as they were"
        if kept
        else "next: hw provision NAME SITE --port %s" % port
    )
    return 0, answer


class _Progress:
    """A percentage that is written over on a terminal, and every 25 % elsewhere."""

    def __init__(self) -> None:
        self.last = 0
        self.open = False

    def __call__(self, percent: int) -> None:
        if sys.stdout.isatty():
            print("\r%3d %%" % percent, end="", flush=True)
            self.open = True
        elif percent // 25 != self.last // 25:
            print("%3d %%" % percent, flush=True)
        self.last = percent

    def end(self) -> None:
        if self.open:
            print()
