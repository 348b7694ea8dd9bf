"""Two boards on one person: a belt takes the electrocardiogram and the acceleration and finds the heart rate,
and a board at the hip knows from both when something is wrong. Both have Wi-Fi and Bluetooth.

This is the process of `hw demo --ble`, in which the person leaves the house: the broker is away, then the
gateway is out of reach as well, and then the battery at the hip ends. What a process file decides about that:

- `level="peer"` keeps each checkpoint on one host beside the operator's own. An operator that moves from the
  hip to the belt takes its checkpoint along and needs no third host: `backup="chest"` is enough.
- A takeover after a sudden death is another matter. All but one of the hosts that may have the checkpoints
  must answer, and where two boards are named the gateway is one of these. Out of its reach only an operator
  that leaves in time goes on; another one waits for the return.
- Until then the belt keeps what the lake lacks in its flash.
"""

from __future__ import annotations

from headwater.process import Average, Fir, HealthAnalyzer, HeartRate, Magnitude, Process, Qrs
from headwater.process.coefficients import BANDPASS

p = Process("cardio", checkpoints="ecoc", every=360, level="peer", batch=90, batch_ms=500)
p.host("chest", heap_kb=192)
p.host("hip", heap_kb=192)
ecg = p.source("ecg", "mV:i16", rate_hz=360, on="chest")
accel = p.source("accel", "x:i16 y:i16 z:i16", rate_hz=50, on="chest")
beats = ecg >> Fir(BANDPASS).on("chest") >> Qrs().on("chest")
rate = beats >> HeartRate(seconds=10).named("rate").on("chest")
effort = accel >> Magnitude().on("chest") >> Average(count=50).named("effort").on("chest")
alarm = HealthAnalyzer(rate=(40, 90), effort=(0, 700))(rate, effort).named("alarm").on("hip", backup="chest")
p.lake("cardio/ecg", ecg)
p.lake("cardio/accel", accel)
p.lake("cardio/rate", rate)
p.lake("cardio/alarm", alarm)
