"""The sink's sign of life, for the gateway: docs/spec.md, "Signs of life".

A small file beside the acknowledgements and the same one in the landing zone, replaced every `EVERY_S` by a
thread of its own, so that a long batch is not mistaken for a dead sink. It helps people, and nothing depends
on it: if a place cannot be written, that is logged once, and the sink continues.
"""

from __future__ import annotations

import datetime
import json
import secrets
import threading
from collections.abc import Callable

from py4j.protocol import Py4JError

from .files import Files
from .location import Location

NAME = "_sink.json"  # no process has a file of this name
EVERY_S = 30.0


class Sign:
    def __init__(
        self,
        files: Files,
        landing: Location,
        lake: Location,
        say: Callable[[str], None],
        every_s: float = EVERY_S,
    ) -> None:
        self._files = files
        self._places = [lake / "acks" / NAME, landing / NAME]
        self._said: set[str] = set()
        self._say = say
        self._content = {
            "format": 1, "id": secrets.token_hex(8), "every_s": every_s, "lake": str(lake),
            "landing": str(landing),
        }  # fmt: skip
        self._every_s = every_s
        self._count = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sign of life", daemon=True)

    def __enter__(self) -> Sign:
        self._write(False)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()
        self._write(True)

    def _run(self) -> None:
        while not self._over.wait(self._every_s):
            self._write(False)

    def _write(self, stopped: bool) -> None:
        self._count += 1
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        text = json.dumps({**self._content, "count": self._count, "at": now, "stopped": stopped}) + "\n"
        for place in self._places:
            try:
                self._files.write(place, text)
            except (OSError, Py4JError) as error:
                if str(place) not in self._said:
                    self._said.add(str(place))
                    why = error.strerror if isinstance(error, OSError) else type(error).__name__
                    self._say(
                        "cannot write %s (%s): the gateway cannot see from it whether this sink lives"
                        % (place, why)
                    )
