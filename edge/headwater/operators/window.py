# Tumbling and Sliding: what happened in a window of elements or of time.
#
# `what` names the functions and so the fields of the output, in this order: count sum mean min max
# variance. All are exact; mean and variance (of the population) are rounded towards minus infinity;
# what is stored saturates. Squares are summed in two parts of 15 bits and more, so that 16-bit values
# cost no allocation. The variance takes fields of at most 16 bits, the others of 32.
#
# By time, windows are aligned to multiples of their length (of their step, when they slide) since the
# epoch, and end at a timer: a window is put out at its end, also when nothing follows. One without
# elements is left out, unless empty=1; then its mean, min, max and variance are 0.
#
# Holes: with holes=1 they are counted in the present window (field `holes`) and not passed on;
# otherwise they pass. Neither ends a window.

from ..data.alphabet import TYPES
from ..offboard.compat import TYPE_CHECKING
from ..runtime.operator import Operator, OperatorError
from . import fields

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence
    from typing import Any

    from ..data.batch import Batch
    from ..offboard.interfaces import Params, Port, Ports

_WHAT = ("count", "sum", "mean", "min", "max", "variance")
_PANES_MAX = 128
_COUNT_MAX = 4096


class _Window(Operator):
    CATEGORY = "windows"
    TIMED = True
    # Those that a window does not need are not part of its state.
    seen = total = square = rest = low = high = missed = 0
    count: int
    us: int
    field: str
    what: str
    holes: int
    empty: int

    @classmethod
    def ports(cls, ins: "Sequence[Port]", params: "Params") -> "Ports":
        kind = cls.__name__
        a = fields.inputs(kind, ins, 1)[0]
        what = params.get("what", "mean").split()
        bits = 16 if "variance" in what else 32
        t = a.types[fields.index(kind, a, params.get("field", ""), 0, bits)]
        out = []
        for name in what:
            if name not in _WHAT or what.count(name) > 1:
                raise OperatorError(
                    "%s: what is '%s': name one or more of %s" % (kind, " ".join(what), " ".join(_WHAT))
                )
        for name in _WHAT:
            if name in what:
                if name == "count":
                    out.append("count:u32")
                elif name == "sum":
                    out.append("sum:i64" if TYPES[t][1] > 2 else "sum:i32")
                elif name == "variance":
                    out.append("variance:u32")
                else:
                    out.append(name + ":" + t)
        if params.get("holes", 0):
            out.append("holes:u16")
        if not out:
            raise OperatorError("%s: what is empty: name one or more of %s" % (kind, " ".join(_WHAT)))
        return (a.text,), (" ".join(out),)

    # Takes the parameters that all windows have; returns the state that they need.
    def prepare(self, kind: str, fixed: "Any" = None) -> str:
        a = self.ins[0]
        if (not self.count) == (not self.us):
            raise OperatorError("%s: give either count (elements) or us (microseconds)" % kind)
        self.at_field = fields.index(kind, a, self.field, 0, 32)
        y = self.outs[0].alphabet
        self.extremes = "min" in y.names or "max" in y.names
        self.squares = "variance" in y.names
        self.put_in = [(name, TYPES[u][2], TYPES[u][3]) for name, u in zip(y.names, y.types)]
        if fixed is not None and (self.field, self.what, self.holes, bool(self.us)) != fixed:
            raise OperatorError(
                "%s: field, what, holes and the kind of window cannot change at run time" % kind
            )
        self.TIMED = self.us > 0  # by count there is no timer, and no reason to go step by step
        if self.us:
            fields.within(kind, "us", self.us, 1, 1 << 40)
        state = "total:i64"
        if self.squares:
            state += " square:u64 rest:u64"
        return state

    # What the window under way, or the pane, holds beside that.
    def pane(self) -> str:
        t = self.ins[0].types[self.at_field]
        state = " seen:u32"
        if self.us:
            state += " timer:i64"
        if self.extremes:
            state += " low:%s high:%s" % (t, t)
        if self.holes:
            state += " missed:u16"
        return state

    # Add n elements to the accumulators from element i on.
    def add(self, x: "Batch", i: int, n: int) -> None:
        c = x.cols[self.at_field]
        total = 0
        if not self.seen:
            self.low = self.high = c[i]
        low = self.low
        high = self.high
        extremes = self.extremes
        self.seen += n - i
        if self.squares:
            square = self.square
            rest = self.rest
            for k in range(i, n):
                v = c[k]
                total += v
                if v < low:
                    low = v
                elif v > high:
                    high = v
                v *= v
                square += v >> 15
                rest += v & 32767
            self.square = square
            self.rest = rest
        elif extremes:
            for k in range(i, n):
                v = c[k]
                total += v
                if v < low:
                    low = v
                elif v > high:
                    high = v
        else:
            for k in range(i, n):
                total += c[k]
        self.total += total
        self.low = low
        self.high = high

    # Write output j from accumulators; squares is the sum of the squares.
    def put(self, j: int, n: int, total: int, squares: int, low: int, high: int, missed: int) -> None:
        f = 0
        for name, least, most in self.put_in:
            if name == "count":
                v = n
            elif name == "holes":
                v = missed
            elif not n:
                v = 0
            elif name == "sum":
                v = total
            elif name == "mean":
                v = total // n
            elif name == "min":
                v = low
            elif name == "max":
                v = high
            else:
                v = (n * squares - total * total) // (n * n)
            self.y.cols[f][j] = least if v < least else most if v > most else v
            f += 1

    def clear(self) -> None:
        self.seen = self.total = self.square = self.rest = self.missed = self.low = self.high = 0

    def arm(self, x: "Batch") -> None:
        if not self.timer:
            self.timer = (x.ts_of(0) // self.us + 1) * self.us

    def hole(self, port: int) -> bool:
        if self.holes:
            if self.missed < 65535:
                self.missed += 1
            return False
        return True


class Tumbling(_Window):
    """Functions of windows side by side, of `count` elements each or `us` of time: any of count,
    sum, mean, min, max and variance, named in `what`. By time, windows are aligned to multiples of
    their length since the epoch, and one without elements is left out unless empty=1.

    At a hole: passes, or with holes=1 is counted in a field `holes`; ends no window.
    """

    PARAMS = "count:u32=0 us:i64=0 what:text=mean field:text= holes:u8=0 empty:u8=0"

    def setup(self) -> None:
        state = self.prepare("Tumbling", getattr(self, "kept", None))
        self.kept = (self.field, self.what, self.holes, bool(self.us))
        if not self.us:
            fields.within("Tumbling", "count", self.count, 1, 1 << 29)
        self.STATE = state + self.pane()

    def run(self, x: "Batch", n: int) -> int:
        if not n:
            return 0
        if self.us:
            self.arm(x)
            self.add(x, 0, n)
            return 0
        at = self.y.at
        j = i = 0
        while i < n:
            end = i + self.count - self.seen
            if end > n:
                self.add(x, i, n)
                break
            if end <= i:
                end = i + 1  # count became smaller at run time
            self.add(x, i, end)
            self.put(
                j, self.seen, self.total, (self.square << 15) + self.rest, self.low, self.high, self.missed
            )
            self.clear()
            at[j] = end - 1
            j += 1
            i = end
        return j

    def fire(self) -> int:
        if not (self.seen or self.missed or self.empty):
            self.timer = 0
            return 0
        self.put(0, self.seen, self.total, (self.square << 15) + self.rest, self.low, self.high, self.missed)
        self.clear()
        self.timer = (self.timer // self.us + 1) * self.us
        return 1


class Sliding(_Window):
    """The same functions of windows that overlap. By count: of the newest `count` elements, given
    every `step` elements. By time: of the last `us`, given every `step_us`, of which `us` is a
    multiple of at most 128.

    At a hole: as Tumbling; counted by time only.
    """

    PARAMS = "count:u16=0 step:u16=1 us:i64=0 step_us:i64=0 what:text=mean field:text= holes:u8=0 empty:u8=0"
    step: int
    step_us: int
    since: int
    head: int
    filled: int
    value: "array[int]"
    n_of: "array[int]"
    total_of: "array[int]"
    low_of: "array[int]"
    high_of: "array[int]"
    square_of: "array[int]"
    missed_of: "array[int]"

    def setup(self) -> None:
        state = self.prepare("Sliding", getattr(self, "kept", None))
        self.kept = (self.field, self.what, self.holes, bool(self.us))
        t = self.ins[0].types[self.at_field]
        if self.us:
            if self.step_us < 1 or self.us % self.step_us or self.us // self.step_us > _PANES_MAX:
                raise OperatorError(
                    "Sliding: us is %d and step_us %d: make us a multiple of it, at most %d times as long"
                    % (self.us, self.step_us, _PANES_MAX)
                )
            k = self.us // self.step_us
            state += self.pane() + " head:u8 n_of:u32*%d total_of:i64*%d" % (k, k)
            if self.extremes:
                state += " low_of:%s*%d high_of:%s*%d" % (t, k, t, k)
            if self.squares:
                state += " square_of:u64*%d" % k
            if self.holes:
                state += " missed_of:u16*%d" % k
            fields.fixed("Sliding", self, state, "us / step_us")
        else:
            if self.holes:
                raise OperatorError("Sliding: holes are counted by time only: give us and step_us")
            fields.within("Sliding", "count", self.count, 1, _COUNT_MAX)
            fields.within("Sliding", "step", self.step, 1, 65535)
            state += " since:u16 head:u16 filled:u16 value:%s*%d" % (t, self.count)
            fields.fixed("Sliding", self, state, "count")

    # The timer comes round every step.
    def arm(self, x: "Batch") -> None:
        if not self.timer:
            self.timer = (x.ts_of(0) // self.step_us + 1) * self.step_us

    def run(self, x: "Batch", n: int) -> int:
        if not n:
            return 0
        if self.us:
            self.arm(x)
            self.add(x, 0, n)
            return 0
        c = x.cols[self.at_field]
        at = self.y.at
        value = self.value
        places = len(value)
        squares = self.squares
        extremes = self.extremes
        step = self.step
        since = self.since
        head = self.head
        filled = self.filled
        total = self.total
        square = self.square
        rest = self.rest
        low = high = 0
        j = 0
        for i in range(n):
            v = c[i]
            total += v
            k = head
            if filled < places:
                k = filled
                filled += 1
            else:
                old = value[head]
                head += 1
                if head == places:
                    head = 0
                total -= old
                if squares:
                    old *= old
                    square -= old >> 15
                    rest -= old & 32767
            value[k] = v
            if squares:
                v *= v
                square += v >> 15
                rest += v & 32767
            since += 1
            if since >= step:
                since = 0
                if extremes:
                    if filled == places:
                        low = min(value)
                        high = max(value)
                    else:
                        low = high = v = value[0]
                        for k in range(1, filled):
                            v = value[k]
                            if v < low:
                                low = v
                            elif v > high:
                                high = v
                self.put(j, filled, total, (square << 15) + rest if squares else 0, low, high, 0)
                at[j] = i
                j += 1
        self.since = since
        self.head = head
        self.filled = filled
        self.total = total
        self.square = square
        self.rest = rest
        return j

    def fire(self) -> int:
        # Close the pane, then put out all of them together.
        k = len(self.n_of)
        h = self.head
        self.head = h + 1 if h + 1 < k else 0
        self.n_of[h] = self.seen
        self.total_of[h] = self.total
        if self.extremes:
            self.low_of[h] = self.low
            self.high_of[h] = self.high
        if self.squares:
            self.square_of[h] = (self.square << 15) + self.rest
        if self.holes:
            self.missed_of[h] = self.missed
        self.clear()
        n = total = squares = missed = low = high = 0
        for i in range(k):
            if self.n_of[i]:
                if self.extremes:
                    if not n or self.low_of[i] < low:
                        low = self.low_of[i]
                    if not n or self.high_of[i] > high:
                        high = self.high_of[i]
                n += self.n_of[i]
                total += self.total_of[i]
                if self.squares:
                    squares += self.square_of[i]
            if self.holes:
                missed += self.missed_of[i]
        if not (n or missed or self.empty):
            self.timer = 0
            return 0
        self.put(0, n, total, squares, low, high, missed)
        self.timer = (self.timer // self.step_us + 1) * self.step_us
        return 1
