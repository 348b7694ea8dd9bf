"""The air between virtual controllers: connections with time, loss, silence and cuts.

bumble's own link hands everything over at once, so a host meets neither time nor back pressure. Here a
fragment waits in its sender's controller until a connection event takes it, and only then the sending host
hears "packet completed". An event that fails is repeated at the next one, as link layers do: inside a
connection nothing is ever lost. What waits in a controller when its connection ends is gone.
"""

from __future__ import annotations

import asyncio
import enum
import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from bumble import hci, ll
from bumble.controller import Connection, Controller
from bumble.link import LocalLink

if TYPE_CHECKING:
    from .antenna import Antenna

TIMEOUT = hci.HCI_ErrorCode.CONNECTION_TIMEOUT_ERROR
PER_EVENT = 6  # fragments in each direction; phones and adapters take 4 to 6
INTERVAL_S = 0.00125  # the unit of connection intervals
TIMEOUT_S = 0.01  # the unit of supervision timeouts
FIRST, CONTINUING, FIRST_TO_HOST = 0, 1, 2  # how HCI marks the fragments of a packet


class Verdict(enum.Enum):
    PASS = "pass"
    CUT = "cut"  # the connection ends before the fragment arrives
    CUT_AFTER = "cut after"  # it arrives, and its sender never learns that


class Air:
    """One connection: two queues, and the moments at which they move."""

    def __init__(
        self, radio: Radio, central: Antenna, peripheral: Antenna, interval: int, timeout: int
    ) -> None:
        self.radio = radio
        self.ends = (central, peripheral)
        self.start = asyncio.get_running_loop().time()
        self.silent_since = self.start
        self.over = False
        self.lost = 0  # connection events that failed
        self.late = 0  # ... that passed because this machine was busy, while something waited
        self._due = 0.0
        self._waiting: tuple[deque[hci.HCI_AclDataPacket], ...] = (deque(), deque())
        self._timer: asyncio.TimerHandle | None = None
        self.set_parameters(interval, timeout)

    def set_parameters(self, interval: int, timeout: int) -> None:
        self.interval = interval * INTERVAL_S
        self.timeout = timeout * TIMEOUT_S

    def put(self, sender: Antenna, packet: hci.HCI_AclDataPacket) -> None:
        self._waiting[self.ends.index(sender)].append(packet)
        self._plan()

    def end(self, reason: int = TIMEOUT) -> None:
        """Both hosts hear that the connection is gone; with it goes what waited in both controllers."""
        if not self.over:
            self.forget()
            central, peripheral = self.ends
            both = ((central, central.link_to(peripheral)), (peripheral, peripheral.link_to(central)))
            for antenna, connection in both:
                if connection:
                    antenna.lose(connection, reason)

    def leave(self, antenna: Antenna) -> None:
        """One end is gone without a word: the other hears of it when the supervision timeout has passed."""
        other = self.ends[1 - self.ends.index(antenna)]
        theirs = other.link_to(antenna)
        self.forget()
        if theirs:
            asyncio.get_running_loop().call_later(self.timeout, other.lose, theirs, TIMEOUT)

    def forget(self) -> None:
        self.over = True
        if self._timer:
            self._timer.cancel()
        self.radio.connections.pop(frozenset(self.ends), None)

    def _plan(self) -> None:
        if not self._timer and not self.over:
            loop = asyncio.get_running_loop()
            past = loop.time() - self.start
            self._due = self.start + (past // self.interval + 1) * self.interval
            self._timer = loop.call_at(self._due, self._event)

    def _event(self) -> None:
        """A connection event: some fragments in each direction, unless the air swallows it."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        self.late += int((now - self._due) / self.interval)
        if self.radio.fails(*self.ends):
            self.lost += 1
            if now - self.silent_since > self.timeout:
                self.end()
            else:
                self._plan()
            return
        self.silent_since = now
        for side in (0, 1):
            for _ in range(self.radio.per_event):
                if self._waiting[side] and not self.over:
                    self._carry(self.ends[side], self.ends[1 - side], self._waiting[side].popleft())
        if any(self._waiting):
            self._plan()

    def _carry(self, sender: Antenna, receiver: Antenna, packet: hci.HCI_AclDataPacket) -> None:
        self.radio.carries(sender, receiver, len(packet.data))
        verdict = self.radio.judge(sender, receiver, packet.data) if self.radio.judge else Verdict.PASS
        there, here = receiver.link_to(sender), sender.link_to(receiver)
        if verdict is Verdict.CUT or not there or not here:
            self.end()
            return
        flag = FIRST_TO_HOST if packet.pb_flag == FIRST else packet.pb_flag
        receiver.send_hci_packet(hci.HCI_AclDataPacket(there.handle, flag, 0, len(packet.data), packet.data))
        if verdict is Verdict.CUT_AFTER:
            self.end()
            return
        sender.send_hci_packet(
            hci.HCI_Number_Of_Completed_Packets_Event(
                connection_handles=[here.handle], num_completed_packets=[1]
            )
        )


class Radio(LocalLink):
    """The air of all antennas. `loss` is the share of connection events and advertisements that fail, drawn
    from the seed; `judge(sender, receiver, fragment)` may end a connection at a chosen fragment."""

    def __init__(self, seed: int = 1, per_event: int = PER_EVENT, loss: float = 0.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.per_event = per_event
        self.loss = loss
        self.judge: Callable[[Antenna, Antenna, bytes], Verdict] | None = None
        self.connections: dict[frozenset[Antenna], Air] = {}
        self.joined = 0  # connections made
        self.carried = 0  # fragments
        self.carried_bytes: dict[frozenset[str], int] = {}  # by the names of both antennas
        self.lost = 0  # connection events
        self._random = random.Random(seed)
        self._silenced: set[Controller] = set()

    # What a test does to it

    def silence(self, antenna: Antenna, on: bool = True) -> None:
        """Out of range, or back: it neither hears nor is heard, and its connections end by their timeout."""
        if not on:
            self._silenced.discard(antenna)
            return
        self._silenced.add(antenna)
        for air in self._of(antenna):
            asyncio.get_running_loop().call_later(air.timeout, self._starve, air)

    def cut(self, antenna: Antenna, reason: int = TIMEOUT) -> int:
        """End all connections of an antenna at once; how many there were."""
        airs = self._of(antenna)
        for air in airs:
            air.end(reason)
        return len(airs)

    def between(self, one: Antenna, other: Antenna) -> Air | None:
        return self.connections.get(frozenset((one, other)))

    # What antennas tell it

    def join(self, central: Antenna, peripheral: Antenna, told: ll.ConnectInd) -> None:
        air = Air(self, central, peripheral, told.interval, told.timeout)
        self.connections[frozenset(air.ends)] = air
        self.joined += 1

    def vanish(self, antenna: Antenna) -> None:
        for air in self._of(antenna):
            air.leave(antenna)

    def carries(self, sender: Antenna, receiver: Antenna, count: int) -> None:
        """A fragment of so many bytes goes through the air."""
        both = frozenset((sender.name, receiver.name))
        self.carried += 1
        self.carried_bytes[both] = self.carried_bytes.get(both, 0) + count

    def fails(self, *ends: Controller) -> bool:
        """Whether this connection event fails."""
        failed = self._deaf(*ends) or self._random.random() < self.loss
        self.lost += failed
        return failed

    def _deaf(self, *ends: Controller) -> bool:
        return not self._silenced.isdisjoint(ends)

    def _of(self, antenna: Antenna) -> list[Air]:
        return [air for air in self.connections.values() if antenna in air.ends]

    def _starve(self, air: Air) -> None:
        if self._deaf(*air.ends):
            air.end()

    # bumble's link

    def send_advertising_pdu(self, sender_controller: Controller, packet: ll.AdvertisingPdu) -> None:
        if self._deaf(sender_controller) or self.loss and self._random.random() < self.loss:
            return
        loop = asyncio.get_running_loop()
        for other in self.controllers:
            if other is not sender_controller and not self._deaf(other):
                loop.call_soon(other.on_ll_advertising_pdu, packet)

    def send_ll_control_pdu(
        self, sender_address: hci.Address, receiver_address: hci.Address, packet: ll.ControlPdu
    ) -> None:
        air = self._with(sender_address, receiver_address)
        if air is None:
            return
        sender, receiver = air.ends
        if _link(sender, sender_address, receiver_address) is None:
            sender, receiver = receiver, sender
        ends = isinstance(packet, ll.TerminateInd)
        if self._deaf(sender, receiver):
            if ends:
                air.leave(sender)
            return
        if ends:
            air.forget()
        elif isinstance(packet, ll.ConnectionUpdateInd):
            air.set_parameters(packet.interval, packet.timeout)
        asyncio.get_running_loop().call_soon(receiver.on_ll_control_pdu, sender_address, packet)

    def _with(self, sender: hci.Address, receiver: hci.Address) -> Air | None:
        """The connection between two addresses."""
        for air in self.connections.values():
            if any(_link(antenna, sender, receiver) for antenna in air.ends):
                return air
        return None


def _link(antenna: Antenna, own: hci.Address, peer: hci.Address) -> Connection | None:
    connection = antenna.le_connections.get(peer)
    return connection if connection and connection.self_address == own else None
