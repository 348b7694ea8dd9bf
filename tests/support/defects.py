"""Code with one rule broken: a piece in the source of a method or function is replaced for a while.

Where that piece is gone the test says so: the rule stands elsewhere now, and the defect must follow it.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

Change = tuple[Any, str, str, str]  # class or module, method, what stands there, what the defect puts there


@contextmanager
def seeded(changes: list[Change]) -> Iterator[None]:
    """The core with a defect."""
    kept = []
    sources: dict[tuple[Any, str], str] = {}
    try:
        for cls, method, old, new in changes:
            was = cls.__dict__[method]
            source = sources.get((cls, method)) or textwrap.dedent(inspect.getsource(was))
            where = "%s.%s" % (cls.__name__, method)
            assert source.count(old) == 1, "%s has %d times %r" % (where, source.count(old), old)
            sources[cls, method] = source = source.replace(old, new)
            space: dict[str, Any] = {}
            exec(compile(source, where + " with a defect", "exec"), was.__globals__, space)
            # In the function itself: tables of handlers hold it too.
            kept.append((was, was.__code__))
            was.__code__ = space[method].__code__
        yield
    finally:
        for was, code in reversed(kept):
            was.__code__ = code


def first_error(history: Any) -> str:
    """The first error of a simulated history, or nothing. What the core asserts of itself counts too."""
    try:
        errors: list[str] = history.run().errors
    except (ArithmeticError, AssertionError, LookupError, ValueError) as error:
        return "%s: %s" % (type(error).__name__, error)
    return errors[0] if errors else ""
