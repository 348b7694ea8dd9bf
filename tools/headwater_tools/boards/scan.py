"""What is connected: serial ports with the chip that is probably behind each, and the I2C bus of a board."""

from __future__ import annotations

import argparse
from typing import Any

from .. import environment
from ..errors import UserError

ABOUT = "serial ports with a board; with --scl and --sda the addresses that answer on a board's I2C bus"
# Addresses of sensors that a beginner is likely to have. Several kinds share an address.
KNOWN = {
    0x18: "LIS3DH",
    0x44: "SHT3x",
    0x57: "MAX30102",
    0x68: "MPU6050",
    0x69: "MPU6050 with AD0 high",
    0x76: "BME280",
    0x77: "BME280",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", help="look at the board at this port; `auto`: the only one there is")
    parser.add_argument("--scl", type=int, metavar="PIN", help="clock pin of the I2C bus, like 22")
    parser.add_argument("--sda", type=int, metavar="PIN", help="data pin of the I2C bus, like 21")


def scan(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    if (args.scl is None) != (args.sda is None):
        raise UserError("an I2C bus has two pins: give --scl PIN and --sda PIN, like --scl 22 --sda 21")
    environment.ensure("board")
    from . import ports

    found = ports.ports()
    answer: dict[str, Any] = {"ports": [each.as_json() for each in found]}
    for each in found:
        behind = "; probably %s" % each.chip if each.chip else ""
        print("%s  %s  %s%s" % (each.device, each.usb, each.adapter, behind))
    if not found and not args.port:
        print(ports.NO_PORT)
    if args.port or args.scl is not None:
        port = ports.choose(args.port)
        answer["board"] = _board(port, args.scl, args.sda)
    return int(not found and not args.port), answer


def _board(port: str, scl: int | None, sda: int | None) -> dict[str, Any]:
    from .serial_board import SerialBoard

    board = SerialBoard(port)
    about = board.about()
    where = "Headwater in %s" % about["code"] if about["code"] else "no Headwater"
    romfs = "" if about["romfs"] else ", no ROMFS"
    print("%s: MicroPython %d.%d.%d, %s%s" % (port, *about["version"], where, romfs))
    found: dict[str, Any] = {"port": port, **about}
    if scl is not None and sda is not None:
        addresses = board.i2c(scl, sda)
        found["i2c"] = addresses
        for address in addresses:
            print("  I2C 0x%02x  %s" % (address, KNOWN.get(address, "unknown here")))
        if not addresses:
            print(
                "  nothing answers on I2C with SCL %d, SDA %d: check wires, pull-ups and 3.3 V" % (scl, sda)
            )
    return found
