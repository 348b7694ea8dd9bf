# The gateway's end of an edge to the lake: takes entries in order, has them made durable, and sends
# Safe only for what is: in the outbox (durable="gateway", and "flash", where the board then trims its
# log), or in the lake itself (durable="lake").
#
# Entries reach the outbox as packed blocks, each of which begins where the last one ended. A block of
# another host that is exactly that passes through as it came, and nothing decodes it here: its seal
# proves that its own board packed it, and its head was read. What repeats entries that were taken, or
# comes while the outbox is full, goes through the input's ring: it is decoded, and packed again.
#
# The outbox is the gateway's database, or the simulator's: interfaces.Outbox.

from ..data import block
from ..data.batch import GAP_EARLIER, GAP_GATEWAY_LOST, Batch
from ..offboard.compat import TYPE_CHECKING
from ..plan.model import EXTENDED, LAKE
from ..storage.keyspace import F_AGAIN, F_MET
from .instance import RUNNING

if TYPE_CHECKING:
    from typing import Any

    from ..offboard.interfaces import Outbox, Readable
    from .gateway_host import GatewayHost
    from .inputs import InEdge
    from .outputs import OutPort

SAFE_US = 400000  # a Safe that frees little may wait this long,
_CHECKPOINT_US = 100000  # and this long where a checkpoint waits for it that nothing extends


class LakeSink:
    is_lake = True
    ports: "tuple[OutPort, ...]" = ()
    timers = False
    bounded = False
    anew = None
    status = RUNNING
    epoch = (1, 0)
    depth = 1 << 20  # what takes from it, in the lake, never goes back

    def __init__(self, host: "Any", e: "InEdge", outbox: "Outbox") -> None:
        self.host: "GatewayHost" = host
        self.inputs = [e]
        self.outbox = outbox
        self.batch = Batch(e.alphabet, host.plan.batch)
        self.body = bytearray(block.bound(e.alphabet, host.plan.batch))  # what was packed here last
        self.told = -1
        self.meets = -1  # where its source stood when it was met, until that is noted
        self.source = -1 if host.plan.vertices[e.edge.src].kind else F_MET + e.edge.index
        waits = host.plan.vertices[e.edge.src].kind and host.plan.strategy != EXTENDED
        self.wait_us = _CHECKPOINT_US if waits else SAFE_US
        e.belongs_to(self)
        e.renumber(outbox.latest(e.edge.index))

    # Where the stream goes on in this incarnation.
    def begin(self, inc: int) -> int:
        self.told = -1
        return self.outbox.durable(self.inputs[0].edge.index, inc)

    def position(self) -> list[int]:
        return []

    # The block `data` came, and holds the entries xi .. xi + n - 1, the next ones. True where it went on to
    # the outbox as it is. Otherwise nothing has changed, and its entries have to wait in the ring.
    def pass_on(self, xi: int, n: int, data: "Readable") -> bool:
        e = self.inputs[0]
        if self.outbox.full or n > self.batch.size:
            return False
        if e.ring.count:  # type: ignore[union-attr]  # it came from another host
            self._take()
        assert xi == e.cur.xi + 1, "a block that is not the next one"
        self.outbox.put(e.edge.index, e.inc, xi, n, data)
        e.skip(xi + n - 1)
        return True

    def step(self) -> int:
        e = self.inputs[0]
        did = 0
        if e.contact and not self.outbox.full:
            if e.port or e.ring.count:  # type: ignore[union-attr]  # one of them is there
                did = self._take()
            self.announce(False)
        return did

    # Everything that waits goes to the outbox -> entries taken.
    def _take(self) -> int:
        e = self.inputs[0]
        did = 0
        while True:
            if e.port:
                self._local_gaps(e, e.port)
            if e.waiting() <= 0:
                break
            n = e.read(self.batch, self.batch.size)
            if not n:
                break
            size = block.encode(self.batch, 0, n, self.body, 0)
            self.outbox.put(e.edge.index, e.inc, self.batch.xi, n, memoryview(self.body)[:size])
            e.taken(n)
            did += n
        return did

    # What follows up to `last` will never come.
    def gap(self, first: int, last: int, reason: int) -> None:
        e = self.inputs[0]
        self.outbox.gap(e.edge.index, e.inc, e.cur.xi + 1, last, reason)
        e.skip(last)

    # The producer holds nothing up to `first` any more, and this outbox does not know it. If this version has
    # not met the source before, an earlier one did not send it to the lake. Otherwise it was here, and went
    # with the gateway's database.
    def lost(self, first: int) -> None:
        store = self.host.store
        met = self.source < 0 or store.get(self.source) or store.get(F_AGAIN)
        self.gap(0, first, GAP_GATEWAY_LOST if met else GAP_EARLIER)

    # The producer has answered.
    def met(self) -> None:
        self.told = -1  # said again
        if self.source >= 0 and not self.host.store.get(self.source):
            self.meets = self.inputs[0].cur.xi

    def _local_gaps(self, e: "InEdge", port: "OutPort") -> None:
        for g in port.reader(e.edge).gaps:
            if g[0] <= e.cur.xi + 1 <= g[1]:
                self.gap(g[0], g[1], g[2])

    # Send Safe, if it is due. again: the producer has to hear it again.
    def announce(self, again: bool) -> None:
        e = self.inputs[0]
        if e.edge.durable == LAKE:
            xi = self.outbox.lake(e.edge.index, e.inc)
        else:
            xi = self.outbox.durable(e.edge.index, e.inc)
        if self.meets >= 0 and self.outbox.durable(e.edge.index, e.inc) >= self.meets:
            # Not before what was noted of its beginning is durable: a later boot would note something else.
            self.host.store.put(self.source, b"\1")
            self.meets = -1
        # A few in one, as long as the producer has room, and all ends at once: one frame for each host.
        host = self.host
        waited_us = host.now - host.safe_us
        if (
            again
            or xi > self.told
            and (
                self.told < 0
                or waited_us >= self.wait_us
                or not waited_us
                or 4 * (xi - self.told) >= e.edge.cap
            )
        ):
            self.told = xi
            host.acknowledged()
            # A Safe is a Got; where it does not tell all, a Got is sent with it.
            if e.ring and e.said >= 0 and xi == e.ring.last:
                e.told(xi)
            else:
                e.hurry()
            e.tell_safe(xi, [], (0,), 0)
