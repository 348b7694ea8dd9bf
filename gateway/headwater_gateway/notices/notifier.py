"""Notices, receivers and heartbeat of one gateway, as the service starts and stops them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from .. import UserError
from ..monitoring.alarms import ReceiverFacts, Watch
from . import topics, webhook
from .courier import Courier, Mqtt
from .heartbeat import Heart
from .queue import Notices

if TYPE_CHECKING:
    from ..board_link import Link
    from ..config import Config
    from ..database.engine import Database


class Notifier:
    """UserError if a receiver cannot be set up."""

    def __init__(self, config: Config, db: Database, log: int, boot: int) -> None:
        site, settings = config.gateway.site, config.notices
        receivers = {}
        if settings.mqtt:
            receivers[Mqtt.NAME] = float(config.mqtt.reconnect_max_s)
        if config.webhook.url:
            receivers[webhook.NAME] = config.webhook.retry_max_s
        self.site = site
        self.notices = Notices(db, log, boot, site, receivers, settings.repeat_s)
        self.couriers: dict[str, Courier] = {}
        self.mqtt: Mqtt | None = None
        if settings.mqtt:
            self.mqtt = Mqtt(site, self.notices)
            self.notices.on_told = self.mqtt.publish_states
            self._add(Mqtt.NAME, self.mqtt.send)
        if config.webhook.url:
            self._add(webhook.NAME, webhook.Webhook(config).send)
        self.heart = Heart(site, log, boot, settings.heartbeat_s) if settings.heartbeat_s else None
        self.link: Link | None = None

    def _add(self, name: str, send: Any) -> None:
        self.couriers[name] = Courier(self.notices.lanes[name], self.notices, send)

    # ---- the link

    @property
    def topics(self) -> list[str]:
        """What the gateway listens to of its own: its notices, and the states that the broker remembers."""
        return [topics.notices(self.site), topics.states(self.site)] if self.mqtt else []

    def will(self) -> tuple[str, bytes] | None:
        """The last will of the connection that is made next."""
        return (topics.heartbeat(self.site), self.heart.will()) if self.heart else None

    def use(self, link: Link) -> None:
        self.link = link
        if self.mqtt is not None:
            self.mqtt.link = link

    def connected(self) -> None:
        if self.mqtt is not None:
            self.mqtt.connected()
            self.notices.lanes[Mqtt.NAME].hurry()

    def takes(self, topic: str, payload: bytes) -> bool:
        """Whether this message is on a topic of watchers."""
        if not topic.startswith(topics.root(self.site)):
            return False
        if self.mqtt is not None:
            self.mqtt.hear(topic, payload)
        return True

    # ---- start and end

    def runs(self) -> list[tuple[str, Coroutine[Any, Any, None]]]:
        """What runs until it is cancelled, by name."""
        return [("receiver " + name, courier.run()) for name, courier in self.couriers.items()]

    def tick(self, now_us: int, alarms: dict[str, int]) -> None:
        link, heart = self.link, self.heart
        if heart is not None and link is not None and link.up and heart.due(time.monotonic()):
            link.publish(topics.heartbeat(self.site), heart.beat(now_us, alarms), 0, True)

    async def stop(self, now_us: int) -> None:
        """A farewell, so that a watcher can tell a stopped gateway from a dead one."""
        link, heart = self.link, self.heart
        if heart is not None and link is not None and link.up:
            try:
                async with asyncio.timeout(1):
                    await link.publish_surely(topics.heartbeat(self.site), heart.farewell(now_us), True)
            except (TimeoutError, ConnectionError):
                pass

    # ---- for alarms, state and metrics

    def look(self, watch: Watch, now_us: int) -> None:
        self.notices.look(watch, now_us)

    def facts(self) -> tuple[ReceiverFacts, ...]:
        now = time.monotonic()
        found = []
        for name, courier in self.couriers.items():
            lane = courier.lane
            waiting, parked = lane.waiting, lane.parked
            found.append(
                ReceiverFacts(
                    name=name,
                    waiting=len(waiting),
                    failing_s=None if lane.failing_since is None else now - lane.failing_since,
                    why=lane.why,
                    refused=len(parked),
                    refused_why=parked[-1].parked if parked else "",
                    tried=courier.tried,
                )
            )
        return tuple(found)

    def view(self, now_us: int) -> list[dict[str, Any]]:
        now = time.monotonic()
        return [courier.lane.view(now, now_us) for courier in self.couriers.values()]

    def retry(self, name: str) -> int:
        """Send again what a receiver has refused; how many notices."""
        if name not in self.couriers:
            known = ", ".join(self.couriers) or "none"
            raise UserError("there is no receiver %s of alarms; configured: %s" % (name, known))
        return self.couriers[name].lane.retry()
