# How a host begins, or begins again: everything comes from its store.
#
# On a board this is when the most code is loaded, so what a step needs alone is taken in there, and goes
# before the next.

from . import pack
from .clock import Floor
from .inputs import InEdge
from .instance import ASKING
from .keyspace import (
    B_DEPLOYMENT,
    F_AGAIN,
    F_BOOT,
    F_FLOOR,
    F_INC,
    F_WHERE,
    LEARN,
    LOST,
    OVER,
    RUNS,
    stream_key,
)
from .once import let_go
from .plan import OUTSIDE
from .ports import OutPort
from .seal import Peer
from .source import Source


# made: operators that are likely to run here, by vertex. again: see Host.start.
def start(host, now, made, again):
    host.now = now
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
            floor = max(floor, store.tail(stream_key(v.index))[1])  # a sealed sample is a floor too
    host.floor = Floor(floor)
    if host.outbox is None:
        host.clock.start(now, floor)
    for number in host.keys:
        if number != me:
            key = host.keys[number]
            log = store.log_number
            peer = Peer(key, me, log, host.boot_number, number, plan.hash, host.nonce)
            host.exchange.meet(number, peer)
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
    from . import hosting, lifecycle

    for v in plan.vertices:
        if not v.kind:
            if v.hosts[0] == me:
                _source(host, v)
            continue
        known = lifecycle.noted(host, v.index)
        if known:
            epoch, state = known
            if state != OVER and epoch >= host.where[v.index][:2]:
                inst = hosting.operator(host, v, epoch, made.get(v.index))
                if state != RUNS:
                    from . import transfer

                    transfer.begin_recall(host, inst)
                    lifecycle.ask_again(inst)
                if epoch > host.where[v.index][:2]:
                    from . import moving

                    moving.moved(host, v.index, epoch, me)  # power went in the middle of it
            else:
                lifecycle.forget_epoch(host, v.index)  # ... or of its end
        elif v.hosts[0] == me and host.where[v.index][2] == me and not host.again:
            inst = hosting.operator(host, v, (1, me), made[v.index])
            inst.first = True
            lifecycle.ask(inst)  # until there is room for what it has to store
    if host.outbox is not None:
        for e in plan.edges:
            if e.dst == OUTSIDE:
                _end(host, e)
    hosting = None
    let_go("hosting", "restoring", "checkpoint_file", "packread")
    from . import wiring

    wiring.wire(host)
    store.ensure_reserve(sizes)
    for inst in list(host.instances.values()):
        if inst.unsettled:
            from . import transfer

            transfer.recall(host, inst)
        elif inst.ck.pos:
            inst.ck.store_at_level()
    for inst in list(host.instances.values()):
        if inst.first:
            lifecycle.run(host, inst)
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
    host.exchange.say_state()


# What the log must have room for; and how large a checkpoint gets that is kept here.
def _sizes(host):
    from . import reserve

    plan = host.plan
    for v in plan.vertices:
        if v.kind and host.me in plan.keepers(v.index):
            host.largest[v.index] = reserve.checkpoint_bytes(plan, v)
    return reserve.blobs(plan, host.me, host.store.blob_size(B_DEPLOYMENT))


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


# The gateway's end of an edge to the lake.
def _end(host, e):
    from .lakeend import LakeEnd

    v = host.plan.vertices[e.src]
    inp = InEdge(host, e, v.outs[e.sport], None)
    end = LakeEnd(host, inp, host.outbox)
    inp.sink = end
    host.inputs[e.index] = inp
    host.ends.append(end)
