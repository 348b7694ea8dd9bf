"""From the database into the landing zone, and back: when to cut, what the lake has, what to delete.

It promises: every entry that is durable here gets into a segment, in order, one contiguous run a segment; a
row is deleted when an acknowledgement of the lake covers it, and never earlier; a file that the lake reports
as unreadable, or that has vanished from the landing zone before the lake had it, is cut again under another
name. Otherwise every entry is in one segment only. A file and its row in the database cannot become durable
at once. So if it is not known how a cut ended (after a kill, or when the cutter does not answer), the landing
zone is listed before the next one, and files there count as cut.

Files vanish by a mistaken `rm`, by a lifecycle rule of an object store, or with a disk that was replaced. The
rows are still in the database then. The landing zone is listed at the start, every `check_every_s` while
segments wait there, and soon after the lake has acknowledged entries after a segment that it lacks.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from .. import UserError
from ..config import Config
from ..database.engine import Database
from ..database.outbox import OutboxStream, OutboxStreams
from ..monitoring.moves import Move
from ..monitoring.sink_watch import SinkWatch
from . import names as naming

_log = logging.getLogger("headwater.segments")

IDLE_S = 0.5  # between two checks for what is due
REPLACED = -1  # `times` of a segment that was cut again
SUSPECT_S = 30.0  # a segment that the lake has passed over is searched for after this, and not more often
ANSWER_S = 120.0  # a cutter that is silent for this long is restarted


Row = tuple[str, int, int, int, int]  # of a segment: file, end, first, last, times
Marks = dict[tuple[str, int], int]  # (stream, incarnation) -> an entry


class CutterGone(Exception):
    """The cutter ended, or does not answer."""


class CutterProcess:
    """The gateway's side of cutter.py: one order at a time."""

    def __init__(self, database: Path, landing: str, acks: str, level: int) -> None:
        self.arguments = [str(database), landing, acks, str(level)]
        self.process: asyncio.subprocess.Process | None = None
        self._id = 0
        self._turn = asyncio.Lock()

    async def ask(self, **order: Any) -> dict[str, Any]:
        """The answer; CutterGone, or UserError with what the cutter could not do."""
        async with self._turn:
            if self.process is None or self.process.returncode is not None:
                await self._start()
            assert self.process is not None and self.process.stdin and self.process.stdout
            self._id += 1
            try:
                self.process.stdin.write(json.dumps({**order, "id": self._id}).encode() + b"\n")
                await self.process.stdin.drain()
                async with asyncio.timeout(ANSWER_S):
                    answer = await self._answer(self.process.stdout)
            except (ConnectionError, TimeoutError):
                answer = None
            if answer is None:
                await self._end()
                raise CutterGone("the cutter ended during: %s" % order["do"])
            if "error" in answer:
                raise UserError(answer["error"])
            return answer

    async def _answer(self, source: asyncio.StreamReader) -> dict[str, Any] | None:
        """The answer to the last order. A cancelled request may have left an answer of its own."""
        while line := await source.readline():
            answer: dict[str, Any] = json.loads(line)
            if answer["id"] == self._id:
                return answer
        return None

    async def _start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "headwater_gateway.segments.cutter", *self.arguments,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 26,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            start_new_session=True,
        )  # fmt: skip

    async def _end(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def close(self) -> None:
        """Let it finish its order, and end."""
        if self.process is None or self.process.returncode is not None:
            return
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            async with asyncio.timeout(10):
                await self.process.wait()
        except TimeoutError:
            await self._end()


class Segments:
    def __init__(self, db: Database, ends: OutboxStreams, config: Config, cutter: CutterProcess) -> None:
        self.db = db
        self.ends = ends
        self.config = config.lake
        self.cutter = cutter
        self.problem = ""  # why segments are not cut, or acknowledgements not read
        self.cut_count = 0
        self.cut_bytes = 0
        self.damaged = 0
        self.recut = 0
        self.vanished = 0
        self.acks: dict[str, Any] = {}  # process -> the last file
        self._settled: dict[str, tuple[str, Marks]] = {}  # process -> file of settled incarnations, by CRC
        self._followed: dict[str, Any] = {}  # ... and the last one that was processed completely
        self.sink = SinkWatch(self.config.acks)
        self._unsure = False  # a cut had no answer: its file may exist, or not
        self._replaced: set[str] = set()  # files that are cut again, whether that is committed yet or not
        self._strays: list[str] = []  # files in the landing zone that belong to no end known here
        self._ends = 0  # ends that were known when the strays were examined
        self._since: dict[int, float] = {}  # end -> since when some of it waits to be cut
        self._moves: Callable[[OutboxStream], list[Move]] = lambda end: []
        # (end, move) -> last entry of the first segment that names the move: the lake has it with that.
        self._named: dict[tuple[int, int], int] = {}
        self._acks_due = 0.0
        self._check_due = 0.0

    def tell_moves(self, moves: Callable[[OutboxStream], list[Move]]) -> None:
        """Segments name the moves of operators that touched their stream, until the lake has them."""
        self._moves = moves

    async def open(self, processes: Iterable[str]) -> None:
        """Read the landing zone and what the lake has. UserError if the zone cannot be written."""
        try:
            answer = await self.cutter.ask(do="probe")
        except (UserError, CutterGone) as error:
            raise UserError(
                "the landing zone %s cannot be written (%s): check lake.landing, and who owns it"
                % (self.config.landing, error)
            )
        self._adopt(answer["names"])
        self.db.commit()  # the next steps query the database
        for process in processes:
            await self.look(process)
        await self._restore(self._waiting(), answer["names"])
        self._check_due = time.monotonic() + self.config.check_every_s

    def _adopt(self, names: list[str]) -> None:
        """Segments that were put there and not recorded: their entries are not cut again."""
        known = {row[0] for row in self.db.query("SELECT name FROM segments")} | set(self._strays)
        by_place: dict[tuple[str, str, int], OutboxStream | None] = {}
        for e in self.ends.all.values():
            place = (naming.words(e.process), naming.words(e.lake), e.incarnation)
            by_place[place] = None if place in by_place else e
        found = [(parts, file) for file in names if file not in known and (parts := naming.split(file))]
        for parts, file in sorted(found, key=lambda one: one[0].first):
            place = (parts.process, parts.stream, parts.incarnation)
            if place not in by_place:
                self._strays.append(file)
                continue
            end = by_place[place]
            if end is None:
                continue  # two long names begin alike: it stays, and its entries may be cut again
            # IGNORE: it may be recorded already, in what is not committed yet.
            self._note("INSERT OR IGNORE", file, end, parts.first, parts.last, 0, 0)
            if parts.first <= end.cut + 1 and parts.last <= end.durable:
                self._is_cut(end, parts.last)

    def _note(
        self, how: str, file: str, end: OutboxStream, first: int, last: int, size: int, times: int
    ) -> None:
        self.db.execute(
            how + " INTO segments VALUES(?, ?, ?, ?, ?, ?)", file, end.id, first, last, size, times
        )
        self.db.after_commit(self._followed.clear)  # acknowledgements may have named it already

    def _is_cut(self, end: OutboxStream, upto: int) -> None:
        """Segments hold everything of an end up to here."""
        if upto > end.cut:
            end.cut = upto
            self.db.execute("UPDATE ends SET cut = max(cut, ?) WHERE id = ?", upto, end.id)

    def knows(self, incarnation: int) -> bool:
        """The lake has entries of this incarnation, or they are on their way there."""
        if any(end.incarnation == incarnation for end in self.ends.all.values()):
            return True
        told = [marks_of(acks) for acks in self.acks.values()]
        told += [marks for _, marks in self._settled.values()]
        if any(inc == incarnation for marks in told for _, inc in marks):
            return True
        files = [naming.split(file) for file in self._strays]
        return any(parts is not None and parts.incarnation == incarnation for parts in files)

    async def run(self, processes: Any) -> None:
        """Cut segments and delete acknowledged ones, until cancelled. `processes` gives the known names."""
        while True:
            try:
                busy = await self.once()
                if time.monotonic() >= self._acks_due:
                    self._acks_due = time.monotonic() + self.config.acks_every_s
                    for process in processes():
                        await self.look(process)
                    self.sink.take(await self.cutter.ask(do="sink"))
                if time.monotonic() >= self._check_due:
                    await self.check()
                self.problem = ""
            except (UserError, CutterGone) as error:
                busy = False
                if self.problem != str(error):
                    _log.error("segments: %s; trying again", error)
                self.problem = str(error)
                await asyncio.sleep(2)
            await asyncio.sleep(0 if busy else IDLE_S)

    async def once(self) -> bool:
        """Cut what is due. True if there is more to do at once."""
        more = False
        now = time.monotonic()
        for end in list(self.ends.all.values()):
            waiting = end.durable - end.cut
            if waiting <= 0:
                self._since.pop(end.id, None)
                continue
            since = self._since.setdefault(end.id, now)
            if waiting >= self.config.segment_rows or now - since >= self.config.segment_s:
                more |= await self.cut(end)
        return more

    async def flush(self) -> None:
        """Cut everything that is durable."""
        for end in list(self.ends.all.values()):
            while end.durable > end.cut and await self.cut(end):
                pass

    async def cut(self, end: OutboxStream) -> bool:
        """Cut one segment of what waits; True if more waits after it."""
        if self._unsure:
            self._adopt((await self.cutter.ask(do="list"))["names"])
            self._unsure = False
            if end.cut >= end.durable:
                return False
        upto = await self._cut(end, end.cut + 1, end.durable, 0)
        if upto is None:
            return False
        self._is_cut(end, upto)
        self._since.pop(end.id, None)
        return upto < end.durable

    async def _cut(self, end: OutboxStream, first: int, last: int, times: int) -> int | None:
        """Cut one segment that begins at `first`; where it ends."""
        moves = [move for move in self._moves(end) if not self._has_move(end, move)]
        try:
            answer = await self.cutter.ask(
                do="cut", end=end.id, process=end.process, stream=end.lake, incarnation=end.incarnation,
                within_ms=end.within_ms, first=first, last=last, rows=self.config.segment_rows, cut=times,
                moves=[[m.operator, m.epoch, m.source, m.host, m.name, m.at_us] for m in moves],
            )  # fmt: skip
        except BaseException:
            self._unsure = True
            raise
        upto = answer["last"]
        if upto is None:
            return None
        self.cut_count += 1
        self.cut_bytes += answer["bytes"]
        if answer["damaged"]:
            self.damaged += answer["damaged"]
            _log.error(
                "segments: %d entries of %s up to %d cannot be decoded, and go to the lake as a gap",
                answer["damaged"], end.lake, upto,
            )  # fmt: skip
        self._note("INSERT OR REPLACE", answer["name"], end, first, upto, answer["bytes"], times)
        for move in moves if not times else ():
            self._named.setdefault((end.id, move.id), int(upto))
        return int(upto)

    def _has_move(self, end: OutboxStream, move: Move) -> bool:
        """Whether the lake has a segment of this start that names the move."""
        named = self._named.get((end.id, move.id))
        return named is not None and named <= end.acked

    # ---- acknowledgements

    async def look(self, process: str) -> None:
        acks = (await self.cutter.ask(do="acks", process=process))["acks"]
        if self._strays and self._ends != len(self.ends.all):
            self._ends = len(self.ends.all)
            strays, self._strays = self._strays, []
            self._adopt(strays)  # a database was rebuilt: it learns again what the lost one knew
        elif acks is None or acks == self._followed.get(process):
            return
        if acks is None:
            return
        try:
            marks = marks_of(acks)
            furthest = furthest_of(acks)
        except ValueError as error:
            raise UserError("the acknowledgements of %s: %s" % (process, error))
        self.acks[process] = self._followed[process] = acks
        try:
            problem = await self._read_settled(process, acks)
            await self._follow(process, acks, self._settled_marks(process) | marks, furthest)
            if problem:
                raise UserError("the acknowledgements of %s: %s" % (process, problem))
        except BaseException:
            self._followed.pop(process, None)
            raise

    async def _read_settled(self, process: str, acks: Any) -> str:
        """Read the incarnations that the lake has settled, if their file is new; what is wrong with it."""
        crc = acks.get("settled")
        if crc is None:
            self._settled.pop(process, None)
            return ""
        if crc == self._settled.get(process, ("", {}))[0]:
            return ""
        settled = (await self.cutter.ask(do="settled", process=process))["settled"]
        if settled is None:
            return "the file of settled incarnations that they name is missing: start `hw sink` again"
        try:
            self._settled[process] = str(crc), settled_of(settled)
        except ValueError as error:
            return str(error)
        return ""

    def _settled_marks(self, process: str) -> Marks:
        return self._settled.get(process, ("", {}))[1]

    async def _follow(self, process: str, acks: Any, marks: Marks, furthest: Marks) -> None:
        """Apply acknowledgements: delete rows and files, cut files again."""
        gone = self._read_strays(process, marks)
        for end in self.ends.all.values():
            if end.process == process:
                high = marks.get((end.lake, end.incarnation), 0)
                if high > end.acked:
                    end.acknowledge(high)
                rows = self.db.query(
                    'SELECT name FROM segments WHERE "end" = ? AND last <= ?', end.id, end.acked
                )
                gone += [row[0] for row in rows]
        await self._again(set(acks.get("unreadable", ())))
        if self._passed_over(furthest):
            self._check_due = min(self._check_due, time.monotonic() + SUSPECT_S)
        if gone:
            await self.cutter.ask(do="remove", names=gone)
            for file in gone:
                self.db.execute("DELETE FROM segments WHERE name = ?", file)
            self._replaced -= set(gone)

    def _read_strays(self, process: str, marks: Marks) -> list[str]:
        """Files of the landing zone that belong to no end here, and that the lake has."""
        high = {(naming.words(stream), inc): mark for (stream, inc), mark in marks.items()}
        gone = []
        for file in self._strays:
            parts = naming.split(file)
            assert parts is not None
            if parts.process == naming.words(process) and parts.last <= high.get(parts[1:3], 0):
                gone.append(file)
        self._strays = [file for file in self._strays if file not in gone]
        return gone

    async def _again(self, unreadable: set[str]) -> None:
        """What the sink could not read is cut again, under another name."""
        for file in sorted(unreadable):
            rows = self.db.query('SELECT "end", first, last, times FROM segments WHERE name = ?', file)
            for number, first, last, times in rows:
                if times != REPLACED:
                    await self._replace(file, number, first, last, times, "the sink cannot read it")

    async def _replace(self, file: str, number: int, first: int, last: int, times: int, why: str) -> bool:
        """Cut what is in a file again, as far as the lake does not have it."""
        end = self.ends.all.get(number)
        if end is None or file in self._replaced:
            return False
        self._replaced.add(file)
        self.recut += 1
        _log.warning("segments: %s: %s; %s %d-%d is cut again", file, why, end.lake, first, last)
        first = max(first, end.acked + 1)
        try:
            while first <= last:
                upto = await self._cut(end, first, last, times + 1)
                if upto is None:
                    break
                first = upto + 1
        except BaseException:
            self._replaced.discard(file)
            raise
        # It is deleted when the lake has its run, like any other: a reader may be about to read it.
        self.db.execute("UPDATE segments SET times = ? WHERE name = ?", REPLACED, file)
        return True

    # ---- what vanished

    def _passed_over(self, furthest: Marks) -> bool:
        """The lake has entries after a segment, and nothing of that segment itself."""
        for end in self.ends.all.values():
            beyond = furthest.get((end.lake, end.incarnation), 0)
            if beyond > end.acked and self.db.query(
                'SELECT 1 FROM segments WHERE "end" = ? AND last > ? AND last < ? AND times != ? LIMIT 1',
                end.id, end.acked, beyond, REPLACED,
            ):  # fmt: skip
                return True
        return False

    async def check(self) -> None:
        """Compare the landing zone with what was put there, and cut again what is missing."""
        self._check_due = time.monotonic() + self.config.check_every_s
        waiting = self._waiting()  # first: files that are put there from now on are not missing
        if waiting:
            await self._restore(waiting, (await self.cutter.ask(do="list"))["names"])

    def _waiting(self) -> list[Row]:
        """Segments that the lake does not have yet."""
        sql = 'SELECT name, "end", first, last, times FROM segments WHERE times != ?'
        rows = self.db.query(sql, REPLACED)
        ends = self.ends.all
        return [row for row in rows if row[1] in ends and row[3] > ends[row[1]].acked]

    async def _restore(self, waiting: list[Row], names: list[str]) -> None:
        """Cut again what is missing among these files of the landing zone. A segment is recorded after its
        file was put there, and a file is removed only once the lake has its run: else it has vanished."""
        there = set(names)
        for file, number, first, last, times in waiting:
            if file not in there and last > self.ends.all[number].acked:
                why = "it has vanished from the landing zone before the lake had it"
                self.vanished += await self._replace(file, number, first, last, times, why)

    def high(self, process: str, stream: str, incarnation: int) -> int:
        """What the lake has of a stream, according to the acknowledgements that were read."""
        acks = self.acks.get(process)
        marks = self._settled_marks(process) | (marks_of(acks) if acks else {})
        return marks.get((stream, incarnation), 0)


def marks_of(acks: Any) -> Marks:
    """(stream, incarnation) -> everything up to there is in the lake. ValueError for anything else."""
    if not isinstance(acks, dict) or acks.get("format") != 1 or not isinstance(acks.get("streams"), dict):
        raise ValueError("not acknowledgements of format 1")
    marks = {}
    for stream, incs in acks["streams"].items():
        for inc, state in incs.items():
            high = state["high"]
            if not isinstance(high, int) or high < 0:
                raise ValueError("stream %s: high is %r" % (stream, high))
            marks[(stream, int(inc, 16))] = high
    return marks


def settled_of(settled: Any) -> Marks:
    """The same of a file of settled incarnations. ValueError for anything else."""
    streams = settled.get("streams") if isinstance(settled, dict) else None
    if not isinstance(streams, dict) or settled.get("format") != 1:
        raise ValueError("not settled incarnations of format 1")
    marks = {}
    for stream, incs in streams.items():
        for inc, high in incs.items():
            if not isinstance(high, int) or high < 0:
                raise ValueError("stream %s: high is %r" % (stream, high))
            marks[(stream, int(inc, 16))] = high
    return marks


def furthest_of(acks: Any) -> Marks:
    """(stream, incarnation) -> the last entry that is in the lake, whatever is missing before it. ValueError
    for anything else."""
    found = {}
    for stream, incs in acks["streams"].items():
        for inc, state in incs.items():
            try:
                lasts = [int(last) for _, last in state.get("ranges", ())]
                found[(stream, int(inc, 16))] = max(lasts, default=0)
            except TypeError as error:
                raise ValueError("stream %s: %s" % (stream, error))
    return found


def beyond(all_acks: dict[str, Any]) -> set[tuple[str, int]]:
    """(stream, incarnation) of which the lake has entries after some that it lacks."""
    return {key for acks in all_acks.values() for key, last in furthest_of(acks).items() if last}
