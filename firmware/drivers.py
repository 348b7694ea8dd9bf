# Drivers of sensors, as headwater/board/program.py describes them. What touches hardware is given: `read`, a
# bus, a pin. Interrupts allocate nothing; counters wrap as small integers do.

import time
from array import array

_KEEP = 4  # batches that wait to be taken
_MASK = 0x3FFFFFFF
_EDGES = 32


def _gone_us(since, now):
    return (now - since) & _MASK


def _one_field(alphabet):
    if alphabet.codes != "h":
        raise ValueError("this sensor has one field of type i16, not '%s'" % alphabet.text)


# One value for each tick of a timer. Only the tick moves `w`, only the consumer `r`.
class Sampled:
    def __init__(self, read, alphabet, rate_mhz, n, ticks_us=None):
        _one_field(alphabet)
        self.read = read
        self.ticks_us = ticks_us or time.ticks_us
        self.n = n
        self.dt = 1000000000 // rate_mhz
        self.ring = array("h", bytes(2 * _KEEP * n))
        self.w = self.r = 0  # values put and taken
        self.at = 0  # where the next one goes
        self.last_us = 0  # when the last one was taken
        self.lost = False

    def tick(self, timer=None):
        self.last_us = self.ticks_us()
        if (self.w - self.r) & _MASK < len(self.ring):
            self.ring[self.at] = self.read()
            self.at = self.at + 1 if self.at + 1 < len(self.ring) else 0
            self.w = self.w + 1 & _MASK
        else:
            self.lost = True

    def take(self, batch, now):
        n = self.n
        if self.lost:
            # Waiting values precede the missed ones, and their times are not known any more.
            self.r = self.w
            return None
        ready = (self.w - self.r) & _MASK
        at = self.at - ready
        gone_us = _gone_us(self.last_us, self.ticks_us())
        if ready < n:
            return None
        out = batch.cols[0]
        ring = self.ring
        if at < 0:
            at += len(ring)
        for i in range(n):
            out[i] = ring[at]
            at = at + 1 if at + 1 < len(ring) else 0
        batch.n = n
        batch.dt = self.dt
        self.r = self.r + n & _MASK
        return now - gone_us - (ready - 1) * self.dt

    def taken(self, batch, n):
        pass


# Acceleration from an MPU-6050, which samples by itself into a FIFO of 1024 bytes.
class Mpu6050:
    def __init__(self, bus, alphabet, rate_mhz, n, address=0x68):
        if alphabet.codes != "hhh":
            raise ValueError("this sensor has three fields of type i16, not '%s'" % alphabet.text)
        divider = 1000000 // rate_mhz - 1
        if not 0 <= divider <= 255 or (divider + 1) * rate_mhz != 1000000:
            raise ValueError("%d mHz: this sensor has 1000 Hz divided by 1 to 256" % rate_mhz)
        self.bus = bus
        self.address = address
        self.n = n
        self.dt = 1000000000 // rate_mhz
        self.lost = False
        self.word = bytearray(2)
        self.row = bytearray(6)
        for register, value in ((0x6B, 0x80), (0x6B, 1), (0x1A, 3), (0x19, divider), (0x1C, 0x08)):
            self._set(register, value)
            time.sleep(0.1 if value == 0x80 else 0)
        self._set(0x23, 8)  # acceleration goes into the FIFO
        self._restart()

    def _set(self, register, value):
        self.bus.writeto_mem(self.address, register, bytes((value,)))

    def _restart(self):
        self._set(0x6A, 0x04)
        self._set(0x6A, 0x40)

    def take(self, batch, now):
        self.bus.readfrom_mem_into(self.address, 0x72, self.word)
        ready = (self.word[0] << 8 | self.word[1]) // 6
        if ready * 6 >= 1020:
            self._restart()
            self.lost = True
            return None
        n = self.n
        if ready < n:
            return None
        row = self.row
        for i in range(n):
            self.bus.readfrom_mem_into(self.address, 0x74, row)
            for k in range(3):
                v = row[2 * k] << 8 | row[2 * k + 1]
                batch.cols[k][i] = v - 65536 if v > 32767 else v
        batch.n = n
        batch.dt = self.dt
        return now - (ready - 1) * self.dt

    def taken(self, batch, n):
        pass


# A pin that changes: an irregular source, one entry for each edge, with its level.
class Button:
    def __init__(self, pin, alphabet, ticks_us=None):
        if alphabet.codes != "B":
            raise ValueError("a button has one field of type u8, not '%s'" % alphabet.text)
        self.pin = pin
        self.ticks_us = ticks_us or time.ticks_us
        self.levels = bytearray(_EDGES)
        self.times = array("i", bytes(4 * _EDGES))
        self.w = self.r = 0
        self.lost = False

    def edge(self, pin=None):
        if (self.w - self.r) & _MASK < _EDGES:
            self.levels[self.w % _EDGES] = self.pin.value()
            self.times[self.w % _EDGES] = self.ticks_us()
            self.w = self.w + 1 & _MASK
        else:
            self.lost = True

    def take(self, batch, now):
        n = min((self.w - self.r) & _MASK, batch.size)
        if not n:
            return None
        first = self.times[self.r % _EDGES]
        mono = now - _gone_us(first, self.ticks_us())
        for i in range(n):
            k = (self.r + i) % _EDGES
            batch.cols[0][i] = self.levels[k]
            batch.at[i] = _gone_us(first, self.times[k])
        self.r = self.r + n & _MASK
        batch.n = n
        batch.dt = -1
        return mono

    def taken(self, batch, n):
        pass


# ---- actuators


# A pin that is high while an alarm sounds, or low where `low`.
class Switch:
    def __init__(self, pin, low):
        self.pin = pin
        self.low = low

    def set(self, on):
        self.pin.value(int(on != self.low))


# A tone on a pin.
class Tone:
    def __init__(self, pwm):
        self.pwm = pwm

    def set(self, on):
        self.pwm.duty_u16(32768 if on else 0)
