"""`python -m headwater_gateway CONFIG [--rebuild]`: the gateway, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time

from . import UserError
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


def run(path: str, rebuild: bool = False) -> int:
    """Run the gateway of a configuration file; the exit code. UserError if it cannot start.

    With `rebuild` a lost database is rebuilt from what boards and lake know."""
    config = read(path)
    set_up_log(config.log.format, config.log.level)
    from .service import Service

    async def main() -> int:
        return await Service(config, rebuild).run()

    return asyncio.run(main())


def main() -> None:
    words = [word for word in sys.argv[1:] if word != "--rebuild"]
    if len(words) != 1 or words[0].startswith("-"):
        sys.exit("usage: python -m headwater_gateway CONFIG [--rebuild]")
    try:
        code = run(words[0], "--rebuild" in sys.argv)
    except UserError as trouble:
        print("headwater-gateway: %s" % trouble, file=sys.stderr)
        code = 2
    sys.exit(code)


if __name__ == "__main__":
    main()
