# Where, Map, Route: operators made of expressions (see expr.py). Their loops are generated source.
#
# `names` and `values` are the author's own parameters of the expressions, like limit in
# "rate > limit"; each can be changed at run time by its name. Holes pass.

from ..board.native import BOARD, native
from ..data.alphabet import TYPES, Alphabet, AlphabetError, is_name
from ..offboard.compat import TYPE_CHECKING
from ..runtime.operator import Operator, OperatorError
from . import expr, fields

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ..data.batch import Batch
    from ..offboard.interfaces import Params, Port, Ports


class _Expression(Operator):
    CATEGORY = "selection"
    KIND: str
    names: str
    values: "Sequence[int]"
    code: "Callable[..., Any]"

    def configure(self, params: "Params", first: bool = False) -> None:
        if not first:
            names = self.names.split()
            values = params.get("values", self.values)
            rest = dict(params)
            if type(values) in (list, tuple) and len(values) == len(names):  # or they are refused
                values = list(values)
                for name in params:
                    if name in names:
                        values[names.index(name)] = rest.pop(name)
            rest["values"] = values
            params = rest
        Operator.configure(self, params, first)

    # The loop is made only if an expression, not just a value, has changed.
    def setup(self) -> None:
        key = [self.trees(), self.names]
        if len(self.values) != len(self.names.split()):
            raise OperatorError(
                "%s: %d names and %d values" % (self.KIND, len(self.names.split()), len(self.values))
            )
        if getattr(self, "key", None) != key:
            space: "dict[str, Any]" = {}
            exec(self.source(), space)
            self.code = space["run"]
            self.key = key

    if TYPE_CHECKING:

        def trees(self) -> object: ...

        def source(self) -> str: ...

    # name -> local, of all that an expression may name.
    @classmethod
    def locals(cls, a: Alphabet, names: str) -> dict[str, str]:
        found = {}
        for i in range(len(a.names)):
            if a.types[i][0] != "f":
                found[a.names[i]] = "v%d" % i
        k = 0
        for name in names.split():
            if name in found or not is_name(name):
                raise OperatorError("%s: parameter '%s' has the name of a field, or none" % (cls.KIND, name))
            found[name] = "p%d" % k
            k += 1
        return found

    # The head of every loop; `used` are the names that the expressions need.
    def head(self, used: "Sequence[str]", places: dict[str, str]) -> tuple[str, str]:
        text = "def run(self, x, n):\n p = self.values\n c = x.cols\n y = self.y\n o = y.cols\n at = y.at\n"
        load = ""
        for name in used:
            v = places[name]
            if v[0] == "v":
                text += " a%s = c[%s]\n" % (v[1:], v[1:])
                load += "  %s = a%s[i]\n" % (v, v[1:])
            else:
                text += " %s = p[%s]\n" % (v, v[1:])
        return text, load

    def run(self, x: "Batch", n: int) -> int:
        return self.code(self, x, n)


_CHOOSE = """def run(%s, at: ptr32, n: int) -> int:
 j = 0
 for i in range(n):
  v = %s
  if %s:
   at[j] = i
   j += 1
 return j
"""


class Where(_Expression):
    """Elements for which an expression is true: `Where("rate > limit", limit=120)`.

    Parameters: an expression, and parameters of your own by name

    At a hole: passes.
    """

    PARAMS = "test:expr names:text values:ints"
    KIND = "Where"
    test: "Any"

    @classmethod
    def ports(cls, ins: "Sequence[Port]", params: "Params") -> "Ports":
        a = fields.inputs("Where", ins, 1)[0]
        expr.source(params["test"], cls.locals(a, params.get("names", "")))
        return (a.text,), (a.text,)

    def trees(self) -> object:
        return self.test

    # In machine code where the test looks at one narrow field: first which elements, then their fields.
    def setup(self) -> None:
        self.choose: "Any" = None
        _Expression.setup(self)
        a = self.ins[0]
        used = expr.names_in(self.test)
        if BOARD and len(used) == 1 and used[0] in a.names and max([TYPES[t][1] for t in a.types]) < 8:
            self.field = a.names.index(used[0])
            column, value = fields.column(a.types[self.field], "a", True)
            if column and expr.narrow(self.test, {used[0]: fields.limits(a, self.field)}):
                text = expr.source(self.test, {used[0]: "v"})
                self.choose = native(_CHOOSE % (column, value, text))
                self.pick: "list[Any]" = [fields.picker(TYPES[t][1]) for t in a.types]

    def run(self, x: "Batch", n: int) -> int:
        if not self.choose:
            return self.code(self, x, n)
        y = self.y
        at = y.at
        j = self.choose(x.cols[self.field], at, n)
        for f in range(len(x.cols)):
            self.pick[f](x.cols[f], y.cols[f], at, j)
        return j

    def source(self) -> str:
        a = self.ins[0]
        places = self.locals(a, self.names)
        used = expr.names_in(self.test)
        test = expr.source(self.test, places)
        text, load = self.head(used, places)
        keep = ""
        for f in range(len(a.names)):
            value = "a%d[i]" % f
            if a.names[f] in used:
                value = "v%d" % f
            else:
                text += " a%d = c[%d]\n" % (f, f)
            text += " o%d = o[%d]\n" % (f, f)
            keep += "   o%d[j] = %s\n" % (f, value)
        return text + " j = 0\n for i in range(n):\n%s  if %s:\n%s   at[j] = i\n   j += 1\n return j\n" % (
            load,
            test,
            keep,
        )


class Map(_Expression):
    """New fields from expressions: `Map("mag:u16", mag="max(x, -x)")`. Values saturate at the
    limits of their field, or wrap with wrap=1.

    Parameters: expressions by field, parameters of your own by name, `wrap=0`

    At a hole: passes.
    """

    PARAMS = "out:text exprs:expr names:text values:ints wrap:u8=0"
    ONE_TO_ONE = True
    CATEGORY = "arithmetic"
    KIND = "Map"
    out: str
    exprs: "Any"
    wrap: int

    @classmethod
    def ports(cls, ins: "Sequence[Port]", params: "Params") -> "Ports":
        a = fields.inputs("Map", ins, 1)[0]
        try:
            out = Alphabet(params["out"])
        except AlphabetError as e:
            raise OperatorError("Map: " + str(e))
        fields.integers("Map", out)
        trees = expr.several(params["exprs"])
        if len(trees) != len(out.names):
            raise OperatorError("Map: %d fields and %d expressions" % (len(out.names), len(trees)))
        places = cls.locals(a, params.get("names", ""))
        for tree in trees:
            expr.source(tree, places)
        return (a.text,), (out.text,)

    def trees(self) -> object:
        return [self.exprs, self.wrap]

    def source(self) -> str:
        places = self.locals(self.ins[0], self.names)
        trees = expr.several(self.exprs)
        if len(trees) != len(self.y.cols):
            raise OperatorError("Map: %d fields and %d expressions" % (len(self.y.cols), len(trees)))
        used: list[str] = []
        for tree in trees:
            expr.names_in(tree, used)
        text, body = self.head(used, places)
        for f in range(len(trees)):
            width, low, high = TYPES[self.y.alphabet.types[f]][1:]
            text += " o%d = o[%d]\n" % (f, f)
            body += "  t = %s\n" % expr.source(trees[f], places)
            if self.wrap:
                body += "  o%d[i] = (t - %d & %d) + %d\n" % (f, low, (1 << 8 * width) - 1, low)
            else:
                body += "  o%d[i] = %d if t < %d else %d if t > %d else t\n" % (f, low, low, high, high)
        return text + " for i in range(n):\n%s return n\n" % body


class Route(_Expression):
    """Each element to the output port of the first expression that is true, else to the last port:
    k expressions, k + 1 ports.

    Parameters: expressions, and parameters of your own by name

    At a hole: passes on every output.
    """

    PARAMS = "tests:expr names:text values:ints"
    KIND = "Route"
    tests: "Any"

    @classmethod
    def ports(cls, ins: "Sequence[Port]", params: "Params") -> "Ports":
        a = fields.inputs("Route", ins, 1)[0]
        trees = expr.several(params["tests"])
        fields.within("Route", "number of expressions", len(trees), 1, 7)
        places = cls.locals(a, params.get("names", ""))
        for tree in trees:
            expr.source(tree, places)
        return (a.text,), (a.text,) * (len(trees) + 1)

    def trees(self) -> object:
        return self.tests

    def source(self) -> str:
        a = self.ins[0]
        places = self.locals(a, self.names)
        trees = expr.several(self.tests)
        if len(trees) + 1 != len(self.outs):
            raise OperatorError("Route: the number of expressions cannot change at run time")
        used: list[str] = []
        for tree in trees:
            expr.names_in(tree, used)
        text, body = self.head(used, places)
        text += " s = self.to\n"
        # First which way each element goes, then a port at a time, field by field.
        for k in range(len(trees)):
            body += "  %s %s:\n   s[i] = %d\n" % ("elif" if k else "if", expr.source(trees[k], places), k)
        return text + " for i in range(n):\n%s  else:\n   s[i] = %d\n" % (body, len(trees))

    def setup(self) -> None:
        _Expression.setup(self)
        self.to = bytearray(self.size)

    def run(self, x: "Batch", n: int) -> int:
        self.code(self, x, n)
        to = self.to
        for k in range(len(self.outs)):
            y = self.outs[k]
            at = y.at
            j = 0
            for i in range(n):
                if to[i] == k:
                    at[j] = i
                    j += 1
            y.n = j
            for f in range(len(y.cols)):
                o = y.cols[f]
                c = x.cols[f]
                for m in range(j):
                    o[m] = c[at[m]]
        return self.y.n
