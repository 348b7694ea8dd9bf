"""A gateway that shares no code with the project, and its ledger: it judges sinks that are killed at random.

It writes segments from docs/spec.md alone, by plain pyarrow, with its own checksums. It holds what it has
sent and what was acknowledged as one mark for each ξ, without ranges. It removes a segment when every ξ of
it was acknowledged, so rows that are acknowledged too early are lost. The lake is read by delta-rs, without
relying on the sink's own tables (`progress`, `settled`).
"""

from __future__ import annotations

import dataclasses
import json
import random
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

PROCESS = "storm"
STREAMS = ("storm/ecg", "storm/Blutdruck ä", "storm/beats", "storm/rate")
ALPHABET = "n:i32 v:f64"
START_US = 1_780_000_000_000_000
TIME = pa.timestamp("us", "UTC")
CODECS = ("zstd", "snappy", "gzip", "none")
WAITING_MAX = 20  # segments that may wait: a slow machine takes no longer for the same number of kills
ROWS_MAX = 1000

NOTHING, ROW, HOLE, GAP = range(4)  # what was sent as a ξ


@dataclass
class Verdict:
    """What is wrong in a lake; every number must be 0."""

    lost: int = 0  # rows that were acknowledged, and are not in the table
    twice: int = 0  # rows that are there more than once
    changed: int = 0  # rows with another time, alphabet or payload than the one that was sent
    phantoms: int = 0  # rows that were never sent
    false_acks: int = 0  # ξ acknowledged that were never sent
    acks_fell: int = 0  # marks that went back within a generation
    gaps_wrong: int = 0  # holes and gaps that were not sent, or are recorded twice; at the end, those missing
    refused: int = 0  # good files and rows in quarantine
    never_landed: int = 0  # at the end: rows that were sent and are not there
    unacknowledged: int = 0  # at the end: ξ that were sent and not acknowledged
    gave_up: int = 0  # sinks that ended by themselves, or not when their other half was killed
    audit: int = 0  # at the end: 1 if `hw audit` finds the promise broken

    def wrong(self) -> dict[str, int]:
        return {name: number for name, number in dataclasses.asdict(self).items() if number}

    def add(self, other: Verdict) -> None:
        for name, number in dataclasses.asdict(other).items():
            setattr(self, name, getattr(self, name) + number)


@dataclass
class Numbering:
    """What was sent of one stream and incarnation; arrays have the index ξ."""

    stream: str
    incarnation: int  # 64 bits
    sent: Any = field(default_factory=lambda: np.zeros(1 << 10, np.int8))
    acked: Any = field(default_factory=lambda: np.zeros(1 << 10, bool))
    last: int = 0
    said: tuple[int, int] = (-1, 0)  # generation, and the mark in it

    def grow(self, last: int) -> None:
        while last >= len(self.sent):
            self.sent = np.concatenate([self.sent, np.zeros_like(self.sent)])
            self.acked = np.concatenate([self.acked, np.zeros_like(self.acked)])

    def payload(self, xi: Any) -> tuple[Any, Any, Any]:
        """Time, integer and float of rows; some floats are -0.0 and NaN."""
        n = (xi * 7919 + self.incarnation % 100_003) % (1 << 31)
        v = np.where(xi % 17 == 0, -0.0, np.where(xi % 19 == 0, np.nan, n / 3))
        return START_US + 1000 * xi, n, v


@dataclass
class File:
    """A segment in the landing zone."""

    of: Numbering
    first: int
    last: int


class ForeignGateway:
    def __init__(self, landing: Path, lake: Path, seed: int) -> None:
        self.landing = landing
        self.lake = lake
        self.rng = random.Random(seed)
        self.all: dict[tuple[str, int], Numbering] = {}
        self.current = {stream: self._begin(stream) for stream in STREAMS}
        self.files: dict[str, File] = {}
        self.spoiled: set[str] = set()
        self.recut: set[str] = set()
        self.files_sent = 0
        self.rows_sent = 0  # each time that they were
        self.fell = 0
        landing.mkdir(parents=True, exist_ok=True)

    def _begin(self, stream: str) -> Numbering:
        """A deployment, or an erased board: the stream is numbered from 1."""
        made = Numbering(stream, self.rng.getrandbits(64))
        self.all[stream, made.incarnation] = made
        return made

    # Sending

    def act(self) -> None:
        """One thing that a gateway may do: mostly new rows. Nothing if many segments wait."""
        if len(self.files) >= WAITING_MAX:
            return
        rng = self.rng
        stream = rng.choice(STREAMS)
        numbering = self.current[stream]
        kind = rng.random()
        if kind < 0.50:
            self._new(numbering)
        elif kind < 0.60:  # with some earlier rows
            self._new(numbering, rng.randrange(1, ROWS_MAX))
        elif kind < 0.70:  # the later run first
            middle, end = self._accept(numbering), self._accept(numbering)
            self._put(numbering, middle[1] + 1, end[1])
            self._put(numbering, *middle)
        elif kind < 0.78:  # rows that have landed already, cut elsewhere; also of a board long gone
            old = rng.choice(list(self.all.values()))
            if old.last:
                first = rng.randint(1, old.last)
                self._put(old, first, rng.randint(first, min(old.last, first + ROWS_MAX)))
        elif kind < 0.86:  # a board that was found continues where it ended
            self._new(rng.choice(list(self.all.values())))
        elif kind < 0.91:
            self._put(numbering, *self._accept(numbering), spoil=True)
        else:
            self.current[stream] = self._begin(stream)
            self._new(self.current[stream])

    def _new(self, numbering: Numbering, back: int = 0) -> None:
        first, last = self._accept(numbering)
        self._put(numbering, max(1, first - back), last)

    def _accept(self, numbering: Numbering) -> tuple[int, int]:
        """The next run: rows, now and then a hole or a declared gap among them."""
        first = numbering.last + 1
        last = first + self.rng.choice((0, 5, 40, ROWS_MAX - 1))
        numbering.grow(last)
        numbering.sent[first : last + 1] = ROW
        if self.rng.random() < 0.15:
            numbering.sent[self.rng.randint(first, last)] = HOLE
        if self.rng.random() < 0.15:
            at = self.rng.randint(first, last)
            numbering.sent[at : min(last, at + 10) + 1] = GAP
        numbering.last = last
        return first, last

    def _put(self, numbering: Numbering, first: int, last: int, spoil: bool = False) -> None:
        self.files_sent += 1  # also the number of the cut, so that no name is used twice
        data = self._bytes(numbering, first, last, self.files_sent)
        rows = int((numbering.sent[first : last + 1] == ROW).sum())
        name = "%s~%s~%016x~%d-%d~%d~%08x~%08x.parquet" % (
            _part(PROCESS), _part(numbering.stream), numbering.incarnation, first, last, rows,
            zlib.crc32(ALPHABET.encode()), zlib.crc32(data),
        )  # fmt: skip
        if spoil:
            at = self.rng.randrange(len(data))
            data = data[:at] + bytes([data[at] ^ 1 << self.rng.randrange(8)]) + data[at + 1 :]
            self.spoiled.add(name)
        self.rows_sent += rows
        self.files[name] = File(numbering, first, last)
        hidden = self.landing / (".%d" % self.files_sent)
        hidden.write_bytes(data)
        hidden.rename(self.landing / name)

    def _bytes(self, numbering: Numbering, first: int, last: int, cut: int) -> bytes:
        kinds = numbering.sent[first : last + 1]
        xi = first + np.flatnonzero(kinds == ROW).astype(np.int64)
        ts, n, v = numbering.payload(xi)
        signed = _signed(numbering.incarnation)
        table = pa.table(
            {
                "stream": pa.array([numbering.stream] * len(xi), pa.string()),
                "incarnation": pa.array(np.full(len(xi), signed, np.int64)),
                "xi": pa.array(xi),
                "ts": pa.array(ts).cast(TIME),
                "unsync": pa.array(np.zeros(len(xi), bool)),
                "arrived": pa.array(ts + 60_000_000).cast(TIME),
                "alphabet": pa.array([ALPHABET] * len(xi), pa.string()),
                "ints": pa.array([[int(one)] for one in n], pa.list_(pa.int64())),
                "floats": pa.array([[float(one)] for one in v], pa.list_(pa.float64())),
            }
        )
        gaps: list[list[Any]] = []
        for offset in np.flatnonzero(kinds > ROW):
            at = first + int(offset)
            word = "hole" if kinds[offset] == HOLE else "gap"
            when = [START_US + 1000 * at, START_US + 1000 * at + 5] if word == "hole" else [None, None]
            if word == "gap" and gaps and gaps[-1][1:3] == [at - 1, "gap"]:
                gaps[-1][1] = at
            else:
                gaps.append([at, at, word, "planted", *when])
        footer: dict[str, Any] = {
            "format": 1, "process": PROCESS, "stream": numbering.stream, "first": first, "last": last,
            "incarnation": "%016x" % numbering.incarnation, "rows": len(xi), "alphabet": ALPHABET,
            "within_ms": 5000, "gaps": gaps, "cut": cut,
        }  # fmt: skip
        if self.rng.random() < 0.5:
            footer["sum"] = "%016x" % _sum(xi, ts, n, v)
        sink = pa.BufferOutputStream()
        pq.write_table(
            table.replace_schema_metadata({b"headwater": json.dumps(footer).encode()}),
            sink,
            compression=self.rng.choice(CODECS),
            use_dictionary=self.rng.random() < 0.5,
            data_page_version=self.rng.choice(("1.0", "2.0")),
            write_page_checksum=self.rng.random() < 0.5,
        )
        whole: bytes = sink.getvalue().to_pybytes()
        return whole

    # Acknowledgements

    def listen(self) -> bool:
        """Take the acknowledgements; whether anything was acknowledged for the first time."""
        try:
            said = json.loads((self.lake / "acks" / (PROCESS + ".json")).read_text())
            settled = {}
            if "settled" in said:
                text = (self.lake / "acks" / ("_settled.%s.json" % PROCESS)).read_text()
                settled = json.loads(text)["streams"]
        except FileNotFoundError:
            return False
        news = False
        for (stream, incarnation), numbering in self.all.items():
            digits = "%016x" % incarnation
            one = said["streams"].get(stream, {}).get(digits)
            if one is None:
                one = {"high": settled.get(stream, {}).get(digits, 0), "ranges": []}
            self._watch(numbering, said["generation"], one["high"])
            for first, last in [(1, one["high"]), *one["ranges"]]:
                numbering.grow(last)
                news = news or not numbering.acked[first : last + 1].all()
                numbering.acked[first : last + 1] = True
        for name in said["unreadable"]:
            if name in self.files and name not in self.recut:
                self.recut.add(name)
                file = self.files[name]
                self._put(file.of, file.first, file.last)
        for name, file in list(self.files.items()):
            # A gateway may be slow to do so.
            if file.of.acked[file.first : file.last + 1].all() and self.rng.random() < 0.5:
                (self.landing / name).unlink(missing_ok=True)
                del self.files[name]
        return news

    def _watch(self, numbering: Numbering, generation: int, high: int) -> None:
        if numbering.said[0] == generation and high < numbering.said[1]:
            self.fell += 1
        numbering.said = generation, high

    # Judging

    def judge(self, at_end: bool = False) -> Verdict:
        """Compare the lake with what was sent; completeness is checked only at the end."""
        verdict = Verdict()
        self.listen()
        verdict.acks_fell, self.fell = self.fell, 0
        there = self._elements(verdict)
        for key, numbering in self.all.items():
            found = there.get(key, np.zeros(0, np.int64))
            rows = np.zeros(len(numbering.sent), bool)
            rows[found[found < len(rows)]] = True
            sent = numbering.sent == ROW
            verdict.lost += int((numbering.acked & sent & ~rows).sum())
            verdict.false_acks += int((numbering.acked[1:] & (numbering.sent[1:] == NOTHING)).sum())
            if at_end:
                verdict.never_landed += int((sent & ~rows).sum())
                verdict.unacknowledged += int(((numbering.sent != NOTHING) & ~numbering.acked).sum())
        self._gaps(verdict, at_end)
        for row in _rows(self.lake / "quarantine", ["file", "reason"]):
            verdict.refused += row["reason"] == "divergent" or row["file"] not in self.spoiled
        return verdict

    def _elements(self, verdict: Verdict) -> dict[tuple[str, int], Any]:
        """The ξ that are there, by numbering; what is wrong with their rows is counted."""
        columns = ["stream", "incarnation", "xi", "ts", "alphabet", "ints", "floats"]
        table = _table(self.lake / "elements", columns)
        found: dict[tuple[str, int], Any] = {}
        if table is None or not len(table):
            return found
        names = table.column("stream").combine_chunks().dictionary_encode()
        codes = names.indices.to_numpy()
        incarnations = table.column("incarnation").to_numpy()
        for code, stream in enumerate(names.dictionary.to_pylist()):
            for signed in np.unique(incarnations[codes == code]).tolist():
                mask = (codes == code) & (incarnations == signed)
                key = stream, signed % (1 << 64)
                rows = table.filter(pa.array(mask))
                xi = rows.column("xi").to_numpy()
                different = np.unique(xi)
                verdict.twice += len(xi) - len(different)
                found[key] = different
                if key not in self.all:
                    verdict.phantoms += len(xi)
                    continue
                numbering = self.all[key]
                known = (xi > 0) & (xi < len(numbering.sent))
                known[known] = numbering.sent[xi[known]] == ROW
                verdict.phantoms += int((~known).sum())
                verdict.changed += _changed(numbering, rows)
        return found

    def _gaps(self, verdict: Verdict, at_end: bool) -> None:
        told = {key: np.zeros(len(one.sent), np.int64) for key, one in self.all.items()}
        for row in _rows(self.lake / "gaps", ["stream", "incarnation", "first", "last", "kind"]):
            key = row["stream"], row["incarnation"] % (1 << 64)
            kind = HOLE if row["kind"] == "hole" else GAP
            first, last = row["first"], row["last"]
            if key not in self.all or last >= len(self.all[key].sent):
                verdict.gaps_wrong += last - first + 1
                continue
            verdict.gaps_wrong += int((self.all[key].sent[first : last + 1] != kind).sum())
            told[key][first : last + 1] += 1
        for key, times in told.items():
            verdict.gaps_wrong += int((times > 1).sum())
            if at_end:
                verdict.gaps_wrong += int(((self.all[key].sent > ROW) & (times == 0)).sum())


def _changed(numbering: Numbering, rows: pa.Table) -> int:
    """Rows that are not as they were sent."""
    ts, n, v = numbering.payload(rows.column("xi").to_numpy())
    wrong = rows.column("ts").cast(pa.int64()).to_numpy() != ts
    wrong |= ~np.asarray(pc.equal(rows.column("alphabet"), ALPHABET))
    for name, wanted in (("ints", n), ("floats", v)):
        lists = rows.column(name).combine_chunks()
        lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
        if (lengths != 1).any():
            return len(rows)
        values = lists.flatten().to_numpy()
        if name == "floats":
            values, wanted = _bits(values), _bits(wanted)
        wrong |= values != wanted
    return int(wrong.sum())


def _bits(floats: Any) -> Any:
    """As they are stored; NaN is one value."""
    return np.where(np.isnan(floats), np.uint64(0x7FF8 << 48), np.ascontiguousarray(floats).view(np.uint64))


def _table(path: Path, columns: list[str]) -> Any:
    try:
        return DeltaTable(path).to_pyarrow_table(columns=columns)
    except TableNotFoundError:
        return None


def _rows(path: Path, columns: list[str]) -> list[dict[str, Any]]:
    table = _table(path, columns)
    return [] if table is None else list(table.to_pylist())


def _signed(incarnation: int) -> int:
    return incarnation - (1 << 64) if incarnation >> 63 else incarnation


def _part(text: str) -> str:
    allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."
    return "".join(c if c in allowed else "." if c == "/" else "_" for c in text)[:60]


# XXH64 of at most 31 bytes, from the specification of xxHash.

MASK = (1 << 64) - 1
PRIMES = (
    11400714785074694791,
    14029467366897019727,
    1609587929392839161,
    9650029242287828579,
    2870177450012600261,
)


def _sum(xi: Any, ts: Any, n: Any, v: Any) -> int:
    """The checksum of rows, as docs/spec.md defines it."""
    begin = _xxh64(ALPHABET.encode(), 42)
    whole = 0
    for words in zip(xi.tolist(), ts.tolist(), n.tolist(), _bits(v).tolist(), strict=True):
        row = begin
        for word in words:
            row = _xxh64((word & MASK).to_bytes(8, "little"), row)
        whole ^= row
    return whole


def _xxh64(data: bytes, seed: int) -> int:
    one, two, three, four, five = PRIMES
    h = (seed + five + len(data)) & MASK
    at = 0
    for size in (8, 4, 1):
        while len(data) - at >= size:
            lane = int.from_bytes(data[at : at + size], "little")
            at += size
            if size == 8:
                h ^= _rotate(lane * two, 31) * one & MASK
                h = (_rotate(h, 27) * one + four) & MASK
            elif size == 4:
                h ^= lane * one & MASK
                h = (_rotate(h, 23) * two + three) & MASK
            else:
                h ^= lane * five & MASK
                h = _rotate(h, 11) * one & MASK
    h = (h ^ h >> 33) * two & MASK
    h = (h ^ h >> 29) * three & MASK
    return h ^ h >> 32


def _rotate(word: int, by: int) -> int:
    word &= MASK
    return (word << by | word >> (64 - by)) & MASK
