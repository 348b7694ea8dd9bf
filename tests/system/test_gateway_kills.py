"""`hw crash gateway`, short: a gateway that is killed at random moments, with three boards and the sink; and
one that breaks its promise, which the judge must see."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from headwater_tools import environment
from headwater_tools.proof import gateway_kills

pytestmark = [pytest.mark.broker, pytest.mark.slow]

NONE = ("lost", "twice", "divergent", "lost_results", "out_of_order", "files_refused")


def test_nothing_is_lost_or_twice_wherever_the_gateway_is_killed() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "headwater_tools", "crash", "gateway", "--kills", "3", "--json"],
        env=environment.variables(), capture_output=True, text=True, timeout=900, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-3000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert {name: answer[name] for name in NONE} == dict.fromkeys(NONE, 0)
    assert answer["kills"] == 3 and answer["restarts"] == 1
    assert answer["deployments"] + answer["rollbacks"] + answer["put_off"] == 3
    assert answer["accepted"] > 0 and answer["results"] >= answer["delivered"] >= answer["accepted"]
    assert abs(answer["ahead_s"]) <= 10 and answer["wrong"] == []


# A gateway that calls an element durable before it is.
HASTY = """
from headwater_gateway import __main__ as gateway
from headwater_gateway.database.engine import Database
from headwater_gateway.database.outbox import Outbox
Database.after_commit = lambda self, action: action()
Outbox.durable = lambda self, edge, inc: self.end(edge, inc).taken if self._begun(edge, inc) else 0
gateway.main()
"""


def test_a_gateway_that_acknowledges_too_early_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment.ensure("lake")
    monkeypatch.setattr(gateway_kills, "SETTLE_S", 60.0)
    crash = gateway_kills.GatewayCrash(tmp_path / "site", 3, print)
    (tmp_path / "hasty.py").write_text(HASTY)
    crash.site.file.write_text(crash.site.file.read_text() + "[store]\ncommit_ms = 1000\n")
    crash.site.gateway.command = [sys.executable, str(tmp_path / "hasty.py"), str(crash.site.file)]
    try:
        ending = crash.run(8)
    finally:
        crash.close()
    # What nobody holds any more is lost, or declared as a gap where the board knows of it.
    assert ending.lost > 0 or ending.gaps_declared > 0
    assert any("lost" in text or "gaps" in text for text in ending.wrong())
