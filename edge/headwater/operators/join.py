# Operators with several inputs: SumJoin, Attenuate, Union, Hold. The elements come merged in
# (ts, port, xi) order: x.port[i] is the port of element i, x.cols[p] holds the columns of port p.

from array import array

from ..data.alphabet import TYPES
from ..offboard.compat import TYPE_CHECKING
from ..runtime.operator import Operator, OperatorError
from . import fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..offboard.interfaces import Merged, Params, Port, Ports


class SumJoin(Operator):
    """For each element of two inputs, the sum of the elements of both in `(ts - us, ts]`; times the
    sample interval it is the integral. The window holds at most `keep` elements: where more fall
    into it, the oldest leave early. Saturates at 32 bits.

    At a hole: passes; the window is emptied, since a missed element belongs to no sum.
    """

    PARAMS = "us:u32 keep:u16=256 field:text="
    CATEGORY = "joins"
    us: int
    keep: int
    field: str
    last: int
    total: int
    span: int
    head: int
    count: int
    value: "array[int]"
    gap: "array[int]"

    @classmethod
    def ports(cls, ins: "Sequence[Port]", params: "Params") -> "Ports":
        a, b = fields.inputs("SumJoin", ins, 2)
        fields.index("SumJoin", a, params.get("field", ""), 0, 32)
        fields.index("SumJoin", b, params.get("field", ""), 1, 32)
        return (a.text, b.text), ("sum:i32",)

    def setup(self) -> None:
        a, b = self.ins
        self.fields = (
            fields.index("SumJoin", a, self.field, 0, 32),
            fields.index("SumJoin", b, self.field, 1, 32),
        )
        fields.within("SumJoin", "us", self.us, 1, (1 << 29) - 1)
        fields.within("SumJoin", "keep", self.keep, 1, 4096)
        types = (a.types[self.fields[0]], b.types[self.fields[1]])
        wide = types[0]
        if types[1] != wide:
            # The narrowest signed type that holds both.
            for wide in ("i8", "i16", "i32", "i64"):
                if all([TYPES[wide][2] <= TYPES[t][2] and TYPES[t][3] <= TYPES[wide][3] for t in types]):
                    break
        # last: ts of the newest element. span: from the oldest in the window to it. gap[k]: from the
        # element before k to k. The oldest is at `head`, `count` are in the window.
        state = "last:i64 total:i64 span:u32 head:u16 count:u16 value:%s*keep gap:u32*keep" % wide
        fields.fixed("SumJoin", self, state, "the field")
        if self.keep != getattr(self, "kept", self.keep):
            raise OperatorError("SumJoin: keep cannot change at run time: it decides the size of the state")
        self.kept = self.keep

    def run(self, x: "Merged", n: int) -> int:
        if not n:
            return 0
        us = self.us
        keep = self.kept
        value = self.value
        gap = self.gap
        total = self.total
        span = self.span
        head = self.head
        count = self.count
        port = x.port
        c0 = x.cols[0][self.fields[0]]
        c1 = x.cols[1][self.fields[1]]
        k0 = k1 = 0
        o = self.y.cols[0]
        oat = self.y.at
        dt = x.dt
        at = x.at
        before = self.last - x.ts if count else 0
        if before < -us:
            before = -us
        for i in range(n):
            off = i * dt if dt >= 0 else at[i]
            if port[i]:
                v = c1[k1]
                k1 += 1
            else:
                v = c0[k0]
                k0 += 1
            d = off - before
            before = off
            if d >= us:
                count = 0
            elif count:
                span += d
                while span >= us or count == keep:
                    total -= value[head]
                    head += 1
                    if head == keep:
                        head = 0
                    count -= 1
                    if not count:
                        break
                    span -= gap[head]
            if not count:
                total = span = d = 0
            k = head + count
            if k >= keep:
                k -= keep
            value[k] = v
            gap[k] = d
            count += 1
            total += v
            o[i] = -2147483648 if total < -2147483648 else 2147483647 if total > 2147483647 else total
            oat[i] = i
        self.last = x.ts + before
        self.total = total
        self.span = span
        self.head = head
        self.count = count
        return n

    def hole(self, port: int) -> bool:
        self.count = 0
        return True


class Attenuate(Operator):
    """Elements of input 0, every field shifted right by `shift` while the newest value fed back on
    input 1 exceeds `threshold`. Input 1 is for a feedback edge: it changes state and causes no
    output.

    At a hole: on input 0 passes; on the feedback input nothing happens.
    """

    PARAMS = "threshold:i32 shift:u8=1"
    STATE = "fed:i32"
    CATEGORY = "joins"
    FEEDBACK = (1,)
    threshold: int
    shift: int
    fed: int

    @classmethod
    def ports(cls, ins: "Sequence[Port]", params: "Params") -> "Ports":
        a, b = fields.inputs("Attenuate", ins, 2)
        fields.integers("Attenuate", a)
        fields.index("Attenuate", b, "", 1, 32)
        return (a.text, b.text), (a.text,)

    def setup(self) -> None:
        fields.within("Attenuate", "shift", self.shift, 0, 31)

    def start(self) -> None:
        self.fed = -2147483648

    def run(self, x: "Merged", n: int) -> int:
        threshold = self.threshold
        port = x.port
        back = x.cols[1][0]
        at = self.y.at
        j = 0
        for f in range(len(x.cols[0])):
            c = x.cols[0][f]
            o = self.y.cols[f]
            fed = self.fed
            shift = self.shift if fed > threshold else 0
            j = k = 0
            for i in range(n):
                if port[i]:
                    fed = back[k]
                    k += 1
                    shift = self.shift if fed > threshold else 0
                else:
                    o[j] = c[j] >> shift
                    at[j] = i
                    j += 1
        if n:
            self.fed = 2147483647 if fed > 2147483647 else fed
        return j

    def hole(self, port: int) -> bool:
        return port == 0


class Union(Operator):
    """Streams of one alphabet as one stream, in the order of the merge.

    At a hole: passes.
    """

    ONE_TO_ONE = True
    CATEGORY = "joins"

    @classmethod
    def ports(cls, ins: "Sequence[Port]", params: "Params") -> "Ports":
        ins = fields.inputs("Union", ins, 2, True)
        for p in range(1, len(ins)):
            if ins[p].text != ins[0].text:
                raise OperatorError(
                    "input port %d of Union is '%s' and port 0 is '%s': give them one alphabet, with Map"
                    % (p, ins[p].text, ins[0].text)
                )
        return tuple([a.text for a in ins]), (ins[0].text,)

    def setup(self) -> None:
        self.next = array("H", bytes(2 * len(self.ins)))

    def run(self, x: "Merged", n: int) -> int:
        port = x.port
        nxt = self.next
        cols = x.cols
        for f in range(len(self.y.cols)):
            o = self.y.cols[f]
            for p in range(len(nxt)):
                nxt[p] = 0
            for i in range(n):
                p = port[i]
                k = nxt[p]
                o[i] = cols[p][f][k]
                nxt[p] = k + 1
        return n


class Hold(Operator):
    """Each element of input 0 together with the newest element of every other input: the fields of
    all inputs, in order. Nothing is given until every input has had an element.

    At a hole: on input 0 passes; on another input its element is forgotten.
    """

    CATEGORY = "joins"
    known: int

    @classmethod
    def ports(cls, ins: "Sequence[Port]", params: "Params") -> "Ports":
        ins = fields.inputs("Hold", ins, 2, True)
        names = []
        for p in range(len(ins)):
            for name in ins[p].names:
                if name in names:
                    raise OperatorError(
                        "input port %d of Hold has the field '%s', as a port before it: rename it with Map"
                        % (p, name)
                    )
                names.append(name)
        return tuple([a.text for a in ins]), (" ".join([a.text for a in ins]),)

    def setup(self) -> None:
        state = "known:u32"
        self.held = []  # (port, field, name of what is held)
        for p in range(1, len(self.ins)):
            for f in range(len(self.ins[p].types)):
                name = "last%d_%d" % (p, f)
                state += " %s:%s" % (name, self.ins[p].types[f])
                self.held.append((p, f, name))
        self.STATE = state

    def run(self, x: "Merged", n: int) -> int:
        port = x.port
        at = self.y.at
        ports = len(self.ins)
        full = (1 << ports) - 2
        outs = self.y.cols
        known = self.known
        # Which elements of port 0 cause an output, and which of its elements they are.
        j = 0
        for i in range(n):
            p = port[i]
            if p:
                known |= 1 << p
            elif known == full:
                at[j] = i
                j += 1
        self.known = known
        o = 0
        for f in range(len(self.ins[0].types)):
            c = x.cols[0][f]
            m = k = 0
            for i in range(n):
                if not port[i]:
                    if m < j and at[m] == i:
                        outs[o][m] = c[k]
                        m += 1
                    k += 1
            o += 1
        for q, f, name in self.held:
            c = x.cols[q][f]
            last = getattr(self, name)
            m = k = 0
            for i in range(n):
                if port[i] == q:
                    last = c[k]
                    k += 1
                elif m < j and at[m] == i:
                    outs[o][m] = last
                    m += 1
            setattr(self, name, last)
            o += 1
        return j

    def hole(self, port: int) -> bool:
        if port:
            self.known &= ~(1 << port)
        return port == 0
