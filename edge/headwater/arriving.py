# The consumer's side of an edge whose producer is another host: what arrives, and what is said back.
#
# Only the present producer is listened to, and only once it has answered; it puts in what follows,
# and is asked again for what is missing.

from . import block, wire, wiring
from .const import const
from .position import FAR
from .refusals import BLOCK

_NAG_US = const(200000)  # a gap is asked for no more often than this
_GOT_US = const(300000)  # a Got that nobody waits for may wait this long


# Say GOT where it is due: at once where the producer may wait for room, else a few in one.
def acknowledge(host, e):
    if e.said < 0 or 2 * (e.ring.last - e.said) >= e.ring.cap or host.now - e.ack_us >= _GOT_US:
        got(host, e, 0)


def got(host, e, flags):
    if e.producer in host.exchange.links:
        e.depth = min(e.sink.depth, 255)
        flags += 2 * e.depth
        k = e.edge.index
        ring = e.ring
        host.exchange.say(e.producer, wire.GOT, k, k, e.inc, e.sink.epoch, ring.last, ring.room(), flags)
    e.ack = False
    e.said = e.ring.last


# Entries are missing between what is here and what the producer has sent. Behind another place than before
# they are asked for at once: frames that change their order would else cost a link that waits each time.
def _missing(host, e):
    last = e.ring.last
    if last != e.gap_xi or host.now - e.gap_us >= _NAG_US:
        e.gap_xi = last
        e.gap_us = host.now
        got(host, e, 1)


def on_data(host, sender, m):
    data = m[4]
    e = _input(host, sender, m)
    if e is None:
        return
    ring = e.ring
    try:
        xi, n = block.peek(data)
        if xi > ring.last + 1:
            _missing(host, e)
            return
        if not e.ack:
            e.ack = True
            e.ack_us = host.now
        skip = ring.last + 1 - xi
        if not skip and e.sink.is_lake and e.sink.pass_on(xi, n, data):
            return
        if skip >= n or n - skip > ring.room():
            return
        b = host.batch(e.alphabet)
        block.decode(data, 0, len(data), b)
        if b.ts_of(b.n - 1) >= FAR:
            raise block.BlockError("times that no clock shows")
    except block.BlockError:
        host.count(BLOCK)
        return
    ring.append(b, skip, n - skip)
    ring.tail = None
    ts = b.ts_of(n - 1)
    if ts > e.limit:
        e.limit = ts


# The input that a message of its present producer is about, or None.
def _input(host, sender, m):
    e = host.inputs.get(m[1])
    if e is not None and e.port is None and e.contact and m[2] == e.inc and sender == e.producer:
        return e


def on_answer(host, sender, m):
    _, edge, inc, epoch, own, first, last, bound, safe, name, holders = m
    e = host.inputs.get(edge)
    if e is None or e.port is not None:
        return
    if sender != e.producer:
        # It was the producer once. What it says of a newer epoch of ours is true all the same.
        if epoch > e.sink.epoch:
            host.stop(e.sink, epoch)
        return
    if inc != e.inc and not wiring.meet(host, e, inc, name, holders):
        return
    again = e.contact
    wiring.contact(host, e, epoch, first, name, holders)
    if again and e.contact and e.sink.is_lake:
        e.sink.announce(True)
    if e.contact and last <= e.ring.last and bound > e.limit:
        e.limit = bound
    elif again and last > e.ring.last:
        _missing(host, e)


def on_request(host, sender, m):
    e = _input(host, sender, m)
    if e:
        e.on_request(m[3], bytes(m[4]), m[5])


def on_bound(host, sender, m):
    e = _input(host, sender, m)
    if e is None:
        return
    if e.ring.last < m[3]:
        _missing(host, e)
    elif m[4] > e.limit:
        e.limit = m[4]


def on_gap(host, sender, m):
    e = _input(host, sender, m)
    if e and e.sink.is_lake:
        if m[3] <= e.ring.last + 1 <= m[4]:
            e.sink.step()
            e.sink.gap(m[3], m[4], m[5])
        # It is told again until a Got arrives: the first one may have been lost.
        e.ack = True
        e.said = -1


HANDLERS = {
    wire.DATA: on_data,
    wire.CR: on_request,
    wire.BOUND: on_bound,
    wire.GAP: on_gap,
    wire.ANSWER: on_answer,
}
