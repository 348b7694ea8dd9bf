"""Asks a connected board which of an image's names its MicroPython does not have in ROM.

`rom_names/esp32.txt` is derived from sources; this is how a board proves or corrects it. The board looks each
name up, and its table of names grows by those that were not there.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..errors import Failed
from . import builder

TIMEOUT_S = 120
SCRIPT = """
import micropython
words = %r.split()
micropython.qstr_info()
for word in words:
    hasattr(0, str(word, "ascii"))
    micropython.qstr_info()
"""


def given_names() -> list[str]:
    """The names that things of the package have in an image."""
    names = builder.linked().names
    return sorted({*names.attributes.values(), *names.globals.values(), *names.for_arguments})


def script(names: Iterable[str]) -> str:
    return SCRIPT % " ".join(names).encode()


def missing(printed: str, names: Sequence[str]) -> list[str]:
    """The names that were new to the board that printed this."""
    counts = [int(count) for count in re.findall(r"n_qstr=(\d+)", printed)]
    if len(counts) != len(names) + 1:
        raise Failed("the board printed %d counts of names, not %d" % (len(counts), len(names) + 1))
    return [name for name, old, new in zip(names, counts, counts[1:], strict=False) if new != old]


def of_board(port: str) -> tuple[list[str], list[str]]:
    """The names of an image, and those of them that the board at this port does not have in ROM."""
    names = given_names()
    with tempfile.TemporaryDirectory(prefix="hw-verify-") as folder:
        path = Path(folder) / "names.py"
        path.write_text(script(names))
        command = [sys.executable, "-m", "mpremote", "connect", port, "run", str(path)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            raise Failed("the board at %s did not answer within %d s" % (port, TIMEOUT_S))
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["nothing"]
        raise Failed("mpremote could not ask the board at %s; it printed: %s" % (port, said[-1]))
    return names, missing(done.stdout, names)
