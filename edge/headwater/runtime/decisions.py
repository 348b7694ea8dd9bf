# Decisions: what depends on the moment - a parameter changed, a dead input closed or taken back.
#
# The gateway grants, an operator proposes: where it stands when the config element comes is where
# it takes effect, in every boot. So the position is stored before it is proposed, and the operator
# does not go past it unanswered. The first proposal of a number stands.
#
# A decision is open until a permanent checkpoint at the plan's level covers it. At most OPEN_MAX are
# open for an operator: its host stores no more, and the reserve of the log has room for that many. The
# gateway asks how the operator stands (STANDS, STAND), and refuses the next one until then.
#
# A gateway that lost its database asks the same first, and offers and grants nothing of an operator
# before it knows what was decided (Host.unlearned).

from ..data import msgpack
from ..offboard.compat import TYPE_CHECKING, const
from ..plan.model import CONTENT_MAX, OPEN_MAX, UNSAFE
from ..protocol import frames
from ..protocol.position import further
from ..protocol.refusals import CONTENT, NO_ROOM
from ..storage.checkpoint_file import number as is_number
from ..storage.checkpoint_file import numbers
from ..storage.keyspace import B_DECISIONS, B_VALUES, F_AGAIN, F_GRANTED, F_NEXT, F_SETTLED, LEARN, grant_key
from ..storage.log import LogFull
from . import lifecycle
from .instance import ASKING, RUNNING
from .operator import OperatorError

if TYPE_CHECKING:
    from typing import Any

    from ..offboard.interfaces import Epoch, Message, Params, Position, Readable
    from ..plan.model import Plan
    from .host import Host
    from .inputs import InEdge
    from .instance import Decision, Instance
    from .operator import Operator

# A host that has not answered an operator's new epoch for this long is considered lost.
_LOST_US = const(30000000)
_ASK_US = const(5000000)  # how the operator stands is asked no more often, where nothing waits for it


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


# A config element for operator v; its number. ValueError says why it cannot be made now.
def config(host: "Host", v: int, content: "list[Any]") -> int:
    name = host.plan.vertices[v].name
    if v in host.unlearned:
        raise ValueError("what was changed in %s is not known again yet: its host has not answered" % name)
    data = msgpack.dumps(content)
    if len(data) > CONTENT_MAX or not valid(host.plan, v, content):
        raise ValueError("%s: a change of %d bytes; at most %d" % (name, len(data), CONTENT_MAX))
    number = _number(host, F_NEXT + v) + 1
    # A dead input can be closed even when changes wait for its producer: they go on only then.
    if not _room(host, v, 2 * OPEN_MAX if content[0] == "close" else OPEN_MAX):
        raise ValueError(
            "%s has %d open changes, as many as it can keep: the next one can be made when a checkpoint "
            "covers them" % (name, OPEN_MAX)
        )
    _grant(host, v, number, None, content)
    host.store.put(F_NEXT + v, number.to_bytes(4, "little"))
    offer(host)
    host.exchange.flush()
    return number


# Whether one more decision of operator v may be open: its host stores no more than OPEN_MAX at a time.
def _room(host: "Host", v: int, most: int) -> bool:
    return _number(host, F_NEXT + v) - _number(host, F_SETTLED + v) < most


# [parameters that decisions have set, the last refusal: [number, why] or [], number of the last decision
# that they count], as the operator has told.
def told(host: "Host", v: int) -> "list[Any]":
    data = host.store.get_blob(B_VALUES + v)
    return msgpack.loads(data) if data else [{}, [], 0]


# The parameters after all changes that were made, or after those that have their place; `op`, an operator as
# the plan has it, is brought to them. What its type refuses is skipped, as by the operator itself.
def follow(host: "Host", v: int, op: "Operator", placed: bool = False) -> "Params":
    values, _, decided = told(host, v)
    op.configure(values)
    for n in range(decided + 1, _number(host, (F_GRANTED if placed else F_NEXT) + v) + 1):
        content = granted(host, v, n)[2]
        if content and content[0] == "set":
            try:
                op.configure(content[1])
                values.update(content[1])
            except OperatorError:
                continue
    return values


# Offer config elements that no operator has proposed a position for yet.
def offer(host: "Host") -> None:
    for v in range(len(host.plan.vertices)):
        if v in host.unlearned:
            for h in list(host.plan.vertices[v].hosts) + [host.where[v][2]]:
                _say(host, h, frames.STANDS, v, v, 0)
            continue
        last = _number(host, F_NEXT + v)
        if last:
            done = _granted_upto(host, v)
            for n in range(done + 1, last + 1):
                number, pos, content = granted(host, v, n)
                if number and (n == done + 1 or content[0] == "close"):
                    _say(host, host.where[v][2], frames.CONFIG, v, v, number, msgpack.dumps(content))
            if done > _number(host, F_SETTLED + v) and host.now >= host.ask_us:
                _say(host, host.where[v][2], frames.STANDS, v, v, 0)
    if host.now >= host.ask_us:
        host.ask_later(_ASK_US)


# Decision `number` of operator v: [number, position or None, content]; [0, None, None] where none is kept.
def granted(host: "Host", v: int, number: int) -> "list[Any]":
    data = host.store.get_blob(grant_key(v, number))
    found: "list[Any]" = msgpack.loads(data) if data else [0, None, None]
    return found if found[0] == number else [0, None, None]


def _grant(host: "Host", v: int, number: int, pos: "Position | None", content: "list[Any]") -> None:
    host.store.put_blob(grant_key(v, number), msgpack.dumps([number, pos, content]))


# Number of the last decision that has its position.
def _granted_upto(host: "Host", v: int) -> int:
    return _number(host, F_GRANTED + v)


def _number(host: "Host", key: int) -> int:
    data = host.store.get(key)
    return int.from_bytes(data, "little") if data else 0


# The producer of an input is in another incarnation: the input is taken back by decision, once for all hosts
# that ask, and they ask until it is.
def _on_other(host: "Host", v: int, content: "list[Any]") -> None:
    if content[0] != "open":
        return
    last = _number(host, F_NEXT + v)
    for number in range(last, max(0, last - 64), -1):
        what = granted(host, v, number)[2]
        if what and what[0] != "set" and what[1] == content[1]:
            if what[:3] == content[:3]:
                return
            break
    if v not in host.unlearned and _room(host, v, OPEN_MAX):
        config(host, v, content)


# The first proposal of a number stands, unless a newer instance has asked since. While a gateway that lost
# its database learns, it only takes note: of the content, and of the place if the host has said that it was
# granted. What was only proposed there may have been granted elsewhere, to a newer instance.
def _on_propose(host: "Host", sender: int, m: "Message") -> None:
    _, v, epoch, number, pos, data = m
    content = _content(host, v, data)
    if not content:
        return
    have, at, what = granted(host, v, number)
    if v in host.unlearned:
        if v not in host.stood or number > host.stood[v][1].get(sender, 0):
            pos = None
        if not have or at is None and pos is not None:
            _grant(host, v, number, pos, content)
        return
    if epoch < host.where[v][:2] or number > _granted_upto(host, v) + 1 or not have:
        return
    if at is None or number > _granted_upto(host, v):
        # Also where a place is stored already: no host was told, since power failed before it counted.
        at = pos
        what = content  # the operator may have said from where it can reopen
        _grant(host, v, number, at, what)
        host.store.put(F_GRANTED + v, max(number, _granted_upto(host, v)).to_bytes(4, "little"))
    _say(host, sender, frames.GRANT, v, v, number, at, msgpack.dumps(what))


def _on_ask(host: "Host", sender: int, m: "Message") -> None:
    _, v, epoch, number = m
    if not epoch[0]:
        # Its host came again, and knows nothing of it: it starts there, unless it is elsewhere by now.
        w = host.where[v]
        host.tell_where(sender, v, (max(2, w[0]) if w[2] == sender else w[0], w[1]), w[2])
        return
    host.heard_where(v, epoch, sender)
    if epoch < host.where[v][:2]:
        return
    if v in host.unlearned:
        return
    last = _granted_upto(host, v)
    if number > last:
        # Its checkpoint counts more than was known here.
        last = number
        _learned(host, v, number, max(number, _number(host, F_NEXT + v)))
    for n in range(number + 1, last + 1):
        have, pos, content = granted(host, v, n)
        if pos is None and host.store.get(F_AGAIN):
            last = n - 1  # it was lost with the database, and with the host that ran the operator
            _learned(host, v, last, last)
            break
        _say(host, sender, frames.GRANT, v, v, n, pos, msgpack.dumps(content))
    _say(host, sender, frames.TOLD, v, v, last)


# The decisions up to `number` have their place, up to `last` they are known.
def _learned(host: "Host", v: int, number: int, last: int) -> None:
    assert number <= last
    host.store.put(F_NEXT + v, last.to_bytes(4, "little"))
    host.store.put(F_GRANTED + v, number.to_bytes(4, "little"))


# The operator says: the decisions up to `number` are granted, up to `last` it knows of, up to `settled`
# a checkpoint covers them; and the parameters that they changed.
def _on_stand(host: "Host", sender: int, m: "Message") -> None:
    _, v, epoch, number, last, settled, data = m
    learn = v in host.unlearned
    if not learn and epoch < host.where[v][:2] or not settled <= number <= last <= number + 2 * OPEN_MAX:
        return
    try:
        values, refused, kept, decided = msgpack.loads(bytes(data))
    except (msgpack.PackError, ValueError, TypeError):
        host.count(CONTENT)
        return
    sane = valid(host.plan, v, ["set", values]) and type(refused) is list and numbers(kept)
    if not sane or not is_number(decided) or decided > number:
        host.count(CONTENT)
        return
    host.heard_where(v, epoch, sender)
    store = host.store
    if learn:
        _learn(host, sender, v, epoch, number, last, kept, [values, refused, decided])
    at = _number(host, F_SETTLED + v)
    if at <= settled <= decided <= _granted_upto(host, v):
        now = msgpack.dumps([values, refused or told(host, v)[1], decided])
        if now != store.get_blob(B_VALUES + v):
            store.put_blob(B_VALUES + v, now)
        if at < settled:
            store.put(F_SETTLED + v, settled.to_bytes(4, "little"))


# One more host has said what it knows of the decisions of operator v, and each that it keeps has arrived: the
# next host to run the operator may ask for any. That is enough when the host that runs it has, and the other
# candidates have or had time to, and nothing is missing that it may propose.
def _learn(
    host: "Host",
    sender: int,
    v: int,
    epoch: "Epoch",
    number: int,
    last: int,
    kept: list[int],
    values: "list[Any]",
) -> None:
    store = host.store
    here = number
    number = max(number, _granted_upto(host, v))
    last = max(last, number, _number(host, F_NEXT + v))
    _learned(host, v, number, last)
    if epoch >= host.where[v][:2]:
        store.put_blob(B_VALUES + v, msgpack.dumps(values))
    since, told, stood = host.stood.setdefault(v, (host.now, {}, []))
    told[sender] = here
    if sender not in stood:
        found = [granted(host, v, n) for n in kept]
        if all([f[0] and (f[0] > here or f[1] is not None) for f in found]):
            stood.append(sender)
    level = host.plan.level
    waits = [h for h in host.plan.vertices[v].hosts if level and h != host.me and h not in stood]
    waits = [h for h in waits if h not in host.lost]
    if host.where[v][2] not in stood or waits and (len(waits) >= level or host.now - since < _LOST_US):
        return  # beside this gateway as many hosts may be lost as the level covers
    for n in range(number + 1, last + 1):
        have, pos, content = granted(host, v, n)
        if not have:
            return
        _grant(host, v, n, None, content)
    host.unlearned.remove(v)
    lifecycle.no_more(host, v, LEARN)


# Send, or hand over where it is for this host itself. Of what bears a number each is sent; of the rest a
# later one replaces an earlier.
def _say(host: "Host", to: int, kind: int, subject: int, *values: "Any") -> None:
    if to == host.me:
        HANDLERS[kind](host, to, (kind,) + values)
    else:
        host.exchange.say(to, kind, (subject, values[2 if kind == frames.PROPOSE else 1]), *values)


# ---- at the operator


# Whether every producer refuses what older epochs acknowledge, and has named what it knows of; but one whose
# input is to be closed will never answer. Where a source's stream begins here is not known before it has
# answered, and then the position jumps: no boot would ever come to a place that was decided before.
def answered(inst: "Instance") -> bool:
    for e in inst.inputs:
        met = e.contact or e.cur.xi or inst.host.plan.vertices[e.edge.src].kind
        if not (e.fenced and met or e.closed or e.other or e.closing >= 0):
            return False
    return True


# A decision may be taken here and now.
def _may_decide(inst: "Instance") -> bool:
    return inst.status == RUNNING and inst.depth >= len(inst.host.plan.vertices) and answered(inst)


# A config element; without a number it is one that an operator asks for.
def _on_config(host: "Host", sender: int, m: "Message") -> None:
    _, v, number, data = m
    content = _content(host, v, data)
    if not content:
        return
    if not number:
        _on_other(host, v, content)
        return
    inst = host.instances.get(v)
    if not inst or number <= inst.decided:
        return
    if content[0] == "close":
        inst.inputs[content[1]].close_soon()
    if number != inst.decided + 1 or number in inst.decisions or not _may_decide(inst):
        return  # the gateway offers it again
    if content[0] == "open" and not content[2]:
        content[2] = inst.inputs[
            content[1]
        ].inc  # whoever asked had heard of none: the one that is taken here
    if content[0] == "open" and not _covered(host, inst, content) or not _grounded(host, inst):
        return
    if content[0] == "open":
        # It cannot take any more what is older than what it has taken, or than a boundary that it has given;
        # what an earlier boot promised without the input was before now.
        e = inst.inputs[content[1]]
        if not e.closed and e.inc == content[2]:
            content = ["set", {}]  # a checkpoint from elsewhere knew of it already
        elif not inst.front and len(inst.inputs) == 1 and inst.ck.pos and any(inst.ck.pos[:-1]):
            return
        else:
            content[3] = max([content[3], inst.front + inst.past] + [p.bound for p in inst.ports])
            if e.closed:
                content[3] = max(content[3], host.site())
    if host.plan.strategy != UNSAFE and any(inst.position()[:-1]):
        # It stands here until a checkpoint of this place is stored, so one must be possible: not where a
        # consumer is away, and more was spilled for it than a checkpoint may carry.
        inst.ck.now()
        if further(inst.position(), inst.ck.pos):
            return
    if len(inst.decisions) < OPEN_MAX and _keep(host, inst, number, inst.position(), content, 0):
        propose(host, inst)


# What was taken of an incarnation that is gone exists nowhere else: before a decision ends it here, a
# checkpoint that covers it is stored at the plan's level. Else a restart could never come to the place
# of that decision again.
def _covered(host: "Host", inst: "Instance", content: "list[Any]") -> bool:
    e = inst.inputs[content[1]]
    if content[2] == e.inc or host.plan.strategy == UNSAFE or inst.ck.safe(e) >= e.cur.xi:
        return True
    if not e.cur.xi and not inst.ck.pos:
        return True
    inst.ck.now()
    return inst.ck.safe(e) >= e.cur.xi


# Whether a restart can get to this place again. What was taken of a producer that does not answer, or of an
# input that is to be closed and gives nothing more, may be nowhere else: a checkpoint covers it first.
def _grounded(host: "Host", inst: "Instance") -> bool:
    ck = inst.ck
    if host.plan.strategy == UNSAFE:
        return True
    for e in inst.inputs:
        if not e.closed and (not e.contact or e.closing == e.cur.xi) and ck.safe(e) < e.cur.xi:
            ck.now()
            return ck.safe(e) >= e.cur.xi
    return True


# The producer of input e began another incarnation: ask for a decision to go on with that one.
def other(host: "Host", e: "InEdge") -> None:
    v = e.edge.dst
    content = ["open", e.sink.inputs.index(e), e.other, 0]
    if e.sink.status == RUNNING:
        _covered(host, e.sink, content)
    _say(host, 0, frames.CONFIG, v, v, 0, msgpack.dumps(content))


# Tell the gateway the place of each decision that it has not granted yet.
def propose(host: "Host", inst: "Instance") -> None:
    full = len(inst.decisions) >= OPEN_MAX and max(inst.decisions) == inst.decided
    if full or inst.status == RUNNING and inst.exposed():
        inst.ck.now()  # no more can be open, and the one that its inputs wait for may be the next
    for number in sorted(inst.decisions):
        pos, content, done = inst.decisions[number]
        if not done and _rooted(host, inst, pos):
            v = inst.vertex.index
            _say(host, 0, frames.PROPOSE, v, v, inst.epoch, number, pos, msgpack.dumps(content))


# Whether every later boot gets to a place where something is proposed. Samples that lead there may be lost
# with the log of their source, and other samples would never lead there: so a checkpoint of that place is
# stored at the plan's level first. Until then the operator stands still.
def _rooted(host: "Host", inst: "Instance", pos: "Position") -> bool:
    if host.plan.strategy == UNSAFE or not any(pos[:-1]):
        return True
    safe = inst.ck.safe_pos
    if safe and not further(pos, safe):
        return True
    if inst.status == RUNNING and inst.position() == pos:
        inst.ck.now()
        safe = inst.ck.safe_pos
    return bool(safe) and not further(pos, safe)


def _on_grant(host: "Host", sender: int, m: "Message") -> None:
    _, v, number, pos, data = m
    content = _content(host, v, data)
    inst = host.instances.get(v)
    if not content or not inst or number <= inst.decided:
        return
    have = inst.decisions.get(number)
    if have is None or not have[2]:
        _keep(host, inst, number, pos, content, 1)


# Store a decision before anything depends on it. False where there is no room: it comes again.
def _keep(
    host: "Host", inst: "Instance", number: int, pos: "Position", content: "list[Any]", done: int
) -> bool:
    assert number > inst.decided, "a decision that was applied is decided again"
    kept = dict(inst.decisions)
    kept[number] = (pos, content, done)
    try:
        _write(host, inst, kept)
    except LogFull:
        host.count(NO_ROOM)
        return False
    inst.decide_by(kept)
    return True


# All open decisions of an operator are one blob.
def _write(host: "Host", inst: "Instance", kept: "dict[int, Decision]") -> None:
    key = B_DECISIONS + inst.vertex.index
    if kept:
        host.store.put_blob(key, msgpack.dumps([[n] + list(kept[n]) for n in sorted(kept)]))
    elif host.store.blob_size(key):
        host.store.drop_blob(key)


# A checkpoint that is stored at the plan's level covers those up to `upto`.
def forget(host: "Host", inst: "Instance", upto: int) -> None:
    kept = {n: inst.decisions[n] for n in inst.decisions if n > upto}
    if len(kept) < len(inst.decisions):
        inst.decide_by(kept)
        _write(host, inst, kept)
        stand(host, inst)


# Tell the gateway how far the decisions of an operator are.
def stand(host: "Host", inst: "Instance") -> None:
    settled = inst.decided if host.plan.strategy == UNSAFE else 0
    if inst.ck.safe_pos:
        settled = inst.ck.safe_pos[-1]
    _stand(host, inst.vertex.index, inst.epoch, inst.decided, inst.decisions, settled, inst)


def _stand(
    host: "Host",
    v: int,
    epoch: "Epoch",
    decided: int,
    kept: "dict[int, Any]",
    settled: int,
    inst: "Instance | None",
) -> None:
    number = last = decided
    for n in kept:
        if kept[n][2]:
            number = max(number, n)
        last = max(last, n)
    values: "list[Any]" = [inst.changed, inst.refused] if inst else [{}, []]
    data = msgpack.dumps(values + [sorted(kept), decided])
    _say(host, 0, frames.STAND, v, v, epoch, number, last, settled, data)


# The gateway asks. It may have lost its database: what is open here is told again, also that of an
# operator that does not run here any more.
def _on_stands(host: "Host", sender: int, m: "Message") -> None:
    v = m[1]
    inst = host.instances.get(v)
    kept: "dict[int, Any]"
    if inst:
        epoch = inst.epoch
        kept = inst.decisions
        stand(host, inst)
    else:
        known = lifecycle.noted(host, v)
        epoch = known[0] if known else (0, host.me)
        data = host.store.get_blob(B_DECISIONS + v)
        kept = {d[0]: d[1:] for d in msgpack.loads(data)} if data else {}
        _stand(host, v, epoch, 0, kept, 0, None)
        epoch = (0, host.me)  # to be known, and not to be granted: no operator stands there
    for n in sorted(kept):
        at = epoch if not inst or kept[n][2] or _rooted(host, inst, kept[n][0]) else (0, host.me)
        _say(host, 0, frames.PROPOSE, v, v, at, n, kept[n][0], msgpack.dumps(kept[n][1]))


# An operator that starts on another host than before first hears which decisions were granted:
# from then on the gateway takes no proposal of an older epoch.
def ask(host: "Host", v: int, epoch: "Epoch", decided: int) -> None:
    inst = host.instances.get(v)
    if not (inst and inst.blind):
        _say(host, 0, frames.ASK, v, v, epoch, decided)


def _on_told(host: "Host", sender: int, m: "Message") -> None:
    _, v, last = m
    inst = host.instances.get(v)
    if inst and inst.status == ASKING and not inst.recalling:
        if inst.few and inst.decided and not inst.ck.safe_pos:
            return  # what it goes on from has to be stored first: few know of these decisions
        for n in range(inst.decided + 1, last + 1):
            if n not in inst.decisions or not inst.decisions[n][2]:
                return  # one was lost on the way: ask again
        kept = {n: inst.decisions[n] for n in inst.decisions if inst.decisions[n][2]}
        if len(kept) < len(inst.decisions):
            inst.decide_by(kept)  # the others were proposed in an earlier boot, and not granted
            _write(host, inst, kept)
        lifecycle.run(host, inst)


HANDLERS = {
    frames.CONFIG: _on_config,
    frames.PROPOSE: _on_propose,
    frames.GRANT: _on_grant,
    frames.ASK: _on_ask,
    frames.TOLD: _on_told,
    frames.STANDS: _on_stands,
    frames.STAND: _on_stand,
}
