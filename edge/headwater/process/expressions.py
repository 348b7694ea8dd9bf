"""The parser of expressions: text -> tree (see operators/expr.py). Host side; a board never imports it.

    parse("rate > 120 and effort < p.limit")
    -> ["and", [">", "rate", 120], ["<", "effort", "limit"]]

The grammar is Python's, but only what the tables below list is accepted; nothing is
evaluated. `p.name` is another way to write the name of a parameter.
"""

import ast
import warnings
from typing import NoReturn

from ..offboard.interfaces import Tree
from ..operators.expr import _OPS, DEPTH_MAX, NODES_MAX, ExprError

TEXT_MAX = 1024
NUMBER_MAX = (1 << 63) - 1

_BINARY = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}
_COMPARE = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_UNARY = {ast.USub: "neg", ast.Invert: "~", ast.Not: "not"}
_FLAT = ("+", "*", "&", "|", "^", "and", "or")
FUNCTIONS = ("abs", "clamp", "max", "min", "sat16", "sat32", "sat8", "satu16", "satu32", "satu8")
_CURE = (
    "write integers, names, + - * // % << >> & | ^ ~, comparisons, and, or, not, if-else, and the functions "
    + (" ".join(FUNCTIONS))
)


def parse(text: str) -> Tree:
    """The tree of an expression; ExprError if the text is not a valid one."""
    if not isinstance(text, str):
        raise ExprError("%r is not an expression: write it as a text, like 'x * 2 + 1'" % (text,))
    if len(text) > TEXT_MAX:
        raise ExprError("expression of %d letters; at most %d" % (len(text), TEXT_MAX))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            root = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as e:
        raise ExprError(
            "'%s' is not an expression: %s" % (text, getattr(e, "msg", None) or "it cannot be read")
        ) from None
    try:
        tree = _tree(root, text, 1)
    except RecursionError:
        raise ExprError("expression nested deeper than %d: split it over two operators" % DEPTH_MAX) from None
    count, depth = _extent(tree)
    if count > NODES_MAX:
        raise ExprError(
            "'%s' has %d parts; at most %d: split it over two operators" % (text, count, NODES_MAX)
        )
    if depth > DEPTH_MAX:
        raise ExprError(
            "'%s' is nested %d deep; at most %d: split it over two operators" % (text, depth, DEPTH_MAX)
        )
    return tree


def _extent(tree: Tree) -> tuple[int, int]:
    if not isinstance(tree, list):
        return 1, 1
    parts = [_extent(part) for part in tree[1:]]
    return 1 + sum([n for n, _ in parts]), 1 + max([d for _, d in parts])


def _tree(node: ast.expr, text: str, depth: int) -> Tree:
    def sub(part: ast.expr) -> Tree:
        return _tree(part, text, depth + 1)

    def refuse(what: str) -> NoReturn:
        raise ExprError("'%s': %s is not part of the language: %s" % (text, what, _CURE))

    if isinstance(node, ast.Constant):
        if type(node.value) is not int:
            if isinstance(node.value, float):
                refuse("the fraction %r" % node.value)
            refuse("%r" % (node.value,))
        if node.value > NUMBER_MAX:
            raise ExprError("'%s': the number %d does not fit 64 bits" % (text, node.value))
        return node.value
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        if isinstance(node.value, ast.Name) and node.value.id == "p":
            return node.attr
        refuse("'.%s'" % node.attr)
    if isinstance(node, ast.BinOp):
        op = _BINARY.get(type(node.op))
        if op is None:
            refuse(
                "'/', which gives fractions (// divides integers),"
                if isinstance(node.op, ast.Div)
                else "'**' or '@'"
            )
        return _join(op, [sub(node.left), sub(node.right)])
    if isinstance(node, ast.UnaryOp):
        if isinstance(node.op, ast.UAdd):
            return sub(node.operand)
        operand = sub(node.operand)
        if isinstance(node.op, ast.USub) and type(operand) is int:
            return -operand
        return [_UNARY[type(node.op)], operand]
    if isinstance(node, ast.BoolOp):
        return _join("and" if isinstance(node.op, ast.And) else "or", [sub(part) for part in node.values])
    if isinstance(node, ast.Compare):
        sides = [sub(node.left)] + [sub(part) for part in node.comparators]
        tests: list[Tree] = []
        for i, comparison in enumerate(node.ops):
            if type(comparison) not in _COMPARE:
                refuse("'in' or 'is'")
            tests.append([_COMPARE[type(comparison)], sides[i], sides[i + 1]])
        return tests[0] if len(tests) == 1 else ["and", *tests]
    if isinstance(node, ast.IfExp):
        return ["if", sub(node.test), sub(node.body), sub(node.orelse)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        name = node.func.id
        if name not in FUNCTIONS:
            refuse("the function '%s'" % name)
        if node.keywords or any([isinstance(arg, ast.Starred) for arg in node.args]):
            refuse("an argument by name or with '*'")
        fewest, most, _ = _OPS[name]
        if not fewest <= len(node.args) <= most:
            raise ExprError(
                "'%s': %s takes %s, not %d"
                % (text, name, "%d" % fewest if fewest == most else "%d or more" % fewest, len(node.args))
            )
        return [name, *(sub(arg) for arg in node.args)]
    refuse("'%s'" % (ast.get_source_segment(text.strip(), node) or type(node).__name__))


def _join(op: str, parts: list[Tree]) -> list[Tree]:
    """a + b + c is one sum of three, not a sum of a sum: depth is scarce."""
    if op in _FLAT and isinstance(parts[0], list) and parts[0][0] == op:
        return parts[0] + parts[1:]
    return [op] + parts
