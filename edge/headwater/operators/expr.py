# Expressions: a checked tree, turned once into source. Board side; the parser is process/expressions.py.
#
# A tree is what the plan holds: an integer, the name of a field or parameter, or a list
# [operation, operand ..]. It comes from outside, so it is checked totally; what is executed is text
# put together here from operations of our own table, from integers, and from local names that stand
# for fields by number. Nothing that an author wrote appears in it.
#
# Arithmetic is exact, whatever the size. What Python leaves undefined is defined: // and % by zero
# give 0, shifts go by 0 to 31 places, less or more is taken as that. A comparison is 1 or 0; `and`
# and `or` give the operand that decided.

from ..offboard.compat import TYPE_CHECKING
from ..runtime.operator import OperatorError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

DEPTH_MAX = 16
NODES_MAX = 128
_LIMIT = 1 << 63

# operation -> (fewest operands, most, form): a form with %s per operand is plain Python.
_MANY = 128
_OPS = {
    "+": (2, _MANY, " + "),
    "*": (2, _MANY, " * "),
    "&": (2, _MANY, " & "),
    "|": (2, _MANY, " | "),
    "^": (2, _MANY, " ^ "),
    "and": (2, _MANY, " and "),
    "or": (2, _MANY, " or "),
    "-": (2, 2, " - "),
    "<": (2, 2, " < "),
    "<=": (2, 2, " <= "),
    ">": (2, 2, " > "),
    ">=": (2, 2, " >= "),
    "==": (2, 2, " == "),
    "!=": (2, 2, " != "),
    "//": (2, 2, ""),
    "%": (2, 2, ""),
    "<<": (2, 2, ""),
    ">>": (2, 2, ""),
    "neg": (1, 1, "(-%s)"),
    "~": (1, 1, "(-1 - %s)"),
    "not": (1, 1, "(not %s)"),
    "if": (3, 3, ""),
    "min": (2, _MANY, " < "),
    "max": (2, _MANY, " > "),
    "abs": (1, 1, ""),
    "clamp": (3, 3, ""),
    "sat8": (1, 1, ""),
    "sat16": (1, 1, ""),
    "sat32": (1, 1, ""),
    "satu8": (1, 1, ""),
    "satu16": (1, 1, ""),
    "satu32": (1, 1, ""),
}


class ExprError(OperatorError):
    pass


# Source of the expression; `names` maps what may be named to the local that holds it.
def source(tree: "Any", names: "Mapping[str, str]") -> str:
    return _source(tree, names, 1, [0])


# The trees of a ["list", tree ..], which stands for several expressions.
def several(tree: "Any") -> "Sequence[Any]":
    if type(tree) not in (list, tuple) or len(tree) < 2 or tree[0] != "list":
        raise ExprError("a list of expressions is missing")
    return tree[1:]


# Names in the tree, each once, in the order in which they appear.
def names_in(tree: "Any", found: list[str] | None = None, depth: int = 1) -> list[str]:
    found = [] if found is None else found
    if type(tree) is str:
        if tree not in found:
            found.append(tree)
    elif type(tree) in (list, tuple) and depth <= DEPTH_MAX:
        for part in tree[1:]:
            names_in(part, found, depth + 1)
    return found


# Whether the tree is a test that a loop in machine code (board/native.py) can make: comparisons, joined by
# `and` and `or`, of fields of 32 bits signed, or of sums and products that stay below 2**30.
# spans: field -> (smallest, largest).
def narrow(tree: "Any", spans: "Mapping[str, tuple[int, int]]") -> bool:
    if type(tree) not in (list, tuple):
        return False
    if tree[0] == "and" or tree[0] == "or":
        return all([narrow(part, spans) for part in tree[1:]])
    if tree[0] not in ("<", "<=", ">", ">=", "==", "!="):
        return False
    return all([part in spans if type(part) is str else _reach(part, spans) for part in tree[1:]])


# The largest magnitude that the sum or product can have, and one more; 0 if it is not known or too large.
def _reach(tree: "Any", spans: "Mapping[str, tuple[int, int]]") -> int:
    total = 0
    if type(tree) is int:
        total = abs(tree) + 1
    elif type(tree) is str:
        if tree in spans:
            total = max(abs(v) for v in spans[tree]) + 1
    elif tree[0] == "neg" and type(tree[1]) is int:
        total = tree[1] + 1
    elif tree[0] in ("+", "-", "*"):
        parts = [_reach(part, spans) for part in tree[1:]]
        if all(parts):
            total = parts[0]
            for part in parts[1:]:
                total = total * part if tree[0] == "*" else total + part
    return total if total <= 1 << 30 else 0


def _source(tree: "Any", names: "Mapping[str, str]", depth: int, nodes: list[int]) -> str:
    nodes[0] += 1
    if nodes[0] > NODES_MAX:
        raise ExprError("expression of more than %d parts: split it over two operators" % NODES_MAX)
    if depth > DEPTH_MAX:
        raise ExprError("expression nested deeper than %d: split it over two operators" % DEPTH_MAX)
    kind = type(tree)
    if kind is int:
        if not -_LIMIT <= tree < _LIMIT:
            raise ExprError("the number %d does not fit 64 bits" % tree)
        return "%d" % tree
    if kind is str:
        if tree not in names:
            raise ExprError(
                "expression names '%s': there are %s" % (tree, " ".join(sorted(names)) or "no names")
            )
        return names[tree]
    if kind not in (list, tuple) or not tree or type(tree[0]) is not str or tree[0] not in _OPS:
        raise ExprError(
            "expression with an unknown operation: %r" % (tree[:1] if kind in (list, tuple) else tree,)
        )
    op = tree[0]
    fewest, most, form = _OPS[op]
    if not fewest <= len(tree) - 1 <= most:
        raise ExprError("'%s' with %d operands" % (op, len(tree) - 1))
    args = []
    for part in tree[1:]:
        args.append(_source(part, names, depth + 1, nodes))
    a = args[0]
    # Locals for operands that are needed twice; operands lie deeper and have other ones.
    t = "t%d" % depth
    u = "u%d" % depth
    if op == "min" or op == "max":
        for b in args[1:]:
            a = "(%s if %s%s%s else %s)" % (_again(a, t), _once(a, t), form, _once(b, u), _again(b, u))
        return a
    if len(args) == 1:
        if form:
            return form % a
        if op == "abs":
            return "(%s if %s >= 0 else -%s)" % (_again(a, t), _once(a, t), _again(a, t))
        unsigned = op[3] == "u"
        bits = int(op[4:] if unsigned else op[3:])
        low = 0 if unsigned else -(1 << (bits - 1))
        high = (1 << bits) - 1 + low
        return "(%d if %s < %d else %d if %s > %d else %s)" % (
            low, _once(a, t), low, high, _again(a, t), high, _again(a, t)
        )  # fmt: skip
    b = args[1]
    if op == "if":
        return "(%s if %s else %s)" % (b, a, args[2])
    if op == "clamp":
        # If the limits are in the wrong order, the lower one wins.
        c = args[2]
        w = "w%d" % depth
        return "(%s if %s < %s else %s if %s > %s else %s)" % (
            _again(b, u), _once(a, t), _once(b, u), _again(c, w), _again(a, t), _once(c, w), _again(a, t)
        )  # fmt: skip
    if form:
        return "(" + form.join(args) + ")"
    number = tree[2] if type(tree[2]) is int else None
    if op == "//" or op == "%":
        if number:
            return "(%s %s %s)" % (a, op, b)
        return "(%s %s %s if %s else 0)" % (a, op, _again(b, t), _once(b, t))
    if number is not None:
        return "(%s %s %d)" % (a, op, 0 if number < 0 else 31 if number > 31 else number)
    return "(%s %s (0 if %s < 0 else 31 if %s > 31 else %s))" % (
        a,
        op,
        _once(b, t),
        _again(b, t),
        _again(b, t),
    )


# Where an operand is evaluated first, and where it is used again.
def _once(text: str, local: str) -> str:
    return "(%s := %s)" % (local, text) if text[0] == "(" else text


def _again(text: str, local: str) -> str:
    return local if text[0] == "(" else text
