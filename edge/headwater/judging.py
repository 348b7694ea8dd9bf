# Whether a message about an operator may be believed: who says it (may_say), and what it says (sane). Those
# between producers and consumers, and of the clock, are judged in exchange.py: they come all the time.

from . import wire
from .position import EPOCH_MAX


def may_say(host, sender, m):
    kind = m[0]
    plan = host.plan
    if kind == wire.WHERE:
        ok = m[2][1] == m[3] and plan.may_run(m[1], m[3]) and m[2][0] <= EPOCH_MAX
        ok = ok and sender in (m[3], 0)
    elif kind == wire.STORED:
        ok = sender in plan.keepers(m[1])
    elif kind in (wire.CKPT, wire.FETCH):
        ok = plan.may_run(m[1], sender) or sender in plan.keepers(m[1])
    elif kind in (wire.GRANT, wire.TOLD, wire.STANDS) or kind == wire.CONFIG and m[2]:
        ok = sender == 0
    else:
        ok = plan.may_run(m[1], sender)
        if kind in (wire.PROPOSE, wire.ASK, wire.STAND):
            ok = ok and m[2][1] == sender and m[2][0] <= EPOCH_MAX
        ok = ok and host.outbox is not None
    return ok


def sane(plan, m):
    kind = m[0]
    if kind in (wire.CKPT, wire.STORED, wire.GRANT):
        return plan.is_position(m[1], m[3]) and (kind != wire.GRANT or m[2] <= EPOCH_MAX)
    if kind == wire.FETCH:
        return plan.is_position(m[1], m[2])
    if kind == wire.PROPOSE:
        return plan.is_position(m[1], m[4]) and m[3] <= EPOCH_MAX
    if kind in (wire.CONFIG, wire.TOLD):
        return m[2] <= EPOCH_MAX
    if kind in (wire.ASK, wire.STAND):
        return max(m[3:5]) <= EPOCH_MAX
    return True
