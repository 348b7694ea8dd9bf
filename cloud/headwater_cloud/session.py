"""The Spark session that the sink, maintenance, audit and notebooks run in."""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from . import jvm
from .segment import SIZE_MAX

LOGGING = Path(__file__).with_name("log4j2.properties")

# For a session of a few seconds: compiling Spark well takes twice the time that its first batches take.
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
    # Damage is found before a file is read; a later error must fail, never be skipped.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
}


JAVA_OPTIONS = "spark.driver.extraJavaOptions"
CLASS_PATH = "spark.driver.extraClassPath"
# Settings that are lists: ours are appended to the existing ones, and replace nothing.
LISTS = {"spark.sql.extensions": ",", CLASS_PATH: os.pathsep, "spark.jars": ","}

# Memory of a task that reads a whole file, in multiples of its bytes: these, a row of them, and parts.
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
    log: str | None = None,
    brief: bool = False,
) -> SparkSession:
    """A session for lakes. If one runs already (a notebook's), that one: only what it has not set is set.

    `master` and `more` override what `spark-submit --conf` and spark-defaults.conf set, and these override
    our settings. `log` is the level of Spark's log, for programs of our own; None leaves it as it is. `brief`
    is for a session that does little: it starts in half the time, and is slower when warm.
    """
    submitted = bool(os.environ.get("PYSPARK_GATEWAY_PORT"))
    running = SparkSession.getActiveSession()
    if running is None and not submitted:
        jvm.which_java()
    settings = {"spark.app.name": name, **SETTINGS}
    paths = [str(jar) for jar in jars]
    if not submitted and running is None:
        settings |= _own_jvm(master, brief)
    if paths and master.startswith("local"):
        settings[CLASS_PATH] = os.pathsep.join(paths)  # read where they are, not copied
    elif paths:
        settings["spark.jars"] = ",".join(paths)
    asked = {**({"spark.master": master} if master else {}), **(more or {})}
    settings = _merged(settings, _defaults(running, submitted), asked)
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    with jvm.started(settings):
        spark = builder.getOrCreate()
    if log is not None:
        spark.sparkContext.setLogLevel(log)
        # The exception reports a failure; PySpark would log it again, as JSON of many lines.
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    return spark


def _own_jvm(master: str, brief: bool) -> dict[str, str]:
    """What only a JVM needs that this process starts."""
    settings = {"spark.sql.warehouse.dir": _warehouse()}
    if master.startswith("local"):
        # A laptop's name may resolve to an address that it does not have.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # Functions of a user run in Pythons that Spark starts: use this one, which has the packages.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings["spark.driver.host"] = "127.0.0.1"
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        settings["spark.driver.memory"] = "%dm" % (heap_bytes(_cores(master), memory) >> 20)
        settings["spark.driver.bindAddress"] = "127.0.0.1"
        options = "-Dlog4j2.configurationFile=%s" % LOGGING.as_uri()
        settings[JAVA_OPTIONS] = options + (QUICK_START if brief else "")
    return settings


def _defaults(running: SparkSession | None, submitted: bool) -> dict[str, str]:
    """What is set before us: by a session that runs, by `spark-submit`, or by spark-defaults.conf."""
    if running is not None:
        return {**dict(running.sparkContext.getConf().getAll()), **running.conf.getAll}
    if submitted:
        # spark-submit hands its settings to the JVM as system properties, which a new SparkConf reads.
        SparkContext._ensure_initialized()
        return dict(SparkConf().getAll())
    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(_find_spark_home(), "conf")
    try:
        lines = (Path(folder) / "spark-defaults.conf").read_text().splitlines()
    except OSError:
        return {}
    # As java.util.Properties reads them: the key ends at a blank, `=` or `:`.
    found = (re.match(r"\s*(spark\.[^\s=:]+)[\s=:]\s*(.*?)\s*$", line) for line in lines)
    return {match[1]: match[2] for match in found if match}


def _merged(ours: Mapping[str, str], given: Mapping[str, str], asked: Mapping[str, str]) -> dict[str, str]:
    """Our settings unless others are given, and those that are required; lists are joined."""
    merged = {**{key: value for key, value in ours.items() if key not in given}, **asked}
    for key, separator in LISTS.items():
        parts = [where[key] for where in (given, asked, ours) if where.get(key)]
        words = dict.fromkeys(word for part in parts for word in part.split(separator))
        if words:
            merged[key] = separator.join(words)
    # If Java's options contradict each other, the last one counts.
    java = [where[JAVA_OPTIONS] for where in (ours, given, asked) if where.get(JAVA_OPTIONS)]
    if java:
        merged[JAVA_OPTIONS] = " ".join(java)
    return merged


def _cores(master: str) -> int:
    """The cores of a local master: local, local[2], local[*], local[2,4]."""
    digits = re.match(r"local\[(\d+)", master)
    if digits:
        return int(digits[1])
    return 1 if master == "local" else len(os.sched_getaffinity(0))


def _warehouse() -> str:
    """Spark makes a folder for tables without a place of their own, by default in the working directory. A
    lake has no such tables, so one empty folder for all sessions of this user suffices."""
    return (Path(tempfile.gettempdir()) / ("headwater-spark-warehouse-%d" % os.getuid())).as_uri()
