"""Serial ports of this machine: which there are, what is probably behind each, and why one cannot be used."""

from __future__ import annotations

import errno
import fcntl
import os
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import UserError

# USB vendor and product (None: any) -> what they are, and the chips that are usually behind them.
_S3_C3 = "ESP32-S3 or ESP32-C3"
_KNOWN: dict[tuple[int, int | None], tuple[str, str]] = {
    (0x303A, 0x1001): ("USB of the chip itself", _S3_C3),
    (0x303A, None): ("USB of the chip itself", "ESP32-S3"),
    (0x10C4, 0xEA60): ("CP210x", "ESP32, or another on a development board"),
    (0x1A86, 0x7523): ("CH340", "ESP32, or another on a development board"),
    (0x1A86, 0x55D3): ("CH343", _S3_C3),
    (0x1A86, 0x55D4): ("CH9102", "ESP32, or another on a development board"),
    (0x0403, None): ("FTDI", "ESP32, or another on a development board"),
}
AUTO = "auto"
NO_PORT = (
    "no board is connected: plug it in with a USB cable that carries data, or name its port with --port; "
    "`hw board scan` lists ports"
)


@dataclass(frozen=True)
class Port:
    device: str
    usb: str  # vendor and product in hexadecimal, '' for a port that is not USB
    adapter: str
    chip: str  # a guess: the adapter is known, what is soldered behind it is not

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def ports() -> list[Port]:
    """The ports with something plugged into USB, in order of their names."""
    from serial.tools import list_ports

    found = []
    for each in sorted(list_ports.comports(), key=lambda port: str(port.device)):
        if each.vid is not None:
            adapter, chip = guess(each.vid, each.pid)
            usb = "%04x:%04x" % (each.vid, each.pid)
            found.append(Port(each.device, usb, adapter or each.description or "", chip))
    return found


def guess(vendor: int, product: int) -> tuple[str, str]:
    """The adapter, and the chips that are usually behind it."""
    return _KNOWN.get((vendor, product)) or _KNOWN.get((vendor, None)) or ("", "")


def choose(given: str | None) -> str:
    """The port to use: the one that was named, else (or `auto`) the only one with a known adapter. It can be
    opened."""
    if given is not None and given != AUTO:
        check(given)
        return given
    found = [port.device for port in ports() if port.chip]
    if not found:
        raise UserError(NO_PORT)
    if len(found) > 1:
        raise UserError("there are several boards: name the port of one with --port: %s" % ", ".join(found))
    check(found[0])
    return found[0]


def check(device: str) -> None:
    """Refuse a port that is not there, may not be used by this user, or is in use."""
    if not os.path.exists(device):
        known = ", ".join(port.device for port in ports()) or "none"
        raise UserError(
            "there is no port %s: plug the board in; ports with a USB device: %s" % (device, known)
        )
    if not os.access(device, os.R_OK | os.W_OK):
        raise UserError(
            "no permission for %s: add yourself to its group (`sudo usermod -a -G dialout $USER` on Debian), "
            "then log in again" % device
        )
    handle = -1
    try:
        handle = os.open(device, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        if not os.isatty(handle):
            raise UserError("%s is no serial port: `hw board scan` lists ports" % device)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EBUSY, errno.EAGAIN):
            text = "%s is in use by another program: end it (`hw monitor`, a serial console, an editor)"
            raise UserError(text % device)
        raise UserError("%s cannot be opened: %s" % (device, error.strerror))
    finally:
        if handle >= 0:
            os.close(handle)
