"""A board with MicroPython at a serial port, through mpremote: what it is, its files, its I2C buses.

mpremote is run as a program, one call a task; its scripts print one JSON object as their last line. Files are
compared by their SHA-256, which the board reckons. Secrets are in files, never in an argument.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import environment
from ..errors import Failed, UserError

COPY_S = 60  # how long a board may take to copy
ANSWER_S = 15  # and to answer a question
NO_PROMPT = (
    "it may have no MicroPython (`hw flash BOARD --firmware FILE`), or hang (press its button RESET and run "
    "this again)"
)
# What matters of a board. `code` is where it has Headwater: mounted from ROMFS, copied, or frozen in.
ABOUT = """
import json, os, sys
about = {"version": list(sys.implementation[1][:3]), "machine": getattr(sys.implementation, "_machine", "")}
try:
    import vfs
    about["romfs"] = hasattr(vfs, "VfsRom")
except ImportError:
    about["romfs"] = False
about["code"] = ""
for place in ("/rom", "/lib", "/flash/lib"):
    try:
        os.stat(place + "/headwater")
        about["code"] = place
        break
    except OSError:
        pass
if not about["code"]:
    try:
        import headwater
        about["code"] = "frozen"
    except ImportError:
        pass
try:
    from esp32 import Partition
    about["log"] = bool(Partition.find(Partition.TYPE_DATA, label="log"))
except ImportError:
    about["log"] = False
print(json.dumps(about))
"""
# Every address that answers, on a bus of software, so that any two pins will do.
I2C = """
import json
from machine import Pin, SoftI2C
bus = SoftI2C(scl=Pin(%d), sda=Pin(%d), freq=100000, timeout=5000)
print(json.dumps({"found": bus.scan()}))
"""


class SerialBoard:
    def __init__(self, port: str) -> None:
        self.port = port

    def about(self) -> dict[str, Any]:
        return self._asked(ABOUT)

    def i2c(self, scl: int, sda: int) -> list[int]:
        """The addresses that answer on the bus of these two pins."""
        return [int(each) for each in self._asked(I2C % (scl, sda))["found"]]

    def put(self, files: Mapping[str, Path]) -> None:
        """Copy files into the root of the board's file system, and compare what has arrived."""
        with tempfile.TemporaryDirectory(prefix="hw-board-") as folder:
            for name, source in files.items():
                path = Path(folder) / name
                path.touch(mode=0o600)
                path.write_bytes(source.read_bytes())
            paths = [str(Path(folder) / name) for name in files]
            self._mpremote("fs", "--no-verbose", "cp", "--force", *paths, ":")
        wrong = self.different(files)
        if wrong:
            text = "%s did not arrive whole on the board at %s: run this again; its flash may be full"
            raise Failed(text % (" and ".join(wrong), self.port))

    def different(self, files: Mapping[str, Path]) -> list[str]:
        """The names of those files that the board has not, or has with another content."""
        printed = self._mpremote("fs", "--no-verbose", "sha256sum", *(":" + name for name in files))
        found = re.findall(r"\b[0-9a-f]{64}\b", printed)
        if len(found) != len(files):
            raise Failed("the board at %s gave %d digests of %d files" % (self.port, len(found), len(files)))
        wanted = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
        return [name for (name, digest), has in zip(wanted.items(), found, strict=True) if digest != has]

    def reset(self) -> None:
        self._mpremote("reset")

    def _asked(self, script: str) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="hw-board-") as folder:
            path = Path(folder) / "script.py"
            path.write_text(script)
            printed = self._mpremote("run", str(path), timeout=ANSWER_S)
        try:
            answer = json.loads(printed.strip().splitlines()[-1])
        except (IndexError, ValueError):
            raise Failed(
                "the board at %s answered with %r: reset it, and run this again" % (self.port, printed)
            )
        assert isinstance(answer, dict)
        return answer

    def _mpremote(self, *words: str, timeout: float = COPY_S) -> str:
        command = [sys.executable, "-m", "mpremote", "connect", self.port, *words]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout,
                stdin=subprocess.DEVNULL,
                env=environment.variables(),
            )
        except subprocess.TimeoutExpired:
            text = "the board at %s does not answer within %d s: " + NO_PROMPT
            raise Failed(text % (self.port, timeout))
        if done.returncode:
            raise explain(self.port, words, (done.stdout + done.stderr).strip().splitlines())
        return done.stdout


def explain(port: str, words: Sequence[str], lines: Sequence[str]) -> UserError:
    """What mpremote's failure means."""
    text = "\n".join(lines)
    if "failed to access" in text or "no device found" in text:
        return Failed("%s cannot be opened: the board was unplugged, or another program took it" % port)
    if "raw repl" in text.lower():
        return Failed(("the board at %s gives no prompt: " + NO_PROMPT) % port)
    last = lines[-1] if lines else "nothing"
    if "ETIMEDOUT" in text or re.search(r"OSError: (\[Errno )?116", text):
        return Failed(
            "the I2C bus of the board at %s does not move: the bus is stuck or has no pull-ups; check both "
            "wires and 3.3 V" % port
        )
    if "ENOSPC" in text or "Errno 28" in text:
        return Failed("the file system of the board at %s is full: remove files with `mpremote fs rm`" % port)
    return Failed("mpremote %s failed at %s; it printed: %s" % (words[0], port, last[:160]))
