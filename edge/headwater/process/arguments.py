"""What an author may write for an operator's parameters, made into what the plan holds. Host side.

    Where("rate > limit", limit=120)          Map("mag:u16", mag="max(x, -x)")    Map(d="x - y")
    Route("rate > 120", "rate > 90")          Average(seconds=10)                 Counter(hours=1)
    HealthAnalyzer(rate=(40, 180), effort=(0, 900), need="all")

Everywhere: a parameter `us` may be given as ms, seconds, minutes or hours (`step_us` as
step_seconds, ..), and an expression as text.
"""

from collections.abc import Sequence
from typing import Any

from ..offboard.interfaces import Params
from ..runtime.operator import Operator, OperatorError, fields
from .expressions import parse

_UNITS_US = {"ms": 1000, "seconds": 1000000, "minutes": 60000000, "hours": 3600000000}
NEED = {"any": 1, "all": 0}


def arguments(cls: type[Operator], args: Sequence[Any], given: Params) -> Params:
    """Parameters by position and by name -> dict parameter -> value, expressions as trees. The
    check reports unknown, missing or unfit ones. Raises OperatorError."""
    kind = cls.__name__
    given = dict(given)
    if kind in _OWN:
        return times(cls, _OWN[kind](cls, list(args), given))
    declared = fields(cls.PARAMS)
    if len(args) > len(declared):
        raise OperatorError(
            "%s takes at most %d parameters by position, not %d" % (kind, len(declared), len(args))
        )
    for (name, _, _, _), value in zip(declared, args):
        if name in given:
            raise OperatorError("parameter '%s' of %s is given twice" % (name, kind))
        given[name] = value
    for name, type_, _, _ in declared:
        if type_ == "expr" and isinstance(given.get(name), str):
            given[name] = parse(given[name])
    return times(cls, given)


def other_units(name: str) -> dict[str, int]:
    """The names under which a parameter `us` may be given too, each with its unit in microseconds."""
    if name != "us" and not name.endswith("_us"):
        return {}
    return {name[:-2] + unit: us for unit, us in _UNITS_US.items()}


def times(cls: type[Operator], given: Params) -> Params:
    names = [name for name, _, _, _ in fields(cls.PARAMS)]
    for name in names:
        for other, us in other_units(name).items():
            if other not in given or other in names:
                continue
            if name in given:
                raise OperatorError(
                    "%s is given '%s' and '%s': one of them is enough" % (cls.__name__, name, other)
                )
            value = given.pop(other)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise OperatorError("'%s' of %s is %r, not a number" % (other, cls.__name__, value))
            given[name] = int(round(value * us))
    return given


def _values(kind: str, given: Params, declared: Sequence[str]) -> None:
    """Take the author's own parameters out of `given`: names and values for the plan."""
    own = [name for name in given if name not in declared]
    for name in own:
        if type(given[name]) is not int:
            raise OperatorError("parameter '%s' of %s is %r, not an integer" % (name, kind, given[name]))
    values = [given.pop(name) for name in own]
    given.setdefault("names", " ".join(own))
    given.setdefault("values", values)


def _where(cls: type[Operator], args: Sequence[Any], given: Params) -> Params:
    if args:
        if len(args) > 1 or "test" in given:
            raise OperatorError("Where takes one expression, like Where('rate > 120')")
        given["test"] = args[0]
    if "test" not in given:
        raise OperatorError("Where has no expression: write one, like Where('rate > 120')")
    if isinstance(given["test"], str):
        given["test"] = parse(given["test"])
    _values("Where", given, ("test", "names", "values"))
    return given


def _route(cls: type[Operator], args: Sequence[Any], given: Params) -> Params:
    if args:
        given["tests"] = ["list"] + [parse(text) for text in args]
    if "tests" not in given:
        raise OperatorError("Route has no expression: write some, like Route('rate > 120', 'rate > 90')")
    _values("Route", given, ("tests", "names", "values"))
    return given


def _map(cls: type[Operator], args: Sequence[Any], given: Params) -> Params:
    declared = ("out", "exprs", "names", "values", "wrap")
    if len(args) > 1:
        raise OperatorError(
            "Map takes one text by position, the new fields and their types, like 'mag:u16 d:i32'"
        )
    if args:
        given["out"] = args[0]
    if "exprs" not in given:
        named = {
            name: given.pop(name)
            for name in list(given)
            if isinstance(given[name], str) and name not in declared
        }
        if not named:
            raise OperatorError("Map has no expression: write one, like Map(mag='max(x, -x)')")
        order = list(named)
        if "out" in given:
            if not isinstance(given["out"], str):
                raise OperatorError(
                    "the fields of Map are %r, not a text like 'mag:u16 d:i32'" % (given["out"],)
                )
            order = [part.partition(":")[0] for part in given["out"].split()]
            if sorted(order) != sorted(named):
                raise OperatorError(
                    "Map declares the fields %s and is given expressions for %s: they must be the same"
                    % (", ".join(order) or "(none)", ", ".join(named))
                )
        else:
            given["out"] = " ".join([name + ":i32" for name in order])
        given["exprs"] = ["list"] + [parse(named[name]) for name in order]
    _values("Map", given, declared)
    return given


def _health(cls: type[Operator], args: Sequence[Any], given: Params) -> Params:
    if args:
        raise OperatorError(
            "HealthAnalyzer takes its limits by name, in the order of its inputs, like rate=(40, 180)"
        )
    if "limits" not in given:
        names = [name for name in given if name not in ("names", "need")]
        limits: list[Any] = []
        for name in names:
            pair = given.pop(name)
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise OperatorError(
                    "limits of '%s' are %r: give (smallest, largest), like (40, 180)" % (name, pair)
                )
            limits += pair
        given["names"] = " ".join(names)
        given["limits"] = limits
    if isinstance(given.get("need"), str):
        if given["need"] not in NEED:
            raise OperatorError("need is '%s': give 'any', 'all', or how many inputs" % given["need"])
        given["need"] = NEED[given["need"]]
    return given


_OWN = {"Where": _where, "Route": _route, "Map": _map, "HealthAnalyzer": _health}
