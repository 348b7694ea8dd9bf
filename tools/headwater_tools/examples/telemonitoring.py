"""Telemonitoring: a belt takes and filters the electrocardiogram and finds the beats, a wristband takes the
acceleration, and a third board at the hip knows from both when something is wrong.

This is the process of `hw demo`.
"""

from __future__ import annotations

from headwater.process import Average, Fir, HealthAnalyzer, HeartRate, Magnitude, Process, Qrs
from headwater.process.coefficients import BANDPASS

p = Process("cardio", checkpoints="ecoc", every=360, level="peer", batch=90, batch_ms=500)
p.host("chest", heap_kb=96)
p.host("wrist", heap_kb=96)
p.host("hip", heap_kb=96)
ecg = p.source("ecg", "mV:i16", rate_hz=360, on="chest")
accel = p.source("accel", "x:i16 y:i16 z:i16", rate_hz=50, on="wrist")
beats = ecg >> Fir(BANDPASS) >> Qrs()
rate = beats >> HeartRate(seconds=10).on("hip")
effort = accel >> Magnitude() >> Average(count=50)
alarm = HealthAnalyzer(rate=(40, 90), effort=(0, 700))(rate, effort).on("hip")
p.lake("cardio/ecg", ecg)
p.lake("cardio/accel", accel)
p.lake("cardio/rate", rate)
p.lake("cardio/alarm", alarm, durable="lake", within_ms=20000)
