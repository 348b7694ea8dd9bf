# Sensors of a virtual board: their values are a pure function of the number of the sample, so every
# sample that arrives somewhere can be compared with what was measured. Runs on MicroPython and CPython.
#
# Sample i is taken i periods after the moment `t0_us` of the machine's clock; a board that was dead for
# a while continues at the clock's time. Settings beside `driver`:
#   t0_us        microseconds since 1970 of sample 0
#   until_us     of the last one: the sensor gives nothing after it. So does a file `until` with such a number
#   ledger       file to which every accepted batch is added: see `Sampler.taken`
#   path         of a "file": signed 16-bit integers, little-endian, again and again from the start
#   seed         of a "wave" and of "presses"

import time

KEEP = 4  # batches that a sensor keeps until they are taken


# Field k of sample i of a wave: a slow triangle, a fast one that comes and goes, and noise.
def wave(i, k, seed):
    slow = abs((i * (3 + k) + 400 * seed) % 2000 - 1000) - 500
    fast = abs(i * (37 + 11 * k) % 800 - 400) - 200 if i // 500 % 3 == k % 3 else 0
    return slow + fast + ((i * 40503 + k * 9973 + seed * 77) >> 4) % 32


# Field k of press i of a button, and when it was: microseconds after sample 0.
def press(i, k, seed):
    return (i * 7 + k * 3 + seed) % 250


def press_us(i, seed):
    return i * 700000 + (i * 2654435 + seed * 12345) % 500000


class Sampler:
    def __init__(self, settings, alphabet, rate_mhz, n):
        self.settings = settings
        self.rate_mhz = rate_mhz
        self.n = n
        self.t0_us = settings["t0_us"]
        self.seed_number = settings.get("seed", 0)
        until = settings.get("until_us")
        self.last = None if until is None else self._count(until)
        self.lost = False
        self.node = None  # set by the board
        self.vertex = 0
        self.i = self._count(self._wall()) + 1
        self.first = self.i

    def _wall(self):
        return time.time_ns() // 1000

    # How many samples have been taken up to then.
    def _count(self, wall):
        return max(0, (wall - self.t0_us) * self.rate_mhz // 1000000000)

    # The last one, where the file `until` gives one.
    def _until(self):
        try:
            with open("until") as f:
                self.last = self._count(int(f.read()))
        except OSError:
            pass

    # How many can be taken now.
    def _ready(self, wall):
        if self.last is None:
            self._until()
        n = self._count(wall)
        return (n if self.last is None or n < self.last else self.last) - self.i

    def take(self, batch, now):
        wall = self._wall()
        ready = self._ready(wall)
        n = self.n
        if ready < n:
            return None
        if ready > KEEP * n:
            self.lost = True
            self.i += ready - n
        self.first = self.i
        self.fill(batch, self.i, n)
        batch.n = n
        batch.dt = 1000000000 // self.rate_mhz
        self.i += n
        return now - (wall - self.t0_us - self.first * 1000000000 // self.rate_mhz)

    # Source, incarnation, xi of the first entry, how many, number of the first sample, its ts, dt. What was
    # refused has no xi: 0.
    def taken(self, batch, n):
        path = self.settings.get("ledger")
        if path:
            inc = self.node.host.ports[(self.vertex, 0)].inc
            xi = batch.xi if n else 0
            row = (self.settings["source"], inc, xi, batch.n, self.first, batch.ts, batch.dt)
            with open(path, "ab") as f:
                f.write(("%s %016x %d %d %d %d %d\n" % row).encode())

    def fill(self, batch, i, n):
        for k in range(len(batch.cols)):
            col = batch.cols[k]
            for j in range(n):
                col[j] = wave(i + j, k, self.seed_number)


class File(Sampler):
    def __init__(self, settings, alphabet, rate_mhz, n):
        if alphabet.codes != "h":
            raise ValueError("a file holds one field of type i16, not '%s'" % alphabet.text)
        self.file = open(settings["path"], "rb")
        self.size = self.file.seek(0, 2) // 2
        Sampler.__init__(self, settings, alphabet, rate_mhz, n)

    def fill(self, batch, i, n):
        done = 0
        while done < n:
            at = (i + done) % self.size
            part = min(n - done, self.size - at)
            self.file.seek(2 * at)
            self.file.readinto(batch.mem[0][done : done + part])
            done += part


# An irregular source.
class Presses(Sampler):
    def _count(self, wall):
        gone = wall - self.t0_us
        i = max(0, gone // 700000 - 2)
        while press_us(i, self.seed_number) <= gone:
            i += 1
        return i

    def take(self, batch, now):
        wall = self._wall()
        n = min(self._ready(wall), batch.size)
        if n < 1:
            return None
        self.first = self.i
        start = press_us(self.i, self.seed_number)
        for j in range(n):
            batch.at[j] = press_us(self.i + j, self.seed_number) - start
            for k in range(len(batch.cols)):
                batch.cols[k][j] = press(self.i + j, k, self.seed_number)
        batch.n = n
        batch.dt = -1
        self.i += n
        return now - (wall - self.t0_us - start)


DRIVERS = {"file": File, "wave": Sampler, "presses": Presses}
