"""`hw provision NAME`: registers a board and makes its files: configuration, key, certificate."""

from __future__ import annotations

import argparse
from typing import Any

from .. import Trouble, house

SUMMARY = "register a board: makes its configuration, its key and the broker's certificate for it"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the board, as process files say on=NAME")
    parser.add_argument("folder", metavar="FOLDER", nargs="?", default=".", help="folder of the gateway")
    parser.add_argument(
        "--renew",
        action="store_true",
        help="a board that is registered: give it a new password; until its new files are on it, it cannot "
        "connect",
    )


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    house.ensure("gateway")
    import headwater_gateway
    from headwater_gateway import broker, command

    path = command.config_path(args.folder)
    try:
        home = command.register(path, args.name, args.renew)
        reloaded = broker.reload(path.resolve().parent)
    except headwater_gateway.Trouble as trouble:
        raise Trouble(str(trouble))
    if args.renew:
        print("made %s again, with a new password; its key is the same" % home)
        print(
            "put config.json and ca.der of that folder onto the board: from now on the broker refuses its "
            "former password"
        )
    else:
        print("made %s: say in config.json which sensors it has, then put all of it onto the board" % home)
    if reloaded:
        print("the broker (process %d) has been told to read its passwords again" % reloaded)
    else:
        print(
            "a broker that runs must be told to read its passwords again: `systemctl reload "
            "headwater-broker`, or a SIGHUP to Mosquitto"
        )
    return 0, {"board": args.name, "folder": str(home), "renewed": args.renew, "broker_told": bool(reloaded)}
