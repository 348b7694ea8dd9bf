# msgpack in one canonical form: equal objects give equal bytes, on every host.
#
# None, bool, int (64 bits), float (always 64 bits), str, bytes, list, dict. Every number and length
# takes its shortest form; the keys of a dict are all texts or all integers, in ascending order.
# `loads` takes nothing else: any other bytes, also msgpack in another form, give PackError, and no
# length makes it reserve more than the bytes that are there.

import struct

DEPTH_MAX = 8  # lists and dicts inside each other
_NAN = b"\x7f\xf8\0\0\0\0\0\0"


class PackError(ValueError):
    pass


# The bytes of obj. Tuples are written as lists, bytearrays and memoryviews as bytes.
def dumps(obj):
    size = 128
    while True:
        buf = bytearray(size)
        try:
            size = _write(buf, 0, obj, 0)
        except IndexError:
            size *= 4
            continue
        return bytes(memoryview(buf)[:size])


# Write v at buf[pos:], return the position behind it; IndexError where there is no room.
def _write(buf, pos, v, depth):
    kind = type(v)
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
        v = struct.pack(">d", v) if v == v else _NAN
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


# A length or positive number behind its code: 1, 2, 4 or 8 bytes, codes counting up from `code`.
# Lists (0xDB) and dicts (0xDD) have no form of one byte.
def _size(buf, pos, n, code, most):
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


# The object in these bytes, all of them.
def loads(data):
    data = memoryview(data)
    v, pos = _read(data, 0, 0)
    if pos != len(data):
        raise PackError("%d bytes behind the object" % (len(data) - pos))
    return v


# Big-endian number of `width` bytes at pos.
def _number(data, pos, width):
    if pos + width > len(data):
        raise PackError("cut short at byte %d" % pos)
    return int.from_bytes(bytes(data[pos : pos + width]), "big")


def _read(data, pos, depth):
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
    # What is left has a length: in the code, or behind it in 1, 2 or 4 bytes.
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
def _text(data, at):
    try:
        s = str(data, "utf-8")
    except UnicodeError:
        raise PackError("no UTF-8 at byte %d" % at)
    if len(s) != len(data):
        n = 0
        for c in s:
            c = ord(c)
            n += 1 + (c > 0x7F) + (c > 0x7FF) + (c > 0xFFFF)
            if c >> 11 == 27 or c > 0x10FFFF:
                n = -1
                break
        if n != len(data):
            raise PackError("no UTF-8 at byte %d" % at)
    return s
