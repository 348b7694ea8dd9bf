"""Changes to the text of a module that keep the number of every line."""

from __future__ import annotations

import ast
from collections.abc import Iterable

Place = tuple[int, int, int, int]  # line and column of the beginning, line and column of the end


def place_of(node: ast.expr | ast.stmt) -> Place:
    assert node.end_lineno is not None and node.end_col_offset is not None
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def edited(text: str, edits: Iterable[tuple[Place, str]]) -> str:
    """The text with each place replaced; every line keeps its number."""
    lines = text.split("\n")
    for (line, col, end, end_col), new in sorted(edits, reverse=True):
        first = lines[line - 1].encode()
        last = lines[end - 1].encode()
        lines[line - 1] = (first[:col] + new.encode() + last[end_col:]).decode()
        for k in range(line, end):
            lines[k] = ""
    return "\n".join(lines)
