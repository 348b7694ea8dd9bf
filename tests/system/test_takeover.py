"""A board dies while the gateway is away: another board takes over its operator, by their own decision."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from gateway_site import Site, until
from headwater.data import msgpack
from headwater.storage.keyspace import F_OP
from headwater.storage.log import Log
from headwater_tools.boards.on_board.board_sensors import wave

PROCESS = """
from headwater.process import Affine, Process
p = Process("pair", checkpoints="ecoc", every=50, level="peer", batch=25)
p.host("chest", heap_kb=256)
p.host("wrist", heap_kb=256)
p.host("ankle", heap_kb=256)
accel = p.source("accel", "x:i16 y:i16", rate_hz=50, on="wrist")
doubled = accel >> Affine(num=2).named("doubled").on("chest", backup=["wrist", "ankle"])
p.lake("pair/accel", accel)
p.lake("pair/steps", p.source("steps", "x:i16 y:i16", rate_hz=10, on="ankle"))
p.lake("pair/doubled", doubled)
"""
VERTICES = 3
SECTOR = 4096


class Copy:
    """A board's flash as it is now: mounting does not change the file."""

    def __init__(self, path: Path) -> None:
        self.data = bytearray(path.read_bytes())

    def readblocks(self, block: int, buf: Any, offset: int = 0) -> None:
        start = block * SECTOR + offset
        buf[:] = self.data[start : start + len(buf)]

    def writeblocks(self, block: int, buf: Any, offset: int = 0) -> None:
        start = block * SECTOR + offset
        self.data[start : start + len(buf)] = buf

    def ioctl(self, request: int, block: int) -> int:
        if request == 6:
            self.data[block * SECTOR : (block + 1) * SECTOR] = b"\xff" * SECTOR
        return {4: len(self.data) // SECTOR, 5: SECTOR}.get(request, 0)


def epoch(flash: Path) -> int:
    """The number of the newest epoch of an operator that this board knows to have begun on it."""
    log = Log(Copy(flash))
    log.mount()
    noted = [log.get(F_OP + v) for v in range(VERTICES)]
    return max([0, *(int(msgpack.loads(data)[0]) for data in noted if data)])


def test_a_board_takes_over_from_a_dead_one_without_the_gateway(site: Site) -> None:
    site.start_broker()
    site.start_gateway()
    chest = site.board("chest", {})
    wrist = site.wave_board("wrist", "accel")
    ankle = site.wave_board("ankle", "steps")  # a board that hears no other one cannot know who is dead
    for board in (chest, wrist, ankle):
        board.start()
    (site.folder / "pair.py").write_text(PROCESS)
    site.hw("deploy", "pair.py", "--wait", "120")
    until(lambda: site.stream("pair/doubled")["durable"] >= 300)
    assert epoch(wrist.folder / "flash.bin") == 0
    site.kill_gateway()
    chest.kill()
    end = time.monotonic() + 180
    while epoch(wrist.folder / "flash.bin") != 2:
        assert time.monotonic() < end, site.consoles()
        time.sleep(2)
    time.sleep(2)
    site.start_gateway()
    wanted = max(a.xi + a.n - 1 for a in wrist.accepted()) + 100
    until(lambda: site.stream("pair/doubled")["cut"] >= wanted, 120)

    samples = {a.xi + i: a.first + i for a in wrist.accepted() for i in range(a.n)}
    found: dict[int, list[int]] = {}
    for row in site.rows("pair/doubled"):
        assert found.setdefault(row["xi"], row["ints"]) == row["ints"]
    assert sorted(found) == list(range(1, max(found) + 1))
    for xi in range(1, wanted):
        assert found[xi] == [2 * wave(samples[xi], k, 3) for k in range(2)]
