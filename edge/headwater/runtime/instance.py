# A running operator: it takes entries in the one order that determinism allows, a batch at a time.
#
# Theory. The next entry is the smallest head by (ts + D, port, xi). It is taken when for every other
# port q: q's head sorts after it, or q is empty and its boundary lies after it (or at it, and q is
# the higher port). A timer at T fires when the frontier reaches T, before any entry with ts >= T.
# A decision takes effect where the operator stands when it is taken (decisions.py).
#
# Invariants.
#   - What is taken, and in which order, depends on the streams and decisions alone, never on when
#     they arrive or how they are cut into batches.
#   - After a decision, and under a new epoch, nothing is put out before a checkpoint that knows of it is
#     stored at the level (EXPOSED).
#   - At most one output per port for each entry or timer; its ts is the one of what caused it, so
#     ts never falls on a port.
#   - Other modules change an instance by its verbs only. Its status is changed by lifecycle.py alone.

from ..board.native import native
from ..data.batch import Batch
from ..offboard.compat import TYPE_CHECKING
from ..plan.model import UNCOORDINATED
from ..protocol.position import FAR
from .operator import OperatorError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ..offboard.interfaces import Epoch, Params, Position
    from ..plan.model import Vertex
    from .checkpoints import Checkpoints
    from .host import Host
    from .inputs import InEdge
    from .operator import Operator
    from .outputs import OutPort

RUNNING = 0
WAITING = 1  # restored; a pending checkpoint may yet turn out to be permanent
FETCHING = 2  # a producer names a checkpoint further than ours: on its way
STOPPED = 3  # a newer epoch runs elsewhere
RECALLING = 4  # its keepers say first which checkpoints they hold
EXPOSED = 5  # a checkpoint of this epoch, or of its last decision, has to be stored at the level first
PAUSED = 6  # it takes nothing: it is being handed over to another host


class Instance:
    is_lake = False  # LakeSink stands in the same place for a consumer that is the lake

    op: "Operator"
    window: "Any"  # a Batch; of an operator that joins, one for each input
    advance: "Callable[[], int]"

    def __init__(
        self, host: "Host", vertex: "Vertex", op: "Operator", inputs: "list[InEdge]", ports: "list[OutPort]"
    ) -> None:
        self.host = host
        self.vertex = vertex
        self.inputs = inputs
        self.ports = ports
        self.run_by(op)
        self.status = RUNNING
        self.wait_us = 0  # while WAITING: until when
        # While FETCHING: position and epoch of the wanted checkpoint, hosts to ask, and how often one was.
        self.target: "Position" = ()
        self.target_epoch: "Epoch" = (0, 0)
        self.fetch_from: list[int] = []
        self.fetch_try = 0
        # Until it is known which checkpoints its keepers hold (incoming.recall).
        self.recalling = False
        self.unheard: list[int] = []  # keepers that have not answered yet
        self.erased = 0  # keepers that have none because their flash was erased
        self.unsettled = False  # no checkpoint of this epoch is stored at the plan's level
        self.blind = (
            False  # it began without any producer, and says nothing before it has asked (watching.py)
        )
        self.anew: "Any" = None  # a giving_up.Anew, until it is known where it begins after it has given up
        self.waited_us = 0  # for a checkpoint that it lacks (giving_up.wait)
        self.first = False  # this is the boot in which the operator begins: it has put nothing out before
        self.epoch: "Epoch" = (1, vertex.hosts[0])
        self.bounded = False  # a consumer needs its boundaries; see routing.arrange
        self.fired = 0  # ts up to which timers have fired
        self.decided = 0  # decisions applied
        self.depth = 0  # see settle_depth
        self.front = 0  # ts of what was taken or fired last is front + past, delays added
        self.past = 0
        self.given = (0, 0)  # log number of a gateway, and the number of the last change that it gave
        self.deciding = False  # no checkpoint that counts the last decision is stored at the level yet
        self.changed: "Params" = {}  # parameters that decisions changed
        # [number, why] of the last change whose values the operator type refused
        self.refused: "list[Any]" = []
        self.size = host.plan.batch
        self.timers = op.TIMED
        self.ck: "Checkpoints" = None  # type: ignore[assignment]  # see begin
        self.counts = host.plan.strategy <= UNCOORDINATED  # these look at each batch
        if len(vertex.ins) == 1 and not inputs[0].edge.delay_us:
            self.window = host.batch(inputs[0].alphabet)  # holds nothing between two calls
            self.alone = not self.timers
            self.advance = self._single
        else:
            self.alone = False  # and what else a Joined has, in merge.py

    def run_by(self, op: "Operator") -> None:
        self.op = op
        for p in self.ports:
            p.write_into(op.outs[p.number])

    # ---- what changes it beside its inputs, decided by hosting, restoring, transfer and decisions

    # It runs under this epoch. first: the operator begins in this boot.
    def begin(self, epoch: "Epoch", ck: "Checkpoints", first: bool) -> None:
        self.epoch = epoch
        self.ck = ck
        self.first = first

    # Only lifecycle.py calls this: it has the table of the states and of the ways between them.
    def become(self, status: int, wait_us: int = 0) -> None:
        assert self.status != STOPPED, "an epoch that was stopped goes on"
        self.status = status
        self.wait_us = wait_us
        if self.host.changed:
            self.host.changed(self)

    # It looks for a checkpoint: this one, or a later one.
    def want(self, name: "Position", epoch: "Epoch", holders: "Sequence[int]") -> None:
        self.target = name
        self.target_epoch = epoch
        self.fetch_from = list(holders)
        self.fetch_try = 0

    # Of the hosts that may have it, the one to be asked now: each in turn.
    def next_of(self, hosts: list[int]) -> int:
        self.fetch_try += 1
        return hosts[(self.fetch_try - 1) % len(hosts)]

    # Go on from a checkpoint: this operator, in that state, where it stood then.
    def resume(
        self, op: "Operator", pos: "Position", changed: "Params", given: tuple[int, int], front: int
    ) -> None:
        self.run_by(op)
        self.changed = changed
        self.given = given
        self.depth = 0
        self.fired = pos[-2]
        self.decided = pos[-1]
        self.front = front
        self.past = 0

    # How far it is with its new epoch. unsettled: a checkpoint of it is still to be stored at the plan's
    # level. Whether it waits for its keepers, for which ones, and how many others had their flash erased.
    def recall(self, unsettled: bool, recalling: bool, unheard: list[int], erased: int) -> None:
        self.unsettled = unsettled
        self.recalling = recalling
        self.unheard = unheard
        self.erased = erased

    # This epoch has a checkpoint at the level.
    def settle(self) -> None:
        assert not self.recalling, "an epoch begins before it knows from where"
        self.unsettled = False

    # It has given up, and looks for a place to begin at; or it has found that.
    def seeks_place(self, anew: "Any") -> None:
        self.anew = anew

    # The incarnation that its outputs begin if it gives up under this epoch: no other epoch has it.
    def next_incarnation(self) -> int:
        return self.epoch[0] << 6 | self.epoch[1]

    # Whether it has: then this epoch alone has acknowledged anything in it.
    def began_anew(self) -> bool:
        for p in self.ports:
            if p.inc == self.next_incarnation():
                return True
        return False

    # It has waited so much longer for a checkpoint that it lacks; or not at all.
    def waits_longer(self, us: int) -> None:
        self.waited_us = self.waited_us + us if us else 0

    # It says nothing to other hosts, or does from now on.
    def blinded(self, blind: bool) -> None:
        assert not blind or self.status == RECALLING, "an operator that runs is known to others"
        self.blind = blind

    # Whether its last decision is still to be stored at the level.
    def decides(self, deciding: bool) -> None:
        self.deciding = deciding

    # Whether a consumer needs its boundaries (routing.arrange).
    def compute_bounds(self, needed: bool) -> None:
        self.bounded = needed

    # These hosts have the checkpoint that it looks for, too.
    def fetch_also_from(self, holders: "Sequence[int]") -> None:
        for h in holders:
            if h not in self.fetch_from:
                self.fetch_from.append(h)

    # Whether an input gives nothing before a decision: its stream is in another incarnation, or it is to be
    # closed.
    def lacks(self) -> bool:
        for e in self.inputs:
            if e.other or e.closing >= 0:
                return True
        return False

    # Whether its consumers have more than it has put out in this boot, and it has not what it would need for
    # that: an input gives nothing before a decision, or nothing more so far. What it needs is lost with the
    # former incarnation of a source, or with what an operator before it had; or it is with a board that is
    # away, and only a person knows that it will not come back. Until then it decides nothing, nor does an
    # operator before it.
    def stuck(self) -> bool:
        return self.status == RUNNING and self._behind() and (self.lacks() or self._idle())

    def _behind(self) -> bool:
        for p in self.ports:
            for r in p.readers:
                e = r.local
                if (e.cur.xi if e and e.inc == p.inc else r.got) > p.ring.last:
                    return True
        return False

    # The merge waits for every input but feedback.
    def _idle(self) -> bool:
        for e in self.inputs:
            if e.contact and not (e.closed or e.edge.delay_us or e.waiting()):
                return True
        return False

    # ---- running

    def position(self) -> list[int]:
        pos = []
        for e in self.inputs:
            pos.append(e.cur.xi)
        pos.append(self.fired)
        pos.append(self.decided)
        return pos

    # Take what there is to take; how many entries and timers that were.
    def step(self) -> int:
        did = 0
        e = self.inputs[0]
        while self.status == RUNNING:
            if self.alone and e.contact and not e.crs:
                port = e.port
                xi = e.cur.xi
                ring: "Any" = (port or e).ring
                if xi == ring.last:
                    break  # nothing waits
                # The batch that the producer just made, if it is the next one as a whole, up to a
                # request that is derived: most of what runs on one host comes this way.
                x = ring.lent(xi)
                if x and not (x.hole or e.from_ts or e.closed):
                    n = x.n
                    every = e.every
                    if every:
                        every -= xi % every
                        if every < n:
                            n = every
                    if n <= self.size and self._run(x, n):
                        if every == n:
                            e.taken(n)
                        else:
                            e.cur.xi = xi + n  # what `taken` does where no request is near
                        did += n
                        if self.counts:
                            self.ck.after(n)
                        continue
            self._requests()
            n = self.advance()
            if not n:
                break
            did += n
            if self.counts:
                self.ck.after(n)
        return did

    # How far downstream of this operator everything that an earlier boot may have put out has been put out
    # again, in steps along the edges: 0 while one of its own consumers is ahead of it or has not told how
    # far it is; otherwise one more than the least of its consumers. It counts up to the number of vertices
    # and stays there for this boot, feedback or not. Only from then on may something be decided that an
    # earlier boot did not know of: no consumer's consumer has seen the other course.
    def settle_depth(self) -> None:
        cap = len(self.host.plan.vertices)
        if self.depth >= cap or self.status != RUNNING:
            return  # one that waits may yet go on from further ahead
        least = cap
        for p in self.ports:
            if p.sealed > p.ring.last:
                least = -1  # the log holds what an earlier boot put out
            for r in p.readers:
                e = r.local
                if e:
                    ahead = e.inc == p.inc and e.cur.xi > p.ring.last
                else:
                    ahead = not (r.live or r.apart) or r.got > p.ring.last
                if ahead:
                    least = -1
                elif r.gaps and r.gaps[-1][1] > p.ring.last:
                    least = -1  # the numbers of what was dropped are taken: nothing else may have them
                else:
                    least = min(least, e.sink.depth if e else r.depth)
        self.depth = min(cap, least + 1)

    # Take a decision where it stands. given: where it came from a gateway, see the field.
    def decide(self, content: "list[Any]", given: tuple[int, int]) -> None:
        assert self.status in (RUNNING, EXPOSED), "an operator that does not run decides"
        self.decided += 1
        self.given = given
        self.apply(content)

    # Go on as a former boot had decided: an operator without checkpoints. closed: a bit for each input.
    def decided_before(self, decided: int, given: tuple[int, int], changed: "Params", closed: int) -> None:
        self.decided = decided
        self.given = given
        self.changed = changed
        self.op.configure(changed)
        for k in range(len(self.inputs)):
            if closed >> k & 1:
                self.apply(["close", k])

    # A value that the operator type refuses is skipped, the same in every run, and reported to the gateway.
    # It never raises: what was decided is durable, and would be met again in every boot.
    def apply(self, content: "list[Any]") -> None:
        kind = content[0]
        if kind == "set":
            try:
                self.op.configure(content[1])
                self.changed.update(content[1])
            except OperatorError as error:
                self.refused = [self.given[1], str(error)[:100]]
        elif kind == "close":
            e = self.inputs[content[1]]
            e.close()
            self.op.closed(e.edge.dport)
        elif kind == "open":
            e = self.inputs[content[1]]
            if e.closed or content[2] != e.inc:
                if e.reopen(content[2], content[3], self.decided):
                    # What was lost with the former incarnation is a hole: it may have stopped a timer, below
                    # a boundary that was sent.
                    self.op.hole(e.edge.dport)
                self.op.opened(e.edge.dport, content[3])

    # ---- one input: the short way

    def _single(self) -> int:
        e = self.inputs[0]
        if e.closed:
            return e.drop(self.window, self.host.site())
        op = self.op
        port = e.port
        size = self.size
        w: "Batch | None" = None
        if not e.contact:
            return 0
        if port:
            w = port.ring.lent(e.cur.xi)
            # The batch that the producer just made, if it is the next one as a whole.
            if w is not None and w.n > size:
                w = None
        if w is None:
            w = self.window
            n = e.read(w, size)
        else:
            n = w.n
        if self.timers and op.timer:
            due: int = op.timer
            if (w.ts_of(0) if n else e.bound()) >= due:
                return self._fire(due)
            if n > 1:
                if op.ARMS:
                    due = min(due, w.ts_of(0) + getattr(op, op.ARMS))
                if w.ts_of(n - 1) >= due:
                    n = before(w, n, due)
        if e.crs or e.every:
            n = e.until_request(n)
        for p in self.ports:
            if p.ring.room() < n:
                n = self._room(n)
        if not n:
            return 0
        if e.from_ts and e.passes_over(w.ts_of(0)):
            return 1
        if w.hole:
            self._hole(0, w)
            e.taken(1)
        else:
            if self.timers and not op.timer:
                n = 1  # the first entry may set a timer that the second one must wait for
            self._run(w, n)
            e.taken(n)
        return n

    # How many of n entries the output ports have room for; where there is none at all, a port may
    # drop if the process file says so, or asks its consumers for a checkpoint.
    def _room(self, n: int) -> int:
        for p in self.ports:
            if not p.has_room(n):
                k = p.ring.room()
                if k < n:
                    n = k
                if not n:
                    p.press_all()
                    break
        return n

    # Obey the Check-Requests that are due.
    def _requests(self) -> None:
        for e in self.inputs:
            if e.crs and e.crs[0][0] <= e.cur.xi:
                self.ck.due(e)

    # ---- what comes out

    # Run the operator over n entries of x, a batch or what a join made; False, and nothing done, where an
    # output port has no room. Every batch passes here: it writes the fields of the batches that the operator
    # fills, and of its rings, as it goes, since a call for each costs more than all of them.
    def _run(self, x: "Any", n: int) -> bool:
        ports = self.ports
        for p in ports:
            if p.ring.cap - p.ring.count < n:
                return False
        op = self.op
        dt = x.dt
        self.front = ts = x.ts
        self.past = (n - 1) * dt if dt >= 0 else x.at[n - 1]
        m = op.run(x, n)
        for p in ports:
            y = op.outs[p.number]
            if p.number:
                m = y.n
            if not m:
                p.ring.stale()  # the operator may have written into that batch all the same
                continue
            y.ts = ts
            y.unsync = x.unsync
            y.hole = 0
            y.xi = p.ring.last + 1
            y.n = m
            if op.ONE_TO_ONE or (m == n and dt >= 0):  # then output j is of input j
                y.dt = dt
                if dt < 0:
                    y.at_mem[0:m] = x.at_mem[:m]
            else:
                y.dt = -1
                if dt != 1:
                    _place(y.at, x.at if dt < 0 else y.at, m, dt)  # what is regular has no offsets
            if p.logged or self.bounded:
                p.append(y, m)
            else:
                ring = p.ring
                ring.append(y, 0, m, True)
                if p.trim_to > ring.first:
                    ring.trim(min(p.trim_to, ring.last))
        return True

    def _fire(self, due: int) -> int:
        for p in self.ports:
            if not p.has_room(1):
                p.press_all()
                return 0
        op = self.op
        for p in self.ports:
            op.outs[p.number].clear()
            p.ring.stale()
        m = op.fire()
        self.fired = self.front = due
        self.past = 0
        for p in self.ports:
            y = op.outs[p.number]
            k = y.n if p.number else m
            if k:
                y.begin(p.ring.last + 1, k, due, -1, 0)
                y.at[0] = 0
                p.append(y, k)
        return 1

    def _hole(self, port: int, w: Batch) -> None:
        e = self.inputs[port].edge
        self.front = w.ts + e.delay_us
        self.past = 0
        if not self.op.hole(e.dport) or e.delay_us:
            return
        for p in self.ports:
            y = self.op.outs[p.number]
            y.begin_one(p.ring.last + 1, w.ts, w.unsync, w.hole, w.back)
            p.append(y, 1)

    # Boundary of the outputs: nothing below it follows what has been emitted. Where every input is closed it
    # is the present, as of the last beat: an input that is opened again is taken from then on (decisions.py).
    def bound(self) -> int:
        b = FAR
        shut = True
        for e in self.inputs:
            shut = shut and e.closed
            if e.edge.delay_us or e.closed:
                continue
            v = e.bound()
            if e.waiting() > 0:
                w = self.window if type(self.window) is Batch else self.window[self.inputs.index(e)]
                v = w.ts_of(0) if e.read(w, 1) else 0
            if v < b:
                b = v
        if shut and self.host.clock.synced:
            b = self.host.site()
            b -= b % self.host.period_us  # or each pump would tell a newer one
        if self.timers and self.op.timer and self.op.timer < b:
            b = self.op.timer
        # Nor does anything follow that is older than what was taken last: the checkpoint knows that, though
        # the producer that promised it once may be gone.
        return max(b if b < FAR else 0, self.front + self.past)


# The times of m outputs: at[] says by which input each was caused, and becomes the offset of that.
_PLACE = """def run(at: ptr32, x: ptr32, m: int, dt: int):
 if dt < 0:
  for j in range(m):
   at[j] = x[at[j]]
 elif dt != 1:
  for j in range(m):
   at[j] *= dt
"""


def _place(at: "Any", x: "Any", m: int, dt: int) -> None:
    if dt < 0:
        for j in range(m):
            at[j] = x[at[j]]
    elif dt != 1:
        for j in range(m):
            at[j] *= dt


_place = native(_PLACE) or _place


# How many of n entries come before ts `due`.
def before(w: Batch, n: int, due: int) -> int:
    if w.dt > 0:
        return min(n, (due - w.ts + w.dt - 1) // w.dt)
    i = 0
    while i < n and w.ts_of(i) < due:
        i += 1
    return i
