# The links of a board with Bluetooth: that and the broker, or Bluetooth alone, with the verbs of the broker's
# client (mqtt.py), so that the program sees no difference. A board without Bluetooth loads none of this.
#
# Bluetooth does not encrypt by itself here, so this board encrypts all its frames, and what is not covered by
# that is neither sent nor taken there. Without AES there is no Bluetooth.

import asyncio

from ..offboard.compat import TYPE_CHECKING, const
from ..protocol import ble_carrier, cipher
from ..protocol.ble_info import GATEWAY
from ..protocol.carriers import Carriers
from .ble import Radio

if TYPE_CHECKING:
    from typing import Any

    from ..offboard.interfaces import Readable
    from .mqtt import Client
    from .program import Node

_QUEUE = const(12)
_POLL_S = 0.005  # a radio hears from another one every 15 ms at most
_REST_S = 0.02  # without a connection
_CLOSE_MAX = const(20)
_LOW_PERCENT = const(20)
_DEAR = const(1000000000)


# The link to the broker, as a carrier: it counts as one that encrypts (docs/spec.md, Encryption).
class _Broker:
    def __init__(self, client: "Client", cost: tuple[int, int]) -> None:
        self.private = True
        self.client = client
        self.cost = cost

    @property
    def up(self) -> bool:
        return self.client.up

    def reaches(self, to: str) -> bool:
        return self.client.up

    def room(self, to: str) -> int:
        return max(0, _QUEUE - len(self.client.out)) if self.client.up else 0

    def send(self, to: str, frame: "Readable", sender: str = "") -> bool:
        return self.client.send(to, frame)

    def wanted(self, to: str, now: int) -> None:
        pass

    def tick(self, now: int) -> None:
        self.client.tick(now)


class _Bluetooth(ble_carrier.BleCarrier):
    def send(self, to: str, frame: "Readable", sender: str = "") -> bool:
        return cipher.covered(frame) and super().send(to, frame, sender)


# What a frame costs over a link, from the board's profile: pC for a byte, nC for a frame. A link that the
# profile does not know is taken for the dearest.
def _cost(config: "dict[str, Any]", link: str) -> tuple[int, int]:
    if not config.get("energy"):
        return 0, 0
    found = config["energy"]["links"].get(link)
    return (found[0], found[2]) if found else (_DEAR, 0)


class Ways:
    # Powers the radio: before all else, because it does not survive a lack of memory.
    # key: of the site's tags.
    def __init__(self, node: "Node", key: bytes) -> None:
        self.node = node
        self.client: "Client | None" = None
        self.task: "asyncio.Task[Any] | None" = None
        self.ending = False
        config = node.config
        self.radio = Radio(config["bluetooth"]["pairing"])
        self.carriers = Carriers(node.take)
        self.cost = _cost(config, "wifi")
        self.ble = _Bluetooth(
            node.name,
            key,
            self.radio,
            self.carriers.came,
            None,
            config["mtu"],
            ble_carrier.SLOTS,
            cost=_cost(config, "ble"),
        )
        self.ble.tell(self.carriers.gone)
        self.radio.serve(self.ble)

    # The session of the site link, the host and the client, if there are any, are made.
    def begin(self, client: "Client | None") -> None:
        node = self.node
        if client:
            self.client = client
            self.broker = _Broker(client, self.cost)
            self.carriers.add(self.broker)
        self.carriers.add(self.ble)
        node.peer.hide(True)
        host = node.host
        if host:
            hosts = host.plan.hosts
            self.ble.knows(hosts[1:])
            self.ble.tell(self.carriers.gone, host.exchange.flush)
            host.exchange.pace_by(lambda to: self.carriers.room(hosts[to] if to else GATEWAY))
            for number in range(len(hosts)):
                if number != host.me:
                    host.exchange.hide(number, True)

    # A frame came from the broker.
    def came(self, sender: str, frame: "Readable") -> bool:
        return self.carriers.came(self.broker, sender, frame)

    # ---- verbs of the client

    @property
    def up(self) -> bool:
        return self.carriers.up

    @property
    def why(self) -> str:
        if self.client:
            return self.client.why
        return "no host in reach" if self.ble.wants else "nothing waits"

    @property
    def sent(self) -> int:
        return self.ble.frames + (self.client.sent if self.client else 0)

    @property
    def dropped(self) -> int:
        return self.carriers.refused

    @property
    def strange(self) -> int:
        return self.ble.strays + (self.client.strange if self.client else 0)

    def send(self, to: str, frame: "Readable") -> bool:
        return self.carriers.send(to, frame)

    def tick(self, now: int) -> None:
        if now >= self.node.status_us and not self.carriers.up:
            self.ble.wanted(GATEWAY, now)
        energy = self.node.host.energy if self.node.host else None
        told = energy.told if energy else None
        self.ble.runs_low(told is not None and told[0] < _LOW_PERCENT)
        self.carriers.tick(now)

    async def run(self) -> None:
        self.task = asyncio.current_task()
        task = asyncio.create_task(self.client.run()) if self.client else None
        while not self.ending:
            self.radio.poll(self.node.mono())
            await asyncio.sleep(_POLL_S if self.ble.up else _REST_S)
        if task:
            await task

    # What was said last arrives, if that is possible.
    async def close(self) -> None:
        for _ in range(_CLOSE_MAX):
            if all([s.link.drained() for s in self.ble.slots if s.ready]):
                break
            await asyncio.sleep(0.05)
        if self.client:
            await self.client.close()
        self.ending = True
