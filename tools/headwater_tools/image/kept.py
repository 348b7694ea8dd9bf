"""Keeps in .hw/ what follows from the sources alone. Linking takes seconds, and each process that starts
virtual boards needs the linked package: only the first one links.

A file is named by the hash of all sources that it was made from, the image builder included: no change of
them finds an old file. A file that is damaged is made again.
"""

from __future__ import annotations

import functools
import hashlib
import pickle
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from .. import environment
from . import sources

FOLDER = "linked"
FILES_MAX = 16  # of all states of the sources; the oldest are deleted
Made = TypeVar("Made")


def kept(what: str, make: Callable[[], Made]) -> Made:
    """What `make` returns for the sources as they are."""
    folder = environment.CACHE / FOLDER
    target = folder / ("%s-%s.pickle" % (what, _state()))
    found: Made
    try:
        found = pickle.loads(target.read_bytes())
    except Exception:  # pickle names no closed set of what it raises for a damaged file
        found = make()
        _write(target, pickle.dumps(found))
    return found


def _write(target: Path, data: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        new = Path(temporary) / "new"
        new.write_bytes(data)
        new.replace(target)
    for old in sorted(target.parent.glob("*.pickle"), key=_age)[:-FILES_MAX]:
        old.unlink(missing_ok=True)


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0  # another process deleted it


@functools.cache
def _state() -> str:
    """The hash of the sources. A process builds images of one state of them."""
    digest = hashlib.sha256(sys.version.encode())
    for path in _sources():
        data = path.read_bytes()
        digest.update(b"%s:%d:" % (str(path.relative_to(environment.ROOT)).encode(), len(data)) + data)
    return digest.hexdigest()[:24]


def _sources() -> Iterator[Path]:
    yield from sorted(sources.EDGE.rglob("*.py"))
    for folder in (sources.FIRMWARE, sources.BOARD_TESTS, Path(__file__).parent):
        yield from sorted(folder.glob("*.py"))
