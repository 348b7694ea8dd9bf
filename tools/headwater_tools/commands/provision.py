"""`hw provision NAME`: registers a board and makes what goes onto it: configuration, key, certificate; with a
port it puts them onto the board too."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .. import environment
from ..errors import UserError

SUMMARY = (
    "register a board: makes its configuration, its key and the broker's certificate for it, and puts them "
    "onto a board at USB"
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the board, as process files say on=NAME")
    parser.add_argument("folder", metavar="FOLDER", nargs="?", default=".", help="folder of the gateway")
    parser.add_argument(
        "--renew",
        action="store_true",
        help="a board that is registered: give it a new password, and a new key if it was declared lost; "
        "until its new files are on it, it cannot connect",
    )
    parser.add_argument(
        "--port",
        metavar="PORT",
        help="put the files onto the board at this serial port too, and compare them; `auto`: the only one "
        "there is. A board that is registered already is put onto it as it is",
    )
    parser.add_argument(
        "--board",
        metavar="BOARD",
        help="with --port: sensors and battery as in the example of this kind of board (`hw image` lists "
        "them), where config.json has none",
    )
    parser.add_argument(
        "--bluetooth",
        choices=("on", "only", "off"),
        help="on: Bluetooth beside the broker. only: instead of it, for a board without a network. off: as "
        "for a new board. The gateway needs it too (`[bluetooth]` in gateway.toml)",
    )
    parser.add_argument(
        "--any-version", action="store_true", help="with --port: take another version of MicroPython too"
    )


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    if args.port is None:
        if args.board or args.any_version:
            raise UserError(
                "--board and --any-version belong to --port: `hw provision NAME FOLDER --port auto`"
            )
        return 0, _register(args)
    if not environment.REPOSITORY:
        raise UserError("--port needs the repository of Headwater, which has what starts a board's program")
    environment.ensure("board")
    environment.ensure("gateway")
    from ..boards import ports, provisioning

    port = ports.choose(args.port)
    home = _home(args)
    if args.renew or not (home / provisioning.CONFIG).exists():
        answer = _register(args, told=False)
    else:
        if args.bluetooth:
            _set_links(args)
        answer = {"board": args.name, "folder": str(home), "renewed": False, "broker_told": False}
    provisioning.complete(home, args.board)
    found = provisioning.onto(home, port, args.any_version)
    print("board %s is provisioned at %s: %s" % (args.name, port, ", ".join(found["files"])))
    print("it starts now; `hw monitor --port %s` shows its console" % port)
    return 0, {**answer, **found}


def _home(args: argparse.Namespace) -> Path:
    from headwater_gateway import command

    return command.config_path(args.folder).resolve().parent / "boards" / str(args.name)


def _key(home: Path) -> bytes:
    path = home / "board.key"
    return path.read_bytes() if path.exists() else b""


def _set_links(args: argparse.Namespace) -> None:
    import headwater_gateway
    from headwater_gateway import command, provision

    folder = command.config_path(args.folder).resolve().parent
    try:
        provision.links(folder, args.name, args.bluetooth, False)
    except headwater_gateway.UserError as trouble:
        raise UserError(str(trouble))


def _register(args: argparse.Namespace, told: bool = True) -> dict[str, Any]:
    """Register the board; `told`: with what is to be done next."""
    environment.ensure("gateway")
    import headwater_gateway
    from headwater_gateway import broker, command

    path = command.config_path(args.folder)
    try:
        former = _key(_home(args))
        home = command.register(path, args.name, args.renew, args.bluetooth)
        reloaded = broker.reload(path.resolve().parent)
    except headwater_gateway.UserError as trouble:
        raise UserError(str(trouble))
    if args.renew and _key(home) != former:
        print("made %s again, with a new password and a new key: the former key is refused" % home)
        if told:
            print("erase the board's flash, and put all of that folder onto the board")
    elif args.renew:
        print("made %s again, with a new password; its key is the same" % home)
        if told:
            print(
                "put config.json and ca.der of that folder onto the board: from now on the broker refuses "
                "its former password"
            )
    elif told:
        print("made %s: say in config.json which sensors it has, then put all of it onto the board" % home)
    else:
        print("made %s" % home)
    if reloaded:
        print("the broker (process %d) has been told to read its passwords again" % reloaded)
    else:
        print(
            "a broker that runs must be told to read its passwords again: `systemctl reload "
            "headwater-broker`, or a SIGHUP to Mosquitto"
        )
    return {"board": args.name, "folder": str(home), "renewed": args.renew, "broker_told": bool(reloaded)}
