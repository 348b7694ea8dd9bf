# Whether a message about an operator may be believed: because of its sender (may_say), and of its content
# (sane). Messages between producers and consumers, and of the clock, are judged in exchange.py: they are
# frequent, and this module is not always loaded.

from . import wire
from .compat import TYPE_CHECKING
from .position import EPOCH_MAX

if TYPE_CHECKING:
    from .host import Host
    from .interfaces import Message
    from .plan import Plan


# Whether that host may say this.
def may_say(host: "Host", sender: int, m: "Message") -> bool:
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
    return bool(ok)


# Whether its numbers can be.
def sane(plan: "Plan", m: "Message") -> bool:
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
