"""SP1 on a whole board: its program with MQTT over TLS, broker and gateway, and a sensor faster than real
time.

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

from ...boards import virtual

if TYPE_CHECKING:
    from ...demo.site import Site

SPEED = 20  # times the rate of the process: a million elements of an electrocardiogram in 139 s
SECTORS = 64  # of its log: 256 KB, as on the board of the other measurements; it must hold a table of them
PATIENCE_S = 40  # for the start and for what is left at the end
REPORT = re.compile(r"bench accepted (\d+) missed (\d+) holes (\d+) live (\d+) free (\d+) block (\d+)")


class Life(NamedTuple):
    """What was observed of a board."""

    accepted: int
    missed: int  # samples that the source refused
    holes: int  # times that the sensor was not read in time, by a machine that is busy
    arrived: int  # elements that the gateway has durable
    live: int  # most bytes of heap in use, of 40 looks after a collection
    free: int  # bytes of heap at the end
    block: int  # smallest of the largest free blocks, of the same looks
    cpu_us: float  # of the whole process, an element

    @property
    def whole(self) -> bool:
        return self.accepted <= self.arrived <= self.accepted + self.holes and not self.missed


def run(process: Process, stream: str, ecg: Path, elements: int, heap_kib: int) -> Life | str:
    """Run `process` on board `chest`, source `ecg`, until `elements` are accepted, and wait until `stream`
    of the lake has arrived. If the board fails, its reason."""
    from ...demo.site import Site

    with tempfile.TemporaryDirectory(prefix="hw-board-") as folder:
        site = Site(Path(folder))
        try:
            site.start_broker()
            site.start_gateway()
            settings = {
                "driver": "fast", "path": str(ecg), "speed": SPEED, "elements": elements, "ledger": None,
                "t0_us": time.time_ns() // 1000,
            }  # fmt: skip
            program = ("board_bench_node", "board_bench_free")
            board = site.add_board("chest", {"ecg": settings}, "%dk" % heap_kib, program, SECTORS)
            site.register("wrist")
            # The broker reads the passwords of the boards again.
            os.kill(site.broker.pid(), signal.SIGHUP)
            site.deploy(process)
            board.start()
            return _watched(site, board, stream, elements)
        finally:
            site.close()


def _watched(site: Site, board: virtual.VirtualBoard, stream: str, elements: int) -> Life | str:
    rate_hz = 360 * SPEED
    end = time.monotonic() + PATIENCE_S + 3 * elements / rate_hz
    begun_ns: int | None = None
    while time.monotonic() < end:
        for line in list(board.lines):
            found = REPORT.match(line)
            if line == "bench begins" and begun_ns is None:
                begun_ns = _cpu_ns(board)
            elif found and begun_ns is not None:
                accepted, missed, holes, live, free, block = (int(word) for word in found.groups())
                cpu_us = (_cpu_ns(board) - begun_ns) / 1000 / accepted
                arrived = _arrived(site, board, stream, accepted)
                return _failure(board) or Life(accepted, missed, holes, arrived, live, free, block, cpu_us)
        if failure := _failure(board):
            return failure
        time.sleep(0.02)
    return "nothing more in %d s: %s" % (PATIENCE_S, " | ".join(list(board.lines)[-2:]))


def _failure(board: virtual.VirtualBoard) -> str | None:
    """Why the board ended, if it did."""
    for line in list(board.lines):
        if " crashed: " in line or line.startswith("(ended with"):
            return line.rpartition(" crashed: ")[2]
    return None


def _cpu_ns(board: virtual.VirtualBoard) -> int:
    """CPU time of the board's process; 0 if it has ended."""
    try:
        return int(Path("/proc/%d/schedstat" % (board.pid() or 0)).read_text().split()[0])
    except FileNotFoundError:
        return 0


def _arrived(site: Site, board: virtual.VirtualBoard, stream: str, wanted: int) -> int:
    """The elements of `stream` that are durable at the gateway, when all are, the board fails, or it takes
    too long."""
    end = time.monotonic() + PATIENCE_S
    while True:
        state = site.state() or {"streams": []}
        arrived = sum(int(s["durable"]) for s in state["streams"] if s["stream"] == stream)
        if arrived >= wanted or _failure(board) or time.monotonic() > end:
            return arrived
        time.sleep(0.1)
