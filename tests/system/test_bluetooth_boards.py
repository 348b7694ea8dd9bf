"""Boards with Bluetooth: the board's own program on the real NimBLE host, and the gateway's real service at
the other end of the virtual radio, in its thread."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gateway_site import Site as Parts
from headwater_gateway import provision
from headwater_gateway.bluetooth import radio as driver
from headwater_gateway.bluetooth import ways
from headwater_gateway.bluetooth.radio import BleakRadio
from headwater_gateway.service import Service
from headwater_tools import environment
from headwater_tools.boards.on_board.board_sensors import wave
from headwater_tools.boards.virtual import VirtualBoard
from headwater_tools.radio.adapter import adapter
from headwater_tools.radio.air import Verdict
from headwater_tools.radio.antenna import Antenna
from headwater_tools.radio.bleak_backend import Client, Scanner
from headwater_tools.radio.station import Station
from site_gateway import until

pytestmark = pytest.mark.bluetooth

PATIENCE_S = 180  # this machine starves processes for seconds
GATEWAY = "F0:00:00:00:00:FE"
PROCESS = """
from headwater.process import Affine, Process
p = Process("one", checkpoints="ecoc", every=100, batch=50)
accel = p.source("accel", "x:i16 y:i16", rate_hz=50, on="chest")
p.lake("one/accel", accel)
%s
"""


class Site(Parts):
    service: Service
    antenna: Antenna

    def __init__(self, folder: Path, station: Station, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, "[bluetooth]\nenabled = true\n")
        self.station, self.monkeypatch = station, monkeypatch
        self.heard = bytearray()  # what a listener hears
        station.radio.judge = self._listen

    def _listen(self, _sender: Antenna, _receiver: Antenna, fragment: bytes) -> Verdict:
        self.heard += fragment
        return Verdict.PASS

    def start(self) -> None:
        """The gateway."""
        self.station.run(self._start())

    async def _start(self) -> None:
        device, self.antenna = await adapter(self.station.radio, GATEWAY)
        radio = BleakRadio("", Scanner.of(device), Client.of(device))
        self.monkeypatch.setattr(ways, "radio", lambda _adapter: radio)
        self.service = Service(self.config)
        await self.service.start()

    def with_bluetooth(
        self, name: str, broker: bool = False, sensors: bool = True, **settings: bool
    ) -> VirtualBoard:
        driver = {"driver": "wave", "t0_us": time.time_ns() // 1000, "seed": 3}
        made = self.board(name, {"accel": driver} if sensors else {})
        home = self.folder / "boards" / name
        before = json.loads((home / "config.json").read_text())
        provision.links(self.folder, name, "on" if broker else "only", False)
        links = json.loads((home / "config.json").read_text())
        file = made.folder / "config.json"
        config = json.loads(file.read_text()) | {"bluetooth": {**links["bluetooth"], **settings}}
        assert before["broker"] and bool(links["broker"]) is broker
        if not broker:
            config["broker"] = {}
        file.write_text(json.dumps(config))
        (made.folder / "bluetooth.key").write_bytes((home / "bluetooth.key").read_bytes())
        made.radio = self.station
        return made

    def deploy(self, more: str = "") -> None:
        (self.folder / "one.py").write_text(PROCESS % more)
        self.hw("deploy", "one.py", "--wait", "60")

    def durable(self, more: int, stream: str = "one/accel") -> None:
        """So much more is in the gateway's database."""
        until(lambda: self.stream(stream)["durable"] >= more, PATIENCE_S, self.said)

    def more(self, count: int, stream: str = "one/accel") -> None:
        self.durable(self.stream(stream)["durable"] + count, stream)

    def meet(self, one: str, other: str) -> None:
        """These two boards are connected."""
        radio, antennas = self.station.radio, self.station.antennas
        connected = lambda: radio.between(antennas[one], antennas[other]) is not None  # noqa: E731
        until(lambda: self.station.do(connected), PATIENCE_S, self.said)

    def said(self) -> str:
        view = self.station.do(lambda: self.service.ways and self.service.ways.view())
        boards = ["%s:\n  %s" % (b.name, "\n  ".join(list(b.lines)[-30:])) for b in self.boards.values()]
        return "\n".join([*boards, str(view)])

    def complete(self, board: VirtualBoard, stream: str = "one/accel", times: int = 1) -> int:
        """The board stops, and comes back: every sample that it accepted reaches a segment; how many."""
        board.kill()
        last = max(a.xi + a.n - 1 for a in board.accepted())
        board.start()
        until(lambda: self.stream(stream)["cut"] >= last, PATIENCE_S, self.said)
        rows = list({(row["incarnation"], row["xi"]): row for row in self.rows(stream)}.values())
        found = {row["ts_us"]: row["ints"] for row in rows}
        assert len(found) == len(rows)  # each once
        count = 0
        for batch in board.accepted():
            for i in range(min(batch.n, last + 1 - batch.xi)):
                ints = [times * wave(batch.first + i, k, 3) for k in range(2)]
                assert found[batch.ts + i * batch.dt] == ints
                count += 1
        return count

    def close(self) -> None:
        super().close()
        self.station.run(self.service.stop())


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    environment.ensure("gateway")
    with Station() as station:
        site = Site(tmp_path / "site", station, monkeypatch)
        site.start()
        try:
            yield site
        finally:
            site.close()


def test_a_board_without_a_network_loses_nothing_when_power_fails(site: Site) -> None:
    board = site.with_bluetooth("chest")
    board.start()
    site.deploy()
    site.durable(100)
    for _ in range(2):
        board.kill()
        board.start()
        site.more(100)
    assert site.complete(board) >= 300
    assert site.service.ways and site.service.ways.view()["connects"] >= 3  # type: ignore[index]
    # Nothing that a listener knows from elsewhere: words of a status, names of the process.
    assert len(site.heard) > 5000
    for word in (b"backlog", b"version", b"chest", b"one/accel"):
        assert word not in site.heard


def test_a_board_that_allows_it_has_le_secure_connections(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "PAIR_AGAIN_S", 0.0)  # a machine that is too slow once tries again
    board = site.with_bluetooth("chest", pairing=True)
    board.start()
    site.deploy()
    site.durable(100)
    radio = site.service.ways and site.service.ways.radio
    assert radio
    until(lambda: radio.paired, PATIENCE_S, site.said)
    assert site.complete(board) >= 100


def test_connections_that_are_cut_again_and_again_lose_nothing(site: Site) -> None:
    board = site.with_bluetooth("chest")
    board.start()
    site.deploy()
    site.durable(50)
    site.station.radio.loss = 0.2
    cuts = 0
    while cuts < 5:
        site.more(20)
        cuts += site.station.cut("chest")
    antenna = site.station.antennas["chest"]
    site.station.radio.silence(antenna)
    time.sleep(8)  # longer than the supervision timeout
    site.station.do(lambda: site.station.radio.silence(antenna, False))
    site.more(200)
    site.station.radio.loss = 0.0
    assert site.complete(board) >= 300
    assert not any(" crashed: " in line for line in board.lines)


def test_a_firmware_without_bluetooth_says_so(site: Site) -> None:
    board = site.with_bluetooth("chest")
    board.radio = None
    board.start()
    said = board.wait_for(" crashed: ", PATIENCE_S)
    assert "bluetooth is enabled, and this firmware lacks what it needs" in said
    assert "flash one that has it, or set bluetooth.enabled to false" in said


def test_the_broker_goes_away_and_comes_back_while_a_board_has_both_links(site: Site) -> None:
    site.start_broker()
    board = site.with_bluetooth("chest", broker=True)
    board.start()
    site.deploy()
    site.durable(100)
    site.stop_broker()
    site.more(200)
    assert site.service.ways and site.service.ways.view()["connects"] >= 1  # type: ignore[index]
    site.start_broker()
    until(lambda: site.station.do(lambda: site.service.link and site.service.link.up), PATIENCE_S)
    site.more(200)
    assert site.complete(board) >= 500


def test_boards_speak_to_each_other_while_the_gateway_is_out_of_reach(site: Site) -> None:
    chest, wrist = site.with_bluetooth("chest"), site.with_bluetooth("wrist", sensors=False)
    chest.start()
    wrist.start()
    site.deploy('p.lake("one/twice", accel >> Affine(num=2).named("twice").on("wrist"))')
    site.durable(100, "one/twice")
    site.station.do(lambda: site.station.radio.silence(site.antenna))
    site.meet("chest", "wrist")
    time.sleep(3)
    site.station.do(lambda: site.station.radio.silence(site.antenna, False))
    site.more(200, "one/twice")
    assert site.complete(chest, "one/twice", 2) >= 300


def test_a_board_to_which_others_connect_loses_power_again_and_again(site: Site) -> None:
    chest, wrist = site.with_bluetooth("chest"), site.with_bluetooth("wrist", sensors=False)
    chest.start()
    wrist.start()
    site.deploy('p.lake("one/twice", accel >> Affine(num=2).named("twice").on("wrist"))')
    site.durable(50, "one/twice")
    site.station.do(lambda: site.station.radio.silence(site.antenna))
    for rest_s in (0, 1, 12):
        site.meet("chest", "wrist")
        wrist.kill()
        time.sleep(rest_s)
        wrist.start()
    site.meet("chest", "wrist")
    site.station.do(lambda: site.station.radio.silence(site.antenna, False))
    site.more(100, "one/twice")
    assert site.complete(chest, "one/twice", 2) >= 200
    assert not any(" crashed: " in line for board in site.boards.values() for line in board.lines)
