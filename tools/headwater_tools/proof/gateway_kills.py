"""Kills the gateway with SIGKILL at random moments, while three boards send, and looks up every sample.

Real parts: virtual boards, Mosquitto with TLS, the gateway, the sink. In between the gateway is stopped in
the ordinary way, the process is changed, and rolled back. The kills do not wait for any of this to end. The
boards keep ledgers of what they accepted; the judgement uses nothing of the gateway's.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from headwater.process import Average, Process
from headwater.protocol.clock import STEP_US

from ..demo.compare import Compared, compare
from ..demo.observer import Watch
from ..demo.site import Site
from ..demo.subprocesses import until
from ..errors import UserError
from .promise import broken

NAME = "crash"
BOARDS = ("chest", "wrist", "hip")
RATE_HZ = 25
BATCH = 25
COUNTS = (10, 15)  # the difference between the two versions of the process

EARLY_S = 3.0  # a kill while the gateway starts comes within this
WORK_S = 4.0  # and one of a gateway at work within this, after its first answer
START_S = 120.0  # until a part runs, on a machine with other work
SETTLE_S = 300.0  # until a change has reached every board, or everything is in the lake
WAIT_S = 20.0  # for the previous change, before the next request

NOTHING, RESTART, DEPLOY, ROLL_BACK = "nothing", "restart", "deploy", "rollback"


class Life(NamedTuple):
    """One run of the gateway: what happens in it, and when it is killed."""

    action: str
    early: bool  # killed while it starts
    after_s: float  # from its start, or from its first answer


def lives(kills: int, seed: int) -> list[Life]:
    """Always the same for a seed: every sixth run is stopped, changed, rolled back."""
    rng = random.Random("gateway %d" % seed)
    actions = [RESTART, DEPLOY, ROLL_BACK] * max(1, kills // 6)
    actions = (actions + [NOTHING] * kills)[:kills]
    rng.shuffle(actions)
    made = []
    for action in actions:
        early = action == NOTHING and rng.random() < 0.4
        made.append(Life(action, early, rng.uniform(0, EARLY_S if early else WORK_S)))
    return made


def process(version: int) -> Process:
    """Every board: a wave of three fields and its averages, one for each sample, both to the lake."""
    p = Process(NAME, checkpoints="ecoc", every=100, batch=BATCH, batch_ms=1000)
    for board in BOARDS:
        source = p.source("s_" + board, "x:i16 y:i16 z:i16", rate_hz=RATE_HZ, on=board)
        mean = Average(field="x", count=COUNTS[version % len(COUNTS)]).named("m_" + board)
        p.lake("crash/" + board, source)
        p.lake("mean/" + board, source >> mean.on(board))
    return p


@dataclass
class Ending:
    """The counts of a run, and what is wrong after it."""

    seed: int
    kills: int = 0
    early: int = 0  # of them, while the gateway started
    restarts: int = 0
    deployments: int = 0  # requested and accepted
    rollbacks: int = 0
    put_off: int = 0  # changes that were refused, because the previous one was not complete
    accepted: int = 0
    refused: int = 0
    delivered: int = 0  # rows of sources in the lake
    results: int = 0  # rows of operators there
    lost: int = 0
    twice: int = 0
    divergent: int = 0
    unknown: int = 0  # rows of sources that are in no ledger
    unknown_most: int = len(BOARDS) * BATCH  # a batch that was sealed as power went is in no ledger
    lost_results: int = 0  # samples in the lake without the result that each has
    out_of_order: int = 0
    gaps_declared: int = 0
    holes: int = 0
    files_refused: int = 0
    audit_ok: bool = False
    conserved: bool = False
    ahead_s: float = 0.0  # site time minus wall clock at the end
    off_most_s: float = 0.0  # the most that they were apart, after any start

    def wrong(self) -> list[str]:
        """The broken parts of the promise."""
        none = ("refused", "lost", "twice", "divergent", "lost_results", "out_of_order", "files_refused")
        found = broken(self, *none)
        if self.gaps_declared:
            found.append("%d gaps: a killed gateway loses nothing that it acknowledged" % self.gaps_declared)
        if self.unknown > self.unknown_most:
            found.append("%d rows that no board accepted" % self.unknown)
        if not self.audit_ok or not self.conserved:
            found.append("the audit finds fault")
        if self.off_most_s > STEP_US / 1e6:
            found.append("site time %.1f s from the wall clock" % self.off_most_s)
        return found


class GatewayCrash:
    """One site; `close` ends everything that it started."""

    def __init__(self, folder: Path, seed: int, say: Callable[[str], None]) -> None:
        self.site = Site(folder)
        self.say = say
        self.ending = Ending(seed)
        self.version = 0
        self.began = time.monotonic()
        t0_us = time.time_ns() // 1000
        self.sensors = {
            name: {"driver": "wave", "seed": seed % 50 + i, "t0_us": t0_us} for i, name in enumerate(BOARDS)
        }

    def close(self) -> None:
        self.site.close()

    def run(self, kills: int) -> Ending:
        self._begin()
        for i, life in enumerate(lives(kills, self.ending.seed)):
            self._live(life)
            self._tell("kill %d: %s" % (i + 1, _words(life)))
        self._answers()
        self._settle()
        self.site.close()
        self._judge()
        return self.ending

    def _begin(self) -> None:
        site = self.site
        site.sink.start()
        for name in BOARDS:
            site.add_board(name, {"s_" + name: self.sensors[name]})
        site.start_broker()
        site.gateway.start()
        self._answers()
        for board in site.boards.values():
            board.start()
        site.deploy(process(self.version))
        until(site.deployed, START_S, "the boards do not take the process: see the logs in %s" % site.folder)
        site.wait_for_sink()
        self.watch = Watch({"crash/" + name: (board, "s_" + name) for name, board in site.boards.items()})
        self._deploy()  # so that there is a version to return to
        self._tell("three boards send; the kills begin")

    def _answers(self) -> None:
        """Wait until the gateway that was started answers."""
        why = "the gateway does not answer: see %s" % self.site.gateway.log
        until(self.site.speaks, START_S, why)
        self.ending.off_most_s = max(self.ending.off_most_s, round(abs(self._ahead_us()) / 1e6, 3))

    def _ahead_us(self) -> int:
        """Site time minus this machine's clock, or more: the answer takes its time."""
        state = until(self.site.state, START_S, "the gateway does not answer")
        ahead: int = state["now_us"] - time.time_ns() // 1000
        return ahead

    def _live(self, life: Life) -> None:
        """From a start of the gateway to its death, and the next start."""
        gateway = self.site.gateway
        if not life.early:
            self._answers()
            if life.action == RESTART:
                gateway.stop()
                gateway.start()
                self._answers()
                self.ending.restarts += 1
            elif life.action == DEPLOY:
                self._deploy()
            elif life.action == ROLL_BACK:
                self._roll_back()
        time.sleep(life.after_s)
        gateway.must_run()
        self.site.sink.must_run()
        gateway.kill()
        gateway.start()
        self.ending.kills += 1
        self.ending.early += life.early

    def _deploy(self) -> None:
        self._wait_for_change(WAIT_S)
        if self._change(lambda: self.site.deploy(process(self.version + 1))):
            self.version += 1
            self.ending.deployments += 1

    def _roll_back(self) -> None:
        from headwater_gateway import control

        self._wait_for_change(WAIT_S)
        body = {"process": NAME, "deployment": None}
        if self._change(lambda: control.ask(self.site.config, "/rollback", body)):
            self.version += 1  # there are two: the previous one is the other
            self.ending.rollbacks += 1

    def _change(self, ask: Callable[[], Any]) -> bool:
        from headwater_gateway import UserError as GatewayTrouble

        try:
            ask()
            return True
        except GatewayTrouble as trouble:
            if "is being changed already" not in str(trouble):
                raise
            self.ending.put_off += 1
            return False

    def _wait_for_change(self, timeout_s: float) -> bool:
        """Whether every board runs what was deployed last."""
        end = time.monotonic() + timeout_s
        while True:
            state = self.site.state()
            if state is not None and state["processes"][NAME]["step"] == "runs":
                return True
            if time.monotonic() > end:
                return False
            time.sleep(0.2)

    def _settle(self) -> None:
        """Stop sampling; wait for what is on its way."""
        if not self._wait_for_change(SETTLE_S):
            raise UserError("the last change does not reach every board: see %s" % self.site.folder)
        self.site.stop_sensors()
        self._tell("the sensors have stopped; what is on its way arrives")

        def landed() -> bool:
            self.site.gateway.must_run()
            self.site.sink.must_run()
            if not self.watch.everything_landed(self.site.state()):
                return False
            samples, results = self._rows()
            return samples == results  # the last are still computed

        end = time.monotonic() + SETTLE_S
        while not landed() and time.monotonic() < end:  # what has not arrived is lost, and is counted
            time.sleep(0.5)
        self.ending.ahead_s = round(self._ahead_us() / 1e6, 3)
        self.ending.off_most_s = max(self.ending.off_most_s, abs(self.ending.ahead_s))

    def _rows(self) -> tuple[int, int]:
        """Rows in the lake: of sources, of operators."""
        from deltalake import DeltaTable

        table = DeltaTable(str(self.site.lake / "elements")).to_pyarrow_table(columns=["stream"])
        streams = table.column("stream").to_pylist()
        samples = sum(stream.startswith("crash/") for stream in streams)
        return samples, len(streams) - samples

    def _judge(self) -> None:
        from headwater_cloud.audit import as_json, audit

        ending = self.ending
        sources = [
            ("crash/" + name, board, "s_" + name, self.sensors[name])
            for name, board in self.site.boards.items()
        ]
        compared: Compared = compare(self.site.lake, sources)
        ending.accepted, ending.delivered = compared.accepted, compared.delivered
        ending.refused = compared.refused
        ending.lost, ending.divergent = compared.lost, compared.divergent
        ending.unknown = compared.delivered - (compared.accepted - compared.lost)
        said = as_json(audit(str(self.site.lake), landing=str(self.site.folder / "landing")))
        ending.twice = max(compared.twice, said["duplicates"])
        ending.divergent += said["divergent"]
        ending.results = said["delivered"] - compared.delivered
        ending.lost_results = max(said["lost"] + said["in_flight"], ending.delivered - ending.results)
        ending.out_of_order = said["out_of_order"]
        ending.gaps_declared, ending.holes = said["gaps_declared"], said["holes"]
        ending.files_refused = sum(said["files_refused"].values())
        ending.audit_ok, ending.conserved = said["ok"], bool(said["conservation"]["holds"])

    def _tell(self, text: str) -> None:
        self.say("%5.0f s  %s" % (time.monotonic() - self.began, text))


def _words(life: Life) -> str:
    when = "%.2f s after its %s" % (life.after_s, "start" if life.early else "first answer")
    return when + ("" if life.action == NOTHING else ", after a " + life.action)


def page(ending: Ending) -> list[str]:
    """The result for people."""
    e = ending
    return [
        "%d kills, %d of them at its start; %d restarts, %d deployments, %d rollbacks, %d put off"
        % (e.kills, e.early, e.restarts, e.deployments, e.rollbacks, e.put_off),
        "%s samples accepted by the boards, %d refused; %s rows in the lake: %d lost, %d twice, %d divergent"
        % (f"{e.accepted:,}", e.refused, f"{e.delivered:,}", e.lost, e.twice, e.divergent),
        "%d rows that were sealed as power went at the end, and that no ledger has" % e.unknown,
        "%s results of operators: %d lost; %d gaps declared, %d holes; files refused: %d"
        % (f"{e.results:,}", e.lost_results, e.gaps_declared, e.holes, e.files_refused),
        "site time minus wall clock: %+.3f s at the end; at most %.3f s apart after any start"
        % (e.ahead_s, e.off_most_s),
    ]
