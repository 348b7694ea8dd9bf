"""How much memory a local Spark gets, and how much of it whole files may take."""

from __future__ import annotations

import pytest
from headwater_cloud import session

GIB = 1 << 30


@pytest.mark.parametrize("cores", (1, 2, 4, 16))
@pytest.mark.parametrize("memory", (1 * GIB, 2 * GIB, 8 * GIB, 128 * GIB))
def test_a_heap_holds_the_largest_segment_in_each_task_that_reads_one(cores: int, memory: int) -> None:
    heap = session.heap_bytes(cores, memory)
    tasks = session.readers(heap)
    assert heap <= max(GIB, memory // 2)
    assert tasks >= 1
    if tasks > 1 or memory >= 8 * GIB:
        assert session.BASE_BYTES + tasks * session.COPIES * session.SIZE_MAX <= heap
    if memory >= 128 * GIB:
        assert tasks == cores


@pytest.mark.parametrize(
    ("master", "cores"), (("local", 1), ("local[3]", 3), ("local[12,4]", 12), ("local[*]", None))
)
def test_the_cores_of_a_local_master_are_read_from_its_name(master: str, cores: int | None) -> None:
    found = session._cores(master)
    assert found == cores if cores else found >= 1
