"""`hw crash gateway`, short: a gateway that is killed at random moments, with three boards and the sink."""

from __future__ import annotations

import json
import subprocess
import sys

from headwater_tools import house

NONE = ("lost", "twice", "divergent", "lost_results", "out_of_order", "files_refused")


def test_nothing_is_lost_or_twice_wherever_the_gateway_is_killed() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "headwater_tools", "crash", "gateway", "--kills", "3", "--json"],
        env=house.environment(), capture_output=True, text=True, timeout=900, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-3000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert {name: answer[name] for name in NONE} == dict.fromkeys(NONE, 0)
    assert answer["kills"] == 3 and answer["restarts"] == 1
    assert answer["deployments"] + answer["rollbacks"] + answer["put_off"] == 3
    assert answer["accepted"] > 0 and answer["results"] >= answer["delivered"] >= answer["accepted"]
    assert abs(answer["ahead_s"]) <= 10 and answer["wrong"] == []
