# A permanent checkpoint that carries more blocks than are in RAM at once: they are made twice, one by one, to
# count them and on their way to the log. Its bytes are those of storage/checkpoint_bytes.py.

from ..data import msgpack
from ..offboard.compat import TYPE_CHECKING, const
from ..storage import checkpoint_bytes
from .transfer_state import blocks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ..offboard.interfaces import Readable
    from .checkpoints import Checkpoint
    from .host import Host
    from .instance import Instance

_RECORD = const(512)  # bytes of a record of the log
_LIST = const(0xDC)  # msgpack: with a length of 2 bytes, or with the next code of 4
_BYTES = const(0xC4)  # ... of 1 byte, and then of 2 and 4


# starts: entry after which the transfer state of every port begins. names: what ports know of consumers.
# Returns its size, without its head.
def store(
    host: "Host", inst: "Instance", key: int, c: "Checkpoint", starts: list[int], names: "list[Any]"
) -> int:
    head = checkpoint_bytes.head(inst.epoch, len(c.body))
    behind = msgpack.dumps(names, host.exchange.writer.buf)
    size = len(head) + len(c.body) + len(behind)
    counts = []
    for p, start in zip(inst.ports, starts):
        n = 0
        turns: list[int] = []
        for b in blocks(p, start, c.outs[p.number], turns):
            size += len(_bytes(len(b))) + len(b)
            n += 1
        counts.append(n)
        size += len(_before(start, n)) + len(_behind(turns) if n else b"")
    size += 1 + len(_list(len(counts)))
    # Entries that were spilled are read from the log.
    parts = _parts(inst, c, starts, counts, head, behind)
    host.store.put_blob(key, parts, size, bytearray(_RECORD))
    return size - len(head)


def _parts(
    inst: "Instance", c: "Checkpoint", starts: list[int], counts: list[int], head: bytes, behind: bytes
) -> "Iterator[Readable]":
    yield head
    yield c.body
    yield _list(2) + _list(len(counts))
    for p, start in zip(inst.ports, starts):
        n = counts[p.number]
        yield _before(start, n)
        turns: list[int] = []
        for b in blocks(p, start, c.outs[p.number], turns):
            yield _bytes(len(b))
            yield b
        if n:
            yield _behind(turns)
    yield behind


# What stands before the blocks of a port, and behind them.
def _before(start: int, n: int) -> bytes:
    return _list(3) + msgpack.dumps(start) + _list(n) if n else b"\0"


def _behind(turns: list[int]) -> bytes:
    return msgpack.dumps(turns if len(turns) > 1 else ())


def _list(n: int) -> bytes:
    if n < 16:
        return bytes([0x90 | n])
    return _long(n, _LIST, 2) if n < 65536 else _long(n, _LIST + 1, 4)


def _bytes(n: int) -> bytes:
    if n < 256:
        return _long(n, _BYTES, 1)
    return _long(n, _BYTES + 1, 2) if n < 65536 else _long(n, _BYTES + 2, 4)


def _long(n: int, code: int, width: int) -> bytes:
    return bytes([code]) + n.to_bytes(width, "big")
