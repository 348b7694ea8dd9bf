"""What is made once: the folder of a gateway, its broker's configuration, and the folder of each board.

    FOLDER/gateway.toml            every key with its default
    FOLDER/secrets/                master key, password for the broker, token of the page: the owner's alone
    FOLDER/tls/                    an authority of this site, and the broker's certificate
    FOLDER/mosquitto/              mosquitto.conf, acl, passwords
    FOLDER/watcher/                config.json, ca.crt: what a machine needs for `hw gateway watch`
    FOLDER/boards/NAME/            config.json, board.key, ca.der, bluetooth.key: what goes onto that board

On an existing site `site` changes nothing that a board or a person depends on. It adds a missing file
if the same file, or an equivalent one, can be made again. What cannot be made again (the master key, the
certificates that boards check) is reported, with the choices that are left.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import errno
import fcntl
import hashlib
import ipaddress
import json
import os
import pwd
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headwater.data.alphabet import is_name

from . import UserError, config
from .keys import Keys, make, write_secret

NAME_MAX = 16
WATCHER = "watcher"  # the broker's user who may read alarms and heartbeat, and nothing else
RESERVED = ("g", "s", "w", "gateway", WATCHER)
YEARS = 20
HASH_ROUNDS = 101
CONFIG = "gateway.toml"
BOARD_CONFIG = "config.json"
RENAMING = "renaming"  # in the folder of a board: its former and its new name, until everything has that
REVOKED = "revoked"  # in the folder of a lost board: the key there is refused
BLUETOOTH_KEY = "bluetooth.key"  # in the folder of a board: as its settings name it

_ACL = """\
# Who may do what, by user name (docs/spec.md, "Topics").
pattern read {site}/%u/+
pattern write {site}/+/%u

user gateway
"""
# The gateway passes on frames of boards that only Bluetooth reaches, and frames for them.
ACL = _ACL + "topic readwrite {site}/+/+\n"
FORMER_ACL = _ACL + "".join("topic %s\n" % of for of in (
    "read {site}/g/+", "read {site}/s/+", "write {site}/+/g", "write {site}/+/s",
))  # fmt: skip

# Alarms and heartbeat. Patterns hold for every user, so what the watcher may not is said first.
ACL_WATCHER = """topic readwrite {site}/w/g/#

user watcher
topic deny {site}/+/watcher
topic read {site}/w/g/#
"""

CONF = """\
# Mosquitto for this site: TLS, a password for the gateway and for each board, topics by the access list.
# Frames carry their own acknowledgements: no messages are queued for offline clients.
# Where root starts Mosquitto, it runs as the owner of this folder: the files named below are that user's.
user {user}
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


def site(folder: Path, host: str, port: int, new_authority: bool = False) -> list[str]:
    """The folder of a gateway whose broker is reached at host:port; what was made."""
    made: list[str] = []
    folder = folder.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with turn(folder):
            _master_key(folder, made)
            _tls(folder, host, new_authority, made)
            _broker(folder, port, made)
            _once(folder / "secrets" / "token", secrets.token_urlsafe(24) + "\n", made)
            values = {"mqtt": {"host": host, "port": port}}
            _once(folder / CONFIG, config.text(values), made, secret=False)
            _watcher(folder, made)
    except OSError as error:
        if isinstance(error, (PermissionError, FileExistsError, NotADirectoryError)):
            cure = "choose a folder that this user may write"
        elif error.errno == errno.ENOSPC:
            cure = "make room on that disk, then run it again"
        else:
            cure = "no folder can be made there; choose another place"
        raise UserError("%s: %s: %s" % (error.filename, error.strerror, cure))
    return made


@contextlib.contextmanager
def turn(folder: Path) -> Iterator[None]:
    """Let only one command at a time change or copy the files of a site."""
    not_as_root(folder)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def not_as_root(folder: Path) -> None:
    """UserError if root would leave files in the site of another user, whose services could not read
    them."""
    if os.geteuid() == 0 and folder.stat().st_uid != 0:
        raise UserError(
            "%s belongs to user %s, and its services could not read what root writes there: run this as that "
            "user, with `sudo -u %s hw ...`" % (folder, owner(folder), owner(folder))
        )


def differences(folder: Path, host: str | None, port: int | None) -> list[str]:
    """How an existing site differs from the request; nothing if there is no site yet."""
    path = folder / CONFIG
    if not path.exists():
        return []
    c = config.read(path)
    found = []
    for key, asked in (("host", host), ("port", port)):
        value = getattr(c.mqtt, key)
        if asked is not None and asked != value:
            found.append(
                "%s has mqtt.%s = %s, and %s was asked for" % (path, key, _shown(value), _shown(asked))
            )
    listener = _listener(folder / "mosquitto" / "mosquitto.conf")
    if port is not None and listener not in (None, port):
        found.append(
            "%s listens on port %d, and %d was asked for"
            % (folder / "mosquitto" / "mosquitto.conf", listener, port)
        )
    certificate = folder / "tls" / "broker.crt"
    if host is not None and certificate.exists():
        names = _names_of(certificate)
        if host not in names:
            found.append(
                "%s is a certificate for %s, and not for %s: boards that connect to %s would refuse it"
                % (certificate, ", ".join(names), host, host)
            )
    return found


def _shown(value: Any) -> str:
    return '"%s"' % value if isinstance(value, str) else str(value)


def _listener(conf: Path) -> int | None:
    """The port of the first listener of a Mosquitto configuration."""
    with contextlib.suppress(OSError, ValueError):
        for line in conf.read_text().splitlines():
            words = line.split()
            if words[:1] == ["listener"] and len(words) > 1:
                return int(words[1])
    return None


def _names_of(certificate: Path) -> list[str]:
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return []
    return [str(name) for kind in (x509.DNSName, x509.IPAddress) for name in names.get_values_for_type(kind)]


def boards_of(folder: Path) -> list[str]:
    """The boards that have a folder with a key."""
    return sorted(path.parent.name for path in (folder / "boards").glob("*/board.key"))


def _once(path: Path, text: str, made: list[str], secret: bool = True) -> None:
    if path.exists():
        return
    if secret:
        write_secret(path, text.encode())
    else:
        path.write_text(text)
    made.append(str(path))


def _master_key(folder: Path, made: list[str]) -> None:
    path = folder / "secrets" / "master.key"
    boards = boards_of(folder)
    if not path.exists():
        if boards or (folder / "data" / "gateway.db").exists():
            raise UserError(
                "%s is missing, and the keys of the boards (%s) follow from it: a new one fits none of "
                "them. Restore it from a backup (`hw gateway restore FILE NEWFOLDER`), or make a new site "
                "in another folder and provision every board again"
                % (path, ", ".join(boards) or "none has a folder")
            )
        made.append(str(path))
    make(path)


def _broker(folder: Path, port: int, made: list[str]) -> None:
    home = folder / "mosquitto"
    home.mkdir(exist_ok=True)
    _once(home / "acl", (ACL + ACL_WATCHER).format(site="hw"), made)
    conf = CONF.format(user=owner(folder), port=port, tls=folder / "tls", folder=home)
    _once(home / "mosquitto.conf", conf, made, secret=False)
    password, passwords = folder / "secrets" / "mqtt.password", home / "passwords"
    if not password.exists():
        text = secrets.token_urlsafe(24)
        write_secret(password, text.encode() + b"\n")
        _user(passwords, "gateway", text)
        made.append(str(password))
    elif not passwords.exists():
        # It holds only hashes of what the other files have.
        _user(passwords, "gateway", password.read_text().strip())
        for name in boards_of(folder):
            text = _former(folder / "boards" / name / BOARD_CONFIG).get("broker", {}).get("password")
            if isinstance(text, str):
                _user(passwords, name, text)
        made.append(str(passwords))


def _watcher(folder: Path, made: list[str]) -> None:
    """What a watcher needs, and what the broker has to know of it. A site of an earlier version gets both."""
    if WATCHER in boards_of(folder):
        return  # a board of an earlier version has that name at the broker
    c = config.read(folder / CONFIG)
    home, broker = folder / "watcher", folder / "mosquitto"
    home.mkdir(exist_ok=True, mode=0o700)
    former = _former(home / BOARD_CONFIG).get("broker")
    password = former.get("password") if isinstance(former, dict) else None
    if not isinstance(password, str):
        password = secrets.token_urlsafe(18)
        settings: dict[str, Any] = {
            "host": c.mqtt.host,
            "port": c.mqtt.port,
            "tls": c.mqtt.tls,
            "ca": "ca.crt",
        }
        settings.update(user=WATCHER, password=password)
        text = json.dumps({"site": c.gateway.site, "broker": settings}, indent=1)
        _swap(home / BOARD_CONFIG, text.encode() + b"\n")
        made.append(str(home / BOARD_CONFIG))
    if c.mqtt.tls:
        authority = c.path(c.mqtt.ca).read_bytes()
        if not (home / "ca.crt").exists() or (home / "ca.crt").read_bytes() != authority:
            _swap(home / "ca.crt", authority)
            made.append(str(home / "ca.crt"))
    passwords = broker / "passwords"
    if not any(line.startswith(WATCHER + ":") for line in passwords.read_text().splitlines()):
        _user(passwords, WATCHER, password)
    former = (FORMER_ACL, FORMER_ACL + ACL_WATCHER, ACL)
    if (broker / "acl").read_text() in [text.format(site=c.gateway.site) for text in former]:
        _swap(broker / "acl", (ACL + ACL_WATCHER).format(site=c.gateway.site).encode())
        made.append(str(broker / "acl"))


def acl_lacks(folder: Path) -> list[str]:
    """The lines for alarms, heartbeat and passing on, if a person changed the access list and it has not got
    them."""
    path = folder / "mosquitto" / "acl"
    if WATCHER in boards_of(folder) or not path.exists():
        return []
    site = config.read(folder / CONFIG).gateway.site
    present = {" ".join(line.split()) for line in path.read_text().splitlines()}
    passes_on, watcher = [text.format(site=site).splitlines() for text in (ACL, ACL_WATCHER)]
    lacks = [lines for lines in (passes_on[-1:], watcher) if lines[0] not in present]
    return ["user gateway", *(line for lines in lacks for line in lines)] if lacks else []


def owner(folder: Path) -> str:
    """The user whose folder this is."""
    number = folder.stat().st_uid
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _user(path: Path, user: str, password: str) -> None:
    """Write the user's line in the broker's password file; it replaces a former one."""
    lines = path.read_text().splitlines() if path.exists() else []
    lines = [line for line in lines if not line.startswith(user + ":")]
    salt = secrets.token_bytes(12)
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, HASH_ROUNDS)
    texts = [base64.b64encode(part).decode() for part in (salt, digest)]
    lines.append("%s:$7$%d$%s" % (user, HASH_ROUNDS, "$".join(texts)))
    _swap(path, ("\n".join(lines) + "\n").encode())


def _swap(path: Path, data: bytes) -> None:
    """A secret file that is whole at any moment: the former or the new one."""
    fresh = path.with_name(path.name + ".new")
    write_secret(fresh, data)
    os.replace(fresh, path)


def _tls(folder: Path, host: str, new_authority: bool, made: list[str]) -> None:
    """The authority of a new site, or a new one on request. None is replaced silently."""
    home = folder / "tls"
    files = [home / name for name in ("ca.crt", "broker.crt", "broker.key")]
    missing = [path for path in files if not path.exists()]
    if not missing and not new_authority:
        return
    boards = boards_of(folder)
    fresh = len(missing) == len(files) and not boards and not (folder / CONFIG).exists()
    if not fresh and not new_authority:
        if missing == files[:1] and _authority_of_boards(folder, boards):
            made.append(str(files[0]))
            return
        raise UserError(
            "%s: missing. Boards check the broker by the authority of this site, and its own key was never "
            "kept: it cannot sign again. Choices: restore the folder tls from a backup (`hw gateway "
            "restore FILE NEWFOLDER`), which changes nothing for the boards; or make a new authority with "
            "`hw gateway init %s --new-authority`: then every board (%s) connects only after `hw provision "
            "NAME %s --renew`, and with the new ca.der on it"
            % (", ".join(map(str, missing)), folder, ", ".join(boards) or "none is provisioned yet", folder)
        )
    _authority(home, host, made)


def _authority_of_boards(folder: Path, boards: list[str]) -> bool:
    """Take ca.crt from the folder of a board, if it is the one that signed the broker's certificate."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.serialization import Encoding

    for name in boards:
        with contextlib.suppress(OSError, ValueError, TypeError, InvalidSignature):
            authority = x509.load_der_x509_certificate((folder / "boards" / name / "ca.der").read_bytes())
            broker = x509.load_pem_x509_certificate((folder / "tls" / "broker.crt").read_bytes())
            broker.verify_directly_issued_by(authority)
            (folder / "tls" / "ca.crt").write_bytes(authority.public_bytes(Encoding.PEM))
            return True
    return False


def _authority(folder: Path, host: str, made: list[str]) -> None:
    """An authority of this site and a certificate for its broker. The authority's key is not kept: it would
    be one more secret, and it is needed only here."""
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
            # Without these Python 3.13 takes no certificate unless it is told to be lenient.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
            )
        )
        if authority:
            usage = dict.fromkeys(
                "digital_signature content_commitment key_encipherment data_encipherment key_agreement "
                "crl_sign encipher_only decipher_only".split(),
                False,
            )
            builder = builder.add_extension(x509.KeyUsage(key_cert_sign=True, **usage), critical=True)
        else:
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
    folder.mkdir(exist_ok=True, mode=0o700)
    former = [path for path in folder.glob("*") if path.name in ("ca.crt", "broker.crt", "broker.key")]
    if former:
        away = folder / now.strftime("former-%Y%m%dT%H%M%SZ")
        away.mkdir(mode=0o700)
        for path in former:
            path.rename(away / path.name)
        made.append(str(away))
    write_secret(folder / "broker.key", pem)
    (folder / "broker.crt").write_bytes(certificate(subject, server, False))
    (folder / "ca.crt").write_bytes(certificate(issuer, signer, True))
    made += [str(folder / name) for name in ("ca.crt", "broker.crt", "broker.key")]


def check_name(name: str) -> None:
    if not is_name(name) or len(name) > NAME_MAX or name in RESERVED:
        raise UserError(
            "'%s' cannot be a board's name: a letter, then letters, digits or _, at most %d, and not %s"
            % (name, NAME_MAX, " or ".join(RESERVED))
        )


def board(folder: Path, c: config.Config, keys: Keys, name: str, number: int) -> Path:
    """The folder with the files for a board. Made again, it has a new password; its key is that of its
    number.

    The broker gets the password last: if this ends early, the board's present one is still valid."""
    home = folder / "boards" / name
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    (folder / "boards").chmod(0o700)
    with turn(folder):
        password = secrets.token_urlsafe(18)
        former = _former(home / BOARD_CONFIG)
        broker: dict[str, Any] = {"host": c.mqtt.host, "port": c.mqtt.port, "tls": c.mqtt.tls, "user": name}
        passwords = folder / "mosquitto" / "passwords"
        if passwords.exists():
            broker["password"] = password
        if c.mqtt.tls:
            from cryptography import x509
            from cryptography.hazmat.primitives.serialization import Encoding

            certificate = x509.load_pem_x509_certificate(c.path(c.mqtt.ca).read_bytes())
            _swap(home / "ca.der", certificate.public_bytes(Encoding.DER))
            broker["ca"] = "ca.der"
        settings = {
            "site": c.gateway.site,
            "name": name,
            "key": "board.key",
            "broker": {} if former.get("broker") == {} else broker,  # {}: it has Bluetooth alone
            "sensors": former.get("sensors", {}),
            "issued": int(time.time()),
        }
        for key in former.keys() - settings.keys():
            settings[key] = former[key]
        _swap(home / BLUETOOTH_KEY, keys.bluetooth())
        _swap(home / "board.key", keys.board(number))
        (home / REVOKED).unlink(missing_ok=True)
        _swap(home / BOARD_CONFIG, json.dumps(settings, indent=1).encode() + b"\n")
        if passwords.exists():
            _user(passwords, name, password)
    return home


def settings(folder: Path, name: str) -> dict[str, Any]:
    """What is in a board's configuration; empty if there is none."""
    return _former(folder / "boards" / name / BOARD_CONFIG)


def links(folder: Path, name: str, bluetooth: str, renew: bool) -> None:
    """Which links a board has, from now on: `bluetooth` is on (beside the broker), only, or off. `renew`: its
    files are made again next."""
    home = folder / "boards" / name
    with turn(folder):
        settings = _former(home / BOARD_CONFIG)
        if not settings:
            return
        if bluetooth == "only":
            settings["broker"] = {}
        elif not settings.get("broker"):
            if not renew:
                raise UserError(
                    "board %s has no password for the broker, only Bluetooth: add --renew, which makes one"
                    % name
                )
            settings.pop("broker", None)
        settings["bluetooth"] = {**settings.get("bluetooth", {}), "enabled": bluetooth != "off"}
        _swap(home / BOARD_CONFIG, json.dumps(settings, indent=1).encode() + b"\n")


def intend(folder: Path, name: str, new: str) -> None:
    """Note that a board gets another name: `rename`, or `forgo`, ends that."""
    with turn(folder):
        _swap(folder / "boards" / name / RENAMING, ("%s %s\n" % (name, new)).encode())


def forgo(folder: Path, name: str) -> None:
    """A board keeps its name."""
    (folder / "boards" / name / RENAMING).unlink(missing_ok=True)


def intended(folder: Path) -> list[tuple[str, str, str]]:
    """Of boards whose renaming has not come to its end: name of the folder, former name, new name."""
    found = []
    for path in (folder / "boards").glob("*/" + RENAMING):
        former, _, new = path.read_text().strip().partition(" ")
        found.append((path.parent.name, former, new))
    return found


def rename(folder: Path, name: str, new: str) -> Path:
    """The folder of a board that has another name now, in it as well; its password stays, and the flash of a
    virtual board. What an earlier call has done, this one leaves out."""
    home = folder / "boards" / new
    with turn(folder):
        for former in (folder / "boards" / name, folder / "virtual" / name):
            if former.is_dir() and not (former.parent / new).exists():
                former.rename(former.parent / new)
        settings = _former(home / BOARD_CONFIG)
        if settings.get("name") != new:
            _call(settings, new, folder / "mosquitto" / "passwords")
            _swap(home / BOARD_CONFIG, json.dumps(settings, indent=1).encode() + b"\n")
    forgo(folder, new)
    return home


def _call(settings: dict[str, Any], new: str, passwords: Path) -> None:
    """Another name in the configuration of a board, and at the broker."""
    former, settings["name"] = settings.get("name"), new
    broker = settings.get("broker")
    if isinstance(broker, dict) and broker:
        broker["user"] = new
        if passwords.exists() and isinstance(broker.get("password"), str):
            _user(passwords, new, broker["password"])
            _no_user(passwords, str(former))


def forget(folder: Path, name: str) -> None:
    """The broker knows this board no more, once it has read its passwords again."""
    with turn(folder):
        passwords = folder / "mosquitto" / "passwords"
        if passwords.exists():
            _no_user(passwords, name)


def revoke(folder: Path, name: str) -> None:
    """Note beside the key of a lost board that it is refused: a database that is lost, or older than the
    loss, does not know it."""
    with turn(folder):
        home = folder / "boards" / name
        if home.exists():
            write_secret(home / REVOKED, b"This board was declared lost: the key here is refused.\n")


def _no_user(path: Path, user: str) -> None:
    lines = [line for line in path.read_text().splitlines() if not line.startswith(user + ":")]
    _swap(path, ("\n".join(lines) + "\n").encode())


def _former(path: Path) -> dict[str, Any]:
    """The present configuration of a board: what a person added stays."""
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise UserError("%s is not JSON (%s): correct it, or remove it" % (path, error))
    return found if isinstance(found, dict) else {}
