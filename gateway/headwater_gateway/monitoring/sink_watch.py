"""Whether the sink is alive, as far as its files tell.

A sink writes its sign of life, `_sink.json` (docs/spec.md, "Signs of life"), to the acknowledgements of its
lake and to the landing zone that it reads. Both name the same random id of that run. What counts is that a
file changes: clocks of other machines are not compared. A sink that reads this landing zone while
`lake.acks` shows another id, or none, writes to another lake.
"""

from __future__ import annotations

import json
import time
from typing import Any

from .alarms import SinkFacts

EVERY_S = 30.0  # if a file does not say how often it is written
ALIVE = 3  # times that long without a change, and its sink is gone
ALIVE_MIN_S = 90.0


class Sign:
    """One of the two files."""

    def __init__(self) -> None:
        self.content: dict[str, Any] = {}
        self.at: float | None = None  # when it last was new to us, by the monotone clock
        self.changes = 0  # that were observed
        self._text: str | None = None

    def take(self, text: str | None, now: float) -> None:
        if text == self._text:
            return
        if self._text is not None:
            self.changes += 1
        self._text = text
        self.content = _content(text)
        self.at = now if self.content else None

    @property
    def id(self) -> str:
        return str(self.content.get("id", ""))

    @property
    def stopped(self) -> bool:
        return self.content.get("stopped") is True

    @property
    def every_s(self) -> float:
        every = self.content.get("every_s")
        return float(every) if isinstance(every, (int, float)) and 1 <= every <= 3600 else EVERY_S

    def alive(self, now: float) -> bool:
        return (
            self.at is not None
            and not self.stopped
            and now - self.at <= max(ALIVE_MIN_S, ALIVE * self.every_s)
        )


def _content(text: str | None) -> dict[str, Any]:
    try:
        content = json.loads(text) if text else None
    except ValueError:
        return {}
    if not isinstance(content, dict) or content.get("format") != 1 or not isinstance(content.get("id"), str):
        return {}
    return content


class SinkWatch:
    def __init__(self, acks: str) -> None:
        self.place = acks
        self.acks = Sign()
        self.landing = Sign()
        self.read = False
        self.acked_at: float | None = None  # when an acknowledgement last advanced

    def take(self, answer: dict[str, Any], now: float | None = None) -> None:
        """What the cutter has read of both files."""
        now = time.monotonic() if now is None else now
        self.acks.take(answer["acks"], now)
        self.landing.take(answer["landing"], now)
        self.read = True

    def elsewhere(self, now: float) -> str:
        """Another lake that the sink of this landing zone writes to; empty if there is none."""
        landing, acks = self.landing, self.acks
        if not landing.changes or not landing.alive(now) or landing.id == acks.id or acks.alive(now):
            return ""
        return str(landing.content.get("lake", "?"))[:200]

    def facts(self, known: bool, ever: bool, now: float | None = None) -> SinkFacts:
        now = time.monotonic() if now is None else now
        return SinkFacts(
            read=self.read,
            known=known,
            ever=ever,
            acks=self.place,
            silent_s=None if self.acks.at is None else now - self.acks.at,
            stopped=self.acks.stopped,
            elsewhere=self.elsewhere(now),
            every_s=self.acks.every_s,
        )
