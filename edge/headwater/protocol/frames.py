# Frames and messages: what every link carries.
#
# A frame is a header (version, sender, boot, counter, plan), messages one after the other, and a
# seal (sessions.py). A message is its kind and the fields that MESSAGES lists for that kind; nothing
# else knows the layout. Reading is total: any bytes give messages or one FrameError, and no more
# memory than the frame itself accounts for. Bytes: docs/spec.md.
#
# Codes of fields:
#   v  number, 0 .. 2**64-1
#   e  epoch: number, host                       -> (number, host)
#   i  incarnation: 0, a log number, or any other 64 bits. The log numbers of sender and receiver
#      take one byte: both ends know them from their session.
#   b  bytes                                     -> the piece of the frame: no copy where that is a memoryview
#   p  numbers, at most 64: a position or name   -> list
#   l  host numbers, at most 16                  -> list

from ..data.block import BlockError, get_varint, put_varint
from ..offboard.compat import TYPE_CHECKING, const

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ..offboard.interfaces import Epoch, Message, Readable

VERSION = 1
OPENING = 0x10  # first byte: this bit marks a frame that opens a session (sessions.py)
ENCRYPTED = 0x20  # ... this one a frame that is encrypted, or an opening frame with a salt (cipher.py),
BARE = 0x40  # and this one that the link of its sender does not encrypt itself
TAG = 8  # bytes of the seal at the end of every frame
FRAME_MAX = 1 << 14
MESSAGES_MAX = 64
NUMBERS_MAX = 64
HOSTS_MAX = 16

DATA = 1
CR = 2
BOUND = 3
GAP = 4
GOT = 5
SAFE = 6
EXT = 7
HELLO = 8
ANSWER = 9
WHERE = 10
CKPT = 11
STORED = 12
FETCH = 13
CONFIG = 14
ASK = 17
CLOCK = 19
TIME = 20
BEAT = 21
PLAN = 22
PLANNED = 23
SWITCH = 24
STATUS = 25
STANDS = 26
STAND = 27
WORD = 28
TAKE = 29
LIVES = 30
BID = 31
OFFER = 32
HAND = 33
ROOM = 34
ACCEPT = 35
REFUSE = 36
KEEP = 37
MOVE = 38
MOVED = 39
ALARM = 40
LOST = 41
WITHOUT = 42
GIVE_UP = 43

MESSAGES = {
    DATA: "vieb",  # edge, incarnation, epoch, block (the block must stay last)
    CR: "vivbv",  # edge, incarnation, xi, cid, urgent
    BOUND: "vivv",  # edge, incarnation, xi, ts
    GAP: "vivvv",  # edge, incarnation, first, last, reason
    GOT: "vievvv",  # edge, incarnation, epoch, xi, room, flags
    SAFE: "vievplv",  # edge, incarnation, epoch, xi, name, holders, load
    EXT: "viebvv",  # edge, incarnation, epoch, cid, mode, base
    HELLO: "vievp",  # edge, incarnation, epoch, next, name
    ANSWER: "vieevvvvpl",  # edge, incarnation, epoch, own epoch, first, last, bound, acked, name, holders
    WHERE: "vevvv",  # vertex, epoch, host, why, age in seconds: see protocol/moves.py
    CKPT: "vepvvb",  # vertex, epoch, name, size, offset, piece
    STORED: "vepv",  # vertex, epoch, name, offset
    FETCH: "vpv",  # vertex, name, offset
    CONFIG: "vivb",  # vertex, log number of the gateway, number, content
    ASK: "v",  # vertex
    CLOCK: "v",  # t1
    TIME: "vvvv",  # t1, t2, t3, error
    BEAT: "vv",  # state, stamp
    PLAN: "bvvb",  # deployment, size, offset, piece; these four go over the site link only
    PLANNED: "bvvb",  # deployment, state, offset, why
    SWITCH: "bv",  # deployment, step
    STATUS: "b",  # content
    STANDS: "v",  # vertex
    STAND: "veivb",  # vertex, epoch, log number of the gateway that gave changes, number of the last; content
    WORD: "vvvp",  # count, period and flags, hosts heard, operators: see runtime/words.py
    TAKE: "ve",  # vertex, epoch
    LIVES: "vev",  # vertex, epoch, state
    BID: "vvp",  # vertex, number, rates: see runtime/moving.py and taking.py, as for the others
    OFFER: "vvevpvvp",  # vertex, number, epoch, why, position, size, seconds left, rates
    HAND: "vvepv",  # vertex, number, epoch, position, boundary
    ROOM: "vvvvvv",  # vertex, number, seconds left without it, with it, charge left in mC, refusal and reach
    ACCEPT: "vv",  # vertex, number
    REFUSE: "vvv",  # vertex, number, refusal
    KEEP: "veepv",  # vertex, epoch, epoch that keeps it, name, size
    MOVE: "vvv",  # vertex, number, host
    MOVED: "vvv",  # vertex, number, outcome
    ALARM: "vvv",  # alarm, what, value: see runtime/signals.py
    LOST: "viv",  # host, log number, state: see runtime/losses.py
    WITHOUT: "vivp",  # host, log number, whether it is an answer, operators
    GIVE_UP: "vv",  # vertex, number of an epoch: see runtime/giving_up.py
}


_NUMBER = const(118)  # v
_EPOCH = const(101)  # e
_INCARNATION = const(105)  # i
_BYTES = const(98)  # b
_NUMBERS = const(112)  # p


class FrameError(ValueError):
    pass


class Writer:
    # mtu: most bytes of a frame, seal included. The buffer is made once.
    def __init__(self, mtu: int) -> None:
        if not 64 <= mtu <= FRAME_MAX:
            raise ValueError("a frame of %d bytes: 64 to %d" % (mtu, FRAME_MAX))
        self.mtu = mtu
        self.buf = bytearray(mtu)
        self.mem = memoryview(self.buf)
        self.pos = 0
        self.count = 0  # messages so far
        self.start = 0  # of the message that open_data began
        self.my_log = self.peer_log = 0

    # Start a frame. plan2: two bytes. my_log, peer_log: log numbers of this host and of the
    # receiver (0: not known).
    def begin(
        self, sender: int, boot: int, counter: int, plan2: "Readable", my_log: int, peer_log: int
    ) -> None:
        buf = self.buf
        buf[0] = VERSION
        pos = put_varint(buf, put_varint(buf, put_varint(buf, 1, sender), boot), counter)
        buf[pos] = plan2[0]
        buf[pos + 1] = plan2[1]
        self.pos = pos + 2
        self.count = 0
        self.my_log = my_log
        self.peer_log = peer_log

    # Bytes left for messages.
    def room(self) -> int:
        return self.mtu - TAG - self.pos

    # The frame so far.
    def view(self) -> memoryview:
        return self.mem[: self.pos]

    # Add one message. False, and the frame unchanged, if it does not fit.
    def put(self, kind: int, *values: "Any") -> bool:
        codes = MESSAGES[kind]
        if len(values) != len(codes):
            raise ValueError("message %d has %d fields, not %d" % (kind, len(codes), len(values)))
        if self.count >= MESSAGES_MAX:
            return False
        try:
            pos = self._fields(kind, codes, values)
        except IndexError:
            return False
        if pos > self.mtu - TAG:
            return False
        self.pos = pos
        self.count += 1
        return True

    def _fields(self, kind: int, codes: str, values: "Sequence[Any]") -> int:
        buf = self.buf
        pos = self.pos
        buf[pos] = kind
        pos += 1
        k = 0
        for c in codes.encode():  # numbers are compared sooner than texts
            v = values[k]
            k += 1
            if c == _NUMBER:
                if 0 <= v < 128:
                    buf[pos] = v
                    pos += 1
                else:
                    pos = _put(buf, pos, v)
            elif c == _EPOCH:
                pos = _put(buf, _put(buf, pos, v[0]), v[1])
            elif c == _INCARNATION:
                if v == 0:
                    buf[pos] = 0
                elif v == self.my_log:
                    buf[pos] = 1
                elif v == self.peer_log:
                    buf[pos] = 2
                else:
                    buf[pos] = 3
                    for shift in range(0, 64, 8):
                        pos += 1
                        buf[pos] = v >> shift & 255
                pos += 1
            elif c == _BYTES:
                n = len(v)
                pos = put_varint(buf, pos, n)
                if pos + n > len(buf):
                    raise IndexError
                self.mem[pos : pos + n] = v
                pos += n
            else:
                if len(v) > (NUMBERS_MAX if c == _NUMBERS else HOSTS_MAX):
                    raise ValueError("%d numbers in a field of message %d" % (len(v), kind))
                pos = put_varint(buf, pos, len(v))
                for x in v:
                    pos = _put(buf, pos, x)
        return pos

    # Begin a DATA message. -> (buffer, position) for block.encode, or None if the frame is full.
    # What has been written counts once close_data has been called.
    def open_data(self, edge: int, inc: int, epoch: "Epoch") -> tuple[bytearray, int] | None:
        if self.count >= MESSAGES_MAX:
            return None
        try:
            pos = self._fields(DATA, "vie", (edge, inc, epoch)) + 2
        except IndexError:
            return None
        if pos >= self.mtu - TAG:
            return None
        self.start = pos
        return self.buf, pos

    # End the DATA message: its block ends at pos (-1: it did not fit). False, and the frame as it
    # was before open_data, if the message does not fit.
    def close_data(self, pos: int) -> bool:
        start = self.start
        n = pos - start
        if n <= 0 or pos > self.mtu - TAG:
            return False
        buf = self.buf
        if n < 128:  # one byte of length, not two
            buf[start - 2] = n
            self.mem[start - 1 : pos - 1] = bytes(self.mem[start:pos])
            pos -= 1
        else:
            put_varint(buf, start - 2, n)
        self.pos = pos
        self.count += 1
        return True


# A number from the caller. Too big or negative is a defect of the caller: MicroPython would truncate
# it silently.
def _put(buf: bytearray, pos: int, v: int) -> int:
    if v < 0 or v >> 64:
        raise ValueError("%d in a field of 0 .. 2**64-1" % v)
    return put_varint(buf, pos, v)


# -> (sender, boot, counter, plan (2 bytes), position of the first message). Reads opening frames
# too: frame[0] & OPENING tells. Nothing here is to be trusted before the seal has been checked.
def header(frame: "Readable") -> tuple[int, int, int, bytes, int]:
    n = len(frame)
    if n < 6 + TAG or n > FRAME_MAX:
        raise FrameError("a frame of %d bytes" % n)
    version = frame[0] & ~(OPENING | ENCRYPTED | BARE)
    if version != VERSION:
        raise FrameError("version %d of the frame format; this host speaks %d" % (version, VERSION))
    n -= TAG
    try:
        pos = 3
        sender = frame[1]
        boot = frame[2]
        if sender > 127 or boot > 127:
            sender, pos = get_varint(frame, 1, n)
            boot, pos = get_varint(frame, pos, n)
        counter, pos = get_varint(frame, pos, n)
    except BlockError as e:
        raise FrameError("header: " + e.args[0])
    if pos + 2 > n:
        raise FrameError("header: cut short")
    return sender, boot, counter, bytes(frame[pos : pos + 2]), pos + 2


# The messages at frame[pos:end] as a list of tuples (kind, field, ...).
def messages(frame: "Readable", pos: int, end: int, sender_log: int, receiver_log: int) -> "list[Message]":
    out: "list[Message]" = []
    v: "Any"
    try:
        while pos < end:
            kind = frame[pos]
            pos += 1
            if kind not in MESSAGES:
                raise FrameError("unknown message %d" % kind)
            if len(out) >= MESSAGES_MAX:
                raise FrameError("more than %d messages" % MESSAGES_MAX)
            # Most messages are DATA whose numbers are small: read as below, without the loop over fields.
            if (
                kind == DATA
                and pos + 4 < end
                and frame[pos] < 128
                and frame[pos + 1] == 1
                and frame[pos + 2] < 128
                and frame[pos + 3] < 128
            ):
                v, begin = get_varint(frame, pos + 4, end)
                if v > end - begin:
                    raise FrameError("message 1 cut short")
                out.append(
                    (
                        DATA,
                        frame[pos],
                        sender_log,
                        (frame[pos + 2], frame[pos + 3]),
                        frame[begin : begin + v],
                    )
                )
                pos = begin + v
                continue
            fields: "list[Any]" = [kind]
            for c in MESSAGES[kind].encode():
                if pos >= end:
                    raise FrameError("message %d cut short" % kind)
                v = frame[pos]
                if v < 128:
                    pos += 1
                else:
                    v, pos = get_varint(frame, pos, end)
                if c == _NUMBER:
                    pass
                elif c == _EPOCH:
                    host, pos = get_varint(frame, pos, end)
                    v = (v, host)
                elif c == _INCARNATION:
                    if v == 1:
                        v = sender_log
                    elif v == 2:
                        v = receiver_log
                    elif v == 3:
                        if pos + 8 > end:
                            raise FrameError("message %d cut short" % kind)
                        v = int.from_bytes(bytes(frame[pos : pos + 8]), "little")
                        pos += 8
                    elif v:
                        raise FrameError("message %d: unknown incarnation code %d" % (kind, v))
                elif c == _BYTES:
                    if v > end - pos:
                        raise FrameError("message %d cut short" % kind)
                    pos += v
                    v = frame[pos - v : pos]
                else:
                    if v > (NUMBERS_MAX if c == _NUMBERS else HOSTS_MAX):
                        raise FrameError("message %d: %d numbers in a list" % (kind, v))
                    numbers = []
                    for _ in range(v):
                        x, pos = get_varint(frame, pos, end)
                        numbers.append(x)
                    v = numbers
                fields.append(v)
            out.append(tuple(fields))
    except BlockError as e:
        raise FrameError("message %d: %s" % (kind, e.args[0]))
    return out
