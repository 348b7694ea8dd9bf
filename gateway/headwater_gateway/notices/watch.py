"""`hw gateway watch`: a second machine notices that the gateway is dead.

It needs nothing of the site but the folder `watcher` that `hw gateway init` makes: where the broker is, its
certificate, and the password of a user who may read alarms and heartbeat and write nothing.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from .. import UserError
from ..board_link import trusting
from ..monitoring.alarms import number, span
from . import topics
from .heartbeat import Pulse

LOOK_S = 0.1
CONFIG = "config.json"


class Watcher:
    """UserError if the folder is not that of a watcher."""

    def __init__(self, folder: Path) -> None:
        home = folder / "watcher" if (folder / "watcher").is_dir() else folder
        path = home / CONFIG
        try:
            settings: dict[str, Any] = json.loads(path.read_text())
            self.site, broker = str(settings["site"]), settings["broker"]
            self.host, self.port = str(broker["host"]), int(broker["port"])
            user, password = str(broker["user"]), str(broker["password"])
            tls = trusting(home / broker["ca"]) if broker["tls"] else None
        except OSError as error:
            raise UserError(
                "%s: %s: copy the folder `watcher` here, which `hw gateway init` makes in the site"
                % (error.filename or path, error.strerror or error)
            )
        except (ValueError, KeyError, TypeError) as error:
            raise UserError("%s is not the configuration of a watcher (%r): copy it again" % (path, error))
        self.pulse = Pulse(time.monotonic())
        self.problem = "not connected yet"
        self._lock = threading.Lock()
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="", protocol=mqtt.MQTTv311)
        self.client.username_pw_set(user, password)
        if tls is not None:
            self.client.tls_set_context(tls)
        self.client.reconnect_delay_set(1, 5)
        self.client.on_connect = self._connected
        self.client.on_disconnect = self._disconnected
        self.client.on_message = self._message

    def _connected(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self.problem = str(reason).lower()
            return
        self.problem = ""
        client.subscribe(topics.heartbeat(self.site), 1)

    def _disconnected(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        if not self.problem:
            self.problem = "the connection ended"

    def _message(self, client: Any, userdata: Any, message: Any) -> None:
        with self._lock:
            self.pulse.take(message.payload, message.retain, time.monotonic())

    def run(self, for_s: float | None = None) -> tuple[bool, str]:
        """Until the heartbeat stops, or this time is over: whether the gateway lives, and a sentence."""
        end = None if for_s is None else time.monotonic() + for_s
        self.client.connect_async(self.host, self.port, 10)
        self.client.loop_start()
        try:
            while True:
                now = time.monotonic()
                with self._lock:
                    dead, heard = self.pulse.dead(now), self.pulse.heard
                if dead:
                    return False, self._dead(dead, now)
                if end is not None and now >= end and heard:
                    return True, self._alive(now)
                time.sleep(LOOK_S)
        finally:
            self.client.disconnect()
            self.client.loop_stop()

    def _dead(self, words: str, now: float) -> str:
        if not self.problem:
            return words
        silent = span(now - self.pulse.last)
        where = "%s:%d" % (self.host, self.port)
        return "No heartbeat for %s, and the broker %s does not answer (%s)." % (silent, where, self.problem)

    def _alive(self, now: float) -> str:
        alarms = self.pulse.said.get("alarms")
        on = sum(n for n in alarms.values() if isinstance(n, int)) if isinstance(alarms, dict) else 0
        return "The gateway lives: its last heartbeat came %s ago, and %s on." % (
            span(now - self.pulse.last), number(on, "alarm") + (" is" if on == 1 else " are"),
        )  # fmt: skip
