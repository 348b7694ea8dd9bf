# Runs on MicroPython: the bytes of heap that modules take which stay loaded, as a board has them.
#     micropython board_heap.py IMAGE KIND BLOCKS MODULE...
# The image lies outside the heap, as in flash. KIND: romfs, used where it lies; littlefs, copied into the
# heap, from a partition of this many blocks.

import gc
import sys

import ffi
import uctypes
import vfs

BLOCK = 4096


# The content of a file, not in the heap.
def mapped(path):
    import os

    libc = ffi.open("libc.so.6")
    handle = libc.func("i", "open", "si")(path, 0)
    size = os.stat(path)[6]
    # PROT_READ, MAP_PRIVATE
    address = libc.func("P", "mmap", "Piiiii")(None, size, 1, 2, handle, 0)
    if handle < 0 or address in (0, -1, 0xFFFFFFFF):
        raise OSError("cannot map " + path)
    return uctypes.bytearray_at(address, size)


# A partition that is only read.
class Partition:
    def __init__(self, flash, blocks):
        self.flash = memoryview(flash)
        self.blocks = blocks

    def readblocks(self, block, buf, off=0):
        at = block * BLOCK + off
        n = max(0, min(len(buf), len(self.flash) - at))
        buf[:n] = self.flash[at : at + n]
        for i in range(n, len(buf)):
            buf[i] = 255

    def ioctl(self, op, arg):
        return {4: self.blocks, 5: BLOCK}.get(op, 0)


def main():
    image, kind, blocks, *modules = sys.argv[1:]
    flash = mapped(image)
    if kind == "romfs":
        vfs.mount(vfs.VfsRom(flash), "/rom")
        sys.path[:] = [".frozen", "/rom"]
    else:
        vfs.mount(vfs.VfsLfs2(Partition(flash, int(blocks))), "/flash", readonly=True)
        sys.path[:] = [".frozen", "/flash/lib"]
    gc.collect()
    before = gc.mem_alloc()
    for module in modules:
        __import__(module)
    gc.collect()
    print(gc.mem_alloc() - before)


main()
