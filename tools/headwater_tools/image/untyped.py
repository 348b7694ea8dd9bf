"""Removes the types from a module: the result is the module that a board gets, on the same lines.

MicroPython reads annotations and discards them: they cost no byte of a compiled module. Code only for the
type checker costs some: imports and protocols under `if TYPE_CHECKING`, the import of that name itself,
declarations without a value. The linker, moreover, would mistake the words of annotations for names that the
code uses. So an image is built from modules without types.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..errors import UserError
from .edits import Place, edited, place_of

FLAG = "TYPE_CHECKING"
# Names of `headwater.offboard.compat` that a board's compiler knows (const), or that its code has no use for.
NOT_ON_A_BOARD = frozenset((FLAG, "const"))
_COMPAT = ("compat",)
# The linker gives no name that occurs as a word in a module, comments included: each word less is a name
# more.
_IGNORED = re.compile(r"# type: ignore\[[\w, -]+\]")


def _is_for_types(node: ast.stmt) -> bool:
    """Whether a statement is `if TYPE_CHECKING:`, whose body no interpreter runs."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == FLAG


def untyped(text: str) -> str:
    """The same module without its types; every line stays where it was."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return text  # the compiler reports it
    lines = text.split("\n")
    edits: list[tuple[Place, str]] = []
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and _is_for_types(node):
            if node.orelse:
                raise UserError(
                    "line %d: `if %s` has an else, which no board would run" % (node.lineno, FLAG)
                )
            edits.append((place_of(node), ""))
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            edits += _signature(node, lines)
        elif isinstance(node, ast.AnnAssign):
            if node.value is None:
                edits.append((place_of(node), ""))
            else:
                edits.append((_between(node.target, node.annotation), ""))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[-1] in _COMPAT:
            edits += _import(node)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            edits += _body(node.body)
    return _IGNORED.sub("#", edited(text, edits))


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> Iterator[tuple[Place, str]]:
    a = node.args
    for each in [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg]:
        if each is not None and each.annotation is not None:
            end = place_of(each.annotation)
            at = each.col_offset + len(each.arg.encode())
            yield (each.lineno, at, end[2], end[3]), ""
    if node.returns is not None:
        line, col, end_line, end_col = place_of(node.returns)
        before = lines[line - 1].encode()[:col].rstrip()
        assert before.endswith(b"->"), "line %d: the type of a result stands behind its arrow" % line
        yield (line, len(before.removesuffix(b"->").rstrip()), end_line, end_col), ""


def _body(body: list[ast.stmt]) -> Iterator[tuple[Place, str]]:
    """A body of declarations and imports for types alone must hold something without them."""
    for node in body:
        if not (isinstance(node, ast.AnnAssign) and node.value is None or _is_for_types(node)):
            return
    end = place_of(body[-1])[2:]
    yield (*end, *end), "pass"


def _import(node: ast.ImportFrom) -> Iterator[tuple[Place, str]]:
    left = [a for a in node.names if a.name not in NOT_ON_A_BOARD]
    if len(left) == len(node.names):
        return
    names = ", ".join("%s as %s" % (a.name, a.asname) if a.asname else a.name for a in left)
    yield place_of(node), "from %s%s import %s" % ("." * node.level, node.module, names) if left else ""


def _between(first: ast.expr, last: ast.expr) -> Place:
    """From the end of one expression to the end of another."""
    return place_of(first)[2:] + place_of(last)[2:]
