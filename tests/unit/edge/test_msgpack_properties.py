"""msgpack in one form, against PyPI's msgpack."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import msgpack
import pytest
from headwater.data import msgpack as ours
from hypothesis import given
from hypothesis import strategies as st

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=40)
    | st.binary(max_size=40)
)
objects = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=20)
        | st.dictionaries(st.text(max_size=6), inner, max_size=20)
        | st.dictionaries(st.integers(-(1 << 63), (1 << 64) - 1), inner, max_size=5)
    ),
    max_leaves=30,
)


def depth(obj: Any) -> int:
    if isinstance(obj, dict):
        return 1 + max([depth(v) for v in obj.values()], default=0)
    return 1 + max([depth(v) for v in obj], default=0) if isinstance(obj, list) else 0


def ordered(obj: Any) -> Any:
    if isinstance(obj, dict):
        return {key: ordered(obj[key]) for key in sorted(obj)}
    return [ordered(v) for v in obj] if isinstance(obj, list) else obj


@given(objects)
def test_bytes_are_those_of_msgpack_with_sorted_keys(obj: Any) -> None:
    if depth(obj) > ours.DEPTH_MAX:
        with pytest.raises(ours.PackError):
            ours.dumps(obj)
        return
    data = ours.dumps(obj)
    assert data == msgpack.packb(ordered(obj), use_bin_type=True)
    assert ours.loads(data) == obj
    assert msgpack.unpackb(data, raw=False, strict_map_key=False) == obj


def test_floats_of_32_bits_are_refused() -> None:
    single = msgpack.packb(1.5, use_single_float=True)
    with pytest.raises(ours.PackError, match="unknown code 202"):
        ours.loads(single)


@given(st.integers(0, 70000))
def test_long_texts_and_bytes_take_their_shortest_length(n: int) -> None:
    for obj in ("x" * n, b"x" * n):
        data = ours.dumps(obj)
        assert data == msgpack.packb(obj, use_bin_type=True)
        assert ours.loads(data) == obj


def test_long_lists_and_dicts_take_their_shortest_length() -> None:
    for n in (15, 16, 17, 65535, 65536):
        for obj in ([0] * n, {k: 0 for k in range(n)}):
            data = ours.dumps(obj)
            assert data == msgpack.packb(obj, use_bin_type=True)
            assert ours.loads(data) == obj


@given(st.binary(max_size=40))
def test_any_bytes_are_the_canonical_form_of_something_or_packerror(data: bytes) -> None:
    try:
        obj = ours.loads(data)
    except ours.PackError as error:
        assert str(error)
        return
    assert ours.dumps(obj) == data


@given(objects, st.data())
def test_changed_bytes_are_the_canonical_form_of_something_or_packerror(
    obj: Any, data: st.DataObject
) -> None:
    if depth(obj) > ours.DEPTH_MAX:
        return
    packed = bytearray(ours.dumps(obj))
    packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    try:
        back = ours.loads(packed)
    except ours.PackError:
        return
    assert ours.dumps(back) == packed


def test_lone_surrogates_are_refused_on_both_sides() -> None:
    with pytest.raises(ours.PackError, match="Unicode"):
        ours.dumps("\ud800")
    with pytest.raises(ours.PackError, match="UTF-8"):
        ours.loads(b"\xa3\xed\xa0\x80")


def test_infinities_and_signed_zeros_come_back() -> None:
    assert ours.loads(ours.dumps(math.inf)) == math.inf
    assert math.copysign(1, ours.loads(ours.dumps(-0.0))) == -1


def test_claims_of_length_reserve_no_memory() -> None:
    tracemalloc.start()
    for head in (b"\xdd", b"\xdf", b"\xdb", b"\xc6"):
        with pytest.raises(ours.PackError, match="length"):
            ours.loads(head + b"\xff\xff\xff\xff" + bytes(100))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000
