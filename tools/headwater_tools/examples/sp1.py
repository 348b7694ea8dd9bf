"""SP1: an electrocardiogram is filtered, and the heart beats found in it go to the lake.

ecg -> clean (band-pass) -> beats -> lake; with raw=True the electrocardiogram goes there too.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.process import Fir, Process, Qrs
from headwater.process.coefficients import BANDPASS


def build(
    checkpoints: str = "ecoc",
    every: int = 500,
    level: str = "peer",
    hosts: Sequence[str] = ("chest", "chest", "chest"),
    heap_kb: int = 128,
    batch: int = 60,
    raw: bool = True,
    backup: Sequence[str] = (),
) -> Process:
    """`hosts`: where ecg, clean and beats run. `backup`: those that may take the operators over."""
    p = Process("sp1", checkpoints=checkpoints, every=every, level=level, batch=batch)
    for host in sorted({*hosts, "wrist"}):
        p.host(host, heap_kb=heap_kb)

    ecg = p.source("ecg", "mV:i16", rate_hz=360, on=hosts[0])
    clean = ecg >> Fir(BANDPASS).named("clean").on(hosts[1], backup or None)
    beats = clean >> Qrs().named("beats").on(hosts[2], backup or None)
    p.lake("sp1/beats", beats)
    if raw:
        p.lake("sp1/ecg", ecg)
    return p


process = build()
