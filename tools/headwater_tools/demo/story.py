"""The story of the demo: a site at work, what goes wrong in it, and the proof that nothing is missing.

First the battery of the hip's board runs down, and its operators leave in time. Meanwhile a board loses
power in a flash write, another one its link, the broker restarts, and the sink dies. When the hip is dead the
gateway is stopped, another board dies at once, and its operators start on a peer. Then the gateway comes
back.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..boards import energy
from ..boards.virtual import ECG
from ..errors import UserError
from .compare import Compared, compare
from .observer import Seen, Spell, Watch
from .operators import Moved, Operators
from .site import BOARDS, HEAP, Site
from .timeline import CUT, DEAD, DOWN, TITLE, UP, Timeline

LOOK_S = 0.5
TELL_S = 10.0
FLIGHT_S = 100.0  # until the hip's battery is empty, whatever happens
TAKEOVER_S = 120.0  # the gateway is away no longer
AFTER_S = 4.0  # the sensors go on for this long after the gateway is back
DRAIN_S = 120.0  # until the lake must have everything after the sensors have stopped
BATCH_OF_DEATH = 1  # the sink dies between the Delta commit of this batch and its progress

# The hip's battery: an ESP32's, so small that all of it lasts this long at what the board draws at most, and
# not full.
KIND = "esp32"
BATTERY_S = 60
CHARGED = 0.48
FLEES, DIES = "hip", "arm"


@dataclass
class Ending:
    compared: Compared
    audit: Any  # headwater_cloud.audit.Report
    watch: Watch
    moves: list[Moved]
    away: list[Moved]  # those of them that came while the gateway was away
    drained: bool
    picture: Path


class Story:
    def __init__(self, folder: Path, seconds: float, seed: int, say: Callable[[str], None]) -> None:
        """`seconds`: time over which faults are spread that wait for nothing."""
        self.site = Site(folder)
        self.seconds = seconds
        self.random = random.Random(seed)
        self.say = say
        self.sensors: dict[str, tuple[str, str, dict[str, Any]]] = {}  # stream -> board, source, settings
        self.watch = Watch({})
        self.told_s = 0.0
        self.events: list[tuple[float, Callable[[], None]]] = []
        self.sink_spell: Spell | None = None
        self.landed_at_death = 0
        self.operators = Operators({})
        self.timeline = Timeline([], [])
        self.moves: list[Moved] = []
        self.away: list[Moved] = []
        self.percent: int | None = None  # of the hip's battery,
        self.left_s = 0  # ... and how long it lasts
        self.died: dict[str, float] = {}  # board -> when, of the watch
        self.stopped_s = 0.0  # the sensors
        self.without_s = 0.0  # the gateway was stopped then

    # ---- the start of the parts

    def begin(self) -> None:
        site = self.site
        t0_us = time.time_ns() // 1000
        self.sensors = {
            "cardio/ecg": ("chest", "ecg", {"driver": "file", "path": str(ECG), "t0_us": t0_us}),
            "cardio/accel": ("wrist", "accel", {"driver": "wave", "seed": 3, "t0_us": t0_us}),
        }
        self.say("sink: Spark starts")
        site.sink.start({"HEADWATER_CRASH_AT": "recorded:%d" % BATCH_OF_DEATH})
        for name in BOARDS:
            self._make(name)
        self.say("broker: Mosquitto with TLS and an access list, on loopback")
        site.start_broker()
        site.start_gateway()
        self.say("gateway: status page at http://127.0.0.1:%d/" % site.page_port)
        for name in BOARDS:
            site.boards[name].start()
        self.say("boards: %s, each a 32-bit MicroPython with a heap of %s" % (", ".join(BOARDS), HEAP))
        site.wait_for_sink()
        site.deploy()
        self._wait(site.deployed, 60, "the boards did not take the process: see the logs in %s" % site.folder)
        self.watch = Watch({s: (site.boards[b], source) for s, (b, source, _) in self.sensors.items()})
        vertices = site.vertices()
        self.operators.places.update({v["name"]: v["host"] for v in vertices})
        self.timeline = Timeline([*BOARDS, "broker", "gateway", "sink"], [v["name"] for v in vertices])
        for name in BOARDS:
            here = [v["name"] for v in vertices if v["host"] == name]
            self.say("  on %s: %s" % (name, ", ".join(here) or "nothing"))

    def _make(self, name: str) -> None:
        """A board; that of the hip has a small battery."""
        sensors = {s: d for b, s, d in self.sensors.values() if b == name}
        if name != FLEES:
            board = self.site.add_board(name, sensors, on_line=self.operators.hear)
            board.battery(3900 + self.random.randrange(200))
            return
        draws = energy.board(KIND)
        assert draws is not None
        capacity_mc = BATTERY_S * (draws.awake_ua + draws.radio_ua) // 1000
        given = energy.given(draws, capacity_mc)
        board = self.site.add_board(name, sensors, energy=given, on_line=self.operators.hear)
        board.charge(int(CHARGED * capacity_mc))

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

    def script(self) -> None:
        """Faults that wait for nothing; `look_after_hip` has what follows."""
        away = 0.07 * self.seconds
        self.at(0.12 * self.seconds, lambda: self.cut_board("chest", away))
        self.at(0.52 * self.seconds, lambda: self.pull("arm", away))
        self.at(0.68 * self.seconds, lambda: self.restart_broker(0.05 * self.seconds))

    def down(self, part: str, what: str, told: str) -> Spell:
        spell = self.watch.down(part, what)
        self.timeline.happened("%s: %s" % (part, what), self.watch.now())
        self.tell(told)
        return spell

    def cut_board(self, name: str, away_s: float) -> None:
        board = self.site.boards[name]
        k = self.random.randrange(40, 200)
        board.cut_in_write(k)
        spell = self.down(
            name, "power cut in a flash write", "%s loses power after %d bytes of a flash write" % (name, k)
        )

        def back() -> None:
            board.start()
            self.watch.up(spell)
            self.tell("%s has power again" % name)

        self.later(away_s, back)

    def pull(self, name: str, away_s: float) -> None:
        cord = self.site.cords[name]
        cord.pull()
        spell = self.down(name, "link down", "the link of %s is down" % name)

        def back() -> None:
            cord.plug()
            self.watch.up(spell)
            self.tell("the link of %s is back" % name)

        self.later(away_s, back)

    def restart_broker(self, away_s: float) -> None:
        self.site.broker.kill()
        spell = self.down("broker", "restart", "the broker is killed; no operator moves because of that")

        def back() -> None:
            self.site.start_broker()
            self.watch.up(spell)
            self.tell("the broker is back")

        self.later(away_s, back)

    def look_after_sink(self) -> None:
        """It dies at its crash point; this restarts it, as a service manager would."""
        if self.site.sink.running():
            if self.sink_spell and not self.sink_spell.to_s and self._sink_works():
                self.watch.up(self.sink_spell)
                self.tell("the sink is back at work")
            return
        if self.sink_spell is not None:
            self.site.sink.must_run()
        self.sink_spell = self.down(
            "sink",
            "killed between commit and progress",
            "the sink died between its Delta commit and its progress; it starts again",
        )
        self.landed_at_death = self.watch.seen[-1].landed if self.watch.seen else 0
        self.site.sink.start()

    def _sink_works(self) -> bool:
        return bool(self.watch.seen) and self.watch.seen[-1].landed > self.landed_at_death

    # ---- deaths

    def look_after_hip(self) -> None:
        """When its battery is empty, the gateway is stopped."""
        if FLEES in self.died:
            return
        if not self.site.boards[FLEES].running():
            self.dies(FLEES, "battery empty", "the battery of %s is empty: %s is dead" % (FLEES, FLEES))
        elif self.watch.now() > FLIGHT_S:
            self.site.boards[FLEES].kill()
            self.dies(FLEES, "power cut", "%s has lasted longer than planned: its power is cut" % FLEES)
        else:
            return
        self.at(max(self.watch.now() + 2, 0.8 * self.seconds), self.stop_gateway)

    def dies(self, name: str, what: str, told: str) -> None:
        left = [o for o, host in self.operators.places.items() if host == name]
        self.died[name] = self.watch.now()
        self.down(name, what, "%s; on it ran: %s" % (told, ", ".join(left) or "nothing"))

    def stop_gateway(self) -> None:
        self.site.gateway.stop()
        self.without_s = self.watch.now()
        spell = self.down("gateway", "stopped", "the gateway is stopped; the broker stays")

        def kill() -> None:
            self.site.boards[DIES].kill()
            self.dies(DIES, "kill -9", "%s dies at once, and no gateway is there" % DIES)
            wait()

        def wait() -> None:
            left = [o for o, host in self.operators.places.items() if host == DIES]
            if left and self.watch.now() - self.died[DIES] < TAKEOVER_S:
                self.later(0.2, wait)
            else:
                self.later(2, start)

        def start() -> None:
            self.site.gateway.start()
            seen()

        def seen() -> None:
            if not self.site.speaks():
                self.later(0.1, seen)
                return
            self.watch.up(spell)
            self.tell("the gateway is back, after %.0f s" % (spell.to_s - spell.from_s))
            self.later(AFTER_S, self.stop_sensors)

        self.later(1, kill)

    def stop_sensors(self) -> None:
        for board in self.site.boards.values():
            board.stop_sensors()
        self.stopped_s = self.watch.now()
        self.timeline.sensors_stop(self.stopped_s)
        self.tell("the sensors have stopped; what is on its way arrives")

    # ---- moves

    def look_at_moves(self, state: dict[str, Any] | None) -> None:
        for move in self.operators.news():
            at_s = move.at_s - self.watch.began
            self.moves.append(move)
            if state is None:
                self.away.append(move)
            self.timeline.moved(move, at_s)
            if move.planned:
                why = self._why(state, move)
                left = "" if self.percent is None else " (%d %% left, %d s)" % (self.percent, self.left_s)
                self.tell(
                    "%s moves from %s to %s: %s%s; it paused for %.0f ms, replayed: %d"
                    % (move.operator, move.giver, move.taker, why, left, 1000 * move.paused_s, move.replayed)
                )
            else:
                since = at_s - self.died.get(move.giver, at_s)
                alone = "without the gateway, " if state is None else ""
                self.tell(
                    "%s starts on %s, %s%.1f s after the death of %s"
                    % (move.operator, move.taker, alone, since, move.giver)
                )

    def _why(self, state: dict[str, Any] | None, move: Moved) -> str:
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
                drained = self.sink_spell is not None and self.watch.everything_landed(state)
                if drained or now - self.stopped_s > DRAIN_S:
                    break
        self._status(self.watch.seen[-1])
        return self._end(drained)

    def look(self) -> dict[str, Any] | None:
        """Everything that is looked at twice a second; the gateway's state."""
        self.look_after_sink()
        state = self.site.state()
        if state is not None:
            told = state["boards"][FLEES]["status"].get("energy")
            if told:
                self.percent, self.left_s = told[:2]
        self.look_at_moves(state)
        self.look_after_hip()
        seen = self.watch.look(state)
        percent = {} if self.percent is None or FLEES in self.died else {FLEES: self.percent}
        self.timeline.look(seen, self._parts(), self.operators.places, percent)
        if seen.at_s - self.told_s >= TELL_S:
            self.told_s = seen.at_s
            self._status(seen)
        return state

    def _parts(self) -> dict[str, str]:
        """What each part is."""
        found = dict.fromkeys([*BOARDS, "broker", "gateway", "sink"], UP)
        for spell in self.watch.spells:
            if not spell.to_s:
                found[spell.part] = CUT if spell.what == "link down" else DOWN
        return {**found, **dict.fromkeys(self.died, DEAD)}

    def _end(self, drained: bool) -> Ending:
        from headwater_cloud.audit import audit

        site = self.site
        site.close()
        sources = [(s, site.boards[b], source, d) for s, (b, source, d) in self.sensors.items()]
        compared = compare(site.lake, sources)
        planned = sum(move.planned for move in self.moves)
        path = site.folder / "timeline.svg"
        accepted = f"{compared.accepted:,}"
        self.timeline.draw(path, TITLE % (accepted, compared.lost, planned, len(self.moves) - planned))
        report = audit(str(site.lake))
        return Ending(compared, report, self.watch, self.moves, self.away, drained, path)

    def tell(self, text: str) -> None:
        self.say("%5.1f s  %s" % (self.watch.now(), text))

    def _status(self, seen: Seen) -> None:
        battery = ""
        if self.percent is not None and FLEES not in self.died:
            battery = "; battery of %s %d %%" % (FLEES, self.percent)
        self.tell(
            "accepted %s, at the gateway %s, in the lake %s%s"
            % (f"{seen.accepted:,}", f"{seen.durable:,}", f"{seen.landed:,}", battery)
        )
