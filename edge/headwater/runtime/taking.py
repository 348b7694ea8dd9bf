# Taking: another host hands an operator over to this one. The other side: moving.py.
#
#   BID     may it be handed over? ROOM answers: a refusal or OK, how long this host would last, its charge,
#           and whether it hears all producers
#   OFFER   ACCEPT, once the producers have told that they know no newer epoch; or REFUSE. From the first
#           ACCEPT on the offer lasts for a time that both sides know
#   HAND    the checkpoint from which to go on: the operator paused there. It arrives piece by piece
#           (incoming.py)
#   begun   the operator starts here under a new epoch, as after any takeover: it asks its keepers and its
#           producers, and goes on from that checkpoint, or from one further that they name
#   KEEP    what the giver has it keeps under the new epoch; no byte of it is sent. So the checkpoint
#           is stored at level peer at once; the giver counts until enough others have it
#
# Invariants.
#   - One offer at a time. A restart of this host ends it.
#   - The operator begins within the time of the offer, or never. Repeats of OFFER do not extend it.
#   - It begins above every epoch that was told, and not at all where a newer one than the giver's is known.
#   - A failure before the epoch is noted leaves nothing behind, and is a REFUSE. A later one restarts this
#     host, and the next boot goes on with the operator.

from ..board.unload import unload
from ..data import block
from ..offboard.compat import TYPE_CHECKING, const
from ..plan.model import UNSAFE
from ..protocol import frames, moves, offers
from ..protocol.position import further
from ..protocol.refusals import NO_HEAP, NO_ROOM
from ..storage.keyspace import HELD, PERMANENT, checkpoint_key
from ..storage.log import LogFull
from .outputs import RETRY_US

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..offboard.interfaces import Epoch, Message, Position
    from ..plan.model import Vertex
    from .host import Host
    from .inputs import InEdge
    from .instance import Instance

_BODY_BYTES = const(256)  # of the body of a checkpoint, beside state and parameters
_PIECES = const(4)  # of heap that an operator takes beside its checkpoint, at least,
_PIECE_BYTES = const(1024)  # ... each as large as this: a heap that was used for long has few larger ones
_SETTLES_US = const(30000000)  # for so long after it has begun other hosts are asked to keep its checkpoint


class Offer:
    def __init__(
        self, host: "Host", v: int, giver: int, number: int, epoch: "Epoch", why: int, size: int
    ) -> None:
        self.host = host
        self.v = v
        self.giver = giver
        self.number = number
        self.epoch = epoch  # under which it runs at the giver
        self.why = why
        self.lasts_us = offers.lasts_us(host.pace[2], size)
        self.until_us = 0  # when it ends; 0: it is not accepted yet
        self.asked: list[int] = []  # producers that have not told yet which epoch they know
        self.newest: "Epoch" = epoch  # that any host has told
        # Of the checkpoint to go on from, once the giver has made it: its position, and the boundary that it
        # knows. What was sent ahead may stand there as well, and not know what was promised since.
        self.pos: "Position | None" = None
        self.front = 0
        self.knows_less = False  # that what is here does
        self.begun = False  # it runs here
        self.asked_us = host.now
        self.others: list[int] = []  # hosts beside the giver that keep the checkpoint under the new epoch
        self.again_us = 0

    # ---- before it begins

    def say(self, kind: int, *values: int) -> None:
        self.host.exchange.say(self.giver, kind, self.v, self.v, self.number, *values)

    # The offer is over, for this reason.
    def refuse(self, reason: int) -> None:
        self.say(frames.REFUSE, reason)
        self.end()

    def end(self) -> None:
        self.leave()
        unload("runtime.taking", "storage.arrival")

    def leave(self) -> None:
        if self.begun and self.why == moves.FLEE:
            # It is about to end: checkpoints go to other hosts first.
            self.host.late[self.giver] = self.host.now + _SETTLES_US
        self.host.takes(None)

    # This host failed to store a checkpoint of operator v. reason: see protocol/refusals.py.
    def fails(self, v: int, reason: int) -> None:
        if v == self.v and not self.begun:
            full = offers.LOG if reason == NO_ROOM else offers.UNREADABLE
            self.refuse(offers.HEAP if reason == NO_HEAP else full)

    # These producers are asked which epoch of it they know. Where that is a newer one the offer is refused.
    def ask(self, hosts: list[int]) -> None:
        self.asked = hosts
        for h in hosts:
            self.host.exchange.say(h, frames.TAKE, self.v, self.v, self.epoch)

    # A host has told of this epoch of operator v.
    def heard(self, sender: int, v: int, epoch: "Epoch") -> None:
        if v != self.v or self.begun:
            return
        self.newest = max(self.newest, epoch, self.host.where[v][:2])
        if sender in self.asked:
            self.asked.remove(sender)
        if self.newest > self.epoch:
            self.refuse(offers.NEWER)
        else:
            self.accept()

    # The giver hears ACCEPT once the producers have answered, or those that can be reached must have: nothing
    # waits for that yet. From then on the time of the offer counts.
    def accept(self) -> None:
        waited_us = self.host.now - self.asked_us
        if self.until_us or not self.asked or waited_us >= self.host.pace[2] // 2:
            if not self.until_us:
                self.until_us = self.host.now + self.lasts_us
            self.say(frames.ACCEPT)

    # The giver has made the checkpoint.
    def hand(self, pos: "Position", front: int) -> None:
        self.pos = pos
        self.front = front
        if not self.begun and not self._begin():
            self._fetch()

    def _fetch(self) -> None:
        self.again_us = self.host.now + self.host.pace[2] // 4
        arriving = self.host.incoming.get(self.v)
        offset = arriving[3] if arriving and arriving[0] == (self.epoch, self.pos) else 0
        self.host.exchange.say(self.giver, frames.FETCH, self.v, self.v, self.pos, offset)

    # A checkpoint of operator v was stored here.
    def arrived(self, v: int) -> None:
        if v == self.v and self.pos is not None and not self.begun:
            self._begin()

    # Whether this checkpoint is to be taken from the giver, although one of its position is here.
    def takes_again(self, v: int, here: "tuple[Epoch, Position]") -> bool:
        return self.knows_less and not self.begun and v == self.v and here == (self.epoch, self.pos)

    # Begin where the checkpoint is here. False where it is not.
    def _begin(self) -> bool:
        from . import incoming

        host = self.host
        v = self.v
        key, have = incoming.newest(host, v, self.pos or (), self.epoch)
        if not have:
            return False
        self.knows_less = have == (self.epoch, self.pos) and incoming.front(host, v, key) < self.front
        if self.knows_less:
            return False
        if host.now > self.until_us:
            self.refuse(offers.OVER)
            return True
        if v in host.instances or host.where[v][:2] > self.epoch:
            self.refuse(offers.NEWER)
            return True
        from . import lifecycle

        known = lifecycle.noted(host, v)
        number = max(host.where[v][0], self.newest[0], known[0][0] if known else 0) + 1
        try:
            if key == checkpoint_key(v, HELD):
                host.store.rename_blob(key, checkpoint_key(v, PERMANENT))
            self.begun = True
            host.take_over(v, number, self.why)
        except (MemoryError, LogFull) as error:
            if v in host.instances:
                raise  # it has begun, under an epoch that is noted: a restart goes on with it
            self.begun = False
            self.refuse(offers.LOG if isinstance(error, LogFull) else offers.HEAP)
        if self.begun:
            self.until_us = host.now + _SETTLES_US
            self.again_us = 0
        return True

    # Whether, in addition, every producer had told that it knows no newer epoch than the giver's. Then no
    # other one has acknowledged anything, and what keepers have lost was of the giver's course, or before it.
    def assured(self, inst: "Instance") -> bool:
        return not self.asked and self.continues(inst)

    # ---- when it has begun

    # Whether an instance goes on where the giver paused. Then it need not wait for its epoch to be stored at
    # the level: a later epoch finds that checkpoint at the giver, or one before it of the same course.
    def continues(self, inst: "Instance") -> bool:
        return self.begun and inst.vertex.index == self.v and inst.position() == list(self.pos or ())

    # Whether another operator may be taken. This one's checkpoint is stored at the level, and the hosts that
    # are in reach had the time to keep it beside the giver. Those that are not may be dead, while the battery
    # of the giver ends under its next operator.
    def settled(self) -> bool:
        inst = self.host.instances.get(self.v)
        step_us = self.host.pace[2]
        safe = inst is None or bool(inst.ck.safe_pos)
        return self.begun and safe and self.until_us - self.host.now < _SETTLES_US - step_us

    # An input has said HELLO. That of the operator says at once how much it has room for, so that entries
    # come with the answer: until then the operator stands.
    def greet(self, e: "InEdge") -> None:
        if not self.begun or e.sink.is_lake or e.sink.vertex.index != self.v:
            return
        k = e.edge.index
        room: int = e.ring.room()  # type: ignore[union-attr]  # its producer is another host
        self.host.exchange.say(e.producer, frames.GOT, k, k, e.inc, e.sink.epoch, e.cur.xi, room, 0)

    # Let the giver keep what it has. Called whenever the checkpoint of an instance goes to holders. Returns
    # the giver; -1: it does not have this one.
    def keep_there(self, inst: "Instance") -> int:
        if self.begun and inst.vertex.index == self.v and list(inst.ck.pos) == list(self.pos or ()):
            size = self.host.store.blob_size(checkpoint_key(self.v, PERMANENT))
            v = self.v
            self.host.exchange.say(self.giver, frames.KEEP, v, v, inst.epoch, self.epoch, inst.ck.pos, size)
            return self.giver
        return -1

    # A host keeps the checkpoint of operator v at pos, under the new epoch. Where enough do beside the giver,
    # that one need not count: it may be about to end.
    def stored(self, sender: int, v: int, pos: "Position") -> None:
        if v != self.v or not self.begun or sender == self.giver or sender in self.others:
            return
        inst = self.host.instances.get(v)
        if inst and list(pos) == list(self.pos or ()) == list(inst.ck.safe_pos):
            self.others.append(sender)
            from . import checkpoint_transfer

            if len(self.others) >= checkpoint_transfer.others(self.host, v):
                inst.ck.stored(inst.ck.safe_pos, tuple([self.host.me] + self.others))
                self.end()

    # ---- time

    def tick(self) -> None:
        host = self.host
        if not self.until_us:
            self.accept()
        elif host.now > self.until_us:
            self.end()
        elif self.begun:
            self._settle()
        elif host.where[self.v][:2] > self.epoch:
            self.refuse(offers.NEWER)
        elif self.pos is not None and host.now >= self.again_us:
            self._fetch()

    # The checkpoint goes to hosts beside the giver, once it is stored at the level.
    def _settle(self) -> None:
        host = self.host
        inst = host.instances.get(self.v)
        if inst is None or further(inst.ck.safe_pos, self.pos or ()) or not inst.ck.need():
            self.end()
        elif inst.ck.safe_pos and self.v not in host.pushes and host.now >= self.again_us:
            self.again_us = host.now + RETRY_US
            if self.giver not in inst.ck.holders:
                self.end()
                return
            from . import incoming

            for h in host.plan.keepers(self.v):
                if (
                    h not in (host.me, self.giver)
                    and h not in host.lost
                    and h not in self.others
                    and h not in host.late
                ):
                    incoming.send(host, self.v, h)


# ---- what is asked


# Why this host cannot take operator v now, or OK. left: how long the host lasts that gives it.
def _cannot(host: "Host", v: int, size: int, rates: "Sequence[int]", why: int, left: int) -> int:
    vertex = host.plan.vertices[v]
    if v in host.instances:
        return offers.HERE
    if host.me not in vertex.hosts:
        return offers.NO_CANDIDATE
    if host.plan.strategy == UNSAFE:
        return offers.UNKEPT
    if host.quiet:
        return offers.DRAINING
    if (host.taking and not host.taking.settled()) or v in host.pushes:
        return offers.BUSY
    if size > host.largest.get(v, 0):
        return offers.LOG
    from .. import operators

    try:
        operators.find(vertex.kind)
        room(vertex, size, host.plan.batch).clear()
    except MemoryError:
        return offers.HEAP
    except (ImportError, KeyError, ValueError):
        return offers.TYPE
    if host.energy:
        return host.energy.open().refuses(v, rates, why, left)
    return offers.OK


# Heap that the operator takes beside its buffers. Of its checkpoint there are in RAM a part as it arrives,
# for which there have to be two places, since something else may lie in one by then; and as it is read its
# body, which has the state, twice, and the largest block.
def room(vertex: "Vertex", size: int, batch: int) -> list[bytearray]:
    from ..storage import arrival

    body = min(size, _BODY_BYTES + vertex.state_bytes + vertex.changed_bytes)
    longest = min(size, max([block.bound(y, batch) for y in vertex.outs] + [0]))
    part = arrival.part_bytes(size)
    sizes = [part, part, body, body, longest] + [_PIECE_BYTES] * _PIECES
    return [bytearray(n) for n in sizes]


# Whether it hears every producer of operator v, feedback aside.
def _hears(host: "Host", v: int) -> bool:
    from . import watching

    return not any([host.words.unheard(h) for h in watching.producers(host, v)[0]])


def _on_bid(host: "Host", sender: int, m: "Message") -> None:
    _, v, number, rates = m
    refused = _cannot(host, v, 0, rates, moves.COMMAND, offers.FOREVER)
    without = beside = left_mc = offers.FOREVER
    if host.energy:
        energy = host.energy.open()
        if energy.powered:
            left_mc = min(energy.left_mc, offers.FOREVER - 1)
            without = energy.left_s()
            beside = energy.left_s(with_=((v, rates),))
    room = 2 * refused + int(_hears(host, v))
    host.exchange.say(sender, frames.ROOM, v, v, number, without, beside, left_mc, room)
    if not host.taking:
        unload("runtime.taking", "storage.arrival")


def _on_offer(host: "Host", sender: int, m: "Message") -> None:
    _, v, number, epoch, why, pos, size, left, rates = m
    offer = host.taking
    if offer and (offer.v, offer.giver, offer.number) == (v, sender, number):
        if not offer.begun:
            offer.accept()
        return
    refused = offers.NEWER if host.where[v][:2] > tuple(epoch) else _cannot(host, v, size, rates, why, left)
    if not refused and why != moves.FLEE:
        from . import checkpoint_transfer

        if checkpoint_transfer.untold(host):
            refused = offers.UNTOLD
    if refused:
        host.exchange.say(sender, frames.REFUSE, v, v, number, refused)
        if refused == offers.NEWER:
            host.tell_where(sender, v)
        if not host.taking:
            unload("runtime.taking", "storage.arrival")
        return
    if host.taking:
        host.taking.leave()
    offer = Offer(host, v, sender, number, tuple(epoch), why, size)
    host.takes(offer)
    from . import watching

    hosts, back = watching.producers(host, v)
    offer.ask([h for h in hosts + back if h not in (host.me, sender)])
    known: "Epoch" = (0, 0)
    for e in host.plan.ins(v):
        port = host.ports.get((e.src, e.sport))
        if port:
            known = max(known, port.reader(e).epoch)
    offer.heard(host.me, v, known)


def _on_hand(host: "Host", sender: int, m: "Message") -> None:
    _, v, number, epoch, pos, front = m
    offer = host.taking
    if offer and (offer.v, offer.giver, offer.number) == (v, sender, number):
        offer.hand(pos, front)
    elif v not in host.instances:
        host.exchange.say(sender, frames.REFUSE, v, v, number, offers.OVER)


HANDLERS = {frames.BID: _on_bid, frames.OFFER: _on_offer, frames.HAND: _on_hand}
