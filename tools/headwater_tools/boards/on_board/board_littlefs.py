# Runs on MicroPython: makes a littlefs image from a folder, or copies the files of an image into one.
#     micropython board_littlefs.py make IMAGE BLOCKS FOLDER
#     micropython board_littlefs.py read IMAGE BLOCKS FOLDER
# The file system has the parameters that MicroPython mounts flash with, and no times: the same files give the
# same image.

import os
import sys

import vfs

BLOCK = 4096
DIRECTORY = 0x4000
PIECE = 8192


# A partition in a file. Beyond the end of the file it is erased.
class Partition:
    def __init__(self, path, blocks):
        self.file = open(path, "r+b")
        self.blocks = blocks
        self.size = self.file.seek(0, 2)
        erased = b"\xff" * BLOCK
        while self.size < blocks * BLOCK:
            self.file.write(erased)
            self.size += BLOCK
        self.erased = erased

    def readblocks(self, block, buf, off=0):
        self.file.seek(block * BLOCK + off)
        self.file.readinto(buf)

    def writeblocks(self, block, buf, off=None):
        if off is None:
            self.ioctl(6, block)
            off = 0
        self.file.seek(block * BLOCK + off)
        self.file.write(buf)

    def ioctl(self, op, arg):
        if op == 4:
            return self.blocks
        if op == 5:
            return BLOCK
        if op == 6:
            self.file.seek(arg * BLOCK)
            self.file.write(self.erased)
        return 0


def copy(source, target):
    for name in sorted(os.listdir(source)):
        here = source + "/" + name
        there = target + "/" + name
        if os.stat(here)[0] & DIRECTORY:
            os.mkdir(there)
            copy(here, there)
        else:
            with open(here, "rb") as old:
                with open(there, "wb") as new:
                    while True:
                        data = old.read(PIECE)
                        if not data:
                            break
                        new.write(data)


def main():
    do, image, blocks, folder = sys.argv[1:]
    if do == "make":
        open(image, "wb").close()
    flash = Partition(image, int(blocks))
    if do == "make":
        vfs.VfsLfs2.mkfs(flash)
    vfs.mount(vfs.VfsLfs2(flash, mtime=False), "/image")
    if do == "make":
        copy(folder, "/image")
    else:
        copy("/image", folder)
    vfs.umount("/image")


main()
