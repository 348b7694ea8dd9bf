"""What is made once: the folder of a gateway, its broker's configuration, and the folder of each board.

    FOLDER/gateway.toml            every key with its default
    FOLDER/secrets/                master key, password for the broker, token of the page: the owner's alone
    FOLDER/tls/                    an authority of this site, and the broker's certificate
    FOLDER/mosquitto/              mosquitto.conf, acl, passwords
    FOLDER/boards/NAME/            config.json, board.key, ca.der: what goes onto that board

Nothing that is there is changed, but for one more line in `passwords` for each board.
"""

from __future__ import annotations

import base64
import datetime
import errno
import hashlib
import ipaddress
import json
import os
import secrets
import time
from pathlib import Path
from typing import Any

from headwater.alphabet import is_name

from . import Trouble, config
from .keys import Keys, make, write_secret

NAME_MAX = 16
RESERVED = ("g", "s", "gateway")
YEARS = 20
HASH_ROUNDS = 101

ACL = """\
# Who may do what, by user name (SPEC.md, "Topics").
pattern read {site}/%u/+
pattern write {site}/+/%u

user gateway
topic read {site}/g/+
topic read {site}/s/+
topic write {site}/+/g
topic write {site}/+/s
"""

CONF = """\
# Mosquitto for this site: TLS, a password for the gateway and for each board, topics by the access list.
# Frames carry their own acknowledgements: nothing is kept for who is away.
listener {port}
cafile {tls}/ca.crt
certfile {tls}/broker.crt
keyfile {tls}/broker.key
tls_version tlsv1.2
allow_anonymous false
password_file {folder}/passwords
acl_file {folder}/acl
persistence false
set_tcp_nodelay true
max_queued_messages 10000
max_packet_size 32768
"""


def site(folder: Path, host: str, port: int) -> list[str]:
    """The folder of a gateway whose broker is reached at host:port; what was made."""
    made: list[str] = []
    folder = folder.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        make(folder / "secrets" / "master.key")
        _authority(folder / "tls", host, made)
        _broker(folder, port, made)
        _once(folder / "secrets" / "token", secrets.token_urlsafe(24) + "\n", made)
        values = {"mqtt": {"host": host, "port": port}}
        _once(folder / "gateway.toml", config.text(values), made, secret=False)
    except OSError as error:
        if isinstance(error, (PermissionError, FileExistsError, NotADirectoryError)):
            cure = "choose a folder that this user may write"
        elif error.errno == errno.ENOSPC:
            cure = "make room on that disk, then run it again"
        else:
            cure = "no folder can be made there; choose another place"
        raise Trouble("%s: %s: %s" % (error.filename, error.strerror, cure))
    return made


def _once(path: Path, text: str, made: list[str], secret: bool = True) -> None:
    if path.exists():
        return
    if secret:
        write_secret(path, text.encode())
    else:
        path.write_text(text)
    made.append(str(path))


def _broker(folder: Path, port: int, made: list[str]) -> None:
    home = folder / "mosquitto"
    home.mkdir(exist_ok=True)
    _once(home / "acl", ACL.format(site="hw"), made)
    _once(
        home / "mosquitto.conf", CONF.format(port=port, tls=folder / "tls", folder=home), made, secret=False
    )
    password = folder / "secrets" / "mqtt.password"
    if not password.exists():
        text = secrets.token_urlsafe(24)
        write_secret(password, text.encode() + b"\n")
        _user(home / "passwords", "gateway", text)
        made.append(str(home / "passwords"))


def _user(path: Path, user: str, password: str) -> None:
    """The user's line in the broker's password file; a former one goes."""
    lines = path.read_text().splitlines() if path.exists() else []
    lines = [line for line in lines if not line.startswith(user + ":")]
    salt = secrets.token_bytes(12)
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, HASH_ROUNDS)
    texts = [base64.b64encode(part).decode() for part in (salt, digest)]
    lines.append("%s:$7$%d$%s" % (user, HASH_ROUNDS, "$".join(texts)))
    fresh = path.with_name(path.name + ".new")
    write_secret(fresh, ("\n".join(lines) + "\n").encode())
    os.replace(fresh, path)


def _authority(folder: Path, host: str, made: list[str]) -> None:
    """An authority of this site and a certificate for its broker. Nobody needs the authority's key later."""
    if (folder / "ca.crt").exists():
        return
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    now = datetime.datetime.now(datetime.UTC)
    signer = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Headwater site %s" % host)])

    def certificate(name: x509.Name, key: Any, authority: bool) -> bytes:
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=365 * YEARS))
            .add_extension(x509.BasicConstraints(authority, 0 if authority else None), critical=True)
        )
        if not authority:
            names: list[x509.GeneralName] = [x509.DNSName("localhost")]
            names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
            try:
                names.append(x509.IPAddress(ipaddress.ip_address(host)))
            except ValueError:
                names.append(x509.DNSName(host))
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        signed = builder.sign(signer, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)

    server = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    pem = server.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    write_secret(folder / "broker.key", pem)
    (folder / "broker.crt").write_bytes(certificate(subject, server, False))
    (folder / "ca.crt").write_bytes(certificate(issuer, signer, True))
    made += [str(folder / name) for name in ("ca.crt", "broker.crt", "broker.key")]


def check_name(name: str) -> None:
    if not is_name(name) or len(name) > NAME_MAX or name in RESERVED:
        raise Trouble(
            "'%s' cannot be a board's name: a letter, then letters, digits or _, at most %d, and not %s"
            % (name, NAME_MAX, " or ".join(RESERVED))
        )


def board(folder: Path, c: config.Config, keys: Keys, name: str, number: int) -> Path:
    """The folder with what goes onto a board. Made anew, it has a new password, and the same key."""
    home = folder / "boards" / name
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    (folder / "boards").chmod(0o700)
    password = secrets.token_urlsafe(18)
    former = _former(home / "config.json")
    broker: dict[str, Any] = {"host": c.mqtt.host, "port": c.mqtt.port, "tls": c.mqtt.tls, "user": name}
    passwords = folder / "mosquitto" / "passwords"
    if passwords.exists():
        _user(passwords, name, password)
        broker["password"] = password
    if c.mqtt.tls:
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import Encoding

        certificate = x509.load_pem_x509_certificate(c.path(c.mqtt.ca).read_bytes())
        write_secret(home / "ca.der", certificate.public_bytes(Encoding.DER))
        broker["ca"] = "ca.der"
    settings = {
        "site": c.gateway.site,
        "name": name,
        "key": "board.key",
        "broker": broker,
        "sensors": former.get("sensors", {}),
        "issued": int(time.time()),
    }
    for key in former.keys() - settings.keys():
        settings[key] = former[key]
    write_secret(home / "board.key", keys.board(number))
    write_secret(home / "config.json", json.dumps(settings, indent=1).encode() + b"\n")
    return home


def _former(path: Path) -> dict[str, Any]:
    """What somebody wrote into a board's configuration stays."""
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise Trouble("%s is no JSON (%s): correct it, or remove it" % (path, error))
    return found if isinstance(found, dict) else {}
