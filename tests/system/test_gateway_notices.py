"""Alarms of a real gateway at a real broker and a real HTTP server, through kills and failures of both."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from gateway_site import Site, until
from headwater_tools import environment
from paho.mqtt.enums import CallbackAPIVersion

SETTINGS = """
[notices]
repeat_s = 0
heartbeat_s = 1
[webhook]
url = "http://127.0.0.1:%d/alarms"
secret_file = "secrets/webhook"
timeout_s = 2
retry_max_s = 1
"""
RARE = """
from headwater.process import Process, Threshold
p = Process("one", checkpoints="ecoc", every=60, batch=50)
accel = p.source("accel", "x:i16", rate_hz=20, on="wrist")
p.lake("one/rare", accel >> Threshold(high=32000, low=31000), within_ms=3500)
"""
SECRET = "Bearer 6b1f-not-in-any-log"


class Server:
    """Answers with `status`, after `pause_s` or at `answers`; remembers what came and what it accepted."""

    def __init__(self) -> None:
        self.status = 204
        self.pause_s = 0.0
        self.answers = threading.Event()  # set: no answer waits any more
        self.came: list[dict[str, Any]] = []
        self.accepted: list[dict[str, Any]] = []
        self.secrets: set[str | None] = set()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                notice = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.secrets.add(self.headers["Authorization"])
                assert self.headers["Idempotency-Key"] == notice["id"]
                server.came.append(notice)
                status = server.status
                server.answers.wait(server.pause_s)
                if status == 204:
                    server.accepted.append(notice)
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                except OSError:
                    pass  # the gateway was killed meanwhile

            def log_message(self, *words: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.05,))
        self.thread.start()

    def close(self) -> None:
        self.answers.set()
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


class Listener:
    """A client of the broker: what comes, and what is retained."""

    def __init__(self, site: Site, user: str, password: str, topic: str) -> None:
        self.came: list[tuple[str, bytes]] = []
        self.retained: dict[str, bytes] = {}
        self.granted: list[bool] = []
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv311)
        self.client.username_pw_set(user, password)
        self.client.tls_set(str(site.folder / "tls" / "ca.crt"))
        self.client.reconnect_delay_set(1, 1)
        self.client.on_connect = lambda client, *_: client.subscribe(topic, 1)
        self.client.on_subscribe = lambda c, u, m, reasons, p: self.granted.append(not reasons[0].is_failure)
        self.client.on_message = self._message
        self.client.connect("localhost", site.port, 10)
        self.client.loop_start()

    def _message(self, client: Any, userdata: Any, message: Any) -> None:
        self.came.append((message.topic, message.payload))
        self.retained[message.topic] = message.payload

    def notices(self) -> list[dict[str, Any]]:
        return [json.loads(payload) for topic, payload in self.came if topic == "hw/w/g/notices"]

    def on(self) -> set[str]:
        head = "hw/w/g/on/"
        return {topic[len(head) :] for topic, p in self.retained.items() if topic.startswith(head) and p}

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture
def listener(site: Site, server: Server) -> Iterator[Listener]:
    with open(site.config_file, "a") as file:
        file.write(SETTINGS % server.http.server_port)
    secret = site.folder / "secrets" / "webhook"
    secret.touch(mode=0o600)
    secret.write_text(SECRET + "\n")
    board = site.board("wrist", {})
    site.start_broker()
    password = json.loads((site.folder / "watcher" / "config.json").read_text())["broker"]["password"]
    made = Listener(site, "watcher", password, "hw/w/g/#")
    yield made
    made.close()
    assert not board.running()


def first(notices: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """What arrived, without doubles; those are equal."""
    found: dict[str, dict[str, Any]] = {}
    for notice in notices:
        assert found.setdefault(notice["id"], notice) == notice
    return [(notice["alarm"], notice["what"]) for notice in found.values()]


def trouble(site: Site, on: bool) -> None:
    """Take away the landing zone, or give it back: the alarm `segments`."""
    landing = site.folder / "landing"
    away = site.folder / "landing.away"
    if on:
        landing.rename(away)
        landing.write_text("this is no folder")
    else:
        landing.unlink()
        away.rename(landing)


def pulse(listener: Listener) -> tuple[str, int]:
    """State and boot of the newest heartbeat."""
    beat = json.loads(listener.retained["hw/w/g/heartbeat"])
    return beat["state"], beat["boot"]


def alarms(site: Site) -> set[str]:
    state = site.state()
    assert state is not None
    return {alarm["id"] for alarm in state["alarms"]}


def told(notices: list[dict[str, Any]], count: int) -> list[str]:
    """What arrived of the alarm `segments`, if it is as much as that."""
    found = [what for alarm, what in first(notices) if alarm == "segments"]
    return found if len(found) >= count else []


def test_every_notice_arrives_in_order_while_gateway_and_receiver_are_killed_and_fail(
    site: Site, server: Server, listener: Listener
) -> None:
    # Boards cannot speak as the gateway, and the watcher cannot speak at all.
    config = json.loads((site.folder / "boards" / "wrist" / "config.json").read_text())
    board = Listener(site, "wrist", config["broker"]["password"], "hw/w/g/#")
    until(lambda: board.granted and listener.granted)
    for client in (board.client, listener.client):
        for topic in ("hw/w/g/notices", "hw/w/g/heartbeat", "hw/g/watcher"):
            client.publish(topic, b"{}", 1).wait_for_publish(60)
    time.sleep(0.2)
    assert listener.came == []

    site.start_gateway()
    until(lambda: "hw/w/g/heartbeat" in listener.retained)
    words = [sys.executable, "-P", "-m", "headwater_tools", "gateway", "watch", str(site.folder / "watcher")]
    watch = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment.variables()
    )
    server.status, server.pause_s = 503, 0.0
    trouble(site, True)
    until(lambda: told(listener.notices(), 1) == ["began"])
    until(lambda: "segments" in listener.on())
    until(lambda: [n for n in server.came if n["alarm"] == "segments"])
    assert server.accepted == []
    shown = site.command("gateway", "alarms", ".").stdout
    assert "receiver webhook: 1 notice waits" in shown and "it answers with HTTP status 503" in shown

    # The server takes the notice, and the gateway is killed before it hears that.
    server.status, server.pause_s = 204, 60.0
    count = len(server.came)
    until(lambda: len(server.came) > count)
    site.kill_gateway(signal.SIGKILL)
    server.answers.set()
    assert watch.wait(120) == 1 and watch.stdout is not None
    assert "The gateway is gone: the broker has lost its connection." in watch.stdout.read()
    watch.stdout.close()
    assert pulse(listener) == ("gone", 1)

    # While it is dead the cause goes; the end is told, after a double of the beginning.
    trouble(site, False)
    server.pause_s = 0.0
    site.start_gateway()
    assert until(lambda: told(server.accepted, 2)) == ["began", "ended"]
    assert until(lambda: told(listener.notices(), 2)) == ["began", "ended"]
    until(lambda: "segments" not in listener.on())
    ids = [notice["id"] for notice in server.accepted if notice["alarm"] == "segments"]
    assert len(ids) == 3 and ids[0] == ids[1]
    until(lambda: pulse(listener) == ("alive", 2))
    assert board.came == []
    board.close()

    # What the server refuses is parked, told by the other receiver, and sent again when a person asks for it.
    server.status = 404
    trouble(site, True)
    until(lambda: "receiver.refused/webhook" in listener.on())
    assert "receiver.refused/webhook" in alarms(site)
    server.status = 204
    site.hw("gateway", "alarms", ".", "--retry", "webhook", code=1)
    assert until(lambda: told(server.accepted, 3)) == ["began", "ended", "began"]
    until(lambda: "receiver.refused/webhook" not in listener.on())
    assert not any(notice["alarm"].startswith("receiver.") for notice in server.came)

    assert site.kill_gateway(signal.SIGTERM) == 0
    until(lambda: pulse(listener) == ("stopped", 2))
    # The same notices with the same ids at both, and the secret in no log.
    here = {n["id"]: n["what"] for n in server.accepted if n["alarm"] == "segments"}
    there = {n["id"]: n["what"] for n in listener.notices() if n["alarm"] == "segments"}
    assert here == there and server.secrets == {SECRET}
    assert SECRET.split()[1] not in site.log.read_text()
    assert not secret_in(site.folder / "data")


def secret_in(folder: Path) -> bool:
    return any(SECRET.split()[1].encode() in path.read_bytes() for path in folder.iterdir() if path.is_file())


def test_a_stream_that_has_nothing_to_say_is_not_silent_until_its_board_is(site: Site) -> None:
    site.start_broker()
    site.start_gateway()
    board = site.wave_board()
    board.start()
    (site.folder / "one.py").write_text(RARE)
    site.hw("deploy", "one.py")
    until(lambda: site.state()["processes"]["one"]["step"] == "runs")  # type: ignore[index]
    seen: set[str] = set()
    end = time.monotonic() + 6  # longer than the delay that is asked for, and two reports
    while time.monotonic() < end:
        seen |= alarms(site)
        time.sleep(0.3)
    assert "stream.silent/one/rare" not in seen and site.stream("one/rare")["durable"] == 0
    board.stop()
    until(lambda: "stream.silent/one/rare" in alarms(site))
    board.start()
    until(lambda: "stream.silent/one/rare" not in alarms(site))
