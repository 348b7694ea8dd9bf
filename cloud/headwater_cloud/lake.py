"""A lake in a notebook: streams as typed tables, and information about them.

    from headwater_cloud import Lake
    lake = Lake(spark, "/data/lake")
    lake.stream("cardio/ecg").where("mV > 900").show()
    lake.gaps().show()

Reads only, and starts nothing: every method gives a DataFrame of the session that it was made with. Only
`register` writes, into a catalog. Spark is imported when rows are asked for, so that `ArrowLake` and the
audit, which need none, can be imported without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from . import access, moments, queries, views
from .dialect import SPARK
from .errors import LakeError
from .tables import exists

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame, SparkSession

    from .moments import History, Moment
    from .views import Version

TABLES = ("elements", "gaps", "quarantine", "streams")
POINTS = 2000  # across the width of a plot; if there are more, each is the span of several
METHODS = ("gaps", "quality", "latency", "quarantine", "streams")  # that have a view, lake_gaps and so on


class Lake:
    """The lake in the folder `path`, now or (see `as_of`) at an earlier moment."""

    def __init__(
        self,
        spark: SparkSession,
        path: str | Path,
        *,
        storage: Mapping[str, str] | None = None,
        at: Moment | None = None,
    ) -> None:
        """`storage`: options of delta-rs, if the session's `fs.s3a.*` do not say how to reach a store."""
        self.spark = spark
        self.location = access.locate(spark, path, storage)
        self._at = at

    @property
    def is_of_earlier_moment(self) -> bool:
        return self._at is not None

    def __repr__(self) -> str:
        return "Lake(%s%s)" % (self.location, moments.said(self._at))

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
        return self.spark.sql(self.view_sql(name, version))

    def view_sql(self, name: str, version: int | None = None) -> str:
        """The query of the typed rows of a stream, as `stream` runs it: for a view of your own."""
        return views.view_sql(self._source("elements"), name, self._version(name, version))

    def read_stream(self, name: str, version: int | None = None, **options: str | int) -> DataFrame:
        """The typed rows of a stream as a streaming DataFrame: those that are there, then each that lands.

        With a checkpoint, a query gets each row once, across restarts of its own and of the sink, and
        whatever maintenance does. Commits that erase or rewrite rows are passed over (`skipChangeCommits`):
        rows that were read before stay read. `options` are those of Delta's source, as maxFilesPerTrigger=100
        or startingVersion=7. A query may pause for a week, as long as old versions are kept; then it fails.

        Nothing is left out silently. A row of an alphabet that is newer than the query fails it: start it
        again, with the same checkpoint. Of a stream with several versions, name the one to follow.
        """
        if self._at is not None:
            raise LakeError("%r cannot be followed: it is the lake of an earlier moment" % self)
        known = self._known()
        chosen = views.find(known, name, version, self.location)
        there = views.versions((v, alphabet) for stream, v, alphabet in known if stream == name)
        if version is None and len(there) > 1:
            raise LakeError(
                "stream '%s' has %s: name the one to follow, as read_stream(%r, version=%d)"
                % (name, views.numbered(there), name, chosen.number)
            )
        reader = self.spark.readStream.format("delta").option("skipChangeCommits", "true").options(**options)
        rows = reader.load((self.location / "elements").spark).where("stream = %s" % SPARK.quoted(name))
        return rows.where(views.follows_sql(name, chosen, there)).selectExpr(*views.expressions(chosen))

    def register(
        self, catalog: str | None = None, schema: str | None = None, drop_gone: bool = False
    ) -> dict[str, str]:
        """Views for plain SQL: each stream as cardio_ecg (an older version of it as cardio_ecg___v1), and
        lake_gaps, lake_quality, lake_latency, lake_quarantine, lake_streams. Returns {view: stream or
        method}.

        Without arguments they are temporary views of this session. With the name of a catalog, a schema or
        both, they and the tables are registered there, for every session that uses the catalog: see
        `catalog.register`. A name follows from that of the stream alone: `views.view_name`.
        """
        if catalog is not None or schema is not None:
            from . import catalog as persistent

            return persistent.register(self, catalog, schema, drop_gone)
        out = {}
        for view, stream, query in self.view_queries():
            self.spark.sql(query).createOrReplaceTempView(SPARK.named(view))
            out[view] = stream
        return out

    def view_queries(self, source: Callable[[str], str] | None = None) -> list[tuple[str, str, str]]:
        """(view, stream or method, query) of every view of the lake; `source` names a table for a query."""
        source = source or self._source
        known = self._known()
        out = []
        for stream in sorted({stream for stream, _, _ in known}):
            there = views.versions((v, alphabet) for name, v, alphabet in known if name == stream)
            for version in there:
                older = "" if version == there[-1] else "___v%d" % version.number
                query = views.view_sql(source("elements"), stream, version)
                out.append((views.view_name(stream) + older, stream, query))
        return out + [("lake_" + name, name, self._query(name, source)) for name in METHODS]

    # Information about them

    def gaps(self) -> DataFrame:
        """Holes and declared gaps, without rows that arrived later, and what was erased: stream, incarnation,
        first, last, missing, kind (hole, gap, erased), reason, from_ts, to_ts, process, landed. A time that
        was not declared is that of the neighbouring row."""
        return self._sql(self._query("gaps")).orderBy("stream", "incarnation", "first")

    def quality(self) -> DataFrame:
        """One row per stream and incarnation: rows, last (ξ), holes, dropped, erased, lost, completeness,
        refused, unsync, first_ts, last_ts. `lost` counts ξ below `last` that were not declared missing."""
        return self._sql(self._query("quality")).orderBy("stream", "incarnation")

    def latency(self) -> DataFrame:
        """One row per stream and incarnation: milliseconds from ts until rows landed and arrived, at 50, 90,
        99 and 100 %, and how many landed later than `within_ms` asks."""
        return self._sql(self._query("latency")).orderBy("stream", "incarnation")

    def quarantine(self) -> DataFrame:
        """What was refused, newest first."""
        from pyspark.sql import functions as F

        return self.table("quarantine").orderBy(F.desc("landed"))

    def erasures(self) -> DataFrame:
        """What was erased on demand, oldest first: id, stream, filter, by, reason, status, declared,
        finished, ranges (of ξ, by incarnation). As it is now, also of an earlier version of the lake."""
        from pyspark.sql import functions as F

        if not exists(self.location / "erasures"):
            none = "id string, stream string, filter string, by string, reason string, status string, "
            times = "declared timestamp, finished timestamp, "
            runs = "ranges array<struct<incarnation: bigint, first: bigint, last: bigint>>"
            return self.spark.createDataFrame([], none + times + runs)
        return (
            self.spark.sql("SELECT * FROM %s" % self._path("erasures"))
            .drop("taken")
            .orderBy(F.col("declared"))
        )

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
        names = [name for name in rows.columns if name not in views.COMMON]
        unknown = sorted(set(fields or ()) - set(names))
        if unknown:
            raise LakeError("stream '%s' has no field %s: it has %s" % (stream, unknown[0], ", ".join(names)))
        span = (moments.micros(start), moments.micros(end))
        curve = plots.curve(rows, list(fields or names), span, POINTS)
        only = " WHERE stream = %s)" % SPARK.quoted(stream)
        gaps = self._sql(self._query("gaps", lambda name: "(SELECT * FROM " + self._source(name) + only))
        return plots.figure(stream, curve, plots.shades(gaps, span), span)

    # Earlier moments

    def as_of(self, when: int | datetime | str) -> Lake:
        """The lake as it was: at a version of `elements` (an int), or at a moment (without a zone: UTC).

        The log keeps the newest versions, and a few older ones. Any moment is possible: if its version is
        not kept, the rows are those that had landed by then and were not removed since.
        """
        at = moments.moment_of(self.location, TABLES, when, self._history)
        return Lake(self.spark, self.location.spark, storage=self.location.options, at=at)

    def _history(self, name: str) -> History:
        """(version, time in µs) of a table, oldest first."""
        from pyspark.sql import functions as F

        self.table(name)  # raises if there is none
        history = self.spark.sql("DESCRIBE HISTORY %s" % self._path(name))
        rows = history.select("version", F.unix_micros("timestamp").alias("time")).collect()
        return sorted((int(row["version"]), int(row["time"])) for row in rows)

    # Tables

    def table(self, name: str) -> DataFrame:
        """One of the tables as it is: elements, gaps, quarantine, streams."""
        return self._sql("SELECT * FROM %s" % self._source(name), name)

    def _sql(self, query: str, name: str = "elements") -> DataFrame:
        from pyspark.errors import AnalysisException

        try:
            return self.spark.sql(query)
        except AnalysisException as error:
            first = str(error).splitlines()[0]
            raise LakeError(
                "%s is not a lake, or has no table `%s` yet: %s" % (self.location, name, first)
            ) from error

    def _query(self, method: str, source: Callable[[str], str] | None = None) -> str:
        """The query of a method; `source` names a table for a query."""
        source = source or self._source
        if method == "gaps":
            return queries.gaps(self._missing(source), source("elements"))
        if method == "quality":
            return queries.quality(source("elements"), self._missing(source), source("quarantine"))
        if method == "latency":
            return queries.latency(source("elements"), source("streams"), SPARK)
        return "SELECT * FROM %s" % source(method)

    def _missing(self, source: Callable[[str], str]) -> str:
        """What was declared missing, or was erased, also since an earlier moment."""
        erased = source("erasures") if exists(self.location / "erasures") else None
        return queries.missing(source("gaps"), erased, SPARK)

    def _path(self, name: str) -> str:
        return "delta.%s" % SPARK.named((self.location / name).spark)

    def _source(self, name: str) -> str:
        """A table as a query names it; without rows if it did not exist yet."""
        if self._at is None or name == "erasures":  # what is erased now was erased at every moment
            return self._path(name)
        there = self._at.get(name)
        if there is None:
            return "(SELECT * FROM %s LIMIT 0)" % self._path(name)
        source = "%s VERSION AS OF %d" % (self._path(name), there.version)
        return moments.only(source, name, there, SPARK)

    def _known(self) -> list[tuple[str, int, str]]:
        """(stream, version, alphabet) of every row of the table `streams`."""
        rows = self.table("streams").select("stream", "version", "alphabet").collect()
        return [(str(row["stream"]), int(row["version"]), str(row["alphabet"])) for row in rows]

    def _version(self, stream: str, number: int | None) -> Version:
        return views.find(self._known(), stream, number, self.location)
