"""Many light boards on one gateway for long, and power that goes at random.

Broker and gateway are the real services; the boards are the program of a board on CPython, with flash that
keeps every fault of a power cut. At the end every entry that a source accepted must be in a segment once,
with the payload that was measured, and the gateway must not have grown.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import functools
import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from headwater.process import Average, Process
from headwater.testing.cut_flash import KINDS

from .. import environment
from ..boards.light import LightBoard
from ..boards.on_board import board_sensors
from ..errors import UserError
from ..proof import landed
from . import Measure, at_most, rss_mib

SUMMARY = "fifty boards on one gateway for ten minutes, with power cuts: nothing lost, memory flat"

RATE_HZ = 20
BATCH = 20
DOWN_S_MAX = 8.0
DRAIN_S = 120  # for the rest, after the last cut
RSS_MAX_MB = 120.0
GROWTH_MAX = 1.1  # of resident memory, from the middle of the run to its end


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--boards", type=int, default=50, help="light boards")
    parser.add_argument("--seconds", type=int, default=600, help="how long power cuts go on")
    parser.add_argument("--every", type=float, default=3.0, help="seconds between two power cuts")
    parser.add_argument("--seed", type=int, default=1, help="of the power cuts")


def run(args: argparse.Namespace, say: Callable[[str], None]) -> list[Measure]:
    if not 1 <= args.boards <= 50:
        raise UserError("--boards %d: 1 to 50, each has two vertices of the hundred of a plan" % args.boards)
    if args.seconds < 5 or args.every <= 0:
        raise UserError("--seconds: at least 5; --every: more than 0")
    environment.ensure("gateway")
    from ..demo.site import Site

    here = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="hw-soak-") as folder:
        site = Site(Path(folder))
        try:
            os.chdir(folder)
            say("starting broker and gateway, registering %d boards" % args.boards)
            site.start_broker()
            site.start_gateway()
            names = ["b%02d" % i for i in range(args.boards)]
            boards = {name: _board(site, name) for name in names}
            _deploy(site, names)
            soak = Soak(site, boards, args, say)
            asyncio.run(soak.play())
            return soak.measures(landed.rows(Path(folder) / "landing"))
        finally:
            os.chdir(here)
            site.close()


def process(names: Iterable[str]) -> Process:
    """Each board: a wave and its averages, both to the lake."""
    p = Process("soak", checkpoints="ecoc", every=100, batch=BATCH, batch_ms=1000, level="local")
    for name in names:
        p.host(name, heap_kb=1024)
        wave = p.source("w_" + name, "v:i16", rate_hz=RATE_HZ, on=name)
        p.lake("soak/" + name, wave)
        p.lake("mean/" + name, wave >> Average(count=10).named("m_" + name).on(name))
    return p


def _board(site: Any, name: str) -> LightBoard:
    from headwater_gateway.command import register as provision

    home = provision(site.file, name)
    config = json.loads((home / "config.json").read_text())
    ca = site.config.path(site.config.mqtt.ca)
    broker = {"host": "127.0.0.1", "name": "localhost", "port": site.port, "ca": str(ca), "retry_s_max": 3}
    source = "w_" + name
    settings = {
        "driver": "wave", "source": source, "seed": int(name[1:]), "ledger": str(home / "accepted.log"),
        "t0_us": time.time_ns() // 1000,
    }  # fmt: skip
    config = {**config, "key": str(home / "board.key"), "sensors": {source: settings}}
    config["broker"] = {**config["broker"], **broker}
    path = home / "light.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps(config))
    return LightBoard(path)


def _deploy(site: Any, names: list[str]) -> None:
    import signal

    from headwater_gateway import control

    # The broker reads the passwords of the boards again.
    os.kill(site.broker.pid(), signal.SIGHUP)
    plan = base64.b64encode(process(names).encode()).decode()
    control.ask(site.config, "/deploy", {"plan": plan})


class Soak:
    def __init__(
        self, site: Any, boards: dict[str, LightBoard], args: argparse.Namespace, say: Callable[[str], None]
    ) -> None:
        self.site = site
        self.boards = boards
        self.args = args
        self.say = say
        self.random = random.Random(args.seed)
        self.cuts = 0
        self.down: dict[LightBoard, asyncio.Task[None]] = {}  # those that lose or have lost power
        self.seen: dict[LightBoard, int] = {}  # which of its boots this has seen
        self.rss: list[float] = []  # of the gateway, a reading a second, MiB

    async def play(self) -> None:
        boards = list(self.boards.values())
        for board in boards:
            board.start()
        await self._until(lambda: all(b.node and b.node.host for b in boards), 120, "a board gets no plan")
        self.say("%d boards run; power cuts for %d s" % (len(boards), self.args.seconds))
        end = time.monotonic() + self.args.seconds
        watch = asyncio.create_task(self._watch(end))
        while time.monotonic() < end:
            await asyncio.sleep(self.random.expovariate(1 / self.args.every))
            on = [b for b in boards if b not in self.down]
            if on:
                board = self.random.choice(on)
                self.down[board] = asyncio.create_task(self._cut(board))
        await watch
        await self._until(lambda: not self.down, DRAIN_S, "a board stays without power")
        self.say("%d power cuts; what is left drains" % self.cuts)
        await self._until(lambda: not any(self._unsafe(b) for b in boards), DRAIN_S, "boards do not drain")
        for board in boards:
            await board.kill()
        await asyncio.sleep(3)  # the last segment is cut when it is a second old

    def _unsafe(self, board: LightBoard) -> int:
        """Entries that only this board has. It stops sampling and requests checkpoints, as before a switch;
        so does a boot that has just begun."""
        node = board.node
        if node is None or node.host is None or board.starts != self.seen.get(board):
            self.seen[board] = board.starts
            return 1
        if not node.draining:
            node.drain(True)
        node._press()
        return int(node.unsafe())

    async def _cut(self, board: LightBoard) -> None:
        self.cuts += 1
        if self.random.random() < 0.5:
            await board.kill()
        else:
            kind = self.random.randrange(len(KINDS))
            await board.cut(self.random.randrange(4), self.random.randrange(64), kind)
        await asyncio.sleep(self.random.uniform(0.1, DOWN_S_MAX))
        board.start()
        del self.down[board]

    async def _watch(self, end: float) -> None:
        begun = time.monotonic()
        while time.monotonic() < end:
            await asyncio.sleep(1)
            self.site.gateway.must_run()
            self.rss.append(rss_mib(self.site.gateway._process.pid))
            for name, board in self.boards.items():
                if board.failed:
                    raise UserError("board %s failed: %r" % (name, board.failed))
            if len(self.rss) % 30 == 0:
                gone = time.monotonic() - begun
                self.say("  %4d s: %d power cuts, gateway %.1f MiB" % (gone, self.cuts, self.rss[-1]))

    async def _until(self, what: Callable[[], bool], timeout_s: float, why: str) -> None:
        end = time.monotonic() + timeout_s
        while not what():
            if time.monotonic() > end:
                raise UserError(why)
            await asyncio.sleep(0.1)

    def measures(self, rows: dict[str, list[landed.Row]]) -> list[Measure]:
        found = landed.Landed()
        missing = twice = 0
        for name, board in self.boards.items():
            value = functools.partial(board_sensors.wave, k=0, seed=int(name[1:]))
            found.add(rows.get("soak/" + name, []), board.accepted(), value)
            means = [xi for _, xi, _ in rows.get("mean/" + name, [])]
            twice += len(means) - len(set(means))
            missing += max(means, default=0) - len(set(means))
        half = self.rss[len(self.rss) // 2 :]
        growth = max(half) / max(half[0], 1)
        return [
            Measure("entries accepted", found.accepted, "", "some", found.accepted > 0),
            Measure("power cuts", self.cuts, "", "some", self.cuts > 0),
            at_most("entries lost", found.lost, "", 0),
            at_most("entries twice", found.twice + twice, "", 0),
            at_most("entries that differ", found.divergent, "", 0),
            at_most("results missing", missing, "", 0),
            at_most("resident memory of the gateway", round(max(self.rss), 1), "MiB", RSS_MAX_MB),
            at_most("its growth in the second half", round(growth, 3), "times", GROWTH_MAX),
        ]
