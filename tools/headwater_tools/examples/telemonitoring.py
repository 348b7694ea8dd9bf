"""Telemonitoring with four boards. A belt takes and filters the electrocardiogram, an armband finds the
beats, a wristband takes the acceleration, and a board at the hip knows from both when something is wrong.

This is the process of `hw demo`, in which the battery of the hip ends, the armband dies at once and the
gateway is away for a while. What a process file decides about such a day:

- Who may run an operator: the hosts of `.on(...)`, the best first. Name boards whose batteries may help, and
  that are near, as those of one person are.
- `level="peer"` keeps each checkpoint on one host beside the operator's own, so one host may be lost at a
  time. Before an operator starts elsewhere, all but one of the hosts that may have its checkpoints must
  answer. These are its candidates; where they are fewer than three, the gateway is the first to join them.
  So `qrs`, `rate` and `alarm` have three boards each: they start elsewhere even while the gateway is away,
  and one of the three may be dead by then. With the gateway as the third they would wait for its return.
- `fir`, `magnitude` and `effort` follow a sensor on its own board and have nothing to do when that is dead.
  One backup is enough, to which they go if computing costs the board too much.
- `within_ms` is the delay that people accept for an alarm. A silent host is waited for as long as that
  allows, and at least for 15 s, before others take its operators.
"""

from __future__ import annotations

from headwater.process import Average, Fir, HealthAnalyzer, HeartRate, Magnitude, Process, Qrs
from headwater.process.coefficients import BANDPASS

p = Process("cardio", checkpoints="ecoc", every=360, level="peer", batch=90, batch_ms=500)
p.host("chest", heap_kb=192)
p.host("arm", heap_kb=192)
p.host("wrist", heap_kb=192)
p.host("hip", heap_kb=192)
ecg = p.source("ecg", "mV:i16", rate_hz=360, on="chest")
accel = p.source("accel", "x:i16 y:i16 z:i16", rate_hz=50, on="wrist")
clean = ecg >> Fir(BANDPASS).on("chest", backup="wrist")
beats = clean >> Qrs().on("arm", backup=["wrist", "chest"])
rate = beats >> HeartRate(seconds=10).named("rate").on("hip", backup=["wrist", "chest"])
moved = accel >> Magnitude().on("wrist", backup="chest")
effort = moved >> Average(count=50).named("effort").on("wrist", backup="chest")
alarm = HealthAnalyzer(rate=(40, 90), effort=(0, 700))(rate, effort).named("alarm")
alarm.on("hip", backup=["wrist", "chest"])
p.lake("cardio/ecg", ecg)
p.lake("cardio/accel", accel)
p.lake("cardio/rate", rate)
p.lake("cardio/alarm", alarm, durable="lake", within_ms=20_000)
