"""Keeps a lake quick to read: compaction, clustering, removal of what no version needs.

Only the holder of the lake's lock may do this. A running sink does it between batches, by its schedule or
because a file in `requests/` asks for it; `hw maintain` does it itself if no sink runs.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from . import comments, crash_points, tables
from .errors import LakeError, sentence
from .files import Files
from .location import Location

# Delta clusters in cubes and rewrites a cube until it has this size; its own default, 100 GB, would rewrite a
# small lake as a whole at every run.
CUBE_BYTES = 1 << 30
REWRITTEN_KEEP_HOURS = 1  # of tables that are rewritten whole
KEEP_HOURS = 7 * 24


def maintain(spark: SparkSession, lake: Location, keep_hours: float = KEEP_HOURS) -> dict[str, Any]:
    """One round. Versions of `elements` younger than `keep_hours` stay readable."""
    began = time.monotonic()
    elements = "delta.`%s`" % (lake / "elements").spark
    before = _files(spark, elements)
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    comments.put(spark, lake)
    with crash_points.during("optimizing", lake / "elements"):
        spark.sql("OPTIMIZE %s" % elements)
    with crash_points.during("vacuuming", lake / "elements"):
        spark.sql("VACUUM %s RETAIN %s HOURS" % (elements, ("%f" % keep_hours).rstrip("0").rstrip(".")))
    for name in tables.SCHEMAS:
        table = tables.open_table(lake / name)
        keep = REWRITTEN_KEEP_HOURS if name in tables.REWRITTEN else KEEP_HOURS
        if name not in tables.REWRITTEN:
            table.optimize.compact()
        table.vacuum(retention_hours=keep, dry_run=False, enforce_retention_duration=False)
        table.create_checkpoint()
        table.cleanup_metadata()
    return {
        "files_before": before,
        "files_after": _files(spark, elements),
        "seconds": round(time.monotonic() - began, 3),
    }


_SETTINGS = {
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize.threshold": str(CUBE_BYTES),
    "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize.targetCubeSize": str(
        CUBE_BYTES * 3 // 2
    ),
}


def _files(spark: SparkSession, table: str) -> int:
    return int(spark.sql("DESCRIBE DETAIL %s" % table).first()["numFiles"])  # type: ignore[index]


# Asking a running sink


def request(files: Files, lake: Location, keep_hours: float) -> str:
    """Ask the sink that runs on this lake; returns the id of the request, under which the answer comes."""
    name = uuid.uuid4().hex
    files.write(lake / "requests" / (name + ".json"), json.dumps({"maintain": {"keep_hours": keep_hours}}))
    return name


def answer(files: Files, lake: Location, name: str, wait_s: float) -> dict[str, Any]:
    """What the sink did; LakeError if it does not answer."""
    at = lake / "requests" / (name + ".done")
    until = time.monotonic() + wait_s
    while time.monotonic() < until:
        text = files.read(at)
        if text is not None:
            files.remove(at)
            said: dict[str, Any] = json.loads(text)
            if "error" in said:
                raise LakeError("the sink on %s could not maintain it: %s" % (lake, said["error"]))
            return said
        time.sleep(0.2)
    files.remove(lake / "requests" / (name + ".json"))
    raise LakeError("the sink on %s has not answered within %.0f s: is it stuck in a batch?" % (lake, wait_s))


def serve_requests(
    files: Files, lake: Location, do: Callable[[float], dict[str, Any]], say: Callable[[str], None]
) -> None:
    """What the sink does between batches: every request, once."""
    wanted = [name for name in files.sizes(lake / "requests") if name.endswith(".json") and name[0] != "."]
    if not wanted:
        return
    keep_hours = float(KEEP_HOURS)
    for name in wanted:
        try:
            keep_hours = min(
                keep_hours,
                float(json.loads(files.read(lake / "requests" / name) or "")["maintain"]["keep_hours"]),
            )
        except (ValueError, TypeError, KeyError):
            say("request %s cannot be read, and is done as a plain one" % name)
    try:
        report = do(keep_hours)
    except LakeError:
        raise
    except Exception as error:
        report = {"error": sentence(error)}
        say("maintenance failed (%s)" % report["error"])
    for name in wanted:
        files.write(lake / "requests" / (name.removesuffix(".json") + ".done"), json.dumps(report))
        files.remove(lake / "requests" / name)
