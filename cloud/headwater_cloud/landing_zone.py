"""Reads the files of a batch in a landing zone on a local path: length, CRC-32 and footer of each.

Spark's stream of files could do that too, and does so for an object store. On a local path this process
reads the same bytes without a job, and without a copy of whole files in the heap of the JVM.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .location import Location
from .segment import SIZE_MAX

PIECE = 1 << 20  # bytes that are read at a time
TAIL = 8  # of a Parquet file: the footer's length, and what shows that it is one
FOOTER_MAX = 4 << 20


def files_of(landing: Location, paths: Iterable[str]) -> list[dict[str, Any]]:
    """The files of these paths that exist, as the stream gives them: without those that have no bytes or
    too many. OSError if one cannot be read."""
    assert landing.local is not None
    rows = []
    for path in paths:
        if not lies_in(landing, path):
            continue
        with contextlib.suppress(FileNotFoundError):
            row = _read(landing.local / path.rpartition("/")[2])
            if row is not None:
                rows.append({"path": path, **row})
    return rows


def lies_in(landing: Location, path: str) -> bool:
    """Whether a file that Spark names lies directly in the landing zone."""
    return _plain(path.rpartition("/")[0]) == _plain(landing.spark)


def _plain(folder: str) -> str:
    """A folder in a comparable form: for a local one, Spark writes `file:/` or nothing before it."""
    return re.sub("^file:/+", "/", folder)


def _read(file: Path) -> dict[str, Any] | None:
    handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK)  # a pipe must not make the sink wait
    try:
        status = os.fstat(handle)
        length = status.st_size
        if not stat.S_ISREG(status.st_mode) or not 0 < length <= SIZE_MAX:
            return None
        crc = 0
        for start in range(0, length, PIECE):
            crc = zlib.crc32(os.pread(handle, PIECE, start), crc)
        tail = os.pread(handle, TAIL, max(0, length - TAIL))
        size = length if length < 12 else TAIL + min(int.from_bytes(tail[:4], "little"), FOOTER_MAX)
        start = max(0, length - size)
        return {"length": length, "crc": crc, "footer": os.pread(handle, length - start, start)}
    finally:
        os.close(handle)
