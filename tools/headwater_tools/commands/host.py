"""`hw host`: the program of a board on this machine; what it does is in `headwater.linux`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from headwater.linux import serving

from ..errors import UserError

SUMMARY = serving.SUMMARY
arguments = serving.arguments


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any] | None]:
    try:
        return serving.run(Path(args.folder), args.log, args.check)
    except serving.HostError as problem:
        raise UserError(str(problem))
