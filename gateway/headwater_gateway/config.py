"""The gateway's configuration: one TOML file, every key with a default and a comment.

`read` reports all problems at once, each with its key, its value and what to do; for an unknown key it
suggests the one that was probably meant. `default_text` is the file that `hw gateway init` writes.
Paths are relative to the folder of the file.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from . import UserError


@dataclass(frozen=True)
class Key:
    default: Any
    comment: str
    check: Callable[[Any], str]  # what is wrong with a value of the right type, or ""


def _any(value: Any) -> str:
    return ""


def _within(low: float, high: float) -> Callable[[Any], str]:
    return lambda v: "" if low <= v <= high else "use %g to %g" % (low, high)


def _zero_or(low: float, high: float) -> Callable[[Any], str]:
    return lambda v: "" if v == 0 or low <= v <= high else "use %g to %g, or 0" % (low, high)


def _one_of(*words: str) -> Callable[[Any], str]:
    return lambda v: "" if v in words else "use one of %s" % ", ".join('"%s"' % w for w in words)


def _filled(value: Any) -> str:
    return "" if value else "it must not be empty"


def _word(value: Any) -> str:
    good = 0 < len(value) <= 32 and all(c.isalnum() and c.isascii() or c in "_-" for c in value)
    return "" if good else "use up to 32 letters, digits, _ or -"


def _names(value: Any) -> str:
    good = all(c.isascii() and (c.isalnum() or c in "-_. ") for c in value)
    return "" if good else 'use names without port, like "gateway.example.org hw.lan"'


def _url(value: Any) -> str:
    if not value:
        return ""
    try:
        parts = urlsplit(value)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good or not value.isascii() or not value.isprintable() or " " in value:
        return 'use an address like "https://example.org/alarms"'
    if "@" in parts.netloc:
        return "a password in an address would be shown: put it into the file of webhook.secret_file"
    return ""


def _header(value: Any) -> str:
    good = 0 < len(value) <= 64 and all(c.isascii() and (c.isalnum() or c == "-") for c in value)
    if not good:
        return "use letters, digits and -"
    taken = ("content-type", "content-length", "host", "idempotency-key", "user-agent")
    return "the gateway sets that header itself: choose another" if value.lower() in taken else ""


KEYS: dict[str, dict[str, Key]] = {
    "gateway": {
        "site": Key("hw", "First word of every MQTT topic; boards of one site share it.", _word),
        "data": Key("data", "Folder of the database. One gateway at a time may use it.", _filled),
        "secrets": Key(
            "secrets", "Folder of the master key. Anyone who reads it can impersonate every board.", _filled
        ),
        "socket": Key(
            "data/gateway.sock",
            "Unix socket on which `hw deploy` and `hw provision` reach the gateway.",
            _filled,
        ),
        "clock": Key(
            "network",
            "Where the site's time comes from. \"network\": this machine's clock, while its kernel reports\n"
            'that it is synchronised (systemd-timesyncd, chrony, ntpd). "wall": this machine\'s clock\n'
            "always; for a machine with a battery-backed clock and no network, or one whose host keeps it.",
            _one_of("network", "wall"),
        ),
    },
    "mqtt": {
        "host": Key("localhost", "The broker. With TLS this must be a name in its certificate.", _filled),
        "port": Key(8883, "8883 with TLS, 1883 without.", _within(1, 65535)),
        "tls": Key(True, "Use TLS, and check the broker's certificate against `ca`.", _any),
        "ca": Key("tls/ca.crt", "Certificates against which the broker's one is checked.", _any),
        "cert": Key("", "Certificate of this gateway, if the broker requires one.", _any),
        "key": Key("", "Its private key.", _any),
        "user": Key("gateway", 'User name, "" if the broker requires none.', _any),
        "password_file": Key(
            "secrets/mqtt.password", "File with the password. Passwords are not written in this file.", _any
        ),
        "keepalive_s": Key(
            30,
            "Seconds of silence after which the connection to the broker counts as lost.",
            _within(5, 3600),
        ),
        "reconnect_max_s": Key(
            15, "Longest pause between two attempts to reach the broker.", _within(1, 600)
        ),
    },
    "bluetooth": {
        "enabled": Key(
            False,
            "Connect to boards over Bluetooth Low Energy too, through BlueZ. The user of this service must\n"
            "be in the group `bluetooth`.",
            _any,
        ),
        "adapter": Key(
            "",
            'The adapter, like "hci1"; "": the first one. Prefer one at USB to that of a Raspberry Pi.',
            _any,
        ),
        "slots": Key(
            4,
            "Boards connected at the same time. An adapter that has no connection left drops others:\n"
            "cheap ones have 5, that of a Raspberry Pi 7.",
            _within(1, 7),
        ),
        "encryption": Key(
            "required",
            "Frames over Bluetooth are encrypted from end to end, whatever the link does. A board whose\n"
            "firmware has no AES has no Bluetooth.",
            _one_of("required"),
        ),
        "pairing": Key(
            True,
            "Ask boards that allow it for LE Secure Connections as well: who steals a board or the gateway\n"
            "cannot read then what was recorded before. It goes on without where that fails.",
            _any,
        ),
    },
    "store": {
        "commit_ms": Key(
            5,
            "Shortest time between two commits, in milliseconds. More wears an SD card less;\n"
            "acknowledgements wait for it.",
            _within(0, 1000),
        ),
        "max_bytes": Key(
            8_000_000_000,
            "Largest size of the database. When it is reached, boards get no acknowledgements and\n"
            "keep their entries in their own flash. Nothing is dropped here.",
            _within(1_000_000, 1 << 50),
        ),
        "min_free_bytes": Key(
            500_000_000, "Also stop acknowledging when free disk space drops below this.", _within(0, 1 << 50)
        ),
    },
    "lake": {
        "landing": Key(
            "landing",
            "Landing zone for segments: a folder, or a place in an object store (s3://bucket/prefix,\n"
            "gs://, abfss://) whose credentials are in the environment.",
            _filled,
        ),
        "acks": Key(
            "lake/acks",
            "Where the sink writes its acknowledgements (LAKE/acks): a folder or an object store.",
            _filled,
        ),
        "segment_rows": Key(
            200_000, "A segment is cut when this number of entries of a stream wait,", _within(1, 10_000_000)
        ),
        "segment_s": Key(
            10.0, "or when the oldest of them has waited for this number of seconds.", _within(0.1, 86_400)
        ),
        "compression_level": Key(3, "zstd compression level.", _within(1, 22)),
        "acks_every_s": Key(2.0, "Seconds between two reads of the acknowledgements.", _within(0.1, 3600)),
        "check_every_s": Key(
            600.0,
            "How often the landing zone is listed while segments wait there: one that has vanished before\n"
            "the lake had it is cut again. An object store charges for each listing.",
            _within(1, 86_400),
        ),
    },
    "http": {
        "bind": Key(
            "127.0.0.1",
            "Address of the status page, health and metrics. Anything but a loopback address\n"
            "asks for a token.",
            _filled,
        ),
        "port": Key(8010, "0 takes a free one and prints it.", _within(0, 65535)),
        "names": Key(
            "",
            "Further names by which browsers reach this gateway, separated by spaces, as of a proxy.\n"
            "Requests for any other name are refused; addresses and this machine's own name are known.",
            _names,
        ),
        "token_file": Key(
            "secrets/token",
            "File with the token that a browser or a scraper must show. Needed only where `bind`\n"
            "is not a loopback address.",
            _any,
        ),
    },
    "boards": {
        "silent_s": Key(
            20.0,
            "Seconds of silence after which a board is shown as lost.",
            _within(1, 86_400),
        ),
        "gone_s": Key(3600.0, "... and as gone.", _within(1, 10_000_000)),
    },
    "alarms": {
        "unacknowledged_s": Key(
            300.0,
            "Alarm when the lake has not acknowledged an element that waits here for this long.",
            _within(1, 10_000_000),
        ),
        "board_backlog_s": Key(
            300.0,
            "Alarm when a board has held an element that is not here yet for this long.",
            _within(1, 10_000_000),
        ),
        "battery_low_mv": Key(
            3400,
            "Alarm when the battery of a board is below this, in millivolts; 0: never.",
            _within(0, 100_000),
        ),
        "clock_ms": Key(
            1000.0,
            "Alarm when the times that a board stamps may be wrong by more than this.",
            _within(1, 10_000_000),
        ),
    },
    "notices": {
        "mqtt": Key(
            True,
            "Tell alarms to the site's broker: a message on SITE/w/g/notices whenever one begins, changes\n"
            "or ends, and a retained one on SITE/w/g/on/ID for each that is on.",
            _any,
        ),
        "repeat_s": Key(
            3600.0,
            "Repeat a critical alarm after this number of seconds until it is acknowledged; 0: never.",
            _zero_or(10, 10_000_000),
        ),
        "heartbeat_s": Key(
            10.0,
            "Seconds between two heartbeats on SITE/w/g/heartbeat; 0: none. A watcher takes the gateway for\n"
            "dead after three of them.",
            _zero_or(0.5, 3600),
        ),
    },
    "webhook": {
        "url": Key(
            "",
            'Tell alarms to this address: a POST of JSON for each notice, like "https://example.org/alarms".\n'
            '"": no webhook.',
            _url,
        ),
        "secret_file": Key(
            "",
            "File with the value of a header that proves who sends, like `Bearer ...`. Secrets are not\n"
            "written in this file.",
            _any,
        ),
        "header": Key("Authorization", "Name of that header.", _header),
        "ca": Key(
            "",
            'Certificates against which that of the address is checked; "": those that this machine trusts.',
            _any,
        ),
        "timeout_s": Key(10.0, "Seconds to wait for an answer.", _within(0.1, 300)),
        "retry_max_s": Key(
            300.0, "Longest pause between two attempts, which double from one second.", _within(1, 86_400)
        ),
    },
    "log": {
        "format": Key(
            "text", '"text" for people, "json" for machines: one object a line.', _one_of("text", "json")
        ),
        "level": Key(
            "info", '"debug", "info", "warning" or "error".', _one_of("debug", "info", "warning", "error")
        ),
    },
}

_HEAD = """\
# Configuration of the Headwater gateway. Every key is listed with its default, commented out;
# remove the `#` to change it. `hw gateway check FOLDER` reports what is wrong with this file.
# Relative paths start at the folder of this file.
"""


class ConfigError(UserError):
    def __init__(self, path: Path, problems: list[str]) -> None:
        super().__init__("%s:\n  %s" % (path, "\n  ".join(problems)))
        self.problems = problems


class Config:
    """The values, as attributes of attributes: config.mqtt.port."""

    def __init__(self, folder: Path, values: dict[str, dict[str, Any]]) -> None:
        self.folder = folder
        for name, section in values.items():
            setattr(self, name, Section(section))

    def __getattr__(self, name: str) -> Section:  # only what __init__ did not set
        raise AttributeError(name)

    def path(self, value: str) -> Path:
        return self.folder / Path(value).expanduser()


class Section:
    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def read(path: str | Path) -> Config:
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        folder = path.parent if path.suffix == ".toml" else path
        raise UserError("%s: %s; `hw gateway init %s` makes one" % (path, error.strerror, folder))
    except UnicodeDecodeError:
        raise UserError(
            "%s is not text in UTF-8: `hw gateway init FOLDER` shows what it should look like" % path
        )
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(path, ["invalid TOML: %s. %s" % (error, _hint(str(error)))])
    values, problems = _judge(given)
    if problems:
        raise ConfigError(path, problems)
    return Config(path.resolve().parent, values)


def _hint(problem: str) -> str:
    """What to do about an error of the TOML reader."""
    for words, hint in _HINTS.items():
        if words in problem:
            return hint
    return "Compare that line with the file that `hw gateway init FOLDER` writes into an empty folder"


_HINTS = {
    "Cannot declare": "Write each section once, and all of its keys below it",
    "Cannot overwrite": "A key may occur once in a section: remove one of them",
    "Invalid value": "Strings need quotes; booleans are lower-case: true, false",
    "Expected '='": "Write KEY = VALUE, or [SECTION]",
    "Invalid initial character": "Write KEY = VALUE, or [SECTION]; a line that begins with # is a comment",
    "Illegal character": "A string ends on the line on which it begins: look for a missing quote",
    'Expected "\'"': "Look for a missing quote",
    "Expected '\"": "Look for a missing quote",
    "Unescaped": "Write a backslash in a string as two",
    "after a statement": "One KEY = VALUE on a line; strings with spaces need quotes",
    "table declaration": "Write a section as [SECTION]",
}


def _judge(given: dict[str, Any]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    values = {name: {key: k.default for key, k in keys.items()} for name, keys in KEYS.items()}
    problems = []
    for name, section in given.items():
        if name not in KEYS:
            if not isinstance(section, dict) and _homes(name):
                problems.append("key %s is in no section: write it below %s" % (name, _homes(name)))
            else:
                problems.append(_unknown("section [%s]" % name, name, list(KEYS)))
        elif not isinstance(section, dict):
            problems.append("%s = %r: [%s] is a section with keys of its own" % (name, section, name))
        else:
            for key, value in section.items():
                problem = _key(name, key, value)
                if problem:
                    problems.append(problem)
                else:
                    values[name][key] = value
    if not problems:
        problems = _together(values)
    return values, problems


def _homes(key: str, besides: str = "") -> str:
    """The sections that have a key of this name."""
    return " or ".join("[%s]" % name for name, keys in KEYS.items() if key in keys and name != besides)


def _unknown(what: str, word: str, known: list[str]) -> str:
    near = difflib.get_close_matches(word, known, 1, 0.6)
    if near:
        return "%s is unknown: did you mean %s?" % (what, near[0])
    return "%s is unknown; there are %s" % (what, ", ".join(known))


def _key(section: str, key: str, value: Any) -> str:
    keys = KEYS[section]
    name = "%s.%s" % (section, key)
    if key not in keys:
        if _homes(key, section):
            return "key %s is unknown: write it below %s, which knows a key of this name" % (
                name,
                _homes(key, section),
            )
        return _unknown("key " + name, key, list(keys))
    want = type(keys[key].default)
    if want is float and type(value) is int:
        value = float(value)
    if type(value) is not want:
        kinds = {str: 'a text, in "quotes"', bool: "true or false", int: "a whole number", float: "a number"}
        return "%s = %r: it is %s, like %s" % (name, value, kinds[want], _toml(keys[key].default))
    wrong = keys[key].check(value)
    return "%s = %s: %s" % (name, _toml(value), wrong) if wrong else ""


def _together(values: dict[str, dict[str, Any]]) -> list[str]:
    problems = []
    mqtt = values["mqtt"]
    if bool(mqtt["user"]) != bool(mqtt["password_file"]):
        problems.append("mqtt.user and mqtt.password_file: give both or neither")
    if mqtt["tls"] and bool(mqtt["cert"]) != bool(mqtt["key"]):
        problems.append("mqtt.cert and mqtt.key: give both or neither")
    if mqtt["tls"] and not mqtt["ca"]:
        problems.append('mqtt.ca = "": with mqtt.tls it is needed to check the broker; name the file')
    if values["boards"]["gone_s"] < values["boards"]["silent_s"]:
        problems.append("boards.gone_s is below boards.silent_s: a board is lost first, and gone later")
    webhook = values["webhook"]
    if webhook["url"]:
        parts = urlsplit(webhook["url"])
        if webhook["secret_file"] and parts.scheme == "http" and parts.hostname not in _HERE:
            problems.append(
                "webhook.secret_file: %s is not encrypted, and everybody on the way could read the secret: "
                "use an address with https" % webhook["url"]
            )
    elif webhook["secret_file"] or webhook["ca"]:
        problems.append('webhook.url = "": webhook.secret_file and webhook.ca need an address')
    return problems


_HERE = ("localhost", "127.0.0.1", "::1")


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"%s"' % value.replace("\\", "\\\\").replace('"', '\\"')
    return str(value)


def text(changed: dict[str, dict[str, Any]] | None = None) -> str:
    """The file with all keys; those of `changed` have that value, the others their default, as a comment."""
    lines = [_HEAD]
    for name, keys in KEYS.items():
        lines.append("[%s]" % name)
        for key, k in keys.items():
            lines += ["# " + line for line in k.comment.splitlines()]
            if changed and key in changed.get(name, {}):
                lines.append("%s = %s\n" % (key, _toml(changed[name][key])))
            else:
                lines.append("#%s = %s\n" % (key, _toml(k.default)))
    return "\n".join(lines)
