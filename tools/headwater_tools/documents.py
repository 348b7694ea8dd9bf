"""Keeps the documents correct: `python -m headwater_tools.documents` compares, and `--update` writes.

Two kinds of text are derived. A block that begins with `$ ./hw WORDS` holds the whole output of
that command, run in a folder with `greenhouse.py`, the first process of README.md, and `wrong.py`, the same
with three mistakes. A command about `wrong.py` finds them, every other one succeeds; if that is not so,
nothing is written. A duration at the end of a line is not compared. And whole pages are generated: the
operators from their classes, the limits from the code's constants and from `docs/bench.json`, which `hw
bench NAME --record` writes.
"""

from __future__ import annotations

import difflib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from .environment import ROOT, variables
from .errors import UserError

README = ROOT / "README.md"
DOCS = ROOT / "docs"
MISTAKES = (
    ("centi_c:i16", "centi_c:i17"),
    ("seconds=20", "second=20"),
    ('durable="lake"', 'durable="lakes"'),
)

_BLOCK = re.compile(r"^```\n\$ \./hw (?P<words>[^\n]*)\n(?P<output>.*?)^```$", re.M | re.S)
_PROCESS = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
_TOOK = re.compile(r"\b\d+\.\d s$", re.M)

Run = Callable[[str, Path], str]


def pages() -> list[Path]:
    """The documents that may show outputs of commands."""
    return [README, *sorted(DOCS.glob("*.md"))]


def updated(texts: Iterable[str], first: str, run: Run | None = None) -> list[str]:
    """The texts with the outputs that their commands have now. `first` is the first process."""
    run = run or _hw
    outputs: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="hw-documents-") as name:
        folder = Path(name)
        wrong = first
        for right, mistake in MISTAKES:
            assert right in wrong, "the first process has no %s" % right
            wrong = wrong.replace(right, mistake)
        (folder / "greenhouse.py").write_text(first)
        (folder / "wrong.py").write_text(wrong)

        def block(match: re.Match[str]) -> str:
            words = match["words"]
            if words not in outputs:
                outputs[words] = run(words, folder)
            if _TOOK.sub("", outputs[words]) == _TOOK.sub("", match["output"]):
                return match[0]
            return "```\n$ ./hw %s\n%s```" % (words, outputs[words])

        return [_BLOCK.sub(block, text) for text in texts]


def first_process() -> str:
    """The first process of README.md, as a file."""
    found = _PROCESS.search(README.read_text())
    assert found is not None, "README.md has no process"
    return found[1]


def _hw(words: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "headwater_tools", *words.split()],
        cwd=folder,
        env=variables(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=1800,
    )
    expected = int("wrong.py" in words.split())
    if done.returncode != expected:
        text = "`./hw %s` ended with status %d, not %d:\n%s"
        raise UserError(text % (words, done.returncode, expected, done.stdout))
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()) + "\n"


def generated() -> dict[Path, str]:
    """The pages that are generated as a whole."""
    from . import limits, operator_table

    return {DOCS / "operators.md": operator_table.page(), DOCS / "limits.md": limits.page()}


def true_texts() -> dict[Path, str]:
    """Every document as it should be."""
    paths = pages()
    texts = dict(zip(paths, updated([path.read_text() for path in paths], first_process())))
    return {**texts, **generated()}


def difference() -> str:
    """Where the documents differ from commands and code; empty if they agree."""
    lines: list[str] = []
    for path, text in true_texts().items():
        name = str(path.relative_to(ROOT))
        old = path.read_text().splitlines() if path.exists() else []
        lines += difflib.unified_diff(old, text.splitlines(), name, "as it should be", lineterm="", n=1)
    return "\n".join(lines)


def main() -> None:
    if sys.argv[1:] not in ([], ["--update"]):
        sys.exit("usage: python -m headwater_tools.documents [--update]")
    try:
        if sys.argv[1:]:
            for path, text in true_texts().items():
                path.write_text(text)
            return
        found = difference()
    except UserError as trouble:
        sys.exit(str(trouble))
    if found:
        sys.exit(found + "\n`python -m headwater_tools.documents --update` writes what is true")
    print("documents: every output and every generated page is true")


if __name__ == "__main__":
    main()
