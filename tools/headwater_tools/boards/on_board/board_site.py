# Runs on MicroPython: a virtual board of a site (`hw board run`). It is the program of a board
# (`board_node.py`) with two more drivers, and with a sensor for every source of whatever process comes.
#
#   recording    plays a file that `boards/recording.py` made of a CSV: one row a sample
#   synthetic    what a sensor of this field might give, by the name of the field (`value`)
#
# A source that the configuration does not name gets a synthetic sensor: which sources there are is known
# only when a process is deployed. The file `began` holds the moment of sample 0, in microseconds since 1970.

import struct
import time

# By name: a linked image knows attributes of the package by other names, and so `board_node.begin` too.
from board_node import begin, number_in
from board_sensors import DRIVERS, KEEP, Presses, Sampler

KINDS = {
    "heart": "mv uv ecg adc lead",
    "turning": "x y z mg",
    "switch": "on open closed pressed button motion state door bool",
}
# Kind -> centre, and how far the value swings to either side.
SWINGS = {
    "centi_c": (2000, 400),
    "deci_c": (200, 40),
    "milli_c": (20000, 4000),
    "c temp temperature celsius degc": (20, 4),
    "percent rh humidity soil moisture level": (55, 25),
    "hpa mbar": (1013, 8),
    "pa pressure": (101325, 800),
    "lux light": (400, 390),
    "ppm co2 voc": (700, 250),
    "bpm rate pulse": (70, 12),
    "db": (45, 15),
    "w watt power": (150, 120),
    "mm cm distance": (400, 200),
}
PERIOD_S = 120  # of a swing: short enough to see it on the page
# Of one beat, in thousandths of it: (moment, height in thousandths of the R wave).
BEAT = (
    (0, 0), (100, 0), (150, 120), (200, 0), (230, -100), (255, 1000), (285, -250), (310, 0),
    (420, 0), (500, 250), (580, 0), (1000, 0),
)  # fmt: skip
BITS = {"b": 7, "B": 8, "h": 15, "H": 16, "i": 31, "I": 32, "q": 63, "Q": 64}


# Between -1000 and 1000: nearly a sine of i, without floats.
def swing(i, period):
    x = i % period * 2000 // period
    h = x % 1000
    y = 4 * h * (1000 - h) // 1000
    return y if x < 1000 else -y


# One heart beat in 0.83 s.
def beat(i, rate_mhz):
    n = max(2, rate_mhz * 83 // 100000)
    at = i % n * 1000 // n
    for k in range(1, len(BEAT)):
        t1, h1 = BEAT[k]
        if at < t1:
            t0, h0 = BEAT[k - 1]
            return h0 + (h1 - h0) * (at - t0) // (t1 - t0)
    return 0


def noise(i, k, width):
    return ((i * 40503 + k * 9973) >> 4) % (2 * width + 1) - width


# What the sensor of a field gives: ("heart", 0, 0), ("swing", centre, width), ... The longest name counts
# that is the field's, or is its end after an underscore: `air_centi_c` is in hundredths of a degree.
def kind_of(name):
    low = "_" + name.lower()
    best = 0
    found = ("other", 0, 0)
    for kind in KINDS:
        for known in KINDS[kind].split():
            if len(known) > best and low.endswith("_" + known):
                best = len(known)
                found = (kind, 0, 0)
    for names in SWINGS:
        for known in names.split():
            if len(known) > best and low.endswith("_" + known):
                best = len(known)
                found = ("swing", SWINGS[names][0], SWINGS[names][1])
    return found


# Sample i of a field, a whole number; `k` is the place of the field in the alphabet.
def value(kind, i, k, rate_mhz):
    what, centre, width = kind
    period = max(2, rate_mhz * PERIOD_S // 1000)
    if what == "heart":
        return 1000 * beat(i, rate_mhz) // 1000 + 60 * swing(i, period) // 1000 + noise(i, k, 8)
    if what == "turning":
        still = 1000 if k == 2 else 0
        moves = i % period * 3 // period == 1
        return (
            still
            + (swing(i * (3 + k), max(2, rate_mhz // 500)) * 400 // 1000 if moves else 0)
            + noise(i, k, 12)
        )
    if what == "switch":
        return i % period * 6 // period & 1
    if what == "swing":
        return centre + width * swing(i, period) // 1000 + noise(i, k, max(1, width // 100))
    return 50 + 50 * swing(i + k * period // 7, period) // 1000


def within(x, code):
    bits = BITS.get(code)
    if bits is None:
        return x
    low = -(1 << bits) if code in "bhiq" else 0
    return min(max(x, low), (1 << bits) - 1)


def fields(alphabet):
    names = [part.partition(":")[0] for part in alphabet.text.split()]
    return [(kind_of(names[k]), alphabet.codes[k]) for k in range(len(names))]


class Waves(Sampler):
    def __init__(self, settings, alphabet, rate_mhz, n):
        Sampler.__init__(self, settings, alphabet, rate_mhz, n)
        self.kinds = fields(alphabet)

    def fill(self, batch, i, n):
        for k in range(len(self.kinds)):
            kind, code = self.kinds[k]
            col = batch.cols[k]
            for j in range(n):
                col[j] = within(value(kind, i + j, k, self.rate_mhz), code)


# A source without a rate: an event every 0.7 s or so, with a value of the same shapes.
class Events(Presses):
    def __init__(self, settings, alphabet, rate_mhz, n):
        Presses.__init__(self, settings, alphabet, rate_mhz, n)
        self.kinds = fields(alphabet)

    def take(self, batch, now):
        at = Presses.take(self, batch, now)
        if at is not None:
            for k in range(len(self.kinds)):
                kind, code = self.kinds[k]
                for j in range(batch.n):
                    batch.cols[k][j] = within(value(kind, self.first + j, k, 1000), code)
        return at


def synthetic(settings, alphabet, rate_mhz, n):
    return (Waves if rate_mhz else Events)(settings, alphabet, rate_mhz, n)


# Row i of the file is sample i; after the last row comes the first one, or nothing. A file for a source
# without a rate gives one row a second.
class Recording(Sampler):
    def __init__(self, settings, alphabet, rate_mhz, n):
        self.file = open(settings["path"], "rb")
        head = self.file.readline().decode().strip()
        text, _, how = head.rpartition(" ")
        if text != alphabet.text:
            raise ValueError(
                "%s was made for the fields %s, and the process has %s: start the board again"
                % (settings["path"], text, alphabet.text)
            )
        self.start = self.file.seek(0, 1)
        self.layout = "<" + alphabet.codes
        self.width = struct.calcsize(self.layout)
        self.rows = (self.file.seek(0, 2) - self.start) // self.width
        self.irregular = not rate_mhz
        self.buffer = bytearray(self.width)
        fresh = self._begin(settings)
        Sampler.__init__(self, settings, alphabet, rate_mhz or 1000, n)
        if fresh:
            self.i = 0
        if how == "once":
            self.last = self.rows
        self.over = False

    # Sample 0 is taken when the process first asks for one, and later boots go on from there.
    def _begin(self, settings):
        path = settings["path"] + ".began"
        settings["t0_us"] = number_in(path)
        if settings["t0_us"] is not None:
            return False
        settings["t0_us"] = self._wall()
        with open(path, "w") as f:
            f.write(str(settings["t0_us"]))
        return True

    def take(self, batch, now):
        wall = self._wall()
        ready = self._ready(wall)
        at_end = self.last is not None and self.i + ready >= self.last
        n = self.n
        if ready < n:
            if not at_end or ready < 1:
                if at_end and not self.over:
                    self.over = True
                    self.node.board.say("%s: the recording has ended" % self.settings["source"])
                return None
            n = ready
        if ready > KEEP * n and not at_end:
            self.lost = True
            self.i += ready - n
        self.first = self.i
        self._rows(batch, n)
        batch.n = n
        period_us = 1000000000 // self.rate_mhz
        batch.dt = -1 if self.irregular else period_us
        if self.irregular:
            for j in range(n):
                batch.at[j] = j * period_us
        self.i += n
        return now - (wall - self.t0_us - self.first * 1000000000 // self.rate_mhz)

    def _rows(self, batch, n):
        at = -1
        for j in range(n):
            row = (self.i + j) % self.rows
            if row != at:
                self.file.seek(self.start + row * self.width)
            self.file.readinto(self.buffer)
            values = struct.unpack_from(self.layout, self.buffer, 0)
            for k in range(len(values)):
                batch.cols[k][j] = values[k]
            at = row + 1


# The sensors of the configuration, and a synthetic one for every other source.
class Sensors:
    def __init__(self, known, t0_us):
        self.known = known
        self.t0_us = t0_us

    def __contains__(self, name):
        return True

    def get(self, name):
        return self.known.get(name) or {"driver": "synthetic", "source": name, "t0_us": self.t0_us}


def began():
    t0_us = number_in("began")
    return int(time.time()) * 1000000 if t0_us is None else t0_us


def run():
    from headwater.board import program

    DRIVERS["synthetic"] = synthetic
    DRIVERS["recording"] = Recording
    made = begin()
    made.config["sensors"] = Sensors(made.config["sensors"], began())
    program.live(made)
