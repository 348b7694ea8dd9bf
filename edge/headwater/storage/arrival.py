# A checkpoint that arrives piece by piece. One that is small waits in RAM until all of it is here. Of a
# larger one only a part is in RAM: whenever that is full it goes to the flash, as a blob of its own. When the
# last part is there, all are read, and the checkpoint is stored from them (runtime/incoming.py).
#
# Invariants.
#   - Parts lie in flash for one arrival at a time, at most. The log has room for them beside everything else
#     that it must hold (reserve.py): no sample takes it. Where the log is full all the same, the arrival
#     ends, and nothing of it is left.
#   - Parts count for nothing. What was stored of the operator before stays what it is until all of the new
#     checkpoint is stored in its place, in one step. A restart deletes the parts; its sender begins anew.
#   - A host without a log, the gateway, has all in RAM.

from ..offboard.compat import TYPE_CHECKING, const
from .keyspace import B_PARTS, PARTS_MAX

if TYPE_CHECKING:
    from typing import Any

    from ..offboard.interfaces import Epoch, Position, Readable
    from .log import Log
    from .reading import Reading

WHOLE = 2048  # bytes of a checkpoint that waits in RAM, at most
_PART = const(1024)  # bytes of a part, at least


# Bytes of RAM that one takes which arrives in flash.
def part_bytes(size: int) -> int:
    return size if size <= WHOLE else max(_PART, -(-size // PARTS_MAX))


# Sizes of its parts in flash.
def parts(size: int) -> list[int]:
    part = part_bytes(size)
    return [min(part, size - at) for at in range(0, size, part)] if size > WHOLE else []


# What is known of one that arrives: [(epoch, position), size, part, bytes that are here, when the last came].
def begin(place: "tuple[Epoch, Position]", size: int, part: int, now: int) -> "list[Any]":
    return [place, size, bytearray(part), 0, now]


# Whether it lies in flash, but for a part.
def lies(known: "list[Any]") -> bool:
    return len(known[2]) < known[1]


# Take in the bytes that follow those that are here. LogFull: it cannot go on.
def add(store: "Log", known: "list[Any]", piece: "Readable") -> None:
    part = known[2]
    i = 0
    while i < len(piece):
        at = known[3] % len(part)
        n = min(len(part) - at, len(piece) - i)
        part[at : at + n] = piece[i : i + n]
        i += n
        if lies(known) and (at + n == len(part) or known[3] + n == known[1]):
            store.put_blob(B_PARTS + known[3] // len(part), memoryview(part)[: at + n])
        known[3] += n


# All of its bytes, once they are here. The part has room for a record then.
def read(store: "Log", known: "list[Any]") -> "Reading":
    from . import reading

    if not lies(known):
        return reading.given(known[2])
    return reading.stored(store, [B_PARTS + i for i in range(len(parts(known[1])))], known[2])


# Store it under its key, once it is here.
def store(store: "Log", key: int, known: "list[Any]") -> None:
    if lies(known):
        store.put_blob(key, read(store, known).rest(), known[1])
    else:
        store.put_blob(key, known[2])


# Delete what lies in flash of any.
def clear(store: "Log") -> None:
    for i in range(PARTS_MAX):
        if store.blob_size(B_PARTS + i):
            store.drop_blob(B_PARTS + i)
