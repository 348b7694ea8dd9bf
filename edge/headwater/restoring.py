# An operator goes back, or ahead, to a checkpoint: its state, its inputs, its outputs with the
# transfer state that the checkpoint carries, and what its producers' names were then.

from . import block, operators, pack
from .batch import RESTART
from .host import DECISION, F_INC, F_OP, UNSETTLED, UNTOLD
from .instance import ASKING
from .operator import OperatorError
from .plan import FLASH, OUTSIDE, UNSAFE
from .ports import F_GAPS, F_READER, GAP_GIVEN_UP
from .position import further
from .refusals import CHECKPOINT
from .ring import Cursor


def made(host, v):
    return operators.find(v.kind)(v.params, v.ins, v.outs, host.plan.batch)


# Bring an instance to the permanent checkpoint in `data`. False, and nothing has changed, where it cannot
# be read: then it is as if there were none.
def restore(host, inst, data):
    from . import checkpoint_file

    found = checkpoint_file.read_permanent(inst.vertex, data)
    op = found and _operator(host, inst, found[0])
    if not op or not _whole(host, inst, found[0][3], found[1]):
        host.count(CHECKPOINT)
        return False
    body, parts, names = found
    _set(host, inst, body, op)
    outs = body[3]
    for p in inst.ports:
        start, blocks, turns = parts[p.number]
        p.ring.reset(outs[p.number] if not blocks else start)
        p.trim_to = 0
        w = host.batch(p.alphabet)
        unsync = 0
        for b in blocks:
            block.decode(b, 0, len(b), w)
            p.has_room(w.n)
            done = 0
            while done < w.n:
                n = w.n - done
                if turns:
                    while not turns[0]:
                        turns.pop(0)
                        unsync ^= 1
                    n = min(n, turns[0])
                    turns[0] -= n
                w.unsync = unsync
                p.ring.append(w, done, n)
                done += n
            w.n = 0
        p.ring.tail = None
        for rec in names[p.number]:
            adopt(p, rec, rec[7])
        p.trim()
        give_up_lost(p)
    inst.ck.pos = body[2]
    inst.made = checkpoint_file.epoch(data)
    return True


# The operator in the state of a checkpoint's body, or None where it refuses that.
def _operator(host, inst, body):
    op = made(host, inst.vertex)
    try:
        if body[5]:
            op.configure(body[5])
        op.restore(body[7], body[1])
    except OperatorError:
        return None
    return op


# Whether the blocks of a checkpoint are the entries that it says.
def _whole(host, inst, outs, parts):
    for p in inst.ports:
        start, blocks, turns = parts[p.number]
        if turns and sum(turns) != outs[p.number] - start:
            return False
        w = host.batch(p.alphabet)
        room = p.ring.cap
        try:
            for b in blocks:
                block.decode(b, 0, len(b), w)
                if w.xi != start + 1:
                    return False
                start += w.n
                room -= w.n
        except block.BlockError:
            return False
        if room < 0 or (blocks and start != outs[p.number]):
            return False
    return True


def _set(host, inst, body, op):
    form, version, pos, outs, flags, changed, front, state = body
    inst.run_by(op)
    inst.changed = changed
    inst.depth = 0
    inst.fired = pos[-2]
    inst.decided = pos[-1]
    inst.front = front
    inst.past = 0
    for e, xi, flag in zip(inst.inputs, pos, flags):
        e.reset(xi)
        e.closed = bool(flag[0])
        e.inc = flag[1]
        e.since = pos[-1]  # at the latest: an earlier checkpoint may speak of another incarnation
        e.from_ts = flag[2]


# A pending checkpoint turned out to be acknowledged: go on from there.
def from_pending(host, inst, c):
    from . import checkpoint_file

    body = checkpoint_file.read_body(inst.vertex, c.body)
    _set(host, inst, body, _operator(host, inst, body))
    for p in inst.ports:
        p.ring.reset(c.outs[p.number])
        p.trim_to = 0
        p.trim()
    reconnect(host, inst)


# It stands elsewhere than before: its producers and consumers are spoken to again.
def reconnect(host, inst):
    from . import wiring

    for e in inst.inputs:
        wiring.connect(host, e)
    for p in inst.ports:
        wiring.readers_again(host, p)


# Decisions that were stored here for an operator, behind its checkpoint; where too few hosts know of them,
# also those behind that of this host which is not known to be stored at the plan's level. What was to be
# proposed at another place than this was told to nobody, because no checkpoint of it is stored: no later life
# need come there, or has gone past it. Where nothing was taken yet no checkpoint is asked for.
def load_decisions(host, inst):
    inst.decisions = {}
    data = host.store.get_blob(DECISION + inst.vertex.index)
    for number, pos, content, granted in pack.loads(data) if data else ():
        here = pos == inst.position() or not (any(pos[:-1]) or further(inst.position(), pos))
        told = granted or here or host.plan.strategy == UNSAFE
        if told and (number > inst.decided or inst.few and granted):
            inst.decisions[number] = (pos, content, granted)


# What flash knows of an operator here. active: 1, 0 where it runs here no more, UNTOLD, UNSETTLED.
def note(host, v, epoch, active):
    host.store.put(F_OP + v, pack.dumps([epoch[0], epoch[1], active]))


# The same of an operator that runs here.
def note_running(host, inst):
    active = UNTOLD if inst.status == ASKING else 1
    if active == 1 and (inst.unsettled or not all([e.fenced for e in inst.inputs])):
        active = UNSETTLED
    note(host, inst.vertex.index, inst.epoch, active)


# What a restart, or a checkpoint taken elsewhere, knows of the readers, and of what the lake was not
# told yet: a gap that is declared counts as safe, so whoever goes on from there must tell it.
def adopt(port, rec, gaps=()):
    for r in port.readers:
        if r.edge.index == rec[0] and rec[1] == port.inc:
            if (rec[2], rec[3]) > r.epoch:
                r.epoch = (rec[2], rec[3])
            r.safe = max(r.safe, rec[4])
            if further(rec[5], r.name):
                r.name = rec[5]
                r.holders = tuple(rec[6])
            for gap in gaps:
                _adopt_gap(port, r, gap)


def _adopt_gap(port, r, gap):
    for had in r.gaps:
        if had[0] <= gap[0] and gap[1] <= had[1]:
            return
    r.gaps = [had for had in r.gaps if not (gap[0] <= had[0] and had[1] <= gap[1])] + [list(gap)]
    r.gaps.sort()
    port.host.store.put(F_GAPS + r.edge.index, pack.dumps(r.gaps))


# What this host declared in an earlier epoch of the operator: the checkpoint that it goes on from
# knows what still has to be told.
def forget_gaps(port):
    for r in port.readers:
        r.gaps = []
        port.host.store.drop(F_GAPS + r.edge.index)


# The log gives back what an earlier epoch of operator v put out here: that may have been on another course,
# and would stay for good. The checkpoint has what is not safe; only at level local it leaves that to the log.
def forget_spill(host, v):
    if host.plan.level:
        for k in range(len(host.plan.vertices[v].outs)):
            host.store.forget(v * 8 + k)


# After a restart: facts of the readers, and the part of the stream that lies in the log.
def mount(port):
    store = port.host.store
    for r in port.readers:
        data = store.get(F_READER + r.edge.index)
        if data:
            adopt(port, pack.loads(data))
        data = store.get(F_GAPS + r.edge.index)
        if data:
            r.gaps = pack.loads(data)
    if port.spills:
        port.sealed = store.tail(port.stream)[0]
        for r in port.readers:
            if r.edge.dst == OUTSIDE and port.sealed:
                r.safe = max(r.safe, store.first(port.stream) - 1)


# A new incarnation: nothing of the old one is left here.
def _restart(port):
    port.host.packed = None
    port.host.store.forget(port.stream)
    port.ring.reset(0)
    port.sealed = port.trim_to = 0
    port.crs = []
    for r in port.readers:
        r.safe = r.got = 0
        r.cur = Cursor()
        r.name = []
        r.holders = ()
        r.live = False
        port.save(r)
    forget_gaps(port)


# Outputs that lay in the flash of another board only are lost with it, as their author accepted:
# the lake is told.
def give_up_lost(port):
    first = port.first()
    for r in port.readers:
        if r.edge.dst == OUTSIDE and r.edge.durable == FLASH and r.safe < first:
            from . import gaps

            gaps.declare(port, r, r.safe + 1, first, GAP_GIVEN_UP)


# The numbering was lost: somebody knows entries of this incarnation that were never given here.
def begin_again(source):
    port = source.port
    port.inc = port.inc + 1 & 0xFFFFFFFFFFFFFFFF
    port.host.store.put(F_INC + source.vertex.index, port.inc.to_bytes(8, "little"))
    _restart(port)
    source.why = RESTART
