"""`hw image BOARD`: builds what runs on a board, and reports its use of flash and heap."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

from .. import environment
from ..errors import UserError
from ..image import builder, profiles, report, verify

SUMMARY = (
    "build the image of a board: as ROMFS, as littlefs for stock firmware, or as a folder; with its sizes"
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "board", metavar="BOARD", nargs="?", help="a folder of firmware/profiles; none: list them"
    )
    parser.add_argument(
        "--kind",
        choices=builder.KINDS,
        default="romfs",
        help="romfs: used in place in flash, for a firmware with MICROPY_VFS_ROM; littlefs: for stock "
        "firmware, which copies it into the heap",
    )
    parser.add_argument("--out", metavar="FILE", help="where the image goes (default: .hw/images)")
    parser.add_argument(
        "--folder",
        metavar="FOLDER",
        help="also write the files of the image into this folder, with a package.json",
    )
    parser.add_argument(
        "--verify", metavar="PORT", help="ask the board at this port which names of the image it lacks in ROM"
    )


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    if args.board is None:
        if args.out or args.folder:
            raise UserError("name a board: %s" % ", ".join(profiles.names()))
        return _list()
    board = profiles.profile(args.board)
    if args.verify:
        return _verify(args.verify)
    made = {"romfs": builder.romfs_image(board), "littlefs": builder.littlefs_image(board)}
    found = report.report(board, made)
    for line in report.table(found):
        print(line)
    default = environment.CACHE / "images" / ("%s.%s" % (board.name, args.kind))
    out = Path(args.out) if args.out else default
    if not args.out:
        out.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(made[args.kind], out)
    print("made %s" % out)
    answer: dict[str, Any] = {**found, "kind": args.kind, "file": str(out)}
    if args.folder:
        files = builder.write_folder(board, Path(args.folder), environment.version())
        print("made %s: %d files" % (args.folder, len(files)))
        answer["folder"] = args.folder
    return 0, answer


def _verify(port: str) -> tuple[int, dict[str, Any]]:
    names, lacking = verify.of_board(port)
    for name in lacking:
        print("not in ROM: %s" % name)
    print("%d of the %d names of the image are in ROM" % (len(names) - len(lacking), len(names)))
    return int(bool(lacking)), {"names": len(names), "missing": lacking}


def _list() -> tuple[int, dict[str, Any]]:
    found = [profiles.profile(name) for name in profiles.names()]
    for board in found:
        words = (board.name, board.chip, board.flash_kib, board.heap_kib, board.float_bits)
        print("%-8s  %s, %d KiB of flash, %d KiB of heap, floats of %d bits" % words)
    return 0, {"boards": [board.name for board in found]}
