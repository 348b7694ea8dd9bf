"""A board without hardware: the program of a board in a 32-bit MicroPython with a bounded heap.

Its flash is a file that behaves like NOR flash, its sensors are pure functions of the number of the
sample (`boards/on_board/board_sensors.py`), its battery is a file that can be written, its buzzer and its LED
are files that can be read. SIGKILL at any moment
is a power cut, and so is one in the middle of a program of the flash; `start` brings the board back as power
does.
With a radio it has Bluetooth: the real NimBLE host, with a virtual controller at its serial line.
Everything is in one folder: config.json, keys, flash.bin, console.log.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from headwater.process.builder import FLASH_KB

from .. import environment
from ..errors import UserError
from ..image import builder
from . import micropython
from .micropython import START

HERE = Path(__file__).parent
PROGRAMS = (HERE / "on_board", HERE.parent / "bench" / "on_board")
ECG = environment.ROOT / "tests" / "data" / "ecg208-360hz.i16"
AGAIN = 42  # as in boards/on_board/board_node.py: the board restarts by itself
LINES_KEPT = 1000
CONSOLE_MAX = 4_000_000  # bytes of console.log; the file before it is kept as well
SECTORS = FLASH_KB * 1024 // 4096  # what a process assumes of a board


class Accepted(NamedTuple):
    """One batch of a source, as the board's ledger has it; what was refused has ξ 0."""

    source: str
    incarnation: int
    xi: int
    n: int
    first: int  # number of the first sample
    ts: int
    dt: int


def read_ledger(path: Path) -> list[Accepted]:
    """The batches that were accepted, in order: whole lines of a ledger, as `Sampler.taken` writes them."""
    return [row for row in _rows(path) if row.xi]


def _rows(path: Path) -> list[Accepted]:
    if not path.exists():
        return []
    rows = []
    for line in path.read_text().split("\n")[:-1]:
        source, inc, *numbers = line.split()
        rows.append(Accepted(source, int(inc, 16), *map(int, numbers)))
    return rows


class RadioLines(Protocol):
    """Where boards get their radios: `radio.station.Station`, which needs the packages of Bluetooth."""

    def plug(self, name: str) -> Path:
        """The serial line at which the controller of this board is."""

    def unplug(self, name: str) -> None:
        """The board has no power."""


class VirtualBoard:
    """`config` is that of a board; `key` the 32 bytes it shares with the gateway."""

    def __init__(
        self,
        name: str,
        folder: Path,
        config: dict[str, Any],
        key: bytes,
        heap: str = micropython.HEAP,
        sectors: int = SECTORS,
        on_line: Callable[[str], None] | None = None,
        program: tuple[str | Path, ...] = ("board_node",),
        radio: RadioLines | None = None,
    ) -> None:
        """`program`: modules beside this one, or files; the board starts with `run` of the first. With a
        `radio` it has Bluetooth."""
        self.name = name
        self.radio = radio
        self.program = program
        self.folder = folder
        self.heap = heap
        self.sectors = sectors
        self.on_line = on_line
        self.lines: deque[str] = deque(maxlen=LINES_KEPT)
        self.starts = 0
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._off = True
        self._lock = threading.Lock()
        self.ledger = folder / "accepted.log"
        folder.mkdir(parents=True, exist_ok=True)
        sensors = {
            source: {"source": source, "ledger": self.ledger.name, **settings}
            for source, settings in config.get("sensors", {}).items()
        }
        actuators = {"buzzer": {}, "led": {}, **config.get("actuators", {})}
        whole = {**config, "name": name, "sensors": sensors, "actuators": actuators}
        self._private("config.json", json.dumps(whole, indent=1).encode())
        self._private(config.get("key", "board.key"), key)

    def _private(self, name: str, content: bytes) -> None:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_bytes(content)

    def start(self) -> None:
        """Power returns."""
        with self._lock:
            if not self._off:
                raise UserError("board %s runs already" % self.name)
            if self._reader:
                self._reader.join()
            self._off = False
            # Linked in this thread: CPython 3.11 parses Python in one thread at a time only.
            _images(self.program)
            self._spawn()
            self._reader = threading.Thread(target=self._read, name="board " + self.name, daemon=True)
            self._reader.start()

    def kill(self) -> None:
        """Power fails at once, and stays away until `start`."""
        with self._lock:
            self._off = True
            process = self._process
            if process and process.poll() is None:
                process.send_signal(signal.SIGKILL)
        if self._reader:
            self._reader.join()

    stop = kill  # a board has no other end

    def cut_in_write(self, k_bytes: int, timeout_s: float = 30) -> None:
        """Power fails in the middle of a program: when `k_bytes` more bytes have been programmed."""
        with self._lock:
            self._off = True  # this is not a restart
            process = self._process
        assert process is not None
        new = self.folder / "cut.new"
        new.write_text(str(k_bytes))
        new.rename(self.folder / "cut")
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise UserError(
                "board %s programmed less than %d bytes in %g s" % (self.name, k_bytes, timeout_s)
            )
        assert self._reader is not None
        self._reader.join()

    def sounds(self, actuator: str = "buzzer") -> bool:
        """Whether its buzzer, or its LED, is on."""
        path = self.folder / actuator
        return path.exists() and path.read_text() == "1"

    def battery(self, mv: int | None) -> None:
        """What the board reads when it measures its battery; None: it cannot."""
        path = self.folder / "battery"
        if mv is None:
            path.unlink(missing_ok=True)
        else:
            new = self.folder / "battery.new"
            new.write_text(str(mv))
            new.rename(path)

    def charge(self, left_mc: int) -> None:
        """Its battery has so much left, in millicoulombs, and what the board spends by its own count goes off
        that: when nothing is left, power is gone. The board knows its battery by `energy` in its
        configuration."""
        (self.folder / "charge").write_text(str(left_mc))

    def left_mc(self) -> int | None:
        """What that battery has left."""
        path = self.folder / "charge"
        return int(path.read_text()) if path.exists() else None

    def stop_sensors(self) -> None:
        """Its sensors give nothing from now on. Where it has no power: not when that returns either."""
        new = self.folder / "until.new"
        new.write_text(str(time.time_ns() // 1000))
        new.rename(self.folder / "until")

    @property
    def powered(self) -> bool:
        """False before `start`, after `kill`, and where the interpreter ended by itself."""
        return not self._off

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def pid(self) -> int | None:
        return self._process.pid if self._process and self._process.poll() is None else None

    def accepted(self) -> list[Accepted]:
        """What the sources accepted, in order. A batch that was sealed as power went may be missing."""
        return read_ledger(self.ledger)

    def refused(self) -> int:
        """Samples that the full log refused."""
        return sum(row.n for row in _rows(self.ledger) if not row.xi)

    def wait_for(self, words: str, timeout_s: float = 120, after: int = 0) -> str:
        """The first console line from the `after`-th of those kept on that contains `words`."""
        end = time.monotonic() + timeout_s
        while True:
            for line in list(self.lines)[after:]:
                if words in line:
                    return line
            if time.monotonic() > end:
                last = "".join("\n  " + line for line in list(self.lines)[-10:])
                raise UserError("board %s did not say '%s' in %g s:%s" % (self.name, words, timeout_s, last))
            time.sleep(0.02)

    def _spawn(self) -> None:
        (self.folder / "cut").unlink(missing_ok=True)
        micropython, variables = environment.micropython, None
        if self.radio:
            micropython = environment.bluetooth_micropython
            variables = {**os.environ, "MICROPYBTUART": str(self.radio.plug(self.name))}
        command = [
            *micropython(), "-X", "heapsize=" + self.heap, str(START),
            ",".join(map(str, _images(self.program))), Path(self.program[0]).stem + ":run", str(self.sectors),
        ]  # fmt: skip
        self._process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is for the program that made it, and decides when a board ends
            preexec_fn=_die_with_parent,
        )
        self.starts += 1

    def _read(self) -> None:
        log = self.folder / "console.log"
        while True:
            process = self._process
            assert process is not None and process.stdout is not None
            with process.stdout:
                for line in process.stdout:
                    line = builder.linked().told(line)
                    self.lines.append(line.rstrip("\n"))
                    _append(log, line)
                    if self.on_line:
                        self.on_line(line.rstrip("\n"))
            code = process.wait()
            if self.radio:
                self.radio.unplug(self.name)
            with self._lock:
                if self._off:
                    return
                if code != AGAIN:
                    self._off = True
                    self.lines.append("(ended with %d)" % code)
                    return
                self._spawn()


def _append(log: Path, line: str) -> None:
    """Add a line to the console's file; what there was before the last `CONSOLE_MAX` bytes or so goes."""
    with open(log, "a") as out:
        out.write(line)
        size = out.tell()
    if size > CONSOLE_MAX:
        log.replace(log.with_name("console.1.log"))


@functools.cache
def _images(program: tuple[str | Path, ...]) -> tuple[Path, Path]:
    """Package `headwater`, and the other programs of the board."""
    files = [each for each in program if isinstance(each, Path)]
    names = {"board_node", "board_sensors", *(each for each in program if isinstance(each, str))}
    found = files + [folder / (name + ".py") for name in sorted(names) for folder in PROGRAMS]
    return builder.board_images({path.name: path for path in found if path.exists()})


def _die_with_parent() -> None:
    """No board outlives the process that made it, however that one ends."""
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() == 1:
        os._exit(1)
