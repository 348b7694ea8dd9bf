"""`hw demo`, short: real MicroPython, Mosquitto, gateway, Spark and Delta, every fault; what it leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable
from headwater_tools import environment

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

DEMO = [sys.executable, "-P", "-m", "headwater_tools", "demo"]


def of_folder(folder: Path) -> list[str]:
    """Processes that work in a folder, or on one of its files."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            place = os.readlink(entry / "cwd")
        except OSError:
            continue  # it ended meanwhile, or is another user's
        if str(folder) in line or place.startswith(str(folder)):
            found.append(line)
    return found


def test_everything_that_boards_accept_is_in_the_lake_once_whatever_dies(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    done = subprocess.run(
        [*DEMO, "--seconds", "24", "--json", "--folder", str(folder)],
        env=environment.variables(), capture_output=True, text=True, timeout=580, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert {name: answer[name] for name in ("lost", "duplicates", "divergent", "out_of_order")} == {
        "lost": 0, "duplicates": 0, "divergent": 0, "out_of_order": 0,
    }  # fmt: skip
    faults = [(fault["part"], fault["what"]) for fault in answer["faults"]]
    assert sorted(faults) == [
        ("arm", "kill -9"),
        ("arm", "link down"),
        ("broker", "restart"),
        ("chest", "power cut in a flash write"),
        ("gateway", "stopped"),
        ("hip", "battery empty"),
        ("sink", "killed between commit and progress"),
    ]
    # What ran on the hip left before its battery was empty, and nothing of it was processed twice. What ran
    # on the arm started elsewhere, and no gateway was there.
    assert (answer["migrations_planned"], answer["replayed"]) == (2, 0)
    assert answer["migrations_without_gateway"] == answer["migrations_unplanned"] == 1
    moves = [(move["operator"], move["from"], move["planned"]) for move in answer["moves"]]
    assert sorted(moves) == [("alarm", "hip", True), ("qrs", "arm", False), ("rate", "hip", True)]
    assert answer["accepted"] > 6000 and answer["refused"] == 0
    drawn = (folder / "timeline.svg").read_text()
    for name in ("chest", "arm", "wrist", "hip", "gateway", "rate", "qrs", "dead"):
        assert ">%s</text>" % name in drawn
    assert of_folder(folder) == []
    # Read by somebody who has nothing to do with how it was written.
    elements = DeltaTable(str(folder / "lake" / "elements"))
    rows = elements.to_pyarrow_table(columns=["stream", "incarnation", "xi"])
    keys = list(zip(*rows.to_pydict().values(), strict=True))
    assert len(keys) == len(set(keys))
    sources = [key for key in keys if key[0] in ("cardio/ecg", "cardio/accel")]
    assert len(sources) >= answer["accepted"]


@pytest.mark.bluetooth
@pytest.mark.sweep
def test_an_operator_moves_from_board_to_board_over_bluetooth(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    done = subprocess.run(
        [*DEMO, "--ble", "--json", "--folder", str(folder)],
        env=environment.variables(), capture_output=True, text=True, timeout=580, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    bad = ("lost", "duplicates", "divergent", "out_of_order", "replayed", "refused", "migrations_unplanned")
    assert {name: answer[name] for name in bad} == dict.fromkeys(bad, 0)
    assert answer["accepted"] == answer["delivered"] > 20_000
    assert [(fault["part"], fault["what"]) for fault in answer["faults"]] == [
        ("broker", "killed"),
        ("gateway", "out of reach"),
        ("hip", "battery empty"),
    ]
    (move,) = answer["moves"]
    assert move == {"operator": "alarm", "from": "hip", "to": "chest", "planned": True}
    assert answer["migrations_board_to_board"] == answer["migrations_without_gateway"] == 1
    # Each link carried something at some time.
    links = {link["link"]: (link["over"], link["bytes"] > 1000) for link in answer["links"]}
    assert links == {
        "chest \u2013 broker": ("MQTT", True),
        "hip \u2013 broker": ("MQTT", True),
        "chest \u2013 gateway": ("Bluetooth", True),
        "hip \u2013 gateway": ("Bluetooth", True),
        "chest \u2013 hip": ("Bluetooth", True),
    }
    drawn = (folder / "timeline.svg").read_text()
    for name in ("chest", "hip", "rate", "alarm", "dead", "chest \u2013 hip", "carried over Bluetooth"):
        assert ">%s</text>" % name in drawn
    assert of_folder(folder) == []


def test_an_interrupted_demo_leaves_no_process(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    demo = subprocess.Popen(
        [*DEMO, "--folder", str(folder)],
        env=environment.variables(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert demo.stdout is not None
    with demo.stdout:
        for line in demo.stdout:
            if line.startswith("boards:"):
                break
        assert len(of_folder(folder)) >= 5
        time.sleep(1)
        demo.send_signal(signal.SIGINT)
        rest = demo.stdout.read()
    assert demo.wait(180) == 130, rest
    assert "interrupted" in rest
    assert of_folder(folder) == []
