"""`hw move` in a site with real boards, broker and gateway: an operator goes from host to host, and the lake
gets every row once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gateway_site import Site, until
from headwater_tools.boards.on_board.board_sensors import wave

PROCESS = """
from headwater.process import Affine, Process
p = Process("green", checkpoints="ecoc", every=50, batch=25, level="peer")
air = p.source("air", "x:i16 y:i16", rate_hz=50, on="vent")
scaled = air >> Affine(num=3).named("scale").on("vent", backup=["door", "gateway"])
p.lake("green/scaled", scaled)
"""


@pytest.fixture
def site(site: Site) -> Site:
    site.start_broker()
    site.start_gateway()
    return site


def moved(site: Site, to: str, code: int = 0) -> dict[str, Any]:
    done = site.command("move", "scale", to, "--json")
    assert done.returncode == code, done.stdout + done.stderr + site.consoles()
    return dict(json.loads(done.stdout.splitlines()[-1]))


def durable(site: Site, more: int) -> None:
    before = site.stream("green/scaled")["durable"]
    until(lambda: site.stream("green/scaled")["durable"] >= before + more, why=site.consoles())


def test_an_operator_moves_from_host_to_host_and_every_row_is_there_once(site: Site) -> None:
    board = site.wave_board("vent", "air")
    board.start()
    door = site.board("door", {})
    door.start()
    (site.folder / "green.py").write_text(PROCESS)
    site.hw("deploy", "green.py", "--wait", "120")
    durable(site, 100)

    assert moved(site, "door")["outcome"] == "moved"
    assert moved(site, "door")["outcome"] == "already there"
    durable(site, 100)
    assert moved(site, "gateway") == {
        "process": "green",
        "operator": "scale",
        "from": "door",
        "host": "gateway",
        "outcome": "moved",
        "reason": "",
    }
    durable(site, 100)
    state = site.state()
    assert state is not None
    vertex = next(v for v in state["processes"]["green"]["vertices"] if v["name"] == "scale")
    assert vertex["host"] == "gateway" and vertex["moved"]["why"] == "a person asked for it"

    door.stop()
    refused = moved(site, "door", 1)
    assert refused["outcome"] == "refused" and "door does not answer" in refused["reason"]
    assert moved(site, "vent")["outcome"] == "moved"
    assert "may run on vent, door, gateway" in site.hw("move", "scale", "cellar", code=2)
    durable(site, 100)

    door.start()
    site.hw("undeploy", "green", "--wait", "50")
    rows = list(site.rows("green/scaled"))
    assert sorted(row["xi"] for row in rows) == list(range(1, len(rows) + 1))
    samples = {b.ts + i * b.dt: b.first + i for b in board.accepted() for i in range(b.n)}
    for row in rows:
        assert row["ints"][0] == 3 * wave(samples[row["ts_us"]], 0, 3)
