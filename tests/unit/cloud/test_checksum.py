"""The checksum of rows: one definition, whoever computes it, and spans that add up."""

from __future__ import annotations

import math
import struct

import numpy as np
import pyarrow as pa
import pytest
from headwater_cloud import checksum
from headwater_cloud.checksum import Span
from headwater_gateway.segments import checksum as gateway
from hypothesis import given
from hypothesis import strategies as st

I64 = st.integers(-(1 << 63), (1 << 63) - 1)
NAMES = st.integers(0, 32).map(lambda n: "f" * max(n, 1))


@pytest.mark.parametrize("of", (checksum.xxh64, gateway.xxh64))
def test_xxh64_is_the_published_one(of: object) -> None:
    assert callable(of)
    assert of(b"", 0) == 0xEF46DB3751D8E999
    assert of(b"abc", 0) == 0x44BC2CF5AD770999
    assert of(b"Nobody inspects the spammish repetition", 0) == 0xFBCEA83C8A378BF1


def plainly(alphabet: str, words: list[int]) -> int:
    hashed = checksum.xxh64(alphabet.encode(), 42)
    for word in words:
        hashed = checksum.xxh64(struct.pack("<Q", word % (1 << 64)), hashed)
    return hashed


@given(NAMES, st.lists(st.tuples(I64, I64, I64, st.floats(width=64)), max_size=20))
def test_gateway_and_audit_compute_what_the_specification_says(
    name: str, rows: list[tuple[int, int, int, float]]
) -> None:
    alphabet = name + ":i64 g:f64"
    want = 0
    for xi, ts, n, f in rows:
        bits = 0x7FF8000000000000 if math.isnan(f) else struct.unpack("<Q", struct.pack("<d", f))[0]
        want ^= plainly(alphabet, [xi, ts, n, bits])
    xi_, ts_, n_ = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    f_ = np.array([row[3] for row in rows], np.float64)
    hashes = checksum.of_rows(alphabet, xi_, ts_, [n_], [f_])
    assert checksum.xor(hashes) % (1 << 64) == want
    assert gateway.of_rows(alphabet, [pa.array(column) for column in (xi_, ts_, n_, f_)]) == want


def test_the_row_of_the_specification_has_the_checksum_that_it_names() -> None:
    assert plainly("n:i32", [1, 2, 3]) == 0x3EBDE289108C2CDD


def test_any_change_of_a_row_changes_it() -> None:
    def of(alphabet: str = "n:i32 f:f32", xi: int = 7, ts: int = 9, n: int = 3, f: float = 0.0) -> int:
        columns = [np.array([n])], [np.array([f])]
        return checksum.xor(checksum.of_rows(alphabet, np.array([xi]), np.array([ts]), *columns))

    others = [of("n:i32 f:f64"), of(xi=8), of(ts=10), of(n=-3), of(f=-0.0), of(f=math.nan), of(f=5e-324)]
    assert len({of(), *others}) == len(others) + 1


RUNS = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 5)), max_size=40)


@given(RUNS, st.integers(1, 5))
def test_spans_account_for_every_row_once_and_stay_few(runs: list[tuple[int, int]], most: int) -> None:
    spans: list[Span] = []
    landed: set[int] = set()
    for first, more in runs:
        new = set(range(first, first + more + 1)) - landed
        landed |= new
        whole = 0
        for xi in new:
            whole ^= checksum.xxh64(b"%d" % xi, 1)
        if new:
            spans = checksum.bounded(checksum.put(spans, Span(min(new), max(new), len(new), whole)), most)
        assert len(spans) <= most
        assert all(a.last < b.first for a, b in zip(spans, spans[1:]))
        for span in spans:
            there = [xi for xi in landed if span.first <= xi <= span.last]
            whole = 0
            for xi in there:
                whole ^= checksum.xxh64(b"%d" % xi, 1)
            assert (span.rows, span.sum) == (len(there), whole)
        assert checksum.total(spans)[0] == len(landed)


def test_a_part_of_a_span_is_not_known() -> None:
    spans = [Span(1, 10, 10, 5), Span(21, 30, 10, 6), Span(31, 40, 10, 3)]
    assert checksum.within(spans, 21, 40) == (20, 5)
    assert checksum.within(spans, 11, 50) == (20, 5)
    assert checksum.within(spans, 11, 20) == (0, 0)
    assert checksum.within(spans, 5, 40) is None
    assert checksum.within(spans, 21, 35) is None
