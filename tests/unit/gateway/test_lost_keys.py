"""The key of a board that was declared lost is refused; the board comes back with another one alone."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

import pytest
from bare_gateway import configured, running
from defects import Change, seeded
from headwater.data import msgpack
from headwater.protocol import frames
from headwater.protocol.sessions import Peer, hmac
from headwater.runtime import losses
from headwater.runtime.exchange import Exchange
from headwater_gateway import UserError, config, provision, refused
from headwater_gateway.boards import Boards, Deployment
from headwater_gateway.deployments import rebuild
from headwater_gateway.hosted import HostedProcess
from headwater_gateway.keys import load, write_secret
from headwater_gateway.losses import Losses
from headwater_gateway.service import Service
from headwater_tools.boards import fleet
from headwater_tools.demo.subprocesses import free_port

PROCESS = "one"
ENTRIES = 20
FLASH = 7


def nonce() -> int:
    return secrets.randbits(64)


def folder_of(service: Service, name: str) -> Path:
    return service.config.folder / "boards" / name


def site(folder: Path) -> config.Config:
    return configured(folder, "port = %d\n[http]\nport = 0\n" % free_port())


def register(service: Service, *names: str) -> None:
    for name in names:
        number = service.boards.add(name).number
        write_secret(folder_of(service, name) / "board.key", service.keys.board(number))


def reports(service: Service, key: bytes, log: int) -> None:
    """A board with this key reports over the site link, as if its flash had this log number."""
    sent: list[bytes] = []
    publish, service.boards.publish = service.boards.publish, lambda _, frame: sent.append(frame)
    peer = Peer(hmac(key, b"headwater site"), 1, log, 1, 0, bytes(8), nonce)
    writer = frames.Writer(fleet.FRAME_MAX)
    for _ in range(3):  # the first frames open the session
        peer.begin(writer)
        writer.put(frames.STATUS, msgpack.dumps({"boot": 1, "up": 3}))
        service.boards.receive("a", bytes(peer.seal(writer)))
        while reply := peer.take_reply():
            service.boards.receive("a", bytes(reply))
            while sent:
                peer.open(sent.pop(0))
    service.boards.publish = publish


def hosted_in(service: Service) -> HostedProcess:
    hosted = service.processes[PROCESS].hosted
    assert hosted is not None
    return hosted


async def taken(service: Service, key: bytes, log: int = 0) -> bool:
    """Whether the process takes entries of a board with this key. `log`: of its flash; 0: a new one."""
    hosted = hosted_in(service)
    board = fleet.Board("a", key, hosted.plan)
    if log:
        board.log = log
        board.peer = Peer(key, board.number, log, 2, 0, hosted.plan.hash, nonce)
    sent: list[bytes] = []
    publish, hosted.publish = hosted.publish, lambda name, frame: sent.append(frame) if name == "a" else None
    before = sum(end.taken for end in service.ends.all.values())
    for turn in range(8):
        board.say(frames.BEAT, 0, 1)
        if board.asked:
            board.out.append(board.entries(ENTRIES))
        for frame in board.out:
            service._take("hw/g/b" if turn % 2 else "hw/g/a", frame)  # a name in a topic proves nothing
        board.out.clear()
        service._drained()
        hosted.tick()
        await service.db.flushed()
        for frame in sent:
            board.receive(frame)
        sent.clear()
    hosted.publish = publish
    return sum(end.taken for end in service.ends.all.values()) > before


def keys_of(data: bytes, key: bytes) -> dict[int, bytes]:
    """What a board of that key takes from a deployment: number of a host -> key."""
    _, _, shared = msgpack.loads(data)
    found = {}
    for host, number, masked in shared:
        pad = hmac(key, b"headwater mask", number.to_bytes(8, "big"))
        found[host] = bytes(a ^ b for a, b in zip(masked, pad, strict=True))
    return found


async def history(folder: Path) -> None:
    """A board is lost, a thief speaks with its key, the gateway restarts, and the board gets another key."""
    settings = site(folder)
    async with running(settings) as service:
        register(service, "a", "b")
        former = service.keys.board(service.boards.all["a"].number)
        other = service.keys.board(service.boards.all["b"].number)
        await service.deploy(fleet.plan(PROCESS, ["a", "b"], ENTRIES))
        reports(service, former, FLASH)
        assert await taken(service, former)
        assert service.losses.declare("a", True)["declared"]
        assert not service.dropped().get(refused.REVOKED)
        assert not await taken(service, former), "it came back with an erased flash"
        assert service.dropped()[refused.REVOKED]
        assert losses.away(hosted_in(service).host, 1), "the gateway would wait for an answer of the thief"
        with pytest.raises(UserError, match="declared lost already"):
            service.losses.declare("a", True)
    async with running(settings) as service:  # the gateway knows it after a restart
        a, b = service.boards.all["a"], service.boards.all["b"]
        assert service.link_of(a) == "declared lost"
        assert not await taken(service, former)
        reports(service, former, FLASH + 1)
        assert a.is_lost and not a.heard and service.boards.dropped[refused.REVOKED]
        service.hear(hosted_in(service))
        told = [event["text"] for event in service.alarms()["events"]]
        assert sum("board a was declared lost, and speaks" in text for text in told) == 1

        wanted = b.wanted
        assert wanted is not None
        service.losses.readmit(a)
        key = service.keys.board(a.number)
        assert key != former and not await taken(service, former)
        # The others get the same process with the new keys.
        assert b.wanted is not None and b.wanted.id != wanted.id and b.wanted.plan == wanted.plan
        pair = service.keys.pair(a.number, b.number)
        assert keys_of(b.wanted.data, other)[1] == pair != keys_of(wanted.data, other)[1]
        # Its former flash is refused under the new key too.
        reports(service, key, FLASH)
        assert a.is_lost and not a.revoked and not await taken(service, key, FLASH)
        reports(service, key, FLASH + 2)
        assert not a.is_lost and a.heard and await taken(service, key)
    async with running(settings) as service:
        assert not service.boards.all["a"].is_lost
        assert await taken(service, key) and not await taken(service, former)


def test_a_lost_board_is_refused_by_its_key_until_it_has_another(tmp_path: Path) -> None:
    asyncio.run(asyncio.wait_for(history(tmp_path), 120))


@pytest.mark.parametrize(
    "defect",
    [
        (Exchange, "receive", "or sender in self.lost", "or 0"),
        (losses, "away", "or number in host.exchange.lost", "or 0"),
        (Boards, "_open", "if board.revoked or peer.live", "if peer.live"),
        (Losses, "seat", "if board.revoked:", "if 0:"),
        (Losses, "readmit", "service.want_again(process)", "pass"),
    ],
)
def test_without_one_rule_that_fails(defect: Change, tmp_path: Path) -> None:
    with seeded([defect]), pytest.raises(AssertionError):
        asyncio.run(asyncio.wait_for(history(tmp_path), 120))


def test_a_rebuilt_database_refuses_the_key_of_a_lost_board(tmp_path: Path) -> None:
    settings = site(tmp_path)
    service = Service(settings)
    register(service, "a", "b")
    former = service.keys.board(service.boards.all["a"].number)
    service.db.close()
    provision.revoke(tmp_path, "a")
    for lost in (True, False):  # the database; or the copy in its place is older
        if lost:
            rebuild.database(settings).unlink()
        made = Service(settings, True)
        a = made.boards.all["a"]
        assert a.revoked and a.is_lost and not a.learn and made.boards.all["b"].learn
        reports(made, former, FLASH)
        assert not a.heard and made.boards.dropped[refused.REVOKED]
        made.db.close()


def test_a_board_whose_folder_has_a_later_key_has_its_number(tmp_path: Path) -> None:
    settings = site(tmp_path)
    service = Service(settings)
    register(service, "a", "b")
    service.db.close()
    write_secret(folder_of(service, "a") / "board.key", load(tmp_path / "secrets" / "master.key").board(9))
    made = Service(settings, True)
    assert made.boards.numbers == {"a": 9, "b": 2} and made.boards.add("c").number > 9
    made.db.close()


def test_a_lost_board_gets_its_new_key_from_a_gateway_that_runs_and_changes_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        settings = site(tmp_path)
        async with running(settings) as service:
            register(service, "a", "b")
            a, b = service.boards.all["a"], service.boards.all["b"]
            reports(service, service.keys.board(a.number), FLASH)
            await service.deploy(fleet.plan(PROCESS, ["a", "b"], ENTRIES))
            await service.db.flushed()
            service.losses.declare("a", True)
            service.undeploy(PROCESS)
            with pytest.raises(UserError, match="is being undeployed"):
                service.losses.readmit(a)
            service.cancel(PROCESS)
            number = a.number
            b.leaving = Deployment(
                service.processes[PROCESS].plan,
                ["gateway", "a", "b"],
                "b",
                service.boards.numbers,
                service.keys,
            )
            with pytest.raises(UserError, match="and b has to switch .* nothing was changed"):
                service.losses.readmit(a)
            assert a.number == number
        with pytest.raises(UserError, match="only a gateway that runs"):
            rebuild.registered(settings, service.keys, "a", True)

    asyncio.run(asyncio.wait_for(test(), 120))
