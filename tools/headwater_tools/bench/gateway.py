"""The gateway: frames from the broker to durable, beside a bare paho loop over the same; latency; memory.

Real parts: Mosquitto, the gateway as a service with its database on disk and its cutter running. The boards
are a fleet in this process (boards/fleet.py) whose frames are sealed beforehand. Bare loop and gateway take
turns.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater.plan import reader

from .. import environment
from ..boards import fleet
from ..errors import UserError
from . import Measure, at_least, at_most

SUMMARY = (
    "frames from broker to durable against a bare paho loop; readings/s; latency; memory with 100 boards"
)

BOARDS = 100
BATCH = 360
RATIO = 0.5
READINGS_PER_S = 1_000_000
MEMORY_MIB = 120
POLL_S = 0.2  # polling costs the gateway time

CONFIG = """
[mqtt]
host = "127.0.0.1"
port = %d
tls = false
user = ""
password_file = ""
[http]
port = %d
[log]
level = "warning"
"""

BARE = """
import sys, time
import paho.mqtt.client as mqtt
port, count = int(sys.argv[1]), int(sys.argv[2])
seen = 0
def on_message(client, userdata, message):
    global seen
    seen += 1
    if seen == count:
        client.disconnect()
client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
client.on_message = on_message
client.on_subscribe = lambda *a: print("ready", flush=True)
client.on_connect = lambda *a: client.subscribe("xx/g/+")
client.connect("127.0.0.1", port)
client.loop_forever()
print("done", flush=True)
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3, help="rounds of bare loop and gateway (3)")
    parser.add_argument("--frames", type=int, default=40_000, help="frames of one reading a round (40000)")
    parser.add_argument("--boards", type=int, default=BOARDS, help="boards with a session (%d)" % BOARDS)
    parser.add_argument("--latencies", type=int, default=200, help="single readings timed (200)")
    parser.add_argument("--large", type=int, default=15_000, help="frames of 360 readings a round (15000)")


def run(args: argparse.Namespace, say: Callable[[str], None]) -> list[Measure]:
    environment.ensure("gateway")
    if min(args.rounds, args.frames, args.large) < 1:
        raise UserError("--rounds, --frames and --large: at least 1")
    if not 2 <= args.boards <= BOARDS or args.latencies < 1:
        raise UserError("--boards: 2 to %d; --latencies: at least 1" % BOARDS)
    with tempfile.TemporaryDirectory(prefix="hw-bench-") as folder, Bench(Path(folder), args.boards) as bench:
        say("%d boards have their sessions" % args.boards)
        idle = bench.memory_mib()
        small = bench.compare(args.rounds, args.frames, 1, say)
        large = bench.compare(args.rounds, args.large, BATCH, say)
        memory = bench.memory_mib()
        latencies = bench.latencies(args.latencies)
        say("segments cut meanwhile: %d" % bench.state()["segments"]["cut"])
    ratio = [statistics.median(g / b for b, g in pairs) for pairs in (small, large)]
    best = [max(g for _, g in pairs) for pairs in (small, large)]
    return [
        at_least("frames of 1 reading, of the bare loop", ratio[0], "", RATIO),
        Measure("frames of 1 reading, durable", best[0], "1/s"),
        at_least("frames of 360 readings, of the bare loop", ratio[1], "", RATIO),
        Measure("frames of 360 readings, durable", best[1], "1/s"),
        at_least("readings durable, frames of 360", best[1] * BATCH, "1/s", READINGS_PER_S),
        Measure("board to durable, p50", 1000 * statistics.median(latencies), "ms"),
        Measure("board to durable, p99", 1000 * sorted(latencies)[len(latencies) * 99 // 100], "ms"),
        Measure("memory with %d boards, idle" % args.boards, idle, "MiB"),
        at_most("memory with %d boards, after the load" % args.boards, memory, "MiB", MEMORY_MIB),
    ]


class Bench:
    """Broker, gateway and fleet, from `with` to its end."""

    def __init__(self, folder: Path, boards: int) -> None:
        self.folder = folder
        self.boards = boards
        self.started: list[subprocess.Popen[Any]] = []

    def __enter__(self) -> Bench:
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _start(self) -> None:
        from headwater_gateway import keys
        from headwater_gateway.boards import register
        from headwater_gateway.config import read
        from headwater_gateway.database.engine import Database

        self.port, self.http_port = _free_port(), _free_port()
        conf = self.folder / "mosquitto.conf"
        conf.write_text(
            "user root\nlistener %d 127.0.0.1\nallow_anonymous true\npersistence false\nlog_type error\n"
            "max_queued_messages 0\nmax_queued_bytes 0\nset_tcp_nodelay true\n" % self.port
        )
        self._run([*environment.mosquitto(), "-c", str(conf)])
        file = self.folder / "gateway.toml"
        file.write_text(CONFIG % (self.port, self.http_port))
        self.config = read(file)
        master = keys.make(self.folder / "secrets" / "master.key")
        names = ["b%d" % i for i in range(self.boards)]
        (self.folder / "data").mkdir()
        db = Database(self.folder / "data" / "gateway.db", lambda: 0)
        numbers = {}
        for name in names:
            numbers[name] = register(db, name, 0)
            db.commit()
        db.close()
        _wait(lambda: _answers(self.port), "Mosquitto does not start")
        self.gateway = self._run([sys.executable, "-m", "headwater_gateway", str(file)])
        _wait(lambda: _answers(self.http_port), "the gateway does not start")
        half = self.boards // 2
        plans = {
            name: fleet.plan(name, part, BATCH)
            for name, part in (("one", names[:half]), ("two", names[half:]))
        }
        for name, data in plans.items():
            answer = self._ask("/deploy", {"plan": base64.b64encode(data).decode()})
            plans[name] = reader.numbered(data, answer["deployment"])
        self.fleet = fleet.Fleet(self.port, plans, lambda name: master.board(numbers[name]))
        self.fleet.open()

    def _run(self, command: list[str]) -> subprocess.Popen[Any]:
        process = subprocess.Popen(
            command, env=environment.variables(), stdin=subprocess.DEVNULL, stderr=sys.stderr
        )
        self.started.append(process)
        return process

    def _stop(self) -> None:
        if hasattr(self, "fleet"):
            self.fleet.close()
        for process in reversed(self.started):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    # ---- what it reports

    def _ask(self, what: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        from headwater_gateway import control

        return control.ask(self.config, what, body)

    def state(self) -> dict[str, Any]:
        return self._ask("/state")

    def durable(self) -> int:
        """Entries that the gateway has durable, of all boards."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=30)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        return sum(
            int(float(line.rpartition(" ")[2]))
            for line in text.splitlines()
            if line.startswith("headwater_stream_durable{")
        )

    def memory_mib(self) -> float:
        """Gateway and cutter; what they share counts once."""
        pids = [self.gateway.pid]
        pids += [int(p) for p in Path("/proc/%d/task/%d/children" % (pids[0], pids[0])).read_text().split()]
        total = 0
        for pid in pids:
            for line in Path("/proc/%d/smaps_rollup" % pid).read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
        return total / 1024

    # ---- measuring

    def compare(
        self, rounds: int, count: int, n: int, say: Callable[[str], None]
    ) -> list[tuple[float, float]]:
        """(bare loop, gateway) in frames a second, for each round."""
        pairs = []
        for _ in range(rounds):
            frames = self.fleet.frames(count, n)
            bare = self._bare(b"".join(fleet.packet("xx/g/" + name, frame) for name, frame in frames), count)
            data = b"".join(fleet.packet("hw/g/" + name, frame) for name, frame in frames)
            pairs.append((bare, self._through(data, count, n)))
            say("frames of %d: bare loop %.0f/s, gateway %.0f/s" % (n, *pairs[-1]))
        return pairs

    def _bare(self, data: bytes, count: int) -> float:
        command = [sys.executable, "-c", BARE, str(self.port), str(count)]
        with subprocess.Popen(
            command, env=environment.variables(), stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            _expect(process.stdout.readline(), "ready")
            start = time.perf_counter()
            self.fleet.send(data)
            _expect(process.stdout.readline(), "done")
            return count / (time.perf_counter() - start)

    def _through(self, data: bytes, count: int, n: int) -> float:
        target = sum(board.xi for board in self.fleet.boards.values())
        start = time.perf_counter()
        sender = threading.Thread(target=self.fleet.send, args=(data,))
        sender.start()
        end = start + 120
        while self.durable() < target:
            if time.perf_counter() > end:
                raise UserError("the gateway has %d of %d entries after 120 s" % (self.durable(), target))
            time.sleep(POLL_S)
        took = time.perf_counter() - start
        sender.join()
        return count / took

    def latencies(self, count: int) -> list[float]:
        """Seconds from a frame's publication to the event that its entries are durable."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=30)
        board = self.fleet.boards["b0"]
        connection.request("GET", "/api/events?stream=one/b0")
        answer = connection.getresponse()
        out = []
        for _ in range(count):
            time.sleep(random.uniform(0.005, 0.02))
            frame = board.entries(1)
            ts = fleet.TS_US + (board.xi - 1) * board.batch.dt
            start = time.perf_counter()
            self.fleet.send(fleet.packet("hw/g/b0", frame))
            while True:
                line = answer.readline()
                if line.startswith(b"data:"):
                    news = json.loads(line[5:])
                    if news["kind"] == "stream" and news["points"][-1][0] >= ts:
                        break
            out.append(time.perf_counter() - start)
        connection.close()
        return out


def _expect(line: str, word: str) -> None:
    if line.strip() != word:
        raise UserError("the bare loop ended: %r" % line)


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def _wait(what: Callable[[], bool], why: str) -> None:
    end = time.monotonic() + 20
    while not what():
        if time.monotonic() > end:
            raise UserError(why)
        time.sleep(0.05)
