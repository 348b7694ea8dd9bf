"""`hw lake`: upkeep of a lake, its quarantine, and erasure."""

from __future__ import annotations

import argparse
import getpass
from typing import TYPE_CHECKING, Any

from .. import environment, lake_rows
from ..errors import UserError
from . import maintain
from .sink import serve

if TYPE_CHECKING:
    from headwater_cloud.requeue import Entry

SUMMARY = (
    "a lake: show prints rows of a stream, quarantine lists what was refused, requeue brings it back, erase "
    "removes elements permanently, register names it in a catalog, maintain compacts and cleans up"
)
ERASE = """\
Remove the elements of a stream that a filter selects, and keep them from landing later.

  hw lake erase landing lake cardio/ecg --where "ts >= '2026-11-01' and ts < '2026-11-02'" --by "A. Name"

The filter compares ts, arrived (times in UTC), xi, incarnation (16 hex digits in quotes), unsync and the
fields of the stream: = != < <= > >= between in and or not, parentheses.

What is removed: the rows in `elements`, and every older version of that table, so no earlier moment of the
lake can be read any more; selected rows in quarantine, and the bytes of files in quarantine that have such
rows, or that cannot be read and may have them by their names; such segments in the landing zone, once the
lake has their other rows. Elements that arrive later from a board, the gateway or a segment that is cut again
are left out before they land. They are acknowledged, so the gateway and the boards delete their copies as
they do with elements that have landed: `hw gateway state` shows when nothing waits any more.

What stays: the erasure itself with filter, name and reason, and the ξ that it erased (`hw audit` lists them,
so write nothing into the filter that must not be kept); the declared gaps and their times.

What you have to remove yourself: backups of the lake and of the gateway's database, whatever was copied out
of the lake, and other streams that were computed from this one (erase them as well). The flash of a board and
the database of the gateway reuse the space in time; until then, deleted bytes can be found on the medium.

A Spark stream that reads `elements` needs the option skipChangeCommits, or it ends at the deletion.

The sink that runs on the lake does it between two batches; if none runs, one is started, processes what waits
in the landing zone, and ends. A kill in between does no harm: the next sink on the lake finishes it.
"""

SHOWN_MAX = 100  # lines of the page; --json has all


def arguments(parser: argparse.ArgumentParser) -> None:
    from headwater_cloud.arguments import store

    which = parser.add_subparsers(
        dest="do", metavar="show|quarantine|requeue|erase|register|maintain", required=True
    )
    rows = which.add_parser("show", help="print the last rows of a stream", description=lake_rows.DESCRIPTION)
    lake_rows.arguments(rows)
    about = "list what is in quarantine: an id, its reason and its file"
    listing = which.add_parser("quarantine", help=about, description=about)
    listing.add_argument("lake", metavar="LAKE", help="folder or URL of the lake")
    about = (
        "bring back what is in quarantine: files whose rows are right after all become segments of the "
        "landing zone, which the sink takes or refuses like any other; divergent rows only where `elements` "
        "does not have their ξ any more"
    )
    back = which.add_parser("requeue", help="bring some of it back", description=about)
    back.add_argument("landing", metavar="LANDING", help="folder or URL that the sink takes segments from")
    back.add_argument("lake", metavar="LAKE", help="folder or URL of the lake")
    back.add_argument(
        "ids", metavar="ID", nargs="+", help="as `hw lake quarantine` lists them; all: everything"
    )
    keep = which.add_parser("maintain", help=maintain.SUMMARY, description=maintain.SUMMARY)
    maintain.arguments(keep)
    erase = which.add_parser(
        "erase",
        help="remove elements of a stream, also those that arrive later",
        description=ERASE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _erase_arguments(erase)
    about = (
        "register the tables and views of a lake in a catalog, where plain SQL and BI tools find them by "
        "name; run it again to bring the views up to date"
    )
    named = which.add_parser("register", help="name its tables and views in a catalog", description=about)
    named.add_argument("lake", metavar="LAKE", help="folder or URL of the lake")
    named.add_argument("--catalog", metavar="NAME", help="catalog of Spark (that of the session)")
    named.add_argument("--schema", metavar="NAME", help="schema in it, created if missing (default)")
    named.add_argument(
        "--metastore", metavar="FOLDER", help="keep the catalog in this folder, if there is no metastore"
    )
    named.add_argument(
        "--drop-gone", action="store_true", help="drop views of this lake whose streams are gone"
    )
    named.add_argument("--master", default="local[*]", help="Spark's master, as in `hw sink`")
    for one in (rows, listing, back, named, erase):
        store(one)
    for one in (rows, listing, back, erase, named, keep):
        one.add_argument(
            "--json",
            action="store_true",
            default=argparse.SUPPRESS,
            help="print one JSON object as the last line",
        )


def _erase_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("landing", metavar="LANDING", help="folder or URL that the sink takes segments from")
    parser.add_argument("lake", metavar="LAKE", help="folder or URL of the lake")
    parser.add_argument("stream", metavar="STREAM", help="name of the stream, like cardio/ecg")
    parser.add_argument("--where", required=True, metavar="FILTER", help="which of its elements")
    parser.add_argument("--by", default=_user(), metavar="NAME", help="who erases (the user's name)")
    parser.add_argument("--reason", default="", metavar="TEXT", help="why; it is kept")
    parser.add_argument(
        "--also-later",
        action="store_true",
        help="the filter may also select elements that are measured from now on: they will never land",
    )
    parser.add_argument("--dry-run", action="store_true", help="only count what would be removed")
    parser.add_argument(
        "--wait", type=float, default=600.0, metavar="S", help="how long a running sink may take (600)"
    )
    parser.add_argument("--shared", action="store_true", help="as in `hw sink`")
    parser.add_argument("--master", default="local[*]", help="Spark's master, as in `hw sink`")


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may have a user without a name
        return ""


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any] | None]:
    if args.do == "maintain":
        return maintain.run(args)
    if args.do == "erase":
        return serve("erase", args, args.landing, args.lake)
    if args.do == "register":
        return serve("register", args, args.lake)
    environment.ensure("lake")
    from headwater_cloud import cli, requeue
    from headwater_cloud.errors import LakeError

    try:
        if args.do == "show":
            return lake_rows.run(args, cli.location(args, args.lake).options)
        lake = cli.location(args, args.lake)
        known = requeue.entries(lake)
        if args.do == "quarantine":
            return 0, _list(known)
        ids = [entry.id for entry in known] if args.ids == ["all"] else args.ids
        outcomes = requeue.requeue(lake, cli.location(args, args.landing), ids)
    except LakeError as error:
        raise UserError(str(error))
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
