"""What the runtime costs on a board: heap, and time beside bare loops over the same arithmetic.

The board is 32-bit MicroPython with a bounded heap; its code lies in a ROMFS image, and garbage is
collected by the rule of a real board (`collection.py`). In the part `board` it is a whole board with MQTT
over TLS, broker and gateway. In the others SP1 runs on the real host and log alone. The gateway is a real
host too, here, at the other end of a pipe; it checks every element that arrives.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import inspect
import os
import re
import shutil
import tempfile
import textwrap
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater.data import block
from headwater.data.batch import Batch
from headwater.operators import fir
from headwater.operators.qrs import _WINDOW
from headwater.process import Affine, DeadBand, Difference, Process, Where
from headwater.process.coefficients import BANDPASS
from headwater.runtime.gateway_host import GatewayHost
from headwater.storage.log import Log

from .. import environment
from ..errors import UserError
from ..examples import sp1
from ..image import builder
from . import Measure, at_least, at_most
from .support import moving_board, piped_board, whole_board
from .support.piped_board import DATA, ECG, PLAN, TRIAL, Gateway, all_there, gateway_clock, least_heap
from .support.plain_qrs import PlainQrs

SUMMARY = "heap of a board that runs SP1; its speed beside bare loops over the same arithmetic"

ELEMENTS = 1_000_000
SPEED_ELEMENTS = 18_000
ROUNDS = 5
BYTEWAX_ELEMENTS = 360_000
HEAP = 64
HEAP_LEAST, HEAP_MOST = 32, 160  # KiB: the range in which the smallest heap that works is searched
# A whole board, with the program, MQTT over TLS, and this bench's sensor (about 1 KiB).
BOARD_HEAP = 72
BOARD_HEAP_LEAST = 64
# What the program and the link of a board hold beside its host (69.0 KB of the whole board, 53.9 without
# them, and this bench's sensor is no part of it). The boards of `speed` hold as much without using it,
# because it is also marked and swept in each collection.
LINK_BYTES = 14 * 1024
# By batch, the heap in which SP1 runs at speed: what a process file gives a board unless it says
# otherwise. Batches of 360 beside that link do not fit into 112 KiB.
HEAP_KB = 96  # of a board without PSRAM, once its heap has grown
SPEED_HEAPS = {36: HEAP_KB, 90: HEAP_KB, 360: 128}
PARTS = ("heap", "board", "speed", "chain", "code", "bytewax")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--elements", type=int, default=ELEMENTS, help="samples of the long runs; no other run is longer"
    )
    parser.add_argument("--heap", type=int, default=HEAP, help="KiB of the board's heap in the long run")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of runs that take turns (%d)" % ROUNDS)
    parser.add_argument("--no-search", action="store_true", help="do not look for the smallest heaps")
    parser.add_argument("--only", choices=PARTS, help="measure this part alone")


def run(args: argparse.Namespace, say: Callable[[str], None]) -> list[Measure]:
    if args.elements < 1000:
        raise UserError("--elements %d: give at least 1000" % args.elements)
    if not 16 <= args.heap <= 4096:
        raise UserError("--heap %d: 16 to 4096 KiB" % args.heap)
    if args.rounds < 1:
        raise UserError("--rounds %d: give at least 1" % args.rounds)
    measures: list[Measure] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in (args.only,) if args.only else PARTS:
            if part == "heap":
                measures += long_run(folder, args.elements, args.heap, say)
                if not args.no_search:
                    measures += smallest_heap(folder, args.elements, say)
                measures += moving_board.measured(folder, not args.no_search, say)
            elif part == "board":
                measures += board_run(args.elements, not args.no_search, say)
            elif part == "speed":
                measures += speed(folder, min(args.elements, SPEED_ELEMENTS), args.rounds, say)
            elif part == "chain":
                measures += chain(folder, min(args.elements, SPEED_ELEMENTS), args.rounds, say)
            elif part == "code":
                measures += code_size(say)
            else:
                measures += beside_bytewax(folder, args.elements, args.rounds, say)
    return measures


def process_of(batch: int) -> Process:
    return sp1.build(every=500, level="local", hosts=("chest", "chest", "chest"), batch=batch, heap_kb=256)


def long_run(folder: Path, elements: int, heap: int, say: Callable[[str], None]) -> list[Measure]:
    process = process_of(60)
    gateway = Gateway(process.plan())
    what = "SP1 in %d KiB, %d elements, without MQTT and TLS" % (heap, elements)
    got = piped_board.run(folder, "heap", process, gateway, (PLAN, DATA, elements), "%dk" % heap, {}, say)
    if "live" not in got:
        return [Measure(what, "out of memory" if "MemoryError:" in got else "failed", "", "works", False)]
    before = 0
    for size, *words in got["heap"]:
        say("  %6d B  %s" % (int(size) - before, " ".join(words)))
        before = int(size)
    number = {word: int(got[word][0][0]) for word in ("live", "most", "free", "block", "taken", "us")}
    good = all_there(got, gateway, elements)
    for word in ("checkpoints", "dropped", "flash"):
        for rest in got.get(word, []):
            say("  %s %s" % (word, " ".join(rest)))
    say("  %d B in frames arrived, %d elements wrong" % (gateway.received, gateway.outbox.wrong))
    return [
        Measure(what, "works" if good else "lost some", "", "works", good),
        Measure("live heap after it", number["live"], "B"),
        Measure("free heap", number["free"], "B"),
        Measure("largest free block", number["block"], "B"),
        Measure(
            "time in the host, an element, batches of 60", round(number["us"] / number["taken"], 3), "us"
        ),
    ]


def smallest_heap(folder: Path, elements: int, say: Callable[[str], None]) -> list[Measure]:
    process = process_of(60)

    def works(heap: int, count: int) -> bool:
        gateway = Gateway(process.plan())
        got = piped_board.run(
            folder, "heap", process, gateway, (PLAN, DATA, count), "%dk" % heap, {}, lambda _: None
        )
        return all_there(got, gateway, count)

    least = least_heap(works, HEAP_LEAST, HEAP_MOST, elements)
    say("  the smallest heap in which %d elements work: %d KiB" % (elements, least))
    return [Measure("smallest heap in which SP1 works", least, "KiB", HEAP, least <= HEAP)]


def board_run(elements: int, search: bool, say: Callable[[str], None]) -> list[Measure]:
    """A whole board in the heap of its bar, in the smallest one that works, and in that of `speed`."""
    environment.ensure("gateway")
    process = process_of(60)
    lives: dict[int, whole_board.Life | str] = {}

    def works(heap: int, count: int) -> bool:
        life = lives[heap] = whole_board.run(process, "sp1/ecg", ECG, count, heap)
        if isinstance(life, str):
            say("  %d KiB, %d elements: %s" % (heap, count, life))
            return False
        say("  %d KiB: %s" % (heap, ", ".join("%s %g" % pair for pair in life._asdict().items())))
        return life.whole

    say("SP1 on a whole board, MQTT over TLS, %d times its rate" % whole_board.SPEED)
    good = works(BOARD_HEAP, elements)
    what = "SP1 with MQTT over TLS in %d KiB, %d elements" % (BOARD_HEAP, elements)
    out = [Measure(what, "works" if good else "fails", "", "works", good)]
    heaps = [BOARD_HEAP, HEAP_KB]
    if search:
        least = least_heap(works, BOARD_HEAP_LEAST, HEAP_KB, elements)
        out.append(at_most("smallest heap in which that works", least, "KiB", BOARD_HEAP))
        heaps.insert(1, least)
    works(HEAP_KB, min(TRIAL, elements))
    for heap in dict.fromkeys(heaps):
        life = lives[heap]
        if not isinstance(life, str):
            where = ", whole board in %d KiB" % heap
            out += [
                Measure("live heap, most" + where, life.live, "B"),
                Measure("largest free block, least" + where, life.block, "B"),
                Measure("time of everything, an element" + where, round(life.cpu_us, 2), "us"),
            ]
    return out


def fused_source() -> str:
    """One loop over both operators: the filter's generated loop with the body of Qrs in it."""
    filter_ = fir.source(BANDPASS, 12, -32768, 32767, -32768, 32767)
    filter_ = re.sub(r"\bd\b", "line", filter_)
    lines = filter_.splitlines()
    loop = next(i for i, text in enumerate(lines) if "for i in range" in text)
    body = [
        text.strip("\n")[2:] for text in lines[loop + 1 :] if text.startswith("  ") and "o[i]" not in text
    ]
    before = [text.strip() for text in lines[1:loop]]
    after = [text.strip() for text in lines[loop + 1 :] if not text.startswith("  ")]
    qrs = textwrap.dedent(inspect.getsource(PlainQrs.run)).splitlines()
    start = next(i for i, text in enumerate(qrs) if "for i in range(n)" in text)
    assert qrs[start + 1].strip() == "v = c[i]"
    end = next(i for i in range(len(qrs) - 1, 0, -1) if qrs[i].startswith("    self.head = "))
    out = ["_WINDOW = %d" % _WINDOW, "def run(self, x, n, line):", "    a = x.cols[0]"]
    out += ["    " + text for text in before]
    out += [text for text in qrs[1 : start + 1] if "c = x.cols" not in text]
    for text in body:
        depth = len(text) - len(text.lstrip())
        out.append("        " + "    " * depth + text.strip())
    out.append("        v = t")
    out += qrs[start + 2 : end]
    out += ["    " + text for text in after]
    out += qrs[end:]
    return "\n".join(out) + "\n"


def speed(folder: Path, elements: int, rounds: int, say: Callable[[str], None]) -> list[Measure]:
    out = []
    say("microseconds an element: fused loop, the host with log, checkpoints, frames and acknowledgements")
    for batch, heap in SPEED_HEAPS.items():
        process = process_of(batch)
        gateway = Gateway(process.plan())
        got = piped_board.run(
            folder, "speed", process, gateway, ("speed", PLAN, DATA, elements, rounds, LINK_BYTES),
            "%dk" % heap, {"fused.py": fused_source()}, say,
        )  # fmt: skip
        name = "SP1 of a fused loop, batches of %d, %d KiB" % (batch, heap)
        if "speed" not in got:
            out.append(Measure(name, "failed", "", 0.5, False))
            continue
        bare, whole, acks = (float(word) for word in got["speed"][0])
        say("  %5d %8.3f %8.3f, of it acknowledgements %.3f" % (batch, bare, whole, acks))
        out.append(at_least(name, round(bare / whole, 3), "", 0.5))
    return out


def chain_process(batch: int, on: str = "chest") -> Process:
    p = Process("chain", checkpoints="ecoc", every=3600, level="local", batch=batch)
    p.host("chest", heap_kb=1024)
    x = p.source("x", "v:i16", rate_hz=360, on=on)
    moved = (x >> Affine(num=3, offset=-7)).on(on)
    out = (moved >> DeadBand(width=1).on(on) >> Difference().on(on) >> Where("v > -3000")).on(on)
    p.lake("chain/out", out)
    return p


def chain(folder: Path, elements: int, rounds: int, say: Callable[[str], None]) -> list[Measure]:
    """Four operators that do next to nothing: what ports, rings and stream times cost."""
    out = []
    say("four operators, microseconds an element: one loop, a loop for each, operators with ports and rings")
    for batch in (16, 32, 64, 360):
        process = chain_process(batch)
        gateway = Gateway(process.plan())
        words = ("chain", PLAN, DATA, elements, rounds, LINK_BYTES)
        got = piped_board.run(folder, "speed", process, gateway, words, "512k", {}, say)
        names = "four operators of %s, batches of %d"
        if "chain" not in got:
            out.append(Measure(names % ("bare loops", batch), "failed", "", 0.5, False))
            continue
        one, each, whole = (float(word) for word in got["chain"][0])
        say("  %5d %8.3f %8.3f %8.3f; %s" % (batch, one, each, whole, " ".join(got["through"][0])))
        if batch == 360:
            out.append(at_least(names % ("a fused loop", batch), round(one / whole, 3), "", 0.5))
        elif batch == 32:
            out.append(at_least(names % ("a bare loop each", batch), round(each / whole, 3), "", 0.75))
    return out


SP1_STAYS = ("core", "operators/__init__", "operators/fields", "operators/fir", "operators/qrs")
# Unloaded when the host has started.
SP1_STARTS = "reader msgpack_reader mounting startup restore checkpoint_file reserve routing".split()


def code_size(say: Callable[[str], None]) -> list[Measure]:
    sizes = builder.module_sizes()
    totals = []
    for names in (SP1_STAYS, SP1_STARTS):
        for name in names:
            say("  %6d B of .mpy  %s" % (sizes["headwater/%s.py" % name], name))
        totals.append(sum(sizes["headwater/%s.py" % name] for name in names))
    return [
        Measure("code that SP1 keeps, .mpy", totals[0], "B"),
        Measure("code that goes again after its start, .mpy", totals[1], "B"),
    ]


# ---- beside Bytewax

BATCH = 360


class FileFlash:
    """A flash chip in a file: what is written is with the system when the call returns, as with SQLite."""

    def __init__(self, path: Path, sectors: int, sector_size: int = 4096) -> None:
        path.write_bytes(b"\xff" * (sectors * sector_size))
        self.sectors = sectors
        self.sector_size = sector_size
        self.handle = os.open(path, os.O_RDWR)

    def readblocks(self, sector: int, buf: bytearray | memoryview, off: int) -> None:
        os.preadv(self.handle, [buf], sector * self.sector_size + off)

    def writeblocks(self, sector: int, buf: bytes | bytearray | memoryview, off: int) -> None:
        os.pwrite(self.handle, buf, sector * self.sector_size + off)

    def ioctl(self, op: int, sector: int) -> int:
        if op == 6:
            self.writeblocks(sector, b"\xff" * self.sector_size, 0)
            return 0
        return self.sectors if op == 4 else self.sector_size


class Results:
    """The end of the chain: all outputs, in memory."""

    full = False

    def __init__(self) -> None:
        self.taken = 0
        self.blocks: list[bytes] = []

    def put(self, edge: int, inc: int, xi: int, n: int, data: Any) -> None:
        self.taken = xi + n - 1
        self.blocks.append(bytes(data))

    def values(self, batch: Batch) -> list[int]:
        found: list[int] = []
        for data in self.blocks:
            block.decode(data, 0, len(data), batch)
            found += batch.cols[0][: batch.n]
        return found

    def latest(self, edge: int) -> int:
        return 0

    def durable(self, edge: int, inc: int) -> int:
        return self.taken

    lake = durable


def own_chain(folder: Path, batches: list[list[int]]) -> tuple[float, list[int]]:
    """Seconds, and what came out."""
    plan = chain_process(BATCH, "gateway").plan()
    flash = FileFlash(folder / "flash", 256)
    Log.format(flash, 5)
    log = Log(flash)
    log.mount()
    results = Results()
    nonces = iter(range(1, 1 << 30))
    now = 1_000_000
    nobody: Any = None  # there is no link to send over
    host: Any = GatewayHost(plan, 0, log, {}, gateway_clock(now), nobody, lambda: next(nonces), results)
    host.start(now)
    batch = Batch(plan.vertices[0].outs[0], BATCH)
    batch.dt = 2778
    begin = time.perf_counter()
    for values in batches:
        batch.n = len(values)
        batch.cols[0][: batch.n] = array("h", values)
        host.now = now + batch.n * 2778
        if host.sample(0, batch, now) != batch.n:
            raise UserError("the chain's source refused samples: its log is full")
        now = host.now
    host.tick(now)
    seconds = time.perf_counter() - begin
    os.close(flash.handle)
    edge = plan.edges[-1]
    return seconds, results.values(Batch(plan.vertices[edge.src].outs[edge.sport], BATCH))


def bytewax_chain(folder: Path, batches: list[list[int]]) -> tuple[float, list[int]]:
    bytewax: Any = {name: importlib.import_module("bytewax." + name) for name in BYTEWAX}
    op = bytewax["operators"]
    out: list[Any] = []
    flow = bytewax["dataflow"].Dataflow("chain")
    stream = op.input("in", flow, bytewax["testing"].TestingSource([("x", values) for values in batches]))
    stream = op.map("affine", stream, lambda item: (item[0], py_affine(item[1])))
    stream = op.stateful_map("dead band", stream, py_dead_band)
    stream = op.stateful_map("difference", stream, py_difference)
    stream = op.map("where", stream, lambda item: [v for v in item[1] if v > -3000])
    op.output("out", stream, bytewax["testing"].TestingSink(out))
    store = folder / "bytewax"
    shutil.rmtree(store, ignore_errors=True)
    store.mkdir()
    bytewax["recovery"].init_db_dir(store, 1)
    recovery = bytewax["recovery"].RecoveryConfig(store)
    begin = time.perf_counter()
    bytewax["testing"].run_main(
        flow, epoch_interval=datetime.timedelta(seconds=0.1), recovery_config=recovery
    )
    seconds = time.perf_counter() - begin
    return seconds, [v for values in out for v in values]


BYTEWAX = ("operators", "dataflow", "testing", "recovery")


def py_affine(values: list[int]) -> list[int]:
    out = []
    for v in values:
        v = v * 3 - 7
        out.append(-32768 if v < -32768 else 32767 if v > 32767 else v)
    return out


def py_dead_band(last: int | None, values: list[int]) -> tuple[int | None, list[int]]:
    out = []
    for v in values:
        if last is None or v - last > 1 or last - v > 1:
            last = v
            out.append(v)
    return last, out


def py_difference(last: int | None, values: list[int]) -> tuple[int | None, list[int]]:
    out = []
    for v in values:
        out.append(0 if last is None else v - last)
        last = v
    return last, out


def beside_bytewax(folder: Path, elements: int, rounds: int, say: Callable[[str], None]) -> list[Measure]:
    environment.ensure("bench")
    samples = array("h", ECG.read_bytes())
    batches = [list(samples[k : k + BATCH]) for k in range(0, len(samples) - BATCH, BATCH)]
    count = max(1, min(elements, BYTEWAX_ELEMENTS) // BATCH)
    batches = (batches * (1 + count // len(batches)))[:count]
    own = other = 1e9
    for _ in range(rounds):
        seconds, mine = own_chain(folder, batches)
        own = min(own, seconds)
        seconds, theirs = bytewax_chain(folder, batches)
        other = min(other, seconds)
        if mine != theirs:
            raise UserError(
                "the two chains give different results: %d and %d elements" % (len(mine), len(theirs))
            )
    n = len(batches) * BATCH
    say(
        "the four operators on CPython, recovery on: %.3f us an element, Bytewax %.3f"
        % (own / n * 1e6, other / n * 1e6)
    )
    return [at_least("four operators on CPython, of Bytewax's speed", round(other / own, 3), "", 1.0)]
