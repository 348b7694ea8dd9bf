"""Boards: which are registered, what each reports about itself, and the deployments on their way to them.

The gateway uses the site link (docs/spec.md, "Site link") with every board, whatever runs on it. It repeats
what it wants of a board until the board's answer shows the wanted state. After a start the gateway first
waits for what the boards report. A deployment that the gateway does not know is fetched from the board that
has it, piece by piece.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

from headwater.data import msgpack
from headwater.plan import model as plans
from headwater.protocol import frames
from headwater.protocol.cipher import covered
from headwater.protocol.sessions import OPENED, TAKEN, Peer
from headwater.protocol.site_link import (
    AGAIN,
    BYTES_MAX,
    DRAIN,
    DRAINED,
    DRAINING,
    FORGET,
    PIECE_BYTES,
    REFUSED,
    RUN,
    RUNS,
    STORED,
    WANTED,
)

from . import UserError, refused
from . import status as statuses
from .database.engine import Database, signed, unsigned
from .keys import Keys

_log = logging.getLogger("headwater.boards")

FRAME_MAX = 512
RETRY_S = 2.0


def _nonce() -> int:
    return secrets.randbits(64)


class Deployment:
    """A plan with the keys that one board needs for it."""

    def __init__(
        self, plan: bytes, hosts: Sequence[str], board: str, numbers: dict[str, int], keys: Keys
    ) -> None:
        me = numbers[board]
        shared = [
            [i, numbers[name], keys.masked(me, numbers[name])]
            for i, name in enumerate(hosts)
            if i and name != board
        ]
        self.data: bytes = msgpack.dumps([1, plan, shared])
        self.id = sha256(self.data).digest()[:8]
        self.content = plan
        self.plan = sha256(plan).digest()[:8]  # the same with other keys, too


class Fetch:
    """A deployment on its way from a board."""

    def __init__(self, ident: bytes) -> None:
        self.id = ident
        self.data = b""
        self.due = 0.0


class Board:
    """One board, as the gateway knows it."""

    def __init__(
        self, number: int, name: str, peer: Peer, log: int, seen_us: int, learn: bool, ran: bytes | None
    ) -> None:
        self.number = number
        self.name = name
        self.learn = learn  # the database was lost, and what runs on this board is not known yet
        self.ran = ran  # which plan it ran last, as a hash; empty: lost with a database
        self.fetch: Fetch | None = None
        self.fetched = b""  # id of a deployment that has been received and not judged yet
        self.peer = peer
        self.log = log
        self.flash = 0  # log number of its flash, as it reported last
        self.lost: set[int] = set()  # log numbers under which it was declared lost
        self.revoked = False  # declared lost, and it has not been given another key since
        self.status: dict[str, Any] = {}
        self.seen_us = seen_us  # site time of the last authentic message
        self.heard = 0.0  # the same on our clock; 0: not since this start
        self.frames = 0  # of its process that were accepted, at the last check
        self.link_lost = False  # its last will was received
        self.ahead_us = 0  # its time minus the site's, at its last report
        self.wanted: Deployment | None = None
        self.step: int | None = None  # the SWITCH that is wanted
        self.state: int | None = None  # of the wanted deployment, as the board reports
        self.why = ""
        self.held: tuple[object, object] = (None, None)  # deployments that it has, by its status,
        self.reported = 0  # ... and the counter of the frame that told it
        self.life: tuple[int, int] | None = None  # log number and boot of its present session
        self.unsafe = 0  # entries that must be safe before it can switch
        self.round = 0  # drained boards are asked again, in rounds: the one to be answered,
        self.told = 0  # the one that it answered last,
        self.made = 0  # and its answer: entries that its operators and sources have put out, in all
        self.due = 0.0
        self.offset = 0
        self.leaving: Deployment | None = None  # by which it stops a process that has ended; after it:
        self.later: tuple[Deployment | None, int | None] = (None, None)  # what else is wanted of it

    @property
    def is_lost(self) -> bool:
        """A person has declared it lost, and it has not come back with another key and log number."""
        return self.revoked or self.flash in self.lost


class Boards:
    def __init__(
        self,
        db: Database,
        keys: Keys,
        publish: Callable[[str, bytes], None],
        log: int,
        boot: int,
        site_us: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
        nonce: Callable[[], int] = _nonce,
        bare: bool = False,
    ) -> None:
        """`publish(board, frame)` sends on the site link; log and boot are those of this gateway. `bare`: it
        may go over links that do not encrypt themselves."""
        self.bare = bare
        self.db = db
        self.keys = keys
        self.publish = publish
        self.site_us = site_us
        self.monotonic = monotonic
        self.nonce = nonce
        self.log = log
        self.boot = boot
        self.writer = frames.Writer(FRAME_MAX)
        self.dropped: dict[str, int] = {}
        self.all: dict[str, Board] = {}
        self.on_status: list[Callable[[Board], None]] = []
        self.on_deployment: list[Callable[[Board, bytes, bytes], None]] = []  # board, id, bytes
        self.on_revoked: list[Callable[[Board], None]] = []  # it speaks, with a key that is refused
        for number, name, seen, learn, ran in db.query(
            "SELECT number, name, seen, learn, ran FROM boards ORDER BY number"
        ):
            self.all[name] = self._board(number, name, seen, bool(learn), ran)
        by_number = {board.number: board for board in self.all.values()}
        for number, flash in db.query("SELECT board, log FROM logs"):
            if number in by_number:
                by_number[number].flash = unsigned(flash)
        for number, flash in db.query("SELECT board, log FROM lost"):
            if number in by_number:
                by_number[number].lost.add(unsigned(flash))
        for (number,) in db.query("SELECT number FROM revoked"):
            if number in by_number:
                by_number[number].revoked = True
        for number, plan in db.query("SELECT board, plan FROM leaving"):
            for board in self.all.values():
                if board.number == number:
                    self._leave(board, plan)

    def _board(self, number: int, name: str, seen_us: int, learn: bool, ran: bytes | None) -> Board:
        peer = Peer(self.keys.site(number), 0, self.log, self.boot, 1, bytes(8), self.nonce)
        if self.bare:
            peer.hide(True)
        return Board(number, name, peer, self.log, seen_us, learn, ran)

    @property
    def numbers(self) -> dict[str, int]:
        return {name: board.number for name, board in self.all.items()}

    def add(self, name: str) -> Board:
        """The board of that name; a new one gets the next number, permanently."""
        if name not in self.all:
            number = register(self.db, name, self.site_us())
            self.all[name] = self._board(number, name, 0, False, None)
        return self.all[name]

    def rename(self, name: str, new: str) -> None:
        """The board has another name; what it reports under the former one is no longer taken."""
        board = self.all.pop(name)
        board.name = new
        self.all[new] = board

    def remove(self, name: str) -> None:
        """The board is unknown: its frames are refused."""
        del self.all[name]

    def lose(self, board: Board, flash: int, key_too: bool) -> None:
        """The board is lost, with the flash of that log number: what it says under it is refused. `key_too`:
        and so is everything that is sealed with its present key."""
        if key_too:
            self.db.execute("INSERT OR REPLACE INTO revoked VALUES(?)", board.number)
            board.revoked = True
            self.learned(board)  # what runs there concerns nobody any more
        sql = "INSERT OR REPLACE INTO lost VALUES(?, ?, ?)"
        self.db.execute(sql, board.number, signed(flash), self.site_us())
        self._reports(board, flash)
        board.lost.add(flash)
        self.db.execute("DELETE FROM leaving WHERE board = ?", board.number)
        board.leaving = None
        board.later = (None, None)
        board.state = None

    def readmit(self, board: Board) -> None:
        """A lost board gets the next registry number, and with it another key. The log numbers under which it
        was lost are refused as before."""
        former = board.number
        self.db.number_taken(self.db.boards_ever + 1)
        renumber(self.db, former, self.db.boards_ever)
        fresh = self._board(self.db.boards_ever, board.name, board.seen_us, board.learn, board.ran)
        board.number, board.peer = fresh.number, fresh.peer
        board.life = None
        board.frames = 0
        board.revoked = False

    def refuses(self, *names: str) -> bool:
        """Whether the key of one of these boards is refused; that is counted."""
        found = any(name in self.all and self.all[name].revoked for name in names)
        if found:
            self._count(refused.REVOKED)
        return found

    def _reports(self, board: Board, flash: int) -> None:
        if flash != board.flash:
            board.flash = flash
            self.db.execute("INSERT OR REPLACE INTO logs VALUES(?, ?)", board.number, signed(flash))

    def known_as(self, name: str, number: int) -> None:
        """A board reports this number of another one, which is registered if it is not yet. A lower number
        than the known one stands for a key that was refused since."""
        self.db.number_taken(number)
        if name in self.all:
            if self.all[name].number < number:
                raise UserError(
                    "board %s has number %d there and %d here: provision it again, and deploy to it again"
                    % (name, number, self.all[name].number)
                )
            return
        for board in self.all.values():
            if board.number == number:
                raise UserError("number %d is board %s there, and %s here" % (number, name, board.name))
        sql = "INSERT INTO boards VALUES(?, ?, ?, 0, NULL, 1, x'')"
        self.db.execute(sql, number, name, self.site_us())
        self.all[name] = self._board(number, name, 0, True, b"")

    def learned(self, board: Board) -> None:
        """What runs on this board is known."""
        board.learn = False
        board.due = 0.0
        self.db.execute("UPDATE boards SET learn = 0 WHERE number = ?", board.number)

    # ---- in

    def receive(self, name: str, frame: bytes, bare: bool = False) -> bool:
        """A frame of the site link; bare: over a link that does not encrypt. Whether it was genuine."""
        board = self.all.get(name)
        if board is None:
            self._count(refused.UNKNOWN_BOARD)
        elif bare and not covered(frame):
            self._count(refused.BARE)
        elif not frame:
            board.link_lost = True
        else:
            return self._open(board, frame)
        return False

    def _count(self, reason: str) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    def _open(self, board: Board, frame: bytes) -> bool:
        peer = board.peer
        genuine = False
        try:
            counter = frames.header(frame)[2]
            span = peer.open(frame)
            frame = peer.plain or frame
            self._reply(board)
            if peer.why not in (TAKEN, OPENED):
                self._count(refused.SEALS[peer.why])
                return False
            if board.revoked or peer.live and peer.log in board.lost:
                self._count(refused.REVOKED)
                for listener in self.on_revoked if board.revoked else ():
                    listener(board)
                return False
            genuine = True
            board.heard = self.monotonic()
            board.seen_us = self.site_us()
            board.link_lost = False
            if peer.live and board.life != (peer.log, peer.boot):
                self._new_life(board)
            for m in frames.messages(frame, span[0], span[1], peer.log, board.log) if span else ():
                if m[0] == frames.PLANNED:
                    late = counter < board.reported
                    self._planned(board, bytes(m[1]), m[2], m[3], bytes(m[4]), late)
                elif m[0] == frames.STATUS:
                    self._status(board, bytes(m[1]), counter)
                elif m[0] == frames.PLAN:
                    self._piece(board, bytes(m[1]), m[2], m[3], bytes(m[4]))
                else:
                    self._count(refused.NOT_SITE)
        except frames.FrameError:
            self._count(refused.FRAME)
        return genuine

    def _new_life(self, board: Board) -> None:
        """A board that has restarted may accept what it refused: its flash was erased, or it was given
        another configuration or program."""
        board.life = (board.peer.log, board.peer.boot)
        board.reported = 0
        self._reports(board, board.peer.log)
        if board.state == REFUSED:
            self._offer_again(board)

    def _offer_again(self, board: Board) -> None:
        board.state = None
        board.why = ""
        board.due = 0.0

    def _status(self, board: Board, content: bytes, counter: int) -> None:
        status = statuses.read(content)
        if status is None:
            self._count(refused.STATUS)
            return
        board.status = status
        self.db.execute(
            "UPDATE boards SET seen = ?, status = ? WHERE number = ?", board.seen_us, content, board.number
        )
        if board.wanted is not None and status.get("plan") == board.wanted.id:
            board.state = RUNS
            board.why = ""
            if board.ran != board.wanted.plan:
                board.ran = board.wanted.plan
                self.db.execute("UPDATE boards SET ran = ? WHERE number = ?", board.ran, board.number)
        elif board.state == RUNS:
            board.state = None
        held = (status.get("plan"), status.get("next"))
        if board.state == REFUSED and held != board.held:
            self._offer_again(board)  # it may have refused because it had another one
        board.held = held
        board.reported = max(board.reported, counter)
        if board.leaving is not None and board.state == RUNS:
            self._left(board)
        for listener in self.on_status:
            listener(board)
        self._forget_other(board)

    def _forget_other(self, board: Board) -> None:
        """Cancel a deployment that waits on the board and is not wanted there, now that all is known: the
        board would drain for it forever, and accept no other."""
        waiting = board.status.get("next")
        if board.learn or board.fetch is not None or board.fetched or board.wanted is None:
            return
        if isinstance(waiting, bytes) and len(waiting) == len(board.wanted.id) and waiting != board.wanted.id:
            self._send(board, frames.SWITCH, waiting, FORGET)

    # ---- a deployment that a board has, and the gateway not

    def fetch(self, board: Board, ident: bytes) -> None:
        """Have this deployment sent by the board; `on_deployment` gets it."""
        if board.fetch is None or board.fetch.id != ident:
            board.fetch = Fetch(ident)

    def _piece(self, board: Board, ident: bytes, size: int, offset: int, piece: bytes) -> None:
        fetch = board.fetch
        if fetch is None or fetch.id != ident or offset != len(fetch.data):
            return
        if not 0 < size <= BYTES_MAX or not piece or offset + len(piece) > size:
            self._count(refused.SIZE)
            board.fetch = None
            return
        fetch.data += piece
        fetch.due = 0.0
        if len(fetch.data) < size:
            self._want_piece(board, fetch)
            return
        board.fetch = None
        if sha256(fetch.data).digest()[:8] != ident:
            self._count(refused.DAMAGED)
            return
        board.fetched = ident
        for listener in self.on_deployment:
            listener(board, ident, fetch.data)

    def _want_piece(self, board: Board, fetch: Fetch) -> None:
        fetch.due = self.monotonic() + RETRY_S
        self._send(board, frames.PLANNED, fetch.id, WANTED, len(fetch.data), b"")

    # ---- a deployment that the gateway has, and the board not

    def _planned(
        self, board: Board, deployment: bytes, state: int, offset: int, why: bytes, late: bool
    ) -> None:
        """late: a status that the board sent afterwards has arrived already."""
        if board.fetch is not None and board.fetch.id == deployment and state == WANTED:
            board.fetch = None  # it does not have it any more: its next status tells what it has
        wanted = board.wanted
        if wanted is None or deployment != wanted.id:
            return
        before = board.state
        board.state = state
        board.due = 0.0
        if state == WANTED:
            board.offset = offset if offset <= len(wanted.data) else 0
            if board.step != FORGET:
                board.due = self.monotonic() + RETRY_S
                self._say(board, wanted)
        elif state == DRAINING:
            board.unsafe = offset
            board.due = self.monotonic() + 0.25
        elif state == DRAINED:
            board.made = offset
            board.told = int(why) if why.isdigit() else board.told
        elif state == REFUSED and late:
            self._offer_again(board)  # it may have refused because of a deployment that has left it since
        elif state == REFUSED:
            board.why = statuses.text(why.decode("utf-8", "replace"))
            if before != REFUSED:
                _log.error("board %s refuses the plan: %s", board.name, board.why)
        elif state == RUNS and before != RUNS:
            _log.info("board %s runs the plan", board.name)

    # ---- out

    def want(self, board: Board, deployment: Deployment | None, step: int | None) -> None:
        """Set the wanted state of a board: a deployment, and during a switch the step. A board that still has
        to stop a process does that first."""
        if board.leaving is not None:
            board.later = (deployment, step)
        else:
            self._want(board, deployment, step)

    def leave(self, board: Board, plan: bytes) -> None:
        """The board is drained for this plan without vertices, and its process has ended: have the board stop
        it. This is repeated until it has happened, however long the board is away."""
        self.db.execute("INSERT OR REPLACE INTO leaving VALUES(?, ?)", board.number, plan)
        self._leave(board, plan)

    def _leave(self, board: Board, plan: bytes) -> None:
        board.leaving = Deployment(plan, plans.loads(plan).hosts, board.name, self.numbers, self.keys)
        board.later = (None, None)
        self._want(board, board.leaving, RUN)

    def _left(self, board: Board) -> None:
        self.db.execute("DELETE FROM leaving WHERE board = ?", board.number)
        board.leaving = None
        self._want(board, *board.later)

    def _want(self, board: Board, deployment: Deployment | None, step: int | None) -> None:
        known = board.wanted.id if board.wanted else None
        if deployment is None or deployment.id != known:
            board.state = RUNS if deployment and deployment.id == board.status.get("plan") else None
            board.offset = 0
            board.why = ""
            board.round = board.told = 0
        if step != board.step or board.state is None:
            board.due = 0.0
        board.wanted = deployment
        board.step = step

    def ask(self, board: Board, number: int) -> None:
        """Have a drained board report its state again."""
        board.round = number
        board.due = 0.0

    def tick(self) -> None:
        now = self.monotonic()
        for board in self.all.values():
            if not board.heard or board.is_lost:
                continue
            if board.fetch is not None and now >= board.fetch.due:
                self._want_piece(board, board.fetch)
            if board.wanted is not None and not board.learn and now >= board.due:
                board.due = now + RETRY_S
                self._say(board, board.wanted)

    def _say(self, board: Board, wanted: Deployment) -> None:
        if board.step == FORGET and board.state != WANTED:
            self._send(board, frames.SWITCH, wanted.id, FORGET)
        elif board.state in (None, WANTED):
            piece = wanted.data[board.offset : board.offset + PIECE_BYTES]
            # A board that requests what it ran has lost its flash.
            again = AGAIN if board.ran in (b"", wanted.plan) else 0
            self._send(board, frames.PLAN, wanted.id, len(wanted.data) + again, board.offset, piece)
        elif board.step is not None and board.state in (STORED, DRAINING, DRAINED):
            if board.step != DRAIN or board.state != DRAINED:
                self._send(board, frames.SWITCH, wanted.id, board.step)
            elif board.told != board.round:
                self._send(board, frames.SWITCH, wanted.id, board.round)

    def _send(self, board: Board, kind: int, *values: Any) -> None:
        board.peer.begin(self.writer)
        self.writer.put(kind, *values)
        self.publish(board.name, bytes(board.peer.seal(self.writer)))
        self._reply(board)

    def _reply(self, board: Board) -> None:
        if board.peer.reply:
            self.publish(board.name, bytes(board.peer.reply))
            board.peer.reply = None


def register(db: Database, name: str, now_us: int) -> int:
    """The registry number of a board."""
    rows = db.query("SELECT number FROM boards WHERE name = ?", name)
    if not rows:
        # A number is never given twice: it stands for a key.
        db.number_taken(db.boards_ever + 1)
        db.execute("INSERT INTO boards VALUES(?, ?, ?, 0, NULL, 0, NULL)", db.boards_ever, name, now_us)
        return db.boards_ever
    return int(rows[0][0])


def renumber(db: Database, former: int, number: int) -> None:
    """A board has another registry number from now on."""
    for sql in (
        "UPDATE boards SET number = ? WHERE number = ?",
        "UPDATE logs SET board = ? WHERE board = ?",
        "UPDATE lost SET board = ? WHERE board = ?",
    ):
        db.execute(sql, number, former)
