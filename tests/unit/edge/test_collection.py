"""When a board collects garbage: often while it starts, then as its free heap requires."""

from __future__ import annotations

from headwater_tools.boards import micropython

SCRIPT = """
import gc
import sys
from headwater.board.collection import collect, collect_often
kept = []
gc.collect()
while gc.mem_free() > int(sys.argv[1]):
    kept = [kept, bytearray(64)]
collect_often()
print(gc.threshold())
collect(False)
print(gc.threshold())
free = collect(True)
print(gc.threshold(), free, gc.mem_free())
"""


def thresholds(free_bytes: int) -> list[int]:
    done = micropython.run(SCRIPT, [str(free_bytes)], "96k", tests=False)
    assert done.returncode == 0, done.stderr
    starting, unsteady, steady, free, left = map(int, done.stdout.split())
    assert starting == unsteady == 4096
    assert 0 <= free - left < 256  # what is left is told
    return [steady, free]


def test_a_board_with_much_free_heap_collects_seldom() -> None:
    steady, free = thresholds(15_000)
    assert free > 12_000
    assert abs(steady - 3 * (free - 6144)) < 64  # in whole blocks


def test_a_board_with_a_large_heap_collects_before_garbage_is_everywhere() -> None:
    steady, free = thresholds(40_000)
    assert 3 * (free - 6144) > 32768 and steady == 32768


def test_a_board_with_little_free_heap_collects_often() -> None:
    steady, free = thresholds(7_000)
    assert free < 8192 and steady == 4096
