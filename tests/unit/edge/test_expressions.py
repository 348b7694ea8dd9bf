"""The parser of expressions, and the value of what it makes: Python's, where Python gives one."""

from __future__ import annotations

from typing import Any

import pytest
from headwater.operators.expr import ExprError, source
from headwater.process.expressions import parse
from hypothesis import given
from hypothesis import strategies as st

NAMES = {"x": "v0", "y": "v1", "limit": "p0"}
NUMBERS = st.integers(-(1 << 33), 1 << 33) | st.sampled_from([0, 1, -1, 31, 32, 32767, -32768, (1 << 63) - 1])


def compiled(tree: Any) -> Any:
    space: dict[str, Any] = {}
    exec("def f(v0, v1, p0):\n return %s\n" % source(tree, NAMES), space)
    return space["f"]


def reference(tree: Any, names: dict[str, int]) -> int:
    """What a tree means, as slowly and plainly as can be."""
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return names[tree]
    op, *rest = tree
    if op in ("and", "or"):
        result = 0
        for part in rest:
            result = reference(part, names)
            if bool(result) == (op == "or"):
                break
        return result
    a, *more = [reference(part, names) for part in rest]
    if op == "if":
        return more[0] if a else more[1]
    if op == "clamp":
        return (
            max(more[0], min(a, more[1]))
            if more[0] <= more[1]
            else (more[0] if a < more[0] else min(a, more[1]))
        )
    if op in ("min", "max"):
        return (min if op == "min" else max)(a, *more)
    if op.startswith("sat"):
        bits = int(op.strip("satu"))
        low = 0 if "u" in op else -(1 << (bits - 1))
        return max(low, min(a, low + (1 << bits) - 1))
    if op in ("neg", "~", "not", "abs"):
        return {"neg": -a, "~": -1 - a, "not": int(not a), "abs": abs(a)}[op]
    for b in more:
        if op in ("//", "%"):
            a = 0 if b == 0 else a // b if op == "//" else a % b
        elif op in ("<<", ">>"):
            b = max(0, min(b, 31))
            a = a << b if op == "<<" else a >> b
        else:
            a = {
                "+": a + b, "-": a - b, "*": a * b, "&": a & b, "|": a | b, "^": a ^ b, "<": int(a < b),
                "<=": int(a <= b), ">": int(a > b), ">=": int(a >= b), "==": int(a == b), "!=": int(a != b),
            }[op]  # fmt: skip
    return a


def trees() -> st.SearchStrategy[Any]:
    def grown(part: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        one = st.sampled_from(
            ["neg", "~", "not", "abs", "sat8", "sat16", "sat32", "satu8", "satu16", "satu32"]
        )
        two = st.sampled_from(["-", "//", "%", "<<", ">>", "<", "<=", ">", ">=", "==", "!="])
        many = st.sampled_from(["+", "*", "&", "|", "^", "and", "or", "min", "max"])
        return (
            st.tuples(one, part).map(list)
            | st.tuples(two, part, part).map(list)
            | st.tuples(many, part, part, part).map(list)
            | st.tuples(st.sampled_from(["if", "clamp"]), part, part, part).map(list)
        )

    return st.recursive(NUMBERS | st.sampled_from(sorted(NAMES)), grown, max_leaves=25)


@given(tree=trees(), x=NUMBERS, y=NUMBERS, limit=NUMBERS)
def test_generated_source_means_what_the_tree_means(tree: Any, x: int, y: int, limit: int) -> None:
    try:
        f = compiled(tree)
    except ExprError as e:
        assert "split it" in str(e)
        return
    assert int(f(x, y, limit)) == reference(tree, {"x": x, "y": y, "limit": limit})


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("x", "x"),
        ("-3", -3),
        ("+x", "x"),
        ("p.limit", "limit"),
        ("x + y + 1", ["+", "x", "y", 1]),
        ("x - y - 1", ["-", ["-", "x", "y"], 1]),
        ("x - (y - 1)", ["-", "x", ["-", "y", 1]]),
        ("x > 120 and y < 900 and x != 5", ["and", [">", "x", 120], ["<", "y", 900], ["!=", "x", 5]]),
        ("0 < x <= y", ["and", ["<", 0, "x"], ["<=", "x", "y"]]),
        ("x if y else -x", ["if", "y", "x", ["neg", "x"]]),
        ("max(x, -x) + (y >> 1)", ["+", ["max", "x", ["neg", "x"]], [">>", "y", 1]]),
        ("sat16(~x) % 3 | 1", ["|", ["%", ["sat16", ["~", "x"]], 3], 1]),
        ("not x == 3", ["not", ["==", "x", 3]]),
    ],
)
def test_text_becomes_this_tree(text: str, tree: Any) -> None:
    assert parse(text) == tree


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("x / 2", "//"),
        ("x ** 2", "not part of the language"),
        ("1.5 * x", "fraction 1.5"),
        ("x + 'a'", "'a'"),
        ("True", "True"),
        ("__import__('os')", "__import__"),
        ("x.real", ".real"),
        ("x[0]", "x[0]"),
        ("[x]", "[x]"),
        ("lambda: x", "lambda"),
        ("(x := 3)", "x := 3"),
        ("f'{x}'", "f'{x}'"),
        ("x in y", "'in'"),
        ("abs(x, y)", "abs takes 1, not 2"),
        ("min(x)", "min takes 2 or more, not 1"),
        ("min(*x)", "by name"),
        ("max(a=1)", "by name"),
        ("x +", "not an expression"),
        ("x = 3", "not an expression"),
        ("", "not an expression"),
        ("x\0", "not an expression"),
        ("(" * 300 + "x" + ")" * 300, "not an expression"),
        ("-" * 30 + "x", "nested"),
        ("-" * 900 + "x", "expression"),
        (" + ".join(["x"] * 200), "at most 128"),
        ("x" * 2000, "at most 1024"),
        ("x + 9223372036854775808", "64 bits"),
    ],
)
def test_what_is_not_of_the_language_is_refused_in_a_sentence(text: str, part: str) -> None:
    with pytest.raises(ExprError) as caught:
        parse(text)
    assert part in str(caught.value)


@given(text=st.text(max_size=60) | st.text(alphabet="xy09+-*/%<>=&|^~()., andornot if else", max_size=60))
def test_any_text_gives_a_tree_or_one_clear_error(text: str) -> None:
    try:
        tree = parse(text)
    except ExprError:
        return
    try:
        source(tree, NAMES)
    except ExprError as e:
        assert "names" in str(e)
