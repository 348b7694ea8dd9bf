"""Boards as processes: real MicroPython, flash in a file, power that goes at any moment.

What a board accepted is compared, entry by entry, with what reached the gateway: the samples are a pure
function of their numbers.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from headwater.process import Fir, Process, Qrs
from headwater.testing import trial
from headwater_tools import environment
from headwater_tools.boards.on_board import board_sensors
from headwater_tools.boards.virtual import ECG, VirtualBoard
from site_gateway import Broker, Gateway, until

HEAP = "96k"
SAMPLES = array("h", ECG.read_bytes())
RESTART = 1


class Site:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.t0_us = time.time_ns() // 1000 - 1_000_000
        self.broker = Broker(folder, {})
        self.broker.start()
        self.gateway = Gateway(self.broker, ["chest", "wrist"])
        self.boards: list[VirtualBoard] = []

    def board(self, name: str = "chest", ecg: str = str(ECG), **more: Any) -> VirtualBoard:
        sensors = {
            "ecg": {"driver": "file", "path": ecg, "t0_us": self.t0_us},
            "accel": {"driver": "wave", "t0_us": self.t0_us, "seed": 3},
            "button": {"driver": "presses", "t0_us": self.t0_us},
        }
        place = self.folder / name
        config = {"broker": self.broker.settings(name, place), "sensors": sensors, "status_s": 1, **more}
        board = VirtualBoard(name, place, config, self.gateway.key(name), heap=HEAP, sectors=32)
        self.boards.append(board)
        return board

    def deploy(self, board: VirtualBoard, plan: bytes) -> bytes:
        self.gateway.run(plan)
        found = self.gateway.want(board.name, plan)
        until(lambda: self.gateway.state(board.name) in (2, 5))
        assert self.gateway.state(board.name) == 2, self.gateway.planned
        return found

    def close(self) -> None:
        for board in self.boards:
            board.kill()
        self.gateway.close()
        self.broker.stop()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    environment.ensure("gateway")
    site = Site(tmp_path)
    yield site
    site.close()


def cardio(every: int = 200, beats: bool = True, accel: bool = False) -> bytes:
    p = Process("cardio", checkpoints="ecoc", every=every, batch=60, batch_ms=250, level="peer")
    p.host("chest", heap_kb=256)
    p.host("wrist", heap_kb=256)
    if accel:
        # Stands before the other: numbers of vertices change from one plan to the next.
        p.lake("cardio/accel", p.source("accel", "x:i16 y:i16 z:i16", rate_hz=50, on="chest"))
    ecg = p.source("ecg", "mV:i16", rate_hz=360, on="chest")
    p.lake("cardio/ecg", ecg)
    if beats:
        p.lake("cardio/beats", ecg >> Fir([1, 2, 1], shift=2).on("chest") >> Qrs().on("chest"))
    return bytes(p.encode())


def arrived(site: Site, source: str = "ecg") -> dict[int, dict[int, Any]]:
    """Rows of the lake edge of a source, by incarnation."""
    plan = site.gateway.plan
    for e in plan.edges:
        if e.dst < 0 and plan.vertices[e.src].name == source:
            return {inc: rows for (edge, inc), rows in site.gateway.outbox.rows.items() if edge == e.index}
    raise AssertionError(source)


def holes(site: Site) -> list[tuple[int, int, int, int]]:
    """Holes of the streams of sources: those of operators have incarnation 0."""
    return [hole for (_, inc), found in site.gateway.outbox.holes.items() if inc for hole in found]


def everything_accepted_arrives(site: Site, board: VirtualBoard, source: str = "ecg") -> int:
    """Each accepted entry is there, with its ts and its payload; how many."""
    accepted = [row for row in board.accepted() if row.source == source]

    def complete() -> bool:
        rows = arrived(site, source)
        return all(a.xi + a.n - 1 in rows.get(a.incarnation, ()) for a in accepted)

    until(complete)
    with site.gateway.lock:
        rows = arrived(site, source)
        for a in accepted:
            for i in range(a.n):
                ts, payload = rows[a.incarnation][a.xi + i]
                if source == "ecg":
                    assert (ts, payload) == (a.ts + i * a.dt, (SAMPLES[(a.first + i) % len(SAMPLES)],))
                else:
                    expected = tuple(board_sensors.wave(a.first + i, k, 3) for k in range(3))
                    assert (ts, payload) == (a.ts + i * a.dt, expected)
        assert not site.gateway.outbox.errors
    return sum(a.n for a in accepted)


def test_kill_at_any_moment_loses_nothing_that_was_accepted(site: Site) -> None:
    board = site.board()
    board.start()
    site.deploy(board, cardio())
    for batches in (5, 1, 3):
        before = len(board.accepted())
        until(lambda: len(board.accepted()) >= before + batches)  # noqa: B023
        board.kill()
        board.start()
    before = len(board.accepted())
    until(lambda: len(board.accepted()) > before)
    assert everything_accepted_arrives(site, board) >= 10 * 60
    ((inc, rows),) = arrived(site).items()
    xis = sorted(rows)
    assert xis == list(range(1, len(xis) + 1))
    assert [hole[1] for hole in holes(site)] == [RESTART] * 3
    assert site.gateway.status["chest"]["crash"] is None


def test_power_cut_in_the_middle_of_a_flash_write_loses_nothing(site: Site) -> None:
    board = site.board()
    board.start()
    site.deploy(board, cardio())
    for k in (0, 7, 130, 1001):
        before = len(board.accepted())
        until(lambda: len(board.accepted()) > before + 1)  # noqa: B023
        board.cut_in_write(k)
        assert not board.running()
        board.start()
    before = len(board.accepted())
    until(lambda: len(board.accepted()) > before + 2)
    everything_accepted_arrives(site, board)
    assert until(lambda: site.gateway.status["chest"])["crash"] is None
    boot = max(int(line.split("boot ")[1].split(",")[0]) for line in board.lines if "boot " in line)
    assert boot == 6  # the first life, one with the process, and one after each cut


def test_boards_speak_to_each_other_and_results_are_those_of_one_run(site: Site) -> None:
    p = Process("pair", checkpoints="ecoc", every=200, batch=60, batch_ms=250, level="local")
    p.host("chest", heap_kb=256)
    p.host("wrist", heap_kb=256)
    ecg = p.source("ecg", "mV:i16", rate_hz=360, on="chest")
    p.lake("pair/ecg", ecg)
    p.lake("pair/beats", ecg >> Fir([1, 2, 1], shift=2).on("wrist") >> Qrs().on("wrist"))
    plan = bytes(p.encode())
    chest, wrist = site.board(), site.board("wrist")
    chest.start()
    wrist.start()
    site.deploy(chest, plan)
    site.gateway.want("wrist", plan)
    beats = next(e.index for e in site.gateway.plan.edges if e.lake == "pair/beats")
    found = lambda: site.gateway.outbox.rows.get((beats, 0), {})  # noqa: E731
    until(lambda: len(found()) > 2)
    wrist.kill()
    before = len(found())
    wrist.start()
    until(lambda: len(found()) > before + 3)
    everything_accepted_arrives(site, chest)
    with site.gateway.lock:
        ((_, rows),) = arrived(site).items()
        got = [found()[xi] for xi in sorted(found())]
    entries = [(0, rows[xi][0], rows[xi][1]) for xi in sorted(rows)]
    fir = trial.make("Fir", site.gateway.plan.vertices[1].params, ("mV:i16",))
    (clean,) = trial.run(fir, entries, regular=True)
    qrs = trial.make("Qrs", {}, ("mV:i16",))
    (expected,) = trial.run(qrs, [(0, ts, row) for ts, row in clean], regular=True)
    assert got == expected[: len(got)]


def test_outage_of_the_link_is_caught_up_from_the_flash(site: Site) -> None:
    board = site.board()
    board.start()
    site.deploy(board, cardio(beats=False))
    until(lambda: len(board.accepted()) > 3)
    site.broker.stop()
    before = len(board.accepted())
    until(lambda: len(board.accepted()) > before + 16)
    site.broker.start()
    everything_accepted_arrives(site, board)
    assert board.starts == 2  # without and with a process


def test_same_plan_again_changes_nothing(site: Site) -> None:
    board = site.board()
    board.start()
    plan = cardio()
    site.deploy(board, plan)
    until(lambda: len(board.accepted()) > 2)
    starts = board.starts
    site.gateway.want("chest", plan)
    until(lambda: site.gateway.state("chest") == 2)
    assert board.starts == starts == 2


def test_unfit_plan_is_refused_with_a_sentence(site: Site) -> None:
    board = site.board()
    board.start()
    p = Process("other", batch=10)
    p.lake("other/x", p.source("pulse", "x:i16", rate_hz=10, on="chest"))
    site.gateway.want("chest", bytes(p.encode()))
    until(lambda: site.gateway.state("chest") == 5)
    assert site.gateway.planned["chest"][3] == ("source pulse: the configuration of chest has no such sensor")
    q = Process("far", batch=10)
    q.lake("far/x", q.source("ecg", "mV:i16", rate_hz=10, on="wrist"))
    site.gateway.want("chest", bytes(q.encode()))
    until(lambda: site.gateway.state("chest") == 5)
    assert site.gateway.planned["chest"][3] == "deployment: process far has no host chest"
    assert board.starts == 1


def test_changed_plan_drains_and_switches_and_its_sources_number_on(site: Site) -> None:
    board = site.board()
    board.start()
    site.deploy(board, cardio())
    until(lambda: len(board.accepted()) > 6)
    changed = cardio(accel=True, beats=False)
    site.gateway.want("chest", changed, step=None)
    until(lambda: site.gateway.state("chest") == 1)  # stored
    site.gateway.want("chest", changed, step=1)
    until(lambda: site.gateway.state("chest") == 4)  # drained
    everything_accepted_arrives(site, board)
    ((inc, rows),) = arrived(site).items()
    last = max(rows)
    board.kill()  # a drained board stays so
    board.start()
    site.gateway.planned.clear()
    until(lambda: site.gateway.state("chest") == 4)
    assert board.accepted()[-1].xi + board.accepted()[-1].n - 1 == last
    seen = len(board.accepted())
    site.gateway.run(changed)
    site.gateway.outbox.upto[(1, inc)] = last  # the lake's end knows the stream
    site.gateway.want("chest", changed, step=2)
    until(lambda: site.gateway.state("chest") == 2)
    until(lambda: {"ecg", "accel"} <= {a.source for a in board.accepted()[seen:]})
    new = [a for a in board.accepted()[seen:] if a.source == "ecg"]
    assert (new[0].incarnation, new[0].xi) == (inc, last + 2)  # a hole stands between
    other = [a for a in board.accepted() if a.source == "accel"]
    assert other[0].incarnation != inc and other[0].xi == 1
    everything_accepted_arrives(site, board, "accel")


def test_cancelled_switch_lets_the_sensors_go_on(site: Site) -> None:
    board = site.board()
    board.start()
    site.deploy(board, cardio())
    until(lambda: len(board.accepted()) > 3)
    changed = cardio(beats=False)
    site.gateway.want("chest", changed, step=1)
    until(lambda: site.gateway.state("chest") == 4)
    seen = len(board.accepted())
    site.gateway.want("chest", changed, step=0)
    until(lambda: len(board.accepted()) > seen + 2)
    everything_accepted_arrives(site, board)
    assert [hole[1] for hole in holes(site)] == [RESTART]
    assert board.starts == 2


def test_sleeping_board_promises_its_silence_and_loses_nothing(site: Site) -> None:
    board = site.board(sleep_s=1, awake_s=4)
    board.start()
    p = Process("site", batch=8, level="local")
    p.host("chest", heap_kb=256)
    p.lake("site/button", p.source("button", "a:u8", on="chest"))
    site.deploy(board, bytes(p.encode()))
    until(lambda: board.starts >= 4)
    board.kill()  # in its sleep or awake: what was accepted is in the flash
    board.start()
    accepted = [a for a in board.accepted() if a.source == "button"]
    until(lambda: max(arrived(site, "button").get(accepted[-1].incarnation, [0])) >= accepted[-1].xi)
    with site.gateway.lock:
        rows = arrived(site, "button")[accepted[0].incarnation]
        start = 0
        for a in accepted:
            for i in range(a.n):
                assert rows[a.xi + i][1] == (board_sensors.press(a.first + i, 0, 0),)
            assert rows[a.xi][0] > start  # time never falls, across sleeps too
            start = rows[a.xi][0]
    assert not site.gateway.outbox.errors
    assert not any("crash" in line for line in board.lines)


def test_process_that_crashes_again_and_again_is_left_out_and_told(site: Site) -> None:
    board = site.board(ecg="gone.i16")
    board.start()
    site.gateway.want("chest", cardio())
    why = "ValueError: source ecg, driver file: [Errno 2] ENOENT"
    status = until(lambda: site.gateway.status.get("chest", {}).get("state") == 5 and site.gateway.status)
    assert (status["chest"]["plan"], status["chest"]["crash"][1]) == (None, why)
    starts = board.starts
    assert starts == 7  # without a process, five times with it, and without it
    site.gateway.want("chest", cardio())
    until(lambda: site.gateway.state("chest") == 5)
    assert site.gateway.planned["chest"][3] == "this process crashed again and again: " + why
    (board.folder / "gone.i16").write_bytes(ECG.read_bytes())
    site.gateway.want("chest", cardio(), step=0)  # tried again
    until(lambda: site.gateway.state("chest") == 0)
    site.deploy(board, cardio())
    until(lambda: len(board.accepted()) > 2)
    assert board.starts == starts + 1


def test_configuration_with_a_typo_is_one_line_on_the_console(site: Site) -> None:
    board = site.board()
    path = board.folder / "config.json"
    path.write_text(path.read_text().replace('"status_s"', '"statuss"'))
    board.start()
    line = board.wait_for("unknown key")
    known = "actuators, awake_s, battery, bluetooth, broker, energy, flash, "
    assert line.startswith("config.json: unknown key 'statuss': there are " + known)
    board.wait_for("(ended with 2)")
