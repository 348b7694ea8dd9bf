# The exchange: what a host and its neighbours say to each other. It keeps a link to each neighbour, takes
# frames apart, and fills frames with what is to be said.
#
# The state that hosts tell each other is soft: everything that is outstanding is said again until it is
# answered (`retry`), so no message is needed permanently. The consumer of a stream speaks first (HELLO), and
# takes and acknowledges nothing before the producer has answered (ANSWER).
#
# Promises.
#   - `receive` never raises, whatever the frame is. What it refuses it counts, by a closed set of reasons.
#   - A handler hears a message only from a host that may say it, about something that the plan has, with
#     numbers in it that can be: ROLES and HANDLERS, by the kind of the message. What it says may still be a
#     lie of that host about itself.
#   - A frame that is sent may lie in a buffer that the next one uses again: whoever keeps it copies it.

from . import block, wire
from .const import const
from .instance import ASKING, FETCHING, STOPPED
from .plan import OUTSIDE
from .ports import OutPort
from .position import EPOCH_MAX, FAR
from .refusals import CONTENT, FRAME, RANGE, ROLE, SEAL, SITE, STRANGER
from .ring import Cursor
from .seal import OPENED, TAKEN

_CID_MAX = const(16)

# Who may say a message. Of an edge: a host that may run its producer, or one that consumes, under an epoch of
# its own. Of an operator: see judging.py.
_ANYONE = const(0)
_PRODUCER = const(1)
_CONSUMER = const(2)
_GATEWAY = const(3)
_JUDGED = const(4)
_NOBODY = const(5)  # it belongs to the site link


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


class Exchange:
    # send(host number, frame)
    def __init__(self, host, send, mtu):
        self.host = host
        self.send = send
        self.writer = wire.Writer(mtu)
        self.links = {}
        self.arriving = {}  # kind -> handler, once the module of that name is loaded: it stays
        self.asked_us = 0  # when the time was asked for that was answered last

    # Speak to a neighbour from now on. What a former boot asked is not answered now.
    def meet(self, number, peer):
        self.links[number] = Link(number, peer)
        self.asked_us = self.host.now - 1

    # Say this to a host, in the next frame. False where there is no link to it.
    def say(self, number, kind, subject, *values):
        link = self.links.get(number)
        if link:
            link.want(kind, subject, *values)
            return True
        return False

    def ask_time(self):
        if self.host.me:
            self.say(0, wire.CLOCK, 0, self.host.now)

    def say_state(self):
        for number in self.links:
            self.say(number, wire.BEAT, 0, self.host.state(), self.host.boot_number)

    # ---- in

    # A frame arrived from somewhere. True where its messages were looked at.
    def receive(self, frame):
        host = self.host
        try:
            head = wire.header(frame)
            sender = head[0]
            link = self.links.get(sender)
            if link is None:
                host.count(STRANGER)
                return False
            peer = link.peer
            span = peer.open(frame, head)
            if peer.reply:
                self._reply(link)
            if peer.why != TAKEN and peer.why != OPENED:
                host.count(SEAL + peer.why)
                return False
            if peer.live and link.life != (peer.log, peer.boot):
                link.life = (peer.log, peer.boot)
                self._new_life(link)
            messages = wire.messages(frame, span[0], span[1], peer.log, host.store.log_number) if span else ()
        except wire.FrameError:
            host.count(FRAME)
            return False
        for m in messages:
            if self.may_say(sender, m):
                self.hear(sender, m)
        return True

    # Give a message that may be said to its handler. One of a consumer goes to the port that it consumes, if
    # that is here, in its present incarnation, and if no newer epoch of the consumer has spoken before.
    def hear(self, sender, m):
        kind = m[0]
        handler = self.arriving.get(kind)
        if handler is not None:
            handler(self.host, sender, m)
            return
        handler = self.HANDLERS.get(kind, Exchange._needed)
        if self.ROLES[kind] != _CONSUMER:
            handler(self, sender, m)
            return
        host = self.host
        edge = host.plan.edges[m[1]]
        port = host.ports.get((edge.src, edge.sport))
        if port is None:
            w = host.where[edge.src]
            if w[2] != host.me:
                self.say(sender, wire.WHERE, edge.src, edge.src, w[:2], w[2])
            return
        r = port.reader(edge)
        if m[2] != port.inc and kind != wire.HELLO:
            return
        if m[3] < r.epoch:
            port.refuse(r, sender)
        else:
            handler(port, r, sender, m)

    # Another host began a new life: everything it had not stored is gone.
    def _new_life(self, link):
        host = self.host
        for e in list(host.inputs.values()):
            if e.port is None and e.producer == link.number:
                from . import wiring

                e.contact = False
                wiring.hello(host, e)
        for p in host.ports.values():
            for r in p.readers:
                if r.host == link.number and not r.local:
                    r.live = False
        link.want(wire.BEAT, 0, host.state(), host.boot_number)
        host.late.pop(link.number, None)

    # Whether this message may be heard.
    def may_say(self, sender, m):
        plan = self.host.plan
        role = self.ROLES[m[0]]
        sane = self._sane
        ok = True
        if role == _CONSUMER or role == _PRODUCER:
            if m[1] >= len(plan.edges):
                self.host.count(RANGE)
                return False
            e = plan.edges[m[1]]
            if role == _PRODUCER:
                ok = plan.may_run(e.src, sender)
            else:
                ok = plan.may_run(e.dst, sender) if e.dst != OUTSIDE else sender == 0
                ok = ok and m[3][1] == sender and m[3][0] <= EPOCH_MAX
        elif role == _GATEWAY:
            ok = sender == 0
        elif role == _JUDGED:
            if m[1] >= len(plan.vertices) or not plan.vertices[m[1]].kind:
                self.host.count(RANGE)
                return False
            from . import judging

            ok = judging.may_say(self.host, sender, m)
            sane = judging.sane
        elif role == _NOBODY:
            self.host.count(SITE)
            return False
        if not ok:
            self.host.count(ROLE)
        elif not sane(plan, m):
            self.host.count(CONTENT)
            ok = False
        return ok

    # Whether the numbers of a message of an edge or of a host can be: positions and names as long as those of
    # the operator, no stream time or ts beyond any.
    def _sane(self, plan, m):
        kind = m[0]
        if kind == wire.DATA:
            return True  # its block is read where it is taken
        if kind == wire.GOT or kind == wire.BOUND:
            return m[4] < FAR
        if kind == wire.SAFE:
            return m[4] < FAR and m[7] < FAR and plan.is_name(plan.edges[m[1]].dst, m[5], m[6])
        if kind == wire.CR:
            return m[3] < FAR and len(m[4]) <= _CID_MAX
        if kind == wire.EXT:
            return m[6] < FAR and len(m[4]) <= _CID_MAX
        if kind == wire.GAP:
            return 0 < m[3] <= m[4] < FAR and m[5] < 256
        if kind == wire.HELLO:
            return 0 < m[4] < FAR
        if kind == wire.ANSWER:
            dst = plan.edges[m[1]].dst
            runs = m[3][1] == 0 if dst == OUTSIDE else plan.may_run(dst, m[3][1])
            ok = runs and m[3][0] <= EPOCH_MAX and max(m[5:9]) < FAR
            return ok and plan.is_name(dst, m[9], m[10])
        return True

    # ---- messages of hosts

    # What most boards need never, or for a moment.
    def _needed(self, sender, m):
        kind = m[0]
        if kind == wire.WHERE:
            from . import moving as module
        elif kind <= wire.ANSWER:
            from . import arriving as module

            self.arriving = module.HANDLERS
        elif kind <= wire.FETCH:
            from . import transfer as module
        else:
            from . import decisions as module
        module.HANDLERS[kind](self.host, sender, m)

    def _on_beat(self, sender, m):
        if m[1] != self.host.state():
            from . import moving

            moving.tell(self.host, sender)

    def _on_clock(self, sender, m):
        host = self.host
        clock = host.clock
        if clock.synced:
            t = clock.true_us(host.now)
            self.say(sender, wire.TIME, 0, m[1], t, t, clock.true_error_us(host.now))

    # What answers nothing that was asked in this life, or less than the last answer, is no answer.
    def _on_time(self, sender, m):
        host = self.host
        if m[1] > self.asked_us and host.clock.exchange(m[1], m[2], m[3], host.now, m[4]):
            self.asked_us = m[1]

    # ---- what was not answered is said again

    def retry(self):
        host = self.host
        if not host.clock.synced:
            self.ask_time()  # until then everything is stamped by guess
        for inst in host.instances.values():
            inst.settle_depth()
            for e in inst.inputs:
                if e.ring and e.contact and e.depth != inst.depth:
                    from . import arriving

                    arriving.got(host, e, 0)
        for e in list(host.inputs.values()):
            if not e.contact and e.sink.status != STOPPED:
                from . import wiring

                wiring.hello(host, e)
        for p in host.ports.values():
            p.send_again()
        if host.pushes:
            from . import transfer

            transfer.push_again(host)
        if host.again:
            from . import moving

            moving.ask(host)
        for inst in list(host.instances.values()):
            if inst.status == STOPPED:
                continue  # just now: what another one said named a newer epoch
            if inst.status == FETCHING:
                host.fetch(inst)
            elif inst.status == ASKING:
                from . import decisions

                decisions.ask(host, inst.vertex.index, inst.epoch, inst.decided)
            elif inst.decisions:
                from . import decisions

                decisions.propose(host, inst)
            if inst.unsettled:
                from . import transfer

                transfer.recall(host, inst)
        if host.outbox is not None:
            from . import decisions

            decisions.offer(host)

    # ---- out

    def flush(self):
        arriving = None
        for e in self.host.inputs.values():
            if e.ack and e.ring is not None and e.contact:
                if arriving is None:
                    from . import arriving
                arriving.acknowledge(self.host, e)
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
        for p in self.host.ports.values():
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
        epoch = self.host.instances[p.vertex.index].epoch if p.vertex.kind else (0, 0)
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
            packed = self.host.packed
            if packed and packed[0] is p and packed[1] == xi + 1 and packed[2] <= n and not r.gaps:
                if not open_:
                    peer.begin(w)
                    open_ = True
                if w.put(wire.DATA, index, p.inc, epoch, memoryview(self.host.scratch)[: packed[3]]):
                    n = packed[2]
                    r.cur.xi = xi + n
                    if xi == r.got:
                        r.progress_us = self.host.now
                    continue
                if w.count:
                    self._seal(link)
                    peer.begin(w)
                    continue
            batch = self.host.batch(p.alphabet)
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
                r.progress_us = self.host.now
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

    # ---- who may say a message, and what hears it

    # By kind, from 0; DATA is 1.
    ROLES = b"\0\1\1\1\1\2\2\2\2\1\4\4\4\4\4\4\4\4\4\0\3\0\5\5\5\5\4\4"
    # What is not here is heard by a module that most boards need never: see _needed.
    HANDLERS = {
        wire.GOT: OutPort.hear_got,
        wire.SAFE: OutPort.hear_safe,
        wire.EXT: OutPort.hear_extend,
        wire.HELLO: OutPort.hear_hello,
        wire.CLOCK: _on_clock,
        wire.TIME: _on_time,
        wire.BEAT: _on_beat,
    }
