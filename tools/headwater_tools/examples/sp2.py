"""SP2: two sensors, the sum of both over a sliding second, and its average.

left, right -> sum (join) -> average -> lake
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.process import Average, Process, SumJoin

ALPHABET = "level:i16"


def build(
    checkpoints: str = "ecoc",
    every: int = 500,
    level: str = "peer",
    hosts: Sequence[str] = ("left", "right", "left", "right"),
    rate_hz: int = 30,
    heap_kb: int = 128,
    batch: int = 60,
) -> Process:
    """`hosts`: where left, right, sum and average run."""
    p = Process("sp2", checkpoints=checkpoints, every=every, level=level, batch=batch)
    for host in sorted({*hosts}):
        p.host(host, heap_kb=heap_kb)

    left = p.source("left", ALPHABET, rate_hz=rate_hz, on=hosts[0])
    right = p.source("right", ALPHABET, rate_hz=rate_hz, on=hosts[1])
    total = SumJoin(us=1_000_000).named("sum").on(hosts[2])(left, right)
    average = total >> Average(count=50).named("average").on(hosts[3])
    p.lake("sp2/average", average)
    return p


process = build()
