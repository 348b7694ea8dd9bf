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
#
# Promise: where a permanent one is read, what is in RAM of it is its state, if it is asked for, parameters,
# what ports know of consumers, and a record of the log or a block.

from ..data import msgpack_reader
from ..data.msgpack import PackError
from ..offboard.compat import TYPE_CHECKING, const
from ..protocol.position import inputs_of
from .checkpoint_bytes import FORMAT, head
from .reading import Short, given, stored

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ..offboard.interfaces import Epoch, Params, Readable
    from ..plan.model import Vertex
    from .log import Log
    from .reading import Reading

_HEAD = const(8)
_THREE = const(0x93)  # a list of three
_MOST = const(40)  # bytes of what is said of an input or output before the parameters, at most
_AHEAD = const(256)  # bytes of parameters beyond what the plan says, at most


# A checkpoint that was read. What a pending one lacks is empty.
class Stored:
    def __init__(self, version: int, pos: list[int], outs: list[int]) -> None:
        self.version = version  # of the operator type's state
        self.pos = pos
        self.outs = outs  # xi of every output port
        self.inputs: "list[Any]" = []  # of every input: [closed by a decision, incarnation, from ts]
        self.changed: "Params" = {}  # parameters that decisions have set
        self.front = 0  # ts of what was taken last
        self.state = b""
        self.given = (0, 0)  # of the last change from a gateway: its log number, number
        self.epoch: "Epoch" = (0, 0)  # that keeps a permanent one
        self.parts: "list[Any]" = []  # of every output port: [start, number of blocks, turns]
        # Of every output port: what it knows of its consumers, a record each (ports.Reader).
        self.names: "list[Any]" = []
        self.cid = b""  # of a pending one: the id of the Check-Request
        self.body = b""  # ... its bytes


# The checkpoint of operator v from the bytes of a body, or None.
def read_body(v: "Vertex", data: "Readable") -> "Stored | None":
    try:
        return _body(v, given(data), len(data), True)
    except (PackError, Short):
        return None


# Its next n bytes are those of a body. whole: with the state, which is passed over otherwise.
def _body(v: "Vertex", src: "Reading", n: int, whole: bool) -> "Stored":
    end = src.left - n
    items = _list(src)
    found = _beginning(v, src)
    ahead = src.take(min(src.left - end, v.changed_bytes + _AHEAD))
    changed, used = msgpack_reader.first(ahead)
    src.back(ahead[used:])
    found.changed = _sure(changed, type(changed) is dict)
    found.front = _number(src)
    size = _size(src)
    if whole:
        found.state = bytes(src.take(size))
    else:
        src.skip(size)
    if items == 10:
        found.given = (_number(src), _number(src))
    _sure(items, items in (8, 10) and src.left == end)
    return found


# What comes before the parameters.
def _beginning(v: "Vertex", src: "Reading") -> "Stored":
    inputs = inputs_of(v)
    form = _number(src)
    version = _number(src)
    found = Stored(version, _numbers(src), _numbers(src))
    _sure(form, form == FORMAT and len(found.pos) == inputs + 2 and len(found.outs) == len(v.outs))
    _sure(inputs, _list(src) == inputs)
    for _ in range(inputs):
        code = src.take(1)[0]
        if code == _THREE:
            found.inputs.append([_number(src) for _ in range(3)])
        else:
            found.inputs.append([0, _number(src, code), 0])
    return found


# A permanent checkpoint of operator v, or None: all of it was read. whole: with its state. What it carries
# stays where it is: see `blocks`.
def read_permanent(v: "Vertex", src: "Reading", whole: bool = True) -> "Stored | None":
    src.begin()
    try:
        first = src.take(_HEAD)
        found = _body(v, src, _length(first), whole)
        found.epoch = _epoch(first)
        _sure(src, _list(src) == 2)
        for _ in _blocks(src, found.outs, found.parts):
            pass
        _sure(src, _list(src) == len(v.outs))
        for _ in v.outs:
            found.names.append([_name(src) for _ in range(_list(src))])
        _sure(src, not src.left)
    except (PackError, Short):
        return None
    return found


# The blocks of a permanent checkpoint that was read, one by one: output port, block.
def blocks(found: "Stored", src: "Reading") -> "Iterator[tuple[int, Readable]]":
    src.begin()
    src.skip(_length(src.take(_HEAD)))
    _list(src)
    return _blocks(src, found.outs, [])


# The beginning of a stored permanent checkpoint, without parameters, state and what it carries; or None.
def read_beginning(v: "Vertex", store: "Log", key: int) -> "Stored | None":
    data = bytearray(min(store.blob_size(key), _HEAD + _MOST * (2 + len(v.ins) + len(v.outs)) + _MOST))
    store.read_blob(key, 0, data)
    src = given(data)
    try:
        first = src.take(_HEAD)
        _list(src)
        found = _beginning(v, src)
    except (PackError, Short):
        return None
    found.epoch = _epoch(first)
    return found


# (epoch that keeps it, where it stands) of a stored permanent checkpoint, or None.
def place(v: "Vertex", store: "Log", key: int) -> "tuple[Epoch, list[int]] | None":
    found = read_beginning(v, store, key)
    return (found.epoch, found.pos) if found else None


# Store the permanent checkpoint of one key under another one, or the same, kept by this epoch; 0: by the one
# that keeps it. False, and nothing has changed, where there is none that can be read.
def keep(store: "Log", key: int, to: int, epoch: "Epoch" = (0, 0)) -> bool:
    src = stored(store, (key,))
    try:
        first = src.take(_HEAD)
        store.put_blob(to, _kept(head(epoch, _length(first)) if epoch[0] else first, src), src.size)
    except Short:
        return False
    return True


def _kept(first: "Readable", src: "Reading") -> "Iterator[Readable]":
    yield first
    for piece in src.rest():
        yield piece


def _length(head: "Readable") -> int:
    return int.from_bytes(bytes(head[:3]), "little")


def _epoch(first: "Readable") -> "Epoch":
    return (int.from_bytes(bytes(first[4:_HEAD]), "little"), first[3])


# The blocks of all ports. What is said of those of a port goes to `parts` behind them: the entry after which
# the first begins, how many there are, turns.
def _blocks(src: "Reading", outs: list[int], parts: "list[Any]") -> "Iterator[tuple[int, Readable]]":
    _sure(outs, _list(src) == len(outs))
    for k in range(len(outs)):
        code = src.take(1)[0]
        if not code:
            parts.append([outs[k], 0, []])
            continue
        start = _sure(_number(src), code == _THREE)
        n = _list(src)
        for _ in range(n):
            yield k, src.take(_size(src))
        parts.append([start, n, _numbers(src)])


# What a port knows of a consumer.
def _name(src: "Reading") -> "list[Any]":
    _sure(src, _list(src) == 8)
    found: "list[Any]" = [_number(src) for _ in range(5)]
    found += [_numbers(src), _numbers(src)]
    gaps = [_numbers(src) for _ in range(_list(src))]
    return found + [_sure(gaps, all([len(gap) == 3 for gap in gaps]))]


def _sure(value: "Any", right: bool) -> "Any":
    if not right:
        raise PackError("not a checkpoint of this operator")
    return value


# ---- msgpack, as it is read. As with `loads`, one canonical form and no other.


def _numbers(src: "Reading") -> list[int]:
    return [_number(src) for _ in range(_list(src))]


def _number(src: "Reading", code: int = -1) -> int:
    if code < 0:
        code = src.take(1)[0]
    if code < 128:
        return code
    return _after(src, code, 0xCC, 4, 7)


# How many items a list has.
def _list(src: "Reading") -> int:
    code = src.take(1)[0]
    if code & 0xF0 == 0x90:
        return code & 15
    return _after(src, code, 0xDB, 3, 4)


# How many bytes a string of them has.
def _size(src: "Reading") -> int:
    return _after(src, src.take(1)[0], 0xC4, 3, 0)


# The number after a code, of 1, 2, 4 or 8 bytes; the codes for them count up from `first`. A short number
# has another form: bits says how long it has to be at least.
def _after(src: "Reading", code: int, first: int, codes: int, bits: int) -> int:
    k = code - first
    if not int(bits == 4) <= k < codes:
        raise PackError("unknown code %d" % code)
    n = int.from_bytes(bytes(src.take(1 << k)), "big")
    least = 4 << k if k > int(bits == 4) else bits
    if least and not n >> least:
        raise PackError("a longer form than needed")
    return n


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
