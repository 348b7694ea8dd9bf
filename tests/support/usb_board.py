"""A board with MicroPython at a serial port, for the real mpremote: the 32-bit Unix port behind a
pseudo-terminal.

`board_repl.py` gives it a board's prompt and surroundings, on a flash file as `hw flash` leaves it. A reset
starts the program again while the port stays, as behind a USB adapter; `unplug` takes the port away too. It
does not start main.py: that needs the chip.
"""

from __future__ import annotations

import os
import subprocess
import threading
import tty
from collections.abc import Iterable
from pathlib import Path

from headwater_tools import environment
from headwater_tools.image.profiles import Profile

PROGRAM = Path(__file__).with_name("board_repl.py")
RESET = 42  # as in board_repl.py


class UsbBoard:
    """`flash` is a file with the whole flash; `main`, source text that runs before the prompt."""

    def __init__(
        self,
        board: Profile,
        flash: Path,
        *,
        romfs: bool = True,
        addresses: Iterable[int] = (),
        main: str | None = None,
    ) -> None:
        if not flash.exists():
            flash.write_bytes(b"\xff" * board.flash_kib * 1024)
        self.port = str(flash.with_name("ttyBoard"))
        table = ",".join("%s:%d:%d" % (p.label, p.offset, p.size) for p in board.table)
        words = [table, ",".join(map(str, addresses)), "romfs" if romfs else "stock"]
        if main is not None:
            path = flash.with_name("before.py")
            path.write_text(main)
            words.append(str(path))
        self.command = [*environment.micropython(), "-X", "heapsize=4m", str(PROGRAM), str(flash), *words]
        self.starts = 0
        self.master = self.slave = -1
        self.process: subprocess.Popen[bytes] | None = None
        self.thread: threading.Thread | None = None

    def __enter__(self) -> UsbBoard:
        self.plug()
        return self

    def __exit__(self, *_: object) -> None:
        self.unplug()

    def plug(self) -> None:
        self.master, self.slave = os.openpty()
        tty.setraw(self.slave)  # kept open: nothing is lost between two programs that use the port
        self._start()
        new = Path(self.port + ".new")
        new.symlink_to(os.ttyname(self.slave))
        new.replace(self.port)
        self.thread = threading.Thread(target=self._live, name="board", daemon=True)
        self.thread.start()

    def unplug(self) -> None:
        Path(self.port).unlink(missing_ok=True)
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            assert self.thread is not None
            self.thread.join(10)
            os.close(self.slave)
            os.close(self.master)

    def _start(self) -> None:
        self.starts += 1
        self.process = subprocess.Popen(self.command, stdin=self.master, stdout=self.master)

    def _live(self) -> None:
        while (process := self.process) is not None:
            if process.wait() != RESET:
                return
            if self.process is not None:
                self._start()
