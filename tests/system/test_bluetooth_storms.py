"""The commands that do their worst to boards with Bluetooth, for a short time."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from headwater_tools import environment

pytestmark = [pytest.mark.bluetooth, pytest.mark.broker, pytest.mark.slow]


def crash(*words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "headwater_tools", "crash", *words, "--json"],
        env=environment.variables(), capture_output=True, text=True, timeout=1800, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert answer["wrong"] == []
    return answer


@pytest.mark.sweep
def test_nothing_is_lost_or_twice_whatever_happens_to_the_radio() -> None:
    answer = crash("bluetooth", "--minutes", "1.5", "--seed", "4")
    assert answer["board_kills"] and answer["gateway_kills"] and answer["silences"]
    assert answer["cuts"] + answer["cuts_at_fragments"] > 0 and answer["connections"] > 10
    assert answer["results"] == answer["accepted"] > 0


@pytest.mark.sweep
@pytest.mark.parametrize("way", ["direct", "relayed"])
def test_an_operator_of_16_kb_moves_while_its_connection_is_cut(way: str) -> None:
    answer = crash("moves", "--way", way, "--point", "40", "--point", "90")
    assert [case["finished"] for case in answer["cases"]] == [True] * 4
    assert sum(case["cut"] for case in answer["cases"]) >= 3
    assert answer["results"] > 0
