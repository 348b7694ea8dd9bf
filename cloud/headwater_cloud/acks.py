"""Acknowledgements: what a gateway may let go of, one file a process.

Written last: everything in them can be queried, and on a local path lies on the disk itself. They are made
from `progress` and `quarantine` alone, so a file that was lost or never written is made again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from . import ranges
from .files import Files
from .location import Location
from .progress import Key, Progress
from .quarantine import Unreadable
from .segment import hexadecimal, name_part

FORMAT = 1
UNREADABLE_MAX = 1000


class Acknowledgements:
    def __init__(self, files: Files, lake: Location, refused: Iterable[dict[str, Any]]) -> None:
        """`refused`: the unreadable files that are in quarantine."""
        self._files = files
        self._folder = lake / "acks"
        self._written: dict[str, str] = {}
        self._unreadable: dict[str, list[str]] = {}
        for row in sorted(refused, key=lambda row: (row["landed"], row["file"])):
            if row["process"] is not None:
                self._add(row["process"], row["file"])

    def _add(self, process: str, file: str) -> None:
        names = self._unreadable.setdefault(process, [])
        if file not in names:
            names.append(file)
            del names[:-UNREADABLE_MAX]

    def write(self, progress: Progress, bad: list[Unreadable]) -> None:
        """Replace the files that say something else now."""
        for item in bad:
            if item.process is not None:
                self._add(item.process, item.file)
        by_process: dict[str, list[Key]] = {}
        names: dict[str, str] = {}
        for key, numbering in progress.numberings.items():
            for process in numbering.processes:
                by_process.setdefault(name_part(process), []).append(key)
                names[name_part(process)] = process
        for part in sorted(by_process.keys() | self._unreadable.keys()):
            text = self._text(names.get(part, part), progress, sorted(by_process.get(part, [])), part)
            if self._written.get(part) != text:
                self._files.write(self._folder / (part + ".json"), text)
                self._written[part] = text

    def _text(self, process: str, progress: Progress, keys: list[Key], part: str) -> str:
        streams: dict[str, dict[str, object]] = {}
        for stream, incarnation in keys:
            accounted = progress.numberings[stream, incarnation].accounted()
            streams.setdefault(stream, {})[hexadecimal(incarnation)] = {
                "high": ranges.high(accounted),
                "ranges": [list(pair) for pair in ranges.above(accounted)],
            }
        said = {
            "format": FORMAT,
            "process": process,
            "generation": progress.generation,
            "streams": streams,
            "unreadable": self._unreadable.get(part, []),
        }
        return json.dumps(said) + "\n"
