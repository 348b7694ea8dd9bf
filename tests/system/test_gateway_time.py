"""The site's time with real parts: gateway and board are killed again and again, and no time runs away."""

from __future__ import annotations

import json
import sqlite3
import time
from typing import Any

import pyarrow.parquet as pq
import pytest
from gateway_site import Site, until
from headwater.protocol.clock import STEP_US
from headwater_gateway.site_clock import kernel_error_us

KILLS = 10
PROCESS = """
from headwater.process import Process
p = Process("house", checkpoints="ecoc", every=100, batch=50)
p.lake("house/air", p.source("air", "v:i16", rate_hz=50, on="vent"))
p.lake("house/door", p.source("door", "v:i16", most_hz=10, on="vent"))
"""


@pytest.fixture
def site(site: Site, request: pytest.FixtureRequest) -> Site:
    text = site.config_file.read_text().replace('clock = "wall"', 'clock = "%s"' % request.param)
    site.config_file.write_text(text)
    return site


def wall_us() -> int:
    return time.time_ns() // 1000


def state_of(site: Site) -> dict[str, Any]:
    return until(site.state)  # type: ignore[no-any-return]


def ahead_us(site: Site) -> int:
    """How far the site's time is ahead of this machine's clock, at least."""
    shown: int = state_of(site)["now_us"]
    return shown - wall_us()


def vent(site: Site) -> dict[str, Any]:
    state = site.state()
    found: dict[str, Any] = state["boards"]["vent"]["status"] if state else {}
    return found


@pytest.mark.parametrize("site", ["wall", "network"], indirect=True)
def test_kills_of_gateway_and_board_move_nobodys_time(site: Site) -> None:
    site.start_broker()
    site.start_gateway()
    t0_us = wall_us()
    sensors = {"air": {"driver": "wave", "t0_us": t0_us}, "door": {"driver": "presses", "t0_us": t0_us}}
    board = site.board("vent", sensors)
    board.start()
    (site.folder / "house.py").write_text(PROCESS)
    site.hw("deploy", "house.py", "--wait", "60")
    until(lambda: site.stream("house/door")["durable"] >= 3, why=site.consoles())
    before = ahead_us(site)
    for i in range(KILLS):
        site.kill_gateway()
        site.start_gateway()
        if i % 2:
            board.kill()
            board.start()
    # Quick restarts in a row do not add up; the clock of this machine and the monotone one stay together.
    assert abs(ahead_us(site) - before) < STEP_US
    durable = site.stream("house/air")["durable"]
    until(lambda: site.stream("house/air")["durable"] >= durable + 200, 120, site.consoles())
    until(lambda: isinstance(vent(site).get("time"), int), why=site.consoles())
    assert vent(site)["time"] - wall_us() < STEP_US
    for name in ("house/air", "house/door"):
        until(lambda name=name: site.stream(name)["last_ts_us"], why=site.consoles())
        assert site.stream(name)["last_ts_us"] - wall_us() < STEP_US
    assert all(b.ts + (b.n - 1) * max(b.dt, 0) < wall_us() + STEP_US for b in board.accepted())
    arrived = [max(pq.read_table(path)["arrived"].to_pylist()).timestamp() for path in site.segments()]
    assert arrived and max(arrived) * 1e6 < wall_us() + STEP_US
    clock = state_of(site)["clock"]
    trusted = 'clock = "wall"' in site.config_file.read_text() or kernel_error_us() is not None
    assert clock["synchronised"] == trusted
    if not trusted:
        until(lambda: "clock.network" in [alarm["id"] for alarm in state_of(site)["alarms"]])


@pytest.mark.parametrize("site", ["wall"], indirect=True)
def test_a_time_far_ahead_is_shown_with_how_long_it_takes(site: Site) -> None:
    site.start_broker()
    site.start_gateway()
    site.kill_gateway()
    with sqlite3.connect(site.folder / "data" / "gateway.db") as db:
        (text,) = db.execute("SELECT value FROM meta WHERE key = 'time'").fetchone()
        kept = {**json.loads(text), "site": wall_us() + 100_000_000, "boot": "another"}
        db.execute("UPDATE meta SET value = ? WHERE key = 'time'", (json.dumps(kept),))
    db.close()
    site.start_gateway()
    clock = state_of(site)["clock"]
    assert 80_000_000 < clock["ahead_us"] <= 100_000_000
    assert 45 * 3600 < clock["right_in_s"] < 56 * 3600
    until(lambda: "clock.ahead" in [alarm["id"] for alarm in state_of(site)["alarms"]])
    done = site.command("gateway", "state", str(site.folder))
    assert done.returncode == 1
    assert " s ahead, right again in " in done.stdout.splitlines()[0]
