"""Blocks: whatever a batch holds comes back, and a reader written from docs/spec.md alone agrees."""

from __future__ import annotations

import json
import struct
import tracemalloc
from typing import Any

import pytest
from headwater.data import block
from headwater.data.alphabet import TYPES, Alphabet
from headwater.data.batch import SPAN_US, Batch
from headwater_tools.proof import wire_vectors
from hypothesis import given
from hypothesis import strategies as st


@st.composite
def batches(draw: st.DrawFn) -> Any:
    kinds = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=4))
    n = draw(st.integers(1, 50))
    batch = Batch(Alphabet(" ".join("c%d:%s" % (i, kind) for i, kind in enumerate(kinds))), n)
    for kind, column in zip(kinds, batch.cols, strict=True):
        low, high = TYPES[kind][2:]
        if low is None:
            values = st.floats(width=TYPES[kind][1] * 8, allow_nan=False)
        else:
            values = draw(
                st.sampled_from(
                    [
                        st.integers(low, high),
                        st.sampled_from([low, high]),
                        st.integers(max(low, -20), min(high, 20)),
                        st.just(draw(st.integers(low, high))),
                    ]
                )
            )
        for i, value in enumerate(draw(st.lists(values, min_size=n, max_size=n))):
            column[i] = value
    batch.n = n
    batch.xi = draw(st.integers(1, (1 << 64) - n))
    batch.unsync = draw(st.integers(0, 1))
    if draw(st.booleans()):
        batch.dt = draw(st.integers(0, 1 << 33))
    else:
        steps = draw(st.lists(st.integers(0, SPAN_US // n), min_size=n, max_size=n))
        for i in range(1, n):
            batch.at[i] = batch.at[i - 1] + steps[i]
    batch.ts = draw(st.integers(0, (1 << 64) - 1 - (n << 34)))
    return batch


def contents(batch: Any, i0: int = 0) -> Any:
    n = batch.n - i0
    times = [batch.ts_of(i0 + i) for i in range(n)]
    return batch.xi + i0, batch.unsync, times, [batch.row(i0 + i) for i in range(n)]


@given(batches(), st.data())
def test_any_run_of_any_batch_comes_back(batch: Any, data: st.DataObject) -> None:
    i0 = data.draw(st.integers(0, batch.n - 1))
    packed = wire_vectors.block_bytes(batch, i0)
    back = Batch(batch.alphabet, batch.n)
    assert block.decode(packed, 0, len(packed), back) == len(packed)
    assert contents(back) == contents(batch, i0)
    assert block.peek(packed) == (batch.xi + i0, batch.n - i0)


@given(batches())
def test_a_block_reads_alike_wherever_it_stands(batch: Any) -> None:
    packed = wire_vectors.block_bytes(batch)
    around = bytearray(b"\xff" * (block.bound(batch.alphabet, batch.n) + 9))
    end = block.encode(batch, 0, batch.n, around, 7)
    assert around[7:end] == packed and around[:7] == b"\xff" * 7
    back = Batch(batch.alphabet, batch.n)
    assert block.decode(memoryview(bytes(around)), 7, end, back) == end
    assert contents(back) == contents(batch)


@given(batches())
def test_a_block_is_never_longer_than_its_plain_values_and_heads(batch: Any) -> None:
    plain = batch.alphabet.width * batch.n + (4 * batch.n if batch.dt < 0 else 0)
    heads = 4 * 10 + (len(batch.cols) + 1) * 4
    assert len(wire_vectors.block_bytes(batch)) <= plain + heads


@given(batches(), st.data())
def test_a_shorter_buffer_gives_minus_one(batch: Any, data: st.DataObject) -> None:
    packed = wire_vectors.block_bytes(batch)
    room = data.draw(st.integers(0, len(packed) - 1))
    buf = bytearray(room)
    assert block.encode(batch, 0, batch.n, buf, 0) == -1
    assert len(buf) == room


@given(batches(), st.data())
def test_a_batch_that_is_too_small_refuses_the_block(batch: Any, data: st.DataObject) -> None:
    packed = wire_vectors.block_bytes(batch)
    if batch.n > 1:
        small = Batch(batch.alphabet, data.draw(st.integers(1, batch.n - 1)))
        with pytest.raises(block.BlockError, match="%d entries" % batch.n):
            block.decode(packed, 0, len(packed), small)


@given(st.binary(max_size=60), st.sampled_from(["a:i16", "a:u8 b:i64", "f:f32", "a:u32 b:u16 c:i8"]))
def test_any_bytes_give_a_batch_or_blockerror(data: bytes, alphabet: str) -> None:
    batch = Batch(Alphabet(alphabet), 40)
    try:
        end = block.decode(data, 0, len(data), batch)
    except block.BlockError as error:
        assert str(error) and batch.n == 0
    else:
        assert 0 < end <= len(data) and 0 < batch.n <= 40


def test_claims_of_length_reserve_no_memory() -> None:
    batch = Batch(Alphabet("a:i16 b:u64"), 16)
    huge = [bytes.fromhex("f0ffffffffffffffff01") + bytes(60), b"\x80" * 64, b"\xff" * 64]
    tracemalloc.start()
    for data in huge:
        with pytest.raises(block.BlockError):
            block.decode(data, 0, len(data), batch)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000


# A reader that knows docs/spec.md, "Blocks", and nothing of block.py.


class Bits:
    def __init__(self, data: bytes) -> None:
        self.bits = [byte >> k & 1 for byte in data for k in range(8)]
        self.at = 0

    def take(self, n: int) -> int:
        value = sum(bit << k for k, bit in enumerate(self.bits[self.at : self.at + n]))
        self.at += n
        return value

    def zeros(self) -> int:
        n = 0
        while not self.take(1):
            n += 1
        return n

    def align(self) -> None:
        self.at = (self.at + 7) // 8 * 8

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(8)
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value


def unzigzag(z: int) -> int:
    return z // 2 if z % 2 == 0 else -(z // 2) - 1


def plain_values(bits: Bits, kind: str, n: int) -> list[Any]:
    code, width = TYPES[kind][:2]
    data = bytes(bits.take(8) for _ in range(width * n))
    return list(struct.unpack("<%d%s" % (n, code), data))


def rest_of_column(bits: Bits, kind: str, first: list[Any], n: int) -> list[Any]:
    head = bits.take(8)
    if head == 64:
        return first + plain_values(bits, kind, n - len(first))
    width = 8 * TYPES[kind][1]
    k = head & 31
    values = list(first)
    difference = 0
    while len(values) < n:
        total = 0
        for _ in range(min(8, n - len(values))):
            q = bits.zeros()
            z = bits.take(width + 2) if q == 12 else q << k | bits.take(k)
            total += z
            step = unzigzag(z) + (difference if head & 32 else 0)
            values.append(values[-1] + step)
            difference = step
        k = (total * 5 // 64).bit_length()
    bits.align()
    return values


def spec_reader(data: bytes, alphabet: str) -> dict[str, Any]:
    bits = Bits(data)
    head = bits.varint()
    n = head >> 4
    out: dict[str, Any] = {"unsync": head >> 2 & 1, "hole": 0, "back": 0, "dt": -1, "at": [], "cols": []}
    out["xi"], out["ts"] = bits.varint(), bits.varint()
    if head & 1:
        out["hole"], out["back"] = bits.varint(), bits.varint()
        return out
    if head & 2:
        out["at"] = rest_of_column(bits, "i32", [0], n) if n > 1 else [0]
    else:
        out["dt"] = bits.varint()
    for part in alphabet.split():
        kind = part.split(":")[1]
        if kind in ("f32", "f64"):
            column = rest_of_column(bits, kind, [], n)
        else:
            first = plain_values(bits, kind, 1) if kind in ("i64", "u64") else [unzigzag(bits.varint())]
            column = rest_of_column(bits, kind, first, n) if n > 1 else first
        out["cols"].append(column)
    assert bits.at == 8 * len(data)
    return out


def test_golden_blocks_read_by_the_specification_alone() -> None:
    for spec in json.loads(wire_vectors.PATH.read_text())["blocks"]:
        read = spec_reader(bytes.fromhex(spec["hex"]), spec["alphabet"])
        assert read == {key: spec[key] for key in read}, spec["name"]


@given(batches())
def test_any_block_reads_by_the_specification_alone(batch: Any) -> None:
    read = spec_reader(wire_vectors.block_bytes(batch), batch.alphabet.text)
    assert (read["xi"], read["ts"], read["unsync"]) == (batch.xi, batch.ts_of(0), batch.unsync)
    assert read["cols"] == [list(column[: batch.n]) for column in batch.cols]
