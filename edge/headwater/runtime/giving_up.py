# Giving up: an operator waits for a checkpoint that no living host has. More hosts were lost than the level
# covers: a producer has trimmed what only that checkpoint counts, or the keepers that may have a further one
# never answer; or its consumers have what it could only put out again from entries that are lost. A person
# says that it shall go on all the same (`hw give-up`), or the process file does (give_up_after).
#
# It begins a new epoch as any operator does that starts elsewhere. Every producer learns of that, and the
# keepers that live send what they have. What differs is what it does not wait for, and where it goes on:
#
#   - where the furthest checkpoint is that a living keeper has, if no producer names a further one: nothing
#     that this operator took before is missing there;
#   - otherwise in the operator's first state, with the parameters that are known, at the position that a
#     producer names: from there on the producers hold everything.
#
# What it puts out from there on need not be what the lost course put out under the same numbers. So its
# outputs begin another incarnation, at entry 1, whose number no earlier epoch had. The lake keeps the former
# one as far as it came; consumers inside go on with the new one by a decision of their own, as with a source
# whose flash was erased (decisions.other). Giving up is itself a decision: it is counted, and nothing follows
# from it before a checkpoint that has it is stored at the level.
#
# Promises.
#   - No entry that a producer still holds is lost by it, and none that was acknowledged is taken again.
#   - An operator that does not wait cannot give up; the same word, heard twice, does so once.
#   - No consumer hears of the new incarnation before every later epoch would (OutPort.hidden).
#   - A producer that is silent, and not declared lost, is waited for: where it stands is not known. But one
#     that has given up itself is not: it may need this operator's checkpoint before it may answer.

from ..offboard.compat import TYPE_CHECKING, const
from ..plan.model import UNSAFE
from ..protocol import frames, moves
from ..protocol.position import further, inputs_of
from ..protocol.refusals import NO_HEAP
from ..storage.keyspace import PERMANENT, checkpoint_key
from . import lifecycle
from .instance import FETCHING, RUNNING, STOPPED
from .outputs import RETRY_US

if TYPE_CHECKING:
    from typing import Any

    from ..offboard.interfaces import Epoch, Message, Position
    from ..plan.model import Edge
    from .host import Host
    from .inputs import InEdge
    from .instance import Instance
    from .operator import Operator

_ARRIVES_US = const(30000000)  # a checkpoint that a keeper has begun to send is waited for this much longer


# Whether this operator waits for what hosts have that may be lost.
def waits(host: "Host", inst: "Instance") -> bool:
    if inst.blind or inst.anew or host.plan.strategy == UNSAFE:
        return False
    return inst.status == FETCHING or inst.recalling or inst.stuck()


# Operator v, which runs here under an epoch with this number, gives up. False where it does not wait.
def begin(host: "Host", v: int, number: int) -> bool:
    inst = host.instances.get(v)
    if inst is None or inst.epoch[0] != number or inst.status == STOPPED or not waits(host, inst):
        return False
    from . import relocation

    def prepare(inst: "Instance") -> None:
        inst.seeks_place(Anew(host, inst))

    relocation.activate(host, v, number + 1, why=moves.GIVEN_UP, prepare=prepare)
    return True


# It has waited a little longer. The time counts in which this host hears the gateway: where it does not, it
# may be this host that is away from all others.
def wait(host: "Host", inst: "Instance") -> None:
    link = host.exchange.links.get(0)
    if not waits(host, inst) or (inst.status == RUNNING and not inst.lacks()):
        inst.waits_longer(0)
    elif not host.me or link and link.heard_us and host.now - link.heard_us < host.pace[1]:
        inst.waits_longer(RETRY_US // 2)
        if inst.waited_us >= 1000000 * inst.vertex.give_up_s:
            begin(host, inst.vertex.index, inst.epoch[0])


# An operator that has given up, until it has a place.
class Anew:
    def __init__(self, host: "Host", inst: "Instance") -> None:
        self.host = host
        self.inst = inst
        self.until_us = host.now + 4 * host.pace[2]  # keepers that live have answered by then
        # Edge -> what its producer said under this epoch: incarnation, the entry after which it holds
        # everything that this operator has not acknowledged, name.
        self.told: "dict[int, tuple[int, int, Position]]" = {}

    # A producer has answered. epoch: the newest that it knows of this operator.
    def hear(self, e: "InEdge", inc: int, epoch: "Epoch", first: int, name: "Position") -> None:
        if epoch > self.inst.epoch:
            self.host.stop(self.inst, epoch)
        elif epoch == self.inst.epoch:
            self.told[e.edge.index] = (inc, first, list(name))
        elif inc != e.inc:
            e.renumber(inc)
            _ask(self.host, e)  # what it said was about another incarnation

    # Hosts whose answers are missing: they have a producer, and are not declared lost.
    def missing(self) -> list[int]:
        from . import losses

        found = []
        for e in self.inst.inputs:
            at = self.host.where[e.edge.src][2]
            told = e.edge.index in self.told or e.closed or e.closing >= 0
            if not (told or losses.away(self.host, at) or self._hides(e.edge, at)):
                found.append(at)
        return found

    # Whether that producer has given up itself, on a host that lives: then it answers nobody before its new
    # incarnation is stored at the level. That may need this operator's checkpoint to be stored (losses.py).
    def _hides(self, edge: "Edge", at: int) -> bool:
        host = self.host
        port = host.ports.get((edge.src, edge.sport))
        if port:
            return port.hidden()
        gave_up = host.moves.get(edge.src, (0,))[0] == moves.GIVEN_UP
        return bool(gave_up and host.words and not host.words.dead(at))

    # Begin, if everything is known that will be.
    def look(self) -> None:
        inst = self.inst
        now = self.host.now
        arrives = inst.status == FETCHING and inst.target_epoch[0] and now < self.until_us + _ARRIVES_US
        if now >= self.until_us and not arrives and not self.missing():
            try:
                self._begin()
            except MemoryError:
                self.host.count(NO_HEAP)

    # At the furthest checkpoint that is here, or at what a producer names, if that is further.
    def _begin(self) -> None:
        from . import renumbering, restore

        host, inst = self.host, self.inst
        name: "Position" = []
        for _, _, other in self.told.values():
            if further(other, name):
                name = other
        op: "Operator | None" = None
        key = checkpoint_key(inst.vertex.index, PERMANENT)
        there = host.store.blob_size(key) and restore.restore(host, inst, key)
        if not there or further(name, inst.ck.pos):
            op = restore.made(host, inst.vertex)
            op.configure(inst.changed)
        pos = name if op and name else inst.ck.pos or [0] * (inputs_of(inst.vertex) + 2)
        places = self._places(pos, op is not None)
        inst.seeks_place(None)
        inst.resume(op or inst.op, pos, inst.changed, inst.given, inst.front)
        for e in inst.inputs:
            if op and e.closed:
                op.closed(e.edge.dport)  # its first state knows nothing of that
        for e, xi in zip(inst.inputs, pos):
            e.resume(xi, e.inc, e.closed, e.from_ts, e.since)
        inc = inst.next_incarnation()
        for p in inst.ports:
            renumbering.begin(p, inc)
        inst.ck.moved()
        inst.recall(True, False, [], 0)
        lifecycle.recall(inst)
        lifecycle.go_on(host, inst)
        inst.decide(["anew", inc, int(op is not None), places, dict(inst.changed)], inst.given)
        for e, (xi, of) in zip(inst.inputs, places):
            e.resume(xi, of, e.closed, e.from_ts, inst.decided if op else e.since)
        inst.ck.now()
        restore.reconnect(host, inst)

    # Of every input: the entry after which it goes on, and the incarnation. What a producer names lies in its
    # present one. Where it names nothing, the position of another producer's name may be of an earlier one:
    # then it goes on with all that it holds.
    def _places(self, pos: "Position", first: bool) -> "list[tuple[int, int]]":
        found = []
        for e, xi in zip(self.inst.inputs, pos):
            inc = e.inc
            if first and e.edge.index in self.told:
                inc, least, name = self.told[e.edge.index]
                xi = max(xi, least) if name else least
            found.append((xi, inc))
        return found


def _ask(host: "Host", e: "InEdge") -> None:
    from . import routing

    if e.sink.status != STOPPED:
        routing.hello(host, e)


# ---- what a person says


# At the gateway: operator v gives up where it waits, if it still does so under the epoch of this number.
def say(host: "Host", v: int, at: int, number: int) -> None:
    if at == host.me:
        begin(host, v, number)
    else:
        host.exchange.say(at, frames.GIVE_UP, v, v, number)


def _on_give_up(host: "Host", sender: int, m: "Message") -> None:
    begin(host, m[1], m[2])


HANDLERS: "dict[int, Any]" = {frames.GIVE_UP: _on_give_up}
