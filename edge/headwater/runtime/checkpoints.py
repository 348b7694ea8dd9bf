# Checkpoints: when an operator's state is taken, when it may become permanent, what may be deleted then.
#
# Theory (ECOC). A checkpoint c of an operator holds its state and position. It needs no transfer
# state if every consumer's permanent checkpoint already covers what c has put out: then a restart
# from c owes no consumer anything. So a checkpoint is first *pending*: taken when a Check-Request is
# at the operator's position in an input, passed on at its own place in every output. It becomes
# *permanent* once every output edge is covered by a Safe, and only then are the inputs told Safe.
#
#   uncoordinated  at every interval, at once, with the whole transfer state attached
#   ecoc           as above; a request is obeyed on every input; plain graphs only
#   extended       ecoc, but a request may be answered by an extension: the asker waits for less
#                  (WAIT) or not at all (NOWAIT, inside cycles) and attaches the transfer state
#                  that its consumer then still needs
#   unsafe         none; what was taken is acknowledged at once
#
# Invariants.
#   - Safe(xi) leaves only when a checkpoint at or behind xi is stored at the plan's level.
#   - Permanent: for every output edge, from <= the consumer's acknowledged xi, where `from` is xi_out
#     or, with an extension, the start of the attached transfer state.
#   - At most two pending ones: the oldest stays, the newest is replaced, and takes its requests along.
#   - A pending checkpoint that was not acknowledged is never restored, in any boot.

from ..offboard.compat import TYPE_CHECKING
from ..plan.model import EXTENDED, OUTSIDE, UNCOORDINATED, UNSAFE
from ..protocol.position import further, rank
from ..protocol.refusals import NO_ROOM
from ..storage import checkpoint_bytes
from ..storage.keyspace import PENDING, PERMANENT, checkpoint_key
from ..storage.log import LogFull
from .instance import EXPOSED, PAUSED, STOPPED, WAITING

if TYPE_CHECKING:
    from typing import Any

    from ..offboard.interfaces import Epoch, Position
    from .host import Host
    from .inputs import InEdge
    from .instance import Instance
    from .outputs import Reader

WAIT = 0
NOWAIT = 1
_SEEN = 16  # ids of requests remembered, by the extended strategy


# A checkpoint: its position, and its bytes without transfer state.
class Checkpoint:
    def __init__(
        self, cid: bytes, pos: "Position", outs: list[int], body: bytes, slot: int, front: int = 0
    ) -> None:
        self.cid = cid
        self.pos = pos
        self.outs = outs  # xi of every output port
        self.body = body
        self.slot = slot
        self.front = front  # ts before which nothing follows
        self.since: dict[
            int, int
        ] = {}  # edge number -> start of the transfer state that an extension attaches


class Checkpoints:
    def __init__(self, host: "Host", inst: "Instance") -> None:
        self.host = host
        self.inst = inst
        self.strategy = host.plan.strategy
        self.pending: list[Checkpoint] = []
        self.pos: "Position" = []  # of the permanent checkpoint,
        self.front = 0  # ... and the boundary that it knows
        self.made: "Epoch" = (0, 0)  # the epoch that made the one from which the operator goes on
        self.safe_pos: "Position" = []  # of the one that is stored at the plan's level
        self.holders: tuple[int, ...] = ()
        self.seen: list[bytes] = []
        self.size = inst.op.state_size() + 40  # average bytes of a checkpoint: the local load
        every = host.plan.every
        self.left = every // 2 + (inst.vertex.index * 7919 + 13) % every + 1  # uncoordinated: spread
        self.taken = 0
        self.extended = 0
        self.committed = 0
        self.bytes = 0

    # ---- when

    # n entries were taken.
    def after(self, n: int) -> None:
        if self.strategy == UNCOORDINATED:
            self.left -= n
            if self.left <= 0 and not self._under_way():
                self.left = self.host.plan.every
                self.commit(self._take(b"", 0), True)
        elif self.strategy == UNSAFE:
            for e in self.inst.inputs:
                e.tell_safe(e.cur.xi, [], (), 0)

    # The Check-Requests due on input e; 1 when there were any.
    def due(self, e: "InEdge") -> int:
        did = 0
        while e.crs and e.crs[0][0] <= e.cur.xi:
            xi, cid, urgent = e.crs.pop(0)
            did = 1
            if self.strategy == UNSAFE or (self.strategy == UNCOORDINATED and not urgent):
                continue
            if self.safe(e) >= xi:
                self.announce()  # covered already; the Safe may have been lost
            elif urgent:
                # While one is on its way, the producer asks again: another one would begin that way again,
                # and where it takes longer than the producer waits, none would ever arrive.
                if not self._under_way():
                    self.commit(self._take(cid, 0), True)
            else:
                self.request(e, cid, e.cur.xi)
        return did

    # Whether the permanent checkpoint is on its way to its holders, or ahead of a move. A newer one would
    # begin that way again, and where it takes longer than the interval, none would ever arrive.
    def _under_way(self) -> bool:
        giving = self.host.giving
        return self.inst.vertex.index in self.host.pushes or giving is not None and giving.ahead(self.inst)

    # Input e asks for a checkpoint at xi: take one, or answer by an extension.
    def request(self, e: "InEdge", cid: bytes, xi: int) -> None:
        k = self.inst.inputs.index(e)
        if self.strategy == EXTENDED:
            newest = self.pending[-1].pos if self.pending else self.pos
            base = newest[k] if newest and newest[-1] >= e.since else 0
            known = cid in self.seen
            widest = 1
            for other in self.inst.inputs:
                widest = max(widest, other.alphabet.width)
            if known or (self.pending and widest * (xi - base) < self.load()):
                self.extended += 1
                mode = NOWAIT if e.edge.cyclic else WAIT
                e.tell_extend(cid, mode, base)
                return
        self.plan(cid)

    # Take a checkpoint, and have it acknowledged by every consumer before it is permanent.
    def plan(self, cid: bytes) -> None:
        if self.strategy == EXTENDED and cid not in self.seen:
            self.seen.append(cid)
            if len(self.seen) > _SEEN:
                self.seen.pop(0)
        for c in self.pending:
            if c.cid == cid and c.pos == self.inst.position():
                return
        inst = self.inst
        if len(self.pending) == 2:
            old = self.pending.pop()  # replaced, and its requests with it
            for p in inst.ports:
                p.withdraw(old.outs[p.number], old.cid)
            slot = old.slot
        else:
            slot = PENDING
            if self.pending and self.pending[0].slot == PENDING:
                slot = PENDING + 1
        c = self._take(cid, slot)
        if not self._satisfied(c):
            try:
                key = checkpoint_key(inst.vertex.index, slot)
                self.host.store.put_blob(key, checkpoint_bytes.pending(cid, c.body))
            except LogFull:
                self.host.count(NO_ROOM)
                self._drop(slot)  # of the one that was replaced
                return
        self.pending.append(c)
        for p in inst.ports:
            p.request(c.outs[p.number], cid, 0)
        self.settle()

    # Whether it has not met every producer yet: no checkpoint of the operator's beginning replaces another,
    # so the first one has to name the incarnations of all its inputs.
    def _unmet(self) -> bool:
        inst = self.inst
        if inst.decided:
            return False
        for e in inst.inputs:
            if not e.inc and not self.host.plan.vertices[e.edge.src].kind:
                return True
        return False

    # Take one where the operator stands, and make it permanent without waiting for a consumer.
    def now(self) -> None:
        if self.strategy != UNSAFE and not self._under_way():
            self.commit(self._take(b"", 0), True)

    # The same for an operator that is handed over: nothing stays pending, and nothing of it is on its way to
    # other holders. False where it cannot be made.
    def last(self) -> bool:
        self.discard()
        self.host.pushes.pop(self.inst.vertex.index, None)
        c = self._take(b"", 0)
        # The operator may have given a boundary since, where it stands.
        self.commit(c, True, c.front > self.front)
        return self.front >= c.front and list(self.pos) == self.inst.position()

    # Whether one that carries all that it has to can be taken where the operator stands.
    def possible(self) -> bool:
        return not self._under_way() and not self._behind()

    # The operator stands until a checkpoint is stored at the level, which was not possible before.
    def again(self) -> None:
        if further(self.inst.position(), self.pos):
            self.now()
        elif not self._under_way():
            self.store_at_level()

    # ---- what

    def _take(self, cid: bytes, slot: int) -> Checkpoint:
        inst = self.inst
        self.taken += 1
        state = bytearray(inst.op.state_size())
        inst.op.snapshot(state, 0)
        front = inst.front + inst.past
        outs = []
        for p in inst.ports:
            outs.append(p.ring.last)
            if p.bound > front:
                front = p.bound  # consumers have gone on by it; a new incarnation of an input may not know
        pos = inst.position()
        flags = []
        for e in inst.inputs:
            flags.append([int(e.closed), e.inc, e.from_ts])
        buf = self.host.exchange.writer.buf  # no frame is being written
        body = checkpoint_bytes.body(
            inst.vertex.version, pos, outs, flags, inst.changed, front, state, inst.given, buf
        )
        return Checkpoint(cid, pos, outs, body, slot, front)

    # Where the transfer state of every port begins.
    def _transfer(self, c: Checkpoint, whole: bool) -> list[int]:
        starts = []
        for p in self.inst.ports:
            end = c.outs[p.number]
            start = end
            for r in p.readers:
                if whole:
                    if not p.covered(r, end):
                        start = min(start, p.carried(r))
                elif r.edge.index in c.since:
                    start = min(start, max(c.since[r.edge.index], r.safe))
            starts.append(max(start, min(p.first(), end)))  # what is not here is safe with its reader
        return starts

    # Whether a port has spilled more entries that some consumer has not made safe than a checkpoint may
    # carry. They stay in the log, nothing is acknowledged for them, and the consumer is asked for a
    # checkpoint.
    def _behind(self) -> bool:
        found = False
        for p in self.inst.ports:
            for r in p.readers:
                end = p.ring.last
                if p.spills and not p.covered(r, end) and end - p.carried(r) > p.ring.cap:
                    p.press()
                    found = True
        return found

    # ---- permanent or not

    # Whether every consumer has safe what c needs of it.
    def _satisfied(self, c: Checkpoint) -> bool:
        for p in self.inst.ports:
            for r in p.readers:
                xi = c.since.get(r.edge.index, c.outs[p.number])
                if not p.covered(r, min(xi, c.outs[p.number])):
                    return False
        return True

    # Something was acknowledged or extended: make the newest pending one permanent that may be.
    def settle(self) -> None:
        if self._under_way():
            return  # the last one is still on its way to its holders
        for i in range(len(self.pending) - 1, -1, -1):
            c = self.pending[i]
            if self._satisfied(c):
                self.commit(c, False)
                return

    # The consumer of edge r answers a request by an extension: the checkpoint will carry the transfer
    # state. One of an earlier boot cannot: that state was lost with the power.
    def on_extend(self, r: "Reader", cid: bytes, mode: int, base: int) -> None:
        if self.inst.status == WAITING:
            return
        port = self.inst.ports[r.edge.sport]
        for c in self.pending:
            if c.cid == cid:
                since = min(r.safe if mode == NOWAIT else base, c.outs[r.edge.sport])
                if c.outs[r.edge.sport] - since > port.ring.cap:
                    port.press()  # more was spilled than a checkpoint may carry
                elif since >= port.first():
                    c.since[r.edge.index] = since
        self.settle()

    # Bytes that a checkpoint here and downstream costs, as far as known.
    def load(self) -> int:
        total = self.size
        for p in self.inst.ports:
            for r in p.readers:
                if not r.edge.cyclic and r.edge.dst != OUTSIDE:
                    total += r.load
        return total

    # How many other hosts have to store the permanent checkpoint.
    def need(self) -> int:
        return self.host.plan.level_of(self.inst.vertex.index)

    # Have it stored where the plan wants it.
    def store_at_level(self) -> None:
        inst = self.inst
        if inst.status in (STOPPED, PAUSED) or inst.recalling:
            return  # PAUSED: the host that goes on from it sees to that
        if not self.need():
            self.stored(self.pos, (self.host.me,))
            return
        from . import checkpoint_transfer

        checkpoint_transfer.push(self.host, inst)

    # Make c permanent: on this host at once, at the plan's level when its holders have it.
    # whole: with all that some consumer has not made safe. anew: also in place of one at the same position.
    def commit(self, c: Checkpoint, whole: bool, anew: bool = False) -> None:
        assert whole or self._satisfied(c), "a checkpoint becomes permanent that is not covered"
        if self.pos and not further(c.pos, self.pos) and not anew:
            self._over()  # or it would be made permanent again and again, and nothing else
            self.store_at_level()
            return  # nothing has happened since
        inst = self.inst
        if inst.first and self._unmet():
            return
        if inst.status == WAITING and rank(c.pos) > rank(inst.position()):
            from . import restore

            restore.from_pending(self.host, inst, c)
        if whole and self._behind():
            return
        names = []
        for p in inst.ports:
            known = []
            for r in p.readers:
                known.append(p.record(r) + [r.gaps])
            names.append(known)
        starts = self._transfer(c, whole)
        # What comes before the transfer state every consumer has safe, or it is not here because of that.
        assert all(
            [
                p.covered(r, start) or start <= p.first()
                for p, start in zip(inst.ports, starts)
                for r in p.readers
            ]
        ), "a permanent checkpoint does not carry what a consumer lacks"
        key = checkpoint_key(inst.vertex.index, PERMANENT)
        buf = self.host.exchange.writer.buf
        parts: "Any" = [(start, (), ()) for start in starts]
        if starts != c.outs:
            from . import transfer_state

            parts = transfer_state.at_once(inst.ports, starts, c.outs)
        try:
            if parts is None:
                from . import blockwise

                size = blockwise.store(self.host, inst, key, c, starts, names)
            else:
                parts = checkpoint_bytes.permanent(inst.epoch, c.body, parts, names, buf)
                self.host.store.put_blob(key, parts)
                size = len(c.body) + len(parts[2])
        except LogFull:
            # It stays as it was: nothing is acknowledged, and the producers wait.
            self.host.count(NO_ROOM)
            return
        self.committed += 1
        self.bytes += size
        self.size = (3 * self.size + size) // 4
        self.pos = c.pos
        self.front = c.front
        self._over()
        self.store_at_level()

    # Pending ones at or before the permanent one are over.
    def _over(self) -> None:
        for old in self.pending[:]:
            if not further(old.pos, self.pos):
                self.pending.remove(old)
                self._drop(old.slot)

    # It is at a permanent checkpoint that was read, made by this epoch of the operator.
    def restored(self, pos: "Position", front: int, epoch: "Epoch") -> None:
        self.pos = pos
        self.front = front
        self.made = epoch

    # ... which another host made: nothing before it that this host knew counts any more.
    def moved(self) -> None:
        self.discard()
        self.safe_pos = []

    # The pending ones will not be acknowledged any more: they and their requests are deleted, in flash too.
    def discard(self) -> None:
        for c in self.pending:
            for p in self.inst.ports:
                p.withdraw(c.outs[p.number], c.cid)
        self.pending = []
        self._drop(PENDING)
        self._drop(PENDING + 1)

    def _drop(self, slot: int) -> None:
        key = checkpoint_key(self.inst.vertex.index, slot)
        if slot and self.host.store.blob_size(key):
            self.host.store.drop_blob(key)

    # The permanent checkpoint is stored where the plan wants it: acknowledge what it covers.
    def stored(self, pos: "Position", holders: tuple[int, ...]) -> None:
        assert not further(pos, self.pos), "what is stored was never permanent"
        if further(self.safe_pos, pos):
            return
        self.safe_pos = pos
        self.holders = holders
        inst = self.inst
        if inst.unsettled:
            from . import lifecycle

            lifecycle.settled(self.host, inst)
        if inst.status == EXPOSED:
            from . import lifecycle

            if lifecycle.covered(self.host, inst):
                from . import decisions

                decisions.stand(self.host, inst)
        self.announce()
        self.settle()

    # What it covers of an input's present incarnation.
    def safe(self, e: "InEdge") -> int:
        pos = self.safe_pos
        return pos[self.inst.inputs.index(e)] if pos and pos[-1] >= e.since else -1

    # Tell every producer what is safe here.
    def announce(self) -> None:
        load = self.load()
        for e in self.inst.inputs:
            xi = self.safe(e)
            if xi >= 0:
                e.tell_safe(xi, self.safe_pos, self.holders, load)
