"""The status page in a real Chromium, of a real gateway with virtual boards."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from headwater.process.check import check
from headwater_tools import environment
from headwater_tools.boards.virtual import ECG
from headwater_tools.process_file import load

environment.ensure("gateway")
from browser import Browser  # noqa: E402
from gateway_site import Site, until  # noqa: E402
from headwater_gateway.segments.names import split, words  # noqa: E402

CARDIO = environment.ROOT / "tools" / "headwater_tools" / "examples" / "cardio.py"
XI = (
    "Number((document.querySelector('[data-node=%s] .check') || {textContent: ''})"
    ".textContent.replace(/[^0-9]/g, ''))"
)


def address(site: Site) -> str:
    """Of the page; a gateway that is started anew takes another free port unless its file names one."""
    found = until(lambda: [line for line in site.log.read_text().splitlines() if " http://" in line])
    return "http://127.0.0.1:%s/" % found[-1].rpartition(":")[2]


def settle(site: Site) -> None:
    """The port that it found is its port from now on, and a board may be slow for a while and not be lost."""
    port = address(site).rpartition(":")[2].strip("/")
    text = site.config_file.read_text()
    text = text.replace("[http]\nport = 0", "[http]\nport = " + port).replace("silent_s = 3", "silent_s = 5")
    site.config_file.write_text(text)


def take_alarms(site: Site, over: threading.Event) -> None:
    """The lake takes the alarms, and nothing else: while one waits for it no checkpoint becomes permanent."""
    folder = site.folder / "lake" / "acks"
    folder.mkdir(parents=True, exist_ok=True)
    told: dict[str, int] = {}
    while not over.wait(0.2):
        high = dict(told)
        for path in site.segments():
            parts = split(path.name)
            if parts and parts.stream == words("cardio/alarm"):
                inc = "%016x" % parts.incarnation
                high[inc] = max(high.get(inc, 0), parts.last)
        if high != told:
            told = high
            streams = {"cardio/alarm": {inc: {"high": n, "ranges": []} for inc, n in high.items()}}
            said = {"format": 1, "process": "cardio", "generation": 0, "unreadable": [], "streams": streams}
            (folder / "new").write_text(json.dumps(said))
            (folder / "new").rename(folder / "cardio.json")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two boards that run cardio, and a lake that takes its alarms."""
    site = Site(tmp_path_factory.mktemp("site"))
    over = threading.Event()
    lake = threading.Thread(target=take_alarms, args=(site, over))
    lake.start()
    try:
        site.start_broker()
        site.start_gateway()
        settle(site)
        site.kill_gateway()
        site.start_gateway()
        t0_us = time.time_ns() // 1000 - 10_000_000
        chest = site.board("chest", {"ecg": {"driver": "file", "path": str(ECG), "t0_us": t0_us}})
        wrist = site.board("wrist", {"accel": {"driver": "wave", "t0_us": t0_us}})
        chest.battery(3912)
        wrist.battery(3420)
        report = check(load(str(CARDIO)))
        site.ask("/deploy", {"plan": base64.b64encode(report.plan).decode()})
        # A machine that is too slow for its boards makes them refuse samples: no matter here.
        slow = ["board.samples/chest", "board.samples/wrist"]
        site.ask("/alarms", {"mute": slow, "seconds": 86_400})
        chest.start()
        wrist.start()
        yield site
    finally:
        over.set()
        lake.join()
        site.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture
def page(site: Site, browser: Browser) -> Browser:
    """The page, when both boards run their process and are shown so."""
    browser.size(1200, 900)
    browser.goto(address(site))
    try:
        browser.until("document.querySelectorAll('#hosts .chip.good').length === 2", 120)
    except AssertionError as error:
        raise AssertionError(site.consoles()) from error
    return browser


def test_checkpoints_backlog_and_plots_go_on_without_a_reload(site: Site, page: Browser) -> None:
    page.get("window.stayed = true")
    first = page.until(XI % "fir", 120)
    page.until("%s > %d" % (XI % "fir", first))
    page.until("/fir covers [0-9,]+, from chest/.test(document.querySelector('#checkpoints').textContent)")
    last = site.state()["processes"]["cardio"]["vertices"]  # type: ignore[index]
    at = next(v["checkpoint"] for v in last if v["name"] == "fir")
    assert page.get(XI % "fir") <= at[0]

    backlog = "document.querySelector(\"[data-stream='cardio/ecg'] .backlog\").innerText"
    page.until("/in segments/.test(%s)" % backlog)
    before = site.stream("cardio/ecg")["cut"]
    page.until(
        "Number((/([0-9,]+) in segments/.exec(%s) || [0, '0'])[1].replace(/,/g, '')) > %d" % (backlog, before)
    )
    points = "Number((document.querySelector(\"[data-plot='cardio/ecg']\") || {dataset: {}}).dataset.points)"
    some = page.until(points)
    page.until("%s > Math.min(%d, 5999)" % (points, some))  # a page keeps 6,000
    drawn = "(c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(b => b))"
    assert page.get("%s(document.querySelector(\"[data-plot='cardio/ecg'] canvas\"))" % drawn)
    assert page.get("window.stayed")
    assert page.problems == []


def test_page_shows_the_process_with_operators_on_their_hosts_and_batteries(page: Browser) -> None:
    nodes = "[...document.querySelectorAll('[data-process=cardio] [data-node]')].map(n => n.dataset.node)"
    assert sorted(page.get(nodes)) == [
        "accel", "average", "cardio/alarm", "cardio/ecg", "ecg", "fir", "healthanalyzer", "heartrate",
        "magnitude", "qrs",
    ]  # fmt: skip
    lanes = "[...document.querySelectorAll('.lane-name')].map(n => n.firstChild.data)"
    assert page.get(lanes) == ["chest", "wrist", "lake"]
    middle = (
        "(name => (r => r.top + r.height / 2)"
        "(document.querySelector(`[data-node='${name}']`).getBoundingClientRect()))"
    )
    same = "%s('%s') === %s('%s')"
    assert page.get(same % (middle, "qrs", middle, "fir"))
    assert page.get("%s('average') > %s('qrs') + 40" % (middle, middle))
    assert "ecg (source, on chest) feeds fir, the lake as cardio/ecg" in page.get(
        "document.querySelector('.graph svg').getAttribute('aria-label')"
    )
    battery = "document.querySelector('[data-host=%s] .battery').innerText === '%s'"
    page.until(battery % ("chest", "3.91 V"))
    page.until(battery % ("wrist", "3.42 V"))
    assert page.problems == []


def test_streams_are_chosen_for_plots_by_keyboard_and_stay_chosen(page: Browser) -> None:
    pressed = (
        "document.querySelector(\"[data-stream='cardio/ecg'] button\").getAttribute('aria-pressed') === '%s'"
    )
    page.until(pressed % "true")
    page.get("document.querySelector(\"[data-stream='cardio/ecg'] button\").focus()")
    page.keys("Enter")
    page.until(pressed % "false")
    assert page.get("document.querySelector(\"[data-plot='cardio/ecg']\") === null")
    page.get("window.stayed = true")
    page.call("Page.reload")
    page.until("!window.stayed && document.querySelector(\"[data-stream='cardio/ecg'] button\") !== null")
    assert page.get(pressed % "false")
    page.get("localStorage.clear()")


def test_page_fits_a_phone(page: Browser) -> None:
    page.size(360, 740, phone=True)
    page.until("document.querySelector('.graph svg').viewBox.baseVal.width < 360")
    page.get("document.querySelector('details').open = true")
    assert page.get("document.documentElement.scrollWidth") == 360
    outside = "[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > 361)"
    assert page.get(outside + ".map(e => e.tagName + e.className)") == []
    small = (
        "[...document.querySelectorAll('button')].filter(b => b.offsetHeight && b.offsetHeight < 40).length"
    )
    assert page.get(small) == 0
    assert "Fir · chest" in page.get("document.querySelector('[data-node=fir]').textContent")


def test_alarm_comes_and_goes(site: Site, page: Browser) -> None:
    wrist = site.boards["wrist"]
    wrist.kill()
    page.until("/Board wrist is lost/.test(document.querySelector('#alarms').innerText)")
    page.until("document.querySelector('[data-node=accel]').classList.contains('down')")
    page.until("document.querySelector('#say').textContent.startsWith('1 alarm')")
    assert page.text("#verdict").startswith("▲")
    assert page.text("[data-host=wrist] .chip") == "▲ lost"
    assert page.get("document.title").startswith("(1 alarm")
    wrist.start()
    page.until("document.querySelector('[data-alarm=\\'board.link/wrist\\']') === null", 120)
    page.until("document.querySelector('#verdict').innerText.startsWith('✓')")
    assert "Board wrist is lost" in page.text("#events")
    assert page.get(
        "/^[0-9]{1,2} [A-Z][a-z]{2} [0-9:]{8}$/.test(document.querySelector('#events time').innerText)"
    )


def test_a_low_battery_is_an_alarm_until_it_is_muted(site: Site, page: Browser) -> None:
    wrist = site.boards["wrist"]
    wrist.battery(3310)
    page.until("/the battery is low, 3.31 V/.test(document.querySelector('#alarms').innerText)")
    page.until("document.querySelector('[data-host=wrist] .battery').innerText === '3.31 V · low'")
    page.until("document.querySelector('#verdict').classList.contains('warn')")
    done = site.command("gateway", "alarms", ".", "--mute", "board.battery/wrist", "--for", "2h")
    assert done.returncode == 0 and "muted until" in done.stdout, done.stdout + done.stderr
    page.until("/No alarm .[12] muted/.test(document.querySelector('#verdict').innerText)")
    assert "board.battery/wrist" in page.text("#alarms")
    wrist.battery(3900)
    done = site.command("gateway", "alarms", ".", "--unmute", "board.battery/wrist")
    assert done.returncode in (0, 1), done.stderr
    page.until("document.querySelector('[data-alarm=\\'board.battery/wrist\\']') === null")
    page.until("document.querySelector('#verdict').innerText.startsWith('✓')")


def test_page_says_when_the_gateway_is_out_of_reach_and_goes_on_when_it_returns(
    site: Site, page: Browser
) -> None:
    page.get("window.stayed = true")
    site.kill_gateway()
    page.until("!document.querySelector('#lost').hidden")
    page.until("/What you see is [1-9][0-9]* s old/.test(document.querySelector('#lost').innerText)")
    assert page.get("document.querySelector('#live').dataset.state") == "old"
    assert page.get("document.title").startswith("(unreachable)")
    assert "Unknown: the gateway does not answer" in page.text("#verdict")
    assert "All is well" not in page.text("body")
    assert page.text("[data-host=chest] h3").startswith("chest")
    site.start_gateway()
    page.until("document.querySelector('#lost').hidden")
    page.until("document.querySelector('#live').dataset.state === 'live'")
    at = page.get(XI % "fir")
    page.until("%s > %d" % (XI % "fir", at), 120)
    assert page.get("window.stayed")
    assert page.problems == []


def test_beyond_this_machine_the_page_asks_for_a_token(tmp_path: Path, browser: Browser) -> None:
    site = Site(tmp_path, '[log]\nlevel = "info"\n')
    text = site.config_file.read_text().replace("[http]\n", '[http]\nbind = "0.0.0.0"\n')
    site.config_file.write_text(text)
    token = (tmp_path / "secrets" / "token").read_text().strip()
    try:
        site.start_gateway()
        browser.goto(address(site))
        assert browser.get("document.querySelector('main') === null")
        for word in ("not this one, surely", token):
            browser.get("document.querySelector('#token').focus()")
            browser.keys(word, "Enter")
            if word != token:
                browser.until("/not the token/.test(document.body.innerText)")
        browser.until("document.querySelector('#live').dataset.state === 'live'")
        assert browser.get("location.pathname + location.search") == "/"
        assert browser.get("document.cookie") == ""
        status = "fetch(%s, {credentials: 'omit'}).then(r => r.status)"
        for path in ("/", "/page.js", "/page/events", "/api/state", "/metrics"):
            assert browser.get(status % json.dumps(path)) == 401
        assert browser.get("!document.querySelector('#leave').hidden")
        browser.get("document.querySelector('#leave button').focus()")
        browser.keys("Enter")
        browser.until("document.querySelector('#token') !== null")
        browser.goto(address(site))
        assert browser.get("document.querySelector('main') === null")  # the session is over
        assert token not in site.log.read_text()
    finally:
        site.close()
