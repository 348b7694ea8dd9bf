# Runs on MicroPython: the time of every operator type of the vectors, beside a loop that copies.
#     board_bench_work.py VECTORS ROUNDS
# Prints KIND and its time for each element, in times of a copied one; the longest of a kind's vectors counts.

import gc
import json
import sys
import time
from array import array

from headwater.testing import trial

N = 40  # entries of a vector
_us = [0, 0]  # in run(), and elements that it took


def timed(run):
    def wrapped(x, n):
        t = time.ticks_us()
        m = run(x, n)
        _us[0] += time.ticks_diff(time.ticks_us(), t)
        _us[1] += n
        return m

    return wrapped


def copy(c, o, n):
    for i in range(n):
        o[i] = c[i]


def copied(rounds):
    c = array("h", bytes(2 * N))
    o = array("h", bytes(2 * N))
    t = time.ticks_us()
    for _ in range(rounds):
        copy(c, o, N)
    return time.ticks_diff(time.ticks_us(), t) / (rounds * N)


def worked(vector, rounds):
    op = trial.make(vector["kind"], vector["params"], vector["ins"])
    op.run = timed(op.run)
    entries = [e for e in vector["entries"] if e[2] is not None]
    span = entries[-1][1] - entries[0][1] + 2778
    _us[0] = _us[1] = 0
    for k in range(rounds):
        if k % 20 == 0:
            gc.collect()
        trial.run(op, [(p, ts + k * span, row) for p, ts, row in entries])
    return _us[0] / _us[1]


def main(path, rounds):
    found = {}
    bare = min([copied(rounds) for _ in range(50)])
    with open(path) as f:
        for line in f:
            vector = json.loads(line)
            kind = vector["kind"]
            us = min([worked(vector, rounds) for _ in range(7)])
            found[kind] = max(found.get(kind, 0), us / bare)
    for kind in sorted(found):
        print(kind, found[kind])


main(sys.argv[1], int(sys.argv[2]))
