"""Segments: what the outbox holds becomes files as docs/spec.md says, read here by the sink's own reader."""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import headwater_gateway
import pyarrow.parquet as pq
import pytest
from headwater.data import block
from headwater.data.alphabet import Alphabet
from headwater.data.batch import Batch
from headwater.protocol.moves import FLEE
from headwater_cloud import checksum
from headwater_cloud import segment as sink
from headwater_gateway import UserError
from headwater_gateway.config import Config, Section
from headwater_gateway.database.engine import Database
from headwater_gateway.database.outbox import OutboxStream, OutboxStreams
from headwater_gateway.monitoring.moves import Move
from headwater_gateway.segments import names
from headwater_gateway.segments.cutter import GAPS_MAX, Cutter, _bits
from headwater_gateway.segments.planner import (
    SUSPECT_S,
    CutterGone,
    CutterProcess,
    Segments,
    furthest_of,
    marks_of,
)
from hypothesis import given
from hypothesis import strategies as st

T0 = 1_700_000_000_000_000
TEXT = "mV:i16 f:f32 u:u64 n:u8"


class Place:
    """A database and a landing zone in a folder, without a service."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.db = Database(folder / "gateway.db", lambda: T0 + 5_000_000)
        self.ends = OutboxStreams(self.db)
        self.cutter = Cutter(str(self.db.path), str(folder / "landing"), str(folder / "acks"), 3)

    def end(self, text: str = TEXT, inc: int = 0x00F3_0000_0000_0001) -> OutboxStream:
        return self.ends.make("cardio", "cardio/ecg", "", inc, text, 500)

    def order(
        self, end: OutboxStream, first: int, last: int, rows: int = 1000, cut: int = 0
    ) -> dict[str, Any]:
        return {
            "do": "cut", "id": 1, "end": end.id, "process": end.process, "stream": end.lake, "within_ms": 500,
            "incarnation": end.incarnation, "first": first, "last": last, "rows": rows, "cut": cut,
        }  # fmt: skip

    def cut(self, end: OutboxStream, first: int, last: int, **more: Any) -> dict[str, Any]:
        self.db.commit()
        return self.cutter.do(self.order(end, first, last, **more))

    def read(self, answer: dict[str, Any]) -> tuple[sink.Segment, list[dict[str, Any]]]:
        """What the sink makes of the file, and its rows."""
        path = self.folder / "landing" / answer["name"]
        data = path.read_bytes()
        footer = int.from_bytes(data[-8:-4], "little") + 8
        found = sink.read(path.name, len(data), zlib.crc32(data), data[-footer:])
        table = pq.read_table(path)
        assert found.sum == checksum.xor(checksum.of_table(found.alphabet, table))
        return found, table.to_pylist()

    def close(self) -> None:
        self.db.close()


@pytest.fixture
def place(tmp_path: Path) -> Any:
    made = Place(tmp_path)
    yield made
    made.close()


def packed(b: Batch) -> bytes:
    buf = bytearray(block.bound(b.alphabet, b.n))
    return bytes(buf[: block.encode(b, 0, b.n, buf, 0)])


def batch(xi: int, n: int, dt: int = 1000, text: str = TEXT) -> Batch:
    b = Batch(Alphabet(text), max(n, 1))
    b.n, b.xi, b.ts, b.dt = n, xi, T0 + 1000 * xi, dt
    if dt < 0:
        for i in range(n):
            b.at[i] = 7 * i
    for k, column in enumerate(b.cols):
        for i in range(n):
            column[i] = (xi + i) % 100 + k
    return b


def put(end: OutboxStream, b: Batch) -> None:
    end.put(b.xi, b.n, packed(b))


def hole(xi: int) -> Batch:
    b = batch(xi, 1)
    b.hole, b.back = 2, 400
    return b


def test_rows_holes_and_gaps_make_one_run_that_the_sink_takes(place: Place) -> None:
    end = place.end()
    put(end, batch(1, 3))
    put(end, hole(4))
    end.gap(5, 9, 1)
    late = batch(10, 2, -1)
    late.unsync = 1
    put(end, late)
    answer = place.cut(end, 1, 11)
    assert (answer["last"], answer["rows"], answer["damaged"]) == (11, 5, 0)
    seg, rows = place.read(answer)
    assert (seg.process, seg.stream, seg.first, seg.last, seg.rows) == ("cardio", "cardio/ecg", 1, 11, 5)
    assert seg.within_ms == 500 and seg.alphabet == TEXT
    assert [(g.first, g.last, g.kind, g.reason, g.from_us, g.to_us) for g in seg.gaps] == [
        (4, 4, "hole", "log full", T0 + 3600, T0 + 4000),
        (5, 9, "gap", "full", T0 + 4000, T0 + 10_000),
    ]
    assert [row["xi"] for row in rows] == [1, 2, 3, 10, 11]
    micros = [round(row["ts"].timestamp() * 1e6) - T0 for row in rows]
    assert micros == [1000, 2000, 3000, 10_000, 10_007]
    assert [row["unsync"] for row in rows] == [False, False, False, True, True]
    assert rows[0]["ints"] == [1, 3, 4] and rows[0]["floats"] == [2.0]
    assert rows[4]["ints"] == [11, 13, 14] and rows[4]["floats"] == [12.0]
    assert {round(row["arrived"].timestamp() * 1e6) for row in rows} == {T0 + 5_000_000}


def test_a_u64_and_a_high_incarnation_are_twos_complement(place: Place) -> None:
    end = place.end("u:u64", 0xFFFF_0000_0000_0000)
    b = Batch(Alphabet("u:u64"), 1)
    b.n, b.xi, b.ts, b.dt = 1, 1, T0, 1
    b.cols[0][0] = (1 << 64) - 1
    put(end, b)
    seg, rows = place.read(place.cut(end, 1, 1))
    assert rows[0]["ints"] == [-1] and rows[0]["floats"] == []
    assert seg.incarnation == rows[0]["incarnation"] == -(1 << 48)


def test_a_run_of_gaps_and_holes_alone_is_a_segment_without_rows(place: Place) -> None:
    end = place.end()
    end.gap(1, 5, 2)
    put(end, hole(6))
    seg, rows = place.read(place.cut(end, 1, 6))
    assert (seg.first, seg.last, seg.rows, rows) == (1, 6, 0, [])
    assert seg.gaps[0].reason == "given up"


def test_cutting_in_any_sizes_gives_the_same_rows(place: Place) -> None:
    end = place.end()
    for xi in range(1, 100, 9):
        put(end, batch(xi, 9))
        place.db.commit()
    whole = place.read(place.cut(end, 1, 99))[1]
    pieces: list[dict[str, Any]] = []
    first = 1
    for last in (1, 4, 27, 50, 99):
        seg, rows = place.read(place.cut(end, first, last))
        assert (seg.first, seg.last) == (first, last)
        pieces += rows
        first = last + 1
    assert pieces == whole


def test_a_segment_stops_at_its_bounds_and_the_rest_follows(place: Place) -> None:
    end = place.end()
    for xi in range(1, 21, 2):
        put(end, batch(xi, 2))
        place.db.commit()
    answer = place.cut(end, 1, 20, rows=5)
    assert answer["last"] == 6
    place.read(answer)
    gaps = place.end(inc=5)
    for xi in range(1, 2 * GAPS_MAX + 11, 2):
        put(gaps, hole(xi))
        put(gaps, batch(xi + 1, 1))
    answer = place.cut(gaps, 1, gaps.taken, rows=100_000)
    seg, _ = place.read(answer)
    assert len(seg.gaps) == GAPS_MAX and answer["last"] == seg.last < gaps.taken


def test_another_alphabet_begins_another_segment(place: Place) -> None:
    end = place.end("a:i8")
    put(end, batch(1, 2, text="a:i8"))
    place.db.commit()
    end.becomes("a:i8 b:i8", 500)
    put(end, batch(3, 2, text="a:i8 b:i8"))
    first = place.cut(end, 1, 4)
    assert first["last"] == 2 and place.read(first)[0].alphabet == "a:i8"
    second = place.cut(end, 3, 4)
    assert second["last"] == 4 and place.read(second)[0].alphabet == "a:i8 b:i8"


def test_a_block_that_cannot_be_decoded_is_a_gap_and_counted(place: Place) -> None:
    end = place.end()
    put(end, batch(1, 2))
    good = packed(batch(3, 4))
    end.put(3, 4, good[:-2])
    put(end, batch(7, 1))
    answer = place.cut(end, 1, 7)
    seg, rows = place.read(answer)
    assert answer["damaged"] == 4 and [row["xi"] for row in rows] == [1, 2, 7]
    assert [(g.first, g.last, g.kind, g.reason) for g in seg.gaps] == [(3, 6, "gap", "unreadable block")]


def test_the_same_run_cut_again_has_another_name(place: Place) -> None:
    end = place.end()
    put(end, batch(1, 2))
    once, again = place.cut(end, 1, 2), place.cut(end, 1, 2, cut=1)
    assert once["name"] != again["name"]
    assert place.read(once)[1] == place.read(again)[1]


def test_nothing_but_whole_files_has_a_name_that_counts(place: Place) -> None:
    end = place.end()
    put(end, batch(1, 2))
    answer = place.cut(end, 1, 2)
    (place.folder / "landing" / (".%s.part" % answer["name"])).write_bytes(b"half")
    assert place.cutter.do({"do": "names"})["names"] == [answer["name"]]
    place.cutter.do({"do": "probe"})
    assert [p.name for p in (place.folder / "landing").iterdir()] == [answer["name"]]


@given(st.text(min_size=1, max_size=80), st.text(min_size=1, max_size=80), st.integers(0, (1 << 64) - 1))
def test_names_are_those_of_the_sink(process: str, stream: str, inc: int) -> None:
    name = names.join(process, stream, inc, 1, 5, 4, "a:i8", 7)
    assert name == sink.file_name(process, stream, inc, 1, 5, 4, "a:i8", 7)
    parts = names.split(name)
    assert parts == (names.words(process), names.words(stream), inc, 1, 5)


@given(st.lists(st.integers(0, 1), max_size=40))
def test_bits_are_the_flags_lowest_first(flags: list[int]) -> None:
    data = _bits(array("b", flags))
    assert len(data) == (len(flags) + 7) // 8
    assert [data[i // 8] >> i % 8 & 1 for i in range(len(flags))] == flags


# The gateway's side, with a cutter of its own


def service_of(place: Place) -> Segments:
    values = {"segment_rows": 1000, "segment_s": 0.0, "acks_every_s": 1.0, "check_every_s": 3600.0}
    values = {**values, "landing": "landing", "acks": "acks"}
    config = Config(place.folder, {})
    config.lake = Section(values)  # type: ignore[attr-defined]
    landing, acks = str(place.folder / "landing"), str(place.folder / "acks")
    return Segments(place.db, place.ends, config, CutterProcess(place.db.path, landing, acks, 3))


@asynccontextmanager
async def serving(place: Place, *processes: str) -> AsyncIterator[Segments]:
    segments = service_of(place)
    try:
        await segments.open(list(processes))
        yield segments
    finally:
        await segments.cutter.close()


async def look(place: Place, segments: Segments) -> None:
    await segments.look("cardio")
    place.db.commit()


def acknowledge(
    place: Place, end: OutboxStream, high: int, unreadable: list[str] | None = None, beyond: Any = ()
) -> None:
    streams = {end.lake: {"%016x" % end.incarnation: {"high": high, "ranges": beyond}}}
    text = {"format": 1, "process": "cardio", "generation": 0, "streams": streams}
    (place.folder / "acks").mkdir(exist_ok=True)
    file = place.folder / "acks" / "cardio.json"
    file.write_text(json.dumps({**text, "unreadable": unreadable or []}))


def landed(place: Place) -> list[str]:
    return sorted(p.name for p in (place.folder / "landing").iterdir())


def test_files_and_rows_go_when_the_lake_has_them_and_not_before(place: Place) -> None:
    end = place.end()

    async def life() -> None:
        async with serving(place, "cardio") as segments:
            put(end, batch(1, 4))
            place.db.commit()
            await segments.once()
            put(end, batch(5, 4))
            place.db.commit()
            await segments.flush()
            place.db.commit()
            assert len(landed(place)) == 2 and end.cut == 8
            acknowledge(place, end, 6)
            await look(place, segments)
            assert len(landed(place)) == 1 and end.acked == 6
            assert place.db.query("SELECT first FROM chunks") == [(5,)]
            acknowledge(place, end, 8)
            await look(place, segments)
            assert landed(place) == [] and place.db.query("SELECT first FROM chunks") == []

    asyncio.run(life())


def test_a_segment_names_a_move_until_the_lake_has_one_that_does(place: Place) -> None:
    end = place.end()
    move = Move(1, "cardio", 3, "fir", 2, "hip", "wrist", FLEE, T0, T0, end.version, "[]")

    async def life() -> list[int]:
        named = []
        async with serving(place, "cardio") as segments:
            segments.tell_moves(lambda of: [move] if of is end else [])
            for first, acked in ((1, 0), (5, 2), (9, 4), (13, 4)):
                acknowledge(place, end, acked)
                await look(place, segments)
                put(end, batch(first, 4))
                place.db.commit()
                await segments.flush()
                place.db.commit()
                (path,) = (place.folder / "landing").glob("*~%d-*" % first)
                found = json.loads(pq.read_metadata(path).metadata[b"headwater"]).get("moves", [])
                assert found in ([], [["fir", 2, "hip", "wrist", "flee", T0]])
                named.append(len(found))
        return named

    assert asyncio.run(life()) == [1, 1, 0, 0]


def test_what_the_sink_cannot_read_is_cut_again_under_another_name(place: Place) -> None:
    end = place.end()

    async def life() -> None:
        async with serving(place, "cardio") as segments:
            put(end, batch(1, 4))
            place.db.commit()
            await segments.once()
            place.db.commit()
            (bad,) = landed(place)
            acknowledge(place, end, 0, [bad])
            await look(place, segments)
            rows = place.db.query("SELECT name, first, last, times FROM segments WHERE name != ?", bad)
            assert [row[1:] for row in rows] == [(1, 4, 1)]
            assert landed(place) == sorted([bad, rows[0][0]])
            acknowledge(place, end, 3, [bad])
            await segments.look("cardio")
            assert segments.recut == 1
            acknowledge(place, end, 4, [bad])
            await segments.look("cardio")
            assert landed(place) == []

    asyncio.run(life())


def kept_rows(place: Place) -> list[int]:
    """Every row of every segment in the landing zone."""
    tables = [pq.read_table(place.folder / "landing" / file) for file in landed(place)]
    return sorted(row["xi"] for table in tables for row in table.to_pylist())


@pytest.mark.parametrize("how", ["restart", "regularly", "passed over"])
def test_a_segment_that_vanished_before_the_lake_had_it_is_cut_again(place: Place, how: str) -> None:
    end = place.end()

    async def life() -> None:
        segments = service_of(place)
        try:
            await segments.open(["cardio"])
            for xi in (1, 5, 9):
                put(end, batch(xi, 4))
                place.db.commit()
                await segments.cut(end)
                place.db.commit()
            first, second, third = sorted(landed(place), key=lambda file: names.split(file).first)  # type: ignore[union-attr]
            (place.folder / "landing" / second).unlink()
            if how == "restart":
                await segments.cutter.close()
                segments = service_of(place)
                await segments.open(["cardio"])
            elif how == "passed over":
                acknowledge(place, end, 4, beyond=[[9, 12]])
                await segments.look("cardio")
                assert segments._check_due <= time.monotonic() + SUSPECT_S
                await segments.check()
            else:
                await segments.check()
            place.db.commit()
            assert (segments.vanished, segments.recut) == (1, 1)
            assert second not in landed(place)
            assert kept_rows(place) == list(range(5 if how == "passed over" else 1, 13))
            await segments.check()
            place.db.commit()
            assert segments.vanished == 1  # it is there now
            acknowledge(place, end, 12)
            await look(place, segments)
            assert landed(place) == [] and place.db.query("SELECT * FROM segments") == []
        finally:
            await segments.cutter.close()

    asyncio.run(life())


def test_what_the_lake_has_whole_is_not_missed_in_the_landing_zone(place: Place) -> None:
    end = place.end()

    async def life() -> None:
        async with serving(place, "cardio") as segments:
            put(end, batch(1, 4))
            place.db.commit()
            await segments.cut(end)
            place.db.commit()
            for file in landed(place):
                (place.folder / "landing" / file).unlink()
            end.acknowledge(4)
            await segments.check()
            assert (segments.vanished, landed(place)) == (0, [])

    asyncio.run(life())


def test_a_segment_that_a_killed_gateway_did_not_note_is_its_own_again(place: Place) -> None:
    end = place.end()
    put(end, batch(1, 4))
    name = place.cut(end, 1, 4)["name"]

    async def life() -> None:
        async with serving(place):
            assert place.db.query('SELECT name, "end", first, last FROM segments') == [(name, end.id, 1, 4)]

    asyncio.run(life())


class DeafCutter(CutterProcess):
    """What it is told is done, and the answer to the first cut is lost."""

    deaf = True

    async def ask(self, **order: Any) -> dict[str, Any]:
        answer = await super().ask(**order)
        if order["do"] == "cut" and self.deaf:
            self.deaf = False
            raise CutterGone("no answer")
        return answer


@pytest.mark.parametrize("how", ["killed", "no answer"])
def test_a_cut_that_nobody_noted_is_not_made_twice(place: Place, how: str) -> None:
    """The file is in the landing zone; then more entries come, so that a second cut would end elsewhere."""
    end = place.end()
    put(end, batch(1, 4))
    place.db.commit()

    async def life() -> None:
        now, segments = place, service_of(place)
        try:
            await segments.open([])
            if how == "no answer":
                await segments.cutter.close()
                segments.cutter = DeafCutter(place.db.path, *segments.cutter.arguments[1:3], 3)
                with pytest.raises(CutterGone):
                    await segments.cut(end)
            else:
                await segments.cut(end)
                await segments.cutter.close()
                place.db.abandon()  # the row of the segment was not committed
                now = Place(place.folder)
                segments = service_of(now)
                await segments.open([])
            assert kept_rows(place) == [1, 2, 3, 4]
            (there,) = now.ends.all.values()
            put(there, batch(5, 4))
            now.db.commit()
            await segments.once()
            await segments.once()
            now.db.commit()
            assert kept_rows(place) == [1, 2, 3, 4, 5, 6, 7, 8]
            assert now.db.query("SELECT first, last FROM segments ORDER BY first") == [(1, 4), (5, 8)]
            assert now.db.query("SELECT cut FROM ends") == [(8,)]
            acknowledge(now, there, 8)
            await segments.look("cardio")
            now.db.commit()
            assert landed(place) == [] and now.db.query("SELECT * FROM segments") == []
        finally:
            await segments.cutter.close()
            if now is not place:
                now.close()
                place.db = Database(place.folder / "gateway.db", lambda: T0)

    asyncio.run(life())


def test_a_file_counts_as_cut_only_where_it_follows_and_the_rows_are_here(place: Place) -> None:
    """An older copy of the database knows less than the landing zone: what it has is cut."""
    end = place.end()
    put(end, batch(1, 8))
    place.cut(end, 1, 2)
    place.cut(end, 5, 6)
    behind = names.join("cardio", "cardio/ecg", end.incarnation, 3, 9, 7, TEXT, 1)
    (place.folder / "landing" / behind).write_bytes(b"x")

    async def life() -> None:
        async with serving(place):
            assert end.cut == 2
            assert len(place.db.query("SELECT * FROM segments")) == 3

    asyncio.run(life())


def test_a_file_whose_name_may_be_of_two_streams_is_neither_adopted_nor_removed(place: Place) -> None:
    one, two = (place.ends.make("cardio", "s" * 60 + c, "", 7, TEXT, 500) for c in "ab")
    put(one, batch(1, 4))
    put(two, batch(1, 4))
    name = place.cut(one, 1, 4)["name"]

    async def life() -> None:
        async with serving(place) as segments:
            place.db.commit()
            assert (one.cut, two.cut) == (0, 0)
            acknowledge(place, two, 4)
            await segments.look("cardio")
            assert landed(place) == [name]

    asyncio.run(life())


def test_a_cutter_begins_when_the_one_of_a_killed_gateway_has_ended(place: Place) -> None:
    end = place.end()
    put(end, batch(1, 4))
    place.db.commit()

    async def life() -> None:
        former, segments = service_of(place).cutter, service_of(place)
        await former.ask(do="list")
        opened = asyncio.create_task(segments.open([]))
        try:
            await asyncio.wait({opened}, timeout=2)  # without its turn, the next one would be through by then
            order = place.order(end, 1, 4)
            answer = await former.ask(**{key: value for key, value in order.items() if key != "id"})
            await former.close()
            await opened
            assert place.db.query("SELECT name FROM segments") == [(answer["name"],)] and end.cut == 4
        finally:
            opened.cancel()
            await former.close()
            await segments.cutter.close()

    asyncio.run(life())


def test_who_asks_gets_no_answer_of_one_that_was_cancelled(place: Place) -> None:
    end = place.end()
    put(end, batch(1, 4))
    place.db.commit()

    async def life() -> None:
        async with serving(place) as segments:
            given_up = asyncio.create_task(segments.cutter.ask(do="acks", process="cardio"))
            while segments.cutter._id < 2:
                await asyncio.sleep(0)
            given_up.cancel()
            await asyncio.gather(given_up, return_exceptions=True)
            assert await segments.cutter.ask(do="list") == {"names": [], "id": 3}

    asyncio.run(life())


def test_what_is_unreadable_is_cut_again_once_however_late_the_commit_is(place: Place) -> None:
    end = place.end()

    async def life() -> None:
        async with serving(place, "cardio") as segments:
            put(end, batch(1, 4))
            place.db.commit()
            await segments.once()
            (bad,) = landed(place)
            acknowledge(place, end, 0, [bad])  # before the segment's row is committed
            await segments.look("cardio")
            place.db.commit()
            await segments.look("cardio")
            again = [file for file in landed(place) if file != bad]
            assert segments.recut == len(again) == 1
            acknowledge(place, end, 2, [bad])  # ... and now before it is committed that it was cut again
            await segments.look("cardio")
            assert segments.recut == 1 and landed(place) == sorted([bad, *again])

    asyncio.run(life())


def test_what_could_not_be_cut_again_is_tried_again(place: Place) -> None:
    end = place.end()

    async def life() -> None:
        async with serving(place, "cardio") as segments:
            put(end, batch(1, 4))
            place.db.commit()
            await segments.once()
            place.db.commit()
            (bad,) = landed(place)
            acknowledge(place, end, 0, [bad])
            await segments.cutter.close()
            segments.cutter = DeafCutter(place.db.path, *segments.cutter.arguments[1:3], 3)
            with pytest.raises(CutterGone):
                await segments.look("cardio")
            await segments.look("cardio")
            place.db.commit()
            assert len(landed(place)) == 2
            rows = place.db.query("SELECT times FROM segments ORDER BY times")
            assert rows == [(-1,), (1,)]

    asyncio.run(life())


def test_a_cutter_that_is_killed_is_started_anew(place: Place) -> None:
    end = place.end()

    async def life() -> None:
        async with serving(place) as segments:
            put(end, batch(1, 4))
            place.db.commit()
            assert segments.cutter.process is not None
            segments.cutter.process.kill()
            await segments.cutter.process.wait()
            await segments.once()
            assert len(landed(place)) == 1

    asyncio.run(life())


def test_a_landing_zone_that_cannot_be_written_is_told_in_a_sentence(place: Place) -> None:
    (place.folder / "landing").write_text("a file")

    async def life() -> None:
        segments = service_of(place)
        try:
            with pytest.raises(UserError, match="lake.landing"):
                await segments.open([])
        finally:
            await segments.cutter.close()

    asyncio.run(life())


@pytest.mark.parametrize(
    "acks", [[], {"format": 2}, {"format": 1, "streams": {"s": {"0" * 16: {"high": -1}}}}]
)
def test_acknowledgements_that_are_none_are_refused(acks: Any) -> None:
    with pytest.raises(ValueError):
        marks_of(acks)


def test_ranges_that_are_none_are_refused() -> None:
    for ranges in ([1], [[1, None]], 7):
        with pytest.raises(ValueError):
            furthest_of({"streams": {"s": {"0" * 16: {"high": 1, "ranges": ranges}}}})


def test_segments_of_a_lost_database_are_known_again_and_removed(place: Place) -> None:
    inc, gone = 0x00F3, 0x0BAD  # a stream that goes on; one of an earlier deployment
    landing, acks = place.folder / "landing", place.folder / "acks"
    landing.mkdir()
    acks.mkdir()
    for incarnation, first, last in ((inc, 1, 50), (inc, 51, 90), (gone, 1, 40)):
        file = names.join("cardio", "cardio/ecg", incarnation, first, last, 5, TEXT, first)
        (landing / file).write_bytes(b"x")

    def acknowledged(high: int, old: int) -> None:
        streams = {"cardio/ecg": {"%016x" % inc: {"high": high}, "%016x" % gone: {"high": old}}}
        content = {"format": 1, "process": "cardio", "streams": streams}
        (acks / "cardio.json").write_text(json.dumps(content))

    def left() -> list[tuple[int, int]]:
        parts = [names.split(file) for file in landed(place)]
        return sorted((part.incarnation, part.last) for part in parts if part is not None)

    async def life() -> None:
        segments = service_of(place)
        await segments.open([])
        assert segments.knows(inc) and segments.knows(gone) and not segments.knows(7)
        acknowledged(60, 30)
        await segments.look("cardio")
        assert left() == [(inc, 90), (gone, 40)]  # what the lake has whole, goes
        end = place.end(inc=inc)  # its producer is met
        end.acknowledge(segments.high("cardio", "cardio/ecg", inc))
        await segments.look("cardio")
        assert left() == [(inc, 90), (gone, 40)]
        acknowledged(90, 40)
        await segments.look("cardio")
        place.db.commit()
        acknowledged(91, 40)
        await segments.look("cardio")
        assert left() == []
        assert segments.knows(gone)
        await segments.cutter.close()

    asyncio.run(life())


def test_nothing_in_the_gateway_may_swallow_a_cancellation() -> None:
    """On Python 3.11 `asyncio.wait_for` loses a cancellation that comes together with its result, and a
    gateway that was told to end then goes on for ever; `asyncio.timeout` does not."""
    folder = Path(headwater_gateway.__file__).parent
    found = [path.name for path in folder.rglob("*.py") if "asyncio.wait_for" in path.read_text()]
    assert not found


def test_rows_of_a_stream_that_the_lake_has_settled_go_too(place: Place) -> None:
    """As after a restore from an old backup: the rows are here again, and no recent file names the stream."""
    end = place.end()

    def settle(crc: str, high: int) -> None:
        acknowledge(place, end, 0)
        file = place.folder / "acks" / "cardio.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "streams": {}, "settled": crc}))
        streams = {end.lake: {"%016x" % end.incarnation: high}}
        settled = {"format": 1, "streams": streams}
        (place.folder / "acks" / "_settled.cardio.json").write_text(json.dumps(settled))

    async def life() -> None:
        async with serving(place, "cardio") as segments:
            put(end, batch(1, 4))
            place.db.commit()
            await segments.once()
            settle("0000000a", 3)
            await look(place, segments)
            assert end.acked == 3 and len(landed(place)) == 1
            assert segments.knows(end.incarnation) and not segments.knows(7)
            settle("0000000b", 4)
            (place.folder / "acks" / "_settled.cardio.json").rename(place.folder / "aside")
            with pytest.raises(UserError, match="settled incarnations that they name is missing"):
                await look(place, segments)
            (place.folder / "aside").rename(place.folder / "acks" / "_settled.cardio.json")
            await look(place, segments)
            assert end.acked == 4 and landed(place) == []
            assert segments.high("cardio", end.lake, end.incarnation) == 4
            acknowledge(place, end, 9)  # it is active again, and what was settled is behind
            await look(place, segments)
            assert segments.high("cardio", end.lake, end.incarnation) == 9

    asyncio.run(life())
