"""Sources without what only CPython uses: annotations, imports of types, and, for boards, asserts.

The text is edited and never written anew: every line stays where it was, so tracebacks stay true.
MicroPython has no module `typing`; what a source still uses of it after this is an error.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator

from .. import Trouble
from .names import Place, edited

# Modules that serve annotations alone.
TYPES = frozenset("typing typing_extensions collections.abc __future__ types".split())


def plain(text: str, name: str, asserts: bool = False) -> str:
    """The source of module `name` as a board gets it; with `asserts` they stay."""
    tree = ast.parse(text)
    edits: list[tuple[Place, str]] = []
    gone: list[ast.AST] = []
    types: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and _asks_for_types(node.test):
            if node.orelse:
                raise Trouble("%s.py, line %d: TYPE_CHECKING with an else" % (name, node.lineno))
            gone.append(node)
        elif isinstance(node, ast.Import) and {a.name for a in node.names} <= TYPES:
            gone.append(node)
            types |= {(a.asname or a.name).partition(".")[0] for a in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module in TYPES:
            gone.append(node)
            types |= {a.asname or a.name for a in node.names}
        elif isinstance(node, ast.Assert) and not asserts:
            gone.append(node)
    inside = {id(n) for node in gone for n in ast.walk(node)}
    edits += [(place(node), "pass") for node in gone if _outermost(node, gone)]
    for node in ast.walk(tree):
        if id(node) not in inside:
            edits += _annotations(node, text, types)
    out = edited(text, edits)
    left = types & {n.id for n in ast.walk(ast.parse(out)) if isinstance(n, ast.Name)}
    if left:
        raise Trouble("%s.py uses %s, which MicroPython does not have" % (name, ", ".join(sorted(left))))
    return out


def _asks_for_types(test: ast.expr) -> bool:
    return "TYPE_CHECKING" in (getattr(test, "id", ""), getattr(test, "attr", ""))


def _outermost(node: ast.AST, gone: list[ast.AST]) -> bool:
    return not any(other is not node and any(n is node for n in ast.walk(other)) for other in gone)


def place(node: ast.AST) -> Place:
    assert isinstance(node, (ast.expr, ast.stmt, ast.arg))
    assert node.end_lineno is not None and node.end_col_offset is not None
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def _annotations(node: ast.AST, text: str, types: set[str]) -> Iterator[tuple[Place, str]]:
    """What removes the annotations that a node has."""
    if isinstance(node, ast.arg) and node.annotation:
        end = place(node)[2:]
        yield (node.lineno, node.col_offset + len(node.arg.encode()), *end), ""
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.returns:
        yield _returns(node, text), ""
    elif isinstance(node, ast.AnnAssign):
        if node.value is None:
            yield place(node), "pass"
        else:
            yield (*place(node.target)[2:], *place(node.value)[:2]), " = "
    elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "cast" and "cast" in types:
        yield (*place(node.func)[:2], *place(node.args[1])[:2]), "("


def _returns(node: ast.FunctionDef | ast.AsyncFunctionDef, text: str) -> Place:
    """From the arrow before an annotation to the colon behind it."""
    depth = 0
    arrow: tuple[int, int] | None = None
    lines = text.split("\n")
    source = io.StringIO("\n".join(lines[node.lineno - 1 :]))
    for token in tokenize.generate_tokens(source.readline):
        line, col = token.start[0] + node.lineno - 1, token.start[1]
        at = line, len(lines[line - 1][:col].encode())
        if token.string in "([{" and token.type == tokenize.OP:
            depth += 1
        elif token.string in ")]}" and token.type == tokenize.OP:
            depth -= 1
        elif token.string == "->":
            arrow = at
        elif token.string == ":" and not depth and arrow:
            return (*arrow, *at)
    raise AssertionError("a function with an annotation and no arrow")
