# The life of an operator on a host: its states, every transition between them, and what flash notes of it, so
# that a later boot goes on where this one was.
#
#   from              to        transition
#   (made)            RUNNING   Instance.__init__; nothing runs before hosting and starting have looked at it
#   RUNNING           WAITING   wait: a pending checkpoint may yet turn out to be permanent
#   WAITING           RUNNING   expire: it was not acknowledged in time
#   any but STOPPED   FETCHING  seek: a producer or a keeper named a checkpoint that counts more
#   any but STOPPED   ASKING    ask: the gateway says first where it runs and what was decided
#                     ASKING    ask_again: the same, from a checkpoint that another epoch made
#   ASKING            RUNNING   run
#   any               STOPPED   stop: a newer epoch runs elsewhere
#
# Invariants.
#   - No other module writes Instance.status.
#   - What a transition makes useless it deletes in RAM and in flash: pending checkpoints that will not be
#     acknowledged any more, and at the end of an epoch what it has put out.
#   - An operator that runs is noted as running before it takes anything.

from . import pack
from .instance import ASKING, FETCHING, RUNNING, STOPPED, WAITING
from .keyspace import (
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


# What flash knows of an operator here: its epoch, and OVER, RUNS, UNTOLD or UNSETTLED.
def note(host, v, epoch, state):
    host.store.put(F_OP + v, pack.dumps([epoch[0], epoch[1], state]))


# (epoch, state) of an operator as flash knows it, or None.
def noted(host, v):
    data = host.store.get(F_OP + v)
    if data:
        number, at, state = pack.loads(data)
        return (number, at), state


# Note an operator that runs here.
def note_running(host, inst):
    state = UNTOLD if inst.status == ASKING else RUNS
    if state == RUNS and (inst.unsettled or not all([e.fenced for e in inst.inputs])):
        state = UNSETTLED
    note(host, inst.vertex.index, inst.epoch, state)


# The epoch of an operator has a checkpoint at the plan's level.
def settled(host, inst):
    inst.unsettled = False
    no_more(host, inst.vertex.index, LOST)
    note_running(host, inst)


# ---- what this host has lost with its flash, or its database: host.again


def lost(host, v):
    return bool(host.again and host.again[v] & LOST)


# LEARN or LOST is over for operator v.
def no_more(host, v, bit):
    if host.again and host.again[v] & bit:
        host.again[v] -= bit
        host.store.put(F_AGAIN, bytes(host.again))


# ---- transitions


# It has pending checkpoints from an earlier boot; news of them may be on its way until then.
def wait(inst, until_us):
    assert inst.status == RUNNING and inst.ck.pending
    inst.status = WAITING
    inst.wait_us = until_us


# No news of them came: they will not be acknowledged any more.
def expire(inst):
    assert inst.status == WAITING
    inst.status = RUNNING
    inst.ck.discard()


# It goes on from this checkpoint, once it has it.
def seek(inst, name, epoch, holders):
    assert inst.status != STOPPED
    inst.status = FETCHING
    inst.target = name
    inst.target_epoch = epoch
    inst.fetch_from = list(holders)
    inst.fetch_try = 0


# The gateway is asked before it runs.
def ask(inst):
    assert inst.status != STOPPED
    inst.status = ASKING


# ... and what was pending here belonged to another course.
def ask_again(inst):
    ask(inst)
    inst.ck.discard()


def run(host, inst):
    assert inst.status == ASKING
    inst.status = RUNNING
    note_running(host, inst)


# This epoch says and takes nothing any more.
def stop(host, inst):
    inst.status = STOPPED
    note(host, inst.vertex.index, inst.epoch, OVER)
    forget_epoch(host, inst.vertex.index)


# Delete what an epoch of operator v that is over left here beside its permanent checkpoint. Pending ones will
# not be acknowledged any more. What it put out may have been on another course, and would stay permanently;
# the checkpoint has what is not safe, and only at level local it leaves that to the log.
def forget_epoch(host, v):
    for slot in (PENDING, PENDING + 1):
        key = checkpoint_key(v, slot)
        if host.store.blob_size(key):
            host.store.drop_blob(key)
    if host.plan.level:
        for k in range(len(host.plan.vertices[v].outs)):
            host.store.forget(stream_key(v, k))
