"""One writer per lake: an OS lock where the lake is a local path, a lease elsewhere.

Two processes that write one Delta table on a local path destroy its log, maintenance included; so the lock
comes before anything else. The JVM holds it, because the JVM may go on writing for a moment after Python
was killed; Python holds a second one, because Python writes the small tables. Both are free the moment
their holder dies. The lease is for object stores, and for file systems that several machines share: it runs
out, so a holder that was believed dead may wake; what stops that one is the fence, which the sink raises
(`sink.py`).
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import socket
import threading
import time
import uuid
from typing import IO, Any, Protocol

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from .errors import Fenced, LakeError, LakeLocked
from .files import Files
from .location import Location

LEASE_S = 60.0  # a holder that says nothing for so long is believed dead
RENEW_S = 15.0
SETTLE_S = 1.0  # after writing a lease: whoever else wrote one at the same moment has done so by then


class Lock(Protocol):
    fenced: bool  # whether a former holder may still be alive

    def check(self) -> None:
        """Raise where this lock is not ours any more."""

    def release(self) -> None: ...


def must_be_free(lake: Location) -> None:
    """LakeError, before Spark is started, where a lake on a local path cannot be written or is in use."""
    _take_python(lake).close()


def _take_python(lake: Location) -> IO[str]:
    """Python's lock of a lake on a local path; the folder is made."""
    assert lake.local is not None
    try:
        lake.local.mkdir(parents=True, exist_ok=True)
        handle = open(lake.local / "python.lock", "a+")  # noqa: SIM115
    except OSError as error:
        raise LakeError(
            "cannot write in the lake %s (%s): give this user write access, or choose another folder"
            % (lake, error.strerror)
        )
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.close()
        raise _locked(lake)
    return handle


class LocalLock:
    """Held by the JVM and by Python, until released or dead."""

    fenced = False

    def __init__(self, spark: SparkSession, lake: Location) -> None:
        assert lake.local is not None
        self._python = _take_python(lake)
        try:
            self._channel, self._lock = self._take_jvm(spark, lake)
        except BaseException:
            self._python.close()
            raise
        self._say(who_am_i(spark))

    def _take_jvm(self, spark: SparkSession, lake: Location) -> tuple[Any, Any]:
        jvm: Any = spark._jvm
        channel = jvm.java.io.RandomAccessFile(str(lake / "sink.lock"), "rw").getChannel()
        try:
            lock = channel.tryLock()
        except Py4JJavaError as error:
            channel.close()
            if "OverlappingFileLock" in str(error.java_exception):
                raise _locked(lake)  # another thread of this very JVM
            raise LakeError("cannot lock the lake %s: %s" % (lake, error.java_exception.getMessage()))
        if lock is None:
            channel.close()
            raise _locked(lake)
        return channel, lock

    def _say(self, who: str) -> None:
        self._python.seek(0)
        self._python.truncate()
        self._python.write(who)
        self._python.flush()

    def check(self) -> None:
        """An OS lock is ours until we die; the JVM's, until the JVM does."""
        if not self._lock.isValid():
            raise Fenced("the lock of the lake is gone")

    def release(self) -> None:
        self._python.close()
        with contextlib.suppress(Py4JJavaError):  # a JVM that is gone has let go already
            self._channel.close()


def _locked(lake: Location) -> LakeLocked:
    assert lake.local is not None
    try:
        who = (lake.local / "python.lock").read_text().strip()
    except OSError:
        who = ""
    return LakeLocked(
        "%s is in use by %s: a lake has one writer; stop that one first, or name another lake"
        % (lake, who or "another process that starts")
    )


def who_am_i(spark: SparkSession) -> str:
    now = datetime.datetime.now(datetime.UTC)
    return "%s, process %d on %s, since %s" % (
        spark.sparkContext.appName,
        os.getpid(),
        socket.gethostname(),
        now.strftime("%Y-%m-%d %H:%M:%S UTC"),
    )


class Lease:
    """A file that names its holder and when it runs out; renewed in the background."""

    fenced = True

    def __init__(self, spark: SparkSession, lake: Location, lease_s: float = LEASE_S) -> None:
        self._files = Files(spark)
        self._lake = lake
        self._at = lake / "lease.json"
        self._id = uuid.uuid4().hex
        self._who = who_am_i(spark)
        self._lease_s = lease_s
        held = self._read()
        if held is not None and held["until"] > time.time():
            raise LakeLocked(
                "%s is in use by %s: one writer per lake (its lease runs out in %.0f s, unless renewed)"
                % (lake, held["who"], held["until"] - time.time())
            )
        self._write(lease_s)
        time.sleep(SETTLE_S)
        self.check()
        self._stop = threading.Event()
        self._renewer = threading.Thread(target=self._renew, daemon=True)
        self._renewer.start()

    def _read(self) -> dict[str, Any] | None:
        text = self._files.read(self._at)
        try:
            held = json.loads(text or "null")
            return held if isinstance(held, dict) and {"id", "who", "until"} <= held.keys() else None
        except ValueError:
            return None

    def _write(self, lease_s: float) -> None:
        said = {"id": self._id, "who": self._who, "until": time.time() + lease_s}
        self._files.write(self._at, json.dumps(said))

    def _renew(self) -> None:
        while not self._stop.wait(min(RENEW_S, self._lease_s / 4)):
            held = self._read()
            if held is None or held["id"] != self._id:
                return  # the next batch finds it out
            self._write(self._lease_s)

    def check(self) -> None:
        held = self._read()
        if held is None or held["id"] != self._id:
            raise Fenced(
                "%s was taken over by %s; this sink has stopped"
                % (self._lake, "somebody" if held is None else held["who"])
            )

    def release(self) -> None:
        self._stop.set()
        self._renewer.join()
        held = self._read()
        if held is not None and held["id"] == self._id:
            self._write(0.0)


def take(spark: SparkSession, lake: Location, shared: bool) -> Lock:
    """The lock of a lake; LakeLocked says who has it."""
    return Lease(spark, lake) if shared or lake.local is None else LocalLock(spark, lake)
