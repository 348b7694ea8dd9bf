# What the types of the library require of their ports, and the limits of what they store.
#
# Generic types take streams of any integer alphabet: they work on every field, or on the one named
# by their parameter `field`, which may stay empty if the stream has only one.

from ..board.native import native
from ..data.alphabet import TYPES, Alphabet
from ..offboard.compat import TYPE_CHECKING
from ..runtime.operator import OperatorError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ..offboard.interfaces import Port
    from ..runtime.operator import Operator


def alphabet(a: Alphabet | str) -> Alphabet:
    return a if isinstance(a, Alphabet) else Alphabet(a)


# The alphabets of the inputs, which must be `count` (or, with `more`, at least that many).
def inputs(kind: str, ins: "Sequence[Port]", count: int, more: bool = False) -> list[Alphabet]:
    if len(ins) < count or (len(ins) > count and not more):
        raise OperatorError(
            "%s has %d input port%s%s and is connected to %d stream%s"
            % (
                kind,
                count,
                "" if count == 1 else "s",
                " or more" if more else "",
                len(ins),
                "" if len(ins) == 1 else "s",
            )
        )
    for p in range(len(ins)):
        if ins[p] is None:
            raise OperatorError(
                "input port %d of %s is disabled, and %s needs it: connect it" % (p, kind, kind)
            )
    return [alphabet(a) for a in ins]  # type: ignore[arg-type]  # none of them is None


# Refuse fields that are not integers, or wider than `bits`.
def integers(kind: str, a: Alphabet, port: int = 0, bits: int = 64) -> Alphabet:
    for name, t in zip(a.names, a.types):
        if t[0] == "f":
            raise OperatorError(
                "input port %d of %s: field '%s' is %s, and %s computes in integers: scale it to an "
                "integer type at its source" % (port, kind, name, t, kind)
            )
        if TYPES[t][1] * 8 > bits:
            raise OperatorError(
                "input port %d of %s: field '%s' is %s; at most %d bits: shift it down first"
                % (port, kind, name, t, bits)
            )
    return a


# Index of the field to work on.
def index(kind: str, a: Alphabet, field: str, port: int = 0, bits: int = 64) -> int:
    if not field:
        if len(a.names) > 1:
            raise OperatorError(
                "input port %d of %s has the fields %s: say which, like field='%s'"
                % (port, kind, ", ".join(a.names), a.names[0])
            )
        field = a.names[0]
    if field not in a.names:
        raise OperatorError(
            "input port %d of %s has no field '%s': it has %s" % (port, kind, field, ", ".join(a.names))
        )
    i = a.names.index(field)
    integers(kind, Alphabet(field + ":" + a.types[i]), port, bits)
    return i


# For source of a loop in machine code (board/native.py): how a column of this type is declared, and how its
# element i is read. None where 32 bits are not enough to compute with its values, or, with `same`, to
# look at them.
def column(t: str, name: str, same: bool = False) -> tuple[str, str] | tuple[None, None]:
    width, low = TYPES[t][1:3]
    if width > 2 and not (same and t == "i32"):
        return None, None
    value = name + "[i]"
    if low and width < 4:
        value = "(%s ^ %d) + %d" % (value, -low, low)  # read without sign
    return "%s: ptr%d" % (name, 8 * width), value


# In machine code: element j of o becomes element at[j] of a, for j below m. width: bytes of an element.
def picker(width: int) -> "Callable[..., Any] | None":
    text = "def run(a: ptr%d, o: ptr%d, at: ptr32, m: int):\n for j in range(m):\n  o[j] = a[at[j]]\n"
    return native(text % (8 * width, 8 * width))


# (smallest, largest) of field i.
def limits(a: Alphabet, i: int) -> tuple[int, int]:
    return TYPES[a.types[i]][2:4]


# Refuse a parameter outside low..high.
def within(kind: str, name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise OperatorError("%s: %s is %d; it must be %d to %d" % (kind, name, value, low, high))


# Set the layout of the state, which `what` decides; at run time it must stay as it is.
def fixed(kind: str, op: "Operator", state: str, what: str) -> None:
    if op.STATE and op.STATE != state:
        raise OperatorError(
            "%s: %s cannot change at run time: it decides the size of the state" % (kind, what)
        )
    op.STATE = state


# The integer r with r * r <= v < (r + 1) * (r + 1). By Newton's steps: from any guess the first one
# lands at or above the root, and from there they fall.
def isqrt(v: int, guess: int = 1) -> int:
    if v <= 0:
        return 0
    r = (guess + v // guess) >> 1 or 1
    q = v // r
    while q < r:
        r = (r + q) >> 1
        q = v // r
    return r
