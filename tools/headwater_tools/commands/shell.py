"""`hw shell LAKE`: a Python prompt with Spark and the lake."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from .. import Trouble, house

SUMMARY = "a Python prompt with Spark and a lake: lake.streams(), lake.stream(NAME), spark.sql(...)"

BEGIN = """\
import sys
from headwater_cloud import Lake, session
spark = session.start(jars=sys.argv[2:])
lake = Lake(spark, sys.argv[1])
lake.register()
lake.streams().show(truncate=False)
print("`lake` and `spark` are there: lake.stream(NAME).show(), lake.gaps().show(), spark.sql(...).show()")
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lake", metavar="LAKE", help="folder of the lake, or its place on an object store")
    parser.add_argument("-c", metavar="CODE", help="run this instead of asking, then end", dest="code")


def run(args: argparse.Namespace) -> tuple[int, None]:
    house.ensure("lake")
    from headwater_cloud import tables
    from headwater_cloud.location import Location

    if not tables.exists(Location.of(args.lake) / "elements"):
        raise Trouble("there is no lake at %s: it has no table `elements`" % args.lake)
    python = [sys.executable, "-P"]
    code = BEGIN if args.code is None else BEGIN + args.code + "\n"
    words = [*python, *(["-i"] if args.code is None else []), "-c", code]
    lake = args.lake if "://" in args.lake else str(Path(args.lake).absolute())
    sys.stdout.flush()
    os.execve(sys.executable, [*words, lake, *map(str, house.jars())], house.environment())
