"""Events and alarms that survive a restart: two small tables of the database.

The newest `EVENTS_MAX` events are kept. An alarm has a row while it is on or muted.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

from ..database.engine import Database
from .alarms import KINDS, Alarm, Open, Watch

_log = logging.getLogger("headwater")

EVENTS_MAX = 500
TEXT_MAX = 500  # characters of an event


class Journal:
    def __init__(self, db: Database) -> None:
        self.db = db
        self.events: deque[dict[str, Any]] = deque(maxlen=EVENTS_MAX)
        rows = db.query("SELECT id, at, kind, text FROM events ORDER BY id DESC LIMIT ?", EVENTS_MAX)
        for ident, at, kind, text in reversed(rows):
            self.events.append({"id": ident, "kind": kind, "text": text, "at_us": at})
        self._last: int = self.events[-1]["id"] if self.events else 0
        self.watch = Watch()
        for ident, severity, text, do, since, acked, muted in db.query(
            "SELECT id, severity, text, do, since, acked, muted FROM alarms"
        ):
            if ident.partition("/")[0] not in KINDS:
                continue  # of another version
            if since is not None:
                self.watch.open[ident] = Open(Alarm(ident, severity, text, do), since, acked, sure=False)
            if muted is not None:
                self.watch.mutes[ident] = muted

    def event(self, kind: str, text: str, at_us: int) -> dict[str, Any]:
        """Record that something happened; the event with its id."""
        _log.log(logging.WARNING if kind == "alarm" else logging.INFO, "%s", text)
        self._last += 1
        event = {"id": self._last, "kind": kind, "text": text[:TEXT_MAX], "at_us": at_us}
        self.events.append(event)
        self.db.execute("INSERT INTO events VALUES(?, ?, ?, ?)", event["id"], at_us, kind, event["text"])
        self.db.execute("DELETE FROM events WHERE id <= ?", self._last - EVENTS_MAX)
        return event

    def save(self) -> None:
        """Store what changed of the alarms."""
        for ident in self.watch.changed:
            is_open, muted = self.watch.open.get(ident), self.watch.mutes.get(ident)
            if is_open is None and muted is None:
                self.db.execute("DELETE FROM alarms WHERE id = ?", ident)
                continue
            alarm = is_open.alarm if is_open else Alarm(ident, "", "", "")
            self.db.execute(
                "INSERT OR REPLACE INTO alarms VALUES(?, ?, ?, ?, ?, ?, ?)",
                ident, alarm.severity, alarm.text, alarm.do, is_open.since_us if is_open else None,
                is_open.acked_us if is_open else 0, muted,
            )  # fmt: skip
        self.watch.changed.clear()
