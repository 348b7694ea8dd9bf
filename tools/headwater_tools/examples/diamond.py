"""Diamond: one sensor, two ways, one join; what splits meets again.

pressure -> slow (exponential average), fast (median, its field renamed) -> both (hold) -> lake
"""

from __future__ import annotations

from headwater.process import ExpAverage, Hold, Map, Median, Process


def build(checkpoints: str = "ecoc", every: int = 500, level: str = "peer", batch: int = 60) -> Process:
    p = Process("diamond", checkpoints=checkpoints, every=every, level=level, batch=batch)
    p.host("arm")
    p.host("belt")
    p.host("chest")

    pressure = p.source("pressure", "mmHg:i16", rate_hz=100, on="arm")
    slow = pressure >> ExpAverage(shift=5).named("slow").on("belt")
    fast = pressure >> Median(k=5).on("chest") >> Map("fast:i16", fast="mmHg").named("fast")
    both = Hold().named("both").on("gateway", backup=["belt", "chest"])(fast, slow)
    p.lake("diamond/both", both)
    return p


process = build()
