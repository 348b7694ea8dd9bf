"""Body: what three boards on a person give to each other, so that one of them may die.

chest: pulse -> smooth ----+
                           +-> hip: both (hold) -> alarm (threshold) -> lake
wrist: motion -> effort ---+

The operators of the hip's board go to the wrist, then to the gateway. The scenarios play with it:
`hw sim --scenario hip_runs_down --timeline hip.svg`.
"""

from __future__ import annotations

from headwater.process import Average, ExpAverage, Hold, Process, Threshold

p = Process("body", checkpoints="ecoc", every=60, level="peer", batch=25, batch_ms=500)
for board in ("chest", "wrist", "hip"):
    p.host(board, heap_kb=128)
pulse = p.source("pulse", "mV:i16", rate_hz=50, on="chest")
motion = p.source("motion", "g:i16", rate_hz=25, on="wrist")
smooth = pulse >> ExpAverage(shift=3).named("smooth").on("chest", backup=["wrist", "gateway"])
effort = motion >> Average(count=5).named("effort").on("wrist", backup=["chest", "gateway"])
both = Hold().named("both").on("hip", backup=["wrist", "gateway", "chest"])(smooth, effort)
high = Threshold(high=200, low=-200, field="mV").named("alarm")
alarm = both >> high.on("hip", backup=["wrist", "gateway", "chest"])
p.lake("body/pulse", pulse)
p.lake("body/both", both)
p.lake("body/alarm", alarm)
