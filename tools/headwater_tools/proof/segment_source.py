"""Segments as a gateway cuts them, in any number: what benches and the crash harness feed a sink with.

A row's time and value follow from its ξ alone, so rows that are cut twice are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from headwater_cloud.segment import Gap, write_segment

from ..environment import ROOT

ECG = ROOT / "tests" / "data" / "ecg208-360hz.i16"
ALPHABET = "mV:i16"
BEGIN_US = 1_750_000_000_000_000
EVERY_US = 2778
INCARNATION = 0x00F3A1B2C3D4E5F6


class Supply:
    """The next segments of a process whose streams take turns."""

    def __init__(
        self, folder: Path, rows: int, streams: int = 50, process: str = "bench", sync: bool = False
    ) -> None:
        self.folder = folder
        self.rows = rows
        self.process = process
        self.sync = sync
        self.streams = ["%s/ecg%02d" % (process, i) for i in range(streams)]
        self.last = dict.fromkeys(self.streams, 0)
        self.turn = 0
        self._ecg = np.fromfile(ECG, np.int16)
        folder.mkdir(parents=True, exist_ok=True)

    def value(self, xi: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return self._ecg[xi % len(self._ecg)].astype(np.int64)

    def cut(
        self,
        stream: str,
        first: int,
        last: int,
        *,
        gaps: Sequence[Gap] = (),
        incarnation: int = INCARNATION,
        times: int = 0,
        shift: int = 0,
    ) -> Path:
        """A segment of this run, cut for the n-th time; `shift` adds to its values: then its rows diverge."""
        xi = np.arange(first, last + 1, dtype=np.int64)
        for gap in gaps:
            xi = xi[(xi < gap.first) | (xi > gap.last)]
        values = self.value(xi) + shift
        when: Any = BEGIN_US + xi * EVERY_US
        return write_segment(
            self.folder, self.process, stream, incarnation, first, ALPHABET, when, [values],
            gaps=gaps, cut=times, sync=self.sync,
        )  # fmt: skip

    def next(self, files: int, back: int = 0) -> list[Path]:
        """This many segments, each of the next stream; each repeats `back` earlier rows of its stream."""
        made = []
        for _ in range(files):
            stream = self.streams[self.turn % len(self.streams)]
            self.turn += 1
            first = max(1, self.last[stream] + 1 - back)
            made.append(self.cut(stream, first, first + self.rows - 1))
            self.last[stream] = first + self.rows - 1
        return made
