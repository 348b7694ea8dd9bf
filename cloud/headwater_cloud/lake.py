"""A lake in a notebook: streams as typed tables, and what is to be known about them.

    from headwater_cloud import Lake
    lake = Lake(spark, "/data/lake")
    lake.stream("cardio/ecg").where("mV > 900").show()
    lake.gaps().show()

Reads only, and starts nothing: every method gives a DataFrame of the session that it was made with. What
is computed stands below as functions from DataFrames to DataFrames. Spark is imported when rows are asked
for, so that the audit, which needs none, can be imported without it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import LakeError
from .location import Location

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame, SparkSession

    from .views import Version

TABLES = ("elements", "gaps", "quarantine", "streams")
POINTS = 2000  # across the width of a plot; where there are more, each is the span of several
GAP = ("stream", "incarnation", "first", "last", "kind", "reason")


class Lake:
    """What lies in the folder `path`, now or (see `as_of`) at an earlier moment."""

    def __init__(
        self, spark: SparkSession, path: str | Path, *, at: dict[str, int | None] | None = None
    ) -> None:
        self.spark = spark
        self.location = Location.of(path)
        self._at = at  # table -> version; None where it did not exist yet
        self._gone = {name for name, version in (at or {}).items() if version is None}

    def __repr__(self) -> str:
        at = "" if self._at is None else ", as of version %s of elements" % self._at["elements"]
        return "Lake(%s%s)" % (self.location, at)

    # Streams

    def streams(self) -> DataFrame:
        """Every alphabet of every stream: process, stream, version, alphabet, within_ms, since."""
        return self.table("streams").orderBy("stream", "version", "since")

    def stream(self, name: str, version: int | None = None) -> DataFrame:
        """The rows of a stream under the names and types that its author declared, in no particular order.

        Columns: incarnation, xi, ts, unsync, arrived, landed, then the fields. Fields that a stream gained
        are null in older rows. Where it changed so that old and new rows do not fit one table it has
        versions; this gives the newest one unless another is named.
        """
        from .views import view_sql

        return self.spark.sql(view_sql(self._source("elements"), name, self._version(name, version)))

    def register(self) -> dict[str, str]:
        """Temporary views for plain SQL: each stream as cardio_ecg, and lake_gaps, lake_quality,
        lake_latency, lake_quarantine, lake_streams. Returns {view: stream or method}."""
        out: dict[str, str] = {}
        names = [str(row["stream"]) for row in self.table("streams").select("stream").distinct().collect()]
        for name in sorted(names):
            view = re.sub(r"[^a-z0-9_]", "_", name.lower())
            view = "_" + view if view[:1].isdigit() else view
            while view in out:
                view += "_"
            self.stream(name).createOrReplaceTempView(view)
            out[view] = name
        for method in ("gaps", "quality", "latency", "quarantine", "streams"):
            view = "lake_" + method
            while view in out:
                view += "_"
            getattr(self, method)().createOrReplaceTempView(view)
            out[view] = method
        return out

    # What is to be known about them

    def gaps(self) -> DataFrame:
        """Holes and declared gaps, without what came nevertheless: stream, incarnation, first, last,
        missing, kind, reason, from_ts, to_ts, process, landed. A time that nobody declared is that of the
        neighbouring row."""
        return open_gaps(self.table("gaps"), self.table("elements")).orderBy("stream", "incarnation", "first")

    def quality(self) -> DataFrame:
        """One row per stream and incarnation: rows, last (ξ), holes, dropped, lost, completeness, refused,
        unsync, first_ts, last_ts. `lost` counts ξ below `last` that nobody declared missing."""
        return quality(self.table("elements"), self.table("gaps"), self.table("quarantine")).orderBy(
            "stream", "incarnation"
        )

    def latency(self) -> DataFrame:
        """One row per stream and incarnation: milliseconds from ts until rows landed and arrived, at 50, 90,
        99 and 100 %, and how many landed later than `within_ms` asks."""
        return latency(self.table("elements"), self.table("streams")).orderBy("stream", "incarnation")

    def quarantine(self) -> DataFrame:
        """What was refused, newest first."""
        from pyspark.sql import functions as F

        return self.table("quarantine").orderBy(F.desc("landed"))

    def plot(
        self,
        stream: str,
        start: datetime | str | None = None,
        end: datetime | str | None = None,
        fields: Sequence[str] | None = None,
        version: int | None = None,
    ) -> Figure:
        """A stream over time, a panel for each field, gaps shaded by reason. Times without zone: UTC."""
        from . import plots

        rows = self.stream(stream, version)
        names = [name for name in rows.columns if name not in _common()]
        unknown = sorted(set(fields or ()) - set(names))
        if unknown:
            raise LakeError("stream '%s' has no field %s: it has %s" % (stream, unknown[0], ", ".join(names)))
        span = (_micros(start), _micros(end))
        curve = plots.curve(rows, list(fields or names), span, POINTS)
        gaps = open_gaps(self.table("gaps").where(_is(stream)), self.table("elements").where(_is(stream)))
        return plots.figure(stream, curve, plots.shades(gaps, span), span)

    # Earlier moments

    def as_of(self, when: int | datetime | str) -> Lake:
        """The lake as it was: at a version of `elements` (an int), or at a moment (without a zone: UTC)."""
        moment = None if isinstance(when, int) else _micros(when)
        elements = self._history("elements")
        if isinstance(when, int):
            if when not in [version for version, _ in elements]:
                raise LakeError(
                    "%s: `elements` has versions %d to %d, not %d"
                    % (self.location, elements[0][0], elements[-1][0], when)
                )
            # What belongs to a version of `elements` is written after it, and before the next one.
            later = [time for version, time in elements if version > when]
            moment = later[0] - 1 if later else None
            version: int | None = when
        else:
            version = self._newest("elements", elements, moment)
        if version is None:
            oldest = datetime.fromtimestamp(elements[0][1] / 1e6, UTC)
            raise LakeError("%s did not exist at %s: it begins at %s" % (self.location, when, oldest))
        others = [name for name in TABLES if name != "elements"]
        at = {name: self._newest(name, self._history(name), moment) for name in others}
        at["elements"] = version
        return Lake(self.spark, self.location.spark, at=at)

    def _history(self, name: str) -> list[tuple[int, int]]:
        """(version, time in µs) of a table, oldest first."""
        from pyspark.sql import functions as F

        self.table(name)  # says it if there is none
        history = self.spark.sql("DESCRIBE HISTORY %s" % self._path(name))
        rows = history.select("version", F.unix_micros("timestamp").alias("time")).collect()
        return sorted((int(row["version"]), int(row["time"])) for row in rows)

    def _newest(self, name: str, history: list[tuple[int, int]], moment: int | None) -> int | None:
        """The version of a table at a moment; None where there was no such table yet."""
        known = [version for version, time in history if moment is None or time <= moment]
        if not known and history[0][0] > 0:
            oldest = datetime.fromtimestamp(history[0][1] / 1e6, UTC)
            raise LakeError("%s: the history of `%s` begins only at %s" % (self.location, name, oldest))
        return known[-1] if known else None

    # Tables

    def table(self, name: str) -> DataFrame:
        """One of the tables as it is: elements, gaps, quarantine, streams."""
        from pyspark.errors import AnalysisException

        try:
            rows = self.spark.sql("SELECT * FROM %s" % self._source(name))
        except AnalysisException as error:
            first = str(error).splitlines()[0]
            raise LakeError(
                "%s is no lake, or has no table `%s` yet: %s" % (self.location, name, first)
            ) from error
        return rows.limit(0) if name in self._gone else rows

    def _path(self, name: str) -> str:
        return "delta.`%s`" % (self.location / name).spark.replace("`", "``")

    def _source(self, name: str) -> str:
        version = (self._at or {}).get(name)
        return self._path(name) + ("" if version is None else " VERSION AS OF %d" % version)

    def _version(self, stream: str, number: int | None) -> Version:
        from .views import versions

        rows = self.table("streams").select("stream", "version", "alphabet").collect()
        known = versions((int(r["version"]), str(r["alphabet"])) for r in rows if r["stream"] == stream)
        if not known:
            names = sorted({str(row["stream"]) for row in rows})
            raise LakeError(
                "no stream '%s' in %s: it has %s" % (stream, self.location, ", ".join(names) or "none")
            )
        for version in known:
            if version.number == (known[-1].number if number is None else number):
                return version
        raise LakeError(
            "stream '%s' has version%s %s, not %s"
            % (stream, "s" if len(known) > 1 else "", ", ".join(str(v.number) for v in known), number)
        )


# From DataFrames to DataFrames


def open_gaps(gaps: DataFrame, elements: DataFrame) -> DataFrame:
    """Runs of ξ that were declared missing and that no row has filled since."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    # A segment that was written twice declared its gaps twice.
    declared = gaps.groupBy(*GAP).agg(
        F.min("process").alias("process"),
        F.min("from_ts").alias("from_ts"),
        F.max("to_ts").alias("to_ts"),
        F.min("landed").alias("landed"),
    )
    # Rows inside it cut a gap; those beside it say when it was where nobody did.
    rows = elements.select("stream", "incarnation", "xi", "ts")
    inside = (
        (F.col("e.stream") == F.col("g.stream"))
        & (F.col("e.incarnation") == F.col("g.incarnation"))
        & F.col("e.xi").between(F.col("g.first") - 1, F.col("g.last") + 1)
    )
    near = rows.alias("e").join(F.broadcast(declared.alias("g")), inside).select("g.*", "e.xi", "e.ts")
    unknown = F.lit(None).cast("timestamp").alias("ts")
    ends = declared.select(
        "*", F.explode(F.array(F.col("first") - 1, F.col("last") + 1)).alias("xi"), unknown
    )
    points = near.unionByName(ends).groupBy(*declared.columns, "xi").agg(F.max("ts").alias("ts"))
    along = Window.partitionBy(*GAP).orderBy("xi")
    runs = points.select(
        "*", F.lag("xi").over(along).alias("before"), F.lag("ts").over(along).alias("ts_before")
    ).where("xi > before + 1")
    begins = F.when(F.col("before") < F.col("first"), F.coalesce("from_ts", "ts_before")).otherwise(
        F.col("ts_before")
    )
    finishes = F.when(F.col("xi") > F.col("last"), F.coalesce("to_ts", "ts")).otherwise(F.col("ts"))
    return runs.select(
        "stream",
        "incarnation",
        (F.col("before") + 1).alias("first"),
        (F.col("xi") - 1).alias("last"),
        (F.col("xi") - F.col("before") - 1).alias("missing"),
        "kind",
        "reason",
        begins.alias("from_ts"),
        finishes.alias("to_ts"),
        "process",
        "landed",
    )


def quality(elements: DataFrame, gaps: DataFrame, quarantine: DataFrame) -> DataFrame:
    """How much of each stream and incarnation is there, and what became of the rest."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    key = ["stream", "incarnation"]
    rows = elements.groupBy(*key).agg(
        F.count("*").alias("rows"),
        F.max("xi").alias("last_row"),
        F.count_if("unsync").alias("unsync"),
        F.min("ts").alias("first_ts"),
        F.max("ts").alias("last_ts"),
    )
    # Declarations may overlap where a run was cut anew: each ξ counts once.
    before = Window.partitionBy(*key).orderBy("first", "last").rowsBetween(Window.unboundedPreceding, -1)
    reach = F.coalesce(F.max("last").over(before), F.lit(0))
    own = F.greatest(F.lit(0), F.col("last") - F.greatest(F.col("first") - 1, reach))
    missing = open_gaps(gaps, elements).select(*key, "kind", "last", own.alias("own"))
    declared = missing.groupBy(*key).agg(
        F.sum(F.when(F.col("kind") == "hole", F.col("own")).otherwise(0)).alias("holes"),
        F.sum(F.when(F.col("kind") == "gap", F.col("own")).otherwise(0)).alias("dropped"),
        F.max("last").alias("last_gap"),
    )
    refused = quarantine.where("reason = 'divergent'").groupBy(*key).agg(F.sum("rows").alias("refused"))
    both = rows.join(declared, key, "full").join(refused, key, "left")
    counted = both.select(
        *key,
        F.coalesce("rows", F.lit(0)).alias("rows"),
        F.greatest("last_row", "last_gap").alias("last"),
        F.coalesce("holes", F.lit(0)).alias("holes"),
        F.coalesce("dropped", F.lit(0)).alias("dropped"),
        F.coalesce("refused", F.lit(0)).alias("refused"),
        F.coalesce("unsync", F.lit(0)).alias("unsync"),
        "first_ts",
        "last_ts",
    )
    accepted = F.col("last") - F.col("holes")
    return counted.select(
        *key,
        "rows",
        "last",
        "holes",
        "dropped",
        (accepted - F.col("rows") - F.col("dropped")).alias("lost"),
        F.when(accepted > 0, F.col("rows") / accepted).alias("completeness"),
        "refused",
        "unsync",
        "first_ts",
        "last_ts",
    )


def latency(elements: DataFrame, streams: DataFrame) -> DataFrame:
    """From ts until rows landed and arrived, in ms; rows stamped before a clock was set are left out."""
    from pyspark.sql import functions as F

    def since_ts(column: str) -> Any:
        return (F.unix_micros(column) - F.unix_micros("ts")) / 1000

    asked = streams.groupBy("stream").agg(
        F.max_by("within_ms", F.struct("version", "since")).alias("within_ms")
    )
    rows = elements.where("NOT unsync").join(F.broadcast(asked), "stream", "left")
    columns = [
        F.count("*").alias("rows"),
        F.first("within_ms").alias("within_ms"),
        F.count_if((F.col("within_ms") > 0) & (since_ts("landed") > F.col("within_ms"))).alias("late"),
    ]
    for name in ("landed", "arrived"):
        for share in (50, 90, 99):
            alias = "%s_p%d_ms" % (name, share)
            columns.append(F.percentile_approx(since_ts(name), share / 100).alias(alias))
        columns.append(F.max(since_ts(name)).alias(name + "_max_ms"))
    return rows.groupBy("stream", "incarnation").agg(*columns)


def _is(stream: str) -> Any:
    from pyspark.sql import functions as F

    return F.col("stream") == F.lit(stream)


def _common() -> tuple[str, ...]:
    from .views import COMMON

    return COMMON


def _micros(when: datetime | str | None) -> int | None:
    if when is None:
        return None
    if isinstance(when, str):
        try:
            when = datetime.fromisoformat(when)
        except ValueError:
            raise LakeError("'%s' is no time: write it like 2026-11-18 15:30:00" % when)
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
