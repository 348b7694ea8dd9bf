"""`hw bench NAME --against COMMIT`: compares this tree with another commit, alternating, so that other load
on the machine disturbs both.

Each round runs the bench once in a checkout of the commit and once here, in an order that swaps from round to
round. A measure's ratio is the median here over the median there; above 1 means that the value has grown.
Which direction is better depends on the measure: a measure whose bar is a least value is better when it
grows.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ...environment import CACHE, ROOT, variables
from ...errors import UserError

ROUNDS = 7
# What a checkout may share with this tree: made from lock files, and only read.
SHARED = ("jars", "micropython-*", "mosquitto", "chromium")

Values = dict[str, float]


def compare(
    words: Sequence[str], commit: str, rounds: int, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """The measures of `hw bench WORDS` there and here, and their ratio."""
    seen: tuple[list[Values], list[Values]] = ([], [])
    units: dict[str, str] = {}
    with checkout(commit) as there:
        trees = (there, ROOT)
        for turn in range(rounds):
            for side in (0, 1) if turn % 2 == 0 else (1, 0):
                measures = _measures(trees[side], words)
                units.update({m["name"]: m["unit"] for m in measures})
                seen[side].append({m["name"]: m["value"] for m in measures if _is_number(m["value"])})
            say("round %d of %d" % (turn + 1, rounds))
    return rows(seen[0], seen[1], units)


def rows(there: Sequence[Values], here: Sequence[Values], units: dict[str, str]) -> list[dict[str, Any]]:
    """One row for each measure that both sides have, with the medians and their ratio."""
    found = []
    for name in here[0]:
        if name not in there[0]:
            continue
        before = statistics.median(values[name] for values in there)
        now = statistics.median(values[name] for values in here)
        ratio = now / before if before else (1.0 if now == before else float("inf"))
        row = {"name": name, "unit": units.get(name, ""), "there": before, "here": now}
        found.append({**row, "ratio": round(ratio, 4)})
    return found


@contextlib.contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """A folder with the files of a commit, and an environment of its own that shares what it can."""
    with tempfile.TemporaryDirectory(prefix="hw-against-") as name:
        folder = Path(name) / "tree"
        made = subprocess.run(
            ["git", "-C", str(ROOT), "worktree", "add", "--detach", str(folder), commit],
            capture_output=True,
            text=True,
        )
        if made.returncode:
            raise UserError("--against %s: %s" % (commit, made.stderr.strip().splitlines()[-1]))
        try:
            cache = folder / ".hw"
            cache.mkdir()
            for pattern in SHARED:
                for path in CACHE.glob(pattern):
                    (cache / path.name).symlink_to(path)
            if _same_packages(folder):
                for path in CACHE.glob("py*"):
                    if path.is_dir() and path.name != "pytest":
                        (cache / path.name).symlink_to(path)
            yield folder
        finally:
            subprocess.run(
                ["git", "-C", str(ROOT), "worktree", "remove", "--force", str(folder)], capture_output=True
            )
            shutil.rmtree(folder, ignore_errors=True)


def _same_packages(folder: Path) -> bool:
    """Whether both trees have the same lock files."""
    locks = {path.name: path.read_bytes() for path in ROOT.glob("requirements*.lock")}
    return locks == {path.name: path.read_bytes() for path in folder.glob("requirements*.lock")}


def _measures(tree: Path, words: Sequence[str]) -> list[dict[str, Any]]:
    env = {k: v for k, v in variables().items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, str(tree / "hw"), "bench", *words, "--json"],
        cwd=tree,
        env=env,
        capture_output=True,
        text=True,
    )
    try:
        report = json.loads(done.stdout.splitlines()[-1])
        found: list[dict[str, Any]] = report["measures"]
    except (IndexError, KeyError, ValueError):
        text = (done.stderr or done.stdout).strip().splitlines() or ["it printed nothing"]
        raise UserError("`hw bench %s` in %s gave no measures: %s" % (" ".join(words), tree, text[-1]))
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def table(found: Sequence[dict[str, Any]], commit: str) -> list[str]:
    """The rows as aligned lines."""
    width = max([len(row["name"]) for row in found], default=0)
    lines = ["%-*s %14s %14s %8s" % (width, "", commit[:14], "here", "ratio")]
    for row in found:
        cells = (width, row["name"], row["there"], row["here"], row["ratio"], row["unit"])
        lines.append("%-*s %14.6g %14.6g %8.3f  %s" % cells)
    return lines
