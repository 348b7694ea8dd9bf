# How a process comes to a board, and how another one takes its place. Bytes: docs/spec.md, "Site link".
#
# A deployment arrives in pieces, is checked as a whole and stored. A board without a process runs it
# after a restart. A board that has one keeps the new one beside it until the gateway orders it to drain
# (the sensors rest until everything held here is safe) and then to switch. A power cut at any point leaves
# the old process, drained, or the new one: the fact F_SWITCH decides which, and what `_finish` does
# after it can be repeated from its start.
#
# A process is stopped by a deployment whose plan has no vertices: it takes the process's place like any
# other, and nothing runs. It stays stored: sources that come later must begin new incarnations.
#
# A board needs this at its start and when something is deployed; otherwise it is not in RAM.

from hashlib import sha256

from ..data import msgpack
from ..offboard.compat import TYPE_CHECKING
from ..plan import model
from ..protocol import frames
from ..protocol.sessions import hmac
from ..protocol.site_link import (
    AGAIN,
    BYTES_MAX,
    DRAIN,
    DRAINED,
    DRAINING,
    FORGET,
    PIECE_BYTES,
    REFUSED,
    ROUND,
    RUN,
    RUNS,
    STORED,
    WANTED,
)
from ..runtime.operator import OperatorError
from ..storage.keyspace import (
    B_COMING,
    B_DEPLOYMENT,
    B_ENERGY,
    B_SWITCH,
    F_AGAIN,
    F_BOOT,
    F_DRAINED,
    F_FLOOR,
    F_INC,
    F_SWITCH,
    stream_key,
)
from ..storage.log import LogFull

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..offboard.interfaces import Message, Readable
    from ..plan.model import Plan
    from ..storage.log import Log
    from .program import Node

    Found = tuple[Plan, int, dict[int, bytes]]  # plan, number of this host, keys
    Answer = tuple[int, int, str]  # state, offset or another number, why not

# What follows the id in F_SWITCH where the switch is decided.
_DRAINED = b"\1"  # nothing of the old process is unsafe
_LEFT_OUT = b"\2"  # the old process had crashed again and again: what its sources hold stays
_KEEP = (F_BOOT, F_FLOOR, F_SWITCH)  # facts that outlive a process


# What is in a deployment, for the board of that key and name: plan, number of this host, keys.
def read(data: "Readable", key: bytes, name: str) -> "Found":
    try:
        form, process, masked = msgpack.loads(data)
        found = model.loads(process)
        if form != 1:
            raise ValueError("form %r; this runtime knows 1" % form)
        if name not in found.hosts:
            raise ValueError("process %s has no host %s" % (found.name, name))
        me = found.hosts.index(name)
        near = _near(found, me)
        keys = {0: key}
        for number, other, mask in masked:
            pad = hmac(key, b"headwater mask", other.to_bytes(8, "big"))
            if not 0 < number < len(found.hosts) or len(mask) != 32:
                raise ValueError("malformed pair key")
            if number in near:
                keys[number] = bytes([a ^ b for a, b in zip(mask, pad)])
    except (TypeError, ValueError, AttributeError, OverflowError) as e:
        raise ValueError("deployment: %s" % e)
    return found, me, keys


# Hosts with which this one may share an edge or an operator; it needs no link to others.
def _near(found: "Plan", me: int) -> list[int]:
    near: list[int] = []
    for v in found.vertices:
        if me in v.hosts:
            near.extend(v.hosts)
    for e in found.edges:
        if e.dst >= 0:
            ends = (found.vertices[e.src].hosts, found.vertices[e.dst].hosts)
            for i in range(2):
                if me in ends[i]:
                    near.extend(ends[1 - i])
    for a in found.alarms:
        ends = (found.vertices[a.src].hosts, (a.host,))
        for i in range(2):
            if me in ends[i]:
                near.extend(ends[1 - i])
    return near


# The deployment that this board runs: (id, plan, number, keys), or None. A switch that was decided
# is brought to its end first.
def load(
    store: "Log", key: bytes, name: str, random: "Callable[[], int]"
) -> "tuple[bytes, Plan, int, dict[int, bytes]] | None":
    if (store.get(F_SWITCH) or b"")[8:]:
        _finish(store, key, name, random)
    elif store.blob_size(B_SWITCH):
        store.drop_blob(B_SWITCH)
    data = store.get_blob(B_DEPLOYMENT)
    if not data:
        return None
    return (sha256(data).digest()[:8],) + read(data, key, name)


# The deployment that waits, and whether this board drains for it.
def waiting(store: "Log") -> tuple[bytes | None, bool]:
    data = store.get_blob(B_COMING)
    if not data:
        return None, False
    ident = sha256(data).digest()[:8]
    return ident, store.get(F_SWITCH) == ident


# Messages PLAN and SWITCH; the answer is PLANNED. A gateway that lost its database sends PLANNED itself:
# it wants the deployment that this board has, and the answer is PLAN.
def handle(node: "Node", m: "Message") -> None:
    ident = bytes(m[1])
    if m[0] == frames.PLANNED:
        _give(node, ident, m[3])
        return
    if m[0] == frames.PLAN:
        state, offset, why = _piece(node, ident, m[2], m[3], m[4])
    else:
        state, offset, why = _switch(node, ident, m[2])
    node.say(frames.PLANNED, ident, state, offset, why.encode())


def _give(node: "Node", ident: bytes, offset: int) -> None:
    key = B_DEPLOYMENT if ident == node.deployed else B_COMING if ident == node.next else None
    if key is None:
        node.say(frames.PLANNED, ident, WANTED, 0, b"")
        return
    piece = bytearray(PIECE_BYTES)
    n = node.store.read_blob(key, offset, piece)
    node.say(frames.PLAN, ident, node.store.blob_size(key), offset, memoryview(piece)[:n])


def _state(node: "Node") -> "Answer":
    if not node.draining:
        return STORED, node.store.blob_size(B_COMING), ""
    unsafe = node.unsafe()
    if unsafe:
        return DRAINING, unsafe, ""
    return DRAINED, sum([p.ring.last for p in node.host.ports.values()]), ""


def _piece(node: "Node", ident: bytes, size: int, offset: int, piece: "Readable") -> "Answer":
    again = size >= AGAIN
    size %= AGAIN
    if ident == node.failed:
        crash: "Any" = node.crash
        return REFUSED, 0, "this process crashed again and again: " + crash[1]
    if ident == node.deployed:
        return RUNS, node.store.blob_size(B_DEPLOYMENT), ""
    if ident == node.next:
        return _state(node)
    if node.draining:
        return REFUSED, 0, "this board drains for another deployment"
    t = node.taking
    if t is None or t[0] != ident or len(t[1]) != size:
        if offset:
            return WANTED, 0, ""
        if not 0 < size <= BYTES_MAX:
            return REFUSED, 0, "a deployment of %d bytes: at most %d" % (size, BYTES_MAX)
        t = node.take_in(ident, size)
        if t is None:
            return REFUSED, 0, "no room for %d bytes beside the process that runs" % size
    if offset == t[2] and offset + len(piece) <= size:
        t[1][offset : offset + len(piece)] = piece
        t[2] += len(piece)
    if t[2] < size:
        return WANTED, t[2], ""
    node.took_in()
    try:
        return _whole(node, ident, bytes(t[1]), again)
    except (ValueError, OperatorError) as e:
        return REFUSED, 0, str(e)
    except LogFull as e:
        return REFUSED, 0, "no room in the flash: %s" % e
    except MemoryError:
        return REFUSED, 0, "no room in the heap beside the process that runs"


# All of it is here: where it fits this board it is stored.
def _whole(node: "Node", ident: bytes, data: bytes, again: bool) -> "Answer":
    from .. import operators

    if sha256(data).digest()[:8] != ident:
        return WANTED, 0, ""
    new, me, _ = read(data, node.key, node.name)
    for v in new.vertices:
        if me == v.hosts[0] and not v.kind and v.name not in node.config["sensors"]:
            raise ValueError("source %s: the configuration of %s has no such sensor" % (v.name, node.name))
        if me in v.hosts and v.kind:
            operators.find(v.kind)
    _fits(node.store, new, me, len(data))
    if node.host is None:
        _replace(node, ident, data, new, again)
        node.forgive()
    elif new.hash == node.host.plan.hash:
        if [v.hosts for v in new.vertices] != [v.hosts for v in node.host.plan.vertices]:
            raise ValueError("the same process in other places: operators move while they run")
        node.store.put_blob(B_DEPLOYMENT, data)
    else:
        node.store.put_blob(B_COMING, data)
        node.waits(ident)
        return STORED, len(data), ""
    node.restart()
    return RUNS, len(data), ""


# A log that cannot hold what this plan needs would refuse samples for ever: the plan was checked for
# the flash that the process file declares, and this board may have less.
def _fits(store: "Log", new: "Plan", me: int, size: int) -> None:
    from ..storage import reserve

    have, sector_bytes = store.sectors()
    least = reserve.sectors(new, me, size, sector_bytes)
    if least > have:
        raise ValueError(
            "the log of this board has %d KB, and process %s needs %d KB there; run hw check with flash_kb=%d"
            % (have * sector_bytes >> 10, new.name, least * sector_bytes >> 10, have * sector_bytes >> 10)
        )


# No process runs: there was none, or it was left out. Nothing of that one may be left to this one.
def _replace(node: "Node", ident: bytes, data: bytes, new: "Plan", again: bool) -> None:
    store = node.store
    old = store.get_blob(B_DEPLOYMENT)
    try:
        other = bool(old) and read(old or b"", node.key, node.name)[0].hash != new.hash
    except ValueError:
        other = True  # of another version of this program
    if other:
        store.put_blob(B_COMING, data)
        store.put(F_SWITCH, ident + _LEFT_OUT)
    else:
        if again:
            store.put(F_AGAIN, b"\0")  # first: without it this board would run what other hosts run
        else:
            store.drop(F_AGAIN)
        store.put_blob(B_DEPLOYMENT, data)


def _switch(node: "Node", ident: bytes, step: int) -> "Answer":
    if ident == node.deployed:
        return RUNS, node.store.blob_size(B_DEPLOYMENT), ""
    if ident == node.failed and step == FORGET:
        node.store.drop_blob(B_DEPLOYMENT)
        node.forgive()
        return WANTED, 0, ""
    if ident != node.next:
        return WANTED, 0, ""
    store = node.store
    if step == FORGET:
        store.drop(F_SWITCH)
        store.drop(F_DRAINED)
        store.drop_blob(B_COMING)
        node.waits(None)
        node.drain(False)
        return WANTED, 0, ""
    if step == DRAIN and not node.draining:
        store.put(F_SWITCH, ident)
        node.drain(True)
    elif step == RUN and node.draining and (store.get(F_DRAINED) == ident or not node.unsafe()):
        store.put(F_SWITCH, ident + _DRAINED)
        node.restart()
        return RUNS, store.blob_size(B_COMING), ""
    state, number, why = _state(node)
    if state == DRAINED and step >= ROUND:
        # From now on the gateway remembers it: a timer may still fire, and after a restart a source does
        # not know any more what the lake had acknowledged.
        if store.get(F_DRAINED) != ident:
            store.put(F_DRAINED, ident)
        why = str(step)
    return state, number, why


# The switch is decided: what is left of the old process is deleted, its sources number on in the new one.
def _finish(store: "Log", key: bytes, name: str, random: "Callable[[], int]") -> None:
    if not store.blob_size(B_SWITCH):
        store.put_blob(B_SWITCH, msgpack.dumps(_moves(store, key, name, random)))
    stored: "Any" = store.get_blob(B_SWITCH)
    moves = msgpack.loads(stored)
    for b in store.blob_keys():
        if b & ~3 != B_DEPLOYMENT and b != B_ENERGY:
            store.drop_blob(b)
    for f in store.keys():
        if f not in _KEEP:
            store.drop(f)
    kept = [stream_key(m[0]) for m in moves if m[4]]
    for s in store.streams():
        if s not in kept:
            store.forget(s)
    for v, inc, last, ts, keep in moves:
        store.put(F_INC + v, inc.to_bytes(8, "little"))
        if last and not keep:
            store.start_stream(stream_key(v), last, ts)
    if store.blob_size(B_COMING):
        store.rename_blob(B_COMING, B_DEPLOYMENT)
    store.drop(F_SWITCH)
    store.drop_blob(B_SWITCH)


# For each source of the new process here: vertex, incarnation, last xi, last ts, 1 where its entries stay.
def _moves(store: "Log", key: bytes, name: str, random: "Callable[[], int]") -> list[tuple[int, ...]]:
    left_out = (store.get(F_SWITCH) or b"")[8:] == _LEFT_OUT
    was: "dict[tuple[str, str], tuple[int, ...]]" = {}
    old = None
    me = -1
    try:
        old, me, _ = read(store.get_blob(B_DEPLOYMENT) or b"", key, name)
    except ValueError:
        pass  # of another version of this program
    for v in old.vertices if old else ():
        if not v.kind and v.hosts[0] == me:
            data = store.get(F_INC + v.index)
            inc = int.from_bytes(data, "little") if data else store.log_number
            was[(v.name, v.outs[0].text)] = (inc,) + store.tail(stream_key(v.index)) + (v.index,)
    new, me, _ = read(store.get_blob(B_COMING) or b"", key, name)
    out: list[tuple[int, ...]] = []
    for v in new.vertices:
        if not v.kind and v.hosts[0] == me:
            # A name that was used before must not give its numbers again.
            inc, last, ts, index = was.get((v.name, v.outs[0].text), (random(), 0, 0, -1))
            out.append((v.index, inc, last, ts, int(left_out and index == v.index)))
    return out
