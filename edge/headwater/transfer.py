# Checkpoints on their way between hosts: to the holders that the plan's level wants, and to an
# operator whose producer names one that is further than its own.
#
# A holder keeps the checkpoint with the furthest position, and offers it to whoever stores an earlier
# one; it confirms only what it has read, and what is in its flash. Pieces are asked for one by one.
#
# Holders that did not confirm in time are remembered (Host.late): the next checkpoint goes to others
# first. So one dead holder costs one retry, not one for each checkpoint.

from . import checkpoint_file, wire
from .host import HELD, PERMANENT, RETRY_US
from .instance import ASKING, FETCHING
from .log import LogFull
from .plan import UNSAFE
from .position import further
from .refusals import CHECKPOINT, NO_HEAP, NO_ROOM

RECALL = 1 << 30  # + number of an epoch, as the offset of a FETCH: tell which checkpoint is there
CHECKPOINT_MAX = 65536  # bytes of a checkpoint taken in from elsewhere
_LATE_US = 30000000  # a holder that was late is asked again, beside others, after this


def handle(host, sender, m):
    if m[0] == wire.CKPT:
        _on_piece(host, sender, m[1], m[2], m[3], m[4], m[5], m[6])
    elif m[0] == wire.STORED:
        _on_stored(host, sender, m[1], m[2], m[3], m[4])
    else:
        _on_fetch(host, sender, m[1], m[2], m[3])


# ---- to holders


# host.pushes: vertex -> [position, hosts that confirmed, retries, when the next is due, hosts asked]
def push(host, inst):
    v = inst.vertex.index
    old = host.pushes.get(v)
    if not old or old[0] != inst.ck.pos:
        host.pushes[v] = [inst.ck.pos, [], old[2] if old else 0, host.now + RETRY_US, []]
        _push(host, inst)


def _push(host, inst):
    v = inst.vertex.index
    push = host.pushes[v]
    need = host.plan.level + push[2]
    ask = []
    late = []
    for h in host.plan.keepers(v):
        if h == host.me or h not in host.links:
            continue
        if h not in host.late:
            ask.append(h)
        elif host.now >= host.late[h]:
            host.late[h] = host.now + _LATE_US
            ask.insert(0, h)  # nobody waits for it
            need += 1
        else:
            late.append(h)
    for h in (ask + late)[:need]:
        if h not in push[1]:
            push[4].append(h)
            _piece(host, v, host.blob(inst, PERMANENT), push[0], inst.epoch, h, 0)


# Say again what was not confirmed, and to one host more.
def push_again(host):
    for v in list(host.pushes):
        push = host.pushes[v]
        if host.now >= push[3]:
            for h in push[4]:
                if h not in push[1]:
                    host.late[h] = host.now + _LATE_US
            push[4] = []
            push[2] += 1
            push[3] = host.now + RETRY_US
            _push(host, host.instances[v])


# Send the piece at `offset` of a stored checkpoint.
def _piece(host, v, key, pos, epoch, to, offset):
    size = host.store.blob_size(key)
    if not size or offset > size or to not in host.links:
        return
    piece = bytearray(min(size - offset, max(32, host.writer.mtu - 64 - 10 * len(pos))))
    host.store.read_blob(key, offset, piece)
    host.links[to].want(wire.CKPT, (v, offset), v, epoch, pos, size, offset, bytes(piece))


def _on_stored(host, sender, v, epoch, pos, size):
    push = host.pushes.get(v)
    inst = host.instances.get(v)
    if inst and sender in inst.unheard and tuple(epoch) == inst.epoch:
        _on_recalled(host, inst, sender, pos, size)
    if push is None or inst is None or further(push[0], pos):
        return
    host.late.pop(sender, None)
    if sender not in push[1]:
        push[1].append(sender)
    if len(push[1]) >= host.plan.level:
        del host.pushes[v]
        inst.ck.stored(push[0], tuple([host.me] + push[1]))


# ---- at a holder


def _on_piece(host, sender, v, epoch, pos, size, offset, piece):
    if not 0 < size <= min(CHECKPOINT_MAX, host.largest.get(v, 0)) or offset + len(piece) > size:
        host.count(CHECKPOINT)
        return
    link = host.links[sender]
    key = v * 4 + HELD
    have = held_pos(host, v)
    if have and not further(pos, have):
        link.want(wire.STORED, v, v, epoch, have, size)
    else:
        inc = host.incoming.get(v)
        if inc is None or inc[0] != pos or inc[1] != size:
            if inc is not None and further(inc[0], pos) and host.now - inc[4] < RETRY_US:
                return
            try:
                inc = host.incoming[v] = [pos, size, bytearray(size), 0, host.now]
            except MemoryError:
                host.count(NO_HEAP)
                return
        if offset == inc[3]:
            inc[2][offset : offset + len(piece)] = piece
            inc[3] += len(piece)
            inc[4] = host.now
        if inc[3] < size:
            link.want(wire.FETCH, v, v, pos, inc[3])
            return
        del host.incoming[v]
        found = checkpoint_file.read_permanent(host.plan.vertices[v], inc[2])
        if found is None or found[0][2] != pos:
            host.count(CHECKPOINT)
            return
        found = None
        try:
            host.store.put_blob(key, inc[2])
        except LogFull:
            host.count(NO_ROOM)
            return
        link.want(wire.STORED, v, v, epoch, pos, size)
    inst = host.instances.get(v)
    if inst and inst.status == FETCHING:
        _jump(host, inst)


def held_pos(host, v, slot=HELD):
    return checkpoint_file.position(host.plan.vertices[v], host.store.get_blob(v * 4 + slot))


def _on_fetch(host, sender, v, pos, offset):
    if offset >= RECALL:
        key, have = _furthest(host, v)
        epoch = (offset - RECALL, sender)
        host.links[sender].want(wire.STORED, v, v, epoch, have or [0] * len(pos), host.store.blob_size(key))
        return
    for slot in (PERMANENT, HELD):
        have = held_pos(host, v, slot)
        if have and not further(pos, have):
            inst = host.instances.get(v)
            _piece(host, v, v * 4 + slot, have, inst.epoch if inst else (0, 0), sender, offset)
            return


# The furthest checkpoint of an operator that this host has: its key, and where it stands or None.
def _furthest(host, v):
    held = held_pos(host, v)
    mine = held_pos(host, v, PERMANENT)
    if mine and not (held and further(held, mine)):
        return v * 4 + PERMANENT, mine
    return v * 4 + HELD, held


# ---- recalling: an operator that starts under a new epoch asks its keepers what they hold
#
# A producer names the checkpoint that it has trimmed for. One whose flash was erased, or that is lost,
# names nothing; then the furthest checkpoint is known to its holders alone. Whoever goes on from an earlier
# one can never have again what lies between. So the operator jumps to the furthest that a keeper holds,
# and takes no source in a new incarnation before it has heard enough of them: a checkpoint that was
# acknowledged is on as many others as the level says, beside the host that ran the operator before.


def begin_recall(host, inst, former):
    inst.former = former
    inst.unheard = []
    for e in inst.inputs:
        e.fenced = False
    if host.plan.level and host.plan.strategy != UNSAFE:
        for h in host.plan.keepers(inst.vertex.index):
            if h != host.me and h in host.links:
                inst.unheard.append(h)
    recall(host, inst)


def recall(host, inst):
    v = inst.vertex.index
    left = [h for h in inst.unheard if h != inst.former]
    if len(left) < host.plan.level and inst.status != FETCHING:
        from .restoring import note_running

        inst.unheard = []
        note_running(host, inst)
    for h in inst.unheard:
        host.links[h].want(wire.FETCH, (v, RECALL), v, inst.position(), RECALL + inst.epoch[0])


def _on_recalled(host, inst, sender, pos, size):
    inst.unheard.remove(sender)
    if size and (further(pos, inst.position()) or not inst.ck.pos and not any(inst.position())):
        from . import wiring

        wiring.seek(host, inst, pos, [sender])


# ---- jumping to a checkpoint that a producer names


def fetch(host, inst):
    v = inst.vertex.index
    if _jump(host, inst):
        return
    asked = inst.fetch_from or list(inst.vertex.hosts)
    others = [h for h in asked if h != host.me and h in host.links]
    if others:
        h = others[inst.fetch_try % len(others)]
        inst.fetch_try += 1
        got = host.incoming.get(v)
        host.links[h].want(wire.FETCH, v, v, inst.target, got[3] if got else 0)


# Restore from the held checkpoint if it is the one we wait for, or a later one.
def _jump(host, inst):
    v = inst.vertex.index
    for slot in (HELD, PERMANENT):
        pos = held_pos(host, v, slot)
        if pos and not further(inst.target, pos):
            from . import decisions, restoring

            data = host.store.get_blob(v * 4 + slot)
            if not restoring.restore(host, inst, data):
                continue
            if slot == HELD:
                host.store.put_blob(v * 4 + PERMANENT, data)
            inst.status = ASKING
            restoring.note_running(host, inst)
            inst.ck.discard()
            inst.ck.safe_pos = []
            restoring.load_decisions(host, inst)
            restoring.reconnect(host, inst)
            host.store_at_level(inst)
            decisions.ask(host, inst)
            return True
    return False
