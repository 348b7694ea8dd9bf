# What a host counts of its energy, and has at hand at any time.
#
# This stays loaded, so it is little: counters, and what the host knew of its energy at the last look, as
# bytes. Once a beat, and whenever another module asks, `open` makes an Energy of them (battery.py); `rest`
# puts it away again.
#
# A host without a battery, or without a way to measure its voltage, is taken to be on mains.
#
# Invariants.
#   - Nothing here is allocated for an element or a frame.
#   - An Energy is put away only by `tick` and by the host's `rest`: no caller of these has one.

from ..board.unload import unload
from ..offboard.compat import TYPE_CHECKING, const

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .battery import Energy
    from .bids import Round
    from .host import Host

_MASK = const((1 << 30) - 1)  # bits of a counter of microseconds that count
_HEAD = const(91)  # bytes that carry a frame, without its own head and seal: of draws.FRAME_BYTES


class Meter:
    # profile: see plan/profile.py; None on mains. battery_mv(): or None where it cannot be measured.
    # ticks_us(): a counter of microseconds that wraps at 2^30, or at a higher power of two; None: nothing is
    # timed.
    def __init__(
        self,
        host: "Host",
        profile: bytes | None = None,
        battery_mv: "Callable[[], int | None] | None" = None,
        ticks_us: "Callable[[], int] | None" = None,
    ) -> None:
        self.host = host
        self.profile = profile
        self.battery_mv = battery_mv
        self.ticks_us = ticks_us
        # Since the last look.
        self.sent_bytes = self.got_bytes = self.frames = 0
        self.timed = False
        self.costs: dict[int, int] = {}  # operator -> nanoseconds of an element
        self.spent_nc = 0  # in this boot
        self.told: "list[int] | None" = None  # for people: see Energy.told
        self.round: "Round | None" = None  # of bids: other hosts were asked
        self.energy: "Energy | None" = None  # while a module asks,
        self.kept = b""  # ... and else what it was then

    # What the host knows.
    def open(self) -> "Energy":
        if self.energy is None:
            from . import battery

            self.energy = battery.Energy(self, self.kept)
            unload("data.msgpack_reader")
        return self.energy

    # Nothing asks any more: it is put away.
    def rest(self) -> None:
        if self.energy:
            self.kept = self.energy.as_bytes()
            self.energy = None
            unload("runtime.battery", "plan.profile")

    # A round of bids has begun, or is over.
    def asks(self, round_: "Round | None") -> None:
        self.round = round_

    # To be called once a beat.
    def tick(self) -> None:
        energy = self.open()
        energy.tick()
        self.told = energy.told()
        energy = None  # type: ignore[assignment]
        self.rest()
        if self.ticks_us and self.host.instances:
            self.timed = False
            self.host.scheduler.time(self)

    # ---- counters

    # A frame of so many bytes was sent, or received.
    def sent(self, size: int) -> None:
        self.sent_bytes += size + _HEAD
        self.frames += 1

    def got(self, size: int) -> None:
        self.got_bytes += size + _HEAD
        self.frames += 1

    # Bytes sent and received, and frames, since this was asked last.
    def counted(self) -> tuple[int, int, int]:
        found = self.sent_bytes, self.got_bytes, self.frames
        self.sent_bytes = self.got_bytes = self.frames = 0
        return found

    # The host has spent this, as it was counted.
    def spend(self, nc: int) -> None:
        self.spent_nc += nc

    # Have a runner take what it has, and time that. Scheduler.run calls this while something is to be timed.
    def step(self, runner: "Any") -> int:
        ticks: "Any" = self.ticks_us
        began = ticks()
        n: int = runner.step()
        if n and not runner.is_lake:
            ns = ((ticks() - began) & _MASK) * 1000 // n
            v = runner.vertex.index
            was = self.costs.get(v)
            self.costs[v] = ns if was is None else was + (ns - was) // 4
            self.timed = True
        return n
