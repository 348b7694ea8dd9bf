# Decisions: what depends on the moment - a parameter changed, a dead input closed or taken back.
#
# Theory. A decision is a checkpoint. The operator takes it where it stands, and then puts nothing out before
# a checkpoint that counts it is stored at the level (EXPOSED in lifecycle.py). Until then no other host can
# know of it, and whoever goes on from an earlier checkpoint need not know either. From then on every later
# epoch finds it: it hears all keepers but as many as the level covers, and the checkpoint is on one host more
# (incoming.py). So there is nothing to be placed, granted or replayed: no host waits for another
# one to decide.
#
# What is decided comes from the gateway, which numbers its changes for each operator, or from the operator
# itself: that it goes on with another incarnation of a source. The number of the last change that was taken
# is part of the operator's state, so each is taken once, in order. A gateway that lost its database has
# another log number, and counts from 1.
#
# Invariants.
#   - An operator decides only where every open input has answered under its epoch, and where no consumer, nor
#     in turn the consumers after it, have anything that it has not put out in this boot.
#   - What a consumer takes, it takes after every decision before it was stored at the level.
#   - The gateway counts a change as taken when the operator has told it so, and it tells only what is stored.

from ..data import msgpack
from ..offboard.compat import TYPE_CHECKING, const
from ..plan.model import CONTENT_MAX, OPEN_MAX, UNSAFE
from ..protocol import frames
from ..protocol.refusals import CONTENT, NO_ROOM
from ..storage.checkpoint_file import number as is_number
from ..storage.keyspace import B_DECIDED, B_VALUES, F_NEXT, F_TAKEN, LEARN, change_key
from ..storage.log import LogFull
from . import lifecycle
from .instance import EXPOSED, RUNNING
from .operator import OperatorError

if TYPE_CHECKING:
    from typing import Any

    from ..offboard.interfaces import Message, Params, Readable
    from ..plan.model import Plan
    from .host import Host
    from .inputs import InEdge
    from .instance import Instance
    from .operator import Operator

_ASK_US = const(5000000)  # how an operator stands is asked no more often


# The content of a decision for operator v; None, and counted, where it is not valid.
def _content(host: "Host", v: int, data: "Readable") -> "list[Any] | None":
    content: "Any" = None
    try:
        if len(data) <= CONTENT_MAX:
            content = msgpack.loads(bytes(data))
    except msgpack.PackError:
        pass
    if content is not None and valid(host.plan, v, content):
        return content
    host.count(CONTENT)
    return None


# Whether this is something that can be decided about operator v.
def valid(plan: "Plan", v: int, content: "Any") -> bool:
    if type(content) is not list or len(content) < 2:
        return False
    if content[0] == "set":
        return len(content) == 2 and type(content[1]) is dict and all([type(k) is str for k in content[1]])
    if type(content[1]) is not int or not 0 <= content[1] < len(plan.ins(v)):
        return False
    if content[0] == "open":
        return len(content) == 4 and is_number(content[2]) and is_number(content[3]) and content[3] < 1 << 62
    return content[0] == "close" and len(content) == 2


# ---- at the gateway


# A change of operator v; its number. ValueError says why it cannot be made now.
def config(host: "Host", v: int, content: "list[Any]") -> int:
    name = host.plan.vertices[v].name
    if v in host.unlearned:
        raise ValueError("what was changed in %s is not known again yet: its host has not answered" % name)
    data = msgpack.dumps(content)
    if len(data) > CONTENT_MAX or not valid(host.plan, v, content):
        raise ValueError("%s: a change of %d bytes; at most %d" % (name, len(data), CONTENT_MAX))
    number = made(host, v) + 1
    # A dead input can be closed even when changes wait for its producer: they are taken only then.
    if number - taken(host, v) > (2 * OPEN_MAX if content[0] == "close" else OPEN_MAX):
        raise ValueError(
            "%s has not taken %d changes yet, and no more may wait: make the next one when it has"
            % (name, OPEN_MAX)
        )
    host.store.put_blob(change_key(v, number), msgpack.dumps([number, content]))
    host.store.put(F_NEXT + v, number.to_bytes(4, "little"))
    offer(host)
    host.exchange.flush()
    return number


# The host of an operator asks for a change: an input that may be absent is to be closed, or opened. It asks
# until that is so, and a change that waits is not made again.
def _on_request(host: "Host", v: int, content: "list[Any]") -> None:
    if host.outbox is None or content[0] == "set" or v in host.unlearned:
        return
    edge = host.plan.ins(v)[content[1]]
    if not edge.absent_ms or edge.local or made(host, v) - taken(host, v) >= OPEN_MAX:
        return
    for n in range(made(host, v), taken(host, v), -1):
        what = change(host, v, n)
        if what and what[0] != "set" and what[1] == content[1]:
            if what[0] == content[0]:
                return
            break
    config(host, v, content)


# Number of the last change of operator v that was made, and of the last that it has taken.
def made(host: "Host", v: int) -> int:
    return _number(host, F_NEXT + v)


def taken(host: "Host", v: int) -> int:
    return _number(host, F_TAKEN + v)


def _number(host: "Host", key: int) -> int:
    data = host.store.get(key)
    return int.from_bytes(data, "little") if data else 0


# The content of change `number` of operator v, or None where it is not kept.
def change(host: "Host", v: int, number: int) -> "list[Any] | None":
    data = host.store.get_blob(change_key(v, number))
    found: "list[Any]" = msgpack.loads(data) if data else [0, None]
    return found[1] if found[0] == number else None


# [parameters that decisions have set, the last refusal: [number, why] or []], as the operator has told.
def told(host: "Host", v: int) -> "list[Any]":
    data = host.store.get_blob(B_VALUES + v)
    return msgpack.loads(data) if data else [{}, []]


# The parameters after all changes that were made, or after those that the operator has taken; `op`, an
# operator as the plan has it, is brought to them. What its type refuses is skipped, as by the operator
# itself.
def follow(host: "Host", v: int, op: "Operator", in_force: bool = False) -> "Params":
    values: "Params" = told(host, v)[0]
    op.configure(values)
    if not in_force:
        for n in range(taken(host, v) + 1, made(host, v) + 1):
            content = change(host, v, n)
            if content and content[0] == "set":
                try:
                    op.configure(content[1])
                    values.update(content[1])
                except OperatorError:
                    continue
    return values


# Offer the changes that operators have not taken yet. One after the other, but that an input is to be closed
# is said at once: what comes before it may wait for that input.
def offer(host: "Host") -> None:
    asks = host.now >= host.ask_us
    for v in range(len(host.plan.vertices)):
        if v in host.unlearned:
            if asks:
                _say(host, host.where[v][2], frames.STANDS, v, v)
            continue
        if asks and v in host.given_up:
            _say(host, host.where[v][2], frames.STANDS, v, v)
        last = made(host, v)
        if last:
            done = taken(host, v)
            for n in range(done + 1, last + 1):
                content = change(host, v, n)
                if content and (n == done + 1 or content[0] == "close"):
                    data = msgpack.dumps(content)
                    _say(host, host.where[v][2], frames.CONFIG, v, v, host.store.log_number, n, data)
    if asks:
        host.ask_later(_ASK_US)


# The operator says: of the changes that this gateway gave, those up to `number` are taken; the parameters
# that changes have set, and what it refused. An epoch that lost what an earlier one had taken is given it
# again.
def _on_stand(host: "Host", sender: int, m: "Message") -> None:
    _, v, epoch, log, number, data = m
    if log != host.store.log_number:
        number = 0
    try:
        values, refused = msgpack.loads(bytes(data))
    except (msgpack.PackError, ValueError, TypeError):
        host.count(CONTENT)
        return
    if not valid(host.plan, v, ["set", values]) or type(refused) is not list or number > made(host, v):
        host.count(CONTENT)
        return
    host.heard_where(v, epoch, sender)
    if epoch < host.where[v][:2]:
        return
    store = host.store
    now = msgpack.dumps([values, refused])
    if now != store.get_blob(B_VALUES + v):
        store.put_blob(B_VALUES + v, now)
    if number != taken(host, v):
        store.put(F_TAKEN + v, number.to_bytes(4, "little"))  # last: until then it is told again
    host.gave_up(v, False)
    if v in host.unlearned:
        host.unlearned.remove(v)
        lifecycle.no_more(host, v, LEARN)
    offer(host)


# Send, or hand over where it is for this host itself. Of what bears a number each is sent; of the rest a
# later one replaces an earlier.
def _say(host: "Host", to: int, kind: int, subject: int, *values: "Any") -> None:
    if to == host.me:
        HANDLERS[kind](host, to, (kind,) + values)
    else:
        host.exchange.say(to, kind, (subject, values[2]) if kind == frames.CONFIG else subject, *values)


# ---- at the operator


# Whether every producer refuses what older epochs acknowledge, and has named what it knows of; but one whose
# input is to be closed will never answer. Where a source's stream begins here, and in which incarnation, is
# not known before it has answered: a checkpoint of a decision must know that.
def answered(inst: "Instance") -> bool:
    for e in inst.inputs:
        met = e.contact or e.cur.xi or inst.host.plan.vertices[e.edge.src].kind
        if not (e.fenced and met or e.closed or e.other or e.closing >= 0):
            return False
    return True


# A decision may be taken here and now; and a checkpoint after it can be made.
def _may_decide(host: "Host", inst: "Instance") -> bool:
    if inst.status != RUNNING or inst.depth < len(host.plan.vertices) or not answered(inst):
        return False
    return host.plan.strategy == UNSAFE or inst.ck.possible()


# Take this decision where the operator stands, if it may now. given: see Instance.given. True where it did.
def take(host: "Host", inst: "Instance", content: "list[Any]", given: tuple[int, int]) -> bool:
    if not _may_decide(host, inst):
        return False
    if content[0] == "open":
        content = _opens(host, inst, content)
    if host.plan.strategy != UNSAFE:
        lifecycle.expose(host, inst)
    inst.decide(content, given)
    if host.plan.strategy != UNSAFE:
        inst.ck.now()
    else:
        _keep(host, inst)
        stand(host, inst)
    return True


# What the decision to take an input back says exactly.
def _opens(host: "Host", inst: "Instance", content: "list[Any]") -> "list[Any]":
    _, port, inc, from_ts = content
    e = inst.inputs[port]
    # What the producer told counts. The gateway may have heard of none, or of one that is over.
    inc = e.other or e.inc or inc
    if not e.closed and e.inc == inc:
        return ["set", {}]  # it is open already
    # It cannot take any more what is older than what it has taken, or than a boundary that it has given; what
    # an earlier boot promised without the input was before now.
    from_ts = max([from_ts, inst.front + inst.past] + [p.bound for p in inst.ports])
    if e.closed:
        from_ts = max(from_ts, e.from_ts, host.site())  # nothing of what it has dropped
    return ["open", port, inc, from_ts]


# A change that the gateway has made. It offers it again until it hears that it was taken.
def _on_config(host: "Host", sender: int, m: "Message") -> None:
    _, v, log, number, data = m
    content = _content(host, v, data)
    if content and not number:
        _on_request(host, v, content)
        return
    inst = host.instances.get(v)
    if not content or not inst:
        return
    last = inst.given[1] if inst.given[0] == log else 0
    if number <= last:
        stand(host, inst)
        return
    if content[0] == "close":
        content = _closing(host, inst.inputs[content[1]], content)
    if number == last + 1:
        take(host, inst, content, (log, number))


# An input is to be closed: not where that was asked for because of a silence that is over.
def _closing(host: "Host", e: "InEdge", content: "list[Any]") -> "list[Any]":
    if host.absence and host.absence.stays(e):
        e.stay()
        return ["set", {}]
    e.close_soon()
    return content


# Ask the gateway for a change of operator v, which runs here.
def request(host: "Host", v: int, content: "list[Any]") -> None:
    _say(host, 0, frames.CONFIG, v, v, 0, 0, msgpack.dumps(content))


# The producer of input e began another incarnation: go on with that one, where it may be decided.
def other(host: "Host", e: "InEdge") -> None:
    inst = e.sink
    if inst.status == RUNNING and not take(
        host, inst, ["open", inst.inputs.index(e), e.other, 0], inst.given
    ):
        # What was taken of the former one exists nowhere else.
        if host.plan.strategy != UNSAFE and inst.ck.possible() and inst.ck.safe(e) < e.cur.xi:
            inst.ck.now()
        if e.port is None and host.plan.vertices[e.edge.src].kind and answered(inst):
            e.tell_apart()


# Without checkpoints the last values, and which inputs are closed, are all that a later boot needs.
def _keep(host: "Host", inst: "Instance") -> None:
    closed = sum([int(inst.inputs[k].closed) << k for k in range(len(inst.inputs))])
    data = msgpack.dumps([inst.decided, list(inst.given), inst.changed, closed])
    try:
        host.store.put_blob(B_DECIDED + inst.vertex.index, data)
    except LogFull:
        host.count(NO_ROOM)


# Tell the gateway how far the decisions of an operator are: those that are stored at the level.
def stand(host: "Host", inst: "Instance") -> None:
    if inst.status == EXPOSED or inst.unsettled:
        return
    log, number = inst.given
    v = inst.vertex.index
    data = msgpack.dumps([inst.changed, inst.refused])
    _say(host, 0, frames.STAND, v, v, inst.epoch, log, number, data)


# The gateway asks. It may have lost its database.
def _on_stands(host: "Host", sender: int, m: "Message") -> None:
    inst = host.instances.get(m[1])
    if inst:
        stand(host, inst)


HANDLERS: "dict[int, Any]" = {
    frames.CONFIG: _on_config,
    frames.STANDS: _on_stands,
    frames.STAND: _on_stand,
}
