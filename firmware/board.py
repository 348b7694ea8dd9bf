# An ESP32 as headwater/board/program.py needs it: flash partition, Wi-Fi, battery, watchdog, sensors.

import asyncio
import os
import sys

import drivers
import machine
import network
from esp32 import Partition
from machine import ADC, I2C, PWM, RTC, WDT, Pin, Timer

_EPOCH_S = 946684800  # MicroPython on an ESP32 counts from 2000


# Certificates are valid from some time on, and a board without power forgets the time: it is later
# than the time at which its configuration was made.
def set_clock(issued_s):
    import time

    if time.time() + _EPOCH_S < issued_s:
        y, m, d, h, mi, s, wd, _ = time.gmtime(issued_s - _EPOCH_S)
        RTC().datetime((y, m, d, wd, h, mi, s, 0))


# Chips without PSRAM on which Wi-Fi does not start beside Bluetooth.
def one_radio(machine):
    chip = machine.replace("-", "").upper()
    return "ESP32C3" in chip or "ESP32C6" in chip


class Board:
    def __init__(self, config):
        found = Partition.find(Partition.TYPE_DATA, label=config["flash"])
        if not found:
            raise OSError("no partition '%s': see firmware/README.md" % config["flash"])
        self.flash = found[0]
        # The radio first: it does not survive a lack of memory, and Wi-Fi and the heap take what there is.
        if config["bluetooth"]["enabled"]:
            if config["broker"] and one_radio(sys.implementation._machine):
                raise ValueError(
                    "this chip has memory for one radio, Wi-Fi or Bluetooth: provision the board with "
                    "--bluetooth only, or --bluetooth off"
                )
            from headwater.board import ble

            ble.power()
        self.wifi = config["wifi"]
        self.wlan = network.WLAN(network.STA_IF) if config["broker"] else None
        battery = config["battery"]
        self.adc = ADC(Pin(battery["pin"]), atten=ADC.ATTN_11DB) if battery else None
        self.ratio = battery.get("ratio", 2)
        self.wdt = WDT(timeout=config["watchdog_s"] * 1000) if config["watchdog_s"] else None
        self.drivers = {"adc": _adc, "mpu6050": _mpu6050, "button": _button}
        self.actuators = {"buzzer": _buzzer, "led": _led}

    def random(self):
        return int.from_bytes(os.urandom(8), "little")

    # It reconnects by itself once it knows the network.
    async def online(self):
        if not self.wlan.active():
            self.wlan.active(True)
            self.wlan.connect(self.wifi["ssid"], self.wifi.get("password"))
        while not self.wlan.isconnected():
            await asyncio.sleep(0.2)

    def battery_mv(self):
        return int(self.adc.read_uv() * self.ratio) // 1000 if self.adc else None

    def rssi(self):
        return self.wlan.status("rssi") if self.wlan and self.wlan.isconnected() else None

    def say(self, line):
        sys.stdout.write(line + "\n")

    def watch(self):
        if self.wdt:
            self.wdt.feed()

    def sleep(self, ms):
        machine.deepsleep(ms)

    def restart(self):
        machine.reset()


# Settings of each driver: see firmware/README.md.


def _adc(settings, alphabet, rate_mhz, n):
    adc = ADC(Pin(settings["pin"]), atten=ADC.ATTN_11DB)
    sensor = drivers.Sampled(lambda: (adc.read_u16() >> 4) - 2048, alphabet, rate_mhz, n)
    sensor.timer = Timer(settings.get("timer", 0))
    sensor.timer.init(freq=rate_mhz / 1000, callback=sensor.tick)
    return sensor


def _mpu6050(settings, alphabet, rate_mhz, n):
    bus = I2C(settings.get("bus", 0), scl=Pin(settings["scl"]), sda=Pin(settings["sda"]), freq=400000)
    return drivers.Mpu6050(bus, alphabet, rate_mhz, n)


def _button(settings, alphabet, rate_mhz, n):
    pin = Pin(settings["pin"], Pin.IN, Pin.PULL_UP)
    button = drivers.Button(pin, alphabet)
    pin.irq(button.edge, Pin.IRQ_FALLING | Pin.IRQ_RISING)
    return button


# A passive buzzer needs a tone (hz); an active one has its own, and is switched like an LED with hz 0.
def _buzzer(settings):
    pin = Pin(settings["pin"], Pin.OUT)
    if not settings.get("hz", 2700):
        return drivers.Switch(pin, settings.get("low", False))
    return drivers.Tone(PWM(pin, freq=settings.get("hz", 2700), duty_u16=0))


def _led(settings):
    return drivers.Switch(Pin(settings["pin"], Pin.OUT), settings.get("low", False))
