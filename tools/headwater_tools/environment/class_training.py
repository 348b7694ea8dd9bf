"""A session of Spark that uses a lake as tests do, then has its JVM keep its classes in a file: a process of
`class_archive`, with the file to write and a folder to work in."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from headwater_cloud import session
from headwater_cloud.location import Location
from headwater_cloud.sink import Settings, Sink
from py4j.protocol import Py4JError

from headwater_tools import environment
from headwater_tools.proof.segment_source import Supply


def main(archive: str, folder: Path) -> None:
    options = {session.JAVA_OPTIONS: "-XX:ArchiveClassesAtExit=" + archive}
    spark = session.start("local[2]", environment.jars(), options, "hw test", "OFF")
    landing, lake = folder / "landing", folder / "lake"
    supply = Supply(landing, 100, streams=2)
    for _ in range(3):
        supply.next(4)
        settings = Settings(maintain_s=0)
        with Sink(spark, Location.of(landing), Location.of(lake), settings, lambda text: None) as sink:
            sink.run(once=True)
    table = spark.read.format("delta").load(str(lake / "elements"))
    table.orderBy("xi").groupBy("stream").count().collect()
    table.createOrReplaceTempView("elements")
    spark.sql("SELECT a.xi FROM elements a JOIN elements b ON a.xi = b.xi WHERE a.xi > 10").toPandas()
    spark.sql("DELETE FROM delta.`%s` WHERE xi = 5" % (lake / "elements"))
    java = spark._jvm.java.lang  # type: ignore[union-attr]
    jvm = int(java.ProcessHandle.current().pid())
    # It writes the file as it ends by itself, which takes longer than Spark's sessions wait for.
    with contextlib.suppress(Py4JError, OSError):
        java.System.exit(0)
    os.waitpid(jvm, 0)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
