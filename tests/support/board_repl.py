# Runs on MicroPython's Unix port, in a raw terminal: the prompt and the surroundings of a board, which the
# Unix port lacks. Raw REPL with raw paste, for mpremote; partitions of a flash file; littlefs at /, ROMFS at
# /rom; stand-ins for machine, esp32.Partition and an I2C bus.
#     micropython board_repl.py FLASH LABEL:OFFSET:SIZE,... ADDRESS,... romfs|stock [MAIN]
# MAIN runs before the prompt, as main.py does. A reset ends the program with RESET; what started it starts it
# again.

import gc
import io
import os
import sys

import vfs

RESET = 42
SECTOR = 4096
WINDOW = 128


# A partition of the flash file. Erased bytes are 0xFF, programming only clears bits.
class Partition:
    TYPE_DATA = 1

    def __init__(self, path, start, size):
        self.file = open(path, "r+b")
        self.start = start
        self.size = size

    @staticmethod
    def find(kind, label=None):
        return [partitions[label]] if label in partitions else []

    def readblocks(self, block, buf, off=0):
        self.file.seek(self.start + block * SECTOR + off)
        self.file.readinto(buf)

    def writeblocks(self, block, buf, off=None):
        if off is None:
            for k in range(len(buf) // SECTOR):
                self.ioctl(6, block + k)
            off = 0
        at = self.start + block * SECTOR + off
        self.file.seek(at)
        old = self.file.read(len(buf))
        self.file.seek(at)
        self.file.write(bytes([a & b for a, b in zip(old, buf)]))
        self.file.flush()

    def ioctl(self, op, arg):
        if op == 4:
            return self.size // SECTOR
        if op == 5:
            return SECTOR
        if op == 6:
            self.file.seek(self.start + arg * SECTOR)
            self.file.write(b"\xff" * SECTOR)
            self.file.flush()
        return 0


class Module:
    def __init__(self, **names):
        for name in names:
            setattr(self, name, names[name])


class SoftI2C:
    def __init__(self, scl, sda, freq=0, timeout=0):
        if (scl, sda) != (22, 21):
            raise OSError(116)  # nothing pulls these lines up

    def scan(self):
        return addresses


def reset():
    sys.exit(RESET)


def start(path, table, romfs):
    for entry in table.split(","):
        label, offset, size = entry.split(":")
        partitions[label] = Partition(path, int(offset), int(size))
    sys.modules["machine"] = Module(Pin=int, SoftI2C=SoftI2C, reset=reset)
    sys.modules["esp32"] = Module(Partition=Partition)
    if "vfs" in partitions:
        try:
            system = vfs.VfsLfs2(partitions["vfs"])
        except OSError:
            vfs.VfsLfs2.mkfs(partitions["vfs"])
            system = vfs.VfsLfs2(partitions["vfs"])
        vfs.umount("/")
        vfs.mount(system, "/")
        os.chdir("/")
    sys.path[:] = ["", ".frozen", "/lib"]
    if romfs:
        where = partitions["romfs"]
        image = bytearray(where.size)
        where.readblocks(0, image)
        try:
            vfs.mount(vfs.VfsRom(image), "/rom")
            sys.path += ["/rom", "/rom/lib"]
        except OSError:
            pass  # nothing was flashed
    else:
        names = {name: getattr(vfs, name) for name in dir(vfs) if name not in ("VfsRom", "__name__")}
        sys.modules["vfs"] = Module(**names)


def get():
    byte = sys.stdin.buffer.read(1)
    if not byte:
        sys.exit(0)
    return byte


def put(data):
    sys.stdout.buffer.write(data)


# Runs code and reports as a board does; True where it ended with a soft reset.
def run(space, code):
    told = b""
    try:
        exec(code, space)
    except SystemExit as e:
        if e.args and e.args[0] == RESET:
            raise
        return True
    except BaseException as e:
        text = io.StringIO()
        sys.print_exception(e, text)
        told = text.getvalue().encode()
    put(b"\x04" + told + b"\x04")
    return False


# The code of a raw paste, with its flow control; None where it was broken off.
def pasted():
    put(b"R\x01" + WINDOW.to_bytes(2, "little") + b"\x01")
    code = bytearray()
    while True:
        byte = get()
        if byte == b"\x04":
            put(b"\x04")
            return bytes(code).decode()
        if byte == b"\x03":
            put(b"\x04")
            return None
        code += byte
        if len(code) % WINDOW == 0:
            put(b"\x01")


def fresh():
    gc.collect()
    return {"__name__": "__main__"}


def raw():
    put(b"raw REPL; CTRL-B to exit\r\n>")
    space = fresh()
    line = bytearray()
    while True:
        byte = get()
        if byte == b"\x01":
            put(b"raw REPL; CTRL-B to exit\r\n>")
        elif byte == b"\x02":
            put(b"\r\n")
            return
        elif byte == b"\x05" and get() == b"A":
            get()
            code = pasted()
            if code is not None and run(space, code):
                space = fresh()
            put(b">")
        elif byte == b"\x04" and not line:
            put(b"OK\r\nMPY: soft reboot\r\n")
            space = fresh()
            put(b"raw REPL; CTRL-B to exit\r\n>")
        elif byte == b"\x04":
            put(b"OK")
            if run(space, bytes(line).decode()):
                space = fresh()
            put(b">")
        elif byte != b"\x03":
            line += byte
            continue
        line = bytearray()


def main():
    if len(sys.argv) > 5:
        exec(open_main, {"__name__": "__main__"})
    put(b"\r\nMicroPython of a board\r\n>>> ")
    while True:
        byte = get()
        if byte == b"\x01":
            raw()
            put(b">>> ")
        elif byte == b"\x04":
            put(b"\r\nMPY: soft reboot\r\n>>> ")


partitions = {}
addresses = [int(word) for word in sys.argv[3].split(",") if word]
open_main = ""
if len(sys.argv) > 5:
    with open(sys.argv[5]) as file:
        open_main = file.read()
start(sys.argv[1], sys.argv[2], sys.argv[4] == "romfs")
main()
