# Events: Threshold, Debounce, Rate, Counter.

from ..offboard.compat import TYPE_CHECKING
from ..runtime.operator import Operator, OperatorError
from . import fields

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from ..data.batch import Batch
    from ..offboard.interfaces import Params, Port, Ports


class Threshold(Operator):
    """An element when the field rises to `high` or above (`on` 1) and when it falls back to `low`
    or below (`on` 0); between the two nothing changes. Begins as off.

    At a hole: passes, and changes nothing.
    """

    PARAMS = "high:i32 low:i32 field:text="
    STATE = "on:u8"
    CATEGORY = "events"
    high: int
    low: int
    field: str
    on: int

    @classmethod
    def ports(cls, ins: "Sequence[Port]", params: "Params") -> "Ports":
        a = fields.inputs("Threshold", ins, 1)[0]
        i = fields.index("Threshold", a, params.get("field", ""))
        return (a.text,), ("on:u8 value:" + a.types[i],)

    def setup(self) -> None:
        if self.low >= self.high:
            raise OperatorError("Threshold: low is %d and high %d: low must be lower" % (self.low, self.high))
        self.at_field = fields.index("Threshold", self.ins[0], self.field)

    def run(self, x: "Batch", n: int) -> int:
        c = x.cols[self.at_field]
        state, value = self.y.cols
        at = self.y.at
        high = self.high
        low = self.low
        on = self.on
        j = 0
        for i in range(n):
            v = c[i]
            if v <= low if on else v >= high:
                on = 1 - on
                state[j] = on
                value[j] = v
                at[j] = i
                j += 1
        self.on = on
        return j


class Debounce(Operator):
    """The value of the field once it has not changed for `us`, if it differs from the last value
    passed on.

    At a hole: passes; the wait begins again with the next element.
    """

    PARAMS = "us:u32 field:text="
    TIMED = True
    ARMS = "us"
    CATEGORY = "events"
    us: int
    field: str
    known: int
    seen: int
    told: int

    @classmethod
    def ports(cls, ins: "Sequence[Port]", params: "Params") -> "Ports":
        a = fields.inputs("Debounce", ins, 1)[0]
        i = fields.index("Debounce", a, params.get("field", ""))
        return (a.text,), (a.names[i] + ":" + a.types[i],)

    def setup(self) -> None:
        fields.within("Debounce", "us", self.us, 1, 4294967295)
        a = self.ins[0]
        self.at_field = fields.index("Debounce", a, self.field)
        # known: 1 there is a `seen`, 2 there is a `told`.
        t = a.types[self.at_field]
        fields.fixed("Debounce", self, "timer:i64 known:u8 seen:%s told:%s" % (t, t), "the field")

    def run(self, x: "Batch", n: int) -> int:
        c = x.cols[self.at_field]
        for i in range(n):
            v = c[i]
            if v != self.seen or not self.known & 1:
                self.seen = v
                self.known |= 1
                self.timer = 0 if self.known & 2 and v == self.told else x.ts_of(i) + self.us
        return 0

    def fire(self) -> int:
        self.timer = 0
        self.told = self.seen
        self.known = 3
        self.y.cols[0][0] = self.seen
        return 1

    def hole(self, port: int) -> bool:
        self.known &= 2
        self.timer = 0
        return True


class Rate(Operator):
    """The number of elements in each `us` of time, from the first element on, also when there were
    none. Saturates.

    At a hole: passes, and is not counted.
    """

    PARAMS = "us:i64"
    STATE = "timer:i64 seen:u32"
    TIMED = True
    CATEGORY = "events"
    us: int
    seen: int

    @classmethod
    def ports(cls, ins: "Sequence[Port]", params: "Params") -> "Ports":
        a = fields.inputs("Rate", ins, 1)[0]
        return (a.text,), ("count:u32",)

    def setup(self) -> None:
        fields.within("Rate", "us", self.us, 1, 1 << 40)

    def run(self, x: "Batch", n: int) -> int:
        if n:
            if not self.timer:
                self.timer = (x.ts_of(0) // self.us + 1) * self.us
            seen = self.seen + n
            self.seen = seen if seen < 4294967295 else 4294967295
        return 0

    def fire(self) -> int:
        self.y.cols[0][0] = self.seen
        # Zero is put out once: the end of a silence of a month causes no flood of zeros.
        self.timer = (self.timer // self.us + 1) * self.us if self.seen else 0
        self.seen = 0
        return 1


class Counter(Operator):
    """For each element the number of elements so far (`total`, which wraps at 2**32) and in the
    last `us` (`recent`, one hour by default). The time is divided into 60 parts: `recent` covers
    the part of the element and the 59 before it, each of which counts to 65535.

    At a hole: passes, and is not counted.
    """

    PARAMS = "us:i64=3600000000"
    STATE = "total:u32 part:i64 of:u16*60"
    ONE_TO_ONE = True
    CATEGORY = "events"
    us: int
    total: int
    part: int
    of: "array[int]"
    length: int

    @classmethod
    def ports(cls, ins: "Sequence[Port]", params: "Params") -> "Ports":
        a = fields.inputs("Counter", ins, 1)[0]
        return (a.text,), ("total:u32 recent:u32",)

    def setup(self) -> None:
        fields.within("Counter", "us", self.us, 60, 1 << 40)
        if self.us % 60:
            raise OperatorError(
                "Counter: us is %d; it must be a multiple of 60, the parts it is kept in" % self.us
            )
        length = self.us // 60
        if getattr(self, "length", length) != length:
            # Other parts: what was recent is forgotten.
            self.part = 0
            for i in range(60):
                self.of[i] = 0
        self.length = length

    def run(self, x: "Batch", n: int) -> int:
        if not n:
            return 0
        length = self.length
        of = self.of
        total = self.total
        recent = sum(of)
        totals, recents = self.y.cols
        at = x.at
        dt = x.dt
        first = x.ts // length
        into = x.ts % length
        ahead = first - self.part  # parts from the newest one to that of x.ts
        if ahead > 60:
            ahead = 60
        slot = (first - ahead) % 60
        done = -ahead  # the newest part, counted from that of x.ts
        for i in range(n):
            p = (into + (i * dt if dt >= 0 else at[i])) // length
            if p - done > 60:
                done = p - 60
                slot = (first + done) % 60
            while done < p:
                done += 1
                slot += 1
                if slot == 60:
                    slot = 0
                recent -= of[slot]
                of[slot] = 0
            if of[slot] < 65535:
                of[slot] += 1
                recent += 1
            total = total + 1 if total < 4294967295 else 0
            totals[i] = total
            recents[i] = recent
        self.total = total
        self.part = first + done
        return n
