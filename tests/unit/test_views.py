"""Alphabets and versions: which agree, and what a typed view makes of them."""

from __future__ import annotations

import pytest
from headwater_cloud.alphabet import counts, fields, places
from headwater_cloud.views import Version, columns, quoted, version_of, versions, view_sql


def test_an_alphabet_that_gains_fields_is_the_same_version() -> None:
    known = versions([(1, "t:u32 mV:i16")])
    assert version_of("t:u32 mV:i16", known) == 1
    assert version_of("t:u32 mV:i16 q:u8", known) == 1
    assert version_of("q:u8 mV:i16 t:u32", known) == 1
    assert version_of("mV:i16", known) == 1


def test_an_incompatible_alphabet_is_the_next_version() -> None:
    known = versions([(1, "t:u32 mV:i16")])
    assert version_of("t:u32 mV:i32", known) == 2
    assert version_of("t:u32 q:u8", known) == 2
    assert version_of("t:u32", []) == 1


def test_an_alphabet_of_an_old_version_stays_with_it() -> None:
    known = versions([(1, "t:u32"), (2, "t:f32"), (2, "t:f32 q:u8")])
    assert version_of("t:u32", known) == 1
    assert version_of("t:f32 q:u8 r:u8", known) == 2
    assert known[1].widest == "t:f32 q:u8"


def test_fields_are_found_wherever_an_alphabet_has_them() -> None:
    assert places("a:u8 f:f32 b:u64 g:f64") == {
        "a": ("ints", 0),
        "f": ("floats", 0),
        "b": ("ints", 1),
        "g": ("floats", 1),
    }
    assert counts("a:u8 f:f32 b:u64 g:f64") == (2, 2)
    view = dict(columns(Version(1, ("a:u8 b:i16", "b:i16"))))
    assert view["b"] == (
        "CAST(CASE WHEN alphabet IN ('a:u8 b:i16') THEN ints[1] "
        "WHEN alphabet IN ('b:i16') THEN ints[0] END AS smallint)"
    )
    assert view["a"] == "CAST(CASE WHEN alphabet IN ('a:u8 b:i16') THEN ints[0] END AS smallint)"


def test_a_field_with_a_taken_name_gets_another() -> None:
    names = [name for name, _ in columns(Version(1, ("ts:u32 TS:u32 mV:i16 mv:i16",)))]
    assert names[6:] == ["ts_", "TS__", "mV", "mv_"]


def test_names_from_outside_are_quoted() -> None:
    assert quoted("it's a \\") == "'it\\'s a \\\\'"
    assert "stream = 'o\\'clock'" in view_sql("elements", "o'clock", Version(1, ("a:u8",)))


@pytest.mark.parametrize(
    "text", ["", "a", "a:u9", "a:u8  b:u8", "a:u8 a:u8", "ä:u8", "1a:u8", "a:u8 ", "a" * 33 + ":u8"]
)
def test_what_is_no_alphabet_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no alphabet"):
        fields(text)
