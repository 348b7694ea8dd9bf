"""Links the modules that every board runs into one, `headwater.core`: this saves the RAM that borders cost.

On MicroPython each module has a table of the names it uses, a dictionary of its globals and what it
imports again; constants that others import are entries in both. Linked, a name is there once, a
constant is its value, and nothing else has changed: the same statements in the same order, on lines
that can be mapped back (`Linked.origin`). Names that collide get the name of their module before them. The
other modules of the image import from `core` what they imported from its parts; a board's own code finds
each part under its old name as well.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..errors import UserError
from . import names as short
from . import sources as graph
from .edits import Place, edited, place_of
from .sources import PACKAGE, joined

CORE = "core"
SMALL = 1 << 30
TEXTS = "_TEXTS"
# A name that is missing in a module's table costs a search through most of it before the interpreter looks
# further: names that the parts use for each batch are in the table of the core.
BUILT_IN = "bytearray bytes int len list max memoryview min tuple type".split()
TEXT_LEAST = 11  # characters; shorter ones are names on a board, and no objects
Key = tuple[str, str]  # (part, name); ("", "import ...") for what comes from outside the package


@dataclass
class Part:
    """A module: its source, what its global names are, and what it takes from parts of the core."""

    name: str
    text: str
    level: int  # packages above its own that lead to the package's root
    tree: ast.Module
    own: set[str] = field(default_factory=set)
    outside: dict[str, str] = field(default_factory=dict)  # name -> import statement without `as`
    taken: dict[str, Key] = field(default_factory=dict)  # name -> a part's name
    modules: dict[str, str] = field(default_factory=dict)  # name -> a part
    constants: dict[str, int] = field(default_factory=dict)


def _number(node: ast.expr, known: Mapping[str, int]) -> int | None:
    """The integer that an expression of integers is."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "const":
        return _number(node.args[0], known)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _number(node.operand, known)
        return None if value is None else -value
    if isinstance(node, ast.BinOp):
        a, b = _number(node.left, known), _number(node.right, known)
        if a is not None and b is not None:
            if isinstance(node.op, ast.LShift):
                return a << b
            if isinstance(node.op, ast.Sub):
                return a - b
    return None


def _constant(node: ast.stmt, known: Mapping[str, int]) -> dict[str, int]:
    """The constants that a statement names: NAME = 1, A, B = 0, 1."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return {}
    target, value = node.targets[0], node.value
    pairs: list[tuple[ast.expr, ast.expr]] = [(target, value)]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = list(zip(target.elts, value.elts, strict=True))
    out = {}
    for left, right in pairs:
        number = _number(right, known)
        if not isinstance(left, ast.Name) or not left.id.isupper() or number is None:
            return {}
        if not -SMALL <= number < SMALL:
            return {}  # an object on a board: once is enough
        out[left.id] = number
    return out


class _Globals(ast.NodeVisitor):
    """The nodes that name something global, as a scope sees it."""

    def __init__(self) -> None:
        self.scopes: list[set[str]] = []
        self.classes: list[bool] = []
        self.found: list[ast.Name | ast.Attribute | ast.FunctionDef | ast.ClassDef] = []
        self.hidden: set[tuple[str, str]] = set()  # module, name: used where something local has that name
        self.modules: set[str] = set()

    def _local(self, name: str) -> bool:
        inner = len(self.scopes) - 1
        for k, names in enumerate(self.scopes):
            if name in names and (not self.classes[k] or k == inner):
                return True
        return False

    def _inside(self, names: set[str], body: list[ast.AST], is_class: bool = False) -> None:
        self.scopes.append(names)
        self.classes.append(is_class)
        for node in body:
            self.visit(node)
        self.scopes.pop()
        self.classes.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if not self.scopes and isinstance(node, ast.FunctionDef):
            self.found.append(node)
        arguments = node.args
        for each in [*node.decorator_list, *arguments.defaults, *arguments.kw_defaults]:
            if each is not None:
                self.visit(each)
        names = {a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]}
        names |= {a.arg for a in (arguments.vararg, arguments.kwarg) if a}
        for inner in ast.walk(node):
            if isinstance(inner, (ast.Global, ast.Nonlocal)):
                raise UserError("line %d: the linker does not know `global`" % inner.lineno)
        self._inside(names | set(short.bound(node)), list(node.body))

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._inside({a.arg for a in node.args.args}, [node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if not self.scopes:
            self.found.append(node)
        for base in node.bases:
            self.visit(base)
        self._inside(set(short.bound(node)), list(node.body), True)

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp) -> None:
        names = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
        self._inside(names, [node.elt, *node.generators])

    visit_ListComp = visit_GeneratorExp = _comprehension

    def visit_Attribute(self, node: ast.Attribute) -> None:
        value = node.value
        if isinstance(value, ast.Name) and value.id in self.modules and not self._local(value.id):
            self.found.append(node)
            if any(node.attr in names for names in self.scopes):
                self.hidden.add((value.id, node.attr))
        else:
            self.visit(value)

    def visit_Name(self, node: ast.Name) -> None:
        if not self._local(node.id):
            self.found.append(node)


def _error_texts(tree: ast.Module) -> Iterator[ast.Constant]:
    """The texts of what is raised and counted."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Attribute) or node.func.attr != "_count":
                continue
        elif not isinstance(node, ast.Raise):
            continue
        for inner in ast.walk(node):
            if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                if len(inner.value) >= TEXT_LEAST and inner.value.isascii():
                    yield inner


def _globals(part: Part) -> _Globals:
    visitor = _Globals()
    visitor.modules = set(part.modules)
    visitor.visit(part.tree)
    return visitor


class Linked:
    """The core of these modules (path inside the package's folder without .py -> source)."""

    def __init__(
        self,
        sources: Mapping[str, str],
        core: Collection[str],
        kept: Iterable[str] = (),
        order: Iterable[str] = (),
    ) -> None:
        """`core`: the modules to link. `kept`: names by which something outside knows what is in these
        modules. `order`: the others, those first whose names matter most."""
        self.sources = sources
        self.core = frozenset(core)
        self.parts: dict[str, Part] = {}
        for name in sorted(self.core):
            self._take(name)
        self.called = self._named()
        self.starts: list[tuple[int, str]] = []
        self.text = self._core()
        self.long = {CORE: self.text}
        for name, text in sources.items():
            if name not in self.parts:
                self.long[name] = self._around(text, name)
        known = set(kept)
        for name in short.OPEN:
            known |= short.spoken(sources[name])
        first = [name for name in order if name in self.long]
        self.names = short.Names(self.long, [CORE, *first], known, self.parts)

    def files(self) -> dict[str, str]:
        """Path inside the package's folder -> source: the core, stubs for its parts, all other modules."""
        out = {name: self.names.inside(text, name) for name, text in self.long.items()}
        for part in self.parts.values():
            out[part.name] = self.names.outside(self._stub(part), part.name)
        return out

    def satellite(self, text: str, name: str = "") -> str:
        """A module that is not of the package, or was not when it was linked, taking from the core what
        it took from its parts."""
        if not name:
            text = graph.flattened(text)
        return self.names.outside(self._around(text, name), name)

    def origin(self, line: int) -> tuple[str, int]:
        """The module and line that a line of the core comes from."""
        start, name = max((s for s in self.starts if s[0] < line), default=(0, CORE))
        return name, line - start

    def told(self, text: str) -> str:
        """What a board printed, with the lines of the core and its short names mapped back."""

        def origin(match: re.Match[str]) -> str:
            name, line = match[1].replace(".", "/"), int(match[2])
            if name == CORE:
                name, line = self.origin(line)
            function = self._function(name, line) or match[3]
            return '"%s/%s.py", line %d, in %s' % (PACKAGE, graph.place(name), line, function)

        text = re.sub(r'"%s\.([\w.]+)", line (\d+), in ([\w<>]+)' % PACKAGE, origin, text)
        return self.names.told(text)

    def _function(self, name: str, line: int) -> str:
        """The function that contains a line of a module."""
        found = ""
        for node in ast.walk(ast.parse(self.sources.get(name, ""))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                assert node.end_lineno is not None
                if node.lineno <= line <= node.end_lineno:
                    found = node.name
        return found

    def _around(self, text: str, name: str = "") -> str:
        """A module outside the core, taking from the core what it took from its parts. The parts
        themselves, imported inside functions, it finds under the old names, at the price of a stub."""
        part = self._read(name, text)
        edits = self._renamed(part)
        for node in ast.walk(part.tree):
            if isinstance(node, ast.ImportFrom):
                new = self._import(part, node)
                if new is not None:
                    edits.append((place_of(node), new))
        return edited(text, edits)

    def _import(self, part: Part, node: ast.ImportFrom) -> str | None:
        """An import of a module outside the core, taking from the core what is there; None: as it was."""
        package = graph.base(part.name, node)
        if package is None:
            return None
        top = node in part.tree.body
        wanted, others, modules = [], [], False
        for alias in node.names:
            known = alias.asname or alias.name
            if joined(package, alias.name) in self.parts and top:
                modules = True
            elif package not in self.parts or joined(package, alias.name) in self.parts:
                others.append(_alias(alias.name, known))
            elif alias.name not in self.parts[package].constants:
                wanted.append(_alias(self._final(package, alias.name), known))
            elif not top:
                raise UserError("line %d: take %s at the top of the module" % (node.lineno, alias.name))
        if len(others) == len(node.names):
            return None
        root = "." * part.level if part.name else PACKAGE
        statements = []
        if wanted:
            inside = root + CORE if part.name else root + "." + CORE
            statements.append("from %s import %s" % (inside, ", ".join(wanted)))
        if modules:
            statements.append("from %s import %s" % (root, CORE))
        if others:
            where = "." * node.level + (node.module or "")
            statements.append("from %s import %s" % (where, ", ".join(others)))
        return "; ".join(statements) or "pass"

    # ---- reading

    def _take(self, name: str) -> None:
        """Add a part, after all that it needs to begin."""
        if name not in self.parts:
            part = self._read(name, self.sources[name])
            for other in [*(key[0] for key in part.taken.values()), *part.modules.values()]:
                self._take(other)
            self.parts[name] = part

    def _read(self, name: str, text: str) -> Part:
        tree = ast.parse(text)
        part = Part(name, text, name.count("/") + 1, tree)
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                part.own.add(node.name)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    part.outside[alias.asname or alias.name] = "import " + alias.name
            elif isinstance(node, ast.ImportFrom):
                self._read_import(part, node)
            else:
                part.constants.update(_constant(node, part.constants))
                part.own |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and _stores(n)}
        if name not in self.core:
            part.constants = {}
        return part

    def _read_import(self, part: Part, node: ast.ImportFrom) -> None:
        package = graph.base(part.name, node)
        for alias in node.names:
            known = alias.asname or alias.name
            if package is None:
                part.outside[known] = "from %s import %s" % (node.module, alias.name)
            elif joined(package, alias.name) in self.core:
                part.modules[known] = joined(package, alias.name)
            elif package in self.core:
                part.taken[known] = (package, alias.name)
            elif part.name in self.core:
                raise UserError(
                    "%s.py, line %d: the core imports %s, which is loaded on demand; import it inside the "
                    "function that needs it" % (part.name, node.lineno, joined(package, alias.name))
                )

    # ---- names

    def _key(self, part: Part, name: str) -> Key | None:
        if name in part.taken:
            return part.taken[name]
        if name in part.outside:
            return "", part.outside[name]
        return (part.name, name) if name in part.own else None

    def _named(self) -> dict[Key, str]:
        """A name in the core for every global of every part."""
        wanted: dict[str, list[Key]] = {}
        hidden = set()
        for part in self.parts.values():
            hidden |= _globals(part).hidden
            for name in [*part.outside, *sorted(part.own)]:
                key = self._key(part, name)
                if key and name not in part.constants and key not in wanted.setdefault(name, []):
                    wanted[name].append(key)
        out: dict[Key, str] = {}
        for name, keys in wanted.items():
            for key in keys:
                own = (key[0] or key[1].split()[1]).replace("/", "_")
                alone = len(keys) == 1 and key not in hidden
                out[key] = name if alone else "%s_%s" % (own, name.lstrip("_"))
        if len(set(out.values())) != len(out):
            raise UserError("two globals of the core have one name")
        return out

    def _final(self, part: str, name: str) -> str:
        key = self._key(self.parts[part], name)
        if key is None:
            raise UserError("%s has no %s" % (part, name))
        return self.called[key]

    def _renamed(self, part: Part) -> list[tuple[tuple[int, int, int, int], str]]:
        """Edits: constants become their values, names of the core what they are called there."""
        edits = []
        inside = part.name in self.parts
        for node in _globals(part).found:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                if inside and self._final(part.name, node.name) != node.name:
                    at = node.col_offset + (4 if isinstance(node, ast.FunctionDef) else 6)
                    place = (node.lineno, at, node.lineno, at + len(node.name))
                    edits.append((place, self._final(part.name, node.name)))
                continue
            if isinstance(node, ast.Attribute):
                assert isinstance(node.value, ast.Name)
                owner, name = part.modules[node.value.id], node.attr
                before = "" if inside else CORE + "."
            else:
                if node.id in part.modules:
                    text = "%s.py, line %d: write %s.NAME; linked, it is no module of its own"
                    raise UserError(text % (part.name, node.lineno, node.id))
                key = part.taken.get(node.id, (part.name, node.id))
                owner, name, before = key[0], key[1], ""
                if owner not in self.parts or (owner == part.name and node.id not in part.own):
                    final = self.called.get(("", part.outside.get(node.id, ""))) if inside else None
                    if final and final != node.id:
                        edits.append((place_of(node), final))
                    continue
            constants = self.parts[owner].constants
            if name in constants:
                edits.append((place_of(node), str(constants[name])))
            elif inside or before:
                final = before + self._final(owner, name)
                if final != ast.unparse(node):
                    edits.append((place_of(node), final))
        return edits

    # ---- writing

    def _core(self) -> str:
        outside: dict[str, str] = {}
        for part in self.parts.values():
            for name, statement in part.outside.items():
                final = self.called["", statement]
                outside[statement] = final if final != name else statement.split()[-1]
        lines = [
            statement if statement.split()[-1] == final else "%s as %s" % (statement, final)
            for statement, final in outside.items()
        ]
        lines.append("; ".join("%s = %s" % (name, name) for name in BUILT_IN))
        texts = ""
        for part in self.parts.values():
            edits = self._renamed(part)
            for text in _error_texts(part.tree):
                assert isinstance(text.value, str)
                if text.value not in texts:
                    texts += text.value
                at = texts.index(text.value)
                edits.append((place_of(text), "%s[%d:%d]" % (TEXTS, at, at + len(text.value))))
            edits += self._inner_imports(part)
            gone = []
            for node in part.tree.body:
                taken = isinstance(node, (ast.Import, ast.ImportFrom))
                if taken or _constant(node, part.constants):
                    gone.append((place_of(node), ""))
            cut = [place for place, _ in gone]
            edits = [e for e in edits if not any(p[0] <= e[0][0] <= p[2] for p in cut)] + gone
            self.starts.append((len(lines), part.name))
            lines += edited(part.text, edits).rstrip("\n").split("\n")
        lines.append("%s = %r" % (TEXTS, texts))
        return "\n".join(lines) + "\n"

    def _inner_imports(self, part: Part) -> Iterator[tuple[Place, str]]:
        """Imports inside functions of a part from a folder: the core lies at the root of the package."""
        for node in ast.walk(part.tree):
            if isinstance(node, ast.ImportFrom) and node not in part.tree.body and part.level > 1:
                package = graph.base(part.name, node)
                if package is not None:
                    names = ", ".join(_alias(a.name, a.asname or a.name) for a in node.names)
                    yield place_of(node), "from .%s import %s" % (package.replace("/", "."), names)

    def _stub(self, part: Part) -> str:
        names = [n for n in sorted(part.own) if n not in part.constants]
        wanted = [self._final(part.name, n) for n in names]
        both = [_alias(f, n) for f, n in zip(wanted, names, strict=True)]
        text = "from %s%s import %s\n" % ("." * part.level, CORE, ", ".join(both)) if both else ""
        return text + "".join("%s = %d\n" % item for item in part.constants.items())


def _alias(name: str, known: str) -> str:
    return name if name == known else "%s as %s" % (name, known)


def _stores(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)
