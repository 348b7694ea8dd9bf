# Runs on MicroPython: process SP1 on a real host, and chains of small operators, beside bare loops.
#     board_bench_speed.py MODE PLAN DATA ELEMENTS ROUNDS LINK_BYTES

import gc
import sys
import time
from array import array

from board import Board, note


# speed PLAN DATA ELEMENTS ROUNDS LINK_BYTES: the host and the fused loop take turns.
def speed(args):
    import fused

    board = Board(args[0], args[1], int(args[4]))
    board.meet()
    n = board.plan.batch
    count = int(args[2]) // n
    rounds = int(args[3])
    qrs = None
    for inst in board.host.instances.values():
        if inst.vertex.kind == "Qrs":
            qrs = type(inst.op)(inst.vertex.params, inst.vertex.ins, inst.vertex.outs, n)
            qrs.y.at = qrs.y.at  # made now, while there is room in one piece, as a host does it
    line = array("h", bytes(60))
    for _ in range(20):
        board.feed(n)
    best = [1 << 30] * 3
    x = board.batch
    for _ in range(rounds):
        gc.collect()
        us = 0
        for _ in range(count):
            board.sensor.read(n)
            t = time.ticks_us()
            fused.run(qrs, x, n, line)
            us += time.ticks_diff(time.ticks_us(), t)
        best[0] = min(best[0], us)
        gc.collect()
        board.us = board.acks_us = 0
        for _ in range(count):
            if board.feed(n) != n:
                raise ValueError("the source refused samples: its log is full")
        if board.us < best[1]:
            best[1] = board.us
            best[2] = board.acks_us
    note("speed", *[b / (count * n) for b in best])


# What the four operators of the chain compute, each as a loop of its own.
def affine(c, o, n, num, offset):
    for i in range(n):
        v = c[i] * num + offset
        o[i] = -32768 if v < -32768 else 32767 if v > 32767 else v


def dead_band(c, o, n, width, last):
    j = 0
    for i in range(n):
        d = c[i] - last
        if d > width or -d > width:
            last = c[i]
            o[j] = last
            j += 1
    return j, last


def difference(c, o, n, last):
    for i in range(n):
        v = c[i]
        o[i] = v - last
        last = v
    return last


def where(c, o, n, limit):
    j = 0
    for i in range(n):
        v = c[i]
        if v > limit:
            o[j] = v
            j += 1
    return j


# All four in one.
def all_four(c, o, n, num, offset, width, last, before, limit):
    j = 0
    for i in range(n):
        v = c[i] * num + offset
        if v < -32768:
            v = -32768
        elif v > 32767:
            v = 32767
        d = v - last
        if d > width or -d > width:
            last = v
            d = v - before
            before = v
            if d > limit:
                o[j] = d
                j += 1
    return j, last, before


# chain PLAN DATA ELEMENTS ROUNDS LINK_BYTES: four operators with ports, rings and stream times, one bare
# loop for each, and all four in one loop take turns.
def chain(args):
    board = Board(args[0], args[1], int(args[4]), 256)
    board.meet()
    host = board.host
    source = host.sources[0]
    n = board.plan.batch
    count = int(args[2]) // n
    best = [1 << 30] * 3
    a = array("h", bytes(2 * n))
    b = array("h", bytes(2 * n))
    c = array("i", bytes(4 * n))
    o = array("i", bytes(4 * n))
    x = board.batch.cols[0]
    ticks = time.ticks_us
    since = time.ticks_diff
    last = before = last1 = last2 = 0
    order = host.scheduler.order
    for _ in range(int(args[3])):
        gc.collect()
        us = [0, 0, 0]
        for _ in range(count):
            board.sensor.read(n)
            mono = board.now
            board.now += n * 2778
            t = ticks()
            _, last, before = all_four(x, o, n, 3, -7, 1, last, before, -3000)
            us[0] += since(ticks(), t)
            t = ticks()
            affine(x, a, n, 3, -7)
            k, last1 = dead_band(a, b, n, 1, last1)
            last2 = difference(b, c, k, last2)
            where(c, o, k, -3000)
            us[1] += since(ticks(), t)
            host.now = board.now
            if source.take(board.batch, mono) != n:
                raise ValueError("the source refused samples: its log is full")
            t = ticks()
            for s in order:
                s.step()
            us[2] += since(ticks(), t)
            board.taken += n
            board.tick(True)
            board.exchange()
        for i in range(3):
            best[i] = min(best[i], us[i])
    note("chain", *[v / (count * n) for v in best])
    note("through", host.ports[(4, 0)].ring.last, "of", board.taken)


{"speed": speed, "chain": chain}[sys.argv[1]](sys.argv[2:])
