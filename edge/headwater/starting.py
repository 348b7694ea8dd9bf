# How a host begins, or begins again: everything comes from its store.
#
# On a board this is when the most code is loaded, so what a step needs alone is taken in there, and goes
# before the next.

from . import pack, wire
from .checkpoint import Checkpoint, Checkpoints
from .clock import Floor
from .host import DEPLOYMENT, F_AGAIN, F_BOOT, F_FLOOR, F_INC, F_OP, F_WHERE, LEARN, LOST, PERMANENT, Link
from .inputs import InEdge
from .instance import ASKING, RUNNING, WAITING, Instance
from .once import let_go
from .plan import ECOC, FLASH, OUTSIDE
from .ports import OutPort
from .position import further, rank
from .refusals import CHECKPOINT
from .seal import Peer
from .source import Source

_WAIT_US = 2000000  # how long a restored operator waits for news of its pending checkpoints


# made: operators that are likely to run here, by vertex. again: see Host.start.
def start(host, now, made, again):
    host.now = now
    host.asked_us = now - 1
    store = host.store
    plan = host.plan
    me = host.me
    sizes = _sizes(host)
    let_go("reserve")
    data = store.get(F_BOOT)
    host.boot_number = (int.from_bytes(data, "little") if data else 0) + 1
    store.put(F_BOOT, host.boot_number.to_bytes(4, "little"))
    data = store.get(F_FLOOR)
    floor = int.from_bytes(data, "little") if data else 0
    for v in plan.vertices:
        if not v.kind and v.hosts[0] == me:
            floor = max(floor, store.tail(v.index * 8)[1])  # a sealed sample is a floor too
    host.floor = Floor(floor)
    if host.outbox is None:
        host.clock.start(now, floor)
    for number in host.keys:
        if number != me:
            key = host.keys[number]
            log = store.log_number
            peer = Peer(key, me, log, host.boot_number, number, plan.hash, host.nonce)
            host.links[number] = Link(number, peer)
    data = store.get(F_AGAIN)
    if again or data:
        if not data or len(data) != len(plan.vertices):
            learn = LEARN + LOST if host.outbox is not None else LOST
            data = bytes([learn if v.kind else 0 for v in plan.vertices])
            store.put(F_AGAIN, data)
        host.again = bytearray(data)
    host.unlearned = [i for i in range(len(host.again)) if host.again[i] & LEARN]
    for v in plan.vertices:
        data = store.get(F_WHERE + v.index)
        if data:
            host.where[v.index] = tuple(pack.loads(data))
    for v in plan.vertices:
        if not v.kind:
            if v.hosts[0] == me:
                _source(host, v)
            continue
        data = store.get(F_OP + v.index)
        if data:
            number, at, active = pack.loads(data)
            if active and (number, at) >= host.where[v.index][:2]:
                inst = operator(host, v, (number, at), made.get(v.index))
                if active != 1:
                    from . import transfer

                    transfer.begin_recall(host, inst)
                    inst.status = ASKING
                    inst.ck.discard()
                if (number, at) > host.where[v.index][:2]:
                    from . import moving

                    moving.moved(host, v.index, (number, at), me)  # power went in the middle of it
            else:
                from . import restoring

                restoring.forget_spill(host, v.index)  # ... or of its end
        elif v.hosts[0] == me and host.where[v.index][2] == me and not host.again:
            inst = operator(host, v, (1, me), made[v.index])
            inst.first = True
            inst.status = ASKING  # until there is room for what it has to store
    if host.outbox is not None:
        for e in plan.edges:
            if e.dst == OUTSIDE:
                _end(host, e)
    let_go("restoring", "checkpoint_file", "packread")
    from . import wiring

    wiring.wire(host)
    store.ensure_reserve(sizes)
    for inst in list(host.instances.values()):
        if inst.unsettled:
            from . import transfer

            transfer.recall(host, inst)
        elif inst.ck.pos:
            host.store_at_level(inst)
    for inst in list(host.instances.values()):
        if inst.first:
            inst.status = RUNNING
            from . import restoring

            restoring.note_running(host, inst)
            for e in inst.inputs:
                if not e.contact:
                    wiring.hello(host, e)
        elif inst.status == ASKING:
            from . import decisions

            decisions.ask(host, inst.vertex.index, inst.epoch, inst.decided)
    for v in range(len(host.where)):
        w = host.where[v]
        if w[0] > 1 and w[2] == me and v not in host.instances:
            from . import moving

            moving.mine(host, v, w[:2])  # power went when it was to begin here
    for link in host.links.values():
        link.want(wire.BEAT, 0, host._state(), host.boot_number)


# What the log must have room for; and how large a checkpoint gets that is kept here.
def _sizes(host):
    from . import reserve

    plan = host.plan
    for v in plan.vertices:
        if v.kind and host.me in plan.keepers(v.index):
            host.largest[v.index] = reserve.checkpoint_bytes(plan, v)
    return reserve.blobs(plan, host.me, host.store.blob_size(DEPLOYMENT))


def _source(host, v):
    from . import restoring

    port = OutPort(host, v, 0, host.plan.outs(v.index, 0), True)
    data = host.store.get(F_INC + v.index)
    port.inc = int.from_bytes(data, "little") if data else host.store.log_number
    restoring.mount(port)
    last, ts = host.store.tail(port.stream)
    port.ring.reset(last)
    port.bound = ts
    host.ports[(v.index, 0)] = port
    port.spare()
    port.trim()
    host.sources[v.index] = Source(host, v, port, ts)


# An operator of this host: from its permanent checkpoint, or from its first state. anew: under a new
# epoch; what an earlier one left here beside the checkpoint does not count.
def operator(host, v, epoch, op=None, anew=False):
    from . import restoring

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
        restoring.forget_spill(host, v.index)
    for p in ports:
        restoring.mount(p)
        if anew:
            restoring.forget_gaps(p)
        host.ports[(v.index, p.number)] = p
    host.instances[v.index] = inst
    if anew:
        inst.ck.discard()
    data = host.store.get_blob(host.blob(inst, PERMANENT))
    if data:
        restoring.restore(host, inst, data)
    pending = inst.ck.pending
    for slot in (1, 2):
        data = host.store.get_blob(host.blob(inst, slot))
        if data:
            c = _pending(host, inst, data, slot)
            if c:
                pending.append(c)
            else:
                host.store.drop_blob(host.blob(inst, slot))
    pending.sort(key=lambda c: rank(c.pos))
    if pending:
        inst.status = WAITING
        inst.wait_us = host.now + _WAIT_US
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
    cid, body, (_, _, pos, outs, _, _, _, _) = found
    return Checkpoint(cid, pos, outs, body, slot) if further(pos, inst.ck.pos) else None


# The gateway's end of an edge to the lake.
def _end(host, e):
    from .lakeend import LakeEnd

    v = host.plan.vertices[e.src]
    inp = InEdge(host, e, v.outs[e.sport], None)
    end = LakeEnd(host, inp, host.outbox)
    inp.sink = end
    host.inputs[e.index] = inp
    host.ends.append(end)
