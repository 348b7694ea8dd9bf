"""A lease is a file that only one of several can create."""

from __future__ import annotations

import threading
from pathlib import Path

from headwater_cloud.files import create_new


def test_of_many_that_create_a_file_at_the_same_moment_one_does(tmp_path: Path) -> None:
    for n in range(20):
        path = tmp_path / "lease" / ("%d.json" % n)
        barrier = threading.Barrier(8)
        won: list[int] = []

        def contend(i: int, path: Path = path, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            if create_new(path, "%d" % i):
                won.append(i)  # noqa: B023

        threads = [threading.Thread(target=contend, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [path.read_text()] == ["%d" % i for i in won]
