"""What a sample costs on the air, and what packing it costs in time.

The real electrocardiogram, 360 samples a second, in batches as a board cuts them: one block, in one
DATA message, in one sealed frame, in one MQTT PUBLISH of QoS 0. Stream times, counters and times are
those of a board that has run for days. Speed is the time of a bare loop that copies the samples,
divided into that of the work, in one process.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from headwater.data import block
from headwater.data.alphabet import Alphabet
from headwater.data.batch import Batch
from headwater.protocol import frames

from ..boards import micropython
from ..environment import ROOT
from ..errors import UserError
from . import Measure, at_most

SUMMARY = "bytes on the air per sample of an electrocardiogram; speed of packing and unpacking"

ECG = ROOT / "tests" / "data" / "ecg208-360hz.i16"
BATCHES = (36, 60, 90, 180, 360)
BATCH_BAR = 360  # a second of samples
BYTES_BAR = 0.75
TOPIC_BYTES = 9  # like hw/abc/up
TLS_BYTES = 22  # TLS 1.3: record header 5, content type 1, tag 16
TCP_IP_BYTES = 52  # IPv4 20, TCP 20 and time stamps 12; one packet for each frame
SPEED_FRAMES = 200  # batches of 36 for each speed, or as many samples in longer ones

board: Any = importlib.import_module("headwater_tools.bench.on_board.board_bench_wire")


class Cost(NamedTuple):
    """Bytes of one whole run, by what they are for."""

    samples: int
    columns: int
    block_head: int
    message_head: int
    frame_head: int
    seal: int
    mqtt: int
    tls: int
    tcp_ip: int

    def on_air(self) -> float:
        return sum(self[1:7]) / self.samples

    def below(self) -> float:
        return (self.tls + self.tcp_ip) / self.samples


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--frames", type=int, default=SPEED_FRAMES, help="batches of 36 to time")


def run(args: argparse.Namespace, say: Callable[[str], None]) -> list[Measure]:
    if args.frames < 10:
        raise UserError("--frames %d: give at least 10" % args.frames)
    samples = array("h", ECG.read_bytes())
    measures: list[Measure] = []
    say("bytes per sample, %d samples; TLS 1.3 and TCP/IP apart" % len(samples))
    titles = "columns", "block", "message", "frame", "seal", "MQTT", "sum", "TLS", "TCP/IP"
    say("  batch" + "".join(title.rjust(9) for title in titles))
    for n in BATCHES:
        cost = air_bytes(samples, n)
        parts = [part / cost.samples for part in cost[1:]]
        parts.insert(6, cost.on_air())
        say("  %5d" % n + "".join(("%.3f" % part).rjust(9) for part in parts))
        name = "bytes on the air per sample, batches of %d" % n
        if n == BATCH_BAR:
            measures.append(at_most(name, round(cost.on_air(), 4), "B", BYTES_BAR))
            measures.append(
                Measure("of these the packed columns", round(cost.columns / cost.samples, 4), "B")
            )
            measures.append(Measure("TLS and TCP/IP below them", round(cost.below(), 4), "B"))
            head = cost.block_head * n / cost.samples
            measures.append(at_most("head of a block", round(head, 2), "B", 16))
        else:
            measures.append(Measure(name, round(cost.on_air(), 4), "B"))
    for name, value in others(samples):
        measures.append(Measure(name, round(value, 3), "B"))
    say("times of a bare copy loop: encode, decode, frame out (block, message, seal), frame in")
    for where, rows in (("MicroPython", on_board(args.frames)), ("CPython", on_host(args.frames))):
        for n, (copy, *work) in rows.items():
            ratios = [w / copy for w in work]
            say("  %-11s %5d" % (where, n) + "".join(("%.1f" % ratio).rjust(9) for ratio in ratios))
            if n == BATCH_BAR:
                for what, ratio, time in zip(
                    ("encode", "decode", "frame out", "frame in"), ratios, work, strict=True
                ):
                    measures.append(Measure("%s, %s" % (what, where), round(ratio, 2), "copies"))
                    measures.append(Measure("%s, %s, a sample" % (what, where), round(time, 3), "us"))
    return measures


def air_bytes(samples: array[int], n: int) -> Cost:
    """Send all samples in batches of n, and count."""
    batch = Batch(Alphabet("mV:i16"), n)
    batch.n = n
    batch.dt = 2778
    peer, gateway, writer = board.peers()
    total = [0] * (len(Cost._fields) - 1)
    count = len(samples) // n
    for k in range(count):
        batch.cols[0][:] = samples[k * n : k * n + n]
        batch.xi = board.XI + k * n
        batch.ts = board.TS + k * n * 2778
        frame = bytes(board.pack(peer, writer, batch))
        first, end = gateway.open(frame)
        body = frames.messages(frame, first, end, gateway.log, gateway.my_log)[0][4]
        head = block_head(body)
        packet = 2 + TOPIC_BYTES + len(frame)
        for at, part in enumerate(
            (
                len(body) - head,
                head,
                end - first - len(body),
                first,
                frames.TAG,
                1 + (1 if packet < 128 else 2) + packet - len(frame),
                TLS_BYTES,
                TCP_IP_BYTES,
            )
        ):
            total[at] += part
    return Cost(count * n, *total)


def block_head(body: memoryview) -> int:
    """Bytes before the columns of a regular block: entries, stream time, time, interval."""
    pos = 0
    for _ in range(4):
        _, pos = block.get_varint(body, pos, len(body))
    return pos


def others(samples: array[int]) -> list[tuple[str, float]]:
    """The same samples in formats that people use, without any packet around them."""
    import msgpack  # type: ignore[import-untyped, unused-ignore]

    n = BATCH_BAR
    rows = [
        {"ts": board.TS + i * 2778, "seq": board.XI + i, "mV": v} for i, v in enumerate(samples[: 20 * n])
    ]
    frames = [
        {"ts": board.TS, "seq": board.XI + k * n, "dt": 2778, "mV": list(samples[k * n : k * n + n])}
        for k in range(20)
    ]
    return [
        ("JSON, one object for each sample", statistics.mean(len(json.dumps(row)) for row in rows)),
        ("msgpack, one map for each sample", statistics.mean(len(msgpack.packb(row)) for row in rows)),
        ("JSON, one list for each batch of %d" % n, statistics.mean(len(json.dumps(f)) / n for f in frames)),
        (
            "msgpack, one list for each batch of %d" % n,
            statistics.mean(len(msgpack.packb(f)) / n for f in frames),
        ),
    ]


def on_host(frames: int) -> dict[int, list[float]]:
    return {n: board.measure(str(ECG), frames * 36 // n, n) for n in BATCHES}


def on_board(frames: int) -> dict[int, list[float]]:
    script = Path(__file__).parent / "on_board" / "board_bench_wire.py"
    args = [os.path.relpath(ECG, ROOT), str(frames), *map(str, BATCHES)]
    done = micropython.run(script, args, tests=False)
    if done.returncode:
        raise UserError("the bench failed on MicroPython:\n" + (done.stdout + done.stderr).strip())
    out = {}
    for line in done.stdout.splitlines():
        n, *times = line.split()
        out[int(n)] = [float(t) for t in times]
    return out
