"""The outputs in README.md are those of its commands: `python -m headwater_tools.readme` compares them, and
writes them with `--update`.

A block that begins with `$ ./hw WORDS` holds the whole output of that command, run in a folder with the files
that the README shows: `greenhouse.py`, its first process, and `wrong.py`, the same with three mistakes. A
command about `wrong.py` finds them, every other one succeeds; where that is not so, nothing is written. A
duration at the end of a line is not compared.
"""

from __future__ import annotations

import difflib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from . import Trouble
from .house import ROOT, environment

README = ROOT / "README.md"
MISTAKES = (
    ("centi_c:i16", "centi_c:i17"),
    ("seconds=20", "second=20"),
    ('durable="lake"', 'durable="lakes"'),
)

_BLOCK = re.compile(r"^```\n\$ \./hw (?P<words>[^\n]*)\n(?P<output>.*?)^```$", re.M | re.S)
_PROCESS = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
_TOOK = re.compile(r"\b\d+\.\d s$", re.M)


def updated(text: str, run: Callable[[str, Path], str] | None = None) -> str:
    """The text with the outputs that its commands have now."""
    run = run or _hw
    first = _PROCESS.search(text)
    assert first is not None, "README.md has no process"
    with tempfile.TemporaryDirectory(prefix="hw-readme-") as folder:
        wrong = first[1]
        for right, mistake in MISTAKES:
            assert right in wrong, "README.md: the first process has no %s" % right
            wrong = wrong.replace(right, mistake)
        (Path(folder) / "greenhouse.py").write_text(first[1])
        (Path(folder) / "wrong.py").write_text(wrong)

        def block(match: re.Match[str]) -> str:
            output = run(match["words"], Path(folder))
            if _TOOK.sub("", output) == _TOOK.sub("", match["output"]):
                return match[0]
            return "```\n$ ./hw %s\n%s```" % (match["words"], output)

        return _BLOCK.sub(block, text)


def _hw(words: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "headwater_tools", *words.split()],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=1800,
    )
    expected = int("wrong.py" in words.split())
    if done.returncode != expected:
        text = "`./hw %s` ended with status %d, not %d:\n%s"
        raise Trouble(text % (words, done.returncode, expected, done.stdout))
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()) + "\n"


def difference() -> str:
    """What README.md says otherwise than the commands; empty where all is true."""
    text = README.read_text()
    lines = difflib.unified_diff(
        text.splitlines(), updated(text).splitlines(), "README.md", "the commands", lineterm="", n=1
    )
    return "\n".join(lines)


def main() -> None:
    if sys.argv[1:] not in ([], ["--update"]):
        sys.exit("usage: python -m headwater_tools.readme [--update]")
    try:
        if sys.argv[1:]:
            README.write_text(updated(README.read_text()))
            return
        found = difference()
    except Trouble as trouble:
        sys.exit(str(trouble))
    if found:
        sys.exit(found + "\n`python -m headwater_tools.readme --update` writes what the commands say")
    print("README.md: every output is what its command prints")


if __name__ == "__main__":
    main()
