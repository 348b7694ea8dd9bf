"""Lakes with precisely planted faults: what a sink would have written, written by delta-rs, row by row."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from headwater_cloud import checksum, tables
from headwater_cloud.commits import Stamp
from headwater_cloud.progress import ELEMENTS
from headwater_cloud.ranges import above, high, normal, subtract

BEGIN = datetime(2026, 3, 1, 8, tzinfo=UTC)
INCARNATION = 0x00F3A1B2C3D4E5F6
Key = tuple[str, int]


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


LEFT_OUT: dict[str, Any] = {"left out": True}  # of progress


class LakeOf:
    """Collects rows and gaps; `write` makes the small tables, with the progress of a true sink."""

    def __init__(self, path: Path, process: str = "cardio") -> None:
        self.path = path
        self.process = process
        self.elements: list[dict[str, Any]] = []
        self.gaps: list[dict[str, Any]] = []
        self.quarantine: list[dict[str, Any]] = []
        self.streams: list[dict[str, Any]] = []
        self.erasures: list[dict[str, Any]] = []  # without any, the lake is of an earlier version
        self.moves: list[dict[str, Any]] = []  # without any, the lake is of an earlier version
        self.progress: dict[Key, dict[str, Any]] = {}  # what a test says instead of what is true
        self.stamped = True  # whether a sink made the next commits
        self.behind = 0  # commits of `elements` that progress does not know
        self._written: dict[str, int] = {}

    def stream(self, stream: str, alphabet: str = "mV:i16", version: int = 1, within_ms: int = 0) -> None:
        self.streams.append(
            dict(
                process=self.process,
                stream=stream,
                version=version,
                alphabet=alphabet,
                within_ms=within_ms,
                since=at(len(self.streams)),
            )
        )

    def rows(
        self,
        stream: str,
        first: int,
        last: int,
        *,
        incarnation: int = INCARNATION,
        alphabet: str = "mV:i16",
        every_s: float = 0.01,
        delay_s: float = 2.0,
        landed_s: float | None = None,
        ints: Any = None,
        floats: Any = None,
        unsync: bool = False,
    ) -> list[dict[str, Any]]:
        """Rows first to last, taken every 10 ms, landed together 2 s after the last one; returns them."""
        landed = at(last * every_s + delay_s if landed_s is None else landed_s)
        made = [
            dict(
                stream=stream,
                incarnation=incarnation,
                xi=xi,
                ts=at(xi * every_s),
                unsync=unsync,
                arrived=min(at(xi * every_s + delay_s / 2), landed),
                alphabet=alphabet,
                ints=[xi % 1000] if ints is None else ints(xi),
                floats=[] if floats is None else floats(xi),
                landed=landed,
            )
            for xi in range(first, last + 1)
        ]
        self.elements += made
        return made

    def gap(
        self,
        stream: str,
        first: int,
        last: int,
        kind: str = "gap",
        reason: str = "full",
        times: bool = True,
        incarnation: int = INCARNATION,
    ) -> None:
        self.gaps.append(
            dict(
                process=self.process,
                stream=stream,
                incarnation=incarnation,
                first=first,
                last=last,
                kind=kind,
                reason=reason,
                from_ts=at(first * 0.01) if times else None,
                to_ts=at(last * 0.01) if times else None,
                landed=at(last * 0.01 + 2),
            )
        )

    def move(
        self, stream: str, operator: str, epoch: int, hosts: tuple[str, str], reason: str, at_s: float
    ) -> None:
        self.moves.append(
            dict(
                process=self.process,
                stream=stream,
                incarnation=INCARNATION,
                operator=operator,
                epoch=epoch,
                from_host=hosts[0],
                to_host=hosts[1],
                reason=reason,
                moved=at(at_s),
                landed=at(at_s + 2),
            )
        )

    def refuse(self, stream: str | None, first: int, last: int, reason: str, rows: int = 1) -> None:
        self.quarantine.append(
            dict(
                process=self.process,
                stream=stream,
                incarnation=None if stream is None else INCARNATION,
                first=first,
                last=last,
                rows=rows,
                reason=reason,
                detail="planted",
                file="planted.parquet",
                raw=json.dumps({"xi": first}).encode(),
                landed=at(last * 0.01 + 2),
            )
        )

    def truth(self) -> dict[Key, dict[str, Any]]:
        """The progress of a sink that wrote exactly this."""
        keys = {(row["stream"], row["incarnation"]) for row in self.elements + self.gaps}
        out = {}
        for key in sorted(keys):

            def mine(table: list[dict[str, Any]], key: Key = key) -> list[dict[str, Any]]:
                return [row for row in table if (row["stream"], row["incarnation"]) == key]

            rows = normal((row["xi"], row["xi"]) for row in mine(self.elements))
            gaps = normal((row["first"], row["last"]) for row in mine(self.gaps))
            dropped = normal((row["first"], row["last"]) for row in mine(self.gaps) if row["kind"] == "gap")
            done = normal(rows + gaps)
            kept = len(mine(self.elements))
            refused = sum(row["rows"] for row in mine(self.quarantine) if row["reason"] == "divergent")
            out[key] = dict(
                stream=key[0],
                incarnation=key[1],
                processes=[self.process],
                high=high(done),
                ranges=above(done),
                gaps=subtract(dropped, rows),
                rows_landed=kept + refused,
                rows_kept=kept,
                rows_duplicate=0,
                rows_quarantined=refused,
                last_ts=max((row["ts"] for row in mine(self.elements)), default=None),
                updated=at(0),
                sums=_sums(mine(self.elements)) if "sums" not in self.progress.get(key, {}) else None,
            )
        return out

    def acknowledge(self, stream: str, high: int, ranges: Sequence[Sequence[int]] = ()) -> None:
        """What the gateway was told."""
        said = {"streams": {stream: {"%016x" % INCARNATION: {"high": high, "ranges": ranges}}}}
        (self.path / "acks").mkdir(parents=True)
        (self.path / "acks" / (self.process + ".json")).write_text(json.dumps(said))

    def noted(self) -> None:
        """A true sink's progress as it would be now: what is planted from here on, it does not know."""
        self.progress = self.truth()

    def write(self) -> Path:
        """Write what came since the last time, one commit a table, in the order of a sink."""
        progress = []
        for key, row in self.truth().items():
            said = self.progress.get(key, {})
            if said is LEFT_OUT:
                continue
            row |= said
            for name in ("ranges", "gaps"):
                row[name] = [dict(first=first, last=last) for first, last in row[name]]
            progress.append(row)
        later = [name for name in ("erasures", "moves") if getattr(self, name)]
        for name in ("elements", "quarantine", "gaps", "streams", *later):
            rows = getattr(self, name)
            self._put(name, rows[self._written.get(name, 0) :], "append")
            self._written[name] = len(rows)
        known = {ELEMENTS: DeltaTable(str(self.path / "elements")).version() - self.behind}
        self._put("progress", progress, "overwrite", known)
        self._put("settled", [], "append")
        return self.path

    def _put(
        self, name: str, rows: list[dict[str, Any]], mode: Any, known: dict[str, int] | None = None
    ) -> None:
        schema = tables.ELEMENTS_ARROW if name == "elements" else tables.SCHEMAS[name]
        told = {"userMetadata": Stamp(0, 0, 0).text()} if self.stamped else {}
        transactions = [Transaction(app, version) for app, version in (known or {}).items()]
        write_deltalake(
            str(self.path / name),
            pa.Table.from_pylist(rows, schema=schema),
            mode=mode,
            commit_properties=CommitProperties(custom_metadata=told, app_transactions=transactions),
        )


def _sums(rows: list[dict[str, Any]]) -> list[dict[str, int]]:
    """The checksums of a sink that put rows of one numbering there as one run."""
    once = {row["xi"]: row for row in reversed(rows)}
    if not once:
        return []
    whole = 0
    for alphabet in {row["alphabet"] for row in once.values()}:
        mine = [row for row in once.values() if row["alphabet"] == alphabet]
        table = pa.Table.from_pylist(mine, schema=tables.ELEMENTS_ARROW)
        whole ^= checksum.xor(checksum.of_table(alphabet, table))
    return [{"first": min(once), "last": max(once), "rows": len(once), "sum": whole}]


def healthy(path: Path) -> LakeOf:
    """Two streams of one process: 1,000 rows with a hole and a declared gap; 300 rows without."""
    lake = LakeOf(path)
    lake.stream("cardio/ecg", within_ms=20_000)
    lake.stream("cardio/rate", "bpm:u8")
    lake.rows("cardio/ecg", 1, 400)
    lake.gap("cardio/ecg", 401, 401, "hole", "restart")
    lake.rows("cardio/ecg", 402, 700)
    lake.gap("cardio/ecg", 701, 800)
    lake.rows("cardio/ecg", 801, 1000)
    lake.rows("cardio/rate", 1, 300, alphabet="bpm:u8")
    return lake


def belt(path: Path) -> LakeOf:
    """A minute of an electrocardiogram: its board restarts, then the link is gone, then a buffer is full."""
    values = array("h", Path("tests/data/ecg208-360hz.i16").read_bytes())
    lake = LakeOf(path)
    lake.stream("cardio/ecg", within_ms=5_000)
    lake.stream("cardio/rate", "bpm:u8")

    def ecg(first: int, last: int, late_s: float, landed_s: float | None = None) -> None:
        rows = lake.rows(
            "cardio/ecg",
            first,
            last,
            every_s=1 / 360,
            landed_s=landed_s,
            ints=lambda xi: [values[xi]],
        )
        for row in rows:
            row["ts"] += timedelta(seconds=late_s)
            row["arrived"] = min(row["arrived"] + timedelta(seconds=late_s), row["landed"])

    for first in range(1, 7200, 1800):
        ecg(first, first + 1799, 0)
    lake.rows("cardio/rate", 1, 20, every_s=1, alphabet="bpm:u8", ints=lambda xi: [70 + xi % 3])
    lake.write()
    lake.gap("cardio/ecg", 7201, 7201, "hole", "restart")
    lake.gaps[-1].update(from_ts=at(20), to_ts=at(23.5))
    ecg(7202, 14400, 3.5, landed_s=50)
    lake.gap("cardio/ecg", 14401, 15120, times=False)
    ecg(15121, 21600, 3.5)
    lake.rows("cardio/rate", 21, 60, every_s=1, alphabet="bpm:u8", ints=lambda xi: [70 + xi % 3])
    lake.write()
    return lake
