"""`python -m headwater_tools.radio.gateway SOCKET CONFIG [--rebuild]`: the gateway, on a virtual radio.

All of it is the gateway's own program but the machine's adapter: bleak speaks to a controller behind the
socket of a `Station` (`radio/served.py`) instead of to BlueZ.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from headwater_gateway import UserError
from headwater_gateway.__main__ import set_up_log
from headwater_gateway.bluetooth import ways
from headwater_gateway.bluetooth.radio import BleakRadio
from headwater_gateway.config import read
from headwater_gateway.service import Service

from .bleak_backend import Client, Scanner
from .served import device_at


def run(socket: Path, path: Path, rebuild: bool = False) -> int:
    """Run the gateway of a configuration file; the exit code."""
    config = read(path)
    set_up_log(config.log.format, config.log.level)

    async def main() -> int:
        device = await device_at(socket)
        radio = BleakRadio(config.bluetooth.adapter, Scanner.of(device), Client.of(device))
        ways.radio = lambda adapter: radio
        return await Service(config, rebuild).run()

    return asyncio.run(main())


def main() -> None:
    words = [word for word in sys.argv[1:] if word != "--rebuild"]
    if len(words) != 2:
        sys.exit("usage: python -m headwater_tools.radio.gateway SOCKET CONFIG [--rebuild]")
    try:
        code = run(Path(words[0]), Path(words[1]), "--rebuild" in sys.argv)
    except UserError as trouble:
        print("headwater-gateway: %s" % trouble, file=sys.stderr)
        code = 2
    sys.exit(code)


if __name__ == "__main__":
    main()
