"""A lake in a catalog: its tables and typed views under names that every session of the catalog can query.

    Lake(spark, "/data/lake").register(catalog="spark_catalog", schema="site")
    SELECT * FROM site.cardio_ecg WHERE mV > 900

The tables have their own names (elements, gaps, progress, quarantine, streams), and their place stays the
folder of the lake: dropping one from the catalog removes no row. The views are those of `Lake.register`.
Registering again changes only what differs: a new stream, or one that has gained an alphabet. Everything that
is made here names its lake in its properties, and anything else with one of the names stops the registration
before it changes anything.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from . import comments, tables, views
from .dialect import SPARK
from .errors import LakeError, sentence

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .lake import Lake

LAKE, STREAM, QUERY = "headwater.lake", "headwater.stream", "headwater.query"  # properties of a view
ABOUT = {
    "gaps": "Holes and declared gaps, without what came nevertheless.",
    "quality": "How much of each stream and incarnation is there, and what became of the rest.",
    "latency": "Milliseconds from ts until rows landed and arrived, for each stream and incarnation.",
    "quarantine": comments.TABLES["quarantine"],
    "streams": comments.TABLES["streams"],
}


class _View(NamedTuple):
    """A view as it is to be."""

    name: str
    about: str  # a stream, or a method of `Lake`
    query: str
    comment: str


def metastore(folder: str | Path) -> dict[str, str]:
    """Settings of a session for a catalog that lasts, kept by an embedded Derby in a folder of this machine:
    `session.start(more=metastore("/data/catalog"))`. One session at a time can have it open."""
    place = Path(folder).absolute()
    place.mkdir(parents=True, exist_ok=True)  # Derby opens its log before it makes a folder
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": (place / "warehouse").as_uri(),
        "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:;databaseName=%s;create=true"
        % (place / "metastore"),
        "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
        "spark.hadoop.hive.metastore.schema.verification": "false",
        "spark.driver.defaultJavaOptions": "-Dderby.stream.error.file=%s" % (place / "derby.log"),
    }


def register(lake: Lake, catalog: str | None, schema: str | None, drop_gone: bool = False) -> dict[str, str]:
    """Register tables and views of a lake; returns {full name: table, stream or method}.

    `catalog`: that of the session if none is named. `schema`: `default` if none is named; created if missing.
    `drop_gone`: drop views of this lake whose streams are gone.
    """
    from pyspark.errors import PySparkException

    if lake.is_of_earlier_moment:
        raise LakeError("%r cannot be registered: it is the lake of an earlier moment" % lake)
    spark = lake.spark
    catalog = catalog or spark.catalog.currentCatalog()
    schema = schema or "default"
    if catalog == "spark_catalog" and spark.conf.get("spark.sql.catalogImplementation") == "in-memory":
        raise LakeError(
            "this session keeps its catalog in memory, so what is registered would be gone with it: start it "
            "with a metastore (spark.sql.catalogImplementation=hive; `hw lake register --metastore FOLDER`)"
        )
    target = _Schema(lake, catalog, schema)
    try:
        return target.register(drop_gone)
    except PySparkException as error:
        raise LakeError(
            "%s cannot be registered in %s: %s" % (lake.location, target.place, sentence(error))
        ) from error


class _Schema:
    """One schema of a catalog, and its objects that belong to one lake."""

    def __init__(self, lake: Lake, catalog: str, schema: str) -> None:
        self.spark: SparkSession = lake.spark
        self.lake = lake
        self.catalog = catalog
        self.schema = schema
        self.place = "%s.%s" % (SPARK.named(catalog), SPARK.named(schema))

    def register(self, drop_gone: bool) -> dict[str, str]:
        lake = self.lake
        wanted = [
            _View(name, about, query, self._comment(name, about))
            for name, about, query in lake.view_queries(self._named)
        ]
        # Views of what the lake does not have yet would fail only when they are queried.
        here = [name for name in views.TABLES if tables.exists(lake.location / name)]
        # This user may not be allowed to create a schema that exists.
        rows = self.spark.sql("SHOW SCHEMAS IN %s" % SPARK.named(self.catalog)).collect()
        if self.schema.lower() not in {str(row[0]).lower() for row in rows}:
            self.spark.sql("CREATE SCHEMA IF NOT EXISTS %s" % self.place)
        there = self._there()
        mine = self._check(here, wanted, there)
        for name in here:
            if name not in there:
                path = SPARK.quoted((lake.location / name).spark)
                self.spark.sql("CREATE TABLE %s USING delta LOCATION %s" % (self._named(name), path))
        for view in wanted:
            if mine.get(view.name, {}).get(QUERY) != _mark(view):
                self._put(view)
        if drop_gone:
            for name in sorted(set(mine) - {view.name for view in wanted}):
                self.spark.sql("DROP VIEW IF EXISTS %s" % self._named(name))
        out = {name: name for name in here} | {view.name: view.about for view in wanted}
        return {self._named(name).replace("`", ""): about for name, about in out.items()}

    def _named(self, name: str) -> str:
        return "%s.%s" % (self.place, SPARK.named(name))

    def _there(self) -> dict[str, bool]:
        """The objects of the schema: name -> whether it is a view."""
        rows = self.spark.sql("SHOW TABLES IN %s" % self.place).collect()
        names = [str(row["tableName"]) for row in rows if not row["isTemporary"]]
        rows = self.spark.sql("SHOW VIEWS IN %s" % self.place).collect()
        of_views = {str(row["viewName"]) for row in rows if not row["isTemporary"]}
        return {name: name in of_views for name in [*names, *of_views]}

    def _check(
        self, here: list[str], wanted: list[_View], there: dict[str, bool]
    ) -> dict[str, dict[str, str]]:
        """Views of this lake with their properties; LakeError if a name is taken by anything else."""
        mine = {}
        for name, is_view in there.items():
            if is_view:
                rows = self.spark.sql("SHOW TBLPROPERTIES %s" % self._named(name)).collect()
                properties = {str(row["key"]): str(row["value"]) for row in rows}
                if properties.get(LAKE) == self.lake.location.spark:
                    mine[name] = properties
        for name in [name for name in here if name in there]:
            at = None if there[name] else self._location(name)
            if at != (self.lake.location / name).spark:
                raise LakeError(
                    "%s is taken, by %s: register this lake in a schema of its own"
                    % (self._named(name), "a view" if at is None else "a table in %s" % at)
                )
        for view in wanted:
            if view.name in there and view.name not in mine:
                raise LakeError(
                    "%s is taken, but not by a view of this lake: register it in a schema of its own"
                    % self._named(view.name)
                )
        return mine

    def _location(self, table: str) -> str:
        row = self.spark.sql("DESCRIBE DETAIL %s" % self._named(table)).first()
        assert row is not None
        location = str(row["location"])
        return "/" + location.removeprefix("file:").lstrip("/") if location.startswith("file:") else location

    def _comment(self, name: str, about: str) -> str:
        if name.startswith("lake_") and about in ABOUT:
            return ABOUT[about]
        return "Stream %s of Headwater, as its author declared it." % about

    def _put(self, view: _View) -> None:
        properties = {LAKE: self.lake.location.spark, STREAM: view.about, QUERY: _mark(view)}
        self.spark.sql(
            "CREATE OR REPLACE VIEW %s COMMENT %s TBLPROPERTIES (%s) AS %s"
            % (
                self._named(view.name),
                SPARK.quoted(view.comment),
                ", ".join("%s = %s" % (SPARK.quoted(k), SPARK.quoted(v)) for k, v in properties.items()),
                view.query,
            )
        )


def _mark(view: _View) -> str:
    """The property by which an unchanged view is recognised."""
    return hashlib.sha256(("%s\n%s" % (view.comment, view.query)).encode()).hexdigest()[:16]
