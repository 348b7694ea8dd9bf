"""What waited while a link was away goes out in full frames, and no faster than the link has room."""

from __future__ import annotations

import itertools

from headwater.data.batch import Batch
from headwater.plan import model as plans
from headwater.protocol.clock import Clock
from headwater.runtime.gateway_host import GatewayHost
from headwater.runtime.host import Host
from headwater.storage.log import Log
from headwater.testing.cut_flash import CutFlash
from headwater_tools.boards.fleet import plan
from site_gateway import Outbox

MTU, LONGEST = 512, 580
QUEUE = LONGEST + 244  # as protocol/ble_link.py has it: less than two frames of the longest length
DT_US = 2778


class Link:
    """Frames on their way to one host. Like a Bluetooth connection it has little room, refuses what finds
    none, and tells of room only where somebody has asked in vain."""

    def __init__(self) -> None:
        self.waits: list[bytes] = []
        self.refused = 0
        self.short = False
        self.away = False

    def room(self, _to: int) -> int:
        free = 0 if self.away else (QUEUE - sum(map(len, self.waits))) // LONGEST
        self.short = self.short or not free
        return free

    def send(self, _to: int, frame: object) -> None:
        data = bytes(frame)  # type: ignore[call-overload]
        if self.away or sum(map(len, self.waits)) + len(data) > QUEUE:
            self.refused += 1
        else:
            self.waits.append(data)


class Pair:
    """A board with a source, and a gateway whose own frames find room always."""

    def __init__(self) -> None:
        self.plan = plans.loads(plan("one", ["a"], 50))
        self.up = Link()
        self.down: list[bytes] = []
        self.now = 1_000_000
        nonces = itertools.count(1)
        hosts = []
        for me in (0, 1):
            flash = CutFlash(256)
            Log.format(flash, 7 + me)
            store = Log(flash)
            store.mount()
            clock = Clock()
            clock.exchange(self.now, self.now, self.now, self.now)
            keys = {1 - me: bytes(32)}
            outbox = None if me else Outbox(self.plan)
            send = self.up.send if me else self._down
            kind = GatewayHost if outbox else Host
            hosts.append(kind(self.plan, me, store, keys, clock, send, lambda: next(nonces), outbox, MTU))
        self.gateway, self.board = hosts
        self.board.exchange.pace_by(self.up.room)
        for host in hosts:
            host.start(self.now)
        v = next(v for v in self.plan.vertices if not v.kind)
        self.source = v.index
        self.batch = Batch(v.outs[0], self.plan.batch)

    def _down(self, _to: int, frame: object) -> None:
        self.down.append(bytes(frame))  # type: ignore[call-overload]

    def sample(self) -> None:
        """A whole batch."""
        self.batch.n = self.plan.batch
        self.batch.dt = DT_US
        for i in range(self.batch.n):
            self.batch.cols[0][i] = 17 * i % 400
        self.now += self.batch.n * DT_US
        assert self.board.sample(self.source, self.batch, self.now, self.now) == self.batch.n

    def settle(self) -> list[int]:
        """Carry what is sent, until nothing is; the lengths of the board's frames. No time passes."""
        sizes = []
        while self.up.waits or self.down:
            waits, self.up.waits = self.up.waits, []
            for frame in waits:
                sizes.append(len(frame))
                self.gateway.receive(frame, self.now)
            self.gateway.settle()
            if self.up.short:
                self.up.short = False
                self.board.exchange.flush()
            down, self.down = self.down, []
            for frame in down:
                self.board.receive(frame, self.now)
            self.board.settle()
        return sizes

    def ticks(self, seconds: int) -> None:
        for _ in range(4 * seconds):
            self.now += 250_000
            self.board.tick(self.now)
            self.gateway.tick(self.now)
            self.settle()


def test_what_waited_goes_out_in_full_frames_as_soon_as_there_is_room() -> None:
    pair = Pair()
    pair.ticks(10)
    pair.sample()
    pair.settle()
    outbox = pair.gateway.outbox
    assert outbox.durable(0, outbox.latest(0)) == 50
    pair.up.away = True
    for _ in range(40):
        pair.sample()
    pair.settle()
    refused = pair.up.refused
    pair.up.away = False
    pair.board.exchange.flush()
    sizes = pair.settle()
    # All of it without waiting for a tick, and the link had to refuse nothing.
    assert outbox.durable(0, outbox.latest(0)) == 41 * 50
    assert pair.up.refused == refused
    # A batch takes a seventh of a frame, and so would each frame if it were sent as soon as it is begun.
    assert sum(sizes) > len(sizes) * MTU // 2, sizes
