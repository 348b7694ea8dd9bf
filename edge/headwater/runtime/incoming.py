# Checkpoints that are stored here, or come here: to be held for another host, or for an operator to go on
# from.
# Those that go to others: checkpoint_transfer.py, whose head says what a holder keeps.

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
_TRIES = 8  # a holder that was asked this often for a checkpoint that it named does not have it any more


# ---- at a holder


def _on_piece(host: "Host", sender: int, m: "Message") -> None:
    from ..storage import arrival
    from . import lifecycle

    _, v, epoch, pos, size, offset, piece = m
    if not 0 < size <= min(CHECKPOINT_MAX, host.largest.get(v, 0)) or offset + len(piece) > size:
        host.count(CHECKPOINT)
        return
    say = host.exchange.say
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
    elif not (wanted or host.taking and host.taking.takes_again(v, here)) and have and not newer(here, have):
        say(sender, frames.STORED, v, v, have[0], have[1], size)
    else:
        inc = _arriving(host, v, here, size)
        if inc is None:
            return
        if offset == inc[3]:
            inc[4] = host.now
            try:
                arrival.add(host.store, inc, piece)
            except LogFull:
                _fails(host, v, NO_ROOM)
                return
        elif inc[3] and host.now - inc[4] < RETRY_US // 2:
            return  # a repetition; the piece that follows is on its way
        if inc[3] < size:
            say(sender, frames.FETCH, v, v, pos, inc[3])
            return
        failed = _put(host, v, inc)
        if failed >= 0:
            _fails(host, v, failed)
            return
        inc = None
        _end(host, v)
        say(sender, frames.STORED, v, v, epoch, pos, size)
        if host.taking:
            host.taking.arrived(v)
    inst = host.instances.get(v)
    if inst is None:
        lifecycle.no_more(host, v, LOST)  # it was sent here to be kept; what is recalled may be older
    if inst and inst.status == FETCHING:
        _jump(host, inst)


# What is known of the checkpoint of operator v that arrives, or None: its pieces are not taken now.
def _arriving(host: "Host", v: int, here: "tuple[Epoch, Position]", size: int) -> "list[Any] | None":
    from ..storage import arrival

    inc = host.incoming.get(v)
    if inc and inc[0] == here and inc[1] == size:
        return inc
    if inc and newer(inc[0], here) and host.now - inc[4] < RETRY_US:
        return None
    part = size if host.outbox is not None else arrival.part_bytes(size)
    for u in list(host.incoming) if part < size else ():
        other = host.incoming[u]
        if u != v and arrival.lies(other):
            if not (_waited_for(host, v) and not _waited_for(host, u)):
                if host.now - other[4] < _TRIES * RETRY_US:
                    return None  # there is room for one in flash; its sender tries again
            _end(host, u)
    _end(host, v)
    try:
        inc = host.incoming[v] = arrival.begin(here, size, part, host.now)
    except MemoryError:
        _fails(host, v, NO_HEAP)
    return inc


# Whether an operator waits here for its checkpoint: not to be kept for another host, but to go on from.
def _waited_for(host: "Host", v: int) -> bool:
    inst = host.instances.get(v)
    return inst is not None and inst.status == FETCHING or bool(host.taking and host.taking.v == v)


# Store what has arrived, if it can be read. -1, or why it was not stored.
def _put(host: "Host", v: int, inc: "list[Any]") -> int:
    from ..storage import arrival, checkpoint_file, reading

    try:
        found = checkpoint_file.read_permanent(host.plan.vertices[v], arrival.read(host.store, inc), False)
        if found is None or (found.epoch, found.pos) != inc[0]:
            return CHECKPOINT
        found = None
        arrival.store(host.store, checkpoint_key(v, HELD), inc)
        if v not in host.instances and place(host, v, PERMANENT) == inc[0]:
            # It was taken in place of that one, which knows less, and would be found first (`newest`).
            host.store.drop_blob(checkpoint_key(v, PERMANENT))
    except LogFull:
        return NO_ROOM
    except reading.Short:
        return CHECKPOINT
    return -1


# What has arrived of operator v is not kept.
def _end(host: "Host", v: int) -> None:
    from ..storage import arrival

    inc = host.incoming.pop(v, None)
    if inc and arrival.lies(inc):
        arrival.clear(host.store)


def _fails(host: "Host", v: int, reason: int) -> None:
    _end(host, v)
    host.count(reason)
    if host.taking:
        host.taking.fails(v, reason)


# (epoch, position) of a checkpoint that is stored here, or None.
def place(host: "Host", v: int, slot: int) -> "tuple[Epoch, Position] | None":
    from ..storage import checkpoint_file

    return checkpoint_file.place(host.plan.vertices[v], host.store, checkpoint_key(v, slot))


# The boundary that a checkpoint knows which is stored here.
def front(host: "Host", v: int, key: int) -> int:
    from ..storage import checkpoint_file, reading

    found = checkpoint_file.read_permanent(host.plan.vertices[v], reading.stored(host.store, (key,)), False)
    return found.front if found else 0


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


# Send a host what is stored here of operator v, from its beginning: its newest checkpoint.
def send(host: "Host", v: int, to: int) -> None:
    from . import checkpoint_transfer as transfer

    key, have = newest(host, v)
    if have:
        transfer.piece(host, v, key, have[1], have[0], to, 0)


def _on_fetch(host: "Host", sender: int, m: "Message") -> None:
    from . import checkpoint_transfer as transfer
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
        transfer.piece(host, v, key, have[1], have[0], sender, offset)


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
    ask_all(host, inst, host.plan.strategy != UNSAFE, True)


# Whether no checkpoint was acknowledged that is further than what was found. At level local no other host has
# any; and in an incarnation that this epoch has begun itself, it alone has acknowledged anything.
def _knows_enough(host: "Host", inst: "Instance") -> bool:
    from . import checkpoint_transfer as transfer
    from . import lifecycle

    v = inst.vertex.index
    missed = len(inst.unheard)
    erased = inst.erased
    if host.me in host.lost:
        # What it had under its former number is lost, whether or not its flash was erased after that.
        erased -= int(lifecycle.lost(host, v))
        missed += int(host.lost[host.me][1] != LEFT)
    # What every producer says of a newer epoch than the giver's, no erased keeper could say better.
    if not (host.taking and host.taking.assured(inst)):
        missed += erased
    return missed <= transfer.needed(host, v) or not host.plan.level_of(v) or inst.began_anew()


# All keepers are to be asked.
def ask_all(host: "Host", inst: "Instance", unsettled: bool, recalling: bool) -> None:
    from . import checkpoint_transfer as transfer
    from . import lifecycle

    v = inst.vertex.index
    unheard = []
    if host.plan.level_of(v) and unsettled:
        unheard = [h for h in transfer.keepers(host, v) if h != host.me and h in host.exchange.links]
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
            kept = checkpoint_file.keep(host.store, key, key, inst.epoch)
            if inst.status == RECALLING:
                lifecycle.go_on(host, inst)
            if kept:
                inst.ck.store_at_level()
        for h in () if inst.blind else inst.unheard:
            host.exchange.say(h, frames.FETCH, (v, RECALL), v, inst.position(), RECALL + inst.epoch[0])
    # At level local the producers tell first whether there is a checkpoint elsewhere.
    if inst.unsettled and not (inst.recalling or inst.ck.pos) and (host.plan.level_of(v) or _answered(inst)):
        inst.ck.now()


def _answered(inst: "Instance") -> bool:
    from . import decisions

    return decisions.answered(inst)


# A keeper says what it holds, in answer to a recall.
def _on_told(host: "Host", sender: int, m: "Message") -> None:
    _, v, epoch, pos, size = m
    inst = host.instances.get(v)
    if inst and size % ERASED == RECALL + inst.epoch[0] and sender in inst.unheard:
        inst.recall(inst.unsettled, True, inst.unheard, inst.erased + size // ERASED)
        recalled(host, inst, sender, tuple(epoch), pos)


# epoch: of what the keeper holds, number 0 where that is nothing.
def recalled(host: "Host", inst: "Instance", sender: int, epoch: "Epoch", pos: "Position") -> None:
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
            ask_all(host, inst, inst.unsettled, inst.recalling)
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

    if not restore.restore(host, inst, key):
        return False
    assert not further(inst.target, inst.ck.pos), "it took an earlier checkpoint than the one that was named"
    own = checkpoint_key(v, PERMANENT)
    if key != own:
        checkpoint_file.keep(host.store, key, own, (0, 0) if inst.recalling else inst.epoch)
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


ANSWERS = {frames.STORED: _on_told}  # what a recall hears; of any other checkpoint: checkpoint_transfer.py
HANDLERS = {frames.CKPT: _on_piece, frames.FETCH: _on_fetch}
