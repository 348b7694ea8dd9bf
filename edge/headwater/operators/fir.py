# Fir: a filter with integer coefficients, out = (sum of c[k] * x[i-k]) >> shift, rounded, saturated.
#
# The loop is source generated from the coefficients alone: the delay line is in locals, zeros cost
# nothing, and where the coefficients are symmetric two samples share one multiplication. Before the
# first sample, and after a hole, the delay line holds the next sample in every place, so that a
# constant signal has no transient.
#
# Small integers all the way, and therefore no allocation, as long as the sum of the coefficients'
# magnitudes times the largest input stays below 2**30; beyond that it is exact and slower.

import sys

from ..data.alphabet import TYPES
from ..offboard.compat import TYPE_CHECKING
from ..runtime.operator import Operator
from . import fields

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ..data.batch import Batch
    from ..offboard.interfaces import Params, Port, Ports


# Names of the delay line in the generated loop, to which they mean nothing else. MicroPython has them in ROM;
# any other name takes RAM as long as a board runs.
_LOCALS = (
    "abs accept add aes all any append backlog binascii buf calcsize cancel close code collect connect "
    "content context copy core count crc32 create_task decode default delattr deque dict digest discard "
    "drain dumps encode encrypt event extend fill flags float floor flush format getaddrinfo handler hash "
    "hashlib host idle idx input insert ioctl items iter join json key keys latest listen load loads log"
)


# Source of `run(a, o, n, d)`: filter n values of a into o with delay line d (newest first). native:
# for MicroPython's viper, 16 bits signed in and out, exact where no sum reaches 2**31.
def source(
    coeffs: "Sequence[int]", shift: int, low: int, high: int, in_low: int, in_high: int, native: bool = False
) -> str:
    taps = len(coeffs)
    names = ["v"] + _LOCALS.split(" ")[: taps - 1]
    terms = []
    if taps > 2 and list(coeffs) == list(reversed(coeffs)):
        for k in range(taps // 2):
            terms.append((coeffs[k], "(%s + %s)" % (names[k], names[taps - 1 - k])))
        if taps & 1:
            terms.append((coeffs[taps // 2], names[taps // 2]))
    else:
        terms = list(zip(coeffs, names))
    total = "%d" % (1 << shift >> 1)
    for c, name in terms:
        if c == 1:
            total += " + " + name
        elif c:
            total += " + %d * %s" % (c, name)
    if shift:
        total = "(%s) >> %d" % (total, shift)
    # The extremes that the sum can reach decide whether it must be saturated.
    half = 1 << shift >> 1
    least = sum([c * (in_low if c > 0 else in_high) for c in coeffs])
    most = sum([c * (in_high if c > 0 else in_low) for c in coeffs])
    line = ", ".join(names[1:])
    value = "%s[%s]"
    text = "def run(a, o, n, d):\n"
    if native:
        value = "(%s[%s] ^ 32768) - 32768"  # viper reads without sign
        text = "import micropython\n@micropython.viper\ndef run(a: ptr16, o: ptr16, n: int, d: ptr16):\n"
        for k in range(taps - 1):
            text += " %s = %s\n" % (names[k + 1], value % ("d", k))
    elif line:
        text += " %s, = d\n" % line
    text += " for i in range(n):\n  v = %s\n  t = %s\n" % (value % ("a", "i"), total)
    if (most + half) >> shift > high:
        text += "  if t > %d:\n   t = %d\n" % (high, high)
    if (least + half) >> shift < low:
        text += "  if t < %d:\n   t = %d\n" % (low, low)
    text += "  o[i] = t\n"
    for k in range(taps - 1, 0, -1):
        text += "  %s = %s\n" % (names[k], names[k - 1])
    for k in range(taps - 1):
        text += " d[%d] = %s\n" % (k, names[k + 1])
    return text


# The filter itself: in machine code if there is a compiler for it and 32 bits suffice.
def compiled(coeffs: "Sequence[int]", shift: int, low: int, high: int) -> "Callable[..., Any]":
    space: "dict[str, Any]" = {}
    most = (sum([abs(c) for c in coeffs]) << 15) + (1 << shift)
    if sys.implementation.name == "micropython" and low == -32768 and most < 1 << 31 and len(coeffs) > 1:
        try:
            exec(source(coeffs, shift, low, high, low, high, True), space)
            return space["run"]
        except SyntaxError:  # no machine code on this board
            space = {}
    exec(source(coeffs, shift, low, high, low, high), space)
    return space["run"]


class Fir(Operator):
    """A filter with integer coefficients: `(sum of coeffs[k] * x[i-k]) >> shift`, rounded and
    saturated.

    At a hole: passes; the next sample fills the delay line.
    """

    PARAMS = "coeffs:ints shift:u8=12"
    ONE_TO_ONE = True
    CATEGORY = "filters"
    coeffs: "Sequence[int]"
    shift: int
    primed: int

    @classmethod
    def ports(cls, ins: "Sequence[Port]", params: "Params") -> "Ports":
        a = fields.integers("Fir", fields.inputs("Fir", ins, 1)[0])
        return (a.text,), (a.text,)

    def setup(self) -> None:
        fields.within("Fir", "number of coefficients", len(self.coeffs), 1, 64)
        fields.within("Fir", "shift", self.shift, 0, 31)
        for c in self.coeffs:
            fields.within("Fir", "coefficient", c, -(1 << 31), (1 << 31) - 1)
        kept = len(self.coeffs) - 1
        a = self.ins[0]
        state = "primed:u8"
        self.code = []
        made = {}
        for i in range(len(a.types)):
            t = a.types[i]
            if t not in made:
                low, high = TYPES[t][2:4]
                made[t] = compiled(self.coeffs, self.shift, low, high)
            self.code.append(made[t])
            if kept:
                state += " line%d:%s*%d" % (i, t, kept)
        fields.fixed("Fir", self, state, "the number of coefficients")
        self.kept = kept

    def start(self) -> None:
        self.lines: "list[Any]" = [
            getattr(self, "line%d" % i) if self.kept else () for i in range(len(self.code))
        ]

    def run(self, x: "Batch", n: int) -> int:
        kept = self.kept
        if not n:
            return 0
        first = not self.primed
        self.primed = 1
        for i in range(len(self.code)):
            a = x.cols[i]
            line = self.lines[i]
            if first:
                v = a[0]
                for k in range(kept):
                    line[k] = v
            self.code[i](a, self.y.cols[i], n, line)
        return n

    def hole(self, port: int) -> bool:
        self.primed = 0
        return True
