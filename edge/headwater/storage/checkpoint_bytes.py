# The bytes of a checkpoint: see checkpoint_file.py, which reads them.

from ..data import msgpack
from ..offboard.compat import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ..offboard.interfaces import Epoch, Params, Position, Readable

FORMAT = 2


# Bytes of the body. flags: of every input [closed, incarnation, from ts]. front: ts of what was taken last.
# given: of the last change from a gateway [its log number, number], nothing where there was none. buf: see
# msgpack.dumps.
def body(
    version: int,
    pos: "Position",
    outs: list[int],
    flags: "list[Any]",
    changed: "Params",
    front: int,
    state: "Readable",
    given: tuple[int, int] = (0, 0),
    buf: bytearray | None = None,
) -> bytes:
    flags = [f if f[0] or f[2] else f[1] for f in flags]
    items = [FORMAT, version, pos, outs, flags, changed, front, state]
    if given[1]:
        items += given
    return msgpack.dumps(items, buf)


# The parts of a permanent checkpoint, for put_blob. parts: of every output port [start, blocks, turns];
# names: of every output port what it knows of its consumers.
def permanent(
    epoch: "Epoch",
    body: bytes,
    parts: "Sequence[Any]",
    names: "list[Any]",
    buf: bytearray | None = None,
) -> list[bytes]:
    parts = [p if p[1] else 0 for p in parts]
    return [head(epoch, len(body)), body, msgpack.dumps([parts, names], buf)]


# What stands before the body of a permanent one: the epoch that keeps it.
def head(epoch: "Epoch", length: int) -> bytes:
    return length.to_bytes(3, "little") + bytes([epoch[1]]) + epoch[0].to_bytes(4, "little")


# The parts of a pending one, for put_blob.
def pending(cid: bytes, body: bytes) -> list[bytes]:
    return [bytes([len(cid)]), cid, body]
