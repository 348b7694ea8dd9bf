"""Puts the files of a registered board onto it: configuration, key, certificates, and what starts the
program.

Everything is looked at before the first byte is copied: the configuration is complete, the board runs the
right MicroPython, has Headwater and a partition for its log. What was copied is compared by SHA-256. Keys and
passwords are in files that their owner alone can read, and are asked for on the terminal, never in arguments.
"""

from __future__ import annotations

import getpass
import json
import sys
from pathlib import Path
from typing import Any

from headwater.board import settings

from .. import environment
from ..errors import UserError
from ..image import profiles
from ..image.sources import FIRMWARE
from . import energy
from .serial_board import SerialBoard

START = ("boot.py", "main.py")
CONFIG = "config.json"


def complete(home: Path, board: str | None) -> None:
    """Add to a board's configuration what only a real board needs: sensors, battery and actuators as in the
    example of this kind of board and what that draws, where it has none, and the Wi-Fi, asked for on the
    terminal."""
    path = home / CONFIG
    config = json.loads(path.read_text())
    before = json.dumps(config)
    if board is not None:
        example = profiles.FOLDER / profiles.profile(board).name / CONFIG
        if not example.exists():
            raise UserError("board '%s' has no sensors: name a kind of board that can be flashed" % board)
        for key in ("sensors", "battery", "actuators"):
            if not config.get(key):
                config[key] = json.loads(example.read_text())[key]
        bluetooth = config.get("bluetooth", {})
        if bluetooth.get("enabled"):
            bluetooth.setdefault("pairing", profiles.profile(board).pairing)
        draws = energy.board(board)
        if draws is not None and config["battery"] and not config.get("energy"):
            config["energy"] = energy.given(draws)
    if not config.get("wifi") and config.get("broker") != {}:
        config["wifi"] = _wifi(path)
    if json.dumps(config) != before:
        path.touch(mode=0o600)
        path.write_text(json.dumps(config, indent=1) + "\n")


def _wifi(path: Path) -> dict[str, str]:
    if not sys.stdin.isatty():
        raise UserError(
            '%s names no Wi-Fi: add "wifi": {"ssid": "...", "password": "..."}, or run this on a terminal, '
            "where it asks" % path
        )
    print("Wi-Fi for the board; the answers go into %s" % path)
    name = input("name of the network: ").strip()
    if not name:
        raise UserError("a board needs a Wi-Fi: run this again and give the name of a network")
    return {"ssid": name, "password": getpass.getpass("password: ")}


def files(home: Path) -> dict[str, Path]:
    """Name on the board -> file: the configuration, and every file that it names."""
    try:
        config = settings.load(str(home / CONFIG))
    except settings.SettingsError as error:
        raise UserError(str(error))
    broker = config["broker"]
    named = {"key": config["key"]}
    if broker:
        named |= {"broker's cert": broker["cert"], "broker's cert_key": broker["cert_key"]}
        if broker["tls"]:
            named["broker's ca"] = broker["ca"]
    if config["bluetooth"]["enabled"]:
        named["bluetooth's key"] = config["bluetooth"]["key"]
    found = {CONFIG: home / CONFIG}
    for key, name in named.items():
        if name:
            if "/" in name or not (home / name).is_file():
                raise UserError(
                    "%s: the %s is %s, and %s has no such file" % (home / CONFIG, key, name, home)
                )
            found[name] = home / name
    return found


def onto(home: Path, port: str, any_version: bool = False) -> dict[str, Any]:
    """Copy the files in `home` and those that start the program, compare them, and reset the board."""
    found = files(home)
    board = SerialBoard(port)
    about = board.about()
    check(about, port, any_version)
    check_radios(json.loads((home / CONFIG).read_text()), about["machine"], port)
    found |= {name: FIRMWARE / name for name in START}
    board.put(found)
    board.reset()
    return {"port": port, "files": sorted(found), "machine": about["machine"], "code": about["code"]}


def check_radios(config: dict[str, Any], machine: str, port: str) -> None:
    """Refuse both links on a chip whose memory holds one radio."""
    both = config.get("bluetooth", {}).get("enabled") and config.get("broker") != {}
    for name in profiles.names():
        board = profiles.profile(name)
        # firmware/board.py asks the same when it starts.
        if both and board.both_radios == "no" and _plain(board.chip) in _plain(machine):
            raise UserError(
                "the board at %s is an %s, which has memory for one radio, Wi-Fi or Bluetooth: provision it "
                "with --bluetooth only, or --bluetooth off" % (port, board.chip)
            )


def _plain(chip: str) -> str:
    return chip.replace("-", "").upper()


def check(about: dict[str, Any], port: str, any_version: bool = False) -> None:
    """Refuse a board on which the program would not start."""
    version = tuple(about["version"])
    wanted = environment.MICROPYTHON_VERSION
    if version[:2] != wanted[:2] and not any_version:
        text = (
            "the board at %s runs MicroPython %d.%d.%d, and Headwater is tested with %d.%d: flash that (`hw "
            "flash BOARD --firmware FILE`), or provision this one with --any-version"
        )
        raise UserError(text % (port, *version, *wanted[:2]))
    if not about["code"]:
        kind = "" if about["romfs"] else " --kind littlefs (its firmware has no ROMFS)"
        raise UserError(
            "the board at %s has no Headwater: first `hw flash BOARD --port %s%s`, with --firmware FILE if "
            "its partition table is not ours" % (port, port, kind)
        )
    if not about["log"]:
        raise UserError(
            "the board at %s has no partition `log`: flash it with `hw flash BOARD --firmware FILE`, which "
            "writes the partition table too" % port
        )
