"""The checksum of a segment's rows (docs/spec.md, "Checksums"): by pyarrow alone, as the cutter has no numpy.

pyarrow's unchecked arithmetic on 64-bit integers wraps, as XXH64 requires. The lake's programs run without
this package and have the same for numpy and Spark: `tests/unit/cloud/test_checksum.py` compares numpy's
result with this one, `tests/system/test_sink.py` Spark's.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

SEED = 42
NAN = 0x7FF8000000000000
BLOCK = 1 << 16  # rows that are hashed at once

_BITS = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def of_rows(alphabet: str, columns: Sequence[pa.Array]) -> int:
    """Of rows of one alphabet: columns of int64 and float64, ξ and ts first, then each field. 64 bits."""
    seed = xxh64(alphabet.encode(), SEED)
    whole = 0
    for at in range(0, len(columns[0]), BLOCK):
        hashed = pa.repeat(pa.scalar(seed, pa.uint64()), min(BLOCK, len(columns[0]) - at))
        for column in columns:
            hashed = _word(_bits(column.slice(at, BLOCK)), hashed)
        whole ^= _xor(hashed)
    return whole


def _bits(column: pa.Array) -> pa.Array:
    if column.type == pa.float64():
        return pc.if_else(pc.is_nan(column), _number(NAN), column.view(pa.uint64()))
    return column.view(pa.uint64())


def _xor(words: pa.Array) -> int:
    """Of all of them: halves are put together until one is left."""
    one = 0
    while len(words):
        if len(words) % 2:
            one ^= words[len(words) - 1].as_py()
        half = len(words) // 2
        words = pc.bit_wise_xor(words.slice(0, half), words.slice(half, half))
    return one


def _word(words: pa.Array, seeds: pa.Array) -> pa.Array:
    """XXH64 of eight bytes each, with a seed each."""
    h = pc.add(seeds, _number(_P5 + 8))
    h = pc.bit_wise_xor(h, _times(_turned(_times(words, _P2), 31), _P1))
    h = pc.add(_times(_turned(h, 27), _P1), _number(_P4))
    h = _times(_folded(h, 33), _P2)
    h = _times(_folded(h, 29), _P3)
    return _folded(h, 32)


def _number(value: int) -> pa.Scalar:
    return pa.scalar(value & _BITS, pa.uint64())


def _times(words: pa.Array, factor: int) -> pa.Array:
    return pc.multiply(words, _number(factor))


def _turned(words: pa.Array, by: int) -> pa.Array:
    return pc.bit_wise_or(pc.shift_left(words, _number(by)), pc.shift_right(words, _number(64 - by)))


def _folded(words: pa.Array, by: int) -> pa.Array:
    return pc.bit_wise_xor(words, pc.shift_right(words, _number(by)))


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
        h = _turn(h ^ _turn(word * _P2, 31) * _P1, 27) * _P1 + _P4
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
