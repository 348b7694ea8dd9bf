"""`hw shell LAKE`: a Python prompt with Spark and the lake."""

from __future__ import annotations

import argparse
import code
import sys
import traceback
from pathlib import Path
from typing import Any

from .. import environment
from ..errors import UserError

SUMMARY = "a Python prompt with Spark and a lake: lake.streams(), lake.stream(NAME), spark.sql(...)"

BANNER = "`lake` and `spark` are ready: lake.stream(NAME).show(), lake.gaps().show(), spark.sql(...).show()"


def arguments(parser: argparse.ArgumentParser) -> None:
    from headwater_cloud.arguments import store

    parser.add_argument("lake", metavar="LAKE", help="folder of the lake, or its place on an object store")
    parser.add_argument("-c", metavar="CODE", help="run this code instead of a prompt, then end", dest="code")
    store(parser)


def run(args: argparse.Namespace) -> tuple[int, None]:
    environment.ensure("lake")
    from headwater_cloud import Lake, access, cli, session, tables
    from headwater_cloud.errors import LakeError
    from headwater_cloud.location import Location

    place = args.lake if "://" in args.lake else str(Path(args.lake).absolute())
    try:
        conf, storage = cli.store(args)
        tables.must_be_lake(Location.of(args.lake, access.for_delta_rs(conf, storage)))
        spark = session.start(jars=environment.jars(args.lake), more=conf, log="OFF")
        lake = Lake(spark, place, storage=storage)
        lake.register()
    except LakeError as error:
        raise UserError(str(error))
    # The name makes Spark send functions that are defined here to its workers by their text.
    names = {"__name__": "__main__", "lake": lake, "spark": spark}
    try:
        if args.code is not None:
            return _once(args.code, names), None
        lake.streams().show(truncate=False)
        _prompt(names)
        return 0, None
    finally:
        spark.stop()


def _once(text: str, names: dict[str, Any]) -> int:
    """Run the code; an error in it is shown as Python shows it, without our own lines."""
    try:
        exec(compile(text, "<-c>", "exec"), names)
    except Exception as error:
        inner = error.__traceback__.tb_next if error.__traceback__ else None
        traceback.print_exception(type(error), error, inner)
        return 1
    return 0


def _prompt(names: dict[str, Any]) -> None:
    if sys.stdin.isatty():
        import readline
        import rlcompleter

        readline.set_completer(rlcompleter.Completer(names).complete)
        readline.parse_and_bind("tab: complete")
    code.interact(BANNER, local=names, exitmsg="")
