"""`hw bench flash`: what the ring log programs, erases and survives."""

from __future__ import annotations

import argparse
from array import array
from collections.abc import Callable

from headwater.data import block
from headwater.data.alphabet import Alphabet
from headwater.data.batch import Batch
from headwater.storage.log import Log
from headwater.testing.cut_flash import CutFlash

from ..environment import ROOT
from ..errors import UserError
from ..proof.flash_sweep import sweep
from . import Measure, at_most

SUMMARY = "flash programmed and erased for each byte logged, endurance, the power-cut sweep"

SECTORS, SECTOR_SIZE = 512, 4096  # a partition of 2 MiB
RATE_HZ, BATCH = 360, 360
EVERY = 500  # elements between checkpoints
CHECKPOINT_BYTES, FACT_BYTES = 250, 40
CYCLES = 100_000  # erases that a sector of NOR flash survives
ECG, BOOT, NAME, PERMANENT, PENDING = 0, 1, 2, 3, 4
AMPLIFICATION_MAX = 1.15

# Measured on littlefs with MicroPython's own settings and a counting device: append of 64 B and flush.
LITTLEFS = "littlefs, append of 64 B + flush: 34 bytes programmed a byte, 1.03 erases, 50 ms"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hours", type=int, default=24, help="how long SP1 is logged (24); figures for a day are scaled"
    )
    parser.add_argument(
        "--sweep",
        choices=("none", "part", "quick", "full"),
        default="quick",
        help="cut power at every byte: one kind of cut a byte and some cut again (quick, a minute or two), "
        "the same at every 100th byte (part), every kind at every byte and every 7th cut again (full, hours)",
    )


class Life:
    """A log on 2 MiB of flash that is fed the electrocardiogram, a second at a time."""

    def __init__(self) -> None:
        self.flash = CutFlash(SECTORS, SECTOR_SIZE, 1)
        Log.format(self.flash, 0x5EED)
        self.log = Log(self.flash, reserve=4 * (CHECKPOINT_BYTES,))
        self.log.mount()
        self.log.put(BOOT, bytes(8))
        self.log.put(NAME, bytes(FACT_BYTES))
        samples = array("h", (ROOT / "tests" / "data" / "ecg208-360hz.i16").read_bytes())
        alphabet = Alphabet("mV:i16")
        self.blocks: list[bytes] = []
        batch = Batch(alphabet, BATCH)
        buf = bytearray(block.bound(alphabet, BATCH))
        for i in range(len(samples) // BATCH):
            batch.cols[0][:] = samples[i * BATCH : (i + 1) * BATCH]
            batch.n, batch.xi, batch.dt = BATCH, 1_000_000_001 + i * BATCH, 2778
            batch.ts = 1_800_000_000_000_000 + i * 1_000_000
            self.blocks.append(bytes(buf[: block.encode(batch, 0, BATCH, buf, 0)]))
        self.xi = 1
        self.bodies = 0
        self.programs: list[int] = []
        self.erases: list[int] = []
        self.times_us: list[int] = []

    def second(self) -> bool:
        flash = self.flash
        body = self.blocks[self.xi // BATCH % len(self.blocks)]
        before = (flash.programs, sum(flash.erases), flash.time_us)
        if not self.log.append_run(ECG, self.xi, BATCH, 1_800_000_000_000_000 + self.xi * 2778, body):
            return False
        self.programs.append(flash.programs - before[0])
        self.erases.append(sum(flash.erases) - before[1])
        self.times_us.append(flash.time_us - before[2])
        self.bodies += len(body)
        self.xi += BATCH
        return True

    def checkpoint(self) -> None:
        """Planned, permanent, named; what it covers is trimmed."""
        state = self.xi.to_bytes(8, "little") * (CHECKPOINT_BYTES // 8 + 1)
        self.log.put_blob(PENDING, state[:CHECKPOINT_BYTES])
        self.log.rename_blob(PENDING, PERMANENT)
        self.log.put(NAME, state[:FACT_BYTES])
        self.log.trim(ECG, self.xi - 1)
        self.bodies += CHECKPOINT_BYTES + FACT_BYTES

    def idle(self) -> None:
        while self.log.idle():
            pass

    def mount_ms(self) -> float:
        before = self.flash.time_us
        Log(self.flash, reserve=4 * (CHECKPOINT_BYTES,)).mount()
        return (self.flash.time_us - before) / 1000


def run(args: argparse.Namespace, say: Callable[[str], None]) -> list[Measure]:
    if not 1 <= args.hours <= 24:
        raise UserError("--hours %d: 1 to 24" % args.hours)
    say("samples alone, until the log is full")
    logged = Life()
    fresh_ms = logged.mount_ms()
    logged = Life()
    logged.checkpoint()
    logged.bodies = 0
    start = logged.flash.programmed
    while logged.second():
        logged.idle()
    amplification = (logged.flash.programmed - start) / logged.bodies
    body_bytes = logged.bodies / len(logged.programs)
    full_ms = logged.mount_ms()

    say("SP1 for %d hours: samples, checkpoints, facts" % args.hours)
    day = Life()
    day.idle()
    start = day.flash.programmed
    erased = sum(day.flash.erases)
    due = EVERY
    while day.xi < args.hours * 3600 * RATE_HZ:
        if not day.second():
            raise AssertionError("the log is full although every checkpoint trims it")
        day.idle()
        while day.xi > due:
            due += EVERY
            day.checkpoint()
            day.idle()
    erases_a_day = (sum(day.flash.erases) - erased) * 24 // args.hours
    spread = max(day.flash.erases) - min(day.flash.erases)
    plain = sorted(day.times_us)

    say("beside it, measured elsewhere: " + LITTLEFS)
    say("times are modelled: 0.03 ms a call, 0.4 ms a page programmed, 45 ms an erase, 10 MB/s read")
    measures = [
        at_most("programmed per packed byte, samples", round(amplification, 4), "", AMPLIFICATION_MAX),
        Measure("packed bytes of a record, mean", round(body_bytes, 1), "B"),
        Measure(
            "programmed per byte, SP1 with checkpoints and facts",
            round((day.flash.programmed - start) / day.bodies, 4),
        ),
        Measure("programs per append, mean", round(sum(day.programs) / len(day.programs), 3)),
        Measure("programs per append, most (a new sector)", max(day.programs)),
        at_most("erases within appends of a day", sum(day.erases), "", 0),
        Measure("append, median", plain[len(plain) // 2] / 1000, "ms"),
        Measure("append, worst of a day", plain[-1] / 1000, "ms"),
        Measure("erases a day, SP1 on 2 MiB", erases_a_day),
        Measure("erases of the sectors differ by", spread, "", None),
        Measure(
            "years to %d erases of a sector" % CYCLES, round(CYCLES * SECTORS / erases_a_day / 365.25, 1), "a"
        ),
        Measure("hours of samples that 2 MiB hold", round(len(logged.programs) / 3600, 2), "h"),
        Measure("mount, empty", round(fresh_ms, 1), "ms"),
        Measure("mount, after a day of SP1", round(day.mount_ms(), 1), "ms"),
        Measure("mount, full", round(full_ms, 1), "ms"),
    ]
    if args.sweep != "none":
        say("power-cut sweep, %s" % args.sweep)
        report = sweep(say, full=args.sweep == "full", part=args.sweep == "part")
        for line in report.first_wrong:
            say("  wrong: " + line)
        measures += [
            Measure("sweep: programs, erases of the life", "%d, %d" % (report.programs, report.erases)),
            Measure("sweep: cuts", report.cuts),
            Measure("sweep: cut again while mounting", report.nested),
            at_most("sweep: wrong recoveries", report.wrong, "", 0),
        ]
    return measures
