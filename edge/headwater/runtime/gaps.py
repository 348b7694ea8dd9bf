# Gaps: what an edge to the lake drops by its declared policy, or what is lost permanently. A gap is logged
# before the lake is told of it, and no consumer waits for its entries.

from ..data import msgpack
from ..data.batch import GAP_FULL
from ..offboard.compat import TYPE_CHECKING
from ..plan.model import DROP_OLDEST, GAPS_MAX, OUTSIDE
from ..storage.keyspace import F_GAPS

if TYPE_CHECKING:
    from .outputs import OutPort, Reader


# Whether one more gap, from `first` on, can be declared now.
def may_declare(r: "Reader", first: int, reason: int) -> bool:
    gaps = r.gaps
    return len(gaps) < GAPS_MAX or (gaps[-1][1] + 1 == first and gaps[-1][2] == reason)


# From now on the lake learns of these entries as a gap, and does not wait for them.
def declare(port: "OutPort", r: "Reader", first: int, last: int, reason: int) -> None:
    gaps = r.gaps
    if gaps and gaps[-1][1] + 1 == first and gaps[-1][2] == reason:
        gaps[-1][1] = last
    else:
        gaps.append([first, last, reason])
    port.host.store.put(F_GAPS + r.edge.index, msgpack.dumps(gaps))
    r.give_up(first, last)


# The ring has no room for n entries: edges to the lake that are declared to drop the oldest do so.
def make_room(port: "OutPort", n: int) -> None:
    ring = port.ring
    for r in port.readers:
        if ring.count:
            _drop(port, r, max(ring.first + n, ring.chunk_end()))


# The log is full: the same for one such edge. False where there is none, or nothing to drop.
def drop_oldest(port: "OutPort") -> bool:
    for r in port.readers:
        if _drop(port, r, max(r.safe, port.first()) + 8 * port.host.plan.batch):
            return True
    return False


# Drop the oldest entries up to there, as far as no other reader needs them. False where reader r may not drop
# any, or has none.
def _drop(port: "OutPort", r: "Reader", upto: int) -> bool:
    if r.edge.dst != OUTSIDE or r.edge.policy != DROP_OLDEST:
        return False
    upto = min([q.safe for q in port.readers if q is not r] + [port.ring.last, upto])
    if upto <= r.safe or not may_declare(r, r.safe + 1, GAP_FULL):
        return False
    declare(port, r, r.safe + 1, upto, GAP_FULL)
    port.trim()
    return True


# What this host declared in an earlier epoch of the operator is void: the checkpoint from which the operator
# goes on knows what the lake still has to be told.
def forget(port: "OutPort") -> None:
    for r in port.readers:
        r.owe([])
        port.host.store.drop(F_GAPS + r.edge.index)
