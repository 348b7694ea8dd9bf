"""Segments that a foreign writer made, and made wrong: each is taken or refused with a reason, always."""

from __future__ import annotations

import random
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import foreign
import pyarrow as pa
import pytest
from headwater_cloud import footer, segment
from headwater_cloud.segment import SegmentError

INTS = "n:i32 w:u64"


def judge(name: str, data: bytes) -> str:
    """What becomes of a file, by the same two steps as in the sink."""
    tail = foreign.footer_of(data)
    try:
        got = segment.read(name, len(data), zlib.crc32(data), tail)
        pages = [data[start : start + size] for _, start, size in got.unproven]
        segment.prove(got, len(data), tail, pages)
    except SegmentError as error:
        assert error.detail
        return error.reason
    return "taken"


def of(first: int, last: int, **more: Any) -> str:
    return judge(*foreign.segment(first, last, **more))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": "none"},
        {"compression": "snappy"},
        {"compression": "gzip"},
        {"compression": "lz4"},
        {"use_dictionary": True},
        {"data_page_version": "2.0", "version": "1.0"},
        {"row_group_size": 7},
        {"data_page_size": 100, "write_batch_size": 10},
        {"write_page_index": True, "use_compliant_nested_type": False},
        {"use_dictionary": False, "column_encoding": {"xi": "DELTA_BINARY_PACKED"}},
        {"use_dictionary": False, "column_encoding": {"stream": "DELTA_BYTE_ARRAY"}},
    ],
    ids=str,
)
def test_every_encoding_and_codec_that_spark_reads_is_taken(options: dict[str, Any]) -> None:
    gaps = [[31, 40, "gap", "full", None, None], [55, 55, "hole", "restart", 1, 2]]
    assert of(1, 100, gaps=gaps, **options) == "taken"
    assert of(1, 100, gaps=gaps, alphabet="f:f32", **options) == "taken"


@pytest.mark.parametrize(
    "options", [{"compression": "brotli"}, {"use_dictionary": False, "use_byte_stream_split": ["xi"]}]
)
def test_what_spark_does_not_read_is_refused_by_its_footer(options: dict[str, Any]) -> None:
    assert of(1, 100, **options) == "layout"


def test_other_words_of_the_same_parquet_types_are_taken() -> None:
    required = pa.list_(pa.field("item", pa.int64(), nullable=False))
    columns = {"stream": pa.array(["cardio/ecg"] * 9, pa.large_string())}
    assert of(1, 9, columns=columns) == "taken"
    assert of(1, 9, alphabet="n:i8", columns={"ints": pa.array([[x] for x in range(9)], required)}) == "taken"


@pytest.mark.parametrize(
    "xi",
    [[1, 1, 3, 3, 5], [1, 2, 2, 5, 5], [1, 4, 3, 2, 5], [5, 4, 3, 2, 1], [1, 2, 3, 4, 6], [1, 2, 3, 5]],
    ids=str,
)
def test_rows_that_are_not_those_declared_are_refused(xi: list[int]) -> None:
    assert of(1, 5, xi=xi, said={"rows": 5}) == "disagrees"
    assert of(1, 5, xi=xi, said={"rows": 5}, row_group_size=2) == "disagrees"


def test_rows_around_gaps_are_those_declared() -> None:
    gaps = [[3, 4, "gap", "full", None, None]]
    assert of(1, 6, gaps=gaps) == "taken"
    assert of(1, 6, gaps=gaps, xi=[1, 3, 5, 6], said={"rows": 4}) == "disagrees"


@pytest.mark.parametrize(
    ("alphabet", "ints"),
    [
        ("a:i32 b:i32", [[1], [2, 3, 4], [5, 6]]),
        ("a:i32 b:i32", [[], [1, 2, 3], [5, 6, 7]]),
        ("f:f32", [[1], [], []]),
        ("a:i32", [[], [1, 2], [3]]),
    ],
)
def test_lists_whose_lengths_fit_in_sum_alone_are_refused(alphabet: str, ints: list[list[int]]) -> None:
    columns = {"ints": pa.array(ints, pa.list_(pa.int64()))}
    assert of(1, 3, alphabet=alphabet, columns=columns) in ("disagrees", "layout")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"within_ms": (1 << 31) - 1}, "taken"),
        ({"within_ms": 1 << 31}, "footer"),
        ({"cut": -1}, "footer"),
        ({"process": "\ud800"}, "footer"),
        ({"process": "x" * 1001}, "footer"),
        ({"gaps": [[8, 9, "gap", "\ud800", None, None]]}, "footer"),
        ({"gaps": [[8, 9, "gap", "x" * 1001, None, None]]}, "footer"),
        ({"gaps": [[8, 9, "hole", "restart", 0, 253_402_300_799_999_999]]}, "taken"),
        ({"gaps": [[8, 9, "hole", "restart", 0, 253_402_300_800_000_000]]}, "footer"),
        ({"gaps": [[8, 9, "hole", "restart", -1, 5]]}, "footer"),
    ],
    ids=str,
)
def test_what_a_footer_declares_is_bounded_by_what_tables_hold(said: dict[str, Any], why: str) -> None:
    gaps = [[8, 9, "gap", "full", None, None]]
    assert of(1, 9, gaps=gaps, said=said) == why


@pytest.mark.parametrize("column", ["ts", "arrived"])
def test_times_are_those_that_a_timestamp_can_be(column: str) -> None:
    for us, why in (
        (-62_135_596_800_000_000, "taken"),
        (-62_135_596_800_000_001, "layout"),
        (253_402_300_799_999_999, "taken"),
        (253_402_300_800_000_000, "layout"),
    ):
        times = pa.array([foreign.START_US, us, foreign.START_US], foreign.TIME)
        assert of(1, 3, columns={column: times}) == why


def test_entries_of_the_landing_zone_that_no_batch_gives_have_a_reason() -> None:
    good, _ = foreign.segment(1, 9)
    assert segment.check_entry(good, 5) is None
    for name, size, why in (
        (good, 0, "crc"),
        (good, segment.SIZE_MAX + 1, "layout"),
        (good, None, "name"),
        (good.replace("cardio", "cardi\udcff", 1), 5, "name"),
        ("a{b.parquet", 5, "name"),
        ("a:b.parquet", 0, "name"),
    ):
        with pytest.raises(SegmentError) as caught:
            segment.check_entry(name, size)
        assert (caught.value.reason, bool(caught.value.detail)) == (why, True)


FLIPS = 3000


def flip_many(seed: int, tries: int) -> dict[str, int]:
    """Bits of a footer flipped, the CRC of the name made right; what became of each file."""
    chance = random.Random(seed)
    found: dict[str, int] = {}
    makes: list[dict[str, Any]] = [
        {},
        {"row_group_size": 20, "alphabet": "f:f32"},
        {"gaps": [[5, 9, "gap", "full", None, None]]},
    ]
    files = [foreign.segment(1, 60, **make) for make in makes]
    for i in range(tries):
        _, data = files[i % len(files)]
        bits = chance.sample(range(len(foreign.footer_of(data)) * 8), chance.randint(1, 4))
        damaged = foreign.flipped_in_footer(data, bits)
        alphabet = "f:f32" if i % 3 == 1 else INTS
        rows = 55 if i % 3 == 2 else 60
        name = foreign.name("cardio", "cardio/ecg", 7, 1, 60, rows, alphabet, damaged)
        why = judge(name, damaged)
        found[why] = found.get(why, 0) + 1
    return found


def test_flipped_bits_of_footers_end_nothing() -> None:
    # In a process of its own: a library that aborts would end this one.
    code = "import test_segment_foreign as t; print(sum(t.flip_many(1, %d).values()))" % FLIPS
    places = [str(Path(__file__).parent), *filter(None, sys.path)]
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": ":".join(places)}
    )
    assert (done.returncode, done.stdout.strip()) == (0, str(FLIPS)), done.stderr[-2000:]


def test_pages_that_belong_to_two_columns_or_to_another_one_are_refused() -> None:
    _, data = foreign.segment(1, 60)
    tail = foreign.footer_of(data)
    why: dict[str, int] = {}
    for bit in range((len(tail) - 8) * 8):
        try:
            footer.read(foreign.flipped_in_footer(data, [bit])[-len(tail) :], len(data))
        except ValueError as error:
            why[str(error)] = why.get(str(error), 0) + 1
    assert why["columns overlap in the file"] > 50
    assert why["column xi is not where its schema says"] > 8
    assert why["column ts is of another type than its schema says"] > 0


def test_a_footer_of_any_bytes_is_read_or_is_one_error() -> None:
    chance = random.Random(2)
    _, data = foreign.segment(1, 9)
    tail = foreign.footer_of(data)
    for _ in range(2000):
        cut = chance.randrange(len(tail) - 8)
        noise = tail[:cut] + chance.randbytes(chance.randrange(40)) + tail[cut + chance.randrange(40) : -8]
        made = noise + len(noise).to_bytes(4, "little") + b"PAR1"
        try:
            footer.read(made, len(data))
        except ValueError as error:
            assert str(error)
    deep = b"\x1c" * 10_000
    with pytest.raises(ValueError, match="nested too deeply"):
        footer.read(deep + len(deep).to_bytes(4, "little") + b"PAR1", 1 << 20)
