# run() allocates nothing per element. Where a long ts is touched it allocates a little per batch, which
# must not grow with the batch. Under CPython the same batches only run.

import gc
import sys
from array import array

from headwater.data.batch import Batch
from headwater.process.coefficients import BANDPASS
from headwater.testing import trial

BOARD = sys.implementation.name == "micropython"
if BOARD:
    import micropython

TS_US = 1700000000000000
SIZE = 64

WHAT = "count sum mean min max variance"
WHERE = {"test": ["and", [">", "x", 3], ["<", "y", "most"], ["!=", "z", 5]], "names": "most", "values": [900]}
MAP = {
    "out": "m:i16 d:u8 q:i32",
    "exprs": ["list", ["max", "x", ["neg", "x"]], ["sat8", ["-", "x", "y"]], ["//", "x", "y"]],
    "names": "",
    "values": [],
}
ROUTE = {"tests": ["list", [">", "x", 9], ["<", "y", 5]], "names": "", "values": []}
HEALTH = {"names": "a b", "limits": [-100, 100, -100, 100], "need": 0}

# kind, parameters, inputs: run locked, since they touch no ts
STRICT = (
    ("Affine", {"num": 3, "den": 2, "offset": -7}, ("v:i16",)),
    ("Magnitude", {}, ("x:i16 y:i16 z:i16",)),
    ("Difference", {}, ("v:i16",)),
    ("Decimate", {"k": 3}, ("v:i16",)),
    ("DeadBand", {"width": 100}, ("v:i16",)),
    ("Fir", {"coeffs": BANDPASS}, ("v:i16",)),
    ("ExpAverage", {"shift": 4}, ("v:i16",)),
    ("Median", {"k": 5}, ("v:i16",)),
    ("Average", {"count": 20}, ("v:i16",)),
    ("Where", WHERE, ("x:i16 y:i16 z:i16",)),
    ("Map", MAP, ("x:i16 y:i16 z:i16",)),
    ("Route", ROUTE, ("x:i16 y:i16 z:i16",)),
    ("Attenuate", {"threshold": 10}, ("v:i16", "v:i16")),
    ("Union", {}, ("v:i16", "v:i16")),
    ("Hold", {}, ("a:i16", "b:i16")),
    ("Threshold", {"high": 100, "low": -100}, ("v:i16",)),
    ("HealthAnalyzer", HEALTH, ("a:i16", "b:i16")),
    ("Qrs", {}, ("v:i16",)),
    ("Variability", {"beats": 8}, ("rr_us:u32",)),
    ("Tumbling", {"count": 10, "what": "count mean min max"}, ("v:i16",)),
    ("Sliding", {"count": 10, "step": 5, "what": "count mean min max"}, ("v:i16",)),
)
# these touch a ts once a batch, or tell sums above 2**30 once a window
LENIENT = (
    ("Average", {"us": 20000}, ("v:i16",)),
    ("SumJoin", {"us": 20000}, ("v:i16", "v:i16")),
    ("Tumbling", {"us": 3600000000, "what": WHAT}, ("v:i16",)),
    ("Sliding", {"us": 7200000000, "step_us": 3600000000, "what": WHAT}, ("v:i16",)),
    ("Counter", {}, ("v:i16",)),
    ("Rate", {"us": 3600000000}, ("v:i16",)),
    ("HeartRate", {"beats": 8}, ("rr_us:u32",)),
)


class Joined:
    dt = -1

    def ts_of(self, i):
        return self.ts + self.at[i]


# SIZE elements that move about, and now and then lie at `top`.
def batch(op, top=32767):
    def fill(c, k, beats):
        v = k
        for i in range(len(c)):
            v = (v * 75 + 74) % 65537
            c[i] = 700000 + v if beats else top if v < 3000 else (v >> 5) - 1024

    if len(op.ins) == 1:
        x = Batch(op.ins[0], SIZE)
        x.dt = 2777
        for k in range(len(x.cols)):
            fill(x.cols[k], k + 7, op.ins[0].names[0] == "rr_us")
    else:
        x = Joined()
        x.port = bytearray([i % len(op.ins) for i in range(SIZE)])
        x.at = array("i", [2777 * i for i in range(SIZE)])
        x.cols = []
        for p in range(len(op.ins)):
            x.cols.append(op.ins[p].arrays(SIZE))
            for c in x.cols[p]:
                fill(c, p + 11, False)
    x.ts = TS_US
    x.n = SIZE
    return x


def test_run_works_with_the_heap_locked():
    bad = []
    for kind, params, ins in STRICT:
        op = trial.make(kind, params, ins, SIZE)
        x = batch(op, 18000 if kind == "Magnitude" else 32767)
        op.run(x, SIZE)
        failed = None
        if BOARD:
            gc.collect()
            micropython.heap_lock()
        try:
            n = op.run(x, SIZE)
        except MemoryError as e:
            failed = e
        if BOARD:
            micropython.heap_unlock()
        if failed:
            bad.append(kind)
        assert 0 <= n <= SIZE, kind
    assert not bad, bad


def test_what_a_batch_allocates_does_not_grow_with_it():
    for kind, params, ins in LENIENT:
        op = trial.make(kind, params, ins, SIZE)
        x = batch(op)
        op.run(x, 1)
        spent = []
        for n in (8, 16, SIZE):
            x.ts += 1000000
            gc.collect()
            before = gc.mem_alloc() if BOARD else 0
            op.run(x, n)
            spent.append((gc.mem_alloc() if BOARD else 0) - before)
        assert max(spent) - min(spent) <= 128, (kind, spent)
        assert max(spent) <= 640, (kind, spent)
