"""The outbox: what waits for the lake, stream by stream, until the lake acknowledges it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from headwater.plan.model import Plan

from .engine import signed, unsigned

if TYPE_CHECKING:
    from .engine import Database


GAP = 0x80000000  # marks the length of a record that is a gap
_GAP = struct.Struct("<IQQB")
XI_MAX = (1 << 63) - 1  # the largest stream time that a table of the lake can hold
CHUNK_MAX_BYTES = 1 << 20  # a longer one is split


class OutboxStream:
    """One stream and incarnation on its way to the lake: what was accepted, is durable, is there."""

    def __init__(self, db: Database, row: tuple[Any, ...], last: int) -> None:
        self.db = db
        self.id, self.process, self.lake, self.version, inc, self.alphabet, self.within_ms, acked, cut = row
        self.inc = unsigned(inc)
        self.acked = acked  # the lake has everything up to here
        self.cut = cut  # segments hold everything up to here
        self.taken = self.durable = max(last, acked)
        self.last_block = b""  # the newest entries, as received since this start
        self._waiting: list[bytes | tuple[int, int, int]] = []
        self._from = self.taken
        self._places: list[int] = []

    @property
    def incarnation(self) -> int:
        """The incarnation in the lake: an operator's stream belongs to a version of its process."""
        if not self.version:
            return self.inc
        return unsigned(int.from_bytes(bytes.fromhex(self.version), "big") + self.inc)

    def put(self, xi: int, n: int, data: bytes) -> None:
        """Accept entries xi .. xi + n - 1 as a block; they follow those accepted before. Entries that the
        lake has acknowledged meanwhile are not kept."""
        last = xi + n - 1
        assert xi <= self.taken + 1 and last < XI_MAX, "outbox: entries out of order"
        self.last_block = data
        if last <= self.taken:
            return
        self.taken = last
        self._waiting.append(data)
        self._places.append(last)
        batch = self.db.pending()
        batch.size += len(data)
        batch.ends[self.id] = self

    def gap(self, first: int, last: int, reason: int) -> None:
        if last > XI_MAX:
            raise ValueError("a gap up to %d: no table holds that" % last)
        assert first <= self.taken + 1, "outbox: gap out of order"
        first = max(first, self.taken + 1)
        if last < first:
            return
        self._waiting.append((first, last, reason))
        self.taken = last
        self._places.append(last)
        batch = self.db.pending()
        batch.ends[self.id] = self

    def chunks(self) -> Iterator[tuple[int, int, bytes]]:
        """The waiting entries, as rows; they do not wait any more."""
        parts: list[bytes] = []
        size = 0
        first = self._from
        for item, last in zip(self._waiting, self._places, strict=True):
            if isinstance(item, bytes):
                parts.append(len(item).to_bytes(4, "little"))
                parts.append(item)
                size += len(item) + 4
            else:
                parts.append(_GAP.pack(GAP | (_GAP.size - 4), *item))
                size += _GAP.size
            if size >= CHUNK_MAX_BYTES:
                yield first + 1, last, b"".join(parts)
                parts, size, first = [], 0, last
        if parts:
            yield first + 1, self.taken, b"".join(parts)
        self._waiting = []
        self._places = []
        self._from = self.taken

    def becomes(self, alphabet: str, within_ms: int) -> None:
        """Another version of the process continues the stream."""
        if (alphabet, within_ms) != (self.alphabet, self.within_ms):
            assert not self._waiting, "outbox: another alphabet while entries of this one wait"
            self.alphabet, self.within_ms = alphabet, within_ms
            sql = "UPDATE ends SET alphabet = ?, within_ms = ? WHERE id = ?"
            self.db.execute(sql, alphabet, within_ms, self.id)

    def acknowledge(self, upto: int) -> None:
        """The lake has everything up to here: delete it."""
        upto = min(upto, XI_MAX)
        if upto > self.acked:
            self.acked = upto
            self.db.execute("UPDATE ends SET acked = ?, cut = max(cut, ?) WHERE id = ?", upto, upto, self.id)
            self.db.execute('DELETE FROM chunks WHERE "end" = ? AND last <= ?', self.id, upto)
            self.cut = max(self.cut, upto)
            # The lake may know more than this disk does: the database was lost.
            if upto > self.taken and not self._waiting:
                self.taken = self.durable = self._from = upto


def records(data: bytes) -> Iterator[bytes | tuple[int, int, int]]:
    """The records of a chunk: blocks, and gaps as (first, last, reason)."""
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "little")
        if size & GAP:
            _, first, last, reason = _GAP.unpack_from(data, at)
            yield first, last, reason
            at += _GAP.size
        else:
            yield data[at + 4 : at + 4 + size]
            at += 4 + size


class OutboxStreams:
    """All that is on its way to the lake, of all processes."""

    def __init__(self, db: Database) -> None:
        self.db = db
        last = dict(db.query('SELECT "end", max(last) FROM chunks GROUP BY "end"'))
        self.all: dict[int, OutboxStream] = {}
        for row in db.query("SELECT * FROM ends ORDER BY id"):
            self.all[row[0]] = OutboxStream(db, row, last.get(row[0], 0))
        self._next = max(self.all, default=0) + 1

    def find(self, process: str, lake: str, version: str, inc: int) -> OutboxStream | None:
        for end in self.all.values():
            if (end.process, end.lake, end.version, end.inc) == (process, lake, version, inc):
                return end
        return None

    def newest(self, process: str, lake: str, version: str) -> OutboxStream | None:
        found = None
        for end in self.all.values():
            if (end.process, end.lake, end.version) == (process, lake, version):
                found = end
        return found

    def make(
        self, process: str, lake: str, version: str, inc: int, alphabet: str, within_ms: int
    ) -> OutboxStream:
        row = (self._next, process, lake, version, signed(inc), alphabet, within_ms, 0, 0)
        self._next += 1
        self.db.execute("INSERT INTO ends VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)", *row)
        end = self.all[row[0]] = OutboxStream(self.db, row, 0)
        return end


class Outbox:
    """Where the edges to the lake of one process end (see headwater/runtime/lake_sink.py)."""

    def __init__(
        self, ends: OutboxStreams, plan: Plan, acked: Callable[[str, int], int] = lambda lake, incarnation: 0
    ) -> None:
        self.ends = ends
        self.plan = plan
        self.acked = acked  # what the lake has acknowledged, for a stream that this disk does not know
        self.draining = False  # for a switch an edge to the lake is safe when it is here
        self._by_edge: dict[tuple[int, int], OutboxStream] = {}

    @property
    def full(self) -> bool:
        return self.ends.db.full

    def _version(self, edge: int) -> str:
        return self.plan.hash.hex() if self.plan.vertices[self.plan.edges[edge].src].kind else ""

    def end(self, edge: int, inc: int) -> OutboxStream:
        found = self._by_edge.get((edge, inc))
        if found is None:
            found = self._by_edge[(edge, inc)] = self._find(edge, inc)
        return found

    def _find(self, edge: int, inc: int) -> OutboxStream:
        e = self.plan.edges[edge]
        alphabet = self.plan.vertices[e.src].outs[e.sport].text
        key = (self.plan.name, e.lake, self._version(edge), inc)
        end = self.ends.find(*key)
        if end is None:
            end = self.ends.make(*key, alphabet, e.within_ms)
        else:
            end.becomes(alphabet, e.within_ms)
        have = self.acked(e.lake, end.incarnation)
        if have > end.acked:
            end.acknowledge(have)
        return end

    def put(self, edge: int, inc: int, xi: int, n: int, data: Any) -> None:
        end = self._by_edge.get((edge, inc)) or self.end(edge, inc)
        end.put(xi, n, bytes(data))

    def gap(self, edge: int, inc: int, first: int, last: int, reason: int) -> None:
        self.end(edge, inc).gap(first, last, reason)

    def latest(self, edge: int) -> int:
        end = self.ends.newest(self.plan.name, self.plan.edges[edge].lake, self._version(edge))
        return end.inc if end else 0

    def _begun(self, edge: int, inc: int) -> bool:
        """False for a source that has never been met: its incarnation is not known."""
        return bool(inc or self.plan.vertices[self.plan.edges[edge].src].kind)

    def durable(self, edge: int, inc: int) -> int:
        return self.end(edge, inc).durable if self._begun(edge, inc) else 0

    def lake(self, edge: int, inc: int) -> int:
        if not self._begun(edge, inc):
            return 0
        end = self.end(edge, inc)
        return end.durable if self.draining else end.acked
