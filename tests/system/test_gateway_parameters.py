"""Parameters of a site that runs: legal changes never stop a board, and count in every deployment.

The command sequences are those of users; the outputs of a real board show which values it runs with."""

from __future__ import annotations

from typing import Any

import pytest
from gateway_site import Site, until
from headwater_tools.boards.on_board.board_sensors import wave

PROCESS = """
from headwater.process import Affine, Process, Threshold
p = Process("green", checkpoints="ecoc", every=50, batch=25)
air = p.source("air", "x:i16 y:i16", rate_hz=50, on="vent")
p.lake("green/scaled", (air >> Affine(num=%d).named("scale")))
p.lake("green/alarm", air >> Threshold(high=400, low=200, field="x").named("threshold"))
"""


@pytest.fixture
def site(site: Site) -> Site:
    site.start_broker()
    site.start_gateway()
    return site


def deploy(site: Site, num: int) -> None:
    (site.folder / "green.py").write_text(PROCESS % num)
    site.hw("deploy", "green.py", "--wait", "120")


def vertex(site: Site, name: str) -> dict[str, Any]:
    state = site.state()
    assert state is not None
    return next(dict(v) for v in state["processes"]["green"]["vertices"] if v["name"] == name)


def in_force(site: Site, name: str, **values: Any) -> None:
    """Wait until these values are in force, and no change waits any more."""

    def so() -> bool:
        v = vertex(site, name)
        return not v["open"] and all(v["parameters"][key] == value for key, value in values.items())

    until(so, 60, "%r\n%s" % (vertex(site, name), site.consoles()))


def test_legal_changes_leave_the_board_running_and_count_after_a_switch(site: Site) -> None:
    board = site.wave_board("vent", "air")
    board.start()
    deploy(site, 2)
    # D2: the second change is legal against the plan's values, and not against those in force.
    told = site.hw("deploy", "--set", "threshold.high=250")
    assert "threshold: high = 250, change number 1" in told
    told = site.hw("deploy", "--set", "threshold.low=300", code=2)
    assert "low is 300 and high 250: low must be lower" in told
    in_force(site, "threshold", high=250, low=200)
    shown = site.hw("gateway", "state", ".")
    assert "operator threshold (Threshold)" in shown and "high = 250, low = 200, field = x" in shown
    # The other way round: refused against the plan's values, and legal against those in force.
    site.hw("deploy", "--set", "threshold.high=950")
    site.hw("deploy", "--set", "threshold.low=900")
    in_force(site, "threshold", high=950, low=900)
    for change in ("threshold.high=4000000", "threshold.low=-40000"):
        assert "holds -32768 to 32767" in site.hw("deploy", "--set", change, code=2)

    # D2b: changes after a switch are numbered from 1 again, and applied.
    deploy(site, 3)
    assert vertex(site, "threshold")["changes"] == [0, 0]
    assert vertex(site, "threshold")["parameters"]["high"] == 400
    told = site.hw("deploy", "--set", "scale.num=-5", "--set", "threshold.high=350")
    assert "scale: num = -5, change number 1" in told and "threshold: high = 350, change number 1" in told
    in_force(site, "scale", num=-5)
    in_force(site, "threshold", high=350, low=200)

    # A change that waits says for whom, and counts when the board is back.
    board.stop()
    until(lambda: (s := site.state()) and s["processes"]["green"]["step"] == "waits")
    told = site.hw("deploy", "--set", "scale.num=7")
    assert "scale: num = 7, change number 2; it waits: vent is silent for" in told
    shown = site.command("gateway", "state", ".").stdout  # exit 1 once the silence is an alarm
    assert "change 2: num = 7; waiting: vent is silent for" in shown and "num = -5" in shown
    site.kill_gateway()
    site.start_gateway()
    assert vertex(site, "scale")["parameters"]["num"] == -5
    board.start()
    in_force(site, "scale", num=7)
    before = site.stream("green/scaled")["durable"]
    until(lambda: site.stream("green/scaled")["durable"] >= before + 200, why=site.consoles())
    site.hw("undeploy", "green", "--wait", "120")
    assert not any("crashed" in line for line in board.lines)
    assert rows_scaled_by(site) == {2, 3, -5, 7}


def rows_scaled_by(site: Site) -> set[int]:
    """By what the values in the segments are multiplied: x and y of a wave, each against its own sample."""
    accepted = site.boards["vent"].accepted()
    samples = {b.ts + i * b.dt: b.first + i for b in accepted for i in range(b.n)}
    found = set()
    for row in site.rows("green/scaled"):
        sample = samples.get(row["ts_us"])
        x = wave(sample, 0, 3) if sample is not None else 0
        if x:
            assert row["ints"][0] % x == 0
            found.add(row["ints"][0] // x)
    return found
