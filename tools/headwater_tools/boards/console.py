"""The console of a board: what it prints, and the keys that it is sent, across resets and replugging."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from typing import Any

from .. import environment
from . import ports

BAUD = 115200
LEAVE = b"\x1d\x03"  # Ctrl-] and Ctrl-C
LOOK_S = 0.2  # how often a port that has gone is looked for
CHUNK = 4096


class Left(Exception):
    """The user has left the console."""


def watch(device: str, until: Callable[[], bool] = lambda: False) -> int:
    """Show the console until the user leaves or `until` holds; the number of times it was opened."""
    opened = 0
    with _keys() as keys, contextlib.suppress(Left):
        while not until():
            port = _open(device)
            if port is None:
                _wait(keys)
                continue
            opened += 1
            if opened > 1:
                environment.say("%s is back" % device)
            with port:
                _pass_on(port, keys, until)
            if not until():
                environment.say("%s is gone; waiting for it (Ctrl-] leaves)" % device)
    return opened


def _open(device: str) -> Any:
    """The port, or None while it is not there or not ready yet."""
    import serial

    if not os.path.exists(device):
        return None
    try:
        return serial.Serial(device, BAUD, timeout=0, exclusive=True)
    except (serial.SerialException, OSError):
        if os.path.exists(device):
            ports.check(device)  # a reason that does not go away by itself
        return None


def _pass_on(port: Any, keys: int | None, until: Callable[[], bool]) -> None:
    """Console to standard output and keys to the board, until the port has gone."""
    import serial

    sources = [port.fileno(), *([] if keys is None else [keys])]
    while not until():
        ready, _, _ = select.select(sources, [], [], LOOK_S)
        try:
            if port.fileno() in ready:
                data = port.read(CHUNK)
                if not data:
                    return
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
            if keys in ready:
                typed = _typed(keys)
                if typed is None:
                    sources.remove(keys)  # standard input has ended
                else:
                    port.write(typed)
        except (serial.SerialException, OSError):
            return


def _wait(keys: int | None) -> None:
    if keys is None:
        time.sleep(LOOK_S)
    elif select.select([keys], [], [], LOOK_S)[0]:
        _typed(keys)


def _typed(keys: int | None) -> bytes | None:
    """What was typed, None at its end. Leaves on Ctrl-] and Ctrl-C."""
    assert keys is not None
    data = os.read(keys, CHUNK)
    if any(byte in data for byte in LEAVE):
        raise Left
    return data or None


@contextlib.contextmanager
def _keys() -> Iterator[int | None]:
    """Standard input as single keys, or None where it is no terminal."""
    if not sys.stdin.isatty():
        yield None
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    try:
        tty.setraw(fd, termios.TCSANOW)
        after = termios.tcgetattr(fd)
        after[1] |= termios.OPOST  # our own lines end as elsewhere
        termios.tcsetattr(fd, termios.TCSANOW, after)
        yield fd
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
