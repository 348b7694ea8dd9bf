"""Alphabets and versions: which agree, and what a typed view makes of them."""

from __future__ import annotations

import hashlib
import re

import pytest
from headwater_cloud.alphabet import counts, fields, places
from headwater_cloud.dialect import DATAFUSION
from headwater_cloud.views import (
    Version,
    columns,
    follows_sql,
    quoted,
    version_of,
    versions,
    view_name,
    view_sql,
)
from hypothesis import given, strategies


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
    with pytest.raises(ValueError, match="is not an alphabet"):
        fields(text)


def test_the_name_of_a_view_follows_from_the_name_of_its_stream_alone() -> None:
    simple = ("cardio/ecg", "site/heart_rate", "site_heart/rate", "a/b/c", "ecg", "heart_rate")
    assert [view_name(stream) for stream in simple] == [
        "cardio_ecg", "site_heart__rate", "site__heart_rate", "a_b_c", "ecg", "heart__rate",
    ]  # fmt: skip
    assert view_name("Cardio/ecg") == "cardio_ecg___" + hashlib.sha256(b"Cardio/ecg").hexdigest()[:8]
    assert view_name("lake/gaps").startswith("lake_gaps___") and view_name("elements") != "elements"


@given(strategies.sets(strategies.text("aB_/1.", max_size=6)))
def test_no_two_streams_share_a_view(streams: set[str]) -> None:
    names = {view_name(stream) for stream in streams}
    assert len(names) == len(streams)
    assert not names & {"elements", "gaps", "lake_gaps", "lake_quality"}
    assert all(re.fullmatch(r"[a-z_][a-z0-9_]*", name) for name in names)


def test_an_old_version_and_a_stream_share_no_view() -> None:
    # A simple name has no three underscores, and one with a checksum has eight digits behind them.
    for stream in ("a/b", "a_/v1", "a/b___v1", "a/b/_v1"):
        assert not re.search(r"___v\d+$", view_name(stream))


def test_a_row_of_a_followed_stream_belongs_or_fails() -> None:
    one, two = Version(1, ("a:u8",)), Version(2, ("a:i8", "a:i8 b:u8"))
    assert follows_sql("s", two, [one, two]).startswith(
        "CASE WHEN stream <> 's' THEN false WHEN alphabet IN ('a:i8', 'a:i8 b:u8') THEN true "
        "WHEN alphabet IN ('a:u8') THEN false ELSE raise_error("
    )
    assert "THEN true ELSE raise_error(" in follows_sql("s", one, [one])


def test_a_view_for_datafusion_counts_from_one_and_keeps_the_case_of_names() -> None:
    sql = view_sql("elements", "o'clock", Version(1, ("mV:i16",)), DATAFUSION)
    assert 'CAST(ints[1] AS smallint) AS "mV" FROM elements' in sql
    assert sql.endswith("WHERE stream = 'o''clock' AND alphabet IN ('mV:i16')")
