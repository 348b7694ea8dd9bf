"""The gateway's database: one SQLite file for everything that must survive, and one commit for many writes.

What it promises:
- Writes become durable in batches, in the order in which they were made: after a kill or a power cut the
  database holds exactly the batches whose commit returned, and of each all or nothing.
- A message that promises durability is passed to `after_commit`, which sends it once the commit returned.
- A commit that fails (a full disk) is retried until it succeeds; meanwhile nothing is acknowledged, and
  `full` stops further writes.
- One gateway at a time: a lock beside the file is held as long as the database is open.

It holds two things under their own interfaces: `Store`, the log of a host (docs/architecture.md, "Log"), and
`Outbox`, where the edges to the lake end. Entries stay the blocks that the boards sent; all blocks of one
stream between two commits are one row (a *chunk*), so that a frame costs no statement.

A chunk is a row of records, each a u32 (little-endian) and that number of bytes: a block as received, or, if
bit 31 is set, a gap: first u64, last u64, reason u8.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import sqlite3
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import UserError
from .host_store import Store

if TYPE_CHECKING:
    from .host_store import _Stream
    from .outbox import OutboxStream


FORMAT = 2
RETRY_S = 1.0  # a commit that failed is retried after this
WAITING_MAX_BYTES = 32 << 20  # entries in memory that wait for a commit, at most
ROWS_AT_ONCE = 50  # of an INSERT
CHECKED_MAX_BYTES = 256 << 20  # all pages of a database of up to this size are checked at the start

# What reading a damaged database raises: errors of SQLite, or of code that uses its damaged content.
READ_ERRORS = (
    sqlite3.Error, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError,
    struct.error,
)  # fmt: skip

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spaces(id INTEGER PRIMARY KEY, process TEXT, hash TEXT, log INTEGER,
    UNIQUE(process, hash));
CREATE TABLE IF NOT EXISTS facts(space INTEGER, key INTEGER, value BLOB,
    PRIMARY KEY(space, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS blobs(space INTEGER, key INTEGER, value BLOB, PRIMARY KEY(space, key));
CREATE TABLE IF NOT EXISTS streams(space INTEGER, stream INTEGER, first INTEGER, last INTEGER, ts INTEGER,
    PRIMARY KEY(space, stream)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS runs(space INTEGER, stream INTEGER, first INTEGER, n INTEGER, body BLOB,
    PRIMARY KEY(space, stream, first));
CREATE TABLE IF NOT EXISTS ends(id INTEGER PRIMARY KEY, process TEXT, lake TEXT, version TEXT, inc INTEGER,
    alphabet TEXT, within_ms INTEGER, acked INTEGER, cut INTEGER, UNIQUE(process, lake, version, inc));
CREATE TABLE IF NOT EXISTS chunks(id INTEGER PRIMARY KEY, "end" INTEGER, first INTEGER, last INTEGER,
    arrived INTEGER, alphabet TEXT, data BLOB);
CREATE INDEX IF NOT EXISTS chunks_by_end ON chunks("end", last);
CREATE TABLE IF NOT EXISTS segments(name TEXT PRIMARY KEY, "end" INTEGER, first INTEGER, last INTEGER,
    bytes INTEGER, times INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS boards(number INTEGER PRIMARY KEY, name TEXT UNIQUE, since INTEGER, seen INTEGER,
    status BLOB, learn INTEGER, ran BLOB);
CREATE TABLE IF NOT EXISTS processes(name TEXT PRIMARY KEY, plan BLOB, since INTEGER, next BLOB, step INTEGER,
    learn INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS events(id INTEGER PRIMARY KEY, at INTEGER, kind TEXT, text TEXT);
CREATE TABLE IF NOT EXISTS alarms(id TEXT PRIMARY KEY, severity TEXT, text TEXT, do TEXT, since INTEGER,
    acked INTEGER, muted INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS notices(receiver TEXT, seq INTEGER, alarm TEXT, what TEXT, body TEXT, parked TEXT,
    PRIMARY KEY(receiver, seq)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS told(alarm TEXT PRIMARY KEY, severity TEXT, text TEXT, do TEXT, since INTEGER,
    acked INTEGER, said INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sessions(id TEXT PRIMARY KEY, since INTEGER, used INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS leaving(board INTEGER PRIMARY KEY, plan BLOB);
CREATE TABLE IF NOT EXISTS logs(board INTEGER PRIMARY KEY, log INTEGER);
CREATE TABLE IF NOT EXISTS lost(board INTEGER, log INTEGER, at INTEGER,
    PRIMARY KEY(board, log)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS revoked(number INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS history(process TEXT, deployment INTEGER, plan BLOB, since INTEGER, until INTEGER,
    PRIMARY KEY(process, deployment)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS moves(id INTEGER PRIMARY KEY, process TEXT, deployment INTEGER, operator TEXT,
    epoch INTEGER, source TEXT, host TEXT, why INTEGER, at INTEGER, heard INTEGER, version TEXT,
    streams TEXT);
"""


def signed(value: int) -> int:
    """64 bits as SQLite and the lake hold them."""
    return value - (1 << 64) if value >> 63 else value


def unsigned(value: int) -> int:
    return value & 0xFFFFFFFFFFFFFFFF


class _Pending:
    """What the next commit will write."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.facts: dict[tuple[int, int], bytes | None] = {}
        self.blobs: dict[tuple[int, int], bytes | None] = {}
        self.steps: list[tuple[str, tuple[Any, ...]]] = []
        self.ends: dict[int, OutboxStream] = {}
        self.runs: list[tuple[_Stream, int]] = []
        self.taken: list[tuple[OutboxStream, int]] = []
        self.then: list[Callable[[], None]] = []
        self.size = 0
        self.written = False

    def __bool__(self) -> bool:
        return bool(self.facts or self.blobs or self.steps or self.ends)


class Database:
    """One file. All methods but the commit itself belong to one thread."""

    def __init__(self, path: str | Path, site_us: Callable[[], int], max_bytes: int = 0) -> None:
        self.path = Path(path)
        self.site_us = site_us
        self.max_bytes = max_bytes
        self.size_bytes = 0
        self.short = False  # little is free on the disk
        self.commits = 0
        self.commit_s = 0.0  # of the last one
        self.failed = ""  # why the last commit did not succeed
        self.on_commit: list[Callable[[], None]] = []
        self.keep_time: Callable[[], str] | None = None  # the site's clock, which every commit stores
        self._batch = _Pending(1)
        self._under_way: _Pending | None = None
        self.committed = 0  # number of the last batch that is durable
        self._wake: asyncio.Event | None = None
        self._lock = _only_one(self.path)
        try:
            self._conn = _connect(self.path)
            self._read = _connect(self.path)
            self._prepare()
        except READ_ERRORS as error:
            os.close(self._lock)
            raise damaged(self.path, error)
        except BaseException:
            os.close(self._lock)
            raise
        self._pool = ThreadPoolExecutor(1, "commit")
        self.ends: list[OutboxStream] = []

    def _prepare(self) -> None:
        conn = self._conn
        if self.path.stat().st_size <= CHECKED_MAX_BYTES:
            check_pages(conn)
        conn.executescript(_SCHEMA)
        row = conn.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
        if row is None:
            conn.execute("INSERT INTO meta VALUES('format', ?)", (FORMAT,))
        elif row[0] != FORMAT:
            raise UserError(
                "%s has format %r and this gateway reads %d: run the version that wrote it"
                % (self.path, row[0], FORMAT)
            )
        row = conn.execute("SELECT value FROM meta WHERE key = 'board'").fetchone()
        self.boards_ever: int = row[0] if row else 0  # the highest registry number that was given
        self._spaces: dict[tuple[str, str], tuple[int, int]] = {
            (process, plan): (number, unsigned(log))
            for number, process, plan, log in conn.execute("SELECT id, process, hash, log FROM spaces")
        }
        self._space_top = max((number for number, _ in self._spaces.values()), default=0)
        self._measure()

    def rewrite(self, change: Callable[[sqlite3.Connection], None]) -> None:
        """Change the content in one commit, before any of it is in use."""
        self._conn.execute("BEGIN IMMEDIATE")
        try:
            change(self._conn)
            self._conn.execute("COMMIT")
        except BaseException:
            self._conn.execute("ROLLBACK")
            raise
        self._prepare()

    def _measure(self) -> None:
        pages, free, size = (
            self._conn.execute("PRAGMA " + name).fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        self.size_bytes = (pages - free) * size

    @property
    def full(self) -> bool:
        """No more entries are accepted: the declared limit is reached, or commits fail."""
        held = self._batch.size + (self._under_way.size if self._under_way else 0)
        grown = 0 < self.max_bytes < self.size_bytes + held
        return grown or self.short or held > WAITING_MAX_BYTES or bool(self.failed)

    # ---- writing

    @property
    def writing(self) -> int:
        """The number of the batch to which present writes belong."""
        return self._batch.number

    def pending(self) -> _Pending:
        if self._wake is not None:
            self._wake.set()
        return self._batch

    def execute(self, sql: str, *values: Any) -> None:
        self.pending().steps.append((sql, values))

    def query(self, sql: str, *values: Any) -> list[Any]:
        """What is committed."""
        return self._read.execute(sql, values).fetchall()

    def after_commit(self, action: Callable[[], None]) -> None:
        """Call `action` when all writes so far are durable; at once if they are already."""
        if self._batch:
            self._batch.then.append(action)
        elif self._under_way is not None:
            self._under_way.then.append(action)
        else:
            action()

    async def flushed(self) -> None:
        """All writes so far are durable when this returns."""
        done = asyncio.get_running_loop().create_future()
        self.after_commit(lambda: done.set_result(None))
        await done

    def keep(self) -> None:
        """Commit, even if there is nothing but the site's time to store."""
        assert self.keep_time is not None
        self.execute("INSERT OR REPLACE INTO meta VALUES('time', ?)", self.keep_time())

    def commit(self) -> None:
        """Make everything durable now. Not while `run` runs."""
        while self._batch or self._under_way is not None:
            batch = self._under_way or self._next()
            if not batch.written:
                self._write(batch)
            self._done(batch)

    def _next(self) -> _Pending:
        batch = self._batch
        self._batch = _Pending(batch.number + 1)
        arrived = self.site_us()
        for end in batch.ends.values():
            for first, last, data in end.chunks():
                batch.steps.append((_CHUNK, (end.id, first, last, arrived, end.alphabet, data)))
            batch.taken.append((end, end.taken))
        batch.ends = {}
        if self.keep_time is not None:
            batch.steps.append(("INSERT OR REPLACE INTO meta VALUES('time', ?)", (self.keep_time(),)))
        self._under_way = batch
        return batch

    def _write(self, batch: _Pending) -> None:
        start = time.perf_counter()
        conn = self._conn
        conn.execute("BEGIN IMMEDIATE")
        try:
            _replace(conn, "facts", batch.facts)
            _replace(conn, "blobs", batch.blobs)
            for sql, rows in _grouped(batch.steps):
                _execute(conn, sql, rows)
            conn.execute("COMMIT")
        except BaseException:
            if conn.in_transaction:
                conn.execute("ROLLBACK")
            raise
        batch.written = True
        self._measure()
        self.commit_s = time.perf_counter() - start

    def _done(self, batch: _Pending) -> None:
        self._under_way = None
        self.committed = batch.number
        self.commits += 1
        for stream, first in batch.runs:
            stream.fresh.pop(first, None)
        for end, taken in batch.taken:
            end.durable = taken
        for action in batch.then:
            action()
        for action in self.on_commit:
            action()

    async def run(self, pause_s: float) -> None:
        """Commit all writes, at most once in `pause_s`, until cancelled."""
        self._wake = asyncio.Event()
        if self._batch:  # written before this ran
            self._wake.set()
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not self._batch:
                continue
            batch = self._next()
            while True:
                try:
                    await loop.run_in_executor(self._pool, self._write, batch)
                    break
                except sqlite3.Error as error:
                    self.failed = str(error)
                    await asyncio.sleep(RETRY_S)
            self.failed = ""
            self._done(batch)
            if self._batch:
                self._wake.set()
            await asyncio.sleep(pause_s)

    def close(self) -> None:
        """Make everything durable, and close the file."""
        self._pool.shutdown(wait=True)
        self.commit()
        self.abandon()

    def abandon(self) -> None:
        """Close the file as a kill would: what was not committed is gone."""
        self._pool.shutdown(wait=True)
        self._read.close()
        self._conn.close()
        os.close(self._lock)

    # ---- stores and outboxes

    def number_taken(self, number: int) -> None:
        """Give no board this registry number, nor any below it."""
        if number > self.boards_ever:
            self.boards_ever = number
            self.execute("INSERT OR REPLACE INTO meta VALUES('board', ?)", number)

    def has_space(self, process: str, plan_hash: bytes) -> bool:
        return (process, plan_hash.hex()) in self._spaces

    def space(self, process: str, plan_hash: bytes) -> Store:
        """The log of the host that runs this version of a process here."""
        key = (process, plan_hash.hex())
        if key not in self._spaces:
            # Not the number of a dropped space: its content is deleted only by the next commit.
            self._space_top += 1
            self._spaces[key] = (self._space_top, secrets.randbits(64) or 1)
            log = signed(self._spaces[key][1])
            sql = "INSERT INTO spaces(id, process, hash, log) VALUES(?, ?, ?, ?)"
            self.execute(sql, self._space_top, *key, log)
        return Store(self, *self._spaces[key])

    def drop_space(self, process: str, plan_hash: bytes) -> None:
        key = (process, plan_hash.hex())
        self._spaces.pop(key, None)
        for table in ("facts", "blobs", "streams", "runs"):
            where = "(SELECT id FROM spaces WHERE process = ? AND hash = ?)"
            self.execute("DELETE FROM %s WHERE space = %s" % (table, where), *key)
        self.execute("DELETE FROM spaces WHERE process = ? AND hash = ?", *key)


_CHUNK = 'INSERT INTO chunks("end", first, last, arrived, alphabet, data) VALUES(?, ?, ?, ?, ?, ?)'


def check_pages(conn: sqlite3.Connection) -> None:
    """Raise sqlite3.DatabaseError if a page of the database is damaged."""
    found = conn.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise sqlite3.DatabaseError(str(found).replace("\n", " "))


def damaged(path: Path, error: BaseException) -> UserError:
    """What reading a damaged database raised, as a sentence."""
    return UserError(
        "%s is damaged, or is not a gateway's database (%s): restore the site from a backup with `hw gateway "
        "restore FILE NEWFOLDER`, or move this file away and rebuild it from what boards and lake know, with "
        "`hw gateway run FOLDER --rebuild`" % (path, error if str(error) else type(error).__name__)
    )


def _only_one(path: Path) -> int:
    lock = path.with_name(path.name + ".lock")
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UserError("%s cannot be written (%s): give this user its folder" % (lock, error.strerror))
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(handle)
        raise UserError(
            "another gateway (process %s) has %s open: stop it, or give this one a data folder of its own"
            % (holder, path)
        )
    os.ftruncate(handle, 0)
    os.pwrite(handle, b"%d\n" % os.getpid(), 0)
    return handle


def _connect(path: Path) -> sqlite3.Connection:
    old = os.umask(0o077)  # only this user may read checkpoints and entries
    try:
        conn = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=30)
        conn.execute("PRAGMA journal_mode = WAL")
    finally:
        os.umask(old)
    conn.execute("PRAGMA synchronous = FULL")
    conn.execute("PRAGMA cache_size = -4096")
    conn.execute("PRAGMA journal_size_limit = 16777216")
    return conn


def _grouped(
    steps: list[tuple[str, tuple[Any, ...]]],
) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    """Neighbours with the same statement, together."""
    at = 0
    while at < len(steps):
        sql = steps[at][0]
        rows = []
        while at < len(steps) and steps[at][0] == sql:
            rows.append(steps[at][1])
            at += 1
        yield sql, rows


def _execute(conn: sqlite3.Connection, sql: str, rows: list[tuple[Any, ...]]) -> None:
    """One statement for each row, but many rows of an INSERT in one: each statement costs a change of
    threads, which may have to wait for the thread that receives frames."""
    head, values, row = sql.partition(" VALUES")
    if not values or len(rows) == 1:
        conn.executemany(sql, rows)
        return
    for at in range(0, len(rows), ROWS_AT_ONCE):
        some = rows[at : at + ROWS_AT_ONCE]
        many = head + values + ",".join([row] * len(some))
        conn.execute(many, [value for each in some for value in each])


def _replace(conn: sqlite3.Connection, table: str, values: dict[tuple[int, int], bytes | None]) -> None:
    put = [(*key, value) for key, value in values.items() if value is not None]
    drop = [key for key, value in values.items() if value is None]
    if put:
        _execute(conn, "INSERT OR REPLACE INTO %s VALUES(?, ?, ?)" % table, put)
    if drop:
        conn.executemany("DELETE FROM %s WHERE space = ? AND key = ?" % table, drop)
