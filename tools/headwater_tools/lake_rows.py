"""`hw lake show`: the last rows of a stream as a table in the terminal, without Spark."""

from __future__ import annotations

import argparse
import datetime
from pathlib import Path
from typing import Any

from . import environment
from .errors import UserError

DESCRIPTION = (
    "the last rows of a stream, by time; without STREAM the streams that the lake has. Reads with delta-rs: "
    "it starts no Spark"
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lake", metavar="LAKE", help="folder or URL of the lake, or the folder of a site")
    parser.add_argument("stream", metavar="STREAM", nargs="?", help="name of the stream, like cardio/ecg")
    parser.add_argument("--last", type=int, default=10, metavar="N", help="the number of rows (10)")


def run(args: argparse.Namespace, storage: dict[str, str]) -> tuple[int, dict[str, Any]]:
    if not 1 <= args.last <= 100_000:
        raise UserError("--last %d: give 1 to 100000" % args.last)
    place = of_site(args.lake)
    from headwater_cloud import ArrowLake

    lake = ArrowLake(place, storage=storage)
    if place != args.lake and not (Path(place) / "streams").is_dir():
        raise UserError("%s has no rows yet: %s is made when the sink has started" % (args.lake, place))
    if args.stream is None:
        return _streams(lake)
    rows = lake.last(args.stream, args.last).to_pylist()
    shown = [{name: _text(value) for name, value in row.items()} for row in rows]
    if not rows:
        print("stream %s has no rows yet" % args.stream)
    else:
        from .boards.listing import table

        names = [name for name in rows[0] if name not in ("arrived", "landed", "incarnation")]
        for line in table([tuple(names), *(tuple(row[name] for name in names) for row in shown)]):
            print(line)
    return 0, {"stream": args.stream, "rows": shown}


def of_site(where: str) -> str:
    """The lake itself, where the folder of a site is named."""
    if "://" in where or not (Path(where) / "gateway.toml").is_file():
        return where
    environment.ensure("gateway")
    from .site.place import Place

    return Place(where).lake


def _streams(lake: Any) -> tuple[int, dict[str, Any]]:
    names = []
    for row in lake.streams().to_pylist():
        if row["stream"] not in names:
            names.append(row["stream"])
            print("%s  %s" % (row["stream"], row["alphabet"]))
    if not names:
        print("the lake has no stream yet")
    return 0, {"streams": names}


def _text(value: Any) -> str:
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)
