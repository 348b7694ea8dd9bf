"""The sweep sees: each seeded defect of the log turns it red.

A mutant is the log with one seam of its code replaced, written as someone would get it wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from struct import pack
from typing import Any

import pytest
from headwater.storage import log as log_module
from headwater.storage import mounting
from headwater.storage.log import Log
from headwater.testing.cut_flash import CutFlash
from headwater_tools.proof.flash_sweep import SPILL, Step, Sweep

pytestmark = pytest.mark.slow


@contextmanager
def replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    kept = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, kept)


class BlankWithoutErase(Log):
    """Takes a sector that reads blank as erased: a cut erase may read blank and decay."""

    def _erase(self, p):
        return (self._is_blank(p) and self._mark()) or super()._erase(p)

    def _mark(self):
        self._next_cycles = 1
        return True


class HeaderBeforeErase(Log):
    """Writes the header as soon as the header's place is blank: the rest may not be."""

    def _is_blank(self, p):
        return True

    def _erase(self, p):
        head = bytearray(32)
        self._dev.readblocks(p, head, 0)
        if bytes(head) == b"\xff" * 32:
            self._next_cycles = 1
            return True
        return super()._erase(p)


class QuietTailForgotten(Log):
    """Leaves streams of which nothing lives out of the table."""

    def _entry(self, kind, key, body):
        if kind == 3 and self._streams[key].first > self._streams[key].last:
            return
        super()._entry(kind, key, body)


class LastRecordNotCopied(Log):
    """Copies all but the last record before the doubtful end."""

    _late = None

    def mount(self):
        rewrite = mounting._rewrite

        def marked(log, old, seq):
            log._late = b""
            rewrite(log, old, seq)

        with replaced(mounting, "_rewrite", marked):
            super().mount()

    def _say(self, sectors, closing=0):
        if closing:
            self._late = None
        super()._say(sectors, closing)

    def _emit(self, buf, end):
        if self._late is None or buf[5] >> 4 == 13:
            super()._emit(buf, end)
            return
        late, self._late = self._late, bytes(buf[:end])
        if late:
            again = bytearray(late) + bytearray(15)
            super()._emit(again, len(late))


class AppendsBehindDoubt(Log):
    """Goes on writing where the valid records of the newest sector end."""

    def mount(self):
        with replaced(mounting, "_rewrite", self._go_on):
            super().mount()

    @staticmethod
    def _go_on(log, old, seq):
        log._header(old)
        log._seed = seal = log._seal
        off = 32
        while log._record(old, off, seal, log.buf) is not None:
            off += log._total
        log._p = old
        log._pos = off


class CopyCountsTooEarly(Log):
    """A copied sector counts from its table on, not from its closing record."""

    def _begin(self, p, seq, copied):
        super()._begin(p, seq, 0)


class OldBlobDroppedFirst(Log):
    def _store(self, key, size, parts):
        if not self._busy:
            self.drop_blob(key)
        super()._store(key, size, parts)


class ChainWithoutClosing(Log):
    """The closing record comes before the last piece: the chain counts without being complete."""

    def _store_chain(self, key, size, parts, floor):
        self._held = None
        self._closing = True
        return super()._store_chain(key, size, parts, floor)

    _closing = False

    def _emit(self, buf, end):
        kind = (buf[5] >> 4) & 15
        if self._closing and kind == 9:
            if self._held is not None:
                super()._emit(*self._held)
            self._held = (bytearray(buf), end)
            return
        if self._closing and kind == 10:
            self._closing = False
            super()._emit(buf, end)
            super()._emit(*self._held)
            return
        super()._emit(buf, end)


class TwoPieceRename(Log):
    """Renames by dropping the old value and then moving."""

    def rename_blob(self, src, dst):
        self.drop_blob(dst)
        super().rename_blob(src, dst)


class TrimForgottenBeforeErase(Log):
    """Frees sectors by trims that flash does not know of."""

    gaining = False

    def sync(self, floor=1):
        if floor and not self.gaining:
            super().sync(floor)

    def _gain(self, *wanted):
        self.gaining = True
        try:
            return super()._gain(*wanted)
        finally:
            self.gaining = False

    def _entry(self, kind, key, body):
        if kind == 3:
            s = self._streams[key]
            body = pack("<QQIQ", s.last, s.ts, s.last + 1 - s.saved, s.birth)
            super()._entry(kind, key, body)
            s.late = s.saved
            return
        super()._entry(kind, key, body)

    def _open(self, p=-1):
        super()._open(p)
        for s in self._streams.values():
            s.saved = s.late


class LiveSectorErased(Log):
    """Takes the next sector round the ring without looking whether something lives there."""

    _choosing = False

    def _choose(self):
        self._choosing = True
        try:
            return super()._choose()
        finally:
            self._choosing = False

    def _holds(self, p):
        return not self._choosing and super()._holds(p)


class ReclaimWithoutCopy(Log):
    """Frees a pinned sector without carrying its runs forward."""

    def _runs(self, p):
        return iter(())


class FactsNotCarried(Log):
    def _open(self, p=-1):
        facts, self._facts = self._facts, {}
        super()._open(p)
        self._facts = facts


class EarlierLifeRead(Log):
    """Takes what is found under a stream's number for that stream, whenever it was written."""

    def _stream(self, key):
        s = super()._stream(key)
        begin = s.begin
        s.begin = lambda last, ts, live, birth: begin(last, ts, live, 0)
        return s


class TableSoundTooEarly(Log):
    """Uses the sector that was being opened although its table never came to its end."""

    def mount(self):
        replay = mounting._replay

        def kept(log, p, full):
            return replay(log, p, full) or (32 if full and log._header(p) else 0)

        with replaced(mounting, "_replay", kept):
            super().mount()


class LivePartNotWalked(Log):
    """Mounting leaves out sectors that still hold something."""

    def _count(self):
        super()._count()
        self._oldest = self._seq[self._p]


BLOBS: list[Step] = [("blob", 10, 60), ("blob", 10, 61), ("blob", 12, 900), ("rename", 12, 10)]
LIVES: list[Step] = [("append", SPILL, 3, 20), ("forget", SPILL), ("append", SPILL, 2, 21), ("idle",)]

# Mutant, the life in which it shows (None: the whole script), whether the mount is cut again.
MUTANTS: tuple[tuple[Any, list[Step] | None, int], ...] = (
    (BlankWithoutErase, None, 41),
    (HeaderBeforeErase, None, 41),
    (QuietTailForgotten, None, 41),
    (LastRecordNotCopied, None, 0),
    (AppendsBehindDoubt, None, 0),
    (CopyCountsTooEarly, None, 41),
    (OldBlobDroppedFirst, BLOBS, 0),
    (ChainWithoutClosing, BLOBS, 0),
    (TwoPieceRename, BLOBS, 0),
    (TrimForgottenBeforeErase, None, 0),
    (LiveSectorErased, None, 0),
    (ReclaimWithoutCopy, None, 0),
    (FactsNotCarried, None, 0),
    (EarlierLifeRead, LIVES, 0),
    (TableSoundTooEarly, None, 41),
    (LivePartNotWalked, None, 0),
)


def swept(make: Any, steps: list[Step] | None = None, nested_every: int = 0) -> int:
    return Sweep(make, steps, byte_stride=9, nested_every=nested_every, stop_at_wrong=1).run().wrong


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant[0].__name__)
def test_the_sweep_turns_red(mutant: Any) -> None:
    assert swept(*mutant) > 0


@pytest.mark.parametrize("steps", (BLOBS, LIVES), ids=("blobs", "lives"))
def test_the_short_lives_are_green_without_a_defect(steps: list[Step]) -> None:
    assert swept(Log, steps, 41) == 0


class Unseeded(Log):
    """Seals records without the seal of their sector."""

    def _header(self, p):
        seq = super()._header(p)
        self._seal = 0
        return seq

    def _begin(self, p, seq, copied):
        super()._begin(p, seq, copied)
        self._seed = 0


@pytest.mark.parametrize("make, taken", ((Log, b"new!"), (Unseeded, b"old!")))
def test_without_the_seed_a_record_of_an_earlier_sequence_is_taken(make: Any, taken: bytes) -> None:
    flash = CutFlash(8, 512, 1)
    make.format(flash, 5)
    log = make(flash)
    log.mount()
    at = log._p * 512 + log._pos
    log.put(1, b"old!")
    old = bytes(flash.data[at : at + 16])
    for k in range(100):
        log.put(2, bytes([k]))
    log.put(1, b"new!")
    at = log._p * 512 + log._pos
    flash.data[at : at + 16] = old
    log = make(flash)
    log.mount()
    assert log.get(1) == taken


def test_the_sweep_turns_red_when_no_crc_is_checked() -> None:
    same = lambda data, seed=0: 0x12345678  # noqa: E731
    with replaced(log_module, "crc32", same), replaced(mounting, "crc32", same):
        assert swept(Log) > 0
