"""The structure of the runtime's sources: which module knows which."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from headwater.protocol import frames
from headwater.runtime import (
    checkpoint_transfer,
    decisions,
    giving_up,
    incoming,
    losses,
    moving,
    receiver,
    relocation,
    signals,
    taking,
    watching,
    words,
)
from headwater.runtime.exchange import Exchange
from headwater_tools import environment
from headwater_tools.image import sources
from headwater_tools.image.untyped import untyped

EDGE = environment.ROOT / "edge" / "headwater"

# A module and the part of it that is loaded for a moment only, and that raises the exceptions or uses the
# constants of the first. In every other place an import goes one way.
HALVES = [
    ["board/connecting", "board/mqtt"],
    ["data/msgpack", "data/msgpack_reader"],
    ["plan/model", "plan/reader"],
    ["process/builder", "process/check", "process/feasibility", "process/problems", "process/rules"],
    ["storage/log", "storage/mounting"],
]


def imports(root: Path) -> dict[str, set[str]]:
    """Module -> the modules of this folder that it imports, at its top or inside its functions."""
    modules = {path.relative_to(root).with_suffix("").as_posix(): path for path in root.rglob("*.py")}
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        found = graph.setdefault(name, set())
        package = name.split("/")[:-1]
        for node in ast.walk(ast.parse(untyped(path.read_text()))):
            if not isinstance(node, ast.ImportFrom) or not node.level:
                continue
            base = package[: len(package) - node.level + 1] + (node.module.split(".") if node.module else [])
            for alias in node.names:
                ways = ("/".join([*base, alias.name]), "/".join([*base, alias.name, "__init__"]))
                ways += ("/".join(base), "/".join([*base, "__init__"]))
                found |= set([way for way in ways if way in modules and way != name][:1])
    return graph


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The sets of modules that import each other, directly or by way of others."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for other in graph[waiting.pop()] - seen:
                seen.add(other)
                waiting.append(other)
        return seen

    reach = {name: reached(name) for name in graph}
    found = {tuple(sorted(b for b in reach[a] if a in reach[b])) for a in graph if a in reach[a]}
    return [list(cycle) for cycle in sorted(found)]


def test_a_cycle_is_found_wherever_its_imports_are(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def f():\n    from . import b\n")
    (tmp_path / "b.py").write_text("from .c import x\n")
    (tmp_path / "c.py").write_text("def g():\n    from .a import f\n")
    (tmp_path / "d.py").write_text("from . import a\n")
    assert cycles(imports(tmp_path)) == [["a", "b", "c"]]


def test_modules_of_the_edge_import_in_one_direction() -> None:
    assert cycles(imports(EDGE)) == HALVES


def test_the_state_of_an_operator_changes_in_one_module() -> None:
    wrong = []
    for path in sorted(EDGE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        for target in written(tree):
            if target.attr == "status" and (path.stem != "instance" or ast.unparse(target.value) != "self"):
                wrong.append("%s:%d" % (path.name, target.lineno))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr == "become" and path.stem != "lifecycle":
                wrong.append("%s:%d" % (path.name, node.lineno))
    assert wrong == []


# The writes of the runtime to fields of other modules' objects that are left, by module and field, and why
# each is no verb of the object that owns the field. No other may come.
_EACH_BATCH = "every batch of every operator passes here, and a call costs a board more than the write"
FOREIGN_WRITES = {
    **{("instance", "y." + field): _EACH_BATCH for field in ("ts", "unsync", "hole", "xi", "n", "dt")},
    ("instance", "e.cur.xi"): _EACH_BATCH,
    ("inputs", "self.cur.xi"): _EACH_BATCH,
    ("sessions", "writer.pos"): "a seal is the end of a frame, and no message: only Peer.seal adds it",
    ("program", "s.driver.lost"): "a driver is an author's own object, and has a field for this",
    ("tls", "made.verify_mode"): "an SSLContext of the interpreter has a field for this",
}


def foreign_writes(sources: Mapping[str, str]) -> list[str]:
    """Where a module writes a field, not of `self`, that no class of its own declares."""
    found = []
    for name, text in sources.items():
        tree = ast.parse(text)
        own = {
            target.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef) and node.name == "__init__"
            for target in written(node)
            if isinstance(target.value, ast.Name) and target.value.id == "self"
        }
        for target in written(tree):
            if ast.unparse(target.value) != "self" and target.attr not in own:
                found.append("%s:%d %s" % (name, target.lineno, ast.unparse(target)))
    return found


def written(tree: ast.AST) -> Iterator[ast.Attribute]:
    """The attributes that a piece of source assigns, alone or in a tuple."""
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            targets = [node.target]
        for target in targets:
            inner = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
            yield from (each for each in inner if isinstance(each, ast.Attribute))


def test_a_write_to_a_field_of_another_object_is_found() -> None:
    text = "class A:\n    def __init__(self):\n        self.a = 1\n\n\n"
    text += "def f(x):\n    x.a = 1\n    x.b, y = 2, 3\n    x.c += 1\n"
    assert foreign_writes({"m": text}) == ["m:8 x.b", "m:9 x.c"]


def test_modules_of_the_runtime_write_few_fields_of_other_objects() -> None:
    board = sources.of_board(sources.texts())
    found = foreign_writes(
        {name: (EDGE / (sources.place(name) + ".py")).read_text() for name in board if "/" not in name}
    )
    written = {(place.split(":")[0], place.split()[-1]) for place in found}
    assert written == set(FOREIGN_WRITES), found


def test_a_cache_is_forgotten_by_its_owner_alone() -> None:
    """The batch that a ring lends (Ring.lent), and the block that the scratch buffer holds (Scratch.kept)."""
    owners = {"_tail": "ring", "_kept": "scratch"}
    for path in sorted(EDGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                assert owners.get(node.attr, path.stem) == path.stem, "%s:%d" % (path.name, node.lineno)
                assert node.attr != "packed", "%s:%d" % (path.name, node.lineno)


def test_every_message_has_one_handler_and_somebody_who_may_say_it() -> None:
    site = {frames.PLAN, frames.PLANNED, frames.SWITCH, frames.STATUS}
    tables = [
        Exchange.HANDLERS,
        *(
            m.HANDLERS
            for m in (receiver, checkpoint_transfer, incoming, decisions, relocation, watching, words)
        ),
        *(m.HANDLERS for m in (giving_up, losses, moving, taking, signals)),
    ]
    kinds = [kind for table in tables for kind in table]
    assert sorted(kinds) == sorted(set(frames.MESSAGES) - site)
    assert len(Exchange.ROLES) == max(frames.MESSAGES) + 1
    nobody = {Exchange.ROLES[kind] for kind in site}
    assert len(nobody) == 1 and not nobody & {Exchange.ROLES[kind] for kind in kinds}
