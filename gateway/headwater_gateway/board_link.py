"""The link to the broker: MQTT 3.1.1 through paho-mqtt, driven by asyncio without a thread of its own.

It promises that the callback gets every message the broker delivers, in order; that it keeps trying when
the broker is away, with growing pauses, and logs that once; and that it never blocks the loop: name look-up,
connecting and the TLS handshake run in a worker thread. It does not promise delivery: frames are
acknowledged by the hosts that receive them (headwater/runtime/host.py), so QoS 0 is enough. What nobody
acknowledges otherwise, `publish_surely` brings as far as the broker.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode

from . import UserError
from .config import Config

_log = logging.getLogger("headwater.link")

READ_BYTES = 1 << 16  # read from the socket at once
TURN_S = 0.02  # frames are received for this long before the loop does something else
QUEUE_MAX = 20_000  # frames that wait for the broker; more are dropped, and their senders repeat them
PAUSE_MIN_S = 0.25


def trusting(authority: Path) -> ssl.SSLContext:
    """For links to the site's broker: only a certificate of this authority is good. The authority of an older
    site lacks extensions that Python 3.13 demands by itself."""
    context = ssl.create_default_context(cafile=str(authority))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


class BufferedClient(mqtt.Client):
    """paho's client with two shorter ways for what comes most.

    paho reads the first byte of a packet from its socket, then the next: each time a system call. Here they
    come from a buffer that was read at once. And of each message of QoS 0 paho makes an object with a lock
    of its own, of which a frame needs nothing: here its topic and its payload go to `take`. (The private
    names of paho that this depends on are `_sock_recv`, `_handle_publish`, `_in_packet` and
    `_in_callback_mutex`; tests/unit/gateway/test_gateway_frames.py checks that they mean what they did.)"""

    def __init__(self, take: Callable[[str, bytes], None], **arguments: Any) -> None:
        super().__init__(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv311, **arguments)
        self.take = take
        self.on_message = self._other
        self.forget()

    def forget(self) -> None:
        """A new connection: the rest of the old one is invalid."""
        self._have = b""
        self._at = 0

    def _sock_recv(self, bufsize: int) -> bytes:
        at = self._at
        if at == len(self._have):
            self._have = super()._sock_recv(READ_BYTES)
            at = 0
        piece = self._have[at : at + bufsize]
        self._at = at + len(piece)
        return piece

    @property
    def unread(self) -> bool:
        return self._at < len(self._have)

    def _handle_publish(self) -> MQTTErrorCode:
        packet = bytes(self._in_packet["packet"])
        end = 2 + int.from_bytes(packet[:2], "big")
        if self._in_packet["command"] & 0x06 or not 2 < end <= len(packet):
            return super()._handle_publish()  # of another QoS, or malformed
        topic = packet[2:end].decode(errors="replace")  # one that is no text is refused as strange
        with self._in_callback_mutex:  # what is published meanwhile waits for the loop
            self.take(topic, packet[end:])
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _other(self, client: Any, userdata: Any, message: mqtt.MQTTMessage) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:
            topic = ""
        self.take(topic, bytes(message.payload))


class Link:
    """`take(topic, payload)` gets what arrives; `drained()` is called when there is no more for now."""

    def __init__(
        self,
        config: Config,
        topics: list[str],
        take: Callable[[str, bytes], None],
        drained: Callable[[], None],
        will: Callable[[], tuple[str, bytes] | None] = lambda: None,
        connected: Callable[[], None] = lambda: None,
    ) -> None:
        """`will()`: topic and payload of the last will of the next connection, which is retained;
        `connected()` is called when one is made."""
        self.config = config.mqtt
        self.topics = topics
        self.take = take
        self.drained = drained
        self.will = will
        self.on_connected = connected
        self.more: list[str] = []  # further topics: see `also`
        self._sure: dict[int, asyncio.Future[None]] = {}  # number of a PUBLISH -> its acknowledgement
        self.up = False
        self.problem = "not connected yet"
        self._answered = True
        self.received = 0
        self.sent = 0
        self.dropped = 0  # frames for the broker that the full queue refused
        self.connects = 0
        self.client = self._client(config)
        self._lost = asyncio.Event()
        self._turn = False
        self._writing = False
        self._sock: Any = None
        self._loop = asyncio.get_running_loop()

    def _client(self, config: Config) -> BufferedClient:
        client = BufferedClient(self._take, client_id="", clean_session=True, reconnect_on_failure=False)
        c = self.config
        if c.tls:
            context = trusting(config.path(c.ca))
            if c.cert:
                context.load_cert_chain(str(config.path(c.cert)), str(config.path(c.key)))
            client.tls_set_context(context)
        if c.user:
            client.username_pw_set(c.user, config.path(c.password_file).read_text().strip())
        client.on_connect = self._connected
        client.on_disconnect = self._disconnected
        client.on_publish = self._acknowledged
        client.on_socket_open = self._opened
        client.on_socket_close = self._closed
        client.on_socket_register_write = self._register_write
        client.max_queued_messages_set(QUEUE_MAX)
        return client

    # ---- start and end

    async def run(self) -> None:
        """Stay connected, reconnecting as needed, until cancelled."""
        pause = PAUSE_MIN_S
        try:
            while True:
                began = time.monotonic()
                self._lost.clear()
                try:
                    await asyncio.to_thread(self._connect)
                    await self._live()
                except (OSError, ValueError) as error:
                    self._say(_reason(error, self.config))
                if time.monotonic() - began > 10:
                    pause = PAUSE_MIN_S
                await asyncio.sleep(pause * random.uniform(0.7, 1.3))
                pause = min(2 * pause, self.config.reconnect_max_s)
        finally:
            self.close()

    def _connect(self) -> None:
        self._answered = False
        self.client.forget()
        will = self.will()
        if will is not None:
            self.client.will_set(will[0], will[1], 1, True)
        self.client.connect_async(self.config.host, self.config.port, self.config.keepalive_s)
        self.client.reconnect()

    async def _live(self) -> None:
        while not self._lost.is_set():
            try:
                async with asyncio.timeout(1):
                    await self._lost.wait()
            except TimeoutError:
                self.client.loop_misc()

    def close(self) -> None:
        self.up = False
        self.client.disconnect()
        self.client.loop_write()
        self._unregister()

    def _say(self, problem: str) -> None:
        """Log each problem once, not once for each attempt."""
        if problem != self.problem:
            _log.warning("broker %s:%d: %s; trying again", self.config.host, self.config.port, problem)
        self.problem = problem

    # ---- callbacks of paho

    def _opened(self, client: Any, userdata: Any, sock: Any) -> None:
        self._loop.call_soon_threadsafe(self._register, sock)

    def _register(self, sock: Any) -> None:
        if sock.fileno() >= 0:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sock = sock
            self._loop.add_reader(sock, self._readable)
            self._register_write()

    def _closed(self, client: Any, userdata: Any, sock: Any) -> None:
        self._unregister()

    def _unregister(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None and sock.fileno() >= 0:
            self._loop.remove_reader(sock)
            self._loop.remove_writer(sock)
        self._writing = False

    def _connected(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        self._answered = True
        if reason.is_failure:
            self._say(
                "connection refused: %s; look at mqtt.user, mqtt.password_file (a broker reads new passwords "
                "after SIGHUP), mqtt.cert and the broker's access list" % str(reason).lower()
            )
            return
        self.client.subscribe([(topic, 0) for topic in [*self.topics, *self.more]])
        self.up = True
        self.connects += 1
        self.problem = ""
        _log.info("broker %s:%d: connected", self.config.host, self.config.port)
        self.on_connected()

    def _acknowledged(self, client: Any, userdata: Any, number: int, reason: Any, properties: Any) -> None:
        waiting = self._sure.pop(number, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def _disconnected(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        if self.up:
            self._say("the connection ended (%s)" % reason)
        elif not self._answered:
            self._say(_unanswered(self.config))
        self.up = False
        self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self._lost.set()
        waiting, self._sure = self._sure, {}
        for one in waiting.values():
            if not one.done():
                one.set_exception(ConnectionError("the connection to the broker ended"))

    def _take(self, topic: str, payload: bytes) -> None:
        self.received += 1
        self.take(topic, payload)

    # ---- bytes

    def _readable(self) -> None:
        """Receive what there is, then let the loop do something else."""
        self._turn = False
        client = self.client
        end = time.monotonic() + TURN_S
        while True:
            before = self.received
            if client.loop_read() != mqtt.MQTT_ERR_SUCCESS:
                break
            if self.received == before and not client.unread:
                break
            if time.monotonic() > end:
                if not self._turn:
                    self._turn = True
                    self._loop.call_soon(self._readable)
                break
        self.drained()

    def _register_write(self, *_: Any) -> None:
        if not self._writing and self._sock is not None:
            self._writing = True
            self._loop.call_soon(self._writable)

    def _writable(self) -> None:
        self._writing = False
        if self._sock is None:
            return
        self.client.loop_write()
        sock = self._sock
        if sock is None:
            return
        if self.client.want_write():
            self._loop.add_writer(sock, self._writable)
            self._writing = True
        else:
            self._loop.remove_writer(sock)

    def also(self, topics: list[str]) -> None:
        """Receive these topics as well from now on, and no longer those that an earlier call named."""
        new = [topic for topic in topics if topic not in self.more]
        gone = [topic for topic in self.more if topic not in topics]
        self.more = topics
        if self.up and new:
            self.client.subscribe([(topic, 0) for topic in new])
        if self.up and gone:
            self.client.unsubscribe(gone)

    def publish(self, topic: str, payload: bytes, qos: int = 0, retain: bool = False) -> None:
        """Send, if the broker is connected; otherwise nothing, since senders repeat their frames."""
        if not self.up:
            return
        if len(self.client._out_packet) >= QUEUE_MAX:
            self.dropped += 1
            return
        self.client.publish(topic, payload, qos, retain)
        self.sent += 1

    async def publish_surely(self, topic: str, payload: bytes, retain: bool = False) -> None:
        """Send; the broker has it when this returns. ConnectionError if it may not have it."""
        if not self.up:
            raise ConnectionError("the broker is not connected")
        sent = self.client.publish(topic, payload, 1, retain)
        if sent.rc != mqtt.MQTT_ERR_SUCCESS:
            raise ConnectionError("the broker is not connected")
        self.sent += 1
        acknowledged = self._sure[sent.mid] = self._loop.create_future()
        try:
            await acknowledged
        finally:
            self._sure.pop(sent.mid, None)


# OpenSSL's verdict on a certificate, by its number (X509_V_ERR_...): which fix to suggest.
_NOT_YET_VALID, _EXPIRED, _OTHER_NAME, _OTHER_EMAIL, _OTHER_ADDRESS = 9, 10, 62, 63, 64


def _reason(error: BaseException, config: Any) -> str:
    """What is wrong, and what to do about it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "its certificate was not accepted (%s): %s" % (
            error.verify_message,
            _cure(error.verify_code, config),
        )
    if isinstance(error, ssl.SSLError) or (config.tls and isinstance(error, ConnectionResetError)):
        return (
            "it does not speak TLS here (%s): set mqtt.port to its port for TLS (often 8883), or "
            "mqtt.tls = false for a broker without" % (getattr(error, "reason", None) or error.strerror)
        )
    if isinstance(error, socket.gaierror):
        return "%s: no machine of this name is known; look at mqtt.host" % error.strerror
    if isinstance(error, ConnectionRefusedError):
        return "%s: no broker listens there; start it, or look at mqtt.host and mqtt.port" % error.strerror
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _unanswered(config: Any) -> str:
    if config.tls:
        return "it ended the connection before it answered: is port %d the broker's MQTT port?" % config.port
    return (
        "it ended the connection before it answered: if port %d speaks TLS (8883 often does), set "
        "mqtt.tls = true and mqtt.ca" % config.port
    )


def _cure(code: int, config: Any) -> str:
    if code == _EXPIRED:
        return (
            "it has expired, or this machine's clock is wrong: look at `date`; else give the broker a new "
            "certificate of the authority in mqtt.ca"
        )
    if code == _NOT_YET_VALID:
        return "it is valid from a later day on, or this machine's clock is wrong: look at `date`"
    if code in (_OTHER_NAME, _OTHER_EMAIL, _OTHER_ADDRESS):
        return (
            "it was made for another name than %s: set mqtt.host to a name in it, or give the broker a "
            "certificate for this one" % config.host
        )
    return "another authority signed it: mqtt.ca must be the certificate of the one that did"


def check(config: Config) -> None:
    """Check the files that the configuration names. UserError if they cannot be read."""
    c = config.mqtt
    wanted = {"mqtt.ca": c.ca, "mqtt.cert": c.cert, "mqtt.key": c.key} if c.tls else {}
    wanted["mqtt.password_file"] = c.password_file
    for key, value in wanted.items():
        if value:
            path = config.path(value)
            try:
                path.read_bytes()
            except OSError as error:
                raise UserError(
                    '%s = "%s": %s: %s. `hw gateway init %s` makes it again where that is possible, and '
                    "otherwise says what the choices are" % (key, value, path, error.strerror, config.folder)
                )
