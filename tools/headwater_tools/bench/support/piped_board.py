"""A board of 32-bit MicroPython at the other end of a pipe: the real host and log, without MQTT and TLS.

Its flash is memory outside its heap, its sensor reads a file, and its frames go through standard input and
output. The gateway is a real host in this process; it compares every element that arrives with the sensor.
"""

from __future__ import annotations

import os
import subprocess
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headwater.data import block
from headwater.data.batch import Batch
from headwater.plan.model import Plan
from headwater.process import Process
from headwater.protocol.clock import Clock
from headwater.runtime.gateway_host import GatewayHost
from headwater.storage.log import Log
from headwater.testing.cut_flash import CutFlash

from ... import environment
from ...boards import micropython
from ...image import builder

ECG = environment.ROOT / "tests" / "data" / "ecg208-360hz.i16"
SCRIPTS = Path(__file__).parents[1] / "on_board"
PLAN, DATA = "PLAN", "DATA"
KEY = b"\x5a" * 32
TRIAL = 60_000  # elements of a trial in that search; what it finds runs all of them


class Outbox:
    """The gateway's database, in memory: it accepts entries in order and compares them with the sensor."""

    full = False

    def __init__(self, raw_edge: int, decoded: Batch) -> None:
        self.raw_edge = raw_edge
        self.decoded = decoded
        self.samples = array("h", ECG.read_bytes())
        self.last: dict[int, int] = {}
        self.inc = 0
        self.wrong = 0
        self.offset = -1
        self.batch = decoded.size

    def put(self, edge: int, inc: int, xi: int, n: int, data: Any) -> None:
        if xi != self.last.get(edge, 0) + 1:
            self.wrong += 1
        self.last[edge] = xi + n - 1
        self.inc = inc
        if edge == self.raw_edge:
            batch = self.decoded
            block.decode(data, 0, len(data), batch)
            size = len(self.samples) // self.batch * self.batch  # the sensor begins again with a whole batch
            at = (batch.xi - 1) % size
            want = self.samples[at : at + n]
            if len(want) < n or at + n > size:
                want = self.samples[at:size] + self.samples[: n - (size - at)]
            if batch.hole or batch.cols[0][:n] != want:
                self.wrong += n

    def gap(self, edge: int, inc: int, first: int, last: int, reason: int) -> None:
        self.wrong += last - first + 1

    def latest(self, edge: int) -> int:
        return self.inc

    def durable(self, edge: int, inc: int) -> int:
        return self.last.get(edge, 0)

    def lake(self, edge: int, inc: int) -> int:
        return self.last.get(edge, 0)


class Gateway:
    """The real host 0, fed through a pipe."""

    def __init__(self, plan: Plan, neighbours: int = 1) -> None:
        flash = CutFlash(64, 4096)
        Log.format(flash, 77)
        log = Log(flash)
        log.mount()
        raw = [e.index for e in plan.edges if e.lake == "sp1/ecg"]
        self.outbox = Outbox(raw[0] if raw else -1, Batch(plan.vertices[0].outs[0], plan.batch))
        self.frames: list[bytes] = []
        self.received = 0
        nonces = iter(range(1 << 40, 1 << 62))
        self.now = 5_000_000
        self.host: Any = GatewayHost(
            plan, 0, log, {number: KEY for number in range(1, neighbours + 1)}, gateway_clock(self.now),
            self.send, lambda: next(nonces), self.outbox,
        )  # fmt: skip
        self.host.start(self.now)
        self.ticked = 0
        self.step = plan.batch * 2778  # about what the board's samples take

    def send(self, to: int, frame: Any) -> None:
        self.frames.append(bytes(frame))

    def deliver(self, to: int, frame: bytes) -> None:
        """A frame of the board for host `to`."""
        self.host.receive(frame, self.now)
        self.host.settle()

    def tick(self) -> None:
        self.host.tick(self.now)

    def serve(self, board: subprocess.Popen[bytes]) -> None:
        assert board.stdin and board.stdout
        while True:
            head = board.stdout.read(2)
            if len(head) < 2:
                return
            n = int.from_bytes(head, "little")
            if n:
                self.received += n
                to = board.stdout.read(1)[0]
                self.deliver(to, board.stdout.read(n))
                continue
            self.now += self.step
            if self.now - self.ticked >= 400_000:
                self.ticked = self.now
                self.tick()
            out = b"".join(len(frame).to_bytes(2, "little") + frame for frame in self.frames) + b"\0\0"
            self.frames.clear()
            try:
                board.stdin.write(out)
                board.stdin.flush()
            except BrokenPipeError:
                return


def run(
    folder: Path,
    script: str,
    process: Process,
    gateway: Gateway | None,
    args: Sequence[object],
    heap: str,
    files: dict[str, Path | str],
    say: Callable[[str], None],
) -> dict[str, list[list[str]]]:
    """Run the board's script, the gateway at the other end -> the lines that it reported, by first word.

    In `args`, PLAN and DATA are replaced by files.
    """
    path = folder / "plan"
    path.write_bytes(process.encode())
    args = [{PLAN: path, DATA: ECG}.get(str(word), word) for word in args]
    for name, source in (("board", "board"), ("script", script), ("board_bench_free", "free")):
        files = {**files, name + ".py": SCRIPTS / ("board_bench_%s.py" % source)}
    images = builder.board_images(files)
    names = ",".join(os.path.relpath(image, environment.ROOT) for image in images)
    command = [
        *environment.micropython(), "-X", "heapsize=" + heap, str(micropython.START), names, "script",
        *[str(word) for word in args],
    ]  # fmt: skip
    errors = folder / "errors"
    with open(errors, "wb") as err:
        child = subprocess.Popen(
            command, cwd=environment.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err
        )
        try:
            if gateway:
                gateway.serve(child)
            assert child.stdin and child.stdout
            child.stdout.read()
            code = child.wait(timeout=600)
        finally:
            child.kill()
            child.wait()
    text = builder.linked().told(errors.read_text(errors="replace"))
    if code:
        say("the board failed: " + text.strip().splitlines()[-1])
    out: dict[str, list[list[str]]] = {"failed": [[str(code)]] if code else []}
    for line in text.splitlines():
        word, *rest = line.split()
        out.setdefault(word, []).append(rest)
    return out


def all_there(got: dict[str, list[list[str]]], gateway: Gateway, elements: int) -> bool:
    """Whether everything was accepted, and arrived unchanged."""
    taken = int(got["taken"][0][0]) if "taken" in got else 0
    arrived = gateway.outbox.last.get(gateway.outbox.raw_edge, 0)
    return taken >= elements and arrived == taken and not gateway.outbox.wrong


def least_heap(works: Callable[[int, int], bool], low: int, most: int, elements: int) -> int:
    """The smallest heap in KiB in which this many elements work: by bisection with short runs, then upwards
    until a run of full length works."""
    high = most
    while low < high:
        middle = (low + high) // 2
        if works(middle, min(TRIAL, elements)):
            high = middle
        else:
            low = middle + 1
    while low < most and not works(low, elements):
        low += 1
    return low


def gateway_clock(now: int) -> Clock:
    """A gateway's."""
    clock = Clock()
    clock.exchange(now, 1_700_000_000_000_000, 1_700_000_000_000_000, now)
    return clock
