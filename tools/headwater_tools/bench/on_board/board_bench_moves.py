# Runs on MicroPython: SP1 on a board with other hosts, at rest and while operators move.
#     board_bench_moves.py MODE PLAN DATA ELEMENTS BATCHES PROFILE
# ELEMENTS at rest, then BATCHES while operators move: support/moving_board.py sees to that, or in mode "flee"
# the battery.

import json
import sys
import time

from board import STEP_US, Board, live, note

FULL_MV = 4100
LOW_MV = 3310


# The modules that are loaded.
def loaded():
    return " ".join(sorted([name[10:] for name in sys.modules if name.startswith("headwater.")]))


class Moving(Board):
    def __init__(self, mode, plan, data, profile):
        self.mv = FULL_MV
        self.looking = False
        self.most = 0
        self.at_most = ""
        alone = mode == "none"
        Board.__init__(self, plan, data, 0, 64, (0,) if alone else (0, 2))
        if not alone:
            self.measure_energy(profile)

    # As the program of a board does it (board/beginning.py).
    def measure_energy(self, path):
        from headwater.board.unload import unload
        from headwater.plan import profile_reader
        from headwater.runtime.meter import Meter

        with open(path) as f:
            profile = profile_reader.read(json.load(f))
        profile_reader = None
        unload("plan.profile_reader")
        self.host.knows(Meter(self.host, profile, self.battery_mv, time.ticks_us))

    def battery_mv(self):
        return self.mv

    # A round of bids is no rest.
    def asks(self):
        return self.host.energy and self.host.energy.round

    def look(self):
        if self.looking or self.asks():
            now = live()
            if now > self.most:
                self.most = now
                self.at_most = loaded()

    def exchange(self):
        for frame in self.wire.exchange():
            self.host.receive(frame, self.now)
            self.host.settle()
            frame = None
            self.look()

    def tick(self, steady):
        Board.tick(self, steady)
        self.look()


def main(mode, plan, data, elements, batches, profile):
    board = Moving(mode, plan, data, profile)
    board.meet()
    n = board.plan.batch
    rest = 0
    at_rest = ""
    for k in range(int(elements) // n + 1):
        board.feed(n)
        if k * n > int(elements) // 2:
            now = live()
            if now > rest and not board.asks():
                rest = now
                at_rest = loaded()
    board.looking = True
    if mode == "flee":
        board.mv = LOW_MV
    for _ in range(int(batches)):
        board.feed(n)
    board.looking = False
    for _ in range(40):
        board.now += STEP_US
        board.tick(True)
        board.exchange()
    note("rest", rest)
    note("most", board.most)
    note("after", live())
    note("taken", board.taken)
    note("loaded", "at rest:", at_rest)
    note("loaded", "meanwhile:", board.at_most)
    note("loaded", "afterwards:", loaded())


main(*sys.argv[1:])
