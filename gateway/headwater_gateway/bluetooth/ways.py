"""How frames of the gateway reach boards: through the broker, and over Bluetooth where that is enabled.

Then both are carriers. Which of them takes a frame is decided in `protocol/carriers.py`, who is connected to
in `protocol/ble_carrier.py`. Here is what only a gateway does: it has two names (`g`, the host of a process,
and `s`, the site link), it passes on frames between boards, and it keeps a few frames for a connection whose
values are on their way, because frames wait for a commit before they are sent.

Passing on. Frames that came over Bluetooth go over the link that reaches the other board, the broker too. For
a board that is not at the broker the gateway subscribes to its topics, and takes what other boards publish
there over Bluetooth, if it is encrypted. What came from the broker is never published again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headwater.offboard.interfaces import Readable
from headwater.offboard.reasons import OF_CONNECTIONS
from headwater.protocol.ble_carrier import BleCarrier
from headwater.protocol.ble_info import GATEWAY, SITE
from headwater.protocol.ble_link import WINDOW_MAX
from headwater.protocol.carriers import Carriers
from headwater.protocol.cipher import covered

from ..board_link import Link
from ..boards import Boards
from ..keys import Keys
from ..site_clock import mono_us

if TYPE_CHECKING:
    from .radio import BleakRadio

FRAME_MAX = 512
QUEUE = 32  # frames for one board that wait for room in its connection
QUEUE_MAX = 128  # ... with those that a commit releases at once
AWAY_US = 120_000_000  # a board that was not heard over the broker for this long is not there
NEAR_US = 10_000_000  # a board is in reach for so long after its advertisement
# Links, for people and machines.
BROKER = "broker"
BLUETOOTH = "bluetooth"


def radio(adapter: str) -> BleakRadio:
    """The adapter of this machine. Its packages are loaded where Bluetooth is enabled."""
    from .radio import BleakRadio

    return BleakRadio(adapter)


class Broker:
    """The link to the broker, as a carrier. Whether it encrypts, by TLS, is the site's choice (`mqtt.tls`):
    what comes over it is never refused for being in clear."""

    cost = (0, 0)
    private = True

    def __init__(self, link: Link, topic: Callable[[str, str], str]) -> None:
        self.link, self.topic = link, topic
        self.away: frozenset[str] = frozenset()  # boards that are not there, but at Bluetooth

    @property
    def up(self) -> bool:
        return self.link.up

    def reaches(self, to: str) -> bool:
        return self.link.up

    def room(self, to: str) -> int:
        return QUEUE if self.link.up else 0

    def send(self, to: str, frame: Readable, sender: str = "") -> bool:
        if not self.link.up or to in self.away and sender not in ("", GATEWAY, SITE):
            return False
        self.link.publish(self.topic(to, sender or GATEWAY), bytes(frame))
        return True

    def stands_in(self, away: frozenset[str]) -> None:
        """Receive what is for these boards, which are not there."""
        if away != self.away:
            self.away = away
            self.link.also([self.topic(board, "+") for board in sorted(away)])

    def wanted(self, to: str, now: int) -> None:
        pass

    def tick(self, now: int) -> None:
        pass


class Ways:
    def __init__(
        self,
        config: Any,
        keys: Keys,
        link: Link,
        topic: Callable[[str, str], str],
        boards: Boards,
        take_host: Callable[[str, bytes, bool], bool],
        idle: Callable[[], object],
        room_again: Callable[[], object],
    ) -> None:
        """`take_host(board, frame, bare)` -> whether it was genuine. `idle()` is called when no more frames
        arrive for now, `room_again()` when frames find room again."""
        self.broker = Broker(link, topic)
        self.boards = boards
        self.relayed = 0
        self.dropped = 0  # frames that found a full queue
        self.bare = 0  # frames that are not encrypted, for boards that only Bluetooth reaches
        self._near: set[str] = set()  # boards that were heard over Bluetooth
        self._heard: dict[str, int] = {}  # board -> when it was heard over the broker last
        self.radio: BleakRadio | None = None
        self._take_host, self._idle, self._room_again = take_host, idle, room_again
        self._to = GATEWAY  # the name that the frame in hand is for
        self._known: frozenset[str] = frozenset()
        self._via: dict[str, str] = {}  # board -> the link by which its newest genuine frame came
        self._queues: dict[str, deque[tuple[bytes, str]]] = {}
        self.carriers = Carriers(self._take)
        self.carriers.add(self.broker)
        self.adapter: str = config.adapter
        if config.enabled:
            self.radio = radio(config.adapter)
            self.radio.pairs(config.pairing)
            self.bluetooth = BleCarrier(
                GATEWAY, keys.bluetooth(), self.radio, self._came, self._relay, FRAME_MAX, config.slots,
                WINDOW_MAX, WINDOW_MAX,
            )  # fmt: skip
            self.bluetooth.tell(self.carriers.gone, self._on_room)
            self.carriers.add(self.bluetooth)

    async def run(self) -> None:
        if self.radio:
            await self.radio.run(self.bluetooth)

    def tick(self) -> None:
        if self.radio:
            known = frozenset(self.boards.all)
            if known != self._known:
                self._known = known
                self.bluetooth.knows(sorted(known))
            now = mono_us()
            away = [b for b in self._near if now - self._heard.get(b, now - AWAY_US) >= AWAY_US]
            self.broker.stands_in(known.intersection(away))
            self.carriers.tick(now)
            self._flush()
            self.radio.wake()

    # ---- out

    def room(self, board: str) -> int:
        """Frames for this board that are taken now."""
        if self.carriers.room(board) or self._reached(board):
            return max(0, QUEUE - len(self._queues.get(board, ())))
        return 0

    def send(self, board: str, frame: bytes, sender: str = GATEWAY) -> None:
        """Send, or keep until there is room. What reaches no board is repeated by its sender."""
        if not self.radio:
            self.broker.send(board, frame, sender)
            return
        queue = self._queues.get(board)
        if not queue and (self.carriers.room(board) or not self._reached(board)):
            self.carriers.send(board, frame, sender)
        elif queue is None or len(queue) < QUEUE_MAX:
            self._queues.setdefault(board, deque()).append((frame, sender))
        else:
            self.dropped += 1
        self.radio.wake()

    def _reached(self, board: str) -> bool:
        return any(carrier.reaches(board) for carrier in self.carriers.all)

    def _flush(self) -> None:
        for board, queue in list(self._queues.items()):
            while queue and self.carriers.room(board):
                self.carriers.send(board, *queue.popleft())
            if not queue or not self._reached(board):
                del self._queues[board]

    def _on_room(self) -> None:
        self._flush()
        asyncio.get_running_loop().call_soon(self._room_again)

    # ---- in

    def came(self, to: str, board: str, frame: bytes) -> None:
        """A frame came from the broker, for one of the gateway's names."""
        self._to = to
        if self.radio:
            if self.carriers.came(self.broker, board, frame):
                self._via[board] = BROKER
                self._heard[board] = mono_us()
        else:
            self._take(board, frame, False)

    def passes_on(self, to: str, sender: str, frame: bytes) -> bool:
        """A frame came from the broker that is not for the gateway. Whether it is for a board that only
        Bluetooth reaches."""
        if to not in self.broker.away:
            return False
        if sender in self._known and sender != to:  # our own come back too
            if covered(frame):
                self.relayed += 1
                self.send(to, frame, sender)
            else:
                self.bare += 1
        return True

    def _came(self, carrier: BleCarrier, board: str, frame: Readable, to: str = GATEWAY) -> bool:
        self._to = to
        genuine = self.carriers.came(carrier, board, bytes(frame))
        if genuine:
            self._via[board] = BLUETOOTH
            self._near.add(board)
        asyncio.get_running_loop().call_soon(self._idle)
        return genuine

    def _take(self, board: str, frame: Readable, bare: bool) -> bool:
        data = bytes(frame)
        receive = self.boards.receive if self._to == SITE else self._take_host
        return receive(board, data, bare)

    def _relay(self, to: str, sender: str, frame: Readable) -> bool:
        """A frame for the site link, or for another board. The latter is sealed between the two: whether it
        is genuine is not known here."""
        if to == SITE:
            return self._came(self.bluetooth, sender, frame, SITE)
        if to in self._known and to != sender:
            self.relayed += 1
            self.send(to, bytes(frame), sender)
        return False

    # ---- for people and machines

    def via(self, board: str) -> str | None:
        """The link by which this board was heard last; None: not known since the gateway started."""
        return self._via.get(board) if self.radio else BROKER

    @property
    def problem(self) -> str:
        """Why the adapter cannot be used, for people."""
        return self.radio.problem if self.radio else ""

    def listens(self, board: str) -> bool:
        """Whether the gateway would hear this board now, over the link that the board used last."""
        if self.radio and self._via.get(board) == BLUETOOTH:
            return not self.radio.problem
        return self.broker.up

    def view(self) -> dict[str, Any] | None:
        """None: Bluetooth is not enabled."""
        if not self.radio:
            return None
        carrier = self.bluetooth
        connected = sorted(slot.name for slot in carrier.slots if slot.ready)
        waiting = sorted(name for name in carrier.wants if name not in connected)
        near = mono_us() - NEAR_US
        away = [name for name in waiting if carrier.near.get(name, near) <= near]
        return {
            "adapter": self.adapter,
            "problem": self.radio.problem,
            "connected": connected,
            "waiting": [name for name in waiting if name not in away],
            "away": away,  # something waits for them, and they are not heard
            "slots": carrier.slots_max,
            "connects": carrier.connects,
            "ended": {text: n for text, n in zip(OF_CONNECTIONS, carrier.ended) if text},
            "failures": {found.value: n for found, n in self.radio.failures.items()},
            "paired": self.radio.paired,
            "unpaired": self.radio.unpaired,
            "heard": self.radio.heard,
            "relayed": self.relayed,
            "dropped": self.dropped,
            "bare": self.bare,
        }
