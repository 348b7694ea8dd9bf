"""Options with which Spark's JVM starts in half the time, for tests: they start dozens of them.

Most of a start is reading, verifying and linking 15,000 classes. Java keeps them in a file as they are in
memory (class data sharing): made once, after a session that used a lake as the tests do. It fits one Java and
one class path. A JVM for which it does not fit starts as without it, and no test depends on it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from . import CACHE, LOCKS, VENV, jars
from .running import say, variables

VARIABLE = "JDK_JAVA_OPTIONS"
# For JVMs that live for seconds: compiling well would take longer than computing.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# A JVM would report a file that does not fit on its standard output, which Spark's scripts read.
QUIET = "-Xlog:disable -Xlog:all=error:stderr"
TRAINING = Path(__file__).with_name("class_training.py")
MAKING_S = 600


def java_options() -> str:
    """What the environment variable JDK_JAVA_OPTIONS is to be for short sessions of Spark."""
    given = os.environ.get(VARIABLE, "")
    archive = _archive()
    shared = ' "-XX:SharedArchiveFile=%s" %s' % (archive, QUIET) if archive else ""
    return (given + " " + QUICK + shared).strip()


def _archive() -> Path | None:
    """The file, made if there is none; None where it cannot be made."""
    java = shutil.which("java", path=variables()["PATH"])
    if java is None:
        return None
    # JAVA_HOME counts before the path.
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else java
    try:
        version = subprocess.run([java, "-version"], capture_output=True, timeout=60).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    place = _hash(str(VENV).encode(), *(str(jar).encode() for jar in jars()))
    state = _hash(version, LOCKS["lake"].read_bytes(), TRAINING.read_bytes())
    target = CACHE / ("spark-classes-%s-%s.jsa" % (place, state))
    if not target.exists():
        say("keeping the classes of Spark, so that its JVM starts quickly (190 MB, a minute)")
        _make(target)
        for old in CACHE.glob("spark-classes-%s-*.jsa" % place):
            if old != target:
                old.unlink(missing_ok=True)
    # An empty file: it could not be made, and is not tried again.
    return target if target.stat().st_size else None


def _make(target: Path) -> None:
    # Spark splits its options at spaces.
    folder_of = None if " " in str(CACHE) else CACHE
    with tempfile.TemporaryDirectory(dir=folder_of, prefix="hw-classes-") as folder:
        new = Path(folder) / "new.jsa"
        try:
            done = subprocess.run(
                [sys.executable, "-P", str(TRAINING), str(new), folder],
                env={**variables(), VARIABLE: QUICK},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=MAKING_S,
            )
            said = done.stdout + done.stderr
        except subprocess.TimeoutExpired:
            said = "not ready after %d s" % MAKING_S
        if not new.exists():
            last = (said.strip().splitlines() or ["without a word"])[-1]
            say("this Java keeps no classes (%s): Spark starts as slowly as always" % last)
            new.touch()
        half = target.with_suffix(".new")
        shutil.move(new, half)
        half.replace(target)


def _hash(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(b"%d:" % len(part) + part)
    return digest.hexdigest()[:12]
