"""Values of parameters that are legal and yet make no sense in their place: for the stream that an operator
consumes, or for the buffers that were made for it. `hw check` warns about them, the gateway refuses a change
to them. A board never imports this module.
"""

from collections.abc import Mapping, Sequence

from .. import operators
from ..data.alphabet import TYPES, Alphabet
from ..offboard.interfaces import Params, Rates
from ..operators import fields
from ..plan.model import Plan
from .sizing import flow, sparing

# Types whose times tell how long they gather or wait, from one element to a later one.
_GATHER = ("Average", "Counter", "Debounce", "HeartRate", "Rate", "Sliding", "Tumbling")
_UNITS = ((3600000000, "h"), (60000000, "min"), (1000000, "s"), (1000, "ms"), (1, "us"))


def problems(kind: str, ins: Sequence[Alphabet | None], params: Params, most_hz: float | None) -> list[str]:
    """What makes no sense, as sentences. `params`: all of them; `most_hz`: most elements a second, None if
    unknown."""
    found = []
    ports = [a for a in ins if a is not None]  # these types have no port that may be disabled
    if kind == "Threshold":
        found += _threshold(ports[0], params)
    elif kind == "DeadBand":
        found += _dead_band(ports[0], params)
    elif kind == "HealthAnalyzer":
        found += _health(ports, params)
    if kind in _GATHER and most_hz:
        found += _times(params, 1000000 / most_hz)
    return found


def _range(kind: str, a: Alphabet, field: str, port: int = 0) -> tuple[str, int, int]:
    """(field with its type, smallest, largest) of the field that an operator looks at."""
    i = fields.index(kind, a, field, port)
    return (a.names[i] + ":" + a.types[i],) + TYPES[a.types[i]][2:4]


def _threshold(a: Alphabet, params: Params) -> list[str]:
    name, low, high = _range("Threshold", a, params.get("field", ""))
    which = "high"
    if params["high"] > high:
        why = "it would never switch on"
    elif params["high"] <= low:
        why = "it would switch on at once, whatever arrives"
    elif params["low"] < low:
        which, why = "low", "it would never switch off again"
    else:
        return []
    return ["%s is %d, and %s holds %d to %d: %s" % (which, params[which], name, low, high, why)]


def _dead_band(a: Alphabet, params: Params) -> list[str]:
    name, low, high = _range("DeadBand", a, params.get("field", ""))
    if params["width"] >= high - low:
        text = "width is %d, and %s holds %d to %d: after the first element it would let nothing through"
        return [text % (params["width"], name, low, high)]
    return []


def _health(ins: Sequence[Alphabet], params: Params) -> list[str]:
    found = []
    limits = params["limits"]
    for p, input_ in enumerate(params["names"].split()):
        a = ins[p]
        name, low, high = _range("HealthAnalyzer", a, input_ if input_ in a.names else "", p)
        smallest, largest = limits[2 * p : 2 * p + 2]
        text = "%s is %d to %d, and %s holds %d to %d: %s"
        if smallest <= low and largest >= high:
            why = "it would never be outside"
        elif smallest > high or largest < low:
            why = "it would always be outside"
        else:
            continue
        found.append(text % (input_, smallest, largest, name, low, high, why))
    return found


def _times(params: Params, period_us: float) -> list[str]:
    text = "%s is %s, and its elements come %s apart: nothing would be gathered"
    return [
        text % (name, time(value), time(period_us))
        for name, value in sorted(params.items())
        if (name == "us" or name.endswith("_us")) and type(value) is int and 0 < value < period_us
    ]


def time(us: float) -> str:
    """Microseconds for people."""
    for unit, word in _UNITS:
        if us >= unit:
            return "%g %s" % (round(us / unit, 2), word)
    return "%g us" % us


# ---- a plan with other values: how much comes, and whether the buffers hold it


def rates(plan: Plan, params: Mapping[int, Params]) -> dict[int, Rates]:
    """(most_hz, interval, interval_s) of every vertex, as sizing.Sizing.rates has them. `params`: of every
    operator, all of them, by vertex."""
    found = {}
    for v in plan.vertices:
        if not v.kind:
            hz = v.rate_mhz / 1000 or None
            found[v.index] = (hz, plan.every, plan.every / hz if hz else None)
        else:
            inputs = [found[e.src] for e in plan.ins(v.index) if not e.delay_us]
            found[v.index] = flow(inputs, operators.find(v.kind).TIMED, *sparing(v.kind, params[v.index]))
    return found


def overfull(plan: Plan, params: Mapping[int, Params]) -> list[tuple[str, int, int]]:
    """Names of operators whose output between two checkpoints does not fit the buffer made for it."""
    found = []
    for i, (_, interval, _) in rates(plan, params).items():
        v = plan.vertices[i]
        caps = [e.cap for e in plan.edges if e.src == i and e.dst >= 0 and not e.delay_us]
        if v.kind and caps and interval + plan.batch > max(caps):
            found.append((v.name, interval, max(caps)))
    return found
