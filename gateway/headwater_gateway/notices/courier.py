"""Couriers: each takes the notices of one lane to its receiver, one at a time, and never gives up.

`Mqtt` is the receiver `mqtt`: the topic of notices on the site's broker, QoS 1, delivered when the broker
has acknowledged it. Beside it, every alarm that the receivers know as on has a retained message on a topic
of its own, so that whoever subscribes later finds what is on. These messages follow the state and not the
notices: after each connection all of them are published again, and what the broker remembers beyond them is
cleared.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from ..board_link import Link
from . import topics
from .lane import DELIVERED, Lane, Outcome
from .queue import Notices

_log = logging.getLogger("headwater.notices")

ACK_S = 10.0  # for the broker to acknowledge
IDLE_S = 60.0

Send = Callable[[dict[str, Any]], Awaitable[Outcome]]


class Courier:
    def __init__(self, lane: Lane, notices: Notices, send: Send) -> None:
        self.lane = lane
        self.notices = notices
        self.send = send
        self.tried = False  # an attempt has ended
        self._wake = asyncio.Event()
        lane.on_change = self._wake.set

    async def run(self) -> None:
        while True:
            self._wake.clear()
            entry = self.lane.due(time.monotonic())
            if entry is None:
                pause = self.lane.pause_s(time.monotonic())
                try:
                    async with asyncio.timeout(IDLE_S if pause is None else max(pause, 0.05)):
                        await self._wake.wait()
                except TimeoutError:
                    pass
                continue
            try:
                outcome = await self.send(self.notices.message(entry.body))
            except Exception as error:  # a defect of ours must not end the alarms
                _log.exception("receiver %s: a notice could not be sent", self.lane.name)
                outcome = Outcome("failed", "defect: %s" % type(error).__name__)
            self._note(outcome)
            self.lane.done(entry, outcome, time.monotonic())
            self.tried = True

    def _note(self, outcome: Outcome) -> None:
        """Log the first failure of several, and that it is over."""
        lane = self.lane
        if outcome.what == "delivered":
            if lane.failing_since is not None:
                _log.info("receiver %s answers again", lane.name)
        elif outcome.why != lane.why:
            _log.warning("receiver %s: %s", lane.name, outcome.why)


class Mqtt:
    NAME = "mqtt"

    def __init__(self, site: str, notices: Notices) -> None:
        self.site = site
        self.notices = notices
        self.link: Link | None = None
        self._published: dict[str, bytes] = {}  # topic -> what the broker has, or is being sent
        self._echoes: dict[str, asyncio.Future[None]] = {}  # id of a notice under way -> it came back

    def connected(self) -> None:
        """A new connection: the broker may have forgotten all of it."""
        self._published = {}
        self.publish_states()

    async def send(self, message: dict[str, Any]) -> Outcome:
        link = self.link
        if link is None or not link.up:
            return Outcome("failed", "the broker is not connected")
        topic, ident = topics.notices(self.site), str(message["id"])
        echo = self._echoes[ident] = asyncio.get_running_loop().create_future()
        acknowledged = False
        try:
            async with asyncio.timeout(ACK_S):
                await link.publish_surely(topic, json.dumps(message).encode())
                acknowledged = True
                await echo
        except TimeoutError:
            if not acknowledged:
                return Outcome("failed", "the broker did not acknowledge within %d s" % ACK_S)
            self._published = {}  # states were dropped as well
            return Outcome(
                "failed",
                "the broker acknowledges notices and does not pass them on: its access list does not know "
                "the topic %s, and `hw gateway init` on this site adds it" % topic,
            )
        except ConnectionError as error:
            return Outcome("failed", str(error))
        finally:
            self._echoes.pop(ident, None)
        self.publish_states()
        return DELIVERED

    # ---- states

    def publish_states(self) -> None:
        link = self.link
        if link is None or not link.up:
            return
        wanted = {topics.state(self.site, ident): self._state(ident) for ident in self.notices.told}
        for topic in self._published.keys() - wanted.keys():
            link.publish(topic, b"", 1, True)
        for topic, payload in wanted.items():
            if self._published.get(topic) != payload:
                link.publish(topic, payload, 1, True)
        self._published = wanted

    def _state(self, ident: str) -> bytes:
        told = self.notices.told[ident]
        return json.dumps(self.notices.message(self.notices.body(told, told.said_us))).encode()

    def hear(self, topic: str, payload: bytes) -> None:
        """What the broker has on a topic of ours: a notice comes back, and a state that an earlier gateway
        left is cleared."""
        if topic == topics.notices(self.site):
            self._echo(payload)
            return
        ident = topics.alarm_of(self.site, topic)
        if ident is not None and payload and ident not in self.notices.told and self.link is not None:
            self.link.publish(topic, b"", 1, True)

    def _echo(self, payload: bytes) -> None:
        try:
            ident = json.loads(payload)["id"]
        except (ValueError, LookupError, TypeError):
            return
        echo = self._echoes.get(ident) if isinstance(ident, str) else None
        if echo is not None and not echo.done():
            echo.set_result(None)
