"""A writer of segments that is not ours: docs/spec.md read once, plain pyarrow, no line of the project's
code.

What it writes is right unless a test asks for something else: other words in the footer, other columns,
encodings and codecs, bytes that were damaged before anybody took a CRC.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

START_US = 1_780_000_000_000_000
ARRIVED_US = START_US + 60_000_000
TIME = pa.timestamp("us", "UTC")


def segment(
    first: int,
    last: int,
    *,
    process: str = "cardio",
    stream: str = "cardio/ecg",
    incarnation: int = 7,
    alphabet: str = "n:i32 w:u64",
    gaps: Sequence[Sequence[Any]] = (),
    change: int = 0,
    xi: Sequence[int] | None = None,
    columns: dict[str, pa.Array] | None = None,
    said: dict[str, Any] | None = None,
    damage: Callable[[bytes], bytes] | None = None,
    **options: Any,
) -> tuple[str, bytes]:
    """Name and bytes. `said` and `columns` replace what would be right; `options` are pyarrow's."""
    missing = {x for gap in gaps for x in range(gap[0], gap[1] + 1)}
    rows = [x for x in range(first, last + 1) if x not in missing]
    there = list(rows if xi is None else xi)
    kinds = [field.split(":")[1] for field in alphabet.split()]
    ints = [[x + change if k != "u64" else -x for k in kinds if k[0] != "f"] for x in there]
    floats = [[x / 2 for k in kinds if k[0] == "f"] for x in there]
    made = {
        "stream": pa.array([stream] * len(there), pa.string()),
        "incarnation": pa.array([incarnation] * len(there), pa.int64()),
        "xi": pa.array(there, pa.int64()),
        "ts": pa.array([START_US + 1000 * x for x in there], TIME),
        "unsync": pa.array([False] * len(there), pa.bool_()),
        "arrived": pa.array([ARRIVED_US] * len(there), TIME),
        "alphabet": pa.array([alphabet] * len(there), pa.string()),
        "ints": pa.array(ints, pa.list_(pa.int64())),
        "floats": pa.array(floats, pa.list_(pa.float64())),
        **(columns or {}),
    }
    footer = {
        "format": 1,
        "process": process,
        "stream": stream,
        "incarnation": "%016x" % (incarnation % (1 << 64)),
        "first": first,
        "last": last,
        "rows": len(rows),
        "alphabet": alphabet,
        "within_ms": 5000,
        "gaps": [list(gap) for gap in gaps],
        **(said or {}),
    }
    table = pa.table(made).replace_schema_metadata({b"headwater": json.dumps(footer).encode()})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **{"compression": "zstd", "write_page_checksum": True, **options})
    data = sink.getvalue().to_pybytes()
    if damage is not None:
        data = damage(data)
    return name(process, stream, incarnation, first, last, len(rows), alphabet, data), data


def name(
    process: str, stream: str, incarnation: int, first: int, last: int, rows: int, alphabet: str, data: bytes
) -> str:
    return "%s~%s~%016x~%d-%d~%d~%08x~%08x.parquet" % (
        part(process),
        part(stream),
        incarnation % (1 << 64),
        first,
        last,
        rows,
        zlib.crc32(alphabet.encode()),
        zlib.crc32(data),
    )


def part(text: str) -> str:
    allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    out = "".join(c if c in allowed + "_-." else "." if c == "/" else "_" for c in text)[:60]
    return out if out[:1] in allowed and out else "-" + out[1:]


def put(landing: Path, first: int, last: int, **more: Any) -> Path:
    """A segment that is in the landing zone, whole, from one moment on."""
    called, data = segment(first, last, **more)
    return place(landing, called, data)


def place(landing: Path, called: str, data: bytes) -> Path:
    hidden = landing / (".%08x" % zlib.crc32(called.encode()))
    hidden.write_bytes(data)
    hidden.rename(landing / called)
    return landing / called


def footer_of(data: bytes) -> bytes:
    """What a reader takes of a file: the footer and what stands behind it."""
    return data[-8 - int.from_bytes(data[-8:-4], "little") :] if len(data) >= 12 else data


def flipped_in_footer(data: bytes, bits: Sequence[int]) -> bytes:
    """The same file with these bits of its footer the other way round; bits count from the footer's start."""
    out = bytearray(data)
    start = len(data) - len(footer_of(data))
    for bit in bits:
        out[start + bit // 8] ^= 1 << bit % 8
    return bytes(out)
