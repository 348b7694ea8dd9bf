# An operator comes to this host: its parts are made, and brought to what the flash has of it.
#
# Promises.
#   - It stands at its permanent checkpoint, or at its first state where there is none or it cannot be read.
#   - A pending checkpoint further than that is kept, and waited for, since an acknowledgement of it may be on
#     its way. What cannot be read is deleted.

from .checkpoint import Checkpoint, Checkpoints
from .inputs import InEdge
from .instance import Instance
from .keyspace import PENDING, PERMANENT, checkpoint_key
from .plan import ECOC, FLASH, OUTSIDE
from .ports import OutPort
from .position import further, rank
from .refusals import CHECKPOINT

_WAIT_US = 2000000  # how long a restored operator waits for news of its pending checkpoints


# An operator of this host: from its permanent checkpoint, or from its first state. anew: under a new
# epoch; what an earlier one left here beside the checkpoint does not count.
def operator(host, v, epoch, op=None, anew=False):
    from . import lifecycle, restoring

    plan = host.plan
    inputs = [InEdge(host, e, v.ins[e.dport], None) for e in plan.ins(v.index)]
    for e in inputs:
        if not plan.vertices[e.edge.src].kind and plan.strategy >= ECOC:
            e.every = plan.every
    ports = []
    for k in range(len(v.outs)):
        edges = plan.outs(v.index, k)
        logged = any([e.durable == FLASH and e.dst == OUTSIDE for e in edges])
        ports.append(OutPort(host, v, k, edges, logged))
    op = op or restoring.made(host, v)
    kind = Instance
    if len(inputs) != 1 or inputs[0].edge.delay_us:
        from .merging import Joined as kind
    inst = kind(host, v, op, inputs, ports)
    # What needs much room in one piece comes first.
    for p in ports:
        b = host.batch(p.alphabet)
        if not op.ONE_TO_ONE:
            p.ring.make_at()
            b.at = b.at
    inst.epoch = epoch
    inst.ck = Checkpoints(host, inst)
    for e in inputs:
        e.sink = inst
        host.inputs[e.edge.index] = e
    if anew:
        lifecycle.forget_epoch(host, v.index)
    for p in ports:
        restoring.mount(p)
        if anew:
            from . import gaps

            gaps.forget(p)
        host.ports[(v.index, p.number)] = p
    host.instances[v.index] = inst
    data = host.store.get_blob(checkpoint_key(v.index, PERMANENT))
    if data:
        restoring.restore(host, inst, data)
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
    if pending:
        lifecycle.wait(inst, host.now + _WAIT_US)
    restoring.load_decisions(host, inst)
    if not inst.op.ONE_TO_ONE:
        for y in inst.op.outs:
            y.at = y.at
    return inst


def _pending(host, inst, data, slot):
    from . import checkpoint_file

    found = checkpoint_file.read_pending(inst.vertex, data)
    if not found:
        host.count(CHECKPOINT)
        return None
    ahead = further(found.pos, inst.ck.pos)
    return Checkpoint(found.cid, found.pos, found.outs, found.body, slot) if ahead else None
