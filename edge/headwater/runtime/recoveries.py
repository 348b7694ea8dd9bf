# How long operators take that began on this host: until they run and have caught up. And what follows: for
# how long a host may be silent before another one takes its operators over, if the delays are kept that the
# process file asks for.
#
# Loaded when a host starts, and while an operator begins there (words.py).

from ..offboard.compat import TYPE_CHECKING, const
from ..plan.model import OUTSIDE
from .instance import FETCHING, RUNNING

if TYPE_CHECKING:
    from .host import Host
    from .words import Words

_RECOVERIES = const(8)  # the last ones say how long one takes,
_RECOVERY_MS = const(60000)  # and this is long enough to look at one


# What the delays leave for silence, in milliseconds, if a recovery takes as long as the last ones took; the
# patience of hosts in general where no delay is asked for.
def least(host: "Host", took: list[int]) -> int:
    usual = host.pace[1] // 1000
    ends = [e for e in host.plan.edges if e.dst == OUTSIDE]
    asked = [e.within_ms for e in ends if e.within_ms]
    if not asked:
        return usual
    took = sorted(took)
    left = max(0, min(asked) - (took[len(took) // 2] if took else 0))
    return left if len(asked) == len(ends) else min(left, usual)


# Those that count, of so many.
def last(took: list[int]) -> list[int]:
    return took[-_RECOVERIES:]


class Recovery:
    def __init__(self) -> None:
        self.so_far: dict[int, int] = {}  # operator that begins here -> how long it takes so far
        self.took: list[int] = []  # how long others took

    def begin(self, v: int) -> None:
        self.so_far[v] = 0

    # So many milliseconds have passed. Waiting for links or holders does not count. False once all are over.
    def goes_on(self, words: "Words", ms: int) -> bool:
        host = words.host
        for v in list(self.so_far):
            inst = host.instances.get(v)
            if inst is None:
                self.so_far.pop(v)
            elif inst.recalling or inst.status == FETCHING or not words.touching(inst, False):
                continue
            else:
                self.so_far[v] += ms
                late = inst.status != RUNNING or any([e.waiting() > host.plan.batch for e in inst.inputs])
                if not late or self.so_far[v] > _RECOVERY_MS:
                    self.took.append(self.so_far.pop(v))
        return len(self.so_far) > 0
