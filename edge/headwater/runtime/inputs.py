# The consumer's side of an edge: what has arrived, what was taken, what was promised.
#
# The contact of an input with its producer. Every transition is a verb of InEdge, and nothing else writes
# these fields; routing.py decides when each is due. The producer's end of the same: outputs.py.
#
#   from           to       transition
#   (made)         ASKING   HELLO is sent again until the producer answers; nothing is taken or acknowledged
#   any            ASKING   lose: the producer runs elsewhere now, or began a new boot; or the sink jumped
#   any            ASKING   reset, renumber, resume: the sink goes on elsewhere in the stream
#   CONTACT        ASKING   cut_off: the port of this host ended
#   ASKING CONTACT CONTACT  meet: the producer has answered, in the incarnation that is taken (`contact`)
#
#   FENCED         UNKNOWN  unfence: the sink begins a new epoch
#   any            FENCED   meet: from now on the producer refuses older epochs of the sink (`fenced`)
#
#   OPEN           CLOSING  close_soon: a decision to close it is on its way (`closing`)
#   CLOSING        OPEN     stay: its stream has spoken before that decision had its place
#   OPEN CLOSING   CLOSED   close: that decision is applied; the merge goes on without it (`closed`)
#   any            OPEN     reopen: by decision, perhaps in another incarnation (`since`, `from_ts`)
#
# While it is CLOSED it takes what is older than the present, and drops it (`drop`): an input is never opened
# below the present, so none of this could be taken later. Otherwise its producer, which lives and may have
# other consumers, would stand with a full buffer. The xi of a closed input is therefore no property of the
# run; all that another boot has dropped lies below the decision that opens it.
#
# Invariants.
#   - Entries are taken in order of xi, each once; a duplicate is dropped, a gap asked for again.
#   - Nothing is taken from a producer that has not answered since this consumer began to speak: only then
#     does the producer refuse earlier epochs of this consumer.
#   - A boundary holds only after the xi that it names.

from ..data.ring import Cursor, Ring
from ..offboard.compat import TYPE_CHECKING
from ..protocol import frames
from ..protocol.position import FAR
from .outputs import request_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ..data.alphabet import Alphabet
    from ..data.batch import Batch
    from ..offboard.interfaces import Position
    from ..plan.model import Edge
    from .host import Host
    from .outputs import OutPort

_CRS_MAX = 8


class InEdge:
    # sink: the Instance or LakeSink that takes the entries.
    def __init__(self, host: "Host", edge: "Edge", alphabet: "Alphabet", sink: "Any") -> None:
        self.host = host
        self.edge = edge
        self.sink = sink
        self.alphabet = alphabet
        self.cur = Cursor()  # what the sink has taken
        self.inc = 0
        self.since = 0  # the decision by which this incarnation began
        self.other = 0  # the incarnation that the producer is in, where it is another: ask for a decision
        self.port: "OutPort | None" = None  # the producer's port, where it runs on this host
        self.ring: Ring | None = None  # what has arrived from elsewhere
        self.contact = False
        self.fenced = True
        self.closing = -1  # xi where it was when it heard of a decision to close it that is on its way, or -1
        self.closed = False
        # Entries older than this were given up when the input was reopened; while it is closed, up to now.
        self.from_ts = 0
        self.noted = 0  # entries that arrived too late to be taken
        self.limit = FAR  # ts of the newest boundary
        self.crs: "list[list[Any]]" = []  # [xi, cid, urgent] to obey, in order
        self.every = 0  # a source's stream has a Check-Request at every multiple of this
        self.ack = False  # a Got is due
        self.ack_us = 0  # ... since
        self.depth = -1  # what the producer was told of the sink's
        self.said = -1  # what the last Got said; -1: the next one is urgent
        self.gap_us = -1  # when a gap was last asked for
        self.gap_xi = -1  # ... and after which entry
        self.producer = -1  # host of the producer
        self.reset(0)

    # ---- transitions: see the table above

    # Go on after entry xi, whatever was there before.
    def reset(self, xi: int) -> None:
        self.cur = Cursor(xi)
        if self.ring:
            self.ring.reset(xi)
        self.limit = 0
        self.crs = []
        self.contact = False
        self.other = self.since = 0

    # The stream goes on in another incarnation.
    def renumber(self, inc: int) -> None:
        self.inc = inc
        self.reset(self.sink.begin(inc) if self.sink.is_lake else 0)
        if self.port is None and self.ring:
            self.ring.reset(self.cur.xi)

    # Take from a port of this host.
    def attach(self, port: "OutPort") -> None:
        assert not self.contact, "a producer that has answered, and then moved"
        self.port = port
        self.ring = None
        self.limit = 0  # it held after entries that are dropped here

    # Take from another host.
    def detach(self) -> None:
        if self.ring is None:
            batch = self.host.plan.batch
            # What is bound for the lake is taken at once: the longer this is, the fewer the answers.
            cap = max(batch, self.edge.cap if self.sink.is_lake else min(self.edge.cap, 4 * batch))
            self.ring = Ring(self.alphabet, cap, 8)
        self.ring.reset(self.cur.xi)
        self.limit = 0
        self.port = None

    # The producer has to answer before anything more is taken.
    def lose(self) -> None:
        self.contact = False

    # The producer runs on this host.
    def ask_at(self, producer: int) -> None:
        assert not self.contact and self.port is None
        self.producer = producer

    # It is in another incarnation than the one that is taken here.
    def hear_other(self, inc: int) -> None:
        assert inc != self.inc
        self.other = inc

    # It has answered. True where it did not know of the sink's epoch before.
    def meet(self) -> bool:
        assert self.port or self.ring and self.ring.first == self.cur.xi, "entries of an earlier contact"
        news = not self.fenced
        self.contact = self.fenced = True
        self.urge()
        return news

    # What arrives is for this sink. every: see the field.
    def belongs_to(self, sink: "Any", every: int = 0) -> None:
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

    # No decision to close it is on its way any more.
    def stay(self) -> None:
        self.closing = -1

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

    # The sink begins a new epoch, of which the producer does not know yet.
    def unfence(self) -> None:
        self.fenced = False

    # The port of this host that it took from ends here: it runs elsewhere now, and has not answered yet.
    def cut_off(self) -> None:
        self.cur = Cursor(self.cur.xi)
        self.detach()
        self.contact = False

    # ---- taking

    # Entries there are to take.
    def waiting(self) -> int:
        if not self.contact:
            return 0
        ring = self.port.ring if self.port else self.ring
        return ring.last - self.cur.xi  # type: ignore[union-attr]  # one of them is there

    def read(self, batch: "Batch", limit: int) -> int:
        if self.port:
            return self.port.read(self.cur, batch, limit)
        return self.ring.read(self.cur, batch, limit)  # type: ignore[union-attr]

    # Whether the next entry, with this ts, was given up when the input was reopened. Then it is passed over.
    def passes_over(self, ts: int) -> bool:
        if ts < self.from_ts:
            self.noted += 1
            self.taken(1)
            return True
        self.from_ts = 0  # nothing older follows
        return False

    # It is closed: drop what waits and is older than `now`; how many entries. b: a batch that holds nothing.
    def drop(self, b: "Batch", now: int) -> int:
        n = self.until_request(self.read(b, b.size)) if self.waiting() else 0
        while n and b.ts_of(n - 1) >= now:
            n -= 1
        if n:
            self.from_ts = max(self.from_ts, b.ts_of(n - 1) + 1)
            self.noted += n
            self.taken(n)
        return n

    # n entries were taken.
    def taken(self, n: int) -> None:
        assert n <= self.waiting(), "more was taken than was there"
        xi = self.cur.xi = self.cur.xi + n
        if self.every and not xi % self.every:
            self.crs.insert(0, [xi, request_id(self.edge.src, self.inc, xi), 0])
        if self.ring:
            full = self.ring.room() == 0
            self.ring.trim(self.cur.xi)
            if full:
                self.urge()

    # Go on after entry xi: what lies up to there went past the ring, or will never come.
    def skip(self, xi: int) -> None:
        self.cur.move(xi)
        if self.ring:
            self.ring.reset(xi)

    # No entry with a ts below this is still to come, given that nothing waits.
    def bound(self) -> int:
        if self.closed:
            return FAR
        if not self.contact:
            return 0
        b = self.limit
        if self.port and self.port.bound > b:
            b = self.port.bound
        return b + self.edge.delay_us if b else 0

    # Most entries to take before the next Check-Request is due, or `limit`.
    def until_request(self, limit: int) -> int:
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
    def on_request(self, xi: int, cid: bytes, urgent: int) -> None:
        if urgent:
            xi = min(xi, self.cur.xi)
        for cr in self.crs:
            if cr[0] == xi and cr[1] == cid:
                return
        if len(self.crs) >= _CRS_MAX:
            if not urgent:
                return  # the producer sends it again, or a later one covers it
            self.crs.pop()
        i = len(self.crs)
        while i and self.crs[i - 1][0] > xi:
            i -= 1
        self.crs.insert(i, [xi, cid, urgent])

    # ---- acknowledging, to a port of this host or to another host

    # A Got is due from now on. It may wait for what arrives next.
    def owe_got(self, now: int) -> None:
        self.ack = True
        self.ack_us = now

    # A Got is due, and the producer may wait for it.
    def urge(self) -> None:
        self.ack = True
        self.hurry()

    # If a Got is due, it does not wait any longer.
    def hurry(self) -> None:
        self.said = -1

    # The producer was told that everything up to xi has arrived; by a Got also how deep the sink is.
    def told(self, xi: int, depth: int = -1) -> None:
        self.ack = False
        self.said = xi
        if depth >= 0:
            self.depth = depth

    # Entries are missing after the last one that has arrived: whether they are asked for now. After another
    # one than before they are, at once: otherwise a link that reorders frames would wait each time.
    def asks(self, now: int, pause_us: int) -> bool:
        last = self.ring.last  # type: ignore[union-attr]
        if last == self.gap_xi and now - self.gap_us < pause_us:
            return False
        self.gap_xi = last
        self.gap_us = now
        return True

    # The producer has promised: nothing below ts follows what has arrived.
    def promised(self, ts: int) -> None:
        if ts > self.limit:
            self.limit = ts

    # Everything up to xi is safe here; the producer need not keep it.
    def tell_safe(self, xi: int, name: "Position", holders: "Sequence[int]", load: int) -> None:
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
            host.exchange.say(self.producer, frames.SAFE, k, k, self.inc, sink.epoch, xi, name, holders, load)

    # Of the incarnation that the producer has begun nothing is here, nor will be before a decision. In a loop
    # the producer itself is among those whose depth that decision waits for.
    def tell_apart(self) -> None:
        host = self.host
        if self.producer in host.exchange.links:
            k = self.edge.index
            flags = 2 * min(self.sink.depth, 255)
            host.exchange.say(self.producer, frames.GOT, k, k, self.other, self.sink.epoch, 0, 0, flags)

    # A request is answered by an extension: see checkpoints.py.
    def tell_extend(self, cid: bytes, mode: int, base: int) -> None:
        host = self.host
        k = self.edge.index
        if self.port:
            inst = host.instances.get(self.edge.src)
            if inst:
                inst.ck.on_extend(self.port.reader(self.edge), cid, mode, base)
        else:
            host.exchange.say(
                self.producer, frames.EXT, (k, cid), k, self.inc, self.sink.epoch, cid, mode, base
            )
