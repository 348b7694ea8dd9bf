"""What an image takes of a board: bytes of each module and of each kind of image, and heap.

Heap is measured on the 32-bit MicroPython of virtual boards: the modules that stay loaded, after a
collection. Buffers, plan and operators of a process come on top of it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import environment
from ..errors import UserError
from . import builder
from .profiles import BLOCK, Profile
from .sources import PACKAGE

SCRIPT = Path(__file__).parents[1] / "boards" / "on_board" / "board_heap.py"
STAY = ("core", "program", "mqtt")  # modules that are loaded for as long as a board runs
PARTITIONS = {"romfs": "romfs", "littlefs": "vfs"}  # kind of image -> where it goes


def heap_taken(board: Profile, kind: str, image: Path) -> int:
    """Bytes of heap that the modules take which stay loaded."""
    blocks = board.partitions[PARTITIONS[kind]] // BLOCK
    words = [str(SCRIPT), str(image), kind, str(blocks), *("%s.%s" % (PACKAGE, name) for name in STAY)]
    done = subprocess.run(
        [*environment.micropython(), "-X", "heapsize=512k", *words],
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        raise UserError("the image of %s does not load: %s" % (board.name, done.stderr.strip()))
    return int(done.stdout)


def report(board: Profile, images: Mapping[str, Path]) -> dict[str, Any]:
    """Kind of image -> file, in numbers."""
    modules = {
        inside.removesuffix(".mpy"): len(data)
        for inside, data in builder.contents(board).items()
        if not builder.is_stub(inside)
    }
    kinds = [
        {
            "kind": kind,
            "bytes": path.stat().st_size,
            "partition": PARTITIONS[kind],
            "partition_bytes": board.partitions[PARTITIONS[kind]],
            "heap_bytes": heap_taken(board, kind, path),
        }
        for kind, path in images.items()
    ]
    return {
        "board": board.name,
        "chip": board.chip,
        "version": environment.version(),
        "linked": sorted(builder.linked().parts),
        "modules": modules,
        "bytes": sum(modules.values()),
        "heap": board.heap_kib * 1024,
        "heap_grows": board.heap_grows,
        "kinds": kinds,
    }


def table(found: dict[str, Any]) -> list[str]:
    lines = ["%7d B  %s" % (size, name) for name, size in found["modules"].items()]
    lines.append("%7d B  together; core is %s" % (found["bytes"], ", ".join(found["linked"])))
    for each in found["kinds"]:
        words = (each["kind"], each["bytes"], each["partition_bytes"], each["partition"])
        line = "%-8s  %d bytes of %d (partition %s)" % words
        lines.append("%s; %d bytes of heap for what stays loaded" % (line, each["heap_bytes"]))
    more = ", and grows by what ESP-IDF has left" if found["heap_grows"] else ""
    lines.append(
        "heap      starts with %d bytes%s; measured on 32-bit MicroPython for Unix" % (found["heap"], more)
    )
    return lines
