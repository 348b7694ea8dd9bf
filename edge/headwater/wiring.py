# Who takes from whom: the inputs of this host, and the ports here or elsewhere that they take from.
#
# Who consumes speaks first, and takes and acknowledges nothing before the producer has answered:
# only then does the producer refuse whoever consumed before.

from .instance import ASKING, FETCHING, STOPPED
from .plan import OUTSIDE, UNSAFE
from .position import further, newer
from .refusals import BEHIND
from .ring import Cursor
from .wire import HELLO


# The port of this host that an input takes from, or None.
def port_of(host, e):
    return host.ports.get((e.edge.src, e.edge.sport))


# Connect what runs here with what runs here, and with what runs elsewhere.
def wire(host):
    for e in list(host.inputs.values()):
        connect(host, e)
    arrange(host)


# The same where something has begun, ended or moved.
def again(host):
    for e in list(host.inputs.values()):
        port = port_of(host, e)
        if port is not e.port or (port is None and e.producer != host.where[e.edge.src][2]):
            connect(host, e)
    arrange(host)


# The order in which things run, and whose boundaries somebody needs.
def arrange(host):
    instances = host.instances
    order = [instances[v] for v in host.plan.order if v in instances] + host.ends
    host.scheduler.arrange(order)
    for inst in order[::-1]:
        inst.bounded = False
        for p in inst.ports:
            for r in p.readers:
                e = r.edge
                if e.dst == OUTSIDE:
                    continue
                sink = r.local.sink if r.local else None
                if sink is None or len(sink.inputs) > 1 or sink.timers or sink.bounded or e.delay_us:
                    inst.bounded = True


def connect(host, e):
    if e.sink.status == STOPPED:
        return  # what another input was told has stopped it
    e.contact = False
    port = port_of(host, e)
    if port is not None:
        e.attach(port)
        r = port.reader(e.edge)
        r.local = e
        r.host = host.me
    else:
        e.detach()
    hello(host, e)


# The consumer speaks, to a port of this host or to another host.
def hello(host, e):
    port = e.port
    if port is None:
        e.producer = host.where[e.edge.src][2]
        k = e.edge.index
        at = e.cur.xi + 1
        if host.exchange.say(e.producer, HELLO, k, k, e.inc, e.sink.epoch, at, e.sink.position()):
            ask_other(host, e)
        return
    r = port.reader(e.edge)
    if not port.fence(r, e.sink.epoch):
        host.stop(e.sink, r.epoch)
        return
    if e.inc != port.inc and not meet(host, e, port.inc, r.name, r.holders):
        ask_other(host, e)
        return
    port.on_hello(r, e.cur.xi + 1)
    r.live = False
    contact(host, e, r.epoch, port.first_for(r), r.name, r.holders)
    for cr in port.crs:
        if cr[0] > e.cur.xi or cr[2]:
            e.on_request(cr[0], cr[1], cr[2])


# Where the producer began another incarnation: ask for the decision to go on with it.
def ask_other(host, e):
    if e.other:
        from . import decisions

        decisions.other(host, e)


# The producer's stream has another incarnation than the one taken so far. True where that is harmless:
# the operator begins (in this boot; it has a checkpoint of that at once, so that it is known in later
# ones), or the lake simply begins another. Otherwise it takes a decision, unless a checkpoint that the
# producer names knows better.
def meet(host, e, inc, name, holders):
    sink = e.sink
    if sink.is_lake:
        e.renumber(inc)
        return True
    if sink.status == ASKING and sink.first:
        return False  # perhaps it does not begin
    if e.inc == 0 and e.cur.xi == 0 and (sink.first or host.plan.strategy == UNSAFE):
        e.renumber(inc)
        if sink.first and host.plan.strategy != UNSAFE:
            # It is known from now on with which incarnations of its inputs the operator begins.
            if not sink.ck.pos and not sink.front and not sink.decided:
                sink.ck.now()
        return True
    if name and (not sink.ck.pos or further(name, sink.position())):
        seek(host, sink, name, holders)
    elif not sink.recalling:
        e.other = inc
    return False


# The operator goes on from a checkpoint that a producer names, once it has it.
def seek(host, sink, name, holders, epoch=(0, 0)):
    if sink.status != FETCHING or newer((epoch, name), (sink.target_epoch, sink.target)):
        from . import lifecycle

        lifecycle.seek(sink, name, epoch, holders)
        host.fetch(sink)
    elif (epoch, name) == (sink.target_epoch, sink.target):
        sink.fetch_from += [h for h in holders if h not in sink.fetch_from]


# The producer answered: it knows our epoch from now on. Its name may be further than we are.
def contact(host, e, epoch, first, name, holders):
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
        return  # spoken to again until its first checkpoint is stored
    if e.cur.xi < first:
        if sink.is_lake:
            sink.lost(first)
        elif _began(e, name):
            host.count(BEHIND)
            return
        else:
            e.reset(first)  # its source numbers on from a former version of the process
    e.contact = True
    if not e.fenced:
        e.fenced = True
        from . import lifecycle

        lifecycle.note_running(host, sink)
    e.ack = True
    e.said = -1
    if sink.is_lake:
        sink.met()
    else:
        sink.ck.announce()


# Only the checkpoint with which an operator begins says which incarnations it takes. Until that is stored at
# the plan's level it takes nothing: another host could not begin as it did, and would wait for ever, since
# consumers have entries of it already.
def _begins(sink):
    if not sink.ck.pos or sink.ck.safe_pos or sink.front:
        return False
    # Of a source that numbers on from an earlier version its inputs do not begin at 0.
    return not any([p.ring.last for p in sink.ports])


# An operator has taken something of this input, here or elsewhere. The checkpoint of its beginning says of an
# input only which incarnation it has.
def _began(e, name):
    sink = e.sink
    k = sink.inputs.index(e)
    pos = sink.ck.pos
    return e.cur.xi or (name and name[k]) or (pos and pos[k])


# The port jumped: its local consumers look at it anew, remote ones are spoken to again.
def readers_again(host, p):
    p.crs = []
    p.bound = 0
    for r in p.readers:
        if r.local:
            connect(host, r.local)
        elif r.live:
            r.cur = Cursor(r.got)
            p.answer(r)
