"""The whole gateway with Bluetooth and without a broker: sealed frames, both of its names, passing on."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from bare_gateway import configured, running
from ble_board import BleBoard, run, until
from headwater.data import msgpack
from headwater.offboard.reasons import OF_CONNECTIONS
from headwater.plan import model as plans
from headwater.protocol import ble_carrier, frames
from headwater.protocol.sessions import Peer
from headwater_gateway.bluetooth import ways
from headwater_gateway.bluetooth.radio import BleakRadio
from headwater_gateway.service import Service
from headwater_gateway.web.metrics import Metrics
from headwater_tools import environment
from headwater_tools.boards import fleet
from headwater_tools.demo.subprocesses import free_port
from headwater_tools.radio.adapter import adapter
from headwater_tools.radio.air import Radio
from headwater_tools.radio.bleak_backend import Client, Scanner
from paho.mqtt.enums import CallbackAPIVersion

pytestmark = pytest.mark.bluetooth

NAMES = ("a", "b")
ENTRIES = 20
TOML = "port = %d\n[http]\nport = 0\n[bluetooth]\nenabled = true\n"


class Sealed(BleBoard):
    """Its frames are those of a board of the process: `fleet.Board` makes and opens them."""

    process: fleet.Board
    site: Peer

    def _take(self, _carrier: object, sender: str, frame: Any) -> bool:
        if sender == "s":
            self.got.append(bytes(frame))
            return True
        if sender != "g":
            self.got.append(sender.encode() + b":" + bytes(frame))
            return False
        self.process.receive(bytes(frame))
        self.send()
        return True

    def send(self) -> None:
        self.waits += self.process.out
        self.process.out = []


@asynccontextmanager
async def site(
    folder: Path, monkeypatch: pytest.MonkeyPatch, port: int = 1
) -> AsyncIterator[tuple[Radio, Service, dict[str, Sealed]]]:
    air = Radio()
    device, _ = await adapter(air, "F0:00:00:00:00:FE")
    made = BleakRadio("", Scanner.of(device), Client.of(device))
    monkeypatch.setattr(ways, "radio", lambda _adapter: made)
    boards: dict[str, Sealed] = {}
    try:
        async with running(configured(folder, TOML % port)) as service:
            for name in NAMES:
                service.boards.add(name)
            await service.deploy(fleet.plan("one", NAMES, ENTRIES))
            plan = plans.loads(service.processes["one"].plan)
            for name in NAMES:
                number = service.boards.all[name].number
                boards[name] = await Sealed.make(air, name, service.keys.bluetooth())  # type: ignore[assignment]
                boards[name].carrier.knows(NAMES)
                boards[name].process = fleet.Board(name, service.keys.board(number), plan)
                boards[name].process.peer.hide(True)
            yield air, service, boards
    finally:
        for board in boards.values():
            board.off()


def taken(service: Service) -> dict[str, int]:
    return {end.lake: end.taken for end in service.ends.all.values()}


def test_entries_of_boards_without_a_network_reach_the_database_and_are_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with site(tmp_path, monkeypatch) as (air, service, boards):
            for board in boards.values():
                board.process.say(frames.BEAT, 0, 1)
                board.send()
            await until(lambda: all(board.process.asked for board in boards.values()))
            for board in boards.values():
                for _ in range(10):
                    board.say(board.process.entries(ENTRIES))
            await until(lambda: taken(service) == {"one/a": 10 * ENTRIES, "one/b": 10 * ENTRIES})
            await until(lambda: all(board.process.safe == 10 * ENTRIES for board in boards.values()))
            view = service.snapshot()["bluetooth"]
            assert set(view["connected"]) <= set(NAMES) and view["connects"] >= 2 and not view["problem"]
            assert service.ways and not service.ways.bluetooth.ended[ble_carrier.MUTE]
            told = {family.name: family for family in Metrics(service).collect()}
            assert told["headwater_bluetooth_connects"].samples[0].value >= 2
            assert told["headwater_bluetooth_scanner_up"].samples[0].value == 1
            over = {
                each.labels["board"]: each.value for each in told["headwater_board_over_bluetooth"].samples
            }
            assert over == dict.fromkeys(NAMES, 1)
            # What the labels say is known before anything ends or fails.
            reasons = {each.labels["reason"] for each in told["headwater_bluetooth_ended"].samples}
            assert reasons == {text for text in OF_CONNECTIONS if text}
            # The broker is away; a board that is heard over Bluetooth counts all the same.
            assert service.ways.via("a") == "bluetooth" and service.ways.listens("a")
            service.ways.radio.problem = "the adapter is missing"  # type: ignore[union-attr]
            assert not service.ways.listens("a")
            assert service.observer.facts().bluetooth_problem == "the adapter is missing"

    run(test)


def test_a_connection_whose_frames_have_no_seal_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with site(tmp_path, monkeypatch) as (_, service, boards):
            plan = plans.loads(service.processes["one"].plan)
            board = boards["a"]
            board.process = fleet.Board("a", b"x" * 32, plan)  # knows the site's tags, and no key of a board
            board.process.peer.hide(True)
            assert service.ways
            # Neither end proves anything to the other; whichever notices first closes.
            both = (service.ways.bluetooth, board.carrier)
            while not sum(carrier.ended[ble_carrier.MUTE] for carrier in both):
                board.process.say(frames.BEAT, 0, 1)
                board.send()
                await asyncio.sleep(0.5)
            assert service.dropped() and "one/a" not in taken(service)

    run(test)


def test_the_site_link_goes_over_bluetooth_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with site(tmp_path, monkeypatch) as (_, service, boards):
            number = service.boards.all["a"].number
            board = boards["a"]
            peer = Peer(service.keys.site(number), 1, 7, 1, 0, bytes(8), lambda: 5)
            peer.hide(True)
            writer = frames.Writer(fleet.FRAME_MAX)
            status = msgpack.dumps({"boot": 1, "up": 3})

            def tell() -> None:
                peer.begin(writer)
                writer.put(frames.STATUS, status)
                board.carrier.send("s", bytes(peer.seal(writer)))
                reply()

            def reply() -> None:
                answer = peer.take_reply()
                if answer:
                    board.carrier.send("s", bytes(answer))

            board.process.say(frames.BEAT, 0, 1)
            board.send()
            await until(lambda: board.carrier.reaches("s"))
            while not service.boards.all["a"].heard:
                tell()
                await asyncio.sleep(0.3)
                for frame in board.got:
                    peer.open(frame)
                    reply()
                board.got.clear()

    run(test)


def test_frames_between_boards_are_passed_on_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with site(tmp_path, monkeypatch) as (_, service, boards):
            for board in boards.values():
                board.process.say(frames.BEAT, 0, 1)
                board.send()
            a, b = boards["a"], boards["b"]
            while b"a:for b" not in b.got:
                if a.carrier.reaches("b"):
                    a.carrier.send("b", b"for b")
                for board in boards.values():  # both stay connected while they have something to say
                    board.process.say(frames.BEAT, 0, 1)
                    board.send()
                await asyncio.sleep(0.2)
            assert service.snapshot()["bluetooth"]["relayed"] > 0

    run(test)


class AtBroker:
    """A board that has a network, and no Bluetooth."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.got: list[tuple[str, bytes]] = []
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv311)
        self.client.on_message = lambda _client, _, m: self.got.append((m.topic, bytes(m.payload)))
        self.client.connect("localhost", port)
        self.client.subscribe("hw/%s/+" % name)
        self.client.loop_start()

    def send(self, to: str, frame: bytes) -> None:
        self.client.publish("hw/%s/%s" % (to, self.name), frame)

    def off(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[int]:
    port = free_port()
    conf = tmp_path / "mosquitto.conf"
    conf.write_text("listener %d localhost\nallow_anonymous true\n" % port)
    process = subprocess.Popen([*environment.mosquitto(), "-c", str(conf)])
    try:
        yield port
    finally:
        process.terminate()
        process.wait()


def test_frames_pass_between_a_board_without_a_network_and_one_without_bluetooth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broker: int
) -> None:
    async def test() -> None:
        async with site(tmp_path, monkeypatch, broker) as (_, service, boards):
            assert service.ways
            await until(lambda: service.link and service.link.up)
            a, b = boards["a"], AtBroker("b", broker)
            boards["b"].off()
            there, back = bytes((frames.VERSION | frames.ENCRYPTED,)) + b"there", b"\x21back"
            while ("hw/b/a", there) not in b.got or b"b:" + back not in a.got:
                if a.carrier.reaches("b"):
                    a.carrier.send("b", there)
                b.send("a", back)
                b.send("a", b"\1in clear")
                a.process.say(frames.BEAT, 0, 1)
                a.send()
                await asyncio.sleep(0.2)
            assert not [frame for frame in a.got if b"clear" in frame] and service.ways.bare
            assert {topic for topic, _ in b.got} <= {"hw/b/a", "hw/b/g", "hw/b/s"}
            # A board that is heard at the broker gets its frames there.
            service.ways.came("g", "a", bytes(sealed(a)))
            await until(lambda: not service.ways.broker.away)
            passed = service.ways.relayed
            b.send("a", back)
            await asyncio.sleep(0.5)
            assert service.ways.relayed == passed
            b.off()

    run(test)


def sealed(board: Sealed) -> bytes:
    """Its next frame, as it leaves."""
    board.process.say(frames.BEAT, 0, 1)
    return board.process.out.pop()
