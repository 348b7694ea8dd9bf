# The life of an operator on a host: its states, every transition between them, and what flash notes of it, so
# that a later boot continues where this one was.
#
#   from              to        transition
#   (made)            RUNNING   Instance.__init__; nothing runs before hosting and starting have looked at it
#   RUNNING           WAITING   wait: a pending checkpoint may yet turn out to be permanent
#   WAITING           RUNNING   expire: it was not acknowledged in time
#   any but STOPPED   FETCHING  seek: a producer or a keeper named a checkpoint that counts more
#   any but STOPPED   RECALLING recall: its keepers say first what they hold
#   RECALLING         EXPOSED   go_on: under a new epoch, which is not stored at the level yet
#   RECALLING         RUNNING   go_on: under an epoch that is, or that another host has handed over
#   RUNNING           EXPOSED   expose: it decides, and that is not stored at the level yet
#   EXPOSED           RUNNING   covered: now it is
#   RUNNING           PAUSED    pause: it is handed over to another host (moving.py)
#   PAUSED            RUNNING   take_back: it was not
#   any but STOPPED   STOPPED   stop: a newer epoch runs elsewhere
#
# Beside its status an operator whose epoch is new is `recalling` until enough of its keepers have answered
# (incoming.py), and `unsettled` until a checkpoint of this epoch is stored at the level (settled).
# One that decides is `deciding` until a checkpoint that counts the decision is.
#
# Invariants.
#   - No other module calls Instance.become, and nothing else writes Instance.status.
#   - The epoch that flash notes of an operator never falls.
#   - What a transition makes useless it deletes in RAM and in flash: pending checkpoints that will not be
#     acknowledged any more, and at the end of an epoch what it put out.
#   - An operator that runs is noted as running before it takes anything, and as deciding before it decides.
#   - While it is deciding, or unsettled and was not handed over, it is EXPOSED: it takes and puts out nothing
#     that could not be undone.

from ..data import msgpack
from ..offboard.compat import TYPE_CHECKING
from ..protocol.position import further
from ..storage.keyspace import (
    ALONE,
    DECIDING,
    F_AGAIN,
    F_OP,
    LOST,
    OVER,
    PENDING,
    RUNS,
    UNSETTLED,
    checkpoint_key,
    stream_key,
)
from .instance import EXPOSED, FETCHING, PAUSED, RECALLING, RUNNING, STOPPED, WAITING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..offboard.interfaces import Epoch, Position
    from .host import Host
    from .instance import Instance


# What flash knows of an operator here: its epoch, and OVER, RUNS, DECIDING, UNSETTLED or ALONE.
def note(host: "Host", v: int, epoch: "Epoch", state: int) -> None:
    known = noted(host, v)
    assert not known or known[0] <= epoch, "the epoch of an operator fell"
    host.store.put(F_OP + v, msgpack.dumps([epoch[0], epoch[1], state]))


# (epoch, state) of an operator as flash knows it, or None.
def noted(host: "Host", v: int) -> "tuple[Epoch, int] | None":
    data = host.store.get(F_OP + v)
    if data:
        number, at, state = msgpack.loads(data)
        return (number, at), state
    return None


# Note an operator that runs here.
def note_running(host: "Host", inst: "Instance") -> None:
    assert inst.status != STOPPED
    state = DECIDING if inst.deciding else RUNS
    if inst.unsettled or not all([e.fenced for e in inst.inputs]):
        state = UNSETTLED
    if inst.blind:
        state = ALONE
    note(host, inst.vertex.index, inst.epoch, state)


# It says nothing to other hosts before it has asked whether the operator lives; in a later boot neither.
def blind(host: "Host", inst: "Instance") -> None:
    inst.blinded(True)
    note(host, inst.vertex.index, inst.epoch, ALONE)


# It has asked, and speaks from now on.
def see(host: "Host", inst: "Instance") -> None:
    assert inst.blind
    inst.blinded(False)
    note_running(host, inst)


# The epoch of an operator has a checkpoint at the plan's level.
def settled(host: "Host", inst: "Instance") -> None:
    assert inst.unsettled and inst.ck.safe_pos
    inst.settle()
    no_more(host, inst.vertex.index, LOST)
    note_running(host, inst)
    assert not lost(host, inst.vertex.index)


# ---- what this host has lost with its flash, or its database: Host.again


# Whether the checkpoints that were stored here for operator v are lost, and none was stored since.
def lost(host: "Host", v: int) -> bool:
    return bool(host.again and host.again[v] & LOST)


# LEARN or LOST is over for operator v.
def no_more(host: "Host", v: int, bit: int) -> None:
    if host.again and host.again[v] & bit:
        host.again[v] -= bit
        host.store.put(F_AGAIN, bytes(host.again))


# ---- transitions


# It has pending checkpoints from an earlier boot; an acknowledgement of them may arrive until then.
def wait(inst: "Instance", until_us: int) -> None:
    assert inst.status == RUNNING and inst.ck.pending
    inst.become(WAITING, until_us)
    assert all([further(c.pos, inst.ck.pos) for c in inst.ck.pending]), "pending, and permanent already"


# None arrived: they will not be acknowledged any more.
def expire(inst: "Instance") -> None:
    assert inst.status == WAITING
    inst.become(RUNNING)
    inst.ck.discard()
    assert not inst.ck.pending


# It goes on from this checkpoint, once it has it.
def seek(inst: "Instance", name: "Position", epoch: "Epoch", holders: "Sequence[int]") -> None:
    assert inst.status != STOPPED
    assert epoch[0] or further(name, inst.position()) or not inst.ck.pos, "it seeks what it has"
    inst.become(FETCHING)
    inst.want(name, epoch, holders)
    assert not inst.fetch_try


# Its keepers say first what they hold; or there is no room yet for what it has to store.
def recall(inst: "Instance") -> None:
    assert inst.status != STOPPED
    inst.become(RECALLING)
    assert inst.first or noted(inst.host, inst.vertex.index), "flash does not know that it is here"


# ... and what was pending here belonged to another course.
def recall_again(inst: "Instance") -> None:
    recall(inst)
    inst.ck.discard()
    assert not inst.ck.pending


# They have, or nothing was to be asked.
def go_on(host: "Host", inst: "Instance") -> None:
    assert inst.status == RECALLING and not inst.recalling
    handed = host.taking and host.taking.continues(inst)
    inst.become(EXPOSED if inst.unsettled and not handed or inst.deciding else RUNNING)
    note_running(host, inst)


# It decides now: that is known before anything follows from it.
def expose(host: "Host", inst: "Instance") -> None:
    assert inst.status == RUNNING and not inst.unsettled
    inst.become(EXPOSED)
    inst.decides(True)
    note_running(host, inst)


# A checkpoint is stored at the level. It runs on, if that knows of its epoch and of its last decision. True
# where that decision was not stored before.
def covered(host: "Host", inst: "Instance") -> bool:
    if inst.unsettled or inst.ck.safe_pos[-1] < inst.decided:
        return False
    news = inst.deciding
    inst.become(RUNNING)
    inst.decides(False)
    note_running(host, inst)
    return news


# It takes nothing any more, so that another host may go on where it stands.
def pause(inst: "Instance") -> None:
    assert inst.status == RUNNING and not (inst.unsettled or inst.recalling or inst.blind)
    inst.become(PAUSED)


# No other host has gone on.
def take_back(inst: "Instance") -> None:
    assert inst.status == PAUSED
    inst.become(RUNNING)
    if inst.ck.pos:
        inst.ck.store_at_level()


# From now on this epoch tells and takes nothing.
def stop(host: "Host", inst: "Instance") -> None:
    assert inst.status != STOPPED
    inst.become(STOPPED)
    note(host, inst.vertex.index, inst.epoch, OVER)
    forget_epoch(host, inst.vertex.index)
    assert noted(host, inst.vertex.index) == (tuple(inst.epoch), OVER)


# Delete what an epoch of operator v that is over left here beside its permanent checkpoint. Its pending ones
# will not be acknowledged any more. What it put out may have been on another course, and would stay
# permanently; the checkpoint has what is not safe, and only at level local it leaves that to the log.
def forget_epoch(host: "Host", v: int) -> None:
    for slot in (PENDING, PENDING + 1):
        key = checkpoint_key(v, slot)
        if host.store.blob_size(key):
            host.store.drop_blob(key)
    if host.plan.level_of(v):  # at level local the log is all that there is
        for k in range(len(host.plan.vertices[v].outs)):
            host.store.forget(stream_key(v, k))
