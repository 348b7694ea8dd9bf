"""A site with real parts for tests: Mosquitto with TLS and access list, the gateway as a process of its own.

Both come from what `hw gateway init` makes. Everything that was started ends with `close`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from headwater_gateway import control
from headwater_gateway.command import register as provision
from headwater_gateway.config import read
from headwater_gateway.segments.names import split
from headwater_tools import environment
from headwater_tools.boards.virtual import VirtualBoard
from headwater_tools.demo.subprocesses import free_port
from site_gateway import PATIENCE_S, until

SETTINGS = """
[gateway]
clock = "wall"
[lake]
segment_s = 0.5
acks_every_s = 0.2
[http]
port = 0
[store]
commit_ms = 2
[mqtt]
host = "localhost"
port = %d
reconnect_max_s = 1
[boards]
silent_s = 3
[alarms]
unacknowledged_s = 100000
board_backlog_s = 100000
clock_ms = 100000
"""


class Site:
    def __init__(self, folder: Path, settings: str = "") -> None:
        from headwater_gateway.provision import site

        self.folder = folder
        self.port = free_port()
        site(folder, "localhost", self.port)
        self.config_file = folder / "gateway.toml"
        self.config_file.write_text(SETTINGS % self.port + settings)
        self.config = read(self.config_file)
        conf = folder / "mosquitto" / "mosquitto.conf"
        text = conf.read_text().replace("listener %d" % self.port, "listener %d 127.0.0.1" % self.port)
        conf.write_text(text)
        self.broker: subprocess.Popen[bytes] | None = None
        self.gateway: subprocess.Popen[bytes] | None = None
        self.boards: dict[str, VirtualBoard] = {}
        self.log = folder / "gateway.log"

    def move(self, folder: Path) -> None:
        """The site is in another folder from now on: it was restored there."""
        self.folder = folder
        self.config_file = folder / "gateway.toml"
        self.config = read(self.config_file)
        self.log = folder / "gateway.log"

    # ---- parts

    def start_broker(self) -> None:
        log = open(self.folder / "mosquitto.log", "ab")  # noqa: SIM115
        with log:
            self.broker = subprocess.Popen(
                [sys.executable, "-P", "-m", "headwater_tools", "broker", "run", str(self.folder)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment.variables(),
            )  # fmt: skip
        until(self._answers, why="Mosquitto does not start: see %s" % log.name)

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        except OSError:
            return False

    def stop_broker(self) -> None:
        if self.broker:
            self.broker.kill()
            self.broker.wait()
            self.broker = None

    def start_gateway(self, *words: str) -> None:
        with open(self.log, "ab") as log:
            self.gateway = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "headwater_gateway", str(self.config_file), *words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment.variables(),
            )  # fmt: skip
        until(lambda: self.state() is not None, why="the gateway does not start: see %s" % self.log)

    def kill_gateway(self, number: int = signal.SIGKILL) -> int:
        """The code with which it ended."""
        assert self.gateway is not None
        self.gateway.send_signal(number)
        code = self.gateway.wait(PATIENCE_S)
        self.gateway = None
        return code

    def board(self, name: str, sensors: dict[str, Any]) -> VirtualBoard:
        home = provision(self.config_file, name)
        if self.broker:
            self.broker.send_signal(signal.SIGHUP)
        config = json.loads((home / "config.json").read_text())
        key = (home / "board.key").read_bytes()
        folder = self.folder / "virtual" / name
        folder.mkdir(parents=True)
        (folder / "ca.der").write_bytes((home / "ca.der").read_bytes())
        config["broker"] = {**config["broker"], "host": "127.0.0.1", "name": "localhost", "retry_s_max": 1}
        config["sensors"] = sensors
        # A log with room for what a slow machine makes it wait for.
        config = {**config, "status_s": 1}
        made = self.boards[name] = VirtualBoard(name, folder, config, key, heap="192k", sectors=256)
        return made

    def wave_board(self, name: str = "wrist", source: str = "accel") -> VirtualBoard:
        """A board with one sensor: `wave` of seed 3 tells its samples."""
        t0_us = time.time_ns() // 1000
        return self.board(name, {source: {"driver": "wave", "t0_us": t0_us, "seed": 3}})

    def close(self) -> None:
        for board in self.boards.values():
            board.stop()
        if self.gateway:
            self.kill_gateway()
        self.stop_broker()

    # ---- what it says

    def ask(self, what: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        return control.ask(self.config, what, body)

    def state(self) -> dict[str, Any] | None:
        assert self.gateway is None or self.gateway.poll() is None, self.log.read_text()
        try:
            return self.ask("/state")
        except control.NotRunning:
            return None

    def stream(self, name: str) -> dict[str, Any]:
        """What the gateway says of one stream in the lake; its newest incarnation."""
        state = self.state()
        found = [s for s in state["streams"] if s["stream"] == name] if state else []
        return found[-1] if found else {"durable": 0, "cut": 0, "acked": 0}

    def consoles(self) -> str:
        """What the boards said last, and the gateway."""
        parts = [
            "board %s, %s, start %d:\n  %s"
            % (b.name, "runs" if b.running() else "off", b.starts, "\n  ".join(list(b.lines)[-12:]))
            for b in self.boards.values()
        ]
        for log in (self.log, self.folder / "mosquitto.log"):
            parts.append("%s:\n%s" % (log.name, log.read_text()[-1500:]))
        return "\n".join(parts)

    def segments(self) -> list[Path]:
        return sorted((self.folder / "landing").glob("[!._]*.parquet"))

    def rows(self, stream: str) -> Iterator[dict[str, Any]]:
        """Every row of a stream in the segments, with its ts in microseconds as `ts_us`."""
        for path in self.segments():
            parts = split(path.name)
            assert parts is not None
            if parts.stream == stream.replace("/", "."):
                for row in pq.read_table(path).to_pylist():
                    row["incarnation"] &= (1 << 64) - 1
                    yield {**row, "ts_us": round(row["ts"].timestamp() * 1e6)}

    def hw(self, *words: str, code: int = 0) -> str:
        """What `hw` says to these words; it ends with this code."""
        done = self.command(*words)
        assert done.returncode == code, done.stdout + done.stderr + self.consoles()
        return done.stdout + done.stderr

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`hw` with these words."""
        return subprocess.run(
            [sys.executable, "-P", "-m", "headwater_tools", *words],
            env=environment.variables(), capture_output=True, text=True, timeout=60, cwd=self.folder,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return True
    except ProcessLookupError:
        return False
