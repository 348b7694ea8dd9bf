"""Locations: one path of a lake or landing zone, in the forms that Spark, delta-rs and a local disk need.

A path is local (`/data/lake`, `file:///data/lake`) or on an object store (`s3a://bucket/lake`,
`abfss://…`). What only a local path allows, an OS lock and fsync, uses `local`, which is None elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Hadoop's names of schemes that delta-rs knows under another one.
_RS_SCHEMES = {"s3a": "s3", "s3n": "s3", "wasbs": "abfss"}


@dataclass(frozen=True)
class Location:
    """A folder. `options` are delta-rs's storage options; Spark has its own configuration."""

    spark: str
    local: Path | None
    options: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, path: str | Path, options: dict[str, str] | None = None) -> Location:
        text = str(path)
        parts = urlsplit(text)
        if parts.scheme in ("", "file"):
            folder = Path(unquote(parts.path) if parts.scheme else text).absolute()
            return cls(str(folder), folder, options or {})
        return cls(text.rstrip("/"), None, options or {})

    @property
    def rs(self) -> str:
        scheme, colon, rest = self.spark.partition("://")
        return _RS_SCHEMES.get(scheme, scheme) + colon + rest if colon else self.spark

    def __truediv__(self, name: str) -> Location:
        local = None if self.local is None else self.local / name
        return Location(self.spark + "/" + name, local, self.options)

    def __str__(self) -> str:
        return self.spark


def sync_files(paths: Iterable[Path]) -> None:
    """Put files, and the folders that name them, onto the disk itself."""
    folders = set()
    for path in paths:
        _sync(path)
        folders.add(path.parent)
    for folder in folders:
        _sync(folder)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
