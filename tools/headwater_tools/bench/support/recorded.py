"""Measured values that the documents quote: `docs/bench.json`, written by `hw bench NAME --record`.

Each measure is kept with the date and the commit of the run that gave it, so that a figure in the documents
can always be traced, and a run of one bench leaves the others as they are. A tree with uncommitted changes
is recorded as such.
"""

from __future__ import annotations

import datetime
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...environment import ROOT
from .. import Measure

FILE = ROOT / "docs" / "bench.json"


def load(path: Path = FILE) -> dict[str, dict[str, dict[str, Any]]]:
    """Bench name, measure name -> value, unit, bar, ok, date, commit."""
    if not path.exists():
        return {}
    found: dict[str, dict[str, dict[str, Any]]] = json.loads(path.read_text())
    return found


def add(bench: str, measures: Sequence[Measure], path: Path = FILE) -> None:
    """Replace the records of these measures."""
    assert len({m.name for m in measures}) == len(measures), "two measures have one name"
    known = load(path)
    at = {"date": datetime.datetime.now(datetime.UTC).date().isoformat(), "commit": commit()}
    known.setdefault(bench, {}).update(
        {m.name: {k: v for k, v in m.as_json().items() if k != "name"} | at for m in measures}
    )
    path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def commit() -> str:
    """The commit of this tree; with a `+` where tracked files differ from it."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    name = git("rev-parse", "--short=9", "HEAD") or "unknown"
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs")
    return name + ("+" if changed else "")
