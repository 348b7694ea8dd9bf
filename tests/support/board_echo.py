# Runs on MicroPython with Bluetooth: a service that sends back what is written to it.
#
# Handlers run between any two bytecodes, so they only note what happened.

import time
from collections import deque

import bluetooth

SERVICE = "7d1e0001-0000-4000-8000-000000000000"
DOWN = "7d1e0002-0000-4000-8000-000000000000"
UP = "7d1e0003-0000-4000-8000-000000000000"
CONNECTED, LEFT, WRITTEN, MTU = 1, 2, 3, 21
ENOMEM = 12


class Echo:
    def __init__(self):
        self.events = deque((), 64)
        self.ble = bluetooth.BLE()
        self.ble.irq(self.note)
        self.ble.active(True)
        down = (bluetooth.UUID(DOWN), bluetooth.FLAG_WRITE | bluetooth.FLAG_WRITE_NO_RESPONSE)
        up = (bluetooth.UUID(UP), bluetooth.FLAG_NOTIFY)
        service = (bluetooth.UUID(SERVICE), (down, up))
        ((self.down, self.up),) = self.ble.gatts_register_services((service,))
        self.ble.gatts_set_buffer(self.down, 512)

    def note(self, event, data):
        if event == WRITTEN:
            self.events.append((event, data[0], self.ble.gatts_read(data[1])))
        else:
            self.events.append((event, data[0], data[1] if event == MTU else None))

    def advertise(self):
        told = b"\x11\x07" + bytes(bluetooth.UUID(SERVICE))
        self.ble.gap_advertise(30000, adv_data=told, resp_data=b"\x05\x09echo")

    def answer(self, connection, value):
        refused = 0
        while True:
            try:
                self.ble.gatts_notify(connection, self.up, value)
                return refused
            except OSError as error:
                if error.errno != ENOMEM:
                    return refused
                refused += 1
                time.sleep_ms(5)

    def handle(self, event, connection, value):
        if event == CONNECTED:
            print("connected")
        elif event == LEFT:
            print("left")
            self.advertise()
        elif event == MTU:
            print("mtu", value)
        elif event == WRITTEN and value == b"flood":
            refused = 0
            for i in range(100):
                refused += self.answer(connection, b"%3d" % i + b"x" * 200)
            print("refused", refused)
        elif event == WRITTEN:
            self.answer(connection, value)


def run():
    echo = Echo()
    echo.advertise()
    print("advertises")
    while True:
        if echo.events:
            echo.handle(*echo.events.popleft())
        else:
            time.sleep_ms(1)
