"""Sources as a board gets them: without types and, unless a test runs them, without asserts.

The text is edited in place: every line keeps its number, so tracebacks stay correct.
MicroPython has no module `typing`; what a source still uses of it after this is an error.
"""

from __future__ import annotations

import ast

from ..errors import UserError
from .edits import edited, place_of
from .untyped import untyped

# Modules that serve annotations alone.
TYPES = frozenset("typing typing_extensions collections.abc __future__ types".split())


def plain(text: str, name: str, asserts: bool = False) -> str:
    """The source of module `name` as a board gets it; with `asserts` they stay."""
    out = untyped(text)
    tree = ast.parse(out)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            named = {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            named = {node.module or ""}
        else:
            continue
        if named & TYPES:
            text = "%s.py, line %d: a board has no module %s; import it under `if TYPE_CHECKING`"
            raise UserError(text % (name, node.lineno, min(named & TYPES)))
    if asserts:
        return out
    return edited(out, [(place_of(node), "pass") for node in ast.walk(tree) if isinstance(node, ast.Assert)])
