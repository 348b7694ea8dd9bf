"""Where a process runs, in words: never "runs" for what does not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from headwater.process import Affine
from headwater.process import Process as HeadwaterProcess
from headwater.protocol.site_link import (
    DRAIN,
    DRAINED,
    DRAINING,
    LEFT_OUT,
    REFUSED,
    RUN,
    RUNS,
    STORED,
    WANTED,
)
from headwater_gateway.deployments import progress
from headwater_gateway.deployments.progress import of_board, of_process

ID = b"deployed"


def board(**more: Any) -> Any:
    found = {
        "name": "vent", "is_lost": False, "learn": False, "heard": 1.0, "leaving": None,
        "state": RUNS, "why": "", "unsafe": 7,
        "offset": 400, "wanted": SimpleNamespace(id=ID, data=bytes(1200)),
        "status": {"plan": ID, "boot": 9, "up": 100, "crash": None},
    }  # fmt: skip
    status = {**found["status"], **more.pop("status", {})}  # type: ignore[dict-item]
    return SimpleNamespace(**{**found, **more, "status": status})


CASES: list[tuple[Any, str, str, str]] = [
    (board(), "up", "runs", ""),
    (board(heard=0.0, state=None), "never seen", "silent", "vent was never seen"),
    (board(heard=0.0, state=None), "up", "silent", "vent has not reported since the gateway started"),
    (board(learn=True), "up", "silent", "vent has not reported since the gateway started"),
    (board(), "lost", "silent", "vent is silent for 45 s"),
    (board(state=WANTED), "up", "waits", "vent is being sent it: 400 of 1200 bytes so far"),
    (board(state=STORED), "up", "waits", "vent has it and does not drain yet"),
    (board(status={"plan": b"another"}), "up", "starts", "vent has it and starts it"),
    (board(state=DRAINING), "up", "drains", "vent drains: 7 entries there are not safe yet"),
    (board(state=DRAINED), "up", "drained", "vent is drained, and does not run it yet"),
    (board(state=REFUSED, why="no room"), "up", "refuses", "vent refuses it: no room"),
    (
        board(status={"crash": [8, "boom"], "up": 4}),
        "up", "crashes", "vent crashed, and started again 4 s ago: boom",
    ),
    (board(status={"crash": [7, "boom"], "up": 4}), "up", "runs", ""),
    (board(status={"crash": [8, "boom"], "up": 60}), "up", "runs", ""),
    (board(leaving=object()), "up", "waits", "vent has to stop its former process first"),
    (
        board(state=None, status={"state": LEFT_OUT, "crash": [8, "boom"], "plan": None}),
        "up", "crashes", "vent skips it: it crashed repeatedly: boom",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("case", "link", "word", "text"), CASES, ids=[c[3] or c[2] for c in CASES])
def test_a_board_is_told_as_what_it_does(case: Any, link: str, word: str, text: str) -> None:
    assert of_board(case, link, 45.3) == (word, text)
    process = SimpleNamespace(step=0, coming=None, hosted=None)
    step, waits = of_process(process, {"vent": of_board(case, link, 45.3)})  # type: ignore[arg-type]
    assert (step == "runs") == (word == "runs")
    assert waits == ([text] if text else [])


def test_a_process_waits_for_no_board_that_was_declared_lost() -> None:
    lost = of_board(board(is_lost=True), "declared lost", 45.3)
    assert lost == ("lost", "vent is declared lost")
    process: Any = SimpleNamespace(step=0, coming=None, hosted=None)
    assert of_process(process, {"vent": lost}) == ("runs", [])


def test_a_change_that_drains_waits_for_what_is_not_drained() -> None:
    fine = of_board(board(state=DRAINED), "up", 0)
    late = of_board(board(state=DRAINING), "up", 0)
    hosted = SimpleNamespace(unsafe=lambda: 0)
    process: Any = SimpleNamespace(step=DRAIN, coming=None, hosted=hosted)
    assert of_process(process, {"a": fine, "b": late}) == ("drains", [late.text])
    assert of_process(process, {"a": fine}) == ("drains", [])
    hosted.unsafe = lambda: 12
    assert of_process(process, {"a": fine}) == (
        "drains", ["the gateway holds 12 entries that are not safe yet"],
    )  # fmt: skip
    process.step = RUN
    assert of_process(process, {"a": of_board(board(), "gone", 8000)}) == (
        "switches", ["vent is silent for 2 h"],
    )  # fmt: skip


def test_a_change_says_which_operator_can_never_drain() -> None:
    p = HeadwaterProcess("green", checkpoints="ecoc", level="local")
    p.host("vent")
    p.host("roof")
    values = p.source("values", "v:i16", rate_hz=20, on="vent")
    p.lake("green/mean", values >> Affine().named("mean").on("roof", backup=[]))
    late = of_board(board(state=DRAINING), "up", 0)
    lost = of_board(board(name="roof", is_lost=True), "declared lost", 45.3)
    hosted = SimpleNamespace(unsafe=lambda: 0)
    process: Any = SimpleNamespace(step=DRAIN, coming=None, hosted=hosted, plan=p.encode())
    _, waits = of_process(process, {"vent": late, "roof": lost})
    assert waits[0] == late.text and len(waits) == 2
    assert "operator mean takes nothing any more" in waits[1] and "hw provision roof --renew" in waits[1]
    drained = of_board(board(state=DRAINED), "up", 0)
    assert of_process(process, {"vent": drained, "roof": lost}) == ("drains", [])
    assert of_process(process, {"vent": late, "roof": drained}) == ("drains", [late.text])


def test_durations_are_for_people() -> None:
    assert [progress.duration(s) for s in (0.4, 119, 120, 7199, 7200, 200_000)] == [
        "0 s", "119 s", "2 min", "119 min", "2 h", "2 days",
    ]  # fmt: skip
