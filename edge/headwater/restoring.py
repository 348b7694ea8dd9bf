# An operator goes back, or ahead, to a checkpoint: its state, its inputs, its outputs with the
# transfer state that the checkpoint carries, and what its producers' names were then.

from . import block, operators, pack, wiring
from .host import DECISION, F_OP


def made(host, v):
    return operators.find(v.kind)(v.params, v.ins, v.outs, host.plan.batch)


# Bring an instance to the checkpoint in `data` (body and transfer state).
def restore(host, inst, data):
    n = int.from_bytes(bytes(data[:4]), "little")
    try:
        body = pack.loads(bytes(data[4 : 4 + n]))
        parts, names = pack.loads(bytes(data[4 + n :]))
        form, version, pos, outs, flags, changed, state = body
        if len(pos) != len(inst.inputs) + 2 or len(outs) != len(inst.ports):
            raise ValueError("ports")
        _set(host, inst, body)
        for p in inst.ports:
            start, blocks = parts[p.number]
            p.ring.reset(outs[p.number] if not blocks else start)
            p.trim_to = 0
            for b in blocks:
                w = host.batch(p.alphabet)
                block.decode(b, 0, len(b), w)
                p.has_room(w.n)
                p.ring.append(w, 0, w.n)
                w.n = 0
            p.ring.tail = None
            for rec in names[p.number]:
                p.adopt(rec)
            p.trim()
            p.give_up_lost()
    except (pack.PackError, block.BlockError, ValueError) as e:
        raise ValueError("checkpoint of %s unreadable: %s" % (inst.vertex.name, e))
    inst.ck.pos = pos


def _set(host, inst, body):
    form, version, pos, outs, flags, changed, state = body
    inst.op = made(host, inst.vertex)
    if changed:
        inst.op.configure(changed)
    inst.changed = changed
    inst.op.restore(state, version)
    inst.depth = 0
    inst.fired = pos[-2]
    inst.decided = pos[-1]
    for e, xi, flag in zip(inst.inputs, pos, flags):
        e.reset(xi)
        e.closed = bool(flag[0])
        e.inc = flag[1]
        e.from_ts = flag[2]


# A pending checkpoint turned out to be acknowledged: go on from there.
def from_pending(host, inst, c):
    _set(host, inst, pack.loads(bytes(c.body)))
    for p in inst.ports:
        p.ring.reset(c.outs[p.number])
        p.trim_to = 0
        p.trim()
    reconnect(host, inst)


# It stands elsewhere than before: its producers and consumers are spoken to anew.
def reconnect(host, inst):
    for e in inst.inputs:
        wiring.connect(host, e)
    for p in inst.ports:
        wiring.readers_again(host, p)


# Decisions that were stored here for an operator, behind its checkpoint.
def load_decisions(host, inst):
    base = DECISION + inst.vertex.index * 64
    for key in host.store.blob_keys():
        if base <= key < base + 64:
            number, pos, content, granted = pack.loads(host.store.get_blob(key))
            if number > inst.decided:
                inst.decisions[number] = (pos, content, granted)


# What flash knows of an operator here. active: 1, 0 where it runs here no more, UNTOLD.
def note(host, v, epoch, active):
    host.store.put(F_OP + v, pack.dumps([epoch[0], epoch[1], active]))
