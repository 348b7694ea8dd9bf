"""A site for tests of boards: a real Mosquitto with TLS, and a gateway in this process.

The gateway is the core as host 0 behind paho, with an outbox in memory that checks what it is given: it is
there so that tests of boards look at every row, and do not depend on the service.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from headwater.data import block, msgpack
from headwater.data.batch import Batch
from headwater.plan import model as plans
from headwater.protocol import frames
from headwater.protocol.clock import Clock
from headwater.protocol.sessions import Peer, hmac, pair_key
from headwater.runtime.gateway_host import GatewayHost
from headwater.storage.log import Log
from headwater.testing.cut_flash import CutFlash
from headwater_tools import environment
from headwater_tools.demo.subprocesses import free_port

MASTER = bytes(range(32))
MTU = 512
ACL = "pattern read hw/%u/+\npattern write hw/+/%u\n\nuser gateway\ntopic readwrite hw/+/+\n"


def mono_us() -> int:
    return time.monotonic_ns() // 1000


def until(what: Callable[[], Any], timeout_s: float = 30, why: str | Callable[[], str] = "") -> Any:
    """Wait until `what` is true; what it gave."""
    end = time.monotonic() + timeout_s
    while True:
        found = what()
        if found:
            return found
        if time.monotonic() > end:
            said = why() if callable(why) else why
            raise AssertionError(said or "it did not happen in %g s" % timeout_s)
        time.sleep(0.02)


class Authority:
    """Signs certificates; all files lie in one folder, as PEM and as DER."""

    def __init__(self, folder: Path, name: str) -> None:
        from cryptography.hazmat.primitives.asymmetric import ec

        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._sign(name, self.key.public_key(), None, True)
        self._write("ca", self.certificate)

    def _sign(self, name: str, public: Any, dns: str | None, authority: bool) -> Any:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.x509.oid import NameOID

        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer = subject if authority else self.certificate.subject
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public)
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - datetime.timedelta(days=1))
        builder = builder.not_valid_after(now + datetime.timedelta(days=30))
        builder = builder.add_extension(x509.BasicConstraints(authority, None), critical=True)
        if dns:
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(dns)]), critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def make(self, name: str, dns: str | None = None) -> None:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        self._write(name, self._sign(name, key.public_key(), dns, False))
        for encoding, ending in ((serialization.Encoding.PEM, "pem"), (serialization.Encoding.DER, "der")):
            form = serialization.PrivateFormat.TraditionalOpenSSL
            data = key.private_bytes(encoding, form, serialization.NoEncryption())
            (self.folder / ("%s.key.%s" % (name, ending))).write_bytes(data)

    def _write(self, name: str, certificate: Any) -> None:
        from cryptography.hazmat.primitives.serialization import Encoding

        (self.folder / (name + ".pem")).write_bytes(certificate.public_bytes(Encoding.PEM))
        (self.folder / (name + ".der")).write_bytes(certificate.public_bytes(Encoding.DER))


class Broker:
    """Mosquitto with two listeners: by client certificate, and by user and password."""

    def __init__(self, folder: Path, passwords: dict[str, str]) -> None:
        self.folder = folder
        self.authority = Authority(folder / "certs", "site")
        self.authority.make("broker", "broker.site")
        self.port, self.password_port = free_port(), free_port()
        (folder / "acl").write_text(ACL)
        (folder / "passwords").write_text("".join("%s:%s\n" % (u, _hash(p)) for u, p in passwords.items()))
        certs = folder / "certs"
        tls = "cafile %s\ncertfile %s\nkeyfile %s\ntls_version tlsv1.2\n" % (
            certs / "ca.pem", certs / "broker.pem", certs / "broker.key.pem",
        )  # fmt: skip
        (folder / "mosquitto.conf").write_text(
            "user root\nper_listener_settings true\npersistence false\nlog_dest stdout\n"
            "set_tcp_nodelay true\n"
            "listener %d 127.0.0.1\n%srequire_certificate true\nuse_identity_as_username true\nacl_file %s\n"
            "listener %d 127.0.0.1\n%sallow_anonymous false\npassword_file %s\nacl_file %s\n"
            % (self.port, tls, folder / "acl", self.password_port, tls, folder / "passwords", folder / "acl")
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        log = open(self.folder / "mosquitto.log", "ab")  # noqa: SIM115
        with log:
            command = [*environment.mosquitto(), "-c", str(self.folder / "mosquitto.conf")]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(self._answers, 10, "Mosquitto does not start: see %s" % (self.folder / "mosquitto.log"))

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "mosquitto.log").read_text()
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        except OSError:
            return False

    def stop(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def settings(self, board: str, folder: Path, certificate: bool = True) -> dict[str, Any]:
        """The key `broker` of a board's configuration; its files go into the board's folder."""
        certs = self.authority.folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "ca.der").write_bytes((certs / "ca.der").read_bytes())
        out = {"host": "127.0.0.1", "name": "broker.site", "port": self.port, "retry_s_max": 2}
        if certificate:
            self.authority.make(board)
            for name in ("%s.der", "%s.key.der"):
                (folder / (name % board)).write_bytes((certs / (name % board)).read_bytes())
            return {**out, "cert": board + ".der", "cert_key": board + ".key.der"}
        return {**out, "port": self.password_port, "user": board, "password": "secret of " + board}


def _hash(password: str) -> str:
    salt = secrets.token_bytes(12)
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, 101)
    return "$7$101$%s$%s" % (base64.b64encode(salt).decode(), base64.b64encode(digest).decode())


class Outbox:
    """Rows by (edge, incarnation); durable at once, in the lake at once."""

    full = False

    def __init__(self, plan: Any = None) -> None:
        self.plan = plan
        self.rows: dict[tuple[int, int], dict[int, Any]] = {}
        self.holes: dict[tuple[int, int], list[tuple[int, int, int, int]]] = {}  # xi, reason, from, to
        self.gaps: list[tuple[int, int, int, int, int]] = []
        self.upto: dict[tuple[int, int], int] = {}
        self.last: dict[int, int] = {}
        self.errors: list[str] = []

    def put(self, edge: int, inc: int, xi: int, n: int, data: Any) -> None:
        e = self.plan.edges[edge]
        batch = Batch(self.plan.vertices[e.src].outs[e.sport], n)
        block.decode(data, 0, len(data), batch)
        assert (batch.xi, batch.n) == (xi, n)
        key = (edge, inc)
        rows = self.rows.setdefault(key, {})
        if batch.xi != self.upto.get(key, 0) + 1:
            self.errors.append("edge %d: xi %d after %d" % (edge, batch.xi, self.upto.get(key, 0)))
        for i in range(n):
            if batch.xi + i in rows:
                self.errors.append("edge %d: xi %d twice" % (edge, batch.xi + i))
            rows[batch.xi + i] = None if batch.hole else (batch.ts_of(i), batch.row(i))
        if batch.hole:
            hole = (batch.xi, batch.hole, batch.ts - batch.back, batch.ts)
            self.holes.setdefault(key, []).append(hole)
        self.upto[key] = batch.xi + n - 1
        self.last[edge] = inc

    def gap(self, edge: int, inc: int, first: int, last: int, reason: int) -> None:
        self.gaps.append((edge, inc, first, last, reason))
        self.upto[(edge, inc)] = last
        self.last[edge] = inc

    def latest(self, edge: int) -> int:
        return self.last.get(edge, 0)

    def durable(self, edge: int, inc: int) -> int:
        return self.upto.get((edge, inc), 0)

    lake = durable


class Gateway:
    """Host 0 of one process, and the site links of its boards. `boards`: names in registry order."""

    def __init__(self, broker: Broker, boards: Sequence[str]) -> None:
        import paho.mqtt.client as mqtt
        from paho.mqtt.enums import CallbackAPIVersion

        self.numbers = {name: i + 1 for i, name in enumerate(boards)}
        self.outbox = Outbox()
        self.host: Any = None
        self.plan: Any = None
        self.log = secrets.randbits(64)
        self.peers = {
            name: Peer(hmac(self.key(name), b"headwater site"), 0, self.log, 1, 1, bytes(8), _nonce)
            for name in boards
        }
        self.status: dict[str, dict[str, Any]] = {}
        self.planned: dict[str, tuple[bytes, int, int, str]] = {}
        self.wills: list[str] = []
        self.frames: list[tuple[str, int]] = []  # topic and size of everything that came
        self.wanted: dict[str, tuple[bytes, int | None]] = {}  # deployment, step of its SWITCH
        self.lock = threading.RLock()
        self.writer = frames.Writer(MTU)
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="gateway")
        certs = broker.authority.folder
        broker.authority.make("gateway")
        ca, certificate, key = (str(certs / name) for name in ("ca.pem", "gateway.pem", "gateway.key.pem"))
        self.client.tls_set(ca, certificate, key)
        self.client.tls_insecure_set(True)  # the broker is reached by its address
        self.client.reconnect_delay_set(1, 1)
        self.client.on_connect = lambda client, *_: client.subscribe([("hw/g/+", 0), ("hw/s/+", 0)])
        self.client.on_message = self._message
        self.client.connect("127.0.0.1", broker.port, 10)
        self.client.loop_start()
        self.ending = threading.Event()
        self.ticker = threading.Thread(target=self._ticks)
        self.ticker.start()

    def key(self, board: str) -> bytes:
        return bytes(pair_key(MASTER, 0, self.numbers[board]))

    def close(self) -> None:
        self.ending.set()
        self.ticker.join()
        self.client.disconnect()
        self.client.loop_stop()

    # ---- a process

    def run(self, plan: bytes) -> None:
        """Be host 0 of this plan from now on."""
        with self.lock:
            self.plan = plans.loads(plan)
            flash = CutFlash(256)
            Log.format(flash, secrets.randbits(64))
            store = Log(flash)
            store.mount()
            keys = {0: b""}
            keys.update({i: self.key(name) for i, name in enumerate(self.plan.hosts) if i})
            self.outbox = Outbox(self.plan)
            clock = Clock()
            wall = time.time_ns() // 1000
            clock.exchange(mono_us(), wall, wall, mono_us())
            self.host = GatewayHost(self.plan, 0, store, keys, clock, self._send, _nonce, self.outbox, MTU)
            self.host.start(mono_us())

    def deployment(self, board: str, plan: bytes) -> bytes:
        me = self.numbers[board]
        shared = []
        for i, name in enumerate(plans.loads(plan).hosts):
            if i and name != board:
                other = self.numbers[name]
                pad = hmac(self.key(board), b"headwater mask", other.to_bytes(8, "big"))
                pair = pair_key(MASTER, me, other)
                shared.append([i, other, bytes(a ^ b for a, b in zip(pair, pad, strict=True))])
        return bytes(msgpack.dumps([1, plan, shared]))

    def want(self, board: str, plan: bytes, step: int | None = None) -> bytes:
        """Deploy until it is told that it runs, or as far as `step`; the deployment's id."""
        data = self.deployment(board, plan)
        with self.lock:
            self.wanted[board] = (data, step)
            self.planned.pop(board, None)
        return sha256(data).digest()[:8]

    def state(self, board: str) -> int | None:
        found = self.planned.get(board)
        return found[1] if found else None

    # ---- frames

    def _send(self, to: int, frame: bytes) -> None:
        self.client.publish("hw/%s/g" % self.plan.hosts[to], bytes(frame))

    def _message(self, client: Any, userdata: Any, message: Any) -> None:
        _, to, sender = message.topic.split("/")
        with self.lock:
            self.frames.append((message.topic, len(message.payload)))
            if to == "g":
                if self.host:
                    self.host.receive(message.payload, mono_us())
                    self.host.settle()
            elif not message.payload:
                self.wills.append(sender)
            elif sender in self.peers:
                self._site(sender, message.payload)

    def _site(self, board: str, frame: bytes) -> None:
        peer = self.peers[board]
        span = peer.open(frame)
        self._reply(board)
        for m in frames.messages(frame, span[0], span[1], peer.log, self.log) if span else ():
            if m[0] == frames.STATUS:
                self.status[board] = msgpack.loads(bytes(m[1]))
            elif m[0] == frames.PLANNED:
                self.planned[board] = (bytes(m[1]), m[2], m[3], bytes(m[4]).decode())
                self._deploy(board)

    def _deploy(self, board: str) -> None:
        data, step = self.wanted.get(board, (b"", None))
        if not data:
            return
        ident = sha256(data).digest()[:8]
        about, state, offset, _ = self.planned.get(board, (b"", 0, 0, ""))
        if step == 0:
            if about != ident or state != 0:
                self._say(board, frames.SWITCH, ident, 0)
            return
        if about != ident:
            state = offset = 0
        if state == 0:
            self._say(board, frames.PLAN, ident, len(data), offset, data[offset : offset + 400])
        elif state in (1, 3, 4) and step is not None:
            self._say(board, frames.SWITCH, ident, step)

    def _say(self, board: str, kind: int, *values: Any) -> None:
        peer = self.peers[board]
        peer.begin(self.writer)
        assert self.writer.put(kind, *values)
        self.client.publish("hw/%s/s" % board, bytes(peer.seal(self.writer)))
        self._reply(board)

    def _reply(self, board: str) -> None:
        peer = self.peers[board]
        if peer.reply:
            self.client.publish("hw/%s/s" % board, bytes(peer.reply))
            peer.reply = None

    def _ticks(self) -> None:
        count = 0
        while not self.ending.wait(0.1):
            with self.lock:
                count += 1
                if self.host:
                    self.host.tick(mono_us())
                if not count % 5:
                    for board in self.wanted:
                        if self.state(board) not in (2, 5):
                            self._deploy(board)


def _nonce() -> int:
    return secrets.randbits(64)
