# The host: one board, one Pi, one simulated machine. It ties the parts together and does no I/O.
#
# In go samples, frames and times; out come frames (through `send`) and durable writes (through
# `store`). Nothing here knows a socket, a file, a clock or a source of randomness.
#
# The state that hosts tell each other is soft: everything that is outstanding is said again until
# it is answered, so that no message is needed for good. Who consumes speaks first (HELLO), and takes
# and acknowledges nothing before the producer has answered (ANSWER).

import struct

from . import block, operators, pack, wire
from .batch import Batch
from .checkpoint import Checkpoint, Checkpoints, holders_needed
from .clock import Floor
from .inputs import InEdge
from .instance import ASKING, FETCHING, RUNNING, STOPPED, WAITING, Instance
from .lakeend import LakeEnd
from .log import LogFull
from .plan import ECOC, FLASH, OUTSIDE
from .ports import OutPort
from .position import further, rank
from .ring import Cursor
from .seal import OPENED, REASONS, TAKEN, Peer
from .source import Source

RETRY_US = 1000000  # what was said and not answered is said again after this
RETRY_MAX_US = 8000000
WAIT_US = 2000000  # how long a restored operator waits for news of its pending checkpoints
NAG_US = 200000  # a gap is asked for no more often than this
GOT_US = 250000  # a Got that nobody waits for may wait this long
BEAT_US = 5000000
_STATE_MAX = 1024  # bytes of an operator's own state, as far as the reserve is concerned
CHECKPOINT_MAX = 65536  # bytes of a checkpoint taken in from elsewhere

_F_BOOT = 1
_F_FLOOR = 2
_F_INC = 0x40  # + vertex: incarnation of a source that began a new one within its log
_F_OP = 0x100  # + vertex: epoch of an operator hosted here, and whether it still is
_F_WHERE = 0x200  # + vertex: where an operator moved to
_F_NEXT = 0x300  # + vertex, at the gateway: number of the last config element
_F_GRANTED = 0x380  # + vertex, at the gateway: number of the last decision granted
_UNTOLD = 2  # it is, and has not heard yet which decisions were granted
_PERMANENT = 0
_HELD = 3
_DECISION = 0x4000  # blob: + vertex * 64 + number % 64: decisions stored here
_GRANTED = 0x8000  # blob, at the gateway: decisions granted


# Flash that samples and spill never enter: twice the largest checkpoint, transfer state at its bound
# included, of every operator that runs here or whose checkpoints are held here.
def reserve_bytes(plan, me):
    total = 0
    for v in plan.vertices:
        if v.kind and me in v.hosts:
            size = _STATE_MAX
            for k in range(len(v.outs)):
                size += 64 + v.outs[k].width * max([e.cap for e in plan.outs(v.index, k)])
            total += 2 * size
    return total


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
    def __init__(self, plan, me, store, keys, clock, send, nonce, outbox=None, mtu=1400):
        self.plan = plan
        self.me = me
        self.store = store
        self.clock = clock
        self.send = send
        self.outbox = outbox
        self.now = 0
        self.writer = wire.Writer(mtu)
        self.mtu = mtu
        self.boot_number = 0
        widest = max([block.bound(a, plan.batch) for v in plan.vertices for a in v.outs])
        self.scratch = bytearray(max(widest, 256))
        self.packed = None  # (port, xi, n, end): the entries whose block lies in scratch
        self.batches = {}  # alphabet text -> batch to decode into
        self.ports = {}  # (vertex, port) -> OutPort
        self.instances = {}  # vertex -> Instance
        self.inputs = {}  # edge -> InEdge, of everything that consumes here
        self.ends = []  # LakeEnds
        self.sources = {}  # vertex -> Source
        self.order = []  # instances and ends, producers first
        self.pushes = {}  # vertex -> [pos, done, tries, due]: checkpoints on their way to holders
        self.incoming = {}  # vertex -> [pos, size, buffer, got]: checkpoints on their way here
        self.stale = set()  # vertices whose pending checkpoints should be looked at
        self.where = [(1, v.hosts[0], v.hosts[0]) for v in plan.vertices]  # epoch number, host; place
        self.dropped = {}  # reason -> frames dropped
        self.keys = keys
        self.nonce = nonce
        self.links = {}
        self.beat_us = 0
        self.tick_us = 0

    # ---- life

    # Start, or start again: everything comes from the store. site_us: what a gateway knows of the
    # site's time at least.
    def start(self, now, site_us=0):
        self.now = now
        store = self.store
        data = store.get(_F_BOOT)
        self.boot_number = (int.from_bytes(data, "little") if data else 0) + 1
        store.put(_F_BOOT, self.boot_number.to_bytes(4, "little"))
        data = store.get(_F_FLOOR)
        floor = int.from_bytes(data, "little") if data else 0
        for v in self.plan.vertices:
            if not v.kind and v.hosts[0] == self.me:
                floor = max(floor, store.tail(v.index * 8)[1])  # a sealed sample is a floor too
        self.floor = Floor(floor)
        self.clock.start(now, self.floor.flash_us)
        if self.outbox is not None:
            self.clock.lead(now, max(site_us, self.floor.flash_us))
        for number in self.keys:
            if number != self.me:
                key = self.keys[number]
                log = store.log_number
                peer = Peer(key, self.me, log, self.boot_number, number, self.plan.hash, self.nonce)
                self.links[number] = Link(number, peer)
        for v in self.plan.vertices:
            data = store.get(_F_WHERE + v.index)
            if data:
                self.where[v.index] = tuple(pack.loads(data))
        for v in self.plan.vertices:
            if not v.kind:
                if v.hosts[0] == self.me:
                    self._start_source(v)
                continue
            data = store.get(_F_OP + v.index)
            if data:
                number, at, active = pack.loads(data)
                if active:
                    inst = self._start_operator(v, (number, at))
                    if active == _UNTOLD:
                        inst.status = ASKING
                        inst.ck.pending = []
                    if (number, at) > self.where[v.index][:2]:
                        self._moved(v.index, (number, at), self.me)  # power went in the middle of it
            elif v.hosts[0] == self.me and self.where[v.index][2] == self.me:
                self._start_operator(v, (1, self.me))
        if self.outbox is not None:
            for e in self.plan.edges:
                if e.dst == OUTSIDE:
                    self._start_end(e)
        self._wire()
        store.ensure_reserve(reserve_bytes(self.plan, self.me))
        for inst in list(self.instances.values()):
            if inst.ck.pos:
                self.store_at_level(inst)
        for link in self.links.values():
            link.want(wire.BEAT, 0, self._state(), self.boot_number)
        self.pump()

    def _start_source(self, v):
        port = OutPort(self, v, 0, self.plan.outs(v.index, 0), True)
        data = self.store.get(_F_INC + v.index)
        port.inc = int.from_bytes(data, "little") if data else self.store.log_number
        port.mount()
        last, ts = self.store.tail(port.stream)
        port.ring.reset(last)
        port.bound = ts
        self.ports[(v.index, 0)] = port
        port.trim()
        self.sources[v.index] = Source(self, v, port, ts)

    def _make(self, v):
        return operators.find(v.kind)(v.params, v.ins, v.outs, self.plan.batch)

    # An operator of this host: from its permanent checkpoint, or from its first state.
    def _start_operator(self, v, epoch):
        inputs = [InEdge(self, e, v.ins[e.dport], None) for e in self.plan.ins(v.index)]
        for e in inputs:
            if not self.plan.vertices[e.edge.src].kind and self.plan.strategy >= ECOC:
                e.every = self.plan.every
        ports = []
        for k in range(len(v.outs)):
            edges = self.plan.outs(v.index, k)
            logged = any([e.durable == FLASH and e.dst == OUTSIDE for e in edges])
            ports.append(OutPort(self, v, k, edges, logged))
        inst = Instance(self, v, self._make(v), inputs, ports)
        inst.epoch = epoch
        inst.ck = Checkpoints(self, inst)
        for e in inputs:
            e.sink = inst
            self.inputs[e.edge.index] = e
        for p in ports:
            p.mount()
            self.ports[(v.index, p.number)] = p
        self.instances[v.index] = inst
        data = self.store.get_blob(self.blob(inst, _PERMANENT))
        if data:
            self._restore(inst, data)
        for slot in (1, 2):
            data = self.store.get_blob(self.blob(inst, slot))
            if data:
                c = self._pending(inst, data, slot)
                if c:
                    inst.ck.pending.append(c)
        pending = inst.ck.pending
        pending.sort(key=lambda c: rank(c.pos))
        if pending:
            inst.status = WAITING
            inst.wait_us = self.now + WAIT_US
        self._load_decisions(inst)
        return inst

    def _pending(self, inst, data, slot):
        try:
            n = 1 + data[0]
            cid = bytes(data[1:n])
            body = bytes(data[n:])
            form, version, pos, outs, _, _, _ = pack.loads(body)
        except (pack.PackError, ValueError, IndexError):
            self._count("pending checkpoint unreadable")
            return None
        if not further(pos, inst.ck.pos):
            self.store.drop_blob(self.blob(inst, slot))
            return None
        return Checkpoint(cid, pos, outs, body, slot)

    def _start_end(self, e):
        v = self.plan.vertices[e.src]
        inp = InEdge(self, e, v.outs[e.sport], None)
        end = LakeEnd(self, inp, self.outbox)
        inp.sink = end
        self.inputs[e.index] = inp
        self.ends.append(end)

    # Connect what runs here with what runs here, and with what runs elsewhere.
    def _wire(self):
        for e in list(self.inputs.values()):
            port = self.ports.get((e.edge.src, e.edge.sport))
            self._connect(e, port)
        self._arrange()

    # The order in which things run, and whose boundaries somebody needs.
    def _arrange(self):
        self.order = [self.instances[v] for v in self.plan.order if v in self.instances] + self.ends
        for inst in self.order[::-1]:
            inst.bounded = False
            for p in inst.ports:
                for r in p.readers:
                    e = r.edge
                    if e.dst == OUTSIDE:
                        continue
                    sink = r.local.sink if r.local else None
                    if sink is None or len(sink.inputs) > 1 or sink.timers or sink.bounded or e.delay_us:
                        inst.bounded = True

    def _connect(self, e, port):
        e.contact = False
        if port is not None:
            e.attach(port)
            for r in port.readers:
                if r.edge is e.edge:
                    r.local = e
                    r.host = self.me
            self._hello_local(e, port)
        else:
            e.detach()
            e.producer = self.where[e.edge.src][2]
            self._hello(e)

    # ---- restoring

    def blob(self, inst, slot):
        return inst.vertex.index * 4 + slot

    # Bring an instance to the checkpoint in `data` (body and transfer state).
    def _restore(self, inst, data):
        n = int.from_bytes(bytes(data[:4]), "little")
        try:
            body = pack.loads(bytes(data[4 : 4 + n]))
            parts, names = pack.loads(bytes(data[4 + n :]))
            form, version, pos, outs, flags, changed, state = body
            if len(pos) != len(inst.inputs) + 2 or len(outs) != len(inst.ports):
                raise ValueError("ports")
            self._set(inst, body)
            for p in inst.ports:
                start, blocks = parts[p.number]
                p.ring.reset(outs[p.number] if not blocks else start)
                p.trim_to = 0
                for b in blocks:
                    w = self.batch(p.alphabet)
                    block.decode(b, 0, len(b), w)
                    p.has_room(w.n)
                    p.ring.append(w, 0, w.n)
                    w.n = 0
                p.ring.tail = None
                for rec in names[p.number]:
                    p.adopt(rec)
                p.trim()
                p.give_up_lost()
        except (pack.PackError, block.BlockError, ValueError) as e:
            raise ValueError("checkpoint of %s unreadable: %s" % (inst.vertex.name, e))
        inst.ck.pos = pos

    def _set(self, inst, body):
        form, version, pos, outs, flags, changed, state = body
        inst.op = self._make(inst.vertex)
        if changed:
            inst.op.configure(changed)
        inst.changed = changed
        inst.op.restore(state, version)
        inst.depth = 0
        inst.fired = pos[-2]
        inst.decided = pos[-1]
        for e, xi, flag in zip(inst.inputs, pos, flags):
            e.reset(xi)
            e.closed = bool(flag[0])
            e.inc = flag[1]
            e.from_ts = flag[2]

    # A pending checkpoint turned out to be acknowledged: go on from there.
    def restore_from(self, inst, c):
        body = pack.loads(bytes(c.body))
        self._set(inst, body)
        for p in inst.ports:
            p.ring.reset(c.outs[p.number])
            p.trim_to = 0
            p.trim()
        for e in inst.inputs:
            self._connect(e, self.ports.get((e.edge.src, e.edge.sport)))
        for p in inst.ports:
            self._readers_again(p)

    # The port jumped: its local consumers look at it anew, remote ones are spoken to again.
    def _readers_again(self, p):
        p.crs = []
        p.bound = 0
        for r in p.readers:
            if r.local:
                self._connect(r.local, p)
            elif r.live:
                r.cur = Cursor(r.got)
                self._answer(p, r)

    # Decisions that were stored here for an operator, behind its checkpoint.
    def _load_decisions(self, inst):
        base = _DECISION + inst.vertex.index * 64
        for key in self.store.blob_keys():
            if base <= key < base + 64:
                number, pos, content, granted = pack.loads(self.store.get_blob(key))
                if number > inst.decided:
                    inst.decisions[number] = (pos, content, granted)

    def forget_decisions(self, inst, upto):
        base = _DECISION + inst.vertex.index * 64
        for number in sorted(inst.decisions):
            if number <= upto:
                del inst.decisions[number]
                if self.store.blob_size(base + number % 64):
                    self.store.drop_blob(base + number % 64)

    def site(self):
        return self.clock.site(self.now)

    # Let boundaries go up to ts: where the floor in flash is too low, log a higher one.
    def raise_floor(self, ts):
        floor = self.floor.need(ts, self.clock.ahead_us(self.now))
        if floor:
            self.store.put(_F_FLOOR, floor.to_bytes(8, "little"))
            self.floor.sealed(floor)

    # No sensor of this host is read before `wake` of its clock: joins need not wait for it till then.
    # To be called last before a sleep; the promise is in the flash before it leaves.
    def sleep(self, now, wake):
        self.now = now
        if self.clock.synced:
            ts = self.site() + wake - now
            if ts > self.floor.flash_us:
                self.store.put(_F_FLOOR, ts.to_bytes(8, "little"))
                self.floor.sealed(ts)
            for s in self.sources.values():
                s.promise(ts)
        self.pump()

    def next_incarnation(self, v):
        data = self.store.get(_F_INC + v)
        inc = (int.from_bytes(data, "little") if data else self.store.log_number) + 1 & 0xFFFFFFFFFFFFFFFF
        self.store.put(_F_INC + v, inc.to_bytes(8, "little"))
        return inc

    def batch(self, alphabet):
        b = self.batches.get(alphabet.text)
        if b is None:
            b = self.batches[alphabet.text] = Batch(alphabet, self.plan.batch)
        return b

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
                    self._boundary(inst)
                    # A boundary may let a join go on.
                    for p in inst.ports:
                        if p.bound > p.bound_seen:
                            p.bound_seen = p.bound
                            busy = True
        self.flush()

    def _boundary(self, inst):
        if inst.status != RUNNING:
            return
        b = inst.bound()
        for p in inst.ports:
            if b > p.bound:
                p.bound = b

    # To be called at least every RETRY_US / 2.
    def tick(self, now):
        self.now = now
        for s in self.sources.values():
            s.tick()
        for inst in list(self.instances.values()):
            if inst.status == WAITING and now >= inst.wait_us:
                inst.status = RUNNING
                inst.ck.pending = []  # nobody acknowledged them: never restored
        if now - self.tick_us >= RETRY_US // 2:
            self.tick_us = now
            self._retry()
            self.store.idle()
        if now - self.beat_us >= BEAT_US:
            self.beat_us = now
            for link in self.links.values():
                link.want(wire.BEAT, 0, self._state(), self.boot_number)
            if self.me and 0 in self.links:
                self.links[0].want(wire.CLOCK, 0, now)
        self.pump()

    # Say again what was not answered.
    def _retry(self):
        now = self.now
        for inst in self.instances.values():
            inst.settle_depth()
            for e in inst.inputs:
                if e.ring and e.contact and e.depth != inst.depth:
                    self._got(e, 0)
        for e in list(self.inputs.values()):
            if e.sink.status == STOPPED:
                continue
            if not e.contact:
                if e.port is None:
                    self._hello(e)
                else:
                    self._hello_local(e, e.port)
        for p in self.ports.values():
            for r in p.readers:
                if r.local or not r.live:
                    continue
                if r.cur.xi > r.got and now - r.progress_us >= (r.rto_us or RETRY_US):
                    r.cur = Cursor(r.got)
                    r.rto_us = min(RETRY_MAX_US, 2 * (r.rto_us or RETRY_US))
                    r.progress_us = now
                if r.cur.xi <= r.got and now - r.progress_us >= 2 * RETRY_US:
                    r.progress_us = now
                    r.crs_sent = 0
                    r.bound_sent = 0
                    if p.ring.last > r.safe and r.host in self.links:
                        # Nothing moves: make the consumer repeat its Got and its Safe.
                        self._answer(p, r)
        for v in list(self.pushes):
            push = self.pushes[v]
            if now >= push[3]:
                push[2] += 1
                push[3] = now + RETRY_US
                self._push(self.instances[v])
        for inst in self.instances.values():
            if inst.status == FETCHING:
                self._fetch(inst)
            elif inst.status == ASKING:
                self._ask(inst)
            elif inst.decisions:
                self._propose(inst)
        if self.outbox is not None:
            self._offer_config()

    # ---- speaking: the consumer's side

    def _hello(self, e):
        e.producer = self.where[e.edge.src][2]
        link = self.links.get(e.producer)
        if link:
            k = e.edge.index
            link.want(wire.HELLO, k, k, e.inc, e.sink.epoch, e.cur.xi + 1, e.sink.position())

    def _hello_local(self, e, port):
        r = port.reader(e.edge)
        if e.inc != port.inc and not self._meet(e, port.inc):
            return
        if not port.on_hello(r, e.sink.epoch, e.cur.xi + 1):
            self._stop(e.sink, r.epoch)
            return
        r.live = False
        self._contact(e, r.epoch, port.first_for(r), r.name, r.holders)
        for cr in port.crs:
            if cr[0] > e.cur.xi or cr[2]:
                e.on_request(cr[0], cr[1], cr[2])

    # The producer's stream has another incarnation than the one taken so far. True where that is
    # no matter: nothing was taken yet, or the lake simply begins another.
    def _meet(self, e, inc):
        if e.sink.ports == () or (e.inc == 0 and e.cur.xi == 0):
            self.renumber(e, inc)
            return True
        return False

    def renumber(self, e, inc):
        e.inc = inc
        e.reset(0 if e.sink.ports else e.sink.begin(inc))
        if e.port is None and e.ring:
            e.ring.reset(e.cur.xi)

    # The producer answered: it knows our epoch from now on. Its name may be further than we are.
    def _contact(self, e, epoch, first, name, holders):
        sink = e.sink
        if epoch > sink.epoch:
            self._stop(sink, epoch)
            return
        if name and sink.ports and further(name, sink.position()):
            if sink.status != FETCHING or further(name, sink.target):
                sink.status = FETCHING
                sink.target = name
                sink.fetch_from = list(holders)
                sink.fetch_try = 0
                self._fetch(sink)
            return
        if e.cur.xi < first:
            self._count("a producer holds nothing from where its consumer stands")
            return
        e.contact = True
        e.ack = True
        e.said = -1
        if not sink.ports:
            sink.told = -1  # said anew
        elif sink.ck.safe_pos:
            sink.ck.announce()

    # A newer epoch runs elsewhere: this one says and takes nothing any more.
    def _stop(self, inst, epoch):
        if inst.ports == () or inst.status == STOPPED:
            return
        v = inst.vertex.index
        inst.status = STOPPED
        self.store.put(_F_OP + v, pack.dumps([inst.epoch[0], inst.epoch[1], 0]))
        self.pushes.pop(v, None)
        for e in inst.inputs:
            self.inputs.pop(e.edge.index, None)
        for p in inst.ports:
            self.ports.pop((v, p.number), None)
            for r in p.readers:
                if r.local:
                    e = r.local
                    e.cur.chunk = 0
                    e.detach()
                    e.contact = False
        self.instances.pop(v, None)
        if self.where[v][:2] < tuple(epoch):
            self._moved(v, epoch, epoch[1])
        self._wire_again()

    def _wire_again(self):
        for e in list(self.inputs.values()):
            port = self.ports.get((e.edge.src, e.edge.sport))
            if port is not e.port or (port is None and e.producer != self.where[e.edge.src][2]):
                self._connect(e, port)
        self._arrange()

    # ---- speaking: the producer's side

    def _answer(self, p, r):
        link = self.links.get(r.host)
        if link:
            epoch = self.instances[p.vertex.index].epoch if p.vertex.kind else (0, 0)
            link.want(
                wire.ANSWER,
                r.edge.index,
                r.edge.index,
                p.inc,
                r.epoch,
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
                link.want(
                    wire.SAFE, e.edge.index, e.edge.index, e.inc, e.sink.epoch, xi, name, holders, load
                )

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
        if inst.status == STOPPED:
            return
        if not holders_needed(self.plan.level):
            inst.ck.stored(inst.ck.pos, (self.me,))
            return
        old = self.pushes.get(inst.vertex.index)
        if old and old[0] == inst.ck.pos:
            return
        self.pushes[inst.vertex.index] = [inst.ck.pos, [], old[2] if old else 0, self.now + RETRY_US]
        self._push(inst)

    # Who may hold the checkpoints of an operator: its backups, and any other host where those are
    # out of reach.
    def _candidates(self, inst):
        first = [h for h in inst.vertex.hosts if h != self.me and h in self.links]
        return first + [h for h in sorted(self.links) if h not in first]

    def _push(self, inst):
        push = self.pushes[inst.vertex.index]
        need = holders_needed(self.plan.level) + push[2]
        for h in self._candidates(inst)[:need]:
            if h not in push[1]:
                self._piece(inst.vertex.index, self.blob(inst, _PERMANENT), push[0], inst.epoch, h, 0)

    # Send the piece at `offset` of a stored checkpoint.
    def _piece(self, v, key, pos, epoch, to, offset):
        size = self.store.blob_size(key)
        if not size or offset > size or to not in self.links:
            return
        piece = bytearray(min(size - offset, self.mtu - 160))
        self.store.read_blob(key, offset, piece)
        self.links[to].want(wire.CKPT, (v, offset), v, epoch, pos, size, offset, bytes(piece))

    def _on_ckpt(self, sender, v, epoch, pos, size, offset, piece):
        if size > CHECKPOINT_MAX or v >= len(self.plan.vertices) or offset + len(piece) > size:
            self._count("checkpoint out of range")
            return
        link = self.links[sender]
        key = v * 4 + _HELD
        have = self._held_pos(v)
        if have and not further(pos, have):
            link.want(wire.STORED, v, v, epoch, have, size)
        else:
            inc = self.incoming.get(v)
            if inc is None or inc[0] != pos or inc[1] != size:
                if inc is not None and further(inc[0], pos) and self.now - inc[4] < RETRY_US:
                    return
                inc = self.incoming[v] = [pos, size, bytearray(size), 0, self.now]
            if offset == inc[3]:
                inc[2][offset : offset + len(piece)] = piece
                inc[3] += len(piece)
                inc[4] = self.now
            if inc[3] < size:
                link.want(wire.FETCH, v, v, pos, inc[3])
                return
            del self.incoming[v]
            if not self._readable(inc[2], pos):
                self._count("checkpoint unreadable")
                return
            try:
                self.store.put_blob(key, inc[2])
            except LogFull:
                self._count("checkpoint of another host: no room in flash")
                return
            link.want(wire.STORED, v, v, epoch, pos, size)
        inst = self.instances.get(v)
        if inst and inst.status == FETCHING:
            self._jump(inst)

    def _readable(self, data, pos):
        try:
            n = int.from_bytes(bytes(data[:4]), "little")
            pack.loads(bytes(data[4 + n :]))
            return pack.loads(bytes(data[4 : 4 + n]))[2] == pos
        except (pack.PackError, ValueError, IndexError):
            return False

    def _held_pos(self, v, slot=_HELD):
        data = self.store.get_blob(v * 4 + slot)
        if not data:
            return None
        n = int.from_bytes(bytes(data[:4]), "little")
        return pack.loads(bytes(data[4 : 4 + n]))[2]

    def _on_stored(self, sender, v, pos):
        push = self.pushes.get(v)
        inst = self.instances.get(v)
        if push is None or inst is None or further(push[0], pos):
            return
        if sender not in push[1]:
            push[1].append(sender)
        if len(push[1]) >= holders_needed(self.plan.level):
            del self.pushes[v]
            inst.ck.stored(push[0], tuple([self.me] + push[1]))

    # ---- jumping to a checkpoint that a producer names

    def _fetch(self, inst):
        v = inst.vertex.index
        if self._jump(inst):
            return
        asked = inst.fetch_from or list(inst.vertex.hosts)
        others = [h for h in asked if h != self.me and h in self.links]
        if others:
            h = others[inst.fetch_try % len(others)]
            inst.fetch_try += 1
            got = self.incoming.get(v)
            self.links[h].want(wire.FETCH, v, v, inst.target, got[3] if got else 0)

    # Restore from the held checkpoint if it is the one we wait for, or a later one.
    def _jump(self, inst):
        v = inst.vertex.index
        for slot in (_HELD, _PERMANENT):
            pos = self._held_pos(v, slot)
            if pos and not further(inst.target, pos):
                data = self.store.get_blob(v * 4 + slot)
                self._restore(inst, data)
                if slot == _HELD:
                    self.store.put_blob(v * 4 + _PERMANENT, data)
                inst.ck.pending = []
                inst.ck.safe_pos = []
                self._load_decisions(inst)
                self.store.put(_F_OP + v, pack.dumps([inst.epoch[0], inst.epoch[1], _UNTOLD]))
                inst.status = ASKING
                for e in inst.inputs:
                    self._connect(e, self.ports.get((e.edge.src, e.edge.sport)))
                for p in inst.ports:
                    self._readers_again(p)
                self.store_at_level(inst)
                self._ask(inst)
                return True
        return False

    # ---- activation

    # Run operator v here from now on, under a new epoch.
    def activate(self, v, number, now):
        self.now = now
        vertex = self.plan.vertices[v]
        epoch = (number, self.me)
        inst = self.instances.get(v)
        if inst:
            if inst.epoch >= epoch:
                return
            self._stop(inst, epoch)  # a former epoch of it, which does not know yet that it is over
        self.store.put(_F_OP + v, pack.dumps([number, self.me, _UNTOLD]))
        held = self._held_pos(v)
        mine = self._held_pos(v, _PERMANENT)
        if held and (not mine or further(held, mine)):
            self.store.put_blob(v * 4 + _PERMANENT, self.store.get_blob(v * 4 + _HELD))
        for slot in (1, 2):
            if self.store.blob_size(v * 4 + slot):
                self.store.drop_blob(v * 4 + slot)
        inst = self._start_operator(vertex, epoch)
        inst.status = ASKING
        self._moved(v, epoch, self.me)
        for e in inst.inputs:
            self._connect(e, self.ports.get((e.edge.src, e.edge.sport)))
        self._wire_again()
        if inst.ck.pos:
            self.store_at_level(inst)
        self._ask(inst)
        self.pump()

    def _moved(self, v, epoch, host):
        self.where[v] = (epoch[0], epoch[1], host)
        self.store.put(_F_WHERE + v, pack.dumps(list(self.where[v])))
        for link in self.links.values():
            link.want(wire.WHERE, v, v, epoch, host)

    def _on_where(self, v, epoch, host):
        if v >= len(self.plan.vertices) or epoch <= self.where[v][:2]:
            return
        self._moved(v, epoch, host)
        inst = self.instances.get(v)
        if inst and epoch > inst.epoch:
            self._stop(inst, epoch)
        self._wire_again()

    def _state(self):
        total = 0
        for w in self.where:
            total = total * 31 + w[0] * 7 + w[1] & 0xFFFFFFF
        return total

    # ---- decisions

    # At the gateway: change parameters of an operator while it runs.
    def configure(self, v, params):
        return self._config(v, ["set", params])

    # At the gateway: let a join go on without an input whose producer is dead, and take it back.
    def close(self, v, port):
        return self._config(v, ["close", port])

    def reopen(self, v, port, inc, from_ts):
        return self._config(v, ["open", port, inc, from_ts])

    def _config(self, v, content):
        data = self.store.get(_F_NEXT + v)
        number = (int.from_bytes(data, "little") if data else 0) + 1
        if number - self._granted_upto(v) > 60:
            raise ValueError("%s has 60 changes to take yet" % self.plan.vertices[v].name)
        self.store.put_blob(_GRANTED + v * 64 + number % 64, pack.dumps([number, None, content]))
        self.store.put(_F_NEXT + v, number.to_bytes(4, "little"))
        self._offer_config()
        self.flush()
        return number

    # Offer config elements that no operator has proposed a position for yet.
    def _offer_config(self):
        for v in range(len(self.plan.vertices)):
            data = self.store.get(_F_NEXT + v)
            number, pos, content = self._granted(v, self._granted_upto(v) + 1) if data else (0, None, None)
            if number and number <= int.from_bytes(data, "little"):
                self._say(self.where[v][2], wire.CONFIG, v, v, number, pack.dumps(content))

    def _granted(self, v, number):
        data = self.store.get_blob(_GRANTED + v * 64 + number % 64)
        found = pack.loads(data) if data else [0, None, None]
        return found if found[0] == number else [0, None, None]

    # Number of the last decision that has its position.
    def _granted_upto(self, v):
        data = self.store.get(_F_GRANTED + v)
        return int.from_bytes(data, "little") if data else 0

    # Send, or hand over where it is for this host itself.
    def _say(self, to, kind, subject, *values):
        if to == self.me:
            self._handle(self.me, (kind,) + values)
        elif to in self.links:
            self.links[to].want(kind, (subject, values[1]), *values)

    # A config element: it takes effect where the operator stands when it comes, in every life. So
    # the position is stored before it is proposed, and the operator does not go past it unanswered.
    def _on_config(self, v, number, content):
        inst = self.instances.get(v)
        if not inst or number != inst.decided + 1 or number in inst.decisions or not inst.may_decide():
            return  # the gateway offers it again
        content = pack.loads(bytes(content))
        if content[0] == "open":
            # What is older than it has taken it cannot take any more.
            if not inst.front:
                return
            content[3] = max(content[3], inst.front + inst.past)
        self._keep_decision(inst, number, inst.position(), content, 0)
        self._propose(inst)

    def _propose(self, inst):
        for number in sorted(inst.decisions):
            pos, content, granted = inst.decisions[number]
            if not granted:
                v = inst.vertex.index
                self._say(0, wire.PROPOSE, v, v, inst.epoch, number, pos, pack.dumps(content))

    # At the gateway: the first proposal of a number stands, unless a newer instance has asked since.
    def _on_propose(self, sender, v, epoch, number, pos, content):
        if epoch < self.where[v][:2] or number > self._granted_upto(v) + 1:
            return
        have, at, what = self._granted(v, number)
        if not have:
            return
        if at is None or number > self._granted_upto(v):
            if at is None:
                at = pos
                what = pack.loads(bytes(content))  # the operator may have said from where it can reopen
            self.store.put_blob(_GRANTED + v * 64 + number % 64, pack.dumps([number, at, what]))
            self.store.put(_F_GRANTED + v, number.to_bytes(4, "little"))
        self._say(sender, wire.GRANT, v, v, number, at, pack.dumps(what))

    def _on_grant(self, v, number, pos, content):
        inst = self.instances.get(v)
        if not inst or number <= inst.decided:
            return
        have = inst.decisions.get(number)
        if have is None or not have[2]:
            self._keep_decision(inst, number, pos, pack.loads(bytes(content)), 1)

    def _keep_decision(self, inst, number, pos, content, granted):
        key = _DECISION + inst.vertex.index * 64 + number % 64
        self.store.put_blob(key, pack.dumps([number, pos, content, granted]))
        inst.decisions[number] = (pos, content, granted)

    # An operator that starts on another host than before first hears which decisions were granted:
    # from then on the gateway takes no proposal of an older epoch.
    def _ask(self, inst):
        v = inst.vertex.index
        self._say(0, wire.ASK, v, v, inst.epoch, inst.decided)

    def _on_ask(self, sender, v, epoch, number):
        self._on_where(v, epoch, sender)
        if epoch < self.where[v][:2]:
            return
        last = self._granted_upto(v)
        for n in range(number + 1, last + 1):
            have, pos, content = self._granted(v, n)
            if have:
                self._say(sender, wire.GRANT, v, v, n, pos, pack.dumps(content))
        self._say(sender, wire.TOLD, v, v, last)

    def _on_told(self, v, last):
        inst = self.instances.get(v)
        if inst and inst.status == ASKING:
            for n in range(inst.decided + 1, last + 1):
                if n not in inst.decisions or not inst.decisions[n][2]:
                    return  # one was lost on the way: ask again
            for n in sorted(inst.decisions):
                if not inst.decisions[n][2]:
                    del inst.decisions[n]  # proposed in an earlier life, and not granted
            self.store.put(_F_OP + v, pack.dumps([inst.epoch[0], inst.epoch[1], 1]))
            inst.status = RUNNING

    # ---- frames

    def _count(self, reason):
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    # A frame arrived from somewhere. Whatever it is, it never raises.
    def receive(self, frame, now):
        self.now = now
        try:
            sender = wire.header(frame)[0]
            link = self.links.get(sender)
            if link is None:
                self._count("unknown sender")
                return
            peer = link.peer
            span = peer.open(frame)
            self._reply(link)
            if peer.why not in (TAKEN, OPENED):
                self._count("seal: " + REASONS[peer.why])
                return
            if peer.live and link.life != (peer.log, peer.boot):
                link.life = (peer.log, peer.boot)
                self._new_life(sender)
            messages = wire.messages(frame, span[0], span[1], peer.log, self.store.log_number) if span else ()
        except wire.FrameError as e:
            self._count("frame: " + str(e.args[0]))
            return
        for m in messages:
            self._handle(sender, m)
        self.pump()

    # Another host began a new life: everything it had not stored is gone.
    def _new_life(self, sender):
        for e in list(self.inputs.values()):
            if e.port is None and e.producer == sender:
                e.contact = False
                self._hello(e)
        for p in self.ports.values():
            for r in p.readers:
                if r.host == sender and not r.local:
                    r.live = False
        self.links[sender].want(wire.BEAT, 0, self._state(), self.boot_number)

    def _handle(self, sender, m):
        kind = m[0]
        if kind == wire.DATA:
            self._on_data(sender, m[1], m[2], m[3], m[4])
        elif kind in (wire.GOT, wire.SAFE, wire.EXT, wire.HELLO):
            self._on_consumer(sender, m)
        elif kind in (wire.CR, wire.BOUND, wire.GAP, wire.ANSWER):
            self._on_producer(sender, m)
        elif kind == wire.WHERE:
            self._on_where(m[1], m[2], m[3])
        elif kind == wire.BEAT:
            if m[1] != self._state():
                for v in range(len(self.where)):
                    w = self.where[v]
                    if w[0] > 1:
                        self.links[sender].want(wire.WHERE, v, v, w[:2], w[2])
        elif kind == wire.CLOCK:
            if self.clock.synced:
                t = self.clock.site(self.now)
                self.links[sender].want(wire.TIME, 0, m[1], t, t, self.clock.error_us(self.now))
        elif kind == wire.TIME:
            self.clock.exchange(m[1], m[2], m[3], self.now, m[4])
        elif m[1] >= len(self.plan.vertices):
            self._count("unknown vertex")
        elif kind == wire.CKPT:
            self._on_ckpt(sender, m[1], m[2], m[3], m[4], m[5], m[6])
        elif kind == wire.STORED:
            self._on_stored(sender, m[1], m[3])
        elif kind == wire.FETCH:
            self._on_fetch(sender, m[1], m[2], m[3])
        elif kind == wire.CONFIG:
            self._on_config(m[1], m[2], m[3])
        elif kind == wire.PROPOSE:
            if self.outbox is not None:
                self._on_propose(sender, m[1], m[2], m[3], m[4], m[5])
        elif kind == wire.GRANT:
            self._on_grant(m[1], m[2], m[3], m[4])
        elif kind == wire.ASK:
            if self.outbox is not None:
                self._on_ask(sender, m[1], m[2], m[3])
        elif kind == wire.TOLD:
            self._on_told(m[1], m[2])

    def _on_fetch(self, sender, v, pos, offset):
        for slot in (_PERMANENT, _HELD):
            have = self._held_pos(v, slot)
            if have and not further(pos, have):
                inst = self.instances.get(v)
                self._piece(v, v * 4 + slot, have, inst.epoch if inst else (0, 0), sender, offset)
                return

    # ---- messages from a producer

    # Entries are missing between what is here and what the producer has sent.
    def _missing(self, e):
        if self.now - e.gap_us >= NAG_US:
            e.gap_us = self.now
            self._got(e, 1)

    def _on_data(self, sender, edge, inc, epoch, data):
        e = self.inputs.get(edge)
        if e is None or e.port is not None or not e.contact or e.inc != inc or sender != e.producer:
            return
        ring = e.ring
        try:
            xi, n = block.peek(data)
            if xi > ring.last + 1:
                self._missing(e)
                return
            e.ack = True
            skip = ring.last + 1 - xi
            if skip >= n or n - skip > ring.room():
                return
            b = self.batch(e.alphabet)
            block.decode(data, 0, len(data), b)
        except block.BlockError as err:
            self._count("block: " + str(err.args[0]))
            return
        ring.append(b, skip, n - skip)
        ring.tail = None
        ts = b.ts_of(n - 1)
        if ts > e.limit:
            e.limit = ts

    def _on_producer(self, sender, m):
        kind = m[0]
        e = self.inputs.get(m[1])
        if e is None or e.port is not None:
            return
        if sender != e.producer:
            # It was the producer once. What it says of a newer epoch of ours is true all the same.
            if kind == wire.ANSWER and m[3] > e.sink.epoch:
                self._stop(e.sink, m[3])
            return
        if kind == wire.ANSWER:
            _, _, inc, epoch, _, first, last, bound, safe, name, holders = m
            if inc != e.inc and not self._meet(e, inc):
                return
            again = e.contact
            self._contact(e, epoch, first, name, holders)
            if again and e.contact and not e.sink.ports:
                e.sink.announce(True)
            if e.contact and last <= e.ring.last and bound > e.limit:
                e.limit = bound
            elif again and last > e.ring.last:
                self._missing(e)
        elif not e.contact or m[2] != e.inc:
            return
        elif kind == wire.CR:
            e.on_request(m[3], bytes(m[4]), m[5])
        elif kind == wire.BOUND:
            if e.ring.last < m[3]:
                self._missing(e)
            elif m[4] > e.limit:
                e.limit = m[4]
        elif kind == wire.GAP:
            if not e.sink.ports and m[3] <= e.ring.last + 1 <= m[4]:
                e.sink.step()
                e.sink.gap(m[3], m[4], m[5])
                e.ack = True
                e.said = -1

    # ---- messages from a consumer

    def _on_consumer(self, sender, m):
        kind = m[0]
        if m[1] >= len(self.plan.edges):
            self._count("unknown edge")
            return
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
            if inc != port.inc and inc != 0:
                r.host = sender
                self._answer(port, r)
                return
            nxt = m[4]
            if not port.vertex.kind and inc == port.inc and nxt > port.ring.last + 1:
                self._lost_numbering(port)
            if not port.on_hello(r, epoch, nxt):
                self._refuse(port, r, sender)
                return
            if edge.dst != OUTSIDE and r.local:
                self._stop(r.local.sink, epoch)  # it ran here, and runs elsewhere now
                r.local = None
            r.host = sender
            r.progress_us = self.now
            self._answer(port, r)
        elif epoch < r.epoch:
            self._refuse(port, r, sender)
        elif kind == wire.GOT:
            if not r.live:
                return
            xi, room, flags = m[4], m[5], m[6]
            r.depth = flags >> 1
            if xi > r.got:
                r.got = xi
                r.progress_us = self.now
                r.rto_us = 0
            if flags & 1:
                # The consumer may have gone back, and this may have overtaken what it said before.
                r.got = xi
                r.cur = Cursor(xi)
            elif r.cur.xi < xi:
                r.cur = Cursor(xi)
            r.room = room
        elif kind == wire.SAFE:
            if not port.vertex.kind and m[4] > port.ring.last:
                self._lost_numbering(port)
                return
            if port.on_safe(r, epoch, m[4], m[5], m[6], m[7]):
                self.stale.add(edge.src)
        elif kind == wire.EXT:
            inst = self.instances.get(edge.src)
            if inst:
                inst.ck.on_extend(r, bytes(m[4]), m[5], m[6])

    # An older epoch speaks: it learns of the newer one, and nothing else happens.
    def _refuse(self, port, r, sender):
        link = self.links[sender]
        k = r.edge.index
        first = port.first()
        last = port.ring.last
        link.want(wire.ANSWER, k, k, port.inc, r.epoch, (0, 0), first, last, 0, r.safe, r.name, r.holders)

    # A consumer knows more of this source than the source itself: its numbering was lost.
    def _lost_numbering(self, port):
        self.sources[port.vertex.index].begin_again()

    # ---- out

    def _got(self, e, flags):
        link = self.links.get(e.producer)
        if link:
            e.depth = min(e.sink.depth, 255)
            flags += 2 * e.depth
            k = e.edge.index
            link.want(wire.GOT, k, k, e.inc, e.sink.epoch, e.ring.last, e.ring.room(), flags)
        e.ack = False
        e.said = e.ring.last
        e.said_us = self.now

    def flush(self):
        for e in self.inputs.values():
            # At once where the producer may wait for room, else a few in one.
            if e.ack and e.ring is not None and e.contact:
                if e.said < 0 or 2 * (e.ring.last - e.said) >= e.ring.cap or self.now - e.said_us >= GOT_US:
                    self._got(e, 0)
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
                if r.cur.xi >= p.ring.last and p.readers and r.edge.dst == OUTSIDE:
                    continue
                if r.host == link.number and r.live and not r.local:
                    open_ = self._flush_reader(link, p, r, open_)
        if open_ and w.count:
            self._seal(link)

    def _seal(self, link):
        self.send(link.number, bytes(link.peer.seal(self.writer)))
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
        epoch = self.instances[p.vertex.index].epoch if p.vertex.kind else (0, 0)
        batch = self.batch(p.alphabet)
        for cr in p.crs:
            if cr[3] > r.crs_sent and r.edge.dst != OUTSIDE:
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
            n = min(p.ring.last - xi, r.got + r.room - xi, batch.size)
            if n <= 0 or xi < p.first():
                break
            packed = self.packed
            if packed and packed[0] is p and packed[1] == xi + 1 and packed[2] <= n and not r.gaps:
                n = packed[2]
            else:
                packed = None
                n = p.read(r.cur, batch, n)
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
                if packed and at and at[1] + packed[3] <= w.mtu:
                    end = at[1] + packed[3]
                    w.mem[at[1] : end] = memoryview(self.scratch)[: packed[3]]
                    if w.close_data(end):
                        break
                elif at and not packed and w.close_data(block.encode(batch, 0, n, at[0], at[1])):
                    break
                if w.count:
                    self._seal(link)
                    peer.begin(w)
                elif packed:
                    packed = None
                    n = p.read(r.cur, batch, n)
                else:
                    n //= 2
            r.cur.xi += n
            r.progress_us = self.now if r.cur.xi - n == r.got else r.progress_us
        if p.bound > r.bound_sent and r.edge.dst != OUTSIDE and r.cur.xi == p.ring.last:
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
