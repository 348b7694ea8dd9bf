"""Real processes that erase, killed by SIGKILL in the middle; and the command itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from headwater_tools import cli, environment

environment.ensure("lake")

from headwater_tools.proof.sink_kills import SPARK, Life  # noqa: E402
from site_erasure import ask, at, between, judged, rows_on_disk  # noqa: E402
from site_lake import Site, plain  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_S = 240
ENVIRONMENT = environment.variables()

# One life each: data files without the rows are written and not committed; old files are being removed.
STEPS = ("erasing", "sweeping")


def hw_erase(site: Site, where: str, *more: str) -> tuple[int, dict[str, Any], str]:
    words = [str(site.landing), str(site.lake), "cardio/ecg", "--where", where, "--by", "A. Name", *more]
    confs = [word for setting in SPARK for word in ("--conf", setting)]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "headwater_tools",
            "lake",
            "erase",
            *words,
            "--json",
            "--master",
            "local[2]",
            *confs,
        ],
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    return done.returncode, json.loads(done.stdout.splitlines()[-1]), done.stderr


def killed_at(site: Site, steps: tuple[str, ...]) -> None:
    for step in steps:
        life = Life(site.landing, site.lake, step + ":1", True)
        try:
            assert life.process.wait(WAIT_S) == -signal.SIGKILL, (step, life.said())
        finally:
            life.kill()
        assert set(site.numbers()) <= set(plain(1, 120))


def test_a_sink_that_is_killed_while_it_erases_finishes_it_at_its_next_start(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = Site(spark, tmp_path)
    site.put(1, 100)
    site.run()
    ask(site, between(40, 60))
    site.put(50, 120)  # half of it is erased, whichever comes first
    killed_at(site, STEPS)
    code, said, told = hw_erase(site, "xi between 1 and 10 and ts < " + at(200), "--reason", "asked for")
    assert (code, said["rows"]) == (0, 10), told
    assert site.numbers() == plain(11, 39) + plain(61, 120)
    assert not rows_on_disk(site) & {*range(1, 11), *range(40, 61)}
    assert site.high() == (120, [])
    assert judged(site)["erased"] == 31
    with pytest.raises(SystemExit) as ended:
        cli.main(["audit", str(site.lake)])
    assert ended.value.code in (None, 0)
    page = capsys.readouterr().out
    assert "ξ 40 to 60: erased by a tester, " in page and "the promise holds" in page
    assert "(asked for): xi between 1 and 10 and ts < " in page
