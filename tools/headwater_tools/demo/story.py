"""The story of the demo: a site at work, what goes wrong in it, and the proof that nothing is missing.

First the battery of the hip's board runs down, and its operators leave in time. Meanwhile a board loses
power in a flash write, another one its link, the broker restarts, and the sink dies. When the hip is dead the
gateway is stopped, another board dies at once, and its operators start on a peer. Then the gateway comes
back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..boards.virtual import ECG
from .observer import Spell
from .play import LINK_DOWN, Play
from .site import BOARDS, Site

FLIGHT_S = 100.0  # until the hip's battery is empty, whatever happens
TAKEOVER_S = 120.0  # the gateway is away no longer
AFTER_S = 4.0  # the sensors go on for this long after the gateway is back
BATCH_OF_DEATH = 1  # the sink dies between the Delta commit of this batch and its progress

# The hip's battery: an ESP32's, so small that all of it lasts this long at what the board draws at most, and
# not full.
KIND = "esp32"
BATTERY_S = 60
CHARGED = 0.48
DIES = "arm"


class Story(Play):
    BOARDS = BOARDS
    FLEES = "hip"
    TITLE = "hw demo: %s samples accepted, %d lost; operators moved: %d ahead of a death, %d after one"

    def __init__(self, folder: Path, seconds: float, seed: int, say: Callable[[str], None]) -> None:
        super().__init__(Site(folder), seconds, seed, say)
        self.sink_spell: Spell | None = None
        self.landed_at_death = 0

    def begin(self, crash: dict[str, str] | None = None) -> None:
        t0_us = time.time_ns() // 1000
        self.sensors = {
            "cardio/ecg": ("chest", "ecg", {"driver": "file", "path": str(ECG), "t0_us": t0_us}),
            "cardio/accel": ("wrist", "accel", {"driver": "wave", "seed": 3, "t0_us": t0_us}),
        }
        super().begin({"HEADWATER_CRASH_AT": "recorded:%d" % BATCH_OF_DEATH})

    def make(self, name: str, sensors: dict[str, Any]) -> None:
        """A board; that of the hip has a small battery."""
        if name == self.FLEES:
            board, capacity_mc = self.small_battery(KIND, BATTERY_S)
            board.charge(int(CHARGED * capacity_mc))
        else:
            board = self.site.add_board(name, sensors, on_line=self.operators.hear)
            board.battery(3900 + self.random.randrange(200))

    # ---- what goes wrong

    def script(self) -> None:
        """Faults that wait for nothing; `look_after` has what follows."""
        away = 0.07 * self.seconds
        self.at(0.12 * self.seconds, lambda: self.cut_board("chest", away))
        self.at(0.52 * self.seconds, lambda: self.pull("arm", away))
        self.at(0.68 * self.seconds, lambda: self.restart_broker(0.05 * self.seconds))

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
        spell = self.down(name, LINK_DOWN, "the link of %s is down" % name)

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

    # ---- what follows

    def look_after(self, state: dict[str, Any] | None) -> None:
        self.look_after_sink()
        if self.battery_ends(FLIGHT_S):
            self.at(max(self.watch.now() + 2, 0.8 * self.seconds), self.stop_gateway)

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

    def complete(self) -> bool:
        return self.sink_spell is not None

    def look_at_battery(self, state: dict[str, Any] | None) -> None:
        told = state and state["boards"][self.FLEES]["status"].get("energy")
        if told:
            self.percent, self.left_s = told[:2]

    def stop_gateway(self) -> None:
        self.site.gateway.stop()
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
