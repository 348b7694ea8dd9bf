"""Which modules of the package a board has, found by their imports: no list has to follow the code.

An image is flat: each package that a board loads costs it 224 bytes of heap, so `runtime/startup.py` is
`headwater.startup` there, and no two modules may share a name. Only the operator library keeps its folder,
from which its table loads modules.

A board imports what its program (`firmware/main.py`) names, what those modules import anywhere, and the
operator library. The core is the part of it that is always loaded: whatever `host`, `program` and the modules
that `host` loads on demand import at their top. A module that is unloaded again (`unload("folder.name")`),
or is imported inside functions only, stays a module of its own.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from .. import environment
from ..errors import UserError
from .edits import Place, edited, place_of
from .untyped import untyped

PACKAGE = "headwater"
EDGE = environment.ROOT / "edge" / PACKAGE
FIRMWARE = environment.ROOT / "firmware"
BOARD_TESTS = environment.ROOT / "tests" / "board"

HOST = "host"  # the module whose imports, with those of what it loads on demand, make the core
PROGRAM = "program"  # the program of a board: outside the core, but it imports from it
LIBRARY = "operators/__init__"  # its text _LIBRARY names the modules of the operator types
UNLOAD = "unload"  # the function that unloads modules, by their names

# Folders of modules that need CPython. The builder refuses to build an image that imports one of them.
OFF_BOARD = ("process", "offboard", "testing", "linux")


def tree() -> dict[str, str]:
    """Path inside the package's folder without .py -> source without types, of all of the package."""
    return dict(_tree(EDGE))


@functools.cache
def _tree(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).with_suffix("").as_posix(): untyped(path.read_text())
        for path in sorted(folder.rglob("*.py"))
    }


def texts() -> dict[str, str]:
    """Name inside an image -> source without types, importing by such names, of all of the package."""
    return dict(_texts(EDGE))


@functools.cache
def _texts(folder: Path) -> dict[str, str]:
    whole = _tree(folder)
    return {name: flattened(whole[path], path) for name, path in _paths().items()}


@functools.cache
def _paths() -> dict[str, str]:
    """Name inside an image -> path inside the package's folder, without .py."""
    found: dict[str, str] = {}
    for file in sorted(EDGE.rglob("*.py")):
        path = file.relative_to(EDGE).with_suffix("").as_posix()
        name = flat(path)
        if name in found:
            text = "%s.py and %s.py would have one name in an image, which is flat: rename one of them"
            raise UserError(text % (found[name], path))
        found[name] = path
    return found


def place(name: str) -> str:
    """The path inside the package's folder, without .py, of a module with this name in an image."""
    return _paths().get(name, name)


def flat(path: str) -> str:
    """The name inside an image of a module at this path inside the package's folder."""
    folder, _, name = path.rpartition("/")
    if folder == LIBRARY.rpartition("/")[0]:
        return path
    return folder if folder and name == "__init__" else name


def flattened(text: str, path: str = "") -> str:
    """A module with its imports of the package, and the names that it unloads, as an image has them; no line
    moves. `path`: inside the package's folder; "" is a module beside the package."""
    try:
        module = ast.parse(text)
    except SyntaxError:
        return text  # the compiler reports it
    edits: list[tuple[Place, str]] = []
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom):
            new = _flat_import(node, path)
            if new is not None:
                edits.append((place_of(node), new))
        elif isinstance(node, ast.Call) and _called(node) == UNLOAD:
            for each in node.args:
                if isinstance(each, ast.Constant) and "." in str(each.value):
                    edits.append((place_of(each), '"%s"' % str(each.value).rpartition(".")[2]))
    return edited(text, edits)


def _flat_import(node: ast.ImportFrom, path: str) -> str | None:
    """An import of the package by the names in an image; None: it stays as it is."""
    package = base(path, node)
    known = set(_paths().values())
    folders = {each.rpartition("/")[0] for each in known} - {""}
    if package is None or package not in known | folders | {""}:
        return None
    wanted: dict[str, list[str]] = {}
    for alias in node.names:
        where = "" if package in folders and joined(package, alias.name) in known else flat(package)
        if package == LIBRARY.rpartition("/")[0]:
            where = package
        name = alias.name if alias.asname is None else "%s as %s" % (alias.name, alias.asname)
        wanted.setdefault(where, []).append(name)
    if path and list(wanted) == [base(flat(path), node)]:
        return None
    root = "." * (flat(path).count("/") + 1) if path else PACKAGE
    parts = []
    for where, names in wanted.items():
        dotted = where.replace("/", ".")
        inside = root + dotted if path or not dotted else root + "." + dotted
        parts.append("from %s import %s" % (inside, ", ".join(names)))
    return "; ".join(parts)


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
    """The modules of the operator types, as the library names them."""
    for node in ast.parse(modules[LIBRARY]).body:
        if isinstance(node, ast.Assign) and [getattr(t, "id", "") for t in node.targets] == ["_LIBRARY"]:
            folder = LIBRARY.rpartition("/")[0]
            families = ast.literal_eval(node.value).split("; ")
            return {LIBRARY, *(joined(folder, each.split()[0]) for each in families)}
    raise UserError("%s.py has no _LIBRARY: the image builder finds the operator types there" % LIBRARY)


def of_board(modules: Mapping[str, str]) -> set[str]:
    """The modules of a board."""
    program = (FIRMWARE / "main.py").read_text()
    found = closure(imported("", flattened(program), modules) | library(modules), modules)
    off_board = {name for name in modules if place(name).partition("/")[0] in OFF_BOARD}
    for name in sorted(found & off_board):
        users = [n for n in sorted(found - off_board) if name in imported(n, modules[n], modules)]
        if users:
            raise UserError("%s needs CPython, and a board imports it: from %s" % (name, ", ".join(users)))
    return found


def of_tests(modules: Mapping[str, str]) -> set[str]:
    """The modules of a board and what the tests under MicroPython import beside them."""
    roots = of_board(modules)
    for path in sorted(BOARD_TESTS.glob("*.py")):
        roots |= imported("", flattened(path.read_text()), modules)
    return closure(roots, modules)


def core(modules: Mapping[str, str]) -> set[str]:
    """The modules of a board that are always loaded, of these."""
    gone = set(_unloaded(modules))
    if not {HOST, PROGRAM, LIBRARY} <= set(modules) or not gone:
        raise UserError(
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
                if _called(node) == UNLOAD:
                    yield from (str(a.value) for a in node.args if isinstance(a, ast.Constant))


def _called(node: ast.Call) -> str:
    """The name of the function that is called."""
    return str(getattr(node.func, "id", "") or getattr(node.func, "attr", ""))


def loading_order(modules: Mapping[str, str], first: Collection[str]) -> list[str]:
    """Modules outside the core, those that more boards load before the others."""
    often = closure({PROGRAM}, modules) - library(modules)
    rest = [name for name in sorted(modules) if name not in first]
    return sorted(rest, key=lambda name: (name != PROGRAM, name not in often, name != LIBRARY))
