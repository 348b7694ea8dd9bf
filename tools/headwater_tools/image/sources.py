"""Which modules of the package a board has, found by their imports: no list has to follow the code.

A board imports what its program (`firmware/main.py`) names, what those modules import anywhere, and the
operator library. The core is the part of it that is always loaded: whatever `host`, `node` and the modules
that `host` loads on demand import at their top. A module that is unloaded again (`let_go("name")`), or is
imported inside functions only, stays a module of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from .. import Trouble, house
from .untyped import untyped

PACKAGE = "headwater"
EDGE = house.ROOT / "edge" / PACKAGE
FIRMWARE = house.ROOT / "firmware"
BOARD_TESTS = house.ROOT / "tests" / "micropython"

HOST = "host"  # the module whose imports, with those of what it loads on demand, make the core
PROGRAM = "node"  # the program of a board: outside the core, but it imports from it
LIBRARY = "operators/__init__"  # its table _MODULES names the modules of the operator types
UNLOAD = "let_go"  # the function that unloads modules, by their names

# Modules that need CPython. The builder refuses a board that imports one of them.
CPYTHON_ONLY = frozenset("process check sizing sensible exprparse operators/arguments".split())


def texts() -> dict[str, str]:
    """Path inside the package's folder without .py -> source without types, of all of the package."""
    return {
        path.relative_to(EDGE).with_suffix("").as_posix(): untyped(path.read_text())
        for path in sorted(EDGE.rglob("*.py"))
    }


def base(name: str, node: ast.ImportFrom) -> str | None:
    """The module or package that `from X import ...` takes from, as a path inside the package; "" is the
    package itself. None: it is outside. `name`: the module that imports; "" is one beside the package."""
    dotted = node.module.split(".") if node.module else []
    if node.level == 0:
        return "/".join(dotted[1:]) if dotted and dotted[0] == PACKAGE else None
    folders = name.split("/")[:-1]
    up = node.level - 1
    if not name or up > len(folders):
        return None
    return "/".join([*folders[: len(folders) - up], *dotted])


def joined(package: str, name: str) -> str:
    return package + "/" + name if package else name


def imported(name: str, text: str, known: Collection[str], top: bool = False) -> set[str]:
    """The modules of the package that a module imports; with `top` only those imported as it is loaded."""
    tree = ast.parse(text)
    found = set()
    for node in tree.body if top else ast.walk(tree):
        if not isinstance(node, ast.ImportFrom):
            continue
        package = base(name, node)
        if package is not None:
            named = [package, *(joined(package, alias.name) for alias in node.names)]
            found |= {m for each in named for m in (each, joined(each, "__init__")) if m in known}
    return found


def closure(roots: Collection[str], modules: Mapping[str, str]) -> set[str]:
    """These modules and all that they import, at any time."""
    found: set[str] = set()
    waiting = sorted(roots)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += sorted(imported(name, modules[name], modules))
    return found


def library(modules: Mapping[str, str]) -> set[str]:
    """The modules of the operator types, as the library's table names them."""
    for node in ast.parse(modules[LIBRARY]).body:
        if isinstance(node, ast.Assign) and [getattr(t, "id", "") for t in node.targets] == ["_MODULES"]:
            folder = LIBRARY.rpartition("/")[0]
            return {LIBRARY, *(joined(folder, each) for each in ast.literal_eval(node.value).values())}
    raise Trouble("%s.py has no table _MODULES: the image builder finds the operator types there" % LIBRARY)


def of_board(modules: Mapping[str, str]) -> set[str]:
    """The modules of a board."""
    program = (FIRMWARE / "main.py").read_text()
    found = closure(imported("", program, modules) | library(modules), modules)
    for name in sorted(found & CPYTHON_ONLY):
        users = [n for n in sorted(found - CPYTHON_ONLY) if name in imported(n, modules[n], modules)]
        if users:
            raise Trouble("%s needs CPython, and a board imports it: from %s" % (name, ", ".join(users)))
    return found


def of_tests(modules: Mapping[str, str]) -> set[str]:
    """The modules of a board and what the tests under MicroPython import beside them."""
    roots = of_board(modules)
    for path in sorted(BOARD_TESTS.glob("*.py")):
        roots |= imported("", path.read_text(), modules)
    return closure(roots, modules)


def core(modules: Mapping[str, str]) -> set[str]:
    """The modules of a board that are always loaded, of these."""
    gone = set(_unloaded(modules))
    if not {HOST, PROGRAM, LIBRARY} <= set(modules) or not gone:
        raise Trouble(
            "the package has no module %s, %s or %s, or nothing calls %s: change the names in %s"
            % (HOST, PROGRAM, LIBRARY, UNLOAD, Path(__file__).name)
        )
    at_work = {name for name in closure({HOST}, modules) if name not in library(modules)}
    found = {HOST}
    for name in at_work | {PROGRAM}:
        found |= imported(name, modules[name], modules, top=True)
    return found - gone - library(modules) - {PROGRAM}


def _unloaded(modules: Mapping[str, str]) -> Iterator[str]:
    for text in modules.values():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call):
                called = getattr(node.func, "id", "") or getattr(node.func, "attr", "")
                if called == UNLOAD:
                    yield from (str(a.value) for a in node.args if isinstance(a, ast.Constant))


def loading_order(modules: Mapping[str, str], first: Collection[str]) -> list[str]:
    """Modules outside the core, those that more boards load before the others."""
    often = closure({PROGRAM}, modules) - library(modules)
    rest = [name for name in sorted(modules) if name not in first]
    return sorted(rest, key=lambda name: (name != PROGRAM, name not in often, name != LIBRARY))
