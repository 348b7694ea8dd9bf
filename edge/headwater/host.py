# The host: one board, one Pi, one simulated machine. It ties the parts together and does no I/O.
#
# In go samples, frames and times; out come frames (through `send`) and durable writes (through
# `store`). Nothing here knows a socket, a file, a clock or a source of randomness.
#
# The state that hosts tell each other is soft: everything that is outstanding is said again until
# it is answered, so that no message is needed for good. Who consumes speaks first (HELLO), and takes
# and acknowledges nothing before the producer has answered (ANSWER).

import struct

from . import block, wire
from .batch import Batch
from .const import const
from .instance import ASKING, FETCHING, RUNNING, STOPPED, WAITING
from .once import let_go
from .plan import OUTSIDE
from .position import inputs_of
from .refusals import CONTENT, FRAME, RANGE, ROLE, SEAL, SITE, STRANGER
from .ring import Cursor
from .seal import OPENED, TAKEN

RETRY_US = 1000000  # what was said and not answered is said again after this
LOST_US = 30000000  # a host that has not answered an operator's new epoch for so long is taken for lost
_RETRY_MAX_US = const(8000000)
_BEAT_US = const(5000000)
EPOCH_MAX = 1 << 30
_FAR = 1 << 62  # larger than any xi or ts that may be told
_CID_MAX = const(16)

# Facts and blobs of a host's store. Blob vertex * 4 + 1 and + 2 are pending checkpoints.
F_BOOT = 1
F_FLOOR = 2
# This host came again, with an empty store, to a deployment that it was part of. A byte for each vertex:
# 1 while this gateway has to learn what was decided, 2 until a checkpoint was stored here since.
F_AGAIN = 5
LEARN = 1
LOST = 2
F_INC = 0x40  # + vertex: incarnation of a source that began a new one within its log
F_OP = 0x100  # + vertex: epoch of an operator hosted here, and whether it still is
F_WHERE = 0x200  # + vertex: where an operator moved to
F_MET = 0x500  # + edge to the lake, at the gateway: its source was met, in this version of the process
UNTOLD = 2  # it is, and has not heard yet which decisions were granted
UNSETTLED = 3  # ... or this epoch has no checkpoint at the plan's level yet, or not met a producer
PERMANENT = 0
HELD = 3
DEPLOYMENT = 0x800  # blob: what this board runs (deploy.py)
CRASH = 0x803  # blob: [boot number, text, crashes in a row] of a board (node.py)
DECISION = 0x4000  # blob: + vertex: open decisions stored here


# What is said to one other host.
class Link:
    def __init__(self, number, peer):
        self.number = number
        self.peer = peer
        self.wants = {}  # (kind, subject) -> values: control messages; a later one replaces
        self.order = []
        self.life = None  # (log number, boot) of the neighbour

    def want(self, kind, subject, *values):
        key = (kind, subject)
        if key not in self.wants:
            self.order.append(key)
        self.wants[key] = values


class Host:
    # plan, me (number in it), store (mounted), keys (host number -> key of the link),
    # clock (clock.Clock), send(host number, frame), nonce() -> 64 random bits,
    # outbox: where a gateway's edges to the lake end, else None.
    # The frame that is sent may lie in a buffer that the next one uses again: who keeps it, copies it.
    def __init__(self, plan, me, store, keys, clock, send, nonce, outbox=None, mtu=1400):
        self.plan = plan
        self.me = me
        self.store = store
        self.clock = clock
        self.send = send
        self.outbox = outbox
        self.now = 0
        self.writer = wire.Writer(mtu)
        self.boot_number = 0
        widest = 256
        for v in plan.vertices:
            if not v.kind and v.hosts[0] == me:
                widest = max(widest, block.bound(v.outs[0], plan.batch))
        self.scratch = bytearray(widest)
        self.packed = None  # (port, xi, n, end): the entries whose block lies in scratch
        self.batches = {}  # alphabet text -> batch to decode into
        self.ports = {}  # (vertex, port) -> OutPort
        self.instances = {}  # vertex -> Instance
        self.inputs = {}  # edge -> InEdge, of everything that consumes here
        self.ends = []  # LakeEnds
        self.sources = {}  # vertex -> Source
        self.order = []  # instances and ends, producers first
        self.pushes = {}  # checkpoints on their way to holders (transfer.py)
        self.late = {}  # holder that did not confirm in time -> when it is asked again
        self.incoming = {}  # vertex -> [pos, size, buffer, got]: checkpoints on their way here
        self.largest = {}  # vertex -> bytes of a checkpoint that is kept here, at most
        self.again = b""  # what F_AGAIN says
        self.unlearned = []  # operators of which this gateway does not know yet what was decided
        # ... -> [since when it is being learned, host -> decisions that it says were granted, hosts that have
        # said all they know]
        self.stood = {}
        self.ask_us = 0  # when the gateway asks next how operators stand
        self.stale = set()  # vertices whose pending checkpoints should be looked at
        self.where = [(1, v.hosts[0], v.hosts[0]) for v in plan.vertices]  # epoch number, host; place
        self.dropped = {}  # reason (refusals.py) -> how often
        self.keys = keys
        self.nonce = nonce
        self.links = {}
        self.asked_us = 0  # when the time was asked for that was answered last
        self.beat_us = 0
        self.tick_us = 0
        self.quiet = False  # sources promise nothing: what is drained stays so

    # ---- life

    # Start, or start again: everything comes from the store. again: this host has lost its store, and the
    # others know more than it. A gateway's clock runs already: it is the site's, and not of one process.
    def start(self, now, again=False):
        # Operators come first: while their code is made is when the most room is needed.
        from . import operators

        made = {}
        for v in self.plan.vertices:
            if v.kind and v.hosts[0] == self.me:
                made[v.index] = operators.find(v.kind)(v.params, v.ins, v.outs, self.plan.batch)
        from . import starting

        starting.start(self, now, made, again)
        made = starting = None  # else they stay while this runs
        let_go("starting", "restoring", "wiring", "reserve", "checkpoint_file", "packread")
        self.pump()

    # Run operator v here from now on, under a new epoch.
    def activate(self, v, number, now):
        from . import moving

        self.now = now
        moving.activate(self, v, number)
        self.pump()

    def blob(self, inst, slot):
        return inst.vertex.index * 4 + slot

    # A pending checkpoint turned out to be acknowledged: go on from there.
    def restore_from(self, inst, c):
        from . import restoring

        restoring.from_pending(self, inst, c)

    # The decisions up to number `upto` lie behind a permanent checkpoint.
    def forget_decisions(self, inst, upto):
        if inst.decisions:
            from . import decisions

            decisions.forget(self, inst, upto)

    def site(self):
        return self.clock.site(self.now)

    # Let boundaries go up to ts: where the floor in flash is too low, log a higher one.
    def raise_floor(self, ts):
        floor = self.floor.need(ts, self.clock.ahead_us(self.now))
        if floor:
            self.store.put(F_FLOOR, floor.to_bytes(8, "little"))
            self.floor.sealed(floor)

    # No sensor of this host is read before `wake` of its clock: joins need not wait for it till then.
    # To be called last before a sleep; the promise is in the flash before it leaves.
    def sleep(self, now, wake):
        self.now = now
        if self.clock.synced:
            self.promise(self.clock.at(wake))
        self.pump()

    # No source of this host gives anything below ts from now on, in any boot.
    def promise(self, ts):
        if ts > self.floor.flash_us:
            self.store.put(F_FLOOR, ts.to_bytes(8, "little"))
            self.floor.sealed(ts)
        for s in self.sources.values():
            s.promise(ts)

    def batch(self, alphabet):
        b = self.batches.get(alphabet.text)
        if b is None:
            b = self.batches[alphabet.text] = Batch(alphabet, self.plan.batch)
        return b

    # The scratch buffer, with room for a block of n entries. What sources log always fits; of the rest
    # a block is hardly ever as long as a batch may be.
    def room(self, alphabet, n):
        size = block.bound(alphabet, n)
        if size > len(self.scratch):
            self.packed = None
            self.scratch = bytearray(size)
        return self.scratch

    # ---- samples

    # A batch of samples of source v, whose first was taken at `mono` of this host's clock. What
    # comes back is the number accepted: all, or none where the log is full.
    def sample(self, v, batch, mono):
        source = self.sources[v]
        n = source.take(batch, mono)
        self.pump()
        source.port.ring.tail = None
        return n

    # ---- running

    # Run until nothing more can be done, then say what is to be said.
    def pump(self):
        busy = True
        while busy:
            busy = False
            for s in self.order:
                if s.step():
                    busy = True
            if self.stale:
                busy = True
                for v in sorted(self.stale):
                    self.stale.discard(v)
                    inst = self.instances.get(v)
                    if inst and inst.status != FETCHING:
                        inst.ck.settle()
            for inst in self.order:
                if inst.bounded:
                    b = inst.bound() if inst.status == RUNNING else 0
                    # A boundary may let a join go on.
                    for p in inst.ports:
                        if b > p.bound:
                            p.bound = b
                        if p.bound > p.bound_seen:
                            p.bound_seen = p.bound
                            busy = True
        self.flush()

    # To be called at least every RETRY_US / 2.
    def tick(self, now):
        self.now = now
        if not self.quiet:
            for s in self.sources.values():
                s.tick()
        for inst in list(self.instances.values()):
            if inst.status == WAITING and now >= inst.wait_us:
                inst.status = RUNNING
                inst.ck.discard()
        if now - self.tick_us >= RETRY_US // 2:
            self.tick_us = now
            self._retry()
            self.store.idle()
        if now - self.beat_us >= _BEAT_US:
            self.beat_us = now
            for link in self.links.values():
                link.want(wire.BEAT, 0, self._state(), self.boot_number)
            self._ask_time()
        self.pump()

    def _ask_time(self):
        if self.me and 0 in self.links:
            self.links[0].want(wire.CLOCK, 0, self.now)

    # Say again what was not answered.
    def _retry(self):
        now = self.now
        if not self.clock.synced:
            self._ask_time()  # until then everything is stamped by guess
        for inst in self.instances.values():
            inst.settle_depth()
            for e in inst.inputs:
                if e.ring and e.contact and e.depth != inst.depth:
                    self._arriving().got(self, e, 0)
        for e in list(self.inputs.values()):
            if not e.contact and e.sink.status != STOPPED:
                from . import wiring

                wiring.hello(self, e)
        for p in self.ports.values():
            inst = self.instances.get(p.vertex.index)
            shallow = inst is not None and inst.depth < len(self.plan.vertices)
            for r in p.readers:
                if r.local or not r.live:
                    continue
                if r.cur.xi > r.got and now - r.progress_us >= (r.rto_us or RETRY_US):
                    r.cur = Cursor(r.got)
                    r.rto_us = min(_RETRY_MAX_US, 2 * (r.rto_us or RETRY_US))
                    r.progress_us = now
                if r.cur.xi <= r.got and now - r.progress_us >= 2 * RETRY_US:
                    r.progress_us = now
                    r.crs_sent = 0
                    r.bound_sent = 0
                    if (p.ring.last > r.safe or shallow) and r.host in self.links:
                        # Nothing moves: make the consumer repeat its Got and its Safe.
                        self._answer(p, r)
        if self.pushes:
            from . import transfer

            transfer.push_again(self)
        if self.again:
            from . import moving

            moving.ask(self)
        for inst in list(self.instances.values()):
            if inst.status == STOPPED:
                continue  # just now: what another one said named a newer epoch
            if inst.status == FETCHING:
                from . import transfer

                transfer.fetch(self, inst)
            elif inst.status == ASKING:
                from . import decisions

                decisions.ask(self, inst.vertex.index, inst.epoch, inst.decided)
            elif inst.decisions:
                from . import decisions

                decisions.propose(self, inst)
            if inst.unsettled:
                from . import transfer

                transfer.recall(self, inst)
        if self.outbox is not None:
            from . import decisions

            decisions.offer(self)

    # ---- who takes from whom

    # The stream of an input goes on in another incarnation.
    def renumber(self, e, inc):
        e.inc = inc
        e.reset(0 if e.sink.ports else e.sink.begin(inc))
        if e.port is None and e.ring:
            e.ring.reset(e.cur.xi)

    # A newer epoch runs elsewhere: this one says and takes nothing any more.
    def _stop(self, inst, epoch):
        from . import moving

        moving.stop(self, inst, epoch)

    # ---- speaking: the producer's side

    # other: to what was said under another incarnation; that is no contact.
    def _answer(self, p, r, other=False):
        link = self.links.get(r.host)
        if link:
            epoch = self.instances[p.vertex.index].epoch if p.vertex.kind else (0, 0)
            link.want(
                wire.ANSWER,
                r.edge.index,
                r.edge.index,
                p.inc,
                (0, 0) if other else r.epoch,
                epoch,
                p.first_for(r),
                p.ring.last,
                p.bound,
                r.safe,
                r.name,
                r.holders,
            )

    # ---- acknowledgements, local or not

    def tell_safe(self, e, xi, name, holders, load):
        if not e.contact:
            return
        if e.port:
            r = e.port.reader(e.edge)
            if not e.port.on_safe(r, e.sink.epoch, xi, name, holders, load):
                self._stop(e.sink, r.epoch)
            self.stale.add(e.edge.src)
        else:
            link = self.links.get(e.producer)
            if link:
                link.want(wire.SAFE, e.edge.index, e.edge.index, e.inc, e.sink.epoch, xi, name, holders, load)

    def tell_extend(self, e, cid, mode, base):
        if e.port:
            inst = self.instances.get(e.edge.src)
            if inst:
                inst.ck.on_extend(e.port.reader(e.edge), cid, mode, base)
        else:
            link = self.links.get(e.producer)
            if link:
                link.want(wire.EXT, (e.edge.index, cid), e.edge.index, e.inc, e.sink.epoch, cid, mode, base)

    # A port is full: its consumers are asked for a checkpoint at once.
    def press(self, p):
        if p.urged == p.trim_to and self.now - p.urged_us < RETRY_US:
            return
        p.urged = p.trim_to
        p.urged_us = self.now
        p.request(p.ring.last, self.cid(p.vertex.index, p.inc, p.ring.last), 1)

    # The id of the Check-Request at entry xi of a stream: the same in every life.
    def cid(self, v, inc, xi):
        return struct.pack("<QBQ", inc, v, xi)[:15]

    # ---- permanent at the plan's level

    def moving(self, inst):
        return inst.vertex.index in self.pushes

    def store_at_level(self, inst):
        if inst.status == STOPPED or inst.recalling:
            return
        if not self.plan.level:
            inst.ck.stored(inst.ck.pos, (self.me,))
            return
        from . import transfer

        transfer.push(self, inst)

    # The epoch of an operator has a checkpoint at the plan's level.
    def settled(self, inst):
        from . import restoring

        inst.unsettled = False
        self.no_more(inst.vertex.index, LOST)
        restoring.note_running(self, inst)

    # What F_AGAIN says of an operator is over.
    def no_more(self, v, bit):
        if self.again and self.again[v] & bit:
            self.again[v] -= bit
            self.store.put(F_AGAIN, bytes(self.again))

    def lost(self, v):
        return bool(self.again and self.again[v] & LOST)

    # ---- where operators run

    def tell_where(self, to, v, epoch, host):
        if to == self.me:
            self._on_where(v, epoch, host)
        elif to in self.links:
            self.links[to].want(wire.WHERE, v, v, epoch, host)

    def _on_where(self, v, epoch, host):
        if v < len(self.where) and epoch > self.where[v][:2]:
            from . import moving

            moving.on_where(self, v, epoch, host)

    def _state(self):
        total = 0
        for w in self.where:
            total = total * 31 + w[0] * 7 + w[1] & 0xFFFFFFF
        return total

    # ---- decisions, at the gateway. ValueError says why a change cannot be made, or not now.

    # Change parameters of an operator while it runs.
    def configure(self, v, params):
        from . import decisions, operators

        vertex = self.plan.vertices[v]
        # What it refuses here, with all changes that are made already, it would refuse later.
        op = operators.find(vertex.kind)(vertex.params, vertex.ins, vertex.outs, 1)
        decisions.follow(self, v, op)
        op.configure(params)
        return decisions.config(self, v, ["set", params])

    # Let a join go on without an input whose producer is dead, and take it back.
    def close(self, v, port):
        return self._config(v, ["close", port])

    def reopen(self, v, port, inc, from_ts):
        return self._config(v, ["open", port, inc, from_ts])

    def _config(self, v, content):
        from . import decisions

        return decisions.config(self, v, content)

    # True while it is not known of every operator what was decided.
    @property
    def learning(self):
        return bool(self.unlearned)

    # ---- frames

    def count(self, reason):
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    # A frame arrived from somewhere. Whatever it is, it never raises.
    def receive(self, frame, now):
        self.now = now
        try:
            sender = wire.header(frame)[0]
            link = self.links.get(sender)
            if link is None:
                self.count(STRANGER)
                return
            peer = link.peer
            span = peer.open(frame)
            self._reply(link)
            if peer.why not in (TAKEN, OPENED):
                self.count(SEAL + peer.why)
                return
            if peer.live and link.life != (peer.log, peer.boot):
                link.life = (peer.log, peer.boot)
                self._new_life(link)
            messages = wire.messages(frame, span[0], span[1], peer.log, self.store.log_number) if span else ()
        except wire.FrameError:
            self.count(FRAME)
            return
        for m in messages:
            if self._may_say(sender, m):
                self._handle(sender, m)
        messages = m = None  # their room is for what follows
        self.pump()

    # Another host began a new life: everything it had not stored is gone.
    def _new_life(self, link):
        for e in list(self.inputs.values()):
            if e.port is None and e.producer == link.number:
                from . import wiring

                e.contact = False
                wiring.hello(self, e)
        for p in self.ports.values():
            for r in p.readers:
                if r.host == link.number and not r.local:
                    r.live = False
        link.want(wire.BEAT, 0, self._state(), self.boot_number)
        self.late.pop(link.number, None)

    # Whether this message is about something that the plan has, comes from a host that may say it, and has
    # nothing in it that could not be. What it says may still be a lie of that host about itself.
    def _may_say(self, sender, m):
        kind = m[0]
        plan = self.plan
        sane = Host._sane
        if wire.DATA <= kind <= wire.ANSWER:  # these are of an edge
            if m[1] >= len(plan.edges):
                self.count(RANGE)
                return False
            e = plan.edges[m[1]]
            if wire.GOT <= kind <= wire.HELLO:
                ok = plan.may_run(e.dst, sender) if e.dst != OUTSIDE else sender == 0
                ok = ok and m[3][1] == sender and m[3][0] < EPOCH_MAX
            else:
                ok = plan.may_run(e.src, sender)
        elif kind in (wire.CLOCK, wire.BEAT) or wire.BEAT < kind < wire.STANDS:
            return True
        elif kind == wire.TIME:
            ok = sender == 0
        elif m[1] >= len(plan.vertices) or not plan.vertices[m[1]].kind:
            self.count(RANGE)
            return False
        else:
            from . import judging

            ok = judging.may_say(self, sender, m)
            sane = judging.sane
        if not ok:
            self.count(ROLE)
        elif not sane(self, m):
            self.count(CONTENT)
            ok = False
        return ok

    # Whether the numbers of a message can be: positions and names as long as those of the operator, no
    # stream time or ts beyond any.
    def _sane(self, m):
        kind = m[0]
        if kind == wire.DATA:
            return True  # its block is read where it is taken
        if kind == wire.GOT or kind == wire.BOUND:
            return m[4] < _FAR
        if kind == wire.SAFE:
            return m[4] < _FAR and m[7] < _FAR and self._is_name(self.plan.edges[m[1]].dst, m[5], m[6])
        if kind == wire.CR:
            return m[3] < _FAR and len(m[4]) <= _CID_MAX
        if kind == wire.EXT:
            return m[6] < _FAR and len(m[4]) <= _CID_MAX
        if kind == wire.GAP:
            return 0 < m[3] <= m[4] < _FAR and m[5] < 256
        if kind == wire.HELLO:
            return 0 < m[4] < _FAR
        if kind == wire.ANSWER:
            dst = self.plan.edges[m[1]].dst
            runs = m[3][1] == 0 if dst == OUTSIDE else self.plan.may_run(dst, m[3][1])
            ok = runs and m[3][0] < EPOCH_MAX and max(m[5:9]) < _FAR
            return ok and self._is_name(dst, m[9], m[10])
        return True

    def _is_position(self, v, pos):
        inputs = inputs_of(self.plan.vertices[v])
        return len(pos) == inputs + 2 and max(pos) < _FAR and pos[-1] < EPOCH_MAX

    # The name of a checkpoint of a consumer, and who holds it: none, or a position and hosts.
    def _is_name(self, v, name, holders):
        if holders and max(holders) >= len(self.plan.hosts):
            return False
        return not name or (v != OUTSIDE and self._is_position(v, name))

    def _handle(self, sender, m):
        kind = m[0]
        if kind == wire.DATA:
            self._arriving().data(self, sender, m[1], m[2], m[3], m[4])
        elif kind in (wire.GOT, wire.SAFE, wire.EXT, wire.HELLO):
            self._on_consumer(sender, m)
        elif kind in (wire.CR, wire.BOUND, wire.GAP, wire.ANSWER):
            self._arriving().told(self, sender, m)
        elif kind == wire.WHERE:
            self._on_where(m[1], m[2], m[3])
        elif kind == wire.BEAT:
            if m[1] != self._state():
                from . import moving

                moving.tell(self, sender)
        elif kind == wire.CLOCK:
            if self.clock.synced:
                t = self.clock.true_us(self.now)
                self.links[sender].want(wire.TIME, 0, m[1], t, t, self.clock.true_error_us(self.now))
        elif kind == wire.TIME:
            # What answers nothing that was asked in this life, or less than the last answer, is no answer.
            if m[1] > self.asked_us and self.clock.exchange(m[1], m[2], m[3], self.now, m[4]):
                self.asked_us = m[1]
        elif wire.BEAT < kind < wire.STANDS:
            self.count(SITE)
        elif kind in (wire.CKPT, wire.STORED, wire.FETCH):
            from . import transfer

            transfer.handle(self, sender, m)
        else:
            from . import decisions

            decisions.handle(self, sender, m)

    # What a host needs that consumes what others produce.
    def _arriving(self):
        from . import arriving

        return arriving

    # ---- messages from a consumer

    def _on_consumer(self, sender, m):
        kind = m[0]
        edge = self.plan.edges[m[1]]
        port = self.ports.get((edge.src, edge.sport))
        link = self.links[sender]
        if port is None:
            w = self.where[edge.src]
            if w[2] != self.me:
                link.want(wire.WHERE, edge.src, edge.src, w[:2], w[2])
            return
        r = port.reader(edge)
        inc = m[2]
        epoch = m[3]
        if inc != port.inc and kind != wire.HELLO:
            return
        if kind == wire.HELLO:
            newer = epoch > r.epoch
            if not port.fence(r, epoch):
                self._refuse(port, r, sender)
                return
            if edge.dst != OUTSIDE and r.local:
                self._stop(r.local.sink, epoch)  # it ran here, and runs elsewhere now
                r.local = None
            r.host = sender
            if inc != port.inc and inc != 0:
                if newer:
                    r.live = False  # else it may be late, and have spoken since in the present incarnation
                self._answer(port, r, True)
                return
            nxt = m[4]
            if not port.vertex.kind and inc == port.inc and nxt > port.ring.last + 1:
                from . import restoring

                restoring.begin_again(self.sources[edge.src])  # more than it knows: it lost its numbering
            port.on_hello(r, nxt)
            r.progress_us = self.now
            self._answer(port, r)
        elif epoch < r.epoch:
            self._refuse(port, r, sender)
        elif kind == wire.GOT:
            if not r.live:
                return
            flags = m[6]
            r.depth = flags >> 1
            r.room = m[5]
            self._got(r, m[4])
            if flags & 1:
                # The consumer may have gone back, and this may have overtaken what it said before.
                r.got = m[4]
                r.cur = Cursor(m[4])
        elif kind == wire.SAFE:
            if not port.vertex.kind and m[4] > port.ring.last:
                from . import restoring

                restoring.begin_again(self.sources[edge.src])  # as above
                return
            if port.on_safe(r, epoch, m[4], m[5], m[6], m[7]):
                self.stale.add(edge.src)
            if r.live:
                self._got(r, m[4])
        elif kind == wire.EXT:
            inst = self.instances.get(edge.src)
            if inst:
                inst.ck.on_extend(r, bytes(m[4]), m[5], m[6])

    # The consumer has everything up to xi, in memory at least.
    def _got(self, r, xi):
        if xi > r.got:
            r.got = xi
            r.progress_us = self.now
            r.rto_us = 0
        if r.cur.xi < xi:
            r.cur = Cursor(xi)

    # An older epoch speaks: it learns of the newer one, and nothing else happens.
    def _refuse(self, port, r, sender):
        link = self.links[sender]
        k = r.edge.index
        first = port.first()
        last = port.ring.last
        link.want(wire.ANSWER, k, k, port.inc, r.epoch, (0, 0), first, last, 0, r.safe, r.name, r.holders)

    # ---- out

    def flush(self):
        for e in self.inputs.values():
            if e.ack and e.ring is not None and e.contact:
                self._arriving().acknowledge(self, e)
        for number in self.links:
            self._flush(self.links[number])

    def _flush(self, link):
        w = self.writer
        peer = link.peer
        open_ = False
        for key in link.order:
            if not open_:
                peer.begin(w)
                open_ = True
            if not w.put(key[0], *link.wants[key]):
                self._seal(link)
                peer.begin(w)
                w.put(key[0], *link.wants[key])
        link.order.clear()
        link.wants.clear()
        for p in self.ports.values():
            for r in p.readers:
                # To the lake nothing but entries and gaps goes, and both lie behind the cursor.
                if r.local or not r.live or r.host != link.number:
                    continue
                if r.cur.xi < p.ring.last or r.edge.dst != OUTSIDE:
                    open_ = self._flush_reader(link, p, r, open_)
        if open_ and w.count:
            self._seal(link)

    def _seal(self, link):
        self.send(link.number, link.peer.seal(self.writer))
        self._reply(link)

    def _reply(self, link):
        if link.peer.reply:
            self.send(link.number, bytes(link.peer.reply))
            link.peer.reply = None

    # Put into frames what reader r may have now.
    def _flush_reader(self, link, p, r, open_):
        w = self.writer
        peer = link.peer
        index = r.edge.index
        inside = r.edge.dst != OUTSIDE
        epoch = self.instances[p.vertex.index].epoch if p.vertex.kind else (0, 0)
        if inside:
            for cr in p.crs:
                if cr[3] > r.crs_sent:
                    r.crs_sent = cr[3]
                    open_ = self._put(link, open_, wire.CR, index, p.inc, cr[0], cr[1], cr[2])
        while True:
            xi = r.cur.xi
            if r.gaps:
                told = False
                for g in r.gaps:
                    if g[0] <= xi + 1 <= g[1]:
                        open_ = self._put(link, open_, wire.GAP, index, p.inc, xi + 1, g[1], g[2])
                        r.cur = Cursor(g[1])
                        told = True
                        break
                if told:
                    continue
            n = min(p.ring.last, r.got + r.room) - xi
            if n <= 0 or (xi < p.ring.first and xi < p.first()):
                break
            # The bytes that the log took a moment ago, if they are what comes next.
            packed = self.packed
            if packed and packed[0] is p and packed[1] == xi + 1 and packed[2] <= n and not r.gaps:
                if not open_:
                    peer.begin(w)
                    open_ = True
                if w.put(wire.DATA, index, p.inc, epoch, memoryview(self.scratch)[: packed[3]]):
                    n = packed[2]
                    r.cur.xi = xi + n
                    if xi == r.got:
                        r.progress_us = self.now
                    continue
                if w.count:
                    self._seal(link)
                    peer.begin(w)
                    continue
            batch = self.batch(p.alphabet)
            n = p.read(r.cur, batch, min(n, batch.size))
            for g in r.gaps:
                if xi < g[0] <= xi + n:
                    n = g[0] - 1 - xi
            if not n:
                break
            if not open_:
                peer.begin(w)
                open_ = True
            while True:
                at = w.open_data(index, p.inc, epoch)
                if at and w.close_data(block.encode(batch, 0, n, at[0], at[1])):
                    break
                if w.count:
                    self._seal(link)
                    peer.begin(w)
                else:
                    n //= 2
            r.cur.xi = xi + n
            if xi == r.got:
                r.progress_us = self.now
        if inside and p.bound > r.bound_sent and r.cur.xi == p.ring.last:
            r.bound_sent = p.bound
            open_ = self._put(link, open_, wire.BOUND, index, p.inc, p.ring.last, p.bound)
        return open_

    def _put(self, link, open_, kind, *values):
        w = self.writer
        if not open_:
            link.peer.begin(w)
        if not w.put(kind, *values):
            self._seal(link)
            link.peer.begin(w)
            w.put(kind, *values)
        return True
