"""A model of the radio: connections with intervals, packets per event, lost events, silence and ends.

A connection moves up to `per_event` values each way at each connection event. An event that fails loses
nothing: its values wait for the next one. What loses is the end of a connection, with all that waits at
both ends. A host has a bounded number of buffers; it refuses a value when all are taken. Who hears nothing
for the supervision time takes the connection for ended, each end by itself.

Everything is drawn from a generator of its own, so that a history without Bluetooth is what it was.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from headwater.protocol.ble_carrier import BleCarrier
from headwater.protocol.ble_link import HANDS

if TYPE_CHECKING:
    from .world import World

MS = 1000
SCAN_US = 100 * MS
MOST = 4  # connections of a NimBLE host

Address = tuple[int, int]  # host, boot


@dataclass
class Weather:
    """What the air is like."""

    interval_us: int = 30 * MS
    per_event: int = 4
    loss: float = 0.0  # of events
    supervision_us: int = 4_000 * MS
    size: int = 244  # bytes of a value
    buffers: int = 14  # of a host, for values on their way


class Antenna:
    """The radio of one boot of a host: the driver that its BleCarrier has."""

    def __init__(self, air: Radio, number: int, boot: int) -> None:
        self.air = air
        self.address: Address = (number, boot)
        self.number = number
        self.carrier: BleCarrier | None = None
        self.alive = True
        self.data = b""
        self.interval_ms = 0
        self.listens = False
        self.connecting: Address | None = None
        self.connections: dict[int, Connection] = {}

    def put(self, handle: int, value: memoryview) -> bool:
        connection = self.connections.get(handle)
        if connection is None:
            return False
        held = sum(len(c.held[self.number]) for c in self.connections.values())
        if held >= self.air.weather.buffers:
            self.air.refused += 1
            return False
        connection.put(self.number, bytes(value))
        return True

    def close(self, handle: int) -> None:
        connection = self.connections.get(handle)
        if connection is not None:
            self.air.world.after(self.air.weather.interval_us, connection.end)

    def connect(self, address: Address) -> None:
        self.connecting = address
        self.air.world.after(self.air.random.randint(20, 120) * MS, partial(self.air.meet, self, address))

    def advertise(self, data: bytes, interval_ms: int) -> None:
        self.data = data
        self.interval_ms = interval_ms

    def listen(self, on: bool) -> None:
        self.listens = on

    def failed(self, address: Address) -> None:
        if self.alive and self.connecting == address and self.carrier:
            self.connecting = None
            self.carrier.failed(address)
            self.air.busy(self.number)


class Connection:
    """Between two antennas; numbers are those of hosts."""

    def __init__(self, air: Radio, handle: int, central: Antenna, peripheral: Antenna) -> None:
        self.air = air
        self.handle = handle
        self.ends = {central.number: central, peripheral.number: peripheral}
        self.central = central
        self.peripheral = peripheral
        self.held: dict[int, deque[bytes]] = {n: deque() for n in self.ends}
        self.heard_us = air.world.now
        self.over = False
        self.due = False
        self.ready = False  # the central has looked up what it needs
        for antenna in self.ends.values():
            antenna.connections[handle] = self
        air.world.after(air.weather.supervision_us // 4, self.watch)

    def put(self, number: int, value: bytes) -> None:
        held = self.held[number]
        held.append(value)
        fragments = sum(1 for v in held if len(v) > 2)
        if fragments > HANDS:
            self.air.world.error("%d fragments in the hands of a host" % fragments)
        self.schedule()

    def schedule(self) -> None:
        if not self.due and not self.over:
            self.due = True
            interval = self.air.weather.interval_us
            self.air.world.at((self.air.world.now // interval + 1) * interval, self.event)

    def apart(self) -> bool:
        a, b = self.ends.values()
        return not (a.alive and b.alive) or self.air.silent(a.number, b.number)

    def event(self) -> None:
        """A connection event."""
        self.due = False
        air = self.air
        if self.over:
            return
        air.events += 1
        if self.apart() or air.random.random() < air.weather.loss:
            air.failed += 1
        else:
            self.heard_us = air.world.now
            for number, held in self.held.items():
                other = next(a for n, a in self.ends.items() if n != number)
                for _ in range(min(len(held), air.weather.per_event)):
                    self.carry(other, held.popleft())
                    if self.over:
                        return
        if any(self.held.values()):
            self.schedule()

    def carry(self, other: Antenna, value: bytes) -> None:
        judged = self.air.judge(self) if self.air.judge else ""
        if judged == "cut":
            self.end()
            return
        self.air.carried += len(value) > 2
        if other.carrier:
            other.carrier.arrived(self.handle, memoryview(value))
            self.air.busy(other.number)
        if judged == "cut after":
            self.end()

    def watch(self) -> None:
        """Idle connections are heard too."""
        air = self.air
        if self.over:
            return
        if not self.apart():
            self.heard_us = air.world.now
        elif air.world.now - self.heard_us >= air.weather.supervision_us:
            self.end()
            return
        air.world.after(air.weather.supervision_us // 4, self.watch)

    def end(self) -> None:
        """What waited at both ends is lost."""
        if self.over:
            return
        self.over = True
        air = self.air
        for antenna in self.ends.values():
            antenna.connections.pop(self.handle, None)
            if not antenna.alive or not antenna.carrier:
                continue
            if antenna is self.central and not self.ready:
                antenna.failed(self.peripheral.address)
            else:
                antenna.carrier.over(self.handle)
            air.busy(antenna.number)


class Radio:
    def __init__(self, world: World, seed: int, weather: Weather, busy: Callable[[int], None]) -> None:
        self.world = world
        self.random = random.Random("air %d" % seed)
        self.weather = weather
        self.busy = busy  # a host has something to do
        self.antennas: dict[int, Antenna] = {}
        self.quiet: dict[tuple[int, int], int] = {}  # pair -> until when they do not hear each other
        self.handles = 0
        self.carried = self.refused = 0
        self.events = self.failed = 0  # connection events, and those of them that moved nothing
        self.judge: Callable[[Connection], str] | None = (
            None  # "cut" before or "cut after" a fragment arrives
        )
        world.after(SCAN_US, self.scan)

    def antenna(self, number: int, boot: int) -> Antenna:
        """The radio of a host that has just begun."""
        self.off(number)
        made = self.antennas[number] = Antenna(self, number, boot)
        return made

    def off(self, number: int) -> None:
        """The host has lost power: its connections end for the others when they have missed it for long."""
        antenna = self.antennas.pop(number, None)
        if antenna:
            antenna.alive = False

    # ---- who hears whom

    def silent(self, a: int, b: int) -> bool:
        pair = (min(a, b), max(a, b))
        cut = self.world.cut
        return self.quiet.get(pair, 0) > self.world.now or (a, b) in cut or (b, a) in cut

    def silence(self, a: int, b: int, us: int) -> None:
        self.quiet[min(a, b), max(a, b)] = self.world.now + us

    def connections(self) -> list[Connection]:
        found = {c.handle: c for a in self.antennas.values() for c in a.connections.values()}
        return [found[handle] for handle in sorted(found)]

    def between(self, a: int, b: int) -> bool:
        """Both ends have a connection that carries."""
        return any(c.ready and set(c.ends) == {a, b} and not c.apart() for c in self.connections())

    # ---- scanning and connecting

    def scan(self) -> None:
        """Advertisements in a tenth of a second."""
        for a in [a for a in self.antennas.values() if a.listens and not a.connecting]:
            for b in self.antennas.values():
                if a is b or not b.interval_ms or self.silent(a.number, b.number):
                    continue
                share = min(0.95, SCAN_US / MS / b.interval_ms) * (1 - self.weather.loss)
                if self.random.random() < share and a.carrier:
                    a.carrier.seen(b.address, b.data)
                    self.busy(a.number)
        self.world.after(SCAN_US, self.scan)

    def meet(self, central: Antenna, address: Address) -> None:
        """A host connects to another one."""
        other = self.antennas.get(address[0])
        fits = (
            other is not None
            and other.address == address
            and other.interval_ms
            and other.alive
            and central.alive
            and len(other.connections) < MOST
            and len(central.connections) < MOST
            and not self.silent(central.number, other.number)
            and self.random.random() >= self.weather.loss / 2
        )
        if not fits or other is None:
            self.world.after(200 * MS, partial(central.failed, address))
            return
        self.handles += 1
        connection = Connection(self, self.handles, central, other)
        assert other.carrier
        other.carrier.connected(connection.handle, False, central.address, self.weather.size, None)
        self.busy(other.number)
        # MTU, services, INFO, subscription
        self.world.after(8 * self.weather.interval_us, partial(self.found, connection))

    def found(self, connection: Connection) -> None:
        central, other = connection.central, connection.peripheral
        if connection.over or not central.carrier:
            return
        if connection.apart() or not other.carrier:
            self.world.after(8 * self.weather.interval_us, partial(self.found, connection))
            return
        connection.ready = True
        central.connecting = None
        info = other.carrier.info
        central.carrier.connected(connection.handle, True, other.address, self.weather.size, info)
        self.busy(central.number)


__all__ = ["Antenna", "Connection", "Radio", "Weather"]
