"""Processes that change and change back: every output of every deployment arrives, once and as its own.

Broker, gateway, cutter and board are real; what the board accepted is the judge."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from gateway_site import Site, until
from headwater_gateway.names import split
from headwater_tools.board_sensors import wave

PROCESS = """
from headwater.process import Affine, Process
p = Process("one", checkpoints="ecoc", every=50, batch=25)
accel = p.source("accel", "x:i16 y:i16", rate_hz=50, on="wrist")
p.lake("one/accel", accel)
p.lake("one/scaled", accel >> Affine(num=%d))
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path / "site")
    try:
        yield made
    finally:
        made.close()


def deploy(site: Site, num: int) -> dict[str, Any]:
    """Deploy the version that multiplies by `num`, until the board runs it."""
    (site.folder / "one.py").write_text(PROCESS % num)
    done = site.command("deploy", "one.py", "--wait", "60")
    assert done.returncode == 0, done.stdout + done.stderr + site.consoles()
    ended = until(lambda: (s := site.state()) and s["processes"]["one"]["step"] == "runs" and s, 30)
    return dict(ended["processes"]["one"])


def rows_of(site: Site, stream: str) -> list[tuple[int, int, dict[str, Any]]]:
    """(incarnation, xi, row) of every row in the segments."""
    out = []
    for path in site.segments():
        parts = split(path.name)
        assert parts is not None
        if parts.stream == stream.replace("/", "."):
            for row in pq.read_table(path).to_pylist():
                out.append((row["incarnation"] & (1 << 64) - 1, row["xi"], row))
    return out


def outputs_of(site: Site, factor: dict[str, int], end_us: int) -> dict[int, tuple[int, list[int]]]:
    """ts -> (factor of its deployment, values) of every output up to a time; none twice.

    `factor`: incarnation of a deployment -> what it multiplies by."""
    rows = rows_of(site, "one/scaled")
    assert len({(inc, xi) for inc, xi, _ in rows}) == len(rows)
    outputs: dict[int, tuple[int, list[int]]] = {}
    for inc, _, row in rows:
        ts = round(row["ts"].timestamp() * 1e6)
        if ts <= end_us:
            assert ts not in outputs, "the sample of %d caused two outputs" % ts
            outputs[ts] = (factor["%016x" % inc], row["ints"])
    return outputs


def test_versions_that_come_again_lose_nothing_and_double_nothing(site: Site) -> None:
    site.start_broker()
    site.start_gateway()
    t0_us = time.time_ns() // 1000
    board = site.board("wrist", {"accel": {"driver": "wave", "t0_us": t0_us, "seed": 3}})
    board.start()
    deployed = []
    # From the third on they follow each other at once: nothing has caught up with what came before.
    for num, stay in ((2, 150), (3, 60), (2, 0), (3, 0), (2, 0), (3, 100)):
        process = deploy(site, num)
        deployed.append((num, process))
        if stay:
            until(lambda: site.stream("one/scaled")["durable"] >= stay, 60, site.consoles())  # noqa: B023
    factor = {str(process["hash"]): num for num, process in deployed}
    accepted = board.accepted()
    samples = {b.ts + i * b.dt: b.first + i for b in accepted for i in range(b.n)}
    assert len(samples) == sum(b.n for b in accepted) >= 310
    until(lambda: outputs_of(site, factor, max(samples)).keys() >= samples.keys(), 60, site.consoles())
    outputs = outputs_of(site, factor, max(samples))
    assert outputs.keys() == samples.keys()
    for ts, (num, values) in outputs.items():
        assert values == [num * wave(samples[ts], k, 3) for k in range(2)]
    assert {num for num, _ in outputs.values()} == {2, 3}
    until(lambda: max(xi for *_, xi, _ in rows_of(site, "one/accel")) >= accepted[-1].xi)
    raw = {xi for _, xi, _ in rows_of(site, "one/accel")}
    assert raw >= {b.xi + i for b in accepted for i in range(b.n)}
    assert not any("crashed" in line for line in board.lines)

    assert [process["deployment"] for _, process in deployed] == [1, 2, 3, 4, 5, 6]
    assert len({process["version"] for _, process in deployed}) == 2
    assert len(factor) == 6
    again = site.command("deploy", "one.py")
    assert "deployment 6: unchanged" in again.stdout, again.stdout + again.stderr
