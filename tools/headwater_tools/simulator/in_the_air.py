"""A history of a site with Bluetooth: the ordinary faults, and those of the radio."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from headwater.plan.model import Plan

from .nearby import PACE, Nearby
from .scenario import Result, Scenario
from .world import SECOND, Hardware

BROKER_GONE = "broker gone, Bluetooth works"
SILENCE = "silence between two radios"
ENDED = "connection ended"
CUT = "connection cut at a fragment"
LOST = "connection events lost"
MTU_MAX = 512


class InTheAir(Scenario):
    def __init__(
        self, plan: Plan, seed: int, seconds: int = 25, faults: bool = True, made_of: Hardware | None = None
    ) -> None:
        made_of = made_of or Hardware()
        made_of = replace(made_of, pace=PACE, mtu=min(made_of.mtu, MTU_MAX))
        site = Nearby(plan, seed, hardware=made_of)
        super().__init__(plan, seed, seconds, faults, made_of, site)
        self.site = site
        self.chance = random.Random("in the air %d" % seed)
        if faults:
            site.after(self.chance.randrange(2 * SECOND, 6 * SECOND), self.next)
            if self.chance.random() < 0.7:
                site.after(self.chance.randrange(4 * SECOND, 10 * SECOND), self.no_broker)

    def next(self) -> None:
        if self.site.now >= self.storm_us:
            return
        faults: list[Callable[[], None]] = [
            self.silence,
            self.silence,
            self.end,
            self.cut,
            self.cut,
            self.weather,
        ]
        self.chance.choice(faults)()
        self.site.after(int(self.chance.expovariate(1.0) * 2 * SECOND), self.next)

    def no_broker(self) -> None:
        """The broker is gone, for longer than hosts are patient: what has Bluetooth goes on."""
        us = self.chance.randrange(5 * SECOND, 40 * SECOND)
        self.site.draw(BROKER_GONE, "the broker is gone for %.1f s" % (us / SECOND))
        self.site.broker_us = max(self.site.broker_us, self.site.now + us)

    def silence(self) -> None:
        a, b = self.chance.sample(range(len(self.site.nodes)), 2)
        us = self.chance.randrange(SECOND // 10, 10 * SECOND)
        told = (self.site.name(a), self.site.name(b), us / SECOND)
        self.site.draw(SILENCE, "the radios of %s and %s do not hear each other for %.1f s" % told)
        self.site.radio.silence(a, b, us)

    def end(self) -> None:
        """With all that waits at both ends."""
        connections = self.site.radio.connections()
        if connections:
            connection = self.chance.choice(connections)
            self.site.draw(
                ENDED, "a connection of %s ends" % " and ".join(map(self.site.name, connection.ends))
            )
            connection.end()

    def cut(self) -> None:
        """A connection ends at one of the next fragments, before it arrives or after."""
        radio = self.site.radio
        left = self.chance.choice((0, 1, 2, 5, 20, self.chance.randrange(60)))
        word = self.chance.choice(("cut", "cut after"))
        self.site.draw(CUT)

        def judge(connection: object) -> str:
            nonlocal left
            left -= 1
            if left >= 0:
                return ""
            radio.judge = None
            return word

        radio.judge = judge

    def weather(self) -> None:
        self.site.radio.weather.loss = self.chance.choice((0.0, 0.05, 0.2, 0.5))
        self.site.draw(LOST, "connection events lost: %.2f" % self.site.radio.weather.loss)

    def finish(self) -> Result:
        result = super().finish()
        site = self.site
        machines = [m.ble for m in site.machines.values() if m.ble]
        result.stats |= {
            "fragments": site.radio.carried,
            "values_refused": site.radio.refused,
            "frames_relayed": site.relayed,
            "connections": sum(m.connects for m in machines),
        }
        return result
