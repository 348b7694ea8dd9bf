"""The log store with which several drivers may write one Delta table on S3.

Delta's own store for s3a (S3SingleDriverLogStore) knows the drivers of its own JVM only: two drivers may both
write version n of a table, and the later one silently replaces what the other has committed. No setting
changes that: Hadoop's `create(path, overwrite=false)`, which Delta's other stores use, looks for the file and
then overwrites it, and `fs.s3a.create.performance` skips the look. Only a builder with the option
`fs.option.create.conditional.overwrite` sends `If-None-Match: *`. So the store is a class of our own,
`ConditionalLogStore.java`, compiled in the JVM by Janino, which every Spark has: it needs no JDK, and the
project carries no jar.
"""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from .location import Location

SOURCE = Path(__file__).with_name("ConditionalLogStore.java")
CLASS = "headwater.ConditionalLogStore"
SCHEMES = ("s3a", "s3")
EVERY_SCHEME = "spark.delta.logStore.class"  # Delta refuses this together with one of a scheme


def setting(scheme: str) -> str:
    return "spark.delta.logStore.%s.impl" % scheme


def use(spark: SparkSession, table: Location) -> None:
    """Let this session's Delta commit with it, if the table is on S3 and no other store is configured."""
    scheme = table.spark.partition("://")[0]
    if scheme not in SCHEMES:
        return
    jvm: Any = spark._jvm
    conf: Any = spark._jsc.sc().conf()
    if conf.contains(EVERY_SCHEME) or conf.get(setting(scheme), CLASS) != CLASS:
        return
    if not _known(jvm):
        _load(spark)
    if not conf.contains(setting(scheme)):
        conf.set(setting(scheme), CLASS)
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # tables that were opened with another store


def compiled(jvm: Any) -> Any:
    """The class, in a compiler of this JVM."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(SOURCE.read_text())
    return compiler


def _known(jvm: Any) -> bool:
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(CLASS)
    except Py4JJavaError:
        return False
    return True


def _load(spark: SparkSession) -> None:
    """Compile it, and put it where the driver and the executors find it."""
    jvm: Any = spark._jvm
    compiler = compiled(jvm)
    with tempfile.NamedTemporaryFile(prefix="headwater-", suffix=".jar", delete=False) as file:
        with zipfile.ZipFile(file, "w") as jar:
            for name, code in dict(compiler.getBytecodes()).items():
                jar.writestr(name.replace(".", "/") + ".class", bytes(code))
    at = jvm.java.io.File(file.name)
    at.deleteOnExit()
    jvm.java.lang.Thread.currentThread().getContextClassLoader().addURL(at.toURI().toURL())
    spark._jsc.addJar(at.toURI().toString())
