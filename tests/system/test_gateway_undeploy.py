"""Processes that are undeployed, rolled back and waited for: with a real broker, gateway and boards.

What the board accepted is the judge: its ledger against the segments, where nothing is missing or twice."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gateway_site import Site, until
from headwater_tools.boards.on_board.board_sensors import wave
from headwater_tools.boards.virtual import VirtualBoard

WAIT = "120"
PROCESS = """
from headwater.process import Affine, Process
p = Process("%s", checkpoints="ecoc", every=50, batch=25)
accel = p.source("accel", "x:i16 y:i16", rate_hz=50, on="wrist")
p.lake("one/accel", accel)
p.lake("one/scaled", accel >> Affine(num=%d))
"""


@pytest.fixture
def site(site: Site) -> Site:
    site.start_broker()
    site.start_gateway()
    return site


def write(site: Site, name: str, num: int) -> None:
    (site.folder / "one.py").write_text(PROCESS % (name, num))


def deploy(site: Site, name: str, num: int) -> dict[str, Any]:
    write(site, name, num)
    site.hw("deploy", "one.py", "--wait", WAIT)
    return process_of(site, name)


def process_of(site: Site, name: str) -> dict[str, Any]:
    state = site.state()
    assert state is not None
    return dict(state["processes"][name])


def rows_of(site: Site, stream: str) -> list[tuple[str, int, int, list[int]]]:
    """(incarnation, xi, ts, values) of every row in the segments."""
    rows = site.rows(stream)
    return [("%016x" % row["incarnation"], row["xi"], row["ts_us"], row["ints"]) for row in rows]


def all_there(site: Site, board: VirtualBoard, factor: dict[str, int], last: int) -> bool:
    """Every sample that the board accepted up to `last` stands in the segments once, and so does what the
    deployment that had it made of it. `factor`: incarnation of a deployment -> what it multiplies by."""
    accepted = [b for b in board.accepted() if b.first <= last]
    samples = {b.ts + i * b.dt: b.first + i for b in accepted for i in range(b.n)}
    raw = rows_of(site, "one/accel")
    assert len({(inc, xi) for inc, xi, _, _ in raw}) == len(raw)
    end = max(samples)
    times = [ts for _, _, ts, _ in raw if ts <= end]
    assert len(times) == len(set(times)) and set(times) <= samples.keys()
    scaled = {}
    for inc, _, ts, values in rows_of(site, "one/scaled"):
        if ts <= end:
            assert ts not in scaled, "the sample of %d has two outputs" % ts
            assert values == [factor[inc] * wave(samples[ts], k, 3) for k in range(2)]
            scaled[ts] = inc
    return len(times) == len(scaled) == len(samples)


def test_an_undeployed_process_loses_nothing_and_gives_its_boards_and_names_away(site: Site) -> None:
    board = site.wave_board()
    board.start()
    factor = {deploy(site, "one", 2)["hash"]: 2}
    until(lambda: site.stream("one/scaled")["durable"] >= 100, why=site.consoles())
    told = site.hw("undeploy", "one", "--wait", WAIT)
    assert "process one has stopped; its boards are free" in told
    until(lambda: (s := site.state()) and s["boards"]["wrist"]["leaving"] is None, why=site.consoles())
    last = board.accepted()[-1].first
    state = site.state()
    assert state is not None and state["processes"] == {} and state["boards"]["wrist"]["process"] is None
    assert "`hw deploy --rollback one` deploys it again" in site.hw("gateway", "state", ".")
    until(lambda: all_there(site, board, factor, last), why=site.consoles())

    # Another process takes the board, and the names in the lake; its sources begin new incarnations.
    factor[deploy(site, "two", 3)["hash"]] = 3
    until(lambda: site.stream("one/scaled")["durable"] >= 100, why=site.consoles())
    assert "no process one here" in site.hw("undeploy", "one", code=2)
    site.hw("undeploy", "two", "--wait", WAIT)
    site.hw("deploy", "--rollback", "one", "--wait", WAIT)
    again = process_of(site, "one")
    assert again["deployment"] > 2 and again["hash"] not in factor
    factor[again["hash"]] = 2
    until(lambda: site.stream("one/scaled")["durable"] >= 60, why=site.consoles())
    site.hw("undeploy", "one", "--wait", WAIT)
    accepted = board.accepted()
    until(lambda: all_there(site, board, factor, accepted[-1].first), why=site.consoles())
    assert len({inc for inc, _, _, _ in rows_of(site, "one/accel")}) == 3
    assert len({inc for inc, _, _, _ in rows_of(site, "one/scaled")}) == 3
    assert not any("crashed" in line for line in board.lines)


def test_a_rollback_deploys_the_version_before_and_loses_nothing(site: Site) -> None:
    board = site.wave_board()
    board.start()
    factor = {}
    for num in (2, 3):
        factor[deploy(site, "one", num)["hash"]] = num
        until(lambda: site.stream("one/scaled")["durable"] >= 100, why=site.consoles())
    told = site.hw("deploy", "--rollback", "one", "--wait", WAIT)
    assert "goes back to what deployment 1 was" in told and "deployment 3" in told
    now = process_of(site, "one")
    assert (now["deployment"], [e["deployment"] for e in now["earlier"]]) == (3, [2])
    factor[now["hash"]] = 2
    until(lambda: site.stream("one/scaled")["durable"] >= 60, why=site.consoles())
    assert "has no earlier deployment 7 of process one: it has 2" in site.hw(
        "deploy", "--rollback", "one", "--to", "7", code=2
    )
    site.kill_gateway()
    site.start_gateway()
    assert [e["deployment"] for e in process_of(site, "one")["earlier"]] == [2]
    site.hw("undeploy", "one", "--wait", WAIT)
    accepted = board.accepted()
    until(lambda: all_there(site, board, factor, accepted[-1].first), why=site.consoles())
    assert {inc for inc, _, _, _ in rows_of(site, "one/scaled")} == factor.keys()
    assert not any("crashed" in line for line in board.lines)


def test_what_is_away_is_named_and_waited_for(site: Site) -> None:
    board = site.wave_board()
    write(site, "one", 2)
    told = site.hw("deploy", "one.py", "--wait", "1", code=1)
    assert "after 1 s process one does not run everywhere: wrist was never seen" in told
    shown = site.hw("gateway", "state", ".", code=0)
    assert ": waits\n  waiting: wrist was never seen" in shown and ": runs" not in shown

    board.start()
    site.hw("deploy", "one.py", "--wait", WAIT)
    until(lambda: site.stream("one/scaled")["durable"] >= 60, why=site.consoles())
    board.stop()
    until(lambda: process_of(site, "one")["step"] == "waits")
    told = site.hw("undeploy", "one", "--wait", "1", code=1)
    assert "process one has not stopped: wrist is silent for" in told
    write(site, "one", 3)
    assert "process one is being undeployed: wait" in site.hw("deploy", "one.py", code=2)
    site.hw("undeploy", "one", "--cancel")
    assert process_of(site, "one")["step"] == "waits"
    before = site.stream("one/accel")["durable"]
    board.start()
    until(lambda: process_of(site, "one")["step"] == "runs", why=site.consoles())
    until(lambda: site.stream("one/accel")["durable"] > before, why=site.consoles())

    # Undeployed while it is away: it stops when it comes back, and only then.
    board.stop()
    site.hw("undeploy", "one")
    site.kill_gateway()
    site.start_gateway()
    assert process_of(site, "one")["step"] == "stops"
    board.start()
    until(lambda: (s := site.state()) and not s["processes"], why=site.consoles())
    until(lambda: (s := site.state()) and s["boards"]["wrist"]["leaving"] is None, why=site.consoles())
    assert not any("crashed" in line for line in board.lines)


def test_an_erased_board_gets_a_plan_that_it_had_refused(site: Site) -> None:
    board = site.wave_board()
    config = board.folder / "config.json"
    whole = config.read_text()
    config.write_text(json.dumps({**json.loads(whole), "sensors": {}}))
    board.start()
    write(site, "one", 2)
    told = site.hw("deploy", "one.py", "--wait", WAIT, code=1)
    assert "process one cannot run: wrist refuses it: " in told and "no such sensor" in told
    board.stop()
    config.write_text(whole)
    (board.folder / "flash.bin").unlink()
    board.start()
    until(lambda: process_of(site, "one")["step"] == "runs", why=site.consoles())
    until(lambda: site.stream("one/scaled")["durable"] >= 60, why=site.consoles())
