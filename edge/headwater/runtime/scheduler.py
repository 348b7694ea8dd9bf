# The scheduler: in which order the operators of a host run, and for how long.
#
# Promises.
#   - `run` ends when no operator can make progress: nothing waits that one may take, every acknowledgement
#     has been used (`settle`), and every boundary is where its consumers may see it.
#   - Producers come before their consumers, feedback aside, so most entries take one round.

from ..offboard.compat import TYPE_CHECKING
from .instance import FETCHING, RUNNING

if TYPE_CHECKING:
    from typing import Any

    from .host import Host


class Scheduler:
    def __init__(self, host: "Host") -> None:
        self.host = host
        self.order: "list[Any]" = []  # Instances and LakeSinks, producers first
        self.acknowledged: set[int] = set()  # vertices whose pending checkpoints may be permanent now

    # What runs here from now on.
    def arrange(self, order: "list[Any]") -> None:
        self.order = order

    # Something that operator v has put out was acknowledged.
    def settle(self, v: int) -> None:
        self.acknowledged.add(v)

    def run(self) -> None:
        busy = True
        while busy:
            busy = False
            for s in self.order:
                if s.step():
                    busy = True
            if self.acknowledged:
                busy = True
                for v in sorted(self.acknowledged):
                    self.acknowledged.discard(v)
                    inst = self.host.instances.get(v)
                    if inst and inst.status != FETCHING:
                        inst.ck.settle()
            for inst in self.order:
                if inst.bounded:
                    b = inst.bound() if inst.status == RUNNING else 0
                    # A boundary may let a join go on.
                    for p in inst.ports:
                        if p.promise(b):
                            busy = True
