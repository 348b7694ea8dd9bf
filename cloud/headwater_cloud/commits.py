"""The log of `elements`, commit by commit: who wrote what, read from the log's own files.

A commit that Spark reported as done is not evidence: an append whose transaction is known is skipped
silently. Only a commit that names this batch and these files counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from . import tables
from .files import Files
from .location import Location, sync_files


@dataclass(frozen=True)
class Stamp:
    """What a commit of the sink records about itself, as userMetadata."""

    generation: int
    batch: int  # -1: none, a fence
    files: int

    def text(self) -> str:
        said = {"headwater": 1, "generation": self.generation, "batch": self.batch, "files": self.files}
        return json.dumps(said)

    @property
    def transaction(self) -> int:
        return (self.generation << 32) + self.batch + 1


@dataclass(frozen=True)
class Commit:
    version: int
    operation: str
    stamp: Stamp | None
    added: tuple[str, ...]  # files with new rows: paths within the table, or whole ones
    transactions: dict[str, int]
    rows: int | None = 0  # new rows, by the statistics of their files; None if one has none
    erasure: str | None = None  # the erasure whose rows it deleted: rows that it rewrote are not new


def version(table: Location) -> int:
    """The newest version of a table."""
    return tables.open_table(table).version()


def since(files: Files, table: Location, after: int) -> list[Commit]:
    """The commits after version `after`, in order, as far as the log still has them."""
    found = []
    while (text := files.read(table / "_delta_log" / ("%020d.json" % (after + 1)))) is not None:
        after += 1
        found.append(_commit(after, text))
    return found


def paths(table: Location, commit: Commit) -> list[str]:
    """The data files of a commit, as Spark reads them."""
    return [name if ":/" in name else table.spark + "/" + name for name in commit.added]


def sync(table: Location, behind: Iterable[Commit]) -> None:
    """Put commits of a table on a local path onto the disk itself: data, then the entries of the log."""
    if table.local is None:
        return
    folder = table.local
    behind = list(behind)
    sync_files(folder / name for commit in behind for name in commit.added)
    sync_files(folder / "_delta_log" / ("%020d.json" % commit.version) for commit in behind)


def _commit(version: int, text: str) -> Commit:
    operation = ""
    stamp = erasure = None
    added = []
    transactions = {}
    rows: int | None = 0
    for line in text.splitlines():
        action: dict[str, Any] = json.loads(line)
        if "commitInfo" in action:
            operation = action["commitInfo"].get("operation", "")
            stamp = _stamp(action["commitInfo"].get("userMetadata"))
            erasure = _erasure(action["commitInfo"].get("userMetadata")) if operation == "DELETE" else None
        elif "add" in action and action["add"].get("dataChange", True):
            added.append(unquote(action["add"]["path"]))
            number = json.loads(action["add"].get("stats") or "{}").get("numRecords")
            rows = None if rows is None or number is None else rows + int(number)
        elif "txn" in action:
            transactions[action["txn"]["appId"]] = action["txn"]["version"]
    if erasure is not None:
        return Commit(version, operation, None, (), transactions, 0, erasure)
    return Commit(version, operation, stamp, tuple(added), transactions, rows)


def _stamp(text: str | None) -> Stamp | None:
    try:
        said = json.loads(text or "null")
        return Stamp(said["generation"], said["batch"], said["files"]) if said["headwater"] == 1 else None
    except (ValueError, TypeError, KeyError):
        return None


def erasing(name: str) -> str:
    """The userMetadata of a commit that deletes the rows of an erasure."""
    return json.dumps({"headwater": 1, "erasure": name})


def _erasure(text: str | None) -> str | None:
    try:
        said = json.loads(text or "null")
        return str(said["erasure"]) if said["headwater"] == 1 else None
    except (ValueError, TypeError, KeyError):
        return None
