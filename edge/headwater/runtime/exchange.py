# The exchange: messages between a host and its neighbours. It keeps a link to each neighbour, takes frames
# apart, and fills frames with pending messages.
#
# The state that hosts exchange is soft: every message is sent again until it is answered (`retry`), so the
# loss of any one does no harm. The consumer of a stream speaks first (HELLO), and takes and acknowledges
# nothing before the producer has answered (ANSWER).
#
# Promises.
#   - `receive` never raises, whatever the frame is. What it refuses it counts, by a closed set of reasons.
#   - A handler hears a message only from a host that may say it, about something that the plan has, with
#     possible numbers in it: ROLES and HANDLERS, by the kind of the message. The sender may still lie about
#     itself.
#   - A frame that is sent may lie in a buffer that the next one uses again: to keep it, copy it.

from ..data import block
from ..offboard.compat import TYPE_CHECKING, const
from ..plan.model import OUTSIDE
from ..protocol import frames
from ..protocol.position import EPOCH_MAX, FAR
from ..protocol.refusals import BARE, CONTENT, FRAME, RANGE, REVOKED, ROLE, SEAL, SITE, STRANGER
from ..protocol.sessions import OPENED, TAKEN
from .instance import EXPOSED, FETCHING, RUNNING, STOPPED
from .outputs import OutPort

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..offboard.interfaces import Message, Readable
    from ..plan.model import Plan
    from ..protocol.sessions import Peer
    from .host import Host
    from .meter import Meter
    from .outputs import Reader

_CID_MAX = const(16)
_RECALL_BIT = const(30)  # a STORED with an offset of at least 1 << 30 answers a recall: see incoming.RECALL

# Who may say a message. Of an edge: a host that may run its producer, or one that consumes, under an epoch of
# its own. Of an operator: see judging.py, but for what comes with each checkpoint.
_ANYONE = const(0)
_PRODUCER = const(1)
_CONSUMER = const(2)
_GATEWAY = const(3)
_JUDGED = const(4)
_NOBODY = const(5)  # it belongs to the site link
_ALARM = const(6)  # see signals.py
_KEEPER = const(7)  # of a checkpoint: a keeper, or, unless it says that it has stored it, a candidate


# What is said to one other host.
class Link:
    def __init__(self, number: int, peer: "Peer") -> None:
        self.number = number
        self.peer = peer
        # (kind, subject) -> values: control messages; a later one replaces an earlier one.
        self.wants: "dict[tuple[int, Any], tuple[Any, ...]]" = {}
        self.order: "list[tuple[int, Any]]" = []
        self.life: tuple[int, int] | None = None  # (log number, boot) of the neighbour
        self.heard_us = 0  # when its last frame came; 0: none has

    def want(self, kind: int, subject: "Any", *values: "Any") -> None:
        key = (kind, subject)
        if key not in self.wants:
            self.order.append(key)
        self.wants[key] = values


class Exchange:
    # send(host number, frame)
    def __init__(self, host: "Host", send: "Callable[[int, Readable], Any]", mtu: int) -> None:
        self.host = host
        self.send = send
        self.writer = frames.Writer(mtu)
        self.links: dict[int, Link] = {}
        # Kind -> handler, once receiver.py is loaded: it stays.
        self.arriving: "dict[int, Any]" = {}
        self.asked_us = 0  # when the time was asked for that was answered last
        self._open = False  # a frame to the neighbour whose turn it is was begun
        self._left = False  # ... and something for it found no room
        self._bare: list[int] = []  # neighbours whose links do not encrypt themselves
        self.lost: tuple[int, ...] = ()  # hosts whose keys are refused, because they are lost
        self.counts: "Meter | None" = None
        self.room: "Callable[[int], int] | None" = None  # frames that go to a host now; None: any number

    # Have frames counted from now on.
    def count_by(self, counts: "Meter") -> None:
        self.counts = counts

    # Fill only as many frames for a host as room(its number) says: what links refuse would wait for a retry.
    def pace_by(self, room: "Callable[[int], int]") -> None:
        self.room = room

    # Speak to a neighbour from now on. What a former boot asked is not answered now.
    def meet(self, number: int, peer: "Peer") -> None:
        self.links[number] = Link(number, peer)
        if number in self._bare:
            peer.hide(True)
        self.asked_us = self.host.now - 1

    # The link to this neighbour does not encrypt itself, or does, whether it is met already or not. False
    # where there is no AES: such a link cannot be used.
    def hide(self, number: int, on: bool) -> bool:
        if number in self._bare:
            self._bare.remove(number)
        if on:
            self._bare.append(number)
        link = self.links.get(number)
        if not link:
            return True
        done = link.peer.hide(on)
        self._reply(link)
        return done

    # At the gateway: refuse the key of a lost host, whatever log number it speaks under; or speak to that
    # host with another key.
    def refuse_key(self, number: int, peer: "Peer | None" = None) -> None:
        self.lost = tuple([n for n in self.lost if n != number])
        if peer:
            self.meet(number, peer)
        else:
            self.lost += (number,)

    # This host speaks to no other any more.
    def leave(self) -> None:
        self.links.clear()

    # Say this to a host, in the next frame. False where there is no link to it.
    def say(self, number: int, kind: int, subject: "Any", *values: "Any") -> bool:
        link = self.links.get(number)
        if link:
            link.want(kind, subject, *values)
            return True
        return False

    def ask_time(self) -> None:
        if self.host.me:
            self.say(0, frames.CLOCK, 0, self.host.now)

    def say_state(self) -> None:
        if self.host.lost and not self.host.me:
            from . import losses

            losses.press(self.host)
        for number in self.links:
            self.say(number, frames.BEAT, 0, self.host.state(), self.host.boot_number)

    # ---- in

    # A frame arrived from somewhere; bare: over a link that does not encrypt itself. True where its
    # messages were looked at.
    def receive(self, frame: "Readable", bare: bool = False) -> bool:
        host = self.host
        if self.counts:
            self.counts.got(len(frame))
        if bare:
            from ..protocol import cipher

            if not cipher.covered(frame):
                host.count(BARE)
                return False
        try:
            head = frames.header(frame)
            sender = head[0]
            link = self.links.get(sender)
            if link is None:
                host.count(STRANGER)
                return False
            peer = link.peer
            span = peer.open(frame, head)
            frame = peer.plain or frame
            if peer.reply:
                self._reply(link)
            if peer.why != TAKEN and peer.why != OPENED:
                host.count(SEAL + peer.why)
                return False
            if host.lost and sender in host.lost and host.lost[sender][0] == peer.log or sender in self.lost:
                host.count(REVOKED)
                self._revoked(link)
                return False
            link.heard_us = host.now
            if host.words:
                host.words.hear(sender)
            if peer.live and link.life != (peer.log, peer.boot):
                link.life = (peer.log, peer.boot)
                self._new_life(link)
            messages = (
                frames.messages(frame, span[0], span[1], peer.log, host.store.log_number) if span else ()
            )
        except frames.FrameError:
            host.count(FRAME)
            return False
        for m in messages:
            if not host.revoked and self.may_say(sender, m):
                self.hear(sender, m)
        return True

    # Give a message that may be said to its handler. One of a consumer goes to the port that it consumes, if
    # that is here, in its present incarnation, and if no newer epoch of the consumer has spoken before.
    def hear(self, sender: int, m: "Message") -> None:
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
            if host.where[edge.src][2] != host.me:
                host.tell_where(sender, edge.src)
            return
        r = port.reader(edge)
        if m[2] != port.inc and kind != frames.HELLO:
            return
        if m[3] < r.epoch:
            port.refuse(r, sender)
        else:
            handler(port, r, sender, m)

    # Another host began a new boot: everything it had not stored is gone.
    def _new_life(self, link: Link) -> None:
        host = self.host
        for e in list(host.inputs.values()):
            if e.port is None and e.producer == link.number:
                from . import routing

                e.lose()
                routing.hello(host, e)
        for p in host.ports.values():
            p.lose(link.number)
        link.want(frames.BEAT, 0, host.state(), host.boot_number)
        if host.lost and not host.me:
            from . import losses

            losses.tell(host, link.number)
        host.late.pop(link.number, None)
        if host.words:
            host.words.begins(link.number)

    # A host that was declared lost speaks: the gateway tells it which of its log numbers that holds for.
    def _revoked(self, link: Link) -> None:
        if not self.host.me:
            from . import losses

            losses.tell(self.host, link.number, link.number)

    # Whether this sender may say this message, and whether its numbers can be.
    def may_say(self, sender: int, m: "Message") -> bool:
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
        elif role == _ALARM:
            signals = self.host.signals
            ok = signals is not None and signals.may_say(sender, m)
        elif role == _JUDGED or role == _KEEPER:
            if m[1] >= len(plan.vertices) or not plan.vertices[m[1]].kind:
                self.host.count(RANGE)
                return False
            if role == _KEEPER:
                ok = m[0] != frames.STORED and plan.may_run(m[1], sender) or sender in plan.keepers(m[1])
            else:
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
    def _sane(self, plan: "Plan", m: "Message") -> bool:
        kind = m[0]
        if kind == frames.DATA:
            return True  # its block is read where it is taken
        if kind == frames.GOT or kind == frames.BOUND:
            return m[4] < FAR
        if kind == frames.CKPT or kind == frames.STORED:
            return plan.is_position(m[1], m[3])
        if kind == frames.FETCH:
            return plan.is_position(m[1], m[2])
        if kind == frames.SAFE:
            return m[4] < FAR and m[7] < FAR and plan.is_name(plan.edges[m[1]].dst, m[5], m[6])
        if kind == frames.CR:
            return m[3] < FAR and len(m[4]) <= _CID_MAX
        if kind == frames.EXT:
            return m[6] < FAR and len(m[4]) <= _CID_MAX
        if kind == frames.GAP:
            return 0 < m[3] <= m[4] < FAR and m[5] < 256
        if kind == frames.HELLO:
            return 0 < m[4] < FAR
        if kind == frames.ANSWER:
            dst = plan.edges[m[1]].dst
            runs = m[3][1] == 0 if dst == OUTSIDE else plan.may_run(dst, m[3][1])
            ok = runs and m[3][0] <= EPOCH_MAX and max(m[5:9]) < FAR
            return ok and plan.is_name(dst, m[9], m[10])
        return True

    # ---- messages of hosts

    # Messages that most boards never hear, or for a moment only: their modules are loaded when one comes.
    def _needed(self, sender: int, m: "Message") -> None:
        kind = m[0]
        handlers: "Any"
        if kind == frames.WHERE or kind == frames.ASK:
            from . import relocation

            handlers = relocation.HANDLERS
        elif kind <= frames.ANSWER:
            from . import receiver

            handlers = self.arriving = receiver.HANDLERS
        elif kind == frames.GIVE_UP:
            from . import giving_up

            handlers = giving_up.HANDLERS
        elif kind >= frames.LOST:
            from . import losses

            handlers = losses.HANDLERS
        elif kind == frames.STORED and not m[4] >> _RECALL_BIT:
            from . import checkpoint_transfer

            handlers = checkpoint_transfer.HANDLERS
        elif kind <= frames.FETCH:
            from . import incoming

            handlers = incoming.ANSWERS if kind == frames.STORED else incoming.HANDLERS
        elif kind == frames.ALARM:
            from . import signals

            handlers = signals.HANDLERS
        elif kind >= frames.WORD:
            if not self.host.words:
                return  # no operator of this process has a backup that concerns this host
            from . import words

            handlers = words.HANDLERS
            if kind == frames.ROOM and not self.host.giving:
                if not self.host.energy or not self.host.energy.round:
                    return  # it comes too late
                from . import bids

                handlers = bids.HANDLERS
            elif kind > frames.HAND:
                from . import moving

                handlers = moving.HANDLERS
            elif kind > frames.LIVES:
                from . import taking

                handlers = taking.HANDLERS
            elif kind > frames.WORD:
                from . import watching

                handlers = watching.HANDLERS
        else:
            from . import decisions

            handlers = decisions.HANDLERS
        handlers[kind](self.host, sender, m)
        if self.host.moving:
            self.host.rest()  # each step of a move needs other modules

    def _on_beat(self, sender: int, m: "Message") -> None:
        if m[1] != self.host.state():
            from . import relocation

            relocation.tell(self.host, sender)
            if self.host.lost and 0 in (self.host.me, sender):
                from . import losses

                losses.tell(self.host, sender)
        elif not sender and self.host.again:
            from . import checkpoint_transfer

            if checkpoint_transfer.untold(self.host):
                checkpoint_transfer.told(self.host)

    def _on_clock(self, sender: int, m: "Message") -> None:
        host = self.host
        clock = host.clock
        if clock.synced:
            t = clock.true_us(host.now)
            self.say(sender, frames.TIME, 0, m[1], t, t, clock.true_error_us(host.now))

    # Ignore what answers nothing that was asked in this boot, or something older than the last answer.
    def _on_time(self, sender: int, m: "Message") -> None:
        host = self.host
        if m[1] > self.asked_us and host.clock.exchange(m[1], m[2], m[3], host.now, m[4]):
            self.asked_us = m[1]

    # ---- what was not answered is sent again

    def retry(self) -> None:
        host = self.host
        if not host.clock.synced:
            self.ask_time()  # until then everything is stamped by guess
        for inst in host.instances.values():
            inst.settle_depth()
            for e in inst.inputs:
                if e.ring and e.contact and e.depth != inst.depth:
                    from . import receiver

                    receiver.got(host, e, 0)
        for e in list(host.inputs.values()):
            if not e.contact and e.sink.status != STOPPED:
                from . import routing

                routing.hello(host, e)
        for p in host.ports.values():
            p.send_again()
        if host.pushes:
            from . import checkpoint_transfer

            checkpoint_transfer.push_again(host)
        if host.again:
            from . import relocation

            relocation.ask(host)
        for inst in list(host.instances.values()):
            if inst.status == STOPPED:
                continue  # just now: what another one said named a newer epoch
            if inst.status == FETCHING:
                host.fetch(inst)
            elif inst.status == EXPOSED:
                inst.ck.again()
            if inst.vertex.give_up_s and (inst.waited_us or inst.status != RUNNING or inst.lacks()):
                from . import giving_up

                giving_up.wait(host, inst)
            if inst.unsettled:
                from . import incoming

                incoming.recall(host, inst)
        if host.outbox is not None:
            from . import decisions

            decisions.offer(host)

    # ---- out

    def flush(self) -> None:
        receiver: "Any" = None
        for e in self.host.inputs.values():
            if e.ack and e.ring is not None and e.contact:
                if receiver is None:
                    from . import receiver
                receiver.acknowledge(self.host, e)
        for number in self.links:
            self._flush(self.links[number])

    # What finds no room waits until on_room of a carrier, which only calls where somebody has asked in vain:
    # so it is asked for again when the last frame has gone, and with room for one more it goes on.
    def _flush(self, link: Link) -> None:
        while self._fill(link) and not self._full(link):
            pass

    # Fill frames, as many as there is room for. Whether something is left that would go on with more room.
    def _fill(self, link: Link) -> bool:
        self._open = False
        self._left = False
        gone = self.host.lost.get(link.number) if self.host.lost else None
        if gone and self.host.me and (not link.peer.live or gone[0] == link.peer.log):
            link.order.clear()  # no host hears it
            link.wants.clear()
            return False
        if link.order:
            if self._full(link):
                return False
            for key in link.order:
                self._put(link, key[0], *link.wants[key])
            link.order.clear()
            link.wants.clear()
        for p in self.host.ports.values():
            for r in p.readers:
                # To the lake only entries and gaps are sent, and both lie after the cursor.
                if r.local or not r.live or r.host != link.number:
                    continue
                if r.cur.xi < p.ring.last or r.edge.dst != OUTSIDE:
                    if self.room and r.waits(p) and self._full(link):
                        self._left = True
                    else:
                        self._flush_reader(link, p, r)
        if not self._open or not self.writer.count:
            return False
        self._seal(link)
        self._open = False
        return self._left

    # There is no room for another frame to this neighbour, beside the one that is open.
    def _full(self, link: Link) -> bool:
        return self.room is not None and self.room(link.number) <= self._open

    # Have a frame begun.
    def _begin(self, link: Link) -> None:
        if not self._open:
            link.peer.begin(self.writer)
            self._open = True

    # Whether there is room for a frame after the one that is full now.
    def _may_turn(self, link: Link) -> bool:
        if self._full(link):
            self._left = True
            return False
        return True

    # The frame is full: send it, and begin the next one.
    def _turn(self, link: Link) -> None:
        self._seal(link)
        link.peer.begin(self.writer)

    def _seal(self, link: Link) -> None:
        frame = link.peer.seal(self.writer)
        if self.counts:
            self.counts.sent(len(frame))
        self.send(link.number, frame)
        self._reply(link)

    def _reply(self, link: Link) -> None:
        reply = link.peer.take_reply()
        if reply:
            if self.counts:
                self.counts.sent(len(reply))
            self.send(link.number, reply)

    def _put(self, link: Link, kind: int, *values: "Any") -> None:
        self._begin(link)
        if not self.writer.put(kind, *values):
            self._turn(link)
            self.writer.put(kind, *values)

    # Put into frames what reader r may have now.
    def _flush_reader(self, link: Link, p: OutPort, r: "Reader") -> None:
        index = r.edge.index
        inside = r.edge.dst != OUTSIDE
        if inside:
            for cr in p.crs:
                if r.wants_request(cr[3]):
                    self._put(link, frames.CR, index, p.inc, cr[0], cr[1], cr[2])
        while True:
            xi = r.cur.xi
            gap = r.gap_at(xi + 1)
            if gap:
                self._put(link, frames.GAP, index, p.inc, xi + 1, gap[1], gap[2])
                r.seek(gap[1])
                continue
            n = p.due(r)
            if n and not self._open and self._full(link):
                return
            n = n and self._put_entries(link, p, r, n)
            if not n:
                break
            r.sent(xi + n, self.host.now)
        if inside and r.cur.xi == p.ring.last and r.wants_bound(p.bound):
            self._put(link, frames.BOUND, index, p.inc, p.ring.last, p.bound)

    # Put the next entries of reader r into a frame, at most n; how many.
    def _put_entries(self, link: Link, p: OutPort, r: "Reader", n: int) -> int:
        w = self.writer
        index = r.edge.index
        epoch = p.epoch()
        xi = r.cur.xi
        # The bytes that the log took a moment ago, if they are what comes next.
        packed = None if r.gaps else self.host.scratch.kept(p, xi + 1, n)
        if packed:
            self._begin(link)
            while True:
                if w.put(frames.DATA, index, p.inc, epoch, packed[1]):
                    return packed[0]
                if not w.count:
                    break  # too long for any frame: fewer entries go into this one
                if not self._may_turn(link):
                    return 0
                self._turn(link)
        batch = self.host.batch(p.alphabet)
        n = p.read(r.cur, batch, min(n, batch.size))
        for g in r.gaps:
            if xi < g[0] <= xi + n:
                n = g[0] - 1 - xi
        if not n:
            return 0
        self._begin(link)
        while True:
            at = w.open_data(index, p.inc, epoch)
            if at and w.close_data(block.encode(batch, 0, n, at[0], at[1])):
                return n
            if not w.count:
                n //= 2
            elif self._may_turn(link):
                self._turn(link)
            else:
                return 0

    # ---- who may say a message, and what hears it

    # By kind, from 0; DATA is 1.
    ROLES = b"\0\1\1\1\1\2\2\2\2\1\4\7\7\7\4\4\4\4\4\0\3\0\5\5\5\5\4\4\0\4\4\4\4\4\4\4\4\4\4\4\6\3\0\4"
    # What is not here is heard by a module that most boards need never: see _needed.
    HANDLERS: "dict[int, Any]" = {
        frames.GOT: OutPort.hear_got,
        frames.SAFE: OutPort.hear_safe,
        frames.EXT: OutPort.hear_extend,
        frames.HELLO: OutPort.hear_hello,
        frames.CLOCK: _on_clock,
        frames.TIME: _on_time,
        frames.BEAT: _on_beat,
    }
