# A block: one batch as bytes. The same bytes are used in the flash log, in frames and in checkpoints.
#
# A head (entries, stream time, generation time), then the columns one after the other: the first
# value, then the differences in an adaptive Rice code whose width follows the eight values before,
# so that neither side looks ahead. If that would be longer than the plain values, those are
# stored. Decoding is total: any bytes give a batch whose values lie inside their declared types, or
# BlockError; the work and the memory are bounded by the batch that is filled. Bytes: docs/spec.md.

import struct

from ..board.native import native
from ..offboard.compat import TYPE_CHECKING
from .alphabet import TYPES
from .batch import SPAN_US

if TYPE_CHECKING:
    from typing import Any

    from ..offboard.interfaces import Column, Readable, Writable
    from .alphabet import Alphabet
    from .batch import Batch

_HOLE = 1
_IRREGULAR = 2
_UNSYNC = 4
_FLAGS = 4  # bits of the first number that are flags; the fourth is reserved
_ORDER2 = 32  # column head: differences of differences
_RAW = 64  # column head: plain little-endian values
_K_MASK = 31
_RUN = 8  # values that share one width
_ESCAPE = 12  # this many zeros announce a value written in full
_HEAD = 38  # bytes of the longest head
_OVERSHOOT = 88  # a run may pass the plain size by this much before it is noticed


class BlockError(ValueError):
    pass


# Write v, 0 .. 2**64-1, seven bits a byte, lowest first. Returns the position after it.
def put_varint(buf: "Writable", pos: int, v: int) -> int:
    while v > 0x1FFFFFFF:  # four bytes of a long integer at once
        low = v & 0xFFFFFFF
        v >>= 28
        for _ in range(4):
            buf[pos] = low & 127 | 128
            low >>= 7
            pos += 1
    while v > 127:
        buf[pos] = v & 127 | 128
        v >>= 7
        pos += 1
    buf[pos] = v
    return pos + 1


# -> (value, position after it). Raises BlockError unless it is the shortest form of 64 bits.
def get_varint(data: "Readable", pos: int, end: int) -> tuple[int, int]:
    if pos < end:
        v = data[pos]
        pos += 1
        if v < 128:
            return v, pos
        v &= 127
        shift = 7
        while pos < end:
            b = data[pos]
            pos += 1
            if b < 128:
                v |= b << shift
                if not b:
                    raise BlockError("number not in its shortest form")
                if v >> 64:
                    raise BlockError("number above 64 bits")
                return v, pos
            v |= (b & 127) << shift
            shift += 7
            if shift > 63:
                raise BlockError("number above 64 bits")
    raise BlockError("cut short")


# Most bytes of a block of n entries; `irregular` adds room for offsets.
def longest(alphabet: "Alphabet", n: int, irregular: bool = True) -> int:
    room = _HEAD + 11 * len(alphabet.codes) + alphabet.width * n
    return room + 4 * n + 11 if irregular else room


# Most bytes that encode() touches for n entries.
def bound(alphabet: "Alphabet", n: int, irregular: bool = True) -> int:
    return longest(alphabet, n, irregular) + _OVERSHOOT


# Pack entries i0 .. i0+n of the batch at buf[pos:]. Returns the position after them, or -1 if buf
# is too small (the bytes after pos are then undefined).
def encode(batch: "Batch", i0: int, n: int, buf: bytearray, pos: int) -> int:
    try:
        flags = (_HOLE if batch.hole else 0) | (_UNSYNC if batch.unsync else 0)
        dt = batch.dt
        if dt < 0 and not batch.hole:
            flags |= _IRREGULAR
        pos = put_varint(buf, pos, n << _FLAGS | flags)
        pos = put_varint(buf, pos, batch.xi + i0)
        pos = put_varint(buf, pos, batch.ts_of(i0) if i0 or dt < 0 else batch.ts)
        if batch.hole:
            return put_varint(buf, put_varint(buf, pos, batch.hole), batch.back)
        if dt >= 0:
            pos = put_varint(buf, pos, dt)
        elif n > 1:
            pos = _put_column(batch.at, i0, n, "i", 32, buf, pos)
        cols = batch.cols
        types = batch.alphabet.types
        for c in range(len(cols)):
            t = TYPES[types[c]]
            col = cols[c]
            if t[2] is not None:
                v = col[i0]
                if t[1] < 8:
                    pos = put_varint(buf, pos, v + v if v >= 0 else ~(v + v))
                else:
                    if pos + 8 > len(buf):
                        return -1
                    struct.pack_into("<" + t[0], buf, pos, v)
                    pos += 8
            if n > 1 or t[2] is None:
                pos = _put_column(col, i0, n, t[0], 0 if t[2] is None else 8 * t[1], buf, pos)
        return pos
    except IndexError:
        return -1


# _put_column again, for 16 bits signed in machine code, in two steps, since that has 32 bits.
# It checks no limits. A run adds at most 31 bytes.
_packer = native(
    """def run(x: ptr16, i: int, end: int, buf: ptr8, pos: int) -> int:
 p = (x[i] ^ 32768) - 32768
 i += 1
 d = (x[i] ^ 32768) - 32768 - p
 if d < 0:
  d = 0 - d
 a = b = d
 step = (end - i + 1 >> 5) + 2
 k = 1
 j = i + 1
 while j < end:
  e = (x[j - 1] ^ 32768) - 32768
  v = (x[j] ^ 32768) - 32768 - e
  z = v - e + (x[j - 2] ^ 32768) - 32768
  a += v if v >= 0 else 0 - v
  b += z if z >= 0 else 0 - z
  k += 1
  j += step
 order = 0
 if b < a:
  order = -1
  a = b
 a = a // k
 k = 0
 while a > 0:
  a >>= 1
  k += 1
 buf[pos] = k | order & 32
 pos += 1
 full = pos + (end - i) * 2
 d = acc = nb = 0
 while i < end and pos <= full:
  j = i + 8
  if j > end:
   j = end
  s = 0
  mask = (1 << k) - 1
  limit = 12 << k
  while i < j:
   v = (x[i] ^ 32768) - 32768
   e = v - p
   p = v
   z = e - d
   d = e & order
   z = z << 1 ^ z >> 31
   s += z
   nb += z >> k if z < limit else 12
   while nb > 7:
    buf[pos] = acc
    pos += 1
    acc = 0
    nb -= 8
   if z < limit:
    acc |= (z & mask) * 2 + 1 << nb
    nb += k + 1
   else:
    acc |= z * 2 + 1 << nb
    nb += 19
   while nb > 7:
    buf[pos] = acc & 255
    pos += 1
    acc >>= 8
    nb -= 8
   i += 1
  s = s * 5 >> 6
  k = 0
  while s > 0:
   s >>= 1
   k += 1
 if nb > 0:
  buf[pos] = acc
  pos += 1
 return pos
"""
)


# All values of a column but the first (floats: all), as differences or plain. bits: width of the
# integers, 0 for floats.
def _put_column(x: "Column", i0: int, n: int, code: str, bits: int, buf: bytearray, pos: int) -> int:
    end = i0 + n
    i = i0 + 1
    start = pos
    if _packer and code == "h" and pos + 2 * n + 40 <= len(buf):
        pos = _packer(x, i0, end, buf, pos)
        if pos < start + 2 * n:
            return pos
    elif bits:
        k = _guess(x, i0, n)
        order = -1 if k & _ORDER2 else 0
        buf[pos] = k
        k &= _K_MASK
        pos += 1
        full = pos + (n - 1) * (bits >> 3)
        acc = 0
        nb = 0
        p = x[i0]
        d = 0
        while i < end and pos <= full:
            j = i + _RUN
            if j > end:
                j = end
            s = 0
            k1 = k + 1
            mask = (1 << k) - 1
            limit = _ESCAPE << k
            for i in range(i, j):
                v = x[i]
                e = v - p
                p = v
                z = e - d
                d = e & order
                if z < 0:
                    z = ~(z + z)
                else:
                    z += z
                s += z
                if z < limit:
                    v = z >> k
                    acc |= (z & mask) * 2 + 1 << nb + v
                    nb += v + k1
                else:
                    acc |= z * 2 + 1 << nb + _ESCAPE
                    nb += bits + _ESCAPE + 3
                while nb > 7:
                    buf[pos] = acc & 255
                    pos += 1
                    acc >>= 8
                    nb -= 8
            i += 1
            s = s * 5 >> 6
            k = 0
            while s:
                s >>= 1
                k += 1
        if nb:
            buf[pos] = acc
            pos += 1
        if pos <= full:
            return pos
    return _put_plain(x, i0 + 1 if bits else i0, end, code, buf, start)


# The head of a column: a few places of it tell which order of difference is shorter, and the first width.
def _guess(x: "Column", i0: int, n: int) -> int:
    a = b = abs(x[i0 + 1] - x[i0])
    k = 1
    for j in range(i0 + 2, i0 + n, (n >> 5) + 2):
        v = x[j] - x[j - 1]
        q = v - x[j - 1] + x[j - 2]
        a += v if v >= 0 else -v
        b += q if q >= 0 else -q
        k += 1
    order = 0
    if b < a:
        order = _ORDER2
        a = b
    a //= k
    k = 0
    while a:
        a >>= 1
        k += 1
    return min(k, _K_MASK) | order


# Values i .. end as they are.
def _put_plain(x: "Column", i: int, end: int, code: str, buf: bytearray, pos: int) -> int:
    buf[pos] = _RAW
    pos += 1
    width = struct.calcsize(code)
    code = "<" + code
    if pos + width * (end - i) > len(buf):
        raise IndexError
    while i < end:
        struct.pack_into(code, buf, pos, x[i])
        pos += width
        i += 1
    return pos


# -> (stream time of the first entry, entries) of the block at pos, without decoding it.
def peek(data: "Readable", pos: int = 0) -> tuple[int, int]:
    end = len(data)
    n, pos = get_varint(data, pos, end)
    xi, pos = get_varint(data, pos, end)
    n >>= _FLAGS
    if not n or not xi:
        raise BlockError("no entries, or numbered from 0")
    return xi, n


# Fill the batch from the block at data[pos:end]. Returns the position after the block; raises
# BlockError, and leaves the batch empty, if the bytes are not a block that fits the batch.
def decode(data: "Readable", pos: int, end: int, batch: "Batch") -> int:
    batch.clear()
    if end > len(data):
        raise BlockError("cut short")
    n, pos = get_varint(data, pos, end)
    xi, pos = get_varint(data, pos, end)
    ts, pos = get_varint(data, pos, end)
    flags = n & (1 << _FLAGS) - 1
    n >>= _FLAGS
    if not 0 < n <= batch.size:
        raise BlockError("%d entries where 1 to %d fit" % (n, batch.size))
    if not xi or xi + n - 1 >> 64:
        raise BlockError("stream times outside 1 .. 2**64-1")
    if flags & _HOLE:
        if n != 1 or flags & ~(_HOLE | _UNSYNC):
            raise BlockError("a hole that is not one entry")
        hole, pos = get_varint(data, pos, end)
        back, pos = get_varint(data, pos, end)
        if not 0 < hole < 256 or back > ts:
            raise BlockError("a hole without reason, or from before time 0")
        batch.begin_one(xi, ts, flags // _UNSYNC & 1, hole, back)
    else:
        if flags & ~(_IRREGULAR | _UNSYNC):
            raise BlockError("unknown flags")
        if flags & _IRREGULAR:
            dt = -1
            at = batch.at
            at[0] = 0
            if n > 1:
                pos = _get_column(data, pos, end, at, n, ("i", 4, 0, SPAN_US))
            last = 0
            for i in range(n):
                d = at[i]
                if d < last:
                    raise BlockError("times that fall")
                last = d
        else:
            dt, pos = get_varint(data, pos, end)
            last = dt * (n - 1)
        if ts + last >> 64:
            raise BlockError("times above 64 bits")
        cols = batch.cols
        types = batch.alphabet.types
        for c in range(len(cols)):
            kind = TYPES[types[c]]
            code, width, low, high = kind
            col = cols[c]
            if low is not None:
                if width < 8:
                    v, pos = get_varint(data, pos, end)
                    v = ~(v >> 1) if v & 1 else v >> 1
                    if not low <= v <= high:
                        raise BlockError("a value outside its type")
                else:
                    if pos + 8 > end:
                        raise BlockError("cut short")
                    v = struct.unpack_from("<" + code, data, pos)[0]
                    pos += 8
                col[0] = v
            if n > 1 or low is None:
                pos = _get_column(data, pos, end, col, n, kind)
        batch.begin(xi, n, ts, dt, flags // _UNSYNC & 1)
    return pos


# The other direction of _put_plain.
def _get_plain(data: "Readable", pos: int, x: "Column", i: int, n: int, code: str, width: int) -> int:
    code = "<" + code
    while i < n:
        x[i] = struct.unpack_from(code, data, pos)[0]
        pos += width
        i += 1
    return pos


# A value that is written in full: the next `bits` bits, of which nb are in acc -> (value, position, acc, nb).
def _get_long(
    data: "Readable", pos: int, end: int, bits: int, acc: int, nb: int
) -> tuple[int, int, int, int]:
    while nb < bits:
        if pos < end:
            acc |= data[pos] << nb
        pos += 1
        nb += 8
    return acc & (1 << bits) - 1, pos, acc >> bits, nb - bits


# The other direction of _put_column. kind: see TYPES.
def _get_column(
    data: "Readable", pos: int, end: int, x: "Column", n: int, kind: "tuple[str, int, Any, Any]"
) -> int:
    if pos >= end:
        raise BlockError("cut short")
    k = data[pos]
    pos += 1
    code, width, low, high = kind
    i = 0 if low is None else 1
    if k == _RAW:
        if pos + width * (n - i) > end:
            raise BlockError("cut short")
        return _get_plain(data, pos, x, i, n, code, width)
    if k & ~(_ORDER2 | _K_MASK) or low is None:
        raise BlockError("unknown column head")
    return _get_differences(data, pos, end, x, n, k, 8 * width + 2, low, high)


# The values of a column but the first, from their differences. k: its head. bits: of a difference in full.
def _get_differences(
    data: "Readable", pos: int, end: int, x: "Column", n: int, k: int, bits: int, low: int, high: int
) -> int:
    order = -1 if k & _ORDER2 else 0
    k &= _K_MASK
    acc = 0
    nb = 0
    p = x[0]
    d = 0
    i = 1
    while i < n:
        j = i + _RUN
        if j > n:
            j = n
        s = 0
        k1 = k + 1
        mask = (1 << k) - 1
        one = 1 << k
        k2 = k + 2
        need = k1 + _ESCAPE
        for i in range(i, j):
            while nb < need:
                if pos < end:
                    acc |= data[pos] << nb
                pos += 1
                nb += 8
            if acc & 1:
                z = acc >> 1 & mask
                acc >>= k1
                nb -= k1
            elif acc & 2:
                z = acc >> 2 & mask | one
                acc >>= k2
                nb -= k2
            else:
                q = 2
                v = acc >> 2 | 2048
                while not v & 1:
                    v >>= 1
                    q += 1
                if q < _ESCAPE:
                    z = (acc >> q + 1 & mask) | q << k
                    q += k1
                    acc >>= q
                    nb -= q
                else:
                    if q > _ESCAPE:
                        raise BlockError("cut short" if pos > end else "no such code")
                    acc >>= _ESCAPE + 1
                    z, pos, acc, nb = _get_long(data, pos, end, bits, acc, nb - _ESCAPE - 1)
            s += z
            d += ~(z >> 1) if z & 1 else z >> 1
            p += d
            if not low <= p <= high:
                raise BlockError("a value outside its type")
            x[i] = p
            d &= order
        i += 1
        s = s * 5 >> 6
        k = 0
        while s:
            s >>= 1
            k += 1
    pos -= nb >> 3
    if pos > end:
        raise BlockError("cut short")
    if acc & (1 << (nb & 7)) - 1:
        raise BlockError("bits behind the last value")
    return pos
