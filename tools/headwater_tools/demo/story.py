"""The story of the demo: a site at work, five things that go wrong, and the proof that nothing is missing."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..boards.virtual import ECG
from ..errors import UserError
from . import timeline
from .compare import Compared, compare
from .observer import Seen, Spell, Watch
from .site import BOARDS, HEAP, Site

LOOK_S = 0.5
TELL_S = 5.0
DRAIN_S = 120.0  # until the lake must have everything after the sensors have stopped
BATCH_OF_DEATH = 1  # the sink dies between the Delta commit of this batch and its progress


@dataclass
class Ending:
    compared: Compared
    audit: Any  # headwater_cloud.audit.Report
    watch: Watch
    drained: bool
    picture: Path


class Story:
    def __init__(self, folder: Path, seconds: float, seed: int, say: Callable[[str], None]) -> None:
        self.site = Site(folder)
        self.seconds = seconds
        self.random = random.Random(seed)
        self.say = say
        self.sensors: dict[str, tuple[str, str, dict[str, Any]]] = {}  # stream -> board, source, settings
        self.watch = Watch({})
        self.told_s = 0.0
        self.events: list[tuple[float, Callable[[], None]]] = []
        self.sink_spell: Spell | None = None

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
        # The boards are made last, because they need to know the end of the story.
        site.wait_for_sink()
        now_us = time.time_ns() // 1000
        until_us = now_us + int((self.seconds + 6) * 1_000_000)
        for _, _, settings in self.sensors.values():
            settings["until_us"] = until_us
        for name in BOARDS:
            board = site.add_board(name, {s: d for b, s, d in self.sensors.values() if b == name})
            board.battery(3900 + self.random.randrange(200))
        self.say("broker: Mosquitto with TLS and an access list, on loopback")
        site.start_broker()
        site.start_gateway()
        self.say("gateway: status page at http://127.0.0.1:%d/" % site.page_port)
        for name in BOARDS:
            site.boards[name].start()
        self.say("boards: %s, each a 32-bit MicroPython with a heap of %s" % (", ".join(BOARDS), HEAP))
        site.deploy()
        self._wait(site.deployed, 40, "the boards did not take the process: see the logs in %s" % site.folder)
        self.say("process cardio runs on all of them")
        self.watch = Watch({s: (site.boards[b], source) for s, (b, source, _) in self.sensors.items()})

    def _wait(self, what: Callable[[], bool], timeout_s: float, why: str) -> None:
        end = time.monotonic() + timeout_s
        while not what():
            if time.monotonic() > end:
                raise UserError(why)
            time.sleep(0.2)

    # ---- what goes wrong

    def at(self, share: float, action: Callable[[], None]) -> None:
        self.events.append((share * self.seconds, action))

    def script(self) -> None:
        away = 0.06 * self.seconds
        self.at(0.22, lambda: self.cut_board("chest", away))
        self.at(0.40, lambda: self.pull("wrist", 2 * away))
        self.at(0.62, lambda: self.kill_gateway(0.7 * away))
        self.at(0.80, lambda: self.restart_broker(0.5 * away))
        self.events.sort(key=lambda event: event[0])

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        self.events.append((self.watch.now() + delay_s, action))
        self.events.sort(key=lambda event: event[0])

    def cut_board(self, name: str, away_s: float) -> None:
        board = self.site.boards[name]
        k = self.random.randrange(40, 200)
        board.cut_in_write(k)
        spell = self.watch.down(name, "power cut in a flash write")
        self.tell("%s loses power after %d bytes of a flash write" % (name, k))

        def back() -> None:
            board.start()
            self.watch.up(spell)
            self.tell("%s has power again" % name)

        self.later(away_s, back)

    def pull(self, name: str, away_s: float) -> None:
        cord = self.site.cords[name]
        cord.pull()
        spell = self.watch.down(name, "link down")
        self.tell("the link of %s is down" % name)

        def back() -> None:
            cord.plug()
            self.watch.up(spell)
            self.tell("the link of %s is back" % name)

        self.later(away_s, back)

    def kill_gateway(self, away_s: float) -> None:
        self.site.gateway.kill()
        spell = self.watch.down("gateway", "kill -9")
        self.tell("the gateway is killed")

        def back() -> None:
            self.site.gateway.start()
            seen()

        def seen() -> None:
            if not self.site.speaks():
                self.later(0.1, seen)
                return
            self.watch.up(spell)
            self.tell("the gateway is back")

        self.later(away_s, back)

    def restart_broker(self, away_s: float) -> None:
        self.site.broker.kill()
        spell = self.watch.down("broker", "restart")
        self.tell("the broker goes")

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
        self.sink_spell = self.watch.down("sink", "killed between commit and progress")
        self.tell("the sink died between its Delta commit and its progress; it starts again")
        self.landed_at_death = self.watch.seen[-1].landed if self.watch.seen else 0
        self.site.sink.start()

    def _sink_works(self) -> bool:
        return bool(self.watch.seen) and self.watch.seen[-1].landed > self.landed_at_death

    # ---- progress

    def run(self) -> Ending:
        self.script()
        self.watch.began = time.monotonic()
        next_look = 0.0
        drained = False
        stopped_s = 0.0
        while True:
            now = self.watch.now()
            while self.events and self.events[0][0] <= now:
                self.events.pop(0)[1]()
            if now < next_look:
                time.sleep(0.02)
                continue
            next_look = now + LOOK_S
            self.look_after_sink()
            state = self.site.state()
            seen = self.watch.look(state)
            if now - self.told_s >= TELL_S:
                self.told_s = now
                self._status(seen)
            if now > self.seconds + 7 and not self.events:
                if not stopped_s:
                    stopped_s = now
                    self.tell("the sensors have stopped; what is on its way arrives")
                drained = self.sink_spell is not None and self.watch.everything_landed(state)
                if drained or now - stopped_s > DRAIN_S:
                    break
        self._status(self.watch.seen[-1])
        return self._end(drained)

    def _end(self, drained: bool) -> Ending:
        from headwater_cloud.audit import audit

        site = self.site
        site.close()
        sources = [(s, site.boards[b], source, d) for s, (b, source, d) in self.sensors.items()]
        compared = compare(site.lake, sources)
        path = site.folder / "timeline.png"
        timeline.draw(self.watch, path, "%d samples accepted, %d lost" % (compared.accepted, compared.lost))
        return Ending(compared, audit(str(site.lake)), self.watch, drained, path)

    def tell(self, text: str) -> None:
        self.say("%5.1f s  %s" % (self.watch.now(), text))

    def _status(self, seen: Seen) -> None:
        self.tell(
            "accepted %s, at the gateway %s, in the lake %s"
            % (f"{seen.accepted:,}", f"{seen.durable:,}", f"{seen.landed:,}")
        )
