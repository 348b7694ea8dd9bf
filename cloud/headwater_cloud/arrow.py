"""A lake without a JVM: what `Lake` gives with Spark, as pyarrow Tables.

    from headwater_cloud import ArrowLake
    lake = ArrowLake("/data/lake")
    ecg = lake.stream("cardio/ecg", "2026-03-01 08:00", "2026-03-01 08:10").to_pandas()
    polars.from_arrow(lake.gaps())

Reads only. delta-rs reads the tables, and learns from the Delta log which files can have rows of a stream and
a span of time: a small window of a large lake costs what the window costs, not what the lake does. Names,
types and rows are those of `Lake`; rows come in a fixed order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError, TableNotFoundError

from . import moments, queries, tables, views
from .dialect import DATAFUSION
from .errors import LakeError
from .location import Location
from .moments import History, Moment
from .views import Version

TABLES = ("elements", "gaps", "quarantine", "streams")
KEY = "stream, incarnation"


class ArrowLake:
    """The lake in the folder `path`, now or (see `as_of`) at an earlier moment.

    `storage`: delta-rs's options for an object store, if its environment variables do not have them.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        storage: Mapping[str, str] | None = None,
        at: Moment | None = None,
    ) -> None:
        self.location = Location.of(path, dict(storage or {}))
        self._at = at

    def __repr__(self) -> str:
        return "ArrowLake(%s%s)" % (self.location, moments.said(self._at))

    def streams(self) -> pa.Table:
        """Every alphabet of every stream: process, stream, version, alphabet, within_ms, since."""
        return self._rows("streams", " ORDER BY stream, version, since")

    def stream(
        self,
        name: str,
        start: datetime | str | None = None,
        end: datetime | str | None = None,
        fields: Sequence[str] | None = None,
        version: int | None = None,
    ) -> pa.Table:
        """The rows of a stream from `start` to before `end`, in order of incarnation and ξ, under the names
        and types that its author declared. Times without zone: UTC.

        Columns: incarnation, xi, ts, unsync, arrived, landed, then the fields, or those that are asked for.
        Fields that a stream gained are null in older rows. Where it changed so that old and new rows do not
        fit one table it has versions; this gives the newest one unless another is named.
        """
        found = self._version(name, version)
        names = [field for field, _, _ in views.fields(found)]
        for field in fields or ():
            if field not in names:
                raise LakeError("stream '%s' has no field %s: it has %s" % (name, field, ", ".join(names)))
        query = views.view_sql(self._from("elements"), name, found, DATAFUSION, fields)
        for sign, when in ((">=", moments.micros(start)), ("<", moments.micros(end))):
            if when is not None:
                query += " AND ts %s %s" % (sign, DATAFUSION.moment(when))
        return self._query(query + " ORDER BY incarnation, xi", "elements")

    def last(self, name: str, n: int) -> pa.Table:
        """The newest `n` rows of a stream by ts, oldest first. Takes memory for these rows alone."""
        query = views.view_sql(self._from("elements"), name, self._version(name, None), DATAFUSION)
        newest = query + " ORDER BY ts DESC, incarnation DESC, xi DESC LIMIT %d" % n
        return self._query("SELECT * FROM (%s) ORDER BY ts, incarnation, xi" % newest, "elements")

    def gaps(self) -> pa.Table:
        """Holes and declared gaps, without rows that arrived later, and what was erased: stream, incarnation,
        first, last, missing, kind (hole, gap, erased), reason, from_ts, to_ts, process, landed. A time that
        was not declared is that of the neighbouring row."""
        query = queries.gaps(self._missing(), self._from("elements"))
        order = " ORDER BY stream, incarnation, first, last, reason"
        return self._query(query + order, "gaps", "elements", *self._erased())

    def quality(self) -> pa.Table:
        """One row per stream and incarnation: rows, last (ξ), holes, dropped, erased, lost, completeness,
        refused, unsync, first_ts, last_ts. `lost` counts ξ below `last` that were not declared missing."""
        query = queries.quality(self._from("elements"), self._missing(), self._from("quarantine"))
        return self._query(query + " ORDER BY " + KEY, "elements", "gaps", "quarantine", *self._erased())

    def latency(self) -> pa.Table:
        """One row per stream and incarnation: milliseconds from ts until rows landed and arrived, at 50, 90,
        99 and 100 %, and how many landed later than `within_ms` asks. Sorts the delays of all rows."""
        query = queries.latency(self._from("elements"), self._from("streams"), DATAFUSION)
        return self._query(query + " ORDER BY " + KEY, "elements", "streams")

    def quarantine(self) -> pa.Table:
        """What was refused, newest first."""
        return self._rows("quarantine", " ORDER BY landed DESC")

    def erasures(self) -> pa.Table:
        """What was erased on demand, oldest first: id, stream, filter, by, reason, status, declared,
        finished, ranges (of ξ, by incarnation). As it is now, also of an earlier version of the lake."""
        if not self._erased():
            fields = [field for field in tables.SCHEMAS["erasures"] if field.name != "taken"]
            return pa.schema(fields).empty_table()
        return self._query("SELECT * FROM erasures ORDER BY declared", "erasures").drop_columns(["taken"])

    def as_of(self, when: int | datetime | str) -> ArrowLake:
        """The lake as it was: at a version of `elements` (an int), or at a moment (without a zone: UTC)."""
        at = moments.moment_of(self.location, TABLES, when, self._history)
        return ArrowLake(self.location.spark, storage=self.location.options, at=at)

    def table(self, name: str) -> pa.Table:
        """One of the tables as it is: elements, gaps, quarantine, streams."""
        return self._rows(name)

    def _rows(self, name: str, order: str = "") -> pa.Table:
        return self._query("SELECT * FROM %s%s" % (self._from(name), order), name)

    def _version(self, stream: str, number: int | None) -> Version:
        rows = self._rows("streams").select(["stream", "version", "alphabet"]).to_pylist()
        known = [(row["stream"], row["version"], row["alphabet"]) for row in rows]
        return views.find(known, stream, number, self.location)

    def _history(self, name: str) -> History:
        commits = self._open(name).history()
        return sorted((int(commit["version"]), int(commit["timestamp"]) * 1000) for commit in commits)

    def _open(self, name: str) -> DeltaTable:
        """A table, at the version that is asked for."""
        try:
            table = tables.open_table(self.location / name)
            there = (self._at or {}).get(name)
            if there is not None:
                table.load_as_version(there.version)
        except (TableNotFoundError, DeltaError) as error:
            first = str(error).splitlines()[0]
            raise LakeError(
                "%s is not a lake, or has no table `%s` yet: %s" % (self.location, name, first)
            ) from error
        return table

    def _erased(self) -> tuple[str, ...]:
        """The name of the table `erasures`, if there is one."""
        return ("erasures",) if tables.exists(self.location / "erasures") else ()

    def _missing(self) -> str:
        """What was declared missing, or was erased, also since an earlier moment."""
        return queries.missing(self._from("gaps"), "erasures" if self._erased() else None, DATAFUSION)

    def _from(self, name: str) -> str:
        """A table as a query names it; without rows if it did not exist yet."""
        if self._at is None:
            return name
        there = self._at.get(name)
        if there is None:
            return "(SELECT * FROM %s LIMIT 0)" % name
        return moments.only(name, name, there, DATAFUSION)

    def _query(self, query: str, *names: str) -> pa.Table:
        """The answer to a query over these tables."""
        builder = QueryBuilder()
        for name in names:
            builder.register(name, self._open(name))
        try:
            return _plain(pa.RecordBatchReader.from_stream(builder.execute(query)).read_all())
        except (DeltaError, pa.ArrowException, OSError) as error:
            # DataFusion answers with many lines; the first has the reason.
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise LakeError("%s cannot be read: %s" % (self.location, first)) from error


def _plain(table: pa.Table) -> pa.Table:
    """With the types of Arrow that every reader knows, and without notes of the table's columns."""
    fields = []
    for field in table.schema:
        kind = field.type
        if pa.types.is_string_view(kind):
            kind = pa.string()
        elif pa.types.is_binary_view(kind):
            kind = pa.binary()
        fields.append(pa.field(field.name, kind))
    return table.cast(pa.schema(fields))
