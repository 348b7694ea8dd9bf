"""`hw board`: the boards of a site, and virtual boards that run against it."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from .. import environment
from ..boards import scan
from ..errors import UserError

if TYPE_CHECKING:
    from ..boards.virtual import VirtualBoard
    from ..site.place import Place

SUMMARY = (
    "the boards of a site: list shows them, run starts a virtual one, logs shows what one reported, rename, "
    "remove; lost says that one will not come back; scan looks for boards at USB"
)


def arguments(parser: argparse.ArgumentParser) -> None:
    which = parser.add_subparsers(dest="do", metavar="list|run|rename|remove|lost|logs|scan", required=True)
    about = "state, versions, link, battery and last word of each board, as the gateway knows them"
    found = [_verb(which, "list", about)]
    run_about = (
        "a virtual board until Ctrl-C: the program of a board in 32-bit MicroPython with a bounded heap, its "
        "flash in SITE/virtual/NAME, so that the next run goes on where this one ended"
    )
    found.append(_verb(which, "run", run_about))
    found[-1].add_argument("name", metavar="NAME", help="a board that is registered in the site")
    found[-1].add_argument(
        "--sensor",
        action="append",
        default=[],
        metavar="SOURCE=FILE",
        help="play a CSV file, one row a sample, columns by the names of the fields or in their order; a "
        "source without a file has a synthetic sensor",
    )
    found[-1].add_argument(
        "--once",
        action="store_true",
        help="files: nothing more after the last row, instead of the first again",
    )
    found[-1].add_argument(
        "--battery", metavar="TIME", help="the battery is empty after this time, like 60s: no clean stop"
    )
    found.append(_verb(which, "rename", "give a board another name; refused while a process names it"))
    found[-1].add_argument("name", metavar="OLD", help="its name")
    found[-1].add_argument("new", metavar="NEW", help="its new name")
    about = "remove a board: its key and its access to the broker end; refused while a process names it"
    found.append(_verb(which, "remove", about))
    found[-1].add_argument("name", metavar="NAME", help="its name")
    about = (
        "declare a board permanently lost, with everything in its flash: all hosts refuse its frames, others "
        "store the checkpoints that it held, its operators start elsewhere at once, and its streams end. "
        "To use it again, erase its flash and provision it again"
    )
    found.append(_verb(which, "lost", about))
    found[-1].add_argument("name", metavar="NAME", help="its name")
    found[-1].add_argument("--yes", action="store_true", help="do not ask for confirmation")
    found.append(
        _verb(which, "logs", "what a board reported: crash, state, events, and a virtual board's console")
    )
    found[-1].add_argument("name", metavar="NAME", help="its name")
    found[-1].add_argument("--lines", type=int, default=20, metavar="N", help="of events and console (20)")
    scan.arguments(_verb(which, "scan", scan.ABOUT))
    for one in found:
        one.add_argument("site", metavar="SITE", nargs="?", default=".", help="folder of the site (here)")


def _verb(which: Any, name: str, about: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = which.add_parser(name, help=about, description=about, allow_abbrev=False)
    made.add_argument(
        "--json",
        action="store_true",
        default=argparse.SUPPRESS,
        help="print one JSON object as the last line",
    )
    return made


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any] | None]:
    if args.do == "scan":
        return scan.scan(args)
    environment.ensure("gateway")
    from ..site.place import Place

    place = Place(args.site)
    place.finish()
    if args.do == "run":
        return _run(args, place)
    from ..boards import listing

    if args.do == "list":
        return listing.show(place)
    if args.do == "logs":
        return listing.logs(place, args.name, args.lines)
    if args.do == "lost":
        from ..boards import lost

        return lost.declare(place, args.name, args.yes, bool(args.json))
    if args.do == "rename":
        return listing.rename(place, args.name, args.new)
    return listing.remove(place, args.name)


def _run(args: argparse.Namespace, place: Place) -> tuple[int, dict[str, Any]]:
    if not environment.REPOSITORY:
        raise UserError("hw board run needs the repository of Headwater: its wheel has no image of a board")
    from ..boards import site_board

    battery_s = site_board.seconds(args.battery) if args.battery is not None else None
    recordings = site_board.parsed(args.sensor)
    if args.once and not recordings:
        raise UserError("--once belongs to --sensor SOURCE=FILE: a synthetic sensor has no end")
    place.known(args.name)
    environment.ensure("base")
    sentence = "board %s runs already, as process %%d: end that first" % args.name
    with place.held(place.virtual(args.name) / "lock", sentence):
        site_board.must_answer(place, args.name)
        site_board.must_be_alone(place, args.name)

        def say(line: str) -> None:
            print(line, file=sys.stderr if args.json else sys.stdout, flush=True)

        board = site_board.make(place, args.name, recordings, args.once, battery_s, say)
        return _powered(board, battery_s, say)


def _powered(board: VirtualBoard, battery_s: float | None, say: Any) -> tuple[int, dict[str, Any]]:
    """The board has power until Ctrl-C, or until its battery is empty."""
    from ..boards import site_board

    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    answer: dict[str, Any] = {"board": board.name, "folder": str(board.folder)}
    board.battery(site_board.FULL_MV if battery_s else None)
    board.start()
    began = time.monotonic()
    try:
        while not stop.wait(0.2):
            passed_s = time.monotonic() - began
            if battery_s is not None:
                board.battery(site_board.voltage(passed_s, battery_s))
                if passed_s >= battery_s:
                    board.kill()
                    say(
                        "board %s: the battery is empty after %g s, and the board is dead; with a new one "
                        "(the same command) it goes on with what its flash holds" % (board.name, battery_s)
                    )
                    return 0, {**answer, "ended": "battery"}
            if not board.powered:
                raise UserError(
                    "the interpreter of board %s ended: the last lines of %s say why"
                    % (board.name, board.folder / "console.log")
                )
    finally:
        board.kill()
    say("board %s is off; its flash is %s" % (board.name, board.folder / "flash.bin"))
    return 0, {**answer, "ended": "interrupt"}
