"""An operator of your own: a pedometer. Ports, parameters and state are declared, `run` takes a batch at
a time; what a checkpoint holds, and how it is packed, follows from the declaration.
"""

from __future__ import annotations

from typing import Any

from headwater.process import Magnitude, Process, operator
from headwater.runtime.operator import Operator


class Steps(Operator):
    """One element for each step: how many there were so far. A step is a swing above `high` and back
    below `low`."""

    IN = ("magnitude:u16",)
    OUT = ("steps:u32",)
    PARAMS = "high:u16=1400 low:u16=1100"
    STATE = "steps:u32 up:u8"

    def run(self: Any, x: Any, n: int) -> int:
        c, out, at = x.cols[0], self.y.cols[0], self.y.at
        steps = self.steps
        up = self.up
        j = 0
        for i in range(n):
            if up and c[i] < self.low:
                up = 0
                steps = (steps + 1) & 0xFFFFFFFF  # wraps explicitly
                out[j], at[j], j = steps, i, j + 1
            elif c[i] > self.high:
                up = 1
        self.steps, self.up = steps, up
        return j


process = Process("pedometer", checkpoints="ecoc", every=500, batch=30)
process.host("wrist", heap_kb=128)
process.host("pocket", heap_kb=128)
accel = process.source("accel", "x:i16 y:i16 z:i16", rate_hz=50, on="wrist")
process.lake("pedometer/steps", accel >> Magnitude() >> operator(Steps)(high=1500))
