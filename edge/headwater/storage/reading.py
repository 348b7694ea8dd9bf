# Stored bytes, read in their order: the room that this takes is that of one record of the log, however many
# there are.

from ..offboard.compat import TYPE_CHECKING, const

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..offboard.interfaces import Readable
    from .log import Log

_RECORD = const(512)  # bytes of a record of the log, at most, where it builds them in its own buffer


# Fewer bytes are there than were asked for: a record is damaged, or what they say of themselves is wrong.
class Short(Exception):
    pass


class Reading:
    # pieces: gives them from the beginning each time, `size` bytes together.
    def __init__(self, size: int, pieces: "Callable[[], Iterator[Readable]]") -> None:
        self.size = size
        self._all = pieces
        self._none: memoryview = memoryview(b"")
        self.begin()

    # The next ones are the first ones again.
    def begin(self) -> None:
        self.left = self.size
        self._pieces = self._all()
        self._piece = self._later = self._none

    # The next n bytes.
    def take(self, n: int) -> "Readable":
        if n > self.left:
            raise Short("%d bytes where %d are left" % (n, self.left))
        self.left -= n
        piece = self._piece
        if n <= len(piece):
            self._piece = piece[n:]
            return bytes(piece[:n])
        data = bytearray(n)
        i = 0
        while i < n:
            if not len(piece):
                piece = self._more()
            k = min(n - i, len(piece))
            data[i : i + k] = piece[:k]
            piece = piece[k:]
            i += k
        self._piece = piece
        return data

    # Pass over the next n.
    def skip(self, n: int) -> None:
        if n > self.left:
            raise Short("%d bytes where %d are left" % (n, self.left))
        self.left -= n
        while n > len(self._piece):
            n -= len(self._piece)
            self._piece = self._more()
        self._piece = self._piece[n:]

    # The last ones that were taken are the next ones again.
    def back(self, data: "Readable") -> None:
        self.left += len(data)
        self._later = self._piece
        self._piece = memoryview(data)

    # All that follow, each part to be used before the next.
    def rest(self) -> "Iterator[memoryview]":
        while self.left:
            piece = self._piece
            self._piece = self._none
            if not len(piece):
                piece = self._more()
            self.left -= len(piece)
            yield piece

    # Whether fewer bytes are there than were stored.
    def damaged(self) -> bool:
        self.begin()
        try:
            self.skip(self.size)
        except Short:
            return True
        return False

    def _more(self) -> memoryview:
        later = self._later
        if len(later):
            self._later = self._none
            return later
        for piece in self._pieces:
            if len(piece):
                return memoryview(piece)
        raise Short("a record is damaged")


# All bytes of a blob, piece by piece in buf, each to be used before the next. The log may be written
# meanwhile, but for this blob. Fewer than its size where a record is damaged.
def _pieces(log: "Log", key: int, buf: bytearray) -> "Iterator[Readable]":
    if not hasattr(log, "_pieces"):
        yield log.get_blob(key) or b""  # of a gateway's database
        return
    done = 0
    b = None
    while b is not log._blobs.get(key):
        b = log._blobs[key]
        at = 0
        for piece in log._pieces(b, buf):
            at += len(piece)
            if at > done:
                piece = piece[done - at :]
                done = at
                yield piece
                if b is not log._blobs.get(key):
                    break  # it was carried forward


# What these blobs hold, one after the other. buf: has room for a record.
def stored(store: "Log", keys: "Sequence[int]", buf: bytearray | None = None) -> Reading:
    room = buf or bytearray(_RECORD)

    def pieces() -> "Iterator[Readable]":
        for key in keys:
            for piece in _pieces(store, key, room):
                yield piece

    return Reading(sum([store.blob_size(key) for key in keys]), pieces)


def given(data: "Readable") -> Reading:
    return Reading(len(data), lambda: iter((data,)))
