# An operator begins on this host: its parts are made, and brought to what the flash has of it.
#
# Promises.
#   - It stands at its permanent checkpoint, or at its first state where there is none or it cannot be read.
#   - A pending checkpoint further than that is kept, and waited for, since an acknowledgement of it may be on
#     its way. What cannot be read is deleted.

from ..offboard.compat import TYPE_CHECKING
from ..plan.model import ECOC, FLASH, OUTSIDE
from ..protocol.position import further, rank
from ..protocol.refusals import CHECKPOINT
from ..storage.keyspace import PENDING, PERMANENT, UNSETTLED, checkpoint_key
from .checkpoints import Checkpoint, Checkpoints
from .inputs import InEdge
from .instance import Instance
from .outputs import OutPort

if TYPE_CHECKING:
    from typing import Any

    from ..offboard.interfaces import Epoch
    from ..plan.model import Vertex
    from .host import Host
    from .operator import Operator

_WAIT_US = 2000000  # how long a restored operator waits for news of its pending checkpoints


# An operator of this host: from its permanent checkpoint, or from its first state. anew: under a new
# epoch; what an earlier one left here beside the checkpoint does not count. first: it begins in this boot.
def operator(
    host: "Host",
    v: "Vertex",
    epoch: "Epoch",
    op: "Operator | None" = None,
    anew: bool = False,
    first: bool = False,
) -> Instance:
    from . import lifecycle, restore

    inst = _made(host, v, op or restore.made(host, v))
    inst.begin(epoch, Checkpoints(host, inst), first)
    if anew:
        # Only now that there was room for it: from here on this host is the one that runs it.
        lifecycle.note(host, v.index, epoch, UNSETTLED)
    host.instances[v.index] = inst
    if anew:
        lifecycle.forget_epoch(host, v.index)
    for e in inst.inputs:
        host.inputs[e.edge.index] = e
    for p in inst.ports:
        restore.mount(p)
        if anew:
            from . import gaps

            gaps.forget(p)
        host.ports[(v.index, p.number)] = p
    key = checkpoint_key(v.index, PERMANENT)
    if host.store.blob_size(key):
        restore.restore(host, inst, key)
    _load_pending(host, inst)
    if inst.ck.pending:
        lifecycle.wait(inst, host.now + _WAIT_US)
    restore.decided_before(host, inst)
    if not inst.op.ONE_TO_ONE:
        for y in inst.op.outs:
            _ = y.at
    assert not host.where[v.index][:2] > tuple(epoch), "an epoch begins that is over"
    return inst


# The parts of an operator on this host, connected to each other.
def _made(host: "Host", v: "Vertex", op: "Operator") -> Instance:
    plan = host.plan
    ins: "Any" = v.ins  # a port with an edge has an alphabet
    inputs = [InEdge(host, e, ins[e.dport], None) for e in plan.ins(v.index)]
    ports = []
    for k in range(len(v.outs)):
        edges = plan.outs(v.index, k)
        logged = any([e.durable == FLASH and e.dst == OUTSIDE for e in edges])
        ports.append(OutPort(host, v, k, edges, logged))
    kind: "type[Instance]" = Instance
    if len(v.ins) != 1 or inputs[0].edge.delay_us:
        from .merge import Joined

        kind = Joined
    inst = kind(host, v, op, inputs, ports)
    # What needs much room in one piece comes first.
    for p in ports:
        b = host.batch(p.alphabet)
        if not op.ONE_TO_ONE:
            p.ring.make_at()
            _ = b.at  # made when it is first asked for
    for e in inputs:
        derived = not plan.vertices[e.edge.src].kind and plan.strategy >= ECOC
        e.belongs_to(inst, plan.every if derived else 0)
    return inst


# The pending checkpoints that flash has of it, those behind the permanent one left out.
def _load_pending(host: "Host", inst: Instance) -> None:
    v = inst.vertex
    pending = inst.ck.pending
    for slot in (PENDING, PENDING + 1):
        data = host.store.get_blob(checkpoint_key(v.index, slot))
        if data:
            c = _pending(host, inst, data, slot)
            if c:
                pending.append(c)
            else:
                host.store.drop_blob(checkpoint_key(v.index, slot))
    pending.sort(key=lambda c: rank(c.pos))


def _pending(host: "Host", inst: Instance, data: bytes, slot: int) -> Checkpoint | None:
    from ..storage import checkpoint_file

    found = checkpoint_file.read_pending(inst.vertex, data)
    if not found:
        host.count(CHECKPOINT)
        return None
    ahead = further(found.pos, inst.ck.pos)
    return Checkpoint(found.cid, found.pos, found.outs, found.body, slot) if ahead else None
