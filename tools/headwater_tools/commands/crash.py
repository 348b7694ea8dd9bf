"""`hw crash`: kill -9 of the sink at each of its steps, of the gateway at any moment, of boards and gateway
on a radio at its worst, or a cut at each fragment of a move; and what arrived afterwards."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import logging
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import environment
from ..errors import UserError

if TYPE_CHECKING:
    from ..proof.sink_kills import Row

SUMMARY = "kill sink, gateway or boards while boards send, cut their radio, and judge what arrived"

SINK, GATEWAY, BLUETOOTH, MOVES = "sink", "gateway", "bluetooth", "moves"
LOCAL, S3 = "local", "s3"
SINK_KILLS = 3
RANDOM_KILLS = 100
RANDOM_MINUTES = 60.0
GATEWAY_KILLS = 100
BLUETOOTH_MINUTES = 10.0
MOVES_MINUTES = 90.0
DIRECT, RELAYED = "direct", "relayed"  # as proof/move_cuts.py has them

COLUMNS = (
    ("crash point", lambda r: r.point),
    ("kills", lambda r: r.kills),
    ("rows sent", lambda r: f"{r.rows_sent:,}"),
    ("acked, missing", lambda r: r.verdict.acked_missing),
    ("duplicates", lambda r: r.verdict.duplicates),
    ("phantoms", lambda r: r.verdict.phantoms),
    ("false acks", lambda r: r.verdict.acked_unsent),
    ("gaps wrong", lambda r: r.verdict.gaps_wrong),
    ("bad files, rows", lambda r: "%d, %d" % (r.files_bad, r.rows_divergent)),
    ("of them wrong", lambda r: r.verdict.quarantine_wrong),
    ("never landed", lambda r: r.verdict.never_landed + r.verdict.unacknowledged),
    ("sums wrong", lambda r: r.verdict.not_conserved),
    ("new generations", lambda r: r.generations),
    ("recovery s: half, most", lambda r: _seconds(r.recoveries_s)),
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        nargs="?",
        choices=(SINK, GATEWAY, BLUETOOTH, MOVES),
        default=SINK,
        metavar="sink|gateway|bluetooth|moves",
        help="(sink); bluetooth: boards on a virtual radio, with silences, cuts, loss, and kills of boards "
        "and of the gateway; moves: an operator moves over Bluetooth, cut at each fragment",
    )
    parser.add_argument(
        "--point",
        action="append",
        metavar="P",
        help="sink: only this one; moves: only this fragment, a number; may be given again",
    )
    parser.add_argument(
        "--kills",
        type=int,
        metavar="N",
        help="sink: kills at each point (%d), with --random in all (%d); gateway: kills in all (%d)"
        % (SINK_KILLS, RANDOM_KILLS, GATEWAY_KILLS),
    )
    parser.add_argument(
        "--random",
        action="store_true",
        help="sink: one lake, killed at random moments (JVM, Python or both), with random losses in between; "
        "fed and judged by a gateway that shares no code with the project",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        metavar="M",
        help="sink --random: start no further sink after this time (%g); bluetooth: for how long faults come "
        "(%g); moves: begin no further one after this time (%g)"
        % (RANDOM_MINUTES, BLUETOOTH_MINUTES, MOVES_MINUTES),
    )
    parser.add_argument(
        "--way",
        choices=(DIRECT, RELAYED),
        default=DIRECT,
        help="moves: between boards while the gateway is out of range (direct), or passed on by it (relayed)",
    )
    parser.add_argument(
        "--store",
        choices=(LOCAL, S3),
        default=LOCAL,
        help="sink: where lake and landing zone are: on this disk (local), or on an S3 server that is "
        "started here (s3; fetches 690 MB at first use)",
    )
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of what is sent and when (1)")
    parser.add_argument(
        "--report",
        metavar="FILE",
        help="sink, moves: what grows: points that are in it are left out, results are added",
    )


# Option -> what it belongs to.
OF = {
    "point": (SINK, MOVES),
    "report": (SINK, MOVES),
    "kills": (SINK, GATEWAY),
    "minutes": (BLUETOOTH, MOVES),
    "way": (MOVES,),
    "store": (SINK,),
}
NOT_RANDOM = ("point", "report", "store")  # of the sink, those that do not go with --random


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    _fitting(args)
    if args.kills is None:
        args.kills = RANDOM_KILLS if args.random else GATEWAY_KILLS if args.what == GATEWAY else SINK_KILLS
    if args.kills < 1:
        raise UserError("--kills %d: give at least 1" % args.kills)
    if args.random:
        return _random(args)
    return {SINK: _sink, GATEWAY: _gateway, BLUETOOTH: _bluetooth, MOVES: _moves}[args.what](args)


def _fitting(args: argparse.Namespace) -> None:
    """UserError for options that do not go with what is to be done."""
    if args.random and args.what != SINK:
        raise UserError("--random belongs to `hw crash sink`: leave it out")
    for name, whats in OF.items():
        value = getattr(args, name)
        if value in (None, LOCAL, DIRECT):
            continue
        if args.random and name in NOT_RANDOM:
            raise UserError("--%s does not go with --random: leave it out" % name)
        if args.what not in whats and not (args.random and name == "minutes"):
            belongs = " and ".join("`hw crash %s`" % what for what in whats)
            if name == "minutes":
                belongs = "`hw crash sink --random`, " + belongs
            raise UserError("--%s belongs to %s: leave it out" % (name, belongs))
    if args.minutes is not None and not args.minutes > 0:
        raise UserError("--minutes %g: give more than 0" % args.minutes)


def _with_bluetooth() -> None:
    environment.ensure("gateway")
    environment.ensure("bluetooth")
    environment.mosquitto()
    environment.bluetooth_micropython()
    # bumble reports what is in the air when a connection ends: that is what happens here all the time.
    logging.getLogger("bumble").setLevel(logging.CRITICAL)


def _bluetooth(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    _with_bluetooth()
    from ..proof.bluetooth_kills import BluetoothCrash, page
    from ..radio.station import Station

    minutes = BLUETOOTH_MINUTES if args.minutes is None else args.minutes
    with Station(args.seed) as station, _left() as folder:
        crash = BluetoothCrash(folder.path, station, args.seed, _say)
        return _judged(folder, crash, minutes, page)


def _moves(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    fragments = [_fragment(point) for point in args.point or ()]
    _with_bluetooth()
    from ..proof import move_cuts
    from ..radio.station import Station

    sweep = move_cuts.load(Path(args.report), args.way) if args.report else move_cuts.Sweep(args.way)

    def save() -> None:
        if args.report:
            _write(args.report, json.dumps(sweep.json()))

    minutes = MOVES_MINUTES if args.minutes is None else args.minutes
    with Station(args.seed) as station, _left() as folder:
        cuts = move_cuts.MoveCuts(folder.path, station, args.way, _say)
        try:
            move_cuts.run(sweep, cuts, fragments, minutes, save)
        finally:
            cuts.close()
        wrong = sweep.wrong()
        folder.right = not wrong
        _told(move_cuts.page(sweep), wrong)
    return (1 if wrong else 0), sweep.json()


def _fragment(point: str) -> int:
    if not point.isdecimal() or int(point) < 1:
        raise UserError("--point %s: give the number of a fragment, 1 or more" % point)
    return int(point)


def _told(lines: list[str], wrong: list[str]) -> None:
    print("\n".join(lines))
    print("WRONG: %s" % ", ".join(wrong) if wrong else "nothing is wrong")


@dataclasses.dataclass
class _Folder:
    path: Path
    right: bool = False


@contextlib.contextmanager
def _left() -> Iterator[_Folder]:
    """A folder that stays unless all was right."""
    import headwater_gateway

    folder = _Folder(Path(tempfile.mkdtemp(prefix="hw-crash-")))
    try:
        yield folder
    except headwater_gateway.UserError as trouble:
        raise UserError(str(trouble))
    finally:
        if folder.right:
            shutil.rmtree(folder.path)
        else:
            _say("database, segments, boards and logs are left in %s" % folder.path)


def _judged(
    folder: _Folder, crash: Any, extent: float, page: Callable[[Any], list[str]]
) -> tuple[int, dict[str, Any]]:
    """Let it run for so many minutes or kills, and tell what came of it."""
    try:
        ending = crash.run(extent)
    finally:
        crash.close()
    wrong = ending.wrong()
    folder.right = not wrong
    _told(page(ending), wrong)
    return (1 if wrong else 0), {**dataclasses.asdict(ending), "wrong": wrong}


def _gateway(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    environment.ensure("gateway")
    environment.ensure("lake")
    environment.jars()
    environment.mosquitto()
    from ..proof.gateway_kills import GatewayCrash, page

    with _left() as folder:
        crash = GatewayCrash(folder.path, args.seed, _say)
        return _judged(folder, crash, args.kills, page)


def _random(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    environment.ensure("lake")
    from ..proof.random_kills import RandomKills, page

    folder = Path(tempfile.mkdtemp(prefix="hw-crash-"))
    right = False
    try:
        minutes = RANDOM_MINUTES if args.minutes is None else args.minutes
        storm = RandomKills(folder, args.seed, _say).run(args.kills, minutes)
        wrong = storm.verdict.wrong()
        right = not wrong
        print("\n".join(page(storm)))
        print("WRONG: %s" % ", ".join(wrong) if wrong else "nothing is wrong")
    finally:
        if right:
            shutil.rmtree(folder)
        else:
            _say("landing zone, lake and output are left in %s" % folder)
    return (0 if right else 1), {**dataclasses.asdict(storm), "wrong": wrong}


def _sink(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    environment.ensure("lake")
    from ..proof.sink_kills import ALL, ALL_S3, Row

    known = ALL if args.store == LOCAL else ALL_S3
    chosen = list(dict.fromkeys(args.point or known))
    for point in chosen:
        if point not in known:
            raise UserError("no crash point '%s': there are %s" % (point, ", ".join(known)))
    rows = _load(args.report)
    began = time.monotonic()
    for point in chosen:
        wanted = args.kills - (rows[point].kills if point in rows else 0)
        if wanted < 1:
            continue
        seed = args.seed
        while point in rows and seed in rows[point].seeds:
            seed += 1
        row = _crash(args.store, point, seed, wanted)
        rows.setdefault(point, Row(point)).add(row)
        _say("%5.0f s  %s: %d kills, %s" % (time.monotonic() - began, point, row.kills, _result(row)))
        if args.report:
            _save(args.report, rows)
    shown = [rows[point] for point in ALL if point in rows]
    print("\n".join(table(shown)))
    wrong = [row.point for row in shown if row.verdict.wrong()]
    print("wrong: %s" % ", ".join(wrong) if wrong else "nothing is wrong")
    return (1 if wrong else 0), {"rows": [dataclasses.asdict(row) for row in shown]}


def _crash(where: str, point: str, seed: int, kills: int) -> Row:
    """One lake, killed at one point."""
    from ..environment.s3 import Server
    from ..proof.sink_kills import Crash

    with tempfile.TemporaryDirectory(prefix="hw-crash-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        server = None if where == LOCAL else stack.enter_context(Server(folder))
        return Crash(folder, point, seed, _say, server).run(kills)


def table(rows: list[Row]) -> list[str]:
    """The result as lines of Markdown."""
    cells = [[title for title, _ in COLUMNS], *([str(get(row)) for _, get in COLUMNS] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(COLUMNS))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(line, widths)) + " |" for line in cells]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return lines


def _result(row: Row) -> str:
    wrong = row.verdict.wrong()
    return "WRONG: %s" % ", ".join("%s %d" % item for item in wrong.items()) if wrong else "right"


def _seconds(recoveries: list[float]) -> str:
    if not recoveries:
        return "-"
    return "%.1f, %.1f" % (statistics.median(recoveries), max(recoveries))


def _load(report: str | None) -> dict[str, Row]:
    from ..proof.sink_kills import Row

    if report is None or not Path(report).exists():
        return {}
    try:
        return {row["point"]: Row.of(row) for row in json.loads(Path(report).read_text())["rows"]}
    except (ValueError, KeyError, TypeError):
        raise UserError("%s is no report of `hw crash`: name another file" % report)


def _save(report: str, rows: dict[str, Row]) -> None:
    _write(report, json.dumps({"rows": [dataclasses.asdict(row) for row in rows.values()]}, indent=1))


def _write(report: str, text: str) -> None:
    part = Path(report + ".part")
    part.write_text(text + "\n")
    part.replace(report)


def _say(text: str) -> None:
    print(text, flush=True)
