# The producer's side of a stream: an output port, its transfer state, its readers.
#
# Theory. The transfer state is the run (first, last] that some consumer has not yet made safe.
# It lies in RAM (the ring), in the flash log (sources, spilled parts, outputs with
# durable="flash"), or both. A reader is what the port knows of the consumer of one edge.
#
# Invariants.
#   - Nothing above the smallest safe xi of all readers is ever let go (except a declared gap of an
#     edge to the lake).
#   - A reader's epoch never falls, survives a restart, and an acknowledgement of an older epoch
#     changes nothing.
#   - A reader's name is the furthest checkpoint that its consumer made safe; what is let go lies at
#     or before it.

import struct

from . import block, pack, wire
from .batch import SPAN_US, Batch
from .const import const
from .keyspace import F_GAPS, F_READER, stream_key
from .plan import DROP_OLDEST, FLASH, LOCAL, OUTSIDE, SPILL
from .position import further
from .ring import Cursor, Ring

RETRY_US = 1000000  # what was said and not answered is said again after this
_RETRY_MAX_US = const(8000000)


class Reader:
    def __init__(self, edge, epoch):
        self.edge = edge
        self.local = None  # the InEdge, where the consumer runs on this host
        self.host = -1  # host of the consumer, -1 while unknown
        self.epoch = epoch  # newest epoch of the consumer that spoke: at first the one it starts with
        self.safe = 0
        self.saved = 0  # of it, what flash knows of at least
        self.name = []
        self.holders = ()
        self.load = 0
        self.gaps = []  # [first, last, reason] declared on this edge, not safe yet
        # What follows is forgotten in a restart; the consumer speaks first and says it anew.
        self.live = False
        self.cur = Cursor()
        self.got = 0
        self.depth = 0  # of the consumer: Instance.settle_depth
        self.room = 0
        self.progress_us = 0
        self.rto_us = 0
        self.bound_sent = 0
        self.crs_sent = 0  # serial number of the last Check-Request sent

    # A restart, or a checkpoint from elsewhere, knows this of the consumer. What is known here may be newer.
    def adopt(self, epoch: "tuple[int, int]", safe: int, name: list[int], holders: list[int]) -> None:
        self.epoch = max(self.epoch, epoch)
        self.safe = max(self.safe, safe)
        if further(name, self.name):
            self.name = name
            self.holders = tuple(holders)

    # The gaps that the lake was not told yet.
    def owe(self, gaps: list[list[int]]) -> None:
        self.gaps = gaps

    # The producer begins another incarnation, of which the consumer has nothing.
    def forget(self) -> None:
        self.safe = self.got = 0
        self.cur = Cursor()
        self.name = []
        self.holders = ()
        self.live = False

    # The consumer ran on this host, and does no more.
    def leave(self) -> None:
        self.local = None
        self.live = False


class OutPort:
    # stream: number of the port's stream in the log. logged: everything goes to the log at once. inc: the
    # incarnation of a source.
    def __init__(self, host, vertex, number, edges, logged, inc=0):
        self.host = host
        self.vertex = vertex
        self.number = number
        self.alphabet = vertex.outs[number]
        self.stream = stream_key(vertex.index, number)
        self.logged = logged
        # Inside a cycle a port blocks: what it spilled beyond the bound of a checkpoint could only be made
        # safe by consumers that wait for it. So does one that logs everything.
        self.loops = any([e.cyclic for e in edges])
        self.spills = logged or (not self.loops and any([e.policy == SPILL for e in edges]))
        self.drops = any([e.policy == DROP_OLDEST for e in edges])
        self.source = not vertex.kind
        batch = host.plan.batch
        cap = 0
        for e in edges:
            cap = max(cap, e.cap)
        if self.source:
            cap = min(cap, 4 * batch) if cap else 2 * batch  # the log holds the rest
        cap = max(cap, batch)
        self.ring = Ring(self.alphabet, cap, 4 + cap // batch)
        self.readers = [Reader(e, host.plan.first_epoch(e)) for e in edges]
        self.inside = any([e.dst != OUTSIDE for e in edges])
        self.crs = []  # (xi, cid, urgent, serial): Check-Requests, kept with what they stand in
        self.serial = 0
        self.trim_to = 0  # every reader has this safe
        self.bound = 0  # nothing below this ts follows entry `last`
        self.inc = inc
        self.sealed = 0  # entries up to this are in the log
        self.urged = -1  # what was trimmed to when its consumers were last pressed
        self.urged_us = 0
        self.bound_seen = 0
        self.scratch = None

    # Entries held: the lowest xi from which a reader can be served.
    def first(self):
        if self.spills:
            held = self.host.store.first(self.stream)
            if held and held - 1 < self.ring.first and self.sealed >= self.ring.first:
                return held - 1
        return self.ring.first

    # The same for one reader: what it was told is a gap, it need not be served.
    def first_for(self, r):
        first = self.first()
        for g in r.gaps[::-1]:
            if g[0] <= first <= g[1]:
                first = g[0] - 1
        return first

    def reader(self, edge):
        for r in self.readers:
            if r.edge is edge:
                return r

    # Room for n more entries; makes room by spilling, or says that there is none.
    def has_room(self, n):
        ring = self.ring
        if ring.room() >= n:
            return True
        if self.source or self.logged:
            self._evict(n)
        elif self.spills:
            self._spill(n)
        if ring.room() >= n:
            return True
        if self.drops:
            from . import gaps

            gaps.make_room(self, n)
        return ring.room() >= n

    # What the log holds need not stay in the ring.
    def _evict(self, n):
        ring = self.ring
        while ring.room() < n and ring.count:
            upto = ring.chunk_end()
            if self.loops:
                upto = min([upto] + [r.safe for r in self.readers if r.edge.dst != OUTSIDE])
                if upto <= ring.first:
                    return
            if upto > self.sealed and not (self.logged and self._seal_upto(upto)):
                return
            ring.trim(upto)

    # Move the oldest chunks into the log.
    def _spill(self, n):
        ring = self.ring
        while ring.room() < n and ring.count:
            upto = ring.chunk_end()
            if upto > self.sealed and not self._seal_upto(upto):
                return
            ring.trim(upto)

    def _seal_upto(self, upto):
        cur = Cursor(max(self.sealed, self.ring.first))
        b = self.spare()
        while cur.xi < upto:
            n = self.ring.read(cur, b, min(b.size, upto - cur.xi))
            if not self._log(b, n):
                return False
            cur.xi += n
        return True

    # Write a batch into the log, unless it is there; False where there is no room.
    def seal(self, batch, n):
        return batch.xi + n - 1 <= self.sealed or self._log(batch, n)

    # Only what the log does not hold yet: after a restart batches are cut elsewhere.
    def _log(self, batch, n):
        store = self.host.store
        i0 = self.sealed + 1 - batch.xi
        if i0 < 0:
            # What lies between was safe and is gone: the log goes on at the present place.
            store.start_stream(self.stream, batch.xi - 1, batch.ts_of(0))
            i0 = 0
        self.host.packed = None
        body = self.host.room(self.alphabet, n - i0)
        end = block.encode(batch, i0, n - i0, body, 0)
        if not i0:
            self.host.packed = (self, batch.xi, n, end)  # the frame that follows takes the same bytes
        body = memoryview(body)[:end]
        if not store.append_run(self.stream, batch.xi + i0, n - i0, batch.ts_of(n - 1), body):
            return False
        self.sealed = batch.xi + n - 1
        return True

    # Take n entries that the operator just produced.
    def append(self, batch, n):
        ring = self.ring
        ring.append(batch, 0, n)
        ts = batch.ts_of(n - 1)
        if self.logged and self.sealed < batch.xi - 1:
            self._seal_upto(ring.last)  # a checkpoint from elsewhere brought entries along
        elif self.logged:
            self.seal(batch, n)  # where the log is full, `_evict` tries again
        if ts > self.bound:
            self.bound = ts
        if self.trim_to > ring.first:
            ring.trim(min(self.trim_to, ring.last))

    # Nothing below ts follows. True where a consumer may not have seen the boundary yet.
    def promise(self, ts):
        if ts > self.bound:
            self.bound = ts
        if self.bound > self.bound_seen:
            self.bound_seen = self.bound
            return True
        return False

    # Let go of what every reader has safe.
    def trim(self):
        upto = min([r.safe for r in self.readers]) if self.readers else self.ring.last
        if upto > self.trim_to:
            self.trim_to = upto
            if self.spills:
                self.host.store.trim(self.stream, upto)
            crs = self.crs
            while crs and crs[0][0] <= upto:
                crs.pop(0)
        assert all([self.trim_to <= r.safe for r in self.readers]), "trimmed what a reader has not safe"
        self.ring.trim(min(upto, self.ring.last))

    # Copy the entries after the cursor into `batch`, from RAM or from the log; how many.
    def read(self, cur, batch, limit):
        ring = self.ring
        if cur.xi >= ring.first:
            return ring.read(cur, batch, limit)
        b = self.spare()
        self.host.packed = None
        body = self.host.room(self.alphabet, b.size)
        size = self.host.store.read_run(self.stream, cur.xi + 1, body)
        if not size:
            return 0
        block.decode(body, 0, size, b)
        off = cur.xi + 1 - b.xi
        # The log may reach further, as an earlier boot put it out: that is not put out again yet.
        n = min(limit, b.n - off, ring.last - cur.xi)
        _window(b, off, n, batch)
        return n

    # A batch beside that of the host, which holds nothing between two calls: that into which the operator
    # writes. Sources of one alphabet share one.
    def spare(self):
        self.ring.tail = None
        if self.scratch is None:
            for p in self.host.ports.values():
                if p.scratch and not p.vertex.kind and p.alphabet == self.alphabet:
                    self.scratch = p.scratch
                    return p.scratch
            self.scratch = Batch(self.alphabet, self.host.plan.batch)
        return self.scratch

    # The entries (start, end] as a checkpoint carries them: blocks, as large as batches may be, and how many
    # entries in turn are stamped synchronised and not. For a ring holds what came finely cut, like the output
    # of a join, in as many chunks, and with a block for each a checkpoint would have no bound.
    def blocks(self, start, end):
        out = []
        turns = []
        cur = Cursor(start)
        b = self.host.batch(self.alphabet)
        self.host.packed = None
        while cur.xi < end:
            n = self.read(cur, b, min(b.size, end - cur.xi))
            assert n, "transfer state: entries missing"
            _turn(turns, b.unsync, n)
            cur.xi += n
            n = self._follow(b, n, cur, end, turns)
            b.unsync = 0
            body = self.host.room(self.alphabet, n)
            size = block.encode(b, 0, n, body, 0)
            out.append(bytes(memoryview(body)[:size]))
        return [start, out, turns if len(turns) > 1 else []]

    # Put what follows the n entries of b in the ring behind them; how many there are then.
    def _follow(self, b, n, cur, end, turns):
        s = self.spare()
        while n < b.size and cur.xi < end and cur.xi >= self.ring.first and not b.hole:
            if b.dt >= 0 and n > 16:
                break  # a long regular run has no offsets
            k = self.ring.read(cur, s, min(b.size - n, end - cur.xi))
            shift = s.ts - b.ts
            if s.hole or s.ts_of(k - 1) - b.ts > SPAN_US:
                break
            if b.dt >= 0:
                for i in range(n):
                    b.at[i] = i * b.dt
                b.dt = -1
            for d, c in zip(b.mem, s.mem):
                d[n : n + k] = c[:k]
            for i in range(k):
                b.at[n + i] = shift + (i * s.dt if s.dt >= 0 else s.at[i])
            _turn(turns, s.unsync, k)
            n += k
            cur.xi += k
        return n

    # The operator writes what it puts out into this batch.
    def write_into(self, batch: Batch) -> None:
        self.scratch = batch

    # Empty in RAM, the next entry being xi + 1.
    def reset(self, xi: int) -> None:
        self.ring.reset(xi)
        self.trim_to = 0

    # Number from 1 under another incarnation. Nothing of the stream is held, in RAM or in the log.
    def renumber(self, inc: int) -> None:
        self.inc = inc
        self.reset(0)
        self.sealed = 0
        self.crs = []
        for r in self.readers:
            r.forget()

    # The log holds the entries from `first` to `last`. Of a stream that went to the lake, what was trimmed is
    # safe there: flash need not remember that to the entry.
    def found(self, first: int, last: int) -> None:
        self.sealed = last
        for r in self.readers:
            if r.edge.dst == OUTSIDE and last:
                r.safe = max(r.safe, first - 1)

    # Put a Check-Request at entry xi of the stream, for every consumer inside.
    def request(self, xi, cid, urgent):
        if not self.inside:
            return
        self.serial += 1
        self.crs.append((xi, cid, urgent, self.serial))
        if len(self.crs) > 8:
            self.crs.pop(0)  # later ones cover it
        for r in self.readers:
            if r.local and r.edge.dst != OUTSIDE:
                r.local.on_request(xi, cid, urgent)

    # The port is full: its consumers are asked for a checkpoint at once.
    def press(self):
        now = self.host.now
        if self.urged == self.trim_to and now - self.urged_us < RETRY_US:
            return
        self.urged = self.trim_to
        self.urged_us = now
        last = self.ring.last
        self.request(last, request_id(self.vertex.index, self.inc, last), 1)

    # A pending checkpoint was replaced: its request goes with it.
    def withdraw(self, xi, cid):
        self.crs = [c for c in self.crs if c[0] != xi or c[1] != cid]

    # The consumer of edge r speaks under this epoch. False where a newer one was here before; from here on
    # nobody older acknowledges this edge, in no life of this host.
    def fence(self, r, epoch):
        if epoch < r.epoch:
            return False
        if epoch > r.epoch:
            r.epoch = epoch
            self.save(r)
        assert r.epoch >= epoch, "an epoch fell"
        return True

    # It speaks first, and wants what follows.
    def on_hello(self, r, nxt):
        r.live = True
        r.progress_us = self.host.now
        r.depth = 0
        r.got = nxt - 1
        r.cur = Cursor(nxt - 1)
        r.room = 0
        r.rto_us = 0
        r.crs_sent = 0
        r.bound_sent = 0
        for g in r.gaps:
            if g[0] <= nxt <= g[1]:
                r.cur.xi = r.got = g[0] - 1
        if r.edge.dst == OUTSIDE and r.got < r.safe:
            # A gateway that lost its database lost what it had acknowledged. What is still here, or is made
            # again after a restart, is kept for it.
            r.safe = min(r.safe, max(r.got, self.first()))
            self.trim_to = min(self.trim_to, r.safe)

    # It has everything up to xi, in memory at least.
    def on_got(self, r, xi):
        if xi > r.got:
            r.got = xi
            r.progress_us = self.host.now
            r.rto_us = 0
        if r.cur.xi < xi:
            r.cur = Cursor(xi)

    # Answer reader r. other: to what was said under another incarnation; that is no contact.
    def answer(self, r, other=False):
        host = self.host
        host.exchange.say(
            r.host,
            wire.ANSWER,
            r.edge.index,
            r.edge.index,
            self.inc,
            (0, 0) if other else r.epoch,
            (0, 0) if self.source else host.instances[self.vertex.index].epoch,
            self.first_for(r),
            self.ring.last,
            self.bound,
            r.safe,
            r.name,
            r.holders,
        )

    # An older epoch speaks: it learns of the newer one, and nothing else happens.
    def refuse(self, r, sender):
        k = r.edge.index
        first = self.first()
        last = self.ring.last
        say = self.host.exchange.say
        say(sender, wire.ANSWER, k, k, self.inc, r.epoch, (0, 0), first, last, 0, r.safe, r.name, r.holders)

    # ---- what the consumer of edge r says, from another host; see Exchange.hear

    def hear_hello(self, r, sender, m):
        _, _, inc, epoch, nxt, _ = m
        newer = epoch > r.epoch
        self.fence(r, epoch)
        host = self.host
        if r.local and not r.local.sink.is_lake:
            host.stop(r.local.sink, epoch)  # it ran here, and runs elsewhere now
            r.local = None
        r.host = sender
        if inc != self.inc and inc != 0:
            if newer:
                r.live = False  # else it may be late, and have spoken since in the present incarnation
            self.answer(r, True)
            return
        if self.source and inc == self.inc and nxt > self.ring.last + 1:
            from . import renumbering

            renumbering.begin_again(host.sources[self.vertex.index])  # it knows more: the numbering was lost
        self.on_hello(r, nxt)
        self.answer(r)

    def hear_got(self, r, sender, m):
        if r.live:
            r.room = m[5]
            r.depth = m[6] >> 1
            self.on_got(r, m[4])
            if m[6] & 1:
                # The consumer may have gone back, and this may have overtaken what it said before.
                r.got = m[4]
                r.cur = Cursor(m[4])

    def hear_safe(self, r, sender, m):
        if self.source and m[4] > self.ring.last:
            from . import renumbering

            renumbering.begin_again(self.host.sources[self.vertex.index])  # as above
            return
        if self.on_safe(r, m[3], m[4], m[5], m[6], m[7]):
            self.host.scheduler.settle(self.vertex.index)
        if r.live:
            self.on_got(r, m[4])

    def hear_extend(self, r, sender, m):
        inst = self.host.instances.get(self.vertex.index)
        if inst:
            inst.ck.on_extend(r, bytes(m[4]), m[5], m[6])

    # Send again what was not got, after pauses that grow. Where nothing moves, make the consumer repeat its
    # Got and its Safe.
    def send_again(self):
        host = self.host
        now = host.now
        inst = host.instances.get(self.vertex.index)
        shallow = inst is not None and inst.depth < len(host.plan.vertices)
        for r in self.readers:
            if r.local or not r.live:
                continue
            rto_us = r.rto_us or RETRY_US
            if r.cur.xi > r.got and now - r.progress_us >= rto_us:
                r.cur = Cursor(r.got)
                r.rto_us = min(_RETRY_MAX_US, 2 * rto_us)
                r.progress_us = now
            if r.cur.xi <= r.got and now - r.progress_us >= 2 * RETRY_US:
                r.progress_us = now
                r.crs_sent = 0
                r.bound_sent = 0
                if (self.ring.last > r.safe or shallow) and r.host in host.exchange.links:
                    self.answer(r)

    # An acknowledgement for edge r; False where it is refused.
    def on_safe(self, r, epoch, xi, name, holders, load):
        if not self.fence(r, epoch):
            return False
        r.load = load
        moved = xi > r.safe or further(name, r.name)
        if moved or tuple(holders) != r.holders:
            if xi > r.safe:
                r.safe = xi
            if not further(r.name, name):
                r.name = list(name)
                r.holders = tuple(holders)
            while r.gaps and r.gaps[0][1] <= r.safe and r.gaps[0][1] <= xi:
                r.gaps.pop(0)
                self.host.store.put(F_GAPS + r.edge.index, pack.dumps(r.gaps))
            # A restart must not know an older name than the log was trimmed for. What the lake has need
            # not be remembered to the entry: it has no name, and is told again after a restart.
            if self.spills and (r.edge.dst != OUTSIDE or r.safe - r.saved >= self.host.plan.every):
                self.save(r)
            self.trim()
        return True

    # What is trimmed from RAM alone stands in the checkpoint that covers it; of such a stream flash
    # remembers the epoch.
    def save(self, r):
        r.saved = r.safe
        rec = self.record(r)
        if not self.spills:
            rec[4:] = [0, [], []]
        self.host.store.put(F_READER + r.edge.index, pack.dumps(rec, self.host.exchange.writer.buf))

    def record(self, r):
        return [r.edge.index, self.inc, r.epoch[0], r.epoch[1], r.safe, r.name, list(r.holders)]

    # Up to where a checkpoint need not carry what reader r has not made safe: with level "local" what the
    # log holds is as safe as the checkpoint.
    def carried(self, r):
        if self.spills and self.host.plan.level == LOCAL and self.first() <= r.safe:
            return max(r.safe, self.sealed)
        return r.safe

    # True where an edge's condition for a checkpoint at xi_out holds.
    def covered(self, r, xi):
        if r.safe >= xi:
            return True
        e = r.edge
        if e.dst == OUTSIDE and e.durable == FLASH:
            return self.sealed >= xi
        local = self.spills and self.host.plan.level == LOCAL
        return local and self.sealed >= xi and self.first() <= self.trim_to


# The id of the Check-Request at entry xi of a stream: the same in every life.
def request_id(v, inc, xi):
    return struct.pack("<QBQ", inc, v, xi)[:15]


# n more entries, stamped unsynchronised or not; turns begins with those that are not.
def _turn(turns, unsync, n):
    if not turns:
        turns.append(0)
    if len(turns) + unsync & 1:
        turns[-1] += n
    else:
        turns.append(n)


# Copy a part of one batch into another.
def _window(b, off, n, out):
    out.xi = b.xi + off
    out.n = n
    out.dt = b.dt
    out.hole = b.hole
    out.back = b.back
    out.unsync = b.unsync
    out.ts = b.ts + off * b.dt if b.dt > 0 else b.ts
    if b.hole:
        out.at[0] = 0
    else:
        for d, s in zip(out.mem, b.mem):
            d[0:n] = s[off : off + n]
        if b.dt < 0:
            out.at_mem[0:n] = b.at_mem[off : off + n]
