# Operators begin, end and are found elsewhere.
#
# An activation raises the epoch. A host that hears of a newer epoch of what it runs stops it: from
# then on it says and takes nothing for that operator any more.

from . import lifecycle, pack, wire, wiring
from .instance import STOPPED
from .keyspace import F_WHERE, UNTOLD


# Run operator v here from now on, under a new epoch.
def activate(host, v, number):
    from . import decisions, hosting, transfer

    epoch = (number, host.me)
    inst = host.instances.get(v)
    if inst:
        if inst.epoch >= epoch:
            return
        _end(host, inst, epoch)  # a former epoch of it, which does not know yet that it is over
    lifecycle.note(host, v, epoch, UNTOLD)
    inst = hosting.operator(host, host.plan.vertices[v], epoch, None, True)
    lifecycle.ask(inst)
    transfer.begin_recall(host, inst)
    moved(host, v, epoch, host.me)
    for e in inst.inputs:
        wiring.connect(host, e)
    wiring.again(host)
    transfer.recall(host, inst)
    decisions.ask(host, inst.vertex.index, inst.epoch, inst.decided)


# A newer epoch runs elsewhere: this one says and takes nothing any more.
def stop(host, inst, epoch):
    if inst.is_lake or inst.status == STOPPED:
        return
    _end(host, inst, epoch)
    mine(host, inst.vertex.index, epoch)


# Others know of an epoch here that this host does not: its flash was erased. It starts again above it, or
# everybody would believe that somebody runs the operator.
def mine(host, v, epoch):
    if epoch[1] == host.me and v not in host.instances:
        known = lifecycle.noted(host, v)
        if (known[0][0] if known else 0) < epoch[0]:
            activate(host, v, epoch[0] + 1)


# This host came again with an empty store, and runs no operator before it has heard where that runs now.
def ask(host):
    from . import decisions

    for v in host.plan.vertices:
        if v.kind and host.where[v.index] == (1, host.me, host.me) and v.index not in host.instances:
            decisions.ask(host, v.index, (0, host.me), 0)


def _end(host, inst, epoch):
    v = inst.vertex.index
    lifecycle.stop(host, inst)
    host.pushes.pop(v, None)
    for e in inst.inputs:
        host.inputs.pop(e.edge.index, None)
        r = e.port.reader(e.edge) if e.port else None
        if r and r.local is e:
            r.leave()
    for p in inst.ports:
        host.ports.pop((v, p.number), None)
        for r in p.readers:
            if r.local:
                e = r.local
                e.cur.chunk = 0
                e.detach()
                e.contact = False
    host.instances.pop(v, None)
    if host.where[v][:2] < tuple(epoch):
        moved(host, v, epoch, epoch[1])
    wiring.again(host)


def moved(host, v, epoch, to):
    host.where[v] = (epoch[0], epoch[1], to)
    host.store.put(F_WHERE + v, pack.dumps(list(host.where[v])))
    for number in host.exchange.links:
        host.exchange.say(number, wire.WHERE, v, v, epoch, to)


# News of a newer epoch.
def on_where(host, v, epoch, to):
    moved(host, v, epoch, to)
    inst = host.instances.get(v)
    if inst and epoch > inst.epoch:
        _end(host, inst, epoch)
    for e in list(host.inputs.values()):
        if e.edge.src == v and e.port is None:
            wiring.connect(host, e)  # perhaps it begins anew where it was
    mine(host, v, epoch)
    wiring.again(host)


# Tell another host where operators are that have moved: those that run here; the gateway knows of all.
def tell(host, sender):
    for v in range(len(host.where)):
        w = host.where[v]
        if w[0] > 1 and (w[2] == host.me or not host.me):
            host.exchange.say(sender, wire.WHERE, v, v, w[:2], w[2])


def _heard(host, sender, m):
    host.heard_where(m[1], m[2], m[3])


HANDLERS = {wire.WHERE: _heard}
