"""Alarms of a real gateway with real boards; the sink is played by what it leaves behind."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from gateway_site import Site, until
from headwater_gateway.segments.names import split

PROCESS = """
from headwater.process import Process
p = Process("one", checkpoints="unsafe", batch=50)
p.lake("one/accel", p.source("accel", "x:i16 y:i16", rate_hz=100, on="wrist"))
p.lake("one/other", p.source("other", "x:i16 y:i16", rate_hz=100, on="wrist"))
"""


@pytest.fixture
def site(site: Site) -> Site:
    text = site.config_file.read_text()
    site.config_file.write_text(text.replace("unacknowledged_s = 100000", "unacknowledged_s = 15"))
    return site


def deploy(site: Site) -> None:
    (site.folder / "one.py").write_text(PROCESS)
    site.hw("deploy", "one.py")


def alarms(site: Site) -> dict[str, dict[str, Any]]:
    state = site.state()
    assert state is not None
    return {alarm["id"]: alarm for alarm in state["alarms"]}


class Sink:
    """What a sink leaves behind for the gateway."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.acks = site.folder / "lake" / "acks"
        self.acks.mkdir(parents=True, exist_ok=True)
        self.high: dict[str, dict[str, int]] = {}
        self.count = 0

    def acknowledge(self, *streams: str) -> None:
        for path in self.site.segments():
            parts = split(path.name)
            stream = parts.stream.replace(".", "/") if parts else ""
            if parts and stream in streams:
                highs = self.high.setdefault(stream, {})
                inc = "%016x" % parts.incarnation
                highs[inc] = max(highs.get(inc, 0), parts.last)
        said = {
            stream: {inc: {"high": high, "ranges": []} for inc, high in highs.items()}
            for stream, highs in self.high.items()
        }
        text = {"format": 1, "process": "one", "generation": 0, "unreadable": [], "streams": said}
        self._put(self.acks / "one.json", text)

    def sign(self, ident: str, *places: Path, stopped: bool = False) -> None:
        self.count += 1
        for place in places:
            text = {"format": 1, "id": ident, "every_s": 30, "lake": "/lakes/" + ident, "count": self.count}
            self._put(place / "_sink.json", {**text, "stopped": stopped})

    def _put(self, path: Path, content: dict[str, Any]) -> None:
        new = path.with_name(".new")
        new.write_text(json.dumps(content))
        new.rename(path)


def test_a_lake_that_does_not_acknowledge_is_an_alarm_of_its_own_kind_across_restarts(site: Site) -> None:
    site.start_broker()
    site.start_gateway()
    t0_us = time.time_ns() // 1000
    sensors = {name: {"driver": "wave", "t0_us": t0_us, "seed": 3} for name in ("accel", "other")}
    board = site.board("wrist", sensors)
    site.ask("/alarms", {"mute": ["board.samples/wrist"], "seconds": 86_400})
    board.start()
    deploy(site)

    # A sink that never ran, as in the first hour of every site.
    alarm = until(lambda: alarms(site).get("sink.idle"), 120)
    assert alarm["severity"] == "critical" and "ever come to lake.acks" in alarm["text"]
    shown = site.command("gateway", "state")
    assert shown.returncode == 1 and "the oldest waits" in shown.stdout and "sink.idle" not in shown.stdout
    listed = site.command("gateway", "alarms", ".")
    assert listed.returncode == 1 and "id: sink.idle" in listed.stdout

    # A restart neither forgets it nor tells it again, although the new gateway has not waited long enough.
    since = alarm["since_us"]
    site.kill_gateway()
    site.start_gateway()
    assert alarms(site)["sink.idle"]["since_us"] == since
    events = [e for e in site.state()["events"] if "ever come" in e["text"]]  # type: ignore[index]
    assert len(events) == 1

    sink = Sink(site)
    sink.sign("a", sink.acks, site.folder / "landing")

    def moving(*streams: str) -> dict[str, dict[str, Any]]:
        sink.acknowledge(*streams)
        return alarms(site)

    # Only one stream moves: the other one is stuck.
    alarm = until(lambda: moving("one/accel").get("stream.stuck/one/other"), 120)
    assert "sink.idle" not in alarms(site) and "others reach the lake" in alarm["text"]
    until(lambda: set(moving("one/accel", "one/other")) <= {"board.samples/wrist"}, 120)
    assert site.state()["headline"]["state"] == "good"  # type: ignore[index]

    # Another sink takes the landing zone, for another lake.
    def elsewhere() -> dict[str, Any] | None:
        sink.sign("a", sink.acks, stopped=True)
        sink.sign("b", site.folder / "landing")
        return alarms(site).get("sink.elsewhere")

    alarm = until(elsewhere, 180)
    assert "/lakes/b" in alarm["text"] and str(site.config.lake.acks) in alarm["text"]


def test_a_board_that_skips_its_process_and_a_broker_that_is_away_are_told(site: Site) -> None:
    site.start_broker()
    site.start_gateway()
    gone = {"driver": "file", "path": "/nowhere/at/all", "t0_us": 0}
    wave = {"driver": "wave", "t0_us": time.time_ns() // 1000}
    board = site.board("wrist", {"accel": gone, "other": wave})
    board.start()
    deploy(site)
    alarm = until(lambda: (a := alarms(site).get("board.crash/wrist")) and "skips" in a["text"] and a, 300)
    assert alarm["severity"] == "critical" and "driver file" in alarm["text"]
    rows = site.state()["streams"]  # type: ignore[index]
    site.stop_broker()
    until(lambda: "broker" in alarms(site))
    rows = site.state()["streams"]  # type: ignore[index]
    assert rows and all(row["on_board"] is None for row in rows)  # unknown, and not nothing
    assert "unknown" in site.command("gateway", "state").stdout
    time.sleep(4)  # longer than a board may be silent
    assert "board.link/wrist" not in alarms(site)  # nobody could hear it
    assert "board.crash/wrist" in alarms(site)
