"""Frames and messages: whatever is put comes back; anything else is FrameError; vectors and fuzz."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from headwater.protocol import frames
from headwater_tools.proof import wire_vectors
from hypothesis import given
from hypothesis import strategies as st

LOG_A, LOG_B = wire_vectors.LOG_A, wire_vectors.LOG_B
u64 = st.integers(0, (1 << 64) - 1)
FIELDS = {
    "v": u64,
    "e": st.tuples(u64, u64),
    "i": st.sampled_from([0, LOG_A, LOG_B]) | u64,
    "b": st.binary(max_size=200),
    "p": st.lists(u64, max_size=frames.NUMBERS_MAX),
    "l": st.lists(u64, max_size=frames.HOSTS_MAX),
}


@st.composite
def messages(draw: st.DrawFn) -> tuple[Any, ...]:
    kind = draw(st.sampled_from(sorted(frames.MESSAGES)))
    return (kind, *[draw(FIELDS[code]) for code in frames.MESSAGES[kind]])


def plain(message: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(bytes(v) if isinstance(v, memoryview) else v for v in message)


@given(u64, u64, u64, st.binary(min_size=2, max_size=8), st.lists(messages(), max_size=6))
def test_any_messages_come_back(
    sender: int, boot: int, counter: int, plan: bytes, sent: list[tuple[Any, ...]]
) -> None:
    writer = frames.Writer(frames.FRAME_MAX)
    writer.begin(sender, boot, counter, plan, LOG_A, LOG_B)
    for message in sent:
        assert writer.put(*message)
    frame = bytes(writer.view()) + bytes(frames.TAG)
    found = frames.header(frame)
    assert found[:4] == (sender, boot, counter, plan[:2])
    read = frames.messages(frame, found[4], len(frame) - frames.TAG, LOG_A, LOG_B)
    assert [plain(message) for message in read] == sent


@given(st.integers(64, 400), st.lists(messages(), min_size=1, max_size=8))
def test_what_does_not_fit_leaves_no_trace(mtu: int, wanted: list[tuple[Any, ...]]) -> None:
    writer = frames.Writer(mtu)
    writer.begin(1, 2, 3, b"\0\0", LOG_A, LOG_B)
    kept = [message for message in wanted if writer.put(*message)]
    assert writer.room() >= 0 and len(writer.buf) == mtu
    frame = bytes(writer.view()) + bytes(frames.TAG)
    read = frames.messages(frame, frames.header(frame)[-1], len(frame) - frames.TAG, LOG_A, LOG_B)
    assert [plain(message) for message in read] == kept


@given(st.binary(max_size=80))
def test_any_bytes_are_a_frame_or_frameerror(data: bytes) -> None:
    for frame in (data, b"\x01\x01\x01\x01ab" + data):
        try:
            pos = frames.header(frame)[-1]
            read = frames.messages(frame, pos, len(frame) - frames.TAG, LOG_A, LOG_B)
        except frames.FrameError as error:
            assert len(str(error)) > 5
        else:
            assert len(read) <= frames.MESSAGES_MAX


@given(messages())
def test_a_message_cut_anywhere_is_refused(message: tuple[Any, ...]) -> None:
    writer = frames.Writer(4096)
    writer.begin(1, 2, 3, b"\0\0", LOG_A, LOG_B)
    start = writer.pos
    assert writer.put(*message)
    frame = bytes(writer.view()) + bytes(frames.TAG)
    for end in range(start + 1, writer.pos):
        with pytest.raises(frames.FrameError):
            frames.messages(frame, start, end, LOG_A, LOG_B)


def test_claims_of_length_reserve_no_memory() -> None:
    big = "ffffffffffffffff7f"
    tracemalloc.start()
    for body in ("0e0000" + big, "1000" + big, "0f00000000" + big, "060000000000" + "00" + big):
        frame = bytes.fromhex("010101016162" + body) + bytes(60)
        with pytest.raises(frames.FrameError):
            frames.messages(frame, 6, len(frame) - frames.TAG, LOG_A, LOG_B)
    with pytest.raises(frames.FrameError, match="bytes"):
        frames.header(bytes([frames.VERSION]) * (frames.FRAME_MAX + 1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60_000


def test_head_of_a_data_message_takes_seven_bytes() -> None:
    writer = frames.Writer(1000)
    writer.begin(1, 1, 1, b"\0\0", LOG_A, LOG_B)
    start = writer.pos
    assert writer.put(frames.DATA, 5, LOG_A, (0, 0), bytes(230))
    assert writer.pos - start - 230 == 7


def test_the_vectors_hold_what_the_code_writes() -> None:
    assert wire_vectors.PATH.read_text() == wire_vectors.text()


def test_the_vectors_use_every_field_code_and_every_message() -> None:
    whole = wire_vectors.vectors()
    assert {m[0] for frame in whole["frames"] for m in frame["messages"]} == set(frames.MESSAGES)
    assert set("".join(frames.MESSAGES.values())) == set(FIELDS)


@pytest.mark.parametrize("seed", [1, 2])
def test_broken_bytes_end_in_the_declared_errors_only(seed: int) -> None:
    accepted = wire_vectors.fuzz(6000, seed)
    # The fuzz reaches behind the first check of each decoder.
    assert all(count >= 30 for count in accepted.values())
