# heap: 256k
# A checkpoint of 16 KB is made, taken in, stored and restored with far less heap than that, beside the
# buffers of its operator.

import gc
import sys

from headwater.data.alphabet import Alphabet
from headwater.data.batch import Batch
from headwater.plan import model
from headwater.protocol import frames
from headwater.protocol.clock import Clock
from headwater.runtime.host import Host
from headwater.storage.keyspace import B_PARTS, HELD, PARTS_MAX, PERMANENT, checkpoint_key
from headwater.storage.log import Log

BOARD = sys.implementation.name == "micropython"
SECTOR = 4096
SECTORS = 48
ENTRIES = 4096
BATCH = 32
OPERATOR = 1
GIVER, TAKER = 1, 2
INC = 77


# Memory outside the heap.
def memory(size):
    if not BOARD:
        return memoryview(bytearray(size))
    import ffi
    import uctypes

    address = ffi.open("libc.so.6").func("P", "malloc", "i")(size)
    return memoryview(uctypes.bytearray_at(address, size))


class Flash:
    def __init__(self):
        self.mem = memory(SECTORS * SECTOR)
        for p in range(SECTORS):
            self.ioctl(6, p)

    def readblocks(self, p, buf, off):
        at = p * SECTOR + off
        buf[:] = self.mem[at : at + len(buf)]

    def writeblocks(self, p, buf, off):
        at = p * SECTOR + off
        self.mem[at : at + len(buf)] = buf

    def ioctl(self, op, arg):
        if op == 4:
            return SECTORS
        if op == 5:
            return SECTOR
        for at in range(arg * SECTOR, (arg + 1) * SECTOR, 64):
            self.mem[at : at + 64] = b"\xff" * 64
        return 0


def plan():
    v = Alphabet("v:i32")
    vertices = [
        model.Vertex(0, "values", "", 0, {}, (), (v,), 100000, (1,), 0),
        model.Vertex(
            1,
            "scaled",
            "Affine",
            1,
            {"num": 1, "den": 1, "shift": 0, "offset": 0},
            (v,),
            (v,),
            0,
            (GIVER, TAKER),
            0,
            0,
            60,
        ),
    ]
    edges = [
        model.Edge(0, 0, 0, 1, 0, 0, 200, model.BLOCK, "", 0, 0, False),
        model.Edge(1, 1, 0, model.OUTSIDE, 0, 0, ENTRIES, model.BLOCK, "a/b", model.GATEWAY, 0, False),
    ]
    names = ("gateway", "giver", "taker")
    return model.Plan(
        "arrival", model.UNCOORDINATED, 500, 1, BATCH, vertices, edges, (0, 1), names, b"12345678", 1000, 1
    )


def host(me):
    flash = Flash()
    Log.format(flash, 0x1122 + me)
    log = Log(flash)
    log.mount()
    host = Host(plan(), me, log, {}, Clock(), lambda to, frame: None, lambda: 7, None, 512)
    host.start(1000000)
    return host


# Noise that no code can shorten.
def noise(i):
    return ((i * 1103515245 + 12345) & 0x7FFFFFFF) - 0x40000000


# The operator of a host that takes nothing yet.
def instance(of):
    from headwater.runtime import relocation

    if OPERATOR not in of.instances:
        relocation.activate(of, OPERATOR, 2, True)
    return of.instances[OPERATOR]


def fill(inst):
    port = inst.ports[0]
    batch = Batch(port.alphabet, BATCH)
    for xi in range(1, ENTRIES + 1, BATCH):
        batch.begin(xi, BATCH, 1000000 + xi * 10000, 10000, 0)
        for i in range(BATCH):
            batch.cols[0][i] = noise(xi + i)
        assert port.has_room(BATCH)
        port.ring.append(batch, 0, BATCH)
    e = inst.inputs[0]
    e.resume(ENTRIES, INC, False, 0, 0)


# Load the code that is needed, which has its own bounds, and take the heap but for what a host asks for
# before it accepts such an offer, and for pieces too small for anything.
def ballast():
    from headwater.operators import pointwise  # noqa: F401
    from headwater.runtime import (  # noqa: F401
        blockwise,
        checkpoint_transfer,
        hosting,
        incoming,
        lifecycle,
        relocation,
        restore,
        routing,
        taking,
    )
    from headwater.storage import arrival, checkpoint_file, reading  # noqa: F401

    if not BOARD:
        return []
    kept = [None] * 4096
    n = 0
    room = taking.room(plan().vertices[OPERATOR], 20000, BATCH)
    assert sum([len(piece) for piece in room]) < 8192
    gc.collect()
    try:
        while True:
            kept[n] = bytearray(64)
            n += 1
    except MemoryError:
        pass
    room.clear()
    gc.collect()
    return kept


# A checkpoint of all entries, made at one host and taken at the other.
def taken():
    from headwater.runtime import incoming, lifecycle

    giver = host(GIVER)
    made = instance(giver)
    fill(made)
    taker = host(TAKER)
    inst = instance(taker)
    piece = bytearray(400)
    kept = ballast()
    made.ck.commit(made.ck._take(b"", 0), True)
    assert not giver.dropped, giver.dropped
    log, pos = giver.store, list(made.ck.pos)
    assert pos[0] == ENTRIES
    key = checkpoint_key(OPERATOR, PERMANENT)
    size = log.blob_size(key)
    assert size > 16384
    kept = None
    kept = ballast()
    lifecycle.seek(inst, pos, (0, 0), [GIVER])
    offset = 0
    while offset < size:
        n = log.read_blob(key, offset, piece)
        m = (frames.CKPT, OPERATOR, made.epoch, pos, size, offset, bytes(memoryview(piece)[:n]))
        taker.now += 1000
        incoming.HANDLERS[frames.CKPT](taker, GIVER, m)
        offset += n
    del kept
    return taker, inst, log, size


def test_a_checkpoint_of_16_kb_needs_8_kb_of_heap_at_either_end():
    taker, inst, log, size = taken()
    key = checkpoint_key(OPERATOR, PERMANENT)
    assert not taker.dropped, taker.dropped
    assert list(inst.ck.pos) == inst.position()
    assert inst.ports[0].ring.last == ENTRIES
    store = taker.store
    assert store.blob_size(key) == store.blob_size(checkpoint_key(OPERATOR, HELD)) == size
    assert [i for i in range(PARTS_MAX) if store.blob_size(B_PARTS + i)] == []
    one, two = bytearray(256), bytearray(256)
    for offset in range(8, size, 256):  # but for the epoch
        assert log.read_blob(key, offset, one) == store.read_blob(key, offset, two)
        assert one == two
    batch = Batch(inst.ports[0].alphabet, BATCH)
    from headwater.data.ring import Cursor

    cur = Cursor(0)
    for xi in range(1, ENTRIES + 1, BATCH):
        assert inst.ports[0].read(cur, batch, BATCH) == BATCH
        assert [batch.cols[0][i] for i in range(BATCH)] == [noise(xi + i) for i in range(BATCH)]
        cur.move(cur.xi + BATCH)
