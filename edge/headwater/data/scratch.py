# The scratch buffer of a host: a block is packed into it on its way to the log, and read into it from there.
#
# What was written to the log usually leaves in the next frame, as the same bytes. So the buffer remembers
# which entries the block in it holds, until it is taken again. No other module can make this memory stale: a
# block gets into the buffer by `take` alone.

from ..offboard.compat import TYPE_CHECKING

if TYPE_CHECKING:
    from ..runtime.outputs import OutPort


class Scratch:
    def __init__(self, size: int) -> None:
        self._buf = bytearray(size)
        self._kept: "tuple[OutPort, int, int, int] | None" = None  # port, first entry, entries, bytes

    # The buffer, with room for so many bytes. What was in it is forgotten.
    def take(self, size: int) -> bytearray:
        self._kept = None
        if size > len(self._buf):
            self._buf = bytearray(size)
        return self._buf

    # It holds the block of entries xi .. xi + n of this port, in its first `end` bytes.
    def keep(self, port: "OutPort", xi: int, n: int, end: int) -> None:
        self._kept = (port, xi, n, end)

    # (entries, block) where it holds the block that begins at entry xi of this port, with at most n entries.
    def kept(self, port: "OutPort", xi: int, n: int) -> tuple[int, memoryview] | None:
        kept = self._kept
        if kept and kept[0] is port and kept[1] == xi and kept[2] <= n:
            return kept[2], memoryview(self._buf)[: kept[3]]
        return None

    # The entries whose block it holds are void: their stream was numbered again.
    def forget(self) -> None:
        self._kept = None
