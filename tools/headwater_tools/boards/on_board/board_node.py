# Runs on MicroPython: the program of a board, with what a virtual board has for hardware.
#     micropython board_start.py IMAGES board_node SECTORS
# in the folder of the board: config.json, its keys, flash.bin, and files that control it:
#   battery   millivolts, as text
#   charge    what its battery has left, in millicoulombs, as text; written here as the board spends it
#   rssi      of the link, as text
#   buzzer, led  what sounds: 1, or 0; the actuators of a virtual board are files, whatever its settings say
#   cut       power fails after this many more bytes have been programmed, as text

import os
import sys
import time

from headwater.data import msgpack

SECTOR = 4096
AGAIN = 42  # exit code of the process when the board restarts


def number_in(path):
    try:
        with open(path) as f:
            return int(f.read())
    except (OSError, ValueError):
        return None


def die():
    import ffi

    libc = ffi.open("libc.so.6")
    libc.func("i", "kill", "ii")(libc.func("i", "getpid", "")(), 9)


# NOR flash in a file: a program only lets bits fall, an erase makes a sector of them rise.
class Flash:
    def __init__(self, path, sectors):
        self.sectors = sectors
        self.blank = b"\xff" * 64
        try:
            self.file = open(path, "r+b")
        except OSError:
            self.file = open(path, "w+b")
        for _ in range(self.file.seek(0, 2) // 64, sectors * SECTOR // 64):
            self.file.write(self.blank)
        self.old = bytearray(64)
        self.left = None  # bytes until power fails

    def readblocks(self, p, buf, off):
        self.file.seek(p * SECTOR + off)
        self.file.readinto(buf)

    def writeblocks(self, p, buf, off):
        n = len(buf)
        if off + n > SECTOR:
            raise ValueError("a program crosses the end of sector %d" % p)
        at = p * SECTOR + off
        old = self.old
        for k in range(0, n, 64):
            part = memoryview(old)[: min(64, n - k)]
            self.file.seek(at + k)
            self.file.readinto(part)
            if part != memoryview(self.blank)[: len(part)]:
                for j in range(len(part)):
                    if buf[k + j] & ~part[j]:
                        raise ValueError("a program at byte %d would raise a bit" % (at + k + j))
        if self.left is None:
            self.left = number_in("cut")
            if self.left is not None:
                os.unlink("cut")
        self.file.seek(at)
        if self.left is not None:
            if n >= self.left:
                self.file.write(memoryview(buf)[: self.left])
                die()
            self.left -= n
        self.file.write(buf)

    def ioctl(self, op, arg):
        if op == 4:
            return self.sectors
        if op == 5:
            return SECTOR
        if op == 6:
            self.file.seek(arg * SECTOR)
            for _ in range(SECTOR // 64):
                self.file.write(self.blank)
        return 0


# Millivolts of a battery that has this much left, in hundredths of a percent: as profile.left reads them.
def voltage(curve, left):
    below = curve[0]
    for point in curve:
        if left < 100 * point[1]:
            if point is below:
                return below[0]
            mv = (point[0] - below[0]) * (left - 100 * below[1])
            return below[0] + mv // (100 * (point[1] - below[1]))
        below = point
    return below[0]


# An actuator: what sounds can be read in a file.
class Shown:
    def __init__(self, path):
        self.path = path

    def set(self, on):
        with open(self.path, "w") as f:
            f.write("1" if on else "0")


class Board:
    def __init__(self, sectors):
        import board_sensors

        self.flash = Flash("flash.bin", sectors)
        self.node = None
        self.left = number_in("charge")  # millicoulombs in the battery; None: it has none that runs down
        self.curve = None  # of its voltage,
        self.capacity_mc = 0  # ... and what it has when it is full
        self.spent = 0  # of what the host of this boot has counted, in nanocoulombs
        self.drivers = {}
        self.actuators = {}
        for name in ("buzzer", "led"):
            self.actuators[name] = lambda settings, name=name: Shown(settings.get("path", name))
        for name in board_sensors.DRIVERS:
            self.drivers[name] = self._maker(board_sensors.DRIVERS[name])

    def _maker(self, kind):
        def make(settings, alphabet, rate_mhz, n):
            driver = kind(settings, alphabet, rate_mhz, n)
            driver.node = self.node
            for v in self.node.host.plan.vertices:
                if v.name == settings["source"]:
                    driver.vertex = v.index
            return driver

        return make

    def random(self):
        return int.from_bytes(os.urandom(8), "little")

    async def online(self):
        pass

    # A battery that runs down gives what the board spends by its own count, and then nothing.
    def battery_mv(self):
        host = self.node.host
        if self.left is None or not (host and host.energy and host.energy.profile):
            return number_in("battery")
        if self.curve is None:
            numbers, self.curve, _ = msgpack.loads(host.energy.profile)
            self.capacity_mc = numbers[0]
        gone = (host.energy.spent_nc - self.spent) // 1000000
        if gone:
            self.spent += gone * 1000000
            self.left -= gone
            if self.left <= 0:
                die()
            with open("charge.new", "w") as f:
                f.write(str(self.left))
            os.rename("charge.new", "charge")
        return voltage(self.curve, 10000 * self.left // self.capacity_mc)

    def rssi(self):
        return number_in("rssi")

    def say(self, line):
        sys.stdout.write(line + "\n")

    def watch(self):
        pass

    def sleep(self, ms):
        time.sleep_ms(ms)
        sys.exit(AGAIN)

    def restart(self):
        sys.exit(AGAIN)


def begin():
    from headwater.board import program, settings
    from headwater.board.unload import unload

    board = Board(int(sys.argv[1]))
    try:
        config = settings.load("config.json")
    except settings.SettingsError as e:
        print(e)
        sys.exit(2)
    unload("board.settings")
    board.node = program.Node(config, board)
    return board.node


def run():
    from headwater.board import program

    program.live(begin())
