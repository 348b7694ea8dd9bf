"""Backup and restore of a site: whole, private, checked, never over something, and older than the boards."""

from __future__ import annotations

import gzip
import io
import json
import sqlite3
import tarfile
import threading
import zlib
from pathlib import Path
from typing import Any

import pytest
from headwater.plan import reader
from headwater.storage.keyspace import F_AGAIN, F_OP
from headwater_gateway import UserError, provision
from headwater_gateway.command import register
from headwater_gateway.config import read
from headwater_gateway.database import backup
from headwater_gateway.database.engine import Database
from headwater_gateway.deployments import rebuild
from headwater_gateway.deployments.switching import Process
from headwater_gateway.service import Service
from headwater_tools import cli
from headwater_tools.boards import fleet


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    provision.site(folder, "localhost", 8883)
    for name in ("vent", "hip"):
        register(folder / "gateway.toml", name)
    return folder


def make(site: Path, archive: Path) -> backup.Summary:
    return backup.make(site / "gateway.toml", archive)


def files(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mode & 0o777, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def hw(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        cli.main([str(word) for word in words])
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


def test_a_site_comes_back_whole_and_private(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "site.backup"
    code, out, _ = hw(capsys, "gateway", "backup", site, archive)
    assert code == 0 and "boards hip, vent" in out and "master key" in out
    assert archive.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir() if path.name != "site"] == ["site.backup"]
    code, _, err = hw(capsys, "gateway", "backup", site, archive)
    assert code == 2 and "exists, and is not overwritten" in err

    other = tmp_path / "deeper" / "other"
    code, out, _ = hw(capsys, "gateway", "restore", archive, other)
    assert code == 0 and "restored" in out and "hw broker run" in out
    before, after = files(site), files(other)
    ours = {name for name in before if not name.startswith("data/")}
    assert ours == {name for name in after if not name.startswith("data/")}
    assert {name for name in after if name.startswith("data/")} == {"data/gateway.db"}
    for name in ours - {"mosquitto/mosquitto.conf"}:
        assert before[name] == after[name], name
    assert after["data/gateway.db"][0] == 0o600
    assert other.stat().st_mode & 0o777 == 0o700
    conf = after["mosquitto/mosquitto.conf"][1].decode()
    assert "cafile %s/tls/ca.crt" % other in conf and str(site) not in conf


def test_nothing_is_overwritten(site: Path, tmp_path: Path) -> None:
    archive = tmp_path / "a"
    make(site, archive)
    before = files(site)
    with pytest.raises(
        UserError, match="has gateway.toml, secrets, data, boards, mosquitto, tls, watcher already"
    ):
        backup.restore(archive, site)
    (site / "gateway.toml").unlink()
    with pytest.raises(UserError, match="nothing is overwritten"):
        backup.restore(archive, site)
    before.pop("gateway.toml")
    assert files(site) == before
    # What survived of the segments and the lake is no site.
    kept = tmp_path / "kept"
    (kept / "landing").mkdir(parents=True)
    (kept / "landing" / "x.parquet").write_bytes(b"x")
    backup.restore(archive, kept)
    assert (kept / "landing" / "x.parquet").read_bytes() == b"x"


def test_the_flash_of_a_host_is_left_out(site: Path, tmp_path: Path) -> None:
    """Restored later, it would give stream times a second time."""
    for name in ("flash.bin", "lock", "drivers.py"):
        (site / "boards" / "vent" / name).write_text(name)
    make(site, tmp_path / "site.backup")
    backup.restore(tmp_path / "site.backup", tmp_path / "other")
    there = {path.name for path in (tmp_path / "other" / "boards" / "vent").iterdir()}
    assert "drivers.py" in there and "config.json" in there and not {"flash.bin", "lock"} & there


def test_files_that_the_configuration_names_elsewhere_come_along(site: Path, tmp_path: Path) -> None:
    etc = tmp_path / "etc"
    etc.mkdir()
    (site / "secrets").rename(tmp_path / "safe")
    (etc / "token").write_text("a token of the operator's own\n")
    file = site / "gateway.toml"
    file.write_text(
        file.read_text()
        .replace('#secrets = "secrets"', 'secrets = "%s"' % (tmp_path / "safe"))
        .replace('#password_file = "secrets/', 'password_file = "%s/' % (tmp_path / "safe"))
        .replace('#token_file = "secrets/token"', 'token_file = "%s"' % (etc / "token"))
    )
    archive = tmp_path / "a"
    make(site, archive)
    with pytest.raises(UserError, match="safe/.* exists, and is not overwritten"):
        backup.restore(archive, tmp_path / "new")
    assert not (tmp_path / "new" / "gateway.toml").exists()
    key = (tmp_path / "safe" / "master.key").read_bytes()
    (tmp_path / "safe").rename(tmp_path / "former")
    (etc / "token").unlink()
    backup.restore(archive, tmp_path / "new")
    assert (tmp_path / "safe" / "master.key").read_bytes() == key
    assert (etc / "token").read_text() == "a token of the operator's own\n"


def repack(archive: Path, change: Any) -> None:
    """The archive with other members: `change(name, data)` gives the new ones, or None."""
    members = []
    with tarfile.open(archive) as tar:
        for member in tar:
            content = tar.extractfile(member)
            assert content is not None
            found = change(member.name, content.read())
            if found is not None:
                members.append(found)
    with tarfile.open(archive, "w:gz") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def unpacked(data: bytes) -> bytes | None:
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        return None


def test_a_damaged_or_foreign_archive_restores_nothing(site: Path, tmp_path: Path) -> None:
    archive, target = tmp_path / "a", tmp_path / "new"
    make(site, archive)
    whole = archive.read_bytes()

    def refused(words: str) -> None:
        with pytest.raises(UserError, match=words):
            backup.restore(archive, target)
        assert not target.exists() or not list(target.iterdir())

    archive.write_bytes(whole[: len(whole) // 2])
    refused("is damaged, or is not a backup")
    for at in range(100, len(whole), len(whole) // 40):
        data = whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :]
        archive.write_bytes(data)
        if unpacked(data) != unpacked(whole):  # zeros may be packed in several ways
            refused("damaged|checksum|manifest")
    archive.write_bytes(b"no archive at all" * 100)
    refused("is damaged, or is not a backup")
    archive.write_bytes(gzip.compress(b""))
    refused("is damaged|does not begin with a manifest")

    def changed(change: Any, words: str) -> None:
        archive.write_bytes(whole)
        repack(archive, change)
        refused(words)

    key = "secrets/master.key"
    changed(lambda n, d: (n, bytes(32)) if n == key else (n, d), "master.key has another checksum")
    changed(lambda n, d: None if n == key else (n, d), "ends early: secrets/master.key is missing")
    changed(lambda n, d: None if n == backup.MANIFEST else (n, d), "does not begin with a manifest")

    def manifest(change: Any) -> Any:
        def with_manifest(name: str, data: bytes) -> tuple[str, bytes]:
            if name == backup.MANIFEST:
                found = json.loads(data)
                change(found)
                data = json.dumps(found).encode()
            return name, data

        return with_manifest

    changed(manifest(lambda m: m.update(format=99)), "format 99 .* restore it with the version that made it")
    changed(manifest(lambda m: m.update(database=1)), "database of format 1")
    entry = {"bytes": 1, "sha256": "", "mode": 0o600}
    for name in ("../evil", "/etc/evil", "boards/../../evil", "named/x.y", "boards", "boards//x", "data/x"):
        changed(manifest(lambda m, name=name: m["files"].update({name: entry})), "manifest cannot be read")
    with pytest.raises(UserError, match="no such file"):
        backup.restore(tmp_path / "nowhere", target)


def test_a_damaged_database_gives_no_backup(site: Path, tmp_path: Path) -> None:
    path = site / "data" / "gateway.db"
    data = bytearray(path.read_bytes())
    for page in range(1, len(data) // 4096):
        data[4096 * page : 4096 * page + 8] = b"\xff" * 8
    path.write_bytes(data)
    with pytest.raises(UserError, match="gateway.db is damaged"):
        make(site, tmp_path / "a")
    path.unlink()
    with pytest.raises(UserError, match="the database was lost"):
        make(site, tmp_path / "a")
    assert [p.name for p in tmp_path.iterdir()] == ["site"]


def test_the_copy_is_one_moment_of_a_database_that_is_written(site: Path, tmp_path: Path) -> None:
    db = Database(site / "data" / "gateway.db", lambda: 0)
    going = True

    def write() -> None:
        number = 0
        while going or number < 50:
            number += 1
            for space in (1, 2, 3):
                db.execute("INSERT OR REPLACE INTO facts VALUES(?, 9, ?)", space, number)
            db.commit()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(5):
            make(site, tmp_path / str(number))
    finally:
        going = False
        writer.join()
        db.close()
    for number in range(5):
        with tarfile.open(tmp_path / str(number)) as tar:
            content = tar.extractfile(backup.DATABASE)
            assert content is not None
            (tmp_path / "copy.db").write_bytes(content.read())
        conn = sqlite3.connect(tmp_path / "copy.db")
        values = {row[0] for row in conn.execute("SELECT value FROM facts WHERE key = 9")}
        conn.close()
        assert len(values) <= 1


def test_a_restored_database_believes_boards_and_lake_more_than_itself(site: Path, tmp_path: Path) -> None:
    plan = reader.numbered(fleet.plan("one", ["vent", "hip"], 50), 7)
    service = Service(read(site / "gateway.toml"))
    service.numbers.reported(7)
    process = service.processes["one"] = Process("one", plan, 5, None, 0)
    service._save(process)
    service.db.commit()
    service._seat(process)
    assert process.hosted is not None
    end = service.ends.make("one", "one/x", "", 3, "x:i16", 0)
    end.gap(1, 10, 0)
    store = process.hosted.store
    store.put(F_OP, b"x")
    store.put_blob(0, b"permanent")
    store.put_blob(1, b"pending")
    store.put_blob(3, b"held")
    store.put_blob(0x8000, b"granted")
    log, site_log = store.log_number, service.boards.log
    gone = service.db.space("gone", b"12345678")
    gone.put(F_OP, b"y")
    service.db.execute("INSERT INTO leaving VALUES(1, x'')")
    service.db.execute("INSERT INTO sessions VALUES('x', 1, 1)")
    service.db.commit()
    given_us = service.site_us()
    make(site, tmp_path / "a")
    service.db.close()
    backup.restore(tmp_path / "a", tmp_path / "new")

    service = Service(read(tmp_path / "new" / "gateway.toml"))
    assert service.processes == {}
    assert service.former("one").deployment == 7  # what no board runs any more can be deployed again
    for table in ("leaving", "sessions"):
        assert service.db.query("SELECT * FROM %s" % table) == []
    assert {name: board.learn for name, board in service.boards.all.items()} == {"hip": True, "vent": True}
    assert all(board.ran == b"" for board in service.boards.all.values())
    assert service.boards.log != site_log
    assert given_us < service.site_us() < given_us + 600_000_000  # time goes on
    assert service.numbers.highest == 7
    (end,) = service.ends.all.values()
    assert (end.durable, end.cut, end.acked) == (10, 0, 0)
    kept = service.db.space("one", process.hosted.plan.hash)
    assert kept.log_number != log
    assert kept.blob_keys() == [0, 3] and kept.get(F_AGAIN) == bytes([0]) * len(process.hosted.plan.vertices)
    assert kept.keys() == [F_AGAIN] and kept.streams() == []
    assert not service.db.has_space("gone", b"12345678")
    # A number is a key, and boards that were registered after the backup have some.
    assert service.boards.add("new").number >= 2 + rebuild.SKIP_MIN
    with pytest.raises(UserError, match="is not known yet"):
        service._settled(None, ["gateway", "vent"])
    service.db.close()
