# The producer's side of a stream: an output port, its transfer state, its readers.
#
# Theory. The transfer state is the run (first, last] that some consumer has not yet made safe.
# It lies in RAM (the ring), in the flash log (sources, spilled parts, outputs with
# durable="flash"), or both. A reader is what the port knows of the consumer of one edge.
#
# Invariants.
#   - Nothing above the smallest safe xi of all readers is ever trimmed (except a declared gap of an
#     edge to the lake).
#   - A reader's epoch never falls, survives a restart, and an acknowledgement of an older epoch
#     changes nothing.
#   - A reader's name is the furthest checkpoint that its consumer made safe; what is trimmed lies at
#     or before it.
#
# Where the consumer of a reader is, and whether it has spoken (`local`, `live`; inputs.py has the other end):
#
#   from         to      transition
#   (made)       SILENT  nothing is sent to it, and of what it sends only HELLO counts
#   any          LOCAL   join: it is an input of this host, and reads by itself
#   LOCAL        SILENT  leave: it ended here, or runs elsewhere now
#   SILENT LIVE  LIVE    OutPort.on_hello: it has spoken, from another host, and is sent what follows
#   LIVE         SILENT  lose: its host began a new boot, or asks for another incarnation
#   any          SILENT  forget: this incarnation of the stream is over

import struct

from ..data import block, msgpack
from ..data.batch import Batch
from ..data.ring import Cursor, Ring
from ..offboard.compat import TYPE_CHECKING, const
from ..plan.model import DROP_OLDEST, FLASH, OUTSIDE, SPILL
from ..protocol import frames
from ..protocol.position import further
from ..storage.keyspace import F_GAPS, F_READER, stream_key

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ..offboard.interfaces import Epoch, Message, Position
    from ..plan.model import Edge, Vertex
    from .host import Host
    from .inputs import InEdge

RETRY_US = 1000000  # a message that is not answered is sent again after this
_RETRY_MAX_US = const(8000000)


class Reader:
    def __init__(self, edge: "Edge", epoch: "Epoch") -> None:
        self.edge = edge
        self.local: "InEdge | None" = None  # where the consumer runs on this host
        self.host = -1  # host of the consumer, -1 while unknown
        self.epoch = epoch  # newest epoch of the consumer that spoke: at first the one it starts with
        self.safe = 0
        self.saved = 0  # the part of it that flash knows of, at least
        self.name: "Position" = []
        self.holders: tuple[int, ...] = ()
        self.load = 0
        self.gaps: list[list[int]] = []  # [first, last, reason] declared on this edge, not safe yet
        # What follows is lost in a restart; the consumer speaks first, and sends it again.
        self.live = False
        self.apart = False  # it has said that it has nothing of this incarnation: it is in another one
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

    # ---- transitions: see the table above

    def join(self, local: "InEdge", me: int) -> None:
        self.local = local
        self.host = me
        self.live = self.apart = False

    def leave(self) -> None:
        self.local = None
        self.live = self.apart = False

    def lose(self) -> None:
        assert not self.local, "a consumer of this host has no boot of its own"
        self.live = self.apart = False

    # The producer begins another incarnation, of which the consumer has nothing.
    def forget(self) -> None:
        self.safe = self.got = 0
        self.cur = Cursor()
        self.name = []
        self.holders = ()
        self.live = self.apart = False

    # It is in another incarnation, and has nothing of this one; and its operator is so deep.
    def stand_apart(self, depth: int) -> None:
        assert not self.live, "it has spoken in this incarnation since"
        self.apart = True
        self.got = 0
        self.depth = depth

    # ---- what is sent to it

    # The gap declared on this edge that has entry xi, or None.
    def gap_at(self, xi: int) -> list[int] | None:
        for gap in self.gaps:
            if gap[0] <= xi <= gap[1]:
                return gap
        return None

    # It waits no more for entries first .. last: as a gap they are safe, and it is told of them next.
    def give_up(self, first: int, last: int) -> None:
        if last > self.safe:
            self.safe = last
        if first - 1 <= self.cur.xi < last:
            self.cur.move(first - 1)

    # Everything up to entry xi was sent.
    def sent(self, xi: int, now: int) -> None:
        if self.cur.xi == self.got:
            self.progress_us = now
        self.cur.move(xi)

    # What follows entry xi is sent next.
    def seek(self, xi: int) -> None:
        self.cur = Cursor(xi)

    # Whether boundary ts has to be sent; it counts as sent from now on.
    def wants_bound(self, ts: int) -> bool:
        if ts <= self.bound_sent:
            return False
        self.bound_sent = ts
        return True

    # The same for the Check-Request with this serial number.
    def wants_request(self, serial: int) -> bool:
        if serial <= self.crs_sent:
            return False
        self.crs_sent = serial
        return True

    # Entries, a Check-Request or a boundary of its port wait for it.
    def waits(self, port: "OutPort") -> bool:
        if self.cur.xi < port.ring.last:
            return True
        inside = self.edge.dst != OUTSIDE
        return inside and (self.bound_sent < port.bound or bool(port.crs) and self.crs_sent < port.crs[-1][3])


class OutPort:
    # stream: number of the port's stream in the log. logged: everything goes to the log at once. inc: the
    # incarnation of a source; of an operator it is 0 until that gives up (giving_up.py).
    def __init__(
        self,
        host: "Host",
        vertex: "Vertex",
        number: int,
        edges: "list[Edge]",
        logged: bool,
        inc: int = 0,
    ) -> None:
        self.host = host
        self.vertex = vertex
        self.number = number
        self.alphabet = vertex.outs[number]
        self.stream = stream_key(vertex.index, number)
        self.logged = logged
        # Inside a cycle a port blocks: what it spilled beyond the bound of a checkpoint could only be made
        # safe by consumers that wait for it. So does one that logs everything.
        self.loops = self.drops = spills = False
        self.source = not vertex.kind
        self.kept_here = not host.plan.level_of(vertex.index)  # no other host has its checkpoints
        batch = host.plan.batch
        cap = 0
        self.readers: list[Reader] = []
        for e in edges:
            cap = max(cap, e.cap)
            self.loops = self.loops or e.cyclic
            self.drops = self.drops or e.policy == DROP_OLDEST
            spills = spills or e.policy == SPILL
            self.readers.append(Reader(e, host.plan.first_epoch(e)))
        self.spills = logged or (not self.loops and spills)
        if self.source:
            cap = min(cap, 4 * batch) if cap else 2 * batch  # the log holds the rest
        cap = max(cap, batch)
        self.ring = Ring(self.alphabet, cap, 4 + cap // batch)
        # (xi, cid, urgent, serial): Check-Requests, kept as long as the entries that they belong to.
        self.crs: list[tuple[int, bytes, int, int]] = []
        self.serial = 0
        self.trim_to = 0  # every reader has this safe
        self.bound = 0  # nothing below this ts follows entry `last`
        self.inc = inc
        self.sealed = 0  # entries up to this are in the log
        self.urged = -1  # what was trimmed to when its consumers were last pressed
        self.urged_us = 0
        self.bound_seen = 0
        # The batch that is written before it is appended: the operator's output, or see `spare`.
        self.scratch: Batch | None = None

    # Entries held: the lowest xi from which a reader can be served.
    def first(self) -> int:
        if self.spills:
            held = self.host.store.first(self.stream)
            if held and held - 1 < self.ring.first and self.sealed >= self.ring.first:
                return held - 1
        return self.ring.first

    # The same for one reader: entries of a gap that it was told of need not be held for it.
    def first_for(self, r: Reader) -> int:
        first = self.first()
        for g in r.gaps[::-1]:
            if g[0] <= first <= g[1]:
                first = g[0] - 1
        return first

    def reader(self, edge: "Edge") -> Reader:
        for r in self.readers:
            if r.edge is edge:
                return r
        raise IndexError

    # Whether there is room for n more entries, once what can be dropped or moved to the log is.
    def has_room(self, n: int) -> bool:
        ring = self.ring
        if ring.room() >= n:
            return True
        if not self.readers:
            self.trim()  # an output that is not used, or that an alarm alone looks at
        elif self.source or self.logged:
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
    def _evict(self, n: int) -> None:
        ring = self.ring
        while ring.room() < n and ring.count:
            upto = ring.chunk_end()
            if self.loops:
                for r in self.readers:
                    if r.edge.dst != OUTSIDE:
                        upto = min(upto, r.safe)
                if upto <= ring.first:
                    return
            if upto > self.sealed and not (self.logged and self._seal_upto(upto)):
                return
            ring.trim(upto)

    # Move the oldest chunks into the log.
    def _spill(self, n: int) -> None:
        ring = self.ring
        while ring.room() < n and ring.count:
            upto = ring.chunk_end()
            if upto > self.sealed and not self._seal_upto(upto):
                return
            ring.trim(upto)

    def _seal_upto(self, upto: int) -> bool:
        cur = Cursor(max(self.sealed, self.ring.first))
        b = self.spare()
        while cur.xi < upto:
            n = self.ring.read(cur, b, min(b.size, upto - cur.xi))
            if not self._log(b, n):
                return False
            cur.move(cur.xi + n)
        return True

    # Write a batch into the log, unless it is there; False where there is no room.
    def seal(self, batch: Batch, n: int) -> bool:
        return batch.xi + n - 1 <= self.sealed or self._log(batch, n)

    # Only what the log does not hold yet: after a restart batches are cut elsewhere.
    def _log(self, batch: Batch, n: int) -> bool:
        store = self.host.store
        i0 = self.sealed + 1 - batch.xi
        if i0 < 0:
            # The entries between were safe and are trimmed: the log continues after them.
            store.start_stream(self.stream, batch.xi - 1, batch.ts_of(0))
            i0 = 0
        scratch = self.host.scratch
        body = scratch.take(block.bound(self.alphabet, n - i0))
        end = block.encode(batch, i0, n - i0, body, 0)
        if not i0:
            scratch.keep(self, batch.xi, n, end)  # the frame that follows takes the same bytes
        if not store.append_run(
            self.stream, batch.xi + i0, n - i0, batch.ts_of(n - 1), memoryview(body)[:end]
        ):
            return False
        self.sealed = batch.xi + n - 1
        return True

    # Take n entries that the operator just produced.
    def append(self, batch: Batch, n: int) -> None:
        ring = self.ring
        ring.append(batch, 0, n, True)
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
    def promise(self, ts: int) -> bool:
        self.raise_bound(ts)
        if self.bound > self.bound_seen:
            self.bound_seen = self.bound
            return True
        return False

    # Nothing below ts follows the newest entry.
    def raise_bound(self, ts: int) -> None:
        if ts > self.bound:
            self.bound = ts

    # Drop what every reader has safe.
    def trim(self) -> None:
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
    def read(self, cur: Cursor, batch: Batch, limit: int) -> int:
        ring = self.ring
        if cur.xi >= ring.first:
            return ring.read(cur, batch, limit)
        b = self.spare()
        body = self.host.scratch.take(block.bound(self.alphabet, b.size))
        size = self.host.store.read_run(self.stream, cur.xi + 1, body)
        if not size:
            return 0
        block.decode(body, 0, size, b)
        off = cur.xi + 1 - b.xi
        # The log may reach further, as an earlier boot put it out: that is not put out again yet.
        n = min(limit, b.n - off, ring.last - cur.xi)
        batch.copy(b, off, n)
        return n

    # A batch beside that of the host, which holds nothing between two calls: that into which the operator
    # writes. Sources of one alphabet share one.
    def spare(self) -> Batch:
        self.ring.stale()
        if self.scratch is None:
            for p in self.host.ports.values():
                if p.scratch and not p.vertex.kind and p.alphabet == self.alphabet:
                    self.scratch = p.scratch
                    return p.scratch
            self.scratch = Batch(self.alphabet, self.host.plan.batch)
        return self.scratch

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
    def request(self, xi: int, cid: bytes, urgent: int) -> None:
        for r in self.readers:
            if r.edge.dst != OUTSIDE:
                break
        else:
            return  # none inside
        self.serial += 1
        self.crs.append((xi, cid, urgent, self.serial))
        if len(self.crs) > 8:
            self.crs.pop(0)  # later ones cover it
        for r in self.readers:
            if r.local and r.edge.dst != OUTSIDE:
                r.local.on_request(xi, cid, urgent)

    # The port is full: its consumers are asked for a checkpoint at once.
    def press(self) -> None:
        now = self.host.now
        if self.urged == self.trim_to and now - self.urged_us < RETRY_US:
            return
        self.urged = self.trim_to
        self.urged_us = now
        last = self.ring.last
        self.request(last, request_id(self.vertex.index, self.inc, last), 1)

    # The same; and since other ports may fill the log into which this one spills, so are their consumers.
    def press_all(self) -> None:
        self.press()
        if self.spills:
            for p in self.host.ports.values():
                if p.spills and p.sealed > p.trim_to:
                    p.press()

    # What was sent and is not answered is sent again soon, however long no answer came.
    def again(self) -> None:
        for r in self.readers:
            r.rto_us = 0

    # A pending checkpoint was replaced: its request is void.
    def withdraw(self, xi: int, cid: bytes) -> None:
        kept = []
        for c in self.crs:
            if c[0] != xi or c[1] != cid:
                kept.append(c)
        self.crs = kept

    # The operator stands at another place: what was asked and promised there is void.
    def jumped(self) -> None:
        self.crs = []
        self.bound = 0

    # That host began a new boot: its consumers have to speak again.
    def lose(self, host: int) -> None:
        for r in self.readers:
            if r.host == host and not r.local:
                r.lose()

    # The consumer of edge r speaks under this epoch. False where a newer one was here before. From now on,
    # and across restarts, acknowledgements of older epochs are refused.
    def fence(self, r: Reader, epoch: "Epoch") -> bool:
        if epoch < r.epoch:
            return False
        if epoch > r.epoch:
            r.epoch = epoch
            self.save(r)
        assert r.epoch >= epoch, "an epoch fell"
        return True

    # It speaks first, and wants entry nxt and what follows.
    def on_hello(self, r: Reader, nxt: int) -> None:
        r.live = not r.local
        r.apart = False
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
                r.got = g[0] - 1
                r.cur.move(r.got)
        if r.edge.dst == OUTSIDE and r.got < r.safe:
            # A gateway that lost its database lost what it had acknowledged. What is still here, or is made
            # again after a restart, is kept for it.
            r.safe = min(r.safe, max(r.got, self.first()))
            self.trim_to = min(self.trim_to, r.safe)

    # It has everything up to xi, in memory at least.
    def on_got(self, r: Reader, xi: int) -> None:
        if xi > r.got:
            r.got = xi
            r.progress_us = self.host.now
            r.rto_us = 0
        if r.cur.xi < xi:
            r.seek(xi)

    # How many of the entries after its cursor reader r may be sent now.
    def due(self, r: Reader) -> int:
        xi = r.cur.xi
        n = min(self.ring.last, r.got + r.room) - xi
        return n if n > 0 and (xi >= self.ring.first or xi >= self.first()) else 0

    # Whether no consumer may hear of it yet: its operator has given up and has no place yet, or no checkpoint
    # is stored at the level by which a later epoch would know of this incarnation.
    def hidden(self) -> bool:
        if self.source:
            return False
        inst = self.host.instances[self.vertex.index]
        return bool(inst.anew) or (self.inc > 0 and inst.unsettled)

    # The epoch under which its entries are made.
    def epoch(self) -> "Epoch":
        return (0, 0) if self.source else self.host.instances[self.vertex.index].epoch

    # Answer reader r. other: to what was said under another incarnation; that is no contact.
    def answer(self, r: Reader, other: bool = False) -> None:
        host = self.host
        host.exchange.say(
            r.host,
            frames.ANSWER,
            r.edge.index,
            r.edge.index,
            self.inc,
            (0, 0) if other else r.epoch,
            self.epoch(),
            self.first_for(r),
            self.ring.last,
            self.bound,
            r.safe,
            r.name,
            r.holders,
        )

    # A message of an older epoch: its sender is told of the newer one, and nothing else happens.
    def refuse(self, r: Reader, sender: int) -> None:
        k = r.edge.index
        first = self.first()
        last = self.ring.last
        say = self.host.exchange.say
        say(sender, frames.ANSWER, k, k, self.inc, r.epoch, (0, 0), first, last, 0, r.safe, r.name, r.holders)

    # ---- messages of the consumer of edge r, from another host; see Exchange.hear

    def hear_hello(self, r: Reader, sender: int, m: "Message") -> None:
        _, _, inc, epoch, nxt, _ = m
        newer = epoch > r.epoch
        self.fence(r, epoch)
        host = self.host
        if r.local and not r.local.sink.is_lake:
            host.stop(r.local.sink, epoch)  # it ran here, and runs elsewhere now
            r.leave()
        r.host = sender
        if self.hidden():
            return
        if inc != self.inc and (inc != 0 or not self.source):
            if newer:
                r.lose()  # else it may be late, and have spoken since in the present incarnation
            self.answer(r, True)
            return
        if self.source and inc == self.inc and nxt > self.ring.last + 1:
            from . import renumbering

            renumbering.begin_again(host.sources[self.vertex.index])  # it knows more: the numbering was lost
        self.on_hello(r, nxt)
        self.answer(r)

    def hear_got(self, r: Reader, sender: int, m: "Message") -> None:
        if not (m[4] or m[5]):
            # Nothing, and no room for it: it has not gone on with this incarnation yet.
            if not r.live and (sender, m[3]) == (r.host, r.epoch):
                r.stand_apart(m[6] >> 1)
        elif r.live:
            r.room = m[5]
            r.depth = m[6] >> 1
            self.on_got(r, m[4])
            if m[6] & 1:
                # The consumer may have gone back, and this may have overtaken what it said before.
                r.got = m[4]
                r.seek(m[4])

    def hear_safe(self, r: Reader, sender: int, m: "Message") -> None:
        if self.source and m[4] > self.ring.last:
            from . import renumbering

            renumbering.begin_again(self.host.sources[self.vertex.index])  # as above
            return
        if self.on_safe(r, m[3], m[4], m[5], m[6], m[7]):
            self.host.scheduler.settle(self.vertex.index)
        if r.live:
            self.on_got(r, m[4])

    def hear_extend(self, r: Reader, sender: int, m: "Message") -> None:
        inst = self.host.instances.get(self.vertex.index)
        if inst:
            inst.ck.on_extend(r, bytes(m[4]), m[5], m[6])

    # Send again what was not got, after pauses that grow. Where nothing moves, make the consumer repeat its
    # Got and its Safe.
    def send_again(self) -> None:
        host = self.host
        now = host.now
        inst = host.instances.get(self.vertex.index)
        shallow = inst is not None and inst.depth < len(host.plan.vertices)
        for r in self.readers:
            if r.local or not r.live:
                continue
            rto_us = r.rto_us or RETRY_US
            if r.cur.xi > r.got and now - r.progress_us >= rto_us:
                r.seek(r.got)
                r.rto_us = min(_RETRY_MAX_US, 2 * rto_us)
                r.progress_us = now
            if r.cur.xi <= r.got and now - r.progress_us >= 2 * RETRY_US:
                r.progress_us = now
                r.crs_sent = 0
                r.bound_sent = 0
                if (self.ring.last > r.safe or shallow) and r.host in host.exchange.links:
                    self.answer(r)

    # An acknowledgement for edge r; False where it is refused.
    def on_safe(
        self, r: Reader, epoch: "Epoch", xi: int, name: "Position", holders: "Sequence[int]", load: int
    ) -> bool:
        if not self.fence(r, epoch):
            return False
        assert not self.source or xi <= self.ring.last, "a consumer acknowledged what its source never gave"
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
                self.host.store.put(F_GAPS + r.edge.index, msgpack.dumps(r.gaps))
            # A restart must not know an older name than the log was trimmed for. What the lake has need
            # not be remembered to the entry: it has no name, and is told again after a restart.
            if self.spills and (r.edge.dst != OUTSIDE or r.safe - r.saved >= self.host.plan.every):
                self.save(r)
            self.trim()
        return True

    # Store what the port knows of a reader. What is trimmed from RAM alone is in the checkpoint that covers
    # it; of such a stream flash only holds the epoch.
    def save(self, r: Reader) -> None:
        r.saved = r.safe
        rec = self.record(r)
        if not self.spills:
            rec[4:] = [0, [], []]
        self.host.store.put(F_READER + r.edge.index, msgpack.dumps(rec, self.host.exchange.writer.buf))

    def record(self, r: Reader) -> "list[Any]":
        return [r.edge.index, self.inc, r.epoch[0], r.epoch[1], r.safe, r.name, list(r.holders)]

    # Up to where a checkpoint need not carry what reader r has not made safe: with level "local" what the
    # log holds is as safe as the checkpoint.
    def carried(self, r: Reader) -> int:
        if self.spills and self.kept_here and self.first() <= r.safe:
            return max(r.safe, self.sealed)
        return r.safe

    # True where an edge's condition for a checkpoint at xi_out holds.
    def covered(self, r: Reader, xi: int) -> bool:
        if r.safe >= xi:
            return True
        e = r.edge
        if e.dst == OUTSIDE and e.durable == FLASH:
            return self.sealed >= xi
        return self.spills and self.kept_here and self.sealed >= xi and self.first() <= r.safe


# The id of the Check-Request at entry xi of a stream: the same in every boot.
def request_id(v: int, inc: int, xi: int) -> bytes:
    return struct.pack("<QBQ", inc, v, xi)[:15]
