"""Ctrl-C is answered with one sentence, from the first moment of a command on."""

from __future__ import annotations

import os
import signal
from types import FrameType

CODE = 130
TEXT = "hw: interrupted"


def while_loading() -> None:
    """Until `as_exception`: there is nothing to clean up yet, so the answer is an immediate end."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def as_exception() -> None:
    """From here on: KeyboardInterrupt, as in any Python program."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def hold() -> None:
    """Before becoming another program: it gets a pending Ctrl-C when it calls `while_loading`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, TEXT.encode() + b"\n")
    os._exit(CODE)
