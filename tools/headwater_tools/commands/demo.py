"""`hw demo`: the main job, end to end with real parts, while things go wrong; it ends in proof."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import environment
from ..errors import UserError

if TYPE_CHECKING:
    from ..demo.play import Ending, Play

SUMMARY = "boards, broker, gateway, Spark and Delta at work while parts of them die; ends with the audit"

FOLDER = environment.CACHE / "demo"
SECONDS = 60
SECONDS_MIN = 20
MARK = ".headwater-demo"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ble",
        action="store_true",
        help="two boards with Bluetooth: the broker goes away, and an operator moves from board to board",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        metavar="S",
        help="time over which faults are spread (%d); a battery and a takeover need theirs" % SECONDS,
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of where exactly power goes (1)")
    parser.add_argument(
        "--folder",
        metavar="FOLDER",
        help="where everything is left (%s)" % FOLDER.relative_to(environment.ROOT),
    )


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    if args.seconds < SECONDS_MIN:
        raise UserError(
            "--seconds %g: the story needs more time; give at least %d" % (args.seconds, SECONDS_MIN)
        )
    folder = _fresh(Path(args.folder).absolute() if args.folder else FOLDER)
    began = time.monotonic()

    def say(text: str) -> None:
        print(text, file=sys.stderr if args.json else sys.stdout, flush=True)

    environment.ensure("gateway")
    environment.ensure("lake")
    environment.jars()
    environment.mosquitto()
    import headwater_gateway

    play = None
    try:
        play = _play(folder, args, say)
        play.begin()
        ending = play.run()
    except headwater_gateway.UserError as trouble:
        raise UserError(str(trouble))
    finally:
        if play is not None:
            play.close()
    answer = _answer(ending, args.seed)
    ok = _ok(answer) and ending.kept
    for line in _page(ending, answer, ok, time.monotonic() - began):
        say(line)
    return (0 if ok else 1), answer


def _play(folder: Path, args: argparse.Namespace, say: Callable[[str], None]) -> Play:
    if not args.ble:
        from ..demo.story import Story

        return Story(folder, args.seconds, args.seed, say)
    environment.ensure("bluetooth")
    environment.bluetooth_micropython()
    from ..demo.bluetooth_story import BluetoothStory

    return BluetoothStory(folder, args.seconds, args.seed, say)


def _fresh(folder: Path) -> Path:
    """An empty folder; what an earlier demo left there is deleted."""
    if folder.exists():
        if any(folder.iterdir()) and not (folder / MARK).exists():
            raise UserError("%s is not empty, and no demo made it: choose another --folder" % folder)
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / MARK).touch()
    return folder


def _answer(ending: Ending, seed: int) -> dict[str, Any]:
    from headwater_cloud.audit import as_json

    compared = ending.compared
    audit = as_json(ending.audit)
    planned = [move for move in ending.moves if move.planned]
    return {
        "accepted": compared.accepted,
        "refused": compared.refused,
        "delivered": compared.delivered,
        "lost": compared.lost + audit["lost"],
        "duplicates": compared.twice + audit["duplicates"],
        "divergent": compared.divergent + audit["divergent"],
        "out_of_order": audit["out_of_order"],
        "gaps_declared": audit["gaps_declared"],
        "holes": audit["holes"],
        "migrations_planned": len(planned),
        "migrations_unplanned": len(ending.moves) - len(planned),
        "migrations_without_gateway": len(ending.away),
        "replayed": sum(move.replayed for move in planned),
        "seed": seed,
        "drained": ending.drained,
        "faults": [
            {"part": s.part, "what": s.what, "from_s": round(s.from_s, 2), "to_s": round(s.to_s, 2)}
            for s in ending.watch.spells
        ],
        "moves": [
            {"operator": m.operator, "from": m.giver, "to": m.taker, "planned": m.planned}
            for m in ending.moves
        ],
        "audit_ok": audit["ok"],
        "conservation": audit["conservation"]["holds"],
        "picture": str(ending.picture),
        "lake": audit["lake"],
        **ending.more,
    }


def _ok(answer: dict[str, Any]) -> bool:
    none = ("refused", "lost", "duplicates", "divergent", "out_of_order", "replayed")
    return bool(
        answer["accepted"]
        and answer["migrations_planned"]
        and answer["migrations_without_gateway"]
        and not any(answer[name] for name in none)
        and answer["drained"]
        and answer["audit_ok"]
        and answer["conservation"]
    )


def _page(ending: Ending, answer: dict[str, Any], ok: bool, took_s: float) -> Iterator[str]:
    from .audit import page

    yield ""
    yield from page(ending.audit)
    yield ""
    yield (
        "%s samples accepted by the boards, %d refused; %s rows in the lake: %d lost, %d twice, %d divergent"
        % (
            f"{answer['accepted']:,}",
            answer["refused"],
            f"{answer['delivered']:,}",
            answer["lost"],
            answer["duplicates"],
            answer["divergent"],
        )
    )
    yield (
        "%d operator%s moved before their board died: %d elements replayed; %d started elsewhere after a "
        "death; %d of these moves without the gateway"
        % (
            answer["migrations_planned"],
            "s" * (answer["migrations_planned"] != 1),
            answer["replayed"],
            answer["migrations_unplanned"],
            answer["migrations_without_gateway"],
        )
    )
    yield from ending.lines
    if not answer["drained"]:
        yield "not everything that was accepted had arrived when the waiting ended"
    yield "%d faults; the timeline: %s" % (len(answer["faults"]), answer["picture"])
    yield "the lake in Spark: hw shell %s" % answer["lake"]
    yield "%s, %.0f s" % ("the promise holds" if ok else "THE PROMISE DOES NOT HOLD", took_s)
