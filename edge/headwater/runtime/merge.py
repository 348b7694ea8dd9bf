# An operator that joins: several inputs, or one that is delayed. The order in which it takes entries:
# instance.py.

from array import array

from ..data.batch import SPAN_US, Batch
from ..offboard.compat import TYPE_CHECKING
from ..protocol.position import FAR
from .instance import Instance, before

if TYPE_CHECKING:
    from ..offboard.interfaces import Columns
    from ..plan.model import Vertex
    from .host import Host
    from .inputs import InEdge
    from .operator import Operator
    from .outputs import OutPort


# What a joined run looks like to the operator: see operator.py.
class Merged:
    def __init__(self, size: int) -> None:
        self.port = bytearray(size)
        self.at: "array[int]" = array("i", bytes(4 * size))
        self.at_mem = memoryview(self.at)
        self.cols: "list[Columns]" = []
        self.ts = 0
        self.dt = -1
        self.n = 0
        self.unsync = 0
        self.hole = 0

    def ts_of(self, i: int) -> int:
        return self.ts + self.at[i]


class Joined(Instance):
    def __init__(
        self, host: "Host", vertex: "Vertex", op: "Operator", inputs: "list[InEdge]", ports: "list[OutPort]"
    ) -> None:
        Instance.__init__(self, host, vertex, op, inputs, ports)
        self.window = [Batch(e.alphabet, self.size) for e in inputs]
        self.x = Merged(self.size)
        # A disabled port has no input: ports are told by their numbers, inputs by their places.
        self.named = bytes([e.edge.dport for e in inputs])
        self.x.cols = [()] * len(vertex.ins)
        self.advance = self._merge
        # Of each input, in the step that is under way. Times are offsets from the base of the step, the
        # smallest ts of what waits, delays added.
        self.gone = 0  # entries that closed inputs dropped
        self.have = [0] * len(inputs)  # entries in its window
        self.old = [False] * len(inputs)  # it was reopened, and these are older than it may go back
        self.off = [0] * len(inputs)  # ts of its window
        self.bounds = [0] * len(inputs)  # its boundary, -1 where that lies before the base
        self.left = [0] * len(inputs)  # entries up to its next Check-Request

    def _merge(self) -> int:
        op = self.op
        base = self._look()
        if self.gone:
            return self.gone
        frontier = self._frontier(base)
        if frontier == FAR:
            return 0  # every input is closed: time stands still, or timers would fire for ever
        if self.timers and op.timer and frontier >= op.timer:
            return self._fire(op.timer)
        if base == FAR:
            return 0
        limit = SPAN_US
        if self.timers and op.timer and op.timer - base < limit:
            limit = op.timer - base  # entries from here on wait for the timer
        if op.ARMS:
            limit = min(limit, getattr(op, op.ARMS))  # ... or for one that the first entry sets
        for p in range(len(self.inputs)):
            e = self.inputs[p]
            n = self.have[p]
            d = self.window[p].ts + e.edge.delay_us - base if n else 0
            self.off[p] = d if d < SPAN_US else SPAN_US  # may be negative: a head never is
            b = self.bounds[p] - base
            self.bounds[p] = -1 if b < 0 else b if b < SPAN_US else SPAN_US
            self.left[p] = e.until_request(n)
        return self._take(base, limit)

    # Fill the windows -> the base of this step, FAR where nothing waits.
    def _look(self) -> int:
        base = FAR
        self.gone = 0
        for p in range(len(self.inputs)):
            e = self.inputs[p]
            w = self.window[p]
            self.old[p] = False
            if e.closed:
                self.gone += e.drop(w, self.host.site())
            n = 0 if e.closed or not e.contact else e.read(w, self.size)
            if n and e.from_ts:
                if w.ts_of(0) < e.from_ts:
                    n = before(w, n, e.from_ts)
                    self.old[p] = True
                else:
                    e.passes_over(w.ts_of(0))  # no, and nothing older follows
            self.have[p] = n
            if n and w.ts_of(0) + e.edge.delay_us < base:
                base = w.ts_of(0) + e.edge.delay_us
        return base

    # Find the boundaries of the inputs where nothing waits -> ts up to which everything has come.
    def _frontier(self, base: int) -> int:
        frontier = base
        for p in range(len(self.inputs)):
            b = FAR
            if not self.have[p]:
                b = self.inputs[p].bound()
                if b < frontier:
                    frontier = b
            self.bounds[p] = b
        return frontier

    # Take entries in order, as many as may go now, each before `limit`; how many.
    def _take(self, base: int, limit: int) -> int:
        inputs = self.inputs
        ports = range(len(inputs))
        op = self.op
        have = self.have
        off = self.off
        bounds = self.bounds
        x = self.x
        at = x.at
        which = x.port
        named = self.named
        idx = [0] * len(inputs)
        unsync = -1
        n = 0
        room = 1  # until it is known that something can go
        while n < room:
            best = -1
            t = 0
            for p in ports:
                i = idx[p]
                if i < have[p]:
                    w = self.window[p]
                    v = off[p] + (i * w.dt if w.dt >= 0 else w.at[i])
                    if best < 0 or v < t:
                        best = p
                        t = v
            if best < 0 or t >= limit:
                break
            w = self.window[best]
            if idx[best] >= self.left[best]:
                break  # a Check-Request is due on that input first
            ok = True
            for q in ports:
                if q != best and idx[q] >= have[q]:
                    # What follows this window may come before; what follows a boundary does not.
                    if have[q] or bounds[q] < t or (bounds[q] == t and q < best):
                        ok = False
                        break
            if not ok:
                break
            if self.old[best]:
                # Passed over in its turn: what follows has the same place, whatever has arrived when.
                if n:
                    break
                inputs[best].passes_over(w.ts_of(0))
                return 1
            if not n:
                room = self._room(min(self.size, sum(self.left)))
                if not room:
                    break
            if w.hole or (unsync >= 0 and w.unsync != unsync):
                if n:
                    break
                if w.hole:
                    self._hole(best, w)
                    inputs[best].taken(1)
                    return 1
            unsync = w.unsync
            which[n] = named[best]
            at[n] = t
            idx[best] += 1
            n += 1
            if self.timers and not op.timer:
                break  # the first entry may set a timer that the second one must wait for
        return self._joined(idx, n, base, unsync)

    # Run the operator over the n entries that were chosen, idx[p] of input p; n.
    def _joined(self, idx: list[int], n: int, base: int, unsync: int) -> int:
        if n:
            x = self.x
            for p in range(len(idx)):
                x.cols[self.named[p]] = self.window[p].cols
            x.ts = base
            x.n = n
            x.unsync = unsync
            self._run(x, n)
            for p in range(len(idx)):
                if idx[p]:
                    self.inputs[p].taken(idx[p])
        return n
