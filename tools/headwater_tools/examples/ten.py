"""Ten: five sensors and ten operators on eight hosts, with joins and a feedback loop.

ecg -> calm -> smooth --+-> sum -> level (average) -> high (threshold) -> lake
pressure -> median -----+
accel -> sway ----------+-> posture (hold) -> lake
steps -> pace ----------+
button -> events (debounced) -> lake
level -> calm (feedback: silent, and effective `delay_ms` later)
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.process import (
    Attenuate,
    Average,
    Debounce,
    ExpAverage,
    Hold,
    Median,
    Process,
    SumJoin,
    Threshold,
)
from headwater.process.builder import Spec

BOARDS = ("chest", "wrist", "arm", "ankle", "pocket", "hip", "belt")
# Where each operator runs first, and its backups.
PLACES: dict[str, Sequence[str]] = {
    "calm": ("chest", "belt", "hip"),
    "smooth": ("chest", "belt", "wrist"),
    "median": ("arm", "wrist", "belt"),
    "sum": ("belt", "hip", "chest"),
    "level": ("belt", "hip", "gateway"),
    "sway": ("wrist", "arm", "hip"),
    "pace": ("ankle", "pocket", "hip"),
    "posture": ("hip", "ankle", "gateway"),
    "high": ("hip", "belt", "gateway"),
    "events": ("pocket", "hip", "gateway"),
}


def build(
    checkpoints: str = "extended",
    every: int = 500,
    level: str = "peer",
    places: dict[str, Sequence[str]] = PLACES,
    rate_hz: int = 50,
    batch: int = 60,
    batch_ms: int = 1000,
    delay_ms: int = 15_000,
    threshold: int = 500,
) -> Process:
    p = Process("ten", checkpoints=checkpoints, every=every, level=level, batch=batch, batch_ms=batch_ms)
    for board in BOARDS:
        p.host(board, heap_kb=256, flash_kb=1536)
    ecg = p.source("ecg", "v:i16", rate_hz=rate_hz, on="chest")
    accel = p.source("accel", "g:i16", rate_hz=25, on="wrist")
    pressure = p.source("pressure", "v:i16", rate_hz=20, on="arm")
    steps = p.source("steps", "n:u8", rate_hz=5, on="ankle")
    button = p.source("button", "on:u8", most_hz=5, on="pocket")

    def placed(spec: Spec, name: str) -> Spec:
        host, *backup = places[name]
        return spec.named(name).on(host, backup=backup)

    calm = placed(Attenuate(threshold=threshold), "calm")(ecg)
    smooth = placed(Average(count=5), "smooth")(calm)
    median = placed(Median(k=3), "median")(pressure)
    total = placed(SumJoin(us=500_000, keep=16), "sum")(smooth, median)
    mean = placed(Average(count=4), "level")(total)
    p.feedback(mean, calm, port=1, delay_ms=delay_ms)
    sway = placed(ExpAverage(shift=2), "sway")(accel)
    pace = placed(Average(count=3), "pace")(steps)
    posture = placed(Hold(), "posture")(sway, pace)
    high = placed(Threshold(high=20, low=-20), "high")(mean)
    events = placed(Debounce(ms=200), "events")(button)
    p.lake("ten/ecg", ecg)
    p.lake("ten/level", mean)
    p.lake("ten/high", high)
    p.lake("ten/posture", posture)
    p.lake("ten/events", events)
    return p


process = build()
