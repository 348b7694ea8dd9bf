"""The filter of an erasure: what is meant, what is refused, and that no text of it becomes SQL."""

from __future__ import annotations

import re
from typing import Any

import pytest
from headwater_cloud.where import COMMON, Where, WhereError, row_box
from hypothesis import given
from hypothesis import strategies as st

ALPHABETS = ("mV:i16 lead:u8", "mV:f32", "mV:u64 ts:i32", "on:i8")
NOW = 1_800_000_000_000_000


def row(alphabet: str = ALPHABETS[0], **values: Any) -> dict[str, Any]:
    made = {"ts": NOW, "arrived": NOW, "xi": 5, "incarnation": 7, "unsync": False, "alphabet": alphabet}
    return {**made, "ints": [900, 2], "floats": [], **values}


def means(text: str, one: dict[str, Any]) -> bool:
    return Where(text).judge(row_box(one), one["alphabet"]) is True


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("xi = 5", True),
        ("xi between 1 and 4 or lead in (2, 3)", True),
        ("not xi = 5", False),
        ("xi not in (1, 2)", True),
        ("xi not between 5 and 9", False),
        ("ts >= '2027-01-15' and ts < '2027-01-16'", True),
        ("ts < '2027-01-15 08:00:00'", False),
        ("ts <= '2027-01-15T09:00:00+01:00'", True),
        ("incarnation = '0000000000000007'", True),
        ("incarnation != '0000000000000007'", False),
        ("unsync = false", True),
        ("mV > 899 AND (lead <> 2 OR xi == 5)", True),
        ("`mV` >= 901", False),
        ("on = 1", False),  # a field that the row lacks
        ("not on = 1", False),  # is not 1 either
        ("on = 1 or mV = 900", True),
        ("on = 1 and mV = 0", False),
        ("mV < 99999999999999999999", True),
    ],
)
def test_what_a_filter_means(text: str, meant: bool) -> None:
    where = Where(text)
    where.check(ALPHABETS[:1] + ALPHABETS[3:])
    assert means(text, row()) is meant


def test_values_are_those_that_the_alphabet_declares() -> None:
    assert means("mV = 0.1", row("mV:f32", floats=[0.10000000149011612]))
    assert means("mV = 18446744073709551615 and ts_ = -3", row("mV:u64 ts:i32", ints=[-1, -3]))
    assert means("mV > 1e30", row("mV:f32", floats=[float("nan")]))  # as Spark orders it
    assert not means("mV > 1", row("mV:f32", floats=[]))  # a list that is too short has no value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        ("xi", "ends where a comparison is expected"),
        ("xi <", "ends where a value is expected"),
        ("xi = 1; DROP TABLE x", "cannot be read from '; DROP TABLE x' on"),
        ("xi = 1 -- all", "cannot be read from '-- all' on"),
        ("xi = 1) or (xi > 0", "cannot be read from ')' on"),
        ("xi = (select 1)", "a number or a text in quotes is expected"),
        ("xi = xi", "a number or a text in quotes is expected"),
        ("(xi = 1", "lacks a ')'"),
        ("and = 1", "'and' where the name of a column is expected"),
        ("stream = 'other'", "asks for 'stream': the stream has ts, arrived, xi"),
        ("landed < '2026-11-01'", "asks for 'landed'"),
        ("xi = 1.5", "whole numbers"),
        ("xi = 'x'", "is a number, not 'x'"),
        ("mV = 1.5", "whole numbers"),
        ("ts < 5", "ts is a time"),
        ("ts < 'soon'", "is not a time"),
        ("ts < '2026-11-01' or ts > '9999-99-99'", "is not a time"),
        ("incarnation = 7", "16 hex digits"),
        ("incarnation > '0000000000000007'", "compared by = or !="),
        ("unsync > true", "compare it by = or !="),
        ("(" * 100 + "xi = 1" + ")" * 100, "nested more than 50 deep"),
        ("not " * 100 + "xi = 1", "nested more than 50 deep"),
        ("xi = 1 or " * 1000 + "xi = 2", "more than 4000 bytes"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_in_one_sentence(text: str, why: str) -> None:
    with pytest.raises(WhereError) as refused:
        Where(text).check(ALPHABETS[:1])
    assert why in str(refused.value) and "\n" not in str(refused.value)


@given(st.one_of(st.text(max_size=60), st.text("xi<>=()' 15notadrbewmV,-.`eTRU;\\\"\n", max_size=40)))
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    try:
        where = Where(text)
        where.check(ALPHABETS)
    except WhereError:
        return
    words = set(
        re.findall(r"[A-Za-z_]\w*", re.sub(r"CAST\('-?[\w.+-]+' AS", "CAST( AS", where.sql(ALPHABETS)))
    )
    spark = {"AND", "OR", "NOT", "IN", "CAST", "AS", "NULL", "BOOLEAN", "DOUBLE", "DECIMAL", "IF", "get", "L"}
    names = {"alphabet", "ints", "floats", "timestamp_micros", "TRUE", "FALSE"} | COMMON.keys()
    own = {word for alphabet in ALPHABETS for word in re.findall(r"\w+", alphabet)}
    assert words <= spark | names | own


numbers = st.integers(-3, 12)
tests_of = st.builds(
    "{} {} {}".format,
    st.sampled_from(("xi", "mV", "lead", "on")),
    st.sampled_from(("<", "<=", ">", ">=", "=", "!=")),
    numbers,
)
filters = st.recursive(
    tests_of,
    lambda inner: st.one_of(
        st.builds("not ({})".format, inner),
        st.builds("({}) and ({})".format, inner, inner),
        st.builds("({}) or ({})".format, inner, inner),
    ),
    max_leaves=6,
)


@given(filters, st.lists(st.tuples(st.integers(1, 9), numbers, numbers), min_size=1, max_size=5))
def test_a_box_never_denies_what_a_row_in_it_affirms(text: str, rows: list[tuple[int, int, int]]) -> None:
    where = Where(text)
    xis = [xi for xi, _, _ in rows]
    bounds = where.judge({"xi": (min(xis), max(xis)), "incarnation": (7, 7)}, ALPHABETS[0])
    for xi, mv, lead in rows:
        meant = means(text, row(xi=xi, ints=[mv, lead]))
        assert bounds is None or bounds is meant


@pytest.mark.parametrize(
    ("text", "later"),
    [
        ("ts < '2027-01-01'", False),
        ("ts < '2027-01-01' and mV > 3 or arrived <= '2026-01-01'", False),
        ("xi <= 100", True),  # of an incarnation that begins later
        ("incarnation = '0000000000000007' and xi <= 100", False),
        ("incarnation = '0000000000000007' and xi <= 101", True),
        ("not ts > '2027-01-01'", False),
        ("mV > 900", True),
        ("ts >= '2026-01-01'", True),
        ("ts < '2999-01-01'", True),
    ],
)
def test_whether_it_means_what_is_measured_from_now_on(text: str, later: bool) -> None:
    assert Where(text).means_later(NOW, {7: 100}) is later
