"""What receivers are told of alarms: the difference between what is on and what they were told last.

`Notices.look` compares the alarms that are on (monitoring/alarms.py, `Watch`) with `told`, and adds a
notice for each difference to the lane of every receiver. Both are in the database and change in one commit,
so a restart neither forgets an alarm nor tells it again. A muted alarm is told once as muted, if it was
told as on; after that nothing is sent of it until the mute ends, when it begins again. An alarm that a
person acknowledged is not repeated; a critical one that is not acknowledged is, every `repeat_s`.

The id of a notice is (log number of the gateway, boot, count), so none is ever given twice: not after a
crash that lost commits, and not by a database that is restored from a backup, which gets another log
number.

An alarm about a receiver is told to the others, never to the receiver itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..database.engine import Database
from ..monitoring.alarms import CRITICAL, RECEIVER_KINDS, Alarm, Open, Watch
from .lane import ACKNOWLEDGED, BEGAN, CHANGED, ENDED, LIMIT, MUTED, REPEATED, Entry, Lane

FORMAT = 1


@dataclass
class Told:
    """An alarm of which the receivers were told that it is on."""

    alarm: Alarm
    since_us: int
    acked_us: int
    said_us: int  # when it was told or repeated


class Notices:
    def __init__(
        self,
        db: Database,
        log: int,
        boot: int,
        site: str,
        receivers: Mapping[str, float],
        repeat_s: float,
        limit: int = LIMIT,
    ) -> None:
        """`receivers`: name -> the longest pause between two attempts."""
        self.db = db
        self.site = site
        self.repeat_us = int(repeat_s * 1e6)
        self.told: dict[str, Told] = {}
        self.on_told: Callable[[], None] = lambda: None
        self._log, self._boot, self._count = log, boot, 0
        sql = "SELECT alarm, severity, text, do, since, acked, said FROM told"
        for ident, severity, text, do, since, acked, said in db.query(sql):
            self.told[ident] = Told(Alarm(ident, severity, text, do), since, acked, said)
        self.lanes = {
            name: Lane(db, name, self._number, retry_max_s, limit) for name, retry_max_s in receivers.items()
        }
        self._seq = max((e.seq for lane in self.lanes.values() for e in lane.entries), default=0)
        self._agree()

    def _agree(self) -> None:
        """The configured receivers may be others than before."""
        known = self.db.query("SELECT value FROM meta WHERE key = 'receivers'")
        before = known[0][0].split() if known else []
        for name in before:
            if name not in self.lanes:
                self.db.execute("DELETE FROM notices WHERE receiver = ?", name)
        for name, lane in self.lanes.items():
            if name not in before:
                for told in self.told.values():
                    self._tell([lane], told, BEGAN, told.said_us)
        if not known or before != list(self.lanes):
            self.db.execute("INSERT OR REPLACE INTO meta VALUES('receivers', ?)", " ".join(self.lanes))

    def _number(self) -> tuple[int, str]:
        """Where a notice is in the sequence of those that wait, and its id."""
        self._seq += 1
        self._count += 1
        return self._seq, "%016x-%d-%d" % (self._log, self._boot, self._count)

    # ---- differences

    def look(self, watch: Watch, now_us: int) -> None:
        """Tell what has changed since the last look."""
        changed = False
        for ident, is_open in watch.open.items():
            changed |= self._compare(ident, is_open, ident in watch.mutes, now_us)
        for ident in [ident for ident in self.told if ident not in watch.open]:
            self._end(ident, ENDED, now_us)
            changed = True
        if changed:
            self.on_told()

    def _compare(self, ident: str, now_on: Open, muted: bool, now_us: int) -> bool:
        told = self.told.get(ident)
        if muted:
            if told is not None:
                self._mute(ident, now_us)
            return told is not None
        if told is not None and told.since_us != now_on.since_us:
            self._end(ident, ENDED, now_us)
            told = None
        if told is None:
            what = BEGAN
        elif told.alarm.severity != now_on.alarm.severity:
            what = CHANGED
        elif now_on.acked_us and not told.acked_us:
            what = ACKNOWLEDGED
        elif (
            self.repeat_us
            and told.alarm.severity == CRITICAL
            and not told.acked_us
            and now_us - told.said_us >= self.repeat_us
        ):
            what = REPEATED
        else:
            return False
        told = self.told[ident] = Told(now_on.alarm, now_on.since_us, now_on.acked_us, now_us)
        self._keep(told)
        lanes = [lane for lane in self._lanes(ident) if what != REPEATED or not lane.waits_for(ident)]
        self._tell(lanes, told, what, now_us)
        return True

    def _end(self, ident: str, what: str, now_us: int) -> None:
        told = self.told.pop(ident)
        self.db.execute("DELETE FROM told WHERE alarm = ?", ident)
        self._tell(self._lanes(ident), told, what, now_us)

    def _mute(self, ident: str, now_us: int) -> None:
        told = self.told.pop(ident)
        self.db.execute("DELETE FROM told WHERE alarm = ?", ident)
        heard = [lane for lane in self._lanes(ident) if lane.silence(ident)]
        self._tell(heard, told, MUTED, now_us)

    def _lanes(self, ident: str) -> list[Lane]:
        """The receivers that are told of this alarm."""
        kind, _, subject = ident.partition("/")
        return [lane for lane in self.lanes.values() if kind not in RECEIVER_KINDS or subject != lane.name]

    def _keep(self, told: Told) -> None:
        alarm = told.alarm
        self.db.execute(
            "INSERT OR REPLACE INTO told VALUES(?, ?, ?, ?, ?, ?, ?)",
            alarm.id, alarm.severity, alarm.text, alarm.do, told.since_us, told.acked_us, told.said_us,
        )  # fmt: skip

    def _tell(self, lanes: list[Lane], told: Told, what: str, at_us: int) -> None:
        if not lanes:
            return
        seq, ident = self._number()
        for lane in lanes:
            body = {"id": ident, "what": what, **self.body(told, at_us)}
            lane.add(Entry(seq, told.alarm.id, what, body))

    def body(self, told: Told, at_us: int) -> dict[str, Any]:
        """What is said of an alarm; times are the site's, in microseconds."""
        alarm = told.alarm
        return {
            "alarm": alarm.id,
            "severity": alarm.severity,
            "text": alarm.text,
            "do": alarm.do,
            "since_us": told.since_us,
            "acked_us": told.acked_us or None,
            "at_us": at_us,
        }

    def message(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """A notice or a state as it is sent."""
        return {"format": FORMAT, "site": self.site, **body}
