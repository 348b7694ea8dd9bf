# Runs on MicroPython: a real host with a real log, fed by a sensor that reads a file.
#
# The gateway is another process, at the other end of standard input and output. Each side writes the
# frames it has, each with its length before it (and of those from here the number of the host that they are
# for), and a length of 0 when it waits for the other.
# Reports go to standard error. The flash is memory outside the heap.

import gc
import sys
import time


def note(*words):
    sys.stderr.write(" ".join([str(w) for w in words]) + "\n")


def live():
    gc.collect()
    return gc.mem_alloc()


HEAP = [("interpreter and this script", live())]

from headwater.board.collection import STEADY_S, collect, collect_often  # noqa: E402
from headwater.data.batch import Batch  # noqa: E402
from headwater.plan.model import loads  # noqa: E402
from headwater.protocol.clock import Clock  # noqa: E402
from headwater.runtime.host import Host  # noqa: E402
from headwater.storage.log import Log  # noqa: E402

HEAP.append(("modules of the core", live()))

KEY = b"\x5a" * 32
ME = 1
MTU = 512
STEP_US = 250000
SECOND_US = 1000000
_PIECE = 64


# A flash chip in memory that malloc gives, outside the heap.
class Flash:
    def __init__(self, sectors, size=4096):
        import ffi
        import uctypes

        address = ffi.open("libc.so.6").func("P", "malloc", "i")(sectors * size)
        self.sectors = sectors
        self.size = size
        self.mem = memoryview(uctypes.bytearray_at(address, sectors * size))
        self.blank = b"\xff" * 64
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
        for k in range(at, at + self.size, 64):
            self.mem[k : k + 64] = self.blank
        return 0


# The input and output of this process.
class Wire:
    def __init__(self):
        self.frames = []
        self.into = sys.stdin.buffer
        self.out = sys.stdout.buffer

    def send(self, to, frame):
        self.frames.append(bytes((len(frame) & 255, len(frame) >> 8, to)))
        self.frames.append(bytes(frame))

    # Give the gateway what there is, and read its frames until it waits.
    def exchange(self):
        out = self.out
        for frame in self.frames:
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
    # `link_bytes`: what the program of a board takes beside a host, in pieces like its own. `hosts`: those
    # that it speaks to.
    def __init__(self, path, data, link_bytes=0, sectors=64, hosts=(0,)):
        collect_often()
        heap = HEAP
        self.kept = [bytearray(_PIECE) for _ in range(link_bytes // _PIECE)]
        flash = Flash(sectors)
        self.sectors = sectors
        heap.append(("drivers of this bench", live()))
        with open(path, "rb") as f:
            self.plan = loads(f.read())
        heap.append(("plan", live()))
        Log.format(flash, 0x1234567890ABCDEF)
        self.log = Log(flash)
        self.log.mount()
        heap.append(("log", live()))
        self.wire = Wire()
        self.nonces = 1
        self.now = 1000000
        keys = {number: KEY for number in hosts}
        self.host = Host(self.plan, ME, self.log, keys, Clock(), self.wire.send, self.nonce, None, MTU)
        heap.append(("host", live()))
        self.host.start(self.now)
        heap.append(("operators, ports and links", live()))
        self.batch = Batch(self.plan.vertices[0].outs[0], self.plan.batch)
        self.sensor = Sensor(data, self.batch)
        heap.append(("sensor", live()))
        self.ticked = self.collected = 0
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
            self.host.settle()
            gone = time.ticks_diff(time.ticks_us(), t)
            self.us += gone
            self.acks_us += gone

    # As the program of a board does it: `steady` when it has started.
    def tick(self, steady):
        if self.now - self.collected >= (STEADY_S if steady else 1) * SECOND_US:
            self.collected = self.now
            collect(steady)
        self.host.tick(self.now)

    # Ticks and exchanges until the gateway knows this host.
    def meet(self):
        for _ in range(12):
            self.now += STEP_US
            self.tick(False)
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
            self.tick(True)
        self.us += time.ticks_diff(time.ticks_us(), t)
        self.taken += accepted
        self.exchange()
        return accepted
