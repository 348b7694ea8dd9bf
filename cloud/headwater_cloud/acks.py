"""Acknowledgements: what a gateway may delete, one file a process.

Written last: everything in them can be queried, and on a local path is on the disk itself. They are made
from `progress`, `settled` and `quarantine` alone, so a file that was lost or never written is made again.

Settled incarnations are in a second file of the process, which changes only when some are settled. The first
file names it by its CRC, so a gateway reads it once for each change. It is written before the first file
leaves them out.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from typing import Any

from . import ranges
from .files import Files
from .location import Location
from .progress import Key, Progress
from .quarantine import Unreadable
from .segment import hexadecimal, name_part
from .settled import PREFIX, Told

FORMAT = 1
UNREADABLE_MAX = 1000


class Acknowledgements:
    def __init__(self, files: Files, lake: Location, refused: Iterable[dict[str, Any]]) -> None:
        """`refused`: the unreadable files that are in quarantine."""
        self._files = files
        self._folder = lake / "acks"
        self._written: dict[str, str] = {}
        self._settled: dict[str, str] = {}  # process -> CRC of its file of settled incarnations
        self._unreadable: dict[str, list[str]] = {}
        for row in sorted(refused, key=lambda row: (row["landed"], row["file"])):
            if row["process"] is not None:
                self._add(row["process"], row["file"])

    def _add(self, process: str, file: str) -> None:
        names = self._unreadable.setdefault(process, [])
        if file not in names:
            names.append(file)
            del names[:-UNREADABLE_MAX]

    def settle(self, told: Told) -> None:
        """Replace the files of settled incarnations whose content has changed."""
        self._settled = {}
        for part, streams in sorted(told.items()):
            text = json.dumps({"format": FORMAT, "streams": streams}, sort_keys=True) + "\n"
            at = self._folder / (PREFIX + part + ".json")
            if self._files.read(at) != text:
                self._files.write(at, text)
            self._settled[part] = "%08x" % zlib.crc32(text.encode())
        for name in self._files.sizes(self._folder):
            if name.startswith(PREFIX) and name.removeprefix(PREFIX).removesuffix(".json") not in told:
                self._files.remove(self._folder / name)

    def write(self, progress: Progress, bad: list[Unreadable]) -> None:
        """Replace the files whose content has changed."""
        for item in bad:
            if item.process is not None:
                self._add(item.process, item.file)
        by_process: dict[str, list[Key]] = {}
        names: dict[str, str] = {}
        for key, numbering in progress.numberings.items():
            for process in numbering.processes:
                by_process.setdefault(name_part(process), []).append(key)
                names[name_part(process)] = process
        for part in sorted(by_process.keys() | self._unreadable.keys() | self._settled.keys()):
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
        said: dict[str, object] = {
            "format": FORMAT,
            "process": process,
            "generation": progress.generation,
            "streams": streams,
            "unreadable": self._unreadable.get(part, []),
        }
        if part in self._settled:
            said["settled"] = self._settled[part]
        return json.dumps(said) + "\n"
