"""`hw crash`: kill -9 of the sink at each of its steps, of the gateway at any moment, or of boards and gateway
on a radio at its worst, and what arrived afterwards."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import environment
from ..errors import UserError

if TYPE_CHECKING:
    from ..proof.sink_kills import Row

SUMMARY = "kill sink, gateway or boards while boards send, also over Bluetooth, and judge what arrived"

SINK, GATEWAY, BLUETOOTH = "sink", "gateway", "bluetooth"
LOCAL, S3 = "local", "s3"
SINK_KILLS = 3
RANDOM_KILLS = 100
RANDOM_MINUTES = 60.0
GATEWAY_KILLS = 100
BLUETOOTH_MINUTES = 10.0

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
        choices=(SINK, GATEWAY, BLUETOOTH),
        default=SINK,
        metavar="sink|gateway|bluetooth",
        help="(sink); bluetooth: boards with Bluetooth on a virtual radio, with silences, cuts, loss, and kills of "
        "boards and of the gateway, judged by what landed",
    )
    parser.add_argument(
        "--point", action="append", metavar="P", help="sink: only this one; may be given again"
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
        help="sink --random: start no further sink after this time (%g); bluetooth: faults for so long (%g)"
        % (RANDOM_MINUTES, BLUETOOTH_MINUTES),
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
        help="sink: a table that grows: points that have their kills in it are left out, results are added",
    )


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    if args.what == BLUETOOTH and args.kills is not None:
        raise UserError("--kills %d does not go with bluetooth: give --minutes instead" % args.kills)
    if args.kills is None:
        args.kills = RANDOM_KILLS if args.random else GATEWAY_KILLS if args.what == GATEWAY else SINK_KILLS
    if args.kills < 1:
        raise UserError("--kills %d: give at least 1" % args.kills)
    if args.minutes is not None and not args.random and args.what != BLUETOOTH:
        raise UserError(
            "--minutes belongs to `hw crash sink --random` and `hw crash bluetooth`: leave it out"
        )
    if args.what == SINK and not args.random:
        return _sink(args)
    for name in ("point", "report", "store"):
        if getattr(args, name) not in (None, LOCAL):
            where = "does not go with --random" if args.random else "belongs to `hw crash sink`"
            raise UserError("--%s %s: leave it out" % (name, where))
    if args.random and args.what != SINK:
        raise UserError("--random belongs to `hw crash sink`: leave it out")
    if args.what == BLUETOOTH:
        return _bluetooth(args)
    return _random(args) if args.random else _gateway(args)


def _bluetooth(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    minutes = BLUETOOTH_MINUTES if args.minutes is None else args.minutes
    if not minutes > 0:
        raise UserError("--minutes %g: give more than 0" % minutes)
    environment.ensure("gateway")
    environment.ensure("bluetooth")
    environment.mosquitto()
    environment.bluetooth_micropython()
    import headwater_gateway

    from ..proof.bluetooth_kills import BluetoothCrash, page
    from ..radio.station import Station

    folder = Path(tempfile.mkdtemp(prefix="hw-crash-"))
    right = False
    with Station(args.seed) as station:
        crash = BluetoothCrash(folder, station, args.seed, _say)
        try:
            ending = crash.run(minutes)
            wrong = ending.wrong()
            right = not wrong
            print("\n".join(page(ending)))
            print("WRONG: %s" % ", ".join(wrong) if wrong else "nothing is wrong")
        except headwater_gateway.UserError as trouble:
            raise UserError(str(trouble))
        finally:
            crash.close()
            if right:
                shutil.rmtree(folder)
            else:
                _say("database, segments, boards and logs are left in %s" % folder)
    return (0 if right else 1), {**dataclasses.asdict(ending), "wrong": wrong}


def _gateway(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    environment.ensure("gateway")
    environment.ensure("lake")
    environment.jars()
    environment.mosquitto()
    import headwater_gateway

    from ..proof.gateway_kills import GatewayCrash, page

    folder = Path(tempfile.mkdtemp(prefix="hw-crash-"))
    crash = GatewayCrash(folder, args.seed, _say)
    right = False
    try:
        ending = crash.run(args.kills)
        wrong = ending.wrong()
        right = not wrong
        print("\n".join(page(ending)))
        print("WRONG: %s" % ", ".join(wrong) if wrong else "nothing is wrong")
    except headwater_gateway.UserError as trouble:
        raise UserError(str(trouble))
    finally:
        crash.close()
        if right:
            shutil.rmtree(folder)
        else:
            _say("database, segments, lake and logs are left in %s" % folder)
    return (0 if right else 1), {**dataclasses.asdict(ending), "wrong": wrong}


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
    text = json.dumps({"rows": [dataclasses.asdict(row) for row in rows.values()]}, indent=1)
    part = Path(report + ".part")
    part.write_text(text + "\n")
    part.replace(report)


def _say(text: str) -> None:
    print(text, flush=True)
