"""A simulated site with Bluetooth: some boards have it beside the broker, some have nothing else.

The hosts have the carriers of boards (protocol/carriers.py, ble_carrier.py, ble_link.py) over a model of
the radio (radio.py). The gateway passes on what boards send to each other over different carriers.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from headwater.offboard.interfaces import Carrier, Readable
from headwater.plan.model import Plan
from headwater.protocol import ble_info, ble_link
from headwater.protocol.ble_carrier import BleCarrier
from headwater.protocol.carriers import Carriers
from headwater.runtime.host import Host

from .radio import MS, Radio, Weather
from .world import MASTER, SECOND, Hardware, Node, World

KEY = ble_info.tag_key(MASTER)
PATIENCE_US = 4 * SECOND
PACE = (SECOND, 12 * SECOND, 2 * SECOND)


class Broker:
    """What a host has of the broker: the ordinary links of the world, as a carrier."""

    private = True

    def __init__(self, site: Nearby, number: int, cost: tuple[int, int]) -> None:
        self.site = site
        self.number = number
        self.cost = cost

    @property
    def up(self) -> bool:
        return self.site.now >= self.site.broker_us

    def reaches(self, to: str) -> bool:
        return self.up

    def room(self, to: str) -> int:
        return 100

    def send(self, to: str, frame: Readable, sender: str = "") -> bool:
        if self.up:
            self.site.publish(self.number, to, bytes(frame), sender)
        return self.up

    def wanted(self, to: str, now: int) -> None:
        pass

    def tick(self, now: int) -> None:
        pass


@dataclass
class Machine:
    """What one boot of a host has of carriers."""

    carriers: Carriers
    ble: BleCarrier | None
    broker: Broker | None
    boots: int
    pumped_us: int = -1  # when the next call of its pump is planned


class Nearby(World):
    settle_us = 30 * SECOND  # connections take turns

    def __init__(
        self,
        plan: Plan,
        seed: int,
        sector_size: int = 4096,
        hardware: Hardware | None = None,
        weather: Weather | None = None,
    ) -> None:
        """With a `weather` nothing is drawn: all boards have Bluetooth alone."""
        self.machines: dict[int, Machine] = {}
        r = random.Random("nearby %d" % seed)
        boards = range(1, len(plan.hosts))
        share = r.choice((0.0, 0.5, 1.0))
        # No network: Bluetooth alone.
        self.only = set(boards) if weather else {n for n in boards if r.random() < share}
        plain = r.choice((0.0, 0.3))
        self.plain = {n for n in boards if n not in self.only and r.random() < plain}  # no Bluetooth
        self.cheap = r.random() < 0.5  # Bluetooth costs less than the network
        bare = frozenset(range(len(plan.hosts))) - self.plain
        super().__init__(plan, seed, sector_size, replace(hardware or Hardware(), bare=bare))
        weather = weather or Weather(
            r.choice((15, 30, 30, 50)) * MS,
            r.choice((2, 4, 6)),
            r.choice((0.0, 0.05, 0.2)),
            r.choice((2_000, 4_000)) * MS,
            r.choice((20, 61, 182, 244, 244)),
            r.choice((4, 8, 14, 30)),
        )
        self.radio = Radio(self, seed, weather, self.busy)
        self.relayed = 0
        self.recorded: deque[tuple[str, bytes]] = deque(maxlen=40)  # what a listener has: sender, frame
        self.on_peace.append(self.calm)
        told = ", ".join(self.name(n) for n in sorted(self.only)) or "none"
        self.draw("bluetooth", "Bluetooth alone: %s; %r" % (told, weather))

    def calm(self) -> None:
        self.radio.quiet.clear()
        self.radio.judge = None
        self.radio.weather.loss = min(0.05, self.radio.weather.loss)

    # ---- hosts

    def linked(self, node: Node, host: Host) -> None:
        number = node.number
        ways: list[Carrier] = []
        carriers = Carriers(partial(self.take, node, node.boots))
        carriers.patience_us = PATIENCE_US
        broker = ble = None
        if number not in self.only:
            broker = Broker(self, number, (10, 10))
            ways.append(broker)
        if number not in self.plain:
            antenna = self.radio.antenna(number, node.boots)
            ble = _Covered(
                self,
                number,
                ble_info.GATEWAY if number == 0 else self.name(number),
                KEY,
                antenna,
                carriers.came,
                partial(self.relay, node.boots) if number == 0 else None,
                host.exchange.writer.mtu,
                4 if number == 0 else 3,
                ble_link.WINDOW,
                ble_link.HANDS,
                (5, 5) if self.cheap else (20, 20),
            )
            antenna.carrier = ble
            ble.knows(self.plan.hosts[1:])
            ble.tell(carriers.gone, partial(self.has_room, node, node.boots))
            ways.append(ble)
        for way in ways:
            carriers.add(way)
        self.machines[number] = Machine(carriers, ble, broker, node.boots)
        host.exchange.pace_by(partial(self.room, number))

    def to(self, number: int) -> str:
        return self.name(number) if number else ble_info.GATEWAY

    def number(self, name: str) -> int:
        return 0 if name == ble_info.GATEWAY else self.plan.hosts.index(name)

    def room(self, number: int, to: int) -> int:
        return self.machines[number].carriers.room(self.to(to))

    def send(self, sender: int, to: int, frame: bytes) -> None:
        node = self.nodes[sender]
        if node.host is not None and not node.lost:
            self.taken.look(node.host)
        machine = self.machines[sender]
        machine.carriers.send(self.to(to), frame)
        if machine.ble:
            self.busy(sender)

    def has_room(self, node: Node, boots: int) -> None:
        if node.host is not None and node.boots == boots:
            self.call(node, lambda host: host.exchange.flush(), "flush")

    def take(self, node: Node, boots: int, sender: str, frame: Readable, bare: bool) -> bool:
        """A frame arrived for the host of this boot. bare: over Bluetooth. Whether it was genuine."""
        if node.host is None or node.boots != boots or self.nodes[self.number(sender)].dead:
            return False
        self.heard_us[node.number] = self.now
        if node.battery:
            node.battery.frame(len(frame), False)
        data = bytes(frame)

        def received(host: Host) -> bool:
            genuine = host.receive(data, node.mono(), bare)
            host.settle()
            return genuine

        return bool(self.call(node, received, "receive"))

    def tick(self, node: Node, life: int) -> None:
        if node.up and node.boots == life:
            self.machines[node.number].carriers.tick(node.mono())
            self.busy(node.number)
        super().tick(node, life)

    def crash(self, node: Node) -> None:
        super().crash(node)
        self.radio.off(node.number)

    # ---- Bluetooth

    def busy(self, number: int) -> None:
        """A host has something to send, perhaps: in this moment, once."""
        self.plan_pump(number, 0)

    def plan_pump(self, number: int, us: int) -> None:
        machine = self.machines.get(number)
        if machine is None or machine.ble is None:
            return
        when = self.now + us
        if machine.pumped_us < self.now or when < machine.pumped_us:
            machine.pumped_us = when
            self.at(when, partial(self.pump, number, machine))

    def pump(self, number: int, machine: Machine) -> None:
        node = self.nodes[number]
        if machine is not self.machines[number] or node.host is None or machine.pumped_us != self.now:
            return
        machine.pumped_us = -1
        assert machine.ble
        due = machine.ble.pump(node.mono())
        if node.host is not None:
            self.plan_pump(number, min(due, SECOND) + 1)

    # ---- the broker, and what the gateway passes on

    def publish(self, sender: int, to: str, frame: bytes, name: str) -> None:
        """A frame is published under the topic of a receiver and a sender; the gateway may name another
        sender."""
        goes = self.number(to)
        comes = self.number(name) if name else sender
        self.frames += 1
        self.bytes += len(frame)
        battery = self.nodes[sender].battery
        if battery:
            battery.frame(len(frame), True)
        if goes in self.only:
            if not sender:
                return
            goes = 0  # the gateway is subscribed to what is for boards that only it reaches
        for _ in range(1 + (self.random.random() < self.duplication)):
            if self.random.random() >= self.loss:
                arrives = partial(self.arrives, sender, goes, to, comes, frame)
                self.after(self.random.randint(*self.delay_us), arrives)

    def arrives(self, sender: int, goes: int, to: str, comes: int, frame: bytes) -> None:
        node = self.nodes[goes]
        open_ = (sender, goes) not in self.cut and self.now >= self.broker_us
        if node.host is None or not open_ or self.nodes[sender].dead:
            return
        machine = self.machines[goes]
        if machine.broker is None:
            return
        if self.number(to) != goes:
            self.relay(node.boots, to, self.to(comes), frame)
        else:
            machine.carriers.came(machine.broker, self.to(comes), frame)

    def relay(self, boots: int, to: str, sender: str, frame: Readable) -> bool:
        """The gateway passes on a frame of one board for another, which it cannot judge."""
        gateway = self.nodes[0]
        if gateway.host is None or gateway.boots != boots or to not in self.plan.hosts or to == sender:
            return False
        self.relayed += 1
        self.machines[0].carriers.send(to, bytes(frame), sender)
        self.busy(0)
        return False

    def parted(self, a: int, b: int) -> bool:
        """No way of any kind, in this moment."""
        return not self.direct(a, b) and not (a and b and self.direct(a, 0) and self.direct(0, b))

    def direct(self, a: int, b: int) -> bool:
        by_broker = not {a, b} & self.only and self.now >= self.broker_us
        cut = (a, b) in self.cut or (b, a) in self.cut
        return not cut and (by_broker or self.radio.between(a, b))


class _Covered(BleCarrier):
    """Its connections do not encrypt: a listener hears what they carry (air.py)."""

    def __init__(self, site: Nearby, number: int, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.world = site
        self.number = number

    def send(self, to: str, frame: Readable, sender: str = "") -> bool:
        comes = self.world.number(sender) if sender else self.number
        assert self.world.air
        self.world.recorded.append((self.name, bytes(frame)))
        return self.world.air.passes(comes, self.world.number(to), bytes(frame)) and super().send(
            to, frame, sender
        )


__all__ = ["Nearby"]
