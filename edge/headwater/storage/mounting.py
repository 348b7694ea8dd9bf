# Making an empty log, or finding the one on the device and making it usable. See log.py.

from binascii import crc32
from struct import unpack_from

from ..offboard.compat import TYPE_CHECKING, const
from .log import LogError

if TYPE_CHECKING:
    from .log import Log

# As in log.py, which explains them: on a board they are not globals, so nothing could import them.
_HEADER = const(32)
_RUN = const(1)
_RUN_FAR = const(2)
_STREAM = const(3)
_TRIM = const(4)
_FORGET = const(5)
_FACT = const(6)
_DROP = const(7)
_BLOB = const(8)
_PIECE = const(9)
_CLOSE = const(10)
_RENAME = const(11)
_DROP_BLOB = const(12)
_TABLE = const(13)
_NOTE = const(14)
_NEXT = const(0x4000)
_BAD = const(0x8000)


# Makes an empty log. Whatever was on the device is gone.
def format(log: "Log", log_number: int) -> None:
    for p in range(log._n):
        if log._header(p):
            log._erase(p)
    log._found(-1, log_number, 0, 0)
    p = 0
    while not log._erase(p):
        log._bad.append(p)
        p += 1
        if p > log._n - 5:
            raise LogError("the device does not erase: it is worn out or not there")
    log._open(p)


# Finds the log on the device and makes it usable. Everything durable is here afterwards.
def mount(log: "Log") -> None:
    seqs = log._seq
    log._found(-1, log.log_number, 0, 0)
    for p in range(log._n):
        seqs[p] = log._header(p)
    top = max(seqs)
    lost = []  # what was being opened when power went: it never counted
    while True:
        seq = max(seqs)
        if not seq:
            raise LogError("no log on this device: format it first")
        old = 0
        while seqs[old] != seq:
            old += 1
        log._clear()
        if _replay(log, old, True):
            break
        seqs[old] = 0
        lost.append(old)
    log._settle(old)
    for p in lost:
        if p != log._next and p not in log._out:
            log._out.append(p)
    if log._next < 0:
        _index(log, old)
    _rewrite(log, old, top + 1)
    p = log._p
    pos = log._pos
    log._clear()
    if _replay(log, p, True) != pos:
        raise LogError("the flash does not keep what is written: sector %d" % p)
    log._settle(p)
    _index(log, p)


# Reads sector p: its records become the state (full), or only its runs are recorded. Returns where its
# records end, or 0 if it does not count.
def _replay(log: "Log", p: int, full: bool) -> int:
    seq = log._header(p)
    if full:
        log._found(log._p, log._number, log._chain, log._oldest)
    elif log._number != log.log_number:
        return 0
    copied = log._copied
    done: int = False
    last: dict[int, int] = {}
    place: tuple[int, ...] = (-1,)
    blobs = log._blobs
    for kind, key, buf, i, end in log._items(p, _HEADER, log.buf):
        s = log._streams.get(key)
        here = (seq << 12) + (log._off >> 4)
        if kind <= _RUN_FAR:
            base = last.get(key, 0)
            xi, n, _ = log._span(kind, key, buf, last)
            if s is not None and here >= s.birth:
                if full and xi > base:
                    near = kind == _RUN
                    ts = s.ts + unpack_from("<I", buf, 10)[0] if near else unpack_from("<Q", buf, 18)[0]
                    s.begin(xi + n - 1, ts, xi + n - s.first, s.birth)
                s.note(p, xi, xi + n - 1)
        elif kind == _STREAM:
            xi, ts, live, birth = unpack_from("<QQIQ", buf, i)
            last[key] = xi
            if full:
                s = log._stream(key)
                s.begin(xi, ts, live, birth or here)
                s.hi[p] = 0
        elif kind == _TABLE:
            if key > 0x7FFF:
                done = not copied
                if full:
                    log._listed[:] = log._out + log._bad
        elif kind == _NOTE:
            done = done or key
            if full:
                while i < end:
                    _said(log, unpack_from("<H", buf, i)[0])
                    i += 2
        elif not full:
            pass
        elif kind == _TRIM:
            if s is not None:
                first = max(s.first, unpack_from("<Q", buf, i)[0])
                s.begin(s.last, s.ts, s.last + 1 - first, s.birth)
        elif kind == _FORGET:
            log._streams.pop(key, None)
        elif kind == _FACT:
            log._facts[key] = bytes(memoryview(buf)[i:end])
        elif kind == _DROP:
            log._facts.pop(key, None)
        elif kind == _BLOB:
            blobs[key] = (p, log._off, end - i, p, crc32(memoryview(buf)[i:end]))
        elif kind == _PIECE:
            in_table = i > 8
            oldest = unpack_from("<I", buf, i + 2)[0] if in_table else log._oldest
            log._found(log._p, log.log_number, key, oldest)
            if not in_table and not unpack_from("<H", buf, i)[0]:
                place = (key, p, log._off)
        elif kind == _CLOSE:
            chain, size, crc, first, off, to = unpack_from("<HIIHHH", buf, i)
            off <<= 4
            if i == 8:
                to = p
                if chain == place[0]:
                    _, first, off = place
            blobs[key] = (first, off, size, to, crc)
        elif kind == _RENAME:
            if key in blobs:
                blobs[unpack_from("<H", buf, i)[0]] = blobs.pop(key)
        elif kind == _DROP_BLOB:
            blobs.pop(key, None)
    if done:
        return log._off
    log._drop_sector(p)
    return 0


# A note or table records something about a sector.
def _said(log: "Log", what: int) -> None:
    p = what & 0x3FFF
    log._settle(p, what & _NEXT)
    if not what & _NEXT and p not in log._bad:
        (log._bad if what & _BAD else log._out).append(p)


# Records what the sectors other than p hold of streams.
def _index(log: "Log", p: int) -> None:
    for q in range(log._n):
        if q != p and log._seq[q]:
            void = q == log._next or q in log._out or q in log._bad or log._seq[q] < log._oldest
            if void or not _replay(log, q, False):
                log._drop_sector(q)


# Copies the records of sector `old` into a fresh one and voids the old one.
def _rewrite(log: "Log", old: int, seq: int) -> None:
    log._found(old, log.log_number, log._chain, log._oldest)
    p = log._take()
    log._header(old)
    seal = log._seal
    log._begin(p, seq, 1)
    off = _HEADER
    while True:
        buf = log._record(old, off, seal, log.buf)
        if buf is None:
            break
        if log._kind != _NOTE:
            log._emit(buf, log._end)
        off += log._total
    log._drop_sector(old)
    log._out.append(old)
    log._say([q for q in log._out + log._bad if q not in log._listed], 1)
