"""A machine as a host: `hw host` with a real broker and gateway, over TLS, and killed again and again.

What the host accepted is the judge: its driver notes each batch, and carries the number of each sample as its
value, so that what is missing or twice in the segments shows.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from gateway_site import Site, until
from headwater_gateway.command import register as provision
from headwater_tools import environment

WAIT = "60"
KILLS = 5
BATCH = 25
PROCESS = (
    """
from headwater.process import Affine, Process
p = Process("one", checkpoints="ecoc", every=50, batch=%d)
number = p.source("number", "i:i32", rate_hz=200, on="shed")
p.lake("one/number", number)
p.lake("one/triple", number >> Affine(num=3))
"""
    % BATCH
)
# A driver of the folder's own. The virtual boards' sampler knows which sample it is by the machine's clock.
DRIVERS = """
from headwater_tools.boards.on_board.board_sensors import Sampler
class Numbers(Sampler):
    def fill(self, batch, i, n):
        for j in range(n):
            batch.cols[0][j] = i + j
    def taken(self, batch, n):
        with open("accepted.log", "a") as out:
            out.write("%d %d %d\\n" % (batch.xi if n else 0, batch.n, self.first))
DRIVERS = {"numbers": Numbers}
"""
BROKEN = """
class Broken(Numbers):
    def take(self, batch, now):
        raise RuntimeError("loose wire")
DRIVERS = {"numbers": Broken}
"""


class HostProcess:
    """`hw host` in the folder that the site has for this board."""

    def __init__(self, site: Site, name: str) -> None:
        self.home = provision(site.config_file, name)
        assert site.broker is not None
        site.broker.send_signal(signal.SIGHUP)
        config = json.loads((self.home / "config.json").read_text())
        config["broker"]["retry_s_max"] = 1
        sensor = {"driver": "numbers", "t0_us": time.time_ns() // 1000}
        text = json.dumps({**config, "status_s": 1, "sensors": {"number": sensor}})
        (self.home / "config.json").write_text(text)
        (self.home / "drivers.py").write_text(DRIVERS)
        self.log = site.folder / (name + ".log")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "headwater_tools", "host", str(self.home), "--log", "512K"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment.variables(),
            )  # fmt: skip

    def end(self, number: int = signal.SIGKILL) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(20)

    def accepted(self) -> list[int]:
        """The numbers of the samples that the driver heard to be accepted. One batch more may be in the flash
        for each kill."""
        rows = [line.split() for line in (self.home / "accepted.log").read_text().split("\n")[:-1]]
        return [int(first) + j for xi, n, first in rows if int(xi) for j in range(int(n))]


def numbers(site: Site, stream: str) -> list[int]:
    """The values in the segments, in which no stream time is twice."""
    rows = [(row["incarnation"], row["xi"], row["ints"][0]) for row in site.rows(stream)]
    assert len({row[:2] for row in rows}) == len(rows)
    return [value for _, _, value in rows]


def test_a_host_that_is_killed_again_and_again_loses_nothing_and_gives_nothing_twice(site: Site) -> None:
    site.start_broker()
    site.start_gateway()
    shed = HostProcess(site, "shed")
    (site.folder / "one.py").write_text(PROCESS)
    try:
        shed.start()
        site.hw("deploy", "one.py", "--wait", WAIT)
        until(lambda: site.stream("one/triple")["durable"] >= 100, 30, shed.log.read_text)
        chance = random.Random(5)
        for _ in range(KILLS):
            assert shed.end() == -signal.SIGKILL
            shed.start()
            time.sleep(0.4 + chance.random())
        before = site.stream("one/triple")["durable"]
        until(lambda: site.stream("one/triple")["durable"] > before, 30, shed.log.read_text)
        listed = json.loads(site.hw("board", "list", str(site.folder), "--json").splitlines()[-1])["boards"]
        assert [row["virtual"] for row in listed] == [shed.process.pid if shed.process else None]
        refused = site.hw("host", str(shed.home), code=2)
        assert "is run already, by process" in refused
        # A clean end is not needed for anything: what was accepted before it is in the lake after it too.
        assert shed.end(signal.SIGTERM) == 0
        accepted = shed.accepted()
        shed.start()

        def landed() -> bool:
            return all(set(accepted) <= set(_thirds(site, stream)) for stream in ("one/number", "one/triple"))

        until(landed, 30, shed.log.read_text)
        assert shed.end(signal.SIGINT) == 0
        accepted = shed.accepted()
        for stream in ("one/number", "one/triple"):
            found = Counter(_thirds(site, stream))
            assert max(found.values()) == 1
            assert len(found.keys() - set(accepted)) <= KILLS * BATCH
    finally:
        if shed.process and shed.process.poll() is None:
            shed.end()
    text = shed.log.read_text()
    assert " not safe, " in text and " free" not in text
    told = site.hw("board", "logs", "shed", str(site.folder))
    assert "its last status: version " in told and "free 0" not in told and "bytes free" in told
    assert "Traceback" not in text and "crashed" not in text, text


def _thirds(site: Site, stream: str) -> list[int]:
    found = numbers(site, stream)
    if stream == "one/number":
        return found
    assert all(value % 3 == 0 for value in found)
    return [value // 3 for value in found]


def test_a_host_whose_program_crashes_starts_again_in_one_process_and_reports_it(site: Site) -> None:
    """After five crashes in a row it leaves the process out, as a board does."""
    site.start_broker()
    site.start_gateway()
    shed = HostProcess(site, "shed")
    (shed.home / "drivers.py").write_text(DRIVERS + BROKEN)
    (site.folder / "one.py").write_text(PROCESS)
    try:
        shed.start()
        site.hw("deploy", "one.py", "--gateway", str(site.folder))
        until(lambda: "boot 7, no process" in shed.log.read_text(), 30, shed.log.read_text)
        until(lambda: "loose wire" in site.hw("board", "logs", "shed", str(site.folder)), 20)
        assert shed.process is not None and shed.process.poll() is None
        assert shed.log.read_text().count("RuntimeError: loose wire") >= 5
    finally:
        shed.end()


@pytest.mark.parametrize("what", ["key", "driver", "certificate", "size", "battery"])
def test_what_is_wrong_with_a_folder_is_said_before_anything_starts(
    tmp_path: Path, what: str, site: Site
) -> None:
    home = provision(site.config_file, "shed")
    config = json.loads((home / "config.json").read_text())
    says = {
        "key": "board.key: 5 bytes, not the 32 of a key",
        "driver": "sensor air: no driver adc; there are gpio, iio, lines, value, w1",
        "certificate": "ca.der: no certificate that TLS takes",
        "size": "flash.bin has 5 bytes",
        "battery": "/sys/class/power_supply",
    }[what]
    if what == "driver":
        config["sensors"] = {"air": {"driver": "adc", "pin": 3}}
    if what == "battery":
        config["battery"] = {"pin": 35}
    (home / "config.json").write_text(json.dumps(config))
    for name, of in (("board.key", "key"), ("ca.der", "certificate"), ("flash.bin", "size")):
        if what == of:
            (home / name).write_bytes(b"12345")
    assert says in site.hw("host", str(home), "--check", code=1)
    assert says in site.hw("host", str(home), code=2)
