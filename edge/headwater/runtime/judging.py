# Whether a message about an operator may be believed: because of its sender (may_say), and of its content
# (sane). Messages between producers and consumers, of checkpoints, and of the clock, are judged in
# exchange.py: they are frequent, and this module is loaded for a moment only.

from ..offboard.compat import TYPE_CHECKING
from ..protocol import frames, moves, offers
from ..protocol.position import EPOCH_MAX

if TYPE_CHECKING:
    from ..offboard.interfaces import Message
    from ..plan.model import Plan
    from .host import Host


# Whether that host may say this.
def may_say(host: "Host", sender: int, m: "Message") -> bool:
    kind = m[0]
    plan = host.plan
    if kind == frames.WHERE:
        ok = m[2][1] == m[3] and plan.may_run(m[1], m[3]) and m[2][0] <= EPOCH_MAX
        ok = ok and m[4] <= moves.WHY_MAX and m[5] <= EPOCH_MAX
        # A keeper also tells of other hosts: it refuses checkpoints of an epoch that is over.
        ok = ok and (host.me == 0 or sender in (m[3], 0) or sender in plan.keepers(m[1]))
    elif kind == frames.TAKE:
        ok = plan.may_run(m[1], sender)
    elif kind == frames.LIVES:
        ok = m[2][0] <= EPOCH_MAX and plan.may_run(m[1], m[2][1]) and m[3] < 3
    elif kind in (frames.CONFIG, frames.STANDS, frames.MOVE, frames.GIVE_UP):
        ok = sender == 0
        if kind == frames.CONFIG and not m[3]:
            ok = host.outbox is not None and plan.may_run(m[1], sender)  # a request
    elif frames.BID <= kind <= frames.KEEP:
        ok = plan.may_run(m[1], sender) and plan.may_run(m[1], host.me)
        if kind in (frames.OFFER, frames.HAND):
            ok = ok and m[3][1] == sender and m[3][0] <= EPOCH_MAX
        elif kind == frames.KEEP:
            ok = ok and m[2][1] == sender and m[3][0] < m[2][0] <= EPOCH_MAX
    else:
        ok = plan.may_run(m[1], sender) and host.outbox is not None
        if kind == frames.STAND:
            ok = ok and m[2][1] == sender and m[2][0] <= EPOCH_MAX
    return bool(ok)


# Whether its numbers can be.
def sane(plan: "Plan", m: "Message") -> bool:
    kind = m[0]
    if kind == frames.GIVE_UP:
        return m[2] < EPOCH_MAX
    if kind >= frames.BID:
        return _of_move(plan, m)
    if kind == frames.CONFIG:
        return m[3] <= EPOCH_MAX
    if kind == frames.STAND:
        return m[4] <= EPOCH_MAX
    return True


# The same for a message of a planned move.
def _of_move(plan: "Plan", m: "Message") -> bool:
    kind = m[0]
    if kind in (frames.HAND, frames.KEEP):
        return plan.is_position(m[1], m[4])
    if kind == frames.OFFER:
        ok = len(m[8]) <= offers.RATES_MAX and moves.GIVEN_UP > m[4] > moves.TAKEOVER
        return ok and plan.is_position(m[1], m[5]) and m[6] <= EPOCH_MAX
    if kind == frames.BID:
        return len(m[3]) <= offers.RATES_MAX
    if kind == frames.ROOM:
        return max(m[3:6]) <= EPOCH_MAX and m[6] < 2 * (offers.LAST + 1)
    if kind == frames.REFUSE:
        return 0 < m[3] <= offers.LAST
    if kind == frames.MOVE:
        return plan.may_run(m[1], m[3])
    if kind == frames.MOVED:
        return m[3] <= offers.PENDING
    return True
