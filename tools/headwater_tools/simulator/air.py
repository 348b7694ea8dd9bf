"""Links that do not encrypt themselves, in a simulated world: some hosts are reached by radio only.

What such a host sends and receives passes a listener, and a relay where the other end is on another link. The
listener is the checker: it reports a frame that could be read, and a part of a stream that was used twice.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater.offboard import encryption
from headwater.offboard.interfaces import Writable
from headwater.protocol import cipher, frames


class Air:
    """`hosts`: numbers of the hosts whose links do not encrypt themselves."""

    def __init__(self, hosts: frozenset[int], error: Callable[[str], None]) -> None:
        self.hosts = hosts
        self.error = error
        self.frames = 0  # that went through the air, opening frames aside
        self.stopped = 0  # that the relay did not pass on: their sender did not know where they go
        self.used: dict[tuple[bytes, int], bytes] = {}  # (key, counter) -> what was encrypted with it
        cipher.use(self.crypt)

    def crypt(self, key: bytes, counter: int, mem: Writable) -> None:
        """The first use of a key and a counter encrypts; any other must decrypt the same bytes."""
        before = bytes(mem)
        encryption.crypt(key, counter, mem)
        known = self.used.setdefault((key, counter), bytes(mem))
        if before not in (known, b"") and bytes(mem) != known:
            self.error("a part of a stream was used twice: counter %d" % counter)

    def passes(self, sender: int, to: int, frame: bytes) -> bool:
        """Whether a frame arrives, as far as the relay decides that."""
        if sender not in self.hosts and to not in self.hosts:
            return True
        if cipher.covered(frame):
            self.frames += not frame[0] & frames.OPENING
            return True
        if sender in self.hosts:
            self.error("host %d sent a frame to host %d that could be read on the air" % (sender, to))
        self.stopped += 1
        return False
