"""The cutter: a process of its own that makes segments of what the database holds (docs/spec.md, "Segments").

It has pyarrow and a core for itself, so cutting never delays incoming frames. It reads the database and
writes the landing zone; the gateway sends it orders, one JSON object a line on standard input, and gets one
a line back. It ends when standard input ends. It may be killed at any moment: a file without its final name
does not count, and one with it counts, whether the gateway learned of it or not.

When the gateway is killed, its cutter still finishes its order. So the next cutter begins when that one has
ended: otherwise a segment could appear after the landing zone was listed, and be cut again.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import sys
import time
import zlib
from array import array
from collections.abc import Iterator
from typing import Any

from headwater.data import block
from headwater.data.alphabet import Alphabet
from headwater.data.batch import Batch
from headwater.offboard.reasons import OF_HOLES
from headwater.plan.reader import BATCH_MAX
from headwater.protocol.position import FAR

from .names import join, words


class _Slim:
    """pyarrow loads pandas and numpy if it finds them: 60 MB that nothing here needs."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name in ("pandas", "numpy"):
            raise ImportError(name)


if __name__ == "__main__":
    sys.meta_path.insert(0, _Slim)

import pyarrow as pa  # noqa: E402
import pyarrow.fs  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from . import checksum  # noqa: E402

GAPS_MAX = 1000  # of one segment
BYTES_MAX = 128 << 20  # packed bytes that one segment is made of
GAP_REASONS = {1: "full", 2: "given up", 3: "gateway lost", 4: "earlier version"}
UNREADABLE = "unreadable block"
SIGN = "_sink.json"  # by which a sink shows that it is alive
SIGN_MAX = 4096  # bytes of it
SETTLED = "_settled."  # before the name of a process: its incarnations without news for long
FORMER_S = 30.0  # the longest wait for a hanging former cutter: rows that are cut twice, the sink drops

_SCHEMA = [
    pa.field("stream", pa.string(), nullable=False),
    pa.field("incarnation", pa.int64(), nullable=False),
    pa.field("xi", pa.int64(), nullable=False),
    pa.field("ts", pa.timestamp("us", tz="UTC"), nullable=False),
    pa.field("unsync", pa.bool_(), nullable=False),
    pa.field("arrived", pa.timestamp("us", tz="UTC"), nullable=False),
    pa.field("alphabet", pa.string(), nullable=False),
    pa.field("ints", pa.list_(pa.int64())),
    pa.field("floats", pa.list_(pa.float64())),
]


class Columns:
    """Entries as the columns of a segment, filled batch by batch."""

    def __init__(self, alphabet: Alphabet) -> None:
        self.alphabet = alphabet
        self.xi = array("q")
        self.ts = array("q")
        self.arrived = array("q")
        self.unsync = array("b")
        self.ints: list[int] = [k for k, code in enumerate(alphabet.codes) if code not in "fd"]
        self.floats: list[int] = [k for k, code in enumerate(alphabet.codes) if code in "fd"]
        self.int_values = array("q")
        self.float_values = array("d")

    def add(self, b: Batch, i0: int, n: int, arrived_us: int) -> None:
        """Entries i0 .. i0 + n - 1 of a batch."""
        first = b.xi + i0
        self.xi.extend(range(first, first + n))
        if b.dt > 0:
            ts = b.ts + i0 * b.dt
            self.ts.extend(range(ts, ts + n * b.dt, b.dt))
        elif b.dt == 0:
            self.ts.extend([b.ts] * n)
        else:
            base = b.ts
            self.ts.extend([base + offset for offset in b.at[i0 : i0 + n]])
        self.arrived.extend(array("q", [arrived_us]) * n)
        self.unsync.extend(array("b", [b.unsync]) * n)
        _weave(self.int_values, [_as_signed(b.cols[k][i0 : i0 + n]) for k in self.ints], n)
        _weave(self.float_values, [b.cols[k][i0 : i0 + n] for k in self.floats], n)

    def __len__(self) -> int:
        return len(self.xi)


def _as_signed(column: array[Any]) -> array[Any]:
    if column.typecode != "Q":
        return column
    out = array("q")
    out.frombytes(column.tobytes())
    return out


def _weave(into: array[Any], columns: list[array[Any]], n: int) -> None:
    """The fields of every element one after the other."""
    if len(columns) == 1:
        into.extend(array(into.typecode, columns[0]))
    elif columns:
        flat = array(into.typecode, bytes(into.itemsize * n * len(columns)))
        for k, column in enumerate(columns):
            flat[k :: len(columns)] = array(into.typecode, column)
        into.extend(flat)


class Run:
    """One contiguous run of a stream: rows, holes and gaps."""

    def __init__(self, alphabet: str, first: int) -> None:
        self.text = alphabet
        self.columns = Columns(Alphabet(alphabet))
        self.first = first
        self.last = first - 1
        self.gaps: list[list[Any]] = []
        self.damaged = 0
        self.bytes = 0
        self._ts: int | None = None  # of the last entry

    def gap(
        self, first: int, last: int, kind: str, reason: str, from_us: int | None, to_us: int | None
    ) -> None:
        gaps = self.gaps
        if kind == "gap" and gaps and gaps[-1][1] + 1 == first and gaps[-1][2:4] == [kind, reason]:
            gaps[-1][1] = last
        else:
            gaps.append([first, last, kind, reason, from_us, to_us])
        self.last = last

    def entries(self, b: Batch, upto: int, arrived_us: int) -> None:
        """What of a batch follows the run, as far as `upto`."""
        i0 = self.last + 1 - b.xi
        n = min(upto, b.xi + b.n - 1) - self.last
        if i0 < 0 or n <= 0:
            return
        first_us = b.ts_of(i0)
        for gap in reversed(self.gaps):
            if gap[2] != "gap" or gap[5] is not None:
                break
            gap[5] = first_us
        if b.hole:
            reason = OF_HOLES.get(b.hole, "reason %d" % b.hole)
            self.gap(b.xi, b.xi, "hole", reason, b.ts - b.back, b.ts)
        else:
            self.columns.add(b, i0, n, arrived_us)
            self.last += n
        self._ts = b.ts_of(i0 + n - 1)

    @property
    def full(self) -> bool:
        return len(self.gaps) >= GAPS_MAX or self.bytes >= BYTES_MAX

    @property
    def ts(self) -> int | None:
        return self._ts


def gather(
    rows: Iterator[tuple[int, int, int, str, bytes]], first: int, last: int, rows_max: int
) -> Run | None:
    """The run that begins at `first`: to `last`, or as far as one segment goes."""
    from ..database.outbox import records

    run: Run | None = None
    batch: Batch | None = None
    for chunk_first, _, arrived, alphabet, data in rows:
        if run is None:
            run = Run(alphabet, first)
            batch = Batch(run.columns.alphabet, BATCH_MAX)
        if alphabet != run.text or run.full or len(run.columns) >= rows_max or chunk_first > run.last + 1:
            break
        assert batch is not None
        run.bytes += len(data)
        for item in records(data):
            if run.last >= last or len(run.gaps) >= GAPS_MAX:
                break
            if isinstance(item, tuple):
                begin, end = max(item[0], run.last + 1), min(item[1], last)
                if begin <= end:
                    reason = GAP_REASONS.get(item[2], "reason %d" % item[2])
                    run.gap(begin, end, "gap", reason, run.ts, None)
                continue
            try:
                xi, n = block.peek(item)
                if xi + n - 1 <= run.last:
                    continue
                block.decode(item, 0, len(item), batch)
                if batch.ts_of(batch.n - 1) >= FAR:
                    raise block.BlockError("times that no clock shows")
                run.entries(batch, last, arrived)
            except block.BlockError:
                # The seal is valid, so the board itself produced this block. Its contents are lost: a gap.
                end = min(xi + n - 1, last)
                run.damaged += end - run.last
                run.gap(run.last + 1, end, "gap", UNREADABLE, run.ts, None)
    return run if run is not None and run.last >= first else None


def parquet(run: Run, order: dict[str, Any], level: int) -> bytes:
    """The bytes of the segment."""
    columns = run.columns
    n = len(columns)
    inc = order["incarnation"]
    arrays = [
        pa.repeat(pa.scalar(order["stream"], pa.string()), n),
        pa.repeat(pa.scalar(inc - (1 << 64) if inc >> 63 else inc, pa.int64()), n),
        _plain(columns.xi, _SCHEMA[2].type),
        _plain(columns.ts, _SCHEMA[3].type),
        pa.Array.from_buffers(pa.bool_(), n, [None, pa.py_buffer(_bits(columns.unsync))]),
        _plain(columns.arrived, _SCHEMA[5].type),
        pa.repeat(pa.scalar(run.text, pa.string()), n),
        _lists(columns.int_values, len(columns.ints), n, pa.int64()),
        _lists(columns.float_values, len(columns.floats), n, pa.float64()),
    ]
    footer = {
        "format": 1,
        "process": order["process"],
        "stream": order["stream"],
        "incarnation": "%016x" % inc,
        "first": run.first,
        "last": run.last,
        "rows": n,
        "alphabet": run.text,
        "within_ms": order["within_ms"],
        "cut": order["cut"],
        "gaps": run.gaps,
        "sum": "%016x" % _checksum(run),
    }
    if order.get("moves"):
        footer["moves"] = order["moves"]
    text = json.dumps(footer, separators=(",", ":"))
    sink = pa.BufferOutputStream()
    schema = pa.schema(_SCHEMA)
    with pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=level,
        write_statistics=True,
        write_page_checksum=True,
        store_schema=False,
        use_dictionary=["stream", "alphabet", "incarnation"],
    ) as writer:
        writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
        writer.add_key_value_metadata({"headwater": text})
    whole: bytes = sink.getvalue().to_pybytes()
    return whole


def _checksum(run: Run) -> int:
    """Of all rows. The values of a list follow one another row by row."""
    columns = run.columns
    ints, floats = len(columns.ints), len(columns.floats)
    fields = [_plain(columns.int_values[k::ints], pa.int64()) for k in range(ints)]
    fields += [_plain(columns.float_values[k::floats], pa.float64()) for k in range(floats)]
    return checksum.of_rows(
        run.text, [_plain(columns.xi, pa.int64()), _plain(columns.ts, pa.int64()), *fields]
    )


def _plain(values: array[Any], kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _bits(flags: array[int]) -> bytes:
    """Flags of 0 and 1 as bits, the lowest first."""
    n = len(flags)
    if not any(flags):
        return bytes((n + 7) // 8)
    whole = flags.tobytes() + bytes(-n % 8)
    return bytes(sum(bit << k for k, bit in enumerate(whole[i : i + 8])) for i in range(0, n, 8))


def _lists(values: array[Any], width: int, n: int, kind: pa.DataType) -> pa.Array:
    offsets = array("i", range(0, n * width + 1, width)) if width else array("i", bytes(4 * (n + 1)))
    return pa.ListArray.from_arrays(_plain(offsets, pa.int32()), _plain(values, kind))


class Place:
    """A folder or a prefix of an object store."""

    def __init__(self, where: str) -> None:
        self.local = "://" not in where
        if self.local:
            os.makedirs(where, exist_ok=True)
            self.root = where
        else:
            self.fs, self.root = pyarrow.fs.FileSystem.from_uri(where)

    def _path(self, file: str) -> str:
        return self.root.rstrip("/") + "/" + file

    def put(self, file: str, data: bytes) -> None:
        """The file appears whole, and stays."""
        if not self.local:
            with self.fs.open_output_stream(self._path(file)) as out:
                out.write(data)
            return
        hidden = self._path(".%s.part" % file)
        handle = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            with open(handle, "wb", closefd=False) as out:
                out.write(data)
            os.fsync(handle)
        finally:
            os.close(handle)
        os.rename(hidden, self._path(file))
        self.settle()

    def settle(self) -> None:
        if self.local:
            folder = os.open(self.root, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def get(self, file: str) -> bytes | None:
        if not self.local:
            if self.fs.get_file_info(self._path(file)).type != pyarrow.fs.FileType.File:
                return None
            with self.fs.open_input_stream(self._path(file)) as source:
                whole: bytes = source.read()
            return whole
        try:
            with open(self._path(file), "rb") as source:
                return source.read()
        except FileNotFoundError:
            return None

    def remove(self, files: list[str]) -> None:
        for file in files:
            try:
                if self.local:
                    os.unlink(self._path(file))
                else:
                    self.fs.delete_file(self._path(file))
            except FileNotFoundError:
                continue
        self.settle()

    def names(self) -> list[str]:
        if self.local:
            return sorted(os.listdir(self.root))
        selector = pyarrow.fs.FileSelector(self.root, allow_not_found=True)
        return sorted(info.base_name for info in self.fs.get_file_info(selector))


class Cutter:
    def __init__(self, database: str, landing: str, acks: str, level: int) -> None:
        self.database = database
        self.landing_at = landing
        self.acks_at = acks
        self.level = level
        self._places: dict[str, Place] = {}
        self._conn: sqlite3.Connection | None = None

    def place(self, where: str) -> Place:
        if where not in self._places:
            self._places[where] = Place(where)
        return self._places[where]

    def do(self, order: dict[str, Any]) -> dict[str, Any]:
        what = order["do"]
        if what == "cut":
            return self.cut(order)
        if what == "acks":
            data = self.place(self.acks_at).get(words(order["process"]) + ".json")
            return {"acks": json.loads(data) if data else None}
        if what == "settled":
            data = self.place(self.acks_at).get(SETTLED + words(order["process"]) + ".json")
            return {"settled": json.loads(data) if data else None}
        if what == "sink":
            signs = {"acks": self.acks_at, "landing": self.landing_at}
            return {name: _text(self.place(at).get(SIGN)) for name, at in signs.items()}
        landing = self.place(self.landing_at)
        if what == "remove":
            landing.remove(order["names"])
            return {}
        elif what == "probe":
            landing.put(".headwater-probe", b"")
            landing.remove([".headwater-probe"])
        names = landing.names()
        if what == "probe":
            landing.remove([file for file in names if file.startswith(".") and file.endswith(".part")])
        return {"names": [file for file in names if file.endswith(".parquet") and file[0] not in "._"]}

    def cut(self, order: dict[str, Any]) -> dict[str, Any]:
        if self._conn is None:
            self._conn = sqlite3.connect(self.database, timeout=30, isolation_level=None)
            self._conn.execute("PRAGMA query_only = ON")
        first, last = order["first"], order["last"]
        rows = self._conn.execute(
            'SELECT first, last, arrived, alphabet, data FROM chunks WHERE "end" = ? AND last >= ? '
            "AND first <= ? ORDER BY last",
            (order["end"], first, last),
        )
        run = gather(rows, first, last, order["rows"])
        rows.close()
        if run is None:
            return {"last": None}
        data = parquet(run, order, self.level)
        crc = zlib.crc32(data)
        n = len(run.columns)
        file = join(
            order["process"], order["stream"], order["incarnation"], first, run.last, n, run.text, crc
        )
        self.place(self.landing_at).put(file, data)
        return {"last": run.last, "name": file, "bytes": len(data), "rows": n, "damaged": run.damaged}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data[:SIGN_MAX].decode(errors="replace")


def _take_turn(database: str) -> None:
    """Wait until no other cutter runs, and keep the next one waiting until this one ends."""
    handle = os.open(database + ".cutter", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + FORMER_S
    while time.monotonic() < until:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(0.02)


def main(argv: list[str]) -> None:
    """Arguments: database, landing zone, acknowledgements, compression level."""
    os.nice(10)  # frames come first
    _take_turn(argv[0])
    pa.set_memory_pool(pa.system_memory_pool())
    pa.set_cpu_count(1)
    cutter = Cutter(argv[0], argv[1], argv[2], int(argv[3]))
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = cutter.do(order)
        except (OSError, sqlite3.Error, pa.ArrowException, ValueError) as error:
            answer = {"error": "%s: %s" % (type(error).__name__, error)}
        answer["id"] = order["id"]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
