"""Real sinks with landing zone and lake on S3: two at once, stopped, killed, throttled; and the commands."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from deltalake import DeltaTable
from headwater_cloud import store
from headwater_tools import environment
from headwater_tools.bench.support.ingest_paths import wait
from headwater_tools.environment.s3 import Server
from headwater_tools.proof.ledger import Ledger
from headwater_tools.proof.sink_kills import Crash, Life

WAIT_S = 400
STEPS = ("writing", "appended", "progressed", "optimizing")
LEASE = ("--lease", "20")

Start = Callable[..., Life]


def send_some(ledger: Ledger, files: int) -> None:
    for i in range(files):
        stream = ledger.supply.streams[i % 4]
        last = ledger.supply.last[stream]
        ledger.send(stream, last + 1, last + 100)
        ledger.supply.last[stream] = last + 100


def newest(ledger: Ledger) -> int:
    return DeltaTable((ledger.lake / "elements").rs, storage_options=ledger.lake.options).version()


def hw(server: Server, *words: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "headwater_tools", *words], env={**environment.variables(), **server.storage},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=WAIT_S,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_whatever_is_acknowledged_is_there_once_wherever_the_sink_is_killed(
    server: Server, tmp_path: Path
) -> None:
    row = Crash(tmp_path, "several", 1, server=server).run(len(STEPS), lambda i: STEPS[i])
    assert row.verdict.wrong() == {}
    assert row.kills == len(STEPS) and row.rows_sent > 1000


def test_of_two_sinks_that_start_at_once_one_takes_the_lake(ledger: Ledger, sink: Start) -> None:
    send_some(ledger, 6)
    both = [sink(*LEASE, once=False) for _ in range(2)]
    wait(lambda: any(life.process.poll() is not None for life in both), WAIT_S, "the refusal of one")
    (refused,) = (life for life in both if life.process.poll() is not None)
    (serving,) = (life for life in both if life is not refused)
    assert refused.process.returncode == 2
    assert "a lake has one writer" in refused.said()
    send_some(ledger, 6)
    wait(lambda: bool(ledger.listen()), WAIT_S, "a batch of the other one")
    serving.kill()
    # What was killed cannot say that it has ended: its lease is waited out.
    successor = sink(*LEASE)
    assert successor.process.wait(WAIT_S) == 0, successor.said()
    assert "for a sign of it, until its lease expires" in successor.said()
    assert ledger.judge(at_end=True).wrong() == {}


def test_a_stopped_sink_that_lost_the_lake_writes_nothing_when_it_wakes(ledger: Ledger, sink: Start) -> None:
    send_some(ledger, 6)
    first = sink(*LEASE, once=False)
    wait(lambda: first.process.poll() is not None or ledger.listen(), WAIT_S, "the first batch")
    elements = ledger.lake / "elements"
    before = set(store.names(elements))
    send_some(ledger, 6)
    wait(lambda: set(store.names(elements)) != before, WAIT_S, "the next append")
    first.signal(signal.SIGSTOP)
    second = sink(*LEASE)
    assert second.process.wait(WAIT_S) == 0, second.said()
    assert ledger.judge(at_end=True).wrong() == {}
    version = newest(ledger)
    first.signal(signal.SIGCONT)
    assert first.process.wait(WAIT_S) == 2, first.said()
    assert newest(ledger) == version
    assert ledger.judge(at_end=True).wrong() == {}


def test_a_store_that_throttles_delays_rows_and_loses_none(
    server: Server, ledger: Ledger, sink: Start
) -> None:
    send_some(ledger, 8)
    server.slow_down(5)
    try:
        life = sink()
        assert life.process.wait(WAIT_S) == 0, life.said()
    finally:
        refused = server.slow_down(0)
    assert refused > 10
    assert ledger.judge(at_end=True).wrong() == {}


def test_objects_without_bytes_are_refused_and_told(ledger: Ledger, sink: Start) -> None:
    send_some(ledger, 4)
    name = ledger.supply.cut(ledger.supply.streams[0], 101, 200).name
    ledger.bad |= {name, "rubbish"}
    store.write(ledger.landing / name, b"")
    store.write(ledger.landing / "rubbish", b"")
    life = sink()
    assert life.process.wait(WAIT_S) == 0, life.said()
    assert ledger.judge(at_end=True).wrong() == {}
    assert json.loads(store.read(ledger.lake / "acks" / "crash.json"))["unreadable"] == [name]


def test_a_store_that_does_not_let_a_sink_in_is_told_in_one_sentence(server: Server) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headwater_tools", "sink", "s3a://no-such-bucket/a", "s3a://no-such-bucket/b",
         "--once", "--master", "local[1]"],
        env={**environment.variables(), **server.storage}, capture_output=True, text=True, timeout=WAIT_S,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "s3a://no-such-bucket/a cannot be reached: " in done.stderr
    assert "Traceback" not in done.stderr


def test_every_command_reaches_a_lake_on_s3_by_the_environment_alone(
    server: Server, ledger: Ledger, sink: Start
) -> None:
    landing, lake = str(ledger.landing), str(ledger.lake)
    send_some(ledger, 8)
    spoiled = ledger.spoil(ledger.supply.streams[0], 201, 300)
    good, misnamed = ledger.send(ledger.supply.streams[0], 201, 300), "misnamed~1.parquet"
    store.write(ledger.landing / misnamed, store.read(ledger.landing / good))
    store.remove(ledger.landing / good)
    ledger.bad.add(misnamed)
    hw(server, "sink", landing, lake, "--once", "--master", "local[2]")
    listed = hw(server, "lake", "quarantine", lake)
    assert spoiled in listed and misnamed in listed
    back = hw(server, "lake", "requeue", landing, lake, "all", code=1)
    assert "stays: its bytes have the CRC-32" in back
    assert "%s: 100 rows wait for the sink in " % misnamed in back
    hw(server, "sink", landing, lake, "--once", "--master", "local[2]")
    assert "the promise holds" in hw(server, "audit", lake, "--landing", landing)
    assert "maintained:" in hw(server, "maintain", lake, "--keep-hours", "0")
    count = "print('rows', sum(lake.stream(name).count() for name in %r))" % ledger.supply.streams
    assert "rows 900" in hw(server, "shell", lake, "-c", count)
    # delta-rs reads what Spark has written and compacted.
    table = DeltaTable((ledger.lake / "elements").rs, storage_options=ledger.lake.options)
    assert table.to_pyarrow_table().num_rows == 900
    assert ledger.judge(at_end=True).wrong() == {}
