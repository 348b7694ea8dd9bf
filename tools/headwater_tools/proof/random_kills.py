"""Kills a serving sink at random moments: its JVM, its Python or both, from the start of the JVM on.

Between two runs the sink loses something at random: Spark's checkpoint, its newest entries, the
acknowledgements, `progress`, `settled`. The sink serves with a short trigger, maintains the lake every few
seconds, and settles incarnations after seconds without news. Segments come from a gateway that shares no code
with the project, and its ledger judges the lake after each kill (foreign_gateway.py).
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from headwater_cloud.location import Location

from ..errors import UserError
from .foreign_gateway import ForeignGateway, Verdict
from .sink_kills import LOSSES, Life

START_S = 180.0  # until a sink has done its first batch, on a machine with other work
END_S = 60.0  # for a sink to end after one half of it was killed
PAUSE_S = 0.1  # between two things that the gateway does
EARLY = 0.3  # this share of the kills comes before the first batch is acknowledged
EARLY_S = 10.0  # and within this time from the start
SERVED_S = 8.0  # the others within this time after the first batch

SERVING = (
    *("--trigger", "0.5", "--files-per-trigger", "10"),
    *("--maintain-every", str(8 / 3600), "--settle-after", str(5 / 3600)),
)

JVM, PYTHON, BOTH = "JVM alone", "Python alone", "both"
VICTIMS = (JVM, PYTHON, BOTH)


def _lose(loss: str) -> Callable[[Path, Path], None]:
    """A loss that `hw crash` knows, of folders on this disk."""
    return lambda lake, landing: LOSSES[loss](Location.of(lake), Location.of(landing))


def _lose_acknowledgements(lake: Path, landing: Path) -> None:
    shutil.rmtree(lake / "acks", ignore_errors=True)


def _lose_settled(lake: Path, landing: Path) -> None:
    shutil.rmtree(lake / "settled", ignore_errors=True)


def _lose_newest(lake: Path, landing: Path) -> None:
    """The newest entry of each of the three logs of Spark's checkpoint."""
    _lose("newest offsets lost")(lake, landing)
    entries = [path for path in (lake / "checkpoint" / "sources" / "0").glob("[0-9]*") if path.is_file()]
    newest = max(entries, key=lambda path: path.stat().st_mtime_ns, default=None)
    if newest is not None:
        newest.unlink()
        (newest.parent / (".%s.crc" % newest.name)).unlink(missing_ok=True)


NOTHING_LOST = "nothing"
BETWEEN: dict[str, Callable[[Path, Path], None]] = {
    "checkpoint": _lose("checkpoint lost"),
    "newest entries": _lose_newest,
    "acknowledgements": _lose_acknowledgements,
    "progress": _lose("progress lost"),
    "settled": _lose_settled,
}
# What happens between two runs: each equally often, in an order that the seed decides.
DECK = (*BETWEEN, *BETWEEN, NOTHING_LOST, NOTHING_LOST, NOTHING_LOST)


@dataclass
class Storm:
    """What was done, and the results."""

    kills: int = 0
    victims: dict[str, int] = field(default_factory=lambda: dict.fromkeys(VICTIMS, 0))
    lost: dict[str, int] = field(default_factory=lambda: dict.fromkeys((NOTHING_LOST, *BETWEEN), 0))
    early: int = 0  # kills before the first batch of a run
    files_sent: int = 0
    rows_sent: int = 0  # each time that they were
    rows: int = 0  # different rows
    numberings: int = 0
    settled: int = 0  # at the end
    generations: int = 0
    seconds: float = 0.0
    verdict: Verdict = field(default_factory=Verdict)


class RandomKills:
    def __init__(self, folder: Path, seed: int, say: Callable[[str], None] = print) -> None:
        self.rng = random.Random("random kills %d" % seed)
        self.landing, self.lake = folder / "landing", folder / "lake"
        self.gateway = ForeignGateway(self.landing, self.lake, self.rng.getrandbits(32))
        self.say = say
        self.storm = Storm()
        self._decks: dict[tuple[str, ...], list[str]] = {}

    def run(self, kills: int, minutes: float) -> Storm:
        """Kill this many sinks, or as many as the time allows; then let one process the rest, and judge."""
        storm = self.storm
        began = time.monotonic()
        while storm.kills < kills and time.monotonic() - began < minutes * 60:
            what = self._live()
            found = self.gateway.judge()
            storm.verdict.add(found)
            lost = self._lose()
            storm.kills += 1
            storm.seconds = time.monotonic() - began
            self.say(
                "%5.0f s  kill %3d: %-24s then lost: %-16s %s"
                % (storm.seconds, storm.kills, what, lost, found.wrong() or "right")
            )
        self._end()
        storm.seconds = round(time.monotonic() - began, 1)
        return storm

    def _draw(self, deck: tuple[str, ...]) -> str:
        """The next card of a shuffled deck: all of them are drawn before any is drawn again."""
        left = self._decks.setdefault(deck, [])
        if not left:
            left += self.rng.sample(deck, len(deck))
        return left.pop()

    def _live(self) -> str:
        """One run, and its death."""
        life = Life(self.landing, self.lake, "", False, *SERVING)
        victim = self._draw(VICTIMS)
        early = self.rng.random() < EARLY
        strike = life.began + self.rng.uniform(0, EARLY_S) if early else 0.0
        served = False
        try:
            while life.process.poll() is None and (not strike or time.monotonic() < strike):
                if self.gateway.listen() and not served:
                    served = True
                    strike = strike or time.monotonic() + self.rng.uniform(0, SERVED_S)
                if time.monotonic() > life.began + START_S:
                    raise UserError(
                        "a sink has done nothing for %.0f s:\n%s" % (START_S, life.said()[-2000:])
                    )
                self.gateway.act()
                time.sleep(PAUSE_S)
            if life.process.poll() is not None:
                self._gave_up("ended by itself with %s: %s" % (life.process.poll(), life.said()[-800:]))
            else:
                victim = self._kill(life, victim, served)
                self.storm.victims[victim] += 1
                self.storm.early += not served
        finally:
            life.kill()
            life.output.unlink(missing_ok=True)
        return victim + ("" if served else ", at its start")

    def _kill(self, life: Life, victim: str, served: bool) -> str:
        """Kill the chosen process, or all; what was killed."""
        java = _java(life.process.pid)
        if victim == BOTH or java is None:
            life.kill()
            return BOTH
        with contextlib.suppress(ProcessLookupError):
            os.kill(java if victim == JVM else life.process.pid, signal.SIGKILL)
        if victim == PYTHON:
            life.process.wait()
        until = time.monotonic() + END_S
        while (life.process.poll() is None or _java(life.process.pid)) and time.monotonic() < until:
            time.sleep(0.02)
        code = life.process.poll()
        if code is None or _java(life.process.pid):
            self._gave_up("goes on with one half, %s was killed: %s" % (victim, life.said()[-800:]))
        elif victim == JVM and (code != 1 if served else code == 0):
            self._gave_up("ended with %d when its JVM was killed: %s" % (code, life.said()[-800:]))
        return victim

    def _gave_up(self, why: str) -> None:
        self.storm.verdict.gave_up += 1
        self.say("WRONG: a sink " + why)

    def _lose(self) -> str:
        lost = self._draw(DECK)
        if lost in BETWEEN:
            BETWEEN[lost](self.lake, self.landing)
        self.storm.lost[lost] += 1
        return lost

    def _end(self) -> None:
        """Runs that process the rest; the second one what had to be cut again."""
        for _ in range(2):
            life = Life(self.landing, self.lake, "", True)
            try:
                if life.process.wait(START_S):
                    raise UserError("the last sink ended with an error:\n%s" % life.said()[-2000:])
            finally:
                life.kill()
            self.gateway.listen()
        storm, gateway = self.storm, self.gateway
        storm.verdict.add(gateway.judge(at_end=True))
        storm.verdict.audit += self._audit()
        storm.files_sent, storm.rows_sent = gateway.files_sent, gateway.rows_sent
        storm.rows = sum(int((one.sent == 1).sum()) for one in gateway.all.values())
        storm.numberings = len(gateway.all)
        storm.generations = max(one.said[0] for one in gateway.all.values())

    def _audit(self) -> bool:
        """Whether `hw audit` finds the promise broken."""
        from headwater_cloud.audit import audit
        from headwater_cloud.location import Location
        from headwater_cloud.settled import Settled

        self.storm.settled = len(Settled.load(Location.of(str(self.lake))).keys)
        report = audit(str(self.lake), landing=str(self.landing))
        if not report.ok:
            self.say("WRONG: the audit: %s" % [one for one in report.streams if not one.ok][:3])
        return not report.ok


def _java(group: int) -> int | None:
    """The JVM of a process group; None if there is none that runs."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            name, _, rest = (path / "stat").read_text().rpartition(")")
            state, _, its_group = rest.split()[:3]
            if int(its_group) == group and name.endswith("(java") and state not in "ZX":
                return int(path.name)
    return None


def page(storm: Storm) -> list[str]:
    """The result for people."""
    lines = ["| what | number |", "|---|---|"]
    cells: list[tuple[str, object]] = [("kills", storm.kills)]
    cells += [("kills: " + name, storm.victims[name]) for name in storm.victims]
    cells += [("kills before the first batch of a run", storm.early)]
    cells += [("lost before a start: " + name, storm.lost[name]) for name in storm.lost]
    cells += [
        ("segments", f"{storm.files_sent:,}"),
        ("rows in them", f"{storm.rows_sent:,}"),
        ("different rows", f"{storm.rows:,}"),
        ("streams, each incarnation counted", storm.numberings),
        ("of them settled at the end", storm.settled),
        ("generations that the sink began", storm.generations),
        ("minutes", round(storm.seconds / 60, 1)),
    ]
    cells += list(vars(storm.verdict).items())
    return lines + ["| %s | %s |" % cell for cell in cells]
