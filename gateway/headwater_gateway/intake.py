"""The host at the gateway: the same core, with a short way for what comes most.

Nearly every frame that reaches a gateway carries entries for the lake, next in their stream. Such a frame is
checked like any other - its seal, its counter, its session - and its blocks go into the outbox as they
came, packed. Whatever is not exactly that goes the ordinary way (headwater/host.py). Frames that come
together are answered together: `settle` runs and speaks for all of them.

A block on the short way is not decoded here: its seal proves that its own board packed it. One that cannot be
decoded later goes to the lake as a declared gap, and an alarm is raised (segments.py).
"""

from __future__ import annotations

from hashlib import sha256
from hmac import compare_digest
from typing import Any

from headwater.host import Host
from headwater.seal import TAKEN
from headwater.wire import DATA, MESSAGES_MAX, TAG, VERSION

from .store import XI_MAX, End

_SHORTEST = 20  # bytes of a frame with anything in it


class Sealer:
    """The seals of one neighbour's frames in one of its lives, with the work that they share done once."""

    def __init__(self, key: bytes, log: int, plan: bytes) -> None:
        padded = key + bytes(64 - len(key))
        self.log = log
        self.inner = sha256(bytes(b ^ 0x36 for b in padded) + log.to_bytes(8, "little") + plan)
        self.outer = sha256(bytes(b ^ 0x5C for b in padded))

    def genuine(self, frame: bytes) -> bool:
        inner = self.inner.copy()
        inner.update(frame[:-TAG])
        outer = self.outer.copy()
        outer.update(inner.digest())
        return compare_digest(outer.digest()[:TAG], frame[-TAG:])


class Intake(Host):
    """`receive` takes a frame in, `settle` does what follows from all of them."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.due = False  # something came since `settle`
        self.quick = 0  # frames that went the short way
        self._holding = False
        self._sealers: dict[int, Sealer] = {}

    def receive(self, frame: bytes, now: int) -> None:
        self.now = now
        self.due = True
        if self._short(frame):
            self.quick += 1
            return
        self._holding = True
        try:
            super().receive(frame, now)
        finally:
            self._holding = False

    def pump(self) -> None:
        if self._holding:
            return
        self.due = False
        if not self.outbox.full:
            super().pump()
            return
        # Nothing more goes into the outbox: the queues fill, and the boards are told that there is no room.
        order = self.scheduler.order
        running: list[Any] = [each for each in order if not each.is_lake]
        self.scheduler.arrange(running)
        super().pump()
        if self.scheduler.order is running:
            self.scheduler.arrange(order)

    def settle(self) -> None:
        if self.due:
            self.pump()

    def _short(self, frame: bytes) -> bool:
        """Take a frame in if it holds nothing but next entries for the lake. False: nothing has changed."""
        size = len(frame) - TAG
        if size < _SHORTEST or frame[0] != VERSION or frame[1] > 127:
            return False
        sender = frame[1]
        link = self.exchange.links.get(sender)
        if link is None or not link.peer.live or self.outbox.full:
            return False
        peer = link.peer
        try:
            boot, at = _varint(frame, 2)
            counter, at = _varint(frame, at)
            if boot != peer.boot or link.life != (peer.log, boot) or frame[at : at + 2] != self.plan.hash[:2]:
                return False
            found = self._entries(frame, at + 2, size, sender, peer.log)
        except IndexError:
            return False
        if not found:
            return False
        sealer = self._sealers.get(sender)
        if sealer is None or sealer.log != peer.log:
            sealer = self._sealers[sender] = Sealer(self.keys[sender], peer.log, self.plan.hash)
        if not sealer.genuine(frame) or peer._fresh(boot, counter) != TAKEN:
            return False  # the ordinary way counts it
        peer.counts[TAKEN] += 1
        for e, end, xi, n, data in found:
            end.put(xi, n, data)
            ring = e.ring
            ring.first = ring.last = e.cur.xi = xi + n - 1
            if not e.ack:
                e.ack = True
                e.ack_us = self.now
        return True

    def _entries(
        self, frame: bytes, at: int, size: int, sender: int, log: int
    ) -> list[tuple[Any, End, int, int, bytes]] | None:
        """The blocks of a frame, if all of them go straight to the outbox."""
        found: list[tuple[Any, End, int, int, bytes]] = []
        last: dict[Any, int] = {}
        while at < size:
            if frame[at] != DATA or len(found) >= MESSAGES_MAX:
                return None
            edge = frame[at + 1]
            if edge > 127:
                edge, at = _varint(frame, at + 1)
            else:
                at += 2
            code = frame[at]
            if code == 1:
                inc = log
                at += 1
            elif code == 0:
                inc = 0
                at += 1
            elif code == 3:
                inc = int.from_bytes(frame[at + 1 : at + 9], "little")
                at += 9
            else:
                return None
            _, at = _varint(frame, at)
            _, at = _varint(frame, at)
            length, at = _varint(frame, at)
            end_at = at + length
            e = self.inputs.get(edge)
            if e is None or not e.contact or e.port is not None or not e.sink.is_lake or end_at > size:
                return None
            ring = e.ring
            if e.inc != inc or e.producer != sender or ring.count or ring.last != e.cur.xi:
                return None
            head, after = _varint(frame, at)
            xi, after = _varint(frame, after)
            n = head >> 4
            if xi != last.get(edge, ring.last) + 1 or not 0 < n <= self.plan.batch or after >= end_at:
                return None
            last[edge] = xi + n - 1
            if xi + n > XI_MAX:
                return None
            found.append((e, self.outbox.end(edge, inc), xi, n, frame[at:end_at]))
            at = end_at
        return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number and the place behind it; IndexError where there is none."""
    value = data[at]
    at += 1
    if value < 128:
        return value, at
    value &= 127
    shift = 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if not byte or value >> 64:
                raise IndexError
            return value, at
        shift += 7
        if shift > 63:
            raise IndexError
