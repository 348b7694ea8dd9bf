# Checkpoints on their way between hosts: to the holders that the plan's level wants, and to an
# operator whose producer names one that is further than its own.
#
# A holder keeps the checkpoint of the newest epoch, of one epoch the furthest, and offers it to a host that
# stores an earlier one; it confirms only what it has read, and what is in its flash. Pieces are requested
# one by one.
#
# Holders that did not confirm in time are remembered (Host.late): the next checkpoint goes to others
# first. So one dead holder costs one retry, not one for each checkpoint.

from ..offboard.compat import TYPE_CHECKING
from ..plan.model import UNSAFE
from ..protocol import frames
from ..protocol.position import further, newer
from ..protocol.refusals import CHECKPOINT, NO_HEAP, NO_ROOM
from ..storage.keyspace import HELD, LEFT, LOST, PERMANENT, checkpoint_key
from ..storage.log import LogFull
from .instance import FETCHING, RECALLING, STOPPED
from .outputs import RETRY_US

if TYPE_CHECKING:
    from typing import Any

    from ..offboard.interfaces import Epoch, Message, Position
    from .host import Host
    from .instance import Instance

RECALL = 1 << 30  # + number of an epoch, as the offset of a FETCH: tell which checkpoint is there
ERASED = 1 << 31  # + that, in the answer: what was there before was lost, and none was stored here since
CHECKPOINT_MAX = 98304  # bytes of a checkpoint taken in from elsewhere
_LATE_US = 30000000  # a holder that was late is asked again, beside others, after this
_TRIES = 8  # a holder that was asked this often for a checkpoint that it named does not have it any more


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
    need = needed(host, v) + _back(host) + push[2]
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
        ask = [h for h in ask if h != giver]
    for h in (ask + late)[:need]:
        if h not in push[1]:
            push[4].append(h)
            _piece(host, v, checkpoint_key(v, PERMANENT), push[0], inst.epoch, h, 0)


# Send a host what is stored here of operator v, from its beginning: its newest checkpoint.
def send(host: "Host", v: int, to: int) -> None:
    key, have = newest(host, v)
    if have:
        _piece(host, v, key, have[1], have[0], to, 0)


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


# Send the piece at `offset` of a stored checkpoint.
def _piece(host: "Host", v: int, key: int, pos: "Position", epoch: "Epoch", to: int, offset: int) -> None:
    size = host.store.blob_size(key)
    if not size or offset > size or to not in host.exchange.links:
        return
    piece = bytearray(min(size - offset, max(32, host.exchange.writer.mtu - 64 - 10 * len(pos))))
    host.store.read_blob(key, offset, piece)
    host.exchange.say(to, frames.CKPT, (v, offset), v, epoch, pos, size, offset, bytes(piece))


def _on_stored(host: "Host", sender: int, m: "Message") -> None:
    _, v, epoch, pos, size = m
    inst = host.instances.get(v)
    if inst is None:
        return
    if size >= RECALL:
        if size % ERASED == RECALL + inst.epoch[0] and sender in inst.unheard:
            inst.recall(inst.unsettled, True, inst.unheard, inst.erased + size // ERASED)
            _on_recalled(host, inst, sender, tuple(epoch), pos)
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
    if len(push[1]) >= needed(host, v) + _back(host):
        del host.pushes[v]
        inst.ck.stored(push[0], tuple([host.me] + push[1]))


# The keepers of an operator that count: all of the plan, without those that have left (losses.py). No host
# ever counts again in this deployment, and this number never grows: so a checkpoint that was acknowledged
# before is found by a recall that comes later.
def keepers(host: "Host", v: int) -> list[int]:
    found = host.plan.keepers(v)
    if host.lost:
        found = [h for h in found if h not in host.lost or host.lost[h][1] != LEFT]
    return found


# How many keepers have to have a checkpoint beside one of them before it is acknowledged; and how many a
# recall may miss. It never depends on which hosts can be reached.
def needed(host: "Host", v: int) -> int:
    level = host.plan.level_of(v)
    return min(level, len(keepers(host, v)) - 1) if host.lost else level


# 1 where this host came back under a new log number: what it has counts for nothing in this deployment.
def _back(host: "Host") -> int:
    return int(host.me in host.lost)


# Operators here of which enough hosts that are not lost have the checkpoint: with them it outlives as many
# deaths as it can now. And whether these are all that have ever acknowledged anything.
def covered(host: "Host") -> "tuple[list[int], bool]":
    found = []
    every = True
    for v in host.instances:
        inst = host.instances[v]
        if inst.status in (STOPPED, FETCHING) or inst.blind or inst.recalling:
            continue  # it has acknowledged nothing under its epoch
        have = set(inst.ck.holders)
        if v in host.pushes:
            have.update([host.me] + host.pushes[v][1])
        live = [h for h in host.plan.keepers(v) if h not in host.lost]
        some = len([h for h in have if h in live])
        level = host.plan.level_of(v)
        if not level or not (inst.ck.pos or inst.unsettled):
            some = len(host.plan.hosts)
        if some >= min(level + 1, len(live)):
            found.append(v)
        else:
            every = False
    return found, every


# A host was declared lost: what it held is to be stored elsewhere, at once.
def replace(host: "Host", number: int) -> None:
    for v in list(host.instances):
        inst = host.instances[v]
        if inst.status == STOPPED or inst.recalling:
            continue
        if v in host.pushes or number in inst.ck.holders:
            host.pushes.pop(v, None)
            if inst.ck.pos and inst.status != FETCHING:
                inst.ck.store_at_level()


# One has left: fewer holders may be enough now.
def recount(host: "Host") -> None:
    for v in list(host.pushes):
        confirmed(host, host.instances[v])


# ---- at a holder


def _on_piece(host: "Host", sender: int, m: "Message") -> None:
    from ..storage import checkpoint_file
    from . import lifecycle

    _, v, epoch, pos, size, offset, piece = m
    if not 0 < size <= min(CHECKPOINT_MAX, host.largest.get(v, 0)) or offset + len(piece) > size:
        host.count(CHECKPOINT)
        return
    say = host.exchange.say
    key = checkpoint_key(v, HELD)
    here = (tuple(epoch), pos)
    have = newest(host, v)[1]
    inst = host.instances.get(v)
    wanted = (
        inst is not None
        and inst.status == FETCHING
        and here[0] >= inst.target_epoch
        and not further(inst.target, pos)
    )
    if not wanted and here[0] < host.where[v][:2]:
        # A newer epoch has asked here what there is: what it did not hear of must not be acknowledged.
        host.tell_where(sender, v)
    elif not wanted and have and not newer(here, have):
        say(sender, frames.STORED, v, v, have[0], have[1], size)
    else:
        inc = host.incoming.get(v)
        if inc is None or inc[0] != here or inc[1] != size:
            if inc is not None and newer(inc[0], here) and host.now - inc[4] < RETRY_US:
                return
            try:
                inc = host.incoming[v] = [here, size, bytearray(size), 0, host.now]
            except MemoryError:
                host.count(NO_HEAP)
                if host.taking:
                    host.taking.fails(v, NO_HEAP)
                return
        if offset == inc[3]:
            inc[2][offset : offset + len(piece)] = piece
            inc[3] += len(piece)
            inc[4] = host.now
        elif inc[3] and host.now - inc[4] < RETRY_US // 2:
            return  # a repetition; the piece that follows is on its way
        if inc[3] < size:
            say(sender, frames.FETCH, v, v, pos, inc[3])
            return
        del host.incoming[v]
        found = checkpoint_file.read_permanent(host.plan.vertices[v], inc[2])
        if found is None or (found.epoch, found.pos) != here:
            host.count(CHECKPOINT)
            if host.taking:
                host.taking.fails(v, CHECKPOINT)
            return
        found = None
        try:
            host.store.put_blob(key, inc[2])
        except LogFull:
            host.count(NO_ROOM)
            if host.taking:
                host.taking.fails(v, NO_ROOM)
            return
        say(sender, frames.STORED, v, v, epoch, pos, size)
        inc = None
        if host.taking:
            host.taking.arrived(v)
    inst = host.instances.get(v)
    if inst is None:
        lifecycle.no_more(host, v, LOST)  # it was sent here to be kept; what is recalled may be older
    if inst and inst.status == FETCHING:
        _jump(host, inst)


# (epoch, position) of a checkpoint that is stored here, or None.
def place(host: "Host", v: int, slot: int) -> "tuple[Epoch, Position] | None":
    from ..storage import checkpoint_file

    return checkpoint_file.place(host.plan.vertices[v], host.store.get_blob(checkpoint_key(v, slot)))


# Key and (epoch, position) of the newest checkpoint of an operator that is stored here, of those that stand
# at `pos` or beyond it, under `epoch` or a later one. (0, None) where there is none.
def newest(
    host: "Host", v: int, pos: "Position" = (), epoch: "Epoch" = (0, 0)
) -> "tuple[int, tuple[Epoch, Position] | None]":
    best: "tuple[int, tuple[Epoch, Position] | None]" = (0, None)
    for slot in (HELD, PERMANENT):
        have = place(host, v, slot)
        if have and not further(pos, have[1]) and have[0] >= epoch:
            if best[1] is None or not newer(best[1], have):
                best = (checkpoint_key(v, slot), have)
    return best


def _on_fetch(host: "Host", sender: int, m: "Message") -> None:
    from . import lifecycle

    _, v, pos, offset = m
    if offset >= RECALL:
        host.heard_where(v, (offset - RECALL, sender), sender)  # from now on nothing older is kept here
        epoch, at = newest(host, v)[1] or ((0, 0), [0] * len(pos))
        told = offset + ERASED if lifecycle.lost(host, v) else offset
        host.exchange.say(sender, frames.STORED, (v, RECALL), v, epoch, at, told)
        return
    key, have = newest(host, v, pos)
    if have:
        _piece(host, v, key, have[1], have[0], sender, offset)


# ---- recalling: an operator that starts under a new epoch asks its keepers what they hold
#
# A producer names the checkpoint that it has trimmed for. One whose flash was erased, or that is lost,
# names nothing; then the newest checkpoint is known to its holders alone, and an operator that goes on from
# an earlier one can never take again what lies between. What was acknowledged is stored on one host more
# than the level says. So the operator waits until no more keepers than that may hide it: those that have not
# answered, and those whose flash was erased and that were given none since. It goes on from the newest that
# it heard of. What it missed was never acknowledged, and never will be: a keeper that answers keeps nothing
# more for an earlier epoch. As soon as a checkpoint is stored at the plan's level under the new epoch, no
# later epoch will go on from what was missed.


def begin_recall(host: "Host", inst: "Instance") -> None:
    for e in inst.inputs:
        e.unfence()
    _ask_all(host, inst, host.plan.strategy != UNSAFE, True)


# Whether no checkpoint was acknowledged that is further than what was found. At level local no other host has
# any; and in an incarnation that this epoch has begun itself, it alone has acknowledged anything.
def _knows_enough(host: "Host", inst: "Instance") -> bool:
    from . import lifecycle

    v = inst.vertex.index
    missed = len(inst.unheard)
    erased = inst.erased
    if _back(host):
        # What it had under its former number is lost, whether or not its flash was erased after that.
        erased -= int(lifecycle.lost(host, v))
        missed += int(host.lost[host.me][1] != LEFT)
    # What every producer says of a newer epoch than the giver's, no erased keeper could say better.
    if not (host.taking and host.taking.assured(inst)):
        missed += erased
    return missed <= needed(host, v) or not host.plan.level_of(v) or inst.began_anew()


# All keepers are to be asked.
def _ask_all(host: "Host", inst: "Instance", unsettled: bool, recalling: bool) -> None:
    from . import lifecycle

    v = inst.vertex.index
    unheard = []
    if host.plan.level_of(v) and unsettled:
        unheard = [h for h in keepers(host, v) if h != host.me and h in host.exchange.links]
    inst.recall(unsettled, recalling, unheard, int(lifecycle.lost(host, v)))


# Ask those that have not answered; or do what is left to do after the answers.
def recall(host: "Host", inst: "Instance") -> None:
    from ..storage import checkpoint_file
    from . import lifecycle

    if inst.status == STOPPED:
        return
    v = inst.vertex.index
    if inst.recalling:
        have = newest(host, v)[1]
        if have and newer(have, (inst.ck.made, inst.ck.pos)):
            from . import routing

            routing.seek(host, inst, have[1], [], have[0])
            return  # it is here, and this goes on when the operator stands there
        if inst.anew:
            inst.anew.look()
            if not inst.recalling:
                return  # it has begun
        elif inst.status != FETCHING and not inst.blind and _knows_enough(host, inst):
            inst.recall(inst.unsettled, False, [], inst.erased)
            key = checkpoint_key(v, PERMANENT)
            data = host.store.get_blob(key)
            if data:
                host.store.put_blob(key, checkpoint_file.kept_by(inst.epoch, data))
            if inst.status == RECALLING:
                lifecycle.go_on(host, inst)
            if data:
                inst.ck.store_at_level()
        for h in () if inst.blind else inst.unheard:
            host.exchange.say(h, frames.FETCH, (v, RECALL), v, inst.position(), RECALL + inst.epoch[0])
    # At level local the producers tell first whether there is a checkpoint elsewhere.
    if inst.unsettled and not (inst.recalling or inst.ck.pos) and (host.plan.level_of(v) or _answered(inst)):
        inst.ck.now()


def _answered(inst: "Instance") -> bool:
    from . import decisions

    return decisions.answered(inst)


# epoch: of what the keeper holds, number 0 where that is nothing.
def _on_recalled(host: "Host", inst: "Instance", sender: int, epoch: "Epoch", pos: "Position") -> None:
    if epoch > inst.epoch:
        host.stop(inst, epoch)  # that runs elsewhere; what is here may be what a producer names
        return
    inst.unheard.remove(sender)
    if epoch[0] and newer((epoch, pos), (inst.ck.made, inst.ck.pos)):
        from . import routing

        routing.seek(host, inst, pos, [sender], epoch)
    recall(host, inst)


# ---- jumping to a checkpoint that a producer names


# A keeper that named a checkpoint when it was recalled, and then does not send it, has not answered. All are
# asked again: what others had named was forgotten in its favour. What a producer names was acknowledged, and
# the operator waits for it.
def fetch(host: "Host", inst: "Instance") -> None:
    from . import lifecycle

    v = inst.vertex.index
    if _jump(host, inst):
        return
    asked = inst.fetch_from or list(inst.vertex.hosts)
    others = [h for h in asked if h != host.me and h in host.exchange.links and h not in host.lost]
    if inst.target_epoch[0] and inst.fetch_try >= _TRIES * len(others):
        arriving = host.incoming.get(v)
        if arriving is None or host.now - arriving[4] >= _TRIES * RETRY_US:
            _ask_all(host, inst, inst.unsettled, inst.recalling)
            lifecycle.recall(inst)
            return  # `recall` goes on from here
    if others:
        # From its beginning: what has arrived may be of another one. Of the same one it goes on from there.
        host.exchange.say(inst.next_of(others), frames.FETCH, v, v, inst.target, 0)


# Restore from the newest checkpoint here if it is the one we wait for, or a later one.
def _jump(host: "Host", inst: "Instance") -> bool:
    from ..storage import checkpoint_file
    from . import lifecycle

    v = inst.vertex.index
    key, have = newest(host, v, inst.target, inst.target_epoch)
    if not have:
        return False
    from . import restore

    data: "Any" = host.store.get_blob(key)  # it was read a moment ago
    if not restore.restore(host, inst, data):
        return False
    assert not further(inst.target, inst.ck.pos), "it took an earlier checkpoint than the one that was named"
    own = checkpoint_key(v, PERMANENT)
    if key != own:
        host.store.put_blob(own, data if inst.recalling else checkpoint_file.kept_by(inst.epoch, data))
    lifecycle.recall(inst)
    lifecycle.note_running(host, inst)
    inst.ck.moved()
    restore.reconnect(host, inst)
    if inst.status == STOPPED:
        return True  # a producer here knows a newer epoch
    if inst.recalling:
        recall(host, inst)
        return True
    lifecycle.go_on(host, inst)
    inst.ck.store_at_level()
    return True


HANDLERS = {frames.CKPT: _on_piece, frames.STORED: _on_stored, frames.FETCH: _on_fetch}
