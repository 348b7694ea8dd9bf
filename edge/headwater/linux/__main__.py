"""`python -m headwater.linux FOLDER`: a host where only the runtime is installed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import serving


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m headwater.linux", description=serving.SUMMARY)
    serving.arguments(parser)
    args = parser.parse_args()
    try:
        code, _ = serving.run(Path(args.folder), args.log, args.check)
    except serving.HostError as problem:
        print("headwater: %s" % problem, file=sys.stderr)
        code = 2
    sys.exit(code)


if __name__ == "__main__":
    main()
