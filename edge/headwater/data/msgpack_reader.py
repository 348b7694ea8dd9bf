# msgpack from its bytes: see msgpack.py, whose `loads` this is. A board needs it at its start, and when it
# takes over an operator or receives a decision.

import struct

from ..offboard.compat import TYPE_CHECKING
from .msgpack import DEPTH_MAX, PackError

if TYPE_CHECKING:
    from typing import Any

    from ..offboard.interfaces import Readable


def read(data: "Readable") -> "Any":
    data = memoryview(data)
    v, pos = _read(data, 0, 0)
    if pos != len(data):
        raise PackError("%d bytes behind the object" % (len(data) - pos))
    return v


# The object with which these bytes begin, as the item of a list, and where it ends.
def first(data: "Readable") -> "tuple[Any, int]":
    return _read(memoryview(data), 0, 1)


# Big-endian number of `width` bytes at pos.
def _number(data: memoryview, pos: int, width: int) -> int:
    if pos + width > len(data):
        raise PackError("cut short at byte %d" % pos)
    return int.from_bytes(bytes(data[pos : pos + width]), "big")


def _read(data: memoryview, pos: int, depth: int) -> "tuple[Any, int]":
    b = _number(data, pos, 1)
    at = pos
    pos += 1
    if b < 0x80:
        return b, pos
    if b >= 0xE0:
        return b - 256, pos
    if b == 0xC0:
        return None, pos
    if b == 0xC2 or b == 0xC3:
        return b == 0xC3, pos
    if b == 0xCB:
        bits = _number(data, pos, 8)
        v = struct.unpack(">d", bits.to_bytes(8, "big"))[0]
        if v != v and bits != 0x7FF8 << 48:
            raise PackError("not canonical at byte %d: another NaN" % at)
        return v, pos + 8
    if 0xCC <= b <= 0xCF:
        k = b - 0xCC
        v = _number(data, pos, 1 << k)
        if v < 128 or k and not v >> (4 << k):
            raise PackError("not canonical at byte %d: a longer number than needed" % at)
        return v, pos + (1 << k)
    if 0xD0 <= b <= 0xD3:
        k = b - 0xD0
        v = _number(data, pos, 1 << k) - (1 << (8 << k))
        if v < -1 << (8 << k) - 1 or v >= (-1 << (4 << k) - 1 if k else -32):
            raise PackError("not canonical at byte %d: a longer number than needed" % at)
        return v, pos + (1 << k)
    # The remaining codes have a length: in the code, or after it in 1, 2 or 4 bytes.
    if b < 0xC0:
        kind = 0xA0 if b >= 0xA0 else b & 0xF0
        n = b & (31 if kind == 0xA0 else 15)
    else:
        if b >= 0xDC:
            kind = 0x90 if b < 0xDE else 0x80
            k = 1 + (b & 1)
        elif b >= 0xD9:
            kind = 0xA0
            k = b - 0xD9
        elif 0xC4 <= b <= 0xC6:
            kind = 0xC0
            k = b - 0xC4
        else:
            raise PackError("unknown code %d at byte %d" % (b, at))
        n = _number(data, pos, 1 << k)
        pos += 1 << k
        if kind == 0xA0 and n < 32 or kind < 0xA0 and n < 16 or k > (kind < 0xA0) and not n >> (4 << k):
            raise PackError("not canonical at byte %d: a longer length than needed" % at)
    if n * (2 if kind == 0x80 else 1) > len(data) - pos:
        raise PackError("length %d at byte %d, and %d bytes left" % (n, at, len(data) - pos))
    if kind >= 0xA0:
        v = bytes(data[pos : pos + n])
        pos += n
        if kind == 0xA0:
            v = _text(v, at)
        return v, pos
    if depth >= DEPTH_MAX:
        raise PackError("more than %d lists and dicts inside each other" % DEPTH_MAX)
    if kind == 0x90:
        v = []
        for _ in range(n):
            x, pos = _read(data, pos, depth + 1)
            v.append(x)
        return v, pos
    v = {}
    last = None
    for _ in range(n):
        at = pos
        key, pos = _read(data, pos, DEPTH_MAX)
        if type(key) not in (str, int) or last is not None and (type(key) is not type(last) or key <= last):
            raise PackError("not canonical at byte %d: keys must be texts or integers that rise" % at)
        v[key], pos = _read(data, pos, depth + 1)
        last = key
    return v, pos


# UTF-8, checked alike under both interpreters (MicroPython alone would let more pass).
def _text(data: bytes, at: int) -> str:
    try:
        s = str(data, "utf-8")
    except UnicodeError:
        raise PackError("no UTF-8 at byte %d" % at)
    if len(s) != len(data):
        n = 0
        c: "Any"
        for c in s:
            c = ord(c)
            n += 1 + (c > 0x7F) + (c > 0x7FF) + (c > 0xFFFF)
            if c >> 11 == 27 or c > 0x10FFFF:
                n = -1
                break
        if n != len(data):
            raise PackError("no UTF-8 at byte %d" % at)
    return s
