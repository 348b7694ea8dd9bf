"""`hw up SITE`: broker, gateway, sink and virtual boards in one terminal, until Ctrl-C.

What comes first is what takes longest: Spark starts while everything else does. Boards wait for the gateway,
which knows which of them are real. Ctrl-C stops boards, gateway, sink and broker, in this order, so that no
part waits for one that is gone.
"""

from __future__ import annotations

import base64
import contextlib
import signal
import time
from collections.abc import Callable
from typing import Any

from ..boards import site_board
from ..errors import UserError
from .parts import Board, Broker, Gateway, Program, Sink, local_landing
from .place import Place, holder, taken
from .supervisor import Supervisor

TICK_S = 0.1
LOOK_S = 1.0  # between two looks at the gateway's state
LOCK = "up.lock"
# Kinds of events for which other lines are printed here.
QUIET = ("start", "deploy")


class Up:
    def __init__(
        self, place: Place, boards: list[str] | None, sink: bool, say: Callable[[str], None]
    ) -> None:
        """`boards`: None for all that no real board has claimed."""
        self.place = place
        self.wanted = boards
        self.sink = sink
        self.print = say
        self.began = time.monotonic()
        self.stopping = False
        self.supervisor = Supervisor(self.say, time.monotonic)
        self.parts: dict[str, Program | Board] = {}
        self.boards: list[str] = []
        self.held = contextlib.ExitStack()
        self.look_s = 0.0
        self.event = 0  # the last one that was told
        self.runs: set[str] = set()  # processes of which a line said that they run
        self.landed = False

    def say(self, part: str, text: str) -> None:
        self.print("%-8s  %s" % (part, text))

    # ---- from start to stop

    def run(self) -> None:
        """UserError where it cannot start, Failed where a part is not started again; returns after a
        signal."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._signal)
        sentence = "%s is up already, by process %%d: end that with Ctrl-C first" % self.place.shown
        with self.place.held(self.place.folder / LOCK, sentence), self.held:
            self._may_start()
            try:
                self._begin()
                while not self.stopping:
                    self.supervisor.tick()
                    self._news()
                    time.sleep(TICK_S)
            finally:
                self._stop()

    def _signal(self, *_: object) -> None:
        self.stopping = True

    def _may_start(self) -> None:
        """UserError where a part runs already, or its port is taken."""
        from headwater_gateway import broker

        place = self.place
        if place.state() is not None:
            raise UserError(
                "a gateway of %s runs already: end it, or start the other parts by their own commands "
                "(`hw board run`, `hw sink`)" % place.shown
            )
        process = broker.running(place.folder)
        if process:
            raise UserError(
                "the broker of %s runs already, as process %d: end it first, since `hw up` starts its own"
                % (place.shown, process)
            )
        mqtt, http = place.config.mqtt, place.config.http
        if self._own_broker() and taken(mqtt.port):
            raise UserError(
                "port %d of the broker is taken by another program: end that, or change the port in "
                "%s/gateway.toml, %s/mosquitto/mosquitto.conf and boards/*/config.json"
                % (mqtt.port, place.shown, place.shown)
            )
        if http.port and taken(http.port):
            raise UserError(
                "port %d of the status page is taken by another program: end that, or change http.port in "
                "%s/gateway.toml (0: any free one)" % (http.port, place.shown)
            )
        for name in self.wanted or ():
            place.known(name)

    def _own_broker(self) -> bool:
        return (self.place.folder / "mosquitto" / "mosquitto.conf").is_file()

    def _begin(self) -> None:
        self.print("%s starts; Ctrl-C stops everything" % self.place.shown)
        local_landing(self.place)
        if self.sink:
            self._add(Sink(self.place))
        if self._own_broker():
            self._add(Broker(self.place))
        self._add(Gateway(self.place))
        self._until_up("gateway")
        if self.stopping:
            return
        self._deploy()
        for name in self._chosen():
            self._add(Board(self.place, name))
            self.boards.append(name)
        if not self.boards:
            self.say("boards", "none: `hw board run NAME %s` starts a virtual one" % self.place.shown)

    def _add(self, part: Program | Board) -> None:
        self.parts[part.name] = part
        self.supervisor.add(part)

    def _until_up(self, name: str) -> None:
        while not self.stopping and not self.supervisor.is_up(name):
            self.supervisor.tick()
            time.sleep(TICK_S)

    def _stop(self) -> None:
        # Another Ctrl-C changes nothing: everything is being stopped already, each part within seconds.
        self.print("stopping")
        began = time.monotonic()
        self.supervisor.stop([*self.boards, "gateway", "sink", "broker"])
        self.print("everything has stopped, after %.1f s" % (time.monotonic() - began))

    # ---- what is done once

    def _deploy(self) -> None:
        """The site's process file, where the gateway has never had a process."""
        place = self.place
        state = place.ask("/state")
        if not place.process.is_file():
            return
        try:
            report = place.checked()
            problems = [str(problem) for problem in report.problems] if report else []
        except UserError as trouble:
            report, problems = None, [str(trouble)]
        if state["processes"] or state["undeployed"]:
            self._compare(state, report)
            return
        if report is None or report.plan is None:
            raise UserError("%s cannot be deployed:\n  %s" % (place.process, "\n  ".join(problems)))
        answer = place.ask("/deploy", {"plan": base64.b64encode(report.plan).decode()})
        hosts = ", ".join(report.decoded.hosts[1:]) if report.decoded else ""
        self.say("process", "%s is deployed to %s (%s)" % (answer["process"], hosts, place.process))

    def _compare(self, state: dict[str, Any], report: Any) -> None:
        process = state["processes"].get(report.name) if report is not None else None
        if process is not None and report.hash is not None and process["version"] != report.hash:
            text = "%s has changed since it was deployed: `hw deploy %s --gateway %s` brings it to the boards"
            self.say("process", text % (self.place.process, self.place.process, self.place.shown))

    def _chosen(self) -> list[str]:
        """The boards that run here. Of each one the lock is held from now on."""
        state = self.place.ask("/state")
        chosen = []
        for name in self.place.boards() if self.wanted is None else self.wanted:
            ran_here = (self.place.virtual(name) / "flash.bin").exists()
            seen = state["boards"].get(name, {}).get("seen_us")
            lock = self.place.virtual(name) / "lock"
            if self.wanted is not None:
                if not ran_here:
                    site_board.must_be_alone(self.place, name)
            elif (self.place.folder / "boards" / name / "flash.bin").exists():
                self.say(name, "left out: `hw host %s` is this board" % (self.place.shown / "boards" / name))
                continue
            elif seen and not ran_here:
                self.say(name, "left out, since a real board of this name has reported; --boards %s" % name)
                continue
            elif holder(lock):
                self.say(name, "left out: it runs already, as process %d" % holder(lock))
                continue
            sentence = "board %s runs already, as process %%d: end that first" % name
            self.held.enter_context(self.place.held(lock, sentence))
            chosen.append(name)
        return chosen

    # ---- what matters afterwards

    def _news(self) -> None:
        for name, part in self.parts.items():
            if self.supervisor.is_up(name):
                for line in part.news():
                    self.say(name, line)
        now = time.monotonic()
        if now < self.look_s:
            return
        self.look_s = now + LOOK_S
        state = self.place.state()
        if state is not None:
            self._events(state)
            self._processes(state)
            self._lake(state)

    def _events(self, state: dict[str, Any]) -> None:
        for event in state["events"]:
            if event["id"] > self.event and self.event and event["kind"] not in QUIET:
                self.say("gateway", event["text"])
        # What happened before this start is history: `hw gateway alarms --events` has it.
        self.event = max([self.event, 1, *(event["id"] for event in state["events"])])

    def _processes(self, state: dict[str, Any]) -> None:
        for name, process in state["processes"].items():
            if process["step"] == "runs" and name not in self.runs:
                self.runs.add(name)
                self.say("process", "%s runs on %s" % (name, ", ".join(process["hosts"][1:])))

    def _lake(self, state: dict[str, Any]) -> None:
        """The first rows that the lake has, and how to see them."""
        streams = [s["stream"] for s in state["streams"] if s["acked"]]
        if streams and not self.landed and self.sink:
            self.landed = True
            took_s = time.monotonic() - self.began
            text = "%s has rows of %s, %.0f s after the start; in another terminal:"
            self.say("lake", text % (self.place.lake, streams[0], took_s))
            self.say("", "hw lake show %s %s --last 5" % (self.place.shown, streams[0]))
