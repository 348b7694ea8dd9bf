# The durable store of a host: one ring log on a raw flash device. Bytes: SPEC.md, "Flash log".
#
# Three kinds of things live here, and what is live is carried forward without being asked:
#   streams  runs of consecutive xi (samples of sources, spill of ports), trimmed from below
#   facts    small values by number; all of them stand in the table at the head of every sector
#   blobs    large values by number, replaced and renamed atomically
#
# What it promises: what a call has done when it returns is there after a power cut at any byte of
# any later program or erase, nested cuts and cells that read differently the second time included;
# a call that was cut has happened wholly or not at all.
#
# Why that holds:
# - A record is sealed by one CRC, seeded with the seal of its sector's header: no stale byte passes.
#   No bit is cleared later to change a meaning.
# - A program that ended before another began is sound. So only the newest sector can hold anything
#   in doubt, and only at its end. Mounting copies its valid records into a fresh sector, which
#   counts from its closing record on; the old one is void from then on, whatever it reads later.
#   Nothing is used before that, and nothing is ever appended behind a doubtful end.
# - A sector counts once the table at its head is complete; before that its predecessor does.
# - A sector is erased only after a table or note, itself sound, has said that it is void and up to
#   where each stream is trimmed; it gets its header after an erase that was read back.
# Records are not read back after programming: the chip verifies its programs itself, a worn sector
# shows in the verified erase, and the reading would cost more than the append.

from array import array
from binascii import crc32
from struct import pack, pack_into, unpack_from

try:
    from micropython import const
except ImportError:

    def const(value):
        return value


_MAGIC = const(0x474C7748)  # "HwLG" + version below
_VERSION = const(1)
_HEADER = const(32)
_SLACK = const(64)  # the end of a sector is left to notes, and to the closing record of a copy

# Kinds of records.
_RUN = const(1)  # id stream: n, ts difference, body
_RUN_FAR = const(2)  # id stream: n, xi, ts, body: where the ts difference needs more than 32 bits
_COPY = const(3)  # id stream: n, xi, body: carried forward, says nothing about the tail
_START = const(4)  # id stream: last xi, last ts: the stream begins anew behind them
_TRIM = const(5)  # id stream: first xi that is live
_FORGET = const(6)  # id stream
_FACT = const(7)  # id key: value
_FACT_DROP = const(8)  # id key
_BLOB = const(9)  # id key: all of it
_PIECE = const(10)  # id chain: index, bytes
_CLOSE = const(11)  # id chain: key, pieces, size, CRC of all, place of the first piece
_RENAME = const(12)  # id source key: destination key
_BLOB_DROP = const(13)  # id key
_TABLE = const(14)  # id index, bit 15 in the last: entries
_NOTE = const(15)  # id 1 when it closes a copy: sectors

# Entries of a table.
_T_STREAM = const(1)  # stream, last xi, live xi, last ts, sequence of its start
_T_FACT = const(2)  # key, length, value
_T_BLOB = const(3)  # key, first sector, offset / 16, size, last sector, CRC
_T_SECTORS = const(4)  # count, sectors as in a note
_T_CHAIN = const(5)  # the chain number last used

_VOID = const(0)  # a sector in a note or table: says nothing, whatever it reads
_NEXT = const(0x4000)  # void, and the one to be used next
_BAD = const(0x8000)  # an erase of it failed; never used again

_LOW = const(0x1FFFFFFF)  # the index holds xi modulo 2**29, small integers
_HELD = const(0x20000000)  # marks an index entry that holds something


class LogError(Exception):
    pass


# Even the reserve is used up.
class LogFull(LogError):
    pass


class _Stream:
    def __init__(self, sectors):
        self.lo = array("I", bytes(4 * sectors))  # per sector the lowest and highest xi in it
        self.hi = array("I", bytes(4 * sectors))
        self.begin(0, 0, 0)
        self.saved = 1  # what flash knows of first

    def begin(self, last, ts, birth):
        self.last = last
        self.first = last + 1  # first live xi
        self.ts = ts
        self.birth = birth  # records in sectors before this sequence belong to an earlier life
        self.read = -1  # xi up to which was read last; where the next record stands; its base
        self.at = self.at_seq = self.off = self.base = 0

    def note(self, p, lo, hi):
        top = (self.last + 1) & _LOW
        lo &= _LOW
        hi &= _LOW
        if not self.hi[p]:
            self.lo[p] = lo | _HELD
            self.hi[p] = hi | _HELD
            return
        if (top - lo) & _LOW > (top - self.lo[p]) & _LOW:
            self.lo[p] = lo | _HELD
        if (top - hi) & _LOW < (top - self.hi[p]) & _LOW:
            self.hi[p] = hi | _HELD


class Log:
    # scratch_bytes: records up to this size are built without allocating; at least 256.
    def __init__(self, device, reserve_bytes=0, scratch_bytes=512):
        self._dev = device
        self._n = device.ioctl(4, 0)
        self._size = device.ioctl(5, 0)
        if self._size < 512 or self._n < 5 or self._n > 0x3FFF:
            raise LogError("a log needs 5 to 16383 sectors of at least 512 bytes")
        self._buf = bytearray(min(max(scratch_bytes, 256), self._size))
        self._h = bytearray(_HEADER)
        self._reserve = reserve_bytes
        self._clear()
        self._counts = [0] * 7  # programs, programmed, bodies, erases, skipped, copied, reclaimed

    def _clear(self):
        self._seq = array("I", bytes(4 * self._n))  # 0: not part of the log
        self._streams = {}
        self._facts = {}
        self._blobs = {}  # key -> (sector, offset, size, last sector, CRC)
        self._out = []  # void sectors that may still read as if they were not
        self._bad = []
        self._next = -1  # the sector to be used next, said so in flash
        self._ready = False  # and it is erased
        self._chain = 0
        self._hold = 0  # sequence from which on a chain under way holds sectors
        self._p = -1  # the sector that is written, and where
        self._pos = 0
        self._seed = 0
        self._sound = False
        self._busy = False
        self._free = 0  # free sectors, at least
        self._dirty = True  # there may be more
        self._probe = 0
        self._probed = 0
        self._skip = -1
        self._cycles = 0  # erases of the sector to be used next; the most seen of any
        self._cycles_max = 0
        self._table_bytes = 0
        self.log_number = 0

    # ---- device -------------------------------------------------------------------------------

    # Makes an empty log. Whatever was on the device is gone.
    @staticmethod
    def format(device, log_number):
        log = Log(device)
        for p in range(log._n):
            if log._header(p):
                log._erase(p)
        log.log_number = log_number
        p = 0
        while not log._erase(p):
            log._bad.append(p)
            p += 1
            if p > log._n - 5:
                raise LogError("the device does not erase: it is worn out or not there")
        log._open(p)

    # Finds the log on the device and makes it fit for use. Everything durable is here afterwards.
    def mount(self):
        self._clear()
        n = self._n
        top = 0
        for p in range(n):
            self._seq[p] = seq = self._header(p)
            top = max(top, seq)
        while True:
            old = -1
            seq = 0
            for p in range(n):
                if self._seq[p] > seq:
                    seq = self._seq[p]
                    old = p
            if old < 0:
                raise LogError("no log on this device: format it first")
            out = self._out
            self._reset()
            self._out = out
            if self._replay(old, True):
                break
            self._seq[old] = 0
            self._out.append(old)  # it never counted: what was being opened when power went
        self._settle(old)
        if self._next < 0:
            self._index(old)
        self._rewrite(old, top + 1)
        p = self._p
        pos = self._pos
        self._reset()
        if self._replay(p, True) != pos:
            raise LogError("the flash does not keep what is written: sector %d" % p)
        self._settle(p)
        self._index(p)
        self._limit()
        self._sound = True
        self._count()

    def _reset(self):
        self._pool = self._streams
        self._streams = {}
        self._facts = {}
        self._blobs = {}
        self._out = []
        self._bad = []
        self._next = -1
        self._chain = 0

    # The sector p is in use, whatever was said of it before.
    def _settle(self, p):
        if self._next == p:
            self._next = -1
        while p in self._out:
            self._out.remove(p)

    # Reads the header of sector p: its sequence, or 0. Leaves seal, cycles, kind, number.
    def _header(self, p):
        h = self._h
        self._dev.readblocks(p, h, 0)
        magic, version, self._copied, _, number, seq, cycles, _, seal = unpack_from("<IBBHQIIII", h, 0)
        if magic != _MAGIC or version != _VERSION or crc32(memoryview(h)[:28]) != seal:
            return 0
        if self._sound and number != self.log_number:
            return 0
        self._number = number
        self._seal = seal
        self._cycles_read = cycles
        if cycles > self._cycles_max:
            self._cycles_max = cycles
        return seq

    # Reads and checks the record at off of sector p. Gives the buffer that holds it, or None;
    # leaves kind, id, end (without padding) and total length.
    def _record(self, p, off, seal, buf=None):
        room = self._size - off
        if room < 16:
            return None
        if buf is None:
            buf = self._buf
        self._dev.readblocks(p, buf if len(buf) <= room else memoryview(buf)[:room], off)
        crc, kind, self._id = unpack_from("<IHH", buf, 0)
        if kind == 0xFFFF:
            return None
        self._end = end = 8 + (kind & 0xFFF)
        self._kind = kind >> 12
        self._total = total = (end + 15) & ~15
        if total <= room:
            if total > len(buf):
                buf = bytearray(total)
                self._dev.readblocks(p, buf, off)
            if crc32(memoryview(buf)[4:end], seal) == crc:
                return buf
        self._counts[4] += 1
        return None

    # Takes in sector p. full: it is the newest, and its table and records are the state; else only
    # what it holds of streams is noted. Gives where its records end, or 0 where it does not count.
    def _replay(self, p, full):
        seq = self._header(p)
        if not seq:
            return 0
        seal = self._seal
        copied = self._copied
        if full:
            self.log_number = self._number
        elif self._number != self.log_number:
            return 0
        off = _HEADER
        done = False
        last = {}
        place = None
        streams = self._streams
        while True:
            buf = self._record(p, off, seal)
            if buf is None:
                break
            kind = self._kind
            key = self._id
            end = self._end
            if kind == _TABLE:
                self._entries(buf, end, full, last)
                if key & 0x8000:
                    done = not copied
                    self._listed = self._out + self._bad
            elif kind <= _COPY:
                s = streams.get(key)
                if s is not None and seq >= s.birth:
                    if kind == _RUN:
                        n, ts = unpack_from("<HI", buf, 8)
                        xi = last.get(key, 0) + 1
                        ts += s.ts
                    elif kind == _RUN_FAR:
                        n, xi, ts = unpack_from("<HQQ", buf, 8)
                    else:
                        n, xi = unpack_from("<HQ", buf, 8)
                    if kind != _COPY:
                        last[key] = xi + n - 1
                        if full:
                            s.last = xi + n - 1
                            s.ts = ts
                    s.note(p, xi, xi + n - 1)
            elif kind == _START:
                last[key], ts = unpack_from("<QQ", buf, 8)
                s = streams.get(key)
                if full:
                    s = self._stream(key)
                    s.begin(last[key], ts, seq)
                    s.saved = s.first
                if s is not None:
                    s.hi[p] = 0
            elif kind == _NOTE:
                if full:
                    for i in range(8, end, 2):
                        self._said(unpack_from("<H", buf, i)[0])
                if key:
                    done = True
            elif full:
                if kind == _TRIM:
                    s = streams.get(key)
                    if s is not None:
                        s.first = s.saved = max(s.first, unpack_from("<Q", buf, 8)[0])
                elif kind == _FORGET:
                    streams.pop(key, None)
                elif kind == _FACT:
                    self._facts[key] = bytes(memoryview(buf)[8:end])
                elif kind == _FACT_DROP:
                    self._facts.pop(key, None)
                elif kind == _BLOB:
                    self._blobs[key] = (p, off, end - 8, p, crc32(memoryview(buf)[8:end]))
                elif kind == _PIECE:
                    self._chain = key
                    if not unpack_from("<H", buf, 8)[0]:
                        place = (key, p, off)
                elif kind == _CLOSE:
                    self._chain = key
                    key, _, size, crc, first, start = unpack_from("<HHIIHH", buf, 8)
                    if place is not None and place[0] == self._id:
                        _, first, start = place
                    else:
                        start <<= 4
                    self._blobs[key] = (first, start, size, p, crc)
                elif kind == _RENAME:
                    if key in self._blobs:
                        self._blobs[unpack_from("<H", buf, 8)[0]] = self._blobs.pop(key)
                elif kind == _BLOB_DROP:
                    self._blobs.pop(key, None)
            off += self._total
        if done:
            return off
        for s in streams.values():
            s.hi[p] = 0
        return 0

    def _entries(self, buf, end, full, last):
        i = 8
        while i < end:
            kind = buf[i]
            i += 1
            if kind == _T_STREAM:
                key, xi, live, ts, birth = unpack_from("<HQIQI", buf, i)
                i += 26
                last[key] = xi
                if full:
                    s = self._stream(key)
                    s.begin(xi, ts, birth)
                    s.first = s.saved = xi + 1 - live
            elif kind == _T_FACT:
                key, n = unpack_from("<HB", buf, i)
                i += 3
                if full:
                    self._facts[key] = bytes(memoryview(buf)[i : i + n])
                i += n
            elif kind == _T_BLOB:
                if full:
                    key, p, off, size, to, crc = unpack_from("<HHHIHI", buf, i)
                    self._blobs[key] = (p, off << 4, size, to, crc)
                i += 16
            elif kind == _T_SECTORS:
                for _ in range(buf[i]):
                    if full:
                        self._said(unpack_from("<H", buf, i + 1)[0])
                    i += 2
                i += 1
            else:
                if full:
                    self._chain = unpack_from("<H", buf, i)[0]
                i += 2

    # A note or table says something of a sector.
    def _said(self, what):
        p = what & 0x3FFF
        self._settle(p)
        if what & _BAD:
            if p not in self._bad:
                self._bad.append(p)
        elif what & _NEXT:
            self._next = p
        else:
            self._out.append(p)

    def _stream(self, key):
        s = self._streams.get(key)
        if s is None:
            s = self._pool.pop(key, None)
            if s is None:
                s = _Stream(self._n)
            else:
                for p in range(self._n):
                    s.hi[p] = 0
            self._streams[key] = s
        return s

    # Notes what the sectors other than p hold of streams.
    def _index(self, p):
        self._pool = {}
        for q in range(self._n):
            if q != p and self._seq[q]:
                if q == self._next or q in self._out or q in self._bad or not self._replay(q, False):
                    self._drop_sector(q)

    def _drop_sector(self, p):
        self._seq[p] = 0
        for s in self._streams.values():
            s.hi[p] = 0

    # Copies the records of sector `old` into a fresh one and voids the old one.
    def _rewrite(self, old, seq):
        self._p = old
        p = self._take()
        self._header(old)
        seal = self._seal
        self._begin(p, seq, 1)
        off = _HEADER
        while True:
            buf = self._record(old, off, seal)
            if buf is None:
                break
            if self._kind != _NOTE:
                self._emit(buf, self._end)
            off += self._total
        self._drop_sector(old)
        self._out.append(old)
        self._say([q for q in self._out + self._bad if q not in self._listed], 1)

    def _begin(self, p, seq, copied):
        buf = self._buf
        pack_into("<IBBHQII", buf, 0, _MAGIC, _VERSION, copied, 0xFFFF, self.log_number, seq, self._cycles)
        buf[24:28] = b"\xff\xff\xff\xff"
        self._seed = crc32(memoryview(buf)[:28])
        pack_into("<I", buf, 28, self._seed)
        self._dev.writeblocks(p, memoryview(buf)[:_HEADER], 0)
        self._counts[0] += 1
        self._counts[1] += _HEADER
        self._p = p
        self._pos = _HEADER
        self._seq[p] = seq
        self._sound = True

    # Seals the record in buf, whose payload ends at end, and programs it.
    def _emit(self, buf, end):
        total = (end + 15) & ~15
        if not self._sound:
            raise LogError("the device failed in the middle of a program: mount the log again")
        if self._pos + total > self._size:
            raise LogFull("no room left for a note in sector %d" % self._p)
        for i in range(end, total):
            buf[i] = 255
        pack_into("<I", buf, 0, crc32(memoryview(buf)[4:end], self._seed))
        self._sound = False
        self._dev.writeblocks(self._p, buf if total == len(buf) else memoryview(buf)[:total], self._pos)
        self._sound = True
        self._pos += total
        self._counts[0] += 1
        self._counts[1] += total

    # A record of two short parts, built aside.
    def _write(self, kind, key, head, body=b""):
        end = 8 + len(head) + len(body)
        buf = self._buf if end + 15 <= len(self._buf) else bytearray(end + 15 & ~15)
        pack_into("<HH", buf, 4, kind << 12 | end - 8, key)
        buf[8 : 8 + len(head)] = head
        buf[8 + len(head) : end] = body
        self._emit(buf, end)

    # Says that sectors are void or bad, and which is next.
    def _say(self, out, closing=0):
        buf = bytearray()
        for p in out:
            buf += pack("<H", p | _BAD if p in self._bad else p | _NEXT if p == self._next else p)
        self._write(_NOTE, closing, buf)

    # Erases sector p and reads it back; False where it does not come blank.
    def _erase(self, p):
        cycles = self._cycles_read + 1 if self._header(p) else self._cycles_max
        for _ in range(2):
            self._counts[3] += 1
            try:
                if self._dev.ioctl(6, p):
                    continue
            except OSError:
                continue
            if self._is_blank(p):
                self._cycles = max(cycles, 1)
                return True
        return False

    def _is_blank(self, p):
        buf = self._buf
        blank = b"\xff" * len(buf)
        off = 0
        while off < self._size:
            off = min(off, self._size - len(buf))
            self._dev.readblocks(p, buf, off)
            if buf != blank:
                return False
            off += len(buf)
        return True

    # ---- the ring -----------------------------------------------------------------------------

    def _limit(self):
        self._lim = self._size - _SLACK - 16 * len(self._streams)
        self._usable = self._size - _HEADER - _SLACK - 16 * len(self._streams) - self._table_size()
        self._floor = 2 + (self._reserve + self._usable - 1) // self._usable

    def _table_size(self):
        size = 15 + 4 * (len(self._out) + len(self._bad)) + 27 * len(self._streams) + 17 * len(self._blobs)
        for value in self._facts.values():
            size += 4 + len(value)
        return (size + 8 * (size // (len(self._buf) - 220)) + 15) & ~15

    # Opens sector p, erased, as the newest: header, table.
    def _open(self, p=-1):
        if p < 0:
            p = self._take()
        seq = self._seq[self._p] + 1 if self._p >= 0 else 1
        self._begin(p, seq, 0)
        self._free -= 1
        self._probed = 0
        if self._next < 0:
            self._choose()
        buf = self._buf
        end = 8
        index = 0
        entry = bytearray(_HEADER)
        for key, s in self._streams.items():
            pack_into("<BHQIQI", entry, 0, _T_STREAM, key, s.last, s.last + 1 - s.first, s.ts, s.birth)
            end, index = self._entry(memoryview(entry)[:27], b"", end, index)
        for key, value in self._facts.items():
            pack_into("<BHB", entry, 0, _T_FACT, key, len(value))
            end, index = self._entry(memoryview(entry)[:4], value, end, index)
        for key, b in self._blobs.items():
            pack_into("<BHHHIHI", entry, 0, _T_BLOB, key, b[0], b[1] >> 4, b[2], b[3], b[4])
            end, index = self._entry(memoryview(entry)[:17], b"", end, index)
        for p in [self._next] + self._out + self._bad:
            if p >= 0:
                p = p | _BAD if p in self._bad else p | _NEXT if p == self._next else p
                pack_into("<BBH", entry, 0, _T_SECTORS, 1, p)
                end, index = self._entry(memoryview(entry)[:4], b"", end, index)
        pack_into("<BH", entry, 0, _T_CHAIN, self._chain)
        end, index = self._entry(memoryview(entry)[:3], b"", end, index)
        pack_into("<HH", buf, 4, _TABLE << 12 | end - 8, index | 0x8000)
        self._emit(buf, end)
        for s in self._streams.values():
            s.saved = s.first
        self._limit()

    def _entry(self, head, body, end, index):
        buf = self._buf
        n = len(head)
        if end + n + len(body) > len(buf):
            pack_into("<HH", buf, 4, _TABLE << 12 | end - 8, index)
            self._emit(buf, end)
            index += 1
            end = 8
        buf[end : end + n] = head
        end += n
        buf[end : end + len(body)] = body
        return end + len(body), index

    # Picks the sector to be used next, round the ring; it is void from now on.
    def _choose(self):
        n = self._n
        self._skip = -1
        pick = self._out[0] if len(self._out) > 8 else -1
        p = self._p
        while pick < 0:
            p = (p + 1) % n
            if p == self._p:
                return False
            if p in self._bad:
                continue
            if self._is_live(p):
                if self._skip < 0:
                    self._skip = p
            else:
                pick = p
        self._settle(pick)
        self._drop_sector(pick)
        self._next = pick
        self._ready = False
        return True

    # Says durably which sector is next, and what the streams have trimmed.
    def _announce(self):
        if not self._choose():
            return False
        if self._sound:
            self.sync()
            self._say([self._next])
        return True

    # The next sector, erased.
    def _take(self):
        while True:
            if self._next < 0 and not self._announce():
                raise LogFull("the log is full: no sector can be freed")
            p = self._next
            if self._ready or self._erase(p):
                self._next = -1
                self._ready = False
                return p
            self._retire(p)

    def _retire(self, p):
        self._next = -1
        self._bad.append(p)
        self._dirty = True
        self._free -= 1
        if self._sound:
            self._say([p])

    def _is_live(self, p):
        seq = self._seq[p]
        if not seq:
            return False
        if p == self._p or self._hold and seq >= self._hold:
            return True
        for s in self._streams.values():
            hi = s.hi[p]
            if hi and (s.last + 1 - hi) & _LOW <= s.last + 1 - s.first:
                return True
        for b in self._blobs.values():
            if self._seq[b[0]] <= seq <= self._seq[b[3]]:
                return True
        return False

    def _count(self):
        free = self._n - len(self._bad) - 1
        for p in range(self._n):
            if p != self._p and self._is_live(p):
                free -= 1
        self._free = free
        self._dirty = False

    # Tries to have `want` free sectors, by copying what little lives in others.
    def _gain(self, want):
        if self._free >= want:
            return True
        if self._dirty:
            self._count()
        if not self._busy:
            walks = 8
            while self._free < want and self._free > 1 and walks and self._probed < self._n:
                self._probe = p = (self._probe + 1) % self._n
                self._probed += 1
                if p != self._p and self._is_live(p):
                    walks -= 1
                    if self._live_bytes(p) * 2 <= self._usable:
                        self._reclaim(p)
        return self._free >= want

    # Bytes that would have to be copied to free sector p.
    def _live_bytes(self, p):
        seq = self._seq[p]
        size = 0
        for b in self._blobs.values():
            if self._seq[b[0]] <= seq <= self._seq[b[3]]:
                size += b[2] + (b[2] >> 4) + 48
        for _ in self._runs(p):
            size += self._total + 16
        return size

    # The live records of streams in sector p, each in the scratch buffer while it is the current one.
    def _runs(self, p):
        seq = self._header(p)
        seal = self._seal
        off = _HEADER
        last = {}
        while True:
            buf = self._record(p, off, seal)
            if buf is None:
                return
            off += self._total
            key = self._id
            kind = self._kind
            if kind == _TABLE:
                self._entries(buf, self._end, False, last)
            elif kind == _START:
                last[key] = unpack_from("<Q", buf, 8)[0]
            elif kind <= _COPY:
                n = unpack_from("<H", buf, 8)[0]
                if kind == _RUN:
                    xi = last.get(key, 0) + 1
                    start = 14
                else:
                    xi = unpack_from("<Q", buf, 10)[0]
                    start = 18 if kind == _COPY else 26
                if kind != _COPY:
                    last[key] = xi + n - 1
                s = self._streams.get(key)
                if s is not None and seq >= s.birth and s.first < xi + n <= s.last + 1:
                    yield key, xi, n, start

    # Copies what lives in sector p; it is free afterwards.
    def _reclaim(self, p):
        self._busy = True
        try:
            seq = self._seq[p]
            for key, b in list(self._blobs.items()):
                if self._seq[b[0]] <= seq <= self._seq[b[3]]:
                    self._store(key, b[2], self._pieces(b, bytearray(len(self._buf))))
            for key, xi, n, start in self._runs(p):
                body = bytes(memoryview(self._buf)[start : self._end])
                total = self._total
                self._room(10 + 8 + len(body), 1)
                self._write(_COPY, key, pack("<HQ", n, xi), body)
                self._streams[key].note(self._p, xi, xi + n - 1)
                self._total = total
            self._drop_sector(p)
            self._counts[6] += 1
        finally:
            self._busy = False
        self._count()

    # Makes room for a record; floor: free sectors that must be left.
    def _room(self, end, floor):
        total = (end + 15) & ~15
        if self._p < 0:
            raise LogError("the log is not mounted")
        if self._pos + total > self._lim:
            if not self._gain(floor + 1):
                raise LogFull("the log is full: %d sectors are free, %d must stay" % (self._free, floor))
            self._open()
            if self._pos + total > self._lim:
                raise LogError("a record of %d bytes does not fit into a sector" % total)

    # Does what is better done ahead: True when there was something to do. Call it when there is time.
    def idle(self):
        if self._next < 0:
            return self._pos + 32 + 16 * len(self._streams) <= self._size and self._announce()
        if not self._ready:
            p = self._next
            if self._erase(p):
                self._ready = True
            else:
                self._retire(p)
            return True
        p = self._skip
        self._skip = -1
        if p >= 0 and self._free > self._floor and self._live_bytes(p) * 4 <= self._usable:
            self._reclaim(p)
            return True
        return False

    # ---- streams ------------------------------------------------------------------------------

    # Appends xi ... xi + n - 1. False, and nothing written, where only the reserve is left.
    def append_run(self, stream, xi, n, ts_last, body):
        s = self._streams.get(stream)
        if s is None:
            if self._free <= self._floor and not self._gain(self._floor + 1):
                return False
            self.start_stream(stream, 0, 0)
            s = self._streams[stream]
        if xi != s.last + 1 or not 0 < n < 65536:
            raise LogError("stream %d: xi %d cannot follow %d" % (stream, xi, s.last))
        if self._free < self._floor and not self._gain(self._floor):
            return False
        ts = ts_last - s.ts
        start = 14 if 0 <= ts < 1 << 32 else 26
        end = start + len(body)
        total = (end + 15) & ~15
        if self._pos + total > self._lim:
            if end > 4095 + 8:
                raise LogError("stream %d: a body of %d bytes is too long" % (stream, len(body)))
            if self._free <= self._floor and not self._gain(self._floor + 1):
                return False
            self._room(end, self._floor)
        buf = self._buf
        if total > len(buf):
            buf = bytearray(total)
        if start == 14:
            pack_into("<HHHI", buf, 4, _RUN << 12 | end - 8, stream, n, ts)
        else:
            pack_into("<HHHQQ", buf, 4, _RUN_FAR << 12 | end - 8, stream, n, xi, ts_last)
        buf[start:end] = body
        self._emit(buf, end)
        self._counts[2] += len(body)
        s.last = xi + n - 1
        s.ts = ts_last
        s.note(self._p, xi, s.last)
        return True

    # The stream goes on behind xi_last; what was held of it is let go.
    def start_stream(self, stream, xi_last, ts_last):
        s = self._streams.get(stream)
        if s is not None and (xi_last < s.last or ts_last < s.ts):
            raise LogError("stream %d: its tail %d never goes back, to %d" % (stream, s.last, xi_last))
        self._fits(27 if s is None else 0)
        self._room(24, 2)
        self._write(_START, stream, pack("<QQ", xi_last, ts_last))
        if s is None:
            self._streams[stream] = s = _Stream(self._n)
            self._limit()
        for p in range(self._n):
            s.hi[p] = 0
        s.begin(xi_last, ts_last, self._seq[self._p])
        s.saved = s.first
        self._free_up()

    # Reads the body of the record that holds xi into buf: its length, 0 where it is not held.
    def read_run(self, stream, xi, buf):
        s = self._streams.get(stream)
        if s is None or not s.first <= xi <= s.last:
            return 0
        if xi == s.read + 1 and self._seq[s.at] == s.at_seq:
            n = self._find(stream, s, xi, buf, s.at, s.off, s.base)
            if n:
                return n
        top = (s.last + 1) & _LOW
        far = s.last + 1 - xi
        for p in range(self._n):
            hi = s.hi[p]
            if hi and (top - hi) & _LOW <= far <= (top - s.lo[p]) & _LOW:
                n = self._find(stream, s, xi, buf, p, _HEADER, 0)
                if n:
                    return n
        return 0

    def _find(self, stream, s, xi, buf, p, off, base):
        self._header(p)
        seal = self._seal
        h = self._h
        limit = self._pos if p == self._p else self._size
        while off + 16 <= limit:
            self._dev.readblocks(p, h if off + 32 <= self._size else memoryview(h)[:16], off)
            crc, kind, key = unpack_from("<IHH", h, 0)
            if kind == 0xFFFF:
                return 0
            end = 8 + (kind & 0xFFF)
            kind >>= 12
            if kind == _TABLE:
                b = self._record(p, off, seal)
                if b is None:
                    return 0
                last = {}
                self._entries(b, end, False, last)
                base = last.get(stream, base)
            elif key == stream and kind <= _START:
                if kind == _START:
                    base = unpack_from("<Q", h, 8)[0]
                else:
                    n = unpack_from("<H", h, 8)[0]
                    start = 14
                    first = base + 1
                    if kind != _RUN:
                        first = unpack_from("<Q", h, 10)[0]
                        start = 18 if kind == _COPY else 26
                    if kind != _COPY:
                        base = first + n - 1
                    if first <= xi < first + n:
                        size = end - start
                        if size > len(buf):
                            raise LogError("stream %d: a body of %d bytes, room for %d" % (stream, size, len(buf)))
                        body = memoryview(buf)[:size]
                        self._dev.readblocks(p, body, off + start)
                        if crc32(body, crc32(memoryview(h)[4:start], seal)) == crc:
                            s.read = first + n - 1
                            s.at = p
                            s.at_seq = self._seq[p]
                            s.off = off + ((end + 15) & ~15)
                            s.base = base
                            return size
                        self._counts[4] += 1
                        return 0
            off += (end + 15) & ~15
        return 0

    # Everything up to xi may go. Flash learns of it with the next sector, or by sync.
    def trim(self, stream, xi):
        s = self._streams.get(stream)
        if s is not None and xi >= s.first:
            s.first = min(xi, s.last) + 1
            self._free_up()

    # Makes what was trimmed durable.
    def sync(self):
        for key, s in self._streams.items():
            if s.saved != s.first:
                self._write(_TRIM, key, pack("<Q", s.first))
                s.saved = s.first

    # (last xi, last ts); (0, 0) of a stream that never was.
    def tail(self, stream):
        s = self._streams.get(stream)
        return (s.last, s.ts) if s is not None else (0, 0)

    # First live xi; that behind the tail where nothing is.
    def first(self, stream):
        s = self._streams.get(stream)
        return s.first if s is not None else 1

    def forget(self, stream):
        if stream in self._streams:
            self._room(8, 1)
            self._write(_FORGET, stream, b"")
            del self._streams[stream]
            self._limit()
            self._free_up()

    def streams(self):
        return sorted(self._streams)

    def _free_up(self):
        self._dirty = True
        self._probed = 0

    # ---- facts --------------------------------------------------------------------------------

    # Refuses what would make the table larger than half a sector.
    def _fits(self, more):
        if self._table_size() + more > self._size >> 1:
            raise LogFull("the facts, streams and blobs together exceed half a sector")

    def put(self, key, value):
        old = self._facts.get(key)
        if old == value:
            return
        if len(value) > 200 or not 0 <= key < 65536:
            raise LogError("fact %d: a key is below 65536, a value has up to 200 bytes" % key)
        self._fits(len(value) + 4 if old is None else len(value) - len(old))
        self._room(8 + len(value), 2)
        value = bytes(value)
        self._write(_FACT, key, value)
        self._facts[key] = value

    def get(self, key):
        return self._facts.get(key)

    def drop(self, key):
        if key in self._facts:
            self._room(8, 1)
            self._write(_FACT_DROP, key, b"")
            del self._facts[key]

    def keys(self):
        return sorted(self._facts)

    # ---- blobs --------------------------------------------------------------------------------

    # data: bytes, or a list of parts. The old value lives until all of the new one is written.
    def put_blob(self, key, data):
        if not 0 <= key < 65536:
            raise LogError("blob %d: a key is below 65536" % key)
        if not isinstance(data, (list, tuple)):
            data = (data,)
        size = 0
        for part in data:
            size += len(part)
        self._fits(0 if key in self._blobs else 17)
        self._store(key, size, iter(data))

    def _store(self, key, size, parts):
        floor = 1 if self._busy else 2
        room = self._lim - self._pos
        end = 8 + size
        whole = end <= len(self._buf) and end <= self._usable - 16
        if size + (size >> 4) + 96 > room:
            need = 1 if whole else 1 + (size + (size >> 4) + 96) // (self._usable - 64)
            if not self._gain(floor + need):
                raise LogFull("blob %d: no room for %d bytes" % (key, size))
        self._part = b""
        if whole:
            self._room(end, floor)
            self._fill(parts, 8, end)
            buf = self._buf
            pack_into("<HH", buf, 4, _BLOB << 12 | size, key)
            place = (self._p, self._pos, size, self._p, crc32(memoryview(buf)[8:end]))
            self._emit(buf, end)
        else:
            place = self._store_chain(key, size, parts, floor)
        self._counts[2] += size
        self._blobs[key] = place
        self._free_up()

    def _store_chain(self, key, size, parts, floor):
        self._chain = chain = (self._chain + 1) & 0xFFFF
        self._hold = self._seq[self._p]
        try:
            index = crc = done = 0
            buf = self._buf
            while done < size:
                room = self._lim - self._pos
                if room < 64:
                    self._room(64, floor)
                    continue
                end = 10 + min(size - done, min(room & ~15, len(buf)) - 10)
                self._fill(parts, 10, end)
                if not index:
                    p = self._p
                    off = self._pos
                pack_into("<HHH", buf, 4, _PIECE << 12 | end - 8, chain, index)
                crc = crc32(memoryview(buf)[10:end], crc)
                self._emit(buf, end)
                index += 1
                done += end - 10
            self._room(24, floor)
            self._write(_CLOSE, chain, pack("<HHIIHH", key, index, size, crc, p, off >> 4))
        finally:
            self._hold = 0
        return (p, off, size, self._p, crc)

    # Moves the bytes that come next in parts into the scratch buffer.
    def _fill(self, parts, i, end):
        buf = self._buf
        part = self._part
        while i < end:
            if not len(part):
                part = memoryview(next(parts))
            n = min(end - i, len(part))
            buf[i : i + n] = part[:n]
            part = part[n:]
            i += n
        self._part = part

    # The bytes of a blob, piece by piece; each is to be used before the next is asked for.
    def _pieces(self, b, buf):
        p, off, size, to, _ = b
        chain = -1
        index = 0
        self._header(p)
        seal = self._seal
        while size > 0:
            rec = None
            if p != self._p or off < self._pos:
                rec = self._record(p, off, seal, buf)
            if rec is None:
                seq = self._seq[p]
                best = 0
                for q in range(self._n):
                    other = self._seq[q]
                    if other > seq and (not best or other < best) and other <= self._seq[to]:
                        best = other
                        p = q
                if not best:
                    return
                self._header(p)
                seal = self._seal
                off = _HEADER
                continue
            off += self._total
            kind = self._kind
            start = 0
            if kind == _BLOB and not index:
                start = 8
            elif kind == _PIECE and chain in (-1, self._id) and unpack_from("<H", rec, 8)[0] == index:
                start = 10
                chain = self._id
            if start:
                index += 1
                size -= self._end - start
                yield memoryview(rec)[start : self._end]

    def get_blob(self, key):
        b = self._blobs.get(key)
        if b is None:
            return None
        data = bytearray(b[2])
        if self.read_blob(key, 0, data) != b[2] or crc32(data) != b[4]:
            self._counts[4] += 1
            return None
        return bytes(data)

    def blob_size(self, key):
        b = self._blobs.get(key)
        return -1 if b is None else b[2]

    # Reads from offset on as much as buf takes: how many bytes.
    def read_blob(self, key, offset, buf):
        b = self._blobs.get(key)
        done = 0
        if b is not None:
            for piece in self._pieces(b, self._buf):
                if offset >= len(piece):
                    offset -= len(piece)
                    continue
                n = min(len(piece) - offset, len(buf) - done)
                buf[done : done + n] = piece[offset : offset + n]
                offset = 0
                done += n
                if done == len(buf):
                    break
        return done

    def drop_blob(self, key):
        if key in self._blobs:
            self._room(8, 1)
            self._write(_BLOB_DROP, key, b"")
            del self._blobs[key]
            self._free_up()

    # src becomes dst, whose old value goes in the same instant.
    def rename_blob(self, src, dst):
        if src not in self._blobs:
            raise LogError("no blob %d to rename" % src)
        if src != dst:
            self._room(10, 1)
            self._write(_RENAME, src, pack("<H", dst))
            self._blobs[dst] = self._blobs.pop(src)
            self._free_up()

    def blob_keys(self):
        return sorted(self._blobs)

    # ---- figures ------------------------------------------------------------------------------

    # The reserve that streams leave alone, beside two sectors. True where it is there now.
    def ensure_reserve(self, reserve_bytes):
        self._reserve = reserve_bytes
        self._limit()
        return self._gain(self._floor)

    # Bytes that streams may still take.
    def free_bytes(self):
        if self._dirty:
            self._count()
        if self._free < self._floor:
            return 0
        return (self._free - self._floor) * self._usable + max(0, self._lim - self._pos)

    # Bytes that streams may take of an empty log.
    def usable_bytes(self):
        return max(0, self._n - len(self._bad) - self._floor) * self._usable

    def stats(self):
        names = ("programs", "programmed", "bodies", "erases", "skipped", "copied", "reclaimed")
        stats = dict(zip(names, self._counts))
        stats["bad"] = sorted(self._bad)
        return stats

    # Erases of every sector, as its header says; 0 where it has none.
    def cycles(self):
        return [self._cycles_read if self._header(p) else 0 for p in range(self._n)]
