"""The story of `hw demo --ble`: a person with two boards leaves the house, and the battery of one ends.

The broker goes away first; both boards go on over Bluetooth, to the gateway and to each other. Then the
person is out of reach of the gateway too, and the boards have only each other. When the battery of the hip
runs low its operator moves to the belt, from board to board. The hip dies; the person comes back, and so does
the broker; what waited in the belt's flash arrives.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from headwater.process import Process

from ..boards.virtual import ECG
from ..process_file import load
from ..radio.served import GATEWAY
from ..radio.station import Station
from .links import BLUETOOTH, MQTT, alone
from .observer import Spell
from .operators import Moved
from .play import OUT_OF_REACH, Ending, Play
from .site import ON, Site

PROCESS = Path(__file__).parents[1] / "examples" / "outdoors.py"
STAYS, FLEES = "chest", "hip"
BROKER_AWAY = 0.15  # of the time for faults
TAKEN = 2000  # samples that reach the gateway over Bluetooth before the person leaves
STAY_S = 4.0  # ... and the time after that
FLIGHT_S = 180.0  # until the battery is empty, whatever happens
RETURN_S = 3.0  # after the death
AFTER_S = 4.0  # the sensors go on for this long after the return

# The battery: that of an ESP32-S3, whose memory takes Wi-Fi and Bluetooth; so small that all of it lasts this
# long at what the board draws at most, and not full.
KIND = "esp32s3"
BATTERY_S = 100
CHARGED = 0.42


class BluetoothStory(Play):
    BOARDS = (STAYS, FLEES)
    FLEES = FLEES
    TITLE = "hw demo --ble: %s samples accepted, %d lost; operators moved: %d ahead of a death, %d after one"

    def __init__(self, folder: Path, seconds: float, seed: int, say: Callable[[str], None]) -> None:
        self.station = Station(seed)
        super().__init__(Site(folder, self.station), seconds, seed, say)
        self.capacity_mc = 0
        self.between = ""  # the link between the two boards
        self.broker_spell: Spell | None = None
        self.gateway_spell: Spell | None = None
        self.durable_then = 0  # when the broker went away
        self.leaves = False  # the person leaves, or has left
        self.heard: set[str] = set()  # operators of whose move the gateway knows
        self.ways: list[tuple[Moved, dict[str, int]]] = []  # moves, and what each link carried meanwhile

    def close(self) -> None:
        self.site.close()
        self.station.close()

    def process(self) -> Process:
        return load(str(PROCESS))

    def begin(self, crash: dict[str, str] | None = None) -> None:
        t0_us = time.time_ns() // 1000
        self.sensors = {
            "cardio/ecg": (STAYS, "ecg", {"driver": "file", "path": str(ECG), "t0_us": t0_us}),
            "cardio/accel": (STAYS, "accel", {"driver": "wave", "seed": 3, "t0_us": t0_us}),
        }
        self.say("radio: virtual, between real hosts: NimBLE on the boards, bleak at the gateway")
        super().begin(crash)
        for name, cord in self.site.cords.items():
            self.links.add(name, "broker", MQTT, partial(getattr, cord, "carried"))
        for one, other in ((STAYS, GATEWAY), (FLEES, GATEWAY), (STAYS, FLEES)):
            self.links.add(one, other, BLUETOOTH, partial(self.station.carried, one, other))
        self.between = self.links.of((STAYS, FLEES))

    def make(self, name: str, sensors: dict[str, Any]) -> None:
        if name == FLEES:
            board, self.capacity_mc = self.small_battery(KIND, BATTERY_S, bluetooth=ON)
            board.charge(int(CHARGED * self.capacity_mc))
        else:
            board = self.site.add_board(name, sensors, on_line=self.operators.hear, bluetooth=ON)
            board.battery(3900 + self.random.randrange(200))

    # ---- what goes wrong

    def script(self) -> None:
        self.at(BROKER_AWAY * self.seconds, self.kill_broker)

    def kill_broker(self) -> None:
        self.site.broker.kill()
        self.durable_then = self.watch.seen[-1].durable if self.watch.seen else 0
        self.broker_spell = self.down("broker", "killed", "the broker is killed; boards turn to Bluetooth")

    def leave(self) -> None:
        self.station.silence(GATEWAY)
        self.gateway_spell = self.down(
            "gateway", OUT_OF_REACH, "the person leaves: the gateway is out of reach, boards have each other"
        )

    def come_back(self) -> None:
        self.station.silence(GATEWAY, False)
        self.site.start_broker()
        for spell in (self.gateway_spell, self.broker_spell):
            if spell:
                self.watch.up(spell)
        self.timeline.turn(self.watch.now(), "back")
        self.tell("the person is back, and so is the broker")
        self.later(AFTER_S, self.stop_sensors)

    # ---- what follows

    def look_after(self, state: dict[str, Any] | None) -> None:
        if self.broker_spell and not self.leaves and self.watch.seen[-1].durable >= self.durable_then + TAKEN:
            self.leaves = True
            self.tell(
                "%s samples have reached the gateway since, over Bluetooth"
                % f"{self.watch.seen[-1].durable - self.durable_then:,}"
            )
            self.later(STAY_S, self.leave)
        if self.battery_ends(FLIGHT_S):
            self.leaves = True
            self.later(RETURN_S, self.come_back)
        if not self.alone(state):
            self.hear_reasons(state)

    def alone(self, state: dict[str, Any] | None) -> bool:
        return self.gateway_spell is not None and not self.gateway_spell.to_s

    def look_at_battery(self, state: dict[str, Any] | None) -> None:
        """At the board: the gateway may be out of reach."""
        left_mc = self.site.boards[FLEES].left_mc()
        if left_mc is not None:
            self.percent = 100 * left_mc // self.capacity_mc

    def tell_planned(self, move: Moved, state: dict[str, Any] | None) -> None:
        at_s = move.at_s - self.watch.began
        carried = self.links.carried(at_s - move.paused_s, at_s)
        self.ways.append((move, carried))
        between = carried[self.between]
        self.tell(
            "%s moves from %s to %s%s: %s bytes between the two over Bluetooth, %d over all other links; it "
            "paused for %.0f ms, replayed: %d"
            % (
                move.operator, move.giver, move.taker, self.left(), f"{between:,}",
                sum(carried.values()) - between, 1000 * move.paused_s, move.replayed,
            )
        )  # fmt: skip

    def hear_reasons(self, state: dict[str, Any] | None) -> None:
        """What the gateway knows of the moves, as soon as it does."""
        for move in self.moves:
            why = self.why(state, move)
            if move.operator not in self.heard and why != "planned":
                self.heard.add(move.operator)
                self.tell("the gateway knows why %s is on %s: %s" % (move.operator, move.taker, why))

    # ---- the end

    def end(self, drained: bool) -> Ending:
        totals = self.links.totals()
        ending = super().end(drained)
        direct = [move for move, carried in self.ways if alone(carried, self.between)]
        ending.kept = bool(direct) and len(direct) == len(self.moves)
        ending.more = {
            "migrations_board_to_board": len(direct),
            "links": [
                {"link": name, "over": self.links.kinds[name], "bytes": n} for name, n in totals.items()
            ],
        }
        told = ", ".join("%s %s" % (name, f"{n:,}") for name, n in totals.items())
        ending.lines = [
            "moves from board to board over Bluetooth, while nothing else carried a byte: %d of %d"
            % (len(direct), len(self.moves)),
            "bytes by link: " + told,
        ]
        return ending
