"""The log stores that Delta commits and lists with, where its own will not do.

**On S3** several drivers may write one table. Delta's own store for s3a (S3SingleDriverLogStore) knows the
drivers of its own JVM only: two drivers may both write version n of a table, and the later one silently
replaces what the other has committed. No setting changes that: Hadoop's `create(path, overwrite=false)`,
which Delta's other stores use, looks for the file and then overwrites it, and `fs.s3a.create.performance`
leaves the look away. Only a builder with the option `fs.option.create.conditional.overwrite` sends
`If-None-Match: *`. `ConditionalLogStore.java` does that.

**On a local disk** Hadoop looks at every file of the log to list its end, several times for each batch.
`LocalListingLogStore.java` reads the names and looks at the end only, so a batch costs the same however long
the log is.

Both are compiled in the JVM by Janino, which every Spark has: this needs no JDK, and the project carries no
jar.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from .location import Location

CONDITIONAL = "ConditionalLogStore"
LISTING = "LocalListingLogStore"
PACKAGE = "headwater."
SCHEMES = ("s3a", "s3")  # whose commits are conditional
LOCAL = "file"
EVERY_SCHEME = "spark.delta.logStore.class"  # Delta refuses to be given this and one of a scheme


def setting(scheme: str) -> str:
    return "spark.delta.logStore.%s.impl" % scheme


def use(spark: SparkSession, table: Location) -> None:
    """Let this session's Delta use ours, if there is one for this table and no other store was asked for."""
    scheme = LOCAL if table.local is not None else table.spark.partition("://")[0]
    if scheme in SCHEMES:
        name = CONDITIONAL
    elif scheme == LOCAL and (spark.sparkContext.master or "").startswith("local"):
        name = LISTING
    else:
        return
    jvm: Any = spark._jvm
    conf: Any = spark._jsc.sc().conf()
    if conf.contains(EVERY_SCHEME) or conf.get(setting(scheme), PACKAGE + name) != PACKAGE + name:
        return
    if not _known(jvm, name):
        _load(spark, name)
    if not conf.contains(setting(scheme)):
        conf.set(setting(scheme), PACKAGE + name)
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # tables that were opened with another store


def compiled(jvm: Any, name: str) -> Any:
    """One of our classes, in a compiler of this JVM."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(Path(__file__).with_name(name + ".java").read_text())
    return compiler


def _known(jvm: Any, name: str) -> bool:
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(PACKAGE + name)
    except Py4JJavaError:
        return False
    return True


def _load(spark: SparkSession, name: str) -> None:
    """Compile it, and put it where the driver finds it, and on S3 the executors too."""
    jvm: Any = spark._jvm
    compiler = compiled(jvm, name)
    with tempfile.NamedTemporaryFile(prefix="headwater-", suffix=".jar", delete=False) as file:
        with zipfile.ZipFile(file, "w") as jar:
            for inside, code in dict(compiler.getBytecodes()).items():
                jar.writestr(inside.replace(".", "/") + ".class", bytes(code))
    at = jvm.java.io.File(file.name)
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    loader.addURL(at.toURI().toURL())
    if name == LISTING:
        loader.loadClass(PACKAGE + name)
        os.unlink(file.name)  # in memory by now; a JVM that is killed would leave it
    else:
        at.deleteOnExit()
        spark._jsc.addJar(at.toURI().toString())
