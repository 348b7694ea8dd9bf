"""Alphabets as the lake sees them: the text `t:u32 mV:i16` of a segment, its fields, when two agree."""

from __future__ import annotations

import functools
import re

INTEGERS = ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")
FLOATS = ("f32", "f64")

_FIELD = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,31}):(%s)" % "|".join(INTEGERS + FLOATS), re.ASCII)

Fields = dict[str, str]  # name -> type, in their order


@functools.lru_cache(4096)
def _parsed(text: str) -> tuple[tuple[str, str], ...]:
    fields: Fields = {}
    for part in text.split(" "):
        match = _FIELD.fullmatch(part)
        if match is None or match[1] in fields:
            raise ValueError("'%s' is not an alphabet: write fields like mV:i16, each name once" % text)
        fields[match[1]] = match[2]
    return tuple(fields.items())


def fields(text: str) -> Fields:
    """The fields of an alphabet; ValueError if the text is not one."""
    return dict(_parsed(text))


def counts(text: str) -> tuple[int, int]:
    """How many values a row has in `ints` and in `floats`."""
    kinds = [kind for _, kind in _parsed(text)]
    floats = sum(kind in FLOATS for kind in kinds)
    return len(kinds) - floats, floats


def places(text: str) -> dict[str, tuple[str, int]]:
    """Where a field's values are: name -> ("ints" or "floats", index)."""
    out: dict[str, tuple[str, int]] = {}
    next_place = {"ints": 0, "floats": 0}
    for name, kind in _parsed(text):
        column = "floats" if kind in FLOATS else "ints"
        out[name] = (column, next_place[column])
        next_place[column] += 1
    return out


def contains(wide: str, narrow: str) -> bool:
    """Whether `wide` has every field of `narrow`, with the same type."""
    have = fields(wide)
    return all(have.get(name) == kind for name, kind in _parsed(narrow))
