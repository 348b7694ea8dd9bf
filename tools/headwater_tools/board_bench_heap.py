# Runs on MicroPython: process SP1 for long, and what its heap holds then.
#     board_bench_heap.py PLAN DATA ELEMENTS

import gc
import sys

from board import HEAP, STEP_US, Board, live, note


# The largest block that can be allocated now.
def largest():
    gc.collect()
    low = 0
    high = gc.mem_free()
    while high - low > 16:
        mid = (low + high) // 2
        try:
            bytearray(mid)
            low = mid
        except MemoryError:
            high = mid
        gc.collect()
    return low


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
        board.host.tick(board.now)
        board.exchange()
    for name, value in HEAP:
        note("heap", value, name)
    note("live", live())
    note("most", max(most, live()))
    note("free", gc.mem_free())
    note("largest", largest())
    note("taken", board.taken)
    note("refused", refused)
    note("us", board.us)
    for inst in board.host.instances.values():
        note("checkpoints", inst.ck.committed, inst.vertex.name)
    note("dropped", board.host.dropped)
    note("flash", board.log.stats())


gc.threshold(12000)  # or what is long-lived comes to lie all over the heap
main(sys.argv[1:])
