# Checkpoints on their way to the hosts that hold them, as many as the plan's level wants. What comes to this
# host is taken by incoming.py.
#
# A holder keeps the checkpoint of the newest epoch, of one epoch the furthest, and offers it to a host that
# stores an earlier one; it confirms only what it has read, and what is in its flash. Pieces are requested
# one by one.
#
# Holders that did not confirm in time are remembered (Host.late): the next checkpoint goes to others
# first. So one dead holder costs one retry, not one for each checkpoint.

from ..offboard.compat import TYPE_CHECKING
from ..protocol import frames
from ..protocol.position import further
from ..storage.keyspace import LEFT, PERMANENT, UNTOLD, checkpoint_key
from .outputs import RETRY_US

if TYPE_CHECKING:
    from ..offboard.interfaces import Epoch, Message, Position
    from .host import Host
    from .instance import Instance

_LATE_US = 30000000  # a holder that was late is asked again, beside others, after this


# ---- to holders


# host.pushes: vertex -> [position, hosts that confirmed, retries, when the next is due, hosts asked]
def push(host: "Host", inst: "Instance") -> None:
    assert not inst.recalling, "it may have to go on from another checkpoint"
    v = inst.vertex.index
    old = host.pushes.get(v)
    if not old or old[0] != inst.ck.pos:
        host.pushes[v] = [inst.ck.pos, [], old[2] if old else 0, host.now + RETRY_US, []]
        _push(host, inst)
        if host.lost:
            confirmed(host, inst)  # no other keeper may be left


def _push(host: "Host", inst: "Instance") -> None:
    v = inst.vertex.index
    push = host.pushes[v]
    need = others(host, v) + push[2]
    ask: list[int] = []
    late = []
    for h in host.plan.keepers(v):
        if h == host.me or h not in host.exchange.links or h in host.lost:
            continue
        if host.words and host.words.dead(h):
            late.append(h)  # an operator that was taken over does not wait for the host that died
        elif h not in host.late:
            ask.append(h)
        elif host.now >= host.late[h]:
            host.late[h] = host.now + _LATE_US
            ask.insert(0, h)  # beside the others, and none waits for it
            need += 1
        else:
            late.append(h)
    if host.taking:
        giver = host.taking.keep_there(inst)  # it has the checkpoint, and needs no bytes of it
        if giver in ask:
            ask.remove(giver)
    for h in (ask + late)[:need]:
        if h not in push[1]:
            push[4].append(h)
            piece(host, v, checkpoint_key(v, PERMANENT), push[0], inst.epoch, h, 0)


# Send again what was not confirmed, and to one host more.
def push_again(host: "Host") -> None:
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


# Send the piece at `offset` of a stored checkpoint. One that is damaged there is deleted.
def piece(host: "Host", v: int, key: int, pos: "Position", epoch: "Epoch", to: int, offset: int) -> None:
    size = host.store.blob_size(key)
    if not size or offset > size or to not in host.exchange.links:
        return
    data = bytearray(min(size - offset, max(32, host.exchange.writer.mtu - 64 - 10 * len(pos))))
    if host.store.read_blob(key, offset, data) < len(data):
        host.store.drop_blob(key)
        return
    host.exchange.say(to, frames.CKPT, (v, offset), v, epoch, pos, size, offset, bytes(data))


def _on_stored(host: "Host", sender: int, m: "Message") -> None:
    _, v, epoch, pos, size = m
    inst = host.instances.get(v)
    if inst is None:
        return
    if host.giving:
        host.giving.stored(sender, v, tuple(epoch), pos)
    if host.taking and tuple(epoch) == inst.epoch:
        host.taking.stored(sender, v, pos)
    push = host.pushes.get(v)
    if push is None or tuple(epoch) != inst.epoch or further(push[0], pos):
        return
    host.late.pop(sender, None)
    if sender not in push[1] and sender not in host.lost:
        push[1].append(sender)
    confirmed(host, inst)


# Acknowledge what is on its way to holders, if enough of them have it.
def confirmed(host: "Host", inst: "Instance") -> None:
    v = inst.vertex.index
    push = host.pushes[v]
    if len(push[1]) >= others(host, v):
        del host.pushes[v]
        inst.ck.stored(push[0], tuple([host.me] + push[1]))


# The keepers of an operator that count: all of the plan, without those that have left (losses.py). No host
# ever counts again in this deployment, and this number never grows: so a checkpoint that was acknowledged
# before is found by a recall that comes later.
def keepers(host: "Host", v: int) -> list[int]:
    found = host.plan.keepers(v)
    for h in host.lost:
        if host.lost[h][1] == LEFT and h in found:
            found.remove(h)
    return found


# How many keepers have to have a checkpoint beside one of them before it is acknowledged; and how many a
# recall may miss. It never depends on which hosts can be reached.
def needed(host: "Host", v: int) -> int:
    level = host.plan.level_of(v)
    return min(level, len(keepers(host, v)) - 1) if host.lost else level


# How many other hosts have to have a checkpoint that is made here. What this host has counts for nothing in
# this deployment if it came back under a new log number: so, too, while its flash is new and it has not heard
# from the gateway which hosts are lost.
def others(host: "Host", v: int) -> int:
    return needed(host, v) + int(untold(host) or host.me in host.lost)


def untold(host: "Host") -> bool:
    return bool(host.again and host.again[0] & UNTOLD)


# This board knows what the gateway knows.
def told(host: "Host") -> None:
    from . import lifecycle

    lifecycle.no_more(host, 0, UNTOLD)
    for v in list(host.pushes):
        confirmed(host, host.instances[v])


HANDLERS = {frames.STORED: _on_stored}
