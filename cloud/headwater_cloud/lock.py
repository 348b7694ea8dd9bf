"""One writer per lake: an OS lock if the lake is a local path, a lease elsewhere.

Two processes that write one Delta table on a local path destroy its log, maintenance included; so the lock
comes before anything else. The JVM holds it, because the JVM may go on writing for a moment after Python
was killed; Python holds a second one, because Python writes the small tables. Both are free the moment
their holder dies. The lease is for object stores, and for file systems that several machines share: it
expires, so a holder that was believed dead may wake up; the fence, which the sink raises (`sink.py`), stops
that one.
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
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any, Protocol

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from . import logstore
from .arguments import LEASE_S  # a holder that writes nothing for this long is believed dead
from .errors import Fenced, LakeError, LakeLocked
from .files import Files
from .location import Location

RENEW_S = 15.0
LOOK_S = 1.0  # between two checks of a lease that another sink holds


class Lock(Protocol):
    fenced: bool  # whether a former holder may still be alive

    def check(self) -> None:
        """Raise if this lock is not ours any more."""

    def release(self) -> None: ...


def must_be_free(lake: Location) -> None:
    """LakeError, before Spark is started, if a lake on a local path cannot be written or is in use."""
    _take_python(lake).close()


def _take_python(lake: Location) -> IO[str]:
    """Python's lock of a lake on a local path; the folder is made."""
    assert lake.local is not None
    try:
        lake.local.mkdir(parents=True, exist_ok=True)
        handle = open(lake.local / "python.lock", "a+")  # noqa: SIM115
    except OSError as error:
        raise LakeError(
            "cannot write to the lake %s (%s): give this user write access, or choose another folder"
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
        with contextlib.suppress(Py4JJavaError):  # a JVM that is gone has released it already
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


@dataclass(frozen=True)
class _Held:
    """The newest lease of a lake, by its file."""

    number: int
    text: str
    who: str = "another sink"
    until: float = float("inf")  # of a file that cannot be read
    lease_s: float = LEASE_S

    def left_s(self) -> float:
        """How long it may still hold. Its holder's clock may be wrong, but it is never longer than this."""
        return max(0.0, min(self.until - time.time(), self.lease_s))


class Lease:
    """A numbered file that names its holder and when it expires; renewed in the background.

    To take the lake over, a sink creates the file of the next number. The store ensures that only one does: a
    file is created if there is none, or not at all. So no sink ever writes into the file of another one, and
    a lease is ours as long as there is no file of a higher number, whatever our clock reads.
    """

    fenced = True

    def __init__(
        self,
        spark: SparkSession,
        lake: Location,
        lease_s: float = LEASE_S,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._files = Files(spark)
        self._lake = lake
        self._folder = lake / "lease"
        self._who = who_am_i(spark)
        self._lease_s = lease_s
        before = self._wait_out(say)
        self._number = before.number + 1 if before else 1
        text = self._text(lease_s)
        if not self._files.create(self._at(self._number), text) and not self._wrote(text):
            raise LakeLocked("%s was taken by another sink at this moment: a lake has one writer" % lake)
        if self._files.create(self._at(self._number), text):
            raise LakeError(
                "the store of %s writes over files that are there: it cannot keep two sinks apart" % lake
            )
        self._written = time.monotonic()
        if not self._is_newest():
            raise self._fenced(self._newest())
        for number in self._numbers():
            if number < self._number:
                self._files.remove(self._at(number))
        self._stop = threading.Event()
        self._renewer = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._renewer.start()

    def _wrote(self, text: str) -> bool:
        """Whether the file is ours after all: a client without an answer repeats its request."""
        return self._files.read(self._at(self._number)) == text

    def _wait_out(self, say: Callable[[str], None]) -> _Held | None:
        """The lease before ours, once it has expired; LakeLocked if its holder renews it."""
        held = self._newest()
        if held is None or (left_s := held.left_s()) <= 0:
            return held
        say(
            "%s is in use by %s: waiting up to %.0f s for a sign of it, until its lease expires"
            % (self._lake, held.who, left_s)
        )
        until = time.monotonic() + left_s
        while (left_s := until - time.monotonic()) > 0:
            time.sleep(min(LOOK_S, left_s))
            now = self._newest()
            if now is None or now.left_s() <= 0:
                return now or held
            if now != held:
                raise LakeLocked(
                    "%s is in use by %s: a lake has one writer; stop that one first, or name another lake"
                    % (self._lake, now.who)
                )
        return held

    def _at(self, number: int) -> Location:
        return self._folder / ("%010d.json" % number)

    def _numbers(self) -> list[int]:
        names = (name.partition(".json") for name in self._files.entries(self._folder))
        return sorted(int(stem) for stem, end, rest in names if stem.isdigit() and end and not rest)

    def _newest(self) -> _Held | None:
        for number in reversed(self._numbers()):
            text = self._files.read(self._at(number))
            if text is None:
                continue  # removed by its successor at this moment
            try:
                said = json.loads(text)
                return _Held(number, text, str(said["who"]), float(said["until"]), float(said["lease_s"]))
            except (ValueError, TypeError, KeyError):
                return _Held(number, text)
        return None

    def _text(self, lease_s: float) -> str:
        said = {"who": self._who, "until": time.time() + lease_s, "lease_s": self._lease_s}
        return json.dumps(said)

    def _write(self, lease_s: float) -> None:
        began = time.monotonic()
        self._files.write(self._at(self._number), self._text(lease_s))
        self._written = began

    def _renew(self) -> None:
        every_s = min(RENEW_S, self._lease_s / 4)
        wait_s = every_s
        while not self._stop.wait(wait_s):
            try:
                if not self._is_newest():
                    return  # `check` will notice
                self._write(self._lease_s)
                wait_s = every_s
            except Exception:  # a store that does not answer; harmless while the lease is valid
                wait_s = every_s / 4

    def check(self) -> None:
        """Raise if another sink has taken the lake over; an expired lease is renewed first."""
        if not self._is_newest():
            raise self._fenced(self._newest())
        if time.monotonic() - self._written >= self._lease_s:
            self._write(self._lease_s)

    def _is_newest(self) -> bool:
        return self._numbers()[-1:] == [self._number]

    def _fenced(self, by: _Held | None) -> Fenced:
        who = "another sink" if by is None else by.who
        return Fenced("%s was taken over by %s; this sink has stopped" % (self._lake, who))

    def release(self) -> None:
        self._stop.set()
        self._renewer.join()
        if self._is_newest():
            self._write(0.0)


def take(
    spark: SparkSession,
    lake: Location,
    shared: bool,
    say: Callable[[str], None] = lambda text: None,
    lease_s: float = LEASE_S,
) -> Lock:
    """The lock of a lake; LakeLocked names the holder."""
    logstore.use(spark, lake)
    return Lease(spark, lake, lease_s, say) if shared or lake.local is None else LocalLock(spark, lake)
