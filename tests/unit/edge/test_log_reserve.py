"""A log keeps its reserve: however full of samples it is, checkpoints and facts find room, in every boot."""

from __future__ import annotations

import random

import pytest
from headwater.storage.log import Log, sectors_for
from headwater.testing.cut_flash import KINDS, CutFlash, PowerCut

pytestmark = pytest.mark.slow

SECTOR_SIZE = 1024
STREAM, FACTS, TABLE_BYTES = 1, 6, 480


class Life:
    """A board whose log has the fewest sectors that its blobs allow, with power cuts at any moment."""

    def __init__(self, seed: int) -> None:
        self.random = r = random.Random(seed)
        self.sizes = [r.choice((20, 150, 400, 700, 2500)) for _ in range(r.randint(1, 6))]
        self.reserve = (*self.sizes, max(self.sizes))
        usable = SECTOR_SIZE - 64 - 16 - 32 - TABLE_BYTES
        sectors = max(5, 3 + sectors_for(self.reserve, usable) + 2 + r.randint(0, 6))
        self.flash = CutFlash(sectors, SECTOR_SIZE, seed)
        Log.format(self.flash, 77)
        self.blobs: dict[int, bytes] = {}
        self.facts: dict[int, bytes] = {}
        self.accepted = self.refused = 0
        self.boot()

    def boot(self) -> None:
        while True:
            self.flash.revive()
            self.log = Log(self.flash, (), 256)
            try:
                self.log.mount()
                self.log.put(0, self.random.randbytes(4))  # the boot number: before the reserve is known
                self.log.ensure_reserve(self.reserve)
                return
            except PowerCut:
                continue

    def step(self) -> None:
        r = self.random
        if r.random() < 0.02:
            self.flash.arm(
                self.flash.op + r.randrange(20), r.choice((0, 3, 20, 200)), r.randrange(len(KINDS))
            )
        what = r.random()
        try:
            if what < 0.6:
                self.sample()
            elif what < 0.75:
                key = r.randrange(len(self.sizes))
                self.log.put_blob(key, r.randbytes(r.randint(1, self.sizes[key])))
            elif what < 0.9:
                self.log.put(r.randrange(1, FACTS), r.randbytes(r.randint(0, 20)))
            elif what < 0.93:
                self.log.drop_blob(r.randrange(len(self.sizes)))
            elif what < 0.96:
                last = self.log.tail(STREAM)[0]
                self.log.trim(STREAM, last - r.choice((0, 0, 3, 30, 300)))
            elif what < 0.99:
                self.log.idle()
            else:
                self.boot()
        except PowerCut:
            self.boot()

    def sample(self) -> None:
        last = self.log.tail(STREAM)[0]
        if self.log.append_run(
            STREAM, last + 1, 1, last, self.random.randbytes(self.random.randint(20, 120))
        ):
            self.accepted += 1
        else:
            self.refused += 1


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_blobs_and_facts_always_find_room_beside_a_full_log(first: int) -> None:
    refused = 0
    for seed in range(first, first + 20):
        life = Life(seed)
        for _ in range(400):
            life.step()
        refused += life.refused
        before = life.accepted
        for _ in range(200):  # a consumer says again, in every boot, what it has
            life.log.trim(STREAM, life.log.tail(STREAM)[0])
            life.step()
        assert life.accepted > before, "seed %d: nothing is accepted any more" % seed
    assert refused > 200  # the logs were full indeed


def test_what_was_copied_away_stays_void_after_a_restart() -> None:
    flash = CutFlash(12, SECTOR_SIZE, 3)
    Log.format(flash, 77)
    log = Log(flash, (), 256)
    log.mount()
    xi = 0
    for turn in range(40):
        while log.append_run(STREAM, xi + 1, 1, xi, bytes(100)):
            xi += 1
        log.trim(STREAM, xi - 30)  # the oldest sector holds little that lives
        log.put_blob(1, bytes(100 + turn))
        free = log.free_bytes()
        log.sync()
        again = Log(flash, (), 256)
        again.mount()
        assert again.free_bytes() >= free - SECTOR_SIZE
        log = again


def test_a_record_that_is_too_long_for_its_head_is_refused_in_a_large_sector() -> None:
    flash = CutFlash(8, 16384, 3)
    Log.format(flash, 77)
    log = Log(flash)
    log.mount()
    log.put(1, b"kept")
    assert log.append_run(STREAM, 1, 1, 1, bytes(4090)) is False
    assert log.append_run(STREAM, 1, 1, 1, bytes(4089)) is True
    log.put_blob(1, bytes(9000))
    again = Log(flash)
    again.mount()
    assert (again.tail(STREAM), again.get(1), again.blob_size(1)) == ((1, 1), b"kept", 9000)


@pytest.mark.parametrize("seed", range(3))
def test_streams_that_fill_the_log_take_nothing_of_the_reserve(seed: int) -> None:
    """One stream is never trimmed, and checkpoints lie between its runs: what lives is copied together again
    and again to make room, and the room is not the streams'."""
    r = random.Random(seed)
    flash = CutFlash(48, 4096)
    Log.format(flash, 9)
    log = Log(flash)
    log.mount()
    log.ensure_reserve([300] * 21)
    lasts, safes = [0, 0, 0], [0, 0, 0]
    for step in range(1200):
        for k in range(3):
            body = r.randbytes(r.randrange(50, 400))
            if r.random() < 0.5 and log.append_run(k * 8, lasts[k] + 1, 1, step + 1, body):
                lasts[k] += 1
        for _ in range(r.randrange(7)):
            log.put_blob(r.randrange(20) * 4, r.randbytes(r.randrange(60, 300)))  # LogFull is the failure
        safes[0] = max(safes[0], lasts[0] - 3)
        safes[1] = min(lasts[1], safes[1] + r.randrange(2))
        for k in (0, 1):
            log.trim(k * 8, safes[k])
    assert log.first(16) == 1 and lasts[2] > 100
