"""The Spark session that the sink, maintenance, audit and notebooks run in."""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from . import jvm
from .segment import SIZE_MAX

LOGGING = Path(__file__).with_name("log4j2.properties")

# For a session that lives for seconds: compiling Spark well takes twice the time that its first batches take.
QUICK_START = " -XX:TieredStopAtLevel=1"

# Small by design: a lake of a site is read and written by few cores, and Delta's defaults (50 partitions for
# the state of a table, 200 for a shuffle) make a first read take 13 s.
SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A batch names its files one by one; above this number Spark would list them in a job of its own.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # Damage is found before a file is read; whatever appears later must fail, never be skipped.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
}


# What a task holds of a file that it reads whole, times its bytes: these, a row of them, and parts of that.
COPIES = 8
BASE_BYTES = 640 << 20  # of a heap, beside such tasks: Spark itself, and what writes the tables


def heap_bytes(cores: int, memory: int) -> int:
    """The heap of a local Spark: a segment of the largest size for each core, at most half of the machine."""
    wanted = BASE_BYTES + cores * COPIES * SIZE_MAX
    return max(1 << 30, min(wanted, memory // 2))


def readers(heap: int) -> int:
    """How many tasks of a local Spark with this heap may read a whole segment at once."""
    return max(1, (heap - BASE_BYTES) // (COPIES * SIZE_MAX))


def start(
    master: str = "local[*]",
    jars: Iterable[Path] = (),
    more: Mapping[str, str] | None = None,
    name: str = "headwater",
    log: str = "OFF",
    brief: bool = False,
) -> SparkSession:
    """A session for lakes; where one runs already (spark-submit, a notebook), that one, configured for us.

    `brief` for one that does little: it starts in half the time, and is slower when warm.
    """
    submitted = bool(os.environ.get("PYSPARK_GATEWAY_PORT"))
    if SparkSession.getActiveSession() is None and not submitted:
        jvm.which_java()
    settings = {"spark.app.name": name, **({"spark.master": master} if master else {}), **SETTINGS}
    if not submitted:
        settings["spark.sql.warehouse.dir"] = _warehouse()
    paths = [str(jar) for jar in jars]
    local = master.startswith("local")
    if paths and local:
        settings["spark.driver.extraClassPath"] = os.pathsep.join(paths)  # read where they lie, not copied
    elif paths:
        settings["spark.jars"] = ",".join(paths)
    if local:
        # A laptop's name may resolve to an address that it does not have.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # Functions of a user run in Pythons that Spark starts: this one, which has the packages.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings["spark.driver.host"] = "127.0.0.1"
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        settings["spark.driver.memory"] = "%dm" % (heap_bytes(_cores(master), memory) >> 20)
        settings["spark.driver.bindAddress"] = "127.0.0.1"
        options = "-Dlog4j2.configurationFile=%s" % LOGGING.as_uri()
        settings["spark.driver.extraJavaOptions"] = options + (QUICK_START if brief else "")
    settings.update(more or {})
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    with jvm.started(settings):
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel(log)
    # What fails is told by the exception; PySpark would log it once more, as JSON of many lines.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    return spark


def _cores(master: str) -> int:
    """The cores of a local master: local, local[2], local[*], local[2,4]."""
    digits = re.match(r"local\[(\d+)", master)
    if digits:
        return int(digits[1])
    return 1 if master == "local" else len(os.sched_getaffinity(0))


def _warehouse() -> str:
    """Spark makes a folder for tables without a place of their own, where the user stands by default. A lake
    has no such tables, so one empty folder for all sessions of this user will do."""
    return (Path(tempfile.gettempdir()) / ("headwater-spark-warehouse-%d" % os.getuid())).as_uri()
