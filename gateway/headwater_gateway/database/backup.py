"""Backup and restore of a site: one archive with everything that makes the site this one.

An archive is a compressed tar that begins with `manifest.json`: what is in it, with sizes and SHA-256. It
holds the configuration, the secrets, the certificates, the broker's files, the folders of the boards and a
consistent copy of the database, taken while the gateway runs or not. It does not hold the landing zone and
the lake: the database keeps every entry until the lake has acknowledged it.

`restore` reads the whole archive and compares every checksum before it puts anything in its place. It never
overwrites, and puts gateway.toml last: a folder without it is not a site yet.

A restored database is older than what boards and lake know. So it is not trusted where they know better
(`rebuild.learn_again`): the next start learns what runs from the boards, as after a loss. Its entries that
are not in the lake yet are as valid as before.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import shutil
import sqlite3
import tarfile
import tempfile
import time
import zlib
from pathlib import Path
from typing import IO, Any, NamedTuple

from .. import UserError, config, keys, provision
from ..deployments import rebuild
from . import engine

FORMAT = 1
MANIFEST = "manifest.json"
MANIFEST_MAX = 16 << 20
DATABASE = "data/gateway.db"
FOLDERS = ("boards", "mosquitto", "tls", "watcher")  # beside gateway.toml
# Not the flash of a host that runs in `boards/NAME`: an older one would give numbers a second time.
LEFT_OUT = ("broker.pid", "flash.bin", "flash.bin.new", "lock")
# Files that the configuration may name somewhere else.
NAMED = (
    ("mqtt", "ca"),
    ("mqtt", "cert"),
    ("mqtt", "key"),
    ("mqtt", "password_file"),
    ("http", "token_file"),
    ("webhook", "secret_file"),
    ("webhook", "ca"),
)
PIECE = 1 << 20


class Summary(NamedTuple):
    """What an archive holds."""

    made: str  # when, in UTC
    folder: str  # of the site that was copied
    boards: list[str]
    processes: list[str]
    files: int
    bytes: int


# ---- making one


def make(file: Path, archive: Path) -> Summary:
    """Write the archive of the site with this configuration file."""
    c = config.read(file)
    if archive.exists():
        raise UserError("%s exists, and is not overwritten: choose another name" % archive)
    keys.load(c.path(c.gateway.secrets) / "master.key")
    database = rebuild.database(c)
    if not database.exists():
        rebuild.check(c)
        raise UserError("%s is missing: start the gateway once before the first backup" % database)
    part = archive.with_name(archive.name + ".part")
    try:
        with tempfile.TemporaryDirectory(prefix=".backup-", dir=archive.parent) as folder:
            with provision.turn(c.folder):
                found = _files(c, file)
                copy = Path(folder) / "gateway.db"
                _copy_database(database, copy)
                summary = _write(part, c, {**found, DATABASE: copy}, copy)
        os.link(part, archive)  # not over one that was made meanwhile
        _sync(archive.parent)
    except FileExistsError as error:
        raise UserError(
            "%s exists, and is not overwritten: choose another name" % (error.filename2 or archive)
        )
    except OSError as error:
        raise UserError(
            "%s cannot be written (%s): choose a place with room that this user may write"
            % (archive, error.strerror or error)
        )
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
    return summary


def _files(c: config.Config, file: Path) -> dict[str, Path]:
    """Name in the archive -> file, of everything but the database."""
    secrets = c.path(c.gateway.secrets)
    found = {provision.CONFIG: file}
    for name, folder in (*((name, c.folder / name) for name in FOLDERS), ("secrets", secrets)):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.name not in LEFT_OUT:
                found["%s/%s" % (name, path.relative_to(folder).as_posix())] = path
    inside = {path.resolve() for path in found.values()}
    for section, key in NAMED:
        value = getattr(getattr(c, section), key)
        if value and c.path(value).is_file() and c.path(value).resolve() not in inside:
            found["named/%s.%s" % (section, key)] = c.path(value)
    return found


def _copy_database(database: Path, copy: Path) -> None:
    """A consistent copy, while a gateway writes or not; checked page by page."""
    copy.touch(mode=0o600)
    try:
        source = sqlite3.connect("file:%s?mode=ro" % _quoted(database), uri=True, timeout=60)
        target = sqlite3.connect(copy)
        try:
            source.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")
            engine.check_pages(target)
        finally:
            target.close()
            source.close()
    except engine.READ_ERRORS as error:
        raise engine.damaged(database, error)


def _quoted(path: Path) -> str:
    import urllib.parse

    return urllib.parse.quote(str(path.resolve()))


def _write(part: Path, c: config.Config, found: dict[str, Path], copy: Path) -> Summary:
    listed: dict[str, Any] = {}
    for name, path in found.items():
        listed[name] = {
            "bytes": path.stat().st_size, "sha256": _sha256(path), "mode": path.stat().st_mode & 0o777,
        }  # fmt: skip
    boards, processes = _content(copy)
    manifest = {
        "format": FORMAT,
        "headwater": "gateway backup",
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "site": c.gateway.site,
        "folder": str(c.folder),
        "database": engine.FORMAT,
        "boards": boards,
        "processes": processes,
        "files": listed,
    }
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    os.fchmod(handle, 0o600)
    with open(handle, "wb") as out:
        with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1, format=tarfile.PAX_FORMAT) as tar:
            text = json.dumps(manifest, indent=1).encode()
            _add(tar, MANIFEST, io.BytesIO(text), len(text))
            for name, path in found.items():
                with open(path, "rb") as content:
                    _add(tar, name, content, listed[name]["bytes"])
        out.flush()
        os.fsync(out.fileno())
    return _summary(manifest)


def _add(tar: tarfile.TarFile, name: str, content: IO[bytes], size: int) -> None:
    member = tarfile.TarInfo(name)
    member.size = size
    member.mode = 0o600
    member.mtime = int(time.time())
    tar.addfile(member, content)


def _sha256(path: Path) -> str:
    with open(path, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _content(database: Path) -> tuple[list[str], list[str]]:
    conn = sqlite3.connect(database)
    try:
        return tuple(
            [row[0] for row in conn.execute("SELECT name FROM %s ORDER BY name" % table)]
            for table in ("boards", "processes")
        )  # type: ignore[return-value]
    finally:
        conn.close()


def _summary(manifest: dict[str, Any]) -> Summary:
    files = manifest["files"]
    return Summary(
        manifest["made"], manifest["folder"], manifest["boards"], manifest["processes"],
        len(files), sum(entry["bytes"] for entry in files.values()),
    )  # fmt: skip


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ---- and back


def restore(archive: Path, folder: Path) -> Summary:
    """Make the site of an archive again, in a folder that has none."""
    folder = folder.absolute()
    _vacant(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with provision.turn(folder), tempfile.TemporaryDirectory(prefix=".restore-", dir=folder) as place:
            whole = Path(place)
            manifest = _unpack(archive, whole)
            places = _places(whole, folder, manifest)
            _move_paths(whole / "mosquitto" / "mosquitto.conf", manifest["folder"], folder)
            _prove(whole)
            _vacant(folder)
            for target in places.values():
                if target.exists():
                    raise UserError("%s exists, and is not overwritten: move it away first" % target)
            for name in sorted(places, key=lambda name: (name == provision.CONFIG, name)):
                target = places[name]
                _folders(target.parent)
                (whole / name).chmod(manifest["files"][name]["mode"] & 0o777)
                shutil.move(whole / name, target)
            for path in {target.parent for target in places.values()} | {folder}:
                _sync(path)
    except OSError as error:
        raise UserError(
            "%s: %s: choose a folder that this user may write" % (error.filename or folder, error.strerror)
        )
    return _summary(manifest)


def _vacant(folder: Path) -> None:
    """UserError if there is a site already. Landing zone and lake of a lost one may have survived there."""
    ours = (provision.CONFIG, "secrets", "data", *FOLDERS)
    there = [name for name in ours if (folder / name).exists()]
    if there:
        raise UserError(
            "%s has %s already, and nothing is overwritten: choose another folder, or move what is there "
            "away first" % (folder, ", ".join(there))
        )


def _folders(folder: Path) -> None:
    if not folder.exists():
        _folders(folder.parent)
        folder.mkdir(mode=0o700)


def _unpack(archive: Path, whole: Path) -> dict[str, Any]:
    """The files of an archive under `whole`, each as the manifest has it; the manifest."""
    try:
        with gzip.open(archive) as raw:  # tarfile does not check the checksum at its end
            while raw.read(PIECE):
                pass
        with tarfile.open(archive, "r|gz") as tar:
            members = iter(tar)
            manifest = _manifest(archive, tar, next(members, None))
            left = dict(manifest["files"])
            for member in members:
                entry = left.pop(member.name, None)
                if entry is None or not member.isfile() or member.size != entry["bytes"]:
                    raise UserError("%s: %s is not what its manifest says" % (archive, member.name))
                path = whole / member.name
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                content = tar.extractfile(member)
                assert content is not None
                if _copy(content, path) != entry["sha256"]:
                    raise UserError(
                        "%s: %s has another checksum than its manifest says" % (archive, member.name)
                    )
            if left:
                raise UserError("%s ends early: %s is missing" % (archive, min(left)))
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError("%s is damaged, or is not a backup (%s): take another copy of it" % (archive, error))
    except FileNotFoundError:
        raise UserError("%s: no such file: name the archive that `hw gateway backup` made" % archive)
    except UserError as trouble:
        raise UserError("%s. Nothing was restored: take another copy of the backup" % trouble)
    return manifest


def _copy(content: IO[bytes], path: Path) -> str:
    digest = hashlib.sha256()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(handle, "wb") as out:
        while piece := content.read(PIECE):
            digest.update(piece)
            out.write(piece)
        out.flush()
        os.fsync(out.fileno())
    return digest.hexdigest()


def _manifest(archive: Path, tar: tarfile.TarFile, member: tarfile.TarInfo | None) -> dict[str, Any]:
    if member is None or member.name != MANIFEST or not member.isfile() or member.size > MANIFEST_MAX:
        raise UserError("%s is not a backup of a gateway: it does not begin with a manifest" % archive)
    content = tar.extractfile(member)
    assert content is not None
    try:
        manifest = json.loads(content.read())
        form, database = manifest["format"], manifest["database"]
        files = manifest["files"]
        good = all(_is_name(name) for name in files) and {provision.CONFIG, DATABASE} <= set(files)
        good = good and all({"bytes", "sha256", "mode"} <= set(entry) for entry in files.values())
        good = good and {"made", "folder", "boards", "processes"} <= set(manifest)
    except (ValueError, KeyError, TypeError, AttributeError):
        good, form, database = False, FORMAT, engine.FORMAT
    if form != FORMAT or database != engine.FORMAT:
        raise UserError(
            "%s has format %r with a database of format %r, and this version reads %d and %d: restore it "
            "with the version that made it" % (archive, form, database, FORMAT, engine.FORMAT)
        )
    if not good:
        raise UserError("%s: its manifest cannot be read" % archive)
    return dict(manifest)


def _is_name(name: str) -> bool:
    """Whether an archive may hold a file of this name: nothing of it lands outside of the site."""
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        return False
    if parts[0] == "named":
        return len(parts) == 2 and tuple(parts[1].split(".")) in NAMED
    return name in (provision.CONFIG, DATABASE) or (parts[0] in (*FOLDERS, "secrets") and len(parts) > 1)


def _places(whole: Path, folder: Path, manifest: dict[str, Any]) -> dict[str, Path]:
    """Name in the archive -> where the restored configuration expects it."""
    c = config.read(whole / provision.CONFIG)
    c.folder = folder
    secrets, database = c.path(c.gateway.secrets), rebuild.database(c)
    places = {}
    for name in manifest["files"]:
        top, _, rest = name.partition("/")
        if name == DATABASE:
            places[name] = database
        elif top == "secrets":
            places[name] = secrets / rest
        elif top == "named":
            section, key = rest.split(".")
            places[name] = c.path(getattr(getattr(c, section), key))
        else:
            places[name] = folder / name
    return places


def _move_paths(conf: Path, former: str, folder: Path) -> None:
    """Mosquitto's configuration names its files by absolute paths: those of the former folder are moved."""
    if not conf.exists() or former == str(folder):
        return
    lines = []
    for line in conf.read_text().splitlines():
        key, space, value = line.partition(" ")
        if value.startswith(former + "/"):
            value = str(folder) + value[len(former) :]
        if key == "user":
            value = provision.owner(folder)
        lines.append(key + space + value)
    conf.write_text("\n".join(lines) + "\n")


def _prove(whole: Path) -> None:
    """Check that the parts belong together; and mark the database as possibly outdated."""
    database = whole / DATABASE
    conn = sqlite3.connect(database, isolation_level=None)
    try:
        engine.check_pages(conn)
        conn.execute("BEGIN IMMEDIATE")
        rebuild.learn_again(conn)
        conn.execute("COMMIT")
    except engine.READ_ERRORS as error:
        raise engine.damaged(Path(DATABASE), error)
    finally:
        conn.close()
    master = keys.load(whole / "secrets" / "master.key")
    rebuild.numbers_of(whole, master, set())
    with open(database, "rb") as content:
        os.fsync(content.fileno())
