# What the log of a host must be able to hold, whatever happens: who keeps what, and how large it gets.
#
# There is one formula, and this is it: validation refuses a host whose flash cannot hold this beside its
# samples, and a host that starts reserves exactly this before it accepts a sample. So a full log of
# samples never leaves a checkpoint, a decision or a fact without room. All sizes are upper bounds; the
# bytes of an operator's state and parameters were measured when the process was checked.
#
# Hosts need this at their start only.

from ..data.block import longest
from ..offboard.compat import TYPE_CHECKING
from ..plan.model import (
    DROP_OLDEST,
    ECOC,
    FLASH,
    GAPS_MAX,
    OUTSIDE,
    SPILL,
    UNSAFE,
)
from .arrival import parts
from .keyspace import LOST_MAX
from .log import sectors_for

if TYPE_CHECKING:
    from ..plan.model import Edge, Plan, Vertex

_NUMBER = 9  # bytes of a number in msgpack, at most
_SPLITS = 4  # places where a run of entries is cut into more blocks than its batches
_GAPS = 3 + GAPS_MAX * (2 + 2 * _NUMBER)
_SMALL = 640  # the board's own: a switch under way, the last crash, what it knows of its battery


# Bytes of the head and the state of a checkpoint: a pending one is no larger.
def body_bytes(plan: "Plan", v: "Vertex") -> int:
    inputs = len(v.ins)
    return 116 + _NUMBER * (inputs + 2 + len(v.outs)) + 24 * inputs + v.changed_bytes + v.state_bytes


# Bytes of a permanent checkpoint, its transfer state at its bound.
def checkpoint_bytes(plan: "Plan", v: "Vertex") -> int:
    total = body_bytes(plan, v) + 16
    boards = len(set([u.hosts[0] for u in plan.vertices if not u.kind]))
    for k in range(len(v.outs)):
        edges = plan.outs(v.index, k)
        cap = max([plan.batch] + [e.cap for e in edges])
        blocks = (cap + plan.batch - 1) // plan.batch + _SPLITS
        total += 32 + blocks * (longest(v.outs[k], 0) + 4) + cap * (v.outs[k].width + 4)
        if boards > 1:
            total += cap  # a join of theirs may give entries that are stamped synchronised and not, in turn
        for e in edges:
            total += _record_bytes(plan, e) + (_GAPS if _may_drop(plan, e) else 1)
    return total


# ... of what it has decided, where there are no checkpoints.
def decided_bytes(v: "Vertex") -> int:
    return v.changed_bytes + 32


# What a port remembers of the consumer of an edge, its gaps left out.
def _record_bytes(plan: "Plan", e: "Edge") -> int:
    inputs = len(plan.vertices[e.dst].ins) if e.dst != OUTSIDE else 0
    return 34 + _NUMBER * (inputs + 2)


def _may_drop(plan: "Plan", e: "Edge") -> bool:
    return e.dst == OUTSIDE and (e.policy == DROP_OLDEST or e.durable == FLASH)


def _spills(plan: "Plan", v: "Vertex", k: int) -> bool:
    for e in plan.outs(v.index, k):
        if e.policy == SPILL or (e.dst == OUTSIDE and e.durable == FLASH):
            return True
    return not v.kind


# Bytes of the largest checkpoint that may come to host `me`: one kept for another host, or to go on from.
def arriving_bytes(plan: "Plan", me: int) -> int:
    sizes = [0]
    for v in plan.vertices:
        keepers = plan.keepers(v.index) if v.kind and plan.strategy != UNSAFE else []
        if me in keepers and len(keepers) > 1:
            sizes.append(checkpoint_bytes(plan, v))
    return max(sizes)


# Sizes of all blobs that host `me` may have to hold at once; the one that is being written is there twice,
# and one that comes from elsewhere a third time, in parts.
# deployment: bytes of the deployment that it runs; another one as large may wait beside it.
def blobs(plan: "Plan", me: int, deployment: int = 0) -> list[int]:
    sizes = [deployment, deployment, _SMALL] if deployment else []
    for v in plan.vertices:
        if not v.kind:
            continue
        if plan.strategy == UNSAFE:
            if me in v.hosts:
                sizes.append(decided_bytes(v))
        elif me in v.hosts:
            whole = checkpoint_bytes(plan, v)
            sizes.append(whole)
            if plan.level_of(v.index):
                sizes.append(whole)
            if plan.strategy >= ECOC:
                sizes += [body_bytes(plan, v) + 16] * 2
        elif me in plan.keepers(v.index):
            sizes.append(checkpoint_bytes(plan, v))
    if sizes:
        sizes.append(max(sizes))
    return sizes + parts(arriving_bytes(plan, me))


# (streams, bytes of the table at the head of every sector) of host `me`, at most.
def table(plan: "Plan", me: int) -> tuple[int, int]:
    streams = 0
    # Notes; boot, floor, switch, drained, that it came again; the board's own blobs.
    size = 26 + 24 + 8 + 12 + 13 + 12 + 5 + len(plan.vertices) + 5 * 20
    if any([a.host == me for a in plan.alarms]):
        size += 4 + len(plan.alarms)
    size += 20 * min(LOST_MAX, len(plan.hosts) - 1)
    size += 20 * len(parts(arriving_bytes(plan, me)))
    for v in plan.vertices:
        here = me in v.hosts
        moves = len(v.hosts) > 1
        if v.kind and moves:
            size += 20  # where it runs, why and since when
        if v.kind and not here:
            if plan.level_of(v.index) and me in plan.keepers(v.index):
                size += 20
            continue
        if not here:
            continue
        if v.kind:
            size += 20 * (2 + (plan.level_of(v.index) > 0) + 2 * (plan.strategy >= ECOC)) + (
                12 if moves else 0
            )
        else:
            size += 12
        for k in range(len(v.outs)):
            spills = _spills(plan, v, k)
            if spills:
                streams += 1
                size += 32
            for e in plan.outs(v.index, k):
                if spills:
                    size += 4 + _record_bytes(plan, e)
                elif e.dst != OUTSIDE and len(plan.vertices[e.dst].hosts) > 1:
                    size += 26  # its epoch
                if _may_drop(plan, e):
                    size += 4 + _GAPS
    return streams, (size + 24 * (size // 300) + 15) & ~15


# Bytes of a sector that host `me` can use for records.
def usable_bytes(plan: "Plan", me: int, sector_bytes: int = 4096) -> int:
    streams, size = table(plan, me)
    return sector_bytes - 32 - 64 - 16 * streams - size


# Bytes of the deployment of a plan of so many bytes, for any of its hosts.
def deployment_bytes(plan_bytes: int, hosts: int) -> int:
    return plan_bytes + 48 * hosts + 16


# Sectors that streams leave alone.
def reserve_sectors(plan: "Plan", me: int, deployment: int = 0, sector_bytes: int = 4096) -> int:
    usable = max(64, usable_bytes(plan, me, sector_bytes))
    return 3 + sectors_for(blobs(plan, me, deployment), usable)


# Sectors that a log of host `me` needs at least: what it holds, what it has to keep free, and samples for
# one interval of each source, or as many as its log is declared to hold.
def sectors(plan: "Plan", me: int, deployment: int = 0, sector_bytes: int = 4096) -> int:
    usable = max(64, usable_bytes(plan, me, sector_bytes))
    room = 0
    for v in plan.vertices:
        if not v.kind and v.hosts[0] == me:
            run = longest(v.outs[0], plan.batch, not v.rate_mhz) + 42
            room += v.log_bytes or (plan.every // plan.batch + 2) * run
    return max(5, reserve_sectors(plan, me, deployment, sector_bytes) + 2 + -(-room // usable))
