"""Files of a folder without Spark: on a local disk, and on an object store as delta-rs reaches it."""

from __future__ import annotations

import contextlib
import shutil
from typing import Any

import pyarrow.fs
from deltalake.fs import DeltaStorageHandler

from . import segment
from .location import Location


def names(folder: Location) -> list[str]:
    """The direct entries of a folder; nothing if there is none."""
    if folder.local is not None:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return sorted(path.name for path in folder.local.iterdir())
        return []
    found = _system(folder).get_file_info(pyarrow.fs.FileSelector("", allow_not_found=True))
    return sorted(info.base_name for info in found)


def read(at: Location) -> bytes:
    """The bytes of a file; OSError if it cannot be read."""
    if at.local is not None:
        return at.local.read_bytes()
    folder, name = _split(at)
    with _system(folder).open_input_file(name) as file:
        return bytes(file.read())


def write(at: Location, data: bytes, sync: bool = True) -> None:
    """Make a file visible whole or not at all; it replaces an existing one. `sync`: on the disk itself."""
    if at.local is not None:
        segment.place(at.local.parent, at.local.name, data, sync)
        return
    folder, name = _split(at)
    # Not through Arrow: it hands buffers to this stream, which takes nothing but bytes.
    stream: Any = _handler(folder)._handler.open_output_stream(name, None)
    stream.write(data)
    stream.close()


def remove(at: Location) -> None:
    """Remove a file, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        if at.local is not None:
            at.local.unlink()
        else:
            folder, name = _split(at)
            _system(folder).delete_file(name)


def clear(folder: Location) -> None:
    """Remove all that is in a folder; nothing if there is none."""
    if folder.local is not None:
        shutil.rmtree(folder.local, ignore_errors=True)
        return
    system = _system(folder)
    for info in system.get_file_info(pyarrow.fs.FileSelector("", allow_not_found=True, recursive=True)):
        if info.type == pyarrow.fs.FileType.File:
            system.delete_file(info.path)


def _split(at: Location) -> tuple[Location, str]:
    folder, _, name = at.spark.rpartition("/")
    return Location.of(folder, at.options), name


def _handler(folder: Location) -> DeltaStorageHandler:
    return DeltaStorageHandler(folder.rs, folder.options or None)


def _system(folder: Location) -> pyarrow.fs.FileSystem:
    return pyarrow.fs.PyFileSystem(_handler(folder))
