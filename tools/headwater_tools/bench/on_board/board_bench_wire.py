# Runs on MicroPython and CPython: how long blocks, frames and seals take, in microseconds a sample.
#     board_bench_wire.py DATA FRAMES BATCH ...

import sys
import time
from array import array

from headwater.data import block
from headwater.data.alphabet import Alphabet
from headwater.data.batch import Batch
from headwater.protocol import frames, sessions

PLAN = b"\xa1\xb2\xc3\xd4\xe5\xf6\x07\x18"
XI = 100000000  # three days at 360 Hz
TS = 1790000000000000


def clock():
    return time.ticks_us() if hasattr(time, "ticks_us") else time.perf_counter_ns() // 1000


def since(t):
    return time.ticks_diff(time.ticks_us(), t) if hasattr(time, "ticks_us") else clock() - t


def copy(x, y, n):
    for i in range(n):
        y[i] = x[i]


def peers():
    key = bytes(32)
    board = sessions.Peer(key, 2, 1 << 63, 3, 0, PLAN, lambda: 5)
    gateway = sessions.Peer(key, 0, 1 << 62, 9, 2, PLAN, lambda: 6)
    writer = frames.Writer(1400)
    board.begin(writer)
    board.seal(writer)
    while board.reply or gateway.reply:
        for a, b in ((board, gateway), (gateway, board)):
            frame = a.reply
            a.reply = None
            if frame:
                b.open(frame)
    board.counter = 100000
    return board, gateway, writer


# One sealed frame with one DATA message of the whole batch.
def pack(board, writer, batch):
    board.begin(writer)
    buf, pos = writer.open_data(1, board.my_log, (0, 0))
    assert writer.close_data(block.encode(batch, 0, batch.n, buf, pos))
    return board.seal(writer)


def unpack(gateway, frame, batch):
    pos, end = gateway.open(frame)
    for message in frames.messages(frame, pos, end, gateway.log, gateway.my_log):
        data = message[4]
        block.decode(data, 0, len(data), batch)


# -> [copy, encode, decode, frame out, frame in]: microseconds a sample, the best of three turns
def measure(path, frames, n):
    batch = Batch(Alphabet("mV:i16"), n)
    back = Batch(batch.alphabet, n)
    batch.n = n
    batch.dt = 2778
    buf = bytearray(block.bound(batch.alphabet, n))
    y = array("h", bytes(2 * n))
    best = [1 << 30] * 5
    raw = bytearray(2 * n)
    for _ in range(3):
        total = [0] * 5
        board, gateway, writer = peers()
        with open(path, "rb") as f:
            for k in range(frames):
                f.readinto(raw)
                x = batch.cols[0]
                for i in range(n):
                    v = raw[2 * i] | raw[2 * i + 1] << 8
                    x[i] = v - 65536 if v > 32767 else v
                batch.xi = XI + k * n
                batch.ts = TS + k * n * 2778
                t = clock()
                copy(x, y, n)
                total[0] += since(t)
                t = clock()
                end = block.encode(batch, 0, n, buf, 0)
                total[1] += since(t)
                t = clock()
                block.decode(buf, 0, end, back)
                total[2] += since(t)
                assert back.cols[0] == x
                t = clock()
                frame = pack(board, writer, batch)
                total[3] += since(t)
                t = clock()
                unpack(gateway, frame, back)
                total[4] += since(t)
                assert back.n == n and back.cols[0] == x
        best = [min(a, b) for a, b in zip(best, total)]
    return [b / (frames * n) for b in best]


def main():
    path, frames = sys.argv[1], int(sys.argv[2])
    for n in sys.argv[3:]:
        n = int(n)
        print(n, *measure(path, frames * 36 // n, n))


if sys.implementation.name == "micropython":
    main()
