# The life of an operator on a host: its states, every transition between them, and what flash notes of it, so
# that a later boot continues where this one was.
#
#   from              to        transition
#   (made)            RUNNING   Instance.__init__; nothing runs before hosting and starting have looked at it
#   RUNNING           WAITING   wait: a pending checkpoint may yet turn out to be permanent
#   WAITING           RUNNING   expire: it was not acknowledged in time
#   any but STOPPED   FETCHING  seek: a producer or a keeper named a checkpoint that counts more
#   any but STOPPED   ASKING    ask: the gateway says first where it runs and what was decided
#                     ASKING    ask_again: the same, from a checkpoint that another epoch made
#   ASKING            RUNNING   run
#   RUNNING           PAUSED    pause: it is handed over to another host (moving.py)
#   PAUSED            RUNNING   go_on: it was not
#   any but STOPPED   STOPPED   stop: a newer epoch runs elsewhere
#
# Beside its status an operator whose epoch is new is `recalling` until enough of its keepers have answered
# (checkpoint_transfer.py), and `unsettled` until a checkpoint of this epoch is stored at the plan's level
# (settled).
#
# Invariants.
#   - No other module calls Instance.become, and nothing else writes Instance.status.
#   - The epoch that flash notes of an operator never falls.
#   - What a transition makes useless it deletes in RAM and in flash: pending checkpoints that will not be
#     acknowledged any more, and at the end of an epoch what it put out.
#   - An operator that runs is noted as running before it takes anything.

from ..data import msgpack
from ..offboard.compat import TYPE_CHECKING
from ..protocol.position import further
from ..storage.keyspace import (
    ALONE,
    F_AGAIN,
    F_OP,
    LOST,
    OVER,
    PENDING,
    RUNS,
    UNSETTLED,
    UNTOLD,
    checkpoint_key,
    stream_key,
)
from .instance import ASKING, FETCHING, PAUSED, RUNNING, STOPPED, WAITING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..offboard.interfaces import Epoch, Position
    from .host import Host
    from .instance import Instance


# What flash knows of an operator here: its epoch, and OVER, RUNS, UNTOLD or UNSETTLED.
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
    state = UNTOLD if inst.status == ASKING else RUNS
    if state == RUNS and (inst.unsettled or not all([e.fenced for e in inst.inputs])):
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
    inst.recall(False, inst.recalling, inst.unheard, inst.erased)
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


# It asks the gateway before it runs.
def ask(inst: "Instance") -> None:
    assert inst.status != STOPPED
    inst.become(ASKING)
    assert inst.first or noted(inst.host, inst.vertex.index), "flash does not know that it is here"


# ... and what was pending here belonged to another course.
def ask_again(inst: "Instance") -> None:
    ask(inst)
    inst.ck.discard()
    assert not inst.ck.pending


# The gateway has answered, or nothing was to be asked.
def run(host: "Host", inst: "Instance") -> None:
    assert inst.status == ASKING and not inst.recalling
    inst.become(RUNNING)
    note_running(host, inst)
    assert inst.status == RUNNING


# It takes nothing any more, so that another host may go on where it stands.
def pause(inst: "Instance") -> None:
    assert inst.status == RUNNING and not (inst.unsettled or inst.recalling or inst.blind)
    inst.become(PAUSED)


# No other host has gone on.
def go_on(inst: "Instance") -> None:
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
    if host.plan.level:
        for k in range(len(host.plan.vertices[v].outs)):
            host.store.forget(stream_key(v, k))
