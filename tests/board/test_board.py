# The board itself: what the tests under MicroPython stand on.

import sys


def test_small_integers_end_where_a_board_ends_them():
    if sys.implementation.name == "micropython":
        assert sys.maxsize == 2**31 - 1
        assert sys.implementation[1][:3] == (1, 25, 0)


def test_data_files_are_read_from_the_root_of_the_repository():
    with open("docs/architecture.md") as f:
        assert f.readline().startswith("# ")


def test_package_comes_from_flash_and_leaves_the_heap_free():
    from headwater.data import batch

    assert batch.SPAN_US == (1 << 30) - 1
    if sys.implementation.name == "micropython":
        import gc

        gc.collect()
        assert batch.__file__ == "/rom0/headwater/data/batch.mpy"
        assert gc.mem_alloc() + gc.mem_free() < 65536
