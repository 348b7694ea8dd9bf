# Hosts that a person has declared lost (`hw board lost`).
#
# It is the log number that is lost, with all that was stored under it. A host that hears of it refuses every
# frame under that log number from then on, in every boot, counts the host no more as a holder of anything,
# and stores elsewhere what it held. The host comes back only with a new log number, and is no keeper before
# the next deployment.
#
#   DECLARED  the gateway tells it to every host (LOST), again and again. Each answers (WITHOUT) once enough
#             others have the checkpoints of all its operators. Until then the lost host still counts as a
#             keeper that is silent, and as many holders are needed as before.
#   LEFT      all of them have answered, and each operator that can still run was named by one. From now on
#             the keepers of an operator are those that are left, and where they are too few for the level,
#             as many holders are needed as there are.
#
# Why a recall still finds every checkpoint that was acknowledged. It is stored at needed + 1 keepers that
# count, and a recall hears all of these but `needed`. Let p be the host that acknowledged, q the one that
# recalls. If p counts fewer keepers than q, those that q counts in addition are lost, and q refuses them, as
# every host did before any counted fewer: so they are among those that q misses, and q misses no more of the
# others than p needed. If q counts fewer, then p has answered: what it acknowledges, and what it had
# acknowledged, is stored at hosts that q counts. Where more are lost than that, a recall does not end: what
# it would go on from may be older than what was put out. The operator waits, or gives up (giving_up.py).
#
# The gateway refuses the key of a lost host, too, and with it every log number, until the board has another
# key (Exchange.refuse). Other hosts refuse the former key once they have the new one: it comes to them as a
# deployment of the same plan with other keys.
#
# Promise: a state never goes back, in any boot, unless the flash is erased; the gateway tells such a host
# first of all (Exchange._new_life).

from ..data import msgpack
from ..offboard.compat import TYPE_CHECKING, const
from ..protocol import frames
from ..protocol.refusals import CONTENT, ROLE
from ..storage.keyspace import DECLARED, F_LOST, LEFT, LOST_MAX
from .instance import FETCHING, STOPPED

if TYPE_CHECKING:
    from ..offboard.interfaces import Message
    from .host import Host


# What a WITHOUT says of a host: it is declared lost; the sender can do without it; or it has left already.
_DECLARED = const(0)
_ANSWERS = const(1)
_LEFT = const(2)


# At the gateway: this host is lost, with that log number. ValueError says why that cannot be.
def declare(host: "Host", number: int, log: int) -> None:
    assert not host.me and number, "the gateway says which board is lost"
    if number not in host.lost and len(host.lost) >= LOST_MAX:
        raise ValueError("%d boards of this deployment are lost: deploy the process without them" % LOST_MAX)
    _take(host, number, log, DECLARED)
    press(host)


# Store what is known of a lost host, and do what follows.
def _take(host: "Host", number: int, log: int, state: int) -> None:
    known = host.lost.get(number)
    if known and known[0] == log and known[1] >= state:
        return
    if known:
        state = max(state, known[1])  # it came back, and is lost again: it was no keeper in between
    host.lost[number] = [log, state]
    host.store.put(F_LOST + number, msgpack.dumps([log, state]))
    if number == host.me and log == host.store.log_number:
        host.revoke()
        return
    if state == LEFT:
        _recount(host)
        return
    if number == host.me:
        return  # it came back with another one
    if away(host, number):
        for p in host.ports.values():
            p.lose(number)
        if host.words:
            host.words.bury(number)
    _replace(host, number)


# Operators here of which enough hosts that are not lost have the checkpoint: with them it outlives as many
# deaths as it can now. And whether these are all that have ever acknowledged anything. Of the others it is
# sent to more.
def _covered(host: "Host") -> "tuple[list[int], bool]":
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
            continue
        every = False
        if v not in host.pushes and inst.ck.pos:
            inst.ck.store_at_level()  # an operator that gets nothing more would never do it by itself
    return found, every


# A host was declared lost: what it held is to be stored elsewhere, at once.
def _replace(host: "Host", number: int) -> None:
    for v in list(host.instances):
        inst = host.instances[v]
        if inst.status == STOPPED or inst.recalling:
            continue
        if v in host.pushes or number in inst.ck.holders:
            host.pushes.pop(v, None)
            if inst.ck.pos and inst.status != FETCHING:
                inst.ck.store_at_level()


# One has left: fewer holders may be enough now, and a recall asks those that are left.
def _recount(host: "Host") -> None:
    from . import checkpoint_transfer, incoming

    for v in list(host.pushes):
        checkpoint_transfer.confirmed(host, host.instances[v])
    for v in host.instances:
        inst = host.instances[v]
        if inst.recalling:
            incoming.ask_all(host, inst, inst.unsettled, True)


# Tell a host of all that are lost, or of one. One that may know more than this gateway says that instead.
def tell(host: "Host", to: int, number: int = -1) -> None:
    for h in host.lost:
        if number in (-1, h):
            log, state = host.lost[h]
            if host.me:
                host.exchange.say(to, frames.WITHOUT, h, h, log, _LEFT if state == LEFT else _DECLARED, [])
            else:
                host.exchange.say(to, frames.LOST, h, h, log, state)


# At the gateway: ask again those that have not answered yet.
def press(host: "Host") -> None:
    for number in host.lost:
        if host.lost[number][1] == DECLARED:
            _settle(host, number)
    for number in host.lost:
        if host.lost[number][1] == DECLARED:
            for to in host.exchange.links:
                tell(host, to, number)


# Whether a host of the plan is lost: one that came back with a new log number is not, unless its key is
# refused.
def away(host: "Host", number: int) -> bool:
    known = host.lost.get(number)
    if not known or number in host.exchange.lost:
        return bool(known)
    link = host.exchange.links.get(number)
    return not (link and link.peer.live and link.peer.log != known[0])


# At the gateway: it leaves, if every other host has answered.
def _settle(host: "Host", number: int) -> None:
    plan = host.plan
    named, every = _covered(host)
    answers = host.without.get(number, {})
    for h in range(1, len(plan.hosts)):
        if not away(host, h):
            every = every and h in answers
            named = named + answers.get(h, [])
    for v in plan.vertices:
        if v.kind and v.index not in named and [h for h in v.hosts if not away(host, h)]:
            every = False
    if every:
        _leave(host, number)


# At the gateway: the keepers are counted without it from now on, here and then elsewhere.
def _leave(host: "Host", number: int) -> None:
    host.without.pop(number, None)
    _take(host, number, host.lost[number][0], LEFT)
    for to in host.exchange.links:
        tell(host, to, number)


def _on_lost(host: "Host", sender: int, m: "Message") -> None:
    _, number, log, state = m
    if not 0 < number < len(host.plan.hosts) or state not in (DECLARED, LEFT):
        host.count(CONTENT)
        return
    _take(host, number, log, state)
    if host.revoked or state == LEFT:
        return
    named, every = _covered(host)
    if every:
        host.exchange.say(sender, frames.WITHOUT, number, number, log, _ANSWERS, named)


def _on_without(host: "Host", sender: int, m: "Message") -> None:
    _, number, log, answers, named = m
    if host.outbox is None:
        host.count(ROLE)
        return
    known = host.lost.get(number)
    if not 0 < number < len(host.plan.hosts):
        host.count(CONTENT)
    elif known is None:
        if host.again and number != sender and len(host.lost) < LOST_MAX:
            declare(host, number, log)  # this gateway has lost its database, and learns what it had said
    elif known[0] == log and known[1] == DECLARED and answers == _LEFT:
        _leave(host, number)  # ... or that all had answered
    elif known[0] == log and known[1] == DECLARED and answers == _ANSWERS:
        host.without.setdefault(number, {})[sender] = [v for v in named if v < len(host.plan.vertices)]
        _settle(host, number)


HANDLERS = {frames.LOST: _on_lost, frames.WITHOUT: _on_without}
