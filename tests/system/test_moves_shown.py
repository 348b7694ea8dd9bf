"""Operators change hosts, one because a person asks for it and one because its board dies: page, state,
metrics and events tell it, of a real gateway with virtual boards."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pyarrow.parquet as pq
from headwater_tools import environment

environment.ensure("gateway")
from browser import Browser  # noqa: E402
from gateway_site import Site, until  # noqa: E402

PROCESS = """
from headwater.process import Affine, Average, Process
p = Process("gait", checkpoints="ecoc", every=50, batch=25, level="peer")
accel = p.source("accel", "x:i16 y:i16", rate_hz=50, on="ankle")
scale = accel >> Affine(num=3).named("scale").on("hip", backup=["wrist", "gateway"])
mean = accel >> Average(count=50, field="x").named("mean").on("hip", backup=["wrist", "gateway"])
p.lake("gait/scaled", scale)
p.lake("gait/mean", mean)
"""
WAITING = "/%s/.test(document.querySelector('#waiting').innerText)"


def start(site: Site) -> None:
    site.start_broker()
    site.start_gateway()
    boards = [site.wave_board("ankle", "accel"), site.board("hip", {}), site.board("wrist", {})]
    for board, mv in zip(boards, (4020, 3710, 3880), strict=True):
        board.battery(mv)
        board.start()
    (site.folder / "gait.py").write_text(PROCESS)
    site.hw("deploy", "gait.py", "--wait", "120")


def port(site: Site) -> str:
    found = until(lambda: [line for line in site.log.read_text().splitlines() if " http://" in line])
    return str(found[-1].rpartition(":")[2].strip("/"))


def operator(site: Site, name: str) -> dict[str, Any]:
    state = site.state()
    assert state is not None
    return dict(next(v for v in state["processes"]["gait"]["vertices"] if v["name"] == name))


def events(site: Site) -> list[str]:
    state = site.state()
    assert state is not None
    return [event["text"] for event in state["events"] if event["kind"] == "move"]


def metric(site: Site, name: str, **labels: str) -> float | None:
    with urlopen("http://127.0.0.1:%s/metrics" % port(site)) as answer:
        lines = answer.read().decode().splitlines()
    for line in lines:
        if line.startswith(name + "{") and all('%s="%s"' % item in line for item in labels.items()):
            return float(line.rpartition(" ")[2])
    return None


def named_moves(site: Site, stream: str) -> list[Any]:
    """Moves that the segments of a stream name, for the lake."""
    found = []
    for path in site.segments():
        said = json.loads(pq.read_metadata(path).metadata[b"headwater"])
        found += said.get("moves", []) if said["stream"] == stream else []
    return found


def test_page_state_metrics_and_events_tell_where_operators_run_and_why(site: Site) -> None:
    start(site)
    browser = Browser()
    try:
        browser.size(1200, 900)
        browser.goto("http://127.0.0.1:%s/" % port(site))
        lane = "document.querySelector('[data-operator=%s]').innerText"
        browser.until("/hip/.test(%s)" % (lane % "mean"), 120)
        browser.get("window.stayed = true")

        # A person asks for it.
        moved = json.loads(site.hw("move", "scale", "wrist", "--json").splitlines()[-1])
        assert moved["outcome"] == "moved", site.consoles()
        by_command = "operator scale of gait moved from hip to wrist: a person asked for it"
        until(lambda: events(site) == [by_command], why=site.consoles)
        told = operator(site, "scale")
        assert (told["host"], told["moved"]["from"], told["moved"]["reason"]) == ("wrist", "hip", "command")
        assert [c["host"] for c in told["candidates"]] == ["hip", "wrist", "gateway"]
        assert metric(site, "headwater_operator_moves_total", process="gait", reason="command") == 1
        assert metric(site, "headwater_operator_host", operator="scale") == 1
        browser.until("/from hip: a person asked for it/.test(%s)" % (lane % "scale"))

        # A board dies.
        before = site.stream("gait/mean")["durable"]
        site.boards["hip"].kill()
        browser.until(WAITING % r"operator mean\s+waits: hip is silent")
        state = site.hw("gateway", "state", ".", code=1)
        assert re.search(r"operator mean \(Average\) waits on hip since .*; may run on wrist, gateway", state)
        until(lambda: len(events(site)) == 2, 120, site.consoles)
        host = operator(site, "mean")["host"]
        assert host in ("wrist", "gateway")
        assert events(site)[1] == "operator mean of gait was taken over by %s: hip was silent" % host
        assert operator(site, "mean")["moved"]["reason"] == "takeover"
        assert metric(site, "headwater_operator_moves_total", process="gait", reason="takeover") == 1
        assert metric(site, "headwater_operator_host", operator="mean", host=host) == 1
        browser.until("/mean from hip to %s/.test(document.querySelector('#moves').innerText)" % host)
        browser.until("/from hip: hip was silent/.test(%s)" % (lane % "mean"))
        until(lambda: operator(site, "mean")["does"] == "runs", 60, lambda: str(operator(site, "mean")))
        until(lambda: site.stream("gait/mean")["durable"] > before + 2, why=site.consoles)
        browser.until("!" + WAITING % "operator mean")
        # The segments that are cut after the gateway heard of it name it.
        named = until(lambda: named_moves(site, "gait/mean"), why=site.consoles)
        assert {(m[0], m[2], m[3], m[4]) for m in named} == {("mean", "hip", host, "takeover")}
        assert browser.get("window.stayed") and browser.problems == []
        picture = os.environ.get("HEADWATER_PICTURE")
        if picture:
            time.sleep(3)
            browser.picture(Path(picture))
        told = site.hw("gateway", "state", ".", code=1)
        assert "operator scale (Affine) runs on wrist" in told and "before on hip: a person asked" in told

        # The gateway starts again, and tells nothing twice.
        site.kill_gateway()
        site.start_gateway()
        until(lambda: operator(site, "scale")["does"] == "runs", why=site.consoles)
        assert len(events(site)) == 2
        assert operator(site, "scale")["moved"]["why"] == "a person asked for it"
    finally:
        browser.close()
