# Decisions: what depends on the moment - a parameter changed, a dead input closed or taken back.
#
# The gateway grants, an operator proposes: where it stands when the config element comes is where
# it takes effect, in every life. So the position is stored before it is proposed, and the operator
# does not go past it unanswered. The first proposal of a number stands.

from . import pack, wire
from .host import DECISION
from .instance import ASKING, RUNNING

try:
    from micropython import const
except ImportError:

    def const(value):
        return value


_F_NEXT = const(0x300)  # + vertex, at the gateway: number of the last config element
_F_GRANTED = const(0x380)  # + vertex, at the gateway: number of the last decision granted
_GRANTED = const(0x8000)  # blob, at the gateway: decisions granted


def handle(host, sender, m):
    kind = m[0]
    if kind == wire.CONFIG:
        if m[2]:
            _on_config(host, m[1], m[2], m[3])
        elif host.outbox is not None:
            try:
                content = pack.loads(bytes(m[3]))
            except pack.PackError:
                content = ()
            if isinstance(content, list) and len(content) == 4 and content[0] == "open":
                if content[1] in range(len(host.plan.ins(m[1]))):
                    _on_other(host, m[1], content)
    elif kind == wire.GRANT:
        _on_grant(host, m[1], m[2], m[3], m[4])
    elif kind == wire.TOLD:
        _on_told(host, m[1], m[2])
    elif host.outbox is None:
        return
    elif kind == wire.PROPOSE:
        _on_propose(host, sender, m[1], m[2], m[3], m[4], m[5])
    elif kind == wire.ASK:
        _on_ask(host, sender, m[1], m[2], m[3])


# ---- at the gateway


def config(host, v, content):
    number = _number(host, _F_NEXT + v) + 1
    if number - _granted_upto(host, v) > 60:
        raise ValueError("%s has 60 changes to take yet" % host.plan.vertices[v].name)
    _grant(host, v, number, None, content)
    host.store.put(_F_NEXT + v, number.to_bytes(4, "little"))
    offer(host)
    host.flush()
    return number


# Offer config elements that no operator has proposed a position for yet.
def offer(host):
    for v in range(len(host.plan.vertices)):
        last = _number(host, _F_NEXT + v)
        if last:
            number, pos, content = granted(host, v, _granted_upto(host, v) + 1)
            if number and number <= last:
                _say(host, host.where[v][2], wire.CONFIG, v, v, number, pack.dumps(content))


# Decision `number` of operator v: [number, position or None, content]; [0, None, None] where none is kept.
def granted(host, v, number):
    data = host.store.get_blob(_GRANTED + v * 64 + number % 64)
    found = pack.loads(data) if data else [0, None, None]
    return found if found[0] == number else [0, None, None]


def _grant(host, v, number, pos, content):
    host.store.put_blob(_GRANTED + v * 64 + number % 64, pack.dumps([number, pos, content]))


# Number of the last decision that has its position.
def _granted_upto(host, v):
    return _number(host, _F_GRANTED + v)


def _number(host, key):
    data = host.store.get(key)
    return int.from_bytes(data, "little") if data else 0


# The producer of an input is in another incarnation: it is taken back by decision, once for all who
# ask, and they ask until it is.
def _on_other(host, v, content):
    last = _number(host, _F_NEXT + v)
    for number in range(last, max(0, last - 64), -1):
        what = granted(host, v, number)[2]
        if what and what[0] != "set" and what[1] == content[1]:
            if what[:3] == content[:3]:
                return
            break
    if last - _granted_upto(host, v) < 60:
        config(host, v, content)


# The first proposal of a number stands, unless a newer instance has asked since.
def _on_propose(host, sender, v, epoch, number, pos, content):
    if epoch < host.where[v][:2] or number > _granted_upto(host, v) + 1:
        return
    have, at, what = granted(host, v, number)
    if not have:
        return
    if at is None or number > _granted_upto(host, v):
        if at is None:
            at = pos
            what = pack.loads(bytes(content))  # the operator may have said from where it can reopen
        _grant(host, v, number, at, what)
        host.store.put(_F_GRANTED + v, number.to_bytes(4, "little"))
    _say(host, sender, wire.GRANT, v, v, number, at, pack.dumps(what))


def _on_ask(host, sender, v, epoch, number):
    host._on_where(v, epoch, sender)
    if epoch < host.where[v][:2]:
        return
    last = _granted_upto(host, v)
    for n in range(number + 1, last + 1):
        have, pos, content = granted(host, v, n)
        if have:
            _say(host, sender, wire.GRANT, v, v, n, pos, pack.dumps(content))
    _say(host, sender, wire.TOLD, v, v, last)


# Send, or hand over where it is for this host itself.
def _say(host, to, kind, subject, *values):
    if to == host.me:
        handle(host, to, (kind,) + values)
    elif to in host.links:
        host.links[to].want(kind, (subject, values[1]), *values)


# ---- at the operator


def _on_config(host, v, number, content):
    inst = host.instances.get(v)
    if not inst or number != inst.decided + 1 or number in inst.decisions or not inst.may_decide():
        return  # the gateway offers it again
    content = pack.loads(bytes(content))
    if content[0] == "open":
        # What is older than it has taken it cannot take any more.
        if not inst.front:
            return
        content[3] = max(content[3], inst.front + inst.past)
    _keep(host, inst, number, inst.position(), content, 0)
    propose(host, inst)


# The producer of input e began another incarnation: ask for a decision to go on with that one.
def other(host, e):
    v = e.edge.dst
    _say(host, 0, wire.CONFIG, v, v, 0, pack.dumps(["open", e.sink.inputs.index(e), e.other, 0]))


def propose(host, inst):
    for number in sorted(inst.decisions):
        pos, content, done = inst.decisions[number]
        if not done:
            v = inst.vertex.index
            _say(host, 0, wire.PROPOSE, v, v, inst.epoch, number, pos, pack.dumps(content))


def _on_grant(host, v, number, pos, content):
    inst = host.instances.get(v)
    if not inst or number <= inst.decided:
        return
    have = inst.decisions.get(number)
    if have is None or not have[2]:
        _keep(host, inst, number, pos, pack.loads(bytes(content)), 1)


def _keep(host, inst, number, pos, content, done):
    key = DECISION + inst.vertex.index * 64 + number % 64
    host.store.put_blob(key, pack.dumps([number, pos, content, done]))
    inst.decisions[number] = (pos, content, done)


# Those up to `upto` lie behind a permanent checkpoint.
def forget(host, inst, upto):
    base = DECISION + inst.vertex.index * 64
    for number in sorted(inst.decisions):
        if number <= upto:
            del inst.decisions[number]
            if host.store.blob_size(base + number % 64):
                host.store.drop_blob(base + number % 64)


# An operator that starts on another host than before first hears which decisions were granted:
# from then on the gateway takes no proposal of an older epoch.
def ask(host, inst):
    v = inst.vertex.index
    _say(host, 0, wire.ASK, v, v, inst.epoch, inst.decided)


def _on_told(host, v, last):
    inst = host.instances.get(v)
    if inst and inst.status == ASKING:
        for n in range(inst.decided + 1, last + 1):
            if n not in inst.decisions or not inst.decisions[n][2]:
                return  # one was lost on the way: ask again
        for n in sorted(inst.decisions):
            if not inst.decisions[n][2]:
                del inst.decisions[n]  # proposed in an earlier life, and not granted
        from .restoring import note

        note(host, v, inst.epoch, 1)
        inst.status = RUNNING
