"""An operator of 16 KB moves over Bluetooth, and the connection ends at a chosen fragment: at each one,
before it arrives, and after it has arrived and before its sender knows.

Real parts: two boards with the real NimBLE host on a virtual radio, which have Bluetooth alone, and the
gateway in a process of its own. The operator holds 4096 values; it goes from one board to the other and back,
with one cut each time. No element may be taken twice or left out (`taken`, which boards report as an operator
pauses and begins), and every result has to be the sum of the 4096 samples before it, whatever was on its way.
Two ways (WAYS): from board to board while the gateway is out of range, and passed on by the gateway.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.process import Process, Sliding

from ..boards.on_board import board_sensors
from ..boards.virtual import Accepted
from ..demo.site import ONLY, Site
from ..demo.subprocesses import until
from ..errors import UserError
from ..radio.air import Verdict
from .landed import Timed, timed
from .promise import above

if TYPE_CHECKING:
    from ..radio.antenna import Antenna
    from ..radio.station import Station

NAME = "cuts"
OPERATOR, SOURCE = "held", "x"
BOARDS = ("chest", "wrist")  # the first has the source
GATEWAY = "gateway"
DIRECT, RELAYED = "direct", "relayed"
WAYS = (DIRECT, RELAYED)
VALUES = 4096  # of 4 bytes: the state
STEP = 200  # a result each so many elements
RATE_HZ, BATCH = 200, 50
SEED = 3
EVERY = 700  # elements to a checkpoint; with one after a move that move is over, and the next one may begin
CAP = 600  # results that wait on a board while the gateway is out of range
SECTORS, HEAP = 512, "320k"
CUT, CUT_AFTER = "cut", "cut after"  # values of air.Verdict

ROUND = 6  # cases, after which the gateway hears of the results
BEYOND = 3  # fragments in a row that no move reaches: then each one has been cut
START_S = 300.0
ASK_S = 1.0
CASE_S = 120.0  # a move that takes longer has not finished
SETTLE_S = 120.0
_SAID = re.compile(r"(\w+): operator %s (runs|pauses|ends), taken (\d+)" % OPERATOR)


@dataclass
class Case:
    """One move."""

    fragment: int
    verdict: str
    cut: bool = False  # it had that many fragments
    finished: bool = False
    seconds: float = 0.0
    replayed: int = 0  # elements that the taker took again
    skipped: int = 0  # elements that neither took
    again: int = 0  # offers before the one that was taken up
    stood: bool = False  # the operator had taken nothing since the move before: the taker had its checkpoint
    fragments: int = 0  # that were carried meanwhile


@dataclass
class Sweep:
    way: str
    cases: list[Case] = field(default_factory=list)
    results: int = 0  # of the operator, that landed
    results_wrong: int = 0  # other sums than those of the samples
    results_lost: int = 0
    twice: int = 0

    def wrong(self) -> list[str]:
        found = [
            "fragment %d, %s: not finished" % (c.fragment, c.verdict) for c in self.cases if not c.finished
        ]
        found += [
            "fragment %d, %s: %d elements again, %d left out" % (c.fragment, c.verdict, c.replayed, c.skipped)
            for c in self.cases
            if c.replayed or c.skipped
        ]
        stood = sum(case.stood for case in self.cases)
        if stood:
            found.append("%d moves of an operator that stood still" % stood)
        found += above(self, 0, "results_wrong", "results_lost", "twice")
        if not self.results:
            found.append("no results")
        if not any(case.cut for case in self.cases):
            found.append("no connection was cut")
        return found

    def json(self) -> dict[str, Any]:
        return {**asdict(self), "wrong": self.wrong()}


def process() -> Process:
    p = Process(NAME, checkpoints="uncoordinated", every=EVERY, batch=BATCH, batch_ms=500)
    for board in BOARDS:
        p.host(board, flash_kb=SECTORS * 4, heap_kb=int(HEAP[:-1]))
    source = p.source(SOURCE, "v:i32", rate_hz=RATE_HZ, on=BOARDS[0])
    held = Sliding(count=VALUES, step=STEP, what="sum").named(OPERATOR).on(BOARDS[0], backup=BOARDS[1])
    p.lake("cuts/x", source)
    p.lake("cuts/held", source >> held, on_full="block", cap=CAP)
    return p


def cases(done: Iterable[Case], fragments: Iterable[int] = ()) -> Iterator[tuple[int, str]]:
    """These fragments, or one after the other without end, each cut before and after it arrived; without
    those that are done."""
    known = {(case.fragment, case.verdict) for case in done}
    for fragment in fragments or itertools.count(1):
        for verdict in (CUT, CUT_AFTER):
            if (fragment, verdict) not in known:
                yield fragment, verdict


def over(done: Iterable[Case]) -> bool:
    """Whether the last fragments that were tried are more than a move has."""
    last = sorted(done, key=lambda case: case.fragment)[-2 * BEYOND :]
    return len(last) == 2 * BEYOND and not any(case.cut for case in last)


class MoveCuts:
    """One site under one radio; `close` ends everything that it started."""

    def __init__(self, folder: Path, station: Station, way: str, say: Callable[[str], None]) -> None:
        self.way, self.station, self.say = way, station, say
        self.site = Site(folder, station)
        self.at = ""  # where the operator runs
        self.paused = self.begun = 0  # elements that it had taken when it paused last, and when it began
        self.pauses = 0
        self.case = Case(0, CUT)
        self._counts = False  # fragments are counted
        self.began = time.monotonic()
        t0_us = time.time_ns() // 1000
        for name in BOARDS:
            sensors = {SOURCE: {"driver": "wave", "seed": SEED, "t0_us": t0_us}} if name == BOARDS[0] else {}
            self.site.add_board(
                name, sensors, HEAP, ("board_moves",), SECTORS, on_line=self._line, bluetooth=ONLY
            )

    def close(self) -> None:
        self.site.close()

    # ---- the site

    def begin(self) -> None:
        site = self.site
        site.start_gateway()
        for board in site.boards.values():
            board.start()
        site.deploy(process())
        until(site.deployed, START_S, "the boards do not take the process: see the logs in %s" % site.folder)
        self._results(VALUES // STEP + 1)
        self.station.radio.judge = self._judge
        self.tell("the operator holds %d values on %s" % (VALUES, self.at))

    def _results(self, count: int) -> None:
        """So many results are in the gateway's database."""

        def there() -> bool:
            state = self.site.state() or {"streams": []}
            return any(s["durable"] >= count for s in state["streams"] if s["stream"] == "cuts/held")

        until(there, START_S, "results do not arrive: see the logs in %s" % self.site.folder)

    def _line(self, line: str) -> None:
        """What a board says."""
        if line == "moves " + OPERATOR:
            self._counts = True
        found = _SAID.search(line)
        if not found:
            return
        board, word, taken = found[1], found[2], int(found[3])
        if word == "pauses":
            self.paused = taken
            self.pauses += 1
        elif word == "runs":
            self.begun = taken
            self.at = board

    def _judge(self, _sender: Antenna, _receiver: Antenna, _fragment: bytes) -> Verdict:
        case = self.case
        if not self._counts:
            return Verdict.PASS
        case.fragments += 1
        if case.fragments != case.fragment:
            return Verdict.PASS
        case.cut = True
        return Verdict(case.verdict)

    # ---- moves

    def far(self, on: bool) -> None:
        """The gateway is out of range, or back and has the results."""
        if self.way != DIRECT:
            return
        self.station.silence(GATEWAY, on)
        if on:
            why = "connections to the gateway do not end"
            until(lambda: not self.station.do(self._reached), START_S, why)
        else:
            self._results(self.begun // STEP)

    def _reached(self) -> bool:
        gateway = self.station.antennas.get(GATEWAY)
        return any(gateway in ends for ends in self.station.radio.connections)

    def move(self, fragment: int, verdict: str) -> Case:
        """To the other board, with a cut there; without one where the fragment is 0."""
        giver, pauses, stood_at = self.at, self.pauses, self.begun
        taker = BOARDS[1 - BOARDS.index(giver)]
        case = self.case = Case(fragment, verdict)
        began = time.monotonic()
        asked = -ASK_S
        while not case.finished and time.monotonic() < began + CASE_S:
            if time.monotonic() - asked >= ASK_S:
                asked = time.monotonic()
                self._ask(giver, taker)
            time.sleep(0.02)
            for board in self.site.boards.values():
                if not board.powered:
                    raise UserError("board %s has ended: %s" % (board.name, board.lines[-1]))
            case.finished = self.at == taker
        self._counts = False
        (self.site.boards[giver].folder / "move").unlink(missing_ok=True)
        case.seconds = round(time.monotonic() - began, 2)
        case.replayed = max(0, self.paused - self.begun)
        case.skipped = max(0, self.begun - self.paused)
        case.again = max(0, self.pauses - pauses - 1)
        case.stood = self.paused == stood_at
        return case

    def _ask(self, giver: str, taker: str) -> None:
        if self.way == DIRECT:
            # It waits there until the board is free for it.
            (self.site.boards[giver].folder / "move").write_text("%s %s" % (OPERATOR, taker))
            return
        from headwater_gateway import UserError as GatewayTrouble
        from headwater_gateway import control

        self._counts = True
        body = {"process": NAME, "operator": OPERATOR, "host": taker}
        with contextlib.suppress(GatewayTrouble):  # asked for again
            control.ask(self.site.config, "/move", body)

    # ---- after

    def finish(self, sweep: Sweep) -> None:
        """Stop sampling, wait for what is on its way, and look at every result."""
        self.station.radio.judge = None
        self.station.silence(GATEWAY, False)
        for board in self.site.boards.values():
            board.stop_sensors()
        time.sleep(2 * BATCH / RATE_HZ)
        end = time.monotonic() + SETTLE_S
        landing = self.site.folder / "landing"
        expected = sums(self.site.boards[BOARDS[0]].accepted())
        while True:
            landed = timed(landing, "cuts/held").get("cuts/held", [])
            if len(landed) >= len(expected) or time.monotonic() > end:
                break
            time.sleep(2)
        compare(sweep, expected, landed)

    def tell(self, text: str) -> None:
        self.say("%5.0f s  %s" % (time.monotonic() - self.began, text))


def sums(accepted: Iterable[Accepted]) -> dict[int, int]:
    """The results that are due: ts -> the sum of the samples up to there."""
    found: dict[int, int] = {}
    values: deque[int] = deque()
    total = count = 0
    wave: Any = board_sensors.wave
    for batch in accepted:
        for i in range(batch.n):
            values.append(wave(batch.first + i, 0, SEED))
            total += values[-1]
            if len(values) > VALUES:
                total -= values.popleft()
            count += 1
            if count % STEP == 0:
                found[batch.ts + i * batch.dt] = total
    return found


def compare(sweep: Sweep, expected: Mapping[int, int], landed: Iterable[Timed]) -> None:
    """Count what landed in this sweep."""
    numbers: set[tuple[int, int]] = set()
    seen: set[int] = set()
    for inc, xi, ts, value in landed:
        sweep.twice += (inc, xi) in numbers or ts in seen
        numbers.add((inc, xi))
        seen.add(ts)
        sweep.results += 1
        sweep.results_wrong += expected.get(ts) != value
    sweep.results_lost += len(expected.keys() - seen)


def run(
    sweep: Sweep, cuts: MoveCuts, fragments: Iterable[int], minutes: float, save: Callable[[], None]
) -> None:
    """Move to and fro, with a cut at fragment after fragment, until no move has so many, or time is over."""
    cuts.begin()
    end = time.monotonic() + 60 * minutes
    for i, (fragment, verdict) in enumerate(cases(sweep.cases, fragments)):
        if time.monotonic() > end or over(sweep.cases):
            break
        if i % ROUND == 0:
            cuts.far(False)
            cuts.far(True)
        case = cuts.move(fragment, verdict)
        sweep.cases.append(case)
        save()
        words = (fragment, verdict, case.seconds, "" if case.cut else "; not cut: it has %d" % case.fragments)
        cuts.tell("fragment %d, %s: %.2f s%s" % words)
        if not case.finished:
            break
    cuts.finish(sweep)
    save()


def load(path: Path, way: str) -> Sweep:
    """An earlier run, to be continued; a new one where there is none."""
    try:
        said = json.loads(path.read_text())
        cases = [Case(**case) for case in said.pop("cases")]
        said.pop("wrong")
        sweep = Sweep(cases=cases, **said)
    except FileNotFoundError:
        return Sweep(way)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError("%s is no report of `hw crash moves`: name another file" % path)
    if sweep.way != way:
        raise UserError("%s has moves by way '%s', not '%s': name another file" % (path, sweep.way, way))
    return sweep


def page(sweep: Sweep) -> list[str]:
    """The result for people."""
    cut = [case for case in sweep.cases if case.cut]
    slowest = max((case.seconds for case in sweep.cases), default=0.0)
    return [
        "%d moves of an operator of %d bytes, %s; %d of them cut, at %d fragments"
        % (len(sweep.cases), 4 * VALUES, sweep.way, len(cut), len({case.fragment for case in cut})),
        "%d finished, %d offered again; longest %.1f s; %d elements taken again, %d left out"
        % (
            sum(case.finished for case in sweep.cases),
            sum(case.again for case in sweep.cases),
            slowest,
            sum(case.replayed for case in sweep.cases),
            sum(case.skipped for case in sweep.cases),
        ),
        "%s results landed: %d wrong, %d lost, %d twice"
        % (f"{sweep.results:,}", sweep.results_wrong, sweep.results_lost, sweep.twice),
    ]
