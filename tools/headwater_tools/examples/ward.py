"""A ward: what goes on when a sensor falls silent, and a board that sounds its buzzer without the gateway.

The heart rate comes from the chest; while that is silent, the pulse of the wrist takes its place. The
analyzer does without the accelerometer of the hip. The wrist sounds its buzzer when the analyzer says so, or
when it hears nothing of it for half a minute.
"""

from __future__ import annotations

from headwater.process import Average, Fir, HealthAnalyzer, HeartRate, Magnitude, Process, Qrs
from headwater.process.coefficients import BANDPASS

p = Process("ward", checkpoints="extended", every=500)
p.host("chest", heap_kb=192)
p.host("wrist", heap_kb=192)
p.host("hip", heap_kb=192)

ecg = p.source("ecg", "mV:i16", rate_hz=360, on="chest")
pulse = p.source("pulse", "mV:i16", rate_hz=360, on="wrist")
accel = p.source("accel", "x:i16 y:i16 z:i16", rate_hz=50, on="hip")

chest = ecg >> Fir(BANDPASS).named("chest_clean") >> Qrs().named("chest_beats")
wrist = pulse >> Fir(BANDPASS).named("wrist_clean") >> Qrs().named("wrist_beats")
beats = chest.otherwise(wrist, after_ms=20_000, local=True).named("beats")
rate = beats >> HeartRate(seconds=10).named("rate")
effort = accel >> Magnitude() >> Average(count=50)
alarm = HealthAnalyzer(rate=(40, 180), effort=(0, 900))(rate, effort.absent_after(30_000))

p.lake("ward/ecg", ecg)
p.lake("ward/pulse", pulse)
p.lake("ward/rate", rate)
p.lake("ward/alarm", alarm.named("analyzer").on("wrist", backup=["gateway", "hip"]), within_ms=60_000)
p.alarm(alarm, field="alarm", silent_ms=30_000, on="wrist", driver="buzzer", name="heart")
p.alarm(chest, silent_ms=30_000, on="wrist", driver="led", name="chest_lost")
