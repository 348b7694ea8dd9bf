"""`hw lake`: upkeep of a lake, and its quarantine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import Trouble, house
from . import maintain

if TYPE_CHECKING:
    from headwater_cloud.requeue import Entry

SUMMARY = (
    "a lake: quarantine lists what was refused, requeue brings it back, register names it in a catalog, "
    "maintain compacts and cleans up"
)

SHOWN_MAX = 100  # lines of the page; --json has all


def arguments(parser: argparse.ArgumentParser) -> None:
    which = parser.add_subparsers(dest="do", metavar="quarantine|requeue|register|maintain", required=True)
    about = "list what is in quarantine: an id, its reason and its file"
    listing = which.add_parser("quarantine", help=about, description=about)
    listing.add_argument("lake", metavar="LAKE", help="folder or URL of the lake")
    about = (
        "bring back what is in quarantine: files whose rows are right after all become segments of the "
        "landing zone, which the sink takes or refuses like any other; divergent rows only where `elements` "
        "does not have their ξ any more"
    )
    back = which.add_parser("requeue", help="bring some of it back", description=about)
    back.add_argument("landing", metavar="LANDING", help="folder that the sink takes segments from")
    back.add_argument("lake", metavar="LAKE", help="folder or URL of the lake")
    back.add_argument(
        "ids", metavar="ID", nargs="+", help="as `hw lake quarantine` lists them; all: everything"
    )
    keep = which.add_parser("maintain", help=maintain.SUMMARY, description=maintain.SUMMARY)
    maintain.arguments(keep)
    about = (
        "register the tables and views of a lake in a catalog, where plain SQL and BI tools find them by "
        "name; run it again to bring the views up to date"
    )
    named = which.add_parser("register", help="name its tables and views in a catalog", description=about)
    named.add_argument("lake", metavar="LAKE", help="folder or URL of the lake")
    named.add_argument("--catalog", metavar="NAME", help="catalog of Spark (that of the session)")
    named.add_argument("--schema", metavar="NAME", help="schema in it, made where there is none (default)")
    named.add_argument(
        "--metastore", metavar="FOLDER", help="keep the catalog in this folder, where there is no metastore"
    )
    named.add_argument(
        "--drop-gone", action="store_true", help="drop views of this lake whose streams are gone"
    )
    named.add_argument("--master", default="local[*]", help="Spark's master, as in `hw sink`")
    named.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="as in `hw sink`")
    for one in (listing, back, named):
        one.add_argument(
            "--storage", action="append", default=[], metavar="KEY=VALUE", help="as in `hw sink`"
        )
    for one in (listing, back, named, keep):
        one.add_argument(
            "--json",
            action="store_true",
            default=argparse.SUPPRESS,
            help="print one JSON object as the last line",
        )


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any] | None]:
    if args.do == "maintain":
        return maintain.run(args)
    house.ensure("lake")
    from headwater_cloud import location, requeue, service
    from headwater_cloud.errors import LakeError

    try:
        if args.do == "register":
            return service.register(args, args.master, house.jars(), _say(args))
        lake = location.Location.of(args.lake, service.pairs(args.storage, "--storage"))
        known = requeue.entries(lake)
        if args.do == "quarantine":
            return 0, _list(known)
        ids = [entry.id for entry in known] if args.ids == ["all"] else args.ids
        outcomes = requeue.requeue(lake, location.Location.of(args.landing), ids)
    except LakeError as error:
        raise Trouble(str(error))
    for outcome in outcomes:
        head = "%s %s" % (outcome.entry.id, outcome.entry.file)
        if outcome.put:
            print("%s: %d rows wait for the sink in %s" % (head, outcome.rows, ", ".join(outcome.put)))
        if outcome.why:
            print("%s stays: %s" % (head, outcome.why))
    answer = {
        "requeued": [
            {
                "id": o.entry.id,
                "file": o.entry.file,
                "segments": o.put,
                "rows": o.rows,
                "stays": o.why or None,
            }
            for o in outcomes
        ]
    }
    return (0 if all(o.put for o in outcomes) else 1), answer


def _say(args: argparse.Namespace) -> Callable[[str], None]:
    return lambda text: print(text, file=sys.stderr if args.json else sys.stdout, flush=True)


def _list(known: list[Entry]) -> dict[str, Any]:
    for entry in known[:SHOWN_MAX]:
        print("%s  %-9s  %s: %s" % (entry.id, entry.reason, entry.file, "; ".join(entry.details)))
    if len(known) > SHOWN_MAX:
        print("and %d more (--json lists them)" % (len(known) - SHOWN_MAX))
    if not known:
        print("nothing is in quarantine")
    return {
        "quarantine": [
            {"id": e.id, "reason": e.reason, "file": e.file, "rows": e.rows, "details": list(e.details)}
            for e in known
        ]
    }
