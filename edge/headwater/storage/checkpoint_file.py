# Reading a stored checkpoint, whatever its bytes are. A board that runs only writes them
# (checkpoint_bytes.py); no module but these two knows the layout (docs/spec.md, "Checkpoints"):
#
#   permanent  u24 length of the body, u8 host and u32 number of the epoch that keeps it, body, transfer state
#   pending    u8 length of the Check-Request's id, the id, body
#   body       [FORMAT, version, position, outs, inputs, changed, front, state], and where a gateway has given
#              changes its log number and the number of the last
#   transfer   [[start, [block ..], turns] of every output port, [consumer ..] of every output port]
#
# What most checkpoints do not need takes no bytes: an input that no decision touched is its
# incarnation alone, and a port that attaches no entries is 0.
#
# What comes over a link is read here before it is stored: a checkpoint that could not be restored later
# is never confirmed. What cannot be read gives None.

from ..data import msgpack
from ..offboard.compat import TYPE_CHECKING, const
from ..protocol.position import inputs_of
from .checkpoint_bytes import FORMAT, head

if TYPE_CHECKING:
    from typing import Any

    from ..offboard.interfaces import Epoch, Params, Readable
    from ..plan.model import Vertex

_HEAD = const(8)


# The epoch that keeps a permanent checkpoint; and the same checkpoint, kept by another one.
def epoch(data: "Readable") -> "Epoch":
    return (int.from_bytes(bytes(data[4:8]), "little"), data[3])


def kept_by(epoch: "Epoch", data: "Readable") -> "list[Readable]":
    return [head(epoch, _length(data)), memoryview(data)[_HEAD:]]


def _length(data: "Readable") -> int:
    return int.from_bytes(bytes(data[:3]), "little")


# A checkpoint that was read. What a pending one lacks is empty.
class Stored:
    def __init__(
        self,
        version: int,
        pos: list[int],
        outs: list[int],
        inputs: "list[Any]",
        changed: "Params",
        front: int,
        state: bytes,
    ) -> None:
        self.version = version  # of the operator type's state
        self.pos = pos
        self.outs = outs  # xi of every output port
        self.inputs = inputs  # of every input: [closed by a decision, incarnation, from ts]
        self.changed = changed  # parameters that decisions have set
        self.front = front  # ts of what was taken last
        self.state = state
        self.given = (0, 0)  # of the last change from a gateway: its log number, number
        self.epoch: "Epoch" = (0, 0)  # that keeps a permanent one
        self.parts: "list[Any]" = []  # of every output port: [start, blocks, turns]
        # Of every output port: what it knows of its consumers, a record each (ports.Reader).
        self.names: "list[Any]" = []
        self.cid = b""  # of a pending one: the id of the Check-Request
        self.body = b""  # ... its bytes


# The checkpoint of operator v from the bytes of a body, or None.
def read_body(v: "Vertex", data: "Readable") -> "Stored | None":
    try:
        items = msgpack.loads(bytes(data))
        form, version, pos, outs, flags, changed, front, state = items[:8]
        given = items[8:]
    except (msgpack.PackError, ValueError, TypeError):
        return None
    if form != FORMAT or type(version) is not int or type(changed) is not dict or type(state) is not bytes:
        return None
    inputs = inputs_of(v)
    if not number(front) or not numbers(pos, inputs + 2) or not numbers(outs, len(v.outs)):
        return None
    if given and not numbers(given, 2):
        return None
    if type(flags) is not list or len(flags) != inputs:
        return None
    for i in range(inputs):
        if number(flags[i]):
            flags[i] = [0, flags[i], 0]
        elif not numbers(flags[i], 3):
            return None
    found = Stored(version, pos, outs, flags, changed, front, state)
    if given:
        found.given = (given[0], given[1])
    return found


# A permanent checkpoint of operator v, or None.
def read_permanent(v: "Vertex", data: "Readable") -> "Stored | None":
    n = _HEAD + _length(data)
    found = read_body(v, data[_HEAD:n])
    if found is None:
        return None
    try:
        parts, names = msgpack.loads(bytes(data[n:]))
        if len(parts) != len(v.outs) or len(names) != len(v.outs):
            return None
        for k in range(len(parts)):
            if parts[k] == 0:
                parts[k] = [found.outs[k], [], []]
            start, blocks, turns = parts[k]
            if not number(start) or type(blocks) is not list or not all([type(b) is bytes for b in blocks]):
                return None
            if not numbers(turns):
                return None
        for port in names:
            for edge, inc, count, host, safe, name, holders, gaps in port:
                if not numbers([edge, inc, count, host, safe]) or not numbers(name) or not numbers(holders):
                    return None
                for gap in gaps:
                    if not numbers(gap, 3):
                        return None
    except (msgpack.PackError, ValueError, TypeError):
        return None
    found.epoch = epoch(data)
    found.parts = parts
    found.names = names
    return found


# (epoch that keeps it, where it stands) of a permanent checkpoint, or None.
def place(v: "Vertex", data: "Readable | None") -> "tuple[Epoch, list[int]] | None":
    found = read_body(v, data[_HEAD : _HEAD + _length(data)]) if data else None
    return (epoch(data), found.pos) if data and found else None


# A pending checkpoint of operator v, or None.
def read_pending(v: "Vertex", data: "Readable") -> "Stored | None":
    n = 1 + data[0] if data else 0
    found = read_body(v, data[n:])
    if found:
        found.cid = bytes(data[1:n])
        found.body = bytes(data[n:])
    return found


# Whether a value that was read is a number as all of this runtime's are: not negative, at most 64 bits.
def number(x: object) -> bool:
    return type(x) is int and 0 <= x < 1 << 64


# Whether it is a list of numbers; of `count`, where that is given.
def numbers(x: "Any", count: int = -1) -> bool:
    return type(x) in (list, tuple) and (count < 0 or len(x) == count) and all([number(n) for n in x])
