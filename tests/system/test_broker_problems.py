"""What the gateway and a board say of a broker that cannot be reached, each with its own cure.

The broker is a real Mosquitto; its certificates are made here: expired, of another name, of a foreign
authority.
"""

from __future__ import annotations

import asyncio
import datetime
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from headwater_gateway.board_link import Link
from headwater_gateway.config import read
from headwater_tools import environment
from headwater_tools.boards.virtual import VirtualBoard
from site_gateway import free_port, until

pytestmark = pytest.mark.broker

DAY = datetime.timedelta(days=1)
NOW = datetime.datetime.now(datetime.UTC)


class Authority:
    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.ca = folder / (name + ".crt")
        self.ca.write_bytes(self._sign(self.name, self.key, True, "", -10, 10))

    def _sign(self, subject: x509.Name, key: Any, ca: bool, dns: str, since: int, until: int) -> bytes:
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW + since * DAY)
            .not_valid_after(NOW + until * DAY)
            .add_extension(x509.BasicConstraints(ca, None), critical=True)
        )
        if dns:
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(dns)]), critical=False)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def broker(self, dns: str = "localhost", since: int = -5, until: int = 5) -> tuple[Path, Path]:
        """Certificate and key for a broker."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, dns)])
        files = self.folder / "broker.crt", self.folder / "broker.key"
        files[0].write_bytes(self._sign(subject, key, False, dns, since, until))
        files[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return files


class Broker:
    def __init__(self, folder: Path, certificate: tuple[Path, Path] | None, users: bool = False) -> None:
        self.port = free_port()
        lines = [
            "user root",
            "listener %d 127.0.0.1" % self.port,
            "allow_anonymous %s" % str(not users).lower(),
        ]
        if certificate:
            lines += ["certfile %s" % certificate[0], "keyfile %s" % certificate[1]]
        conf = folder / "mosquitto.conf"
        conf.write_text("\n".join(lines) + "\n")
        with open(folder / "mosquitto.log", "wb") as log:
            self.process = subprocess.Popen(
                [*environment.mosquitto(), "-c", str(conf)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until(lambda: "running" in (folder / "mosquitto.log").read_text(), why="Mosquitto does not start")


@pytest.fixture
def stop() -> Iterator[list[Broker]]:
    made: list[Broker] = []
    yield made
    for broker in made:
        broker.process.kill()
        broker.process.wait()


def problem(folder: Path, port: int, ca: Path | None, **more: Any) -> str:
    """What the gateway's link says of this broker."""
    lines = ["[mqtt]", "port = %d" % port, 'user = ""', 'password_file = ""']
    lines += ["tls = %s" % str(ca is not None).lower()] + (['ca = "%s"' % ca] if ca else [])
    lines += ['%s = "%s"' % item for item in more.items()]
    file = folder / "gateway.toml"
    file.write_text("\n".join(lines) + "\n")

    async def listen() -> str:
        link = Link(read(file), ["x"], lambda *_: None, lambda: None)
        task = asyncio.create_task(link.run())
        for _ in range(1200):
            await asyncio.sleep(0.05)
            if link.up or link.problem != "not connected yet":
                break
        said = "" if link.up else link.problem
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return said

    return asyncio.run(listen())


@pytest.mark.parametrize(
    ("which", "says"),
    [
        ("good", []),
        ("expired", ["its certificate was not accepted", "it has expired", "`date`", "a new certificate"]),
        ("later", ["its certificate was not accepted", "valid from a later day", "`date`"]),
        ("other name", ["certificate was not accepted", "another name than localhost", "set mqtt.host"]),
        ("foreign", ["certificate was not accepted", "another authority signed it", "mqtt.ca"]),
        ("plain to TLS", ["ended the connection before it answered", "set mqtt.tls = true"]),
        ("TLS to plain", ["does not speak TLS", "set mqtt.port", "mqtt.tls = false"]),
        ("not let in", ["connection refused: not authorized", "mqtt.user, mqtt.password_file"]),
    ],
)
# paho leaves the socket of a failed handshake to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_each_has_its_own_cure(tmp_path: Path, stop: list[Broker], which: str, says: list[str]) -> None:
    own = Authority(tmp_path, "own")
    certificate: tuple[Path, Path] | None
    certificate = {
        "expired": lambda: own.broker(since=-5, until=-1),
        "later": lambda: own.broker(since=1),
        "other name": lambda: own.broker("elsewhere"),
        "foreign": lambda: Authority(tmp_path, "foreign").broker(),
        "TLS to plain": lambda: None,
        "not let in": lambda: None,
    }.get(which, own.broker)()
    broker = Broker(tmp_path, certificate, users=which == "not let in")
    stop.append(broker)
    said = problem(tmp_path, broker.port, None if which in ("plain to TLS", "not let in") else own.ca)
    assert bool(said) == bool(says), said
    for part in says:
        assert part in said, said


def test_a_broker_that_is_not_there(tmp_path: Path) -> None:
    said = problem(tmp_path, free_port(), None)
    assert "Connection refused: no broker listens there; start it, or look at mqtt.host" in said
    said = problem(tmp_path, 1883, None, host="no.such.host.invalid")
    assert "no machine of this name is known; look at mqtt.host" in said


@pytest.mark.parametrize(
    ("which", "says"),
    [
        ("other name", "does not match with the expected CN: look at broker.name"),
        ("foreign", "not correctly signed by the trusted CA: look at broker.ca"),
        ("plain to TLS", "does broker.tls fit its port?"),
    ],
)
def test_a_board_names_what_to_look_at(tmp_path: Path, stop: list[Broker], which: str, says: str) -> None:
    own = Authority(tmp_path, "own")
    other = Authority(tmp_path, "foreign")
    certificate = own.broker("elsewhere") if which == "other name" else other.broker()
    broker = Broker(tmp_path, certificate)
    stop.append(broker)
    ca = x509.load_pem_x509_certificate(own.ca.read_bytes()).public_bytes(serialization.Encoding.DER)
    folder = tmp_path / "board"
    folder.mkdir()
    (folder / "ca.der").write_bytes(ca)
    place = {"host": "127.0.0.1", "name": "localhost", "port": broker.port, "retry_s_max": 1}
    place |= {"tls": which != "plain to TLS", "ca": "ca.der"}
    config = {"site": "hw", "name": "vent", "key": "board.key", "broker": place, "sensors": {}, "status_s": 1}
    board = VirtualBoard("vent", folder, config, bytes(32), heap="192k")
    board.start()
    try:
        end = time.monotonic() + 60
        while not any(says in line for line in board.lines):
            assert time.monotonic() < end, "\n".join(board.lines)
            time.sleep(0.1)
    finally:
        board.stop()
