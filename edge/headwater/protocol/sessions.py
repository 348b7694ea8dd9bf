# Seals and sessions: who sent a frame, and that it is new. One Peer for each neighbour of a host.
#
# Every frame ends in eight bytes of HMAC-SHA256 under the key of the pair. They cover the frame,
# the sender's log number and the whole hash of the plan. What is promised, against anybody who
# records, repeats, delays, changes and invents frames but has not the key:
#   - no frame is taken twice, and none of a session after a later session has been opened;
#   - a counter that was seen, or lies 64 or more behind the highest, is refused;
#   - a higher boot of the same log opens a new session, a lower one is refused;
#   - a log that this life has no session with opens one only by sealing our fresh nonce: so does
#     an erased neighbour, and so does every neighbour after we restarted and forgot the counters;
#   - one frame in costs at most two seals, and at most one frame out.
# A session opens with opening frames, made and taken here. Each carries the sender's log number,
# the nonce it answers and the nonce it asks to be answered (0: none). Whoever has no session asks
# with every frame it seals or must refuse, so any of them may be lost.
# Sans-I/O: no clock; nonces come from the caller. Bytes: docs/spec.md.

from hashlib import sha256
from struct import unpack_from

from ..board.native import BOARD
from ..data.block import put_varint
from ..offboard.compat import TYPE_CHECKING
from .frames import BARE, ENCRYPTED, OPENING, TAG, VERSION, FrameError, header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from ..offboard.interfaces import Head, Readable, Span
    from .cipher import Cipher
    from .frames import Writer

# Why `open` gave nothing (Peer.why, index into Peer.counts).
TAKEN = 0  # it did give something
MALFORMED = 1  # no frame, or of another version
STRANGER = 2  # not sent by this neighbour
FORGED = 3  # the seal is wrong: other key, other log, or changed on the way
REPLAY = 4  # the counter was seen, or is too old
OLD_BOOT = 5  # of a session before the present one
NO_SESSION = 6  # nothing is known of this neighbour's counters yet; it has been asked
OPENED = 7  # an opening frame, taken care of
OLD_PLAN = 8  # genuine, of a plan before ours: Peer.span is (pos, end) of its messages
OTHER_PLAN = 9  # of a plan this host does not know
UNREAD = 10  # encrypted under a salt that is not known: the neighbour has been asked
_WHYS = 11  # so many; texts in offboard/reasons.py
_WINDOW = 64
_BEGUN_MAX = 4


# HMAC-SHA256 over the parts, one behind the other: 32 bytes.
def hmac(key: "Readable", *parts: "Readable") -> bytes:
    inner, outer = _pads(key)
    return _mac(inner, outer, parts)


def _pads(key: "Readable") -> tuple[bytes, bytes]:
    if len(key) > 64:
        key = sha256(key).digest()
    inner = bytearray(b"\x36" * 64)
    outer = bytearray(b"\x5c" * 64)
    for i in range(len(key)):
        inner[i] ^= key[i]
        outer[i] ^= key[i]
    return bytes(inner), bytes(outer)


def _mac(inner: bytes, outer: bytes, parts: "Iterable[Readable]") -> bytes:
    h = sha256(inner)
    for part in parts:
        h.update(part)
    o = sha256(outer)
    o.update(h.digest())
    return o.digest()


# The key of hosts a and b, the same for (b, a), from the key that only the gateway has. A host's
# own key is the one it shares with host 0, the gateway.
def pair_key(master: "Readable", a: int, b: int) -> bytes:
    if a > b:
        a, b = b, a
    return hmac(master, b"headwater pair", a.to_bytes(8, "big"), b.to_bytes(8, "big"))


class Peer:
    # key: 32 bytes of the pair. me, peer: host numbers. my_log, my_boot: of this host, this life.
    # plan: hash of the plan, 8 bytes. nonce: a callable -> 64 random bits.
    def __init__(
        self,
        key: "Readable",
        me: int,
        my_log: int,
        my_boot: int,
        peer: int,
        plan: bytes,
        nonce: "Callable[[], int]",
    ) -> None:
        self._inner, self._outer = _pads(key)
        # (log, plan) -> hashes of what all its seals begin with; where hashes can be copied
        self._begun: "dict[tuple[int, bytes], tuple[Any, Any]]" = {}
        self.me = me
        self.my_log = my_log
        self.my_boot = my_boot
        self.peer = peer
        self.plan = plan
        self.old_plans: "Sequence[bytes]" = ()
        self._nonce = nonce
        self.counter = 0  # of the last frame that we sealed
        self.live = False  # a session of the neighbour's is open: its frames are taken
        self.log = 0  # its log number, 0 before we know it
        self.boot = 0
        self._top = 0  # highest counter seen in this session
        self._seen = 0  # bit k: top - k was seen
        self._asked = 0  # nonce of ours that waits for an answer
        # Bytes of an opening frame to send, or None: see take_reply.
        self.reply: bytes | None = None
        self.why = TAKEN
        self.span: "Span | None" = None
        self.counts = [0] * _WHYS
        self.cipher: "Cipher | None" = None  # once frames to or from this neighbour are encrypted
        # Messages of the frame that was opened last, where they are not in the frame: it was encrypted, and
        # could not be decrypted where it lies.
        self.plain: bytes | None = None

    # What the store remembers of the neighbour: log number and highest boot seen. A lower boot of
    # that log stays refused; the counters are asked for all the same.
    def known(self, log: int, boot: int) -> None:
        if not self.live:
            self.log = log
            self.boot = boot

    # The bytes of an opening frame to send, or None. They are given once.
    def take_reply(self) -> bytes | None:
        reply = self.reply
        self.reply = None
        return reply

    # The plan from now on; frames of `old` ones are told apart (OLD_PLAN).
    def use_plan(self, plan: bytes, old: "Sequence[bytes]" = ()) -> None:
        self.plan = plan
        self.old_plans = old

    # The link to this neighbour does not encrypt itself, or does. Send `take_reply` then: by it the neighbour
    # learns to read what follows. False where there is no AES, and such a link cannot be used.
    def hide(self, on: bool) -> bool:
        if on and not self._equip():
            return False
        if self.cipher and self.cipher.need(on):
            self._open_with(0)
        return True

    def _equip(self) -> "Cipher | None":
        if not self.cipher:
            try:
                from .cipher import Cipher

                self.cipher = Cipher(self, self._nonce())
            except (ImportError, MemoryError):
                pass  # no AES, or no room: what is encrypted cannot be read
        return self.cipher

    # A key of 32 bytes for another use.
    def derive(self, *parts: "Readable") -> bytes:
        return _mac(self._inner, self._outer, parts)

    # Start a frame to this neighbour.
    def begin(self, writer: "Writer") -> None:
        # While another log waits for a session, the neighbour's log number is written out: the
        # one byte that stands for it would mean something else to a neighbour that was erased.
        log = self.log if self.live and not self._asked else 0
        self.counter += 1
        writer.begin(self.me, self.my_boot, self.counter, self.plan, self.my_log, log)
        if self.cipher:
            self.cipher.begin(writer, self.counter)

    # Seal the frame that `begin` started -> memoryview of all of it. Look at `reply` afterwards.
    def seal(self, writer: "Writer") -> memoryview:
        plan = self.plan
        if self.cipher:
            plan += self.cipher.close(writer)
        pos = writer.pos
        mem = writer.mem
        mem[pos : pos + TAG] = self._whole_tag(self.my_log, plan, mem[:pos])[:TAG]
        writer.pos = pos + TAG
        if not self.live:
            self._open_with(0)
        return mem[: pos + TAG]

    def _whole_tag(self, log: int, plan: bytes, body: "Readable") -> bytes:
        if BOARD:  # MicroPython cannot copy a hash
            return _mac(self._inner, self._outer, (log.to_bytes(8, "little"), plan, body))
        begun = self._begun.get((log, plan))
        if not begun:
            # An opening frame names any log, and so may a stranger's: what is kept has a bound.
            if len(self._begun) >= _BEGUN_MAX:
                self._begun.clear()
            begun = (sha256(self._inner + log.to_bytes(8, "little") + plan), sha256(self._outer))
            self._begun[log, plan] = begun
        inner = begun[0].copy()
        inner.update(body)
        outer = begun[1].copy()
        outer.update(inner.digest())
        tag: bytes = outer.digest()
        return tag

    def _genuine(self, frame: "Readable", log: int, plan: bytes) -> bool:
        end = len(frame) - TAG
        tag = self._whole_tag(log, plan, frame[:end])
        # As numbers: how long it takes says nothing of where they differ.
        return not unpack_from("<Q", tag)[0] ^ unpack_from("<Q", frame, end)[0]

    # Put an opening frame into `reply`: answers nonce `answer`, and asks where we have no session.
    def _open_with(self, answer: int, ask: int = False) -> None:
        if ask or not self.live:
            while not self._asked:
                self._asked = self._nonce()
        ask = self._asked
        self.counter += 1
        buf = bytearray(80)
        buf[0] = VERSION | OPENING
        pos = put_varint(buf, put_varint(buf, put_varint(buf, 1, self.me), self.my_boot), self.counter)
        body = bytes(buf[:pos]) + self.plan[:2]
        for v in (self.my_log, answer, ask):
            body += v.to_bytes(8, "little")
        if self.cipher:
            body = self.cipher.opening(body)
        self.reply = body + self._whole_tag(self.my_log, bytes(8), body)[:TAG]

    # Take a frame: a memoryview is read where it lies, pieces of other bytes are copied. -> (pos, end) of its
    # messages, in `plain`, or in the frame where that is None; or None: `why` says why, and `reply` may hold
    # a frame to send back. Never raises. What is encrypted is decrypted where it lies, if it can be written
    # to. head: what frames.header has read of the frame, if it has.
    def open(self, frame: "Readable", head: "Head | None" = None) -> "Span | None":
        self.span = None
        self.plain = None
        why, span = self._judge(frame, head)
        if (why == TAKEN or why == OLD_PLAN or why == OPENED) and (frame[0] & ENCRYPTED or self.cipher):
            found = self._equip()
            if found:
                self.plain = found.take(self, frame, span)
                if found.untold():
                    self._open_with(0)
        self.why = why
        self.counts[why] += 1
        if why == TAKEN:
            return span
        if why == OLD_PLAN:
            self.span = span
        return None

    def _judge(self, frame: "Readable", head: "Head | None") -> "tuple[int, Span | None]":
        try:
            sender, boot, counter, plan2, pos = head or header(frame)
        except FrameError:
            return MALFORMED, None
        if sender != self.peer:
            return STRANGER, None
        if frame[0] & OPENING:
            return self._opening(frame, boot, counter, pos), None
        if not self.live:
            self._open_with(0)
            return NO_SESSION, None
        span = (pos, len(frame) - TAG)
        why = OTHER_PLAN
        salt = b""
        if frame[0] & ENCRYPTED:
            if not self.cipher or not self.cipher.knows(self.log, boot):
                self._open_with(0, True)
                return UNREAD, None
            salt = self.cipher.salt
        if plan2 == self.plan[:2]:
            if self._genuine(frame, self.log, self.plan + salt):
                return self._fresh(boot, counter), span
            why = FORGED
        for plan in self.old_plans:
            if plan2 == plan[:2]:
                if self._genuine(frame, self.log, plan + salt):
                    return self._fresh(boot, counter) or OLD_PLAN, span
                why = FORGED
        if why == FORGED and self._asked:  # perhaps of the log that has not answered yet
            self._open_with(0)
        return why, None

    # Counter and boot of a genuine frame of the log that the session is with.
    def _fresh(self, boot: int, counter: int) -> int:
        if boot < self.boot:
            return OLD_BOOT
        ahead = counter - self._top
        if boot > self.boot:
            self.boot = boot
            self._top = counter
            self._seen = 1
        elif ahead > 0:
            self._seen = (self._seen << ahead | 1) & _ALL if ahead < _WINDOW else 1
            self._top = counter
        else:
            if ahead <= -_WINDOW or self._seen >> -ahead & 1:
                return REPLAY
            self._seen |= 1 << -ahead
        return TAKEN

    def _opening(self, frame: "Readable", boot: int, counter: int, pos: int) -> int:
        if len(frame) != pos + (32 if frame[0] & ENCRYPTED else 24) + TAG:
            return MALFORMED
        log = int.from_bytes(bytes(frame[pos : pos + 8]), "little")
        answer = int.from_bytes(bytes(frame[pos + 8 : pos + 16]), "little")
        ask = int.from_bytes(bytes(frame[pos + 16 : pos + 24]), "little")
        if not log:
            return MALFORMED
        if not self._genuine(frame, log, bytes(8)):
            return FORGED
        if frame[0] & BARE and self._equip():
            self.cipher.follow(True)  # type: ignore[union-attr]  # if it is old, too: more is hidden, never less
        answered = self._asked and answer == self._asked
        if log == self.log:
            if self.live:
                why = self._fresh(boot, counter)
                if why != TAKEN:
                    return why
                if answered:
                    self._asked = 0
                if ask:
                    self._open_with(ask)
                return OPENED
            if boot < self.boot:
                return OLD_BOOT
        if answered:
            # It seals our nonce: alive, now. What it sealed before is refused.
            self.live = True
            self.log = log
            self.boot = boot
            self._top = counter
            self._seen = _ALL
            self._asked = 0
            if ask:
                self._open_with(ask)
        else:
            self._open_with(ask, True)
        return OPENED


_ALL = (1 << _WINDOW) - 1
