# An operator that joins: several inputs, or one that is delayed. The order of what it takes: see instance.py.

from array import array

from .batch import SPAN_US, Batch
from .instance import Instance, before
from .position import FAR


# What a joined run looks like to the operator: see operator.py.
class Merged:
    def __init__(self, size):
        self.port = bytearray(size)
        self.at = array("i", bytes(4 * size))
        self.at_mem = memoryview(self.at)
        self.cols = ()
        self.ts = 0
        self.dt = -1
        self.n = 0
        self.unsync = 0
        self.hole = 0

    def ts_of(self, i):
        return self.ts + self.at[i]


class Joined(Instance):
    def __init__(self, host, vertex, op, inputs, ports):
        Instance.__init__(self, host, vertex, op, inputs, ports)
        self.window = [Batch(e.alphabet, self.size) for e in inputs]
        self.x = Merged(self.size)
        self.advance = self._merge

    def _merge(self):
        inputs = self.inputs
        op = self.op
        ports = range(len(inputs))
        have = []
        off = []
        old = ()  # reopened inputs whose next entries are older than they may go back
        base = FAR
        for p in ports:
            e = inputs[p]
            w = self.window[p]
            n = 0 if e.closed or not e.contact else e.read(w, self.size)
            if n and e.from_ts:
                if w.ts_of(0) < e.from_ts:
                    n = before(w, n, e.from_ts)
                    old += (p,)
                else:
                    e.from_ts = 0  # nothing older follows
            have.append(n)
            if n and w.ts_of(0) + e.edge.delay_us < base:
                base = w.ts_of(0) + e.edge.delay_us
        bounds = []
        frontier = base
        place = self._place()
        for p in ports:
            b = FAR
            if not have[p] and not (place and inputs[p].cur.xi >= place[p]):
                b = inputs[p].bound()
                if b < frontier:
                    frontier = b
            bounds.append(b)
        if frontier == FAR and not place:
            return 0  # every input is closed: time stands still, or timers would fire for ever
        if self.timers and op.timer and frontier >= op.timer and not (place and place[-2] < op.timer):
            return self._fire(op.timer)
        if base == FAR:
            return 0
        # From here on small offsets from base.
        limit = SPAN_US
        if self.timers and op.timer and op.timer - base < limit:
            limit = op.timer - base  # entries from here on wait for the timer
        if op.ARMS:
            limit = min(limit, getattr(op, op.ARMS))  # ... or for one that the first entry sets
        left = []
        unsync = -1
        for p in ports:
            e = inputs[p]
            w = self.window[p]
            d = w.ts + e.edge.delay_us - base if have[p] else 0
            off.append(d if d < SPAN_US else SPAN_US)  # may be negative: a head never is
            b = bounds[p] - base
            bounds[p] = -1 if b < 0 else b if b < SPAN_US else SPAN_US
            k = self._until_decision(e, e.until_request(have[p]))
            left.append(k)
        x = self.x
        at = x.at
        which = x.port
        idx = [0] * len(inputs)
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
            if idx[best] >= left[best]:
                break  # a Check-Request or a decision is due on that input first
            ok = True
            for q in ports:
                if q != best and idx[q] >= have[q]:
                    if have[q]:
                        ok = False  # there may be more behind this window
                        break
                    b = bounds[q]
                    if b < t or (b == t and q < best):
                        ok = False
                        break
            if not ok:
                break
            if best in old:
                # Passed over in its turn: the place of what follows is one, whatever has arrived when.
                if n:
                    break
                e = inputs[best]
                e.noted += 1
                e.taken(1)
                return 1
            if not n:
                room = self._room(min(self.size, sum(left)))
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
            which[n] = best
            at[n] = t
            idx[best] += 1
            n += 1
            if self.timers and not op.timer:
                break  # as above: one entry, then look at the timer again
        if n:
            x.cols = [w.cols for w in self.window]
            x.ts = base
            x.n = n
            x.unsync = unsync
            self._run(x, n)
            for p in ports:
                if idx[p]:
                    inputs[p].taken(idx[p])
        return n
