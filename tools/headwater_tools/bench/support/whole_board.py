"""SP1 on a whole board: its program with MQTT over TLS, broker and gateway, and a sensor faster than real
time; with Bluetooth beside that where it is asked for.

The heap of a board is measured here: nothing is left out but the drivers and the radio of a chip, and the
clock of every part is the real one.
"""

from __future__ import annotations

import contextlib
import enum
import os
import re
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headwater.process import Process

from ...boards import virtual
from ...errors import UserError

if TYPE_CHECKING:
    from ...demo.site import Site

SPEED = 20  # times the rate of the process: a million elements of an electrocardiogram in 139 s
# With Bluetooth: faster, and the machine would decide how much waits, and so how much a board holds.
SPEED_BLUETOOTH = 5
SECTORS = 64  # of its log: 256 KB, as on the board of the other measurements; it must hold a table of them
PATIENCE_S = 40  # for the start and for what is left at the end
REST_HEAP_KIB = 192
REST_PATIENCE_S = 120
LOOKS_AT_REST = 3  # a connection that is not needed any more is left after 2 s
AT_REST = re.compile(r"bench rest links (\S+) live (\d+) modules (.*)")
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


class Rest(NamedTuple):
    """What a board holds at rest: it is linked and runs its process, and its sensor gives nothing."""

    live: int  # least bytes of heap in use, of some looks after a collection
    connected: int  # the same while a Bluetooth connection is open beside the broker's; 0 without Bluetooth
    modules: frozenset[str]  # of the package, as an image names them


class Radios(enum.Enum):
    """Which of a site have Bluetooth."""

    NONE = enum.auto()
    GATEWAY = enum.auto()
    BOTH = enum.auto()


def run(
    process: Process, stream: str, ecg: Path, elements: int, heap_kib: int, bluetooth: bool = False
) -> Life | str:
    """Run `process` on board `chest`, source `ecg`, until `elements` are accepted, and wait until `stream`
    of the lake has arrived. If the board fails, its reason."""
    radios = Radios.BOTH if bluetooth else Radios.NONE
    with _begun(process, ecg, elements, heap_kib, radios) as (site, board):
        if bluetooth and (why := _connected(site, board)):
            return why
        return _watched(site, board, stream, elements, SPEED_BLUETOOTH if bluetooth else SPEED)


def rest(process: Process, ecg: Path, radios: Radios) -> Rest:
    """Of the board, in the same interpreter, whether it has Bluetooth or not."""
    with _begun(process, ecg, 0, REST_HEAP_KIB, radios, True) as (site, board):
        live, modules = _at_rest(board, "-M")
        if radios is not Radios.BOTH:
            return Rest(live, 0, modules)
        if why := _connected(site, board):
            raise UserError("a board at rest: " + why)
        connected, modules = _at_rest(board, "BM")
        return Rest(live, connected, modules)


def _at_rest(board: virtual.VirtualBoard, links: str) -> tuple[int, frozenset[str]]:
    """Bytes in use while it has these links, and the modules that are loaded then."""
    end = time.monotonic() + REST_PATIENCE_S
    board.lines.clear()
    while True:
        found = [match for line in list(board.lines) if (match := AT_REST.match(line)) and match[1] == links]
        if len(found) >= LOOKS_AT_REST:
            return min(int(match[2]) for match in found), frozenset(found[-1][3].split())
        if (why := _failure(board)) or time.monotonic() > end:
            raise UserError("a board at rest: " + (why or " | ".join(list(board.lines)[-2:])))
        time.sleep(0.1)


def _connected(site: Site, board: virtual.VirtualBoard) -> str | None:
    """Have the board connect by Bluetooth: it does so while the broker is away. Then it has both links
    until Bluetooth is not needed any more. If it does not connect, why."""
    board.lines.clear()
    site.cords[board.name].pull()
    end = time.monotonic() + REST_PATIENCE_S
    while not any(line.startswith("bench links B-") for line in list(board.lines)):
        if (why := _failure(board)) or time.monotonic() > end:
            return why or "no connection: " + " | ".join(list(board.lines)[-2:])
        time.sleep(0.05)
    site.cords[board.name].plug()
    return None


@contextlib.contextmanager
def _begun(
    process: Process, ecg: Path, elements: int, heap_kib: int, radios: Radios, radio: bool = False
) -> Iterator[tuple[Site, virtual.VirtualBoard]]:
    """A site with the board, which starts. `radio`: it has one, whether it uses it or not."""
    from ...demo.site import OFF, ON, Site

    with contextlib.ExitStack() as after:
        folder = after.enter_context(tempfile.TemporaryDirectory(prefix="hw-board-"))
        bluetooth = radios is Radios.BOTH
        station = None
        if bluetooth or radio:
            from ...radio.station import Station

            station = after.enter_context(Station())
        site = Site(Path(folder), None if radios is Radios.NONE else station)
        after.callback(site.close)
        site.start_broker()
        site.start_gateway()
        settings = {
            "driver": "fast", "path": str(ecg), "speed": SPEED_BLUETOOTH if bluetooth else SPEED,
            "elements": elements, "ledger": None, "t0_us": time.time_ns() // 1000,
        }  # fmt: skip
        program = ("board_bench_node", "board_bench_free")
        board = site.add_board(
            "chest", {"ecg": settings}, "%dk" % heap_kib, program, SECTORS,
            bluetooth=ON if bluetooth else OFF,
        )  # fmt: skip
        board.radio = station
        site.register("wrist")
        # The broker reads the passwords of the boards again.
        os.kill(site.broker.pid(), signal.SIGHUP)
        site.deploy(process)
        board.start()
        yield site, board


def _watched(site: Site, board: virtual.VirtualBoard, stream: str, elements: int, speed: int) -> Life | str:
    rate_hz = 360 * speed
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
