# Where operators run: one begins here, ends here, or is found elsewhere.
#
# An activation raises the epoch. A host that hears of a newer epoch of what it runs stops it: from
# then on it tells and takes nothing for that operator any more.
#
# Invariant: the epoch under which an operator is known to run (Host.where) never falls.

from ..board.unload import unload
from ..data import msgpack
from ..offboard.compat import TYPE_CHECKING
from ..protocol import frames
from ..protocol.moves import TAKEOVER
from ..storage.keyspace import F_WHERE
from . import lifecycle, routing
from .instance import STOPPED

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..offboard.interfaces import Epoch, Message
    from .host import Host
    from .instance import Instance


# Run operator v here from now on, under a new epoch. quiet: the others hear of it when it is in touch with
# its producers (words.py). blind: it begins without any producer, and speaks to no other host yet. why: see
# protocol/moves.py. prepare: called with it before any other host hears of it. MemoryError: there is no room
# for it, and nothing has happened.
def activate(
    host: "Host",
    v: int,
    number: int,
    quiet: bool = False,
    blind: bool = False,
    why: int = TAKEOVER,
    prepare: "Callable[[Instance], None] | None" = None,
) -> None:
    from .. import operators

    vertex = host.plan.vertices[v]
    epoch = (number, host.me)
    inst = host.instances.get(v)
    if inst:
        if inst.epoch >= epoch:
            return
        _end(host, inst, epoch)  # a former epoch of it, which does not know yet that it is over
    # Its code comes before the modules that the rest needs: while it is made is when the most room is needed.
    op = operators.find(vertex.kind)(vertex.params, vertex.ins, vertex.outs, host.plan.batch)
    from . import hosting

    inst = hosting.operator(host, vertex, epoch, op, True)
    hosting = None  # type: ignore[assignment]  # or it stays while this runs
    unload(
        "runtime.hosting",
        "runtime.restore",
        "runtime.gaps",
        "storage.checkpoint_file",
        "storage.reading",
        "data.msgpack_reader",
    )
    from . import incoming

    lifecycle.recall(inst)
    incoming.begin_recall(host, inst)
    if prepare:
        prepare(inst)
    if blind:
        lifecycle.blind(host, inst)
    if not quiet:
        moved(host, v, epoch, host.me, why)
    if host.words:
        host.words.begin(v, why)
    for e in inst.inputs:
        routing.connect(host, e)
    routing.again(host)
    incoming.recall(host, inst)


# A blind instance has heard that the operator runs elsewhere: it ends, as if it had never begun.
def release(host: "Host", inst: "Instance") -> None:
    assert inst.blind, "an instance that others know of is no secret"
    _end(host, inst, host.where[inst.vertex.index][:2])


# ... or that it does not: it begins in earnest.
def reveal(host: "Host", inst: "Instance") -> None:
    lifecycle.see(host, inst)
    host.words.say()
    for e in inst.inputs:
        routing.connect(host, e)
    if inst.status == STOPPED:
        return
    from . import incoming

    incoming.recall(host, inst)


# A newer epoch runs elsewhere: this one tells and takes nothing any more.
def stop(host: "Host", inst: "Instance", epoch: "Epoch") -> None:
    if inst.is_lake or inst.status == STOPPED:
        return
    _end(host, inst, epoch)
    mine(host, inst.vertex.index, epoch)


# Others know of an epoch here that this host does not know: its flash was erased. It starts again above that
# epoch. Otherwise every host would take it for the one that runs the operator, and none would run it.
def mine(host: "Host", v: int, epoch: "Epoch") -> None:
    if epoch[1] == host.me and v not in host.instances:
        known = lifecycle.noted(host, v)
        if (known[0][0] if known else 0) < epoch[0]:
            activate(host, v, epoch[0] + 1)


# This host came again with an empty store, and runs no operator before it has heard where that runs now.
def ask(host: "Host") -> None:
    for v in host.plan.vertices:
        if v.kind and host.where[v.index] == (1, host.me, host.me) and v.index not in host.instances:
            if host.me:
                host.exchange.say(0, frames.ASK, v.index, v.index)
            else:
                _asked(host, 0, (frames.ASK, v.index))


# A host that lost its store starts there what is nowhere else by now.
def _asked(host: "Host", sender: int, m: "Message") -> None:
    v = m[1]
    w = host.where[v]
    host.tell_where(sender, v, (max(2, w[0]) if w[2] == sender else w[0], w[1]))


def _end(host: "Host", inst: "Instance", epoch: "Epoch") -> None:
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
                r.local.cut_off()
    host.instances.pop(v, None)
    if host.where[v][:2] < tuple(epoch):
        moved(host, v, epoch, epoch[1])
    routing.again(host)
    held = [r for p in host.ports.values() for r in p.readers if r.local and r.local.sink is inst]
    assert not held, "a producer holds on to a consumer that has ended"


# why: None where it is not known yet. age: seconds since it moved.
def moved(host: "Host", v: int, epoch: "Epoch", to: int, why: int | None = None, age: int = 0) -> None:
    assert tuple(epoch) >= host.where[v][:2], "an operator is said to run under an earlier epoch"
    host.where[v] = (epoch[0], epoch[1], to)
    if why is None and to == host.me and host.words:
        why = host.words.why.pop(v, None)  # it began here, and another host was the first to tell of it
    host.note_why(v, why, age)
    host.store.put(F_WHERE + v, msgpack.dumps(list(host.where[v]) + list(host.moves.get(v, ()))))
    for number in host.exchange.links:
        host.tell_where(number, v)


# A newer epoch of operator v runs at host `to`.
def on_where(host: "Host", v: int, epoch: "Epoch", to: int, why: int | None = None, age: int = 0) -> None:
    moved(host, v, epoch, to, why, age)
    inst = host.instances.get(v)
    if inst and epoch > inst.epoch:
        _end(host, inst, epoch)
    for e in list(host.inputs.values()):
        if e.edge.src == v and e.port is None:
            routing.connect(host, e)  # perhaps it begins again where it was
    mine(host, v, epoch)
    routing.again(host)


# Tell another host where operators are that have moved: those that run here. The gateway tells of all that it
# knows, and is told of all: it may have lost its database, and some epoch may be known to one board alone.
def tell(host: "Host", sender: int) -> None:
    for v in range(len(host.where)):
        w = host.where[v]
        if w[0] > 1 and (w[2] == host.me or 0 in (host.me, sender)):
            host.tell_where(sender, v)


def _heard(host: "Host", sender: int, m: "Message") -> None:
    _, v, epoch, place, why, age = m
    known = why or None
    if tuple(epoch) > host.where[v][:2]:
        on_where(host, v, tuple(epoch), place, known, age)
    elif tuple(epoch) == host.where[v][:2] and known and v not in host.moves:
        moved(host, v, tuple(epoch), place, known, age)


HANDLERS = {frames.WHERE: _heard, frames.ASK: _asked}
