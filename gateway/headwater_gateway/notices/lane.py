"""A lane: the notices that wait for one receiver, in order, bounded, and in the database.

What it promises:
- Notices leave in the order in which they were added. One is sent at a time, and is sent again until the
  receiver has accepted or refused it; so each arrives at least once, and doubles have equal ids.
- A refused notice is parked: it is shown, and sent again only when a person asks for it. It gives way to
  the next notice of the same alarm, which says all that it says.
- At most `limit` notices wait. Beyond that, those of alarms that have ended are merged, the oldest first.
  What an alarm that is on needs stays: its beginning, and its newest notice. So does the end of an alarm
  that the receiver may know as on. A notice into which others were merged names their number and times.

An entry is sent when the commit that covers it has returned, because after a crash the database must not
hold an earlier form of what a receiver knows. While commits fail it is sent all the same: the alarm may be
that the database cannot be written.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ..database.engine import Database

BEGAN, CHANGED, ACKNOWLEDGED, REPEATED, ENDED, MUTED, MERGED = WHATS = (
    "began", "changed", "acknowledged", "repeated", "ended", "muted", "merged",
)  # fmt: skip
CLOSING = (ENDED, MUTED)  # after these a receiver takes the alarm for not on

LIMIT = 1000  # notices that wait for one receiver
NAMED_MAX = 20  # alarms that a summary names
WHY_MAX = 200  # characters
RETRY_MIN_S = 1.0


@dataclass(frozen=True)
class Outcome:
    """Of one attempt: "delivered", "refused" (not to be sent again), or "failed"."""

    what: str
    why: str = ""
    after_s: float = 0.0  # how long the receiver wants to be left alone


DELIVERED = Outcome("delivered")


@dataclass
class Entry:
    seq: int
    alarm: str  # empty: the summary of several
    what: str
    body: dict[str, Any]
    batch: int = 0  # the database's batch that covers it
    tried: bool = False  # the receiver may know it
    parked: str = ""  # why the receiver refused it

    @property
    def stands_for(self) -> int:
        """Other notices that were merged into this one."""
        merged = self.body.get("merged")
        return int(merged["count"]) if merged else 0

    @property
    def first_us(self) -> int:
        merged = self.body.get("merged")
        return int(merged["first_us"]) if merged else int(self.body["at_us"])


class Lane:
    def __init__(
        self,
        db: Database,
        name: str,
        number: Callable[[], tuple[int, str]],
        retry_max_s: float = 300.0,
        limit: int = LIMIT,
    ) -> None:
        """`number()`: the next sequence number, and the id that belongs to it."""
        self.db = db
        self.name = name
        self.number = number
        self.retry_max_s = retry_max_s
        self.limit = limit
        self.entries: list[Entry] = []
        self.sending: Entry | None = None
        self.on_change: Callable[[], None] = lambda: None
        self.delivered = self.failed = self.refused = 0  # since the start: notices, attempts, notices
        self.merged = self.overtaken = self.silenced = 0  # notices that are not sent by themselves
        self.why = ""  # the last attempt failed, because
        self.failing_since: float | None = None  # monotone; since then no attempt has succeeded
        self._fails = 0
        self._next = 0.0
        rows = db.query(
            "SELECT seq, alarm, what, body, parked FROM notices WHERE receiver = ? ORDER BY seq", name
        )
        for seq, alarm, what, body, parked in rows:
            # Any of them may have arrived before a crash.
            self.entries.append(Entry(seq, alarm, what, json.loads(body), 0, True, parked))

    # ---- what there is

    @property
    def waiting(self) -> list[Entry]:
        return [entry for entry in self.entries if not entry.parked]

    @property
    def parked(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.parked]

    def waits_for(self, alarm: str) -> bool:
        return any(entry.alarm == alarm and not entry.parked for entry in self.entries)

    def pause_s(self, now: float) -> float | None:
        """How long until the next attempt; None: nothing waits."""
        return max(0.0, self._next - now) if self.waiting else None

    # ---- adding

    def add(self, entry: Entry) -> None:
        assert not self.entries or entry.seq > self.entries[-1].seq, "a notice out of order"
        self.entries.append(entry)
        self._save(entry)
        if len(self.entries) > self.limit:
            self.compact()
        self.db.after_commit(self.on_change)

    def silence(self, alarm: str) -> bool:
        """Its alarm is muted: nothing of it is sent any more. Whether the receiver may know it as on."""
        group = [entry for entry in self.entries if entry.alarm == alarm]
        heard = self._heard(group)
        self.silenced += self._drop(group)
        return heard

    def _heard(self, group: list[Entry]) -> bool:
        """Whether the receiver may know of this alarm, whose entries that wait are these."""
        return not group or group[0].what != BEGAN or group[0].tried

    # ---- sending

    def due(self, now: float) -> Entry | None:
        """The notice to be sent now; `done` ends that."""
        if now < self._next or self.sending is not None:
            return None
        for entry in self.entries:
            if not entry.parked:
                self._overtake(entry)
                if entry.batch > self.db.committed and not self.db.failed:
                    return None
                entry.tried = True
                self.sending = entry
                return entry
        return None

    def done(self, entry: Entry, outcome: Outcome, now: float) -> None:
        assert self.sending is entry, "an attempt that was not under way"
        self.sending = None
        there = any(other is entry for other in self.entries)
        if outcome.what == "failed":
            self.failed += 1
            self.why = outcome.why[:WHY_MAX]
            if self.failing_since is None:
                self.failing_since = now
            pause = min(self.retry_max_s, RETRY_MIN_S * 2.0 ** min(self._fails, 30))
            self._next = now + max(pause * random.uniform(0.8, 1.0), min(outcome.after_s, self.retry_max_s))
            self._fails += 1
            return
        self.why, self.failing_since, self._fails, self._next = "", None, 0, 0.0
        if outcome.what == "refused":
            self.refused += 1
            if there:
                entry.parked = outcome.why[:WHY_MAX] or "refused"
                self._save(entry)
            return
        self.delivered += 1
        if there:
            self._drop([entry])

    def _overtake(self, entry: Entry) -> None:
        """Before a notice is sent, what was refused of its alarm goes, durably: it must not come after it."""
        past = [e for e in self.entries if e.parked and e.alarm == entry.alarm and e.seq < entry.seq]
        if past:
            self.overtaken += self._drop(past)
            entry.tried = True  # the receiver may know of the alarm by what went
            entry.batch = self.db.writing
            self.db.after_commit(self.on_change)

    def hurry(self) -> None:
        """The receiver may answer again: do not wait."""
        self._next = 0.0
        self.on_change()

    def retry(self) -> int:
        """Send again what was refused; how many notices that are."""
        parked = self.parked
        for entry in parked:
            entry.parked = ""
            self._save(entry)
        self.hurry()
        return len(parked)

    # ---- merging

    def compact(self) -> None:
        """Merge until three quarters of the limit wait, or nothing is left to merge."""
        groups: dict[str, list[Entry]] = {}
        for entry in self.entries:
            if entry.alarm:
                groups.setdefault(entry.alarm, []).append(entry)
        over: list[Entry] = []
        for group in groups.values():
            if len(self.entries) - len(over) <= 3 * self.limit // 4:
                break
            over += self._fold(group)
        if over:
            self._summarise(over)

    def _fold(self, group: list[Entry]) -> list[Entry]:
        """Merge notices of one alarm; those of which nothing need be known one by one."""
        rest = [entry for entry in group if entry is not self.sending]
        heard = self._heard(group) or len(rest) < len(group)
        group = rest
        closed = max((i for i, entry in enumerate(group) if entry.what in CLOSING), default=-1)
        past, present = group[: closed + 1], group[closed + 1 :]
        if past and heard:
            self._merge(past[:-1], past[-1])
        elif past and present:
            self._merge(past, present[0])
        elif past:
            return past
        first = 0 if present and present[0].what != BEGAN else 1
        self._merge(present[first:-1], present[-1] if present else None)
        return []

    def _merge(self, away: list[Entry], into: Entry | None) -> None:
        if not away or into is None:
            return
        self._note(into, away)
        self._drop(away)

    def _note(self, into: Entry, away: list[Entry]) -> None:
        count = sum(1 + entry.stands_for if entry.alarm else entry.stands_for for entry in away)
        first_us = min(entry.first_us for entry in away)
        if into.stands_for:
            first_us = min(first_us, into.first_us)
        into.body["merged"] = {
            "count": into.stands_for + count,
            "first_us": first_us,
            "last_us": max(entry.body["at_us"] for entry in away),
        }
        self.merged += sum(1 for entry in away if entry.alarm)
        self._save(into)

    def _summarise(self, over: list[Entry]) -> None:
        """One notice for alarms that began and ended, of which the receiver has not heard."""
        counts: dict[str, int] = {}
        former = [entry for entry in self.entries if not entry.alarm and not entry.tried]
        others = 0
        for entry in former:
            counts.update(entry.body["alarms"])
            others += entry.body["others"]
        for entry in over:
            counts[entry.alarm] = counts.get(entry.alarm, 0) + 1 + entry.stands_for
        named = dict(list(counts.items())[-NAMED_MAX:])
        others += sum(counts.values()) - sum(named.values())
        seq, ident = self.number()
        body: dict[str, Any] = {
            "id": ident, "what": MERGED, "alarms": named, "others": others, "at_us": over[-1].body["at_us"],
        }  # fmt: skip
        summary = Entry(seq, "", MERGED, body)
        self._note(summary, [*former, *over])
        count = body["merged"]["count"]
        body["text"] = "%d notices of alarms that began and ended were merged while %s did not answer." % (
            count, self.name,
        )  # fmt: skip
        self._drop([*former, *over])
        self.entries.append(summary)
        self._save(summary)

    # ---- storing

    def _save(self, entry: Entry) -> None:
        self.db.execute(
            "INSERT OR REPLACE INTO notices VALUES(?, ?, ?, ?, ?, ?)",
            self.name, entry.seq, entry.alarm, entry.what, json.dumps(entry.body), entry.parked,
        )  # fmt: skip
        entry.batch = self.db.writing

    def _drop(self, away: Iterable[Entry]) -> int:
        gone = {entry.seq for entry in away}
        for seq in gone:
            self.db.execute("DELETE FROM notices WHERE receiver = ? AND seq = ?", self.name, seq)
        self.entries = [entry for entry in self.entries if entry.seq not in gone]
        return len(gone)

    # ---- its state

    def view(self, now: float, now_us: int) -> dict[str, Any]:
        waiting, parked = self.waiting, self.parked
        failing_s = None if self.failing_since is None else now - self.failing_since
        return {
            "name": self.name,
            "waiting": len(waiting),
            "since_us": waiting[0].body["at_us"] if waiting else None,
            "failing_since_us": None if failing_s is None else now_us - int(1e6 * failing_s),
            "why": self.why,
            "next_s": None if failing_s is None else round(max(0.0, self._next - now)),
            "refused": len(parked),
            "refused_why": parked[-1].parked if parked else "",
            "delivered": self.delivered,
            "merged": self.merged,
        }
