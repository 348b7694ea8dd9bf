"""Names of segments (docs/spec.md, "Segments")."""

from __future__ import annotations

import re
import zlib
from typing import NamedTuple

_NAME = re.compile(
    r"([^~]{1,60})~([^~]{1,60})~([0-9a-f]{16})~(\d{1,19})-(\d{1,19})~(\d{1,19})~([0-9a-f]{8})~([0-9a-f]{8})\.parquet"
)


class Parts(NamedTuple):
    process: str
    stream: str
    incarnation: int
    first: int
    last: int


def words(text: str) -> str:
    """A process or a stream as a name contains it."""
    good = "".join(c if c.isascii() and (c.isalnum() or c in "_-.") else "_" for c in text.replace("/", "."))
    if good and not good[0].isalnum():
        good = "-" + good[1:]
    return good[:60]


def join(
    process: str, stream: str, inc: int, first: int, last: int, rows: int, alphabet: str, crc: int
) -> str:
    place = "%s~%s~%016x" % (words(process), words(stream), inc)
    return "%s~%d-%d~%d~%08x~%08x.parquet" % (place, first, last, rows, zlib.crc32(alphabet.encode()), crc)


def split(name: str) -> Parts | None:
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    process, stream, inc, first, last = match.groups()[:5]
    return Parts(process, stream, int(inc, 16), int(first), int(last))
