# An operator goes back, or ahead, to a checkpoint: its state, its inputs, its outputs with the
# transfer state that the checkpoint carries, and what it knew of its consumers then.
#
# Promise: where a checkpoint cannot be read, or its state or its entries do not fit, nothing has changed.

from .. import operators
from ..data import block, msgpack
from ..data.batch import GAP_GIVEN_UP
from ..offboard.compat import TYPE_CHECKING
from ..plan.model import FLASH, OUTSIDE, UNSAFE
from ..protocol.refusals import CHECKPOINT
from ..storage.keyspace import B_DECIDED, F_GAPS, F_READER
from .operator import OperatorError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ..plan.model import Vertex
    from ..storage.checkpoint_file import Stored
    from ..storage.reading import Reading
    from .checkpoints import Checkpoint
    from .host import Host
    from .instance import Instance
    from .operator import Operator
    from .outputs import OutPort, Reader


# The operator of a vertex, in its first state.
def made(host: "Host", v: "Vertex") -> "Operator":
    return operators.find(v.kind)(v.params, v.ins, v.outs, host.plan.batch)


# Bring an instance to the permanent checkpoint that is stored under this key. False, and nothing has changed,
# where it cannot be read: then it is as if there were none. One that is damaged is deleted.
def restore(host: "Host", inst: "Instance", key: int) -> bool:
    from ..storage import checkpoint_file, reading

    src = reading.stored(host.store, (key,))
    found = checkpoint_file.read_permanent(inst.vertex, src)
    op = _operator(host, inst, found) if found and _whole(host, inst, found, src) else None
    if not found or not op:
        host.count(CHECKPOINT)
        if not found and src.damaged():
            host.store.drop_blob(key)
        return False
    _set(inst, found, op)
    for p in inst.ports:
        names = found.names[p.number]
        if names and names[0][1] != p.inc:
            p.renumber(names[0][1])
            mount(p)
        start, blocks, _ = found.parts[p.number]
        p.reset(start if blocks else found.outs[p.number])
    _fill(host, inst, found, src)
    for p in inst.ports:
        for rec in found.names[p.number]:
            adopt(p, rec, rec[7])
        p.trim()
        give_up_lost(p)
    inst.ck.restored(found.pos, found.front, found.epoch)
    assert inst.position() == list(found.pos), "it does not stand where its checkpoint was taken"
    return True


# The entries that the checkpoint carries are in the rings again.
def _fill(host: "Host", inst: "Instance", found: "Stored", src: "Reading") -> None:
    from ..storage import checkpoint_file

    unsync = [0] * len(inst.ports)
    for k, b in checkpoint_file.blocks(found, src):
        p = inst.ports[k]
        turns = found.parts[k][2]
        w = host.batch(p.alphabet)
        block.decode(b, 0, len(b), w)
        p.has_room(w.n)
        done = 0
        while done < w.n:
            n = w.n - done
            if turns:
                while not turns[0]:
                    turns.pop(0)
                    unsync[k] ^= 1
                n = min(n, turns[0])
                turns[0] -= n
            w.stamp(unsync[k])
            p.ring.append(w, done, n)
            done += n
        w.clear()
    assert [p.ring.last for p in inst.ports] == found.outs, "what a checkpoint carries ends elsewhere"


# The operator in the state of a checkpoint, or None where it refuses that.
def _operator(host: "Host", inst: "Instance", found: "Stored") -> "Operator | None":
    # One that has taken nothing yet is in its first state, and there may be no room for two.
    first = not (found.changed or inst.changed or any(inst.position()))
    op = inst.op if first else made(host, inst.vertex)
    try:
        if found.changed:
            op.configure(found.changed)
        op.restore(found.state, found.version)
    except OperatorError:
        return None
    return op


# Whether the blocks of a checkpoint hold the entries that it names, and the rings have room for them.
def _whole(host: "Host", inst: "Instance", found: "Stored", src: "Reading") -> bool:
    from ..storage import checkpoint_file

    at = [part[0] for part in found.parts]
    try:
        for k, b in checkpoint_file.blocks(found, src):
            w = host.batch(inst.ports[k].alphabet)
            block.decode(b, 0, len(b), w)
            if w.xi != at[k] + 1:
                return False
            at[k] += w.n
    except block.BlockError:
        return False
    for p in inst.ports:
        start, blocks, turns = found.parts[p.number]
        end = found.outs[p.number]
        if turns and sum(turns) != end - start:
            return False
        if at[p.number] - start > p.ring.cap or (blocks and at[p.number] != end):
            return False
    return True


# Operator and inputs stand where the checkpoint was taken. An earlier checkpoint may be of another
# incarnation of an input: the present one began by this decision at the latest.
def _set(inst: "Instance", found: "Stored", op: "Operator") -> None:
    pos = found.pos
    inst.resume(op, pos, found.changed, found.given, found.front)
    for e, xi, flag in zip(inst.inputs, pos, found.inputs):
        e.resume(xi, flag[1], bool(flag[0]), flag[2], pos[-1])


# A pending checkpoint turned out to be acknowledged: go on from there.
def from_pending(host: "Host", inst: "Instance", c: "Checkpoint") -> None:
    from ..storage import checkpoint_file

    found: "Any" = checkpoint_file.read_body(inst.vertex, c.body)  # it was read once when it was loaded
    op = _operator(host, inst, found)
    assert op, "a pending checkpoint that was acknowledged does not fit its operator"
    _set(inst, found, op)
    for p in inst.ports:
        p.reset(c.outs[p.number])
        p.trim()
    reconnect(host, inst)


# It stands elsewhere than before: it speaks to its producers and consumers again.
def reconnect(host: "Host", inst: "Instance") -> None:
    from . import routing

    for e in inst.inputs:
        routing.connect(host, e)
    for p in inst.ports:
        routing.readers_again(host, p)


# An operator without checkpoints begins with the parameters that were decided here, and without the inputs
# that were closed.
def decided_before(host: "Host", inst: "Instance") -> None:
    data = host.store.get_blob(B_DECIDED + inst.vertex.index)
    if data and host.plan.strategy == UNSAFE:
        decided, given, changed, closed = (msgpack.loads(data) + [0])[:4]  # earlier versions kept three
        inst.decided_before(decided, (given[0], given[1]), changed, closed)


# Take over what a restart, or a checkpoint taken elsewhere, knows of the readers, and the gaps that the lake
# was not told yet: a declared gap counts as safe, so the host that goes on from there must tell it.
def adopt(port: "OutPort", rec: "list[Any]", gaps: "Sequence[list[int]]" = ()) -> None:
    edge, inc, number, at, safe, name, holders = rec[:7]
    for r in port.readers:
        if r.edge.index == edge and inc != port.inc:
            r.adopt((number, at), 0, [], [])  # the epoch is the consumer's, in whichever incarnation
        elif r.edge.index == edge:
            r.adopt((number, at), safe, name, holders)
            for gap in gaps:
                _adopt_gap(port, r, gap)


def _adopt_gap(port: "OutPort", r: "Reader", gap: list[int]) -> None:
    for had in r.gaps:
        if had[0] <= gap[0] and gap[1] <= had[1]:
            return
    kept = [had for had in r.gaps if not (gap[0] <= had[0] and had[1] <= gap[1])] + [list(gap)]
    kept.sort()
    r.owe(kept)
    port.host.store.put(F_GAPS + r.edge.index, msgpack.dumps(r.gaps))


# After a restart: take over the facts of the readers, and the part of the stream that is in the log.
def mount(port: "OutPort") -> None:
    store = port.host.store
    for r in port.readers:
        data = store.get(F_READER + r.edge.index)
        if data:
            adopt(port, msgpack.loads(data))
        data = store.get(F_GAPS + r.edge.index)
        if data:
            r.owe(msgpack.loads(data))
    if port.spills:
        port.found(store.first(port.stream), store.tail(port.stream)[0])


# Outputs that were in the flash of another board only are lost with it, as the process file accepts: a gap is
# declared to the lake.
def give_up_lost(port: "OutPort") -> None:
    first = port.first()
    for r in port.readers:
        if r.edge.dst == OUTSIDE and r.edge.durable == FLASH and r.safe < first:
            from . import gaps

            gaps.declare(port, r, r.safe + 1, first, GAP_GIVEN_UP)
