"""What a gateway takes in: blocks for the lake pass through as they came, nothing else gets in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from bare_gateway import configured
from headwater.protocol import frames
from headwater_gateway.board_link import BufferedClient
from headwater_gateway.database.engine import Database
from headwater_gateway.database.outbox import OutboxStreams, records
from headwater_gateway.hosted import HostedProcess
from headwater_gateway.keys import Keys
from headwater_gateway.service import Service
from headwater_tools.boards import fleet
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

KEYS = Keys(bytes(32))
NUMBERS = {"a": 1, "b": 2}


class Bench:
    """A hosted process on a database, and two boards that speak to it without a broker."""

    def __init__(self, folder: Path, max_bytes: int = 0) -> None:
        self.db = Database(folder / "gateway.db", lambda: 1, max_bytes)
        self.ends = OutboxStreams(self.db)
        data = fleet.plan("one", list(NUMBERS), 50)
        self.sent: list[tuple[str, bytes]] = []
        self.hosted = HostedProcess(
            self.db, self.ends, KEYS, data, NUMBERS, lambda to, f: self.sent.append((to, f)), 1, lambda *a: 0
        )  # fmt: skip
        plan = self.hosted.plan
        self.boards = {name: fleet.Board(name, KEYS.board(number), plan) for name, number in NUMBERS.items()}
        for board in self.boards.values():
            while not board.asked:
                board.say(frames.BEAT, 0, 1)
                self.run()
        self.run()

    def run(self) -> None:
        """Let everything be said that is to be said."""
        busy = True
        while busy:
            busy = False
            for board in self.boards.values():
                frames, board.out = board.out, []
                for frame in frames:
                    self.hosted.receive(frame)
                    busy = True
            self.hosted.settle()
            self.db.commit()
            sent, self.sent = self.sent, []
            for name, frame in sent:
                self.boards[name].receive(frame)
                busy = True

    def taken(self) -> dict[str, int]:
        return {end.lake: end.taken for end in self.ends.all.values()}

    def close(self) -> None:
        self.db.abandon()


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    made = Bench(tmp_path)
    yield made
    made.close()


def test_next_entries_pass_through_as_they_came(bench: Bench) -> None:
    a = bench.boards["a"]
    frames = [a.entries(n) for n in (1, 50, 7)]
    for frame in frames:
        bench.hosted.receive(frame)
    bench.db.commit()
    data = b"".join(row[0] for row in bench.db.query("SELECT data FROM chunks"))
    blocks = list(records(data))
    assert all(
        block in frame for block, frame in zip(blocks, frames, strict=True) if isinstance(block, bytes)
    )
    assert bench.taken() == {"one/a": 58, "one/b": 0}


def test_a_safe_leaves_after_the_commit_and_not_before(bench: Bench) -> None:
    a = bench.boards["a"]
    bench.hosted.receive(a.entries(50))
    bench.hosted.host.safe_us = 0
    bench.hosted.pump()
    assert bench.sent == []
    bench.db.commit()
    bench.hosted.host.safe_us = 0
    bench.hosted.pump()
    bench.run()
    assert a.safe == 50


def test_repeats_forgeries_and_jumps_change_nothing(bench: Bench) -> None:
    a, b = bench.boards["a"], bench.boards["b"]
    first, second, third = a.entries(5), a.entries(5), a.entries(5)
    bench.hosted.receive(first)
    bench.hosted.receive(first)
    assert bench.taken()["one/a"] == 5
    changed = bytearray(second)
    changed[-12] ^= 1
    bench.hosted.receive(bytes(changed))
    stolen = bytearray(second)
    stolen[1] = b.number
    bench.hosted.receive(bytes(stolen))
    assert bench.taken() == {"one/a": 5, "one/b": 0}
    bench.hosted.receive(third)  # the second is missing: asked for again, not taken
    assert bench.taken()["one/a"] == 5
    bench.hosted.receive(second)
    assert bench.taken()["one/a"] == 10
    dropped = bench.hosted.dropped()
    assert dropped["seal: repeated"] == 1 and dropped["seal: wrong seal"] == 2


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 60), st.integers(0, 60), st.binary(max_size=8))
def test_any_bytes_are_taken_or_counted_and_nothing_is_raised(
    bench: Bench, at: int, cut: int, junk: bytes
) -> None:
    good = bench.boards["a"].entries(3)
    before = bench.taken()["one/a"]
    broken = good[:at] + junk + good[cut:]
    bench.hosted.receive(broken)
    assert bench.hosted.broken == 0
    assert bench.taken()["one/a"] == before + (3 if broken == good else 0)
    if broken != good:
        bench.hosted.receive(good)
        assert bench.taken()["one/a"] == before + 3


def test_a_full_disk_fills_the_queues_and_drops_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 1)
    a = bench.boards["a"]
    assert bench.db.full
    for _ in range(2):
        a.out.append(a.entries(50))
        bench.run()
    assert bench.taken()["one/a"] == 0 and a.safe == 0
    bench.db.max_bytes = 0
    bench.hosted.pump()
    assert bench.taken()["one/a"] == 100
    bench.close()


def test_paho_asks_for_bytes_where_we_answer_from_what_was_read() -> None:
    """The private names of paho that board_link.py leans on mean what they did."""

    class Socket:
        def __init__(self) -> None:
            surely = b"\x32\x0a\x00\x03t/y\x00\x07one"  # with QoS 1: acknowledged, as paho does it
            short = b"\x30\x03\x00\x09t"  # a topic of nine bytes, of which one is there
            self.parts = [surely + fleet.packet("t/x", b"two")[:4]]
            odd = b"\x30\x05\x00\x01\xffno"  # a topic that is no text
            odd_surely = b"\x32\x07\x00\x01\xff\x00\x08no"
            self.parts.append(fleet.packet("t/x", b"two")[4:] + odd + odd_surely + short)

        def recv(self, size: int) -> bytes:
            if not self.parts:
                raise BlockingIOError
            return self.parts.pop(0)

        def close(self) -> None:
            pass

    seen: list[tuple[str, bytes]] = []
    client = BufferedClient(lambda topic, payload: seen.append((topic, payload)))
    client._sock = Socket()  # type: ignore[assignment]
    assert client.loop_read() == mqtt.MQTT_ERR_SUCCESS and seen == [("t/y", b"one")] and client.unread
    assert len(client._out_packet) == 1  # the acknowledgement
    assert client.loop_read() == mqtt.MQTT_ERR_SUCCESS and seen[1:] == [("t/x", b"two")]
    for odd in ("\N{REPLACEMENT CHARACTER}", ""):
        assert client.loop_read() == mqtt.MQTT_ERR_SUCCESS and seen.pop() == (odd, b"no")
    assert client.unread and client.loop_read() == mqtt.MQTT_ERR_PROTOCOL and len(seen) == 2
    assert not client.unread
    client._sock = None


def service(folder: Path) -> Service:
    return Service(configured(folder))


def test_no_two_processes_share_a_board_or_a_stream(tmp_path: Path) -> None:
    import asyncio

    from headwater_gateway import UserError

    async def life() -> None:
        made = service(tmp_path)
        with pytest.raises(UserError, match="hw provision a"):
            await made.deploy(fleet.plan("one", ["a"], 50))
        for name in ("a", "b"):
            made.boards.add(name)
        data = fleet.plan("one", ["a"], 50)
        assert (await made.deploy(data))["state"] == "deployed"
        assert (await made.deploy(data))["state"] == "unchanged"
        with pytest.raises(UserError, match="runs process one"):
            await made.deploy(fleet.plan("two", ["a", "b"], 50))
        with pytest.raises(UserError, match="leaves out a"):
            await made.deploy(fleet.plan("one", ["b"], 50))
        with pytest.raises(UserError, match="this is not a plan"):
            await made.deploy(b"\x93")
        assert (await made.deploy(fleet.plan("one", ["a", "b"], 50)))["state"] == "draining"
        with pytest.raises(UserError, match="--cancel one"):
            await made.deploy(fleet.plan("one", ["a", "b"], 60))
        assert made.cancel("one")["state"] == "cancelled"
        with pytest.raises(UserError, match="not being changed"):
            made.cancel("one")
        await made.cutter.close()
        made.db.close()

    asyncio.run(life())
