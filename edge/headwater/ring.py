# A bounded run of consecutive entries in RAM: the transfer state of a port, the receive queue of an
# edge. Holds the entries (first, last]; grows at the back, is trimmed at the front.
#
# Entries stand in circular columns; what they share (ts, step, hole, unsync) stands once for each
# chunk. The columns are allocated at the start, the chunks grow where a stream is cut up finely (a
# join of synchronised and unsynchronised boards), never beyond one an entry; appending and reading
# copy slices, never elements one by one. Several readers go through a ring at their own pace, each
# with a Cursor.

from array import array

from .batch import SPAN_US


# Where a reader stands: it has taken everything up to xi.
class Cursor:
    def __init__(self, xi=0):
        self.xi = xi
        self.chunk = 0  # absolute number of the chunk it stood in last: where to look first


class Ring:
    def __init__(self, alphabet, cap, chunks):
        self.cap = cap
        self.cols = alphabet.arrays(cap)
        self.mem = tuple([memoryview(c) for c in self.cols])
        self.at = None  # offsets, made when the first irregular batch comes
        self.k0 = self.k1 = 0
        self._slots(min(cap, chunks))
        self.tail = None  # the batch that was appended last, if it is still as it was
        self.reset(0)

    # Room for n chunks; those there are move to their new places.
    def _slots(self, n):
        old = ()
        if self.k1:
            old = (self.c_n, self.c_dt, self.c_hole, self.c_unsync, self.c_xi, self.c_ts, self.c_back)
        self.c_n = array("H", bytes(2 * n))
        self.c_dt = array("i", bytes(4 * n))
        self.c_hole = bytearray(n)
        self.c_unsync = bytearray(n)
        self.c_xi = [0] * n  # the entry before the chunk's first
        self.c_ts = array("q", bytes(8 * n))  # a list would hold a long integer in each
        self.c_back = [0] * n
        new = (self.c_n, self.c_dt, self.c_hole, self.c_unsync, self.c_xi, self.c_ts, self.c_back)
        for was, now in zip(old, new):
            for k in range(self.k0, self.k1):
                now[k % n] = was[k % self.chunks]
        self.chunks = n

    # Empty, the next entry being xi + 1.
    def reset(self, xi):
        self.first = xi
        self.last = xi
        self.head = 0  # index of entry first + 1
        self.count = 0
        self.k0 = 0  # absolute number of the oldest chunk
        self.k1 = 0  # ... behind the newest
        self.tail = None

    # Most entries that can be appended now.
    def room(self):
        return self.cap - self.count

    # Append entries i0 .. i0 + n of a batch; the caller made sure of the room.
    def append(self, batch, i0, n):
        assert self.count + n <= self.cap, "ring overflow"
        assert batch.xi + i0 == self.last + 1, "ring: entries out of order"
        tail = self.head + self.count
        if tail >= self.cap:
            tail -= self.cap
        end = tail + n
        cap = self.cap
        dt = batch.dt
        if not batch.hole:
            if end <= cap and not i0:
                k = 0
                for m in batch.mem:
                    self.mem[k][tail:end] = m[:n]
                    k += 1
            else:
                _copy_in(self.mem, batch.mem, tail, i0, n, cap)
            if dt < 0:
                if self.at is None:
                    self.at = array("i", bytes(4 * cap))
                    self.at_mem = memoryview(self.at)
                _copy_in((self.at_mem,), (batch.at_mem,), tail, i0, n, cap)
        base = batch.ts if dt < 0 or not i0 else batch.ts + i0 * dt
        if self.k1 == self.k0 or batch.hole or not self._joins(batch, base, dt, n, tail):
            if self.k1 - self.k0 == self.chunks:
                self._slots(min(self.cap, 2 * self.chunks))
            c = self.k1 % self.chunks
            self.c_n[c] = n
            self.c_dt[c] = dt
            self.c_xi[c] = self.last
            self.c_ts[c] = base
            self.c_hole[c] = batch.hole
            self.c_back[c] = batch.back
            self.c_unsync[c] = batch.unsync
            self.k1 += 1
        self.count += n
        self.last += n
        self.tail = batch if not i0 and n == batch.n else None

    # Let a few irregular entries join the newest chunk, or a regular run go on; true when they did.
    def _joins(self, batch, base, dt, n, tail):
        c = (self.k1 - 1) % self.chunks
        had = self.c_n[c]
        if self.c_hole[c] or self.c_unsync[c] != batch.unsync or had + n > 60000:
            return False
        if dt >= 0:
            if self.c_dt[c] != dt or self.c_ts[c] + had * dt != base:
                return False
        else:
            shift = base - self.c_ts[c]
            end = shift + batch.ts_of(batch.n - 1) - base
            if self.c_dt[c] >= 0 or n > 16 or shift > SPAN_US or end > SPAN_US:
                return False
            at = self.at
            for _ in range(n):
                at[tail] += shift
                tail += 1
                if tail == self.cap:
                    tail = 0
        self.c_n[c] = had + n
        return True

    # Copy into `batch` the entries after the cursor, at most `limit`, all of one chunk; how many.
    # The cursor stays, so that the reader may take fewer. It must not stand before `first`.
    def read(self, cur, batch, limit):
        xi = cur.xi
        if xi >= self.last:
            return 0
        k = cur.chunk
        c = k % self.chunks
        if not (self.k0 <= k < self.k1 and self.c_xi[c] <= xi < self.c_xi[c] + self.c_n[c]):
            assert xi >= self.first, "ring: cursor before the first entry"
            k = self.k0
            while True:
                c = k % self.chunks
                if xi < self.c_xi[c] + self.c_n[c]:
                    break
                k += 1
            cur.chunk = k
        off = xi - self.c_xi[c]
        n = self.c_n[c] - off
        if n > limit:
            n = limit
        batch.xi = xi + 1
        batch.n = n
        dt = self.c_dt[c]
        batch.dt = dt
        batch.unsync = self.c_unsync[c]
        batch.hole = self.c_hole[c]
        batch.back = self.c_back[c]
        batch.ts = self.c_ts[c] + off * dt if dt > 0 and off else self.c_ts[c]
        if batch.hole:
            batch.at[0] = 0
        else:
            start = self.head + (xi - self.first)
            if start >= self.cap:
                start -= self.cap
            _copy_out(batch.mem, self.mem, start, n, self.cap)
            if dt < 0:
                _copy_out((batch.at_mem,), (self.at_mem,), start, n, self.cap)
        return n

    # The last entry of the oldest chunk.
    def chunk_end(self):
        c = self.k0 % self.chunks
        return self.c_xi[c] + self.c_n[c]

    # Let go of everything up to xi.
    def trim(self, xi):
        n = xi - self.first
        if n <= 0:
            return
        assert n <= self.count, "ring: trimmed beyond its end"
        self.first = xi
        self.count -= n
        self.head += n
        if self.head >= self.cap:
            self.head -= self.cap
        while self.k0 < self.k1:
            c = self.k0 % self.chunks
            if self.c_xi[c] + self.c_n[c] > xi:
                break
            self.k0 += 1


# Copy n entries of straight columns to place `tail` of circular ones. All are memoryviews.
def _copy_in(into, cols, tail, i0, n, cap):
    end = tail + n
    for a, m in zip(into, cols):
        if end <= cap:
            a[tail:end] = m[i0 : i0 + n]
        else:
            k = cap - tail
            a[tail:cap] = m[i0 : i0 + k]
            a[0 : end - cap] = m[i0 + k : i0 + n]


def _copy_out(into, cols, start, n, cap):
    end = start + n
    for a, m in zip(into, cols):
        if end <= cap:
            a[0:n] = m[start:end]
        else:
            k = cap - start
            a[0:k] = m[start:cap]
            a[k:n] = m[0 : end - cap]
