"""A lost database: noticed at the start, and rebuilt from what is left of it.

What is left: the master key, the folder of each board with its key, the boards themselves, the landing zone
and the lake. A gateway must not start as a new site: the next board would get the number, and with it the
key, of another one. So it stops with an error, and continues with `--rebuild`.

A database that is an older copy is treated in the same way (`learn_again`): boards and lake know more than it
does. `hw gateway restore` does that itself.

- A board's number is the one whose key is in its folder; a mark there says that this key is refused. No
  number is given again that was found in a folder or that a board reports.
- What runs is learned from the boards (`Learning`). A board that reports a deployment which this gateway does
  not know is asked for it (docs/spec.md, "Site link"), and its process is adopted. If boards report
  several deployments of one process, a switch was under way: the one with the highest number is completed.
- While anything of a process is still unknown, nothing is deployed to its boards, and nothing is changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.data import msgpack
from headwater.plan import model as plans
from headwater.plan.model import Plan
from headwater.protocol.site_link import DRAIN, DRAINED, RUN
from headwater.storage.keyspace import F_AGAIN, HELD, LEARN, LOST, PERMANENT, checkpoint_key

from .. import UserError, control, provision
from ..boards import Board, Deployment, renumber
from ..boards import register as number_of
from ..config import Config
from ..database.engine import Database, signed
from ..keys import Keys
from ..segments.planner import CutterGone

if TYPE_CHECKING:
    from ..service import Service
    from .switching import Process

_log = logging.getLogger("headwater.rebuild")

NUMBER_MAX = 65_536  # the highest number of a board that is tried
SKIP_MIN = 64  # this many registry numbers, and at most twice as many, are left out after a restore
ID_BYTES = 8


def database(config: Config) -> Path:
    return config.path(config.gateway.data) / "gateway.db"


def check(config: Config) -> None:
    """UserError if the boards' folders show that the database was lost."""
    path = database(config)
    names = sorted(folders(config.folder))
    if not names or _has_boards(path):
        return
    raise UserError(
        "%s %s, and %s has the folders of %s: the database was lost. Restore it from a copy, or rebuild it "
        "with `hw gateway run %s --rebuild`: that registers these boards by their keys, and learns from them "
        "what runs"
        % (
            path, "has no boards" if path.exists() else "is missing", config.folder / "boards",
            ", ".join(names), config.folder,
        )
    )  # fmt: skip


def folders(site: Path) -> dict[str, bytes]:
    """name -> key, of every board that has a folder."""
    return {path.parent.name: path.read_bytes() for path in (site / "boards").glob("*/board.key")}


def _has_boards(path: Path) -> bool:
    if not path.exists():
        return False
    try:
        conn = sqlite3.connect(path, timeout=30)
        try:
            return conn.execute("SELECT 1 FROM boards LIMIT 1").fetchone() is not None
        finally:
            conn.close()
    except (sqlite3.Error, UnicodeError) as error:
        if "no such table" in str(error):
            return False
        return True  # it is damaged: opening it reports that


def numbers_of(site: Path, keys: Keys, known: set[str]) -> dict[str, int]:
    """name -> number, of every board that has a folder and is not known."""
    left = {name: key for name, key in folders(site).items() if name not in known}
    by_key: dict[bytes, str] = {}
    for name, key in sorted(left.items()):
        if key in by_key:
            raise UserError(
                "%s: the folders %s and %s have the same board.key, and a key belongs to one board: move "
                "the one that is a copy away" % (site / "boards", by_key[key], name)
            )
        by_key[key] = name
    found: dict[str, int] = {}
    number = 0
    while by_key and number < NUMBER_MAX:
        number += 1
        key = keys.board(number)
        if key in by_key:
            found[by_key.pop(key)] = number
    if by_key:
        name = min(by_key.values())
        raise UserError(
            "%s belongs to no board number up to %d under the master key of this gateway: restore "
            "secrets/master.key from a copy, or move the folder away and provision the board again"
            % (site / "boards" / name / "board.key", NUMBER_MAX)
        )
    return found


def keep_numbers(db: Database, site: Path, keys: Keys) -> dict[str, int]:
    """The boards that have a folder and are not registered, by number; no number of theirs is given again."""
    known = {row[0] for row in db.query("SELECT name FROM boards")}
    found = numbers_of(site, keys, known)
    db.number_taken(max([*found.values(), *_renewed(db, site, keys).values()], default=0))
    return found


def _renewed(db: Database, site: Path, keys: Keys) -> dict[int, int]:
    """Number -> a later one: of boards whose folders have a later key than this database knows."""
    found: dict[int, int] = {}
    for name, key in folders(site).items():
        for (number,) in db.query("SELECT number FROM boards WHERE name = ?", name):
            if key != keys.board(number):
                later = next((n for n in range(number + 1, NUMBER_MAX + 1) if keys.board(n) == key), None)
                if later is not None:
                    found[number] = later
    return found


def _refuse_revoked(db: Database, site: Path, keys: Keys) -> None:
    """Refuse the keys whose folders say that, and wait for nothing from these boards."""
    for name, key in folders(site).items():
        if (site / "boards" / name / provision.REVOKED).exists():
            for (number,) in db.query("SELECT number FROM boards WHERE name = ?", name):
                if key == keys.board(number):
                    db.execute("INSERT OR REPLACE INTO revoked VALUES(?)", number)
    db.execute("UPDATE boards SET learn = 0 WHERE number IN (SELECT number FROM revoked)")
    db.commit()


def agree(db: Database, site: Path, keys: Keys, again: bool, now_us: int) -> None:
    """Database and folders of boards agree when this returns, or a warning was logged.

    `again`: the database is rebuilt."""
    found = keep_numbers(db, site, keys)
    names = ", ".join("%s (number %d)" % board for board in found.items())
    if again and found:
        register(db, found, now_us)
        _log.warning("rebuilding the database: boards %s", names)
    elif again:
        _log.warning("--rebuild: what the database knows of its boards is learned again from them")
    elif found:
        _log.warning(
            "the database is older than the folders of boards, and does not know %s: "
            "`hw gateway run %s --rebuild` registers them", names, site,
        )  # fmt: skip
    for former, number in _renewed(db, site, keys).items():
        renumber(db, former, number)
    db.commit()
    _refuse_revoked(db, site, keys)


def register(db: Database, found: dict[str, int], now_us: int) -> None:
    """Register the boards of a lost database; each has to be heard before it counts as known."""
    for name, number in found.items():
        db.execute("INSERT INTO boards VALUES(?, ?, ?, 0, NULL, 1, x'')", number, name, now_us)
    db.commit()


def registered(config: Config, master: Keys, name: str, renew: bool) -> int:
    """The registry number of a board, from the running gateway or else from its database: a new board gets
    the next one, a known one (`renew`) has it."""
    with contextlib.suppress(control.NotRunning):
        return int(control.ask(config, "/boards", {"name": name, "renew": renew})["number"])
    check(config)
    provision.not_as_root(config.folder)
    path = database(config)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    db = Database(path, lambda: 0)
    try:
        keep_numbers(db, config.folder, master)
        rows = db.query("SELECT number FROM boards WHERE name = ?", name)
        may_register(config, name, bool(rows), renew)
        if rows and db.query("SELECT 1 FROM revoked WHERE number = ?", rows[0][0]):
            raise UserError(
                "board %s was declared lost: it gets a new key, and only a gateway that runs can tell the "
                "other boards of it. Start it (`hw gateway run %s`), and try again" % (name, config.folder)
            )
        return number_of(db, name, 0)
    finally:
        db.close()


def may_register(config: Config, name: str, known: bool, renew: bool) -> None:
    """UserError if a new board has the name of a known one, or a board to be renewed is not known."""
    if not known and name in folders(config.folder):
        raise UserError(
            "board %s has a folder in %s, and the database does not know it: `hw gateway run %s --rebuild` "
            "registers it by its key" % (name, config.folder / "boards", config.folder)
        )
    if known and not renew:
        raise UserError(
            "board %s is registered already; nothing was changed. If the secrets of the board are lost, "
            "`hw provision %s FOLDER --renew` gives it a new password: from then on the broker refuses the "
            "one that is on the board, until its new files are put onto it" % (name, name)
        )
    if renew and not known:
        raise UserError("board %s is not registered: leave out --renew to register it" % name)


def learn_again(conn: sqlite3.Connection) -> None:
    """Make an older copy of a database usable. Within a transaction of the caller.

    Boards and lake may know more than the copy. What may be outdated is cleared, and is learned at the next
    start as after a loss: which deployments run, where operators run, which changes were granted, and the
    sessions of the former gateway (under its log number boards refuse an earlier boot). What cannot be
    outdated stays: entries on their way to the lake, the numbers given so far, the time that was given out.
    Checkpoints stay as those of a host whose flash was erased: they are used where no other host has a later
    one."""
    spaces = {(row[1], row[2]): row[0] for row in conn.execute("SELECT id, process, hash FROM spaces")}
    kept = []
    now_us = time.time_ns() // 1000
    for name, data, since in conn.execute("SELECT name, plan, since FROM processes").fetchall():
        plan = plans.loads(data)
        row = (name, plan.deployment, data, since, now_us)
        conn.execute("INSERT OR IGNORE INTO history VALUES(?, ?, ?, ?, ?)", row)
        space = spaces.get((name, plan.hash.hex()))
        if space is None:
            continue
        kept.append(space)
        vertices = range(len(plan.vertices))
        checkpoints = [checkpoint_key(v, slot) for v in vertices for slot in (PERMANENT, HELD)]
        again = bytes([LEARN + LOST if v.kind else 0 for v in plan.vertices])
        conn.execute("DELETE FROM facts WHERE space = ?", (space,))
        conn.execute("INSERT INTO facts VALUES(?, ?, ?)", (space, F_AGAIN, again))
        conn.execute(
            "DELETE FROM blobs WHERE space = ? AND key NOT IN (%s)" % ", ".join(map(str, checkpoints)),
            (space,),
        )
        log = signed(secrets.randbits(64) or 1)
        conn.execute("UPDATE spaces SET log = ? WHERE id = ?", (log, space))
    those = "(%s)" % ", ".join(map(str, kept))
    for table in ("facts", "blobs"):
        conn.execute("DELETE FROM %s WHERE space NOT IN %s" % (table, those))
    for table in ("streams", "runs", "leaving", "sessions"):
        conn.execute("DELETE FROM %s" % table)
    conn.execute("DELETE FROM spaces WHERE id NOT IN %s" % those)
    conn.execute("DELETE FROM processes")
    conn.execute("UPDATE boards SET learn = 1, ran = x''")
    conn.execute("DELETE FROM meta WHERE key IN ('log', 'boot')")
    ever = conn.execute("SELECT value FROM meta WHERE key = 'board'").fetchone()
    # No number is given again of boards that were registered after the copy was made.
    number = (ever[0] if ever else 0) + SKIP_MIN + secrets.randbelow(SKIP_MIN)
    conn.execute("INSERT OR REPLACE INTO meta VALUES('board', ?)", (number,))


class Learning:
    """What a gateway learns from its boards about deployments that it does not know."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.refused: dict[bytes, str] = {}  # id of a deployment that cannot be adopted -> why
        self._past: set[bytes] = set()  # ids of deployments that were processed
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    # ---- what boards report

    def on_status(self, board: Board) -> None:
        numbers = self.service.numbers
        number = board.status.get("deployment")
        asked = board.learn or isinstance(number, int) and number > numbers.given
        numbers.reported(number)
        if not asked or board.fetched:
            return
        for key in ("plan", "next"):
            ident = board.status.get(key)
            if isinstance(ident, bytes) and len(ident) == ID_BYTES and not self._knows(board, ident):
                self.service.boards.fetch(board, ident)
                return
        if board.learn:
            self.service.boards.learned(board)

    def _knows(self, board: Board, ident: bytes) -> bool:
        if ident in self.refused or ident in self._past:
            return True
        service = self.service
        for process in service.processes.values():
            for data in (process.plan, process.coming):
                if data is not None:
                    hosts = plans.loads(data).hosts
                    if board.name in hosts and self._id(data, hosts, board) == ident:
                        return True
        return False

    def _id(self, data: bytes, hosts: Sequence[str], board: Board) -> bytes:
        service = self.service
        return Deployment(data, hosts, board.name, service.boards.numbers, service.keys).id

    # ---- adoption

    def on_deployment(self, board: Board, ident: bytes, data: bytes) -> None:
        """A board has sent a deployment that is not known here."""
        task = asyncio.create_task(self._take(board, ident, data), name="adopt")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take(self, board: Board, ident: bytes, data: bytes) -> None:
        async with self._turn:
            try:
                await self._adopt(board, ident, data)
            except (UserError, ValueError) as error:
                self.refused[ident] = str(error)
                text = "board %s: its process is not adopted: %s" % (board.name, error)
                self.service.event("rebuild", text)
            except CutterGone as error:
                _log.error("rebuild: %s; trying again", error)
            finally:
                board.fetched = b""
            self.on_status(board)

    async def _adopt(self, board: Board, ident: bytes, data: bytes) -> None:
        service = self.service
        plan, content = self._read(board, data)
        service.numbers.reported(plan.deployment)
        if not plan.vertices and plan.name not in service.processes:
            self._past.add(ident)  # a process was undeployed there
            return
        service.check_free(plan)
        try:
            await service.segments.look(plan.name)
        except UserError as error:
            raise CutterGone("what the lake has of %s cannot be read: %s" % (plan.name, error))
        self._past.add(ident)
        process = service.processes.get(plan.name)
        if process is None:
            service.adopt(plan, content, None)
            return
        present = plans.loads(process.plan)
        coming = plans.loads(process.coming) if process.coming is not None else None
        newest = max(present.deployment, coming.deployment if coming else 0)
        if plan.deployment > newest:
            service.adopt(plan, content, process)
        elif content not in (process.plan, process.coming):
            self._behind(board, plan, process, present)

    def _behind(self, board: Board, plan: Plan, process: Process, present: Plan) -> None:
        """A board has an earlier deployment than the known one: it missed the end of a switch."""
        if plan.deployment == present.deployment:
            raise UserError(
                "deployment %d of process %s is another one here: two gateways have given the same number; "
                "deploy the process again" % (plan.deployment, plan.name)
            )
        if board.status.get("state") != DRAINED:
            self.service.event(
                "rebuild",
                "board %s runs deployment %d of process %s and the others %d, and it is not drained: what it "
                "holds for operators elsewhere cannot be taken"
                % (board.name, plan.deployment, plan.name, present.deployment),
            )
        if process.step != DRAIN:
            self.service.complete(process, RUN)

    def _read(self, board: Board, data: bytes) -> tuple[Plan, bytes]:
        """Plan and its bytes. Registers boards in it that were not: a pair key proves their numbers."""
        service = self.service
        try:
            form, content, shared = msgpack.loads(data)
            plan = plans.loads(content)
            if form != 1 or board.name not in plan.hosts[1:]:
                raise UserError("a deployment of form %r for %s" % (form, ", ".join(plan.hosts)))
            others = [(plan.hosts[number], other, masked) for number, other, masked in shared]
            for name, other, masked in others:
                if masked != service.keys.masked(board.number, other):
                    raise UserError("its key for board %s was not made with this gateway's master key" % name)
        except (TypeError, ValueError, IndexError, OverflowError, AttributeError) as error:
            raise UserError("its deployment cannot be read: %s" % error)
        for name, other, _ in others:
            service.boards.known_as(name, other)
        missing = [name for name in plan.hosts[1:] if name not in service.boards.all]
        if missing:
            raise UserError("its plan names %s, and no number of theirs is known" % ", ".join(missing))
        return plan, content

    # ---- what is not known yet

    def waits(self, process: Process | None, hosts: list[str]) -> str:
        """Why nothing may be changed yet at a process, or on these hosts; empty if it may."""
        boards = self.service.boards.all
        host: Any = process.hosted.host if process is not None and process.hosted is not None else None
        learning = bool(getattr(host, "learning", False))
        if not learning and not any(board.learn for board in boards.values()):
            return ""
        names = set(hosts[1:])
        if process is not None:
            for data in (process.plan, process.coming):
                if data is not None:
                    names |= set(plans.loads(data).hosts[1:])
        silent = sorted(name for name in names if name in boards and boards[name].learn)
        if silent:
            return (
                "the database was lost, and what runs on %s is not known yet: switch on what is off, and "
                "wait until `hw gateway state` shows it" % ", ".join(silent)
            )
        if learning:
            return (
                "the database was lost, and the boards are still telling where the operators of %s run and "
                "with which parameters: try again in a moment" % (process.name if process else "")
            )
        return ""
