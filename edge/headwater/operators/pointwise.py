# Operators that look at one element, or at it and the one before: Affine, Magnitude, Difference,
# Decimate, DeadBand. What they store saturates at the limits of the field's type.

from ..board.native import BOARD, native
from ..data.alphabet import TYPES
from ..offboard.compat import TYPE_CHECKING
from ..runtime.operator import Operator, OperatorError
from . import fields

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ..data.batch import Batch
    from ..offboard.interfaces import Params, Port, Ports


class Affine(Operator):
    """`((x * num // den) >> shift) + offset` of every field; `//` and `>>` round towards minus
    infinity.

    At a hole: passes.
    """

    PARAMS = "num:i32=1 den:i32=1 shift:u8=0 offset:i32=0"
    ONE_TO_ONE = True
    CATEGORY = "arithmetic"
    num: int
    den: int
    shift: int
    offset: int

    @classmethod
    def ports(cls, ins: "Sequence[Port]", params: "Params") -> "Ports":
        a = fields.integers("Affine", fields.inputs("Affine", ins, 1)[0])
        return (a.text,), (a.text,)

    def setup(self) -> None:
        if not self.den:
            raise OperatorError("Affine: den is 0; it must be another number")
        fields.within("Affine", "shift", self.shift, 0, 31)
        self.code: "list[Any]" = []
        if BOARD and self.den == 1 and (abs(self.num) << 16) + abs(self.offset) < 1 << 31:
            for t in self.ins[0].types:
                self.code.append(_affine(t))

    def run(self, x: "Batch", n: int) -> int:
        num = self.num
        den = self.den << self.shift  # (v // a) >> b == v // (a << b)
        offset = self.offset
        a = self.ins[0]
        for f in range(len(x.cols)):
            low = TYPES[a.types[f]][2]
            high = TYPES[a.types[f]][3]
            c = x.cols[f]
            o = self.y.cols[f]
            if self.code and self.code[f]:
                self.code[f](c, o, n, num, self.shift, offset)
            elif den == 1:
                for i in range(n):
                    v = c[i] * num + offset
                    o[i] = low if v < low else high if v > high else v
            else:
                for i in range(n):
                    v = c[i] * num // den + offset
                    o[i] = low if v < low else high if v > high else v
        return n


def _affine(t: str) -> "Callable[..., Any] | None":
    column, value = fields.column(t, "a")
    if not column:
        return None
    return native(
        """def run(%s, o: ptr%d, n: int, num: int, shift: int, offset: int):
 for i in range(n):
  v = ((%s) * num >> shift) + offset
  if v < %d:
   v = %d
  elif v > %d:
   v = %d
  o[i] = v
"""
        % (column, 8 * TYPES[t][1], value, TYPES[t][2], TYPES[t][2], TYPES[t][3], TYPES[t][3])
    )


class Magnitude(Operator):
    """The length of a vector: the integer root of the sum of the squares of all fields, or of those
    named in `of`, like "x y". The sum is exact; below 2**30 it allocates nothing.

    At a hole: passes.
    """

    PARAMS = "of:text="
    ONE_TO_ONE = True
    CATEGORY = "arithmetic"
    of: str

    @classmethod
    def ports(cls, ins: "Sequence[Port]", params: "Params") -> "Ports":
        a = fields.inputs("Magnitude", ins, 1)[0]
        wide = False
        for name in params.get("of", "").split() or a.names:
            i = fields.index("Magnitude", a, name, 0, 32)
            wide = wide or TYPES[a.types[i]][1] > 2
        return (a.text,), ("magnitude:u32" if wide else "magnitude:u16",)

    def setup(self) -> None:
        a = self.ins[0]
        self.use = [a.names.index(name) for name in self.of.split() or a.names]
        self.more = range(3, len(self.use))

    def run(self, x: "Batch", n: int) -> int:
        o = self.y.cols[0]
        top = TYPES[self.outs[0].alphabet.types[0]][3]
        use = self.use
        a = x.cols[use[0]]
        b = x.cols[use[1]] if len(use) > 1 else None
        c = x.cols[use[2]] if len(use) > 2 else None
        more = self.more
        r = 1
        for i in range(n):
            s = a[i]
            s *= s
            if b:
                v = b[i]
                s += v * v
            if c:
                v = c[i]
                s += v * v
            for k in more:
                v = x.cols[use[k]][i]
                s += v * v
            # The integer root as in fields.isqrt, from the root before; written out, since it runs per
            # element.
            if s:
                r = (r + s // r) >> 1 or 1
                q = s // r
                while q < r:
                    r = (r + q) >> 1
                    q = s // r
                o[i] = top if r > top else r
            else:
                o[i] = 0
        return n


class Difference(Operator):
    """`x` minus the element before it, every field, one type wider and signed where there is one.
    The first element gives 0.

    At a hole: passes; the next element gives 0.
    """

    ONE_TO_ONE = True
    CATEGORY = "arithmetic"
    _WIDER = {"i8": "i16", "u8": "i16", "i16": "i32", "u16": "i32", "i32": "i64", "u32": "i64"}
    primed: int

    @classmethod
    def ports(cls, ins: "Sequence[Port]", params: "Params") -> "Ports":
        a = fields.integers("Difference", fields.inputs("Difference", ins, 1)[0], 0, 32)
        return (a.text,), (" ".join([m + ":" + cls._WIDER[t] for m, t in zip(a.names, a.types)]),)

    def setup(self) -> None:
        a = self.ins[0]
        state = "primed:u8"
        self.lasts = ["last%d" % f for f in range(len(a.types))]
        for name, t in zip(self.lasts, a.types):
            state += " %s:%s" % (name, t)
        self.STATE = state
        self.code: "list[Any]" = [_difference(t) for t in a.types]

    def run(self, x: "Batch", n: int) -> int:
        if not n:
            return 0
        for f in range(len(x.cols)):
            c = x.cols[f]
            o = self.y.cols[f]
            last = getattr(self, self.lasts[f]) if self.primed else c[0]
            if self.code[f]:
                last = self.code[f](c, o, n, last)
            else:
                for i in range(n):
                    v = c[i]
                    o[i] = v - last
                    last = v
            setattr(self, self.lasts[f], last)
        self.primed = 1
        return n

    def hole(self, port: int) -> bool:
        self.primed = 0
        return True


def _difference(t: str) -> "Callable[..., Any] | None":
    column, value = fields.column(t, "a")
    if not column:
        return None
    return native(
        """def run(%s, o: ptr%d, n: int, last: int) -> int:
 for i in range(n):
  v = %s
  o[i] = v - last
  last = v
 return last
"""
        % (column, 16 * TYPES[t][1], value)
    )


class Decimate(Operator):
    """Every k-th element: of 1, 2, 3, ... these are k, 2k, ...

    At a hole: passes, and is not counted.
    """

    PARAMS = "k:u16"
    STATE = "seen:u16"
    CATEGORY = "selection"
    k: int
    seen: int

    @classmethod
    def ports(cls, ins: "Sequence[Port]", params: "Params") -> "Ports":
        a = fields.inputs("Decimate", ins, 1)[0]
        return (a.text,), (a.text,)

    def setup(self) -> None:
        fields.within("Decimate", "k", self.k, 1, 65535)

    def run(self, x: "Batch", n: int) -> int:
        at = self.y.at
        k = self.k
        i = k - 1 - self.seen
        if i < 0:
            i = 0  # k became smaller at run time
        j = 0
        while i < n:
            at[j] = i
            j += 1
            i += k
        self.seen = n - 1 - at[j - 1] if j else self.seen + n
        for f in range(len(x.cols)):
            c = x.cols[f]
            o = self.y.cols[f]
            for m in range(j):
                o[m] = c[at[m]]
        return j


class DeadBand(Operator):
    """Elements whose field differs by more than `width` from the last one that was passed on, with
    all their fields. The first element is passed on.

    At a hole: passes; the next element is passed on.
    """

    PARAMS = "width:u32 field:text="
    CATEGORY = "selection"
    width: int
    field: str
    primed: int
    last: int

    @classmethod
    def ports(cls, ins: "Sequence[Port]", params: "Params") -> "Ports":
        a = fields.inputs("DeadBand", ins, 1)[0]
        fields.index("DeadBand", a, params.get("field", ""))
        return (a.text,), (a.text,)

    def setup(self) -> None:
        a = self.ins[0]
        self.at_field = fields.index("DeadBand", a, self.field)
        fields.fixed("DeadBand", self, "primed:u8 last:" + a.types[self.at_field], "the field")
        self.code = _dead_band(a.types[self.at_field])

    def run(self, x: "Batch", n: int) -> int:
        if not n:
            return 0
        at = self.y.at
        c = x.cols[self.at_field]
        width = self.width
        last = self.last if self.primed else c[0] + width + 1
        o = self.y.cols[self.at_field]
        if self.code:
            if width > 65535:  # nothing differs by more
                width = 65535
                if not self.primed:
                    last = c[0] + 65536
            j = self.code(c, o, at, n, width, last)
            if j:
                last = o[j - 1]
        else:
            under = -width
            j = 0
            for i in range(n):
                v = c[i]
                d = v - last
                if d > width or d < under:
                    last = v
                    at[j] = i
                    o[j] = v
                    j += 1
        self.last = last
        self.primed = 1
        for f in range(len(x.cols)):
            if f != self.at_field:
                c = x.cols[f]
                o = self.y.cols[f]
                for k in range(j):
                    o[k] = c[at[k]]
        return j

    def hole(self, port: int) -> bool:
        self.primed = 0
        return True


def _dead_band(t: str) -> "Callable[..., Any] | None":
    column, value = fields.column(t, "a")
    if not column:
        return None
    return native(
        """def run(%s, o: ptr%d, at: ptr32, n: int, width: int, last: int) -> int:
 j = 0
 for i in range(n):
  v = %s
  d = v - last
  if d > width or 0 - d > width:
   last = v
   at[j] = i
   o[j] = v
   j += 1
 return j
"""
        % (column, 8 * TYPES[t][1], value)
    )
