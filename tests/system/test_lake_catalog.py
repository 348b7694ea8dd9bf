"""A lake in a catalog: registered by one process, queried by name in another one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from headwater_cloud import Lake
from headwater_cloud.errors import LakeError
from headwater_tools import environment
from headwater_tools.environment import ROOT
from lakes import healthy
from pyspark.sql import SparkSession

# The second process: it queries what the first one registered, then registers a lake that has changed.
SECOND = """
import json, sys
from pathlib import Path
from headwater_cloud import Lake, session
from headwater_cloud.catalog import metastore
from headwater_cloud.errors import LakeError
from headwater_tools import environment
from lakes import LakeOf

path, folder, other = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
quick = dict(pair.split("=", 1) for pair in sys.argv[4:])
spark = session.start("local[2]", environment.jars(), metastore(folder) | quick, brief=True)

def rows(query):
    return [list(row) for row in spark.sql(query).collect()]

def texts():
    return {
        name: spark.sql("SHOW CREATE TABLE site.%s" % name).first()[0] + str(spark.sql(
            "SHOW TBLPROPERTIES site.%s" % name).where("key = 'transient_lastDdlTime'").collect())
        for (_, name, _) in rows("SHOW VIEWS IN site")
    }

found = {
    "ecg": rows("SELECT count(*), max(mV) FROM site.cardio_ecg"),
    "types": spark.table("site.cardio_rate").dtypes,
    "gaps": rows("SELECT first, last, reason FROM site.lake_gaps ORDER BY first"),
    "quality": rows("SELECT stream, rows, lost FROM site.lake_quality ORDER BY stream"),
    "latency": rows("SELECT stream, rows, late FROM site.lake_latency ORDER BY stream"),
    "elements": rows("SELECT count(*) FROM site.elements"),
    "progress": rows("SELECT stream, high FROM site.progress ORDER BY stream"),
}
lake = Lake(spark, path)
before = texts()
lake.register(schema="site")
found["again"] = texts() == before
made = LakeOf(path)
made.stream("cardio/rate", "bpm:u8 q:f32")
made.stream("cardio/rate", "bpm:f32", version=2)
made.stream("cardio_rate")
made.rows("cardio/rate", 301, 302, alphabet="bpm:u8 q:f32", ints=lambda xi: [60], floats=lambda xi: [0.5])
made.write()
found["names"] = sorted(lake.register(schema="site"))
found["kept"] = [name for name, text in texts().items() if before.get(name) == text]
found["rate"] = rows("SELECT count(*), count(q) FROM site.cardio_rate___v1")
found["new"] = rows("SELECT count(*) FROM site.cardio_rate")
spark.sql("DELETE FROM site.streams WHERE stream = 'cardio_rate'")
lake.register(schema="site")
found["stays"] = "cardio__rate" in texts()
lake.register(schema="site", drop_gone=True)
found["dropped"] = "cardio__rate" not in texts()
spark.sql("CREATE VIEW site.mine AS SELECT 1 AS one")
lake.register(schema="site", drop_gone=True)
found["mine"] = rows("SELECT * FROM site.mine")
try:
    Lake(spark, other).register(schema="site")
except LakeError as error:
    found["taken"] = str(error)
spark.sql("CREATE SCHEMA own")
spark.sql("CREATE VIEW own.cardio_ecg AS SELECT 2 AS two")
try:
    lake.register(schema="own")
except LakeError as error:
    found["taken_view"] = str(error)
found["untouched"] = rows("SHOW TABLES IN own")
print(json.dumps(found))
spark.stop()
"""

# A process that runs each query once: compiling it would take longer than computing.
QUICK = (
    "spark.sql.shuffle.partitions=1",
    "spark.databricks.delta.snapshotPartitions=1",
    "spark.sql.codegen.wholeStage=false",
    "spark.sql.codegen.factoryMode=NO_CODEGEN",
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What two processes said: one that registered, one that came afterwards."""
    environment.ensure("lake")
    folder = tmp_path_factory.mktemp("catalog")
    path, kept, other = folder / "lake", folder / "catalog", folder / "other"
    healthy(path).write()
    healthy(other).write()
    env = environment.variables()
    command = [sys.executable, "-P", "-m", "headwater_tools", "lake", "register", str(path), "--json"]
    command += ["--metastore", str(kept), "--schema", "site"]
    command += [word for setting in QUICK for word in ("--conf", setting)]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    first = json.loads(done.stdout.splitlines()[-1])["registered"]
    env["PYTHONPATH"] += os.pathsep + str(ROOT / "tests" / "support")
    command = [sys.executable, "-c", SECOND, str(path), str(kept), str(other), *QUICK]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said | {"first": first, "folder": sorted(entry.name for entry in folder.iterdir())}


def test_another_process_finds_tables_and_typed_views_by_name(found: dict[str, Any]) -> None:
    assert found["first"]["spark_catalog.site.cardio_ecg"] == "cardio/ecg"
    assert found["first"]["spark_catalog.site.lake_gaps"] == "gaps"
    assert found["ecg"] == [[899, 999]]
    assert ["bpm", "smallint"] in found["types"]
    assert found["gaps"] == [[401, 401, "restart"], [701, 800, "full"]]
    assert found["quality"] == [["cardio/ecg", 899, 0], ["cardio/rate", 300, 0]]
    assert found["latency"] == [["cardio/ecg", 899, 0], ["cardio/rate", 300, 0]]
    assert found["elements"] == [[1199]]
    assert found["progress"] == [["cardio/ecg", 1000], ["cardio/rate", 300]]
    assert found["folder"] == ["catalog", "lake", "other"]  # no log of Derby, no warehouse


def test_registering_again_changes_only_what_differs(found: dict[str, Any]) -> None:
    assert found["again"]
    assert "cardio_ecg" in found["kept"] and "lake_gaps" in found["kept"]
    assert "cardio_rate" not in found["kept"]
    names = [name.removeprefix("spark_catalog.site.") for name in found["names"] if "cardio" in name]
    assert names == ["cardio__rate", "cardio_ecg", "cardio_rate", "cardio_rate___v1"]
    assert found["rate"] == [[302, 2]] and found["new"] == [[0]]


def test_a_view_is_dropped_only_when_that_is_asked_for(found: dict[str, Any]) -> None:
    assert found["stays"] and found["dropped"]
    assert found["mine"] == [[1]]


def test_a_name_that_is_taken_stops_the_registration_before_it_changes_anything(
    found: dict[str, Any],
) -> None:
    assert "`site`.`elements` is taken, by a table in " in found["taken"]
    assert "`own`.`cardio_ecg` is taken" in found["taken_view"]
    assert [row[1] for row in found["untouched"]] == ["cardio_ecg"]


def test_a_catalog_that_would_not_last_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, healthy(tmp_path).write())
    with pytest.raises(LakeError, match="keeps its catalog in memory"):
        lake.register(schema="site")
    with pytest.raises(LakeError, match="is the lake of an earlier moment"):
        lake.as_of(0).register(schema="site")
