"""From a process file to a case of placement: rates, heap, candidates, batteries."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from headwater.data import block
from headwater.data.alphabet import Alphabet
from headwater.data.batch import Batch
from headwater.plan import placement
from headwater.plan.placement import HEAP, MAINS
from headwater.process import Average, Decimate, Fir, Process, SumJoin
from headwater.process.check import Report, check
from headwater.process.energy import Board, Energy, energy

BOARD = Board(
    "one", 100, ((3000, 0), (3600, 5), (4000, 80), (4200, 100)), 30_000, 10, 20_000, 5_000, 300_000, 70_000,
    {"wifi": (60_000, 30_000, 3_000_000)},
)  # fmt: skip
WORK = {"Fir": 300, "Average": 600, "Decimate": 100, "other": 1000}


def two(heap_kb: int = 256, on: str = "a", **host: Any) -> Process:
    p = Process("test", checkpoints="extended", every=100, batch=10)
    p.host("a", heap_kb=heap_kb, **host)
    p.host("b", heap_kb=heap_kb)
    x = p.source("x", "v:i16", rate_hz=100, on="a")
    y = p.source("y", "v:i16", rate_hz=20, on="b")
    both = SumJoin(us=1_000_000).named("both").on(on)(x >> Fir([1, 2, 1]), y >> Decimate(k=4))
    p.lake("test/sum", both)
    return p


def sound(process: Process) -> Report:
    report = check(process)
    assert [str(problem) for problem in report.errors()] == []
    return report


def of(process: Process, percent: dict[str, int] | None = None, board: Board | None = BOARD) -> Energy:
    report = sound(process)
    assert report.decoded is not None
    boards = {host.name: board for host in report.sizing.hosts}
    return energy(report.sizing, report.decoded, boards, percent or {}, WORK)


def test_hosts_have_their_charge_and_the_gateway_has_mains() -> None:
    case = of(two(battery_mah=50), {"b": 40}).case
    assert [host.left_mc for host in case.hosts] == [MAINS, 50 * 3600, 100 * 3600 * 40 // 100]
    assert [host.left_mc for host in of(two(battery_mah=0)).case.hosts] == [MAINS, MAINS, 360_000]
    assert [host.left_mc for host in of(two(), board=None).case.hosts] == [MAINS] * 3


def test_a_host_that_sleeps_draws_less_and_its_log_draws_something() -> None:
    awake, rare = of(two()).case.hosts[1], of(two(awake_percent=10)).case.hosts[1]
    logged = awake.base_na - 30_000_000
    assert rare.base_na == 3_000_000 + 9_000 + logged
    size = block.longest(Alphabet("v:i16"), 10, False)
    assert logged == 10 * size * 300_000 // 1000  # ten batches a second


def test_work_follows_the_elements_that_an_operator_takes() -> None:
    case = of(two()).case
    report = sound(two())
    names = [v.name for v in report.sizing.order]
    units = {name: v.units_mhz for name, v in zip(names, case.vertices)}
    assert units == {"x": 0, "y": 0, "fir": 300_000, "decimate": 20_000, "both": 105 * 10_000}


def test_a_stream_carries_no_less_than_its_blocks_have() -> None:
    process = two()
    report = sound(process)
    v = report.sizing.order[0]
    bytes_s, batches_s = report.sizing.carried(v, 0)
    assert batches_s == 10
    rng = random.Random(1)
    batch = Batch(Alphabet("v:i16"), 10)
    batch.n, batch.dt, batch.ts, batch.xi = 10, 10_000, 1 << 50, 1 << 40
    for values in ([0] * 10, [rng.randint(-32768, 32767) for _ in range(10)]):
        batch.cols[0][:] = type(batch.cols[0])("h", values)
        assert block.encode(batch, 0, 10, bytearray(200), 0) * batches_s <= bytes_s


@pytest.mark.parametrize(
    "rate, batch_ms, n", [(1, 1000, 1), (0.2, 1000, 1), (7, 1000, 7), (1000, 1000, 10), (20, 250, 5)]
)
def test_a_batch_leaves_when_it_is_full_or_has_waited(rate: float, batch_ms: int, n: int) -> None:
    p = Process("test", batch=10, batch_ms=batch_ms)
    p.lake("test/x", p.source("x", "v:i16", rate_hz=rate, on="a"))
    sizing = sound(p).sizing
    assert sizing.carried(sizing.order[0], 0)[1] == rate / n


def test_a_source_that_nothing_limits_is_named_and_counts_nothing() -> None:
    p = Process("test")
    p.lake("test/x", p.source("x", "v:i16", on="a") >> Average(count=5))
    found = of(p)
    assert found.unlimited == ["x"]
    assert [(e.bytes_mhz, e.frames_mhz) for e in found.case.edges] == [(0, 0)] * 2


def test_the_heap_of_a_placement_is_that_of_validation() -> None:
    """The smallest heap that the check accepts is the smallest in which the declared placement fits."""
    for on in ("a", "b", "gateway"):
        kb = next(kb for kb in range(40, 256) if check(two(kb, on)).plan is not None)
        found = of(two(kb, on))
        assert found.case.breaks(found.first) == []
        for host in found.case.hosts[1:]:
            host.heap_bytes -= 1024
        assert {reason for reason, _, _ in found.case.breaks(found.first)} == {HEAP}


def test_operators_in_floats_keep_their_width_unless_drift_is_allowed() -> None:
    from headwater.process import operator
    from headwater.runtime.operator import Operator

    class Floating(Operator):
        IN = ("v:i16",)
        OUT = ("v:i16",)
        FLOATS = True

        def run(self, x: Any, n: int) -> int:
            return n

    for allow, width in ((False, 32), (True, 0)):
        p = Process("test", allow_drift=allow, level="local")
        p.host("a")
        x = p.source("x", "v:i16", rate_hz=10, on="a")
        p.lake("test/x", x >> operator(Floating)().on("a"))
        assert of(p).case.vertices[1].width == width


def test_a_moved_operator_takes_its_checkpoint_along() -> None:
    case = of(two()).case
    assert [v.moved_bytes > 0 for v in case.vertices] == [False, False, True, True, True]
    assert placement.place(case, of(two()).first) is not None


def test_a_voltage_means_a_share_of_the_charge() -> None:
    shares = {2900: 0, 3000: 0, 3300: 2, 3600: 5, 3800: 42, 4000: 80, 4100: 90, 4200: 100, 4300: 100}
    assert {mv: BOARD.percent(mv) for mv in shares} == shares
    assert replace(BOARD, discharge=((3500, 10), (4200, 100))).percent(3000) == 10
