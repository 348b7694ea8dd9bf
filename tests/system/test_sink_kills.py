"""Real sinks, killed, stopped, and two of them on one lake. `hw crash` kills more, and more often."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from headwater_tools import cli, environment

environment.ensure("lake")

from headwater_tools.bench.support.ingest_paths import wait  # noqa: E402
from headwater_tools.proof.ledger import Ledger  # noqa: E402
from headwater_tools.proof.sink_kills import Crash, Life  # noqa: E402

pytestmark = [pytest.mark.spark, pytest.mark.slow]

WAIT_S = 240

# One life each: in the middle of the append, behind it, behind progress, in the middle of compaction.
STEPS = ("writing", "appended", "progressed", "optimizing")


def test_whatever_is_acknowledged_is_there_once_wherever_the_sink_is_killed(tmp_path: Path) -> None:
    row = Crash(tmp_path, "several", seed=1).run(len(STEPS), lambda i: STEPS[i])
    assert row.verdict.wrong() == {}
    assert row.kills == len(STEPS) and row.rows_sent > 1000


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "landing", tmp_path / "lake", seed=1)


def test_a_stopped_sink_that_lost_the_lake_writes_nothing_when_it_wakes(
    ledger: Ledger, tmp_path: Path
) -> None:
    """With leases: while the first lives a second is refused; when it is stopped, the lease is waited out."""
    landing, lake = tmp_path / "landing", tmp_path / "lake"
    elements = lake / "elements"
    leased = ("--shared", "--lease", "20")
    send_some(ledger, 6)
    first = Life(landing, lake, "", False, *leased)
    try:
        wait(lambda: first.process.poll() is not None or ledger.listen(), WAIT_S, "the first batch")
        refused = Life(landing, lake, "", True, *leased)
        assert refused.process.wait(WAIT_S) == 2
        assert "is in use by hw sink, process %d on" % first.process.pid in refused.said()

        before = set(elements.glob("*.parquet"))
        send_some(ledger, 6)
        wait(lambda: set(elements.glob("*.parquet")) != before, WAIT_S, "the next append")
        first.signal(signal.SIGSTOP)

        second = Life(landing, lake, "", True, *leased)
        assert second.process.wait(WAIT_S) == 0, second.said()
        assert "for a sign of it, until its lease expires" in second.said()
        assert ledger.judge(at_end=True).wrong() == {}

        version = newest(elements)
        first.signal(signal.SIGCONT)
        assert first.process.wait(WAIT_S) == 2
        assert newest(elements) == version
        assert ledger.judge(at_end=True).wrong() == {}
    finally:
        first.kill()


def test_a_stopped_sink_keeps_its_lake_where_the_system_locks_it(ledger: Ledger, tmp_path: Path) -> None:
    landing, lake = tmp_path / "landing", tmp_path / "lake"
    send_some(ledger, 6)
    first = Life(landing, lake)
    try:
        wait(lambda: first.process.poll() is not None or ledger.listen(), WAIT_S, "the first batch")
        first.signal(signal.SIGSTOP)
        send_some(ledger, 6)
        second = Life(landing, lake, "", True)
        assert second.process.wait(WAIT_S) == 2
        assert "is in use by hw sink, process %d on" % first.process.pid in second.said()
        first.signal(signal.SIGCONT)
        wait(lambda: ledger.listen(), WAIT_S, "the second batch")
        assert ledger.judge(at_end=True).wrong() == {}
    finally:
        first.kill()


def send_some(ledger: Ledger, files: int) -> None:
    for i in range(files):
        stream = ledger.supply.streams[i % 4]
        last = ledger.supply.last[stream]
        ledger.send(stream, last + 1, last + 100)
        ledger.supply.last[stream] = last + 100


def newest(table: Path) -> int:
    return max(int(path.stem) for path in (table / "_delta_log").glob("*.json"))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--point", "nowhere"], "no crash point 'nowhere': there are received, appending"),
        (["--kills", "0"], "--kills 0: give at least 1"),
        (["--report", "README.md"], "README.md is no report of `hw crash`"),
    ],
)
def test_bad_use_of_the_harness_ends_with_one_sentence(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["crash", *words])
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert why in said.err and said.err.count("\n") == 1
