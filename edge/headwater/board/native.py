# Loops that run per element in machine code, on boards whose MicroPython has a compiler for it
# (viper). Such a loop checks no limits and has 32 bits: the author of the source ensures both. Without
# a compiler, and on CPython, the result is None, and the same loop runs in Python.

import sys

from ..offboard.compat import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

BOARD = sys.implementation.name == "micropython"


# The function `run` of this source.
def native(text: str) -> "Callable[..., Any] | None":
    if BOARD:
        space: dict[str, Any] = {}
        try:
            exec("@micropython.viper\n" + text, space)
            return space["run"]
        except SyntaxError:
            pass  # no machine code on this board
    return None
