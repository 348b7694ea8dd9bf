"""Erasure: removes the elements that a filter selects, and keeps later ones from landing.

The rule is stored first, in the table `erasures`. After a kill all later steps are repeated until they are
finished, and doing them twice does no harm:

    declared   batches leave out what the filter selects, from now on and permanently
    deleting   the ξ to delete, and what `progress` will lose, are stored before the rows are deleted
    deleted    `elements` has none of the rows, and progress accounts for that. Next: quarantine, old data
               files, old versions of the logs, and segments in the landing zone
    done       nothing of it can be read any more

The ξ stay known: the sink acknowledges them, so the gateway and the boards delete their copies, and no
table ever has rows of them again. The commit that deletes names its erasure; progress loses the rows in the
one commit of `progress` that accounts for that version, so once.

Old versions of the tables cannot be read afterwards: their data files are removed, and the log begins at a
checkpoint, because the statistics of a log have the limits of ξ and ts of each file.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from . import commits, crash_points, meant, ranges, recovery, scan, segment, settled, tables, views
from .apart import reading
from .checksum import Span
from .errors import LakeError, sentence
from .files import Files
from .location import Location
from .progress import Key, Numbering, Progress
from .quarantine import printable
from .ranges import Ranges
from .segment import Segment, SegmentError
from .where import Where, WhereError

DECLARED, DELETING, DELETED, DONE = "declared", "deleting", "deleted", "done"
REQUEST = ".erase"
PLACES_MAX = 500  # ξ that one statement names
LATER_S = 30.0  # after a failure, until the next attempt
SETTLE_S = 2.0
TEXT_MAX = 1000  # of a name and of a reason


@dataclass(frozen=True)
class Asked:
    """A request of `hw lake erase`."""

    stream: str
    filter: str
    by: str
    reason: str = ""
    later: bool = False  # whether it may select elements that are measured from now on


class Erasures:
    """The table `erasures` in memory, and the work that it requires."""

    def __init__(self, files: Files, lake: Location, landing: Location, say: Callable[[str], None]) -> None:
        self._files = files
        self._lake = lake
        self._landing = landing
        self._say = say
        self.rules = [meant.Rule.of(row) for row in tables.rows(lake / "erasures")]
        self._swept: set[str] = set()  # erasures of which only the landing zone is left
        self._clean: set[tuple[str, str]] = set()  # files that have nothing of an erasure
        self._not_before = 0.0

    def _save(self) -> None:
        """One commit of all rules, on the disk itself."""
        table = tables.open_table(self._lake / "erasures")
        data = pa.Table.from_pylist([rule.row() for rule in self.rules], schema=tables.SCHEMAS["erasures"])
        before = table.version()
        tables.write(table, data, "overwrite", {})
        commits.sync(self._lake / "erasures", commits.since(self._files, self._lake / "erasures", before))

    # For the rest of the sink

    def knows(self, behind: Iterable[commits.Commit]) -> bool:
        """Whether each deletion among these commits is one of an erasure that is known."""
        known = {rule.id for rule in self.rules if rule.status == DELETING}
        return all(c.erasure is None or c.erasure in known for c in behind)

    def keys(self) -> set[Key]:
        """The incarnations with erased rows."""
        return {(rule.stream, incarnation) for rule in self.rules for incarnation in rule.ranges}

    def apply(self, progress: Progress) -> None:
        """Let progress know what is erased."""
        for rule in self.rules:
            for incarnation, runs in rule.ranges.items():
                key = rule.stream, incarnation
                now = progress.numberings.get(key, Numbering()).copy()
                now.erased = ranges.union(now.erased, runs)
                now.known = ranges.union(now.known, runs)
                now.gaps = ranges.subtract(now.gaps, runs)
                progress.change({key: now}, progress.updated.get(key, rule.declared))

    def reopen(self) -> None:
        """The tables were taken back: erased rows may be there again."""
        for rule in self.rules:
            rule.status, rule.finished, rule.taken = DECLARED, None, []
        if self.rules:
            self._say("the lake was taken back: all erasures are carried out again")
            self._save()

    def settle(self, progress: Progress, save: Callable[[], None]) -> None:
        """Remove from progress the rows that commits unknown to it have deleted."""
        if not any(rule.status == DELETING for rule in self.rules):
            return
        for commit in commits.since(self._files, self._lake / "elements", progress.elements):
            rule = next((rule for rule in self.rules if rule.id == commit.erasure), None)
            if rule is None:
                continue
            changed: dict[Key, Numbering] = {}
            for incarnation, gone in rule.taken:
                key = rule.stream, incarnation
                if key not in changed:
                    changed[key] = progress.numberings[key].copy()
                _take_away(changed[key], gone)
            progress.change(changed, time.time_ns() // 1000)
            progress.elements = commit.version
            save()
            rule.status, rule.taken = DELETED, []
            self._save()

    def mark(self, spark: SparkSession, good: dict[str, Segment]) -> dict[str, Segment]:
        """These segments, by path, with the ξ of rows that must not land."""
        out = dict(good)
        for rule in self.rules:
            asked: dict[str, Segment] = {}
            for path, one in good.items():
                answer = (
                    rule.where.judge(meant.box_of(one), one.alphabet) if one.stream == rule.stream else False
                )
                if answer and one.rows:
                    out[path] = replace(out[path], erased=(*out[path].erased, (rule.id, one.row_ranges())))
                elif answer is None:
                    asked[path] = one
            if asked:
                sql = rule.where.sql({one.alphabet for one in asked.values()})
                found = meant.by_file(reading(spark, asked).select("*", "_metadata.file_name").where(sql))
                for path, one in asked.items():
                    if one.file in found:
                        out[path] = replace(out[path], erased=(*out[path].erased, (rule.id, found[one.file])))
        return out

    def note(self, erased: Iterable[tuple[str, int, int, int]]) -> None:
        """Record what a batch left out."""
        changed = False
        for name, incarnation, first, last in erased:
            for rule in self.rules:
                if rule.id == name and ranges.subtract([(first, last)], rule.ranges.get(incarnation, [])):
                    rule.add(incarnation, [(first, last)])
                    changed = True
        if changed:
            self._save()

    def spares(self, file: str, raw: bytes) -> bool:
        """Whether the quarantine may keep the bytes of a file: they have nothing that is erased."""
        return not any(rule.in_file(file, raw) for rule in self.rules)

    # The work, between batches

    def wanted(self) -> bool:
        if time.monotonic() < self._not_before:
            return False
        return any(rule.status != DONE for rule in self.rules) or bool(self._requests())

    def work(
        self, spark: SparkSession, progress: Progress, refused: Iterable[str], save: Callable[[], None]
    ) -> None:
        """Carry out the requests, as far as that is possible now."""
        self._not_before = time.monotonic() + LATER_S  # if it fails
        for name in self._requests():
            self._declare(name, progress)
        for rule in self.rules:
            if rule.status in (DECLARED, DELETING):
                self._delete(spark, rule, progress, save)
            if rule.status == DELETED and rule.id not in self._swept:
                self._sweep(spark, rule, progress, save)
                self._swept.add(rule.id)
            if rule.status == DELETED and not self._clear(spark, rule, progress, set(refused)):
                rule.status, rule.finished = DONE, time.time_ns() // 1000
                self._save()
                self._say("erased: %s elements of %s (%s)" % (f"{rule.rows:,}", rule.stream, rule.id))
        for name in self._requests():
            for rule in self.rules:
                if rule.id == _id(name) and rule.status == DONE:
                    self._answer(name, {"id": rule.id, "rows": rule.rows})
        self._not_before = 0.0

    def _requests(self) -> list[str]:
        return sorted(
            n for n in self._files.sizes(self._lake / "requests") if n.endswith(REQUEST) and n[0] != "."
        )

    def _answer(self, name: str, said: dict[str, Any]) -> None:
        done = name.removesuffix(REQUEST) + ".done"
        self._files.write(self._lake / "requests" / done, json.dumps(said))
        self._files.remove(self._lake / "requests" / name)

    def _declare(self, name: str, progress: Progress) -> None:
        """Make a rule of a request, once."""
        if any(rule.id == _id(name) for rule in self.rules):
            return
        try:
            asked = Asked(**json.loads(self._files.read(self._lake / "requests" / name) or ""))
            own = {i: n for (stream, i), n in progress.numberings.items() if stream == asked.stream}
            check(self._lake, asked, {i: n.known[-1][1] for i, n in own.items() if n.known})
        except (LakeError, ValueError, TypeError, AttributeError) as error:
            self._answer(name, {"error": sentence(error)})
            return
        now = time.time_ns() // 1000
        self.rules.append(
            meant.Rule(_id(name), asked.stream, asked.filter, asked.by, asked.reason, DECLARED, now)
        )
        self._save()
        self._say("erasure %s of %s is declared by %s" % (_id(name), asked.stream, asked.by))
        crash_points.reach("declared")

    def _delete(
        self, spark: SparkSession, rule: meant.Rule, progress: Progress, save: Callable[[], None]
    ) -> None:
        """Delete the rows from `elements`, and their part of progress."""
        self.settle(progress, save)
        gone = meant.rows_meant(spark, self._lake, rule.stream, rule.where)
        own = {i: n.sums for (stream, i), n in progress.numberings.items() if stream == rule.stream}
        runs = meant.runs_of(gone, own)
        if not runs:
            rule.status = DELETED
            self._save()
            return
        rule.status, rule.taken = DELETING, []
        for incarnation, pairs, spans in runs:
            rule.add(incarnation, pairs)
            rule.taken += [(incarnation, span) for span in spans]
        self._save()
        self.apply(progress)
        crash_points.reach("deleting")
        sql = meant.condition(spark, self._lake, rule.stream, rule.where)
        elements = "delta.`%s`" % (self._lake / "elements").spark
        with crash_points.during("erasing", self._lake / "elements"), _configured(spark, rule.id):
            spark.sql("DELETE FROM %s WHERE %s" % (elements, sql))
        crash_points.reach("erased")
        commits.sync(
            self._lake / "elements", commits.since(self._files, self._lake / "elements", progress.elements)
        )
        self.settle(progress, save)
        crash_points.reach("settled")

    def _sweep(
        self, spark: SparkSession, rule: meant.Rule, progress: Progress, save: Callable[[], None]
    ) -> None:
        """Clean the quarantine, and remove old versions of the tables."""
        self._empty_quarantine(rule)
        crash_points.reach("emptied")
        if meant.follow(spark, self._lake, rule.stream, progress):
            save()
        elements = "delta.`%s`" % (self._lake / "elements").spark
        with crash_points.during("sweeping", self._lake / "elements"), _configured(spark):
            if "deletionVectors" in _features(self._lake):
                spark.sql("REORG TABLE %s APPLY (PURGE)" % elements)
            spark.sql("VACUUM %s RETAIN 0 HOURS" % elements)
        if recovery.advance(self._files, self._lake, progress):
            save()
        crash_points.reach("swept")
        jvm: Any = spark._jvm
        log = jvm.org.apache.spark.sql.delta.DeltaLog
        log.forTable(spark._jsparkSession, (self._lake / "elements").spark).checkpoint()
        assert progress.elements == commits.version(self._lake / "elements")
        self._forget("elements")
        try:
            for name in ("quarantine", "progress"):
                table = tables.open_table(self._lake / name)
                table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
                tables.open_table(self._lake / name).create_checkpoint()
                self._forget(name)
        finally:
            progress.reopen(self._lake)  # its commits are our own
        crash_points.reach("forgotten")

    def _forget(self, name: str) -> None:
        """Remove what a table's log has before its newest checkpoint."""
        log = self._lake / name / "_delta_log"
        at = int(json.loads(self._files.read(log / "_last_checkpoint") or "")["version"])
        for entry in self._files.sizes(log):
            match = re.match(r"\.?(\d{20})\.", entry)
            if match is not None and int(match[1]) < at:
                self._files.remove(log / entry)

    def _clear(self, spark: SparkSession, rule: meant.Rule, progress: Progress, refused: set[str]) -> int:
        """Remove segments from the landing zone that the lake has, and that have such rows; returns how many
        such segments wait for a batch. The gateway does not cut them again: they are acknowledged."""
        taken: list[str] = []
        waiting = 0
        for file in sorted(self._files.sizes(self._landing)):
            if (rule.id, file) in self._clean or file[0] in "._":
                continue
            if printable(file) in refused:
                if self._in_file(rule, file):
                    self._remove(file)
                else:
                    self._clean.add((rule.id, file))
                continue
            try:
                name = segment.read_name(file)
            except SegmentError:
                continue
            if not rule.may_mean(name):
                continue
            numbering = progress.numberings.get((rule.stream, name.incarnation), Numbering())
            if ranges.subtract([(name.first, name.last)], numbering.accounted()):
                waiting += 1
            else:
                taken.append(file)
        try:
            has = self._meant_in(spark, rule, taken) if taken else {}
        except (Py4JError, PySparkException):
            return waiting + len(taken)  # the gateway has removed one of them: examine them again
        for file in taken:
            if file in has:
                self._remove(file)
            else:
                self._clean.add((rule.id, file))
        return waiting

    def _remove(self, file: str) -> None:
        """Remove a file of the landing zone, whatever its name."""
        if self._landing.local is not None:
            (self._landing.local / file).unlink(missing_ok=True)
        else:
            self._files.remove(self._landing / file)

    def _in_file(self, rule: meant.Rule, file: str) -> bool | None:
        try:
            return rule.in_file(file, self._files.content(self._landing / file, segment.SIZE_MAX))
        except (OSError, Py4JError):
            return None

    def _meant_in(self, spark: SparkSession, rule: meant.Rule, files: list[str]) -> dict[str, Ranges]:
        """The selected ξ in segments of the landing zone, by file."""
        rows = reading(spark, [(self._landing / file).spark for file in files]).select(
            "*", "_metadata.file_name"
        )
        known = {str(row["alphabet"]) for row in rows.select("alphabet").distinct().collect()}
        return meant.by_file(
            rows.where("stream = %s AND %s" % (views.quoted(rule.stream), rule.where.sql(known)))
        )

    def _empty_quarantine(self, rule: meant.Rule) -> None:
        """Delete divergent rows, and the bytes of files; the rest of a file's row stays."""
        table = self._lake / "quarantine"
        before = commits.version(table)
        rows, files, unclear = meant.in_quarantine(self._lake, rule)
        for file, group in groupby(rows, key=lambda row: str(row["file"])):
            places = [
                "(incarnation = %d AND first = %d)" % (row["incarnation"], row["first"]) for row in group
            ]
            for i in range(0, len(places), PLACES_MAX):
                tables.open_table(table).delete(
                    "reason = 'divergent' AND stream = %s AND file = %s AND (%s)"
                    % (scan.quoted(rule.stream), scan.quoted(file), " OR ".join(places[i : i + PLACES_MAX]))
                )
        for row in files:
            of_it = "file = %s AND reason = %s" % (scan.quoted(row["file"]), scan.quoted(row["reason"]))
            tables.open_table(table).update({"raw": "null"}, predicate=of_it)
        commits.sync(table, commits.since(self._files, table, before))
        for file in unclear:
            self._say("erasure %s: look at %s yourself: what is in it cannot be told" % (rule.id, file))


def _take_away(numbering: Numbering, gone: Span) -> None:
    """Rows of one span that are not there any more; a span that begins at 0 is of rows without checksums."""
    numbering.rows_kept -= gone.rows
    numbering.rows_landed -= gone.rows
    sums = []
    for span in numbering.sums:
        if (span.first, span.last) == (gone.first, gone.last):
            span = replace(span, rows=span.rows - gone.rows, sum=span.sum ^ gone.sum)
        if span.rows:
            sums.append(span)
    numbering.sums = sums


# Requests


def check(lake: Location, asked: Asked, last: dict[int, int]) -> Where:
    """LakeError if this cannot be carried out; `last`: the last ξ of each incarnation of the stream."""
    if not isinstance(asked.by, str) or not asked.by.strip():
        raise LakeError("an erasure needs a name: give --by NAME")
    if max(len(asked.by), len(asked.reason)) > TEXT_MAX:
        raise LakeError("--by and --reason have at most %d characters" % TEXT_MAX)
    where = Where(asked.filter)
    rows = tables.rows(lake / "streams", ["stream", "alphabet"])
    known = {str(row["alphabet"]) for row in rows if row["stream"] == asked.stream}
    if not known:
        names = sorted({str(row["stream"]) for row in rows})
        raise LakeError("no stream '%s' in %s: it has %s" % (asked.stream, lake, ", ".join(names) or "none"))
    where.check(known)
    if not asked.later and where.means_later(time.time_ns() // 1000, last):
        raise WhereError(
            "the filter also means elements that are measured from now on, which would never land: add a "
            "condition like ts < '%s', or give --also-later" % time.strftime("%Y-%m-%d %H:%M", time.gmtime())
        )
    return where


def lasts(lake: Location, stream: str) -> dict[int, int]:
    """The last ξ of each incarnation of a stream, as `progress` and `settled` have it."""
    out = {}
    for row in settled.rows(lake):
        if row["stream"] == stream:
            out[row["incarnation"]] = max([row["high"], *(pair["last"] for pair in row["ranges"])])
    return out


def request(files: Files, lake: Location, asked: Asked, name: str) -> None:
    files.write(lake / "requests" / (name + REQUEST), json.dumps(vars(asked)))


def answer(files: Files, lake: Location, name: str) -> dict[str, Any] | None:
    """What became of a request; None if nothing is known yet."""
    at = lake / "requests" / (name + ".done")
    text = files.read(at)
    if text is None:
        return None
    files.remove(at)
    said: dict[str, Any] = json.loads(text)
    if "error" in said:
        raise LakeError(said["error"])
    return said


def withdraw(files: Files, lake: Location, name: str) -> bool:
    """Withdraw a request; False if it has become a rule, which is carried out whenever a sink runs."""
    files.remove(lake / "requests" / (name + REQUEST))
    time.sleep(SETTLE_S)  # a sink that has just read it has made a rule of it by then
    return not any(row["id"] == _id(name) for row in tables.rows(lake / "erasures", ["id"]))


def would(
    spark: SparkSession, files: Files, lake: Location, landing: Location, asked: Asked
) -> dict[str, int]:
    """What would be removed: rows, rows and files of the quarantine, files of the landing zone."""
    rule = meant.Rule("", asked.stream, asked.filter, asked.by, asked.reason, DECLARED, 0)
    rows, refused, _ = meant.in_quarantine(lake, rule)
    waiting = []
    for file in files.sizes(landing):
        try:
            if file[0] not in "._" and rule.may_mean(segment.read_name(file)):
                waiting.append(file)
        except SegmentError:
            continue
    return {
        "rows": meant.rows_meant(spark, lake, asked.stream, rule.where).count(),
        "quarantined_rows": len(rows),
        "quarantined_files": len(refused),
        "segments": len(waiting),
    }


def _id(name: str) -> str:
    return name.removesuffix(REQUEST)[:12]


# Spark


class _configured:
    """Settings of the session for as long as an erasure writes."""

    def __init__(self, spark: SparkSession, name: str | None = None) -> None:
        self._spark = spark
        self._settings = {
            # Files are rewritten without the deleted rows, which are not just hidden.
            "spark.databricks.delta.delete.deletionVectors.persistent": "false",
            "spark.databricks.delta.retentionDurationCheck.enabled": "false",
            # A commit after the deletion: the log can begin there, without the earlier files.
            "spark.databricks.delta.vacuum.logging.enabled": "true",
            # VACUUM lists in this number of tasks: by default 10,000, however little there is to list.
            "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
        }
        if name is not None:
            self._settings["spark.databricks.delta.commitInfo.userMetadata"] = commits.erasing(name)

    def __enter__(self) -> None:
        for key, value in self._settings.items():
            self._spark.conf.set(key, value)

    def __exit__(self, *exception: object) -> None:
        for key in self._settings:
            self._spark.conf.unset(key)


def _features(lake: Location) -> list[str]:
    return list(tables.open_table(lake / "elements").protocol().reader_features or ())
