"""How many files Spark has recorded as seen: a checkpoint with too many is replaced.

Spark keeps the name of every file of a stream forever, in memory and in its checkpoint, and writes all of
them again every ten batches. The checkpoint may be lost, so the sink begins a new one instead.

64,000 names are 10 MB in each of five files or more that Spark keeps. Writing them costs 0.03 s of CPU a
batch, about as much as 1,000 names do: a smaller limit would gain nothing, and beginning again costs seconds.
"""

from __future__ import annotations

import time

from .files import Files
from .location import Location

BYTES_MAX = 64 << 20
EVERY_S = 30.0  # between two checks


class SeenFiles:
    def __init__(self, files: Files, checkpoint: Location) -> None:
        self._files = files
        self._folder = checkpoint / "sources" / "0"
        self._weighed_at = time.monotonic()

    def too_many(self) -> bool:
        return sum(self._files.sizes(self._folder).values()) > BYTES_MAX

    def too_many_now(self) -> bool:
        """The same, for a serving sink: checked now and then."""
        if time.monotonic() - self._weighed_at < EVERY_S:
            return False
        self._weighed_at = time.monotonic()
        return self.too_many()
