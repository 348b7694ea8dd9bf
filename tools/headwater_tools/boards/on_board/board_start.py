# Runs on MicroPython: mounts ROMFS images from memory outside the heap, as a board has them in its
# flash, and imports a module from them.
#     micropython board_start.py IMAGE,IMAGE MODULE ARGUMENTS...
# A module argument of the form MODULE:NAME calls that function of it.

import sys


def mount(path, at):
    import os

    import ffi
    import uctypes
    import vfs

    libc = ffi.open("libc.so.6")
    handle = libc.func("i", "open", "si")(path, 0)
    size = os.stat(path)[6]
    # PROT_READ, MAP_PRIVATE
    address = libc.func("P", "mmap", "Piiiii")(None, size, 1, 2, handle, 0)
    if handle < 0 or address in (0, -1, 0xFFFFFFFF):
        raise OSError("cannot map " + path)
    vfs.mount(vfs.VfsRom(uctypes.bytearray_at(address, size)), at)
    sys.path.append(at)


def begin():
    import gc

    sys.path[:] = [".frozen"]  # asyncio is there
    images = sys.argv[1].split(",")
    for i in range(len(images)):
        mount(images[i], "/rom%d" % i)  # noqa: F821
    module, _, name = sys.argv[2].partition(":")
    del sys.argv[:2]
    sys.argv[0] = module
    gc.collect()
    return module, name


module, name = begin()
del begin, mount
found = __import__(module)
if name:
    getattr(found, name)()
