# The scheduler: in which order the operators of a host run, and for how long.
#
# Promises.
#   - `run` ends when nothing can be done any more: nothing waits that an operator may take, every
#     acknowledgement has been used (`settle`), and every boundary is where its consumers may see it.
#   - Producers come before their consumers, feedback aside, so most entries take one round.

from .instance import FETCHING, RUNNING


class Scheduler:
    def __init__(self, host):
        self.host = host
        self.order = []  # instances and ends of edges to the lake, producers first
        self.acknowledged = set()  # vertices whose pending checkpoints should be looked at

    # What runs here from now on.
    def arrange(self, order):
        self.order = order

    # Something that operator v has put out was acknowledged.
    def settle(self, v):
        self.acknowledged.add(v)

    def run(self):
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
