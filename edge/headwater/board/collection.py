# When a board collects garbage.
#
# MicroPython collects by itself when a number of bytes, its threshold, has been allocated. Collecting often
# keeps long-lived objects together at the start of the heap, but takes a third of a board's time. So a
# board does it while it makes long-lived objects, and afterwards only as often as its free heap requires.
# Two thirds of what is allocated are stack frames that are freed at once, so three times the free heap can
# be allocated between two collections. Some of the free heap is left out of this: there frames, and what
# TLS needs for a record, still find blocks that are large enough. In a large heap a collection comes sooner:
# what lasts, like an operator that another host handed over, would be made wherever the garbage ends, and
# leave no large block between.
#
# The free heap changes slowly once nothing long-lived is made, and to measure it takes a collection. A
# second's worth of it was a quarter of a board's time in batches of 360.

import gc

from ..offboard.compat import const

STEADY_S = const(10)  # a steady board measures its free heap this often; before that, every second
_OFTEN_BYTES = const(4096)
_LEFT_BYTES = const(6144)
_REUSED = const(3)
_MOST_BYTES = const(32768)


# Before a board makes its host and its link.
def collect_often() -> None:
    gc.threshold(_OFTEN_BYTES)  # type: ignore[attr-defined]  # MicroPython's


# Measure the free heap -> the bytes that are free. `steady`: no long-lived objects are being made.
def collect(steady: bool) -> int:
    gc.collect()
    free: int = gc.mem_free()  # type: ignore[attr-defined]
    most = min(_MOST_BYTES, _REUSED * (free - _LEFT_BYTES))
    gc.threshold(max(_OFTEN_BYTES, most) if steady else _OFTEN_BYTES)  # type: ignore[attr-defined]
    return free
