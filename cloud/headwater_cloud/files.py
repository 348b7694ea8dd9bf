"""Small files of a lake, whole or not at all: on a local disk by rename, elsewhere through Hadoop's file
systems.

Hadoop's run in the JVM, so they reach whatever Spark can reach. An object store shows an object when it is
complete; on a local path a file is on the disk itself before its name is.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from . import logstore
from .location import Location, sync_files


class Files:
    def __init__(self, spark: SparkSession | None) -> None:
        """Without Spark: of local paths alone."""
        self._jvm: Any = None if spark is None else spark._jvm
        self._configuration = None if spark is None else spark._jsc.hadoopConfiguration()

    def _open(self, at: Location) -> tuple[Any, Any]:
        path = self._jvm.org.apache.hadoop.fs.Path(at.spark)
        return path.getFileSystem(self._configuration), path

    def exists(self, at: Location) -> bool:
        if at.local is not None:
            return at.local.exists()
        system, path = self._open(at)
        return bool(system.exists(path))

    def read(self, at: Location) -> str | None:
        """The text of a file; None if there is none."""
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

    def create(self, at: Location, text: str) -> bool:
        """Write a file that is not there yet; False if there is one. Of several that do it at the same
        moment, on any machine, one succeeds. On a file system, others may see the file before its text."""
        if at.local is not None:
            return create_new(at.local, text)
        system, path = self._open(at)
        builder = system.createFile(path).overwrite(False).recursive()
        if at.spark.partition("://")[0] in logstore.SCHEMES:
            # Without it, S3 looks for the file, and then writes it. `must`: or the store refuses.
            builder = builder.must("fs.option.create.conditional.overwrite", "true")
        try:
            stream = builder.build()
            stream.write(text.encode())
            stream.close()
        except Py4JJavaError as error:
            said = str(error.java_exception)
            # 412: it is there. 409: another one writes it at this moment.
            if "FileAlreadyExists" in said or re.search("Status Code: (409|412)", said):
                return False
            raise
        return True

    def remove(self, at: Location) -> None:
        """A file, or a folder with all that is in it; nothing if there is none."""
        if at.local is not None:
            if at.local.is_dir() and not at.local.is_symlink():
                shutil.rmtree(at.local)
            else:
                at.local.unlink(missing_ok=True)
            return
        system, path = self._open(at)
        system.delete(path, True)

    def size(self, at: Location) -> int | None:
        """The length of a file; None if there is none."""
        if at.local is not None:
            with contextlib.suppress(FileNotFoundError):
                return os.stat(at.local).st_size
            return None
        system, path = self._open(at)
        return int(system.getFileStatus(path).getLen()) if system.exists(path) else None

    def content(self, at: Location, most: int) -> bytes | None:
        """The bytes of a file of at most this length; None if there is none, or if it is longer."""
        if at.local is not None:
            try:
                with open(at.local, "rb") as file:
                    data = file.read(most + 1)
            except FileNotFoundError:
                return None
            return data if len(data) <= most else None
        system, path = self._open(at)
        if not system.exists(path) or system.getFileStatus(path).getLen() > most:
            return None
        stream = system.open(path)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def parts(self, at: Location, places: Iterable[tuple[int, int]]) -> list[bytes]:
        """Pieces of a file: where each begins, its length."""
        if at.local is not None:
            with open(at.local, "rb") as file:
                return [os.pread(file.fileno(), size, start) for start, size in places]
        system, path = self._open(at)
        stream = system.open(path)
        out = []
        try:
            for start, size in places:
                stream.seek(start)
                out.append(bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream, size)))
        finally:
            stream.close()
        return out

    def entries(self, folder: Location) -> dict[str, int | None]:
        """Name and length of the direct entries of a folder, None as the length of a folder; nothing if
        there is no folder. Entries that disappear meanwhile are left out."""
        found: dict[str, int | None] = {}
        if folder.local is not None:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                for entry in os.scandir(folder.local):
                    with contextlib.suppress(OSError):  # gone, or a link that leads nowhere
                        if entry.is_dir():
                            found[entry.name] = None
                        elif entry.is_file():
                            found[entry.name] = entry.stat().st_size
            return found
        system, path = self._open(folder)
        if system.exists(path):
            for status in system.listStatus(path):
                found[status.getPath().getName()] = status.getLen() if status.isFile() else None
        return found

    def sizes(self, folder: Location) -> dict[str, int]:
        """Name and length of the direct files of a folder."""
        return {name: size for name, size in self.entries(folder).items() if size is not None}


def create_new(path: Path, text: str) -> bool:
    """`Files.create` on a file system."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    except FileExistsError:
        return False
    with open(handle, "w") as file:
        file.write(text)
    sync_files([path])
    return True
