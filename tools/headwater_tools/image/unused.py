"""Functions of the package that no board calls: gateways, simulators and tools do. They stay out of an image.

A function is left out if no module of the image and no file of the firmware contains its name, in code or in
a text. A name that the interpreter knows may be called by it, so such a function stays.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping

from .names import KNOWN, OPEN, WORD

Function = ast.FunctionDef | ast.AsyncFunctionDef


def said(tree: ast.AST, without: Collection[ast.AST] = ()) -> set[str]:
    """The names that a module uses, its own definitions aside; the functions `without` are not examined."""
    found: set[str] = set()
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if node in without:
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.alias):
            found.add(node.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            found.update(WORD.findall(text))
    return found


def unused(modules: Mapping[str, str], firmware: Iterable[str]) -> dict[str, set[str]]:
    """Module -> its functions that nothing on a board calls. Modules that any operator may use stay
    whole."""
    trees = {name: ast.parse(text) for name, text in modules.items()}
    outside = set().union(KNOWN, *(said(ast.parse(text)) for text in firmware))
    dropped: set[ast.AST] = set()
    found: dict[str, set[str]] = {}
    while True:
        used = outside.union(*(said(tree, dropped) for tree in trees.values()))
        new = [
            (name, node)
            for name, tree in trees.items()
            if name not in OPEN
            for node in ast.walk(tree)
            if isinstance(node, Function) and node not in dropped
            if node.name not in used and not node.name.startswith("__")
        ]
        if not new:
            return found
        for name, node in new:
            dropped.add(node)
            found.setdefault(name, set()).add(node.name)


def without(text: str, names: Collection[str]) -> str:
    """A module without these functions; no line moves."""
    lines = text.split("\n")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, Function) and node.name in names:
            assert node.end_lineno is not None
            for k in range(min([node.lineno, *(d.lineno for d in node.decorator_list)]), node.end_lineno + 1):
                lines[k - 1] = ""
    return "\n".join(lines)
