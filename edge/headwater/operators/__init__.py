# The library of operator types, one family a module. A board imports only what its plan needs:
# `find` loads the module of a kind when it is first asked for.

from ..offboard.compat import TYPE_CHECKING
from ..runtime.operator import Operator, OperatorError

if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T", bound=Operator)

_MODULES = {
    "Affine": "pointwise",
    "Magnitude": "pointwise",
    "Difference": "pointwise",
    "Decimate": "pointwise",
    "DeadBand": "pointwise",
    "Where": "expression",
    "Map": "expression",
    "Route": "expression",
    "Fir": "fir",
    "ExpAverage": "smooth",
    "Median": "smooth",
    "Average": "smooth",
    "Tumbling": "window",
    "Sliding": "window",
    "Rate": "event",
    "SumJoin": "join",
    "Attenuate": "join",
    "Union": "join",
    "Hold": "join",
    "Otherwise": "otherwise",
    "Threshold": "event",
    "Debounce": "event",
    "Counter": "event",
    "Qrs": "qrs",
    "HeartRate": "heart",
    "Variability": "heart",
    "HealthAnalyzer": "health",
}
_own: dict[str, type[Operator]] = {}


# The class of a kind. Raises OperatorError if there is none.
def find(kind: str) -> type[Operator]:
    cls = _own.get(kind)
    if cls is None:
        if kind not in _MODULES:
            raise OperatorError(
                "unknown operator type '%s': not in the library, and no class was registered for it" % kind
            )
        module = __import__(__name__ + "." + _MODULES[kind], None, None, (kind,))
        cls = getattr(module, kind)
    return cls


# The types of the library.
def kinds() -> "list[str]":
    return list(_MODULES)


# Make a type of the author's own known under the name of its class; returns it, so that it can
# be written above a class as @register.
def register(cls: "type[T]") -> "type[T]":
    kind = cls.__name__
    if not (isinstance(cls, type) and issubclass(cls, Operator)):
        raise OperatorError(
            "register(%s): give a class derived from headwater.runtime.operator.Operator" % kind
        )
    if kind in _MODULES or _own.get(kind, cls) is not cls:
        raise OperatorError("operator type '%s' exists already: choose another name" % kind)
    _own[kind] = cls
    return cls
