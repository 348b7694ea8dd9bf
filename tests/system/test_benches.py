"""Every bench runs, on a small load, and gives its measures as one JSON object. How long anything takes, and
whether a bar is reached, is no matter here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from headwater_tools import bench, cli, environment

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]
BLUETOOTH = ("ble",)

FIELDS = ("name", "value", "unit", "bar", "ok")
# Arguments of a small load; words that the names of its measures must begin with.
SMALL = {
    "attack": (
        "--frames 60 --rounds 2",
        ("garbage: refused", "flood: CPU", "refused: seal", "memory grown", "log grown", "entries lost"),
    ),
    "ble": (
        "--quick --section goodput --section reconnects",
        (
            "up, 30 ms, 4 packets an event: goodput",
            "down, 30 ms, 4 packets an event, 20 % of the events fail",
            "free heap at reconnect 6",
        ),
    ),
    "energy": (
        "--cases 3",
        (
            "radio: cases within",
            "radio: time of the search",
            "computation: cases within",
            "radio: life with moves of the best that stays",
            "computation: small cases, life of what hindsight finds",
            "words, awake: of the charge",
            "heap at rest",
            "an element of Fir",
        ),
    ),
    "flash": ("--hours 1 --sweep part", ("programmed per", "mount, full", "sweep: cuts")),
    "gateway": (
        "--rounds 1 --frames 40 --large 10 --boards 4 --latencies 3",
        ("frames of 1 reading", "frames of 360 readings", "board to durable", "memory with 4 boards"),
    ),
    "numberings": ("--old 300 --rounds 2", ("batch with 300 settled", "the same with all")),
    "overhead": ("--rounds 1", ("checkpoint bytes per source element", "SP4, extended", "claim: ")),
    "recovery": (
        "--quick",
        (
            "death to takeover",
            "SP2, extended, every 500, 16 KB: catch-up",
            "claim: recovery",
            "planned: link delays",
            "planned: SP1, ecoc, 100 B: pause",
            "boards, within 15 s: death to first",
            "boards, planned: longest",
        ),
    ),
    "runtime": (
        "--elements 1000 --rounds 1 --no-search --heap 72",
        (
            "SP1 in 72 KiB",
            "SP1 with MQTT over TLS",
            "live heap, most, whole board in 96 KiB",
            "SP1 of a fused loop, batches of 36",
            "SP1 of a fused loop, batches of 360",
            "four operators of a fused loop",
            "four operators of a bare loop each",
            "code that SP1 keeps",
            "four operators on CPython",
        ),
    ),
    "sink": (
        "--least --section small --section flat --section commits --section latency",
        ("sink, ", "sink over MERGE", "rows lost or twice", "batch at", "batch after", "segment visible"),
    ),
    "soak": ("--boards 2 --seconds 5 --every 1", ("entries accepted", "entries lost", "power cuts")),
    "wire": ("--frames 10", ("bytes on the air", "encode, MicroPython", "frame in, CPython")),
}
# What holds on any load and any machine.
HOLDS = (
    "SP1 in 64 KiB", "SP1 with both links in 128 KiB", "free heap at reconnect", "code, on a board without",
    "boards, planned: elements", "bytes on the air", "checkpoint bytes", "elements replayed",
    "entries", "erases within", "head of a block", "planned: ", "programmed per packed", "refused: ",
    "results missing", "rows lost or twice", "series of metrics", "sweep: wrong",
)  # fmt: skip


def measured(name: str, words: list[str], *, timeout_s: float = 300) -> dict[str, Any]:
    """What `hw bench NAME` says with --json; it ends with 1 where a bar is missed."""
    command = [sys.executable, str(environment.ROOT / "hw"), "bench", name, *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert list(answer) == ["bench", "measures"], done.stdout + done.stderr
    assert done.returncode == (0 if all(m["ok"] for m in answer["measures"]) else 1)
    return answer


def test_every_bench_has_a_small_load() -> None:
    assert sorted(SMALL) == sorted(cli.names(bench))


# Sections that take minutes: `hw test --ble`.
LONG_BLUETOOTH = (
    "--quick --section boards --section cost",
    (
        "three boards, up, 30 ms",
        "heap that Bluetooth adds",
        "heap, with a connection open",
        "code that Bluetooth adds",
        "SP1 with both links in 128 KiB",
    ),
)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.bluetooth) if name in BLUETOOTH else name for name in SMALL]
)
def test_a_bench_gives_its_measures(name: str, tmp_path: Path) -> None:
    words, wanted = SMALL[name]
    more = ["--figure", str(tmp_path / "figure.svg")] if name in ("overhead", "recovery") else []
    check(name, measured(name, [*words.split(), *more]), wanted)


@pytest.mark.bluetooth
@pytest.mark.sweep
def test_what_bluetooth_costs_and_what_three_boards_get() -> None:
    words, wanted = LONG_BLUETOOTH
    check("ble", measured("ble", words.split(), timeout_s=900), wanted)


def check(name: str, answer: dict[str, Any], wanted: tuple[str, ...]) -> None:
    assert answer["bench"] == name
    for measure in answer["measures"]:
        assert tuple(measure) == FIELDS
        assert isinstance(measure["value"], (int, float, str)) and isinstance(measure["ok"], bool)
        assert measure["value"] not in ("failed", "out of memory"), measure
        if measure["name"].startswith(HOLDS):
            assert measure["ok"], measure
    names = [measure["name"] for measure in answer["measures"]]
    for start in wanted:
        assert any(each.startswith(start) for each in names), (start, names)
