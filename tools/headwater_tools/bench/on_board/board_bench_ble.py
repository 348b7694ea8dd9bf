# Runs on MicroPython with Bluetooth: the radio and the carrier of a board, without its host.
#     micropython boards/on_board/board_start.py IMAGES board_bench_ble:run SECTORS
# in the folder of the board. Frames of the gateway tell what to do (support/ble_ends.py):
#   b"u" + count          send so many frames of the longest length
#   b"d" + count          so many frames of data come, each beginning with b"x"; then tell how long they took
#   b"g"                  answer: a connection without a frame that is genuine is closed
#   b"h" + number         tell the free heap, on the console, once this connection is over

import gc
import json
import time

from headwater.board.ble import Radio
from headwater.protocol.ble_carrier import BleCarrier
from headwater.protocol.ble_info import GATEWAY
from headwater.protocol.clock import Ticks

FRAME = 512
POLL_MS = 5  # as board/ways.py
REST_MS = 20
TICK_US = 250000


class Board:
    def __init__(self, name, key):
        self.ticks = Ticks(time.ticks_us())
        self.radio = Radio()
        self.carrier = BleCarrier(name, key, self.radio, self.take, None, FRAME)
        self.carrier.tell(self.gone, self.fill)
        self.radio.serve(self.carrier)
        self.frame = bytearray(FRAME)
        self.left = 0  # frames to send
        self.due = 0  # frames that are to come
        self.count = 0
        self.first_us = 0
        self.look = b""  # the number of the look at the heap that is due

    def clock_us(self):
        return self.ticks.read(time.ticks_us())

    def take(self, carrier, sender, frame):
        kind = frame[0]
        if kind == 120:  # data
            self.count += 1
            if self.count == 1:
                self.first_us = self.clock_us()
            if self.count == self.due:
                self.tell(b"D%d" % (self.clock_us() - self.first_us))
        elif kind == 117:
            self.left = int(bytes(frame[1:]))
            self.fill()
        elif kind == 100:
            self.due = int(bytes(frame[1:]))
            self.count = 0
            self.tell(b"A")
        elif kind == 103:
            self.tell(b"A")
        elif kind == 104:
            self.look = bytes(frame[1:])
            self.tell(b"H")
        return True

    def tell(self, frame):
        self.carrier.send(GATEWAY, frame)

    # There is room.
    def fill(self):
        carrier = self.carrier
        while self.left and carrier.room(GATEWAY) and carrier.send(GATEWAY, self.frame):
            self.left -= 1

    def gone(self, carrier, name):
        self.left = 0

    # Nothing is going on: what is free now is free at every such moment, or something is kept.
    def weigh(self):
        number = self.look
        self.look = b""
        gc.collect()
        gc.collect()
        free = gc.mem_free()
        print("free", int(number), free)

    def run(self):
        carrier = self.carrier
        ticked = 0
        while True:
            now = self.clock_us()
            if now - ticked >= TICK_US:
                ticked = now
                if not carrier.up:
                    carrier.wanted(GATEWAY, now)
                carrier.tick(now)
            self.radio.poll(now)
            if self.look and not carrier.up and not self.radio.notes:
                self.weigh()
            time.sleep_ms(POLL_MS if carrier.up else REST_MS)


def run():
    with open("config.json") as f:
        config = json.load(f)
    with open("board.key", "rb") as f:
        key = f.read()
    Board(config["name"], key).run()
