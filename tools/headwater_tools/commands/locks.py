"""`hw locks`: every package of the gateway has a wheel for a Raspberry Pi, according to the package index."""

from __future__ import annotations

import argparse
from typing import Any

from ..environment import wheels

SUMMARY = "check that the gateway's packages can be installed on a Raspberry Pi (64-bit ARM)"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--write", action="store_true", help="record what was found in %s" % wheels.RECORD.name
    )


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    found = []
    for python in wheels.VERSIONS:
        some = wheels.resolve(python)
        print("Python %s on aarch64: %d packages, each with a wheel" % (python, len(some)), flush=True)
        found += some
    problems = wheels.problems(found)
    if args.write and not problems:
        wheels.RECORD.write_text(wheels.text(found))
        print("written %s" % wheels.RECORD)
    elif not wheels.RECORD.exists() or sorted(wheels.recorded()) != sorted(found):
        problems.append("%s differs: `hw locks --write` rewrites it" % wheels.RECORD.name)
    for problem in problems:
        print(problem)
    return (1 if problems else 0), {"wheels": [wheel._asdict() for wheel in found], "problems": problems}
