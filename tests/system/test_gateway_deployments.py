"""Processes that change and change back: every output of every deployment arrives, once and as its own.

Broker, gateway, cutter and board are real; what the board accepted is the judge."""

from __future__ import annotations

from typing import Any

from gateway_site import Site, until
from headwater_tools.boards.on_board.board_sensors import wave

PROCESS = """
from headwater.process import Affine, Process
p = Process("one", checkpoints="ecoc", every=50, batch=25)
accel = p.source("accel", "x:i16 y:i16", rate_hz=50, on="wrist")
p.lake("one/accel", accel)
p.lake("one/scaled", accel >> Affine(num=%d))
"""


def deploy(site: Site, num: int) -> dict[str, Any]:
    """Deploy the version that multiplies by `num`, until the board runs it."""
    (site.folder / "one.py").write_text(PROCESS % num)
    site.hw("deploy", "one.py", "--wait", "60")
    ended = until(lambda: (s := site.state()) and s["processes"]["one"]["step"] == "runs" and s)
    return dict(ended["processes"]["one"])


def outputs_of(site: Site, factor: dict[str, int], end_us: int) -> dict[int, tuple[int, list[int]]]:
    """ts -> (factor of its deployment, values) of every output up to a time; none twice.

    `factor`: incarnation of a deployment -> what it multiplies by."""
    rows = list(site.rows("one/scaled"))
    assert len({(row["incarnation"], row["xi"]) for row in rows}) == len(rows)
    outputs: dict[int, tuple[int, list[int]]] = {}
    for row in rows:
        ts = row["ts_us"]
        if ts <= end_us:
            assert ts not in outputs, "the sample of %d caused two outputs" % ts
            outputs[ts] = (factor["%016x" % row["incarnation"]], row["ints"])
    return outputs


def test_versions_that_come_again_lose_nothing_and_double_nothing(site: Site) -> None:
    site.start_broker()
    site.start_gateway()
    board = site.wave_board()
    board.start()
    deployed = []
    # From the third on they follow each other at once: nothing has caught up with what came before.
    for num, stay in ((2, 150), (3, 60), (2, 0), (3, 0), (2, 0), (3, 100)):
        process = deploy(site, num)
        deployed.append((num, process))
        if stay:
            until(lambda: site.stream("one/scaled")["durable"] >= stay, why=site.consoles())  # noqa: B023
    factor = {str(process["hash"]): num for num, process in deployed}
    accepted = board.accepted()
    samples = {b.ts + i * b.dt: b.first + i for b in accepted for i in range(b.n)}
    assert len(samples) == sum(b.n for b in accepted) >= 310
    until(lambda: outputs_of(site, factor, max(samples)).keys() >= samples.keys(), why=site.consoles())
    outputs = outputs_of(site, factor, max(samples))
    assert outputs.keys() == samples.keys()
    for ts, (num, values) in outputs.items():
        assert values == [num * wave(samples[ts], k, 3) for k in range(2)]
    assert {num for num, _ in outputs.values()} == {2, 3}
    until(lambda: max(row["xi"] for row in site.rows("one/accel")) >= accepted[-1].xi)
    raw = {row["xi"] for row in site.rows("one/accel")}
    assert raw >= {b.xi + i for b in accepted for i in range(b.n)}
    assert not any("crashed" in line for line in board.lines)

    assert [process["deployment"] for _, process in deployed] == [1, 2, 3, 4, 5, 6]
    assert len({process["version"] for _, process in deployed}) == 2
    assert len(factor) == 6
    again = site.command("deploy", "one.py")
    assert "deployment 6: unchanged" in again.stdout, again.stdout + again.stderr
