"""Damage that no power cut explains: the log skips what does not check, says so, and goes on."""

from __future__ import annotations

import random

import pytest
from headwater.storage.log import Log, LogError
from headwater.testing.cut_flash import CutFlash
from headwater_tools.proof.flash_sweep import (
    AFTER,
    LOG_NUMBER,
    RESERVE,
    SECTOR_SIZE,
    SECTORS,
    Model,
    life,
    perform,
)

pytestmark = pytest.mark.slow


def lived() -> tuple[CutFlash, Model]:
    flash = CutFlash(SECTORS, SECTOR_SIZE, 7)
    Log.format(flash, LOG_NUMBER)
    log = Log(flash, RESERVE)
    log.mount()
    model = Model()
    for step in life()[:110]:
        if perform(log, model, step, 0):
            model = model.after(step, 0)
            for stream, held in model.streams.items():
                for at, (n, body) in held.runs.items():
                    WRITTEN.setdefault(stream, set()).add((at, n, body))
    return flash, model


# Every run that was ever written, also of a stream that was forgotten and begun again: damage may take the
# log back to where it stood before.
WRITTEN: dict[int, set[tuple[int, int, bytes]]] = {}
LIVED, MODEL = lived()
SHOT = LIVED.snapshot()


def damage(flash: CutFlash, chance: random.Random) -> None:
    for _ in range(chance.choice((1, 1, 3, 30, 300))):
        at = chance.randrange(len(flash.data))
        kind = chance.randrange(4)
        if kind == 0:
            flash.data[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            flash.data[at : at + 40] = chance.randbytes(len(flash.data[at : at + 40]))
        elif kind == 2:
            block, other = at // SECTOR_SIZE * SECTOR_SIZE, chance.randrange(SECTORS) * SECTOR_SIZE
            flash.data[block : block + SECTOR_SIZE] = flash.data[other : other + SECTOR_SIZE]
        else:
            flash.data[at] = chance.randrange(256)


@pytest.mark.parametrize("seed", range(150))
def test_a_damaged_log_mounts_or_says_why_not_and_never_reads_wrong_bytes(seed: int) -> None:
    flash = LIVED
    flash.restore(SHOT)
    damage(flash, random.Random(seed))
    try:
        log = Log(flash, RESERVE)
        log.mount()
        buf = bytearray(SECTOR_SIZE)
        for stream in log.streams():
            for xi in range(log.first(stream), min(log.tail(stream)[0], log.first(stream) + 2000) + 1, 7):
                size = log.read_run(stream, xi, buf)
                if size:
                    bodies = [body for at, n, body in WRITTEN.get(stream, ()) if at <= xi < at + n]
                    assert buf[:size] in bodies
        for key in log.blob_keys():
            data = log.get_blob(key)
            assert data is None or len(data) == log.blob_size(key)
    except LogError as error:
        assert len(str(error)) > 20
        return
    model = MODEL.copy()
    for stream in MODEL.streams:
        model.streams[stream].last, model.streams[stream].ts = log.tail(stream)
    for step in AFTER:
        if perform(log, model, step, 5):
            model = model.after(step, 5)
    log = Log(flash, RESERVE)
    log.mount()
    assert log.tail(1) == (model.streams[1].last, model.streams[1].ts)


def test_a_damaged_blob_reads_as_none_and_is_counted() -> None:
    flash = CutFlash(8, 512, 1)
    Log.format(flash, 1)
    log = Log(flash)
    log.mount()
    log.put_blob(1, bytes(range(200)))
    at = flash.data.index(bytes(range(100, 110)))
    flash.data[at] ^= 4
    assert log.get_blob(1) is None
    assert log.stats()["skipped"] > 0
