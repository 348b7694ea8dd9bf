# Encryption of frames on links that do not encrypt themselves. One Cipher for a neighbour, made when the
# first frame to or from it needs one; a host that never needs one loads none of this.
#
# A frame is encrypted, then sealed: sessions.py checks seal and counter as ever, and gives only what passes
# to `read`. The messages are encrypted by AES-256 in counter mode. Each direction has a key of its own,
# from the key of the pair and the sender's number, log, boot and salt; the counter of the frame is in every
# counter block. So no block is used twice under one key: a counter is used once in a boot, and everything
# that could count to the same number again has another key, if only by the salt, which is drawn for each
# Cipher.
#
# What is promised:
#   - a frame that begins while `hides` gives bits leaves encrypted, and is encrypted once;
#   - whether frames are encrypted depends on this host's own link and on genuine frames, never on what the
#     neighbour offers: nothing can be negotiated away.
# Sans-I/O. Bytes: docs/spec.md, "Encryption".

from ..board.native import BOARD
from ..offboard.compat import TYPE_CHECKING
from .frames import BARE, ENCRYPTED, OPENING, TAG, header

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..offboard.interfaces import Readable, Span, Writable
    from .frames import Writer
    from .sessions import Peer

# AES in counter mode, if there is one: crypt(key, counter, mem) encrypts or decrypts mem where it is.
_aes: "list[Callable[[bytes, int, Writable], None]]" = []


# A program on CPython gives the one that it has (offboard/encryption.py).
def use(crypt: "Callable[[bytes, int, Writable], None]") -> None:
    _aes[:] = [crypt]


if BOARD:
    from ..board.aes import crypt

    use(crypt)


# Whether a frame may go over a link that does not encrypt itself: its messages are encrypted, or it has none.
# Such a link asks this of every frame that it is to send and of every one that arrives.
def covered(frame: "Readable") -> bool:
    return len(frame) > 0 and frame[0] & (ENCRYPTED | OPENING) != 0


# The key of the frames of one of the two hosts, in one boot.
def key_of(peer: "Peer", sender: int, log: int, boot: int, salt: bytes) -> bytes:
    text = b"headwater cipher"
    for v in (sender, log, boot):
        text += v.to_bytes(8, "little")
    return peer.derive(text, salt)


class Cipher:
    # peer: the sessions with the neighbour. nonce: 64 random bits, which are used for nothing else.
    def __init__(self, peer: "Peer", nonce: int) -> None:
        if not _aes:
            raise ImportError("no AES")
        self._crypt = _aes[0]
        self._salt = nonce.to_bytes(8, "little")
        self._key = key_of(peer, peer.me, peer.my_log, peer.my_boot, self._salt)
        # The neighbour's: its salt, the key of its frames, and the session that both are of.
        self.salt = b""
        self._their_key = b""
        self._log = 0
        self._boot = 0
        self._told = False  # an opening frame had the salt
        self._needed = False  # this host's own link to the neighbour does not encrypt itself
        self._follows = False  # the neighbour's link does not, by the newest frame from it
        self._begun = 0  # where the messages of the frame begin that is to be encrypted; 0: there is none
        self._counter = 0  # of that frame

    # This host's own link to the neighbour does not encrypt itself, or does. -> `untold`
    def need(self, on: bool) -> bool:
        self._needed = on
        return self.untold()

    # The neighbour cannot read what comes now, because no opening frame had the salt.
    def untold(self) -> bool:
        return not self._told and self.hides() != 0

    # A genuine frame from the neighbour has bit BARE, or has not.
    def follow(self, on: bool) -> None:
        self._follows = on

    # What is set in the first byte of a frame; 0: it is not encrypted.
    def hides(self) -> int:
        if self._needed:
            return ENCRYPTED | BARE
        return ENCRYPTED if self._follows else 0

    # ---- out

    # A frame was begun.
    def begin(self, writer: "Writer", counter: int) -> None:
        self._begun = 0
        bits = self.hides()
        if bits:
            writer.mem[0] |= bits
            self._begun = writer.pos
            self._counter = counter

    # The frame that was begun is complete, but for its seal. What the seal covers besides: the salt, if the
    # frame is encrypted now. Without it a receiver that knows another salt would take what it cannot read.
    def close(self, writer: "Writer") -> bytes:
        if writer.mem[0] & ENCRYPTED:
            if not self._begun:
                raise ValueError("a frame is encrypted once")
            self._crypt(self._key, self._counter, writer.mem[self._begun : writer.pos])
            self._begun = 0
            return self._salt
        return b""

    # The body of an opening frame: the neighbour learns the salt by it.
    def opening(self, body: bytes) -> bytes:
        bits = self.hides()
        if bits:
            self._told = True
            return bytes([body[0] | bits]) + body[1:] + self._salt
        return body

    # ---- in

    # A frame was taken: its messages are decrypted, where they are, or, where the frame cannot be written to,
    # in a copy, which is returned. Without a span it is an opening frame: its salt counts if it is one of the
    # session.
    def take(self, peer: "Peer", frame: "Readable", span: "Span | None") -> bytes | None:
        if span:
            self.follow(frame[0] & BARE != 0)
            return self._read(frame, span) if frame[0] & ENCRYPTED else None
        at = len(frame) - TAG - 32  # log number, two nonces, salt
        if frame[0] & ENCRYPTED:
            log = int.from_bytes(bytes(frame[at : at + 8]), "little")
            if peer.live and log == peer.log:
                self.salt = bytes(frame[at + 24 : at + 32])
                self._their_key = key_of(peer, peer.peer, log, peer.boot, self.salt)
                self._log = log
                self._boot = peer.boot
        return None

    # Whether frames of the session of this log number and boot can be read.
    def knows(self, log: int, boot: int) -> bool:
        return self._boot == boot and self._log == log and len(self._their_key) > 0

    def _read(self, frame: "Readable", span: "Span") -> bytes | None:
        counter = header(frame)[2]
        copied = isinstance(frame, bytes) or getattr(frame, "readonly", False)
        mem = memoryview(bytearray(frame)) if copied else memoryview(frame)
        self._crypt(self._their_key, counter, mem[span[0] : span[1]])
        return bytes(mem) if copied else None
