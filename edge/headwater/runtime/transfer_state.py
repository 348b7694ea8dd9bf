# The transfer state of a port as a checkpoint carries it: blocks, as large as batches may be.
#
# A ring holds what came finely cut, like the output of a join, in as many chunks, and with a block for each a
# checkpoint would have no bound. So what follows each other is put together.
#
# With a strategy that waits for its consumers most checkpoints carry none: loaded when one does.

from ..data import block
from ..data.batch import SPAN_US
from ..data.ring import Cursor
from ..offboard.compat import TYPE_CHECKING, const

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from ..data.batch import Batch
    from .outputs import OutPort


_IN_RAM = const(2048)  # bytes of blocks that are made at once; of more, one at a time (blockwise.py)


# The entries (start, end] of each port: where they begin, blocks, and how many entries in turn are stamped
# synchronised and not. None where they take more than may be in RAM at once.
def at_once(ports: "Sequence[OutPort]", starts: list[int], ends: list[int]) -> "list[Any] | None":
    parts = []
    room = _IN_RAM
    for p, start in zip(ports, starts):
        found = []
        turns: list[int] = []
        for b in blocks(p, start, ends[p.number], turns):
            room -= len(b)
            if room < 0:
                return None
            found.append(bytes(b))
        parts.append((start, found, turns if len(turns) > 1 else ()))
    return parts


# The blocks of the entries (start, end] of a port, each to be used before the next; turns: see above.
def blocks(port: "OutPort", start: int, end: int, turns: list[int]) -> "Iterator[memoryview]":
    cur = Cursor(start)
    b = port.host.batch(port.alphabet)
    while cur.xi < end:
        n = port.read(cur, b, min(b.size, end - cur.xi))
        assert n, "transfer state: entries missing"
        _turn(turns, b.unsync, n)
        cur.move(cur.xi + n)
        n = _follow(port, b, n, cur, end, turns)
        b.stamp(0)
        body = port.host.scratch.take(block.bound(port.alphabet, n))
        yield memoryview(body)[: block.encode(b, 0, n, body, 0)]


# Put what follows the n entries of b in the ring after them; how many there are then.
def _follow(port: "OutPort", b: "Batch", n: int, cur: Cursor, end: int, turns: list[int]) -> int:
    s = port.spare()
    while n < b.size and cur.xi < end and cur.xi >= port.ring.first and not b.hole:
        if b.dt >= 0 and n > 16:
            break  # a long regular run has no offsets
        k = port.ring.read(cur, s, min(b.size - n, end - cur.xi))
        shift = s.ts - b.ts
        if s.hole or s.ts_of(k - 1) - b.ts > SPAN_US:
            break
        b.loosen()
        for d, c in zip(b.mem, s.mem):
            d[n : n + k] = c[:k]
        for i in range(k):
            b.at[n + i] = shift + (i * s.dt if s.dt >= 0 else s.at[i])
        _turn(turns, s.unsync, k)
        n += k
        cur.move(cur.xi + k)
    return n


# n more entries, stamped unsynchronised or not; turns begins with those that are not.
def _turn(turns: list[int], unsync: int, n: int) -> None:
    if not turns:
        turns.append(0)
    if len(turns) + unsync & 1:
        turns[-1] += n
    else:
        turns.append(n)
