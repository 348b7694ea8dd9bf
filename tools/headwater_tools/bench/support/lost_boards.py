"""Boards that are killed, and operators that move between boards: real processes, by the wall clock.

Virtual boards (MicroPython), Mosquitto and the gateway. One operator runs on one of two boards, its source on
a third; SIGKILL ends the board of the operator, and the other one takes over. When it does is read in its
flash, where an operator's epoch is noted before it begins; the gateway tells when its first element is
durable. The operator gives one element for each that it takes, so its stream also tells how far it was.
"""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from headwater.plan.model import Plan
from headwater.process import Affine, Process
from headwater.process.check import check
from headwater.runtime import lifecycle
from headwater.storage import checkpoint_file
from headwater.storage.keyspace import HELD, PERMANENT, checkpoint_key
from headwater.storage.log import Log

from ... import environment
from ...demo.site import Site
from ...demo.subprocesses import until
from ...errors import UserError
from .. import Measure, at_most

RATE_HZ = 50
EVERY = 1500  # 30 s: the checkpoint of a move is still there when it is looked at
BATCH = 5
DEATHS, MOVES = 3, 3
WITHIN_MS = 15_000  # of a process whose hosts are less patient
HEAP = "192k"
SECTORS = 256
SECTOR = 4096
LONGEST_S = 150.0
LOOK_S = 0.02
QUIET_S = 3.0  # after a death: what was on its way has arrived
PROCESS = "recovery"
STREAM = "recovery/shifted"
PAIR = ("chest", "ankle")


class Death(NamedTuple):
    detection: float  # seconds until another board has begun the operator
    first: float  # ... until its first new element is durable
    replayed: int  # elements that had reached the gateway, and were processed again


class Handed(NamedTuple):
    pause: float  # seconds without a new element
    usual: float  # the longest without one in the ten seconds before
    replayed: int


class Copy:
    """A board's flash as it is now, to be read only."""

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()

    def readblocks(self, block: int, buf: Any, offset: int = 0) -> None:
        start = block * SECTOR + offset
        buf[:] = self.data[start : start + len(buf)]

    def writeblocks(self, block: int, buf: Any, offset: int = 0) -> None:
        """Mounting may mend the end of the log, which does not matter in a copy."""
        start = block * SECTOR + offset
        self.data = self.data[:start] + bytes(buf) + self.data[start + len(buf) :]

    def ioctl(self, request: int, block: int) -> int:
        if request == 6:
            self.writeblocks(block, b"\xff" * SECTOR)
        return {4: len(self.data) // SECTOR, 5: SECTOR}.get(request, 0)


def process(within_ms: int) -> Process:
    p = Process(PROCESS, checkpoints="ecoc", every=EVERY, level="peer", batch=BATCH, batch_ms=100)
    for host in ("chest", "wrist", "ankle"):
        p.host(host, heap_kb=256)
    accel = p.source("accel", "x:i16 y:i16", rate_hz=RATE_HZ, on="wrist")
    shifted = accel >> Affine(num=2).named("shifted").on("chest", backup=["ankle"])
    p.lake(STREAM, shifted, within_ms=within_ms)
    return p


class Boards:
    """The site with its three boards."""

    def __init__(self, folder: Path, within_ms: int) -> None:
        self.site = Site(folder)
        self.process = process(within_ms)
        report = check(self.process)
        if report.decoded is None:
            raise UserError("; ".join(map(str, report.errors())))
        self.plan: Plan = report.decoded
        self.v = next(v.index for v in self.plan.vertices if v.name == "shifted")

    def start(self) -> None:
        site = self.site
        site.start_broker()
        site.start_gateway()
        wave = {"driver": "wave", "t0_us": time.time_ns() // 1000, "seed": 3}
        for name in ("chest", "wrist", "ankle"):
            site.add_board(name, {"accel": wave} if name == "wrist" else {}, heap=HEAP, sectors=SECTORS)
        os.kill(site.broker.pid(), 1)  # it reads the passwords of the boards again
        for board in site.boards.values():
            board.start()
        site.deploy(self.process)
        until(lambda: self.durable() > RATE_HZ, 120, "the boards give nothing: see %s" % site.folder)

    def durable(self) -> int:
        state = self.site.state()
        found = [s["durable"] for s in state["streams"] if s["stream"] == STREAM] if state else []
        return int(found[-1]) if found else 0

    def flash(self, name: str) -> tuple[int, list[int]]:
        """What a board's flash knows of the operator: its newest epoch there, where its newest checkpoint
        stands."""
        log = Log(Copy(self.site.boards[name].folder / "flash.bin"))
        log.mount()
        noted: Any = lifecycle.noted(_Store(log), self.v)  # type: ignore[arg-type]
        places: list[Any] = []
        for slot in (PERMANENT, HELD):
            place = checkpoint_file.place(self.plan.vertices[self.v], log, checkpoint_key(self.v, slot))
            if place:
                places.append(place)
        return (noted[0][0] if noted else 0), (max(places)[1] if places else [0])

    def after(self, count: int) -> float | None:
        """When the stream has more than so many elements; None if it never has."""
        end = time.monotonic() + LONGEST_S
        while self.durable() <= count:
            if time.monotonic() > end:
                return None
            time.sleep(LOOK_S)
        return time.monotonic()

    def inside(self) -> None:
        """Wait until an interval has begun a while ago, and does not end soon."""
        end = time.monotonic() + LONGEST_S
        while not 5 * RATE_HZ < self.durable() % EVERY < EVERY // 2:
            if time.monotonic() > end:
                raise UserError("the operator stands")
            time.sleep(0.1)

    def die(self, name: str, to: str) -> Death:
        """Kill the operator's board; the other one takes over."""
        before = self.flash(to)[0]
        self.site.boards[name].kill()
        died = time.monotonic()
        time.sleep(QUIET_S)
        known = self.durable()
        found: list[float | None] = []
        watching = threading.Thread(target=lambda: found.append(self.after(known)), daemon=True)
        watching.start()
        while self.flash(to)[0] <= before and watching.is_alive():
            time.sleep(LOOK_S)
        begun = time.monotonic()
        watching.join()
        first = found[0] if found else None
        if first is None:
            raise UserError("no board goes on with the operator of %s in %d s" % (name, LONGEST_S))
        replayed = max(0, known - self.flash(to)[1][0])
        return Death(min(begun, first) - died, first - died, replayed)

    def hand(self, name: str, to: str) -> Handed:
        """Have the operator moved."""
        from headwater_gateway import control

        self.inside()
        usual = self.longest(lambda since: time.monotonic() > since + 10)
        answers: list[dict[str, Any]] = []

        def ask() -> None:
            body = {"process": PROCESS, "operator": "shifted", "host": to}
            while not answers or answers[-1]["outcome"] == "under way":
                answers.append(control.ask(self.site.config, "/move", body))

        # The answer takes a while, and the stream is watched meanwhile.
        asking = threading.Thread(target=ask, name="move", daemon=True)
        asking.start()
        pause = self.longest(lambda since: not asking.is_alive() and time.monotonic() > since + 5)
        if answers[-1]["outcome"] not in ("moved", "already there"):
            raise UserError("the operator stays on %s: %s" % (name, answers[-1]["reason"]))
        stood, begun = self.flash(name)[1][0], self.flash(to)[1][0]
        return Handed(pause, usual, max(0, stood - begun))

    def longest(self, enough: Callable[[float], bool]) -> float:
        """The longest time in which nothing new came, until it is enough and something new has come."""
        longest, last, since = 0.0, self.durable(), time.monotonic()
        begun = since
        while True:
            time.sleep(LOOK_S)
            count = self.durable()
            now = time.monotonic()
            if count > last:
                longest, last, since = max(longest, now - since), count, now
                if enough(begun):
                    return longest
            elif now - begun > LONGEST_S:
                raise UserError("the operator gives nothing for %d s" % (now - since))

    def again(self, name: str) -> None:
        """The dead board comes back."""
        self.site.boards[name].start()
        self.site.boards[name].wait_for(", linked", 60)
        time.sleep(10)  # until the others have heard of it


class _Store(NamedTuple):
    """As much of a host as `lifecycle.noted` looks at."""

    store: Log


def play(
    within_ms: int, deaths: int, moves: int, say: Callable[[str], None]
) -> tuple[list[Death], list[Handed]]:
    """So many moves to and fro, then so many deaths."""
    died: list[Death] = []
    handed: list[Handed] = []
    here = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="hw-recovery-") as folder:
        boards = Boards(Path(folder), within_ms)
        try:
            os.chdir(folder)  # the path of the gateway's socket is short from here
            boards.start()
            at, other = PAIR
            for _ in range(moves):
                handed.append(boards.hand(at, other))
                say(
                    "  moved from %s to %s: %.2f s without an element, usually %.2f"
                    % (at, other, *handed[-1][:2])
                )
                at, other = other, at
            for k in range(deaths):
                boards.inside()
                time.sleep(random.uniform(0, 8))  # the later after a checkpoint, the more is replayed
                died.append(boards.die(at, other))
                say(
                    "  %s died: %s began the operator after %.1f s, its first element came after %.1f s"
                    % (at, other, *died[-1][:2])
                )
                if k + 1 < deaths:
                    boards.again(at)
                at, other = other, at
        finally:
            os.chdir(here)
            boards.site.close()
    return died, handed


def measure(quick: bool, say: Callable[[str], None]) -> list[Measure]:
    environment.ensure("gateway")
    deaths, moves = (1, 1) if quick else (DEATHS, MOVES)
    within_ms = WITHIN_MS if quick else 0
    say("boards: %d planned moves, %d deaths; a checkpoint in %d elements" % (moves, deaths, EVERY))
    died, handed = play(within_ms, deaths, moves, say)
    out = [
        at_most("boards, planned: elements replayed", sum(one.replayed for one in handed), "", 0),
        Measure(
            "boards, planned: longest time without an element, median", _s(one.pause for one in handed), "s"
        ),
        Measure("... in the ten seconds before, median", _s(one.usual for one in handed), "s"),
    ]
    less_patient = "boards, within %d s" % (WITHIN_MS // 1000)
    out += _of_deaths(less_patient if quick else "boards", died)
    if not quick:
        say("boards: a process whose lake stream has within_ms=%d" % WITHIN_MS)
        died, _ = play(WITHIN_MS, 1, 0, say)
        out += _of_deaths(less_patient, died)
    return out


def _of_deaths(name: str, died: list[Death]) -> list[Measure]:
    firsts = [one.first for one in died]
    return [
        Measure(name + ": death to takeover, median", _s(one.detection for one in died), "s"),
        Measure(
            name + ": takeover to first new element, median", _s(d.first - d.detection for d in died), "s"
        ),
        Measure(name + ": death to first new element, median", _s(firsts), "s"),
        Measure(name + ": death to first new element, worst", round(max(firsts), 2), "s"),
        Measure(name + ": elements at the gateway that were replayed, worst", max(d.replayed for d in died)),
    ]


def _s(values: Iterable[float]) -> float:
    return round(statistics.median(values), 2)
