# Smoothing: ExpAverage, Median, Average. One element out for each one in, same alphabet. A mean lies
# between its values, so nothing can overflow.

from ..offboard.compat import TYPE_CHECKING
from ..runtime.operator import Operator, OperatorError
from . import fields

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from ..data.batch import Batch
    from ..offboard.interfaces import Params, Port, Ports


def _same(kind: str, ins: "Sequence[Port]") -> "Ports":
    a = fields.integers(kind, fields.inputs(kind, ins, 1)[0], 0, 32)
    return (a.text,), (a.text,)


class ExpAverage(Operator):
    """A low-pass with a time constant of `2**shift` elements, every field: `acc += x - (acc >>
    shift)`, output `acc >> shift`. Begins at the first element.

    At a hole: passes; the filter begins again with the next element.
    """

    PARAMS = "shift:u8"
    ONE_TO_ONE = True
    CATEGORY = "filters"
    shift: int
    primed: int
    was: int
    accs: list[str]

    @classmethod
    def ports(cls, ins: "Sequence[Port]", params: "Params") -> "Ports":
        return _same("ExpAverage", ins)

    def setup(self) -> None:
        fields.within("ExpAverage", "shift", self.shift, 0, 24)
        if self.STATE and self.was != self.shift:
            for name in self.accs:
                setattr(self, name, (getattr(self, name) >> self.was) << self.shift)
        self.was = self.shift
        self.accs = ["acc%d" % f for f in range(len(self.ins[0].types))]
        state = "primed:u8"
        for name in self.accs:
            state += " %s:i64" % name
        self.STATE = state

    def run(self, x: "Batch", n: int) -> int:
        if not n:
            return 0
        shift = self.shift
        for f in range(len(x.cols)):
            c = x.cols[f]
            o = self.y.cols[f]
            name = self.accs[f]
            acc = getattr(self, name) if self.primed else c[0] << shift
            for i in range(n):
                acc += c[i] - (acc >> shift)
                o[i] = acc >> shift
            setattr(self, name, acc)
        self.primed = 1
        return n

    def hole(self, port: int) -> bool:
        self.primed = 0
        return True


class Median(Operator):
    """The median of the newest k elements (k odd), every field. Before there are k, the first
    element stands for those that are missing.

    At a hole: passes; the filter begins again with the next element.
    """

    PARAMS = "k:u8"
    ONE_TO_ONE = True
    CATEGORY = "filters"
    k: int
    primed: int
    head: int

    @classmethod
    def ports(cls, ins: "Sequence[Port]", params: "Params") -> "Ports":
        return _same("Median", ins)

    def setup(self) -> None:
        k = self.k
        fields.within("Median", "k", k, 3, 63)
        if not k & 1:
            raise OperatorError("Median: k is %d; it must be odd" % k)
        state = "primed:u8 head:u8"
        for f in range(len(self.ins[0].types)):
            state += " ring%d:%s*%d" % (f, self.ins[0].types[f], k)
        fields.fixed("Median", self, state, "k")
        self.sorted = self.ins[0].arrays(k)

    def start(self) -> None:
        self.rings = [getattr(self, "ring%d" % f) for f in range(len(self.sorted))]

    def run(self, x: "Batch", n: int) -> int:
        if not n:
            return 0
        k = self.k
        half = k >> 1
        for f in range(len(x.cols)):
            c = x.cols[f]
            o = self.y.cols[f]
            ring = self.rings[f]
            s = self.sorted[f]
            if not self.primed:
                for i in range(k):
                    ring[i] = c[0]
            # The sorted copy is not state: each batch makes it again.
            for i in range(k):
                v = ring[i]
                j = i
                while j and s[j - 1] > v:
                    s[j] = s[j - 1]
                    j -= 1
                s[j] = v
            head = self.head
            for i in range(n):
                v = c[i]
                old = ring[head]
                ring[head] = v
                head += 1
                if head == k:
                    head = 0
                j = 0
                while s[j] != old:
                    j += 1
                while j + 1 < k and s[j + 1] < v:
                    s[j] = s[j + 1]
                    j += 1
                while j and s[j - 1] > v:
                    s[j] = s[j - 1]
                    j -= 1
                s[j] = v
                o[i] = s[half]
        self.head = head
        self.primed = 1
        return n

    def hole(self, port: int) -> bool:
        self.primed = 0
        return True


class Average(Operator):
    """The mean of the newest `count` elements, or of those of the last `us`, `(ts - us, ts]`,
    rounded towards minus infinity. The output has the one field. By time the window holds at most
    `keep` elements: where more fall into it, the oldest leave early.

    At a hole: passes, and empties the window.
    """

    PARAMS = "count:u16=0 us:u32=0 keep:u16=256 field:text="
    ONE_TO_ONE = True
    CATEGORY = "filters"
    count: int
    us: int
    keep: int
    field: str
    total: int
    head: int
    filled: int
    last: int
    span: int
    value: "array[int]"
    gap: "array[int]"

    @classmethod
    def ports(cls, ins: "Sequence[Port]", params: "Params") -> "Ports":
        a = fields.inputs("Average", ins, 1)[0]
        i = fields.index("Average", a, params.get("field", ""), 0, 32)
        return (a.text,), (a.names[i] + ":" + a.types[i],)

    def setup(self) -> None:
        a = self.ins[0]
        self.at_field = fields.index("Average", a, self.field, 0, 32)
        if (not self.count) == (not self.us):
            raise OperatorError("Average: give either count (elements) or us (microseconds)")
        size = self.count or self.keep
        fields.within("Average", "count" if self.count else "keep", size, 1, 4096)
        fields.within("Average", "us", self.us, 0, (1 << 29) - 1)
        state = "total:i64 head:u16 filled:u16 value:%s*%d" % (a.types[self.at_field], size)
        if self.us:
            state += " last:i64 span:u32 gap:u32*%d" % size
        fields.fixed("Average", self, state, "the field, and count or keep,")
        self.places = size

    def run(self, x: "Batch", n: int) -> int:
        if not n:
            return 0
        if self.us:
            return self._by_time(x, n)
        c = x.cols[self.at_field]
        o = self.y.cols[0]
        places = self.places
        value = self.value
        total = self.total
        head = self.head  # the oldest; the next place to write once the ring is full
        i = 0
        filled = self.filled
        while filled < places and i < n:
            v = c[i]
            value[filled] = v
            filled += 1
            total += v
            o[i] = total // filled
            i += 1
        self.filled = filled
        for i in range(i, n):
            v = c[i]
            total += v - value[head]
            value[head] = v
            head += 1
            if head == places:
                head = 0
            o[i] = total // places
        self.total = total
        self.head = head
        return n

    def _by_time(self, x: "Batch", n: int) -> int:
        c = x.cols[self.at_field]
        o = self.y.cols[0]
        us = self.us
        places = self.places
        value = self.value
        gap = self.gap
        total = self.total
        span = self.span
        head = self.head
        filled = self.filled
        dt = x.dt
        at = x.at
        before = self.last - x.ts if filled else 0
        if before < -us:
            before = -us
        for i in range(n):
            off = i * dt if dt >= 0 else at[i]
            v = c[i]
            d = off - before
            before = off
            if d >= us:
                filled = 0
            elif filled:
                span += d
                while span >= us or filled == places:
                    total -= value[head]
                    head += 1
                    if head == places:
                        head = 0
                    filled -= 1
                    if not filled:
                        break
                    span -= gap[head]
            if not filled:
                total = span = d = 0
            k = head + filled
            if k >= places:
                k -= places
            value[k] = v
            gap[k] = d
            filled += 1
            total += v
            o[i] = total // filled
        self.last = x.ts + before
        self.total = total
        self.span = span
        self.head = head
        self.filled = filled
        return n

    def hole(self, port: int) -> bool:
        self.total = 0
        self.filled = 0
        self.head = 0
        return True
