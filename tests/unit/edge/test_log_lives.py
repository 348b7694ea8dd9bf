"""Long lives of a log: many turns of the ring, and at any moment a restart finds all that is held.

Short lives do not get far enough: a sector has to be skipped, freed, freed again, used, and read in a later
boot before it shows that the log took it for void.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from headwater.storage.log import Log
from headwater.testing.cut_flash import KINDS, CutFlash, PowerCut
from headwater_tools.proof.flash_sweep import Held, Model, Step, differences, perform

pytestmark = pytest.mark.slow

SECTOR_SIZE, RESERVE = 768, (300,)
ECG, QUIET, SPILL = 1, 2, 700


class Life:
    """A log, what it should hold, and a second device on which it is restarted at any moment."""

    def __init__(self, make: Any, sectors: int) -> None:
        self.make = make
        self.flash = CutFlash(sectors, SECTOR_SIZE, 7)
        self.copy = CutFlash(sectors, SECTOR_SIZE, 7)
        make.format(self.flash, 5)
        self.model = Model()
        self.done = 0
        self.mount()

    def mount(self) -> None:
        while True:
            self.flash.revive()
            self.log = self.make(self.flash, RESERVE, 256)
            try:
                self.log.mount()
                return
            except PowerCut:
                continue

    def forget_trims(self) -> None:
        """A restart may not know of a trim that was not made durable."""
        for stream, held in self.model.streams.items():
            held.first = min(held.first, max(held.floor, self.log.first(stream)))

    def step(self, step: Step) -> list[str]:
        self.done += 1
        if step[0] == "restart":
            self.mount()
            self.forget_trims()
            return []
        try:
            if perform(self.log, self.model, step, self.done):
                self.model = self.model.after(step, self.done)
            return []
        except PowerCut:
            self.mount()
        after = self.model.after(step, self.done)
        if not differences(self.log, after):
            self.model = after
        problems = differences(self.log, self.model)
        self.forget_trims()
        return problems

    def restarted(self) -> list[str]:
        """What a restart at this moment would get wrong."""
        self.copy.restore(self.flash.snapshot())
        self.copy.revive()
        log = self.make(self.copy, RESERVE, 256)
        log.mount()
        return differences(log, self.model)


def drawn(r: random.Random) -> Iterator[Step]:
    while True:
        stream = r.choice((ECG, ECG, ECG, QUIET, SPILL))
        key = r.randint(0, 4)
        steps: tuple[tuple[int, Step], ...] = (
            (50, ("append", stream, r.randint(1, 40), r.randint(20, 180))),
            (15, ("trim", stream, r.choice((0, 5, 40, 100, 400)))),
            (15, ("idle",)),
            (6, ("put", key, r.randint(0, 40))),
            (6, ("blob", key, r.randint(1, 400))),
            (1, ("blob", key, r.randint(400, 1200))),
            (1, ("rename", key, r.randint(0, 4))),
            (1, ("dropblob", key)),
            (1, ("drop", key)),
            (1, ("start", stream, r.choice((0, 1, 1000)))),
            (1, ("forget", stream)),
            (1, ("sync",)),
            (1, ("restart",)),
        )
        yield r.choices([step for _, step in steps], [weight for weight, _ in steps])[0]


def lived(make: Any, seed: int, sectors: int, cuts: float, steps: int = 500) -> list[str]:
    """The first that went wrong in the life of this seed, of a log with so many sectors."""
    r = random.Random(seed)
    life = Life(make, sectors)
    for step in drawn(r):
        if step[0] == "start" and life.model.streams.get(step[1], Held()).last == 0:
            continue
        if r.random() < cuts:
            life.flash.arm(life.flash.op + r.randrange(8), r.randrange(200), r.randrange(len(KINDS)))
        wrong = life.step(step)
        if not wrong and life.done % 9 == 0:
            wrong = differences(life.log, life.model) + life.restarted()
        if wrong or life.done >= steps:
            return ["step %d %s: %s" % (life.done, step, text) for text in wrong]
    return []


@pytest.mark.parametrize("cuts", (0, 0.03), ids=("without", "with"))
@pytest.mark.parametrize("sectors", (9, 14, 20))
def test_a_restart_finds_all_that_a_long_life_holds(sectors: int, cuts: float) -> None:
    for seed in range(40):
        assert lived(Log, seed, sectors, cuts) == [], "seed %d" % seed


class VoidTwice(Log):
    """Frees a sector that is free already: it is named void twice, and stays so when it is used again."""

    def _reclaim(self, p, share, loose=False):  # type: ignore[no-untyped-def]
        if self._seq[p]:
            return super()._reclaim(p, share, loose)
        self._out.append(p)
        self._write(14, 0, self._marked([p]), 1)
        return True


class TrimNotSaid(Log):
    """Frees a sector without saying first that what was not copied is trimmed."""

    reclaiming = False

    def _reclaim(self, p, share, loose=False):  # type: ignore[no-untyped-def]
        self.reclaiming = True
        try:
            return super()._reclaim(p, share, loose)
        finally:
            self.reclaiming = False

    def sync(self, floor=1):  # type: ignore[no-untyped-def]
        if not self.reclaiming:
            super().sync(floor)


@pytest.mark.parametrize("mutant", (VoidTwice, TrimNotSaid))
def test_long_lives_turn_red(mutant: Any) -> None:
    assert any(lived(mutant, seed, sectors, 0) for seed in range(60) for sectors in (14, 20))


# One entry of a quiet stream pins the sector that the ring has just skipped when the log is full. The append
# that is refused frees it by copying; then the samples are trimmed, and idle time frees it once more.
FULL: list[Step] = [("append", ECG, 1, 150)] * 26
TWICE: list[Step] = [
    *[("append", ECG, 1, 150)] * 6,
    ("append", QUIET, 1, 20),
    *[*FULL, ("trim", ECG, 0), ("idle",)] * 5,
]


# The ring has just skipped the sector that a quiet stream pins when its entry is trimmed, in RAM alone.
UNSAID: list[Step] = [
    ("append", QUIET, 1, 20),
    *[("append", ECG, 1, 150), ("trim", ECG, 0)] * 40,
    ("trim", QUIET, 0),
    ("idle",),
]


@pytest.mark.parametrize("steps, wrong", ((TWICE, VoidTwice), (UNSAID, TrimNotSaid)))
def test_a_sector_that_is_freed_costs_nothing_that_a_restart_knows_of(steps: list[Step], wrong: Any) -> None:
    for make in (Log, wrong):
        life = Life(make, 14)
        problems = [text for step in steps for text in life.step(step) + life.restarted()]
        assert (problems == []) is (make is Log)
