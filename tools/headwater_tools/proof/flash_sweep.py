"""The power-cut sweep: a scripted history of a flash log, cut at every byte of every program and in every
erase.

After each cut the log is mounted and compared with a model: everything acknowledged is there and equal,
nothing else is, and the interrupted call has happened wholly or not at all. Then the cells in doubt settle,
it is compared again, continues (with other contents than before, so that nothing may be given out twice), is
compared, mounted and compared again. Nested: power fails again in the first mount after the cut.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from headwater.storage.log import Log, LogError, LogFull
from headwater.testing.cut_flash import KINDS, CutFlash, FlashError, PowerCut

Step = tuple[Any, ...]

SECTORS = 16
SECTOR_SIZE = 768
RESERVE = (300,)
LOG_NUMBER = 0x0123456789ABCDEF
PERIOD_US = 2777
ERASE_SHARES = (0, 90, 200, 255)  # how far a cut erase has got, of 256

# What a defective log may raise; anything except LogFull is wrong.
FAILURES = (LogError, FlashError, IndexError, KeyError, ValueError, TypeError, AttributeError, RuntimeError)

ECG, PULSE, BUTTON, SPILL = 1, 2, 3, 700


@dataclass
class Held:
    """What the model knows about a stream. `floor`: below it nothing may be read any more."""

    last: int = 0
    ts: int = 0
    first: int = 1
    floor: int = 1
    runs: dict[int, tuple[int, bytes]] = field(default_factory=dict)

    def copy(self) -> Held:
        return Held(self.last, self.ts, self.first, self.floor, dict(self.runs))


@dataclass
class Model:
    streams: dict[int, Held] = field(default_factory=dict)
    facts: dict[int, bytes] = field(default_factory=dict)
    blobs: dict[int, bytes] = field(default_factory=dict)

    def copy(self) -> Model:
        return Model({k: s.copy() for k, s in self.streams.items()}, dict(self.facts), dict(self.blobs))

    def after(self, step: Step, salt: int) -> Model:
        """What holds once the step is done."""
        new = self.copy()
        name = step[0]
        if name == "append":
            held = new.streams.setdefault(step[1], Held())
            xi, n, ts, body = run_of(held, step, salt)
            held.runs[xi] = (n, body)
            held.last = xi + n - 1
            held.ts = ts
        elif name == "trim":
            held = new.streams.get(step[1], Held())
            held.first = max(held.first, held.last - step[2] + 1)
        elif name == "sync":
            for held in new.streams.values():
                held.floor = held.first
        elif name == "start":
            held = new.streams.setdefault(step[1], Held())
            held.last += step[2]
            held.ts += 1000
            held.first = held.floor = held.last + 1
            held.runs = {}
        elif name == "forget":
            new.streams.pop(step[1], None)
        elif name == "put":
            new.facts[step[1]] = content(step[1], step[2], salt)
        elif name == "drop":
            new.facts.pop(step[1], None)
        elif name == "blob":
            new.blobs[step[1]] = content(step[1], step[2], salt)
        elif name == "rename":
            if step[1] in new.blobs:
                new.blobs[step[2]] = new.blobs.pop(step[1])
        elif name == "dropblob":
            new.blobs.pop(step[1], None)
        return new


@lru_cache(maxsize=4096)
def content(key: int, size: int, salt: int) -> bytes:
    """Bytes that distinguish one write from another."""
    state = (key * 7919 + size * 104729 + salt * 15485863 + 1) & 0xFFFFFFFF
    out = bytearray()
    while len(out) < size:
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        out += state.to_bytes(4, "little")[1:]
    return bytes(out[:size])


def run_of(held: Held, step: Step, salt: int) -> tuple[int, int, int, bytes]:
    _, stream, n, size = step[:4]
    far = step[4] if len(step) > 4 else 0
    return held.last + 1, n, held.ts + n * PERIOD_US + far, content(stream * 65537 + held.last, size, salt)


def perform(log: Log, model: Model, step: Step, salt: int) -> bool:
    """Does the step; False if the log refused it because it was full."""
    name = step[0]
    try:
        if name == "append":
            xi, n, ts, body = run_of(model.streams.get(step[1], Held()), step, salt)
            return bool(log.append_run(step[1], xi, n, ts, body))
        if name == "trim":
            log.trim(step[1], log.tail(step[1])[0] - step[2])
        elif name == "sync":
            log.sync()
        elif name == "start":
            held = model.streams.get(step[1], Held())
            log.start_stream(step[1], held.last + step[2], held.ts + 1000)
        elif name == "forget":
            log.forget(step[1])
        elif name == "put":
            log.put(step[1], content(step[1], step[2], salt))
        elif name == "drop":
            log.drop(step[1])
        elif name == "blob":
            data = content(step[1], step[2], salt)
            third = step[2] // 3
            log.put_blob(step[1], [data[:third], b"", data[third:]] if step[1] & 1 else data)
        elif name == "rename":
            if step[1] in model.blobs:
                log.rename_blob(step[1], step[2])
        elif name == "dropblob":
            log.drop_blob(step[1])
        elif name == "idle":
            for _ in range(3):
                log.idle()
    except LogFull:
        return False
    return True


def differences(log: Log, model: Model) -> list[str]:
    """Where the log is not what the model says; empty when it is."""
    out: list[str] = []
    held_streams = [stream for stream in log.streams() if log.tail(stream) != (0, 0)]
    if held_streams != sorted(model.streams):
        out.append("streams %s, should be %s" % (held_streams, sorted(model.streams)))
        return out
    buf = bytearray(SECTOR_SIZE)
    for stream, held in model.streams.items():
        if log.tail(stream) != (held.last, held.ts):
            out.append("stream %d: tail %s, should be %s" % (stream, log.tail(stream), (held.last, held.ts)))
            continue
        first = log.first(stream)
        if not held.floor <= first <= held.first:
            out.append("stream %d: first %d, should be in %d..%d" % (stream, first, held.floor, held.first))
        for xi, (n, body) in held.runs.items():
            if xi + n > first:
                size = log.read_run(stream, max(xi, first), buf)
                if buf[:size] != body:
                    out.append("stream %d: xi %d reads %d bytes, wrong ones" % (stream, xi, size))
                    break
    facts = {key: log.get(key) for key in log.keys()}
    if facts != model.facts:
        out.append("facts %s, should be %s" % (sorted(facts), sorted(model.facts)))
    if log.blob_keys() != sorted(model.blobs):
        out.append("blobs %s, should be %s" % (log.blob_keys(), sorted(model.blobs)))
    else:
        for key, data in model.blobs.items():
            if log.blob_size(key) != len(data) or log.get_blob(key) != data:
                out.append("blob %d is not what was stored" % key)
    return out


def life() -> list[Step]:
    """The scripted history: every kind of record, several turns of the ring, a full log."""
    steps: list[Step] = [
        ("append", BUTTON, 1, 20),
        ("append", BUTTON, 2, 24),
        ("trim", BUTTON, 0),
        ("put", 1, 8),
        ("put", 2, 40),
        ("blob", 10, 60),
        ("append", PULSE, 3, 30),
        ("idle",),
    ]
    for turn in range(24):  # an electrocardiogram turns the ring; its consumer checkpoints
        steps += [("append", ECG, 36, 60 + 7 * (turn % 5)), ("append", ECG, 36, 90)]
        if turn % 2:
            steps += [("put", 3, 24), ("blob", 11, 70), ("rename", 11, 10), ("trim", ECG, 72)]
        if turn % 5 == 1:
            steps += [("append", PULSE, 1, 25), ("sync",)]
        if turn % 7 == 3:
            steps += [("blob", 12, 360 + 12 * (turn % 11)), ("idle",)]
        if turn % 7 == 5:
            steps += [("rename", 12, 13), ("put", 4 + turn % 3, 9)]
        if turn == 9:
            steps += [("start", SPILL, 1000), ("append", SPILL, 500, 40), ("dropblob", 13), ("drop", 1)]
        if turn == 13:
            steps += [("append", SPILL, 9, 31, 1 << 33), ("start", SPILL, 1 << 40), ("append", SPILL, 5, 33)]
        if turn == 15:
            steps += [
                ("trim", ECG, 0),
                ("trim", PULSE, 0),
                ("forget", SPILL),
                ("append", SPILL, 2, 41),
                ("forget", SPILL),
                ("append", SPILL, 3, 42),
            ]
        if turn % 3 != 2:
            steps += [("idle",)]
    steps += [("append", ECG, 36, 100)] * 18  # its consumer is gone: the log fills up
    steps += [("put", 2, 41), ("blob", 10, 61), ("blob", 14, 300), ("dropblob", 14)]
    steps += [("trim", ECG, 36 * 9), ("append", ECG, 36, 100), ("trim", ECG, 30), ("sync",), ("idle",)]
    steps += [("append", ECG, 36, 100), ("idle",), ("append", ECG, 36, 80), ("append", PULSE, 1, 20)]
    return steps


# What a log does after it has recovered: enough to open another sector.
AFTER: tuple[Step, ...] = (
    ("append", ECG, 30, 90),
    ("append", PULSE, 1, 20),
    ("put", 3, 24),
    ("idle",),
    ("blob", 10, 120),
    ("append", ECG, 30, 90),
    ("append", ECG, 30, 90),
)


def _copied(value: Any) -> Any:
    if isinstance(value, (bytearray, array, list)):
        return value[:]
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if hasattr(value, "birth"):
        new = object.__new__(type(value))
        new.__dict__.update({key: _copied(item) for key, item in vars(value).items()})
        return new
    return value


def clone(log: Log, flash: CutFlash) -> Log:
    """The same log as an object of its own, on another device of equal contents."""
    new = object.__new__(type(log))
    new.__dict__.update({k: flash if v is log._dev else _copied(v) for k, v in vars(log).items()})
    return new


@dataclass
class Report:
    """What a sweep has covered, and the first of what went wrong."""

    steps: int = 0
    programs: int = 0
    erases: int = 0
    cuts: int = 0
    nested: int = 0
    wrong: int = 0
    first_wrong: list[str] = field(default_factory=list)

    def note(self, where: str, problems: list[str]) -> None:
        self.wrong += 1
        if len(self.first_wrong) < 5:
            self.first_wrong.append("%s: %s" % (where, "; ".join(problems[:3])))

    def add(self, other: Report) -> None:
        self.cuts += other.cuts
        self.nested += other.nested
        self.wrong += other.wrong
        self.first_wrong = (self.first_wrong + other.first_wrong)[:5]


class Sweep:
    """One history, swept. `every`: 1 cuts at every byte, with one kind of cut each, taken in turn; `kinds`
    "all" takes each kind at each. `nested_every`: every n-th cut is followed by another one in the mount."""

    def __init__(
        self,
        make: Callable[..., Log] = Log,
        steps: list[Step] | None = None,
        sectors: int = SECTORS,
        sector_size: int = SECTOR_SIZE,
        all_kinds: bool = False,
        byte_stride: int = 1,
        nested_every: int = 0,
        nested_stride: int = 0,
        stop_at_wrong: int = 0,
        part: tuple[int, int] = (0, 1),
    ) -> None:
        self.make = make
        self.steps = life() if steps is None else steps
        self.all_kinds = all_kinds
        self.byte_stride = byte_stride
        self.nested_every = nested_every
        self.nested_stride = nested_stride
        self.stop_at_wrong = stop_at_wrong
        self.part = part
        self.report = Report(steps=len(self.steps))
        self.flash = CutFlash(sectors, sector_size, 7)
        self.work = CutFlash(sectors, sector_size, 7)

    def run(self) -> Report:
        flash = self.flash
        self.make.format(flash, LOG_NUMBER)  # type: ignore[attr-defined]
        log = self.make(flash, RESERVE)
        log.mount()
        model = Model()
        for number, step in enumerate(self.steps):
            shot = flash.snapshot()
            kept = clone(log, flash)
            before = model
            trace: list[tuple[int, int]] = []
            flash.trace = trace
            try:
                done = perform(log, before, step, 0)
                flash.trace = None
                model = before.after(step, 0) if done else before
                problems = differences(log, model)
            except FAILURES as error:
                problems = ["%s: %s" % (type(error).__name__, error)]
            if problems:
                self.report.note("step %d %s, no cut" % (number, step), problems)
                return self.report
            for kind, _ in trace:
                self.report.erases += kind
                self.report.programs += 1 - kind
            if number % self.part[1] == self.part[0]:
                for op, byte, how in self._cuts(trace):
                    self._one(number, step, shot, kept, before, model, op, byte, how)
                    if self.stop_at_wrong and self.report.wrong >= self.stop_at_wrong:
                        return self.report
        return self.report

    def _cuts(self, trace: list[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
        for op, (erase, length) in enumerate(trace):
            places = ERASE_SHARES if erase else tuple(range(0, length, self.byte_stride)) + (length,)
            for i, byte in enumerate(places):
                if self.all_kinds or erase:
                    for how in range(len(KINDS)):
                        yield op, byte, how
                else:
                    yield op, byte, (i + op + self.report.cuts) % len(KINDS)

    def _one(
        self,
        number: int,
        step: Step,
        shot: Any,
        kept: Any,
        before: Model,
        after: Model,
        op: int,
        byte: int,
        how: int,
    ) -> None:
        """Power fails at `byte` of operation `op` of this step."""
        report = self.report
        report.cuts += 1
        where = "step %d %s, operation %d, byte %d, %s" % (number, step, op, byte, KINDS[how])
        flash = self.work
        flash.restore(shot)
        flash.arm(flash.op + op, byte, how)
        try:
            perform(clone(kept, flash), before, step, 0)
            report.note(where, ["the cut was not reached"])
            return
        except PowerCut:
            flash.revive()
        deep = self.nested_every and report.cuts % self.nested_every == 0
        cut_shot = flash.snapshot() if deep else None
        trace = self._recover(flash, before, after, where)
        if cut_shot is None:
            return
        for again, (erase, length) in enumerate(trace):
            if erase:
                places: tuple[int, ...] = ERASE_SHARES[1:3]
            elif self.nested_stride:
                places = tuple(range(0, length, self.nested_stride)) + (length - 1, length)
            else:
                places = (0, length // 2, length - 1, length)
            for byte2 in places:
                report.nested += 1
                how2 = report.nested % len(KINDS)
                flash.restore(cut_shot)
                flash.arm(flash.op + again, byte2, how2)
                nested = "%s; then operation %d, byte %d, %s" % (where, again, byte2, KINDS[how2])
                try:
                    self.make(flash, RESERVE).mount()
                    report.note(nested, ["the second cut was not reached"])
                    continue
                except PowerCut:
                    flash.revive()
                except FAILURES as error:
                    report.note(nested, ["second cut: %s: %s" % (type(error).__name__, error)])
                    continue
                self._recover(flash, before, after, nested)

    def _recover(self, flash: CutFlash, before: Model, after: Model, where: str) -> list[tuple[int, int]]:
        """Mounts, compares, continues, mounts again, compares. Gives the operations of the first mount."""
        report = self.report
        trace: list[tuple[int, int]] = []
        flash.trace = trace
        try:
            log = self.make(flash, RESERVE)
            log.mount()
            flash.trace = None
            problems = differences(log, after)
            model = after
            if problems:
                problems = differences(log, before)
                model = before
            if problems:
                report.note(where, ["after the mount"] + problems)
                return trace
            if flash.doubt:
                flash.settle()
                problems = differences(log, model)
                if problems:
                    report.note(where, ["after cells have settled"] + problems)
                    return trace
            salt = 1000 + report.cuts
            for step in AFTER:
                if not perform(log, model, step, salt):
                    for stream in model.streams:
                        log.trim(stream, model.streams[stream].last)
                        model = model.after(("trim", stream, 0), salt)
                    if not perform(log, model, step, salt):
                        report.note(where, ["%s: refused though all is trimmed" % (step,)])
                        return trace
                model = model.after(step, salt)
            log = self.make(flash, RESERVE)
            log.mount()
            problems = differences(log, model)
            if problems:
                report.note(where, ["after living on and a second mount"] + problems)
        except FAILURES as error:
            report.note(where, ["%s: %s" % (type(error).__name__, error)])
        flash.trace = None
        return trace


def sweep(
    say: Callable[[str], None] | None = None,
    full: bool = False,
    make: Callable[..., Log] = Log,
    part: bool = False,
) -> Report:
    """Every byte of every program, four shares of every erase in every kind. Not full: one kind of cut a
    byte, and of each 101st cut the mount is cut again, in every operation at four places. Full: every kind
    at every byte, and of each 7th cut the mount is cut again at every fourth byte. `part`: as not full, at
    every 100th place."""
    total = Report()
    parts = 16 if full else 100 if part else 1
    for i in range(1 if part else parts):
        one = Sweep(
            make,
            all_kinds=full,
            nested_every=7 if full else 101,
            nested_stride=4 if full else 0,
            part=(i, parts),
        )
        report = one.run()
        report.add(total) if i else None
        total = report
        if say is not None:
            say("  sweep: %d cuts, %d nested, %d wrong" % (total.cuts, total.nested, total.wrong))
    return total
