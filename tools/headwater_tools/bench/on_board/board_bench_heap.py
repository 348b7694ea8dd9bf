# Runs on MicroPython: process SP1 for a long time, and what its heap holds then.
#     board_bench_heap.py PLAN DATA ELEMENTS

import gc
import sys

from board import HEAP, STEP_US, Board, live, note
from board_bench_free import largest


# A long run; what is live then.
def main(args):
    board = Board(args[0], args[1])
    board.meet()
    n = board.plan.batch
    refused = 0
    most = 0
    for k in range(int(args[2]) // n + 1):
        if not board.feed(n):
            refused += n
        if not k % 500:
            most = max(most, live())
    for _ in range(8):
        board.now += STEP_US
        board.tick(True)
        board.exchange()
    for name, value in HEAP:
        note("heap", value, name)
    note("live", live())
    note("most", max(most, live()))
    note("free", gc.mem_free())
    note("block", largest())
    note("taken", board.taken)
    note("refused", refused)
    note("us", board.us)
    for inst in board.host.instances.values():
        note("checkpoints", inst.ck.committed, inst.vertex.name)
    note("dropped", board.host.dropped)
    note("flash", board.log.stats())


main(sys.argv[1:])
