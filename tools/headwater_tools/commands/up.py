"""`hw up SITE`: a whole site in one terminal."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from .. import environment
from ..errors import UserError

SUMMARY = "run a site in one terminal: broker, gateway, sink and virtual boards, until Ctrl-C"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "site", metavar="SITE", nargs="?", default=".", help="folder of `hw new` or `hw gateway init` (here)"
    )
    parser.add_argument(
        "--boards",
        metavar="A,B",
        help="virtual boards to run; none: no board (default: all boards of the site, but those of which the "
        "gateway has heard and that never ran here: they are real)",
    )
    parser.add_argument("--no-sink", action="store_true", help="the sink runs elsewhere, or not at all")


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    environment.ensure("gateway")
    from ..site.place import Place

    place = Place(args.site)
    place.finish()
    boards = None if args.boards is None else [name for name in args.boards.split(",") if name]
    if boards == ["none"]:
        boards = []
    if boards is not None and len(set(boards)) < len(boards):
        raise UserError("--boards %s: a board is named twice" % args.boards)
    if boards != []:
        environment.ensure("base")
    if not args.no_sink:
        environment.ensure("lake")
        environment.jars(place.landing, place.lake)
    environment.mosquitto()
    from ..site.up import Up

    def say(line: str) -> None:
        print(line, file=sys.stderr if args.json else sys.stdout, flush=True)

    Up(place, boards, not args.no_sink, say).run()
    return 0, {"site": str(place.shown), "lake": place.lake}
