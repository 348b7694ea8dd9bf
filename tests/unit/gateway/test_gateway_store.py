"""The gateway's database: what a commit covers is there after a kill, and nothing else; the log of a host and
the outbox on it keep their contracts."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from headwater.data import block
from headwater.data.alphabet import Alphabet
from headwater.data.batch import Batch
from headwater_gateway import UserError
from headwater_gateway.database.engine import Database, signed, unsigned
from headwater_gateway.database.host_store import Store
from headwater_gateway.database.outbox import OutboxStreams, records
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

HASH = bytes(range(8))


def opened(path: Path, **arguments: Any) -> Database:
    return Database(path / "gateway.db", lambda: 1_000_000, **arguments)


def packed(xi: int, values: list[int]) -> bytes:
    batch = Batch(Alphabet("mV:i16"), 64)
    batch.n, batch.xi, batch.ts, batch.dt = len(values), xi, 1000 * xi, 1000
    for i, value in enumerate(values):
        batch.cols[0][i] = value
    buf = bytearray(1000)
    return bytes(buf[: block.encode(batch, 0, len(values), buf, 0)])


def content(store: Store) -> dict[str, Any]:
    buf = bytearray(64)
    runs = {}
    for stream in store.streams():
        last, ts = store.tail(stream)
        bodies = []
        for xi in range(store.first(stream), last + 1):
            size = store.read_run(stream, xi, buf)
            bodies.append(bytes(buf[:size]))
        runs[stream] = (store.first(stream), last, ts, bodies)
    blobs = {key: store.get_blob(key) for key in store.blob_keys()}
    return {"facts": {k: store.get(k) for k in store.keys()}, "blobs": blobs, "runs": runs}


OPERATIONS = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 3), st.binary(max_size=4)),
    st.tuples(st.just("drop"), st.integers(0, 3)),
    st.tuples(st.just("put_blob"), st.integers(0, 3), st.binary(min_size=1, max_size=4)),
    st.tuples(st.just("drop_blob"), st.integers(0, 3)),
    st.tuples(st.just("append"), st.integers(0, 1), st.integers(1, 4)),
    st.tuples(st.just("trim"), st.integers(0, 1), st.integers(0, 6)),
    st.tuples(st.just("jump"), st.integers(0, 1), st.integers(0, 5)),
    st.tuples(st.just("forget"), st.integers(0, 1)),
    st.tuples(st.just("commit")),
    st.tuples(st.just("kill")),
)


def do(store: Store, operation: tuple[Any, ...]) -> None:
    what, *rest = operation
    if what == "append":
        stream, n = rest
        xi = store.tail(stream)[0] + 1
        assert store.append_run(stream, xi, n, xi * 10, b"%d+%d" % (xi, n))
    elif what == "trim":
        stream, ahead = rest
        store.trim(stream, store.first(stream) + ahead - 1)
    elif what == "jump":
        stream, ahead = rest
        store.start_stream(stream, store.tail(stream)[0] + ahead, 5)
    else:
        getattr(store, what)(*rest)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=st.lists(OPERATIONS, max_size=30))
def test_a_kill_leaves_what_the_last_commit_left(tmp_path: Path, operations: list[tuple[Any, ...]]) -> None:
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    db = opened(tmp_path)
    store = db.space("p", HASH)
    db.commit()
    durable = content(store)
    for operation in operations:
        if operation[0] == "commit":
            db.commit()
            durable = content(store)
        elif operation[0] == "kill":
            db.abandon()
            db = opened(tmp_path)
            store = db.space("p", HASH)
            assert content(store) == durable
        else:
            do(store, operation)
    db.close()
    db = opened(tmp_path)
    store = db.space("p", HASH)
    seen = content(store)
    db.abandon()
    assert seen["runs"].keys() == set(store.streams())


def test_what_must_not_be_said_early_is_said_after_the_commit_that_covers_it(tmp_path: Path) -> None:
    db = opened(tmp_path)
    said: list[str] = []
    db.after_commit(lambda: said.append("nothing waits"))
    assert said == ["nothing waits"]
    db.space("p", HASH).put(1, b"x")
    db.after_commit(lambda: said.append("later"))
    assert said == ["nothing waits"]
    db.commit()
    assert said == ["nothing waits", "later"]
    db.close()


def test_a_commit_that_fails_is_tried_again_and_nothing_is_said_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater_gateway.database.engine.RETRY_S", 0.01)
    db = opened(tmp_path)
    write, fails = db._write, [3]

    def failing(batch: Any) -> None:
        if fails[0]:
            fails[0] -= 1
            raise sqlite3.OperationalError("database or disk is full")
        write(batch)

    monkeypatch.setattr(db, "_write", failing)
    said: list[str] = []

    async def life() -> None:
        task = asyncio.create_task(db.run(0))
        await asyncio.sleep(0)
        db.space("p", HASH).put(1, b"x")
        db.after_commit(lambda: said.append("durable"))
        while fails[0] > 1:
            await asyncio.sleep(0.001)
        assert said == [] and db.full and "full" in db.failed
        await db.flushed()
        assert said == ["durable"] and not db.full
        task.cancel()

    asyncio.run(life())
    db.close()
    db = opened(tmp_path)
    assert db.space("p", HASH).get(1) == b"x"
    db.close()


def test_a_batch_that_was_written_as_the_service_ended_is_not_written_twice(tmp_path: Path) -> None:
    db = opened(tmp_path)
    ends = OutboxStreams(db)
    end = ends.make("p", "p/s", "", 7, "mV:i16", 0)

    async def life() -> None:
        task = asyncio.create_task(db.run(0))
        await asyncio.sleep(0)
        end.put(1, 2, packed(1, [3, 4]))
        while db._under_way is None:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(life())
    db.close()
    db = opened(tmp_path)
    assert db.query("SELECT first, last FROM chunks") == [(1, 2)]
    db.close()


def test_one_gateway_at_a_time(tmp_path: Path) -> None:
    db = opened(tmp_path)
    with pytest.raises(UserError, match="another gateway"):
        opened(tmp_path)
    db.close()
    opened(tmp_path).close()


def test_a_file_that_is_no_database_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "gateway.db").write_bytes(b"not at all a database" * 100)
    with pytest.raises(UserError, match="is damaged, or is not a gateway's database"):
        opened(tmp_path)


def test_nobody_else_may_read_the_database(tmp_path: Path) -> None:
    db = opened(tmp_path)
    db.space("p", HASH)
    db.commit()
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())
    db.close()


def test_log_numbers_stay_and_versions_have_their_own(tmp_path: Path) -> None:
    db = opened(tmp_path)
    first = db.space("p", HASH).log_number
    other = db.space("p", HASH[::-1]).log_number
    assert first != other
    db.close()
    db = opened(tmp_path)
    assert (db.space("p", HASH).log_number, db.space("p", HASH[::-1]).log_number) == (first, other)
    db.drop_space("p", HASH)
    db.commit()
    assert db.space("p", HASH).log_number != first
    db.close()


def test_entries_come_back_as_the_blocks_they_came_as(tmp_path: Path) -> None:
    db = opened(tmp_path)
    end = OutboxStreams(db).make("p", "p/s", "", 7, "mV:i16", 0)
    blocks = [packed(1, [1, 2, 3]), packed(4, [4])]
    end.put(1, 3, blocks[0])
    end.put(4, 1, blocks[1])
    end.gap(5, 9, 1)
    db.commit()
    end.put(10, 1, packed(10, [5]))
    assert (end.taken, end.durable) == (10, 9)
    db.abandon()
    db = opened(tmp_path)
    end = next(iter(OutboxStreams(db).all.values()))
    assert (end.taken, end.durable, end.inc) == (9, 9, 7)
    rows = db.query("SELECT first, last, arrived, alphabet, data FROM chunks")
    assert [row[:4] for row in rows] == [(1, 9, 1_000_000, "mV:i16")]
    assert list(records(rows[0][4])) == [*blocks, (5, 9, 1)]
    db.close()


def test_rows_are_let_go_when_the_lake_has_all_of_their_chunk(tmp_path: Path) -> None:
    db = opened(tmp_path)
    end = OutboxStreams(db).make("p", "p/s", "", 7, "mV:i16", 0)
    for xi in (1, 3, 5):
        end.put(xi, 2, packed(xi, [xi, xi]))
        db.commit()
    end.acknowledge(3)
    db.commit()
    assert db.query("SELECT first, last FROM chunks") == [(3, 4), (5, 6)]
    end.acknowledge(2)
    assert end.acked == 3
    db.close()


def test_a_lost_database_goes_on_where_the_lake_is(tmp_path: Path) -> None:
    db = opened(tmp_path)
    end = OutboxStreams(db).make("p", "p/s", "", 7, "mV:i16", 0)
    end.acknowledge(100)
    assert (end.taken, end.durable, end.cut) == (100, 100, 100)
    end.put(101, 1, packed(101, [1]))
    db.commit()
    assert db.query("SELECT first, last FROM chunks") == [(101, 101)]
    db.close()


def test_an_operators_stream_has_its_versions_incarnation(tmp_path: Path) -> None:
    db = opened(tmp_path)
    ends = OutboxStreams(db)
    assert ends.make("p", "p/a", "", 0xFFFF << 48, "x:i8", 0).incarnation == 0xFFFF << 48
    version = "ff" * 8
    assert ends.make("p", "p/b", version, 0, "x:i8", 0).incarnation == (1 << 64) - 1
    assert ends.make("p", "p/b", version, 3, "x:i8", 0).incarnation == 2
    newest = ends.newest("p", "p/b", version)
    assert newest is not None and newest.inc == 3
    db.close()


def test_a_gap_that_no_table_can_hold_is_refused(tmp_path: Path) -> None:
    db = opened(tmp_path)
    end = OutboxStreams(db).make("p", "p/s", "", 7, "mV:i16", 0)
    with pytest.raises(ValueError):
        end.gap(1, 1 << 63, 1)
    assert end.taken == 0
    db.close()


def test_the_bound_stops_the_taking_in(tmp_path: Path) -> None:
    db = opened(tmp_path, max_bytes=200_000)
    assert not db.full
    end = OutboxStreams(db).make("p", "p/s", "", 7, "mV:i16", 0)
    end.put(1, 1, random.Random(1).randbytes(250_000))
    assert db.full
    db.commit()
    assert db.full and db.space("p", HASH).append_run(0, 1, 1, 1, b"x") is False
    end.acknowledge(1)
    db.commit()
    assert not db.full
    db.close()


@given(st.integers(0, (1 << 64) - 1))
def test_64_bits_survive(value: int) -> None:
    assert -(1 << 63) <= signed(value) < 1 << 63 and unsigned(signed(value)) == value


def test_a_space_begins_empty_in_the_commit_that_drops_another(tmp_path: Path) -> None:
    """A switch: the former deployment's numbers of changes must not become those of the next."""
    db = opened(tmp_path)
    former = db.space("p", b"former..")
    former.put(0x300, b"\3\0\0\0")
    former.put_blob(0x6000, b"values")
    db.commit()
    db.drop_space("p", b"former..")
    coming = db.space("p", b"coming..")
    assert (coming.keys(), coming.blob_keys(), coming.get(0x300)) == ([], [], None)
    coming.put(1, b"boot")
    db.commit()
    db.close()
    db = opened(tmp_path)
    again = db.space("p", b"coming..")
    assert (again.keys(), again.get(1), again.blob_keys()) == ([1], b"boot", [])
    assert db.query("SELECT count(DISTINCT space) FROM facts") == [(1,)]
    db.close()


def test_what_was_written_before_commits_begin_is_committed_by_itself(tmp_path: Path) -> None:
    """What waits for it may be the only word that could make anything else happen."""

    async def life() -> None:
        db = opened(tmp_path)
        db.commit()
        db.execute("INSERT INTO meta VALUES('x', 1)")
        said = asyncio.Event()
        db.after_commit(said.set)
        task = asyncio.create_task(db.run(0))
        await asyncio.wait_for(said.wait(), 60)
        task.cancel()
        db.close()

    asyncio.run(life())
