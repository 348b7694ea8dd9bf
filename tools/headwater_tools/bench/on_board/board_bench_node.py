# Runs on MicroPython: the whole program of a board, with a sensor that is faster than a real one, and what
# its heap holds meanwhile.
#     micropython boards/on_board/board_start.py IMAGES board_bench_node:run SECTORS
# Settings of the sensor beside those of a "file":
#   speed      how many times the rate of its source it has
#   elements   the number it gives; then the board reports, and continues without samples. 0: the board is at
#              rest from the start, and tells what it holds, and which links it has

import gc
import sys

import board_node
import board_sensors
from board_bench_free import largest

REST_US = 300000  # between two looks at rest
WAYS = "headwater.ways"  # loaded where there is Bluetooth
LOOKS = 40  # how often the heap is measured during the run


class Fast(board_sensors.File):
    def __init__(self, settings, alphabet, rate_mhz, n):
        self.speed = settings["speed"]
        self.elements = settings["elements"]
        self.accepted = self.missed = self.holes = self.live = self.looks = 0
        self.block = 1 << 30
        self.begun = False
        self.rest_us = 0
        self.links = ""
        board_sensors.File.__init__(self, settings, alphabet, rate_mhz * self.speed, n)

    def take(self, batch, now):
        if not self.begun:
            self.begun = True
            for sensor in self.node.sensors:
                sensor.every_us //= self.speed
            sys.stdout.write("bench begins\n")
        self.look_at_links()
        if self.accepted >= self.elements:
            if not self.elements and now >= self.rest_us:
                self.rest_us = now + REST_US
                self.look_at_rest()
            return None
        mono = board_sensors.File.take(self, batch, now)
        self.holes += self.lost
        return mono

    def look_at_rest(self):
        gc.collect()
        live = gc.mem_alloc()
        loaded = [name[10:] for name in sys.modules if name.startswith("headwater.")]
        sys.stdout.write("bench rest links %s live %d modules %s\n" % (self.links, live, " ".join(loaded)))

    # Which links there are: B for Bluetooth, M for the broker.
    def look_at_links(self):
        client = self.node.client
        ble = False
        if WAYS in sys.modules:
            ble = client.ble.up
            client = client.client
        links = ("B" if ble else "-") + ("M" if client.up else "-")
        if links != self.links:
            self.links = links
            sys.stdout.write("bench links %s\n" % links)

    def taken(self, batch, n):
        self.accepted += n
        self.missed += batch.n - n
        if self.accepted < min((self.looks + 1) * (self.elements // LOOKS), self.elements):
            return
        self.looks += 1
        gc.collect()
        self.live = max(self.live, gc.mem_alloc())
        self.block = min(self.block, largest())
        if self.accepted >= self.elements:
            numbers = (self.accepted, self.missed, self.holes, self.live, gc.mem_free(), self.block)
            sys.stdout.write("bench accepted %d missed %d holes %d live %d free %d block %d\n" % numbers)


def run():
    board_sensors.DRIVERS["fast"] = Fast
    board_node.run()
