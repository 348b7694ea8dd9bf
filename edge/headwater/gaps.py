# Gaps: what an edge to the lake drops by the policy of its author, or what is lost for good. A gap is logged
# before it is told, and nobody waits for its entries.

from . import pack
from .batch import GAP_FULL
from .keyspace import F_GAPS
from .plan import DROP_OLDEST, GAPS_MAX, OUTSIDE


# Whether one more gap, from `first` on, can be declared now.
def may_declare(r, first, reason):
    gaps = r.gaps
    return len(gaps) < GAPS_MAX or (gaps[-1][1] + 1 == first and gaps[-1][2] == reason)


# From now on the lake learns of these entries as a gap; nobody waits for them.
def declare(port, r, first, last, reason):
    gaps = r.gaps
    if gaps and gaps[-1][1] + 1 == first and gaps[-1][2] == reason:
        gaps[-1][1] = last
    else:
        gaps.append([first, last, reason])
    port.host.store.put(F_GAPS + r.edge.index, pack.dumps(gaps))
    if last > r.safe:
        r.safe = last
    if r.cur.xi >= first - 1 and r.cur.xi < last:
        r.cur.xi = first - 1


# A full edge to the lake may drop, if its author said so; the gap is logged before it is told.
def make_room(port, n):
    ring = port.ring
    for r in port.readers:
        if ring.count:
            _let_go(port, r, max(ring.first + n, ring.chunk_end()))


# The log is full. An edge to the lake whose author prefers the newest lets go of the oldest.
def let_oldest_go(port):
    for r in port.readers:
        if _let_go(port, r, max(r.safe, port.first()) + 8 * port.host.plan.batch):
            return True
    return False


# Let go of the oldest up to there, as far as no other reader needs them. False where reader r may not, or has
# none.
def _let_go(port, r, upto):
    if r.edge.dst != OUTSIDE or r.edge.policy != DROP_OLDEST:
        return False
    upto = min([q.safe for q in port.readers if q is not r] + [port.ring.last, upto])
    if upto <= r.safe or not may_declare(r, r.safe + 1, GAP_FULL):
        return False
    declare(port, r, r.safe + 1, upto, GAP_FULL)
    port.trim()
    return True


# What this host declared in an earlier epoch of the operator: the checkpoint that it goes on from
# knows what still has to be told.
def forget(port):
    for r in port.readers:
        r.gaps = []
        port.host.store.drop(F_GAPS + r.edge.index)
