"""Parameters of operators while they run: what is in force, what is on its way and for whom it waits.

A change is judged by the values that are in force after all changes made before it. The operator's type
judges it first, as it will on its board. Then it is refused if it would make no sense for the stream that
the operator consumes, or for the buffers that were made for it: `hw check` warns the author of such a file,
but nobody would see a warning about a change.
"""

from __future__ import annotations

from typing import Any

from headwater import operators
from headwater.plan.model import Plan, Vertex
from headwater.process import sensible
from headwater.process.arguments import other_units, times
from headwater.process.sizing import filled
from headwater.runtime import decisions
from headwater.runtime.operator import fields

SHOWN_MAX = 16  # numbers of a list that are shown


def values(host: Any, vertex: Vertex, in_force: bool) -> dict[str, Any]:
    """All parameters of an operator, with the changes that it has taken, or with all that were made."""
    cls = operators.find(vertex.kind)
    op = cls(vertex.params, vertex.ins, vertex.outs, 1)
    found: dict[str, Any] = filled(cls, vertex.params)
    for name, value in decisions.follow(host, vertex.index, op, in_force).items():
        _set(found, name, value)
    return found


def _set(found: dict[str, Any], name: str, value: Any) -> None:
    """Set a value; one that an expression names is in the list of values."""
    names = str(found.get("names", "")).split()
    if name not in found and name in names and "values" in found:
        found["values"] = list(found["values"])
        found["values"][names.index(name)] = value
    else:
        found[name] = value


def translated(host: Any, vertex: Vertex, given: dict[str, Any]) -> dict[str, Any]:
    """What an author may write, as the plan has it: `seconds=`, or the limits of one input by its name.
    ValueError if its meaning is not clear."""
    cls = operators.find(vertex.kind)
    given = times(cls, dict(given))
    declared = [name for name, _, _, _ in fields(cls.PARAMS)]
    if vertex.kind == "HealthAnalyzer":
        now = values(host, vertex, False)
        names = now["names"].split()
        limits = list(now["limits"])
        for name in [name for name in given if name in names]:
            pair = given.pop(name)
            if not isinstance(pair, list) or len(pair) != 2:
                raise ValueError("%s has two limits, like %s=(40,180)" % (name, name))
            k = names.index(name)
            limits[2 * k : 2 * k + 2] = pair
            given["limits"] = limits
    own = str(vertex.params.get("names", "")).split()
    for name in given:
        if name not in declared and name not in own:
            offered = [word for known in declared for word in (known, *other_units(known))]
            raise ValueError(
                "it has no parameter '%s'; it has %s" % (name, ", ".join(offered + own) or "none")
            )
    return given


def judge(host: Any, vertex: Vertex, change: dict[str, Any]) -> None:
    """ValueError if a change, legal for its type, would make no sense here."""
    plan = host.plan
    op = operators.find(vertex.kind)(vertex.params, vertex.ins, vertex.outs, 1)
    decisions.follow(host, vertex.index, op)
    op.configure(change)
    every = {v.index: values(host, v, False) for v in plan.vertices if v.kind}
    before = every[vertex.index]
    after = dict(before)
    for name, value in change.items():
        _set(after, name, value)
    most_hz = _input_hz(plan, vertex, every)
    known = sensible.problems(vertex.kind, vertex.ins, before, most_hz)
    for problem in sensible.problems(vertex.kind, vertex.ins, after, most_hz):
        if problem not in known:
            raise ValueError(problem)
    full = {name for name, _, _ in sensible.overfull(plan, every)}
    for name, many, cap in sensible.overfull(plan, {**every, vertex.index: after}):
        if name not in full:
            raise ValueError(
                "%s would give up to %d elements between two checkpoints, and the buffer behind it was made "
                "for %d: write the new value into the process file, and deploy that" % (name, many, cap)
            )


def _input_hz(plan: Plan, vertex: Vertex, every: dict[int, dict[str, Any]]) -> float | None:
    """Most elements a second that an operator takes; None if unknown."""
    rates = sensible.rates(plan, every)
    inputs = [rates[e.src][0] for e in plan.ins(vertex.index) if not e.delay_us]
    known = [hz for hz in inputs if hz is not None]
    return sum(known) if known and len(known) == len(inputs) else None


# ---- for the state


def shown(host: Any, vertex: Vertex) -> dict[str, Any]:
    """Parameters in force, and changes that the operator has not taken yet."""
    v = vertex.index
    asked, taken = decisions.made(host, v), decisions.taken(host, v)
    if v in host.unlearned:
        found = filled(operators.find(vertex.kind), vertex.params)
    else:
        found = values(host, vertex, True)
    refused = decisions.told(host, v)[1]
    declared = [name for name, _, _, _ in fields(operators.find(vertex.kind).PARAMS)]
    return {
        "changes": [asked, taken],
        "parameters": {name: _short(found[name]) for name in declared if _showable(found.get(name))},
        "open": [_open(host, v, n) for n in range(taken + 1, asked + 1)],
        "refused": refused or None,
    }


def _open(host: Any, v: int, n: int) -> dict[str, Any]:
    content = decisions.change(host, v, n)
    if content is None:
        return {"number": n, "what": "not known"}
    if content[0] == "set":
        what = ", ".join("%s = %s" % item for item in content[1].items())
        return {"number": n, "what": what, "values": content[1]}
    return {"number": n, "what": "%s input %d" % (content[0], content[1])}


def _showable(value: Any) -> bool:
    return isinstance(value, (int, float, str)) or (
        isinstance(value, list) and len(value) <= SHOWN_MAX and all(isinstance(v, int) for v in value)
    )


def _short(value: Any) -> Any:
    return ", ".join(map(str, value)) if isinstance(value, list) else value


def around(plan: Plan, where: Any, v: int) -> list[int]:
    """Hosts for which a change of operator v may wait, the likeliest first: its own, and those of what it is
    connected to, the nearest first."""
    order: list[int] = [where[v][2]]
    seen = [v]
    for u in seen:
        for e in plan.edges:
            near = e.src if e.dst == u else e.dst if e.src == u else -1
            if near >= 0 and near not in seen:
                seen.append(near)
    for u in seen[1:]:
        vertex = plan.vertices[u]
        order.append(where[u][2] if vertex.kind else vertex.hosts[0])
    return list(dict.fromkeys(order))
