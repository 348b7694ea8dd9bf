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
    from .meter import Meter


class Scheduler:
    def __init__(self, host: "Host") -> None:
        self.host = host
        self.order: "list[Any]" = []  # Instances and LakeSinks, producers first
        self.acknowledged: set[int] = set()  # vertices whose pending checkpoints may be permanent now
        self.meter: "Meter | None" = None

    # Have operators take what they have by `meter`, until it has timed one.
    def time(self, meter: "Meter") -> None:
        self.meter = meter

    # What runs here from now on.
    def arrange(self, order: "list[Any]") -> None:
        self.order = order

    # Something that operator v has put out was acknowledged.
    def settle(self, v: int) -> None:
        self.acknowledged.add(v)

    def run(self) -> None:
        busy = True
        meter = self.meter
        while busy:
            busy = False
            for s in self.order:
                if meter.step(s) if meter else s.step():
                    busy = True
            if meter and meter.timed:
                meter = self.meter = None
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
