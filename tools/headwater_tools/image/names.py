"""Names that cost a board no RAM: our own names are replaced by words that MicroPython has in ROM.

Each name that MicroPython does not know takes about nine bytes of a board's heap, and the table of
names doubles when it is full; it never shrinks, so names of modules that were unloaded stay as well. So
in a board's image attributes and globals of the package get names that its sources do not use and that every
kind of board has in ROM: those in all files of `rom_names/`, so virtual and real boards run the same code.
Nothing else changes, and no line moves.

There are more names than words, so some share one. An attribute and a global may, and so may:
  - globals that no module has both of;
  - attributes, where no class has both, and no class and one that it inherits from. An attribute that no
    class of the package gives itself shares with none. Those of the core have words of their own as long as
    there are any;
  - the arguments of all functions, with anything but a global of their module.

These keep their names: what MicroPython knows anyway; what a text names (states and parameters of
operators, generated code, getattr); exceptions; what a foreign operator or driver may use: every
attribute of `operator`, `batch` and `alphabet`, and every name in `firmware/`.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from ..errors import UserError
from .edits import Place, edited
from .sources import PACKAGE, base, joined


def rom_names(port: str) -> frozenset[str]:
    """The names that a port of MicroPython has in ROM."""
    path = Path(__file__).with_name("rom_names") / (port + ".txt")
    return frozenset(line for line in path.read_text().splitlines() if line and not line.startswith("#"))


PORTS = ("unix", "esp32")
ROM = frozenset.intersection(*map(rom_names, PORTS))  # what may be given as a name
KNOWN = frozenset.union(*map(rom_names, PORTS))  # what an interpreter may know: never given another name
# Words of the language to the compiler, and attributes that an exception has.
SPECIAL = frozenset(
    "super print const locals globals property setter getter deleter staticmethod classmethod micropython "
    "native viper ptr ptr8 ptr16 ptr32 uint errno uctypes args value match type".split()
)
OPEN = ("operator", "batch", "alphabet")  # modules whose attributes any operator may use
Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_ANY = "*"  # the home of an attribute that no class of the package gives itself
WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")


def words_of(text: str, all_of_them: bool) -> set[str]:
    """What the texts of a module name: whole texts that are one word; words of generated code. Texts of
    errors name nothing."""
    out = set()
    waiting: list[ast.AST] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Raise, ast.Assert)):
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
            value = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            found = WORD.findall(value)
            if all_of_them or "\n" in value or value[:1] == " " or value in found:
                out.update(found)
    return out


def spoken(text: str) -> set[str]:
    """Attributes, methods, classes and what is imported: what a module may share with another one."""
    out = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute):
            out.add(node.attr)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            out.add(node.name)
        elif isinstance(node, ast.alias):
            out.update(node.name.split("."))
        elif isinstance(node, ast.keyword) and node.arg:
            out.add(node.arg)
        if isinstance(node, ast.ClassDef):
            out |= {t.id for b in node.body for t in _targets(b)}
    return out


def _targets(node: ast.stmt) -> Iterator[ast.Name]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from (n for n in ast.walk(target) if isinstance(n, ast.Name))


def bound(node: ast.AST) -> Iterator[str]:
    """Names that a module, a class or a function binds itself, not in its inner scopes."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield child.name
            continue
        if isinstance(child, (ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)):
            continue
        if isinstance(child, ast.Name) and not isinstance(child.ctx, ast.Load):
            yield child.id
        elif isinstance(child, ast.alias):
            yield (child.asname or child.name).partition(".")[0]
        elif isinstance(child, ast.ExceptHandler) and child.name:
            yield child.name
        yield from bound(child)


def _arguments(node: Scope) -> list[ast.arg]:
    a = node.args
    return [*a.posonlyargs, *a.args, *a.kwonlyargs, *(x for x in (a.vararg, a.kwarg) if x)]


class Roles(ast.NodeVisitor):
    """Where a module names attributes, globals and arguments."""

    def __init__(self, tree: ast.Module, name: str, modules: Collection[str]) -> None:
        """`name`: of the module, "" for one beside the package; `modules`: all of the package."""
        self.attributes: list[tuple[str, Place]] = []
        self.globals: list[tuple[str, Place]] = []
        self.of_modules: list[tuple[str, Place]] = []  # globals, by a module of the package
        self.arguments: list[tuple[int, str, Place]] = []  # number of the outermost function first
        self.imports: list[tuple[ast.ImportFrom, bool]] = []  # of the package; True: at the top
        self.keywords: set[str] = set()
        self.used: set[str] = set()
        self.top = set(bound(tree))
        self.functions = 0
        self.scopes: list[tuple[str, set[str]]] = []  # kind ("function", "class"), names
        self.given: list[set[str]] = []  # arguments of each function around
        self.modules: set[str] = set()  # names by which modules of the package are known
        for node in ast.walk(tree):
            package = base(name, node) if isinstance(node, ast.ImportFrom) else None
            if isinstance(node, ast.ImportFrom) and package is not None:
                self.modules |= {a.asname or a.name for a in node.names if joined(package, a.name) in modules}
        self.visit(tree)

    def _name(self, name: str, place: Place) -> None:
        self.used.add(name)
        inner = len(self.scopes) - 1
        for k in range(inner, -1, -1):
            kind, names = self.scopes[k]
            if name in names and (kind == "function" or k == inner):
                if kind == "class":
                    self.attributes.append((name, place))
                elif any(name in given for given in self.given):
                    self.arguments.append((self.functions, name, place))
                return
        self.globals.append((name, place))

    def _scope(self, node: Scope, names: set[str], body: Iterable[ast.AST]) -> None:
        outermost = not self.given
        self.functions += outermost
        given = _arguments(node)
        self.scopes.append(("function", names | {a.arg for a in given}))
        self.given.append({a.arg for a in given})
        for a in given:
            self._name(a.arg, (a.lineno, a.col_offset, a.lineno, a.col_offset + len(a.arg)))
        for each in body:
            self.visit(each)
        self.scopes.pop()
        self.given.pop()

    def visit_FunctionDef(self, node: Function) -> None:
        for each in [*node.decorator_list, *node.args.defaults, *node.args.kw_defaults]:
            if each is not None:
                self.visit(each)
        at = node.col_offset + (4 if isinstance(node, ast.FunctionDef) else 10)
        self._name(node.name, (node.lineno, at, node.lineno, at + len(node.name)))
        self._scope(node, set(bound(node)), node.body)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for each in node.args.defaults:
            self.visit(each)
        self._scope(node, set(), [node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for ancestor in node.bases:
            self.visit(ancestor)
        at = node.col_offset + 6
        self._name(node.name, (node.lineno, at, node.lineno, at + len(node.name)))
        self.scopes.append(("class", set(bound(node))))
        for each in node.body:
            self.visit(each)
        self.scopes.pop()

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp) -> None:
        names = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
        self.scopes.append(("function", names))
        self.given.append(set())
        self.generic_visit(node)
        self.scopes.pop()
        self.given.pop()

    visit_ListComp = visit_GeneratorExp = visit_SetComp = visit_DictComp = _comprehension

    def visit_Attribute(self, node: ast.Attribute) -> None:
        assert node.end_lineno is not None and node.end_col_offset is not None
        place = (node.end_lineno, node.end_col_offset - len(node.attr), node.end_lineno, node.end_col_offset)
        self.used.add(node.attr)
        if isinstance(node.value, ast.Name) and node.value.id in self.modules:
            self.of_modules.append((node.attr, place))
        else:
            self.attributes.append((node.attr, place))
        self.visit(node.value)

    def visit_Name(self, node: ast.Name) -> None:
        self._name(node.id, (node.lineno, node.col_offset, node.lineno, node.col_offset + len(node.id)))

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg:
            self.keywords.add(node.arg)
            self.used.add(node.arg)
        self.visit(node.value)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.used.add(node.name)
        self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self.used |= {alias.name, alias.asname or alias.name}
        if ours(node):
            self.imports.append((node, not self.scopes))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.used |= {*alias.name.split("."), alias.asname or ""}


def ours(node: ast.ImportFrom) -> bool:
    return node.level > 0 or (node.module or "").split(".")[0] == PACKAGE


class Names:
    """Short names for the modules of a package: path -> source; `first` are those that matter most;
    `kept` are names that are known elsewhere; `stubs` are modules that only give old names."""

    def __init__(
        self, texts: Mapping[str, str], first: Iterable[str], kept: set[str], stubs: Iterable[str] = ()
    ) -> None:
        self.paths = {*texts, *stubs}
        self.paths |= {path.removesuffix("/__init__") for path in self.paths}
        self.modules = {part for name in texts for part in name.split("/")}
        order = [*first, *sorted(set(texts) - set(first))]
        roles = {name: Roles(ast.parse(texts[name]), name, self.paths) for name in order}
        kept = kept | KNOWN | self.modules
        used: set[str] = set(SPECIAL)
        keywords: set[str] = set()
        for name in order:
            kept |= words_of(texts[name], name.startswith("operators/") or name == "expr")
            used |= roles[name].used | set(WORD.findall(texts[name]))
            keywords |= roles[name].keywords
            kept |= _exceptions(texts[name]) | _outside(texts[name])
        self.keywords = keywords
        # Function, or class -> its arguments that have other names in the image.
        self.by_place: dict[str, set[str]] = {}
        for name in order:
            for function, arguments in _signatures(ast.parse(texts[name])):
                self.by_place.setdefault(function, set()).update(arguments - keywords - KNOWN)
        plain = (n for n in ROM - used if not keyword.iskeyword(n) and not n.startswith("__"))
        no_type = (n for n in plain if not n.endswith(("Error", "Type", "Exit", "Exception", "Interrupt")))
        # Rare words first, which few foreign operators use as names.
        pool = sorted(no_type, key=lambda n: (n.islower(), n))
        attributes: dict[str, None] = {}
        spaces: dict[str, set[str]] = {}  # global -> modules that have it
        for name in order:
            attributes |= dict.fromkeys(n for n, _ in roles[name].attributes if n not in kept)
            for n in [n for n, _ in roles[name].globals if n in roles[name].top and n not in kept]:
                spaces.setdefault(n, set())
        for name in order:
            for n in roles[name].top.union(n for n, _ in roles[name].globals) & set(spaces):
                spaces[n].add(name)
        self.families, homes = _homes(ast.parse(texts[name]) for name in order)
        for n in self.families.keys() & spaces.keys():
            spaces[n].add("class")  # a message names the class of an object
        self.homes = {n: homes.get(n, {_ANY}) for n in attributes}
        self._give(pool, spaces)
        self.kept = kept
        self.for_arguments = pool[::-1]

    def _give(self, pool: Collection[str], spaces: Mapping[str, set[str]]) -> None:
        """Give attributes and globals words of the pool, as long as there are any."""
        self.attributes: dict[str, str] = {}
        self.globals: dict[str, str] = {}
        of_attributes: dict[str, set[str]] = {}  # word -> classes whose attribute it is
        of_globals: dict[str, set[str]] = {}  # ... -> modules whose global it is

        def free(word: str, n: str) -> bool:
            if of_globals.get(word, set()) & spaces.get(n, set()):
                return False
            homes, had = self.homes.get(n, set()), of_attributes.get(word, set())
            return not homes or not had or not (homes & had or _ANY in homes | had)

        both = [n for n in self.homes if n in spaces]
        alone = [n for n in self.homes if n not in spaces]
        alone.sort(key=lambda n: _ANY not in self.homes[n])
        for n in [*both, *alone, *(n for n in spaces if n not in self.homes)]:
            unused = (word for word in pool if n in self.homes and word not in of_attributes)
            for word in [*unused, *pool]:
                if free(word, n):
                    break
            else:
                continue
            if n in self.homes:
                self.attributes[n] = word
                of_attributes.setdefault(word, set()).update(self.homes[n])
            if n in spaces:
                self.globals[n] = word
                of_globals.setdefault(word, set()).update(spaces[n])

    def inside(self, text: str, name: str) -> str:
        """Module `name` of the package."""
        roles = Roles(ast.parse(text), name, self.paths)
        edits = [(place, self.attributes[n]) for n, place in roles.attributes if n in self.attributes]
        for n, place in roles.globals + roles.of_modules:
            if n in self.globals:
                edits.append((place, self.globals[n]))
        called: dict[tuple[int, str], str] = {}
        count: dict[int, int] = {}
        taken = {self.globals[n] for n in roles.top.union(n for n, _ in roles.globals) if n in self.globals}
        for_arguments = [word for word in self.for_arguments if word not in taken]
        for function, n, place in roles.arguments:
            if n in self.keywords or n in KNOWN:
                continue
            if (function, n) not in called:
                k = count.get(function, 0)
                if k == len(for_arguments):
                    continue
                count[function] = k + 1
                called[function, n] = for_arguments[k]
            edits.append((place, called[function, n]))
        for node, top in roles.imports:
            if node.module:
                names = [a for a in node.names if (a.asname or a.name) not in roles.modules]
                edits += [(_place(a), self._alias(a, top)) for a in names]
        return edited(text, edits)

    def outside(self, text: str, name: str = "") -> str:
        """A module that uses the package: its own globals and arguments keep their names. `name`: its path
        inside the package, if it has one."""
        tree = ast.parse(text)
        roles = Roles(tree, name, self.paths)
        self._refuse_lost_names(tree)
        edits = [(place, self.attributes[n]) for n, place in roles.attributes if n in self.attributes]
        edits += [(place, self.globals[n]) for n, place in roles.of_modules if n in self.globals]
        for node, _ in roles.imports:
            if node.module and node.module != PACKAGE:
                own = [a for a in node.names if (a.asname or a.name) not in roles.modules]
                edits += [(_place(a), self._alias(a, False)) for a in own]
        return edited(text, edits)

    def _refuse_lost_names(self, tree: ast.Module) -> None:
        """Refuse what would name something else in the image, or nothing, and fail only when it runs."""
        taken = set(self.attributes.values())
        own = {function for function, _ in _signatures(tree)}
        imported = {
            a.asname: a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and _made(node) & taken:
                mine = ", ".join(sorted(_made(node) & taken))
                raise UserError("class %s: call %s something else" % (node.name, mine))
            if isinstance(node, ast.ClassDef):
                self._refuse_shared(node, imported)
            if not isinstance(node, ast.Call):
                continue
            called = getattr(node.func, "id", "") or getattr(node.func, "attr", "")
            if called in ("getattr", "hasattr", "setattr") and isinstance(node.args[1], ast.Constant):
                if node.args[1].value in self.attributes:
                    raise UserError(
                        "line %d: the image of a board has another name for '%s', which a text cannot "
                        "name; write it as an attribute" % (node.lineno, node.args[1].value)
                    )
            function = imported.get(called, called)
            for given in node.keywords:
                if given.arg in self.by_place.get(function, ()) and function not in own:
                    raise UserError(
                        "line %d: the image of a board has another name for the argument '%s' of %s; "
                        "give it by its place" % (node.lineno, given.arg, function)
                    )

    def _refuse_shared(self, node: ast.ClassDef, imported: Mapping[str | None, str]) -> None:
        """Refuse a class two of whose attributes would have one name in the image."""
        bases = {getattr(b, "id", "") or getattr(b, "attr", "") for b in node.bases}
        families = {self.families[imported.get(b, b)] for b in bases if imported.get(b, b) in self.families}
        made = _made(node)
        inherited = {n for n in self.homes if self.homes[n] & families}
        called: dict[str, str] = {}
        for n in sorted(n for n in made | inherited if n in self.attributes):
            other = called.setdefault(self.attributes[n], n)
            if other != n and not (n in inherited and other in inherited):
                text = (
                    "class %s: the image of a board has one name for '%s' and '%s'; call one something else"
                )
                raise UserError(text % (node.name, other, n))

    def told(self, text: str) -> str:
        """A message of MicroPython about an object, a name or an attribute, with its real names."""
        classes = {n: short for n, short in self.globals.items() if n in self.families}
        long = {
            "attribute": _reversed(self.attributes),
            "name": _reversed(self.globals),
            "object": _reversed(classes),
        }

        def name(match: re.Match[str]) -> str:
            return "%s '%s'" % (match[1], long[match[1]].get(match[2], match[2]))

        def kind(match: re.Match[str]) -> str:
            return "'%s' object" % long["object"].get(match[1], match[1])

        return re.sub(r"'(\w+)' object", kind, re.sub(r"\b(attribute|name) '(\w+)'", name, text))

    def _alias(self, alias: ast.alias, top: bool) -> str:
        final = self.globals.get(alias.name, alias.name)
        known = alias.asname or alias.name
        if top:
            known = self.globals.get(known, known)
        return final if final == known else "%s as %s" % (final, known)


def _signatures(tree: ast.Module) -> Iterator[tuple[str, set[str]]]:
    """Each function, and each class by its __init__, with the names of its arguments."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, {a.arg for a in _arguments(node)}
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and inner.name == "__init__":
                    yield node.name, {a.arg for a in _arguments(inner)}


def _reversed(names: Mapping[str, str]) -> dict[str, str]:
    """Word -> the names that it stands for."""
    out: dict[str, str] = {}
    for n, word in names.items():
        out[word] = "%s or %s" % (out[word], n) if word in out else n
    return out


def _homes(trees: Iterable[ast.Module]) -> tuple[dict[str, str], dict[str, set[str]]]:
    """Class -> its family, which are all that inherit from each other; attribute -> families of the classes
    that give it themselves."""
    families: dict[str, str] = {}

    def family(name: str) -> str:
        while families.setdefault(name, name) != name:
            name = families[name]
        return name

    made: list[tuple[str, set[str]]] = []
    aliases: list[tuple[str, str]] = []
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.alias) and node.asname:
                aliases.append((node.name, node.asname))
            elif isinstance(node, ast.ClassDef):
                made.append((node.name, _made(node)))
                for ancestor in node.bases:
                    called = getattr(ancestor, "id", "") or getattr(ancestor, "attr", "")
                    families[family(node.name)] = family(called)
    for name, known in aliases:
        if name in families or known in families:
            families[family(name)] = family(known)
    homes: dict[str, set[str]] = {}
    for name, attributes in made:
        for n in attributes:
            homes.setdefault(n, set()).add(family(name))
    return {name: family(name) for name in list(families)}, homes


def _made(node: ast.ClassDef) -> set[str]:
    """Attributes that a class gives itself."""
    out = {n.name for n in node.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))}
    out |= {t.id for b in node.body for t in _targets(b)}
    for n in ast.walk(node):
        if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store):
            out.add(n.attr)
    return out


def _exceptions(text: str) -> set[str]:
    """Classes of exceptions: people read their names."""
    out = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            bases = {b.id for b in node.bases if isinstance(b, ast.Name)}
            if any(b.endswith(("Error", "Exception")) for b in bases):
                out.add(node.name)
    return out


def _outside(text: str) -> set[str]:
    """What comes from outside the package."""
    out = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and not ours(node)):
            for alias in node.names:
                out |= {*alias.name.split("."), alias.asname or alias.name}
    return out


def _place(node: ast.alias) -> Place:
    assert node.end_lineno is not None and node.end_col_offset is not None
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset
