"""The software flash fails as real flash does, and forbids what real flash forbids."""

from __future__ import annotations

import pytest
from headwater.testing.cut_flash import (
    APPEAR,
    CLEAN,
    DECAY,
    FLICKER,
    KINDS,
    SCATTER,
    TORN,
    CutFlash,
    FlashError,
    PowerCut,
)

SIZE = 256
BODY = bytes(range(100, 140))


def read(flash: CutFlash, block: int, length: int, offset: int = 0) -> bytes:
    buf = bytearray(length)
    flash.readblocks(block, buf, offset)
    return bytes(buf)


def cut(kind: int, byte: int, seed: int = 1) -> CutFlash:
    """A device that lost power in a program of BODY at the beginning of sector 1."""
    flash = CutFlash(3, SIZE, seed)
    flash.arm(0, byte, kind)
    with pytest.raises(PowerCut):
        flash.writeblocks(1, BODY, 0)
    flash.revive()
    return flash


def cut_erase(kind: int, share: int) -> CutFlash:
    flash = CutFlash(3, SIZE, 1)
    flash.writeblocks(1, bytes(SIZE), 0)
    flash.arm(1, share, kind)
    with pytest.raises(PowerCut):
        flash.ioctl(6, 1)
    flash.revive()
    return flash


def test_a_program_is_read_back_and_only_there() -> None:
    flash = CutFlash(3, SIZE)
    flash.writeblocks(1, BODY, 16)
    assert read(flash, 1, len(BODY), 16) == BODY
    assert read(flash, 0, SIZE) == read(flash, 2, SIZE) == b"\xff" * SIZE
    assert (flash.ioctl(4, 0), flash.ioctl(5, 0)) == (3, SIZE)


def test_bits_only_fall() -> None:
    flash = CutFlash(3, SIZE)
    flash.writeblocks(1, b"\xf0\x0f", 0)
    flash.writeblocks(1, b"\x30\x0f", 0)
    assert read(flash, 1, 2) == b"\x30\x0f"
    with pytest.raises(FlashError, match="would raise a bit"):
        flash.writeblocks(1, b"\x31", 0)


@pytest.mark.parametrize(
    "block, data, offset, message",
    [
        (1, b"x", None, "erases first"),
        (3, b"x", 0, "no sector 3"),
        (1, bytes(10), SIZE - 9, "crosses the end"),
        (2, bytes(10), SIZE - 9, "beyond the end"),
    ],
)
def test_what_the_caller_must_not_do_is_refused(
    block: int, data: bytes, offset: int | None, message: str
) -> None:
    with pytest.raises(FlashError, match=message):
        CutFlash(3, SIZE).writeblocks(block, data, offset)


def test_an_erase_raises_all_bits_of_one_sector_and_is_counted() -> None:
    flash = CutFlash(3, SIZE)
    flash.writeblocks(0, BODY, 0)
    flash.writeblocks(1, BODY, 0)
    flash.ioctl(6, 1)
    assert read(flash, 1, SIZE) == b"\xff" * SIZE
    assert read(flash, 0, len(BODY)) == BODY
    assert flash.erases == [0, 1, 0]
    assert flash.time_us > 45000


def test_a_stuck_sector_does_not_come_blank() -> None:
    flash = CutFlash(3, SIZE)
    flash.stuck[1] = True
    flash.ioctl(6, 1)
    assert read(flash, 1, SIZE) != b"\xff" * SIZE


def test_without_power_nothing_works_until_revived() -> None:
    flash = CutFlash(3, SIZE)
    flash.arm(0, 3)
    with pytest.raises(PowerCut):
        flash.writeblocks(1, BODY, 0)
    with pytest.raises(PowerCut):
        read(flash, 1, 1)
    with pytest.raises(PowerCut):
        flash.ioctl(6, 1)
    flash.revive()
    assert read(flash, 1, 5) == BODY[:3] + b"\xff\xff"


def test_a_clean_cut_leaves_exactly_the_bytes_before_it() -> None:
    for byte in range(len(BODY) + 1):
        assert read(cut(CLEAN, byte), 1, len(BODY)) == BODY[:byte] + b"\xff" * (len(BODY) - byte)


def test_a_torn_byte_lies_between_old_and_new() -> None:
    seen = set()
    for seed in range(40):
        data = read(cut(TORN, 7, seed), 1, 10)
        assert data[:7] == BODY[:7]
        assert data[7] & BODY[7] == BODY[7]
        assert data[8:] == b"\xff\xff"
        seen.add(data[7])
    assert len(seen) > 5


def test_scattered_bits_fall_in_all_of_the_program() -> None:
    data = read(cut(SCATTER, 20), 1, SIZE)
    assert data[:40] != BODY
    assert all(a & b == b for a, b in zip(data, BODY, strict=False))
    assert any(a != 255 for a in data[20:40])
    assert data[40:] == b"\xff" * (SIZE - 40)


def test_decay_reads_well_until_it_settles() -> None:
    flash = cut(DECAY, 30)
    assert read(flash, 1, 30) == BODY[:30]
    flash.settle()
    assert read(flash, 1, 30) != BODY[:30]


def test_what_appears_reads_blank_until_it_settles() -> None:
    flash = cut(APPEAR, 30)
    assert read(flash, 1, 40) == b"\xff" * 40
    flash.settle()
    assert read(flash, 1, 40) == BODY[:30] + b"\xff" * 10


def test_doubt_settles_by_itself_at_the_second_revival() -> None:
    flash = cut(APPEAR, 30)
    flash.revive()
    assert read(flash, 1, 40) == BODY[:30] + b"\xff" * 10


def test_flickering_bytes_read_differently_the_second_time() -> None:
    flash = cut(FLICKER, 40)
    assert len({read(flash, 1, 40) for _ in range(5)}) > 1


@pytest.mark.parametrize("kind", (DECAY, APPEAR, FLICKER))
def test_a_program_over_bytes_in_doubt_is_refused_and_an_erase_ends_the_doubt(kind: int) -> None:
    flash = cut(kind, 30)
    with pytest.raises(FlashError, match="in doubt"):
        flash.writeblocks(1, bytes(4), 20)
    flash.writeblocks(1, bytes(4), 100)
    flash.ioctl(6, 1)
    flash.settle()
    assert read(flash, 1, SIZE) == b"\xff" * SIZE


def test_a_cut_erase_leaves_a_mixture() -> None:
    assert read(cut_erase(CLEAN, 128), 1, SIZE) == bytes(SIZE)
    torn = read(cut_erase(TORN, 128), 1, SIZE)
    assert 0xFF in torn and any(0 < value < 255 for value in torn)
    regions = read(cut_erase(SCATTER, 128), 1, SIZE)
    assert {len(set(regions[i : i + 32])) for i in range(0, SIZE, 32)} == {1}
    assert read(cut_erase(DECAY, 128), 1, SIZE) == b"\xff" * SIZE
    assert read(cut_erase(APPEAR, 128), 1, SIZE) == bytes(SIZE)
    decayed = cut_erase(DECAY, 128)
    decayed.settle()
    assert read(decayed, 1, SIZE) not in (b"\xff" * SIZE, bytes(SIZE))


def test_equal_seeds_fail_equally() -> None:
    for kind in range(len(KINDS)):
        assert cut(kind, 25, 9).snapshot() == cut(kind, 25, 9).snapshot()
    assert cut(SCATTER, 25, 1).data != cut(SCATTER, 25, 2).data


def test_a_snapshot_brings_everything_back() -> None:
    flash = cut(DECAY, 30)
    shot = flash.snapshot()
    flash.settle()
    flash.ioctl(6, 1)
    flash.restore(shot)
    assert read(flash, 1, 30) == BODY[:30]
    assert flash.snapshot() == shot
