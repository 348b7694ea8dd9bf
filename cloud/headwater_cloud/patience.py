"""Retries of failures that may be temporary: an unreachable store, a full disk, a server that restarts.

A failed step is retried with exponential back-off, for some minutes, and each failure is logged in one
sentence. Then the sink gives up, with the last reason.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from . import jvm
from .errors import LakeFailed, sentence

FIRST_S = 1.0  # the first pause; each is twice the one before
LONGEST_S = 60.0
FORGET_S = 300.0  # without a failure: then it is forgotten


class Patience:
    def __init__(self, whole_s: float, say: Callable[[str], None], stop: threading.Event) -> None:
        self.whole_s = whole_s
        self._say = say
        self._stop = stop
        self.over()

    def over(self) -> None:
        """The step succeeded."""
        self._since: float | None = None
        self._failed_at = 0.0
        self._pause_s = FIRST_S

    def wait(self, what: str, error: BaseException) -> None:
        """Pause before a retry, or until the sink is stopped; LakeFailed after too long."""
        if jvm.is_gone():
            raise error
        now = time.monotonic()
        if self._since is None or now - self._failed_at > FORGET_S:
            self.over()
            self._since = now
        left = self._since + self.whole_s - now
        if left <= 0:
            raise LakeFailed("%s: %s" % (what, sentence(error))) from error
        pause_s = min(self._pause_s, left)
        self._say(
            "%s (%s): trying again in %.0f s, giving up after %.0f s" % (what, sentence(error), pause_s, left)
        )
        self._pause_s = min(2 * self._pause_s, LONGEST_S)
        self._stop.wait(pause_s)
        self._failed_at = time.monotonic()
