# msgpack in one canonical form: equal objects give equal bytes, on every host.
#
# None, bool, int (64 bits), float (always 64 bits), str, bytes, list, dict. Every number and length
# takes its shortest form; the keys of a dict are all texts or all integers, in ascending order.
# `loads` accepts nothing else: any other bytes, also msgpack in another form, give PackError, and no
# length makes it reserve more than the bytes that it was given.

import struct

from ..offboard.compat import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from ..offboard.interfaces import Readable

DEPTH_MAX = 8  # lists and dicts inside each other


class PackError(ValueError):
    pass


# The bytes of obj. Tuples are written as lists, bytearrays and memoryviews as bytes. buf: they are made there
# if they fit, so that no more memory is used than they need.
def dumps(obj: object, buf: bytearray | None = None) -> bytes:
    if buf is None:
        buf = bytearray(128)
    while True:
        try:
            n = _write(buf, 0, obj, 0)
        except IndexError:
            buf = bytearray(2 * len(buf))
            continue
        return bytes(memoryview(buf)[:n])


# The same in buf: how many bytes. IndexError if buf is too small.
def dump_into(buf: bytearray, obj: object) -> int:
    return _write(buf, 0, obj, 0)


# Write v at buf[pos:], return the position after it; IndexError if buf is too small.
def _write(buf: bytearray, pos: int, v: "Any", depth: int) -> int:
    kind: "Any" = type(v)
    if kind is int and v >= 0:
        if v > 127:
            return _size(buf, pos, v, 0xCC, 8)
        buf[pos] = v
        return pos + 1
    if kind is list or kind is tuple or kind is dict:
        if depth >= DEPTH_MAX:
            raise PackError("more than %d lists and dicts inside each other" % DEPTH_MAX)
        depth += 1
        n = len(v)
        if kind is dict:
            if n < 16:
                buf[pos] = 0x80 | n
                pos += 1
            else:
                pos = _size(buf, pos, n, 0xDD, 4)
            kind = None
            for k in v:
                if kind is None:
                    kind = type(k)
                if type(k) is not kind or kind not in (str, int):
                    raise PackError("keys of a dict: all texts or all integers")
            for k in sorted(v):
                pos = _write(buf, _write(buf, pos, k, 0), v[k], depth)
            return pos
        if n < 16:
            buf[pos] = 0x90 | n
            pos += 1
        else:
            pos = _size(buf, pos, n, 0xDB, 4)
        for x in v:
            if type(x) is int and 0 <= x < 65536:
                # Here, since most of what is packed is short lists of numbers.
                if x > 255:
                    buf[pos] = 0xCD
                    buf[pos + 1] = x >> 8
                    x &= 255
                    pos += 2
                elif x > 127:
                    buf[pos] = 0xCC
                    pos += 1
                buf[pos] = x
                pos += 1
            else:
                pos = _write(buf, pos, x, depth)
        return pos
    if kind is str:
        try:
            v = v.encode()
        except UnicodeError:
            raise PackError("a text that is not Unicode")
        n = len(v)
        if n < 32:
            buf[pos] = 0xA0 | n
            pos += 1
        else:
            pos = _size(buf, pos, n, 0xD9, 4)
    elif kind is bytes or kind is bytearray or kind is memoryview:
        n = len(v)
        pos = _size(buf, pos, n, 0xC4, 4)
    elif kind is float:
        buf[pos] = 0xCB
        pos += 1
        v = struct.pack(">d", v) if v == v else b"\x7f\xf8\0\0\0\0\0\0"
        n = 8
    elif kind is int:
        if v >= -32:
            buf[pos] = v & 255
            return pos + 1
        n = 0
        while v < -1 << (8 << n) - 1:
            n += 1
            if n > 3:
                raise PackError("%d takes more than 64 bits" % v)
        buf[pos] = 0xD0 + n
        pos += 1
        v = struct.pack(">" + "bhiq"[n], v)
        n = 1 << n
    else:
        if v is not None and kind is not bool:
            raise PackError("cannot pack a %s" % kind.__name__)
        buf[pos] = 0xC3 if v else 0xC0 if v is None else 0xC2
        return pos + 1
    if pos + n > len(buf):
        raise IndexError
    buf[pos : pos + n] = v
    return pos + n


# A length or positive number after its code: 1, 2, 4 or 8 bytes, codes counting up from `code`.
# Lists (0xDB) and dicts (0xDD) have no form of one byte.
def _size(buf: bytearray, pos: int, n: int, code: int, most: int) -> int:
    k = 0 if code != 0xDB and code != 0xDD else 1
    if n >> 16:
        k = 2 if not n >> 32 else 3
    elif n > 255:
        k = 1
    width = 1 << k
    if width > most or n >> 64:
        raise PackError("%d takes more than %d bytes" % (n, most))
    buf[pos] = code + k
    pos += 1
    if pos + width > len(buf):
        raise IndexError
    buf[pos : pos + width] = n.to_bytes(width, "big")
    return pos + width


# The object in these bytes, all of them. A running board reads nothing, so the reader is rarely loaded.
def loads(data: "Readable") -> "Any":
    from . import msgpack_reader

    return msgpack_reader.read(data)
