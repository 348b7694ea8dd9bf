"""A process whose first host has little charge left: page and state tell where its operators would better
start, of a real gateway with virtual boards."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from headwater_tools import environment
from headwater_tools.boards import energy

environment.ensure("gateway")
from browser import Browser  # noqa: E402
from gateway_site import Site, until  # noqa: E402

PROCESS = """
from headwater.process import Affine, Average, Process
p = Process("gait", checkpoints="ecoc", every=100, batch=5, level="peer")
accel = p.source("accel", "x:i16 y:i16", rate_hz=50, on="ankle")
scale = accel >> Affine(num=3).named("scale").on("hip", backup=["wrist"])
mean = scale >> Average(count=50, field="x").named("mean").on("hip", backup=["wrist"])
p.lake("gait/mean", mean)
"""
CARD = "document.querySelector('[data-proposal=gait]').innerText"


def proposal(site: Site) -> dict[str, Any]:
    state = site.state()
    assert state is not None
    return dict(state["processes"]["gait"]["proposal"])


def test_page_and_state_tell_where_operators_would_better_start(site: Site) -> None:
    site.start_broker()
    site.start_gateway()
    boards = [site.wave_board("ankle", "accel"), site.board("hip", {}), site.board("wrist", {})]
    profile = energy.board("esp32")
    assert profile is not None
    for board, mv in zip(boards, (4150, 3690, 4150), strict=True):
        for folder in ("boards", "virtual"):
            path = site.folder / folder / board.name / "config.json"
            config = {**json.loads(path.read_text()), "energy": energy.given(profile)}
            path.write_text(json.dumps(config))
        board.battery(mv)
        board.start()
    (site.folder / "gait.py").write_text(PROCESS)
    site.hw("deploy", "gait.py", "--wait", "120")
    browser = Browser()
    try:
        browser.size(1200, 900)
        found = until(lambda: [line for line in site.log.read_text().splitlines() if " http://" in line])
        browser.goto("http://127.0.0.1:%s/" % found[-1].rpartition(":")[2].strip("/"))
        until(lambda: proposal(site)["state"] == "better", 180, lambda: str(proposal(site)) + site.consoles())
        told = proposal(site)
        browser.until("/A better start for gait/.test(%s)" % CARD)
        card = browser.get(CARD)
        assert (told["which"], told["now"]["host"]) == ("first battery", "hip")
        assert told["percent"] >= 25 and told["then"]["left_s"] > told["now"]["left_s"]
        wanted = [
            ("scale", "hip", "wrist", '.on("wrist", backup=["hip"])'),
            ("mean", "hip", "wrist", '.on("wrist", backup=["hip"])'),
        ]
        assert [(m["operator"], m["from"], m["to"], m["on"]) for m in told["moves"]] == wanted
        assert "The first battery" in card and ", %d %% longer, if" % told["percent"] in card
        assert card.count('.on("wrist", backup=["hip"])') == 2 and "It changes nothing by itself" in card
        facts = [browser.text("[data-host=%s]" % name) for name in ("ankle", "hip", "wrist")]
        assert ["better start" in text for text in facts] == [False, True, True], facts
        lines = site.hw("gateway", "state", ".")
        assert "  a better start: the first battery" in lines
        assert '    scale: .on("wrist", backup=["hip"])' in lines.splitlines()
        for width, phone in ((1200, False), (360, True)):
            browser.size(width, 800, phone=phone)
            assert browser.get("document.documentElement.scrollWidth") == width
            picture = os.environ.get("HEADWATER_PICTURE")
            if picture:
                browser.picture(Path(picture + "-%d.png" % width))
        assert browser.problems == []

        # With these hosts deployed, there is nothing more to propose.
        (site.folder / "gait.py").write_text(
            PROCESS.replace('"hip", backup=["wrist"]', '"wrist", backup=["hip"]')
        )
        site.hw("deploy", "gait.py", "--wait", "120")
        until(lambda: proposal(site)["state"] == "good", 180, lambda: str(proposal(site)) + site.consoles())
        browser.until("/first hosts of gait are as good as any/.test(%s)" % CARD)
        assert "a better start" not in site.hw("gateway", "state", ".")
    finally:
        browser.close()
