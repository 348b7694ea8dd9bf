"""The link of a board, in real MicroPython, to a real Mosquitto: TLS, access, returns, garbage."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from headwater_tools import environment
from headwater_tools.boards.virtual import VirtualBoard
from site_gateway import Authority, Broker, Gateway, until


class Site:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.boards: list[VirtualBoard] = []
        self.broker = Broker(folder, {"wrist": "secret of wrist", "belt": "another secret"})
        self.broker.start()
        self.gateway = Gateway(self.broker, ["chest", "wrist", "belt"])

    def board(self, name: str, /, **broker: Any) -> VirtualBoard:
        place = self.folder / name
        certificate = broker.pop("certificate", True)
        key = broker.pop("key", self.gateway.key(name))
        settings = {**self.broker.settings(name, place, certificate), **broker}
        board = VirtualBoard(name, place, {"broker": settings, "status_s": 1}, key)
        self.boards.append(board)
        return board

    def close(self) -> None:
        for board in self.boards:
            board.kill()
        self.gateway.close()
        self.broker.stop()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    environment.ensure("gateway")
    site = Site(tmp_path)
    yield site
    site.close()


def test_board_links_over_verified_tls_and_tells_how_it_is(site: Site) -> None:
    board = site.board("chest")
    board.battery(3912)
    board.start()
    status = until(lambda: site.gateway.status.get("chest"))
    assert (status["boot"], status["plan"], status["battery"], status["crash"]) == (1, None, 3912, None)
    assert set(status) == {
        "backlog", "battery", "boot", "crash", "deployment", "dropped", "energy", "free", "log", "next",
        "plan", "refused", "rssi", "sleep", "state", "sync", "time", "up", "version", "waits",
    }  # fmt: skip


def test_board_may_come_with_user_and_password(site: Site) -> None:
    site.board("wrist", certificate=False).start()
    assert until(lambda: site.gateway.status.get("wrist"))


def test_what_does_not_check_is_no_link_and_the_reason_is_on_the_console(site: Site, tmp_path: Path) -> None:
    Authority(tmp_path / "other", "site").make("x")
    strange = site.board("chest")
    shutil.copyfile(tmp_path / "other" / "ca.der", strange.folder / "ca.der")
    elsewhere = site.board("wrist", name="broker.elsewhere")
    password = site.board("belt", certificate=False)
    for board in site.boards:
        board.start()
    strange.wait_for("no link (The certificate is not correctly signed by the trusted CA: look at broker.ca)")
    name = "no link (The certificate Common Name (CN) does not match with the expected CN: "
    elsewhere.wait_for(name + "look at broker.name)")
    password.wait_for("no link (refused by the broker: not allowed)")
    assert not site.gateway.status
    assert all(board.starts == 1 for board in site.boards)


def test_board_with_a_wrong_key_is_not_believed(site: Site) -> None:
    board = site.board("chest", key=bytes(32))
    board.start()
    board.wait_for("linked")
    until(lambda: sum(topic == "hw/s/chest" for topic, _ in site.gateway.frames) > 3)
    assert not site.gateway.status
    assert site.gateway.peers["chest"].counts[3] > 0  # wrong seal


def test_link_comes_back_when_the_broker_does(site: Site) -> None:
    board = site.board("chest")
    board.start()
    until(lambda: site.gateway.status.get("chest"))
    site.broker.stop()
    board.wait_for("no link (", after=len(board.lines))
    site.gateway.status.clear()
    site.broker.start()
    status = until(lambda: site.gateway.status.get("chest"))
    assert status["boot"] == 1
    assert not site.gateway.wills  # the broker died, not the board


def test_last_will_says_that_a_board_is_gone(site: Site) -> None:
    board = site.board("chest")
    board.start()
    until(lambda: site.gateway.status.get("chest"))
    assert not site.gateway.wills
    board.kill()
    until(lambda: site.gateway.wills == ["chest"])


def test_access_list_keeps_a_board_to_its_own_topics(site: Site) -> None:
    import paho.mqtt.client as mqtt

    site.broker.authority.make("belt")
    certs = site.broker.authority.folder
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id="belt")
    client.tls_set(*[str(certs / name) for name in ("ca.pem", "belt.pem", "belt.key.pem")])
    client.tls_insecure_set(True)
    heard: list[str] = []
    client.on_message = lambda client, userdata, message: heard.append(message.topic)
    client.on_connect = lambda client, *_: client.subscribe([("hw/#", 0), ("hw/belt/+", 0)])
    client.connect("127.0.0.1", site.broker.port)
    client.loop_start()
    try:
        until(client.is_connected)
        for topic in ("hw/g/chest", "hw/s/chest", "hw/belt/g", "hw/g/belt"):
            client.publish(topic, b"x")
        until(lambda: site.gateway.frames)
        site.gateway.client.publish("hw/chest/g", b"for another")
        site.gateway.client.publish("hw/belt/g", b"for us")
        until(lambda: heard)
        assert [topic for topic, _ in site.gateway.frames] == ["hw/g/belt"]
        assert heard == ["hw/belt/g"]
    finally:
        client.disconnect()
        client.loop_stop()


def test_garbage_on_its_topics_is_counted_and_changes_nothing(site: Site) -> None:
    board = site.board("chest")
    board.start()
    until(lambda: site.gateway.status.get("chest"))
    chance = random.Random(1)
    sent = 0
    for size in (0, 1, 5, 14, 40, 200, 512, 700, 5000, 60000):
        for sender in ("g", "s"):
            site.gateway.client.publish("hw/chest/" + sender, chance.randbytes(size))
            sent += sender == "s" or size > 600  # frames of a process are nobody's here
    until(lambda: site.gateway.status["chest"]["dropped"] >= sent, why="dropped less than %d" % sent)
    status = site.gateway.status["chest"]
    assert (status["boot"], status["crash"], board.starts) == (1, None, 1)
    before = status["up"]
    until(lambda: site.gateway.status["chest"]["up"] > before)
