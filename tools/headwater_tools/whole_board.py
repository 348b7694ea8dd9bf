"""SP1 on a whole board: its program with MQTT over TLS, broker and gateway, and a sensor faster than life.

The heap of a board is measured here: nothing is left out but the drivers and the radio of a chip, and the
clock of every part is the real one.
"""

from __future__ import annotations

import os
import re
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headwater.process import Process

from . import Trouble, virtual_board

if TYPE_CHECKING:
    from .demo.site import Site

SPEED = 20  # times the rate of the process: a million elements of an electrocardiogram in 139 s
PATIENCE_S = 40  # for the start and for what is left at the end
REPORT = re.compile(r"bench accepted (\d+) missed (\d+) live (\d+) free (\d+) block (\d+)")


class Life(NamedTuple):
    """What a board was seen to do."""

    accepted: int
    missed: int  # samples that the source refused
    arrived: int  # elements that the gateway has durable
    live: int  # most bytes of heap in use, of 40 looks after a collection
    free: int  # bytes of heap at the end
    block: int  # smallest of the largest free blocks, of the same looks
    cpu_us: float  # of the whole process, an element

    @property
    def whole(self) -> bool:
        return self.arrived == self.accepted and not self.missed


def run(process: Process, stream: str, ecg: Path, elements: int, heap_kib: int) -> Life | str:
    """Run `process` on board `chest`, source `ecg`, until `elements` are accepted, and wait until `stream`
    of the lake has arrived. If the board fails, the reason it gave."""
    from .demo.site import Site

    with tempfile.TemporaryDirectory(prefix="hw-board-") as folder:
        site = Site(Path(folder))
        try:
            site.start_broker()
            site.start_gateway()
            settings = {
                "driver": "fast", "path": str(ecg), "speed": SPEED, "elements": elements, "ledger": None,
                "t0_us": time.time_ns() // 1000,
            }  # fmt: skip
            board = site.add_board(
                "chest", {"ecg": settings}, "%dk" % heap_kib, ("board_bench_node", "board_bench_free")
            )
            site.register("wrist")
            # The broker reads the passwords of the boards again.
            os.kill(site.broker.pid(), signal.SIGHUP)
            site.deploy(process)
            board.start()
            return _watched(site, board, stream, elements)
        finally:
            site.close()


def _watched(site: Site, board: virtual_board.VirtualBoard, stream: str, elements: int) -> Life | str:
    rate_hz = 360 * SPEED
    end = time.monotonic() + PATIENCE_S + 3 * elements / rate_hz
    begun_ns: int | None = None
    seen = 0
    while time.monotonic() < end:
        lines = list(board.lines)
        for line in lines[seen:]:
            found = REPORT.match(line)
            if line == "bench begins":
                begun_ns = _cpu_ns(board)
            elif found and begun_ns is not None:
                accepted, missed, live, free, block = (int(word) for word in found.groups())
                cpu_us = (_cpu_ns(board) - begun_ns) / 1000 / accepted
                arrived = _arrived(site, stream, accepted)
                return Life(accepted, missed, arrived, live, free, block, cpu_us)
            elif " crashed: " in line or line.startswith("(ended with"):
                return line.rpartition(" crashed: ")[2]
        seen = len(lines)
        time.sleep(0.02)
    return "nothing more in %d s: %s" % (PATIENCE_S, " | ".join(list(board.lines)[-2:]))


def _cpu_ns(board: virtual_board.VirtualBoard) -> int:
    pid = board.pid()
    if pid is None:
        raise Trouble("the board ended while it was measured")
    return int(Path("/proc/%d/schedstat" % pid).read_text().split()[0])


def _arrived(site: Site, stream: str, wanted: int) -> int:
    """The elements of `stream` that are durable at the gateway, when all are or it takes too long."""
    end = time.monotonic() + PATIENCE_S
    while True:
        state = site.state() or {"streams": []}
        arrived = sum(int(s["durable"]) for s in state["streams"] if s["stream"] == stream)
        if arrived >= wanted or time.monotonic() > end:
            return arrived
        time.sleep(0.1)
