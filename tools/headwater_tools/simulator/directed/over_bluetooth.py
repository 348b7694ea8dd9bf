"""An operator of 16 KB moves over Bluetooth, and a connection ends at one chosen fragment of the move.

The cores are those of boards and gateway: hosts, moving.py and taking.py, carriers and links; the radio is
the model of simulator/radio.py. `Cut(way, fragment, word)` is one history. A history in which fewer fragments
travelled has no cut (`was_cut`): then each one has had its turn.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.plan.model import Plan
from headwater.process import Process, Sliding
from headwater.protocol.moves import COMMAND

from ..nearby import PACE, Nearby
from ..radio import Connection, Weather
from ..scenario import Result, Scenario
from ..world import SECOND, Hardware
from .base import GATEWAY, SHIFTED, boards

DIRECT, RELAYED, TO_GATEWAY, FROM_GATEWAY = "direct", "relayed", "to the gateway", "from the gateway"
WAYS = (DIRECT, RELAYED, TO_GATEWAY, FROM_GATEWAY)
CUT, CUT_AFTER = "cut", "cut after"
HOME, OTHER = 1, 2
VALUES = 4096  # of 4 bytes: the state
AT, BACK, END = 9, 22, 22  # s: the move; the gateway is in range again; faults stop
EVERY = 700  # elements, 7 s: a checkpoint just before the move
MTU = 512


class Cut(Scenario):
    """`fragment` 0: no connection ends."""

    def __init__(self, way: str, fragment: int, word: str = CUT, every: int = EVERY) -> None:
        self.way, self.fragment, self.word, self.every = way, fragment, word, every
        self.giver, self.taker = {
            TO_GATEWAY: (HOME, GATEWAY),
            FROM_GATEWAY: (GATEWAY, HOME),
        }.get(way, (HOME, OTHER))
        self.fragments = 0  # from the beginning of the move to its end
        self.was_cut = False
        plan: Plan = self.process().plan()
        made_of = replace(Hardware(mtu=MTU), pace=PACE)
        site = Nearby(plan, 1, hardware=made_of, weather=Weather())
        super().__init__(plan, 1, END, faults=False, made_of=made_of, world=site)
        self.site = site
        site.at((AT - 2) * SECOND, self.apart)
        site.at(AT * SECOND, self.begin)
        site.at(BACK * SECOND, site.cut.clear)

    def process(self) -> Process:
        p = boards(
            "cuts", "home", "other", checkpoints="uncoordinated", every=self.every, batch=25, flash_kb=2048
        )
        values = p.source("values", "v:i32", rate_hz=100, on="home")
        hosts = ["gateway" if n == GATEWAY else ("home", "other")[n - 1] for n in (self.giver, self.taker)]
        held = Sliding(count=VALUES, step=100, what="sum").named("held").on(hosts[0], backup=hosts[1:])
        p.lake("cuts/held", values >> held, on_full="block")
        return p

    def apart(self) -> None:
        if self.way == DIRECT:
            self.site.cut |= {pair for n in (HOME, OTHER) for pair in ((GATEWAY, n), (n, GATEWAY))}

    def begin(self) -> None:
        """As soon as the giver is free for it."""
        node = self.site.nodes[self.giver]
        host = node.host
        assert host
        if host.handing or host.pushes:
            self.site.after(10_000, self.begin)
            return
        self.site.radio.judge = self.judge
        self.site.call(node, lambda host: host.move(SHIFTED, self.taker, COMMAND, node.mono()), "move")

    def judge(self, _connection: Connection) -> str:
        if self.handovers.count:
            self.site.radio.judge = None
            return ""
        self.fragments += 1
        if self.fragments != self.fragment:
            return ""
        self.was_cut = True
        return self.word

    def finish(self) -> Result:
        result = super().finish()
        if self.handovers.count != 1 or self.place[SHIFTED] != self.taker:
            where = self.site.name(self.place[SHIFTED])
            self.site.error("%d moves, and the operator runs at %s" % (self.handovers.count, where))
        if self.handovers.replayed or self.takeovers.count:
            numbers = (self.handovers.replayed, self.takeovers.count)
            self.site.error("%d elements taken again, %d takeovers" % numbers)
        return result
