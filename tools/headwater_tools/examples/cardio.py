"""Cardio: an alarm when heart rate and effort together leave their limits.

A belt with electrodes takes the electrocardiogram, a wristband the acceleration.
"""

from __future__ import annotations

from headwater.process import Average, Fir, HealthAnalyzer, HeartRate, Magnitude, Process, Qrs
from headwater.process.coefficients import BANDPASS

p = Process("cardio", checkpoints="ecoc", every=500)
ecg = p.source("ecg", "mV:i16", rate_hz=360, on="chest")
accel = p.source("accel", "x:i16 y:i16 z:i16", rate_hz=50, on="wrist")
clean = ecg >> Fir(BANDPASS)
rate = clean >> Qrs() >> HeartRate(seconds=10)
effort = accel >> Magnitude() >> Average(count=50)
alarm = HealthAnalyzer(rate=(40, 180), effort=(0, 900))(rate, effort)
p.lake("cardio/ecg", ecg)
p.lake("cardio/alarm", alarm, durable="lake", within_ms=20000)
