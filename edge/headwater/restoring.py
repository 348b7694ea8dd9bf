# An operator goes back, or ahead, to a checkpoint: its state, its inputs, its outputs with the
# transfer state that the checkpoint carries, and what its producers' names were then.

from . import block, operators, pack
from .batch import GAP_GIVEN_UP
from .keyspace import B_DECISIONS, F_GAPS, F_READER
from .operator import OperatorError
from .plan import FLASH, OUTSIDE, UNSAFE
from .position import further
from .refusals import CHECKPOINT


def made(host, v):
    return operators.find(v.kind)(v.params, v.ins, v.outs, host.plan.batch)


# Bring an instance to the permanent checkpoint in `data`. False, and nothing has changed, where it cannot
# be read: then it is as if there were none.
def restore(host, inst, data):
    from . import checkpoint_file

    found = checkpoint_file.read_permanent(inst.vertex, data)
    op = found and _operator(host, inst, found)
    if not op or not _whole(host, inst, found):
        host.count(CHECKPOINT)
        return False
    _set(inst, found, op)
    for p in inst.ports:
        start, blocks, turns = found.parts[p.number]
        p.ring.reset(found.outs[p.number] if not blocks else start)
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
        for rec in found.names[p.number]:
            adopt(p, rec, rec[7])
        p.trim()
        give_up_lost(p)
    inst.ck.pos = found.pos
    inst.made = found.epoch
    return True


# The operator in the state of a checkpoint, or None where it refuses that.
def _operator(host, inst, found):
    op = made(host, inst.vertex)
    try:
        if found.changed:
            op.configure(found.changed)
        op.restore(found.state, found.version)
    except OperatorError:
        return None
    return op


# Whether the blocks of a checkpoint are the entries that it says.
def _whole(host, inst, found):
    for p in inst.ports:
        start, blocks, turns = found.parts[p.number]
        end = found.outs[p.number]
        if turns and sum(turns) != end - start:
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
        if room < 0 or (blocks and start != end):
            return False
    return True


def _set(inst, found, op):
    pos = found.pos
    inst.run_by(op)
    inst.changed = found.changed
    inst.depth = 0
    inst.fired = pos[-2]
    inst.decided = pos[-1]
    inst.front = found.front
    inst.past = 0
    for e, xi, flag in zip(inst.inputs, pos, found.inputs):
        e.reset(xi)
        e.closed = bool(flag[0])
        e.inc = flag[1]
        e.since = pos[-1]  # at the latest: an earlier checkpoint may speak of another incarnation
        e.from_ts = flag[2]


# A pending checkpoint turned out to be acknowledged: go on from there.
def from_pending(host, inst, c):
    from . import checkpoint_file

    found = checkpoint_file.read_body(inst.vertex, c.body)
    _set(inst, found, _operator(host, inst, found))
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
    data = host.store.get_blob(B_DECISIONS + inst.vertex.index)
    for number, pos, content, granted in pack.loads(data) if data else ():
        here = pos == inst.position() or not (any(pos[:-1]) or further(inst.position(), pos))
        told = granted or here or host.plan.strategy == UNSAFE
        if told and (number > inst.decided or inst.few and granted):
            inst.decisions[number] = (pos, content, granted)


# What a restart, or a checkpoint taken elsewhere, knows of the readers, and of what the lake was not
# told yet: a gap that is declared counts as safe, so whoever goes on from there must tell it.
def adopt(port, rec, gaps=()):
    edge, inc, number, at, safe, name, holders = rec[:7]
    for r in port.readers:
        if r.edge.index == edge and inc == port.inc:
            if (number, at) > r.epoch:
                r.epoch = (number, at)
            r.safe = max(r.safe, safe)
            if further(name, r.name):
                r.name = name
                r.holders = tuple(holders)
            for gap in gaps:
                _adopt_gap(port, r, gap)


def _adopt_gap(port, r, gap):
    for had in r.gaps:
        if had[0] <= gap[0] and gap[1] <= had[1]:
            return
    r.gaps = [had for had in r.gaps if not (gap[0] <= had[0] and had[1] <= gap[1])] + [list(gap)]
    r.gaps.sort()
    port.host.store.put(F_GAPS + r.edge.index, pack.dumps(r.gaps))


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


# Outputs that lay in the flash of another board only are lost with it, as their author accepted:
# the lake is told.
def give_up_lost(port):
    first = port.first()
    for r in port.readers:
        if r.edge.dst == OUTSIDE and r.edge.durable == FLASH and r.safe < first:
            from . import gaps

            gaps.declare(port, r, r.safe + 1, first, GAP_GIVEN_UP)
