# A bounded run of consecutive entries in RAM: the transfer state of a port, the receive queue of an
# edge. Holds the entries (first, last]; grows at the back, is trimmed at the front.
#
# Entries are stored in circular columns; what they share (ts, step, hole, unsync) is stored once for each
# chunk. The columns are allocated at the start, the chunks grow where a stream is cut up finely (a
# join of synchronised and unsynchronised boards), never beyond one an entry; appending and reading
# copy slices, never elements one by one. Several readers go through a ring at their own pace, each
# with a Cursor.

from array import array

from ..offboard.compat import TYPE_CHECKING
from .batch import SPAN_US

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .alphabet import Alphabet
    from .batch import Batch


# Where a reader stands: it has taken everything up to xi.
class Cursor:
    def __init__(self, xi: int = 0) -> None:
        self.xi = xi
        self.chunk = 0  # absolute number of the chunk it stood in last: where to look first

    def move(self, xi: int) -> None:
        self.xi = xi


class Ring:
    def __init__(self, alphabet: "Alphabet", cap: int, chunks: int) -> None:
        self.cap = cap
        # The columns, for copying slices.
        self.mem: "tuple[memoryview, ...]" = tuple(map(memoryview, alphabet.arrays(cap)))
        # Offsets, made at the start or when the first irregular batch comes.
        self.at: "array[int] | None" = None
        self.k0 = self.k1 = 0
        self._slots(min(cap, chunks))
        self._tail: "Batch | None" = None  # see `lent`
        self.reset(0)

    def make_at(self) -> None:
        if self.at is None:
            self.at = array("i", bytes(4 * self.cap))
            self.at_mem = memoryview(self.at)

    # Room for n chunks; those there are move to their new places.
    def _slots(self, n: int) -> None:
        old: "tuple[Any, ...]" = ()
        if self.k1:
            old = (self.c_dt, self.c_what, self.c_xi, self.c_ts, self.c_back)
        self.c_dt: "array[int]" = array("i", bytes(4 * n))
        # 1: stamped unsynchronised; 2 * reason of a hole.
        self.c_what: "array[int]" = array("H", bytes(2 * n))
        self.c_xi: list[int] = [0] * n  # the entry before the chunk's first
        self.c_ts: "array[int]" = array("q", bytes(8 * n))  # a list would hold a long integer in each
        self.c_back: list[int] = [0] * n
        new = (self.c_dt, self.c_what, self.c_xi, self.c_ts, self.c_back)
        for was, now in zip(old, new):
            for k in range(self.k0, self.k1):
                now[k % n] = was[k % self.chunks]
        self.chunks: int = n

    # Empty, the next entry being xi + 1.
    def reset(self, xi: int) -> None:
        self.first = xi
        self.last = xi
        self.head = 0  # index of entry first + 1
        self.count = 0
        self.k0 = 0  # absolute number of the oldest chunk
        self.k1 = 0  # ... after the newest
        self._tail = None

    # Most entries that can be appended now.
    def room(self) -> int:
        return self.cap - self.count

    # Append entries i0 .. i0 + n of a batch; the caller made sure of the room. lent: the caller leaves this
    # batch as it is until it calls `stale`.
    def append(self, batch: "Batch", i0: int, n: int, lent: bool = False) -> None:
        xi = self.last
        cap = self.cap
        tail = self.count
        end = tail + n
        assert end <= cap, "ring overflow"
        assert batch.xi + i0 == xi + 1, "ring: entries out of order"
        self.count = end
        tail += self.head
        if tail >= cap:
            tail -= cap
        end = tail + n
        ts = batch.ts
        dt = batch.dt
        what = batch.unsync
        if batch.hole:
            what += 2 * batch.hole
        else:
            if end <= cap and not i0:
                k = 0
                for m in batch.mem:
                    self.mem[k][tail:end] = m[:n]
                    k += 1
            else:
                _copy_in(self.mem, batch.mem, tail, i0, n, cap)
            if dt < 0:
                if self.at is None:
                    self.make_at()
                if end <= cap and not i0:
                    self.at_mem[tail:end] = batch.at_mem[:n]
                else:
                    _copy_in((self.at_mem,), (batch.at_mem,), tail, i0, n, cap)
            elif i0:
                ts += i0 * dt
        k = self.k1
        c = (k - 1) % self.chunks
        # A regular run goes on, or a few irregular entries join the newest chunk; otherwise a new one begins.
        if (
            k == self.k0
            or what > 1
            or self.c_what[c] != what
            or (self.c_dt[c] != dt or self.c_ts[c] + (xi - self.c_xi[c]) * dt != ts if dt >= 0 else n > 16)
            or (dt < 0 and not self._joins(batch, c, ts, tail, n))
        ):
            if k - self.k0 == self.chunks:
                self._slots(min(cap, 2 * self.chunks))
            c = k % self.chunks
            self.c_dt[c] = dt
            self.c_xi[c] = xi
            self.c_ts[c] = ts
            self.c_what[c] = what
            if what > 1:
                self.c_back[c] = batch.back
            self.k1 = k + 1
        self.last = xi + n
        self._tail = batch if lent and not i0 and n == batch.n else None

    # The batch that was appended last, if it is still as it was and its first entry follows xi, or None. A
    # reader takes it as it is: most of what runs on one host comes this way, and is not copied.
    def lent(self, xi: int) -> "Batch | None":
        b = self._tail
        return b if b is not None and b.xi == xi + 1 else None

    # The batch that was appended last is written again: it is not what the ring holds any more.
    def stale(self) -> None:
        self._tail = None

    # Let irregular entries join chunk c; true when they did.
    def _joins(self, batch: "Batch", c: int, ts: int, tail: int, n: int) -> bool:
        shift = ts - self.c_ts[c]
        if self.c_dt[c] >= 0 or shift > SPAN_US or shift + batch.at[batch.n - 1] > SPAN_US:
            return False
        at: "Any" = self.at  # made when the chunk's first irregular entries came
        for _ in range(n):
            at[tail] += shift
            tail += 1
            if tail == self.cap:
                tail = 0
        return True

    # Copy into `batch` the entries after the cursor, at most `limit`, all of one chunk; how many.
    # The cursor stays, so that the reader may take fewer. It must not stand before `first`.
    def read(self, cur: Cursor, batch: "Batch", limit: int) -> int:
        xi = cur.xi
        if xi >= self.last:
            return 0
        k = cur.chunk
        if not (self.k0 <= k < self.k1 and self.c_xi[k % self.chunks] <= xi < self._end(k)):
            assert xi >= self.first, "ring: cursor before the first entry"
            k = self.k0
            while xi >= self._end(k):
                k += 1
            cur.chunk = k
        c = k % self.chunks
        off = xi - self.c_xi[c]
        n = self._end(k) - xi
        if n > limit:
            n = limit
        what = self.c_what[c]
        ts = self.c_ts[c]
        if what > 1:
            batch.begin_one(xi + 1, ts, what & 1, what >> 1, self.c_back[c])
            return n
        dt = self.c_dt[c]
        batch.begin(xi + 1, n, ts + off * dt if dt > 0 and off else ts, dt, what)
        start = self.head + (xi - self.first)
        if start >= self.cap:
            start -= self.cap
        _copy_out(batch.mem, self.mem, start, n, self.cap)
        if dt < 0:
            _copy_out((batch.at_mem,), (self.at_mem,), start, n, self.cap)
        return n

    # The value of a field of the newest entry that was appended, also where it is trimmed by now. None: there
    # is none since `reset`, or it is a hole.
    def newest(self, field: int) -> "Any":
        if not self.k1 or self.c_what[(self.k1 - 1) % self.chunks] > 1:
            return None
        return self.mem[field][(self.head + self.count - 1) % self.cap]

    # The last entry of chunk k.
    def _end(self, k: int) -> int:
        k += 1
        return self.c_xi[k % self.chunks] if k < self.k1 else self.last

    # ... of the oldest chunk.
    def chunk_end(self) -> int:
        return self._end(self.k0)

    # Drop everything up to xi.
    def trim(self, xi: int) -> None:
        n = xi - self.first
        if n <= 0:
            return
        assert n <= self.count, "ring: trimmed beyond its end"
        self.first = xi
        self.count -= n
        self.head += n
        if self.head >= self.cap:
            self.head -= self.cap
        while self.k0 < self.k1 and self._end(self.k0) <= xi:
            self.k0 += 1


# Copy n entries of straight columns to place `tail` of circular ones. All are memoryviews.
def _copy_in(
    into: "Sequence[memoryview]", cols: "Sequence[memoryview]", tail: int, i0: int, n: int, cap: int
) -> None:
    end = tail + n
    for a, m in zip(into, cols):
        if end <= cap:
            a[tail:end] = m[i0 : i0 + n]
        else:
            k = cap - tail
            a[tail:cap] = m[i0 : i0 + k]
            a[0 : end - cap] = m[i0 + k : i0 + n]


def _copy_out(
    into: "Sequence[memoryview]", cols: "Sequence[memoryview]", start: int, n: int, cap: int
) -> None:
    end = start + n
    for a, m in zip(into, cols):
        if end <= cap:
            a[0:n] = m[start:end]
        else:
            k = cap - start
            a[0:k] = m[start:cap]
            a[k:n] = m[0 : end - cap]
