"""Bluetooth at its worst: random silences, cuts, SIGKILLs of boards and of the gateway, and every sample is
looked up.

Real parts: boards with the real NimBLE host on a virtual radio, the gateway in a process of its own,
Mosquitto with TLS. Two boards have Bluetooth alone, one has the broker beside it; each has a source, and an
operator that takes the source of another board. A seed gives a story (`story`). Then faults stop, the sensors
stop, and what is in the landing zone is compared with the ledgers of the boards: the judgement uses nothing
of the gateway's.
"""

from __future__ import annotations

import heapq
import itertools
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headwater.process import Affine, Process

from ..boards.on_board import board_sensors
from ..demo.site import ON, ONLY, Site
from ..demo.subprocesses import until
from .landed import Landed, Results, gaps, rows, timed
from .promise import above, broken

if TYPE_CHECKING:
    from ..radio.antenna import Antenna
    from ..radio.station import Station

NAME = "soak"
BOARDS = {"chest": ONLY, "wrist": ONLY, "hip": ON}
GATEWAY = "gateway"
# Operator -> board of its source, and where it may run.
OPERATORS = {
    "t_chest": ("chest", ("wrist", "hip")),
    "t_wrist": ("wrist", ("hip", "chest")),
    "t_hip": ("hip", ("chest", "wrist")),
}
TIMES = 2  # each result is its sample times this
RATE_HZ = 25
BATCH = 25
SECTORS = 256  # room in the flash for what waits while the gateway is away

SILENCE, CUT, FRAGMENT, LOSS, BOARD, KILL, BROKER, MOVE = (
    "silence", "cut", "cut at a fragment", "loss", "board killed", "gateway killed", "broker away", "move",
)  # fmt: skip
# How often, of a hundred; and seconds that it lasts, where it does: at least, at most.
KINDS: dict[str, tuple[int, float, float]] = {
    SILENCE: (26, 0.2, 12.0),
    CUT: (18, 0, 0),
    FRAGMENT: (20, 0, 0),
    LOSS: (8, 2.0, 20.0),
    BOARD: (13, 0.0, 12.0),
    KILL: (6, 0.0, 4.0),
    BROKER: (3, 2.0, 20.0),
    MOVE: (6, 0, 0),
}
LONG = 0.15  # of silences and of dead boards: longer than hosts are patient, so that operators are taken over
LONG_S = (31.0, 45.0)
EVERY_S = 2.5  # between two faults, on average
LOSS_MOST = 0.4
FRAGMENTS_MOST = 60

START_S = 300.0  # until a part runs, on a machine with other work
SETTLE_S = 300.0  # until everything has landed, after the sensors have stopped
LOOK_S = 3.0
TELL_S = 30.0


class Fault(NamedTuple):
    at_s: float
    kind: str
    who: str  # a board, the gateway, an operator; "" for those that hit the air
    for_s: float
    number: float  # of fragments until the cut; the share of lost events; where the operator moves


def story(minutes: float, seed: int) -> list[Fault]:
    """Always the same for a seed; the kinds that are seldom come in any story that is long enough."""
    rng = random.Random("bluetooth %d" % seed)
    end = 60 * minutes
    found: list[Fault] = []
    at = 0.0
    first = [SILENCE, BOARD, CUT, KILL, FRAGMENT, BROKER, MOVE, LOSS]
    rng.shuffle(first)
    while True:
        at += rng.expovariate(1 / EVERY_S)
        if at >= end:
            return found
        weights = [share for share, _, _ in KINDS.values()]
        kind = first.pop() if first else rng.choices(list(KINDS), weights)[0]
        _, least, most = KINDS[kind]
        for_s = rng.uniform(least, most)
        if kind in (SILENCE, BOARD) and rng.random() < LONG:
            for_s = rng.uniform(*LONG_S)
        who = {
            SILENCE: rng.choice([*BOARDS, GATEWAY]),
            CUT: rng.choice([*BOARDS, GATEWAY]),
            BOARD: rng.choice(list(BOARDS)),
            MOVE: rng.choice(list(OPERATORS)),
        }.get(kind, "")
        number = {
            FRAGMENT: float(rng.randint(1, FRAGMENTS_MOST)) * rng.choice((1, -1)),
            LOSS: rng.uniform(0, LOSS_MOST),
            MOVE: float(rng.randrange(2)),
        }.get(kind, 0.0)
        found.append(Fault(round(at, 2), kind, who, round(for_s, 2), round(number, 2)))


def process() -> Process:
    """Every board: a wave of three fields to the lake, and the wave of another board, doubled."""
    p = Process(NAME, checkpoints="ecoc", every=100, batch=BATCH, batch_ms=1000)
    sources = {
        board: p.source("s_" + board, "x:i16 y:i16 z:i16", rate_hz=RATE_HZ, on=board) for board in BOARDS
    }
    for name, (board, (first, other)) in OPERATORS.items():
        p.lake("soak/" + board, sources[board])
        doubled = Affine(num=TIMES).named(name).on(first, backup=other)
        p.lake("twice/" + board, sources[board] >> doubled)
    return p


@dataclass
class Ending:
    """The counts of a run, and what is wrong after it."""

    seed: int
    minutes: float = 0.0
    silences: int = 0
    cuts: int = 0  # connections ended
    cuts_at_fragments: int = 0
    losses: int = 0  # times that connection events began to fail
    board_kills: int = 0
    gateway_kills: int = 0
    broker_away: int = 0
    moves: int = 0  # asked for
    moves_refused: int = 0  # ... when the gateway was down, or had not heard of the boards yet
    connections: int = 0
    fragments: int = 0
    events_lost: int = 0
    accepted: int = 0  # samples, by the boards
    refused: int = 0
    lost: int = 0
    twice: int = 0
    divergent: int = 0
    unknown: int = 0  # rows of sources that are in no ledger
    results: int = 0  # of operators, for samples that were accepted
    lost_results: int = 0
    results_twice: int = 0
    results_divergent: int = 0
    results_unknown: int = 0
    gaps: int = 0  # entries that were declared lost
    crashes: int = 0  # of the boards' programs
    ended: int = 0  # boards whose interpreter ended by itself

    def unknown_most(self) -> int:
        """A batch that was sealed as power went is in no ledger."""
        return (self.board_kills + len(BOARDS)) * BATCH

    def wrong(self) -> list[str]:
        """The broken parts of the promise."""
        none = (
            "refused", "lost", "twice", "divergent", "lost_results", "results_twice", "results_divergent",
            "gaps", "crashes", "ended",
        )  # fmt: skip
        return broken(self, *none) + above(self, self.unknown_most(), "unknown", "results_unknown")


class BluetoothCrash:
    """One site under one radio; `close` ends everything that it started."""

    def __init__(self, folder: Path, station: Station, seed: int, say: Callable[[str], None]) -> None:
        self.station = station
        self.site = Site(folder, station)
        self.say = say
        self.ending = Ending(seed)
        self.began = time.monotonic()
        self._plan: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = itertools.count()
        self._silent: dict[str, int] = {}  # who -> silences under way
        self._gateway_up = False
        self._dead: set[str] = set()  # boards that were killed
        t0_us = time.time_ns() // 1000
        self.seeds = {name: seed % 50 + i for i, name in enumerate(BOARDS)}
        for name, bluetooth in BOARDS.items():
            sensor = {"driver": "wave", "seed": self.seeds[name], "t0_us": t0_us}
            self.site.add_board(
                name, {"s_" + name: sensor}, sectors=SECTORS, on_line=self._line, bluetooth=bluetooth
            )

    def close(self) -> None:
        self.site.close()

    def run(self, minutes: float) -> Ending:
        self.ending.minutes = minutes
        self._begin()
        self._storm(minutes)
        self._calm()
        self._settle()
        self.site.close()
        self._judge()
        return self.ending

    # ---- before

    def _begin(self) -> None:
        site = self.site
        site.start_broker()
        self._start_gateway()
        until(site.speaks, START_S, "the gateway does not answer: see %s" % site.gateway.log)
        for board in site.boards.values():
            board.start()
        site.deploy(process())
        until(site.deployed, START_S, "the boards do not take the process: see the logs in %s" % site.folder)
        until(self._flows, START_S, "operators do not begin: see the logs in %s" % site.folder)
        self._tell("three boards send over Bluetooth; the faults begin")

    def _flows(self) -> bool:
        """Something has arrived of every stream."""
        state = self.site.state() or {"streams": []}
        return {s["stream"] for s in state["streams"] if s["durable"]} >= _streams()

    def _line(self, line: str) -> None:
        self.ending.crashes += " crashed: " in line

    # ---- faults

    def _storm(self, minutes: float) -> None:
        began = time.monotonic()
        for fault in story(minutes, self.ending.seed):
            self._at(began + fault.at_s, lambda fault=fault: self._happens(fault))  # type: ignore[misc]
        self._at(began + 60 * minutes, lambda: None)
        told = began
        while self._plan:
            when, _, action = heapq.heappop(self._plan)
            if when > began + 60 * minutes:
                break
            time.sleep(max(0.0, when - time.monotonic()))
            self._look()
            action()
            if time.monotonic() - told > TELL_S:
                told = time.monotonic()
                self._tell(self._so_far())

    def _at(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._plan, (when, next(self._serial), action))

    def _later(self, for_s: float, action: Callable[[], None]) -> None:
        self._at(time.monotonic() + for_s, action)

    def _look(self) -> None:
        """Everything runs that is to run."""
        if self._gateway_up:
            self.site.gateway.must_run()
        for name, board in self.site.boards.items():
            if not board.powered and name not in self._dead:
                self.ending.ended += 1
                self._tell("board %s has ended: %s" % (name, board.lines[-1]))
                board.start()

    def _happens(self, fault: Fault) -> None:
        happens: dict[str, Callable[[Fault], None]] = {
            SILENCE: self._silence, CUT: self._cut, FRAGMENT: self._cut_at, LOSS: self._loses,
            BOARD: self._kill, KILL: self._kill_gateway, BROKER: self._no_broker, MOVE: self._move,
        }  # fmt: skip
        happens[fault.kind](fault)

    def _silence(self, fault: Fault) -> None:
        who = fault.who

        def over() -> None:
            self._silent[who] -= 1
            if not self._silent[who]:
                self.station.silence(who, False)

        self._silent[who] = self._silent.get(who, 0) + 1
        self.station.silence(who)
        self.ending.silences += 1
        self._later(fault.for_s, over)

    def _cut(self, fault: Fault) -> None:
        self.ending.cuts += self.station.cut(fault.who)

    def _cut_at(self, fault: Fault) -> None:
        """The connection ends that carries this fragment, counted from now on."""
        from ..radio.air import Verdict

        radio = self.station.radio
        left = abs(int(fault.number))

        def judge(_sender: Antenna, _receiver: Antenna, _fragment: bytes) -> Verdict:
            nonlocal left
            left -= 1
            if left:
                return Verdict.PASS
            radio.judge = None
            self.ending.cuts_at_fragments += 1
            return Verdict.CUT if fault.number > 0 else Verdict.CUT_AFTER

        radio.judge = judge

    def _loses(self, fault: Fault) -> None:
        def over() -> None:
            self.station.radio.loss = 0.0

        self.station.radio.loss = fault.number
        self.ending.losses += 1
        self._later(fault.for_s, over)

    def _kill(self, fault: Fault) -> None:
        board = self.site.boards[fault.who]
        if board.powered:
            board.kill()
            self.ending.board_kills += 1
            self._dead.add(fault.who)
            self._later(fault.for_s, lambda: self._revive(fault.who))

    def _revive(self, name: str) -> None:
        self._dead.discard(name)
        self.site.boards[name].start()

    def _kill_gateway(self, fault: Fault) -> None:
        if self._gateway_up:
            self._gateway_up = False
            self.site.gateway.kill()
            self.ending.gateway_kills += 1
            self._later(fault.for_s, self._start_gateway)

    def _start_gateway(self) -> None:
        self.site.gateway.start()
        self._gateway_up = True

    def _no_broker(self, fault: Fault) -> None:
        if self.site.broker.running():
            self.site.broker.kill()
            self.ending.broker_away += 1
            self._later(fault.for_s, self.site.start_broker)

    def _move(self, fault: Fault) -> None:
        from headwater_gateway import UserError as GatewayTrouble
        from headwater_gateway import control

        host = OPERATORS[fault.who][1][int(fault.number)]
        try:
            control.ask(self.site.config, "/move", {"process": NAME, "operator": fault.who, "host": host})
            self.ending.moves += 1
        except GatewayTrouble:
            self.ending.moves_refused += 1

    # ---- after

    def _calm(self) -> None:
        """Faults stop, and everybody is there."""
        self._look()
        self._plan.clear()
        self._dead.clear()  # they start with the others
        radio = self.station.radio
        radio.judge, radio.loss = None, 0.0
        for who in self._silent:
            self.station.silence(who, False)
        if not self.site.broker.running():
            self.site.start_broker()
        if not self._gateway_up:
            self._start_gateway()
        until(self.site.speaks, START_S, "the gateway does not answer: see %s" % self.site.gateway.log)
        self._tell(self._so_far())

    def _settle(self) -> None:
        """Stop sampling; wait for what is on its way."""
        self.site.stop_sensors()
        self._tell("the sensors have stopped; what is on its way arrives")
        end = time.monotonic() + SETTLE_S
        while not self._arrived() and time.monotonic() < end:  # what has not arrived is lost, and is counted
            self._look()
            time.sleep(LOOK_S)

    def _arrived(self) -> bool:
        """Whether segments have all that was accepted, and a result for each of it."""
        state = self.site.state()
        if state is None or any(s["cut"] < s["durable"] for s in state["streams"]):
            return False
        cut = {
            (s["stream"], int(s["incarnation"], 16)): s["cut"] for s in state["streams"] if s["incarnation"]
        }
        for name, board in self.site.boards.items():
            for batch in board.accepted():
                if cut.get(("soak/" + name, batch.incarnation), 0) < batch.xi + batch.n - 1:
                    return False
        return not any(results.lost for results in self._results())

    def _results(self) -> list[Results]:
        found = timed(self.site.folder / "landing", "twice/")
        made = []
        for name, board in self.site.boards.items():
            results = Results()
            results.add(found.get("twice/" + name, []), board.accepted(), self._doubled(name))
            made.append(results)
        return made

    def _doubled(self, name: str) -> Callable[[int], int]:
        wave, seed = board_sensors.wave, self.seeds[name]
        return lambda i: TIMES * wave(i, 0, seed)

    def _judge(self) -> None:
        e, radio = self.ending, self.station.radio
        e.connections, e.fragments, e.events_lost = radio.joined, radio.carried, radio.lost
        landing = self.site.folder / "landing"
        by_stream = rows(landing)
        e.gaps = gaps(landing)
        sources = Landed()
        for name, board in self.site.boards.items():
            accepted = board.accepted()
            there = {(batch.incarnation, batch.xi + i) for batch in accepted for i in range(batch.n)}
            # A source declares a hole where its board was without power: it accepted nothing then.
            found = [
                row for row in by_stream.get("soak/" + name, []) if row[2] is not None or row[:2] in there
            ]
            sources.add(found, accepted, partial(board_sensors.wave, k=0, seed=self.seeds[name]))
            e.refused += board.refused()
        e.accepted, e.lost, e.twice = sources.accepted, sources.lost, sources.twice
        e.divergent, e.unknown = sources.divergent, sources.unknown
        for results in self._results():
            e.results += results.found
            e.lost_results += results.lost
            e.results_twice += results.twice
            e.results_divergent += results.divergent
            e.results_unknown += results.unknown

    def _so_far(self) -> str:
        e = self.ending
        numbers = (
            e.silences,
            e.cuts + e.cuts_at_fragments,
            e.board_kills,
            e.gateway_kills,
            e.broker_away,
            e.moves,
        )
        accepted = sum(batch.n for board in self.site.boards.values() for batch in board.accepted())
        text = (
            "%d silences, %d cuts, %d boards killed, %d gateways, %d brokers, %d moves; %d samples accepted"
        )
        return text % (*numbers, accepted)

    def _tell(self, text: str) -> None:
        self.say("%5.0f s  %s" % (time.monotonic() - self.began, text))


def _streams() -> set[str]:
    return {kind + board for kind in ("soak/", "twice/") for board in BOARDS}


def page(ending: Ending) -> list[str]:
    """The result for people."""
    e = ending
    return [
        "%g minutes: %d silences, %d cuts of connections and %d at a chosen fragment, events lost %d times"
        % (e.minutes, e.silences, e.cuts, e.cuts_at_fragments, e.losses),
        "%d boards killed, %d gateways; the broker away %d times; %d moves asked for"
        % (e.board_kills, e.gateway_kills, e.broker_away, e.moves),
        "%s connections, %s fragments carried, %s connection events lost"
        % (f"{e.connections:,}", f"{e.fragments:,}", f"{e.events_lost:,}"),
        "%s samples accepted by the boards, %d refused: %d lost, %d twice, %d divergent; %d in no ledger"
        % (f"{e.accepted:,}", e.refused, e.lost, e.twice, e.divergent, e.unknown),
        "%s results of operators: %d lost, %d twice, %d divergent, %d of no ledger; %d gaps"
        % (
            f"{e.results:,}", e.lost_results, e.results_twice, e.results_divergent, e.results_unknown, e.gaps,
        ),
        "%d crashes of the boards' programs, %d boards ended by themselves" % (e.crashes, e.ended),
    ]  # fmt: skip
