"""Frames of a faulty or hostile neighbour with a valid key: sealed correctly, with messages that no honest
host sends.

A host may lie about what it runs itself, and nothing can be done about it; such lies are not drawn. What is
drawn can be refused by a check: numbers out of range, lists of the wrong length, contents that cannot be
read, messages that only another host may send (the producer of an edge, its consumer, the gateway), epochs
that belong to another host, and kinds that do not belong on this link.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from headwater.data import block, msgpack
from headwater.data.batch import Batch
from headwater.plan.model import OUTSIDE, Edge
from headwater.protocol import frames

from .world import Node, World

BIG = (0, 1, 2, 3, 7, 100, 255, 256, 65535, 1 << 16, (1 << 31) - 1, 1 << 32, 1 << 53, 1 << 62, (1 << 64) - 1)
Message = tuple[Any, ...]

_PRODUCERS = (frames.DATA, frames.CR, frames.BOUND, frames.GAP, frames.ANSWER)
_CONSUMERS = (frames.GOT, frames.SAFE, frames.EXT, frames.HELLO)
_SITE = (frames.PLAN, frames.PLANNED, frames.SWITCH, frames.STATUS)


def _number(r: random.Random) -> int:
    return r.choice((r.choice(BIG), r.randrange(12), r.randrange(300)))


def _object(r: random.Random) -> bytes:
    """Packed content of an unexpected shape."""
    made: bytes = msgpack.dumps(
        r.choice(
            (
                5,
                "x",
                {},
                {"a": 1},
                [],
                ["set"],
                ["set", 5],
                ["close"],
                ["close", 99],
                ["close", -1],
                ["close", "a"],
                ["open", 0],
                ["open", 99, 5, 0],
                ["open", "a", 5, 0],
                [["set"], 1],
                ["what", 1],
                [1, 0, [1, 0, 0], [1], [[0, 0, 0]], {}, b""],
            )
        )
    )
    return made


def _checkpoint(r: random.Random) -> bytes:
    """An invalid checkpoint: a length, then two objects that are not its parts."""
    head = _object(r)
    size = r.choice((len(head), len(head), 1, 0, 1 << 31))
    return r.choice(
        (b"", b"\xc1", size.to_bytes(4, "little") + head + _object(r), r.randbytes(r.randrange(40)))
    )


def _content(r: random.Random) -> bytes:
    return r.choice((b"", b"\xc1", _object(r), _object(r), r.randbytes(r.randrange(30))))


class Hostile:
    """Makes frames of host `sender` for host `to`. `ran`: for each operator the hosts that it ever ran on."""

    def __init__(
        self, world: World, ran: dict[int, set[int]], epochs: dict[int, int], place: dict[int, int]
    ) -> None:
        self.world = world
        self.plan = world.plan
        self.ran = ran
        self.epochs = epochs
        self.place = place

    def epoch(self, v: int) -> tuple[int, int]:
        return (self.epochs[v], self.place[v]) if v in self.epochs else (0, 0)

    def frame(self, r: random.Random, sender: Node, to: Node) -> tuple[bytes, list[str]] | None:
        """A sealed frame and the kinds of its messages, or None if the two have no session."""
        assert sender.host is not None
        link = sender.host.exchange.links.get(to.number)
        if link is None or not link.peer.live:
            return None
        peer = link.peer
        writer = frames.Writer(self.world.hardware.mtu)
        peer.begin(writer)
        told = []
        for _ in range(r.choice((1, 1, 2, 4))):
            m = self.message(r, sender, to)
            if m is not None and writer.put(*m):
                told.append("%d%r" % (m[0], m[1:4]))
        if r.random() < 0.1:  # and something truncated
            tail = bytes([r.choice(list(frames.MESSAGES)), 0xFF, 0xFF])[: writer.room()]
            writer.mem[writer.pos : writer.pos + len(tail)] = tail
            writer.pos += len(tail)
            told.append("cut short")
        return bytes(peer.seal(writer)), told

    def message(self, r: random.Random, sender: Node, to: Node) -> Message | None:
        draws: list[Callable[[random.Random, Node, Node], Message | None]] = [
            self.nowhere,
            self.producer,
            self.consumer,
            self.unreadable,
            self.piece,
            self.fetch,
            self.stored,
            self.moved,
            self.time,
            self.site,
            self.decided,
            self.asked,
            self.watched,
            self.alarm,
            self.handed,
        ]
        return r.choice(draws)(r, sender, to)

    # ---- fields

    def any_fields(self, r: random.Random, kind: int) -> list[Any]:
        values: list[Any] = []
        for code in frames.MESSAGES[kind]:
            if code == "v":
                values.append(_number(r))
            elif code == "e":
                values.append((_number(r), r.choice((0, 1, 2, 9, _number(r)))))
            elif code == "i":
                values.append(r.choice((0, r.getrandbits(64))))
            elif code == "b":
                values.append(r.choice((_content(r), r.randbytes(15))))
            elif code == "l":
                values.append([_number(r) for _ in range(r.choice((0, 1, 3, 16)))])
            else:
                values.append([_number(r) for _ in range(r.choice((0, 1, 3, 16, 64)))])
        return values

    def inc(self, e: Edge) -> int:
        return self.world.current(e.index) if not self.plan.vertices[e.src].kind else 0

    def operator(self, r: random.Random) -> int | None:
        made = [v.index for v in self.plan.vertices if v.kind]
        return r.choice(made) if made else None

    def wrong_pos(self, r: random.Random, v: int) -> list[int]:
        right = len(self.plan.ins(v)) + 2
        return [_number(r) for _ in range(r.choice([n for n in (0, 1, 2, 3, 4, 5, 16, 64) if n != right]))]

    def produces(self, e: Edge, host: int) -> bool:
        v = self.plan.vertices[e.src]
        return host in self.ran[e.src] if v.kind else v.hosts[0] == host

    def consumes(self, e: Edge, host: int) -> bool:
        return host == 0 if e.dst == OUTSIDE else host in self.ran[e.dst]

    # ---- messages

    def nowhere(self, r: random.Random, sender: Node, to: Node) -> Message:
        """Of an edge or a vertex that does not exist."""
        kind = r.choice([k for k in frames.MESSAGES if k <= frames.ASK])
        values = self.any_fields(r, kind)
        values[0] = max(len(self.plan.edges), len(self.plan.vertices)) + _number(r) % (1 << 62)
        return (kind, *values)

    def producer(self, r: random.Random, sender: Node, to: Node) -> Message | None:
        """What only the producer of an edge may send."""
        edges = [e for e in self.plan.edges if not self.produces(e, sender.number)]
        if not edges:
            return None
        e = r.choice(edges)
        kind = r.choice(_PRODUCERS)
        values = self.any_fields(r, kind)
        values[:2] = [e.index, self.inc(e)]
        if kind == frames.DATA:
            values[2:] = [self.epoch(e.src), self.made(r, e)]
        elif kind == frames.ANSWER:
            values[2] = self.epoch(e.dst)
        return (kind, *values)

    def made(self, r: random.Random, e: Edge) -> bytes:
        """A readable block, with samples that were never taken."""
        batch = Batch(self.plan.vertices[e.src].outs[e.sport], 1)
        batch.xi = 1 + _number(r) % (1 << 40)
        batch.n = 1
        batch.dt = -1
        batch.ts = _number(r) % (1 << 61)
        body = bytearray(block.bound(batch.alphabet, 1))
        return bytes(body[: block.encode(batch, 0, 1, body, 0)])

    def consumer(self, r: random.Random, sender: Node, to: Node) -> Message | None:
        """What only the consumer of an edge may send, under its epoch."""
        edges = [e for e in self.plan.edges if not self.consumes(e, sender.number)]
        if not edges:
            return None
        e = r.choice(edges)
        kind = r.choice(_CONSUMERS)
        values = self.any_fields(r, kind)
        values[:3] = [e.index, self.inc(e), r.choice(((0, 0), self.epoch(e.dst)))]
        return (kind, *values)

    def unreadable(self, r: random.Random, sender: Node, to: Node) -> Message | None:
        """A block that cannot be read, on an edge of its own."""
        edges = [e for e in self.plan.edges if self.produces(e, sender.number)]
        if not edges:
            return None
        e = r.choice(edges)
        return (frames.DATA, e.index, self.inc(e), self.epoch(e.src), r.choice((b"", b"\xff" * 9)))

    def piece(self, r: random.Random, sender: Node, to: Node) -> Message | None:
        """An invalid checkpoint, or one at an impossible position."""
        v = self.operator(r)
        if v is None:
            return None
        body = _checkpoint(r)
        pos = r.choice((self.wrong_pos(r, v), [_number(r) for _ in range(len(self.plan.ins(v)) + 2)]))
        size = r.choice((len(body), len(body), _number(r)))
        return (
            frames.CKPT,
            v,
            r.choice((self.epoch(v), (0, 0))),
            pos,
            size,
            r.choice((0, 0, _number(r))),
            body,
        )

    def fetch(self, r: random.Random, sender: Node, to: Node) -> Message | None:
        v = self.operator(r)
        return None if v is None else (frames.FETCH, v, self.wrong_pos(r, v), r.choice((0, _number(r))))

    def stored(self, r: random.Random, sender: Node, to: Node) -> Message | None:
        v = self.operator(r)
        return None if v is None else (frames.STORED, v, self.epoch(v), self.wrong_pos(r, v), _number(r))

    def moved(self, r: random.Random, sender: Node, to: Node) -> Message:
        """Where something runs: on a host that does not exist, or something that never moves."""
        v = r.choice(self.plan.vertices)
        number = _number(r)
        if v.kind:
            nobody = len(self.plan.hosts) + _number(r) % (1 << 62)
            return (frames.WHERE, v.index, (number, nobody), nobody, *self.any_fields(r, frames.ACCEPT))
        return (frames.WHERE, v.index, (number, sender.number), sender.number, 4, 0)

    def time(self, r: random.Random, sender: Node, to: Node) -> Message:
        """Only the gateway tells the time; any host may ask for it, and send BEAT."""
        kind = r.choice((frames.TIME, frames.TIME, frames.CLOCK, frames.BEAT))
        if kind == frames.TIME and sender.number == 0:
            kind = frames.CLOCK
        return (kind, *self.any_fields(r, kind))

    def site(self, r: random.Random, sender: Node, to: Node) -> Message:
        kind = r.choice(_SITE)
        return (kind, *self.any_fields(r, kind))

    def decided(self, r: random.Random, sender: Node, to: Node) -> Message | None:
        """A change, which only the gateway may give; from the gateway itself, unreadable content."""
        v = self.operator(r)
        if v is None:
            return None
        inst = to.host.instances.get(v) if to.host else None
        log, number = inst.given if inst else (0, 0)
        if r.random() < 0.4:
            log, number = _number(r), _number(r) % (1 << 40)
        content = _content(r)
        if sender.number:
            content = r.choice((content, msgpack.dumps(["set", {}]), msgpack.dumps(["close", 0])))
        return (frames.CONFIG, v, log, number + 1, content)

    def asked(self, r: random.Random, sender: Node, to: Node) -> Message | None:
        """What only a host that may run the operator asks or tells the gateway, under its epoch."""
        others = [v for v, hosts in self.ran.items() if sender.number not in hosts]
        if not others:
            return None
        v = r.choice(others)
        if r.random() < 0.3:
            return (frames.ASK, max(len(self.plan.vertices), v) + _number(r) % (1 << 32))
        values = self.any_fields(r, frames.STAND)
        values[:2] = [v, r.choice(((0, sender.number), self.epoch(v)))]
        return (frames.STAND, *values)

    def alarm(self, r: random.Random, sender: Node, to: Node) -> Message | None:
        """News for an alarm that is not the receiver's, or with numbers that cannot be."""
        alarms = self.plan.alarms
        others = [a.index for a in alarms if a.host != to.number] or [len(alarms)]
        own = [a.index for a in alarms if a.host == to.number]
        if own and r.random() < 0.5:
            odd = 2 + _number(r) % (1 << 62)
            return (frames.ALARM, own[0], *r.choice(((0, 3), (1, 1 << 32), (2, 0), (odd, 1))))
        return (frames.ALARM, r.choice([*others, len(alarms) + _number(r) % (1 << 32)]), r.randrange(2), 1)

    def handed(self, r: random.Random, sender: Node, to: Node) -> Message | None:
        """An offer, or what belongs to one: of what the sender cannot run, under the epoch of another host,
        at a place that is none, with a reason or rates that are none. Some are right and come out of turn:
        the number is of no offer."""
        v = self.operator(r)
        if v is None:
            return None
        right = [_number(r) % (1 << 40) for _ in range(len(self.plan.ins(v)) + 2)]
        wrong, number, other = self.wrong_pos(r, v), _number(r), (1, len(self.plan.hosts) + _number(r) % 99)
        mine = (_number(r) % (1 << 20), sender.number)
        size = _number(r)
        return r.choice(
            (
                (frames.BID, v, number, [_number(r) for _ in range(r.choice((9, 16, 64)))]),
                (frames.OFFER, v, number, other, 4, right, size, 9, []),
                (frames.OFFER, v, number, mine, r.choice((0, 1, 6, 1 << 40)), right, size, 9, []),
                (frames.OFFER, v, number, mine, 4, wrong, size, 9, []),
                (frames.HAND, v, number, other, right, size),
                (frames.HAND, v, number, mine, wrong, size),
                (frames.ROOM, v, number, 1 << 40, 0, 0, 1),
                (frames.ROOM, v, number, 5, 5, 5, r.choice((1, 99))),
                (frames.ACCEPT, v, number),
                (frames.REFUSE, v, number, r.choice((0, 5, 99))),
                (frames.KEEP, v, mine, (mine[0], 1), right, size),
                (frames.KEEP, v, other, (0, 1), right, size),
                (frames.KEEP, v, (mine[0] + 1, sender.number), (mine[0], 1), wrong, size),
                self.ordered(sender, v, number),
                (frames.MOVED, v, number, r.choice((0, 32))),
            )
        )

    def ordered(self, sender: Node, v: int, number: int) -> Message:
        """What only the gateway may say, or not with that number."""
        if sender.number:
            return (frames.MOVE, v, 1, 1) if number % 2 else (frames.GIVE_UP, v, 1)
        many = len(self.plan.hosts)
        return (frames.MOVE, v, number, many) if number % 2 else (frames.GIVE_UP, v, 1 << 31)

    def watched(self, r: random.Random, sender: Node, to: Node) -> Message | None:
        """A word, a question or an answer about operators with numbers that cannot be."""
        v = self.operator(r)
        if v is None:
            return None
        nobody = len(self.plan.hosts) + _number(r) % (1 << 32)
        if r.random() < 0.3:
            return (frames.TAKE, max(len(self.plan.vertices), v) + _number(r) % (1 << 32), (1, 0))
        if r.random() < 0.5:
            return (frames.LIVES, v, *r.choice((((1, nobody), 2), (self.epoch(v), 3), ((1 << 31, 0), 2))))
        named = r.choice(([1], [1, 2 * nobody + 2 * len(self.plan.vertices)], [1 << 31, 2 * v], [0, 2 * v]))
        return (frames.WORD, 1 + _number(r) % (1 << 30), r.choice((20, _number(r))), _number(r), named)
