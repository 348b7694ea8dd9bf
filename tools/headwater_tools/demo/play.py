"""What the stories of the demo share: the start of a site, what is looked at twice a second, and the proof.

A story says which boards there are, what goes wrong when, and what it expects of the moves.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.process import Process

from ..boards import energy
from ..boards.virtual import VirtualBoard
from ..errors import UserError
from .compare import Compared, compare
from .links import Links
from .observer import Seen, Spell, Watch
from .operators import Moved, Operators
from .site import HEAP, SINK_AGAIN_S, Site
from .timeline import CUT, DEAD, DOWN, UP, Timeline

LOOK_S = 0.5
TELL_S = 10.0
STILL_S = float(SINK_AGAIN_S)  # with nothing landing, after the sensors have stopped: it is given up
PARTS = ("broker", "gateway", "sink")
LINK_DOWN, OUT_OF_REACH = "link down", "out of reach"  # faults of links: their part goes on


@dataclass
class Ending:
    compared: Compared
    audit: Any  # headwater_cloud.audit.Report
    watch: Watch
    moves: list[Moved]
    away: list[Moved]  # those of them that came while the gateway was away
    drained: bool
    picture: Path
    more: dict[str, Any] = field(default_factory=dict)  # what only this story has, for machines
    kept: bool = True  # what only this story promises
    lines: list[str] = field(default_factory=list)  # ... for people


class Play:
    # Of a story.
    BOARDS: tuple[str, ...] = ()
    FLEES = ""  # the board whose battery runs down
    TITLE = ""  # of the timeline

    def __init__(self, site: Site, seconds: float, seed: int, say: Callable[[str], None]) -> None:
        """`seconds`: time over which faults are spread that wait for nothing."""
        self.site = site
        self.seconds = seconds
        self.random = random.Random(seed)
        self.say = say
        self.sensors: dict[str, tuple[str, str, dict[str, Any]]] = {}  # stream -> board, source, settings
        self.watch = Watch({})
        self.told_s = 0.0
        self.events: list[tuple[float, Callable[[], None]]] = []
        self.operators = Operators({})
        self.timeline = Timeline([], [])
        self.links = Links()  # those of which is told what they carried
        self.moves: list[Moved] = []
        self.away: list[Moved] = []
        self.percent: int | None = None  # of the battery that runs down,
        self.left_s: int | None = None  # ... and how long it lasts
        self.died: dict[str, float] = {}  # board -> when, of the watch
        self.stopped_s = 0.0  # the sensors
        self.landed_s = 0.0  # something landed last

    # ---- what a story says

    def process(self) -> Process | None:
        """What is deployed; None: the process of the plain demo."""
        return None

    def make(self, name: str, sensors: dict[str, Any]) -> None:
        """Make a board of the site."""
        raise NotImplementedError

    def script(self) -> None:
        """Faults that wait for nothing."""

    def look_after(self, state: dict[str, Any] | None) -> None:
        """What happens because something else did; twice a second."""

    def look_at_battery(self, state: dict[str, Any] | None) -> None:
        """What the battery has left that runs down."""

    def alone(self, state: dict[str, Any] | None) -> bool:
        """Whether boards are without the gateway now."""
        return state is None

    def complete(self) -> bool:
        """Whether all that should go wrong has gone wrong."""
        return True

    def close(self) -> None:
        self.site.close()

    # ---- the start of the parts

    def begin(self, crash: dict[str, str] | None = None) -> None:
        """`crash`: variables with which the sink starts."""
        site = self.site
        self.say("sink: Spark starts")
        site.sink.start(crash or {})
        for name in self.BOARDS:
            self.make(name, {s: d for b, s, d in self.sensors.values() if b == name})
        self.say("broker: Mosquitto with TLS and an access list, on loopback")
        site.start_broker()
        site.start_gateway()
        self.say("gateway: status page at http://127.0.0.1:%d/" % site.page_port)
        for name in self.BOARDS:
            site.boards[name].start()
        self.say("boards: %s, each a 32-bit MicroPython with a heap of %s" % (", ".join(self.BOARDS), HEAP))
        site.wait_for_sink()
        site.deploy(self.process())
        self._wait(site.deployed, 60, "the boards did not take the process: see the logs in %s" % site.folder)
        self.watch = Watch({s: (site.boards[b], source) for s, (b, source, _) in self.sensors.items()})
        vertices = site.vertices()
        self.operators.places.update({v["name"]: v["host"] for v in vertices})
        self.timeline = Timeline([*self.BOARDS, *PARTS], [v["name"] for v in vertices])
        for name in self.BOARDS:
            here = [v["name"] for v in vertices if v["host"] == name]
            self.say("  on %s: %s" % (name, ", ".join(here) or "nothing"))

    def small_battery(self, kind: str, whole_s: float, **more: Any) -> tuple[VirtualBoard, int]:
        """The board whose battery runs down: it has that of this kind, so small that a full one lasts this
        long at what the board draws at most. The board, and what the battery holds, in millicoulombs."""
        draws = energy.board(kind)
        assert draws is not None
        capacity_mc = int(whole_s * (draws.awake_ua + draws.radio_ua) / 1000)
        given = energy.given(draws, capacity_mc)
        board = self.site.add_board(self.FLEES, {}, energy=given, on_line=self.operators.hear, **more)
        return board, capacity_mc

    def _wait(self, what: Callable[[], bool], timeout_s: float, why: str) -> None:
        end = time.monotonic() + timeout_s
        while not what():
            if time.monotonic() > end:
                raise UserError(why)
            time.sleep(0.2)

    # ---- what goes wrong

    def at(self, second: float, action: Callable[[], None]) -> None:
        self.events.append((second, action))
        self.events.sort(key=lambda event: event[0])

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        self.at(self.watch.now() + delay_s, action)

    def down(self, part: str, what: str, told: str) -> Spell:
        spell = self.watch.down(part, what)
        self.timeline.happened("%s: %s" % (part, what), self.watch.now())
        self.tell(told)
        return spell

    def dies(self, name: str, what: str, told: str) -> None:
        left = [o for o, host in self.operators.places.items() if host == name]
        self.died[name] = self.watch.now()
        self.down(name, what, "%s; on it ran: %s" % (told, ", ".join(left) or "nothing"))

    def battery_ends(self, flight_s: float) -> bool:
        """Whether the board whose battery runs down has just died, of that or for having lasted too long."""
        name = self.FLEES
        if name in self.died:
            return False
        if not self.site.boards[name].powered:
            self.dies(name, "battery empty", "the battery of %s is empty: %s is dead" % (name, name))
        elif self.watch.now() > flight_s:
            self.site.boards[name].kill()
            self.dies(name, "power cut", "%s has lasted longer than planned: its power is cut" % name)
        else:
            return False
        return True

    def stop_sensors(self) -> None:
        for board in self.site.boards.values():
            board.stop_sensors()
        self.stopped_s = self.watch.now()
        self.timeline.turn(self.stopped_s, "sensors stop")
        self.tell("the sensors have stopped; what is on its way arrives")

    # ---- moves

    def look_at_moves(self, state: dict[str, Any] | None) -> None:
        for move in self.operators.news():
            at_s = move.at_s - self.watch.began
            self.moves.append(move)
            if self.alone(state):
                self.away.append(move)
            self.timeline.moved(move, at_s)
            if move.planned:
                self.tell_planned(move, state)
            else:
                since = at_s - self.died.get(move.giver, at_s)
                alone = "without the gateway, " if self.alone(state) else ""
                self.tell(
                    "%s starts on %s, %s%.1f s after the death of %s"
                    % (move.operator, move.taker, alone, since, move.giver)
                )

    def tell_planned(self, move: Moved, state: dict[str, Any] | None) -> None:
        self.tell(
            "%s moves from %s to %s: %s%s; it paused for %.0f ms, replayed: %d"
            % (
                move.operator, move.giver, move.taker, self.why(state, move), self.left(),
                1000 * move.paused_s, move.replayed,
            )
        )  # fmt: skip

    def left(self) -> str:
        if self.percent is None:
            return ""
        return " (%d %% left%s)" % (self.percent, "" if self.left_s is None else ", %d s" % self.left_s)

    def why(self, state: dict[str, Any] | None, move: Moved) -> str:
        """As the gateway has it."""
        for v in self.site.vertices(state):
            if v["name"] == move.operator and v["host"] == move.taker and v["moved"]:
                return str(v["moved"]["why"])
        return "planned"

    # ---- progress

    def run(self) -> Ending:
        self.watch.began = time.monotonic()
        self.script()
        next_look = 0.0
        drained = False
        while True:
            now = self.watch.now()
            while self.events and self.events[0][0] <= now:
                self.events.pop(0)[1]()
            if now < next_look:
                time.sleep(0.02)
                continue
            next_look = now + LOOK_S
            state = self.look()
            if self.stopped_s and not self.events:
                drained = self.complete() and self.watch.everything_landed(state)
                if drained or now - max(self.stopped_s, self.landed_s) > STILL_S:
                    break
        self._status(self.watch.seen[-1])
        return self.end(drained)

    def look(self) -> dict[str, Any] | None:
        """Everything that is looked at twice a second; the gateway's state."""
        state = self.site.state()
        at_s = self.watch.now()
        carried = self.links.look(at_s)
        self.look_at_battery(state)
        self.look_at_moves(state)
        self.look_after(state)
        landed = self.watch.seen[-1].landed if self.watch.seen else 0
        seen = self.watch.look(state)
        if seen.landed > landed:
            self.landed_s = seen.at_s
        percent = {} if self.percent is None or self.FLEES in self.died else {self.FLEES: self.percent}
        parts = self.parts()
        self.timeline.look(seen, parts, self.operators.places, percent)
        self.timeline.look_at_links(self.links, carried, at_s, parts)
        if seen.at_s - self.told_s >= TELL_S:
            self.told_s = seen.at_s
            self._status(seen)
        return state

    def parts(self) -> dict[str, str]:
        """What each part is."""
        found = dict.fromkeys([*self.BOARDS, *PARTS], UP)
        for spell in self.watch.spells:
            if not spell.to_s:
                found[spell.part] = CUT if spell.what in (LINK_DOWN, OUT_OF_REACH) else DOWN
        return {**found, **dict.fromkeys(self.died, DEAD)}

    def end(self, drained: bool) -> Ending:
        from headwater_cloud.audit import audit

        site = self.site
        site.close()
        sources = [(s, site.boards[b], source, d) for s, (b, source, d) in self.sensors.items()]
        compared = compare(site.lake, sources)
        planned = sum(move.planned for move in self.moves)
        path = site.folder / "timeline.svg"
        accepted = f"{compared.accepted:,}"
        self.timeline.draw(path, self.TITLE % (accepted, compared.lost, planned, len(self.moves) - planned))
        report = audit(str(site.lake))
        return Ending(compared, report, self.watch, self.moves, self.away, drained, path)

    def tell(self, text: str) -> None:
        self.say("%5.1f s  %s" % (self.watch.now(), text))

    def _status(self, seen: Seen) -> None:
        battery = ""
        if self.percent is not None and self.FLEES not in self.died:
            battery = "; battery of %s %d %%" % (self.FLEES, self.percent)
        self.tell(
            "accepted %s, at the gateway %s, in the lake %s%s"
            % (f"{seen.accepted:,}", f"{seen.durable:,}", f"{seen.landed:,}", battery)
        )
