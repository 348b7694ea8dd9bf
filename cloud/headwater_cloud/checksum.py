"""Checksums of rows: they show that a payload is still the one that landed.

A row has 64 bits: XXH64 over its alphabet's text (seed 42), then over ξ, ts, each integer and each float in
turn, as 8 bytes each, every hash the seed of the next. Floats count by their bits, so -0.0 is not 0.0; NaN
is 7ff8000000000000, as Spark writes every NaN. A set of rows has the XOR of theirs: it does not depend on
order, and disjoint sets can be combined.

Three programs compute it and agree: the gateway when it cuts a segment, Spark in the pass that appends it
(`sql`), and the audit from what the table holds (`of_rows`, numpy). `arrived`, `landed` and `unsync` are not
part of an element, and not of this.

`progress` keeps, for each incarnation, spans of ξ with the number and the XOR of the rows that landed there.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from . import alphabet as alphabets

SEED = 42
SPANS_MAX = 16  # of one incarnation; beyond, the oldest are merged

NAN = 0x7FF8000000000000
_BITS = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)

Words = np.ndarray[Any, np.dtype[np.uint64]]


# Of rows


def of_rows(alphabet: str, xi: Any, ts_us: Any, ints: Any, floats: Any) -> Words:
    """The hashes of rows of one alphabet: int64 columns, and one int64 or float64 column for each field."""
    hashed: Words = np.full(len(xi), of_alphabet(alphabet), np.uint64)
    for column in (xi, ts_us, *ints):
        hashed = _word(np.ascontiguousarray(column, np.int64).view(np.uint64), hashed)
    for column in floats:
        bits = np.ascontiguousarray(column, np.float64).view(np.uint64)
        hashed = _word(np.where(np.isnan(column), np.uint64(NAN), bits), hashed)
    return hashed


def of_table(alphabet: str, table: pa.Table) -> Words:
    """The hashes of rows of one alphabet that have its number of values each."""
    xi, ts = (table.column(name).combine_chunks() for name in ("xi", "ts"))
    values = [table.column(name).combine_chunks().flatten().to_numpy() for name in ("ints", "floats")]
    columns = [flat.reshape(-1, n).T if n else () for flat, n in zip(values, alphabets.counts(alphabet))]
    return of_rows(alphabet, xi.to_numpy(), ts.cast(pa.int64()).to_numpy(), *columns)


def xor(hashes: Words) -> int:
    """Of a set of rows, as the tables have it: 64 bits, two's complement."""
    return int(np.bitwise_xor.reduce(hashes, initial=np.uint64(0)).astype(np.int64))


@functools.lru_cache(4096)
def of_alphabet(text: str) -> int:
    return xxh64(text.encode(), SEED)


def _word(words: Words, seeds: Words) -> Words:
    """XXH64 of eight bytes each, with a seed each. Numpy's integers wrap, as XXH64 requires."""
    h = seeds + np.uint64((_P5 + 8) & _BITS)
    h ^= _turned(words * np.uint64(_P2), 31) * np.uint64(_P1)
    h = _turned(h, 27) * np.uint64(_P1) + np.uint64(_P4)
    h ^= h >> np.uint64(33)
    h *= np.uint64(_P2)
    h ^= h >> np.uint64(29)
    h *= np.uint64(_P3)
    h ^= h >> np.uint64(32)
    return h


def _turned(words: Words, by: int) -> Words:
    return (words << np.uint64(by)) | (words >> np.uint64(64 - by))


def xxh64(data: bytes, seed: int) -> int:
    """XXH64 of any bytes."""
    at, n = 0, len(data)
    if n >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        while at + 32 <= n:
            for i in range(4):
                word = int.from_bytes(data[at + 8 * i : at + 8 * i + 8], "little")
                lanes[i] = _turn(lanes[i] + word * _P2, 31) * _P1
            at += 32
        h = sum(_turn(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            h = (h ^ _turn(lane * _P2, 31) * _P1) * _P1 + _P4
    else:
        h = seed + _P5
    h += n
    while at + 8 <= n:
        word = int.from_bytes(data[at : at + 8], "little")
        h = _turn((h ^ _turn(word * _P2, 31) * _P1), 27) * _P1 + _P4
        at += 8
    if at + 4 <= n:
        h = _turn(h ^ int.from_bytes(data[at : at + 4], "little") * _P1, 23) * _P2 + _P3
        at += 4
    for byte in data[at:]:
        h = _turn(h ^ byte * _P5, 11) * _P1
    h &= _BITS
    h = (h ^ h >> 33) * _P2 & _BITS
    h = (h ^ h >> 29) * _P3 & _BITS
    return h ^ h >> 32


def _turn(word: int, by: int) -> int:
    word &= _BITS
    return (word << by | word >> (64 - by)) & _BITS


def turned(value: int, turn: int) -> int:
    """A hash or checksum, rotated to the left by this number of bits."""
    bits = value & _BITS
    bits = (bits << turn | bits >> (64 - turn)) & _BITS
    return bits - (1 << 64) if bits >> 63 else bits


# By Spark

# Spark's own hash treats -0.0 as 0.0. A list with a -0.0 is hashed as structs, whose null fields the hash
# leaves out: so -0.0 counts by its bits, as an integer.
_NEGATIVE = "(x = 0 AND CAST(x AS STRING) = '-0.0')"
FLOATS = (
    "transform(floats, x -> IF(%s, "
    "named_struct('bits', (-9223372036854775807L - 1L), 'value', CAST(NULL AS DOUBLE)), "
    "named_struct('bits', CAST(NULL AS BIGINT), 'value', x)))" % _NEGATIVE
)
_HASH = "xxhash64(alphabet, xi, ts, ints, %s)"
PLAIN = _HASH % "floats"  # of rows without floats
# For `array_contains` both zeros are equal; it is quick, and few rows have any.
_ODD = "array_contains(floats, 0D) AND exists(floats, x -> %s)" % _NEGATIVE
SQL = "IF(%s, %s, %s)" % (_ODD, _HASH % FLOATS, PLAIN)


# Of rows with their hash, rotated to the left by `turn` bits.
TURNED = "shiftleft(hash, turn) | shiftrightunsigned(hash, 64 - turn)"


def sql(texts: Iterable[str]) -> str:
    """The hash of a row of these alphabets, in Spark's SQL."""
    return SQL if any(alphabets.counts(text)[1] for text in texts) else PLAIN


# Spans


@dataclass(frozen=True)
class Span:
    """The rows that landed with a ξ from first to last."""

    first: int
    last: int
    rows: int
    sum: int


Spans = list[Span]  # ascending and disjoint


def total(spans: Iterable[Span]) -> tuple[int, int]:
    """Number and checksum of the rows of disjoint spans."""
    rows = checksum = 0
    for span in spans:
        rows += span.rows
        checksum ^= span.sum
    return rows, checksum


def within(spans: Spans, first: int, last: int) -> tuple[int, int] | None:
    """Number and checksum of the rows from first to last; None if the spans do not tell these."""
    touched = [span for span in spans if span.first <= last and span.last >= first]
    if any(span.first < first or span.last > last for span in touched):
        return None
    return total(touched)


def put(spans: Spans, new: Span) -> Spans:
    """Add the rows of one more span, which may be between the rows of existing ones."""
    if not new.rows:
        return spans
    touched = [s for s in spans if s.first <= new.last and s.last >= new.first]
    one = _joined([*touched, new])
    return bounded(sorted([*(s for s in spans if s not in touched), one], key=lambda s: s.first))


def bounded(spans: Spans, most: int = SPANS_MAX) -> Spans:
    """At most this number: the first ones, which landed first, become one."""
    over = len(spans) - most
    return [_joined(spans[: over + 1]), *spans[over + 1 :]] if over > 0 else spans


def _joined(spans: Spans) -> Span:
    return Span(min(s.first for s in spans), max(s.last for s in spans), *total(spans))
