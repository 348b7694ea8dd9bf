"""Keeps the Delta log of a table on a local path short, so that it is read as quickly after years.

Each reader of a table lists the whole folder of its log, and Hadoop's listing of a local folder takes about
14 µs of CPU for each file. (The sink itself lists only the end of the log, see logstore.py.) Delta's own
cleanup keeps whole days: at one batch every 5 s that is 17,280 commits a day, of up to four files each (the
commit, Delta's checksum of the table's state, and Hadoop's checksum of either).

What stays:

- the newest COMMITS_MIN commits, and all commits of the last hour, so that readers which began earlier,
  streaming ones too, still find what they need;
- restore points: of each hour of the last day and of each day of the last week, the first commit that has a
  checkpoint of the log. A version with its own checkpoint can be read and restored without the others;
- both kinds of checksums of the newest commits only: they are optional, and only new ones save any work.

`Lake.as_of` reads the moments between restore points by the column `landed`.

Why this cannot lose rows: entries are removed only below a checkpoint that has been decoded as a whole and
flushed to the disk, and only below the version that `progress` names, since later commits are evidence for a
sink that starts. Any subset of the entries to be removed may still be there: a kill or a power cut in between
leaves a log that reads the same.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from .location import Location, sync_files

COMMITS_MIN = 1000
AGE_MIN_S = 3600.0
CHECKSUMS = 100  # this many of the newest commits keep their checksums
HOUR_S = 3600
DAY_S = 24 * HOUR_S
WEEK_S = 7 * DAY_S  # as long as the files of earlier versions are kept

_ENTRY = re.compile(r"\.?(\d{20})\.(json|crc|checkpoint\.parquet)(\.crc)?")


@dataclass
class _Version:
    commit: str = ""
    checkpoint: str = ""
    checksums: list[str] = field(default_factory=list)

    @property
    def restorable(self) -> bool:
        return bool(self.commit and self.checkpoint)

    def names(self) -> list[str]:
        return [*self.checksums, *filter(None, (self.commit, self.checkpoint))]


def shorten(table: Location, accounted: int | None = None) -> int:
    """Remove what is not needed from the log of a table; the number of files removed.

    `accounted`: the version from which on every commit must stay. Only the holder of the lake's lock may do
    this.
    """
    if table.local is None:
        return 0
    log = table.local / "_delta_log"
    versions = _versions(log)
    if not versions:
        return 0
    newest = max(versions)
    below = newest - COMMITS_MIN if accounted is None else min(newest - COMMITS_MIN, accounted)
    removed = _remove(log, _old_checksums(versions, newest))
    cut = _cut(log, versions, below)
    if cut is not None:
        kept = _restore_points(log, versions, cut)
        old = [versions[v] for v in sorted(versions) if v < cut and v not in kept]
        if old and _whole(log, versions[cut]):
            removed += _remove(log, (name for version in old for name in version.names()))
    return removed


def _versions(log: Path) -> dict[int, _Version]:
    found: dict[int, _Version] = {}
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(log):
            match = _ENTRY.fullmatch(name)
            if match is None:
                continue
            version = found.setdefault(int(match[1]), _Version())
            if match[3] or match[2] == "crc":
                version.checksums.append(name)
            elif match[2] == "json":
                version.commit = name
            else:
                version.checkpoint = name
    return found


def _old_checksums(versions: dict[int, _Version], newest: int) -> Iterable[str]:
    """Checksums of earlier commits; those of a version with a checkpoint stay with it."""
    for number in sorted(versions):
        version = versions[number]
        if number <= newest - CHECKSUMS and not version.restorable:
            yield from version.checksums
            version.checksums = []


def _cut(log: Path, versions: dict[int, _Version], below: int) -> int | None:
    """The newest version up to `below` that has a checkpoint and is older than AGE_MIN_S."""
    young = time.time() - AGE_MIN_S
    for number in sorted(versions, reverse=True):
        version = versions[number]
        if number <= below and version.restorable and _committed(log, version) < young:
            return number
    return None


def _restore_points(log: Path, versions: dict[int, _Version], cut: int) -> set[int]:
    """The versions below `cut` that stay. The first of an hour may be the first of its day, so every version
    that is kept for a week was kept for a day before."""
    now = time.time()
    first: dict[tuple[int, int], int] = {}
    for number in sorted(versions):
        version = versions[number]
        if number < cut and version.restorable:
            at = _committed(log, version)
            age = now - at
            if age < WEEK_S:
                span = HOUR_S if age < DAY_S else DAY_S
                first.setdefault((span, int(at // span)), number)
    return set(first.values())


def _committed(log: Path, version: _Version) -> float:
    """When a version was committed, as Delta itself sees it."""
    return os.stat(log / version.commit).st_mtime


def _whole(log: Path, version: _Version) -> bool:
    """Whether a checkpoint can be read as a whole; it is on the disk then."""
    sync_files(log / name for name in (version.commit, version.checkpoint))
    found = {"protocol": 0, "metaData": 0}
    try:
        with pq.ParquetFile(log / version.checkpoint, page_checksum_verification=True) as file:
            for batch in file.iter_batches():
                for name in found:
                    found[name] += len(batch) - batch.column(name).null_count
    except (OSError, KeyError, pa.ArrowException):
        return False
    return all(number == 1 for number in found.values())


def _remove(log: Path, names: Iterable[str]) -> int:
    removed = 0
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(log / name)
            removed += 1
    return removed
