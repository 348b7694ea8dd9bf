# The durable store of a host: one ring log on a raw flash device. Bytes: docs/spec.md, "Flash log".
#
# It holds three kinds of things, and carries live ones forward without being asked:
#   streams  runs of consecutive xi (samples of sources, spill of ports), trimmed from below
#   facts    small values by number; the table at the head of every sector repeats all of them
#   blobs    large values by number, replaced and renamed atomically
#
# It promises: when a call returns, its effect survives a power cut at any byte of any later program
# or erase, nested cuts and cells that read differently the second time included; a call that was
# cut has happened wholly or not at all.
#
# Why that holds:
# - A record is sealed by one CRC, seeded with the seal of its sector's header: no stale byte passes.
#   No bit is cleared later to change a meaning.
# - A program that ended before another began is sound. So only the newest sector can hold anything
#   in doubt, and only at its end. Mounting copies its valid records into a fresh sector, which
#   counts from its closing record on; the old one is void from then on, whatever it reads later.
#   Nothing is used before that, and nothing is ever appended after a doubtful end.
# - A sector counts once the table at its head is complete; before that its predecessor does.
# - A sector is erased only after a sound table or note has recorded that it is void, and up to
#   where each stream is trimmed; it gets its header after an erase that was read back.
# - A sector whose live content was copied elsewhere is void, and a table or note records that. Otherwise
#   a restart would count it as live again, and the log would be fuller than before the cut.
# - Mounting needs a free sector, and so does copying. The newest sector counts as free if nothing in it is
#   live: opening the next one costs nothing then, so facts can always be written. Records that pin a sector
#   leave some to more urgent ones: blobs leave two free; facts, and records that free space, leave one.
# - Runs always leave the reserve and three more sectors to blobs, whether blobs occupy these already
#   or not.
# Records are not read back after programming: the chip verifies its programs itself, a worn sector
# shows in the verified erase, and the reading would cost more than the append.

from array import array
from binascii import crc32
from struct import pack, pack_into, unpack_from

from ..board.unload import unload
from ..offboard.compat import TYPE_CHECKING, const

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from ..offboard.interfaces import Device, Readable, Writable

    _Blob = tuple[int, int, int, int, int]  # sector, offset, size, last sector, CRC

_MAGIC = const(0x014C7748)  # "HwL", version 1
_HEADER = const(32)
_SLACK = const(64)  # the end of a sector is reserved for notes, and for the closing record of a copy

# Kinds of records; all but runs and pieces occur in tables too.
_RUN = const(1)  # id stream: n, ts difference, body
_RUN_FAR = const(2)  # id stream: n, xi, ts, body: a far ts; or a run carried forward, below the tail
_STREAM = const(3)  # id stream: last xi, last ts, live xi, place of its beginning (0: here)
_TRIM = const(4)  # id stream: first live xi
_FORGET = const(5)  # id stream
_FACT = const(6)  # id key: value
_DROP = const(7)  # id key
_BLOB = const(8)  # id key: all of it
_PIECE = const(9)  # id chain: index, bytes; in a table: 1, sequence below which nothing is live
_CLOSE = const(10)  # id key: chain, size, CRC of all, first sector, offset / 16, last sector
_RENAME = const(11)  # id source key: destination key
_DROP_BLOB = const(12)  # id key
_TABLE = const(13)  # id index, bit 15 in the last: entries, which are records without CRC and padding
_NOTE = const(14)  # id 1 when it closes a copy: sectors

# Marks of a sector in a note; without a mark it is void: its content does not count.
_NEXT = const(0x4000)  # void, and the one to be used next
_BAD = const(0x8000)  # an erase of it failed; never used again

_END_MAX = const(4103)  # head and payload of a record: the length of a payload has 12 bits
_SECTORS_MAX = const(16383)
_WALKS = const(8)  # sectors that a run examines for free space
_LOW = const(0x1FFFFFFF)  # the index holds xi modulo 2**29: small integers on a board
_HELD = const(0x20000000)  # marks an index entry that holds something


class LogError(Exception):
    pass


# Even the reserve is used up.
class LogFull(LogError):
    pass


class _Stream:
    def __init__(self, sectors: int) -> None:
        self.lo = array("I", bytes(4 * sectors))  # per sector the lowest and highest xi in it
        self.hi = array("I", bytes(4 * sectors))
        self.last = self.ts = 0  # the tail
        self.first = self.saved = 1  # first live xi, and what flash knows of it
        self.birth = 0  # (sequence << 12) + offset / 16; records before it are of an earlier stream
        # The xi read last. Where the record after it is: sector, its sequence, offset; and the xi before it.
        self.read = -1
        self.at = self.at_seq = self.off = self.base = 0

    def begin(self, last: int, ts: int, live: int, birth: int) -> None:
        self.last = last
        self.ts = ts
        self.first = self.saved = last + 1 - live
        self.birth = birth

    # Sector p holds lo ... hi.
    def note(self, p: int, lo: int, hi: int) -> None:
        top = (self.last + 1) & _LOW
        lo = lo & _LOW | _HELD
        hi = hi & _LOW | _HELD
        if not self.hi[p]:
            self.lo[p] = lo
            self.hi[p] = hi
        elif (top - lo) & _LOW > (top - self.lo[p]) & _LOW:
            self.lo[p] = lo
        if (top - hi) & _LOW < (top - self.hi[p]) & _LOW:
            self.hi[p] = hi


class Log:
    # reserve: see ensure_reserve. scratch_bytes: records up to this size are built in buf, not allocated.
    # Nothing is kept in it between two calls.
    def __init__(self, device: "Device", reserve: "Sequence[int]" = (), scratch_bytes: int = 512) -> None:
        self._dev = device
        self._n = device.ioctl(4, 0)
        self._size = device.ioctl(5, 0)
        if self._size < 512 or not 5 <= self._n <= _SECTORS_MAX:
            raise LogError("a log needs 5 to 16383 sectors of at least 512 bytes")
        # Records are programmed in steps of 16 bytes: so is what one is built in.
        self.buf = bytearray(min(max(scratch_bytes + 15 & ~15, 256), self._size))
        self._h = bytearray(_HEADER)
        self.log_number = 0
        self._reserve: "Sequence[int]" = reserve
        self._counts = [0] * 6  # programs, programmed, bodies, erases, skipped, reclaimed
        self._cycles = 0  # most erases of a sector
        self._seq: "array[int]" = array("I", bytes(4 * self._n))  # 0: not part of the log
        self._streams: dict[int, _Stream] = {}
        self._table_index = 0
        self._part: "Readable" = b""
        self._p = -1  # the sector that is written, and where
        self._pos = self._lim = 0
        self._clear()

    def _clear(self) -> None:
        self._pool = self._streams
        self._streams = {}
        self._facts: dict[int, bytes] = {}
        self._blobs: "dict[int, _Blob]" = {}  # key -> (sector, offset, size, last sector, CRC)
        self._out: list[int] = []  # void sectors whose content may still look valid
        self._bad: list[int] = []
        self._listed: list[int] = []  # what the table in the present sector records about sectors
        self._next = -1  # the sector to be used next, as recorded in flash
        self._ready = False  # and it is erased
        self._sound = False  # the last program came to its end
        self._chain = 0
        self._oldest = 0  # nothing is live in sectors before this sequence
        self._hold = 0  # sequence from which on a chain under way holds sectors
        self._busy = False  # reclaiming
        self._free = 0  # free sectors, at least
        self._loose = 0  # sectors without a live run, at least
        self._pinned = -1  # the sector with the newest live run
        self._dirty = True  # there may be more
        self._probe = self._probed = 0
        self._skip = -1  # a live sector that the ring has passed by

    # ---- mounting -----------------------------------------------------------------------------

    # Makes an empty log. Whatever was on the device is gone.
    @classmethod
    def format(cls, device: "Device", log_number: int) -> None:
        from . import mounting

        mounting.format(cls(device), log_number)

    # Finds the log on the device and makes it usable. Everything durable is here afterwards.
    def mount(self) -> None:
        from . import mounting

        mounting.mount(self)
        mounting = None  # type: ignore[assignment]
        unload("storage.mounting")
        self._pool = {}
        self._limit()
        self._count()
        self._sound = True
        assert self._p >= 0 and self._seq[self._p] == max(self._seq), "another sector is newer"

    # What mounting.py finds: the sector that is written, or -1; the number of the log; the newest chain, and
    # the sequence below which nothing lives.
    def _found(self, p: int, number: int, chain: int, oldest: int) -> None:
        self._p = p
        self.log_number = number
        self._chain = chain
        self._oldest = oldest

    # Sector p is in use, or the one to be used next, whatever was said of it before.
    def _settle(self, p: int, is_next: int = 0) -> None:
        if is_next:
            self._next = p
        elif self._next == p:
            self._next = -1
        if p in self._out:
            self._out.remove(p)

    # Reads the header of sector p: its sequence, or 0. Leaves its number, cycles and seal, and whether
    # it is a copy.
    def _header(self, p: int) -> int:
        h = self._h
        self._dev.readblocks(p, h, 0)
        magic, copied, number, seq, cycles, _, seal = unpack_from("<IIQIIII", h, 0)
        if magic != _MAGIC or crc32(memoryview(h)[:28]) != seal:
            return 0
        self._copied = copied
        self._number = number
        self._seal = seal
        self._cycled = cycles
        if cycles > self._cycles:
            self._cycles = cycles
        return seq

    # Reads and checks the record at off of sector p. Gives the buffer that holds it, or None; leaves
    # kind, id, end (without padding) and total length.
    def _record(self, p: int, off: int, seal: int, buf: bytearray) -> bytearray | None:
        room = self._size - off
        if room < 16 or p == self._p and off >= self._pos:
            return None
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

    # The records of sector p from off on, the entries of its table one by one: kind, id, buffer,
    # where the payload begins and ends there. Leaves the place of the record, and at last of the end.
    def _items(
        self, p: int, off: int, scratch: bytearray
    ) -> "Iterator[tuple[int, int, bytearray, int, int]]":
        self._header(p)
        seal = self._seal
        while True:
            self._off = off
            buf = self._record(p, off, seal, scratch)
            if buf is None:
                return
            off += self._total
            self._behind = off
            end = self._end
            key = self._id
            if self._kind != _TABLE:
                yield self._kind, key, buf, 8, end
                continue
            i = 8
            while i < end:
                kind, entry = unpack_from("<HH", buf, i)
                i += 4
                stop = i + (kind & 0xFFF)
                yield kind >> 12, entry, buf, i, stop
                i = stop
            yield _TABLE, key, buf, end, end

    # Of a run in buf: its first xi, how many, and where the body begins. last: xi of each stream.
    def _span(self, kind: int, key: int, buf: bytearray, last: dict[int, int]) -> tuple[int, int, int]:
        n = unpack_from("<H", buf, 8)[0]
        base = last.get(key, 0)
        xi = base + 1 if kind == _RUN else unpack_from("<Q", buf, 10)[0]
        last[key] = max(base, xi + n - 1)
        return xi, n, 14 if kind == _RUN else 26

    def _stream(self, key: int) -> _Stream:
        s = self._streams.get(key)
        if s is None:
            s = self._pool.pop(key, None) or _Stream(self._n)
            for p in range(self._n):
                s.hi[p] = 0
            self._streams[key] = s
        return s

    def _drop_sector(self, p: int) -> None:
        self._seq[p] = 0
        for s in self._streams.values():
            s.hi[p] = 0

    # ---- writing ------------------------------------------------------------------------------

    def _begin(self, p: int, seq: int, copied: int) -> None:
        h = self._h
        pack_into("<IIQIII", h, 0, _MAGIC, copied, self.log_number, seq, self._next_cycles, 0)
        self._seed = crc32(memoryview(h)[:28])
        pack_into("<I", h, 28, self._seed)
        self._dev.writeblocks(p, h, 0)
        self._counts[0] += 1
        self._counts[1] += _HEADER
        self._p = p
        self._pos = _HEADER
        self._seq[p] = seq
        self._sound = True

    # Seals the record in buf, whose payload ends at end, and programs it.
    def _emit(self, buf: bytearray, end: int) -> None:
        total = (end + 15) & ~15
        if self._pos + total > self._size:
            raise LogFull("no room left for a note in sector %d" % self._p)
        for i in range(end, total):
            buf[i] = 255
        pack_into("<I", buf, 0, crc32(memoryview(buf)[4:end], self._seed))
        self._sound = False
        self._dev.writeblocks(self._p, memoryview(buf)[:total], self._pos)
        self._sound = True
        self._pos += total
        self._counts[0] += 1
        self._counts[1] += total

    # A record with this payload. floor: free sectors that must be left; 0: into the end of this sector.
    def _write(self, kind: int, key: int, body: "Readable", floor: int = 0) -> None:
        end = 8 + len(body)
        if floor:
            self._room(end, floor)
        buf = self.buf if end <= len(self.buf) else bytearray(end + 15 & ~15)
        pack_into("<HH", buf, 4, kind << 12 | end - 8, key)
        buf[8:end] = body
        self._emit(buf, end)

    # Records that sectors are void or bad, and which is next.
    def _say(self, sectors: "Sequence[int]", closing: int = 0) -> None:
        self._write(_NOTE, closing, self._marked(sectors))

    def _marked(self, sectors: "Sequence[int]") -> bytes:
        marks = b""
        for p in sectors:
            marks += pack("<H", p | _BAD if p in self._bad else p | _NEXT if p == self._next else p)
        return marks

    # Frees space for a record; floor: free sectors that must be left.
    def _room(self, end: int, floor: int, walks: int = _SECTORS_MAX) -> None:
        if not self._sound:
            raise LogError("not mounted, or the device failed in a program: mount the log")
        total = (end + 15) & ~15
        if total > self._usable or end > _END_MAX:
            raise LogFull("a record of %d bytes does not fit into a sector" % end)
        while self._pos + total > self._lim:
            # A sector without live records is free again once the next one is open.
            want = floor + 1 if self._holds(self._p) else floor
            if not self._gain(want, 0, walks):
                raise LogFull("the log is full: %d sectors are free, %d must stay" % (self._free, floor))
            self._open()

    # Opens sector p, erased, as the newest: header, table.
    def _open(self, p: int = -1) -> None:
        if p < 0:
            p = self._take()
        if self._p < 0 or self._holds(self._p):
            self._free -= 1
        self._begin(p, self._seq[self._p] + 1 if self._p >= 0 else 1, 0)
        self._probed = 0
        if self._next < 0:
            self._choose()
        self._end = 8
        self._table_index = 0
        for key, s in self._streams.items():
            self._entry(_STREAM, key, pack("<QQIQ", s.last, s.ts, s.last + 1 - s.first, s.birth))
            s.saved = s.first
        for key, value in self._facts.items():
            self._entry(_FACT, key, value)
        for key, b in self._blobs.items():
            self._entry(_CLOSE, key, pack("<HIIHHH", 0, b[2], b[4], b[0], b[1] >> 4, b[3]))
        sectors = self._out + self._bad
        if self._next >= 0:
            sectors.append(self._next)
        for i in range(0, len(sectors), 64):
            self._entry(_NOTE, 0, self._marked(sectors[i : i + 64]))
        self._entry(_PIECE, self._chain, pack("<HI", 1, self._oldest))
        self._flush(0x8000)
        self._limit()

    # An entry of the table that is being written.
    def _entry(self, kind: int, key: int, body: bytes) -> None:
        n = len(body)
        if self._end + 4 + n > len(self.buf):
            self._flush(0)
        i = self._end + 4
        pack_into("<HH", self.buf, i - 4, kind << 12 | n, key)
        self.buf[i : i + n] = body
        self._end = i + n

    def _flush(self, last: int) -> None:
        pack_into("<HH", self.buf, 4, _TABLE << 12 | self._end - 8, self._table_index | last)
        self._emit(self.buf, self._end)
        self._table_index += 1
        self._end = 8

    def _table_size(self) -> int:
        size = 26 + 2 * (len(self._out) + len(self._bad)) + 32 * len(self._streams) + 20 * len(self._blobs)
        for value in self._facts.values():
            size += 4 + len(value)
        return (size + 24 * (size // (len(self.buf) - 212)) + 15) & ~15

    def _limit(self) -> None:
        self._lim = self._size - _SLACK - 16 * len(self._streams)
        self._usable = self._lim - _HEADER - self._table_size()
        self._floor = 3 + sectors_for(self._reserve, self._usable)

    # ---- the ring -----------------------------------------------------------------------------

    # Erases sector p and reads it back; False if it does not read blank.
    def _erase(self, p: int) -> bool:
        cycles = self._cycled + 1 if self._header(p) else max(1, self._cycles)
        for _ in range(2):
            self._counts[3] += 1
            try:
                if not self._dev.ioctl(6, p) and self._is_blank(p):
                    self._next_cycles = cycles
                    return True
            except OSError:
                continue
        return False

    def _is_blank(self, p: int) -> bool:
        buf = self.buf
        view = memoryview(buf)
        off = 0
        while off < self._size:
            self._dev.readblocks(p, buf, min(off, self._size - len(buf)))
            # All bytes equal the first one: one call compares them, while a search takes a step a byte.
            if buf[0] != 255 or view[1:] != view[:-1]:
                return False
            off += len(buf)
        return True

    # Picks the sector to be used next, round the ring; it is void from now on.
    def _choose(self) -> bool:
        self._skip = -1
        pick = self._out[0] if len(self._out) > 8 else -1
        p = self._p
        while pick < 0:
            p = (p + 1) % self._n
            if p == self._p:
                return False
            if p in self._bad:
                continue
            if not self._holds(p):
                pick = p
            elif self._skip < 0:
                self._skip = p
        self._settle(pick)
        self._drop_sector(pick)
        self._next = pick
        self._ready = False
        return True

    # Records durably which sector is next, and what the streams have trimmed.
    def _announce(self) -> bool:
        if not self._choose():
            return False
        if self._sound:
            self.sync(0)
            self._say([self._next])
        return True

    # The next sector, erased.
    def _take(self) -> int:
        while True:
            if self._next < 0 and not self._announce():
                raise LogFull("the log is full: no sector can be freed")
            p = self._next
            if self._ready or self._erase(p):
                self._next = -1
                self._ready = False
                return p
            self._retire(p)

    def _retire(self, p: int) -> None:
        self._next = -1
        self._bad.append(p)
        self._dirty = True
        self._free -= 1
        self._loose -= 1
        if self._sound:
            self._say([p])

    # Does sector p hold anything live, or may it once a chain in progress is closed?
    def _holds(self, p: int) -> bool:
        seq = self._seq[p]
        if not seq:
            return False
        if self._hold and seq >= self._hold:
            return True
        if self._runs_in(p):
            return True
        for b in self._blobs.values():
            if self._touches(b, seq):
                return True
        return False

    def _runs_in(self, p: int) -> bool:
        for s in self._streams.values():
            hi = s.hi[p]
            if hi and (s.last + 1 - hi) & _LOW <= s.last + 1 - s.first:
                return True
        return False

    # May a sector of this sequence hold something of the blob?
    def _touches(self, b: "_Blob", seq: int) -> bool:
        return self._seq[b[0]] <= seq <= self._seq[b[3]]

    # Counts the free sectors, as a restart would: what was trimmed in RAM alone is not free yet. Once for
    # every sector that is used, so all of them are looked at in one loop.
    def _count(self) -> None:
        seqs = self._seq
        blobs = []
        for b in self._blobs.values():
            blobs.append((seqs[b[0]], seqs[b[3]]))
        if self._hold:
            blobs.append((self._hold, 0xFFFFFFFF))
        runs: "list[tuple[Any, int, int]]" = []
        self._dirty = False
        for s in self._streams.values():
            runs.append((s.hi, s.last + 1, s.last + 1 - s.saved))
            if s.saved != s.first:
                self._dirty = True
        free = loose = self._n - len(self._bad)
        newest = self._p
        oldest = seqs[newest]
        pinned = -1
        for p in range(self._n):
            seq = seqs[p]
            if not seq:
                continue
            lives = p == newest
            for hi, top, live in runs:
                hi = hi[p]
                if hi and (top - hi) & _LOW <= live:
                    lives = True
                    loose -= 1
                    if p == newest:
                        pinned = p
                    break
            else:
                for first, last in blobs:
                    if first <= seq <= last:
                        lives = True
                        break
            if lives:
                free -= 1
                if seq < oldest:
                    oldest = seq
        self._free = free
        self._loose = loose
        self._pinned = pinned
        self._oldest = oldest

    # Tries to have `want` free sectors, and `loose` without a run, by copying the few live records of others.
    # Runs can wait, so they examine a few sectors a call; all other writes examine all of them.
    def _gain(self, want: int, loose: int = 0, walks: int = _SECTORS_MAX) -> bool:
        if (self._free < want or self._loose < loose) and self._dirty:
            self._dirty = False  # not again from within
            try:
                self.sync()  # what was trimmed is free for others once flash knows of it
            except LogFull:
                pass
            self._count()
        if self._busy:
            walks = 0
        elif walks > _WALKS and self._free < want:
            self._probed = 0
        while (
            (self._free < want or self._loose < loose) and self._free > 1 and walks and self._probed < self._n
        ):
            self._probe = p = (self._probe + 1) % self._n
            self._probed += 1
            if p != self._p and self._holds(p):
                walks -= 1
                self._reclaim(p, 2, self._free >= want)
        return self._free >= want and self._loose >= loose

    # The live runs in sector p: stream, xi, how many, body. The body is read before anything is written.
    def _runs(self, p: int) -> "Iterator[tuple[int, int, int, memoryview]]":
        seq = self._seq[p]
        last = {}
        for kind, key, buf, i, end in self._items(p, _HEADER, self.buf):
            if kind == _STREAM:
                last[key] = unpack_from("<Q", buf, i)[0]
            elif kind <= _RUN_FAR:
                xi, n, start = self._span(kind, key, buf, last)
                s = self._streams.get(key)
                if s is not None and (seq << 12) + (self._off >> 4) >= s.birth and s.first < xi + n:
                    yield key, xi, n, memoryview(buf)[start:end]

    # Copies the live records of sector p if they are at most 1/`share` of a sector; p is free then.
    # loose: for a sector without a run, so no two others may get some instead.
    def _reclaim(self, p: int, share: int, loose: bool = False) -> bool:
        seq = self._seq[p]
        if not seq:  # it is free already: named void twice, it would stay so when it is in use again
            return False
        blobs = []
        size = 0
        for key, b in self._blobs.items():
            if self._touches(b, seq):
                blobs.append(key)
                size += b[2] * 17 // 16 + 64
        for run in self._runs(p):
            size += len(run[3]) + 42
        if size * share > self._usable:
            return False
        if loose and self._pinned != self._p and size + 64 > self._lim - self._pos:
            return False
        if self._free < 2 + self._holds(self._p) and size + 64 > self._lim - self._pos:
            return False  # not even for a moment
        self._busy = True
        try:
            for key in blobs:
                b = self._blobs[key]
                self._store(key, b[2], self._pieces(b, bytearray(len(self.buf))), self.buf)
            for key, xi, n, body in self._runs(p):
                self._write(_RUN_FAR, key, pack("<HQQ", n, xi, 0) + bytes(body), 1)
                self._streams[key].note(self._p, xi, xi + n - 1)
            self.sync()  # trimmed entries were not copied: flash records that before the sector is void
            self._drop_sector(p)
            self._out.append(p)
            self._write(_NOTE, 0, self._marked([p]), 1)
            self._counts[5] += 1
        except (LogFull, StopIteration):  # copied records exist twice, and equal; or a blob is damaged
            return False
        finally:
            self._busy = False
            self._dirty = True
        self._count()
        return True

    # Does work ahead of need; True if there was some. Call it when there is time.
    def idle(self) -> bool:
        if not self._sound or self._pos + 48 + 16 * len(self._streams) > self._size:
            return False
        if self._next < 0:
            return self._announce()
        if not self._ready:
            self._ready = self._erase(self._next)
            if self._ready:
                self._count()
            else:
                self._retire(self._next)
            return True
        p = self._skip
        self._skip = -1
        return p >= 0 and self._free > 4 and self._reclaim(p, 4)

    # ---- streams ------------------------------------------------------------------------------

    # Appends xi ... xi + n - 1. False, and nothing written, if only the reserve is left.
    def append_run(self, stream: int, xi: int, n: int, ts_last: int, body: "Readable") -> bool:
        s = self._streams.get(stream)
        if xi != (s.last + 1 if s else 1) or not 0 < n < 65536 or not body:
            raise LogError("stream %d: %d entries from %d on cannot follow its tail" % (stream, n, xi))
        if not self._admits(26 + len(body)):
            return False
        try:
            if s is None:
                self._start(stream, 0, 0, 3)
                s = self._streams[stream]
            ts = ts_last - s.ts
            start = 14 if 0 <= ts < 1 << 32 else 26
            end = start + len(body)
            self._room(end, 3, _WALKS)
        except LogFull:
            return False
        buf = self.buf if end <= len(self.buf) else bytearray(end + 15 & ~15)
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
        if self._pinned != self._p:
            self._pinned = self._p
            self._loose -= 1
        return True

    # May a run of this many bytes be written? It may use sectors that have live runs; it pins one more only
    # if the reserve is left. If the reserve is not complete, a sector that got runs by copying them is not
    # filled up with others.
    def _admits(self, end: int) -> bool:
        fits = self._pos + ((end + 15) & ~15) <= self._lim
        here = fits and self._pinned == self._p and self._loose >= self._floor
        return here or self._gain(0, self._floor + 1, _WALKS)

    # Whether entries of `size` bytes would be accepted now.
    def takes(self, size: int) -> bool:
        size = min(size + 26, self._usable, _END_MAX)
        if not self._admits(size):
            return False
        try:
            self._room(size, 3, _WALKS)
        except LogFull:
            return False
        return True

    # The stream continues after xi_last; what was held of it is dropped.
    def start_stream(self, stream: int, xi_last: int, ts_last: int) -> None:
        self._start(stream, xi_last, ts_last, 1)

    def _start(self, stream: int, xi_last: int, ts_last: int, floor: int) -> None:
        s = self._streams.get(stream)
        if s is None:
            self._fits(32)
        elif xi_last < s.last:
            raise LogError("stream %d: its tail %d never goes back, to %d" % (stream, s.last, xi_last))
        else:
            ts_last = max(ts_last, s.ts)
        self._room(36, floor)
        birth = (self._seq[self._p] << 12) + (self._pos >> 4)
        self._write(_STREAM, stream, pack("<QQIQ", xi_last, ts_last, 0, 0))
        self._pool = {}
        if s is not None:
            self._pool[stream] = self._streams.pop(stream)
        self._stream(stream).begin(xi_last, ts_last, 0, birth)
        self._limit()
        self._freed()

    # Reads the body of the record that holds xi into buf: its length, 0 if it is not held.
    def read_run(self, stream: int, xi: int, buf: "Writable") -> int:
        s = self._streams.get(stream)
        if s is None or not s.first <= xi <= s.last:
            return 0
        if xi == s.read + 1 and self._seq[s.at] == s.at_seq:
            n = self._find(s, stream, xi, buf, s.at, s.off, s.base)
            if n:
                return n
        top = (s.last + 1) & _LOW
        far = s.last + 1 - xi
        for p in range(self._n):
            hi = s.hi[p]
            if hi and (top - hi) & _LOW <= far <= (top - s.lo[p]) & _LOW:
                n = self._find(s, stream, xi, buf, p, _HEADER, 0)
                if n:
                    return n
        return 0

    def _find(self, s: _Stream, stream: int, xi: int, buf: "Writable", p: int, off: int, base: int) -> int:
        seq = self._seq[p]
        last = {stream: base}
        for kind, key, rec, i, end in self._items(p, off, self.buf):
            if key != stream:
                continue
            if kind == _STREAM:
                last[key] = unpack_from("<Q", rec, i)[0]
            elif kind <= _RUN_FAR:
                first, n, start = self._span(kind, key, rec, last)
                if first <= xi < first + n and (seq << 12) + (self._off >> 4) >= s.birth:
                    n = end - start
                    if n > len(buf):
                        raise LogError("stream %d: a body of %d bytes, room for %d" % (stream, n, len(buf)))
                    buf[:n] = memoryview(rec)[start:end]
                    s.read = first + unpack_from("<H", rec, 8)[0] - 1
                    s.at = p
                    s.at_seq = seq
                    s.off = self._behind
                    s.base = last[key]
                    return n
        return 0

    # Everything up to xi may be deleted. Flash records it with the next sector, or by sync.
    def trim(self, stream: int, xi: int) -> None:
        s = self._streams.get(stream)
        if s is not None and xi >= s.first:
            s.first = min(xi, s.last) + 1
            self._freed()

    # Makes what was trimmed durable.
    def sync(self, floor: int = 1) -> None:
        for key, s in self._streams.items():
            if s.saved != s.first:
                self._write(_TRIM, key, pack("<Q", s.first), floor)
                s.saved = s.first

    # (last xi, last ts); (0, 0) of a stream that never was.
    def tail(self, stream: int) -> tuple[int, int]:
        s = self._streams.get(stream)
        return (s.last, s.ts) if s else (0, 0)

    # First live xi; the one after the tail if nothing is live.
    def first(self, stream: int) -> int:
        s = self._streams.get(stream)
        return s.first if s else 1

    # Nothing is held of the stream, its tail included.
    def forget(self, stream: int) -> None:
        if stream in self._streams:
            self._write(_FORGET, stream, b"", 1)
            del self._streams[stream]
            self._limit()
            self._freed()

    def streams(self) -> list[int]:
        return sorted(self._streams)

    def _freed(self) -> None:
        self._dirty = True
        self._probed = 0

    # ---- facts --------------------------------------------------------------------------------

    # Refuses a value that would make the table larger than three quarters of a sector.
    def _fits(self, more: int) -> None:
        if self._table_size() + more > table_max(self._size):
            raise LogFull("facts, streams and blobs together need more than three quarters of a sector")

    def put(self, key: int, value: "Readable") -> None:
        old = self._facts.get(key)
        if old == value:
            return
        if len(value) > 200 or not 0 <= key < 65536:
            raise LogError("fact %d: keys are below 65536, values have up to 200 bytes" % key)
        more = len(value) + 4 if old is None else len(value) - len(old)
        if more > 0:
            self._fits(more)
        self._write(_FACT, key, value, 1)
        self._facts[key] = bytes(value)

    def get(self, key: int) -> bytes | None:
        return self._facts.get(key)

    def drop(self, key: int) -> None:
        if key in self._facts:
            self._write(_DROP, key, b"", 1)
            del self._facts[key]

    def keys(self) -> list[int]:
        return sorted(self._facts)

    # ---- blobs --------------------------------------------------------------------------------

    # data: bytes, or a list of parts; or parts of `size` bytes together that are made one by one. For these
    # this log may be read by reading.py; in another way only where records are built in a `buf` beside its
    # own. The old value stays live until all of the new one is written.
    def put_blob(
        self,
        key: int,
        data: "Readable | Iterable[Readable]",
        size: int = -1,
        buf: bytearray | None = None,
    ) -> None:
        if not 0 <= key < 65536:
            raise LogError("blob %d: keys are below 65536" % key)
        parts: "Any" = data
        if size < 0:
            if not isinstance(data, (list, tuple)):
                parts = (data,)
            size = sum(map(len, parts))
        if key not in self._blobs:
            self._fits(20)
        self._store(key, size, iter(parts), buf or self.buf)

    # buf: records are built there.
    def _store(self, key: int, size: int, parts: "Iterator[Readable]", buf: bytearray) -> None:
        floor = 1 if self._busy else 3
        end = 8 + size
        whole = end <= len(buf) and end <= self._usable - 16
        pinned = self._holds(self._p)
        want = 0 if pinned or self._busy else floor
        most = size * 17 // 16 + 96
        if self._pos + most > self._lim:
            # In pieces it may begin new sectors.
            want = floor + (int(pinned) if whole else 1 + most // max(64, self._usable - 64))
        if want and not self._gain(want):
            raise LogFull("blob %d: no room for %d bytes" % (key, size))
        self._part = b""
        if whole:
            self._room(end, floor)
            self._fill(parts, buf, 8, end)
            pack_into("<HH", buf, 4, _BLOB << 12 | size, key)
            b = (self._p, self._pos, size, self._p, crc32(memoryview(buf)[8:end]))
            self._emit(buf, end)
        else:
            b = self._store_chain(key, size, parts, floor, buf)
        self._counts[2] += size
        self._blobs[key] = b
        self._freed()

    def _store_chain(
        self, key: int, size: int, parts: "Iterator[Readable]", floor: int, buf: bytearray
    ) -> "_Blob":
        self._chain = chain = (self._chain + 1) & 0xFFFF
        self._hold = self._seq[self._p]
        try:
            index = crc = done = 0
            while done < size:
                self._room(64, floor)
                end = min(size - done + 10, (self._lim - self._pos) & ~15, len(buf))
                self._fill(parts, buf, 10, end)
                if not index:
                    p = self._p
                    off = self._pos
                pack_into("<HHH", buf, 4, _PIECE << 12 | end - 8, chain, index)
                crc = crc32(memoryview(buf)[10:end], crc)
                self._emit(buf, end)
                index += 1
                done += end - 10
            self._room(24, floor)
            self._write(_CLOSE, key, pack("<HIIHHH", chain, size, crc, p, off >> 4, 0))
        finally:
            self._hold = 0
        return (p, off, size, self._p, crc)

    # Moves the next bytes of parts into buf.
    def _fill(self, parts: "Iterator[Readable]", buf: bytearray, i: int, end: int) -> None:
        part = self._part
        while i < end:
            if not len(part):
                part = memoryview(next(parts))
            n = min(end - i, len(part))
            buf[i : i + n] = part[:n]
            part = part[n:]
            i += n
        self._part = part

    # The bytes of a blob, piece by piece; use each before requesting the next.
    def _pieces(self, b: "_Blob", buf: bytearray) -> "Iterator[memoryview]":
        p, off, size, to, _ = b
        chain = -1
        index = 0
        while True:
            for kind, key, rec, i, end in self._items(p, off, buf):
                if kind == _PIECE and i == 8 and chain in (-1, key) and unpack_from("<H", rec, 8)[0] == index:
                    chain = key
                    index += 1
                    i = 10
                elif kind != _BLOB or index:
                    continue
                size -= end - i
                yield memoryview(rec)[i:end]
                if size <= 0:
                    return
            seq = self._seq[p]
            after = 0
            for other in self._seq:
                if seq < other <= self._seq[to] and (not after or other < after):
                    after = other
            if not after:
                return
            p = 0
            while self._seq[p] != after:
                p += 1
            off = _HEADER

    def get_blob(self, key: int) -> bytes | None:
        b = self._blobs.get(key)
        if b is None:
            return None
        data = bytearray(b[2])
        if self.read_blob(key, 0, data) != b[2] or crc32(data) != b[4]:
            self._counts[4] += 1
            return None
        return bytes(data)

    # 0 if there is none.
    def blob_size(self, key: int) -> int:
        b = self._blobs.get(key)
        return b[2] if b else 0

    # Reads from offset on as much as buf takes: how many bytes.
    def read_blob(self, key: int, offset: int, buf: "Writable") -> int:
        b = self._blobs.get(key)
        done = 0
        if b and offset < b[2]:
            for piece in self._pieces(b, self.buf):
                if offset < len(piece):
                    n = min(len(piece) - offset, len(buf) - done)
                    buf[done : done + n] = piece[offset : offset + n]
                    done += n
                    if done == len(buf):
                        break
                offset = max(0, offset - len(piece))
        return done

    def drop_blob(self, key: int) -> None:
        if key in self._blobs:
            self._write(_DROP_BLOB, key, b"", 1)
            del self._blobs[key]
            self._freed()

    # src becomes dst, whose old value is deleted in the same instant.
    def rename_blob(self, src: int, dst: int) -> None:
        if src not in self._blobs:
            raise LogError("no blob %d to rename" % src)
        if src != dst:
            self._write(_RENAME, src, pack("<H", dst), 1)
            self._blobs[dst] = self._blobs.pop(src)
            self._freed()

    def blob_keys(self) -> list[int]:
        return sorted(self._blobs)

    # ---- figures ------------------------------------------------------------------------------

    # The sizes of all blobs that may have to be here at once, the one being written included: streams
    # keep out of the sectors that these need, whatever they hold already. True if they are free now.
    def ensure_reserve(self, sizes: "Sequence[int]") -> bool:
        self._reserve = sizes
        self._limit()
        return self._gain(3, self._floor)

    # Bytes that streams may still take.
    def free_bytes(self) -> int:
        loose = self._n - len(self._bad)
        for p in range(self._n):
            loose -= self._runs_in(p)
        here = max(0, self._lim - self._pos) if self._runs_in(self._p) else 0
        return max(0, loose - self._floor) * self._usable + here

    # Bytes that streams may take of an empty log.
    def usable_bytes(self) -> int:
        return max(0, self._n - len(self._bad) - self._floor) * self._usable

    # Sectors in use, and bytes of each.
    def sectors(self) -> tuple[int, int]:
        return self._n - len(self._bad), self._size

    def stats(self) -> dict[str, int]:
        names = ("programs", "programmed", "bodies", "erases", "skipped", "reclaimed")
        stats = dict(zip(names, self._counts))
        stats["bad"] = len(self._bad)
        return stats


# Bytes of a sector that its table may take at most.
def table_max(sector_bytes: int) -> int:
    return sector_bytes * 3 // 4


# Sectors that blobs of these sizes occupy at most, each sector with `usable` bytes. A large one
# has sectors of its own but for its ends. Small ones that leave half of a sector unused are moved
# together when space is short; those in the newest sector are not.
def sectors_for(sizes: "Sequence[int]", usable: int) -> int:
    large = small = 0
    for size in sizes:
        size = size * 17 // 16 + 96
        if 2 * size <= usable:
            small += size
        else:
            large += 2 + size // max(64, usable - 64)
    return large + 1 + 2 * small // max(64, usable) + (small > 0) if sizes else 0
