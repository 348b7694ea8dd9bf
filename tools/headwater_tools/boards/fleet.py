"""A hundred boards in one process, indistinguishable for a gateway: keys, sessions, and frames of entries.

They have neither flash nor operators: every board is one source whose stream goes to the lake. Frames are
sealed ahead of time, so that sending them costs nothing but the socket.
"""

from __future__ import annotations

import random
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from headwater.data import block
from headwater.data.batch import Batch
from headwater.plan import model as plans
from headwater.process import Process
from headwater.process.check import check
from headwater.protocol import frames
from headwater.protocol.sessions import Peer

from ..errors import UserError

RATE_HZ = 360
TS_US = 1_700_000_000_000_000
FRAME_MAX = 16_384


def plan(name: str, boards: Sequence[str], batch: int) -> bytes:
    """A process in which each board has one source, and all of it goes to the lake."""
    process = Process(name, checkpoints="uncoordinated", batch=batch)
    for board in boards:
        source = process.source("s_" + board, "mV:i16", rate_hz=RATE_HZ, on=board)
        process.lake("%s/%s" % (name, board), source)
    report = check(process)
    if report.plan is None:
        raise UserError("; ".join(str(problem) for problem in report.problems))
    return report.plan


class Board:
    """One board: its session with the gateway, and how far its stream is."""

    def __init__(self, name: str, key: bytes, p: Any) -> None:
        self.name = name
        self.number = p.hosts.index(name)
        self.edge = next(e for e in p.edges if p.vertices[e.src].hosts[0] == self.number)
        self.log = secrets.randbits(63) | 1
        self.peer = Peer(key, self.number, self.log, 1, 0, p.hash, lambda: secrets.randbits(64))
        self.writer = frames.Writer(FRAME_MAX)
        self.batch = Batch(p.vertices[self.edge.src].outs[0], p.batch)
        self.batch.dt = 1_000_000 // RATE_HZ
        self.xi = 0
        self.value = 0
        self.asked = False  # the gateway has requested the stream
        self.safe = 0
        self.out: list[bytes] = []  # frames to be sent now

    def say(self, *message: Any) -> None:
        self.peer.begin(self.writer)
        self.writer.put(*message)
        self.out.append(bytes(self.peer.seal(self.writer)))
        self._reply()

    def _reply(self) -> None:
        reply = self.peer.take_reply()
        if reply:
            self.out.append(bytes(reply))

    def receive(self, frame: bytes) -> None:
        span = self.peer.open(frame)
        self._reply()
        if span is None:
            return
        frame = bytes(self.peer.plain or frame)
        for m in frames.messages(frame, *span, self.peer.log, self.log):
            if m[0] == frames.HELLO:
                self.asked = True
                self.say(
                    frames.ANSWER, self.edge.index, self.log, m[3], (0, 0), 0, self.xi, 0, self.safe, [], []
                )
            elif m[0] == frames.SAFE:
                self.safe = max(self.safe, m[4])

    def entries(self, n: int) -> bytes:
        """A sealed frame with the next n entries."""
        b = self.batch
        column = b.cols[0]
        value = self.value
        for i in range(n):
            value = max(-2000, min(2000, value + random.randrange(-12, 13)))
            column[i] = value
        self.value = value
        b.n = n
        b.xi = self.xi + 1
        b.ts = TS_US + self.xi * b.dt
        self.xi += n
        self.peer.begin(self.writer)
        begun = self.writer.open_data(self.edge.index, self.log, (0, 0))
        if not begun or not self.writer.close_data(block.encode(b, 0, n, *begun)):
            raise UserError("a frame of %d entries is larger than %d bytes" % (n, FRAME_MAX))
        return bytes(self.peer.seal(self.writer))


def packet(topic: str, payload: bytes) -> bytes:
    """One PUBLISH of QoS 0."""
    name = topic.encode()
    body = len(name).to_bytes(2, "big") + name + payload
    length = b""
    n = len(body)
    while n > 127:
        length += bytes((n & 127 | 128,))
        n >>= 7
    return b"\x30" + length + bytes((n,)) + body


class Fleet:
    """All boards behind one connection to a broker without passwords."""

    def __init__(self, port: int, processes: dict[str, bytes], key: Callable[[str], bytes]) -> None:
        self.boards: dict[str, Board] = {}
        for data in processes.values():
            p = plans.loads(data)
            for name in p.hosts[1:]:
                self.boards[name] = Board(name, key(name), p)
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.sendall(b"\x10\x11\x00\x04MQTT\x04\x02\x00\x00\x00\x05fleet")
        self.sock.sendall(b"\x82\x0b\x00\x01\x00\x06hw/+/g\x00")
        self.closed = False
        self._reader = threading.Thread(target=self._read, name="fleet", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        stream = self.sock.makefile("rb")
        try:
            while True:
                head = stream.read(1)
                if not head:
                    return
                n = shift = 0
                while True:
                    byte = stream.read(1)[0]
                    n |= (byte & 127) << shift
                    shift += 7
                    if byte < 128:
                        break
                body = stream.read(n)
                if head[0] & 0xF0 == 0x30:
                    size = int.from_bytes(body[:2], "big")
                    self._take(body[2 : 2 + size].decode().split("/")[1], body[2 + size :])
        except (OSError, IndexError, ValueError):
            if not self.closed:
                raise

    def _take(self, name: str, frame: bytes) -> None:
        board = self.boards.get(name)
        if board is not None:
            board.receive(frame)
            self._flush(board)

    def _flush(self, board: Board) -> None:
        sent, board.out = board.out, []
        for frame in sent:
            self.sock.sendall(packet("hw/g/" + board.name, frame))

    def open(self, timeout_s: float = 30) -> None:
        """Every board has a session, and the gateway has asked for its stream."""
        end = time.monotonic() + timeout_s
        while True:
            silent = [b for b in self.boards.values() if not b.asked]
            if not silent:
                time.sleep(0.5)  # for frames after the last answer
                return
            if time.monotonic() > end:
                raise UserError(
                    "the gateway does not answer %d of %d boards" % (len(silent), len(self.boards))
                )
            for board in silent:
                board.say(frames.BEAT, 0, 1)
                self._flush(board)
            time.sleep(0.3)

    def frames(self, count: int, n: int, topic: str = "hw/g/") -> list[tuple[str, bytes]]:
        """`count` frames of n entries, board by board in turn."""
        boards = list(self.boards.values())
        return [(b.name, b.entries(n)) for b in (boards[i % len(boards)] for i in range(count))]

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def close(self) -> None:
        self.closed = True
        self.sock.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self.sock.close()
