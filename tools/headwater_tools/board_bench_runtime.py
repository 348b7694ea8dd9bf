# Runs on MicroPython: process SP1 on a real host with a real log, and its speed beside bare loops.
#     board_bench_runtime.py MODE PLAN DATA NUMBERS...
#
# The gateway is another process, at the other end of standard input and output. Each side writes the
# frames it has, each with its length before it, and a length of 0 when it waits for the other.
# Reports go to standard error. The flash is memory outside the heap.

import gc
import sys
import time

KEY = b"\x5a" * 32
ME = 1
MTU = 512
STEP_US = 250000


def note(*words):
    sys.stderr.write(" ".join([str(w) for w in words]) + "\n")


def live():
    gc.collect()
    return gc.mem_alloc()


# A flash chip in memory that malloc gives, outside the heap.
class Flash:
    def __init__(self, sectors, size=4096):
        import ffi
        import uctypes

        address = ffi.open("libc.so.6").func("P", "malloc", "i")(sectors * size)
        self.sectors = sectors
        self.size = size
        self.mem = memoryview(uctypes.bytearray_at(address, sectors * size))
        self.blank = b"\xff" * 256
        for p in range(sectors):
            self.ioctl(6, p)

    def readblocks(self, p, buf, off):
        at = p * self.size + off
        buf[:] = self.mem[at : at + len(buf)]

    def writeblocks(self, p, buf, off):
        at = p * self.size + off
        self.mem[at : at + len(buf)] = buf

    def ioctl(self, op, arg):
        if op == 4:
            return self.sectors
        if op == 5:
            return self.size
        at = arg * self.size
        for k in range(at, at + self.size, 256):
            self.mem[k : k + 256] = self.blank
        return 0


# What goes in and out of this process.
class Wire:
    def __init__(self):
        self.frames = []
        self.into = sys.stdin.buffer
        self.out = sys.stdout.buffer

    def send(self, to, frame):
        self.frames.append(frame)

    # Give the gateway what there is, and take what it says until it waits.
    def exchange(self):
        out = self.out
        for frame in self.frames:
            out.write(len(frame).to_bytes(2, "little"))
            out.write(frame)
        self.frames.clear()
        out.write(b"\0\0")
        got = []
        while True:
            n = self.into.read(2)
            n = n[0] | n[1] << 8
            if not n:
                return got
            got.append(self.into.read(n))


# The sensor: samples of a file, again and again.
class Sensor:
    def __init__(self, path, batch):
        self.file = open(path, "rb")
        self.batch = batch
        self.mem = batch.mem[0]

    def read(self, n):
        if self.file.readinto(self.mem[:n]) < 2 * n:
            self.file.seek(0)
            self.file.readinto(self.mem[:n])
        self.batch.n = n
        self.batch.dt = 2778


class Board:
    def __init__(self, path, data, sectors=64):
        heap = [("interpreter and this script", live())]
        flash = Flash(sectors)
        self.sectors = sectors
        heap.append(("drivers of this bench", live()))
        from headwater import plan

        with open(path, "rb") as f:
            self.plan = plan.loads(f.read())
        heap.append(("plan and its module", live()))
        from headwater.log import Log

        Log.format(flash, 0x1234567890ABCDEF)
        self.log = Log(flash)
        self.log.mount()
        heap.append(("log", live()))
        from headwater.batch import Batch
        from headwater.clock import Clock
        from headwater.host import Host

        heap.append(("modules of the core", live()))
        self.wire = Wire()
        self.nonces = 1
        self.now = 1000000
        keys = {0: KEY}
        self.host = Host(self.plan, ME, self.log, keys, Clock(), self.wire.send, self.nonce, None, MTU)
        heap.append(("host", live()))
        self.host.start(self.now)
        heap.append(("operators, ports and links", live()))
        self.batch = Batch(self.plan.vertices[0].outs[0], self.plan.batch)
        self.sensor = Sensor(data, self.batch)
        heap.append(("sensor", live()))
        self.heap = heap
        self.ticked = 0
        self.us = 0  # spent in the host
        self.taken = 0
        self.acks_us = 0

    def nonce(self):
        self.nonces += 1
        return self.nonces

    def exchange(self):
        for frame in self.wire.exchange():
            t = time.ticks_us()
            self.host.receive(frame, self.now)
            gone = time.ticks_diff(time.ticks_us(), t)
            self.us += gone
            self.acks_us += gone

    # Ticks and exchanges until the gateway knows us.
    def meet(self):
        for _ in range(12):
            self.now += STEP_US
            self.host.tick(self.now)
            self.exchange()

    def feed(self, n):
        host = self.host
        self.sensor.read(n)
        mono = self.now
        self.now += n * 2778
        t = time.ticks_us()
        host.now = self.now
        accepted = host.sample(0, self.batch, mono)
        if self.now - self.ticked >= STEP_US:
            self.ticked = self.now
            host.tick(self.now)
        self.us += time.ticks_diff(time.ticks_us(), t)
        self.taken += accepted
        self.exchange()
        return accepted


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


# heap PLAN DATA ELEMENTS: a long run; what is live then.
def heap(args):
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
    for name, value in board.heap:
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


# speed PLAN DATA ELEMENTS ROUNDS: the host and the fused loop take turns.
def speed(args):
    from array import array

    import fused

    board = Board(args[0], args[1])
    board.meet()
    n = board.plan.batch
    count = int(args[2]) // n
    rounds = int(args[3])
    gc.threshold(-1)
    qrs = None
    for inst in board.host.instances.values():
        if inst.vertex.kind == "Qrs":
            qrs = type(inst.op)(inst.vertex.params, inst.vertex.ins, inst.vertex.outs, n)
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
            board.feed(n)
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


# chain PLAN DATA ELEMENTS ROUNDS: four operators with ports, rings and stream times, one bare loop for
# each, and all four in one loop take turns.
def chain(args):
    from array import array

    board = Board(args[0], args[1])
    board.meet()
    host = board.host
    gc.threshold(-1)  # this heap is large enough
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
    order = host.order
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
            source.take(board.batch, mono)
            t = ticks()
            for s in order:
                s.step()
            us[2] += since(ticks(), t)
            board.taken += n
            host.tick(board.now)
            board.exchange()
        for i in range(3):
            best[i] = min(best[i], us[i])
    note("chain", *[v / (count * n) for v in best])
    note("through", host.ports[(4, 0)].ring.last, "of", board.taken)


def main():
    mode = sys.argv[1]
    gc.threshold(12000)  # or what is long-lived comes to lie all over the heap
    globals()[mode](sys.argv[2:])


main()
