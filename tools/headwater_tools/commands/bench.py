"""`hw bench NAME ...`: measurements, each beside the bar that it has to reach."""

from __future__ import annotations

import argparse
from typing import Any

from .. import bench as benches
from ..bench import Measure, table
from ..bench.support import against, recorded
from ..cli import load, names
from ..errors import UserError

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
        raise UserError("no bench '%s': hw has %s" % (args.rest[0], ", ".join(known) or "none yet"))

    from ..cli import Parser

    parser = Parser(prog="hw bench " + " ".join(chosen), conflict_handler="resolve", allow_abbrev=False)
    parser.add_argument("names", nargs="+", choices=known, metavar="NAME")
    for name in chosen:
        load(benches, name).arguments(parser)
    parser.add_argument("--record", action="store_true", help="write the measures to docs/bench.json")
    parser.add_argument(
        "--against", metavar="COMMIT", help="compare with a commit: alternate runs there and here, medians"
    )
    parser.add_argument(
        "--repeat", type=int, metavar="N", help="with --against: runs on each side (%d)" % against.ROUNDS
    )
    options = parser.parse_args(args.rest)
    if options.against:
        return _against(options, args.rest)
    if options.repeat is not None:
        raise UserError("--repeat belongs to --against COMMIT")
    results = []
    for name in dict.fromkeys(options.names):
        bench = load(benches, name)
        measures: list[Measure] = bench.run(options, _say)
        print("\n".join(table(name, measures)))
        results.append({"bench": name, "measures": [measure.as_json() for measure in measures]})
        if options.record:
            quoted = tuple(getattr(bench, "QUOTED", ("",)))
            recorded.add(name, [measure for measure in measures if measure.name.startswith(quoted)])
    code = 0 if all(m["ok"] for result in results for m in result["measures"]) else 1
    return code, results[0] if len(results) == 1 else {"benches": results}


def _against(options: argparse.Namespace, words: list[str]) -> tuple[int, dict[str, Any]]:
    """Compare with another commit: the same arguments without those of the comparison."""
    if options.record or len(set(options.names)) > 1:
        raise UserError("--against compares one bench at a time, and records nothing")
    rounds = against.ROUNDS if options.repeat is None else options.repeat
    if rounds < 1:
        raise UserError("--repeat %d: give at least 1" % rounds)
    found = against.compare(_without(words, "--against", "--repeat"), options.against, rounds, _say)
    print("\n".join(against.table(found, options.against)))
    return 0, {"bench": options.names[0], "against": options.against, "rounds": rounds, "ratios": found}


def _without(words: list[str], *names: str) -> list[str]:
    """The words without these options and their values."""
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in names:
            skip = True
        elif word.partition("=")[0] not in names:
            kept.append(word)
    return kept


def _say(text: str) -> None:
    print(text, flush=True)
