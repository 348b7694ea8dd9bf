"""SP3: SP2 with feedback: while the average is high, the left sensor's values are attenuated.

left -> attenuate, right -> sum (join) -> average -> lake
average -> attenuate (feedback: silent, and effective `delay_ms` later)
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.process import Attenuate, Average, Process, SumJoin

ALPHABET = "level:i16"


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
    both: bool = False,
) -> Process:
    """`hosts`: where left, right, sum and average run; what attenuates runs with its sensor."""
    p = Process("sp4" if both else "sp3", checkpoints=checkpoints, every=every, level=level, batch=batch)
    for host in sorted({*hosts} - {"gateway"}):
        p.host(host, heap_kb=heap_kb, flash_kb=1024)

    left = p.source("left", ALPHABET, rate_hz=rate_hz, on=hosts[0])
    right = p.source("right", ALPHABET, rate_hz=rate_hz, on=hosts[1])
    calm_left = Attenuate(threshold=threshold).named("calm_left")(left)
    calm_right = Attenuate(threshold=threshold).named("calm_right")(right) if both else right
    total = SumJoin(us=1_000_000).named("sum").on(hosts[2])(calm_left, calm_right)
    average = total >> Average(count=50).named("average").on(hosts[3])
    p.feedback(average, calm_left, port=1, delay_ms=delay_ms)
    if both:
        p.feedback(average, calm_right, port=1, delay_ms=delay_ms)
    p.lake(p.name + "/average", average)
    return p


process = build()
