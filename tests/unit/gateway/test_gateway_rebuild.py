"""A lost database: it is noticed, boards keep their numbers, and what runs is learned from the boards."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from bare_gateway import configured
from headwater.data import msgpack
from headwater.plan import reader
from headwater.protocol import frames
from headwater.protocol.site_link import AGAIN, DRAIN, DRAINED, DRAINING, PIECE_BYTES, RUN, RUNS
from headwater_gateway import UserError
from headwater_gateway.boards import Board, Deployment, register
from headwater_gateway.config import Config
from headwater_gateway.deployments import rebuild
from headwater_gateway.keys import Keys, load
from headwater_gateway.service import Service
from headwater_tools.boards import fleet


def home(config: Config, name: str, key: bytes) -> None:
    folder = config.folder / "boards" / name
    folder.mkdir(parents=True)
    (folder / "board.key").write_bytes(key)


def keys(config: Config) -> Keys:
    return load(config.folder / "secrets" / "master.key")


def test_a_folder_of_boards_without_a_database_is_told(tmp_path: Path) -> None:
    config = configured(tmp_path)
    rebuild.check(config)  # a new site
    (tmp_path / "boards" / "noted").mkdir(parents=True)
    rebuild.check(config)  # a folder without a key is no board's
    home(config, "wrist", keys(config).board(1))
    home(config, "chest", keys(config).board(2))
    with pytest.raises(UserError, match="gateway.db is missing.* chest, wrist: .*--rebuild"):
        rebuild.check(config)
    with pytest.raises(UserError, match="is missing"):
        Service(config)
    assert not rebuild.database(config).exists()
    rebuild.database(config).touch()
    with pytest.raises(UserError, match="gateway.db has no boards"):
        Service(config)
    Service(config, True).db.close()
    rebuild.check(config)
    Service(config).db.close()  # what was rebuilt stays


def test_boards_get_the_numbers_that_belong_to_their_keys(tmp_path: Path) -> None:
    config = configured(tmp_path)
    for name, number in (("wrist", 700), ("chest", 3)):
        home(config, name, keys(config).board(number))
    made = Service(config, True)
    assert made.boards.numbers == {"chest": 3, "wrist": 700}
    assert all(board.learn for board in made.boards.all.values())
    assert made.boards.add("hip").number == 701
    made.db.close()


def test_a_database_that_is_older_than_the_folders_gives_no_number_twice(tmp_path: Path) -> None:
    config = configured(tmp_path)
    made = Service(config)
    made.boards.add("wrist")
    made.db.close()
    home(config, "wrist", keys(config).board(1))
    home(config, "chest", keys(config).board(2))
    made = Service(config)
    assert made.boards.numbers == {"wrist": 1}
    assert register(made.db, "hip", 0) == 3
    made.db.close()
    made = Service(config, True)
    assert made.boards.numbers == {"wrist": 1, "chest": 2, "hip": 3}
    # An older copy: what it knows of the others may be outdated too.
    assert all(board.learn for board in made.boards.all.values())
    made.db.close()


def test_keys_that_fit_no_number_or_two_folders_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild, "NUMBER_MAX", 50)
    config = configured(tmp_path)
    home(config, "wrist", keys(config).board(1))
    home(config, "copy", keys(config).board(1))
    with pytest.raises(UserError, match="copy and wrist have the same board.key"):
        Service(config, True)
    (tmp_path / "boards" / "copy" / "board.key").write_bytes(bytes(32))
    with pytest.raises(UserError, match="boards/copy/board.key belongs to no board number .*master.key"):
        Service(config, True)
    with pytest.raises(UserError, match="belongs to no board number"):
        Service(config, True)  # and it has let go of the database


class Site:
    """A gateway without broker after the loss of its database, and boards a and b as it hears them."""

    def __init__(self, folder: Path) -> None:
        self.config = configured(folder)
        for number, name in enumerate("ab", 1):
            home(self.config, name, keys(self.config).board(number))
        self.service = Service(self.config, True)
        self.sent: list[tuple[str, int, tuple[Any, ...]]] = []
        self.service.boards._send = lambda board, kind, *values: self.sent.append(  # type: ignore[method-assign]
            (board.name, kind, values)
        )

    def deployment(self, plan: bytes, board: str, hosts: list[str]) -> Deployment:
        return Deployment(plan, hosts, board, {"a": 1, "b": 2}, self.service.keys)

    def report(self, name: str, plan: bytes | None, number: int | None, **more: Any) -> Board:
        board = self.service.boards.all[name]
        self.service.boards._status(board, msgpack.dumps({"plan": plan, "deployment": number, **more}), 1)
        return board

    async def hand_over(self, board: Board, data: bytes) -> None:
        """The board sends what it is asked for."""
        assert board.fetch is not None and board.fetch.id == sha256(data).digest()[:8]
        for at in range(0, len(data), PIECE_BYTES):
            piece = data[at : at + PIECE_BYTES]
            self.service.boards._piece(board, sha256(data).digest()[:8], len(data), at, piece)
        while board.fetched:
            await asyncio.sleep(0.001)

    async def close(self) -> None:
        await self.service.cutter.close()
        self.service.db.close()


def played(life: Coroutine[Any, Any, None]) -> None:
    asyncio.run(life)


def test_a_process_is_adopted_from_the_board_that_runs_it(tmp_path: Path) -> None:
    plan = reader.numbered(fleet.plan("one", ["a", "b"], 50), 7)
    hosts = ["gateway", "a", "b"]

    async def life() -> None:
        made = Site(tmp_path)
        service = made.service
        with pytest.raises(UserError, match="what runs on a, b is not known yet"):
            await service.deploy(plan)
        a = made.deployment(plan, "a", hosts)
        board = made.report("a", a.id, 7)
        assert board.learn
        await made.hand_over(board, a.data)
        assert not board.learn and service.processes["one"].plan == plan
        assert service.numbers.highest == 7
        with pytest.raises(UserError, match="what runs on b is not known yet"):
            await service.deploy(fleet.plan("one", ["a", "b"], 60))
        with pytest.raises(UserError, match="what runs on b is not known yet"):
            service.configure("one", "x", {})
        made.report("b", None, None)  # its flash was erased
        assert service.boards.all["b"].wanted is not None
        assert (await service.deploy(plan))["state"] == "unchanged"
        assert (await service.deploy(fleet.plan("one", ["a", "b"], 60)))["deployment"] == 8
        await made.close()

    played(life())


def test_of_two_deployments_the_later_one_is_completed(tmp_path: Path) -> None:
    old = reader.numbered(fleet.plan("one", ["a", "b"], 50), 4)
    new = reader.numbered(fleet.plan("one", ["a", "b"], 60), 5)
    hosts = ["gateway", "a", "b"]

    async def first_the_later() -> None:
        made = Site(tmp_path / "later")
        b = made.deployment(new, "b", hosts)
        await made.hand_over(made.report("b", b.id, 5), b.data)
        a = made.deployment(old, "a", hosts)
        await made.hand_over(made.report("a", a.id, 4, state=DRAINED), a.data)
        process = made.service.processes["one"]
        assert (process.plan, process.coming, process.step) == (new, None, RUN)
        assert made.service.boards.all["a"].step == RUN
        assert not any(event["text"].startswith("board a") for event in made.service.observer.journal.events)
        await made.close()

    async def first_the_earlier() -> None:
        made = Site(tmp_path / "earlier")
        a, coming = made.deployment(old, "a", hosts), made.deployment(new, "a", hosts)
        board = made.report("a", a.id, 4, next=coming.id, state=DRAINING)
        await made.hand_over(board, a.data)
        await made.hand_over(board, coming.data)
        process = made.service.processes["one"]
        assert (process.plan, process.coming, process.step) == (old, new, DRAIN)
        b = made.deployment(new, "b", hosts)
        made.report("b", b.id, 5)
        board.state = DRAINED
        for _ in range(3):  # the boards are asked in two rounds
            assert (process.plan, process.step) == (old, DRAIN)
            made.service._advance(process)
            board.told = board.round
        assert made.service.boards.all["b"].state == RUNS
        assert (process.plan, process.coming, process.step) == (new, None, RUN)
        await made.close()

    for name in ("later", "earlier"):
        (tmp_path / name).mkdir()
    played(first_the_later())
    played(first_the_earlier())


def test_what_cannot_be_adopted_is_told_and_asked_for_once(tmp_path: Path) -> None:
    async def life() -> None:
        made = Site(tmp_path)
        boards = made.service.boards
        for data in (b"", b"\xc0", msgpack.dumps([1, b"no plan", []]), msgpack.dumps([1, 5, 5])):
            board = made.report("a", sha256(data).digest()[:8], 3)
            if not data:
                boards._piece(board, sha256(data).digest()[:8], 0, 0, b"")
                assert board.fetch is None
                continue
            await made.hand_over(board, data)
            assert made.service.learning.refused[sha256(data).digest()[:8]]
            assert made.report("a", sha256(data).digest()[:8], 3).fetch is None
        # Keys that another master key has made
        plan = reader.numbered(fleet.plan("one", ["a", "b"], 50), 3)
        forged = msgpack.dumps([1, plan, [[2, 2, bytes(32)]]])
        boards.all["a"].learn = True
        await made.hand_over(made.report("a", sha256(forged).digest()[:8], 3), forged)
        assert "master key" in made.service.learning.refused[sha256(forged).digest()[:8]]
        assert made.service.processes == {}
        await made.close()

    played(life())


def test_pieces_that_do_not_fit_are_not_taken(tmp_path: Path) -> None:
    async def life() -> None:
        made = Site(tmp_path)
        boards, ident = made.service.boards, bytes(8)
        for size, offset, piece in (
            (0, 0, b"x"), (1 << 40, 0, b"x"), (5, 0, b"toolong"), (5, 0, b""),
        ):  # fmt: skip
            board = made.report("a", ident, 3)
            boards._piece(board, ident, size, offset, piece)
            assert board.fetch is None
        board = made.report("a", ident, 3)
        boards._piece(board, ident, 100, 50, b"x")  # not the piece that is wanted
        boards._piece(board, bytes(7) + b"1", 100, 0, b"x")  # of another deployment
        assert board.fetch is not None and board.fetch.data == b""
        boards._piece(board, ident, 3, 0, b"abc")  # another content than its id says
        assert boards.dropped["deployment damaged"] == 1 and not board.fetched
        await made.close()

    played(life())


def test_a_board_that_the_folders_do_not_name_is_known_by_its_neighbour(tmp_path: Path) -> None:
    async def life() -> None:
        made = Site(tmp_path)
        plan = reader.numbered(fleet.plan("one", ["a", "c"], 50), 3)
        data = Deployment(plan, ["gateway", "a", "c"], "a", {"a": 1, "c": 9}, made.service.keys).data
        await made.hand_over(made.report("a", sha256(data).digest()[:8], 3), data)
        assert made.service.boards.all["c"].number == 9 and made.service.boards.all["c"].learn
        assert made.service.boards.add("d").number == 10
        await made.close()

    played(life())


def test_a_deployment_that_waits_on_a_board_and_is_not_wanted_is_taken_back(tmp_path: Path) -> None:
    async def life() -> None:
        made = Site(tmp_path)
        service = made.service
        for name in "ab":
            made.report(name, None, None)
        await service.deploy(fleet.plan("one", ["a", "b"], 50))
        wanted = service.boards.all["a"].wanted
        assert wanted is not None
        made.sent.clear()
        made.report("a", wanted.id, 1, next=b"forgotten"[:8], state=DRAINING)
        made.report("b", None, None, next=None)
        from headwater.protocol import frames

        assert [s for s in made.sent if s[1] == frames.SWITCH] == [("a", frames.SWITCH, (b"forgotte", 0))]
        await made.close()

    played(life())


def sizes(made: Site) -> list[int]:
    """What PLAN messages said of the size."""
    found = [values[1] for _, kind, values in made.sent if kind == frames.PLAN]
    made.sent.clear()
    return found


def test_a_board_is_told_that_it_ran_before_what_it_asks_for(tmp_path: Path) -> None:
    made = Site(tmp_path)
    boards = made.service.boards
    first, second = (made.deployment(plan, "a", ["gateway", "a"]) for plan in (b"one plan", b"another"))
    board = boards.all["a"]
    boards.want(board, first, None)
    boards._say(board, first)
    assert sizes(made) == [len(first.data) + AGAIN]  # its database was lost: perhaps the board ran this
    made.report("a", first.id, 1)
    made.report("a", None, None)  # its flash was erased
    boards._say(board, first)
    assert sizes(made) == [len(first.data) + AGAIN]
    boards.want(board, second, None)
    boards._say(board, second)
    assert sizes(made) == [len(second.data)]
    asyncio.run(made.close())
