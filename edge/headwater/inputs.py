# The consumer's side of an edge: what has arrived, what was taken, what was promised.
#
# Invariants.
#   - Entries are taken in order of xi, each once; a duplicate is dropped, a gap asked for again.
#   - Nothing is taken from a producer that has not answered since this consumer began to speak
#     (`contact`): only then does the producer refuse whoever consumed before.
#   - A boundary holds only behind the xi that it names.

from . import wire
from .ports import request_id
from .position import FAR
from .ring import Cursor, Ring

_CRS_MAX = 8


class InEdge:
    # sink: the Instance or LakeEnd that takes the entries.
    def __init__(self, host, edge, alphabet, sink):
        self.host = host
        self.edge = edge
        self.sink = sink
        self.alphabet = alphabet
        self.cur = Cursor()  # what the sink has taken
        self.inc = 0
        self.since = 0  # the decision by which this incarnation began
        self.other = 0  # the incarnation that the producer is in, where it is another: ask for a decision
        self.port = None  # the producer's port, where it runs on this host
        self.ring = None  # what has arrived from elsewhere
        self.contact = False
        self.fenced = True  # the producer refuses older epochs than the sink's
        self.closing = -1  # xi at which it first heard of a decision to close it that is on its way, or -1
        self.closed = False  # by decision: the merge goes on without it
        self.from_ts = 0  # entries older than this were given up when the input was reopened
        self.noted = 0  # entries that arrived too late to be taken
        self.limit = FAR  # ts of the newest boundary
        self.crs = []  # [xi, cid, urgent] to obey, in order
        self.every = 0  # a source's stream has a Check-Request at every multiple of this
        self.ack = False  # a Got is due
        self.ack_us = 0  # ... since
        self.depth = -1  # what the producer was told of the sink's
        self.said = -1  # what the last Got said; -1: the next one is urgent
        self.gap_us = -1  # when a gap was last asked for
        self.gap_xi = -1  # ... and behind which entry
        self.producer = -1  # host of the producer
        self.reset(0)

    # Go on behind entry xi, whatever was there before.
    def reset(self, xi):
        self.cur = Cursor(xi)
        if self.ring:
            self.ring.reset(xi)
        self.limit = 0
        self.crs = []
        self.contact = False
        self.other = self.since = 0

    # The stream goes on in another incarnation.
    def renumber(self, inc):
        self.inc = inc
        self.reset(self.sink.begin(inc) if self.sink.is_lake else 0)
        if self.port is None and self.ring:
            self.ring.reset(self.cur.xi)

    # Take from a port of this host.
    def attach(self, port):
        self.port = port
        self.ring = None
        self.limit = 0  # it held behind entries that are let go here

    # Take from another host.
    def detach(self):
        if self.ring is None:
            batch = self.host.plan.batch
            # What is bound for the lake is taken at once: the longer this is, the fewer the answers.
            cap = max(batch, self.edge.cap if self.sink.is_lake else min(self.edge.cap, 4 * batch))
            self.ring = Ring(self.alphabet, cap, 8)
        self.ring.reset(self.cur.xi)
        self.limit = 0
        self.port = None

    # Entries there are to take.
    def waiting(self):
        if not self.contact:
            return 0
        return (self.port.ring.last if self.port else self.ring.last) - self.cur.xi

    def read(self, batch, limit):
        if self.port:
            return self.port.read(self.cur, batch, limit)
        return self.ring.read(self.cur, batch, limit)

    # n entries were taken.
    def taken(self, n):
        assert n <= self.waiting(), "more was taken than was there"
        xi = self.cur.xi = self.cur.xi + n
        if self.every and not xi % self.every:
            self.crs.insert(0, [xi, request_id(self.edge.src, self.inc, xi), 0])
        if self.ring:
            full = self.ring.room() == 0
            self.ring.trim(self.cur.xi)
            if full:
                self.ack = True
                self.said = -1

    # No entry with a ts below this is still to come, given that nothing waits.
    def bound(self):
        if self.closed:
            return FAR
        if not self.contact:
            return 0
        b = self.limit
        if self.port and self.port.bound > b:
            b = self.port.bound
        return b + self.edge.delay_us if b else 0

    # Most entries to take before the next Check-Request is due, or `limit`.
    def until_request(self, limit):
        if self.every:
            n = self.every - self.cur.xi % self.every
            if n < limit:
                limit = n
        if self.crs:
            n = self.crs[0][0] - self.cur.xi
            if n < limit:
                return n if n > 0 else 0
        return limit

    # An urgent one is obeyed where the operator stands; any other at its place in the stream.
    def on_request(self, xi, cid, urgent):
        if urgent:
            xi = min(xi, self.cur.xi)
        for cr in self.crs:
            if cr[0] == xi and cr[1] == cid:
                return
        if len(self.crs) >= _CRS_MAX:
            if not urgent:
                return  # the producer says it again, or a later one covers it
            self.crs.pop()
        cr = [xi, cid, urgent]
        i = len(self.crs)
        while i and self.crs[i - 1][0] > xi:
            i -= 1
        self.crs.insert(i, cr)

    # ---- what its sink changes

    # What arrives is for this sink. every: see the field.
    def belongs_to(self, sink, every=0):
        self.sink = sink
        self.every = every

    # Go on from a checkpoint of the sink. since: the decision by which this incarnation began, at the latest.
    def resume(self, xi: int, inc: int, closed: bool, from_ts: int, since: int) -> None:
        self.reset(xi)
        self.inc = inc
        self.closed = closed
        self.from_ts = from_ts
        self.since = since

    # A decision to close it is on its way to the sink.
    def close_soon(self) -> None:
        if self.closing < 0:
            self.closing = self.cur.xi

    # By decision: from now on the sink goes on without it.
    def close(self) -> None:
        self.closed = True
        self.closing = -1

    # By decision number `since`: the sink takes it again, without what is older than from_ts. True where it
    # goes on in another incarnation.
    def reopen(self, inc: int, from_ts: int, since: int) -> bool:
        self.closed = False
        self.from_ts = from_ts
        if inc == self.inc:
            return False
        self.renumber(inc)
        self.since = since
        return True

    # Whether the next entry, with this ts, was given up when the input was reopened. Then it is passed over.
    def passes_over(self, ts: int) -> bool:
        if ts < self.from_ts:
            self.noted += 1
            self.taken(1)
            return True
        self.from_ts = 0  # nothing older follows
        return False

    # The sink begins a new epoch, of which the producer does not know yet.
    def unfence(self) -> None:
        self.fenced = False

    # The port of this host that it took from ends here: it runs elsewhere now, and has not answered yet.
    def cut_off(self) -> None:
        self.cur = Cursor(self.cur.xi)
        self.detach()
        self.contact = False

    # ---- acknowledging, to a port of this host or to another host

    # Everything up to xi is safe here; the producer need not keep it.
    def tell_safe(self, xi, name, holders, load):
        if not self.contact:
            return
        assert xi <= self.cur.xi, "acknowledged what was not taken"
        host = self.host
        k = self.edge.index
        sink = self.sink
        if self.port:
            r = self.port.reader(self.edge)
            if not self.port.on_safe(r, sink.epoch, xi, name, holders, load):
                host.stop(sink, r.epoch)
            host.scheduler.settle(self.edge.src)
        else:
            host.exchange.say(self.producer, wire.SAFE, k, k, self.inc, sink.epoch, xi, name, holders, load)

    # A request is answered by an extension: see checkpoint.py.
    def tell_extend(self, cid, mode, base):
        host = self.host
        k = self.edge.index
        if self.port:
            inst = host.instances.get(self.edge.src)
            if inst:
                inst.ck.on_extend(self.port.reader(self.edge), cid, mode, base)
        else:
            host.exchange.say(
                self.producer, wire.EXT, (k, cid), k, self.inc, self.sink.epoch, cid, mode, base
            )
