"""The heartbeat of a gateway: how an outside watcher notices that the gateway is dead.

The gateway publishes it every `period_s`, retained, and leaves a last will with the broker, so that the
broker itself says "gone" when the connection ends without a farewell. `Pulse` is the watcher's rule: no
heartbeat for three periods, by the watcher's own clock, and the gateway is dead. What is retained counts as
one heartbeat at most, since it may be old.

Beats are ordered by (boot, connection): the last will of a connection that was replaced by a later one
comes late, and means nothing.
"""

from __future__ import annotations

import json
from typing import Any

FORMAT = 1
ALIVE, STOPPED, GONE = "alive", "stopped", "gone"
MISSED = 3  # periods without a heartbeat
PERIOD_S = 10.0  # until a heartbeat tells another


class Heart:
    """The gateway's side: the messages."""

    def __init__(self, site: str, log: int, boot: int, period_s: float) -> None:
        self.fields = {
            "format": FORMAT,
            "site": site,
            "gateway": "%016x" % log,
            "boot": boot,
            "period_s": period_s,
        }
        self.period_s = period_s
        self.connection = 0
        self._count = 0
        self._due = 0.0

    def will(self) -> bytes:
        """The last will of the next connection."""
        self.connection += 1
        self._due = 0.0
        return self._message(GONE)

    def due(self, now: float) -> bool:
        if now < self._due:
            return False
        self._due = now + self.period_s
        return True

    def beat(self, at_us: int, alarms: dict[str, int]) -> bytes:
        self._count += 1
        return self._message(ALIVE, at_us=at_us, count=self._count, alarms=alarms)

    def farewell(self, at_us: int) -> bytes:
        return self._message(STOPPED, at_us=at_us)

    def _message(self, state: str, **more: Any) -> bytes:
        return json.dumps({**self.fields, "state": state, "connection": self.connection, **more}).encode()


class Pulse:
    """The watcher's side: whether the gateway lives. Times are those of the watcher's own monotone clock."""

    def __init__(self, now: float) -> None:
        self.period_s = PERIOD_S
        self.heard = False  # a heartbeat, other than a retained one
        self.last = now  # when; or the watch began
        self.newest = (-1, -1)
        self.said: dict[str, Any] = {}
        self._gateway = ""
        self._end = ""

    def take(self, payload: bytes, retained: bool, now: float) -> None:
        message = _read(payload)
        if message is None:
            return
        order = (message["boot"], message["connection"])
        if message["gateway"] != self._gateway:
            self._gateway, self.newest = message["gateway"], (-1, -1)
        if order < self.newest:
            return
        self.newest, self.said = order, message
        if 0 < message["period_s"] <= 86_400:
            self.period_s = float(message["period_s"])
        if message["state"] == ALIVE:
            self._end = ""
            if not retained:
                self.heard, self.last = True, now
        elif not retained:
            self._end = message["state"]

    @property
    def left_s(self) -> float:
        """The time that a gateway has for its next heartbeat."""
        return MISSED * self.period_s

    def dead(self, now: float) -> str:
        """Why the gateway does not live, in a sentence; empty while it does, or that is not known yet."""
        if self._end == STOPPED:
            return "The gateway was stopped."
        if self._end == GONE:
            return "The gateway is gone: the broker has lost its connection."
        silent = now - self.last
        if silent <= self.left_s:
            return ""
        if self.heard:
            return "The gateway is dead: no heartbeat for %d s, three of its periods." % silent
        if self.said.get("state") in (STOPPED, GONE):
            return "The gateway is %s, as the broker remembers." % self.said["state"]
        return "No gateway speaks: no heartbeat in %d s." % silent


def _read(payload: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(payload)
    except ValueError:
        return None
    if not isinstance(message, dict) or message.get("format") != FORMAT:
        return None
    kinds: dict[str, type | tuple[type, ...]] = {
        "state": str, "gateway": str, "boot": int, "connection": int, "period_s": (int, float),
    }  # fmt: skip
    return message if all(isinstance(message.get(key), kind) for key, kind in kinds.items()) else None
