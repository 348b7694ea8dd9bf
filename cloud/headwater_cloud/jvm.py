"""The JVM of a Spark session: started by this process, and never left behind.

PySpark's own launch leaves a JVM behind when it is interrupted: it removes the folder into which the JVM is
about to write its port; the JVM fails there, and the threads that it has already started keep it alive. It
never reads its standard input, whose end would tell it that Python is gone. Here:

- While the JVM starts, Ctrl-C is noticed by a handler that kills the JVM and raises nothing by itself, so no
  library is interrupted in the middle of a step. The start then ends with one KeyboardInterrupt.
- Once the session is there, Ctrl-C cancels Spark's jobs and raises KeyboardInterrupt, as in any program.
- When this process ends, it closes the JVM's standard input and waits for it; one that hangs is killed.
- When this process is killed, the JVM reads the end of its standard input, and ends by itself.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shlex
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType

from pyspark import SparkContext
from pyspark.find_spark_home import _find_spark_home

from .errors import LakeError, LakeFailed

POLL_S = 0.05
DYING_S = 2.0  # from the end of a connection to that of the process
END_S = 20.0  # how long a JVM may take to end by itself

_ours: _Jvm | None = None  # that of the present session, if this process started it


@contextlib.contextmanager
def started(settings: Mapping[str, str]) -> Iterator[None]:
    """While the body makes a session with these settings, PySpark finds a JVM of ours.

    Raises KeyboardInterrupt for Ctrl-C at any moment in it, and then no JVM is left.
    """
    global _ours
    _be_quiet()
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        yield  # a JVM is there already: of an earlier session, or of spark-submit
        return
    jvm = _Jvm()
    with _interrupts(jvm):
        try:
            os.environ.update(jvm.start(settings))
            yield
        except BaseException:
            jvm.kill()
            if jvm.interrupted:
                raise KeyboardInterrupt from None
            raise
        finally:
            for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
                os.environ.pop(name, None)
        if jvm.interrupted:
            jvm.kill()
            raise KeyboardInterrupt
        atexit.register(jvm.end)
        _ours = jvm


@contextlib.contextmanager
def told_when_it_dies() -> Iterator[None]:
    """Any failure in the body because the JVM is gone becomes one LakeFailed with that reason."""
    try:
        yield
    except Exception:
        code = _ours.died() if _ours is not None else None
        if code is None:
            raise
        how = "was killed by signal %d" % -code if code < 0 else "ended with code %d" % code
        raise LakeFailed(
            "Spark's JVM %s; nothing is lost, and what was not done is done when it is started again. If the "
            "system killed it for its memory (`dmesg` says so), give the machine more or Spark less "
            "(--conf spark.driver.memory=...)" % how
        ) from None


def is_gone() -> bool:
    """Whether the JVM of the present session has ended."""
    return _ours is not None and _ours.died() is not None


class _Jvm:
    def __init__(self) -> None:
        self.interrupted = False
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Start it, and wait until it accepts connections; the environment in which PySpark finds it."""
        with tempfile.TemporaryDirectory(prefix="hw-spark-", ignore_cleanup_errors=True) as folder:
            connection = Path(folder) / "connection"
            command = [os.path.join(_find_spark_home(), "bin", "spark-submit")]
            for key, value in settings.items():
                command += ["--conf", "%s=%s" % (key, value)]
            command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
            more = {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection)}
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                env={**os.environ, **more},
                preexec_fn=_ignore_interrupts,
            )
            while not connection.exists():
                if self.interrupted:
                    self.kill()  # before its folder is removed
                    raise KeyboardInterrupt
                if self._process.poll() is not None:
                    raise LakeError(
                        "Spark's JVM ended with code %d while it started; its own words are above. Look at "
                        "`java -version`: Spark needs Java 17" % self._process.returncode
                    )
                time.sleep(POLL_S)
            said = connection.read_bytes()
        port, length = struct.unpack_from(">ii", said)
        return {
            "PYSPARK_GATEWAY_PORT": str(port),
            "PYSPARK_GATEWAY_SECRET": said[8 : 8 + length].decode(),
        }

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-C: without the JVM, every call that waits for its answer fails at once."""
        self.interrupted = True
        self.kill()

    def died(self) -> int | None:
        """How it ended, if it did; waits a moment, as a connection ends before its process does."""
        if self._process is None:
            return None
        try:
            return self._process.wait(DYING_S)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        # Spark's script starts a short JVM of its own before it becomes the one that stays. A stopped process
        # starts no other, so after a round without a new one all are known.
        all_of_it: list[int] = []
        while fresh := [p for p in (process.pid, *_descendants(process.pid)) if p not in all_of_it]:
            all_of_it += fresh
            _signal(fresh, signal.SIGSTOP)
        _signal(all_of_it, signal.SIGKILL)
        process.wait()
        end = time.monotonic() + END_S
        while any(map(_lives, all_of_it)) and time.monotonic() < end:
            time.sleep(0.01)

    def end(self) -> None:
        """Let it end by itself, and make sure that it does."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()


def _ignore_interrupts() -> None:
    """In the child: a terminal sends Ctrl-C to the whole process group, and Python decides what it means."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _lives(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def _descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(entry.parent.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


@contextlib.contextmanager
def _interrupts(jvm: _Jvm) -> Iterator[None]:
    """Ctrl-C goes to the JVM's handler in here; afterwards it cancels jobs, where it raised before."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    if before in (signal.SIG_IGN, None):
        yield
        return
    signal.signal(signal.SIGINT, jvm.interrupt)
    try:
        yield
    except BaseException:
        signal.signal(signal.SIGINT, before)
        raise
    # PySpark has installed a handler of its own, which calls the JVM from within whatever it interrupts.
    signal.signal(signal.SIGINT, _cancel if before is signal.default_int_handler else before)


def _cancel(number: int, frame: FrameType | None) -> None:
    threading.Thread(target=_cancel_jobs, name="cancel", daemon=True).start()
    raise KeyboardInterrupt


def _cancel_jobs() -> None:
    context = SparkContext._active_spark_context
    if context is not None:
        with contextlib.suppress(Exception):  # the JVM may be on its way out
            context.cancelAllJobs()


def _be_quiet() -> None:
    """Py4J logs a traceback for each call that fails, at the root logger; its exception has the same text."""
    root = logging.getLogger()
    if _not_of_py4j not in root.filters:
        root.addFilter(_not_of_py4j)


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def which_java() -> None:
    """LakeError if there is no Java to start."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home) / "bin" / "java" if home else None
    if java is not None and java.exists():
        return
    if java is not None:
        raise LakeError(
            "JAVA_HOME is %s, and there is no bin/java in it: set it to a Java 17, or unset it" % home
        )
    if shutil.which("java") is None:
        raise LakeError(
            "Spark needs Java 17, and there is none on this machine: install it (Debian: "
            "openjdk-17-jre-headless) or set JAVA_HOME"
        )
