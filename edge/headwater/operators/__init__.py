# The library of operator types, one family a module. A board imports only what its plan needs:
# `find` loads the module of a kind when it is first asked for.

from ..offboard.compat import TYPE_CHECKING
from ..runtime.operator import Operator, OperatorError

if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T", bound=Operator)

# Each module, and its kinds. One text: a table would have a board keep the name of each kind in RAM.
_LIBRARY = (
    "pointwise Affine Magnitude Difference Decimate DeadBand; expression Where Map Route; fir Fir; "
    "smooth ExpAverage Median Average; window Tumbling Sliding; join SumJoin Attenuate Union Hold; "
    "otherwise Otherwise; event Rate Threshold Debounce Counter; qrs Qrs; heart HeartRate Variability; "
    "health HealthAnalyzer"
)
_own: dict[str, type[Operator]] = {}


# The class of a kind. Raises OperatorError if there is none.
def find(kind: str) -> type[Operator]:
    cls = _own.get(kind)
    if cls is None:
        name = _module(kind)
        if not name:
            raise OperatorError(
                "unknown operator type '%s': not in the library, and no class was registered for it" % kind
            )
        module = __import__(__name__ + "." + name, None, None, (kind,))
        cls = getattr(module, kind)
    return cls


# The module of a kind; nothing if the library has none.
def _module(kind: str) -> str:
    for family in _LIBRARY.split("; "):
        words = family.split(" ")
        if kind in words[1:]:
            return words[0]
    return ""


# The types of the library.
def kinds() -> "list[str]":
    return [kind for family in _LIBRARY.split("; ") for kind in family.split(" ")[1:]]


# Make a type of the author's own known under the name of its class; returns it, so that it can
# be written above a class as @register.
def register(cls: "type[T]") -> "type[T]":
    kind = cls.__name__
    if not (isinstance(cls, type) and issubclass(cls, Operator)):
        raise OperatorError(
            "register(%s): give a class derived from headwater.runtime.operator.Operator" % kind
        )
    if _module(kind) or _own.get(kind, cls) is not cls:
        raise OperatorError("operator type '%s' exists already: choose another name" % kind)
    _own[kind] = cls
    return cls
