"""`hw give-up` in a site with real boards, broker and gateway: an operator whose checkpoints are lost with
two boards goes on, and its stream with another incarnation."""

from __future__ import annotations

import json

import pytest
from gateway_site import Site, until
from headwater_tools.boards.on_board.board_sensors import wave

PROCESS = """
from headwater.process import Affine, Process
p = Process("green", checkpoints="ecoc", every=50, batch=25, level="peer")
air = p.source("air", "x:i16 y:i16", rate_hz=50, on="vent")
scaled = air >> Affine(num=3).named("scale").on("door", backup=["roof", "vent"])
p.lake("green/scaled", scaled)
"""


@pytest.fixture
def site(site: Site) -> Site:
    site.start_broker()
    site.start_gateway()
    return site


def test_an_operator_goes_on_without_what_two_lost_boards_had(site: Site) -> None:
    board = site.wave_board("vent", "air")
    board.start()
    others = [site.board(name, {}) for name in ("door", "roof")]
    for other in others:
        other.start()
    (site.folder / "green.py").write_text(PROCESS)
    site.hw("deploy", "green.py", "--wait", "120")
    # Vent keeps a checkpoint from the beginning, where roof was late. It is asked for none later.
    until(lambda: site.stream("green/scaled")["durable"] >= 2500, 90, site.consoles())

    refused = site.hw("give-up", "scale", "--yes", code=2)
    assert "waits for no checkpoint" in refused

    for other in others:
        other.stop()

    def stands() -> str:
        state = site.state()
        assert state is not None
        vertex = next(v for v in state["processes"]["green"]["vertices"] if v["name"] == "scale")
        return str(vertex["waits"])

    until(lambda: "waits" in stands(), 120, site.consoles())
    for name in ("door", "roof"):
        site.hw("board", "lost", name, "--yes")
    until(lambda: "stored on" in stands(), why=site.consoles())
    told = site.hw("give-up", "scale", code=2)
    assert "green/scaled ends after xi" in told and "nothing was changed" in told
    done = site.command("give-up", "scale", "--yes", "--json")
    assert done.returncode == 0, done.stdout + done.stderr + site.consoles()
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["outcome"] == "given up" and answer["host"] == "vent"

    def anew() -> list[dict[str, object]]:
        state = site.state()
        assert state is not None
        return [row for row in state["streams"] if row["stream"] == "green/scaled"]

    until(lambda: len(anew()) == 2 and int(str(anew()[-1]["durable"])) >= 200, 90, site.consoles())
    old, new = anew()
    assert old["ended"] == "given up after xi %d" % int(str(old["durable"])) and new["ended"] is None
    state = site.state()
    assert state is not None
    assert any("has given up" in event["text"] for event in state["events"])

    site.hw("undeploy", "green", "--wait", "50")
    samples = {b.ts + i * b.dt: b.first + i for b in board.accepted() for i in range(b.n)}
    rows = list(site.rows("green/scaled"))
    for inc in {row["incarnation"] for row in rows}:
        mine = sorted(row["xi"] for row in rows if row["incarnation"] == inc)
        assert mine == list(range(1, len(mine) + 1))
    for row in rows:
        assert row["ints"][0] == 3 * wave(samples[row["ts_us"]], 0, 3)
    assert {row["ts_us"] for row in rows} >= set(samples)
