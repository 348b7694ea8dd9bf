# The consumer's side of an edge whose producer is another host: what arrives, and what is sent back.
#
# Only the present producer is listened to, and only once it has answered. What it sends next is appended;
# what is missing is asked for again.

from ..data import block
from ..offboard.compat import TYPE_CHECKING, const
from ..protocol import frames
from ..protocol.position import FAR
from ..protocol.refusals import BLOCK

if TYPE_CHECKING:
    from ..data.ring import Ring
    from ..offboard.interfaces import Message
    from .host import Host
    from .inputs import InEdge

_NAG_US = const(200000)  # a gap is asked for no more often than this
_GOT_US = const(300000)  # a Got for which no producer waits may wait this long


# Send the Got that is due: at once where the producer may wait for room, otherwise one for several frames.
def acknowledge(host: "Host", e: "InEdge") -> None:
    ring: "Ring" = e.ring  # type: ignore[assignment]
    if e.said < 0 or 2 * (ring.last - e.said) >= ring.cap or host.now - e.ack_us >= _GOT_US:
        got(host, e, 0)


# flags: 1 where the producer has to send again what follows.
def got(host: "Host", e: "InEdge", flags: int) -> None:
    ring: "Ring" = e.ring  # type: ignore[assignment]
    depth = -1
    if e.producer in host.exchange.links:
        depth = min(e.sink.depth, 255)
        flags += 2 * depth
        k = e.edge.index
        host.exchange.say(e.producer, frames.GOT, k, k, e.inc, e.sink.epoch, ring.last, ring.room(), flags)
    e.told(ring.last, depth)


# Entries are missing between what is here and what the producer has sent.
def _missing(host: "Host", e: "InEdge") -> None:
    if e.asks(host.now, _NAG_US):
        got(host, e, 1)


def on_data(host: "Host", sender: int, m: "Message") -> None:
    data = m[4]
    e = _input(host, sender, m)
    if e is None:
        return
    ring: "Ring" = e.ring  # type: ignore[assignment]
    try:
        xi, n = block.peek(data)
        if xi > ring.last + 1:
            _missing(host, e)
            return
        if not e.ack:
            e.owe_got(host.now)
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
    e.promised(b.ts_of(n - 1))


# The input that a message of its present producer is about, or None.
def _input(host: "Host", sender: int, m: "Message") -> "InEdge | None":
    e = host.inputs.get(m[1])
    if e is not None and e.port is None and e.contact and m[2] == e.inc and sender == e.producer:
        return e
    return None


def on_answer(host: "Host", sender: int, m: "Message") -> None:
    from . import routing

    _, edge, inc, epoch, own, first, last, bound, safe, name, holders = m
    e = host.inputs.get(edge)
    if e is None or e.port is not None:
        return
    if sender != e.producer:
        # It was the producer once. What it tells of a newer epoch of ours is true all the same.
        if epoch > e.sink.epoch:
            host.stop(e.sink, epoch)
        return
    if e.sink.anew:
        e.sink.anew.hear(e, inc, epoch, max(first, safe), name)
        return
    if inc != e.inc and not routing.meet(host, e, inc, name, holders):
        return
    again = e.contact
    routing.contact(host, e, epoch, first, name, holders)
    if again and e.contact and e.sink.is_lake:
        e.sink.announce(True)
    ring: "Ring" = e.ring  # type: ignore[assignment]
    if e.contact and last <= ring.last:
        e.promised(bound)
    elif again and last > ring.last:
        _missing(host, e)


def on_request(host: "Host", sender: int, m: "Message") -> None:
    e = _input(host, sender, m)
    if e:
        e.on_request(m[3], bytes(m[4]), m[5])


def on_bound(host: "Host", sender: int, m: "Message") -> None:
    e = _input(host, sender, m)
    if e is None:
        return
    if e.ring.last < m[3]:  # type: ignore[union-attr]
        _missing(host, e)
    else:
        e.promised(m[4])


def on_gap(host: "Host", sender: int, m: "Message") -> None:
    e = _input(host, sender, m)
    if e and e.sink.is_lake:
        if m[3] <= e.ring.last + 1 <= m[4]:  # type: ignore[union-attr]
            e.sink.step()
            e.sink.gap(m[3], m[4], m[5])
        # A gap is sent again until a Got arrives: the first one may have been lost.
        e.urge()


HANDLERS = {
    frames.DATA: on_data,
    frames.CR: on_request,
    frames.BOUND: on_bound,
    frames.GAP: on_gap,
    frames.ANSWER: on_answer,
}
