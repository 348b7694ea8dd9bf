# Runs on MicroPython: what can still be allocated.

import gc


# The largest block that can be allocated now.
def largest():
    gc.collect()
    low = 0
    high = gc.mem_free()
    while high - low > 16:
        mid = (low + high) // 2
        try:
            bytearray(mid)
            low = mid
        except MemoryError:
            high = mid
        gc.collect()
    return low
