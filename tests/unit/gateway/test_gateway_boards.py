"""The site link as the gateway speaks it: what is wanted of a board is said until it is so."""

from __future__ import annotations

import itertools
from typing import Any

from headwater.data import msgpack
from headwater.protocol import frames
from headwater.protocol.sessions import Peer
from headwater.protocol.site_link import REFUSED, RUNS
from headwater_gateway import refused
from headwater_gateway.boards import Boards, Deployment
from headwater_gateway.database.engine import Database
from headwater_gateway.keys import Keys
from headwater_tools.boards import fleet

PLAN = fleet.plan("one", ["vent"], 50)


class Board:
    """The board's end of a site link: it opens what comes and says what it is told to say."""

    def __init__(self, boards: Boards, log: int, boot: int) -> None:
        self.boards = boards
        self.nonce = itertools.count(1000 * log + 10 * boot)
        number = boards.all["vent"].number
        key = boards.keys.site(number)
        self.log = log
        self.peer = Peer(key, 1, log, boot, 0, bytes(8), lambda: next(self.nonce))
        self.writer = frames.Writer(512)
        self.heard: list[tuple[Any, ...]] = []

    def take(self, frame: bytes) -> None:
        span = self.peer.open(frame)
        self.reply()
        for m in frames.messages(frame, *span, self.peer.log, self.log) if span else ():
            self.heard.append(tuple(bytes(part) if isinstance(part, memoryview) else part for part in m))

    def reply(self) -> None:
        if self.peer.reply:
            frame, self.peer.reply = bytes(self.peer.reply), None
            self.boards.receive("vent", frame)

    def say(self, kind: int, *values: Any) -> None:
        self.arrives(self.sealed(kind, *values))

    def sealed(self, kind: int, *values: Any) -> bytes:
        self.peer.begin(self.writer)
        self.writer.put(kind, *values)
        return bytes(self.peer.seal(self.writer))

    def arrives(self, frame: bytes) -> None:
        self.boards.receive("vent", frame)
        self.reply()

    def status(self, **status: Any) -> None:
        self.say(frames.STATUS, msgpack.dumps({"plan": None, "next": None, **status}))


class Site:
    def __init__(self, folder: Any) -> None:
        self.now = 1.0
        self.db = Database(folder / "gateway.db", lambda: 0)
        self.keys = Keys(bytes(32))
        self.board: Board | None = None
        nonce = itertools.count(1)
        self.boards = Boards(
            self.db, self.keys, self.publish, 7, 1, lambda: 1, lambda: self.now, lambda: next(nonce)
        )
        self.known = self.boards.add("vent")
        self.deployment = Deployment(PLAN, ["gateway", "vent"], "vent", self.boards.numbers, self.keys)

    def publish(self, name: str, frame: bytes) -> None:
        if self.board:
            self.board.take(frame)

    def boots(self, log: int, boot: int) -> Board:
        self.board = Board(self.boards, log, boot)
        for _ in range(3):  # the first frame opens the session
            self.board.status()
        return self.board

    def tick(self) -> list[tuple[Any, ...]]:
        """What the board hears within the next seconds."""
        assert self.board is not None
        self.board.heard.clear()
        self.now += 10
        self.boards.tick()
        return self.board.heard


def test_a_board_that_refused_a_plan_is_offered_it_again_when_it_starts_again(tmp_path: Any) -> None:
    for log, boot in ((5, 2), (6, 1)):  # another configuration; its flash was erased
        (tmp_path / str(log)).mkdir()
        site = Site(tmp_path / str(log))
        board = site.boots(5, 1)
        site.boards.want(site.known, site.deployment, None)
        ident = site.deployment.id
        assert site.tick()[-1][:2] == (frames.PLAN, ident)
        board.say(frames.PLANNED, ident, REFUSED, 0, b"no such sensor")
        assert (site.known.state, site.known.why) == (REFUSED, "no such sensor")
        board.status()
        assert site.tick() == []
        board = site.boots(log, boot)
        assert site.tick()[-1][:2] == (frames.PLAN, ident)
        board.say(frames.PLANNED, ident, RUNS, 0, b"")
        assert (site.known.state, site.known.why) == (RUNS, "")
        site.db.close()


def test_a_refusal_that_a_later_status_has_overtaken_does_not_count(tmp_path: Any) -> None:
    site = Site(tmp_path)
    board = site.boots(5, 2)
    site.boards.want(site.known, site.deployment, None)
    ident = site.deployment.id
    assert site.tick()[-1][:2] == (frames.PLAN, ident)
    refusal = board.sealed(frames.PLANNED, ident, REFUSED, 0, b"this board drains for another deployment")
    board.status()  # ... and now it does not drain any more
    board.arrives(refusal)
    assert site.known.state is None
    assert site.tick()[-1][:2] == (frames.PLAN, ident)
    board.say(frames.PLANNED, ident, REFUSED, 0, b"no such sensor")
    assert (site.known.state, site.known.why) == (REFUSED, "no such sensor")
    site.db.close()


def test_a_lost_board_is_refused_by_its_key_whatever_its_log_number(tmp_path: Any) -> None:
    site = Site(tmp_path)
    site.boots(5, 1)
    assert site.known.flash == 5 and not site.boards.dropped
    site.boards.lose(site.known, 5, True)
    for log, boot in ((5, 2), (6, 1)):  # it wakes up; its flash was erased
        before = site.boards.dropped.get(refused.REVOKED, 0)
        site.known.heard = 0.0
        site.boots(log, boot)
        assert site.boards.dropped[refused.REVOKED] > before
        assert site.known.is_lost and not site.known.heard
    site.db.close()
