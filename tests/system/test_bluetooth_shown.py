"""A gateway whose Bluetooth adapter is missing: the page, the state, an alarm and the metrics tell it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from headwater_tools import environment

environment.ensure("gateway")
from browser import Browser  # noqa: E402
from gateway_site import Site, until  # noqa: E402
from headwater_gateway import command  # noqa: E402

WORDS = "the adapter is missing, off or not permitted (no D-Bus, over which BlueZ is reached)"


@pytest.fixture
def browser() -> Iterator[Browser]:
    browser = Browser()
    yield browser
    browser.close()


def test_an_adapter_that_is_missing_is_told_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, browser: Browser
) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=%s" % (tmp_path / "none"))
    site = Site(tmp_path / "site", '[bluetooth]\nenabled = true\nadapter = "hci7"\n')
    try:
        site.start_gateway()
        state = until(lambda: (found := site.state()) and found["bluetooth"]["problem"] and found)
        assert state["bluetooth"]["problem"] == WORDS
        assert "bluetooth: the adapter cannot be used: %s; 0 of 4 connections" % WORDS in command.page(state)
        alarms = lambda: [alarm["id"] for alarm in (site.state() or {})["alarms"]]  # noqa: E731
        until(lambda: "bluetooth" in alarms())
        lines = site.log.read_text().splitlines()
        address = next(line for line in lines if " http://" in line).rpartition(" ")[2].rstrip("/")
        token = (site.folder / "secrets" / "token").read_text().strip()
        with urlopen(Request(address + "/metrics", headers={"Authorization": "Bearer " + token})) as answer:
            metrics = answer.read().decode()
        assert "headwater_bluetooth_scanner_up 0.0" in metrics
        assert 'headwater_bluetooth_ended_total{reason="nothing to send"} 0.0' in metrics
        browser.size(1200, 900)
        browser.goto(address + "/")
        shown = "document.querySelector('#bluetooth').innerText"
        browser.until("/hci7[^]*cannot be used/.test(%s)" % shown)
        assert WORDS in browser.get(shown)
        assert browser.problems == []
    finally:
        site.close()
