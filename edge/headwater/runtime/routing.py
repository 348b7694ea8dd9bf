# Which input takes from which port: the inputs of this host, and the ports here or elsewhere.
#
# The consumer speaks first, and takes and acknowledges nothing before the producer has answered: only then
# does the producer refuse earlier epochs of the consumer. The states of this contact: inputs.py, outputs.py.

from ..offboard.compat import TYPE_CHECKING
from ..plan.model import OUTSIDE, UNSAFE
from ..protocol.frames import HELLO
from ..protocol.position import further, newer
from ..protocol.refusals import BEHIND
from .instance import FETCHING, RECALLING, STOPPED

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ..offboard.interfaces import Epoch, Position
    from .host import Host
    from .inputs import InEdge
    from .instance import Instance
    from .outputs import OutPort


# The port of this host that an input takes from, or None.
def port_of(host: "Host", e: "InEdge") -> "OutPort | None":
    return host.ports.get((e.edge.src, e.edge.sport))


# Connect every input of this host to its producer, here or elsewhere.
def wire(host: "Host") -> None:
    for e in list(host.inputs.values()):
        connect(host, e)
    arrange(host)


# The same for inputs whose producer has begun, ended or moved.
def again(host: "Host") -> None:
    for e in list(host.inputs.values()):
        port = port_of(host, e)
        if port is not e.port or (port is None and e.producer != host.where[e.edge.src][2]):
            connect(host, e)
    arrange(host)


# The order in which instances run, and which of them need to compute boundaries: a consumer elsewhere, or one
# here that joins, has timers or passes them on, waits for them.
def arrange(host: "Host") -> None:
    instances = host.instances
    running = [instances[v] for v in host.plan.order if v in instances]
    order: "list[Any]" = list(running)
    host.scheduler.arrange(order + host.ends)
    for inst in running[::-1]:
        # An alarm counts a boundary as a sign of life.
        needed = host.signals is not None and host.signals.watches(inst.vertex.index)
        for p in inst.ports:
            for r in p.readers:
                e = r.edge
                if e.dst == OUTSIDE:
                    continue
                sink = r.local.sink if r.local else None
                if sink is None or len(sink.inputs) > 1 or sink.timers or sink.bounded or e.delay_us:
                    needed = True
        inst.compute_bounds(needed)


def connect(host: "Host", e: "InEdge") -> None:
    if e.sink.status == STOPPED:
        return  # an answer to another of its inputs has stopped it
    e.lose()
    port = port_of(host, e)
    if port is not None:
        e.attach(port)
        port.reader(e.edge).join(e, host.me)
    else:
        e.detach()
    hello(host, e)


# The consumer speaks, to a port of this host or to another host.
def hello(host: "Host", e: "InEdge") -> None:
    port = e.port
    if port is None:
        e.ask_at(host.where[e.edge.src][2])
        if not e.sink.is_lake and e.sink.blind:
            return  # it asks whether it runs elsewhere, before it raises the epoch anywhere
        k = e.edge.index
        at = e.cur.xi + 1
        if host.exchange.say(e.producer, HELLO, k, k, e.inc, e.sink.epoch, at, e.sink.position()):
            if host.taking:
                host.taking.greet(e)
            ask_other(host, e)
        return
    r = port.reader(e.edge)
    if not port.fence(r, e.sink.epoch):
        host.stop(e.sink, r.epoch)
        return
    if port.hidden():
        return
    if e.sink.anew:
        e.sink.anew.hear(e, port.inc, r.epoch, max(port.first_for(r), r.safe), r.name)
        return
    if e.inc != port.inc and not meet(host, e, port.inc, r.name, r.holders):
        ask_other(host, e)
        return
    port.on_hello(r, e.cur.xi + 1)
    contact(host, e, r.epoch, port.first_for(r), r.name, r.holders)
    for cr in port.crs:
        if cr[0] > e.cur.xi or cr[2]:
            e.on_request(cr[0], cr[1], cr[2])


# Where the producer began another incarnation: ask for the decision to go on with it.
def ask_other(host: "Host", e: "InEdge") -> None:
    if e.other:
        from . import decisions

        decisions.other(host, e)


# The producer's stream has another incarnation than the one taken so far. Return True if that is harmless:
# the operator begins (in this boot, and has promised nothing; a checkpoint is taken at once, so that later
# boots know of it), the input is closed, or the consumer is the lake. Otherwise a decision is required, but
# not where the producer names a checkpoint that knows better. It is required, too, where an input was closed
# and opened again before it met its source: the checkpoint of that says that it has met none.
def meet(host: "Host", e: "InEdge", inc: int, name: "Position", holders: "Sequence[int]") -> bool:
    sink = e.sink
    if sink.is_lake:
        e.renumber(inc)
        return True
    if sink.status == RECALLING and sink.first:
        return False  # there is no room yet for what it has to store
    begins = sink.first and (e.closed or not (sink.decided or _promised(host, e)))
    if e.inc == 0 and e.cur.xi == 0 and (begins or host.plan.strategy == UNSAFE):
        e.renumber(inc)
        if sink.first and host.plan.strategy != UNSAFE:
            # From now on later boots know with which incarnations of its inputs the operator begins.
            if not sink.ck.pos and not sink.front and not sink.decided:
                sink.ck.now()
        return True
    if name and (not sink.ck.pos or further(name, sink.position())):
        seek(host, sink, name, holders)
    elif not sink.recalling:
        e.hear_other(inc)
    return False


# Whether the operator has given a boundary, by what the producer of this input promised in an incarnation of
# which it has taken nothing.
def _promised(host: "Host", e: "InEdge") -> bool:
    sink = e.sink
    return bool(host.plan.vertices[e.edge.src].kind and (sink.front or any([p.bound for p in sink.ports])))


# The operator goes on from a checkpoint that a producer or a keeper names, once it has it.
def seek(
    host: "Host", sink: "Instance", name: "Position", holders: "Sequence[int]", epoch: "Epoch" = (0, 0)
) -> None:
    if sink.status != FETCHING or newer((epoch, name), (sink.target_epoch, sink.target)):
        from . import lifecycle

        lifecycle.seek(sink, name, epoch, holders)
        host.fetch(sink)
    elif (epoch, name) == (sink.target_epoch, sink.target):
        sink.fetch_also_from(holders)


# The producer answered: from now on it knows the epoch of the sink. `name`: of the furthest checkpoint of the
# sink of which it knows. first: entries up to there it cannot give any more.
def contact(
    host: "Host", e: "InEdge", epoch: "Epoch", first: int, name: "Position", holders: "Sequence[int]"
) -> None:
    sink = e.sink
    if epoch > sink.epoch:
        host.stop(sink, epoch)
        return
    if epoch < sink.epoch:
        return  # an answer to what was said under an older epoch, or of another incarnation
    if name and not sink.is_lake and further(name, sink.position()):
        seek(host, sink, name, holders)
        return
    if not sink.is_lake and _begins(sink):
        return  # HELLO is sent again until its first checkpoint is stored
    if e.cur.xi < first:
        if sink.is_lake:
            sink.lost(first)
        elif _began(e, name):
            host.count(BEHIND)
            return
        else:
            e.reset(first)  # its source numbers on from an earlier version of the process
    if e.meet():
        from . import lifecycle

        lifecycle.note_running(host, sink)
    if sink.is_lake:
        sink.met()
    else:
        sink.ck.announce()


# Only the checkpoint with which an operator begins says which incarnations it takes. Until that is stored at
# the plan's level it takes nothing: otherwise another host could not begin as it did, and would wait for
# ever, since consumers have entries of it already.
def _begins(sink: "Instance") -> bool:
    if not sink.ck.pos or sink.ck.safe_pos or sink.front:
        return False
    # Where a source numbers on from an earlier version of the process, its inputs do not begin at 0.
    return not any([p.ring.last for p in sink.ports])


# Whether the operator has taken something of this input, here or elsewhere. The checkpoint of its beginning
# says of an input only which incarnation it has.
def _began(e: "InEdge", name: "Position") -> bool:
    sink = e.sink
    k = sink.inputs.index(e)
    pos = sink.ck.pos
    return bool(e.cur.xi or (name and name[k]) or (pos and pos[k]))


# The port jumped: its consumers here connect again, those elsewhere are sent what follows again.
def readers_again(host: "Host", p: "OutPort") -> None:
    p.jumped()
    for r in p.readers:
        if r.local:
            connect(host, r.local)
        elif r.live:
            r.seek(r.got)
            p.answer(r)
