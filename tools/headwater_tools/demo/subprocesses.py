"""What the demo starts: processes in sessions of their own, and cords that can be pulled.

No process outlives the one that started it: each is killed with its children when it is stopped, and by the
kernel when this process dies.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import environment
from ..errors import UserError

_PR_SET_PDEATHSIG = 1


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def until(what: Callable[[], Any], timeout_s: float, why: str) -> Any:
    """Wait until `what` is true; what it gave."""
    end = time.monotonic() + timeout_s
    while not (found := what()):
        if time.monotonic() > end:
            raise UserError(why)
        time.sleep(0.05)
    return found


class Part:
    """One program. `start` it on the main thread: it dies with the thread that made it."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self.command = list(command)
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, env: Mapping[str, str] | None = None) -> None:
        # Ctrl-C waits until the process is known here, or it would never be stopped.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with open(self.log, "ab") as log:
                self._process = subprocess.Popen(
                    self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                    env={**environment.variables(), **(env or {})}, preexec_fn=lambda: _in_child(mask),
                )  # fmt: skip
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL, for it and its children."""
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self, timeout_s: float = 20) -> None:
        """As a service manager stops it."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout_s)
        self.kill()

    def must_run(self) -> None:
        if not self.running():
            lines = self.log.read_text(errors="replace").strip().splitlines()[-12:]
            raise UserError("%s ended:\n  %s\n(%s)" % (self.name, "\n  ".join(lines), self.log))


def _in_child(mask: Iterable[int]) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Cord:
    """A connection to a TCP port of this machine that can be cut and restored."""

    def __init__(self, port: int) -> None:
        self.target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.carried = 0  # bytes, in both directions
        self._in = True
        self._open = True
        self._other: dict[socket.socket, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._carry, name="cord", daemon=True)
        self._thread.start()

    def pull(self) -> None:
        self._in = False

    def plug(self) -> None:
        self._in = True

    def close(self) -> None:
        self._open = False
        self._thread.join()
        self._listener.close()

    def _carry(self) -> None:
        while self._open:
            if not self._in:
                for end in list(self._other):
                    self._drop(end)
            for key, _ in self._selector.select(0.05):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj in self._other:
                    self._pass_on(key.fileobj)
        for end in list(self._other):
            self._drop(end)

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        try:
            if not self._in:
                raise ConnectionRefusedError
            far = socket.create_connection(("127.0.0.1", self.target), 1)
        except OSError:
            near.close()
            return
        for end, other in ((near, far), (far, near)):
            self._other[end] = other
            self._selector.register(end, selectors.EVENT_READ)

    def _pass_on(self, end: Any) -> None:
        try:
            data = end.recv(65536)
            if data:
                self._other[end].sendall(data)
                self.carried += len(data)
                return
        except OSError:
            pass  # one of the two has ended: so does the other
        self._drop(end)

    def _drop(self, end: socket.socket) -> None:
        other = self._other.pop(end, None)
        if other is not None:
            self._other.pop(other, None)
            for s in (end, other):
                self._selector.unregister(s)
                s.close()
