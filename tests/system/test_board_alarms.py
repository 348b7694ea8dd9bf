"""Alarms that boards raise themselves, on virtual boards under MicroPython."""

from __future__ import annotations

import time
from typing import Any

from gateway_site import Site, until

PROCESS = """
from headwater.process import Affine, Process, Threshold
p = Process("ward", checkpoints="ecoc", every=50, level="peer", batch=10, batch_ms=500, link_ms=100)
for board in ("wrist", "ankle"):
    p.host(board, heap_kb=256)
accel = p.source("accel", "x:i16 y:i16", rate_hz=20, on="wrist")
steps = p.source("steps", "x:i16 y:i16", rate_hz=20, on="ankle")
best = accel.otherwise(steps >> Affine(num=2).named("half"), after_ms=4000).named("best")
p.lake("ward/accel", accel)
p.lake("ward/best", best.on("gateway", backup=["ankle"]))
p.alarm(accel, silent_ms=12000, on="ankle", name="lost")
"""
LOST = "board.alarm/ankle.lost"


def alarms(site: Site) -> dict[str, dict[str, Any]]:
    state = site.state()
    assert state is not None
    return {alarm["id"]: alarm for alarm in state["alarms"]}


def test_a_buzzer_sounds_while_the_gateway_is_dead(site: Site) -> None:
    site.start_broker()
    site.start_gateway()
    wrist = site.wave_board("wrist", "accel")
    ankle = site.wave_board("ankle", "steps")
    for board in (wrist, ankle):
        board.start()
    (site.folder / "ward.py").write_text(PROCESS)
    site.hw("deploy", "ward.py", "--wait", "120")
    until(lambda: site.stream("ward/best")["durable"] >= 100)
    assert not ankle.sounds()

    # The gateway tells of it, and mutes it.
    wrist.kill()
    until(ankle.sounds, why="the buzzer is quiet")
    until(lambda: LOST in alarms(site), why="the gateway does not tell of it")
    assert "hears nothing of accel" in alarms(site)[LOST]["text"]
    had = site.stream("ward/best")["durable"]
    until(lambda: site.stream("ward/best")["durable"] >= had + 100, why="the other stream is not taken")
    site.command("gateway", "alarms", ".", "--mute", LOST, "--for", "10m")
    until(lambda: not ankle.sounds(), why="the buzzer is not muted")
    wrist.start()
    until(lambda: LOST not in alarms(site), why="the alarm does not end")
    site.command("gateway", "alarms", ".", "--unmute", LOST)

    # Without the gateway a board decides alone, and a restart changes nothing.
    until(lambda: not ankle.sounds())
    site.kill_gateway()
    time.sleep(2)
    wrist.kill()
    until(ankle.sounds, why="the buzzer is quiet without the gateway")
    ankle.kill()
    (ankle.folder / "buzzer").unlink()
    ankle.start()
    until(ankle.sounds, why="the restart has lost the alarm")
    assert ankle.starts >= 2
    ankle.wait_for("buzzer: alarm lost (silent)")
    wrist.start()
    until(lambda: not ankle.sounds(), why="the buzzer does not end")
