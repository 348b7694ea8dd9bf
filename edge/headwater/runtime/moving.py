# Moving: an operator of this host is handed over to another one. The other side: taking.py.
#
#   asking    BID: which host could take it? The answers (ROOM) cost nothing, and no input waits for them
#   ahead     the newest permanent checkpoint goes to it: if this host dies now, that one has it. Meanwhile no
#             newer one becomes permanent
#   draining  where this host's log holds what a checkpoint does not carry, the operator pauses, and sends,
#             until the rest fits. Where it logs all that it puts out it pauses in any case: what it put out
#             before ACCEPT comes would be in that log alone
#   offering  OFFER, until ACCEPT or REFUSE
#   handing   the operator pauses. Its checkpoint is made where it stands, with what its consumers lack, and
#             nothing stays pending. HAND names that checkpoint; it goes piece by piece, as it is fetched
#   over      a producer, a consumer or the other host itself tells of the newer epoch: the operator has ended
#             here (relocation.py). Or the time of the offer and one step more have passed: it goes on, and
#             that checkpoint is its permanent one. Or the other host refused: it goes on at once
#
# Invariants.
#   - One operator at a time. What is offered runs, has a checkpoint of its epoch at the plan's level, and no
#     decision that too few hosts know of.
#   - Between the pause and the end of the offer the operator takes nothing, so the other host, which begins
#     from that checkpoint or one further, takes nothing that was taken here.
#   - A paused operator goes on or ends, whatever is lost: this host waits for no message.
#   - An operator that this host took itself may go on as soon as its epoch is stored at the level, although
#     its checkpoint is still on its way to more hosts: a host that is dead would hold it here.

from ..board.unload import unload
from ..offboard.compat import TYPE_CHECKING, const
from ..plan.model import UNSAFE
from ..protocol import frames, moves, offers
from ..storage.keyspace import HELD, PERMANENT, checkpoint_key
from ..storage.log import LogFull
from .instance import PAUSED, RUNNING, STOPPED

if TYPE_CHECKING:
    from ..offboard.interfaces import Epoch, Message, Position
    from .host import Host
    from .instance import Instance

_ASKING = const(0)
_AHEAD = const(1)
DRAINING = const(2)
OFFERING = const(3)
_HANDING = const(4)
_DRAIN_US = const(60000000)  # a pause for draining lasts no longer,
_STALL = const(3)  # ... nor for so many steps after the last entry was made safe,
_STALL_LONG = const(10)  # ... or so many, where a battery ends or a person waits
_HOUR_US = const(3600000000)  # a host that failed to take an operator is not offered it again for so long
_APART_US = const(600000000)  # between two moves of an operator that nobody asked for, at least


class Move:
    def __init__(self, host: "Host", inst: "Instance", to: int, why: int, number: int) -> None:
        self.host = host
        self.inst = inst
        self.v = inst.vertex.index
        self.to = to  # -1: the one that `choose` finds
        self.hosts = [to] if to >= 0 else _candidates(host, self.v)
        self.bids: "dict[int, Message]" = {}  # host -> its ROOM
        self.why = why
        self.number = number  # never used again by this host in this boot, nor in the last few
        self.step = _ASKING
        self.tries = 0
        self.again_us = 0  # when what waits for an answer is said again
        self.size = host.store.blob_size(
            checkpoint_key(self.v, PERMANENT)
        )  # of the checkpoint, as it is offered
        self.until_us = host.now + self.patience_us()  # when this step has failed
        self.pos: "Position" = []
        self.unsent = 0  # while draining: entries that are still to be made safe, and when the last one was
        self.sent_us = 0

    # ---- steps

    def go(self, step: int) -> None:
        self.step = step
        self.tries = 0
        self.again_us = 0
        if step < _HANDING and step != DRAINING:
            self.until_us = self.host.now + self.patience_us()
        self.tick()

    # For how long the other host need not answer.
    def patience_us(self) -> int:
        step = self.host.pace[2]
        return 2 * step + offers.lasts_us(step, self.size)

    # To be called at least every step. What is not answered is said again.
    def tick(self) -> None:
        host = self.host
        inst = self.inst
        if inst.status == STOPPED:
            self.end(offers.OK if host.where[self.v][2] == self.to else offers.ELSEWHERE)
        elif self.step == _HANDING and inst.status != PAUSED:
            self.end(offers.NOT_READY)  # a producer named a checkpoint further than this one
        elif self.step < _HANDING and not _ready(inst):
            self.end(offers.NOT_READY)
        elif self.step == DRAINING:
            self._drain()
        elif self.step == _HANDING and host.now > self.until_us:
            self.end(offers.OVER)
        elif host.now >= self.again_us:
            self.again_us = host.now + host.pace[2] // 4
            self.tries += 1
            if self.step < _HANDING and host.now > self.until_us:
                self.refused(offers.SILENT)
            else:
                self._say()

    def _say(self) -> None:
        host = self.host
        v = self.v
        if self.step == _ASKING:
            if self.tries > 3 and self.bids:
                self._chosen()  # the others take too long
                return
            for h in self.hosts:
                host.exchange.say(h, frames.BID, v, v, self.number, _rates(host, v))
        elif self.step == _AHEAD:
            from . import incoming

            incoming.send(host, v, self.to)
        elif self.step == OFFERING:
            inst = self.inst
            left = host.energy.open().left_s() if host.energy else offers.FOREVER
            host.exchange.say(
                self.to, frames.OFFER, v, v, self.number, inst.epoch, self.why, inst.position(),
                self.size, left, _rates(host, v),
            )  # fmt: skip
        else:
            inst = self.inst
            host.exchange.say(self.to, frames.HAND, v, v, self.number, inst.epoch, self.pos, inst.ck.front)
            if self.tries == 1:
                from . import incoming

                incoming.send(host, v, self.to)  # its beginning; the rest as that is fetched

    # A host could take it, or says why not.
    def answer(self, sender: int, m: "Message") -> None:
        if self.step == _ASKING and sender in self.hosts:
            self.bids[sender] = m
            if len(self.bids) == len(self.hosts):
                self._chosen()

    # The checkpoint of this operator is on its way ahead.
    def ahead(self, inst: "Instance") -> bool:
        return inst is self.inst and self.step == _AHEAD

    def _chosen(self) -> None:
        to, refused = choose(self.host, self.v, self.why, self.bids)
        ck = self.inst.ck
        if refused:
            self.refused(refused)
            return
        self.to = to
        if not ck.need() or not ck.pos or (ck.pos == ck.safe_pos and self.to in ck.holders):
            self._ready_to_offer()
        else:
            self.go(_AHEAD)

    # A host has stored a checkpoint of operator v.
    def stored(self, sender: int, v: int, epoch: "Epoch", pos: "Position") -> None:
        if self.step == _AHEAD and (sender, v, epoch) == (self.to, self.v, self.inst.epoch):
            self._ready_to_offer()

    # What came with this answer may have stopped the operator, or made it wait: then the move ends.
    def _ready_to_offer(self) -> None:
        from . import lifecycle

        if not _ready(self.inst):
            self.tick()
            return
        self.unsent = _unsent(self.inst)
        if self.unsent or any([p.logged for p in self.inst.ports]):
            lifecycle.pause(self.inst)
            self.until_us = self.host.now + _DRAIN_US
            self.sent_us = self.host.now
            for p in self.inst.ports:
                p.again()
            self.go(DRAINING)
        else:
            self._offer()

    def _drain(self) -> None:
        host = self.host
        left = _unsent(self.inst)
        if left < self.unsent:
            self.unsent = left
            self.sent_us = host.now
        if not left:
            self._offer()
        elif host.now > self.until_us or self._stalls():
            self.end(offers.UNSENT)
        else:
            for p in self.inst.ports:
                if p.spills:
                    p.press()

    # Whether nothing is made safe any more: it is not worth the pause.
    def _stalls(self) -> bool:
        host = self.host
        steps = _STALL_LONG if self.why in (moves.FLEE, moves.COMMAND) else _STALL
        return host.now - self.sent_us > steps * host.pace[2]

    def _offer(self) -> None:
        from ..storage import reserve

        most = reserve.checkpoint_bytes(self.host.plan, self.inst.vertex)
        self.size = min(most, _size(self.inst))
        self.go(OFFERING)

    # ACCEPT.
    def accepted(self) -> None:
        from . import lifecycle

        if self.step != OFFERING:
            return
        host = self.host
        inst = self.inst
        if not _ready(inst):
            self.end(offers.NOT_READY)
            return
        self.until_us = host.now + offers.lasts_us(host.pace[2], self.size) + host.pace[2]
        if inst.status == RUNNING:
            lifecycle.pause(inst)
        if not inst.ck.last():
            self.end(offers.UNSENT if _unsent(inst) else offers.LOG)
            return
        self.pos = inst.ck.pos
        self.go(_HANDING)

    # That host does not begin it. Where the battery ends here, others are asked first.
    def refused(self, reason: int) -> None:
        host = self.host
        pause_us = 2 * host.period_us if self.why == moves.FLEE else 0
        if reason in (offers.HEAP, offers.LOG):
            pause_us = _HOUR_US
        if pause_us and self.to >= 0:
            host.refused_by[self.v * 256 + self.to] = host.now + pause_us
        self.end(reason)

    # The move is over: the operator goes on here, or has ended here.
    def end(self, outcome: int) -> None:
        from . import lifecycle

        host = self.host
        host.gives(None)
        if self.inst.status == PAUSED:
            lifecycle.take_back(self.inst)
        over(host, self.v, outcome)
        if host.energy:
            host.energy.open().gave(self.v, self.size, self.why, outcome)
        unload("runtime.moving")


# Whether an operator may be handed over now: it runs, every open input has answered, and all that has to be
# known about it is stored at the plan's level.
def _ready(inst: "Instance") -> bool:
    if inst.status not in (RUNNING, PAUSED):
        return False  # an EXPOSED one has a decision of which too few hosts know
    return not (inst.blind or inst.recalling or inst.unsettled or inst.deciding)


# How many entries its ports have in the log that a consumer has not made safe: a checkpoint does not carry
# all of them, and no other host could serve them.
def _unsent(inst: "Instance") -> int:
    return sum([max(0, p.sealed - r.safe) for p in inst.ports if p.spills for r in p.readers])


# Bytes that its checkpoint will have, about.
def _size(inst: "Instance") -> int:
    size = inst.op.state_size() + 200 + 40 * len(inst.inputs)
    for p in inst.ports:
        least = min([r.safe for r in p.readers] + [p.ring.last])
        size += 60 * len(p.readers) + (p.ring.last - max(least, p.ring.first)) * (p.alphabet.width + 2)
    return size


# The hosts that may be asked to take operator v.
def _candidates(host: "Host", v: int) -> list[int]:
    found = []
    for h in host.plan.vertices[v].hosts:
        late = host.refused_by.get(v * 256 + h, 0) > host.now
        if h == host.me or h not in host.exchange.links or h in host.lost:
            continue
        if not late and not host.words.dead(h):
            found.append(h)
    return found


# Whom to offer operator v, of those that have bid, for this reason: (host, OK), or (-1, why none). A bid is a
# ROOM. To balance, leaving.py has chosen the host already.
def choose(host: "Host", v: int, why: int, bids: "dict[int, Message]") -> tuple[int, int]:
    best = -1
    most = -1
    refused = offers.SILENT
    first = host.plan.vertices[v].hosts[0]
    for h in sorted(bids):
        _, _, _, _, beside, _, room = bids[h]
        if room // 2:
            refused = room // 2
        elif why == moves.APART and not room & 1:
            refused = offers.NO_CANDIDATE
        elif beside > most or (beside == most and h == first):
            best = h
            most = beside
    return best, offers.OK if best >= 0 else refused


# What an operator takes and gives, as hosts that may take it want to know.
def _rates(host: "Host", v: int) -> "list[int]":
    return list(host.energy.open().rates(v))[: offers.RATES_MAX] if host.energy else []


# ---- what other modules and the program around the host ask for


# See Host.move.
def begin(host: "Host", v: int, to: int, why: int) -> int:
    inst = host.instances.get(v)
    refused = _refused(host, inst, v, to, why)
    if not refused:
        assert inst
        if host.taking and host.taking.v == v:
            host.taking.end()
        if host.energy:
            host.energy.open().gives()
        host.gives(Move(host, inst, to, why, _number(host)))
        host.giving.tick()
    elif not host.giving:
        unload("runtime.moving")
    return refused


def _refused(host: "Host", inst: "Instance | None", v: int, to: int, why: int) -> int:
    if to == host.me and inst:
        return offers.HERE
    if inst is None:
        return offers.ELSEWHERE
    if not host.words or to >= 0 and (to not in inst.vertex.hosts or to not in host.exchange.links):
        return offers.NO_CANDIDATE
    if to < 0 and not _candidates(host, v):
        return offers.NO_CANDIDATE
    if why in (moves.BALANCE, moves.APART) and v in host.moves:
        if host.site() - 1000000 * host.moves[v][1] < _APART_US:
            return offers.RECENT
    if host.plan.strategy == UNSAFE:
        return offers.UNKEPT
    if host.quiet:
        return offers.DRAINING
    if host.giving or (host.taking and host.taking.v == v and not host.taking.begun):
        return offers.BUSY
    if why != moves.COMMAND and host.refused_by.get(v * 256 + to, 0) > host.now:
        return offers.RECENT
    return offers.OK if _ready(inst) else offers.NOT_READY


# Operator v is out of touch with a producer for long: another candidate may hear all of them.
def apart(host: "Host", v: int) -> None:
    begin(host, v, -1, moves.APART)


# A number for an offer: none that this host gave a moment ago, in this boot or in the last one.
def _number(host: "Host") -> int:
    return host.boot_number % 4096 * 65536 + host.now // 1000 % 65536


# The gateway asks the host of operator v to hand it over. Asked for the same again while that is under way,
# it repeats the request: it may have been lost.
def ask(host: "Host", v: int, to: int) -> None:
    w = host.where[v]
    asked = host.asked.get(v)
    again = asked is not None and asked[1:] == [to, offers.PENDING]
    if not asked or not again:
        asked = host.asked[v] = [_number(host) + 1, to, offers.PENDING]
    if w[2] == to and (to != host.me or v in host.instances):
        asked[2] = offers.OK if again else offers.HERE
    elif v in host.instances:
        refused = _asked(host, v, to)
        if refused:
            over(host, v, refused)
    elif not host.exchange.say(w[2], frames.MOVE, v, v, asked[0], to):
        over(host, v, offers.SILENT)


# A person asks this host for a move: the one that is under way, or another one. Why it is refused, or OK.
def _asked(host: "Host", v: int, to: int) -> int:
    move = host.giving
    if move and (move.v, move.to) == (v, to):
        return offers.OK
    return begin(host, v, to, moves.COMMAND)


# A move of operator v has this outcome: the host that asked for it hears of that.
def over(host: "Host", v: int, outcome: int) -> None:
    asked = host.asked.get(v)
    if asked and asked[2] == offers.PENDING:
        asked[2] = outcome
        if host.me:
            host.exchange.say(0, frames.MOVED, v, v, asked[0], outcome)


# ---- messages


def _on_room(host: "Host", sender: int, m: "Message") -> None:
    move = host.giving
    if move and [move.v, move.number] == list(m[1:3]):
        move.answer(sender, m)
    elif host.energy and host.energy.round:
        host.energy.round.heard(sender, m)


def _on_accept(host: "Host", sender: int, m: "Message") -> None:
    move = host.giving
    if move and (move.v, move.to, move.number) == (m[1], sender, m[2]):
        move.accepted()


def _on_refuse(host: "Host", sender: int, m: "Message") -> None:
    move = host.giving
    if move and (move.v, move.to, move.number) == (m[1], sender, m[2]):
        move.refused(m[3])


# The host that goes on from a checkpoint that this one has lets it be kept under the new epoch. What differs
# is not kept so: its bytes will come.
def _on_keep(host: "Host", sender: int, m: "Message") -> None:
    from ..storage import checkpoint_file

    _, v, epoch, old, pos, size = m
    from . import incoming

    host.heard_where(v, tuple(epoch), sender)
    for slot in (PERMANENT, HELD):
        have = incoming.place(host, v, slot)
        if have is None or list(have[1]) != list(pos) or v in host.instances:
            continue
        key = checkpoint_key(v, slot)
        if have[0] == tuple(old) and host.store.blob_size(key) == size:
            try:
                if not checkpoint_file.keep(host.store, key, key, tuple(epoch)):
                    return
            except LogFull:
                return
        elif have[0] != tuple(epoch):
            continue
        host.exchange.say(sender, frames.STORED, v, v, epoch, pos, size)
        return


# The gateway asks for a move. Asked again, it hears again what came of it.
def _on_move(host: "Host", sender: int, m: "Message") -> None:
    _, v, number, to = m
    asked = host.asked.get(v)
    if not asked or asked[0] != number:
        asked = host.asked[v] = [number, to, offers.PENDING]
        refused = _asked(host, v, to)
        if refused:
            asked[2] = refused
    host.exchange.say(0, frames.MOVED, v, v, number, asked[2])


def _on_moved(host: "Host", sender: int, m: "Message") -> None:
    asked = host.asked.get(m[1])
    if asked and asked[0] == m[2] and asked[2] == offers.PENDING:
        asked[2] = m[3]


HANDLERS = {
    frames.ROOM: _on_room,
    frames.ACCEPT: _on_accept,
    frames.REFUSE: _on_refuse,
    frames.KEEP: _on_keep,
    frames.MOVE: _on_move,
    frames.MOVED: _on_moved,
}
