"""Changes of parameters that a person could send to a running operator: sensible ones, and odd ones.

A sensible change leaves the operator busy at about its rate, or is refused by its type for a reason of
its own (a median of an even number of elements). An odd one has an unknown name, a value of the wrong
kind or out of every range; the type refuses it in every run, and nothing happens.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from headwater import operators
from headwater.data.alphabet import TYPES
from headwater.plan.model import Vertex
from headwater.runtime.operator import fields

Draw = Callable[[random.Random, Vertex], dict[str, Any]]

_US_MIN = 50_000  # a shorter window floods the lake, and shows nothing else
_NEAR = (-3, -2, -1, 1, 2, 3)


def _affine(r: random.Random, v: Vertex) -> dict[str, Any]:
    name = r.choice(("offset", "offset", "num", "shift", "den"))
    low, high = {"num": (-3, 3), "shift": (0, 3), "den": (0, 3)}.get(name, (-20, 20))
    return {name: r.randint(low, high)}


def _fir(r: random.Random, v: Vertex) -> dict[str, Any]:
    coeffs = [c + r.choice((-1, 0, 1)) for c in v.params["coeffs"]]
    return {"coeffs": coeffs if r.random() < 0.9 else [*coeffs, 1]}


def _threshold(r: random.Random, v: Vertex) -> dict[str, Any]:
    low = r.randint(-40, 40)
    return {"low": low, "high": low + r.randint(0, 40)}


def _named(r: random.Random, v: Vertex) -> dict[str, Any]:
    """One of the values that an expression names."""
    names = v.params.get("names", "").split()
    return {r.choice(names): r.randint(-30, 70)} if names else {"values": []}


def _us60(r: random.Random, v: Vertex) -> dict[str, Any]:
    return {"us": 60 * r.randint(1000, 100_000)}


SENSIBLE: dict[str, Draw] = {
    "Affine": _affine,
    "Attenuate": lambda r, v: {"threshold": r.randrange(0, 2000)},
    "Counter": _us60,
    "DeadBand": lambda r, v: {"width": r.randrange(1, 50)},
    "Decimate": lambda r, v: {"k": r.randrange(1, 5)},
    "ExpAverage": lambda r, v: {"shift": r.randrange(1, 6)},
    "Fir": _fir,
    "Map": _named,
    "Median": lambda r, v: {"k": r.choice((3, 5, 7, 4))},
    "Route": _named,
    "Threshold": _threshold,
    "Where": _named,
}


def _declared(v: Vertex) -> list[Any]:
    declared: list[Any] = fields(operators.find(v.kind).PARAMS)
    return declared


def changeable(v: Vertex) -> bool:
    return bool(v.kind) and bool(_declared(v))


def sensible(r: random.Random, v: Vertex) -> dict[str, Any]:
    draw = SENSIBLE.get(v.kind)
    if draw:
        return draw(r, v)
    declared = [(name, kind) for name, kind, _, _ in _declared(v) if kind in TYPES and kind[0] != "f"]
    if not declared:
        return odd(r, v)
    name, _ = r.choice(declared)
    now = int(v.params.get(name, 0))
    if name == "us" or name.endswith("_us"):
        return {name: max(_US_MIN, now + r.choice(_NEAR) * 60_000) if now else _US_MIN * r.randint(0, 4)}
    return {name: max(0, now + r.choice(_NEAR))}


def odd(r: random.Random, v: Vertex) -> dict[str, Any]:
    """Values that no type accepts."""
    names = [d[0] for d in _declared(v)]
    value = r.choice((1 << 60, -(1 << 60), "seven", None, [], [1, "x"], {"a": 1}, b"\x00\xff"))
    return r.choice(({"nonsense": 1}, {r.choice([*names, "nonsense"]): value}))
