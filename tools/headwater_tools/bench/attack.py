"""Attackers with a board's password, but no key, on real broker and gateway, while an honest board sends.

Five kinds: garbage, replayed frames, replayed frames with a flipped bit, the names of others, and frames as
large and as many as the broker passes on. One attacker has stolen the honest board's own password, so its
frames reach the honest board's session; the other has the password of a board of its own. The attack runs in
rounds: the gateway's memory must not grow from one to the next.
"""

from __future__ import annotations

import argparse
import functools
import http.client
import itertools
import json
import os
import random
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from headwater.process import Process

from .. import environment
from ..boards.on_board import board_sensors
from ..errors import UserError
from ..proof import landed
from . import Measure, at_most, rss_mib

SUMMARY = (
    "garbage, replays, bit flips, other names and floods against the gateway; an honest board beside them"
)

RATE_HZ = 50
BATCH = 25
SEED = 7
HONEST, EVIL, NOBODY = "honest", "evil", "nobody"
STREAM = "attack/" + HONEST
FLOOD_BYTES = 30_000  # the broker passes packets of up to 32,768
RECORDED = 200  # frames to replay
AHEAD = 200  # frames that an attacker has in flight at a time
START_S = 120.0
QUIET_S = 1.5  # without a refusal: the gateway has read everything
SETTLE_S = 300.0
GROWTH_MIB = 8.0  # of resident memory, from before the attack to its highest
ROUND_MIB = 2.0  # and from the end of the first round to the end of the last
LOG_KIB = 64.0
FRAME_US = 250.0  # of CPU for a frame that is refused, on average

Frame = tuple[str, bytes]  # topic, payload


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--frames", type=int, default=50_000, help="frames of each kind and round (50000)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of all kinds (3)")
    parser.add_argument("--seed", type=int, default=1, help="of what the attackers make up (1)")


def run(args: argparse.Namespace, say: Callable[[str], None]) -> list[Measure]:
    if args.frames < 1 or args.rounds < 2:
        raise UserError("--frames: at least 1; --rounds: at least 2, growth is measured between them")
    environment.ensure("gateway")
    with tempfile.TemporaryDirectory(prefix="hw-bench-") as folder:
        attack = Attack(Path(folder), args, say)
        try:
            return attack.play()
        finally:
            attack.close()


class Attack:
    def __init__(self, folder: Path, args: argparse.Namespace, say: Callable[[str], None]) -> None:
        from ..demo.site import Site

        self.site = Site(folder)
        self.args = args
        self.say = say
        self.random = random.Random(args.seed)
        self.clients: list[Any] = []
        self.recorded: list[Frame] = []
        self.rss: list[float] = []
        self.sent = 0
        self.refused_of: dict[str, int] = {}  # kind -> frames refused
        self.cpu_of: dict[str, list[tuple[float, float]]] = {}  # kind -> seconds of CPU, of the wall clock
        self.ended = threading.Event()

    def play(self) -> list[Measure]:
        self._begin()
        before, series = self._rss(), self._series()
        log = self.site.gateway.log.stat().st_size
        accepted = self._accepted()
        watch = threading.Thread(target=self._watch, name="memory", daemon=True)
        watch.start()
        kinds = self._kinds()
        after = []
        for number in range(self.args.rounds):
            for kind, (client, frames) in kinds.items():
                self._attack(kind, client, frames)
            after.append(self._rss())
            self.say("round %d: gateway %.1f MiB, before the attack %.1f" % (number + 1, after[-1], before))
        self.ended.set()
        watch.join()
        meanwhile = self._accepted() - accepted
        series_after = self._series()
        reasons = self._reasons()
        log = self.site.gateway.log.stat().st_size - log
        self._settle()
        return [
            *self._costs(),
            Measure("frames of attackers sent", self.sent),
            Measure("frames refused", sum(reasons.values()), "", "some", sum(reasons.values()) > 0),
            *self._by_reason(reasons),
            Measure("memory before", round(before, 1), "MiB"),
            at_most("memory grown, at most", round(max(self.rss) - before, 1), "MiB", GROWTH_MIB),
            at_most("memory grown, first round to last", round(after[-1] - after[0], 2), "MiB", ROUND_MIB),
            Measure("series of metrics before", series),
            Measure("series of metrics after", series_after, "", series, series_after == series),
            at_most("log grown", round(log / 1024, 1), "KiB", LOG_KIB),
            Measure("entries accepted under attack", meanwhile, "", "some", meanwhile > 0),
            *self._landed(),
        ]

    def close(self) -> None:
        self.ended.set()
        for client in self.clients:
            client.disconnect()
            client.loop_stop()
        self.site.close()

    # ---- parts

    def _begin(self) -> None:
        from ..demo.subprocesses import until

        site = self.site
        t0_us = time.time_ns() // 1000
        board = site.add_board(HONEST, {"wave": {"driver": "wave", "seed": SEED, "t0_us": t0_us}})
        site.register(EVIL)
        site.start_broker()
        site.start_gateway()
        ear = self._client("gateway", (site.folder / "secrets" / "mqtt.password").read_text().strip())
        ear.on_message = lambda client, userdata, m: self._record(m)
        ear.subscribe([("hw/g/" + HONEST, 0), ("hw/s/" + HONEST, 0)])
        board.start()
        p = Process("attack", checkpoints="ecoc", every=100, batch=BATCH, batch_ms=500)
        p.lake(STREAM, p.source("wave", "v:i16", rate_hz=RATE_HZ, on=HONEST))
        site.deploy(p)
        until(lambda: self._runs(), START_S, "the honest board does not take the process")
        until(lambda: len(self.recorded) >= 20, START_S, "the honest board says nothing")
        until(lambda: self._stream().get("cut"), START_S, "no segment is cut")
        self.say("an honest board sends; the attack begins")

    def _runs(self) -> bool:
        state = self.site.state()
        return state is not None and state["boards"][HONEST]["plan"] == "runs"

    def _record(self, message: Any) -> None:
        if len(self.recorded) < RECORDED:
            self.recorded.append((message.topic, bytes(message.payload)))

    def _client(self, user: str, password: str) -> Any:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion

        from ..demo.subprocesses import until

        client = Client(CallbackAPIVersion.VERSION2)
        client.username_pw_set(user, password)
        client.tls_set(str(self.site.folder / "tls" / "ca.crt"), tls_version=ssl.PROTOCOL_TLS_CLIENT)
        client.connect("localhost", self.site.port)
        client.loop_start()
        self.clients.append(client)
        until(client.is_connected, 30, "the broker does not take %s" % user)
        return client

    def _board_client(self, name: str) -> Any:
        path = self.site.folder / "boards" / name / "config.json"
        broker = json.loads(path.read_text())["broker"]
        return self._client(broker["user"], broker["password"])

    # ---- attacking

    def _kinds(self) -> dict[str, tuple[Any, Iterator[Frame]]]:
        """Kind -> who sends it, and its frames without end."""
        thief, evil = self._board_client(HONEST), self._board_client(EVIL)
        recorded, rng = list(self.recorded), self.random
        own = ["hw/g/" + HONEST, "hw/s/" + HONEST]
        others = ["hw/g/" + HONEST, "hw/s/" + HONEST, "hw/g/" + NOBODY, "hw/x/" + EVIL, "hw/g/" + EVIL]

        def garbage() -> Iterator[Frame]:
            while True:
                yield rng.choice(own), rng.randbytes(int(rng.expovariate(1 / 80)))

        def flipped() -> Iterator[Frame]:
            while True:
                topic, payload = rng.choice(recorded)
                frame = bytearray(payload)
                if frame:
                    frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
                yield topic, bytes(frame)

        def names() -> Iterator[Frame]:
            while True:
                yield rng.choice(others), rng.choice(recorded)[1]

        def flood() -> Iterator[Frame]:
            large = rng.randbytes(FLOOD_BYTES)
            while True:
                yield rng.choice(own), large

        return {
            "garbage": (thief, garbage()),
            "replays": (thief, itertools.cycle(recorded)),
            "bit flips": (thief, flipped()),
            "other names": (evil, names()),
            "flood": (thief, flood()),
        }

    def _attack(self, kind: str, client: Any, frames: Iterator[Frame]) -> None:
        refused, cpu, began = self._refused(), self._cpu_s(), time.monotonic()
        for i, (topic, payload) in enumerate(itertools.islice(frames, self.args.frames)):
            said = client.publish(topic, payload, 0)
            if i % AHEAD == AHEAD - 1:
                said.wait_for_publish(START_S)
        self.sent += self.args.frames
        last, quiet = -1, time.monotonic()
        while time.monotonic() - quiet < QUIET_S:
            self.site.gateway.must_run()
            now = self._refused()
            if now != last:
                last, quiet = now, time.monotonic()
            time.sleep(0.2)
        self.refused_of[kind] = self.refused_of.get(kind, 0) + last - refused
        spent = self._cpu_s() - cpu, max(quiet - began, 0.01)
        self.cpu_of.setdefault(kind, []).append(spent)
        text = "%-11s %d frames in %.1f s, %d refused, %.0f %% of a CPU"
        self.say(text % (kind, self.args.frames, spent[1], last - refused, 100 * spent[0] / spent[1]))

    # ---- what the gateway reports, and its cost

    def _state(self) -> dict[str, Any]:
        from ..demo.subprocesses import until

        state: dict[str, Any] = until(self.site.state, START_S, "the gateway does not answer")
        return state

    def _stream(self) -> dict[str, Any]:
        found = [s for s in self._state()["streams"] if s["stream"] == STREAM]
        return found[-1] if found else {}

    def _reasons(self) -> dict[str, int]:
        return dict(self._state()["dropped"])

    def _refused(self) -> int:
        return sum(self._reasons().values())

    def _series(self) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.site.page_port, timeout=30)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        return sum(1 for line in text.splitlines() if line and not line.startswith("#"))

    def _rss(self) -> float:
        return rss_mib(self.site.gateway.pid())

    def _watch(self) -> None:
        while not self.ended.wait(0.2):
            self.rss.append(self._rss())

    def _cpu_s(self) -> float:
        fields = Path("/proc/%d/stat" % self.site.gateway.pid()).read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _accepted(self) -> int:
        return sum(batch.n for batch in self.site.boards[HONEST].accepted())

    # ---- the end

    def _settle(self) -> None:
        """Stop sampling; wait until all of the honest board's samples are in segments."""
        self.site.stop_sensors()
        last = max(batch.xi + batch.n - 1 for batch in self.site.boards[HONEST].accepted())
        end = time.monotonic() + SETTLE_S
        while self._stream()["cut"] < last and time.monotonic() < end:
            self.site.gateway.must_run()
            time.sleep(0.5)
        self.site.gateway.stop()

    def _costs(self) -> Iterator[Measure]:
        for kind, spent in self.cpu_of.items():
            cpu, wall = sum(cpu for cpu, _ in spent), sum(wall for _, wall in spent)
            frames = self.args.frames * self.args.rounds
            yield Measure("%s: frames sent a second" % kind, frames / wall, "1/s")
            yield Measure("%s: CPU of the gateway" % kind, 100 * cpu / wall, "%")
            yield at_most("%s: CPU of the gateway a frame" % kind, 1e6 * cpu / frames, "us", FRAME_US)
            refused = self.refused_of[kind]
            yield Measure("%s: refused" % kind, refused, "", "some", refused > 0)

    def _by_reason(self, reasons: dict[str, int]) -> Iterator[Measure]:
        from headwater_gateway import refused

        for reason, n in sorted(reasons.items(), key=lambda item: -item[1]):
            yield Measure("refused: " + reason, n, "", "a known reason", reason in refused.ALL)

    def _landed(self) -> Iterator[Measure]:
        found = landed.Landed()
        by_stream = landed.rows(self.site.folder / "landing")
        accepted = self.site.boards[HONEST].accepted()
        value = functools.partial(board_sensors.wave, k=0, seed=SEED)
        found.add(by_stream.pop(STREAM, []), accepted, value)
        strangers = sum(map(len, by_stream.values()))
        yield Measure("entries accepted", found.accepted, "", "some", found.accepted > 0)
        yield at_most("entries lost", found.lost, "", 0)
        yield at_most("entries twice", found.twice, "", 0)
        yield at_most("entries that differ", found.divergent, "", 0)
        # One batch of the honest board may have been sealed as its power went, and be in no ledger.
        yield at_most("entries that no board accepted", strangers + max(0, found.unknown - BATCH), "", 0)
