# How a host begins, or begins again: everything comes from its store.
#
# On a board this is when the most code is loaded, so what one step alone needs is imported there, and is
# unloaded before the next.

from ..board.unload import unload
from ..data import msgpack
from ..offboard.compat import TYPE_CHECKING
from ..plan.model import OUTSIDE
from ..protocol.moves import GIVEN_UP
from ..protocol.sessions import Peer
from ..storage.keyspace import (
    ALONE,
    B_DEPLOYMENT,
    DECIDING,
    F_AGAIN,
    F_BOOT,
    F_FLOOR,
    F_INC,
    F_LOST,
    F_WHERE,
    LEARN,
    LOST,
    OVER,
    RUNS,
    UNTOLD,
    stream_key,
)
from .inputs import InEdge
from .instance import RECALLING
from .outputs import OutPort
from .source import Source

if TYPE_CHECKING:
    from ..plan.model import Edge, Plan, Vertex
    from .host import Host
    from .operator import Operator


# made: operators that are likely to run here, by vertex. again: see Host.start.
def start(host: "Host", now: int, made: "dict[int, Operator]", again: bool) -> None:
    from ..storage import arrival

    sizes = _sizes(host)
    unload("storage.reserve")
    number = _boot(host, now)
    _meet(host, number)
    _remember(host, number, again)
    arrival.clear(host.store)
    if host.me in host.lost and host.lost[host.me][0] == host.store.log_number:
        host.revoke()
        return
    _begin(host, made)
    unload(
        "runtime.hosting",
        "runtime.restore",
        "storage.arrival",
        "storage.checkpoint_file",
        "storage.reading",
        "data.msgpack_reader",
    )
    from . import routing

    routing.wire(host)
    host.store.ensure_reserve(sizes)
    _go_on(host)
    host.exchange.say_state()


# The number of this boot, and the time above which it begins.
def _boot(host: "Host", now: int) -> int:
    store = host.store
    data = store.get(F_BOOT)
    number = (int.from_bytes(data, "little") if data else 0) + 1
    store.put(F_BOOT, number.to_bytes(4, "little"))
    data = store.get(F_FLOOR)
    floor = int.from_bytes(data, "little") if data else 0
    for v in host.plan.vertices:
        if not v.kind and v.hosts[0] == host.me:
            floor = max(floor, store.tail(stream_key(v.index))[1])  # a sealed sample is a floor too
    host.floor.sealed(floor)
    if host.outbox is None:
        host.clock.start(now, floor)
    return number


# The neighbours with which this host has a key.
def _meet(host: "Host", boot: int) -> None:
    for number in host.keys:
        if number != host.me:
            key = host.keys[number]
            log = host.store.log_number
            peer = Peer(key, host.me, log, boot, number, host.plan.hash, host.nonce)
            host.exchange.meet(number, peer)


# What this host knows to have lost, and where it knows operators to be.
def _remember(host: "Host", boot: int, again: bool) -> None:
    store = host.store
    plan = host.plan
    known = bytearray(store.get(F_AGAIN) or b"")
    if (again or known) and len(known) != len(plan.vertices):
        bits = LOST if host.outbox is None else LEARN + LOST
        known = bytearray([bits if v.kind else 0 for v in plan.vertices])
        if host.outbox is None:
            known[0] += UNTOLD
        store.put(F_AGAIN, bytes(known))
    host.booted(boot, known, [i for i in range(len(known)) if known[i] & LEARN])
    for h in range(len(plan.hosts)):
        data = store.get(F_LOST + h)
        if data:
            host.lost[h] = msgpack.loads(data)
    for v in plan.vertices:
        data = store.get(F_WHERE + v.index)
        if data:
            known = msgpack.loads(data)
            host.where[v.index] = tuple(known[:3])
            if len(known) > 3:
                host.moves[v.index] = tuple(known[3:])
                host.gave_up(v.index, known[3] == GIVEN_UP)


# Sources, operators and ends of edges to the lake.
def _begin(host: "Host", made: "dict[int, Operator]") -> None:
    from . import hosting, lifecycle

    plan = host.plan
    me = host.me
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
                if state == DECIDING:
                    if not inst.ck.pending:  # otherwise power went before the decision was stored
                        lifecycle.recall(inst)  # `_go_on` goes on from here
                        inst.decides(True)
                elif state != RUNS:
                    from . import incoming

                    incoming.begin_recall(host, inst)
                    lifecycle.recall_again(inst)
                    if state == ALONE:
                        lifecycle.blind(host, inst)
                if epoch > host.where[v.index][:2] and len(v.hosts) == 1:
                    from . import relocation

                    # Power failed in the middle of it. Where there are backups, words.py tells of it.
                    relocation.moved(host, v.index, epoch, me)
            else:
                lifecycle.forget_epoch(host, v.index)  # ... or of its end
        elif v.hosts[0] == me and host.where[v.index][2] == me and not host.again:
            inst = hosting.operator(host, v, (1, me), made[v.index], first=True)
            lifecycle.recall(inst)  # until there is room for what it has to store
    if host.outbox is not None:
        for e in plan.edges:
            if e.dst == OUTSIDE:
                _end(host, e)


# Everything is connected, and has room in the flash: operators run, or ask their keepers first.
def _go_on(host: "Host") -> None:
    from . import lifecycle, routing

    for inst in list(host.instances.values()):
        if inst.unsettled:
            from . import incoming

            incoming.recall(host, inst)
        elif inst.status == RECALLING:
            lifecycle.go_on(host, inst)
        if inst.ck.pos and not inst.unsettled:
            inst.ck.store_at_level()
        if inst.first:
            for e in inst.inputs:
                if not e.contact:
                    routing.hello(host, e)
    for v in range(len(host.where)):
        w = host.where[v]
        if w[0] > 1 and w[2] == host.me and v not in host.instances:
            from . import relocation

            relocation.mine(host, v, w[:2])  # power failed when it was to begin here


# What the log must have room for; and how large a checkpoint gets that is kept here.
def _sizes(host: "Host") -> list[int]:
    from ..storage import reserve

    plan = host.plan
    for v in plan.vertices:
        if v.kind and host.me in plan.keepers(v.index):
            host.largest[v.index] = reserve.checkpoint_bytes(plan, v)
    return reserve.blobs(plan, host.me, host.store.blob_size(B_DEPLOYMENT))


def _source(host: "Host", v: "Vertex") -> None:
    from . import restore

    data = host.store.get(F_INC + v.index)
    inc = int.from_bytes(data, "little") if data else host.store.log_number
    port = OutPort(host, v, 0, host.plan.outs(v.index, 0), True, inc)
    restore.mount(port)
    last, ts = host.store.tail(port.stream)
    port.reset(last)
    port.promise(ts)
    host.ports[(v.index, 0)] = port
    port.spare()
    port.trim()
    host.sources[v.index] = Source(host, v, port, ts, _loops(host.plan, v.index))


# Whether what source v gives comes into a feedback edge.
def _loops(plan: "Plan", v: int) -> bool:
    after = [v]
    for u in after:
        for e in plan.edges:
            if e.src == u and e.dst >= 0 and e.dst not in after:
                after.append(e.dst)
            if e.src == u and e.delay_us:
                return True
    return False


# The gateway's end of an edge to the lake.
def _end(host: "Host", e: "Edge") -> None:
    from .lake_sink import LakeSink

    v = host.plan.vertices[e.src]
    inp = InEdge(host, e, v.outs[e.sport], None)
    end = LakeSink(host, inp, host.outbox)
    inp.belongs_to(end)
    host.inputs[e.index] = inp
    host.ends.append(end)
