"""`hw provision NAME`: registers a board and makes what goes onto it: configuration, key, certificate."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .. import Trouble, house

SUMMARY = "register a board: makes its configuration, its key and the broker's certificate for it"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the board, as process files say on=NAME")
    parser.add_argument("folder", metavar="FOLDER", nargs="?", default=".", help="folder of the gateway")


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    house.ensure("gateway")
    import headwater_gateway

    from .gateway import config_path

    try:
        home = provision(config_path(args.folder), args.name)
    except headwater_gateway.Trouble as trouble:
        raise Trouble(str(trouble))
    print("made %s: say in config.json which sensors it has, then put all of it onto the board" % home)
    print(
        "Mosquitto reads new passwords when it receives SIGHUP: `systemctl reload mosquitto` or `kill -HUP`"
    )
    return 0, {"board": args.name, "folder": str(home)}


def provision(path: Path, name: str) -> Path:
    """Register a board with the gateway of this configuration, running or not; its folder."""
    from headwater_gateway import control, keys, provision, rebuild
    from headwater_gateway.boards import register
    from headwater_gateway.config import read
    from headwater_gateway.store import Database

    provision.check_name(name)
    config = read(path)
    try:
        number = control.ask(config, "/boards", {"name": name})["number"]
    except control.NotRunning:
        rebuild.check(config)
        master = keys.load(config.path(config.gateway.secrets) / "master.key")
        path = rebuild.database(config)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        db = Database(path, lambda: 0)
        try:
            rebuild.keep_numbers(db, config.folder, master)
            number = register(db, name, 0)
        finally:
            db.close()
    master = keys.load(config.path(config.gateway.secrets) / "master.key")
    return provision.board(config.folder, config, master, name, number)
