"""`hw bench NAME ...`: measurements, each beside the bar that it has to reach."""

from __future__ import annotations

import argparse
from typing import Any

from .. import Trouble
from .. import bench as benches
from ..bench import Measure, table
from ..cli import load, names

SUMMARY = "measure: `hw bench` lists what can be measured"
REST = True


def arguments(parser: argparse.ArgumentParser) -> None:
    known = names(benches)
    parser.usage = "hw bench [--json] NAME [NAME ...] [arguments of that bench; `hw bench NAME --help`]"
    parser.epilog = "; ".join("%s: %s" % (name, load(benches, name).SUMMARY) for name in known)


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    known = names(benches)
    chosen = [word for word in args.rest if word in known]
    if not args.rest:
        for name in known:
            print("  hw bench %-9s %s" % (name, load(benches, name).SUMMARY))
        return 0, {"benches": known}
    if not chosen:
        raise Trouble("no bench '%s': hw has %s" % (args.rest[0], ", ".join(known) or "none yet"))

    from ..cli import Parser

    parser = Parser(prog="hw bench " + " ".join(chosen), conflict_handler="resolve", allow_abbrev=False)
    parser.add_argument("names", nargs="+", choices=known, metavar="NAME")
    for name in chosen:
        load(benches, name).arguments(parser)
    options = parser.parse_args(args.rest)
    results = []
    for name in dict.fromkeys(options.names):
        measures: list[Measure] = load(benches, name).run(options, _say)
        print("\n".join(table(name, measures)))
        results.append({"bench": name, "measures": [measure.as_json() for measure in measures]})
    code = 0 if all(m["ok"] for result in results for m in result["measures"]) else 1
    return code, results[0] if len(results) == 1 else {"benches": results}


def _say(text: str) -> None:
    print(text, flush=True)
