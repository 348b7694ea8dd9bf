"""`python -m headwater_gateway CONFIG`: the gateway, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time

from . import Trouble
from .config import read


class JsonLines(logging.Formatter):
    """One object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": "%s.%03dZ"
            % (time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)), record.msecs),
            "level": record.levelname.lower(),
            "part": record.name.partition(".")[2] or record.name,
            "text": record.getMessage(),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line)


def set_up_log(form: str, level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonLines() if form == "json" else logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    )
    root = logging.getLogger("headwater")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False


def run(path: str) -> int:
    """Run the gateway of a configuration file; the exit code. Trouble where it cannot start."""
    config = read(path)
    set_up_log(config.log.format, config.log.level)
    from .service import Service

    async def main() -> int:
        return await Service(config).run()

    return asyncio.run(main())


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python -m headwater_gateway CONFIG")
    try:
        code = run(sys.argv[1])
    except Trouble as trouble:
        print("headwater-gateway: %s" % trouble, file=sys.stderr)
        code = 2
    sys.exit(code)


if __name__ == "__main__":
    main()
