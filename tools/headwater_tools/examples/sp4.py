"""SP4: SP3 with feedback to both sensors.

left -> attenuate, right -> attenuate -> sum (join) -> average -> lake
average -> both attenuates (feedback)
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.process import Process

from headwater_tools.examples import sp3


def build(
    checkpoints: str = "extended",
    every: int = 500,
    level: str = "peer",
    hosts: Sequence[str] = ("left", "right", "gateway", "gateway"),
    rate_hz: int = 30,
    heap_kb: int = 160,
    batch: int = 60,
    delay_ms: int = 10_000,
    threshold: int = 10_000,
) -> Process:
    """`hosts`: where left, right, sum and average run; what attenuates runs with its sensor."""
    return sp3.build(
        checkpoints, every, level, hosts, rate_hz, heap_kb, batch, delay_ms, threshold, both=True
    )


process = build()
