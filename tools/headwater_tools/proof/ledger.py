"""What a gateway put into the landing zone, and whether a lake agrees: the judge of the sink's promises.

The ledger knows every row, gap and hole that was sent, every invalid file and every row that was changed on
its way. It reads the lake's tables without Spark, and does not rely on the sink's own sums.
"""

from __future__ import annotations

import dataclasses
import json
import random
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from deltalake.exceptions import TableNotFoundError
from headwater_cloud import store, tables
from headwater_cloud.location import Location
from headwater_cloud.ranges import Ranges, intersect, normal, size, subtract, union
from headwater_cloud.segment import Gap, hexadecimal, name_part
from headwater_cloud.settled import PREFIX
from headwater_cloud.settled import rows as settled_rows

from .segment_source import BEGIN_US, EVERY_US, INCARNATION, Supply

Key = tuple[str, str]  # stream, incarnation in hex digits


@dataclass
class Verdict:
    """What is wrong in a lake; every number must be 0."""

    acked_missing: int = 0  # rows acknowledged at any time, and not in the table
    acked_unsent: int = 0  # ξ acknowledged that were never sent
    duplicates: int = 0
    phantoms: int = 0  # rows that were never sent, or not like this
    never_landed: int = 0  # at the end: rows sent, and neither in the table nor excused
    gaps_wrong: int = 0  # ξ declared missing that were not, and the other way round
    quarantine_wrong: int = 0  # files and rows refused that were good, and the other way round
    not_conserved: int = 0  # incarnations whose sums do not add up
    unacknowledged: int = 0  # at the end: ξ sent and never acknowledged
    gave_up: int = 0  # sinks that ended by themselves

    def wrong(self) -> dict[str, int]:
        return {name: number for name, number in dataclasses.asdict(self).items() if number}

    def add(self, other: Verdict) -> None:
        for name, number in dataclasses.asdict(other).items():
            setattr(self, name, getattr(self, name) + number)


@dataclass
class Sent:
    """What was sent of one incarnation."""

    rows: Ranges = field(default_factory=list)
    gaps: Ranges = field(default_factory=list)
    holes: Ranges = field(default_factory=list)
    acked: Ranges = field(default_factory=list)  # at any time

    def excused(self) -> Ranges:
        return subtract(union(self.gaps, self.holes), self.rows)


class Ledger:
    """A gateway of one process: sends, remembers, and deletes what is acknowledged."""

    def __init__(
        self,
        landing: Path | Location,
        lake: Path | Location,
        seed: int,
        rows: int = 200,
        process: str = "crash",
        spool: Path | None = None,
    ) -> None:
        """`spool`: a local folder for new files, if the landing zone is not one."""
        self.landing, self.lake = (
            at if isinstance(at, Location) else Location.of(at) for at in (landing, lake)
        )
        self.spool = spool or Path(self.landing.spark).parent / "spool"
        self.rng = random.Random(seed)
        self.supply = Supply(self.landing.local or self.spool, rows, streams=4, process=process)
        self.sent: dict[Key, Sent] = {}
        self.files: dict[str, tuple[Key, int, int]] = {}  # that wait: good segments
        self.bad: set[str] = set()  # names of invalid files
        self.taken_back: set[str] = set()  # of these
        self.divergent: set[tuple[str, int]] = set()  # file, ξ
        self.incarnations = dict.fromkeys(self.supply.streams, INCARNATION)
        self.cuts = 0
        self.rows_sent = 0

    # Sending

    def send(self, stream: str, first: int, last: int, gaps: tuple[Gap, ...] = (), shift: int = 0) -> str:
        """A segment, whether it was sent before or not."""
        self.cuts += 1
        incarnation = self.incarnations[stream]
        key = stream, hexadecimal(incarnation)
        declared = normal((g.first, g.last) for g in gaps if g.kind == "gap")
        holes = normal((g.first, g.last) for g in gaps if g.kind == "hole")
        rows = subtract([(first, last)], union(declared, holes))
        # Recorded first: the sink may be quicker than this.
        sent = self.sent.setdefault(key, Sent())
        if not shift:
            sent.rows = union(sent.rows, rows)
            sent.gaps = union(sent.gaps, declared)
            sent.holes = union(sent.holes, holes)
        self.rows_sent += size(rows)
        path = self.supply.cut(
            stream, first, last, gaps=gaps, incarnation=incarnation, times=self.cuts, shift=shift
        )
        if self.landing.local is None:
            store.write(self.landing / path.name, path.read_bytes())
            path.unlink()
        if shift:
            # Its rows are acknowledged already: no gateway would keep them, and the sink must detect it.
            self.divergent.update((path.name, xi) for a, b in rows for xi in range(a, b + 1))
        else:
            self.files[path.name] = key, first, last
        return path.name

    def spoil(self, stream: str, first: int, last: int) -> str:
        """An invalid file with a segment's name: truncated, or with a flipped bit."""
        self.cuts += 1
        hidden = Supply(self.spool / "spoiled", 1, 1, self.supply.process)
        path = hidden.cut(stream, first, last, incarnation=self.incarnations[stream], times=self.cuts)
        data = bytearray(path.read_bytes())
        path.unlink()
        if self.rng.random() < 0.5:
            del data[self.rng.randrange(len(data)) :]
        else:
            data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
        assert "%08x" % zlib.crc32(data) not in path.name
        self.bad.add(path.name)
        store.write(self.landing / path.name, bytes(data), sync=False)
        return path.name

    def something(self, waiting_max: int) -> None:
        """The next thing that a gateway may do: mostly new rows, now and then trouble.

        Nothing, if this many segments wait for their acknowledgement.
        """
        rng, supply = self.rng, self.supply
        if sum(map(self._waits, self.files.values())) >= waiting_max:
            return
        stream = rng.choice(supply.streams)
        last = supply.last[stream]
        rows = supply.rows
        kind = rng.random()
        if kind < 0.55 or last < 2 * rows:
            self._new(stream, rows)
        elif kind < 0.63:  # with a hole, or a declared gap
            at = last + 1 + rng.randrange(rows // 2)
            end = at + rng.randrange(rows // 4)
            what = rng.choice(("gap", "hole"))
            when = (BEGIN_US + at * EVERY_US, BEGIN_US + end * EVERY_US)
            self.send(stream, last + 1, last + rows, (Gap(at, end, what, "planted", *when),))
            supply.last[stream] = last + rows
        elif kind < 0.73:  # earlier rows, all or some of them
            first = max(1, last - rng.randrange(1, 2 * rows))
            self._new(stream, rows, first)
        elif kind < 0.81:  # a later run first
            self.send(stream, last + rows + 1, last + 2 * rows)
            self.send(stream, last + 1, last + rows)
            supply.last[stream] = last + 2 * rows
        elif kind < 0.89:
            self.spoil(stream, last + 1, last + rows)
            self._new(stream, rows)
        elif kind < 0.95:  # other values for rows that are certainly known
            known = self._acked_rows(stream)
            if known:
                first = rng.choice(known)[0]
                self.send(stream, first, first, shift=1)
        elif kind < 0.98:  # its log is new: it begins at 1 again
            self.incarnations[stream] += 1
            supply.last[stream] = 0
            self._new(stream, rows)
        else:  # the rows of a gap that were not lost after all
            sent = self.sent[stream, hexadecimal(self.incarnations[stream])]
            for a, b in subtract(sent.gaps, sent.rows)[:1]:
                self.send(stream, a, b)

    def _new(self, stream: str, rows: int, first: int = 0) -> None:
        last = self.supply.last[stream]
        first = first or last + 1
        # What is declared missing stays missing if it is cut again.
        sent = self.sent.get((stream, hexadecimal(self.incarnations[stream])), Sent())
        gaps = tuple(
            Gap(a, b, kind, "planted", BEGIN_US + a * EVERY_US, BEGIN_US + b * EVERY_US)
            for kind, there in (("gap", sent.gaps), ("hole", sent.holes))
            for a, b in intersect(subtract(there, sent.rows), [(first, last + rows)])
        )
        gaps = tuple(sorted(gaps, key=lambda gap: gap.first))
        self.send(stream, first, last + rows, gaps)
        self.supply.last[stream] = last + rows

    def _acked_rows(self, stream: str) -> Ranges:
        sent = self.sent.get((stream, hexadecimal(self.incarnations[stream])), Sent())
        return intersect(sent.acked, sent.rows)

    # Deleting

    def listen(self) -> bool:
        """Take the acknowledgement, and remove what it covers; whether anything was acknowledged again."""
        try:
            text = store.read(self.lake / "acks" / (name_part(self.supply.process) + ".json"))
        except FileNotFoundError:
            return False
        said: dict[str, Any] = json.loads(text)
        news = False
        told = [
            (stream, incarnation, one["high"], [(a, b) for a, b in one["ranges"]])
            for stream, numberings in said["streams"].items()
            for incarnation, one in numberings.items()
        ]
        for stream, incarnation, high, ranges in told + self._settled(said):
            sent = self.sent.setdefault((stream, incarnation), Sent())
            below: Ranges = [(1, high)] if high else []
            acked = union(sent.acked, union(below, ranges))
            news = news or acked != sent.acked
            sent.acked = acked
        for name, file in list(self.files.items()):
            # A gateway may be slow to do so.
            if not self._waits(file) and self.rng.random() < 0.3:
                store.remove(self.landing / name)
                del self.files[name]
        for name in said["unreadable"]:
            if name not in self.taken_back:
                store.remove(self.landing / name)
                self.taken_back.add(name)
        return news

    def _settled(self, said: dict[str, Any]) -> list[tuple[str, str, int, Ranges]]:
        """What was acknowledged of streams that the sink has settled."""
        if "settled" not in said:
            return []
        name = PREFIX + name_part(self.supply.process) + ".json"
        streams = json.loads(store.read(self.lake / "acks" / name))["streams"]
        return [(stream, inc, high, []) for stream, marks in streams.items() for inc, high in marks.items()]

    def _waits(self, file: tuple[Key, int, int]) -> bool:
        key, first, last = file
        return bool(subtract([(first, last)], self.sent[key].acked))

    # Judging

    def judge(self, at_end: bool = False) -> Verdict:
        """Compare the lake with what was sent; what may still arrive is checked only at the end."""
        verdict = Verdict()
        self.listen()
        found = self._elements(verdict)
        for key, sent in self.sent.items():
            rows = found.get(key, [])
            verdict.acked_missing += size(subtract(intersect(sent.acked, sent.rows), rows))
            verdict.acked_unsent += size(subtract(sent.acked, union(sent.rows, sent.excused())))
            if at_end:
                verdict.never_landed += size(subtract(sent.rows, rows))
                verdict.unacknowledged += size(subtract(union(sent.rows, sent.excused()), sent.acked))
        self._gaps(verdict, at_end)
        self._quarantine(verdict, at_end)
        self._sums(verdict, found, at_end)
        return verdict

    def _elements(self, verdict: Verdict) -> dict[Key, Ranges]:
        table = _table(self.lake / "elements", ["stream", "incarnation", "xi", "ts", "ints"])
        found: dict[Key, Ranges] = {}
        if table is None:
            return found
        streams = np.array(table.column("stream").to_pylist())
        incarnations = table.column("incarnation").to_numpy()
        xis = table.column("xi").to_numpy()
        times = table.column("ts").cast("int64").to_numpy()
        values = np.array([ints[0] for ints in table.column("ints").to_pylist()], np.int64)
        wrong = (times != BEGIN_US + xis * EVERY_US) | (values != self.supply.value(xis))
        verdict.phantoms += int(wrong.sum())
        for stream, incarnation in sorted({*zip(streams.tolist(), incarnations.tolist())}):
            mine = xis[(streams == stream) & (incarnations == incarnation)]
            different = np.unique(mine)
            verdict.duplicates += len(mine) - len(different)
            key = stream, hexadecimal(incarnation)
            found[key] = normal((int(xi), int(xi)) for xi in different)
            verdict.phantoms += size(subtract(found[key], self.sent.get(key, Sent()).rows))
        return found

    def _gaps(self, verdict: Verdict, at_end: bool) -> None:
        table = _table(self.lake / "gaps", ["stream", "incarnation", "first", "last", "kind"])
        told: dict[tuple[Key, str], Ranges] = {}
        for row in [] if table is None else table.to_pylist():
            at = (row["stream"], hexadecimal(row["incarnation"])), row["kind"]
            told[at] = union(told.get(at, []), [(row["first"], row["last"])])
        for key, sent in self.sent.items():
            for kind, planted in (("gap", sent.gaps), ("hole", sent.holes)):
                there = told.pop((key, kind), [])
                verdict.gaps_wrong += size(subtract(there, planted))
                if at_end:
                    # A gap whose rows arrived first need not be recorded.
                    verdict.gaps_wrong += size(subtract(subtract(planted, sent.rows), there))
        verdict.gaps_wrong += sum(size(ranges) for ranges in told.values())

    def _quarantine(self, verdict: Verdict, at_end: bool) -> None:
        table = _table(self.lake / "quarantine", ["file", "first", "reason", "rows"])
        rows = [] if table is None else table.to_pylist()
        files = Counter(row["file"] for row in rows if row["reason"] != "divergent")
        refused = Counter((row["file"], row["first"]) for row in rows if row["reason"] == "divergent")
        counted: list[tuple[Counter[Any], set[Any]]] = [(files, self.bad), (refused, self.divergent)]
        for there, planted in counted:
            verdict.quarantine_wrong += sum(n - 1 for n in there.values()) + len(there.keys() - planted)
            if at_end:
                verdict.quarantine_wrong += len(planted - there.keys())

    def _sums(self, verdict: Verdict, found: dict[Key, Ranges], at_end: bool) -> None:
        for row in settled_rows(self.lake):
            parts = row["rows_kept"] + row["rows_duplicate"] + row["rows_quarantined"]
            kept = size(found.get((row["stream"], hexadecimal(row["incarnation"])), []))
            # Between the append and progress the table is ahead.
            right = row["rows_kept"] == kept if at_end else row["rows_kept"] <= kept
            verdict.not_conserved += row["rows_landed"] != parts or not right


def _table(at: Location, columns: list[str] | None) -> Any:
    try:
        return tables.open_table(at).to_pyarrow_table(columns=columns)
    except TableNotFoundError:
        return None
