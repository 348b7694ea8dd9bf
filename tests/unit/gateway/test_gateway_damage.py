"""A database that is damaged, emptied or missing: one sentence, and an exit code that systemd respects."""

from __future__ import annotations

import random
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from headwater_gateway import UserError, provision
from headwater_gateway.command import register
from headwater_gateway.config import read
from headwater_gateway.database.engine import Database, damaged
from headwater_gateway.service import Service
from headwater_tools import environment


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site whose database has worked for a while."""
    folder = tmp_path / "site"
    provision.site(folder, "localhost", 8883)
    register(folder / "gateway.toml", "vent")
    db = Database(folder / "data" / "gateway.db", lambda: 0)
    noise = random.Random(1)
    for key in range(300):
        db.execute("INSERT INTO facts VALUES(7, ?, ?)", key + 10_000, noise.randbytes(100))
        row = (key, 1, key, key, 0, "x:i16", noise.randbytes(1000))
        db.execute("INSERT INTO chunks VALUES(?, ?, ?, ?, ?, ?, ?)", *row)
    db.close()
    return folder


def flipped(data: bytes, seed: int) -> bytes:
    noise = random.Random(seed)
    out = bytearray(data)
    for _ in range(200):
        out[noise.randrange(len(out))] ^= noise.randrange(1, 256)
    return bytes(out)


def put(site: Path, data: bytes) -> Path:
    path = site / "data" / "gateway.db"
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    path.write_bytes(data)
    return path


def command(site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "headwater_tools", "gateway", "run", str(site)],
        env=environment.variables(), capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_two_hundred_flipped_bytes_are_one_sentence(site: Path) -> None:
    whole = (site / "data" / "gateway.db").read_bytes()
    told = 0
    for seed in range(25):
        put(site, flipped(whole, seed))
        try:
            Service(read(site / "gateway.toml")).db.close()
        except UserError as trouble:
            assert re.search("is damaged.* restore the site from a backup.*--rebuild", str(trouble))
            told += 1
    assert told >= 20  # else they fell into what nobody reads
    put(site, whole)
    Service(read(site / "gateway.toml")).db.close()  # and nothing was kept open


def test_damage_and_loss_end_the_service_with_the_code_that_systemd_respects(site: Path) -> None:
    unit = (environment.ROOT / "gateway" / "headwater-gateway.service").read_text()
    assert "\nRestartPreventExitStatus=2\n" in unit
    whole = (site / "data" / "gateway.db").read_bytes()
    for data, words in (
        (flipped(whole, 3), "gateway.db is damaged"),
        (whole[: len(whole) // 2], "gateway.db is damaged"),
        (b"not a database" * 1000, "gateway.db is damaged"),
        (b"", "gateway.db has no boards, and .*boards has the folders of vent: the database was lost"),
    ):
        put(site, data)
        done = command(site)
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
        assert re.search(words, done.stderr) and "--rebuild" in done.stderr, done.stderr
    path = put(site, b"")
    path.unlink()
    done = command(site)
    assert done.returncode == 2 and "gateway.db is missing" in done.stderr
    assert not path.exists()


def test_values_that_nobody_wrote_are_damage_too(site: Path) -> None:
    path = site / "data" / "gateway.db"
    with sqlite3.connect(path) as conn:
        conn.execute("INSERT INTO processes VALUES('one', x'00ff', 'text', NULL, 0, 0)")
        conn.execute("INSERT INTO meta VALUES('boot', 'x')")
    conn.close()
    with pytest.raises(UserError, match="gateway.db is damaged"):
        Service(read(site / "gateway.toml"))
    assert "KeyError" in str(damaged(path, KeyError()))
