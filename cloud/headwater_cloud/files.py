"""Small files of a lake, whole or not at all: on a local disk by rename, elsewhere through Hadoop's file
systems.

Hadoop's run in the JVM, so whatever Spark can reach this can reach. An object store shows an object when it
is complete; a local path gets a file that is on the disk itself before its name is.
"""

from __future__ import annotations

import os
from typing import Any

from pyspark.sql import SparkSession

from .location import Location, sync_files


class Files:
    def __init__(self, spark: SparkSession) -> None:
        assert spark._jvm is not None
        self._jvm: Any = spark._jvm
        self._configuration = spark._jsc.hadoopConfiguration()

    def _open(self, at: Location) -> tuple[Any, Any]:
        path = self._jvm.org.apache.hadoop.fs.Path(at.spark)
        return path.getFileSystem(self._configuration), path

    def exists(self, at: Location) -> bool:
        if at.local is not None:
            return at.local.exists()
        system, path = self._open(at)
        return bool(system.exists(path))

    def read(self, at: Location) -> str | None:
        """The text of a file; None where there is none."""
        if at.local is not None:
            try:
                return at.local.read_text()
            except FileNotFoundError:
                return None
        system, path = self._open(at)
        if not system.exists(path):
            return None
        stream = system.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, at: Location, text: str) -> None:
        if at.local is not None:
            at.local.parent.mkdir(parents=True, exist_ok=True)
            part = at.local.with_name("." + at.local.name + ".part")
            with open(part, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            part.replace(at.local)
            sync_files([at.local])
            return
        system, path = self._open(at)
        stream = system.create(path, True)
        stream.write(text.encode())
        stream.close()

    def remove(self, at: Location) -> None:
        """A file, or a folder with all that is in it; nothing where there is none."""
        system, path = self._open(at)
        system.delete(path, True)

    def sizes(self, folder: Location) -> dict[str, int]:
        """Name and length of the files that lie directly in a folder; none where there is no folder."""
        if folder.local is not None:
            if not folder.local.is_dir():
                return {}
            return {entry.name: entry.stat().st_size for entry in os.scandir(folder.local) if entry.is_file()}
        system, path = self._open(folder)
        if not system.exists(path):
            return {}
        return {s.getPath().getName(): s.getLen() for s in system.listStatus(path) if s.isFile()}
