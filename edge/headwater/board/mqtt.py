# The link to the gateway: MQTT 3.1.1 over asyncio, as much of it as carries frames.
#
# Frames carry their own acknowledgements, so everything is sent with QoS 0 and nothing is kept or sent
# again here. It promises: no call blocks, and `send` never waits; the heap that is used does not
# depend on what the broker sends: a packet that does not fit the receive buffer is skipped and
# counted; whatever arrives, `run` raises nothing; a packet is one write; a link that is silent
# for one and a half times keepalive_s is closed; the link reconnects by itself, with exponential
# back-off up to retry_s_max, plus jitter.
#
# The clients of micropython-lib are not suitable. umqtt.simple and umqtt.robust wait inside the socket, so
# no sensor would be read meanwhile: for an acknowledgement without limit, and after each read the
# socket blocks again; they do not check that a ping is answered, lose their subscription when the
# link reconnects, and allocate whatever length a packet claims. mqtt_as waits in asyncio, but keeps
# messages of its own in RAM and sends them again under new numbers, which our frames already handle,
# in several times the code.

import asyncio

from ..offboard.compat import TYPE_CHECKING, const
from .native import BOARD
from .unload import unload

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import Any

    from ..offboard.interfaces import Readable, Writable

_CONNACK = const(0x20)
_PUBLISH = const(0x30)
_SUBACK = const(0x90)
_PINGRESP = const(0xD0)
_HEAD = const(5)  # bytes of a packet before its parts, at most
_OUT_MAX = const(12)  # packets that wait for the socket; more are dropped, and the frames in them sent again
_OPEN_US = const(20000000)  # most time for name, TCP, TLS, CONNACK and SUBACK
_LASTED_US = const(10000000)  # after a link that lasted this long, pauses start at the shortest again
_RETRY_MS = const(500)


# Write a packet to buf: its first byte, the length of the parts, and these. -> where it ends
def put(buf: "Writable", kind: int, *parts: "Readable") -> int:
    n = sum([len(part) for part in parts])
    buf[0] = kind
    at = 1
    while n > 127:
        buf[at] = n & 127 | 128
        n >>= 7
        at += 1
    buf[at] = n
    at += 1
    for part in parts:
        n = at + len(part)
        buf[at:n] = part
        at = n
    return at


def packet(kind: int, *parts: "Readable") -> bytearray:
    n = sum([len(part) for part in parts])
    buf = bytearray(2 + (n > 127) + (n > 16383) + n)
    put(buf, kind, *parts)
    return buf


def text(s: str | bytes) -> bytes:
    if isinstance(s, str):
        s = s.encode()
    return len(s).to_bytes(2, "big") + s


# In one line.
def why(e: Exception) -> str:
    try:
        from . import connecting

        return connecting.why(e)
    except MemoryError:
        return type(e).__name__


# Packets out of bytes that arrive in pieces, in a buffer made once. Total: any bytes give packets, or
# `broken` is set permanently.
class Packets:
    def __init__(self, size: int) -> None:
        self.mem = memoryview(bytearray(size))
        self.skipped = 0  # packets that were too large
        self.reset()

    def reset(self) -> None:
        self.pos = self.end = 0  # what has not been looked at yet
        self.skip = 0  # bytes of a packet that is too large
        self.body = 0  # where the body of the last packet begins; it ends at pos
        self.broken = False

    # Where the next bytes go; see `came`.
    def room(self) -> memoryview:
        n = self.end - self.pos
        if self.pos:
            self.mem[:n] = self.mem[self.pos : self.end]
            self.pos = 0
            self.end = n
        return self.mem[n:]

    # n bytes came to where `room` ended.
    def came(self, n: int) -> None:
        assert self.end + n <= len(self.mem)
        self.end += n

    # The first byte of the next packet, whose body is mem[body:pos]; or 0.
    def next(self) -> int:
        mem = self.mem
        while not self.broken:
            n = min(self.skip, self.end - self.pos)
            self.pos += n
            self.skip -= n
            size = shift = 0
            at = self.pos + 1
            b = 128
            while b > 127 and at < self.end:
                b = mem[at]
                at += 1
                size |= (b & 127) << shift
                shift += 7
            if b > 127:
                self.broken = shift > 21
                break
            n = at - self.pos + size
            if n > len(mem):
                self.skip = n
                self.skipped += 1
                continue
            if n > self.end - self.pos:
                break
            kind = mem[self.pos]
            self.body = at
            self.pos += n
            return kind
        return 0


class Client:
    task: "asyncio.Task[Any] | None"
    drain: asyncio.Task[None] | None

    # site, name: the topics are SITE/NAME/+ and SITE/+/NAME.
    # broker: host, port; may have name (in its certificate), user, password, keepalive_s, retry_s_max.
    # tls: an SSLContext or None. online(): awaited until there is a network.
    # take(sender, payload): a frame arrived; payload is in the buffer.
    # random() -> 64 bits. size: most bytes of an accepted packet. buf: a packet that fits is made in it
    # during a call; its owner may use it between calls.
    def __init__(
        self,
        site: str,
        name: str,
        broker: "Mapping[str, Any]",
        tls: "Any",
        online: "Callable[[], Awaitable[object]]",
        take: "Callable[[str, memoryview], object]",
        random: "Callable[[], int]",
        size: int = 640,
        buf: "Readable" = b"",
    ) -> None:
        self.own = text("%s/%s/" % (site, name))[2:]
        self.site = site
        self.name = name
        self.broker = broker
        self.tls = tls
        self.online = online
        self.take = take
        self.random = random
        self.packets = Packets(size)
        self.buf = memoryview(buf)
        self.half_us = broker.get("keepalive_s", 20) * 500000
        self.topics: dict[str, bytes] = {}
        self.out: "list[Readable]" = []  # packets that wait for the socket
        self.off = 0  # of the first one, what has been written
        self.s: "Any" = None
        self.task = self.drain = None
        self.up = False
        self.waiting = True
        self.bad = ""  # why this link must end
        self.why = ""  # why the last one did
        self.now = self.heard = self.said = self.since = 0
        self.connects = self.sent = self.dropped = self.strays = 0

    # Packets that came and were left out.
    @property
    def strange(self) -> int:
        return self.packets.skipped + self.strays

    # Send a frame: False if there is no link, or too much waits for it.
    def send(self, to: str, frame: "Readable") -> bool:
        topic = self.topics.get(to)
        if topic is None:
            topic = self.topics[to] = text("%s/%s/%s" % (self.site, to, self.name))
        if self.up and self._write(self._publish(topic, frame)):
            self.sent += 1
            return True
        self.dropped += 1
        return False

    def _publish(self, topic: bytes, frame: "Readable") -> "Writable":
        buf = self.buf
        if _HEAD + len(topic) + len(frame) > len(buf):
            return packet(_PUBLISH, topic, frame)
        return buf[: put(buf, _PUBLISH, topic, frame)]

    # To be called a few times a second, with microseconds that never go back.
    def tick(self, now: int) -> None:
        self.now = now
        if self.task is None or self.waiting:
            return
        quiet = now - self.heard
        if quiet > (3 * self.half_us if self.up else _OPEN_US):
            self.bad = "no answer"
        if self.bad:
            self.task.cancel()
        elif self.up and max(quiet, now - self.said) >= self.half_us:
            self.said = now
            self._write(b"\xc0\0")

    # Keeps the link up; ends with `close` only.
    async def run(self) -> None:
        self.task = asyncio.current_task()
        tries = 0
        self.ending = False
        while not self.ending:
            self.waiting = False
            self.bad = ""
            self.heard = self.since = self.now
            try:
                await self._session()
            except asyncio.CancelledError:
                if not self.bad:
                    self.ending = True
            except (OSError, ValueError) as e:
                self.bad = why(e)
                if not self.up and ("reset" in self.bad.lower() or "closed" in self.bad):
                    self.bad += ": does broker.tls fit its port?"
            self.why = self.bad
            if self.up and self.now - self.since > _LASTED_US:
                tries = 0
            self._shut()
            if not self.ending:
                ms = min(_RETRY_MS << min(tries, 10), self.broker.get("retry_s_max", 30) * 1000)
                tries += 1
                try:
                    await asyncio.sleep((ms // 2 + self.random() % (ms // 2 + 1)) / 1000)
                except asyncio.CancelledError:
                    self.ending = True
        self.task = None

    # Say goodbye, so that the will is not published, and end.
    async def close(self) -> None:
        if self.up:
            self._write(b"\xe0\0")
            for _ in range(20):
                if not self.out:
                    break
                await asyncio.sleep(0.05)
        self.bad = ""
        if self.task:
            self.task.cancel()

    async def _session(self) -> None:
        b = self.broker
        p = self.packets
        p.reset()
        await self.online()
        await self._open(b["host"], b["port"], b.get("name") or b["host"])
        will = "%s/s/%s" % (self.site, self.name)
        from .connecting import connect

        data = connect(self.name, self.half_us // 500000, will, b.get("user"), b.get("password"))
        connect = None  # type: ignore[assignment]
        unload("board.connecting")
        await self._all(data)
        while not self.bad:
            n = await self._read(p.room())
            if not n:
                raise OSError("closed by the broker")
            p.came(n)
            self.heard = self.now
            while True:
                kind = p.next()
                if not kind:
                    break
                self._packet(kind, p.mem[p.body : p.pos])
            if p.broken:
                raise OSError("the broker does not speak MQTT")

    def _packet(self, kind: int, body: memoryview) -> None:
        n = len(body)
        if kind & 0xF0 == _PUBLISH:
            size = 2 + (body[0] << 8 | body[1]) if n > 1 else n + 1
            own = 2 + len(self.own)
            if not own < size <= n or body[2:own] != self.own or kind & 6 or not self.up:
                self.strays += 1
                return
            try:
                sender = bytes(body[own:size]).decode()
            except UnicodeError:
                self.strays += 1
                return
            self.take(sender, body[size:])
        elif kind == _CONNACK and n == 2 and not self.up:
            if body[1]:
                from . import connecting

                raise OSError("refused by the broker: " + connecting.REFUSED[min(body[1], 5)])
            self._write(packet(0x82, b"\0\1", text(self.own + b"+"), b"\0"))
        elif kind == _SUBACK and n == 3:
            if body[2]:
                raise OSError("refused by the broker: subscription")
            self.up = True
            self.connects += 1
        elif kind != _PINGRESP:
            raise OSError("the broker sent a packet of kind %d" % (kind >> 4))

    def _shut(self) -> None:
        self.waiting = True
        self.up = False
        self.out = []
        self.off = 0
        if self.drain:
            self.drain.cancel()
            self.drain = None
        if self.s:
            try:
                self.s.close()
            except OSError:
                pass  # it was broken already
            self.s = None

    # What cannot be written at once is copied to the queue, or dropped if the queue is full.
    def _write(self, data: "Readable") -> bool:
        out = self.out
        if len(out) >= _OUT_MAX or self.bad:
            return False
        if out:
            try:
                out.append(bytes(data))
            except MemoryError:
                return False
            self.said = self.now
            self._push()
        else:
            self.said = self.now
            out.append(data)
            self._push()
            if out:
                out[0] = bytes(data)
        if out and not self.drain:
            self.drain = asyncio.create_task(self._drain())
        return True

    # Writes what waits, as far as the socket takes it. A partial write continues with the same
    # bytes: TLS demands it.
    def _push(self) -> None:
        out = self.out
        try:
            while out:
                n = self._put(memoryview(out[0])[self.off :])
                if not n:
                    return
                self.off += n
                if self.off >= len(out[0]):
                    out.pop(0)
                    self.off = 0
        except (OSError, ValueError) as e:
            self.bad = why(e)
            out.clear()

    async def _all(self, data: "Readable") -> None:
        self._write(data)
        while self.out:
            await asyncio.sleep(0.01)
        if self.bad:
            raise OSError(self.bad)

    async def _drain(self) -> None:
        while self.out:
            await self._writable()
            self._push()
        self.drain = None

    if BOARD:

        async def _open(self, host: str, port: int, name: str) -> None:
            import socket

            at = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)[0]
            self.s = s = socket.socket(at[0])
            s.setblocking(False)
            try:
                s.connect(at[-1])
            except OSError as e:
                if e.errno != 115 and e.errno != 119:  # EINPROGRESS, on Linux and on an ESP32
                    raise
            await self._writable()
            if self.tls:
                self.s = s = self.tls.wrap_socket(s, server_hostname=name, do_handshake_on_connect=False)
                s.setblocking(False)

        async def _read(self, mem: memoryview) -> int:
            n = self.s.readinto(mem)
            while n is None:
                await self._readable()
                n = self.s.readinto(mem)
            return n

        async def _readable(self) -> "Any":
            yield asyncio.core._io_queue.queue_read(self.s)  # type: ignore[attr-defined]

        async def _writable(self) -> "Any":
            yield asyncio.core._io_queue.queue_write(self.s)  # type: ignore[attr-defined]

        def _put(self, mem: memoryview) -> int:
            return self.s.write(mem)

    else:

        async def _open(self, host: str, port: int, name: str) -> None:
            names: "dict[str, Any]" = {"server_hostname": name} if self.tls else {}
            self.reader, self.s = await asyncio.open_connection(host, port, ssl=self.tls, **names)

        async def _read(self, mem: memoryview) -> int:
            data = await self.reader.read(len(mem))
            mem[: len(data)] = data
            return len(data)

        async def _writable(self) -> None:  # type: ignore[misc]
            await self.s.drain()

        def _put(self, mem: memoryview) -> int:
            if self.s.transport.get_write_buffer_size() > 16384:
                return 0
            self.s.write(bytes(mem))
            return len(mem)
