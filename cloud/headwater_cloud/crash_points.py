"""Named crash points at which the sink can be killed, to prove its promises against kill -9.

HEADWATER_CRASH_AT=POINT:N in the environment kills JVM and Python with SIGKILL when POINT is reached for
the N-th time. Points within Spark's own work (`writing`, `optimizing`, `vacuuming`) strike when the first
file of the table appears or disappears. Without the variable nothing happens.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator

from . import store
from .location import Location

VARIABLE = "HEADWATER_CRASH_AT"

POINTS = (
    "received",  # the batch's offsets are stored, nothing of it is done
    "appending",  # decided, before the append
    "writing",  # data files of the append exist, no commit yet
    "appended",  # committed, before quarantine and gaps
    "quarantined",  # before gaps and streams
    "recorded",  # before progress
    "progressed",  # before the acknowledgement
    "acknowledged",  # before Spark records that the batch is done
    "settled",  # quiet incarnations are in `settled`, before the gateways learn it and progress drops them
    "forgotten",  # progress has dropped them, before the acknowledgements
    "optimizing",
    "vacuuming",
)

# Of an erasure: a sink without a request for one never comes here.
ERASING = (
    "declared",  # the rule is stored, nothing is gone
    "deleting",  # the rows to delete are recorded, none is deleted
    "erasing",  # data files without the rows exist, no commit yet
    "erased",  # the rows are deleted, and progress does not know
    "settled",  # before the quarantine
    "emptied",  # before old data files
    "sweeping",
    "swept",  # before the logs
    "forgotten",  # before the landing zone
)

_counts: dict[str, int] = {}
_jvm_pid = 0


def arm(jvm_pid: int) -> None:
    global _jvm_pid
    _jvm_pid = jvm_pid


def reach(point: str) -> None:
    """Die here, if so configured."""
    if _wanted(point):
        _die()


@contextlib.contextmanager
def during(point: str, table: Location) -> Iterator[None]:
    """Die within, when the files of a folder change, if so configured."""
    if not _wanted(point):
        yield
        return
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(table, done), daemon=True)
    watcher.start()
    yield
    done.set()
    watcher.join()


def _wanted(point: str) -> bool:
    assert point in POINTS + ERASING
    name, _, at = os.environ.get(VARIABLE, "").partition(":")
    if name != point:
        return False
    _counts[point] = _counts.get(point, 0) + 1
    return _counts[point] == int(at or 1)


def _watch(table: Location, done: threading.Event) -> None:
    before = _files(table)
    while not done.is_set():
        if _files(table) != before:
            _die()
        time.sleep(0.001)


def _files(table: Location) -> set[str]:
    return {name for name in store.names(table) if name.endswith(".parquet")}


def _die() -> None:
    for pid in (_jvm_pid, os.getpid()):
        if pid:
            os.kill(pid, signal.SIGKILL)
