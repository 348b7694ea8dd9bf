"""What one host stores, in the database: facts, blobs and streams of runs, as a board's log has them."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .engine import Database


class _Stream:
    def __init__(self, first: int, last: int, ts: int) -> None:
        self.first = first
        self.last = last
        self.ts = ts
        self.starts: list[int] = []  # first entry of every run held
        self.fresh: dict[int, bytes] = {}  # bodies that are not committed yet


class Store:
    """The log of one host. Facts, blobs and the index of runs are in memory; bodies of runs are not."""

    def __init__(self, db: Database, space: int, log_number: int) -> None:
        self.db = db
        self.space = space
        self.log_number = log_number
        self._facts: dict[int, bytes] = dict(db.query("SELECT key, value FROM facts WHERE space = ?", space))
        self._blobs: dict[int, bytes] = dict(db.query("SELECT key, value FROM blobs WHERE space = ?", space))
        self._streams: dict[int, _Stream] = {}
        for stream, first, last, ts in db.query(
            "SELECT stream, first, last, ts FROM streams WHERE space = ?", space
        ):
            s = self._streams[stream] = _Stream(first, last, ts)
            found = db.query(
                "SELECT first FROM runs WHERE space = ? AND stream = ? ORDER BY first", space, stream
            )
            s.starts = [row[0] for row in found]

    # ---- facts

    def put(self, key: int, value: bytes) -> None:
        value = bytes(value)
        if self._facts.get(key) != value:
            self._facts[key] = self.db.pending().facts[(self.space, key)] = value

    def get(self, key: int) -> bytes | None:
        return self._facts.get(key)

    def drop(self, key: int) -> None:
        if self._facts.pop(key, None) is not None:
            self.db.pending().facts[(self.space, key)] = None

    def keys(self) -> list[int]:
        return sorted(self._facts)

    # ---- blobs

    def put_blob(self, key: int, data: Any, size: int = -1, buf: Any = None) -> None:
        one = isinstance(data, (bytes, bytearray, memoryview))
        whole = bytes(data) if one else b"".join([bytes(part) for part in data])
        self._blobs[key] = self.db.pending().blobs[(self.space, key)] = whole

    def get_blob(self, key: int) -> bytes | None:
        return self._blobs.get(key)

    def blob_size(self, key: int) -> int:
        return len(self._blobs.get(key, b""))

    def read_blob(self, key: int, offset: int, buf: Any) -> int:
        piece = self._blobs.get(key, b"")[offset : offset + len(buf)]
        buf[: len(piece)] = piece
        return len(piece)

    def drop_blob(self, key: int) -> None:
        if self._blobs.pop(key, None) is not None:
            self.db.pending().blobs[(self.space, key)] = None

    def rename_blob(self, src: int, dst: int) -> None:
        data = self._blobs[src]
        if src != dst:
            self.put_blob(dst, data)
            self.drop_blob(src)

    def blob_keys(self) -> list[int]:
        return sorted(self._blobs)

    # ---- streams

    def append_run(self, stream: int, xi: int, n: int, ts_last: int, body: Any) -> bool:
        s = self._streams.get(stream)
        if xi != (s.last + 1 if s else 1):
            raise ValueError("stream %d: entries from %d on cannot follow its tail" % (stream, xi))
        if self.db.full:
            return False
        if s is None:
            s = self._streams[stream] = _Stream(1, 0, 0)
        data = s.fresh[xi] = bytes(body)
        s.starts.append(xi)
        s.last = xi + n - 1
        s.ts = ts_last
        batch = self.db.pending()
        batch.runs.append((s, xi))
        batch.steps.append(("INSERT INTO runs VALUES(?, ?, ?, ?, ?)", (self.space, stream, xi, n, data)))
        self._note(stream, s)
        return True

    def _note(self, stream: int, s: _Stream) -> None:
        self.db.execute(
            "INSERT OR REPLACE INTO streams VALUES(?, ?, ?, ?, ?)", self.space, stream, s.first, s.last, s.ts
        )

    def start_stream(self, stream: int, xi_last: int, ts_last: int) -> None:
        s = self._streams.get(stream)
        if s is not None:
            self._let_go(stream, s, s.last)
            ts_last = max(ts_last, s.ts)
        s = self._streams[stream] = _Stream(xi_last + 1, xi_last, ts_last)
        self._note(stream, s)

    def read_run(self, stream: int, xi: int, buf: Any) -> int:
        s = self._streams.get(stream)
        if s is None or not s.first <= xi <= s.last:
            return 0
        first = s.starts[bisect.bisect_right(s.starts, xi) - 1]
        body = s.fresh.get(first)
        if body is None:
            rows = self.db.query(
                "SELECT body FROM runs WHERE space = ? AND stream = ? AND first = ?",
                self.space,
                stream,
                first,
            )
            body = rows[0][0]
        buf[: len(body)] = body
        return len(body)

    def trim(self, stream: int, xi: int) -> None:
        s = self._streams.get(stream)
        if s is not None and xi >= s.first:
            self._let_go(stream, s, min(xi, s.last))
            self._note(stream, s)

    def _let_go(self, stream: int, s: _Stream, xi: int) -> None:
        s.first = xi + 1
        keep = bisect.bisect_right(s.starts, xi + 1) - 1 if xi < s.last else len(s.starts)
        if keep > 0:
            upto = s.starts[keep - 1]
            del s.starts[:keep]
            for first in [f for f in s.fresh if f <= upto]:
                del s.fresh[first]
            sql = "DELETE FROM runs WHERE space = ? AND stream = ? AND first <= ?"
            self.db.execute(sql, self.space, stream, upto)

    def tail(self, stream: int) -> tuple[int, int]:
        s = self._streams.get(stream)
        return (s.last, s.ts) if s else (0, 0)

    def first(self, stream: int) -> int:
        s = self._streams.get(stream)
        return s.first if s else 1

    def forget(self, stream: int) -> None:
        s = self._streams.pop(stream, None)
        if s is not None:
            self._let_go(stream, s, s.last)
            self.db.execute("DELETE FROM streams WHERE space = ? AND stream = ?", self.space, stream)

    def streams(self) -> list[int]:
        return sorted(self._streams)

    # ---- free space: the disk's, not this store's

    def ensure_reserve(self, reserve_bytes: int) -> bool:
        return not self.db.full

    def idle(self) -> bool:
        return False
