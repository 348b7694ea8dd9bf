"""Kills the sink, JVM and Python, with SIGKILL, repeatedly, and judges the lake after each death.

A substitute for the gateway keeps sending, and deletes what is acknowledged: rows that are acknowledged too
early are lost. One lake for each crash point; each run of the sink but the last is killed, and is the
recovery of the one before it.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater_cloud import crash_points, store
from headwater_cloud.location import Location

from ..environment import variables
from ..environment.s3 import Server
from ..errors import UserError
from .ledger import Ledger, Verdict

START_S = 120.0  # until a sink has done its first batch, on a machine with other work
LIFE_S = 120.0  # until a crash point is reached
PAUSE_S = 0.15  # between two segments of the gateway
WAITING_MAX = 15  # segments that may wait: a slow machine takes no longer for the same number of kills

# A JVM that runs for seconds: a quick start matters more than fast code.
SPARK = (
    "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory=512m",
)

MAINTENANCE = ("optimizing", "vacuuming", "settled", "forgotten")


def _lose_checkpoint(lake: Location, landing: Location) -> None:
    store.clear(lake / "checkpoint")


def _lose_commit(lake: Location, landing: Location) -> None:
    _remove_newest(lake / "checkpoint" / "commits")


def _lose_offsets(lake: Location, landing: Location) -> None:
    """The newest batch's offsets, while new files wait."""
    _remove_newest(lake / "checkpoint" / "commits")
    _remove_newest(lake / "checkpoint" / "offsets")


def _lose_progress(lake: Location, landing: Location) -> None:
    store.clear(lake / "progress")


def _move_clock(lake: Location, landing: Location) -> None:
    """Files dated an hour ago, in an hour, and eight days ago."""
    assert landing.local is not None
    for i, path in enumerate(sorted(landing.local.glob("[!.]*.parquet"))):
        moved = time.time() + (-3600, 3600, -8 * 86400)[i % 3]
        with contextlib.suppress(FileNotFoundError):
            os.utime(path, (moved, moved))


def _remove_newest(folder: Location) -> None:
    numbers = [int(name) for name in store.names(folder) if name.isdigit()]
    if numbers:
        newest = str(max(numbers))
        store.remove(folder / newest)
        store.remove(folder / (".%s.crc" % newest))


# What else happens between a kill at any moment and the next start.
MOVED = "clock moved"
LOSSES: dict[str, Callable[[Location, Location], None]] = {
    "checkpoint lost": _lose_checkpoint,
    "newest commit lost": _lose_commit,
    "newest offsets lost": _lose_offsets,
    "progress lost": _lose_progress,
    MOVED: _move_clock,
}
ANY_TIME = "any time"
ALL = (*crash_points.POINTS, ANY_TIME, *LOSSES)
ALL_S3 = tuple(point for point in ALL if point != MOVED)  # only the store sets the time of its files
LEASE_S = 5  # of a sink on S3: each of them is killed, and each successor waits this long


@dataclass
class Row:
    """The results of one crash point."""

    point: str
    kills: int = 0
    rows_sent: int = 0
    files_bad: int = 0
    rows_divergent: int = 0
    generations: int = 0  # how often a sink began a new generation
    verdict: Verdict = field(default_factory=Verdict)
    recoveries_s: list[float] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Row:
        return cls(**{**plain, "verdict": Verdict(**plain["verdict"])})

    def add(self, other: Row) -> None:
        for name in ("kills", "rows_sent", "files_bad", "rows_divergent", "generations"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.verdict.add(other.verdict)
        self.recoveries_s += other.recoveries_s
        self.seeds += other.seeds


class Life:
    """One process of the sink, from its start to its death."""

    def __init__(
        self,
        landing: Path | Location,
        lake: Path | Location,
        crash_at: str = "",
        once: bool = False,
        *more: str,
        folder: Path | None = None,
    ) -> None:
        """`folder`: for its output, if the lake is not on this disk."""
        command = [
            sys.executable, "-m", "headwater_tools", "sink", str(landing), str(lake), "--master", "local[2]",
            "--once" if once else "--forever", "--trigger", "0.2", "--files-per-trigger", "6",
            "--maintain-every", "0", "--settle-after", "0", *more,
        ]  # fmt: skip
        for setting in SPARK:
            command += ["--conf", setting]
        env = variables()
        env.pop(crash_points.VARIABLE, None)
        if crash_at:
            env[crash_points.VARIABLE] = crash_at
        folder = folder or Path(str(lake)).parent
        self.output = folder / ("output-%d.txt" % len(list(folder.glob("output-*.txt"))))
        self.began = time.monotonic()
        with open(self.output, "w") as output:
            self.process = subprocess.Popen(
                command,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def signal(self, number: int) -> None:
        """To Python and the JVM, which share its process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait()
        until = time.monotonic() + 10
        while self.alive() and time.monotonic() < until:
            time.sleep(0.01)

    def alive(self) -> bool:
        """Whether any process of it is left."""
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def said(self) -> str:
        return self.output.read_text(errors="replace").strip()


class Crash:
    """One lake that is killed at one point, several times."""

    def __init__(
        self,
        folder: Path,
        point: str,
        seed: int,
        say: Callable[[str], None] = print,
        server: Server | None = None,
    ) -> None:
        """`server`: an S3 server that the lake and the landing zone are on."""
        self.folder = folder
        self.point = point
        self.say = say
        self.rng = random.Random("%s %d" % (point, seed))
        if server is None:
            self.landing, self.lake = Location.of(folder / "landing"), Location.of(folder / "lake")
            (folder / "landing").mkdir(parents=True)
            self.words: list[str] = []
        else:
            name = re.sub(r"\W", "-", "%s-%d" % (point, seed))
            self.landing, self.lake = (server.location("%s/%s" % (name, at)) for at in ("landing", "lake"))
            self.words = [*server.words(), "--lease", str(LEASE_S)]
        self.ledger = Ledger(self.landing, self.lake, self.rng.randrange(1 << 30), spool=folder / "spool")
        self.row = Row(point, seeds=[seed])

    def run(self, kills: int, points_of: Callable[[int], str] | None = None) -> Row:
        """Kill this many sinks, let the last one end, and judge; `points_of` gives each its own crash
        point."""
        for i in range(kills):
            self._live(points_of(i) if points_of else self.point, i)
            self.row.verdict.add(self.ledger.judge())
            if self.row.verdict.wrong():
                self.say("%s: kill %d: %s" % (self.point, i + 1, self.row.verdict.wrong()))
        self._end()
        self.row.rows_sent = self.ledger.rows_sent
        self.row.files_bad = len(self.ledger.bad)
        self.row.rows_divergent = len(self.ledger.divergent)
        return self.row

    def _live(self, point: str, number: int) -> None:
        if number and point in LOSSES:
            LOSSES[point](self.lake, self.landing)
        at = "" if point not in crash_points.POINTS else "%s:%d" % (point, self.rng.randint(1, 3))
        if point in MAINTENANCE:
            at = point + ":1"
        life = Life(self.landing, self.lake, at, False, *self.words, folder=self.folder)
        recovered = False
        until = life.began + START_S + LIFE_S
        strike = 0.0
        try:
            while life.process.poll() is None and time.monotonic() < until:
                if self.ledger.listen() and not recovered:
                    recovered = True
                    if number:
                        self.row.recoveries_s.append(round(time.monotonic() - life.began, 2))
                    strike = time.monotonic() + self.rng.uniform(0, 4)
                    if point in MAINTENANCE:
                        _ask_for_maintenance(self.lake)
                if recovered and not at and time.monotonic() > strike:
                    life.kill()
                    break
                self.ledger.something(WAITING_MAX)
                time.sleep(PAUSE_S)
            code = life.process.poll()
        finally:
            life.kill()
        self.row.kills += 1
        if code not in (None, -signal.SIGKILL):
            self.row.verdict.gave_up += 1
            self.say("%s: the sink ended with %d by itself: %s" % (point, code, life.said()[-600:]))
        if code is None and at:
            raise UserError("the sink never came to %s:\n%s" % (at, life.said()))

    def _end(self) -> None:
        """A sink that processes everything that is left and ends."""
        if self.point in LOSSES:
            LOSSES[self.point](self.lake, self.landing)
        life = Life(self.landing, self.lake, "", True, *self.words, folder=self.folder)
        try:
            code = life.process.wait(START_S + LIFE_S)
        except subprocess.TimeoutExpired:
            raise UserError("%s: the last sink does not end:\n%s" % (self.point, life.said()))
        finally:
            life.kill()
        if code:
            raise UserError("%s: the last sink ended with %d:\n%s" % (self.point, code, life.said()))
        self.row.verdict.add(self.ledger.judge(at_end=True))
        said = json.loads(store.read(self.lake / "acks" / "crash.json"))
        self.row.generations = said["generation"]


def _ask_for_maintenance(lake: Location) -> None:
    """As `hw maintain` does; with no version kept, VACUUM finds something to remove."""
    if lake.local is not None:
        (lake.local / "requests").mkdir(exist_ok=True)
    store.write(lake / "requests" / "crash.json", json.dumps({"maintain": {"keep_hours": 0}}).encode())
